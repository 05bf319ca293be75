/* What one run and many share: octet.c checks the arguments of a product and states it, batch.c does it often. */
#ifndef OCTET_RUN_H
#define OCTET_RUN_H

#include "gemm.h"

/* A matrix of `lines` lines of `width` values: its bytes from the first to past the last; -1 on a breach. */
static inline int64_t span_of(int64_t lines, int64_t width, int64_t ld, int bytes)
{
    int64_t values;
    if (lines == 0 || width == 0) return 0;
    if (!mul_ok(lines - 1, ld, &values) || !add_ok(values, width, &values) || values > INT64_MAX / 8) return -1;
    return values * bytes;
}

static inline bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* args_breach for a product whose A is made on the way: a and lda are not looked at. */
const char *args_breach_but_a(const octet_plan *, const octet_gemm_args *);
/* The product as the CPU computes it, but for the views' storage, which the caller lends. */
void problem_of(const octet_plan *, const octet_gemm_args *, view *rows, dest *c, gemm_problem *);

#endif
