/*
 * The kernel in portable C: what a generated one must equal, and what computes where nothing can be
 * generated. Reads every form and layout of gen.h; the order of operations is octet_run's.
 */
#include "plain.h"

#include <math.h>

#include "activation.h"
#include "requant.h"

/* A sum of either kind. */
typedef union sum32 { int32_t i; float f; } sum32;

static int32_t a_value(const kernel_args *g, const kernel_spec *s, int i, int64_t k)
{
    switch (s->form) {
    case A_SPLIT: return 2 * g->a[k / 4 * 8 + k % 4] + g->a[k / 4 * 8 + 4 + k % 4];
    case A_PLACE: return g->a[i * g->lda + k];
    case A_WIDE: return ((const int16_t *)(const void *)g->a)[(k / 4 * s->rows + i) * 4 + k % 4];
    default: return g->a[(k / 4 * s->rows + i) * 4 + k % 4];
    }
}

static int32_t b_value(const kernel_args *g, const kernel_spec *s, int j, int64_t k)
{
    const int64_t whole = 4 * g->quads;
    if (s->dot == DOT_WS) return ((const int16_t *)(const void *)g->b)[(k / 4 * s->cols + j) * 4 + k % 4];
    if (k < whole) return g->b[(k / 4 * s->cols + j) * 4 + k % 4];
    return g->b[whole * s->cols + j * s->k_tail + (k - whole)];
}

static float load_float(octet_dtype t, const void *p, int64_t j)
{
    switch (t) {
    case OCTET_F16: return f32_from_f16(((const uint16_t *)p)[j]);
    case OCTET_BF16: return f32_from_bf16(((const uint16_t *)p)[j]);
    default: return ((const float *)p)[j];
    }
}

/* ---- sums ---- */

static bool is_float(const kernel_spec *s) { return dot_is_float(s->stands_for); }
static int  width(const kernel_spec *s) { return is_float(s) ? NR_FLOAT : NR; }

static int32_t integer_sum(const kernel_args *g, const kernel_spec *s, int i, int j)
{
    const int64_t k = 4 * g->quads + (g->raw_out ? 0 : s->k_tail);
    uint32_t sum = 0;
    for (int64_t p = 0; p < k; p++) sum += (uint32_t)(a_value(g, s, i, p) * b_value(g, s, j, p));
    for (uint32_t r = g->span ? 4 * g->span->first : 0; g->span && r < 4 * (g->span->first + g->span->quads); r++)
        sum += (uint32_t)(a_value(g, s, i, 4 * (g->res_k[r].quad - g->quad0) + g->res_k[r].pick / 32) * g->res_w[4 * NR * (r / 4) + 4 * j + r % 4]);
    if (g->raw_in) sum += (uint32_t)g->raw_in[NR * i + j];
    return (int32_t)sum;
}

static float b_float(const kernel_args *g, const kernel_spec *s, int j, int64_t k)
{
    const int64_t at = k * s->cols + j;
    if (s->b_place) return ((const float *)(const void *)(g->b + k * g->ldb))[j];
    switch (s->stands_for) {
    case DOT_F32: return load_float(OCTET_F32, g->b, at);
    case DOT_F16: return load_float(OCTET_F16, g->b, at);
    case DOT_BF16: return load_float(OCTET_BF16, g->b, s->cols == NR_FLOAT ? k * NR_FLOAT + j % 8 * 2 + j / 8 : at);
    case DOT_FS8: return (float)g->b[at];
    default: {
        uint32_t block;
        memcpy(&block, g->b + 4 * (k / 8 * s->cols + j), 4);
        return (float)(block >> 4 * (k % 8) & 15) - (s->zero_b ? 0.0f : 8.0f);
    }
    }
}

