/* Knobs and counters of the driver that stands in for libcuda in tests; fake_cuda() is exported by it. */
#ifndef OCTET_TEST_FAKE_CUDA_H
#define OCTET_TEST_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fake_cuda_state {
    /* what the device is */
    int version, major, minor, processors, devices;
    int runs_kernels;         /* 0: launches are only checked */
    /* what fails: a call by its name, once, with this number; or everything after a fault on the device */
    const char *failing;
    int         failing_with;
    int         pending_fault; /* surfaces at the next call that waits or launches, and stays */
    /* what happened */
    int      depth;            /* contexts pushed and not popped */
    int      launches, encodes, loads, functions, synchronizations;
    int      live_allocations;
    int      violations;       /* of the emulator, or of a launch's parameters */
    char     last_kernel[64];
    void    *last_stream;
    void    *current;          /* the caller's own context under ours */
    uint64_t seed;             /* of the emulator's timing; 0: goes on */
} fake_cuda_state;

fake_cuda_state *fake_cuda(void);

/* Streams that the fake driver knows: of the device's primary context, and of another. */
#define FAKE_STREAM ((void *)(uintptr_t)0x1000)
#define FAKE_FOREIGN_STREAM ((void *)(uintptr_t)0x2000)

#ifdef __cplusplus
}
#endif
#endif
