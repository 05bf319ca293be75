/* The peers of this build, and those found at run time: OpenBLAS and BLIS, by dlopen, since both
 * export cblas_sgemm. */
#include <dlfcn.h>
#include <stdlib.h>

#include "bench.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
typedef void (*threads_fn)(int);

typedef struct blas { sgemm_fn sgemm; threads_fn set_threads; } blas;
static blas openblas, blis;

static const char *open_blas(blas *b, const char *file, const char *threads)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return "not installed";
    b->sgemm = (sgemm_fn)dlsym(lib, "cblas_sgemm");
    b->set_threads = (threads_fn)dlsym(lib, threads);
    return b->sgemm ? NULL : "has no cblas_sgemm";
}

static const char *open_openblas(const char *isa)
{
    (void)isa;
    return open_blas(&openblas, "libopenblas.so.0", "openblas_set_num_threads");
}
static const char *open_blis(const char *isa)
{
    (void)isa;
    return open_blas(&blis, "libblis.so.4", "bli_thread_set_num_threads");
}

static void sgemm(const blas *b, const problem *p)
{
    b->sgemm(ROW_MAJOR, NO_TRANS, TRANS, (int)p->m, (int)p->n, (int)p->k, 1.0f, p->fa, (int)p->k, p->fb, (int)p->k, 0.0f, p->fc, (int)p->n);
}
static void *prepare_blas(const blas *b, const problem *p)
{
    if (b->set_threads) b->set_threads(p->threads);
    return p->m && p->n && p->k && !p->bias && !p->relu && !p->chain[0].kind ? (void *)(uintptr_t)p : NULL;
}
static void *prepare_openblas(const problem *p) { return prepare_blas(&openblas, p); }
static void *prepare_blis(const problem *p) { return prepare_blas(&blis, p); }
static void  run_openblas(void *p) { sgemm(&openblas, p); }
static void  run_blis(void *p) { sgemm(&blis, p); }
static void  close_blas(void *p) { (void)p; }
static const char *version_openblas(void) { return "cblas_sgemm"; }

static const peer peer_openblas = { "openblas", true, open_openblas, version_openblas, prepare_openblas, run_openblas, close_blas };
static const peer peer_blis = { "blis", true, open_blis, version_openblas, prepare_blis, run_blis, close_blas };

#if HAVE_ONEDNN
extern const peer peer_onednn;
#endif
#if HAVE_FBGEMM
extern const peer peer_fbgemm;
#endif

#if HAVE_XSMM
extern const peer peer_xsmm;
#endif

const peer *const peers[] = {
#if HAVE_XSMM
    &peer_xsmm,
#endif
#if HAVE_ONEDNN
    &peer_onednn,
#endif
#if HAVE_FBGEMM
    &peer_fbgemm,
#endif
    &peer_openblas, &peer_blis, NULL,
};
