/*
 * Panels of floating and weight-only products: A widened to f32, tiles of rows side by side; B in its own
 * type, panels of 16 columns side by side (gen.h has the layouts). Beside weight-only panels stand their
 * scales and zero points, a row of f32 for each group of k:
 *
 *   blob | panels | scales[groups][columns to 16] | zeros[groups][columns to 16]? | slack
 */
#include "pack.h"

#include "format.h"

#if OCTET_X86
#include <immintrin.h>
#endif

/* ---- widening ---- */

static float widen(octet_dtype t, const void *base, int64_t i)
{
    switch (t) {
    case OCTET_F16: return f32_from_f16(((const uint16_t *)base)[i]);
    case OCTET_BF16: return f32_from_bf16(((const uint16_t *)base)[i]);
    default: return ((const float *)base)[i];
    }
}

#if OCTET_X86
/* Eight values from value i on. */
__attribute__((target("avx2,f16c"), always_inline))
static inline __m256 widen8(octet_dtype t, const void *base, int64_t i)
{
    switch (t) {
    case OCTET_F16: return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)base + i)));
    case OCTET_BF16:
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)base + i))), 16));
    default: return _mm256_loadu_ps((const float *)base + i);
    }
}

__attribute__((target("avx2,f16c")))
static int64_t widen_many(octet_dtype t, const void *x, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, widen8(t, x, i));
    return i;
}

__attribute__((target("avx2")))
static void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
        r[4 + i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
    }
}

/* k consecutive, 8 values of it at a time, up to 16 lines. A store of 8 past the last line lands where the next k's
 * first lines go, which are written after it. */
__attribute__((target("avx2,f16c")))
static int64_t floats_along_k(octet_dtype t, const char *base, int64_t line_bytes, int lines, int64_t kn, float *out)
{
    int64_t p = 0;
    for (; p + 8 <= kn; p += 8) {
        __m256 r[16];
        for (int i = 0; i < 8; i++) r[i] = i < lines ? widen8(t, base + i * line_bytes, p) : _mm256_setzero_ps();
        transpose8(r);
        if (lines <= 8) {
            for (int i = 0; i < 8; i++) _mm256_storeu_ps(out + (p + i) * lines, r[i]);
            continue;
        }
        for (int i = 8; i < 16; i++) r[i] = i < lines ? widen8(t, base + i * line_bytes, p) : _mm256_setzero_ps();
        transpose8(r + 8);
        for (int i = 0; i < 8; i++) {
            _mm256_storeu_ps(out + (p + i) * lines, r[i]);
            _mm256_storeu_ps(out + (p + i) * lines + 8, r[8 + i]);
        }
    }
    return p;
}

/* s8 and s4 panels, to f32; `values` of them, in order. */
__attribute__((target("avx2")))
static int64_t widen_bytes(const int8_t *x, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(x + i)))));
    return i;
}

__attribute__((target("avx2")))
static void widen_block4(const uint32_t *block, int cols, float zero, float *out)
{
    const __m256 less = _mm256_set1_ps(zero);
    for (int j = 0; j + 8 <= cols; j += 8) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(block + j));
        for (int p = 0; p < 8; p++)
            _mm256_storeu_ps(out + p * cols + j, _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(v, _mm256_set1_epi32(4 * p)), _mm256_set1_epi32(15))), less));
    }
}

__attribute__((target("avx2")))
static void unpair_bf16(const uint16_t *x, int64_t kn, float *out)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    for (int64_t p = 0; p < kn; p++) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + NR_FLOAT * p));
        _mm256_storeu_si256((__m256i *)(void *)(out + NR_FLOAT * p), _mm256_slli_epi32(v, 16));
        _mm256_storeu_si256((__m256i *)(void *)(out + NR_FLOAT * p + 8), _mm256_and_si256(v, high));
    }
}
static bool vectors(void) { return cpu_features() & CPU_AVX2; }
#endif

void widen_floats(octet_dtype t, const void *x, int64_t n, float *y)
{
    int64_t i = 0;
#if OCTET_X86
    if (vectors()) i = widen_many(t, x, n, y);
#endif
    for (; i < n; i++) y[i] = widen(t, x, i);
}

static int64_t offset_of(const view *v, int64_t line, int64_t k)
{
    return (v->line_offset ? v->line_offset[line] : line * v->line_stride) + (v->k_offset ? v->k_offset[k] : k * v->k_stride);
}

