/* What the GPU side of octet-bench and its peer share: device memory, and a product whose operands rotate past the L2 cache. */
#ifndef OCTET_GPU_BENCH_H
#define OCTET_GPU_BENCH_H

#include "bench.h"

enum { SETS = 64 };

typedef struct gpu_task {
    int64_t     m, n, k;
    octet_dtype a, b, c;
    int         sets;
    uint64_t    pa[SETS], pb[SETS], pc[SETS]; /* device; A m x k, B n x k, C m x n of 4 bytes a value at most */
} gpu_task;

/* The driver's calls that a benchmark needs besides octet's. */
typedef struct gpu_calls {
    int (*alloc)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*to_device)(uint64_t, const void *, size_t);
    int (*to_host)(void *, uint64_t, size_t);
    int (*copy)(uint64_t, uint64_t, size_t, void *stream);
    int (*synchronize)(void *);
} gpu_calls;
extern gpu_calls gpu;

int gpu_gemm_report(const options *);
int gpu_machine_report(void);

/* peer_cublaslt.c: C = A B^T in the types of the task (8-bit ones: s8 operands, s32 C); the best of the first `wanted` heuristics
 * by time, and the first. NULL if it cannot. */
const char *cublaslt_open(void); /* why not; NULL if it can be used */
void       *cublaslt_prepare(const gpu_task *, int wanted);
void        cublaslt_run(void *, int set, bool first);
bool        cublaslt_best(void *, double seconds); /* picks it, among those that run; false: none does */
void        cublaslt_close(void *);

#endif
