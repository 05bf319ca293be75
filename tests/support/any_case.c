#include "any_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "ref_any.h"

int any_bits(octet_dtype t)
{
    switch (t) {
    case OCTET_S4: case OCTET_U4: return 4;
    case OCTET_U8: case OCTET_S8: return 8;
    case OCTET_F16: case OCTET_BF16: return 16;
    default: return 32;
    }
}

int64_t any_out_n(const any_case *c)
{
    for (int i = 0; i < OCTET_OPS; i++)
        if (c->d.chain[i].kind >= OCTET_OP_SWIGLU) return c->d.n / 2;
    return c->d.n;
}

static float draw(rng *r, bool odd)
{
    static const uint32_t odd_bits[] = { 0, 0x80000000, 1, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x33800000, 0x477ff000, 0x3f808000 };
    float x;
    if (odd && rng_below(r, 30) == 0) {
        memcpy(&x, &odd_bits[rng_below(r, (int64_t)(sizeof odd_bits / 4))], 4);
        return x;
    }
    return (float)((int)rng_below(r, 20001) - 10000) * (rng_below(r, 9) ? 1e-4f : 3e-3f);
}

static void fill(rng *r, octet_dtype t, void *p, int64_t count, bool odd)
{
    for (int64_t i = 0; i < count; i++) switch (t) {
    case OCTET_F32: ((float *)p)[i] = draw(r, odd); break;
    case OCTET_F16: ((uint16_t *)p)[i] = odd && rng_below(r, 40) == 0 ? (uint16_t)rng_next(r) : ref_f32_to_f16(draw(r, false)); break;
    case OCTET_BF16: ((uint16_t *)p)[i] = odd && rng_below(r, 40) == 0 ? (uint16_t)rng_next(r) : ref_f32_to_bf16(draw(r, false)); break;
    case OCTET_S32: ((int32_t *)p)[i] = (int32_t)rng_next(r) >> 12; break;
    default: ((uint8_t *)p)[i] = (uint8_t)rng_next(r); break; /* also s4 and u4, two at a time */
    }
}

static guarded array(rng *r, int64_t count, octet_dtype t)
{
    const int bits = any_bits(t);
    return guard_new((size_t)((count * bits + 7) / 8), bits < 8 ? 1 : (size_t)bits / 8, rng_next(r) & 1);
}

static void draw_types(rng *r, octet_gemm_desc *d)
{
    static const octet_dtype floats[] = { OCTET_F32, OCTET_F32, OCTET_F16, OCTET_BF16 };
    static const octet_dtype bs[] = { OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_S8, OCTET_S4, OCTET_U4 };
    static const octet_dtype cs[] = { OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_U8, OCTET_S8 };
    if (rng_below(r, 4) == 0) { /* integer, with a chain or quantized on the way */
        const int64_t kind = rng_below(r, 4);
        d->a = kind == 0 ? OCTET_U8 : kind == 1 ? OCTET_S8 : floats[rng_below(r, 4)];
        d->b = OCTET_S8;
        d->c = cs[rng_below(r, 5)];
        if (kind >= 2) {
            d->a_as = rng_below(r, 2) ? OCTET_U8 : OCTET_S8;
            if (rng_below(r, 3)) d->flags |= OCTET_DYNAMIC;
            if ((d->flags & OCTET_DYNAMIC) && d->a_as == OCTET_U8 && rng_below(r, 2)) d->flags |= OCTET_REDUCED;
        }
        d->scale_a = (int)rng_below(r, 2);
        if (!(d->flags & OCTET_DYNAMIC)) d->zero_a = (int)rng_below(r, 2);
        return;
    }
    d->a = floats[rng_below(r, 4)];
    d->b = bs[rng_below(r, 6)];
    d->c = cs[rng_below(r, 3)];
    if (d->b == OCTET_S8) d->a_as = OCTET_F32;
    if (any_bits(d->b) < 16 && rng_below(r, 2)) d->group = 32 << rng_below(r, 3);
}

