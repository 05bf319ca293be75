/* See ref_any.h. Slow, obvious, never optimized. */
#include "ref_any.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "activation.h"
#include "ref.h"

static bool floating(octet_dtype t) { return t == OCTET_F32 || t == OCTET_F16 || t == OCTET_BF16; }

static float load(octet_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case OCTET_U8: return ((const uint8_t *)p)[i];
    case OCTET_S8: return ((const int8_t *)p)[i];
    case OCTET_F16: return ref_f16_to_f32(((const uint16_t *)p)[i]);
    case OCTET_BF16: return ref_bf16_to_f32(((const uint16_t *)p)[i]);
    case OCTET_U4: return (float)(((const uint8_t *)p)[i / 2] >> 4 * (i % 2) & 15);
    case OCTET_S4: {
        const int v = ((const uint8_t *)p)[i / 2] >> 4 * (i % 2) & 15;
        return (float)(v < 8 ? v : v - 16);
    }
    default: return ((const float *)p)[i];
    }
}

static float one_if_zero(float x) { return x == 0.0f ? 1.0f : x; }

typedef struct quantization { float scale; int zero, lo, hi; } quantization;

/* The scale and zero point of a range, as octet_choose_quant documents them. */
static quantization choose(float lo, float hi, octet_dtype t, bool reduced)
{
    quantization z;
    z.hi = reduced || t == OCTET_S8 ? 127 : 255;
    z.lo = t == OCTET_S8 ? -127 : 0;
    lo = lo < 0 ? lo : 0;
    hi = hi > 0 ? hi : 0;
    z.scale = t == OCTET_S8 ? (-lo > hi ? -lo : hi) / 127.0f : (float)(((double)hi - (double)lo) / z.hi);
    if (z.scale < 0x1p-126f) z.scale = lo == 0 && hi == 0 ? 1.0f : 0x1p-126f;
    const double zero = rint(0 - (double)lo / (double)z.scale);
    z.zero = t == OCTET_S8 ? 0 : (int)(zero > z.hi ? z.hi : zero);
    return z;
}

static float a_at(const octet_gemm_desc *d, const octet_gemm_args *x, int64_t i, int64_t p)
{
    return load(d->a, x->a, d->trans_a ? p * x->lda + i : i * x->lda + p);
}

static quantization of_row(const octet_gemm_desc *d, const octet_gemm_args *x, octet_dtype met, int64_t i)
{
    quantization z = { 1, 0, met == OCTET_U8 ? 0 : -128, met == OCTET_U8 ? 255 : 127 };
    if (d->flags & OCTET_DYNAMIC) {
        float lo = 0, hi = 0;
        const int64_t from = d->scale_a == OCTET_PER_ROW ? i : 0, to = d->scale_a == OCTET_PER_ROW ? i + 1 : x->m;
        for (int64_t r = from; r < to; r++)
            for (int64_t p = 0; p < d->k; p++) {
                const float v = a_at(d, x, r, p);
                if (isfinite(v) && v < lo) lo = v;
                if (isfinite(v) && v > hi) hi = v;
            }
        return choose(lo, hi, met, d->flags & OCTET_REDUCED);
    }
    z.scale = d->scale_a == OCTET_PER_ROW ? x->scale_a_rows[i] : one_if_zero(x->scale_a);
    z.zero = d->zero_a == OCTET_PER_ROW ? x->zero_a_rows[i] : x->zero_a;
    return z;
}

static int quantize(float v, quantization z)
{
    const float y = v * (1.0f / one_if_zero(z.scale));
    if (isnan(y)) return z.lo;
    const double q = rint((double)y) + z.zero;
    return q < z.lo ? z.lo : q > z.hi ? z.hi : (int)q;
}

static float step(const octet_gemm_desc *d, const octet_gemm_args *x, int n, int64_t i, int64_t j, float v)
{
    const octet_op *o = &d->chain[n];
    const octet_operand *t = &x->operand[n];
    const octet_dtype type = o->type ? o->type : OCTET_F32;
    const float y = o->shape == OCTET_SCALAR ? t->value : o->shape == OCTET_PER_N ? load(type, t->t, j)
        : o->shape == OCTET_PER_M ? load(type, t->t, i) : load(type, t->t, i * t->ld + j);
    switch (o->kind) {
    case OCTET_OP_ADD: return o->shape == OCTET_SCALAR ? v + y : fmaf(one_if_zero(t->value), y, v);
    case OCTET_OP_MUL: return v * y;
    case OCTET_OP_PRELU: return signbit(v) ? v * y : v;
    case OCTET_OP_CLIP: return v < t->value ? t->value : v > t->value2 ? t->value2 : v;
    default: return activate(o->kind, v);
    }
}

static float act(const octet_gemm_desc *d, const octet_gemm_args *x, float v)
{
    if ((d->flags & OCTET_RELU) && v < 0) v = 0;
    if ((d->flags & OCTET_CLIP) && v < x->clip_lo) v = x->clip_lo;
    if ((d->flags & OCTET_CLIP) && v > x->clip_hi) v = x->clip_hi;
    return v;
}

