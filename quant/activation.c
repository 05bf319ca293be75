/* The activations in plain C; see activation.h. */
#include "activation.h"

#include "requant.h"

#define X(name, value) [name] = value,
static const float c[ACT_CONST_COUNT] = { ACT_CONSTS(X) };
#undef X

static float poly(float t, const int *names, int count)
{
    float p = c[names[0]];
    for (int i = 1; i < count; i++) p = fmaf(p, t, c[names[i]]);
    return p;
}

static float exp_of(float x)
{
    static const int terms[] = { EXP_C6, EXP_C5, EXP_C4, EXP_C3, EXP_C2, ACT_ONE, ACT_ONE };
    x = clamp_keep_nan(x, c[EXP_LO], c[EXP_HI]);
    if (isnan(x)) return x;
    const float n = rintf(x * c[EXP_LOG2E]);
    const float r = fmaf(-n, c[EXP_LN2_LO], fmaf(-n, c[EXP_LN2_HI], x));
    return bits_f32(f32_bits(poly(r, terms, COUNT(terms))) + ((uint32_t)(int32_t)n << 23));
}

static float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }

static float silu(float x) { return clamp_keep_nan(x, c[SIGN_LO], INFINITY) / (1.0f + exp_of(-x)); }

static float gelu_tanh(float x)
{
    const float t = x * fmaf(x * x, c[GELU_A], c[GELU_B]);
    return clamp_keep_nan(x, c[GELU_LO], INFINITY) / (1.0f + exp_of(-t));
}

static float gelu(float x)
{
    static const int p[] = { ERF_P5, ERF_P4, ERF_P3, ERF_P2, ERF_P1, ERF_P0 }, q[] = { ERF_Q5, ERF_Q4, ERF_Q3, ERF_Q2, ERF_Q1, ACT_ONE };
    const float y = clamp_keep_nan(x * c[ERF_SCALE], c[ERF_LO], c[ERF_HI]), s = y * y;
    const float erf = poly(s, p, COUNT(p)) * y / poly(s, q, COUNT(q));
    const float half = clamp_keep_nan(x, c[ERF_X_LO], INFINITY) * c[ACT_HALF];
    return fmaf(half, erf, half);
}

static float tanh_of(float x)
{
    static const int p[] = { TANH_P4, TANH_P3, TANH_P2, TANH_P1, ACT_ONE }, q[] = { TANH_Q4, TANH_Q3, TANH_Q2, TANH_Q1, ACT_ONE };
    x = clamp_keep_nan(x, c[TANH_LO], c[TANH_HI]);
    const float s = x * x;
    return clamp_keep_nan(poly(s, p, COUNT(p)) * x / poly(s, q, COUNT(q)), c[ACT_MINUS_ONE], c[ACT_ONE]);
}

float activate(int kind, float x)
{
    switch (kind) {
    case OCTET_OP_RELU: return clamp_keep_nan(x, 0.0f, INFINITY);
    case OCTET_OP_GELU: case OCTET_OP_GEGLU: return gelu(x);
    case OCTET_OP_GELU_TANH: case OCTET_OP_GEGLU_TANH: return gelu_tanh(x);
    case OCTET_OP_SILU: case OCTET_OP_SWIGLU: return silu(x);
    case OCTET_OP_SIGMOID: case OCTET_OP_GLU: return sigmoid(x);
    case OCTET_OP_TANH: return tanh_of(x);
    default: return x;
    }
}
