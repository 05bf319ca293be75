/*
 * A random product: every type, transpose, stride, epilogue and kind of data that octet.h allows,
 * drawn from a seed; in guarded buffers; with the reference's answer. One line repeats a failure.
 */
#ifndef OCTET_TEST_CASES_H
#define OCTET_TEST_CASES_H

#include "guard.h"
#include "octet.h"
#include "ref.h"

typedef struct rng { uint64_t s; } rng;
uint32_t rng_next(rng *);
int64_t  rng_below(rng *, int64_t n);

enum { DATA_UNIFORM, DATA_EXTREME, DATA_7BIT, DATA_GAUSS, DATA_SMALL, DATA_KINDS };

typedef struct test_case {
    uint64_t        seed;
    octet_gemm_desc d;
    octet_gemm_args x;     /* b left to the caller            */
    octet_quant     q;
    int64_t         m, ldb;
    guarded         a, b, c, want, bias, scale_rows, zero_rows, scales, zeros;
} test_case;

/* m, n, k < 0: drawn. The reference is computed when case_check first needs it. */
void case_new(test_case *, uint64_t seed, int64_t m, int64_t n, int64_t k);
void case_free(test_case *);
/* 0, or after printing how to repeat it 1: C differs from the reference anywhere, gaps included. */
int  case_check(test_case *, const char *what);
/* Plans, packs, runs, checks; blocks as plan_create's (NULL: chosen). */
struct blocking;
int  case_run(test_case *, octet_ctx *, const struct blocking *);

#endif