static float float_sum(const kernel_args *g, const kernel_spec *s, int i, int j)
{
    const int64_t k = g->quads, group = s->group ? g->group : max64(1, k);
    float total = g->raw_in ? ((const float *)(const void *)g->raw_in)[NR_FLOAT * i + j] : 0.0f;
    for (int64_t p0 = 0; p0 < k; p0 += group) {
        const int64_t ahead = p0 / group * (s->group ? g->group_step / 4 : 0) + j;
        const float zero = s->zero_b ? ((const float *)(const void *)g->zero_b)[ahead] : 0.0f;
        float sum = s->group ? 0.0f : total;
        for (int64_t p = p0; p < min64(k, p0 + group); p++) {
            const float a = s->form == A_PLACE ? ((const float *)(const void *)(g->a + i * g->lda))[p] : ((const float *)(const void *)g->a)[p * s->rows + i];
            sum = fmaf(a, s->zero_b ? b_float(g, s, j, p) - zero : b_float(g, s, j, p), sum);
        }
        total = s->group ? fmaf(sum, g->scale_b[ahead], total) : sum;
    }
    return total;
}

/* ---- what follows them ---- */

/* A sum before the chain: zero points, scale, bias. */
static int32_t raw_of(const kernel_args *g, const kernel_spec *s, int i, int j, int32_t sum)
{
    uint32_t raw = (uint32_t)sum;
    if (s->zero_a) raw -= (uint32_t)(s->zero_a == ZERO_A_ROWS ? g->zero_a[i] : g->zero_a_v[0]) * (uint32_t)g->sums[j];
    if (s->zero_b) raw -= (uint32_t)g->zero_b[j] * (uint32_t)g->row_sums[i];
    if (s->bias == BIAS_S32) raw += (uint32_t)((const int32_t *)g->bias)[j];
    return (int32_t)raw;
}

static float real_of(const kernel_args *g, const kernel_spec *s, int i, int j, sum32 sum)
{
    float real;
    if (is_float(s)) real = s->scale_b && !s->group ? sum.f * g->scale_b[j] : sum.f;
    else real = rescale(raw_of(g, s, i, j, sum.i), g->scale_b[j], s->scale_a_rows ? g->scale_a[i] : g->scale_a_v[0]);
    return s->bias == BIAS_F32 ? real + ((const float *)g->bias)[j] : real;
}

/* Step `n` on x; j counts columns of C, or of the gate or what it multiplies (up). */
static float step(const kernel_args *g, const kernel_spec *s, int n, int i, int j, bool up, float x)
{
    const uint8_t c = s->chain[n];
    const op_arg *o = &g->op[n];
    const octet_dtype type = chain_type(c) == 1 ? OCTET_F16 : chain_type(c) == 2 ? OCTET_BF16 : OCTET_F32;
    const int op = chain_op(c);
    if (op == OCTET_OP_CLIP) return clamp_keep_nan(x, o->value, o->value2);
    if (op > OCTET_OP_CLIP) return activate(op, x);
    float t = o->value;
    if (chain_has_operand(c)) {
        if (chain_shape(c) == OCTET_PER_M) t = ((const float *)(const void *)o->p)[i];
        else t = load_float(type, (up ? o->up : o->p) + i * o->row_step, j);
    } else if (op == OCTET_OP_ADD) {
        return x + t;
    }
    if (op == OCTET_OP_ADD) return fmaf(o->value, t, x);
    if (op == OCTET_OP_MUL) return x * t;
    return signbit(x) ? x * t : x;
}

static float steps(const kernel_args *g, const kernel_spec *s, int from, int to, int i, int j, bool up, float x)
{
    for (int n = from; n < to && s->chain[n]; n++) x = step(g, s, n, i, j, up, x);
    return x;
}