void pack_floats(const source *s, int64_t line0, int lines, int64_t k0, int64_t kn, float *out)
{
    const view *v = &s->views[0];
    const bool strided = s->count == 1 && !s->weights && !v->line_offset && !v->k_offset;
    const int bytes = format_of(s->type)->bytes;
    int64_t p = 0;
    if (strided && v->line_stride == 1 && v->k_stride != 1) {
        const char *base = (const char *)v->base + (line0 + k0 * v->k_stride) * bytes;
        for (; p < kn; p++, base += v->k_stride * bytes) {
            if (s->type == OCTET_F32) memcpy(out + p * lines, base, 4 * (size_t)lines);
            else widen_floats(s->type, base, lines, out + p * lines);
        }
        return;
    }
#if OCTET_X86
    if (strided && v->k_stride == 1 && vectors())
        p = floats_along_k(s->type, (const char *)v->base + (line0 * v->line_stride + k0) * bytes, v->line_stride * bytes, lines, kn, out);
#endif
    for (; p < kn; p++)
        for (int i = 0; i < lines; i++) {
            float sum = 0;
            for (int u = 0; u < s->count; u++) {
                const float x = widen(s->type, s->views[u].base, offset_of(&s->views[u], line0 + i, k0 + p));
                sum = u || s->weights ? sum + (s->weights ? (float)s->weights[u] : 1.0f) * x : x;
            }
            out[p * lines + i] = sum;
        }
}

/* ---- B ---- */

int64_t float_panel_bytes(octet_dtype t, int64_t k, int cols)
{
    return format_of(t)->bytes ? format_of(t)->bytes * k * cols : 4 * ceil_div(k, 8) * cols;
}

int64_t float_panel_stride(octet_dtype t, int64_t k) { return round_up(float_panel_bytes(t, k, NR_FLOAT), 64); }

float_layout float_lay_out(const b_shape *s, bool zeros)
{
    const int64_t panels = panels_of(s->columns, NR_FLOAT);
    const bool scaled = s->type == OCTET_S8 || format_of(s->type)->bytes == 0;
    float_layout l = { .panels = round_up((int64_t)sizeof(blob), 64), .row = round_up(s->columns, NR_FLOAT) };
    int64_t at = l.panels;
    if (panels) at += round_up((panels - 1) * float_panel_stride(s->type, s->k) + float_panel_bytes(s->type, s->k, (int)(s->columns - (panels - 1) * NR_FLOAT)), 64);
    const int64_t table = round_up(4 * l.row * max64(1, s->groups), 64);
    if (scaled) { l.scales = at; at += table; }
    if (scaled && zeros) { l.zeros = at; at += table; }
    l.end = at;
    return l;
}

/* Element i of B as it is stored: bits of f32, f16, bf16; s8; of s4 the value + 8. */
static uint32_t element(octet_dtype t, const void *base, int64_t i)
{
    uint32_t u;
    switch (t) {
    case OCTET_F32: memcpy(&u, (const char *)base + 4 * i, 4); return u;
    case OCTET_F16: case OCTET_BF16: return ((const uint16_t *)base)[i];
    case OCTET_S8: return ((const uint8_t *)base)[i];
    default: /* to add 8 is to turn the top of four bits */
        u = ((const uint8_t *)base)[i / 2] >> (i % 2 ? 4 : 0) & 15;
        return t == OCTET_S4 ? u ^ 8 : u;
    }
}

/* Where value k of column j lies in a panel, in elements (of s4 and u4 in nibbles). */
static int64_t place(octet_dtype t, int cols, int j, int64_t k)
{
    if (format_of(t)->bytes == 0) return (k / 8 * cols + j) * 8 + k % 8;
    if (t == OCTET_BF16 && cols == NR_FLOAT) return k * NR_FLOAT + j % 8 * 2 + j / 8;
    return k * cols + j;
}

static void put_element(octet_dtype t, void *panel, int64_t at, uint32_t u)
{
    switch (format_of(t)->bytes) {
    case 4: memcpy((char *)panel + 4 * at, &u, 4); break;
    case 2: ((uint16_t *)panel)[at] = (uint16_t)u; break;
    case 1: ((uint8_t *)panel)[at] = (uint8_t)u; break;
    default: ((uint8_t *)panel)[at / 2] |= (uint8_t)(u << (at % 2 ? 4 : 0)); /* zeroed before */
    }
}

/* Stretches of k, so that lines that lie across them are read while their cache lines are there. */
static void pack_panel(const source *b, const b_shape *s, int64_t j0, int cols, void *panel)
{
    enum { STRETCH = 64 };
    const view *v = &b->views[0];
    const int bytes = format_of(s->type)->bytes;
    const bool strided = b->count == 1 && !b->weights && !v->line_offset && !v->k_offset && !s->gated;
    if (s->type == OCTET_F32 && !s->gated && cols == NR_FLOAT) {
        pack_floats(b, j0, cols, 0, s->k, panel);
        return;
    }
    if (strided && v->line_stride == 1 && bytes && !(s->type == OCTET_BF16 && cols == NR_FLOAT)) {
        for (int64_t p = 0; p < s->k; p++)
            memcpy((char *)panel + p * cols * bytes, (const char *)v->base + (j0 + p * v->k_stride) * bytes, (size_t)(cols * bytes));
        return;
    }
    if (!bytes) memset(panel, 0, (size_t)float_panel_bytes(s->type, s->k, cols));
    for (int64_t p0 = 0; p0 < s->k; p0 += STRETCH)
        for (int j = 0; j < cols; j++) {
            const int64_t line = b_line(s, j0 + j), end = min64(s->k, p0 + STRETCH);
            for (int64_t p = p0; p < end; p++)
                put_element(s->type, panel, place(s->type, cols, j, p), line < 0 ? 0 : element(s->type, v->base, offset_of(v, line, p)));
        }
}

