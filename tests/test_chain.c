/* The activations against double precision, over the whole range of f32 and densely where they bend; through octet_run
 * with k = 0, which is the epilogue alone. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "octet.h"

static double exact(int op, double x)
{
    switch (op) {
    case OCTET_OP_GELU: return 0.5 * x * erfc(-x * sqrt(0.5));
    case OCTET_OP_GELU_TANH: return x / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case OCTET_OP_SILU: return x / (1 + exp(-x));
    case OCTET_OP_SIGMOID: return 1 / (1 + exp(-x));
    default: return tanh(x);
    }
}

/* What activation.h states. */
static double allowed(int op, double x, double y)
{
    switch (op) {
    case OCTET_OP_GELU: return x < -1 ? 1e-6 : 1e-6 * fabs(y) + 1e-37;
    case OCTET_OP_GELU_TANH: return 1e-6 * fmax(fabs(y), 1e-3 * fabs(x)) + 1e-35;
    case OCTET_OP_SILU: return 4e-7 * fmax(fabs(y), 1e-3 * fabs(x)) + 1e-35;
    default: return 4e-7 * fabs(y) + 2e-37;
    }
}

/* values through one step of the chain: a product with k = 0 that starts from given sums */
static void apply(int op, const float *x, float *y, int64_t n)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gemm_args a = OCTET_GEMM_ARGS;
    octet_plan *p;
    octet_packed *b;
    d.n = n, d.a = d.b = d.c = OCTET_F32;
    d.chain[0].kind = op;
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
    cr_assert_eq(octet_pack(p, NULL, n, NULL, &b), OCTET_OK, "%s", octet_why());
    a.m = 1, a.b = b, a.c = y, a.ldc = n, a.sums = x, a.ld_sums = n;
    cr_assert_eq(octet_run(p, &a), OCTET_OK, "%s", octet_why());
    octet_packed_free(b);
    octet_plan_free(p);
}

static const int ops[] = { OCTET_OP_GELU, OCTET_OP_GELU_TANH, OCTET_OP_SILU, OCTET_OP_SIGMOID, OCTET_OP_TANH };
static const char *const names[] = { "gelu", "gelu_tanh", "silu", "sigmoid", "tanh" };

Test(chain, activations_are_within_their_stated_error)
{
    enum { N = 1 << 16 };
    static float x[N], y[N];
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        double worst = 0, at = 0;
        for (int part = 0; part < 24; part++) {
            for (int64_t i = 0; i < N; i++) {
                const uint32_t u = (uint32_t)((uint64_t)i * 65536u + (uint32_t)part * 2731u);
                memcpy(&x[i], &u, 4); /* every exponent and sign */
                if (part >= 8) x[i] = (float)((double)(i - N / 2) * (20.0 / (N / 2)) + part * 1e-5); /* -20 .. 20 */
                if (part >= 16) x[i] *= 0.05f;
            }
            apply(ops[o], x, y, N);
            for (int64_t i = 0; i < N; i++) {
                if (isnan(x[i])) { cr_assert(isnan(y[i]), "%s of NaN", names[o]); continue; }
                const double want = exact(ops[o], (double)x[i]);
                if (isnan(want) || isinf(want) || fabs(want) > 3.4e38) continue; /* infinities below */
                const double ratio = fabs((double)y[i] - want) / allowed(ops[o], (double)x[i], want);
                if (ratio > worst) worst = ratio, at = (double)x[i];
            }
        }
        cr_assert_leq(worst, 1, "%s(%a) is %.2f of what is allowed", names[o], at, worst);
        cr_assert_gt(worst, 0.1, "%s: the bound is slack: %.3f", names[o], worst);
    }
}

Test(chain, infinities_have_their_limits)
{
    const float x[2] = { INFINITY, -INFINITY };
    const float want[5][2] = { { INFINITY, 0 }, { INFINITY, 0 }, { INFINITY, 0 }, { 1, 0 }, { 1, -1 } };
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        float y[2];
        apply(ops[o], x, y, 2);
        for (int i = 0; i < 2; i++)
            cr_assert(y[i] == want[o][i] || fabsf(y[i] - want[o][i]) < 4e-7f, "%s(%g) = %g", names[o], (double)x[i], (double)y[i]);
    }
}

/* An epilogue alone on an integer product's sums, as a server does that multiplies elsewhere. */
Test(chain, an_epilogue_alone_requantizes_sums)
{
    const int32_t sums[2 * 3] = { 1000, -1000, 70000, 0, 55, -70000 }, bias[3] = { 10, 0, -10 };
    uint8_t c[6];
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gemm_args x = OCTET_GEMM_ARGS;
    octet_plan *p;
    octet_packed *b;
    octet_quant q = OCTET_QUANT;
    q.scale = 0.001f;
    d.n = 3, d.a = OCTET_U8, d.b = OCTET_S8, d.c = OCTET_U8, d.bias = OCTET_S32;
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
    cr_assert_eq(octet_pack(p, NULL, 3, &q, &b), OCTET_OK, "%s", octet_why());
    x.m = 2, x.b = b, x.c = c, x.ldc = 3, x.bias = bias, x.scale_c = 0.5f, x.zero_c = 10, x.sums = sums, x.ld_sums = 3;
    cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
    const uint8_t want[6] = { 12, 8, 150, 10, 10, 0 };
    cr_assert_arr_eq(c, want, 6, "%d %d %d %d %d %d", c[0], c[1], c[2], c[3], c[4], c[5]);
    octet_packed_free(b);
    octet_plan_free(p);
}
