/*
 * octet/gpu.h: the products of octet.h on an NVIDIA GPU.
 *
 * The same descriptions, epilogues, statuses and arguments; pointers to operands are then device pointers. Nothing here needs
 * a CUDA header: libcuda is opened when the first context is made, so a program that links octet runs on machines without
 * one, where octet_gpu_create returns OCTET_EDEVICE and octet_why() the reason.
 *
 * Rules that hold for every function here
 *
 *   Enqueue     A run only puts work on `stream`, a CUstream (cudaStream_t) of the context's device; NULL is the legacy
 *               default stream. It neither waits nor allocates nor loads, so runs may be captured in a graph. A pack allocates first, then
 *               enqueues. Operands, workspace, packed operand and plan must stay until the stream has come past them, and as long as a
 *               graph holds them. A stream of another device is refused.
 *   Context     The device's primary context, as the CUDA runtime uses it. The caller's current context is as it was on return.
 *   Failures    As in octet.h. What fails on the device later surfaces at a later call or in octet_gpu_sync, as OCTET_EDEVICE; after
 *               a fault that ends a context every call that needs the device says so.
 *   Exact       Integer products equal the CPU's bit for bit (a NaN is a NaN). Floating point ones do too on the portable kernel. On tensor
 *               cores a sum of k products is within  k 2^-22 sum |a b|  of the exact one (they add in f32, without
 *               rounding each step to nearest); what follows is octet_run's, one rounding a step. A result depends on the
 *               plan and the device, not on m (below 2^31 rows), the batch, or what else runs: nothing here adds atomically.
 *   Fork        A child may not use a parent's contexts: it gets OCTET_EDEVICE.
 *   Threads     As in octet.h; one workspace for each run in flight.
 */
#ifndef OCTET_GPU_H
#define OCTET_GPU_H

#include "octet.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct octet_gpu octet_gpu; /* a device, its kernels, its memory */

/* Device memory for packed operands. alloc returns `bytes` bytes at a multiple of 256, or 0. */
typedef struct octet_gpu_allocator {
    uint64_t (*alloc)(void *user, size_t bytes);
    void     (*free)(void *user, uint64_t p, size_t bytes);
    void     *user;
} octet_gpu_allocator;

typedef struct octet_gpu_opts {
    size_t              size;
    int                 ordinal;   /* of the device, as CUDA counts them  */
    octet_gpu_allocator allocator; /* default: cuMemAlloc and cuMemFree   */
} octet_gpu_opts;
#define OCTET_GPU_OPTS { sizeof(octet_gpu_opts), 0, { 0, 0, 0 } }

/* Opens a device and retains its primary context. opts may be NULL.
 * OCTET_EDEVICE: no driver, one older than the nvcc that built the kernels (12 at least), no such device, an architecture octet has no kernels for, or a build without
 * nvcc. OCTET_EINVAL, OCTET_ENOMEM. */
OCTET_API octet_status octet_gpu_create(const octet_gpu_opts *opts, octet_gpu **out);
/* Gives the device up; it stays open while a plan uses it. NULL is fine. */
OCTET_API void octet_gpu_free(octet_gpu *);

typedef struct octet_gpu_info {
    size_t  size;
    char    name[64];
    int     driver;         /* 13000 for CUDA 13.0         */
    int     major, minor;   /* of the architecture: 9.0    */
    int     processors;     /* streaming multiprocessors   */
    int     clock_khz;
    int64_t memory_bytes, l2_bytes, shared_bytes; /* shared: the most a block may have */
} octet_gpu_info;
#define OCTET_GPU_INFO { sizeof(octet_gpu_info), { 0 }, 0, 0, 0, 0, 0, 0, 0, 0 }
OCTET_API octet_status octet_gpu_describe(const octet_gpu *, octet_gpu_info *out);

/* Waits for `stream`, and reports what failed on it. */
OCTET_API octet_status octet_gpu_sync(octet_gpu *, void *stream);

/* Which kernels a plan may use. */
typedef struct octet_gpu_choice {
    size_t      size;
    const char *kernel;  /* only this one; NULL: the one the cost model prefers at each m                           */
    int         unseen;  /* 1: also kernels that were never checked and measured on such a device; a named one is   */
} octet_gpu_choice;
#define OCTET_GPU_CHOICE { sizeof(octet_gpu_choice), 0, 0 }

/*
 * As octet_plan_gemm; loads every kernel that runs can reach. choice may be NULL. octet_plan_free frees it, octet_explain explains it; other functions of
 * octet.h refuse it. OCTET_EINVAL: also a kernel's name that there is not. OCTET_EUNSUPPORTED: the named kernel refuses this product (octet_why() has its reason), or a flag does:
 * OCTET_NO_FALLBACK means that the portable kernel may not be chosen.
 */
OCTET_API octet_status octet_gpu_plan_gemm(octet_gpu *, const octet_gemm_desc *desc, const octet_gpu_choice *choice, octet_plan **out);

/* As octet_pack, on the device: b, and the scales and zeros in qb if given, are device pointers, and must stay until the stream
 * has come past. Zero points given by column are not checked. Takes rows of k at multiples of 128 bytes, one for each column of B
 * rounded up to 32, and 12 bytes a column (8 for each group, weight-only; none with a floating B). OCTET_ENOMEM: there is no more. octet_packed_free
 * frees it, waiting for the device where the default allocator is used. */
OCTET_API octet_status octet_gpu_pack(const octet_plan *, const void *b, int64_t ldb, const octet_quant *qb, void *stream, octet_packed **out);

/* Bytes of workspace that a run with these arguments needs: 0 where A goes to the kernel as it lies. (Otherwise A is first
 * brought into rows at multiples of 128 bytes, quantized if it is to be.) More never hurts; the most of several runs serves all,
 * one after another on a stream, and that is what a batch needs. 0 also for arguments that a run refuses. */
OCTET_API size_t octet_gpu_workspace_bytes(const octet_plan *, const octet_gemm_args *args);
OCTET_API size_t octet_gpu_batch_workspace_bytes(const octet_plan *, const octet_gemm_args *args, const octet_batch *batch);

/*
 * As octet_run: the pointers in args are device pointers, args->b comes from octet_gpu_pack. Not taken: done (must be NULL); workspace is
 * this call's, at a multiple of 256, not that in args. zero_a_rows is not checked. OCTET_EINVAL, OCTET_EDEVICE.
 */
OCTET_API octet_status octet_gpu_run(const octet_plan *, const octet_gemm_args *args, void *stream, void *workspace, size_t bytes);

/* As octet_run_batch; the vectors of pointers and m_offsets are host memory, read before the call returns; what they point to is the
 * device's. The products are enqueued one after another and share the workspace. */
OCTET_API octet_status octet_gpu_run_batch(const octet_plan *, const octet_gemm_args *args, const octet_batch *batch,
                                           void *stream, void *workspace, size_t bytes);

/* The kernels there are, i = 0, 1, ...: name, and why this device (and product, with desc, for m rows) does not get it; "" if it
 * may. OCTET_EINVAL past the last. */
typedef struct octet_gpu_kernel {
    size_t size;
    char   name[48], refused[112];
    double microseconds; /* as the cost model has it, with desc */
} octet_gpu_kernel;
#define OCTET_GPU_KERNEL { sizeof(octet_gpu_kernel), { 0 }, { 0 }, 0 }
OCTET_API octet_status octet_gpu_kernel_at(const octet_gpu *, int i, const octet_gemm_desc *desc, int64_t m, octet_gpu_kernel *out);

#ifdef __cplusplus
}
#endif
#endif
