/* A GPU as octet holds it, the table of kernels, and what a plan and a packed operand keep of it. */
#ifndef OCTET_DEVICE_H
#define OCTET_DEVICE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "driver.h"
#include "octet/gpu.h"
#include "plan.h"

/* ---- the table ---- */

typedef enum gpu_role { GPU_PREPARES, GPU_PORTABLE, GPU_HOPPER } gpu_role;

typedef struct gpu_kernel_row {
    const char *name;
    const char *image;
    gpu_role    role;
    octet_dtype a, b;      /* Hopper: as they meet */
    int         bm, bn, stages, cluster, turns;
    bool        seen;      /* checked and measured on a device */
} gpu_kernel_row;

enum { GPU_RANGE, GPU_GATHER, GPU_GATHER_COLUMNS, GPU_PACK, GPU_PORTABLE_S32, GPU_PORTABLE_F32, GPU_FIRST_HOPPER, GPU_KERNELS_MAX = 64 };
extern const gpu_kernel_row gpu_kernels[];
extern const int gpu_kernel_count;

/* A product as the choice sees it. */
typedef struct gpu_problem {
    int64_t     m, n, k;        /* m < 0: any                       */
    octet_dtype a, b;           /* a as it meets b                  */
    bool        gated, integer;
    bool        no_portable;
} gpu_problem;

gpu_problem gpu_problem_of(const octet_gemm_desc *, int64_t m);
/* Why a kernel cannot serve the product on such a device; "" if it can. unseen: kernels without a record are welcome. Pure. */
const char *gpu_refuses(const gpu_kernel_row *, const octet_gpu_info *, const gpu_problem *, bool unseen);
/* Clocks of a device like this one, from the tile's shape; see choose.c. Pure. */
double gpu_cost(const gpu_kernel_row *, const octet_gpu_info *, const gpu_problem *);
/* The rows of A that an L2 cache holds beside the panels of B: tile rows in a band. Pure. */
int gpu_band(const gpu_kernel_row *, const octet_gpu_info *, const gpu_problem *);
/* The cheapest of the kernels whose bits are set that does not refuse m; -1: none. Pure. */
int gpu_choose(uint64_t candidates, const octet_gpu_info *, const gpu_problem *);

/* ---- the device ---- */

struct octet_gpu {
    atomic_int          refs;
    pid_t               owner;
    const cu_driver    *cu;
    int                 device;
    void               *context;
    octet_gpu_allocator allocator;
    octet_gpu_info      info;
    octet_ctx          *host;    /* whose allocator holds what is in host memory */
    void               *libraries[GPU_KERNELS_MAX];
    void               *kernels[GPU_KERNELS_MAX]; /* NULL: not of this architecture */
    atomic_int          fault;   /* the driver's number of what ended the context */
};

octet_gpu *gpu_hold(octet_gpu *);
/* Into the device's context and out of it again. Not OCTET_OK: not entered. */
octet_status gpu_enter(octet_gpu *, const char *who);
void         gpu_leave(octet_gpu *);
/* As gpu_enter, and the stream must be of the device. */
octet_status gpu_enter_stream(octet_gpu *, const char *who, void *stream);
/* What a driver call said: remembered, if it is the end of the context. */
octet_status gpu_check(octet_gpu *, int result, const char *call);
octet_status gpu_launch(octet_gpu *, int kernel, int64_t blocks, int threads, unsigned shared_bytes, int cluster, void *stream, void *params);

/* ---- plans and packed operands ---- */

struct gpu_plan {
    octet_gpu *gpu;
    uint64_t   candidates; /* bits of kernels that serve some m */
};

struct gpu_packed {
    uint64_t memory;
    size_t   bytes;
    int64_t  pitch;
    size_t   scales, zeros, sums, float_zeros; /* where, after the rows */
    bool     has_zeros;
};

#endif