static void draw_chain(rng *r, octet_gemm_desc *d)
{
    static const octet_dtype types[] = { (octet_dtype)0, OCTET_F32, OCTET_F16, OCTET_BF16 };
    const int steps = (int)rng_below(r, rng_below(r, 8) ? 4 : OCTET_OPS + 1);
    bool gated = false;
    for (int i = 0; i < steps; i++) {
        octet_op *o = &d->chain[i];
        o->kind = 1 + (int)rng_below(r, OCTET_OP_GLU);
        if (o->kind >= OCTET_OP_SWIGLU) {
            if (gated || d->bias) o->kind = OCTET_OP_RELU;
            else gated = true;
        }
        if (o->kind <= OCTET_OP_PRELU) {
            o->shape = (int)rng_below(r, 4);
            o->type = o->shape == OCTET_PER_M ? OCTET_F32 : o->shape == OCTET_SCALAR ? (octet_dtype)0 : types[rng_below(r, 4)];
        }
    }
    if (!gated) return;
    for (int i = 0; d->chain[i].kind < OCTET_OP_SWIGLU; i++)
        if (d->chain[i].shape == OCTET_FULL) d->chain[i].shape = OCTET_PER_N;
    d->n = (d->n + 1) / 2 * 2;
}

void any_new(any_case *c, uint64_t seed, int64_t m, int64_t n, int64_t k)
{
    rng draws = { seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u }, *r = &draws;
    for (int i = 0; i < 8; i++) rng_next(r);
    memset(c, 0, sizeof *c);
    c->seed = seed;
    octet_gemm_desc *d = &c->d;
    octet_gemm_args *x = &c->x;
    *d = (octet_gemm_desc)OCTET_GEMM_DESC;
    *x = (octet_gemm_args)OCTET_GEMM_ARGS;
    x->m = m >= 0 ? m : rng_below(r, rng_below(r, 4) ? 20 : 70);
    d->n = n >= 0 ? n : rng_below(r, rng_below(r, 4) ? 50 : 150);
    d->k = k >= 0 ? k : rng_below(r, rng_below(r, 4) ? 80 : 400);
    draw_types(r, d);
    const bool simple = rng_below(r, 3) == 0;
    if (!simple) {
        d->trans_a = (int)rng_below(r, 2);
        d->trans_b = (int)rng_below(r, 2);
        d->trans_c = rng_below(r, 4) == 0;
        if (rng_below(r, 4) == 0) d->flags |= OCTET_RELU;
        if (rng_below(r, 4) == 0) d->flags |= OCTET_CLIP;
        if (any_bits(d->c) > 8 && rng_below(r, 3) == 0) d->flags |= OCTET_ACCUMULATE;
        if (rng_below(r, 3) == 0) d->bias = OCTET_F32;
        else if (rng_below(r, 3) == 0 && !d->group && (any_bits(d->a) == 8 || (d->b == OCTET_S8 && d->a_as != OCTET_F32))) d->bias = OCTET_S32;
        draw_chain(r, d);
    }
    const bool odd = rng_below(r, 4) == 0;
    const int gap = simple ? 1 : 7;
    const int64_t out_n = any_out_n(c);
    const int64_t a_lines = d->trans_a ? d->k : x->m, a_width = d->trans_a ? x->m : d->k;
    const int64_t b_lines = d->trans_b ? d->n : d->k, b_width = d->trans_b ? d->k : d->n;
    const int64_t c_lines = d->trans_c ? out_n : x->m, c_width = d->trans_c ? x->m : out_n;
    x->lda = a_width + rng_below(r, gap);
    c->ldb = b_width + rng_below(r, gap);
    if (any_bits(d->b) < 8) c->ldb += c->ldb % 2;
    x->ldc = c_width + rng_below(r, gap);
    const int64_t a_count = a_lines ? (a_lines - 1) * x->lda + a_width : 0, b_count = b_lines ? (b_lines - 1) * c->ldb + b_width : 0;
    const int64_t c_count = c_lines ? (c_lines - 1) * x->ldc + c_width : 0;
    const int64_t groups = d->group && d->group < d->k ? (d->k + d->group - 1) / d->group : 1;
    c->a = array(r, a_count, d->a);
    c->b = array(r, b_count, d->b);
    c->c = array(r, c_count, d->c);
    c->want = array(r, c_count, d->c);
    fill(r, d->a, c->a.p, a_count, odd);
    fill(r, d->b, c->b.p, any_bits(d->b) < 8 ? (b_count + 1) / 2 : b_count, odd);
    fill(r, d->c, c->c.p, c_count, odd);
    memcpy(c->want.p, c->c.p, c->c.bytes);
    c->bias = array(r, d->n, OCTET_F32);
    fill(r, d->bias == OCTET_S32 ? OCTET_S32 : OCTET_F32, c->bias.p, d->n, odd);
    c->scale_rows = array(r, x->m, OCTET_F32);
    c->zero_rows = array(r, x->m, OCTET_S32);
    c->scales = array(r, groups * d->n, OCTET_F32);
    c->zeros = array(r, groups * d->n, OCTET_S32);
    const octet_dtype met = any_bits(d->a) == 8 ? d->a : d->a_as ? d->a_as : OCTET_U8;
    const int lo = met == OCTET_S8 ? -128 : 0, zero_lo = d->b == OCTET_U4 ? 0 : d->b == OCTET_S4 ? -8 : -128, zeros = any_bits(d->b) == 4 ? 16 : 256;
    for (int64_t i = 0; i < x->m; i++) {
        ((float *)c->scale_rows.p)[i] = (float)(1 + rng_below(r, 50)) * 2e-3f;
        ((int32_t *)c->zero_rows.p)[i] = (int32_t)rng_below(r, 256) + lo;
    }
    for (int64_t i = 0; i < groups * d->n; i++) {
        ((float *)c->scales.p)[i] = (float)(1 + rng_below(r, 50)) * 1e-2f;
        ((int32_t *)c->zeros.p)[i] = (int32_t)rng_below(r, zeros) + zero_lo;
    }
    c->q = (octet_quant)OCTET_QUANT;
    if (any_bits(d->b) < 16) {
        if (rng_below(r, 2)) c->q.scales = c->scales.p;
        else if (rng_below(r, 2)) c->q.scale = 0.03f;
        const int64_t zero = rng_below(r, 3);
        if (zero == 1) c->q.zero = (int32_t)rng_below(r, zeros) + zero_lo;
        if (zero == 2) c->q.zeros = c->zeros.p;
    }
    x->a = c->a.p;
    x->c = c->c.p;
    x->bias = c->bias.p;
    x->scale_a = 0.02f;
    x->zero_a = (int32_t)rng_below(r, 256) + lo;
    x->scale_a_rows = c->scale_rows.p;
    x->zero_a_rows = c->zero_rows.p;
    x->scale_c = 0.5f;
    x->zero_c = d->c == OCTET_U8 ? 7 : d->c == OCTET_S8 ? -3 : 0;
    x->clip_lo = -3.0f;
    x->clip_hi = (float)rng_below(r, 50);
    if (!simple && rng_below(r, 4) == 0) {
        x->ld_sums = d->n + rng_below(r, gap);
        const int64_t count = x->m ? (x->m - 1) * x->ld_sums + d->n : 0;
        const octet_dtype t = any_bits(d->a) == 8 || (d->b == OCTET_S8 && d->a_as != OCTET_F32) ? OCTET_S32 : OCTET_F32;
        c->sums = array(r, count, t);
        fill(r, t, c->sums.p, count, odd);
        x->sums = count ? c->sums.p : NULL;
    }
    for (int i = 0, gate = 0; i < OCTET_OPS && d->chain[i].kind; i++) {
        const octet_op *o = &d->chain[i];
        const octet_dtype t = o->type ? o->type : OCTET_F32;
        const int64_t n_here = gate ? out_n : d->n;
        gate = gate || o->kind >= OCTET_OP_SWIGLU;
        octet_operand *v = &x->operand[i];
        v->value = o->kind == OCTET_OP_CLIP ? -2.0f : rng_below(r, 3) ? (float)rng_below(r, 9) * 0.25f - 1 : 0;
        v->value2 = 5;
        if (o->kind > OCTET_OP_PRELU || o->shape == OCTET_SCALAR) continue;
        v->ld = n_here + rng_below(r, gap);
        const int64_t count = o->shape == OCTET_PER_N ? n_here : o->shape == OCTET_PER_M ? x->m : x->m ? (x->m - 1) * v->ld + n_here : 0;
        c->operand[i] = array(r, count, t);
        fill(r, t, c->operand[i].p, count, odd);
        v->t = c->operand[i].p;
    }
}