void float_panels(const source *b, const b_shape *s, const octet_quant *q, const float_layout *l, char *base)
{
    const int64_t panels = panels_of(s->columns, NR_FLOAT), stride = float_panel_stride(s->type, s->k);
    int64_t at = l->panels;
    for (int64_t p = 0; p < panels; p++) {
        const int cols = (int)min64(NR_FLOAT, s->columns - p * NR_FLOAT);
        pack_panel(b, s, p * NR_FLOAT, cols, base + l->panels + p * stride);
        at = l->panels + p * stride + float_panel_bytes(s->type, s->k, cols);
        const int64_t next = p + 1 < panels ? l->panels + (p + 1) * stride : l->scales ? l->scales : l->end;
        memset(base + at, 0, (size_t)(next - at));
    }
    if (!l->scales) return;
    memset(base + l->scales, 0, (size_t)(l->end - l->scales));
    float *scales = (float *)(void *)(base + l->scales), *zeros = (float *)(void *)(base + l->zeros);
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t j = 0; j < s->columns; j++) {
            const int64_t line = b_line(s, j), from = g * s->n + line, to = g * l->row + j;
            if (line < 0) continue;
            scales[to] = q->scales ? q->scales[from] : q->scale == 0.0f ? 1.0f : q->scale;
            if (l->zeros) zeros[to] = (float)((q->zeros ? q->zeros[from] : q->zero) + (s->type == OCTET_S4 ? 8 : 0));
        }
}

static void subtract_zeros(const blob *b, int64_t p, int cols, int64_t k0, int64_t kn, float *out)
{
    const b_shape s = blob_shape(b);
    const int64_t row = round_up(b->n, NR_FLOAT);
    for (int64_t i = 0; i < kn; i++) {
        const float *zero = (const float *)(const void *)((const char *)b + b->zeros) + (k0 + i) / s.group * row + p * NR_FLOAT;
        for (int j = 0; j < cols; j++) out[i * cols + j] -= zero[j];
    }
}

void widen_float_panel(const blob *b, int64_t p, int64_t k0, int64_t kn, float *out)
{
    const octet_dtype t = (octet_dtype)b->type;
    const int cols = blob_cols(b, p);
    const int8_t *panel = blob_panel(b, p) + float_panel_bytes(t, k0, cols);
    const float less = b->has_zeros ? 0.0f : 8.0f; /* of s4 */
    int64_t done = 0; /* of k */
#if OCTET_X86
    if (vectors()) switch (t) {
    case OCTET_F16: done = widen_many(t, panel, kn * cols, out) / cols; break;
    case OCTET_BF16:
        if (cols == NR_FLOAT) unpair_bf16((const uint16_t *)(const void *)panel, kn, out), done = kn;
        else done = widen_many(t, panel, kn * cols, out) / cols;
        break;
    case OCTET_S8: done = widen_bytes(panel, kn * cols, out) / cols; break;
    default:
        if (cols % 8 == 0)
            for (; done + 8 <= kn; done += 8) widen_block4((const uint32_t *)(const void *)(panel + done / 2 * cols), cols, less, out + done * cols);
    }
#endif
    for (int64_t k = done; k < kn; k++)
        for (int j = 0; j < cols; j++) {
            const int64_t at = place(t, cols, j, k);
            if (format_of(t)->bytes == 2) out[k * cols + j] = widen(t, panel, at);
            else if (t == OCTET_S8) out[k * cols + j] = (float)panel[at];
            else out[k * cols + j] = (float)element(OCTET_U4, panel, at) - less;
        }
    if (b->has_zeros) subtract_zeros(b, p, cols, k0, kn, out);
}

void unpack_float(const blob *b, const b_shape *s, void *out, int64_t line_stride, int64_t k_stride)
{
    const int bytes = format_of(s->type)->bytes;
    for (int64_t p = 0; p < blob_panels(b); p++) {
        const int cols = blob_cols(b, p);
        const int8_t *panel = blob_panel(b, p);
        for (int j = 0; j < cols; j++) {
            const int64_t line = b_line(s, p * NR_FLOAT + j);
            for (int64_t k = 0; line >= 0 && k < s->k; k++) {
                const int64_t from = place(s->type, cols, j, k), to = line * line_stride + k * k_stride;
                if (bytes) {
                    memcpy((char *)out + to * bytes, panel + from * bytes, (size_t)bytes);
                    continue;
                }
                uint8_t *o = (uint8_t *)out + to / 2;
                const int shift = to % 2 ? 4 : 0;
                *o = (uint8_t)((*o & (0xf0 >> shift)) | element(s->type, panel, from) << shift);
            }
        }
    }
}
