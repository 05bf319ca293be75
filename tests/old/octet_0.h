/* The parts of an older header that old.c uses: structs shorter than today's. Frozen; do not update. */
#ifndef OCTET_OLD_H
#define OCTET_OLD_H
#include <stddef.h>
#include <stdint.h>
typedef struct octet_plan octet_plan;
typedef struct octet_packed octet_packed;
typedef struct octet_gemm_desc { size_t size; int64_t n, k; int64_t m_hint; int a; int b; int c; int a_as; int trans_a, trans_b, trans_c; } octet_gemm_desc;
typedef struct octet_gemm_args { size_t size; int64_t m; const void *a; int64_t lda; const octet_packed *b; void *c; int64_t ldc; } octet_gemm_args;
typedef struct octet_quant { size_t size; float scale; int32_t zero; } octet_quant;
int octet_plan_gemm(void *, const octet_gemm_desc *, octet_plan **);
int octet_pack(const octet_plan *, const void *, int64_t, const octet_quant *, octet_packed **);
int octet_run(const octet_plan *, const octet_gemm_args *);
void octet_plan_free(octet_plan *);
void octet_packed_free(octet_packed *);
#endif
