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

#include "format.h"

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

/* f(x) of an octet_op_kind that is a function of one number. */
float activate(int kind, float x);

#endif