void any_free(any_case *c)
{
    guarded *all[] = { &c->a, &c->b, &c->c, &c->want, &c->bias, &c->scale_rows, &c->zero_rows, &c->scales, &c->zeros, &c->sums };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_free(all[i]);
    for (int i = 0; i < OCTET_OPS; i++) guard_free(&c->operand[i]);
}

/* The same bits; a NaN is a NaN. */
static bool same(octet_dtype t, const void *x, const void *y, size_t i)
{
    if (any_bits(t) == 8) return ((const uint8_t *)x)[i] == ((const uint8_t *)y)[i];
    if (any_bits(t) == 16) {
        const uint16_t u = ((const uint16_t *)x)[i], v = ((const uint16_t *)y)[i];
        const float a = t == OCTET_F16 ? ref_f16_to_f32(u) : ref_bf16_to_f32(u), b = t == OCTET_F16 ? ref_f16_to_f32(v) : ref_bf16_to_f32(v);
        return u == v || (isnan(a) && isnan(b));
    }
    uint32_t u, v;
    memcpy(&u, (const char *)x + 4 * i, 4);
    memcpy(&v, (const char *)y + 4 * i, 4);
    return u == v || (isnan(((const float *)x)[i]) && isnan(((const float *)y)[i]));
}

int any_check(any_case *c, const char *what)
{
    const octet_gemm_desc *d = &c->d;
    ref_any(d, &c->x, c->b.p, c->ldb, &c->q, c->want.p);
    const size_t size = (size_t)any_bits(d->c) / 8;
    for (size_t i = 0; i < c->c.bytes / size; i++)
        if (!same(d->c, c->c.p, c->want.p, i)) {
            char chain[200] = "";
            for (int s = 0, at = 0; s < OCTET_OPS && d->chain[s].kind; s++)
                at += snprintf(chain + at, sizeof chain - (size_t)at, " %d/%d/%d", d->chain[s].kind, d->chain[s].shape, d->chain[s].type);
            fprintf(stderr, "%s: wrong at element %zu of C (%a, not %a); again with any_new(&c, %llu, %lld, %lld, %lld)"
                    " (a %d:%d b %d group %lld c %d trans %d%d%d flags %x bias %d sums %d chain%s)\n", what, i,
                    size == 4 ? (double)((float *)c->c.p)[i] : 0, size == 4 ? (double)((float *)c->want.p)[i] : 0, (unsigned long long)c->seed,
                    (long long)c->x.m, (long long)d->n, (long long)d->k, d->a, d->a_as, d->b, (long long)d->group, d->c, d->trans_a, d->trans_b, d->trans_c,
                    d->flags, d->bias, c->x.sums != NULL, chain);
            return 1;
        }
    return 0;
}

int any_run(any_case *c, octet_ctx *ctx, const struct blocking *blocks)
{
    octet_plan *p = NULL;
    octet_packed *b = NULL;
    octet_status st = plan_create(ctx, &c->d, blocks ? *blocks : (blocking){ 0 }, false, false, &p);
    if (!st) st = octet_pack(p, c->b.p, c->ldb, &c->q, &b);
    c->x.b = b;
    if (!st) st = octet_run(p, &c->x);
    int bad = 1;
    if (st) fprintf(stderr, "case %llu: %s: %s\n", (unsigned long long)c->seed, octet_status_name(st), octet_why());
    else bad = any_check(c, octet_explain(p, b));
    octet_packed_free(b);
    octet_plan_free(p);
    return bad;
}
