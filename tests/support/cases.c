#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

uint32_t rng_next(rng *r)
{
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return (uint32_t)(r->s * UINT64_C(0x2545f4914f6cdd1d) >> 32);
}
int64_t rng_below(rng *r, int64_t n) { return (int64_t)(((uint64_t)rng_next(r) * (uint64_t)n) >> 32); }

static int bytes_of(octet_dtype t)
{
    return t == OCTET_U8 || t == OCTET_S8 ? 1 : t == OCTET_F16 || t == OCTET_BF16 ? 2 : 4;
}

static int clamp8(double v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : (int)v; }

static double gauss(rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += rng_next(r) * 0x1p-32;
    return s - 6;
}

static int draw(rng *r, int kind, int lo, int hi)
{
    const int span = hi - lo + 1;
    switch (kind) {
    case DATA_EXTREME: return rng_next(r) & 1 ? lo : hi;
    case DATA_7BIT: return lo < 0 ? (int)rng_below(r, 128) - 64 : (int)rng_below(r, 128);
    case DATA_GAUSS: return clamp8((lo < 0 ? 0 : 128) + gauss(r) * 36 * (rng_below(r, 40) ? 1 : 4), lo, hi);
    case DATA_SMALL: return (int)rng_below(r, 24) + (lo < 0 ? -12 : 0);
    default: return lo + (int)rng_below(r, span);
    }
}

