/*
 * The definition of every product, in the plainest C there is. Shares no code with the library:
 * what octet.h says about octet_run, once more. Slow, obvious, never optimized.
 */
#ifndef OCTET_TEST_REF_H
#define OCTET_TEST_REF_H

#include "octet.h"

typedef struct ref_gemm {
    int64_t     m, n, k;
    octet_dtype a, b, c, a_as, bias_type;
    const void *pa; int64_t lda; int trans_a;
    const int8_t *pb; int64_t ldb; int trans_b;
    void       *pc; int64_t ldc; int trans_c;
    unsigned    flags;
    float       scale_a; const float *scale_a_rows;
    int32_t     zero_a; const int32_t *zero_a_rows;
    float       scale_b; const float *scale_b_cols;
    int32_t     zero_b; const int32_t *zero_b_cols;
    float       scale_c; int32_t zero_c;
    const void *bias;
    float       clip_lo, clip_hi;
} ref_gemm;

void ref_run(const ref_gemm *);

/* Single values, as IEEE 754 defines them, by way of double. */
uint16_t ref_f32_to_f16(float);
float    ref_f16_to_f32(uint16_t);
uint16_t ref_f32_to_bf16(float);
float    ref_bf16_to_f32(uint16_t);

#endif
