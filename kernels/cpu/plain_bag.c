/* Bags in portable C: what a generated kernel does (codegen/gen_bag.h), a value at a time. */
#include <math.h>

#include "format.h"
#include "octet/quant.h"
#include "plain.h"

static int64_t integer_at(const char *p, bool four)
{
    int32_t narrow;
    int64_t wide;
    if (four) { memcpy(&narrow, p, 4); return narrow; }
    memcpy(&wide, p, 8);
    return wide;
}

static float half_at(const char *p) { uint16_t h; memcpy(&h, p, 2); return f32_from_f16(h); }
static float single_at(const char *p) { float f; memcpy(&f, p, 4); return f; }

/* Value j of the slice, before scale and bias. */
static float value_at(const bag_spec *s, const char *row, int j)
{
    const uint8_t *b = (const uint8_t *)row;
    uint16_t h;
    float x;
    switch (s->table) {
    case OCTET_F32: return single_at(row + 4 * j);
    case OCTET_F16: return half_at(row + 2 * j);
    case OCTET_BF16: memcpy(&h, row + 2 * j, 2); return f32_from_bf16(h);
    case OCTET_E4M3: octet_to_f32(OCTET_E4M3, b + j, 1, &x); return x;
    case OCTET_E5M2: return f32_from_f16((uint16_t)(b[j] << 8));
    case OCTET_U8: return b[j];
    case OCTET_U4: return b[j / 2] >> j % 2 * 4 & 15;
    default: return b[j / 4] >> j % 4 * 2 & 3;
    }
}

static void put_out(const bag_spec *s, char *out, int j, float x)
{
    uint16_t h;
    if (s->out == OCTET_F32) { memcpy(out + 4 * j, &x, 4); return; }
    h = s->out == OCTET_F16 ? f16_from_f32(x) : bf16_from_f32(x);
    memcpy(out + 2 * j, &h, 2);
}

/* The row that the next index names, or NULL; *counts: it leaves the divisor. False: it is bad, and that is an error. */
static bool find_row(bag_args *x, const bag_spec *s, const char **row, bool *counts)
{
    int64_t i = integer_at(x->index, s->index32);
    *row = NULL;
    *counts = true;
    if (s->padding && i == x->padding) { *counts = false; return true; }
    bool good = true;
    if (s->remap) {
        if (i == -1) return true;
        good = s->bad == OCTET_BAD_TRUST || (uint64_t)i < x->remap_rows;
        if (good) {
            i = x->remap[i];
            if (i == -1) return true;
        }
    }
    good = good && (s->bad == OCTET_BAD_TRUST || (uint64_t)i < x->rows);
    if (!good) {
        if (s->bad == OCTET_BAD_ERROR) return false;
        x->bad++;
        if (s->bad == OCTET_BAD_SKIP || !x->rows) return true;
        i = 0;
    }
    *row = (const char *)((uintptr_t)x->data + (uintptr_t)(i * x->stride));
    return true;
}

/* sums += w row */
static void add_row(const bag_spec *s, const char *row, const char *params, float w, bool first, float *sums, float *beta)
{
    const bool quantized = bag_quantized(s), weighted = s->weights != 0;
    float scale = w, bias = 0;
    if (quantized) {
        scale = s->half ? half_at(params) : single_at(params);
        bias = s->half ? half_at(params + 2) : single_at(params + 4);
    }
    const float raw_scale = scale;
    if (quantized && weighted) scale = w * scale;
    for (int j = 0; j < bag_cols(s); j++) {
        const float v = value_at(s, row, j);
        if (s->pooling == OCTET_MAX) {
            const float real = quantized ? v * raw_scale + bias : v;
            if (first || isnan(real) || real > sums[j]) sums[j] = real;
        } else if (s->pooling == OCTET_NONE) {
            sums[j] = quantized || weighted ? v * scale : v;
        } else {
            sums[j] = quantized || weighted ? fmaf(v, scale, sums[j]) : sums[j] + v;
        }
    }
    if (quantized && s->pooling != OCTET_MAX) {
        if (s->pooling == OCTET_NONE) *beta = weighted ? bias * w : bias;
        else *beta = weighted ? fmaf(bias, w, *beta) : *beta + bias;
    }
}

/* Where the next bag ends; false: its offset is bad, or there are fewer weights than it has places. */
static bool bag_end(bag_args *x, const bag_spec *s, int64_t *end)
{
    if (s->pooling == OCTET_NONE) { *end = x->at + 1; return true; }
    *end = integer_at(x->offsets, s->offset32);
    if (s->lengths) *end = (int64_t)((uint64_t)*end + (uint64_t)x->at);
    x->offsets += s->offset32 ? 4 : 8;
    x->status = BAG_BAD_OFFSET;
    if ((uint64_t)*end > (uint64_t)x->count || *end < x->at) return false;
    x->status = BAG_FEW_WEIGHTS;
    return s->weights != OCTET_WEIGHT_POSITION || *end - x->at <= x->weight_count;
}

void plain_bag(bag_args *x)
{
    const bag_spec *s = x->spec;
    const bool quantized = bag_quantized(s);
    for (; x->bags; x->bags--, x->out += x->out_step) {
        int64_t end, divisor, seen = 0;
        float beta = 0;
        const float *w = x->weights;
        if (!bag_end(x, s, &end)) return;
        divisor = end - x->at;
        for (int j = 0; j < bag_cols(s); j++) x->sums[j] = 0;
        for (; x->at < end; x->at++, x->index += s->index32 ? 4 : 8) {
            const char *row;
            bool counts;
            if (!find_row(x, s, &row, &counts)) { x->status = BAG_BAD_INDEX; return; }
            divisor -= !counts;
            if (row) add_row(s, row, (const char *)((uintptr_t)x->params + ((uintptr_t)row - (uintptr_t)x->data)), s->weights ? *w : 1, !seen++, x->sums, &beta);
            if (s->weights) w++;
        }
        if (s->weights == OCTET_WEIGHT_EACH) x->weights = w;
        const float inverse = divisor ? 1.0f / (float)divisor : 0;
        for (int j = 0; j < bag_cols(s); j++) {
            float v = x->sums[j];
            if (quantized && s->pooling != OCTET_MAX) v = v + beta;
            if (s->pooling == OCTET_MEAN) v = v * inverse;
            put_out(s, x->out, j, v);
        }
    }
    x->status = BAG_DONE;
}