/* Values that conversions trip over. */
static float odd_float(rng *r)
{
    static const uint32_t odd[] = { 0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
                                    0x7f7fffff, 0x33800000, 0x477fefff, 0x477ff000, 0x3f808000, 0x3f818000, 0x4b000001, 0xcf000000 };
    const uint32_t u = odd[rng_below(r, (int64_t)(sizeof odd / sizeof *odd))];
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static void fill(rng *r, octet_dtype t, int kind, void *p, int64_t count, bool odd)
{
    for (int64_t i = 0; i < count; i++) {
        const float f = odd && rng_below(r, 20) == 0 ? odd_float(r) : (float)(gauss(r) * 3);
        switch (t) {
        case OCTET_U8: ((uint8_t *)p)[i] = (uint8_t)draw(r, kind, 0, 255); break;
        case OCTET_S8: ((int8_t *)p)[i] = (int8_t)draw(r, kind, -128, 127); break;
        case OCTET_S32: ((int32_t *)p)[i] = (int32_t)rng_next(r) >> rng_below(r, 31); break;
        case OCTET_F32: ((float *)p)[i] = f; break;
        case OCTET_F16: ((uint16_t *)p)[i] = odd ? (uint16_t)rng_next(r) : ref_f32_to_f16(f); break;
        default: ((uint16_t *)p)[i] = odd ? (uint16_t)rng_next(r) : ref_f32_to_bf16(f); break;
        }
    }
}

static guarded array(rng *r, int64_t count, int bytes) { return guard_new((size_t)(count * bytes), (size_t)bytes, rng_next(r) & 1); }

void case_new(test_case *c, uint64_t seed, int64_t m, int64_t n, int64_t k)
{
    static const octet_dtype as[] = { OCTET_U8, OCTET_U8, OCTET_S8, OCTET_F32 };
    static const octet_dtype cs[] = { OCTET_U8, OCTET_S8, OCTET_S32, OCTET_S32, OCTET_F32, OCTET_F16, OCTET_BF16 };
    rng draws = { seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u }, *r = &draws;
    for (int i = 0; i < 8; i++) rng_next(r);
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->m = m >= 0 ? m : rng_below(r, rng_below(r, 4) ? 20 : 90);
    octet_gemm_desc *d = &c->d;
    *d = (octet_gemm_desc)OCTET_GEMM_DESC;
    d->n = n >= 0 ? n : rng_below(r, rng_below(r, 4) ? 30 : 120);
    d->k = k >= 0 ? k : rng_below(r, rng_below(r, 4) ? 80 : 600);
    d->a = as[rng_below(r, 4)];
    d->b = OCTET_S8;
    d->c = cs[rng_below(r, 7)];
    if (d->a == OCTET_F32) d->a_as = (octet_dtype)rng_below(r, 3);
    const bool simple = rng_below(r, 3) == 0; /* plain products, where fast paths live, come often */
    if (!simple) {
        d->trans_a = (int)rng_below(r, 2);
        d->trans_b = (int)rng_below(r, 2);
        d->trans_c = rng_below(r, 3) == 0;
        d->zero_a = (int)rng_below(r, 2);
        d->scale_a = (int)rng_below(r, 2);
        if (rng_below(r, 3) == 0) d->flags |= OCTET_RELU;
        if (rng_below(r, 3) == 0) d->flags |= OCTET_CLIP;
        if (bytes_of(d->c) > 1 && rng_below(r, 3) == 0) d->flags |= OCTET_ACCUMULATE;
        const int64_t bias = rng_below(r, 3);
        d->bias = bias == 0 ? (octet_dtype)0 : bias == 1 || d->c == OCTET_S32 ? OCTET_S32 : OCTET_F32;
    }
    const bool odd = rng_below(r, 4) == 0;
    const octet_dtype met = d->a != OCTET_F32 ? d->a : d->a_as ? d->a_as : OCTET_U8;
    const int lo = met == OCTET_U8 ? 0 : -128;
    const int gap = simple ? 0 : 7;
    const int64_t lda = (d->trans_a ? c->m : d->k) + rng_below(r, gap + 1), a_lines = d->trans_a ? d->k : c->m;
    c->ldb = (d->trans_b ? d->k : d->n) + rng_below(r, gap + 1);
    const int64_t ldc = (d->trans_c ? c->m : d->n) + rng_below(r, gap + 1), c_lines = d->trans_c ? d->n : c->m;
    const int64_t b_lines = d->trans_b ? d->n : d->k;
    /* a matrix ends with its last value, not with its last line's gap */
    const int64_t a_count = a_lines ? (a_lines - 1) * lda + (d->trans_a ? c->m : d->k) : 0;
    const int64_t b_count = b_lines ? (b_lines - 1) * c->ldb + (d->trans_b ? d->k : d->n) : 0;
    const int64_t c_count = c_lines ? (c_lines - 1) * ldc + (d->trans_c ? c->m : d->n) : 0;
    c->a = array(r, a_count, bytes_of(d->a));
    c->b = array(r, b_count, 1);
    c->c = array(r, c_count, bytes_of(d->c));
    c->want = array(r, c_count, bytes_of(d->c));
    c->bias = array(r, d->n, 4);
    c->scale_rows = array(r, c->m, 4);
    c->zero_rows = array(r, c->m, 4);
    c->scales = array(r, d->n, 4);
    c->zeros = array(r, d->n, 4);
    fill(r, d->a, (int)rng_below(r, DATA_KINDS), c->a.p, a_count, odd);
    fill(r, OCTET_S8, (int)rng_below(r, DATA_KINDS), c->b.p, b_count, false);
    fill(r, d->c, DATA_UNIFORM, c->c.p, c_count, odd);
    memcpy(c->want.p, c->c.p, c->c.bytes);
    for (int64_t j = 0; j < d->n; j++) {
        if (d->bias == OCTET_F32) ((float *)c->bias.p)[j] = odd && rng_below(r, 30) == 0 ? odd_float(r) : (float)gauss(r);
        else ((int32_t *)c->bias.p)[j] = (int32_t)rng_next(r) >> 18;
        ((float *)c->scales.p)[j] = (float)(0.001 + rng_next(r) * 0x1p-32 * 0.02);
        ((int32_t *)c->zeros.p)[j] = (int32_t)rng_below(r, 256) - 128;
    }
    for (int64_t i = 0; i < c->m; i++) {
        ((float *)c->scale_rows.p)[i] = (float)(0.01 + rng_next(r) * 0x1p-32 * 0.1);
        ((int32_t *)c->zero_rows.p)[i] = (int32_t)rng_below(r, 256) + lo;
    }
    c->q = (octet_quant)OCTET_QUANT;
    if (!simple) {
        if (rng_below(r, 2)) c->q.scales = c->scales.p;
        else c->q.scale = 0.003f;
        const int64_t zero = rng_below(r, 3);
        if (zero == 1) c->q.zero = (int32_t)rng_below(r, 256) - 128;
        if (zero == 2) c->q.zeros = c->zeros.p;
    }
    octet_gemm_args *x = &c->x;
    *x = (octet_gemm_args)OCTET_GEMM_ARGS;
    x->m = c->m;
    x->a = c->a.p;
    x->lda = lda;
    x->c = c->c.p;
    x->ldc = ldc;
    x->bias = c->bias.p;
    x->scale_a = simple ? 0 : 0.02f;
    x->zero_a = simple ? 0 : (int32_t)rng_below(r, 256) + lo;
    x->scale_a_rows = c->scale_rows.p;
    x->zero_a_rows = c->zero_rows.p;
    x->scale_c = simple ? 0 : (float)(0.02 + rng_next(r) * 0x1p-32);
    x->zero_c = d->c == OCTET_U8 ? 7 : d->c == OCTET_S8 ? -3 : 0;
    x->clip_lo = -2.5f - (float)rng_below(r, 1000);
    x->clip_hi = (float)rng_below(r, 100000);
}

void case_free(test_case *c)
{
    guarded *all[] = { &c->a, &c->b, &c->c, &c->want, &c->bias, &c->scale_rows, &c->zero_rows, &c->scales, &c->zeros };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_free(all[i]);
}

int case_check(test_case *c, const char *what)
{
    const octet_gemm_desc *d = &c->d;
    const ref_gemm r = {
        .m = c->m, .n = d->n, .k = d->k, .a = d->a, .b = d->b, .c = d->c, .a_as = d->a_as, .bias_type = d->bias,
        .pa = c->a.p, .lda = c->x.lda, .trans_a = d->trans_a, .pb = c->b.p, .ldb = c->ldb, .trans_b = d->trans_b,
        .pc = c->want.p, .ldc = c->x.ldc, .trans_c = d->trans_c, .flags = d->flags,
        .scale_a = c->x.scale_a, .scale_a_rows = d->scale_a ? c->scale_rows.p : NULL,
        .zero_a = c->x.zero_a, .zero_a_rows = d->zero_a ? c->zero_rows.p : NULL,
        .scale_b = c->q.scale, .scale_b_cols = c->q.scales, .zero_b = c->q.zero, .zero_b_cols = c->q.zeros,
        .scale_c = c->x.scale_c, .zero_c = c->x.zero_c, .bias = d->bias ? c->bias.p : NULL,
        .clip_lo = c->x.clip_lo, .clip_hi = c->x.clip_hi,
    };
    ref_run(&r);
    if (!memcmp(c->c.p, c->want.p, c->c.bytes)) return 0;
    size_t at = 0;
    while (((char *)c->c.p)[at] == ((char *)c->want.p)[at]) at++;
    fprintf(stderr, "%s: wrong at byte %zu of C; again with case_new(&c, %llu, %lld, %lld, %lld)"
            " (a %d:%d c %d trans %d%d%d flags %x bias %d zero_a %d scale_a %d)\n",
            what, at, (unsigned long long)c->seed, (long long)c->m, (long long)d->n, (long long)d->k, d->a, d->a_as, d->c,
            d->trans_a, d->trans_b, d->trans_c, d->flags, d->bias, d->zero_a, d->scale_a);
    return 1;
}

int case_run(test_case *c, octet_ctx *ctx, const struct blocking *blocks)
{
    octet_plan *p = NULL;
    octet_packed *b = NULL;
    octet_status st = plan_create(ctx, &c->d, blocks ? *blocks : (blocking){ 0 }, false, false, &p);
    if (!st) st = octet_pack(p, c->b.p, c->ldb, &c->q, &b);
    c->x.b = b;
    if (!st) st = octet_run(p, &c->x);
    int bad = 0;
    if (st) {
        fprintf(stderr, "case %llu: %s: %s\n", (unsigned long long)c->seed, octet_status_name(st), octet_why());
        bad = 1;
    } else {
        bad = case_check(c, octet_explain(p, b));
    }
    octet_packed_free(b);
    octet_plan_free(p);
    return bad;
}
