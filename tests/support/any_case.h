/* As cases.h, for every type and the whole epilogue: a random product drawn from a seed, and the reference's answer. */
#ifndef OCTET_TEST_ANY_CASE_H
#define OCTET_TEST_ANY_CASE_H

#include "cases.h"

typedef struct any_case {
    uint64_t        seed;
    octet_gemm_desc d;
    octet_gemm_args x;   /* b left to any_run */
    octet_quant     q;
    int64_t         ldb;
    guarded         a, b, c, want, bias, scale_rows, zero_rows, scales, zeros, sums, operand[OCTET_OPS];
} any_case;

/* m, n, k < 0: drawn; n is made even where a gate needs it. */
void any_new(any_case *, uint64_t seed, int64_t m, int64_t n, int64_t k);
void any_free(any_case *);
/* Plans, packs, runs, compares; 0, or after printing how to repeat it 1. */
int  any_run(any_case *, octet_ctx *, const struct blocking *);
/* The same of a C that was computed elsewhere. */
int  any_check(any_case *, const char *what);
int  any_bits(octet_dtype);
int64_t any_out_n(const any_case *);

#endif
