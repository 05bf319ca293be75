/* See ref.h. Compiled without contraction, so that each operation rounds once. */
#include "ref.h"

#include <math.h>
#include <string.h>

static float one_if_zero(float x) { return x == 0.0f ? 1.0f : x; }

static int lo_of(octet_dtype t) { return t == OCTET_U8 ? 0 : -128; }
static int hi_of(octet_dtype t) { return t == OCTET_U8 ? 255 : 127; }

static int quantize(float x, float inv, int zero, octet_dtype t)
{
    const float y = x * inv;
    if (isnan(y)) return lo_of(t);
    const double q = rint((double)y) + zero;
    return q < lo_of(t) ? lo_of(t) : q > hi_of(t) ? hi_of(t) : (int)q;
}

static int a_value(const ref_gemm *r, int64_t i, int64_t p)
{
    const int64_t at = r->trans_a ? p * r->lda + i : i * r->lda + p;
    if (r->a == OCTET_U8) return ((const uint8_t *)r->pa)[at];
    if (r->a == OCTET_S8) return ((const int8_t *)r->pa)[at];
    const float scale = one_if_zero(r->scale_a_rows ? r->scale_a_rows[i] : r->scale_a);
    const int zero = r->zero_a_rows ? r->zero_a_rows[i] : r->zero_a;
    return quantize(((const float *)r->pa)[at], 1.0f / scale, zero, r->a_as ? r->a_as : OCTET_U8);
}

static float to_f32(octet_dtype t, const void *c, int64_t at)
{
    if (t == OCTET_F16) return ref_f16_to_f32(((const uint16_t *)c)[at]);
    if (t == OCTET_BF16) return ref_bf16_to_f32(((const uint16_t *)c)[at]);
    return ((const float *)c)[at];
}

static float act(const ref_gemm *r, float x)
{
    if ((r->flags & OCTET_RELU) && x < 0) x = 0;
    if (r->flags & OCTET_CLIP) {
        if (x < r->clip_lo) x = r->clip_lo;
        if (x > r->clip_hi) x = r->clip_hi;
    }
    return x;
}

static int32_t act_s32(const ref_gemm *r, int32_t x)
{
    if ((r->flags & OCTET_RELU) && x < 0) x = 0;
    if (r->flags & OCTET_CLIP) {
        if ((double)x < rint((double)r->clip_lo)) x = r->clip_lo <= -2147483648.0f ? INT32_MIN : (int32_t)rint((double)r->clip_lo);
        if ((double)x > rint((double)r->clip_hi)) x = r->clip_hi >= 2147483648.0f ? INT32_MAX : (int32_t)rint((double)r->clip_hi);
    }
    return x;
}

void ref_run(const ref_gemm *r)
{
    for (int64_t i = 0; i < r->m; i++)
        for (int64_t j = 0; j < r->n; j++) {
            const int zero_a = r->zero_a_rows ? r->zero_a_rows[i] : r->zero_a;
            const int zero_b = r->zero_b_cols ? r->zero_b_cols[j] : r->zero_b;
            uint32_t raw = 0;
            for (int64_t p = 0; p < r->k; p++) {
                const int b = r->pb[r->trans_b ? j * r->ldb + p : p * r->ldb + j];
                raw += (uint32_t)((a_value(r, i, p) - zero_a) * (b - zero_b));
            }
            if (r->bias && r->bias_type == OCTET_S32) raw += (uint32_t)((const int32_t *)r->bias)[j];
            const int64_t at = r->trans_c ? j * r->ldc + i : i * r->ldc + j;
            if (r->c == OCTET_S32) {
                int32_t *c = (int32_t *)r->pc + at;
                if (r->flags & OCTET_ACCUMULATE) raw += (uint32_t)*c;
                *c = act_s32(r, (int32_t)raw);
                continue;
            }
            const float scale_b = one_if_zero(r->scale_b);
            float real = (float)(int32_t)raw * (r->scale_b_cols ? r->scale_b_cols[j] : scale_b);
            real = real * (r->scale_a_rows ? r->scale_a_rows[i] : one_if_zero(r->scale_a));
            if (r->bias && r->bias_type == OCTET_F32) real = real + ((const float *)r->bias)[j];
            if (r->c == OCTET_U8 || r->c == OCTET_S8) {
                const float inv = 1.0f / one_if_zero(r->scale_c);
                if (isnan(real)) real = -INFINITY; /* the least value that act and the type allow */
                ((uint8_t *)r->pc)[at] = (uint8_t)quantize(act(r, real), inv, r->zero_c, r->c);
                continue;
            }
            if (r->flags & OCTET_ACCUMULATE) real = real + to_f32(r->c, r->pc, at);
            real = act(r, real);
            if (r->c == OCTET_F32) ((float *)r->pc)[at] = real;
            else ((uint16_t *)r->pc)[at] = r->c == OCTET_F16 ? ref_f32_to_f16(real) : ref_f32_to_bf16(real);
        }
}

/* ---- half formats, from their definition: the nearest representable value, ties to even ---- */

static uint16_t narrow(float x, int exponent_bits, int fraction_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1, total = exponent_bits + fraction_bits;
    const uint16_t sign = (uint16_t)(signbit(x) ? 1 << total : 0), infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits);
    uint32_t u;
    memcpy(&u, &x, 4);
    if (isnan(x)) return (uint16_t)(sign | infinity | 1 << (fraction_bits - 1) | ((u & 0x7fffff) >> (23 - fraction_bits)));
    if (isinf(x)) return sign | infinity;
    int e = 0;
    const double a = fabs((double)x);
    if (a == 0) return sign;
    frexp(a, &e); /* a = f * 2^e, f in [0.5, 1) */
    const int least = 1 - bias;
    const int exponent = e - 1 < least ? least : e - 1;
    const double ulp = ldexp(1.0, exponent - fraction_bits);
    const double steps = rint(a / ulp); /* of this binade; 2^fraction_bits is its first value */
    const long value = (long)(exponent - least) * (1 << fraction_bits) + (long)steps;
    return (uint16_t)(value >= infinity ? sign | infinity : sign | (uint16_t)value);
}

static float wide(uint16_t h, int exponent_bits, int fraction_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1, total = exponent_bits + fraction_bits;
    const int e = h >> fraction_bits & ((1 << exponent_bits) - 1), f = h & ((1 << fraction_bits) - 1);
    const double sign = h >> total & 1 ? -1.0 : 1.0;
    if (e == (1 << exponent_bits) - 1) {
        if (!f) return (float)(sign * INFINITY);
        const uint32_t u = (h >> total & 1 ? 0x80000000u : 0) | 0x7fc00000u | (uint32_t)f << (23 - fraction_bits);
        float x;
        memcpy(&x, &u, 4);
        return x;
    }
    return (float)(sign * ldexp(e ? f + (1 << fraction_bits) : f, (e ? e : 1) - bias - fraction_bits));
}

uint16_t ref_f32_to_f16(float x) { return narrow(x, 5, 10); }
float    ref_f16_to_f32(uint16_t h) { return wide(h, 5, 10); }
uint16_t ref_f32_to_bf16(float x) { return narrow(x, 8, 7); }
float    ref_bf16_to_f32(uint16_t h) { return wide(h, 8, 7); }
