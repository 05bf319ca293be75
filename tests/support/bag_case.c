#include "bag_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/quant.h"

/* ---- the definition ---- */

int64_t ref_integer(const void *p, octet_dtype type, int64_t i)
{
    return type == OCTET_S32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

static float ref_fp8(octet_dtype t, uint8_t b)
{
    const int m_bits = t == OCTET_E4M3 ? 3 : 2, bias = t == OCTET_E4M3 ? 7 : 15, e = (b & 0x7f) >> m_bits, m = b & ((1 << m_bits) - 1);
    const float sign = b & 0x80 ? -1.0f : 1.0f;
    if (t == OCTET_E4M3 && (b & 0x7f) == 0x7f) return NAN;
    if (t == OCTET_E5M2 && e == 31) return m ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexpf((float)m, 1 - bias - m_bits);
    return sign * ldexpf((float)(m + (1 << m_bits)), e - bias - m_bits);
}

static float ref_half(const uint8_t *p) { uint16_t h; memcpy(&h, p, 2); return ref_f16_to_f32(h); }
static float ref_single(const uint8_t *p) { float f; memcpy(&f, p, 4); return f; }

ref_value ref_table_value(const octet_bag_desc *d, const octet_bag_table *x, int64_t row, int64_t j)
{
    const int64_t stride = x->row_bytes ? x->row_bytes : (int64_t)octet_bag_row_bytes(d);
    const uint8_t *p = (const uint8_t *)x->table + row * stride;
    ref_value v = { 0, 1, 0 };
    uint32_t u;
    uint16_t h;
    if (d->table == OCTET_U8 || d->table == OCTET_U4 || d->table == OCTET_U2) {
        const int bits = d->table == OCTET_U8 ? 8 : d->table == OCTET_U4 ? 4 : 2;
        const int front = d->layout == OCTET_ROWS_IN_FRONT;
        const int half = d->params == OCTET_F16 || (!d->params && (bits < 8 || front));
        const int64_t bytes = (d->dim * bits + 7) / 8;
        const uint8_t *q = p + (front ? half ? 4 : 8 : 0), *params = front ? p : p + bytes;
        v.x = (float)(q[j * bits / 8] >> j * bits % 8 & ((1 << bits) - 1));
        v.scale = half ? ref_half(params) : ref_single(params);
        v.bias = half ? ref_half(params + 2) : ref_single(params + 4);
        return v;
    }
    switch (d->table) {
    case OCTET_F32: memcpy(&v.x, p + 4 * j, 4); break;
    case OCTET_F16: v.x = ref_half(p + 2 * j); break;
    case OCTET_BF16: memcpy(&h, p + 2 * j, 2); u = (uint32_t)h << 16; memcpy(&v.x, &u, 4); break;
    default: v.x = ref_fp8(d->table, p[j]);
    }
    return v;
}

void ref_bag_span(const octet_bag_desc *d, const octet_bag_table *x, int64_t b, int64_t *begin, int64_t *end)
{
    const octet_dtype t = d->offset ? d->offset : OCTET_S64;
    if (d->pooling == OCTET_NONE) { *begin = b; *end = b + 1; return; }
    if (d->flags & OCTET_BAG_LENGTHS) {
        *begin = 0;
        for (int64_t i = 0; i < b; i++) *begin += ref_integer(x->offsets, t, i);
        *end = *begin + ref_integer(x->offsets, t, b);
        return;
    }
    *begin = ref_integer(x->offsets, t, b);
    *end = b + 1 < x->bags || (d->flags & OCTET_BAG_LAST_OFFSET) ? ref_integer(x->offsets, t, b + 1) : x->count;
}

int64_t ref_bag_row(const octet_bag_desc *d, const octet_bag_table *x, int64_t index, int *counts, int *bad)
{
    *counts = 1;
    *bad = 0;
    if ((d->flags & OCTET_BAG_PADDING) && index == x->padding) { *counts = 0; return -1; }
    if (d->flags & OCTET_BAG_REMAP) {
        if (index == -1) return -1;
        if (index < 0 || index >= x->remap_rows) *bad = 1;
        else if ((index = x->remap[index]) == -1) return -1;
    }
    if (*bad || index < 0 || index >= x->rows) {
        *bad = 1;
        return d->bad_index == OCTET_BAD_ROW0 && x->rows ? 0 : -1;
    }
    return index;
}

static float ref_bag_value(const octet_bag_desc *d, const octet_bag_table *x, int64_t b, int64_t j)
{
    const int quantized = d->table == OCTET_U8 || d->table == OCTET_U4 || d->table == OCTET_U2;
    int64_t begin, end, divisor = 0, seen = 0;
    float sum = 0, beta = 0;
    ref_bag_span(d, x, b, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int counts, bad;
        const int64_t row = ref_bag_row(d, x, ref_integer(x->indices, d->index ? d->index : OCTET_S64, i), &counts, &bad);
        divisor += counts;
        if (row < 0) continue;
        const ref_value v = ref_table_value(d, x, row, j);
        const float w = d->weights == OCTET_WEIGHT_EACH ? x->weights[i] : d->weights == OCTET_WEIGHT_POSITION ? x->weights[i - begin] : 1.0f;
        const float ws = w * v.scale, wb = w * v.bias, real = quantized ? v.scale * v.x + v.bias : v.x;
        if (d->pooling == OCTET_MAX) {
            if (!seen || isnan(real) || (!isnan(sum) && real > sum)) sum = real;
        } else if (d->pooling == OCTET_NONE) {
            sum = ws * v.x;
            if (quantized) sum = sum + wb;
            if (!quantized && !d->weights) sum = v.x;
        } else {
            sum = fmaf(ws, v.x, sum);
            if (quantized) beta = fmaf(w, v.bias, beta);
        }
        seen++;
    }
    if (d->pooling == OCTET_MAX || d->pooling == OCTET_NONE) return sum;
    if (quantized) sum = sum + beta;
    return d->pooling == OCTET_MEAN ? (divisor ? sum * (1.0f / (float)divisor) : 0.0f) : sum;
}

void ref_bags(const octet_bag_desc *d, const octet_bag_table *x, void *out)
{
    const int64_t bags = d->pooling == OCTET_NONE ? x->count : x->bags;
    float *row = malloc(sizeof(float) * (size_t)d->dim);
    for (int64_t b = 0; b < bags; b++) {
        for (int64_t j = 0; j < d->dim; j++) row[j] = ref_bag_value(d, x, b, j);
        if (d->out == OCTET_U8) {
            octet_rows_quantize(8, OCTET_ROWS_BEHIND, row, 1, d->dim, (uint8_t *)out + b * x->ld_out);
            continue;
        }
        for (int64_t j = 0; j < d->dim; j++) {
            const int64_t at = b * x->ld_out + j;
            if (d->out == OCTET_F16) ((uint16_t *)out)[at] = ref_f32_to_f16(row[j]);
            else if (d->out == OCTET_BF16) ((uint16_t *)out)[at] = ref_f32_to_bf16(row[j]);
            else ((float *)out)[at] = row[j];
        }
    }
    free(row);
}

/* ---- drawing one ---- */

static float draw_float(rng *r, int specials)
{
    static const float special[] = { 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-42f, -1e-40f, 3e38f, 65504.0f };
    if (specials && rng_below(r, 6) == 0) return special[rng_below(r, 9)];
    return (float)((int32_t)rng_next(r) >> 8) * 0x1p-20f;
}

static void draw_table(bag_case *c, rng *r, int64_t stride, int specials)
{
    const octet_bag_desc *d = &c->d;
    uint8_t *p = c->table.p;
    const int quantized = d->table == OCTET_U8 || d->table == OCTET_U4 || d->table == OCTET_U2;
    for (size_t i = 0; i < c->table.bytes; i++) p[i] = (uint8_t)rng_next(r);
    for (int64_t row = 0; row < c->x.rows; row++) {
        uint8_t *at = p + row * stride;
        if (quantized) {
            const int bits = d->table == OCTET_U8 ? 8 : d->table == OCTET_U4 ? 4 : 2, front = d->layout == OCTET_ROWS_IN_FRONT;
            const int half = d->params == OCTET_F16 || (!d->params && (bits < 8 || front));
            uint8_t *to = front ? at : at + (d->dim * bits + 7) / 8;
            for (int i = 0; i < 2; i++) {
                const float f = draw_float(r, specials);
                const uint16_t h = ref_f32_to_f16(f);
                memcpy(to + i * (half ? 2 : 4), half ? (const void *)&h : (const void *)&f, half ? 2 : 4);
            }
        } else if (d->table == OCTET_F32 || d->table == OCTET_F16 || d->table == OCTET_BF16) {
            for (int64_t j = 0; j < d->dim; j++) {
                const float f = draw_float(r, specials);
                const uint16_t h = d->table == OCTET_F16 ? ref_f32_to_f16(f) : ref_f32_to_bf16(f);
                if (d->table == OCTET_F32) memcpy(at + 4 * j, &f, 4);
                else memcpy(at + 2 * j, &h, 2);
            }
        }
    }
}

static int64_t draw_dim(rng *r)
{
    static const int64_t borders[] = { 31, 32, 33, 63, 64, 65, 66, 71, 72, 73, 79, 80, 81, 87, 88, 89, 95, 96, 97, 100, 104, 127, 128, 129, 192, 200, 255, 256, 257 };
    switch (rng_below(r, 8)) {
    case 0: case 1: case 2: return 1 + rng_below(r, 24);
    case 3: return 1 + rng_below(r, 300);
    case 4: return rng_below(r, 6) ? 1 + rng_below(r, 64) : 1017 + rng_below(r, 16) * (1 + 64 * (rng_below(r, 6) == 0));
    default: return borders[rng_below(r, sizeof borders / sizeof *borders)];
    }
}

static void draw_desc(octet_bag_desc *d, rng *r, int64_t dim)
{
    static const octet_dtype tables[] = { OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_U8, OCTET_U4, OCTET_U2, OCTET_E4M3, OCTET_E5M2, OCTET_U8, OCTET_U4 };
    static const octet_dtype outs[] = { (octet_dtype)0, OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_F32, OCTET_U8 };
    *d = (octet_bag_desc)OCTET_BAG_DESC;
    d->table = tables[rng_below(r, 10)];
    d->dim = dim ? dim : draw_dim(r);
    if (d->table == OCTET_U8 || d->table == OCTET_U4 || d->table == OCTET_U2) {
        d->layout = (int)rng_below(r, 3);
        d->params = rng_below(r, 2) ? (octet_dtype)0 : rng_below(r, 2) ? OCTET_F16 : OCTET_F32;
    }
    d->pooling = (int)rng_below(r, 4);
    if (d->pooling != OCTET_MAX) d->weights = (int)rng_below(r, d->pooling == OCTET_NONE ? 2 : 3);
    d->index = rng_below(r, 3) ? (rng_below(r, 2) ? OCTET_S32 : OCTET_S64) : (octet_dtype)0;
    d->offset = rng_below(r, 3) ? (rng_below(r, 2) ? OCTET_S32 : OCTET_S64) : (octet_dtype)0;
    d->out = outs[rng_below(r, d->dim <= 1024 ? 6 : 5)];
    d->bad_index = (int)rng_below(r, 4);
    const int64_t ends = rng_below(r, 4);
    d->flags = ends == 0 ? OCTET_BAG_LENGTHS : ends == 1 ? OCTET_BAG_LAST_OFFSET : ends == 2 ? OCTET_BAG_LAST_OFFSET | OCTET_BAG_SLICE : 0;
    if (rng_below(r, 3) == 0) d->flags |= OCTET_BAG_PADDING;
    if (rng_below(r, 3) == 0) d->flags |= OCTET_BAG_REMAP;
}

static void put_integer(void *p, octet_dtype t, int64_t i, int64_t v)
{
    if (t == OCTET_S32) ((int32_t *)p)[i] = (int32_t)v;
    else ((int64_t *)p)[i] = v;
}

void bag_case_new(bag_case *c, uint64_t seed, int64_t dim)
{
    rng r = { seed };
    for (int i = 0; i < 4; i++) rng_next(&r);
    memset(c, 0, sizeof *c);
    c->seed = seed;
    draw_desc(&c->d, &r, dim);
    octet_bag_desc *d = &c->d;
    octet_bag_table *x = &c->x;
    *x = (octet_bag_table)OCTET_BAG_TABLE;
    const bool at_end = rng_next(&r) & 1;
    const int specials = rng_below(&r, 3) == 0;
    const octet_dtype it = d->index ? d->index : OCTET_S64, ot = d->offset ? d->offset : OCTET_S64;
    const int align = d->table == OCTET_F32 ? 4 : d->table == OCTET_F16 || d->table == OCTET_BF16 ? 2 : 1;
    const bool slice = d->pooling != OCTET_NONE && (d->flags & OCTET_BAG_SLICE);
    int64_t stride = (int64_t)octet_bag_row_bytes(d);
    const int64_t tight = stride;
    x->rows = rng_below(&r, 12) ? 1 + rng_below(&r, 40) : 0;
    if (rng_below(&r, 2)) x->row_bytes = stride += align * rng_below(&r, 20);
    if (rng_below(&r, 16) == 0) x->rows += (5 << 18) / stride; /* 1.25 MiB: too large for half of L2, so rows are prefetched */
    c->table = guard_new(x->rows ? (size_t)((x->rows - 1) * stride + tight) : 0, (size_t)align, at_end);
    x->table = c->table.p;
    draw_table(c, &r, stride, specials);

    /* bags */
    x->bags = rng_below(&r, 8) ? 1 + rng_below(&r, 9) : 0;
    int64_t lengths[16], sum = 0;
    const int64_t longest = rng_below(&r, 4) ? 8 : 40;
    for (int64_t b = 0; b < x->bags; b++) sum += lengths[b] = rng_below(&r, 4) ? rng_below(&r, longest) : 0;
    const int64_t before = slice ? rng_below(&r, 5) : 0, after = slice ? rng_below(&r, 5) : 0;
    if (d->pooling == OCTET_NONE) sum = rng_below(&r, 30);
    x->count = before + sum + after;
    c->lookups = sum;
    if (x->rows == 0 && d->bad_index != OCTET_BAD_SKIP && d->bad_index != OCTET_BAD_ROW0 && !(d->flags & OCTET_BAG_REMAP)) { /* nothing could be named */
        d->flags |= OCTET_BAG_PADDING;
    }
    const int64_t entries = x->bags + ((d->flags & OCTET_BAG_LAST_OFFSET) != 0), ib = it == OCTET_S32 ? 4 : 8, ob = ot == OCTET_S32 ? 4 : 8;
    c->offsets = guard_new((size_t)(entries * ob), (size_t)ob, at_end);
    x->offsets = c->offsets.p;
    for (int64_t b = 0, at = before; b < entries; at += b < x->bags ? lengths[b] : 0, b++)
        put_integer(c->offsets.p, ot, b, d->flags & OCTET_BAG_LENGTHS ? lengths[b] : at);

    /* remap, padding, indices */
    const int remap = (d->flags & OCTET_BAG_REMAP) != 0, may_fail = d->bad_index == OCTET_BAD_SKIP || d->bad_index == OCTET_BAD_ROW0;
    x->remap_rows = remap ? rng_below(&r, 60) : 0;
    c->remap = guard_new((size_t)(4 * x->remap_rows), 4, at_end);
    x->remap = c->remap.p;
    for (int64_t i = 0; i < x->remap_rows; i++)
        ((int32_t *)c->remap.p)[i] = may_fail && rng_below(&r, 9) == 0 ? (int32_t)rng_next(&r) : x->rows && rng_below(&r, 4) ? (int32_t)rng_below(&r, x->rows) : -1;
    const int64_t named = remap ? x->remap_rows : x->rows;
    x->padding = rng_below(&r, 2) ? rng_below(&r, named ? named : 1) : -1 - rng_below(&r, 3);
    c->indices = guard_new((size_t)(x->count * ib), (size_t)ib, at_end);
    x->indices = c->indices.p;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t v = named ? rng_below(&r, named) : remap ? -1 : x->padding;
        if (remap && rng_below(&r, 8) == 0) v = -1;
        if ((d->flags & OCTET_BAG_PADDING) && rng_below(&r, 5) == 0) v = x->padding;
        if (may_fail && rng_below(&r, 6) == 0) v = rng_below(&r, 2) ? named + rng_below(&r, 3) : it == OCTET_S32 ? (int32_t)rng_next(&r) : (int64_t)((uint64_t)rng_next(&r) << 32 | rng_next(&r));
        put_integer(c->indices.p, it, i, v);
    }
    const bool each = d->weights == OCTET_WEIGHT_EACH;
    int64_t most = 0;
    for (int64_t b = 0; b < x->bags; b++) most = lengths[b] > most ? lengths[b] : most;
    x->weight_count = d->weights == OCTET_WEIGHT_POSITION ? most : 0;
    c->weights = guard_new((size_t)(4 * (each ? x->count : x->weight_count)), 4, at_end);
    x->weights = c->weights.p;
    for (size_t i = 0; i < c->weights.bytes / 4; i++) ((float *)c->weights.p)[i] = draw_float(&r, specials);

    const int64_t bags = d->pooling == OCTET_NONE ? x->count : x->bags, width = d->out == OCTET_U8 ? d->dim + 8 : d->dim;
    const size_t elem = d->out == OCTET_U8 ? 1 : d->out == OCTET_F16 || d->out == OCTET_BF16 ? 2 : 4;
    x->ld_out = width + rng_below(&r, 3) * rng_below(&r, 20);
    const size_t out_bytes = bags ? (size_t)((bags - 1) * x->ld_out + width) * elem : 0;
    c->out = guard_new(out_bytes, elem, at_end);
    c->want = guard_new(out_bytes, elem, at_end);
    x->out = c->out.p;
    for (int64_t b = 0; b < bags; b++) {
        int64_t begin, end;
        ref_bag_span(d, x, b, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            int counts, bad;
            ref_bag_row(d, x, ref_integer(x->indices, it, i), &counts, &bad);
            c->bad += bad;
        }
    }
    bag_case_clear(c);
}

