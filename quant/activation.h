/*
 * THE definition of the activations, as f32 operations in a fixed order: the portable kernels call
 * these, the generated code computes the same operations lane by lane and equals them bit for bit
 * (a NaN equals any NaN).
 *
 *   exp      2^n (1 + r + r^2/2 + ... + r^6/720), n = round(x / ln 2), r = x - n ln 2 in two steps
 *   tanh     x P(x^2) / Q(x^2), degrees 4 and 4, |x| <= 9
 *   erf      x P(x^2) / Q(x^2), degrees 5 and 5, |x| <= 3.92
 *
 * P and Q were fitted for least relative error by Lawson's iteration. Errors, as test_chain.c holds them against
 * double precision: sigmoid and tanh 4e-7 relative; silu 4e-7 and gelu_tanh 1e-6 max(|result|, |x| / 1000);
 * gelu 1e-6 absolute below -1, 1e-6 relative above.
 */
#ifndef OCTET_ACTIVATION_H
#define OCTET_ACTIVATION_H

#include <math.h>

#include "requant.h"

/* name, value: also the order of gen.h's table of broadcast constants. */
#define ACT_CONSTS(X) \
    X(ACT_ONE, 1.0f) X(ACT_MINUS_ONE, -1.0f) X(ACT_HALF, 0.5f) \
    X(EXP_LO, -86.5f) X(EXP_HI, 88.0f) X(EXP_LOG2E, 0x1.715476p+0f) X(EXP_LN2_HI, 0x1.62e4p-1f) X(EXP_LN2_LO, 0x1.7f7d1cp-20f) \
    X(EXP_C6, 0x1.6c16c2p-10f) X(EXP_C5, 0x1.111112p-7f) X(EXP_C4, 0x1.555556p-5f) X(EXP_C3, 0x1.555556p-3f) X(EXP_C2, 0.5f) \
    X(SIGN_LO, -87.0f) X(GELU_LO, -30.0f) X(GELU_B, 0x1.988454p+0f) X(GELU_A, 0x1.2444f2p-4f) \
    X(ERF_SCALE, 0x1.6a09e6p-1f) X(ERF_LO, -3.92f) X(ERF_HI, 3.92f) X(ERF_X_LO, -6.0f) \
    X(ERF_P5, 2.050100420092349e-06f) X(ERF_P4, 0.00028488103998824954f) X(ERF_P3, 0.003765543457120657f) \
    X(ERF_P2, 0.05274850130081177f) X(ERF_P1, 0.1904047578573227f) X(ERF_P0, 1.1283791065216064f) \
    X(ERF_Q5, 3.8091762689873576e-05f) X(ERF_Q4, 0.0011625175829976797f) X(ERF_Q3, 0.014969071373343468f) \
    X(ERF_Q2, 0.11410840600728989f) X(ERF_Q1, 0.5020745396614075f) \
    X(TANH_LO, -9.0f) X(TANH_HI, 9.0f) \
    X(TANH_P4, 1.3319318092896992e-08f) X(TANH_P3, 2.058368227153551e-05f) X(TANH_P2, 0.0034940477926284075f) X(TANH_P1, 0.133797287940979f) \
    X(TANH_Q4, 7.762126870147767e-07f) X(TANH_Q3, 0.0003283113765064627f) X(TANH_Q2, 0.025871124118566513f) X(TANH_Q1, 0.4671304523944855f)

#define X(name, value) name,
enum { ACT_CONSTS(X) ACT_CONST_COUNT };
#undef X
#define X(name, value) static const float act_##name = value;
ACT_CONSTS(X)
#undef X

OCTET_BOTH float act_exp(float x)
{
    x = clamp_keep_nan(x, act_EXP_LO, act_EXP_HI);
    if (x != x) return x;
    const float n = rintf(x * act_EXP_LOG2E);
    const float r = fmaf(-n, act_EXP_LN2_LO, fmaf(-n, act_EXP_LN2_HI, x));
    float p = fmaf(act_EXP_C6, r, act_EXP_C5);
    p = fmaf(p, r, act_EXP_C4);
    p = fmaf(p, r, act_EXP_C3);
    p = fmaf(p, r, act_EXP_C2);
    p = fmaf(p, r, act_ACT_ONE);
    p = fmaf(p, r, act_ACT_ONE);
    return bits_f32(f32_bits(p) + ((uint32_t)(int32_t)n << 23));
}

OCTET_BOTH float act_sigmoid(float x) { return 1.0f / (1.0f + act_exp(-x)); }

OCTET_BOTH float act_silu(float x) { return clamp_keep_nan(x, act_SIGN_LO, INFINITY) / (1.0f + act_exp(-x)); }

OCTET_BOTH float act_gelu_tanh(float x)
{
    const float t = x * fmaf(x * x, act_GELU_A, act_GELU_B);
    return clamp_keep_nan(x, act_GELU_LO, INFINITY) / (1.0f + act_exp(-t));
}

OCTET_BOTH float act_gelu(float x)
{
    const float y = clamp_keep_nan(x * act_ERF_SCALE, act_ERF_LO, act_ERF_HI), s = y * y;
    float p = fmaf(act_ERF_P5, s, act_ERF_P4), q = fmaf(act_ERF_Q5, s, act_ERF_Q4);
    p = fmaf(p, s, act_ERF_P3);
    p = fmaf(p, s, act_ERF_P2);
    p = fmaf(p, s, act_ERF_P1);
    p = fmaf(p, s, act_ERF_P0);
    q = fmaf(q, s, act_ERF_Q3);
    q = fmaf(q, s, act_ERF_Q2);
    q = fmaf(q, s, act_ERF_Q1);
    q = fmaf(q, s, act_ACT_ONE);
    const float half = clamp_keep_nan(x, act_ERF_X_LO, INFINITY) * act_ACT_HALF;
    return fmaf(half, p * y / q, half);
}

OCTET_BOTH float act_tanh(float x)
{
    x = clamp_keep_nan(x, act_TANH_LO, act_TANH_HI);
    const float s = x * x;
    float p = fmaf(act_TANH_P4, s, act_TANH_P3), q = fmaf(act_TANH_Q4, s, act_TANH_Q3);
    p = fmaf(p, s, act_TANH_P2);
    p = fmaf(p, s, act_TANH_P1);
    p = fmaf(p, s, act_ACT_ONE);
    q = fmaf(q, s, act_TANH_Q2);
    q = fmaf(q, s, act_TANH_Q1);
    q = fmaf(q, s, act_ACT_ONE);
    return clamp_keep_nan(p * x / q, act_ACT_MINUS_ONE, act_ACT_ONE);
}

/* f(x) of an octet_op_kind that is a function of one number; a gate is its activation. */
OCTET_BOTH float activate(int kind, float x)
{
    switch (kind) {
    case OCTET_OP_RELU: return clamp_keep_nan(x, 0.0f, INFINITY);
    case OCTET_OP_GELU: case OCTET_OP_GEGLU: return act_gelu(x);
    case OCTET_OP_GELU_TANH: case OCTET_OP_GEGLU_TANH: return act_gelu_tanh(x);
    case OCTET_OP_SILU: case OCTET_OP_SWIGLU: return act_silu(x);
    case OCTET_OP_SIGMOID: case OCTET_OP_GLU: return act_sigmoid(x);
    case OCTET_OP_TANH: return act_tanh(x);
    default: return x;
    }
}

#endif