typedef struct whole {
    const octet_gemm_desc *d;
    const octet_gemm_args *x;
    const void *b;
    int64_t ldb;
    const octet_quant *q;
    octet_dtype met;
} whole;

static float b_at(const whole *w, int64_t p, int64_t j)
{
    return load(w->d->b, w->b, w->d->trans_b ? j * w->ldb + p : p * w->ldb + j);
}

/* Before the chain. */
static float real_of(const whole *w, quantization z, int64_t i, int64_t j)
{
    const octet_gemm_desc *d = w->d;
    const octet_gemm_args *x = w->x;
    const octet_quant *q = w->q;
    float real;
    if (w->met == OCTET_F32) {
        const bool scaled = !floating(d->b);
        const int64_t group = scaled && d->group && d->group < d->k ? d->group : d->k ? d->k : 1;
        const bool grouped = group < d->k;
        real = x->sums ? ((const float *)x->sums)[i * x->ld_sums + j] : 0;
        for (int64_t g = 0; g * group < d->k; g++) {
            float sum = grouped ? 0 : real;
            const float zero = !scaled ? 0 : (float)(q->zeros ? q->zeros[g * d->n + j] : q->zero);
            for (int64_t p = g * group; p < d->k && p < (g + 1) * group; p++) sum = fmaf(a_at(d, x, i, p), b_at(w, p, j) - zero, sum);
            real = grouped ? fmaf(sum, q->scales ? q->scales[g * d->n + j] : one_if_zero(q->scale), real) : sum;
        }
        if (scaled && !grouped) real = real * (q->scales ? q->scales[j] : one_if_zero(q->scale));
    } else {
        uint32_t raw = x->sums ? ((const uint32_t *)x->sums)[i * x->ld_sums + j] : 0;
        const int zero_b = q->zeros ? q->zeros[j] : q->zero;
        for (int64_t p = 0; p < d->k; p++) {
            const float v = a_at(d, x, i, p);
            const int a = floating(d->a) ? quantize(v, z) : (int)v;
            raw += (uint32_t)((a - z.zero) * ((int)b_at(w, p, j) - zero_b));
        }
        if (d->bias == OCTET_S32) raw += ((const uint32_t *)x->bias)[j];
        real = (float)(int32_t)raw * (q->scales ? q->scales[j] : one_if_zero(q->scale));
        real = real * one_if_zero(z.scale);
    }
    if (d->bias == OCTET_F32) real = real + ((const float *)x->bias)[j];
    return real;
}

void ref_any(const octet_gemm_desc *d, const octet_gemm_args *x, const void *b, int64_t ldb, const octet_quant *q, void *c)
{
    whole w = { d, x, b, ldb, q, floating(d->a) ? d->b == OCTET_S8 ? d->a_as ? d->a_as : OCTET_U8 : OCTET_F32 : d->a };
    int gate = -1;
    for (int n = 0; n < OCTET_OPS; n++)
        if (d->chain[n].kind >= OCTET_OP_SWIGLU) gate = n;
    const int64_t out_n = gate >= 0 ? d->n / 2 : d->n;
    for (int64_t i = 0; i < x->m; i++) {
        const quantization z = w.met == OCTET_F32 ? (quantization){ 1, 0, 0, 0 } : of_row(d, x, w.met, i);
        for (int64_t j = 0; j < out_n; j++) {
            float v = real_of(&w, z, i, j);
            for (int n = 0; n < (gate >= 0 ? gate : OCTET_OPS) && d->chain[n].kind; n++) v = step(d, x, n, i, j, v);
            if (gate >= 0) {
                float up = real_of(&w, z, i, out_n + j);
                for (int n = 0; n < gate; n++) up = step(d, x, n, i, out_n + j, up);
                v = activate(d->chain[gate].kind, v) * up;
                for (int n = gate + 1; n < OCTET_OPS && d->chain[n].kind; n++) v = step(d, x, n, i, j, v);
            }
            const int64_t at = d->trans_c ? j * x->ldc + i : i * x->ldc + j;
            if (d->c == OCTET_U8 || d->c == OCTET_S8) {
                const quantization o = { one_if_zero(x->scale_c), x->zero_c, d->c == OCTET_U8 ? 0 : -128, d->c == OCTET_U8 ? 255 : 127 };
                if (isnan(v)) v = -INFINITY;
                ((uint8_t *)c)[at] = (uint8_t)quantize(act(d, x, v), o);
                continue;
            }
            if (d->flags & OCTET_ACCUMULATE) v = v + load(d->c, c, at);
            v = act(d, x, v);
            if (d->c == OCTET_F32) ((float *)c)[at] = v;
            else ((uint16_t *)c)[at] = d->c == OCTET_F16 ? ref_f32_to_f16(v) : ref_f32_to_bf16(v);
        }
    }
}