void bag_case_clear(bag_case *c)
{
    if (c->out.bytes) memset(c->out.p, 0xc5, c->out.bytes);
    if (c->want.bytes) memset(c->want.p, 0xc5, c->want.bytes);
}

void bag_case_free(bag_case *c)
{
    guarded *all[] = { &c->table, &c->indices, &c->offsets, &c->weights, &c->remap, &c->out, &c->want };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_free(all[i]);
}

static int same(octet_dtype t, const uint8_t *a, const uint8_t *b)
{
    if (t == OCTET_U8) return *a == *b;
    if (t == OCTET_F16 || t == OCTET_BF16) {
        uint16_t x, y;
        memcpy(&x, a, 2);
        memcpy(&y, b, 2);
        const uint16_t inf = t == OCTET_F16 ? 0x7c00 : 0x7f80;
        return x == y || ((x & 0x7fff) > inf && (y & 0x7fff) > inf);
    }
    uint32_t x, y;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    return x == y || ((x & 0x7fffffff) > 0x7f800000 && (y & 0x7fffffff) > 0x7f800000);
}

int bag_case_check(bag_case *c, const char *what)
{
    const octet_dtype t = c->d.out ? c->d.out : OCTET_F32;
    const size_t elem = t == OCTET_U8 ? 1 : t == OCTET_F32 ? 4 : 2;
    ref_bags(&c->d, &c->x, c->want.p);
    for (size_t i = 0; i < c->out.bytes; i += elem)
        if (!same(t, (uint8_t *)c->out.p + i, (uint8_t *)c->want.p + i)) {
            const int64_t at = (int64_t)(i / elem);
            printf("again: bag_case_new(&c, %lluu, 0); %s: bag %lld, value %lld of dim %lld differs (table %d out %d pooling %d weights %d flags %u)\n",
                   (unsigned long long)c->seed, what, (long long)(at / c->x.ld_out), (long long)(at % c->x.ld_out), (long long)c->d.dim, (int)c->d.table, (int)t,
                   c->d.pooling, c->d.weights, c->d.flags);
            return 1;
        }
    return 0;
}
