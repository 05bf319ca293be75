/*
 * The kernel in portable C: what a generated one must equal, and what computes where nothing can be
 * generated. Reads every form and layout of gen.h; the order of operations is octet_run's.
 */
#include "plain.h"

#include "format.h"
#include "requant.h"

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

static float load_c(octet_dtype t, const void *c, int64_t j)
{
    switch (t) {
    case OCTET_F16: return f32_from_f16(((const uint16_t *)c)[j]);
    case OCTET_BF16: return f32_from_bf16(((const uint16_t *)c)[j]);
    default: return ((const float *)c)[j];
    }
}

static void finish(const kernel_args *g, const kernel_spec *s, int i, int j, int32_t sum)
{
    const octet_dtype t = (octet_dtype)s->c;
    void *row = (char *)g->c + i * g->ldc;
    uint32_t raw = (uint32_t)sum;
    if (s->zero_a) raw -= (uint32_t)(s->zero_a == ZERO_A_ROWS ? g->zero_a[i] : g->zero_a_v[0]) * (uint32_t)g->sums[j];
    if (s->zero_b) raw -= (uint32_t)g->zero_b[j] * (uint32_t)g->row_sums[i];
    if (s->bias == BIAS_S32) raw += (uint32_t)((const int32_t *)g->bias)[j];
    if (t == OCTET_S32) {
        int32_t *c = (int32_t *)row + j;
        int32_t v = (int32_t)(raw + (s->accumulate ? (uint32_t)*c : 0));
        if (s->clamp) {
            v = v > g->lo.i[0] ? v : g->lo.i[0];
            v = v < g->hi.i[0] ? v : g->hi.i[0];
        }
        *c = v;
        return;
    }
    float real = rescale((int32_t)raw, g->scale_b[j], s->scale_a_rows ? g->scale_a[i] : g->scale_a_v[0]);
    if (s->bias == BIAS_F32) real += ((const float *)g->bias)[j];
    if (t == OCTET_U8 || t == OCTET_S8) {
        const bounds b = { g->lo.f[0], g->hi.f[0] };
        ((uint8_t *)row)[j] = (uint8_t)requantize(real, g->inv_scale_c[0], b, g->zero_c[0]);
        return;
    }
    if (s->accumulate) real += load_c(t, row, j);
    if (s->clamp) real = clamp_keep_nan(real, g->lo.f[0], g->hi.f[0]);
    if (t == OCTET_F32) ((float *)row)[j] = real;
    else ((uint16_t *)row)[j] = t == OCTET_F16 ? f16_from_f32(real) : bf16_from_f32(real);
}

static void one_tile(const kernel_args *g)
{
    const kernel_spec *s = g->spec;
    const int64_t k = 4 * g->quads + (g->raw_out ? 0 : s->k_tail);
    for (int i = 0; i < s->rows; i++)
        for (int j = 0; j < s->cols; j++) {
            uint32_t sum = 0;
            for (int64_t p = 0; p < k; p++) sum += (uint32_t)(a_value(g, s, i, p) * b_value(g, s, j, p));
            for (uint32_t r = g->span ? 4 * g->span->first : 0; g->span && r < 4 * (g->span->first + g->span->quads); r++)
                sum += (uint32_t)(a_value(g, s, i, 4 * (g->res_k[r].quad - g->quad0) + g->res_k[r].pick / 32) * g->res_w[4 * NR * (r / 4) + 4 * j + r % 4]);
            if (g->raw_in) sum += (uint32_t)g->raw_in[NR * i + j];
            if (g->raw_out) g->raw_out[NR * i + j] = (int32_t)sum;
            else finish(g, s, i, j, (int32_t)sum);
        }
}

void plain_kernel(kernel_args *g)
{
    const int rows = g->spec->rows;
    one_tile(g);
    for (; g->tiles > 1; g->tiles--) {
        g->a += g->a_step;
        g->c = (char *)g->c + rows * g->ldc;
        g->zero_a += rows;
        g->scale_a += rows;
        g->row_sums += rows;
        one_tile(g);
    }
    for (; g->panels > 1; g->panels--) {
        g->b += g->b_step;
        g->c = (char *)g->c + g->c_step;
        if (g->span) g->span = (const residual_span *)(const void *)((const char *)g->span + g->span_step);
        g->sums += NR;
        g->scale_b = (const float *)(const void *)((const char *)g->scale_b + g->scale_b_step);
        g->zero_b = (const int32_t *)(const void *)((const char *)g->zero_b + g->zero_b_step);
        if (g->spec->bias) g->bias = (const char *)g->bias + 4 * NR;
        one_tile(g);
    }
}