static void store(const kernel_args *g, const kernel_spec *s, int i, int j, float real)
{
    const octet_dtype t = (octet_dtype)s->c;
    void *row = (char *)g->c + i * g->ldc;
    if (t == OCTET_U8 || t == OCTET_S8) {
        const bounds b = { g->lo.f[0], g->hi.f[0] };
        ((uint8_t *)row)[j] = (uint8_t)requantize(real, g->inv_scale_c[0], b, g->zero_c[0]);
        return;
    }
    if (s->accumulate) real += load_float(t, row, j);
    if (s->clamp) real = clamp_keep_nan(real, g->lo.f[0], g->hi.f[0]);
    if (t == OCTET_F32) ((float *)row)[j] = real;
    else ((uint16_t *)row)[j] = t == OCTET_F16 ? f16_from_f32(real) : bf16_from_f32(real);
}

static void store_s32(const kernel_args *g, const kernel_spec *s, int i, int j, int32_t raw)
{
    int32_t *c = (int32_t *)(void *)((char *)g->c + i * g->ldc) + j;
    int32_t v = (int32_t)((uint32_t)raw + (s->accumulate ? (uint32_t)*c : 0));
    if (s->clamp) {
        v = v > g->lo.i[0] ? v : g->lo.i[0];
        v = v < g->hi.i[0] ? v : g->hi.i[0];
    }
    *c = v;
}

static void finish_row(const kernel_args *g, const kernel_spec *s, int i, const sum32 *sum)
{
    const int gate = chain_gate(s->chain), half = width(s) / 2;
    for (int j = 0; j < (gate >= 0 ? s->gate_cols : s->cols); j++) {
        if (s->c == OCTET_S32) {
            store_s32(g, s, i, j, raw_of(g, s, i, j, sum[j].i));
            continue;
        }
        float x = steps(g, s, 0, gate >= 0 ? gate : OCTET_OPS, i, j, false, real_of(g, s, i, j, sum[j]));
        if (gate >= 0) {
            const float y = steps(g, s, 0, gate, i, j, true, real_of(g, s, i, half + j, sum[half + j]));
            x = steps(g, s, gate + 1, OCTET_OPS, i, j, false, activate(chain_op(s->chain[gate]), x) * y);
        }
        store(g, s, i, j, x);
    }
}

static void one_tile(const kernel_args *g)
{
    const kernel_spec *s = g->spec;
    for (int i = 0; i < s->rows; i++) {
        sum32 sum[NR_FLOAT];
        for (int j = 0; j < s->cols; j++) {
            if (is_float(s)) sum[j].f = float_sum(g, s, i, j);
            else sum[j].i = integer_sum(g, s, i, j);
            if (g->raw_out) g->raw_out[width(s) * i + j] = sum[j].i;
        }
        if (!g->raw_out) finish_row(g, s, i, sum);
    }
}

static void chain_on(kernel_args *g, const kernel_spec *s, int rows, int panels)
{
    for (int n = 0; n < OCTET_OPS && s->chain[n]; n++) {
        if (!chain_has_operand(s->chain[n])) continue;
        g->op[n].p += rows * g->op[n].row_step + panels * g->op[n].panel_step;
        g->op[n].up += panels * g->op[n].panel_step;
    }
}

void plain_kernel(kernel_args *g)
{
    const kernel_spec *s = g->spec;
    const int rows = s->rows;
    one_tile(g);
    for (; g->tiles > 1; g->tiles--) {
        g->a += g->a_step;
        g->c = (char *)g->c + rows * g->ldc;
        g->zero_a += rows;
        g->scale_a += rows;
        g->row_sums += rows;
        chain_on(g, s, rows, 0);
        one_tile(g);
    }
    for (; g->panels > 1; g->panels--) {
        g->b += g->b_step;
        g->c = (char *)g->c + g->c_step;
        if (g->span) g->span = (const residual_span *)(const void *)((const char *)g->span + g->span_step);
        g->sums += NR;
        g->scale_b = (const float *)(const void *)((const char *)g->scale_b + g->scale_b_step);
        g->zero_b = (const int32_t *)(const void *)((const char *)g->zero_b + g->zero_b_step);
        if (s->bias) g->bias = (const char *)g->bias + 4 * width(s);
        chain_on(g, s, 0, 1);
        one_tile(g);
    }
}
