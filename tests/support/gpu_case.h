/* A product of any_case.h on a GPU, emulated or real: its arrays on the device, and its C back for comparison. */
#ifndef OCTET_TEST_GPU_CASE_H
#define OCTET_TEST_GPU_CASE_H

#include "any_case.h"
#include "octet/gpu.h"

/* The device of this process's tests: the emulator behind its fake driver, or with OCTET_TEST_GPU=real in the environment libcuda's
 * first. NULL after saying why. */
octet_gpu *gpu_device(void);
bool       gpu_is_real(void);
/* Puts the fake driver in libcuda's place (unless a real one is wanted) and returns its state, or NULL. */
struct fake_cuda_state *gpu_replace_driver(void);

/* Device memory: with at_end flush with the end of what is mapped, so that a step past it faults (emulated). */
typedef struct gpu_memory { uint64_t base; void *p; size_t bytes; } gpu_memory;
gpu_memory gpu_put(const void *host, size_t bytes, bool at_end);
void       gpu_get(void *host, const gpu_memory *);
void       gpu_drop(gpu_memory *);

/* Plans for `kernel` (NULL: any that may be chosen), packs, runs, brings C back into c->c; then any_check. 0 if it is right. */
int gpu_run_case(any_case *, octet_gpu *, const char *kernel);
/* A's and B's values, and what is added to sums, become small integers, so that floating sums are exact in any order. */
void gpu_make_exact(any_case *);

#endif
