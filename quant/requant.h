/*
 * THE definition of what happens to a finished sum. The portable kernels call these functions; the
 * generated code computes the same operations in the same order, and is tested against them bit
 * for bit. One f32 operation, one rounding; no fused multiply-add anywhere.
 */
#ifndef OCTET_REQUANT_H
#define OCTET_REQUANT_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "format.h"

/* Bounds that apply after scaling, as the kernels use them; octet.h's "act" in one pair.
 * For u8 and s8 they are on the grid of C minus its zero point: clamping before rounding gives the
 * same integers as ReLU and clip in real units would, since rounding is monotone. */
typedef struct bounds { float lo, hi; } bounds;

/* real = (f32(raw) * scale_b) * scale_a + bias */
OCTET_BOTH float rescale(int32_t raw, float scale_b, float scale_a)
{
    float t = (float)raw * scale_b;
    return t * scale_a;
}

/* min(max(x, lo), hi) as vmaxps / vminps order it: NaN becomes lo. */
OCTET_BOTH float clamp_nan_low(float x, float lo, float hi)
{
    float y = x > lo ? x : lo;
    return y < hi ? y : hi;
}

/* The same, with NaN kept: what a floating point C wants. */
OCTET_BOTH float clamp_keep_nan(float x, float lo, float hi)
{
    float y = lo > x ? lo : x;
    return hi < y ? hi : y;
}

/* u8 or s8 from a real value: q = round(clamp(real / scale_c)) + zero_c. b already excludes zero_c. */
OCTET_BOTH int32_t requantize(float real, float inv_scale_c, bounds b, int32_t zero_c)
{
    return (int32_t)nearbyintf(clamp_nan_low(real * inv_scale_c, b.lo, b.hi)) + zero_c;
}

/* The scale and zero point with which qlo .. qhi holds lo .. hi and 0; symmetric: zero point 0, qhi stands for the larger magnitude. */
OCTET_BOTH void choose_scale(float lo, float hi, int32_t qlo, int32_t qhi, bool symmetric, float *scale, int32_t *zero)
{
    lo = lo < 0 ? lo : 0;
    hi = hi > 0 ? hi : 0;
    float s = symmetric ? (-lo > hi ? -lo : hi) / (float)qhi : (float)(((double)hi - (double)lo) / (qhi - qlo));
    if (s > FLT_MAX) s = FLT_MAX;
    if (s < FLT_MIN) s = hi == 0 && lo == 0 ? 1.0f : FLT_MIN;
    const double z = symmetric ? 0 : nearbyint(qlo - (double)lo / (double)s);
    *scale = s;
    *zero = symmetric ? 0 : (int32_t)(z < qlo ? qlo : z > qhi ? qhi : z);
}

/* What ReLU and clip of a run come to, in the form that C's type wants: s32 in lo, hi; others in f, of u8 and s8 with the range folded
 * in and inv_scale_c set. Round to nearest must be in force. */
typedef struct c_limits { bounds f; int32_t lo, hi; float inv_scale_c; } c_limits;
c_limits limits_of(const octet_gemm_desc *, const octet_gemm_args *);

/* The bounds for an integer C of range qlo .. qhi, with ReLU and clip [clip_lo, clip_hi] folded in. */
bounds requant_bounds(int32_t qlo, int32_t qhi, int32_t zero_c, float inv_scale_c,
                      float clip_lo, float clip_hi);

#endif
