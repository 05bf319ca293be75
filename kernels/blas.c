/*
 * The one-call products: a plan from a small table, B packed into a borrowed workspace (or, if it is
 * larger, into memory of the call), one run. On the process's own context.
 */
#include <math.h>

#include "gemm.h"
#include "mxcsr.h"

/* Plans by description. A slot, once filled, stays: plans are small, and what does not find a slot
 * among its PROBES gets a plan for that call only. */
enum { PLANS = 1024, PROBES = 8 };
static _Atomic(octet_plan *) plans[PLANS];

static unsigned hash(const octet_gemm_desc *d)
{
    uint64_t h = (uint64_t)d->n * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)d->k * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= ((uint64_t)d->a << 3 | (uint64_t)d->c << 8 | (uint64_t)d->flags << 12 | (uint64_t)d->bias << 20
          | (uint64_t)d->trans_a << 24 | (uint64_t)d->trans_b << 25) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)(h >> 40);
}

/* A plan to use until done_with. */
static octet_status plan_for(const octet_gemm_desc *d, octet_plan **out, bool *temporary)
{
    const unsigned at = hash(d);
    for (unsigned i = 0; i < PROBES; i++) {
        octet_plan *p = atomic_load_explicit(&plans[(at + i) % PLANS], memory_order_acquire);
        if (p && !memcmp(&p->desc, d, sizeof *d)) {
            *out = p;
            *temporary = false;
            return OCTET_OK;
        }
    }
    const octet_status st = plan_create(NULL, d, (blocking){ 0 }, false, true, out);
    if (st) return st;
    *temporary = true;
    for (unsigned i = 0; i < PROBES && *temporary; i++) {
        octet_plan *none = NULL;
        if (atomic_compare_exchange_strong(&plans[(at + i) % PLANS], &none, *out)) *temporary = false;
    }
    return OCTET_OK;
}

/* What the sisters differ in. */
typedef struct call {
    const char    *who;
    octet_dtype    a, c;
    int            trans_a, trans_b;
    int64_t        m, n, k;
    const void    *pa;
    int64_t        lda;
    const int8_t  *pb;
    int64_t        ldb;
    void          *pc;
    int64_t        ldc;
    const octet_requant *q;
} call;

static octet_status run_packed(const octet_plan *p, const call *x, const octet_requant *q, void *memory)
{
    const view lines = b_lines(p, x->pb, x->ldb);
    const source b = { .type = OCTET_S8, .count = 1, .views = &lines };
    octet_quant qb = OCTET_QUANT;
    qb.scale = q->scale;
    qb.scales = q->scales;
    qb.zero = q->zero_b;
    size_t used;
    const unsigned kept = fp_enter();
    pack_b(&b, &p->b, p->blocks.kc, &qb, false, p->cpu, memory, &used);
    fp_leave(kept);
    octet_packed h = { .plan = (octet_plan *)(uintptr_t)p, .blob = memory };
    packed_dots(&h);
    h.portable = !plan_generate(p, h.blob->has_zeros, h.dots, false); /* no room for code: this once, slowly */
    octet_gemm_args args = OCTET_GEMM_ARGS;
    args.m = x->m;
    args.a = x->pa;
    args.lda = x->lda;
    args.b = &h;
    args.c = x->pc;
    args.ldc = x->ldc;
    args.bias = q->bias;
    args.zero_a = q->zero_a;
    args.zero_c = q->zero_c;
    return octet_run(p, &args);
}

static octet_status gemm(const call *x)
{
    octet_requant q = OCTET_REQUANT;
    if (x->q && !copy_versioned(&q, sizeof q, sizeof(size_t), x->q))
        return fail(OCTET_EINVAL, "%s: q->size is not of a known version; initialize with OCTET_REQUANT", x->who);
    octet_gemm_desc d;
    memset(&d, 0, sizeof d); /* compared as bytes */
    d.size = sizeof d;
    d.n = x->n;
    d.k = x->k;
    d.a = x->a;
    d.b = OCTET_S8;
    d.c = x->c;
    d.trans_a = x->trans_a;
    d.trans_b = x->trans_b;
    d.bias = q.bias ? OCTET_S32 : (octet_dtype)0;
    d.flags = q.relu ? OCTET_RELU : 0;

    octet_plan *p;
    bool temporary;
    octet_status st = plan_for(&d, &p, &temporary);
    if (st) return st;
    size_t bound;
    packed_bound(&p->b, false, &bound);
    octet_ctx *ctx = p->ctx;
    int slot = -1;
    void *memory = NULL;
    const char *broken = b_breach(p, x->pb, x->ldb);
    if (broken)
        st = fail(OCTET_EINVAL, "%s: %s", x->who, broken);
    else if (q.zero_b < -128 || q.zero_b > 127)
        st = fail(OCTET_EINVAL, "%s: zero_b = %d is outside -128 .. 127", x->who, q.zero_b);
    else if ((uintptr_t)q.scales % 4)
        st = fail(OCTET_EINVAL, "%s: scales is misaligned", x->who);
    if (!st) {
        if (bound <= ctx->workspace_bytes && (slot = ctx_take_workspace(ctx)) >= 0)
            memory = atomic_load(&ctx->memory) + (size_t)slot * ctx->workspace_bytes;
        else
            memory = mem_alloc(&ctx->allocator, bound);
        st = memory ? run_packed(p, x, &q, memory) : fail(OCTET_ENOMEM, "%s: no memory for %zu bytes", x->who, bound);
        if (slot >= 0) ctx_return_workspace(ctx, slot);
        else mem_free(&ctx->allocator, memory, bound);
    }
    if (temporary) octet_plan_free(p);
    return st;
}

#define CALL(name, A, C, quant) \
    gemm(&(call){ name, A, C, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, quant })

octet_status octet_gemm_u8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc)
{
    return CALL("octet_gemm_u8s8s32", OCTET_U8, OCTET_S32, NULL);
}
octet_status octet_gemm_s8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc)
{
    return CALL("octet_gemm_s8s8s32", OCTET_S8, OCTET_S32, NULL);
}
octet_status octet_gemm_u8s8u8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                               const int8_t *b, int64_t ldb, uint8_t *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_u8s8u8", OCTET_U8, OCTET_U8, q);
}
octet_status octet_gemm_s8s8s8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                               const int8_t *b, int64_t ldb, int8_t *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_s8s8s8", OCTET_S8, OCTET_S8, q);
}
octet_status octet_gemm_u8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, float *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_u8s8f32", OCTET_U8, OCTET_F32, q);
}
octet_status octet_gemm_s8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, float *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_s8s8f32", OCTET_S8, OCTET_F32, q);
}
