/* cuBLASLt, opened at run time: C = A B^T, row-major, through its column-major view C^T = B A^T. Workspace 64 MB; the heuristic's first
 * algorithms are all timed, since the first is often not the best. */
#include "gpu_bench.h"

#if HAVE_CUBLASLT
#include <cublasLt.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALLS(X) X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) \
    X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)
#define FIELD(name) __typeof__(&name) name;
static struct { CALLS(FIELD) } lt;
static cublasLtHandle_t handle;
enum { ALGORITHMS = 8, WORKSPACE = 64 << 20 };

typedef struct product {
    const gpu_task        *t;
    cublasLtMatmulDesc_t   op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t   algos[ALGORITHMS];
    int                    count, best, now;
    uint64_t               workspace;
    bool                   bytes;
} product;

const char *cublaslt_open(void)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "/usr/local/cuda/lib64/libcublasLt.so" };
    void *so = NULL;
    for (size_t i = 0; !so && i < sizeof names / sizeof *names; i++) so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!so) return "libcublasLt could not be opened";
#define LOAD(name) { void *p = dlsym(so, #name); if (!p) return "it lacks " #name; memcpy(&lt.name, &p, sizeof p); }
    CALLS(LOAD)
    return lt.cublasLtCreate(&handle) ? "cublasLtCreate failed" : NULL;
}

void *cublaslt_prepare(const gpu_task *t, int wanted)
{
    product *p = calloc(1, sizeof *p);
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t workspace = WORKSPACE;
    p->t = t;
    p->bytes = t->a == OCTET_U8 || t->a == OCTET_S8;
    const cudaDataType_t in = p->bytes ? CUDA_R_8I : t->a == OCTET_F16 ? CUDA_R_16F : t->a == OCTET_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out = p->bytes ? CUDA_R_32I : t->c == OCTET_F16 ? CUDA_R_16F : t->c == OCTET_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    bool good = (t->a == t->b || p->bytes) && !gpu.alloc(&p->workspace, workspace)
        && !lt.cublasLtMatmulDescCreate(&p->op, p->bytes ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, p->bytes ? CUDA_R_32I : CUDA_R_32F)
        && !lt.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed)
        && !lt.cublasLtMatrixLayoutCreate(&p->b, in, (uint64_t)t->k, (uint64_t)t->n, t->k)
        && !lt.cublasLtMatrixLayoutCreate(&p->a, in, (uint64_t)t->k, (uint64_t)t->m, t->k)
        && !lt.cublasLtMatrixLayoutCreate(&p->c, out, (uint64_t)t->n, (uint64_t)t->m, t->n)
        && !lt.cublasLtMatmulPreferenceCreate(&preference)
        && !lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)
        && !lt.cublasLtMatmulAlgoGetHeuristic(handle, p->op, p->b, p->a, p->c, p->c, preference, wanted < ALGORITHMS ? wanted : ALGORITHMS, found, &p->count)
        && p->count > 0;
    if (preference) lt.cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; good && i < p->count; i++) p->algos[i] = found[i].algo;
    if (good) return p;
    cublaslt_close(p);
    return NULL;
}

static bool run(product *p, int set, int algo)
{
    const float one = 1, zero = 0;
    const int32_t one_i = 1, zero_i = 0;
    void *c = (void *)(uintptr_t)p->t->pc[set];
    return !lt.cublasLtMatmul(handle, p->op, p->bytes ? (const void *)&one_i : &one, (const void *)(uintptr_t)p->t->pb[set], p->b,
                              (const void *)(uintptr_t)p->t->pa[set], p->a, p->bytes ? (const void *)&zero_i : &zero, c, p->c, c, p->c,
                              &p->algos[algo], (void *)(uintptr_t)p->workspace, WORKSPACE, NULL);
}

void cublaslt_run(void *x, int set, bool first)
{
    product *p = x;
    if (run(p, set, first ? 0 : p->best)) return;
    fprintf(stderr, "octet-bench: cublasLtMatmul failed\n");
    exit(1);
}

bool cublaslt_best(void *x, double seconds)
{
    product *p = x;
    double least = INFINITY;
    int kept = 0;
    for (int i = 0; i < p->count; i++) /* those that run */
        if (run(p, 0, i) && !gpu.synchronize(NULL)) p->algos[kept++] = p->algos[i];
    p->count = kept;
    for (int i = 0; i < p->count; i++) {
        int calls = 0;
        const double t = now_ns();
        do {
            for (int j = 0; j < 8; j++) run(p, (calls + j) % p->t->sets, i);
            calls += 8;
            gpu.synchronize(NULL);
        } while (now_ns() - t < seconds * 1e9);
        const double ns = (now_ns() - t) / calls;
        if (ns < least) least = ns, p->best = i;
    }
    return p->count > 0;
}

void cublaslt_close(void *x)
{
    product *p = x;
    if (p->workspace) gpu.release(p->workspace);
    if (p->op) lt.cublasLtMatmulDescDestroy(p->op);
    if (p->a) lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) lt.cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}
#else
const char *cublaslt_open(void) { return "octet-bench was built without cublasLt.h"; }
void *cublaslt_prepare(const gpu_task *t, int wanted) { (void)t; (void)wanted; return NULL; }
void cublaslt_run(void *x, int set, bool first) { (void)x; (void)set; (void)first; }
bool cublaslt_best(void *x, double seconds) { (void)x; (void)seconds; return false; }
void cublaslt_close(void *x) { (void)x; }
#endif
