/* libxsmm's generated kernels, for products small enough that it has one. It is column-major: C's transpose is computed,
 * from a B transposed beforehand. */
#include <libxsmm.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct state { libxsmm_smmfunction fn; const problem *p; float *b; } state;

static const char *open_xsmm(const char *isa)
{
    libxsmm_init();
    if (isa && !strcmp(isa, "avx2")) libxsmm_set_target_arch("hsw");
    return NULL;
}

static const char *version_xsmm(void) { return LIBXSMM_VERSION; }

static void *prepare(const problem *p)
{
    const double macs = (double)p->m * (double)p->n * (double)p->k;
    if (p->threads != 1 || macs > 1 << 21 || macs == 0 || p->bias || p->relu || p->chain[0].kind) return NULL;
    const libxsmm_blasint n = (libxsmm_blasint)p->n, m = (libxsmm_blasint)p->m, k = (libxsmm_blasint)p->k;
    const float beta = 0;
    const libxsmm_smmfunction fn = libxsmm_smmdispatch(n, m, k, &n, &k, &n, NULL, &beta, NULL, NULL);
    if (!fn) return NULL;
    state *s = malloc(sizeof *s);
    *s = (state){ fn, p, aligned_alloc(64, ((size_t)(n * k) * 4 + 63) / 64 * 64) };
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t q = 0; q < p->k; q++) s->b[q * p->n + j] = p->fb[j * p->k + q];
    return s;
}

static void run(void *x)
{
    const state *s = x;
    s->fn(s->b, s->p->fa, s->p->fc);
}

static void close_xsmm(void *x)
{
    state *s = x;
    free(s->b);
    free(s);
}

const peer peer_xsmm = { "xsmm", true, open_xsmm, version_xsmm, prepare, run, close_xsmm };
