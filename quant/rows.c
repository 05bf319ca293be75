/*
 * Row-wise tables: each row's values on a grid of 2^bits steps from its least to its largest, with scale and bias beside
 * it; x = scale q + bias. Low bits first. And weights in groups, for octet_pack.
 */
#include <float.h>
#include <math.h>

#include "mxcsr.h"
#include "narrow.h"
#include "octet/quant.h"
#include "quantize.h"
#include "vectors.h"

#if OCTET_X86
#include <immintrin.h>
#endif

/* ---- one row ---- */

/* q = clamp(round((x - bias) * inv)), a byte each. */
LOOP void grid(const float *x, int64_t n, float bias, float inv, float most, uint8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        const float y = (x[i] - bias) * inv;
        q[i] = (uint8_t)(int32_t)nearbyintf(clamp_nan_low(y, 0.0f, most));
    }
}
LOOP void off_grid(const uint8_t *q, int64_t n, float scale, float bias, float *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = scale * (float)q[i] + bias;
}
FOR_AVX2 static void off_grid_avx2(const uint8_t *q, int64_t n, float scale, float bias, float *x) { off_grid(q, n, scale, bias, x); }

/* Values of 2 or 4 bits, from value i on, i a multiple of what shares a byte. */
static void squeeze(const uint8_t *q, int64_t n, int bits, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (i * bits % 8 == 0) out[i * bits / 8] = 0;
        out[i * bits / 8] |= (uint8_t)(q[i] << (i * bits % 8));
    }
}
static uint8_t bits_at(const uint8_t *in, int64_t i, int bits) { return (uint8_t)(in[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1)); }

#if OCTET_X86
FOR_AVX2 static int64_t grid_avx2(const float *x, int64_t n, float bias, float inv, float most, uint8_t *q)
{
    const __m256 b = _mm256_set1_ps(bias), s = _mm256_set1_ps(inv), zero = _mm256_setzero_ps(), top = _mm256_set1_ps(most);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i v[4];
        for (int j = 0; j < 4; j++) {
            const __m256 y = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), b), s);
            v[j] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(y, zero), top));
        }
        const __m256i w = _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
        _mm256_storeu_si256((__m256i *)(void *)(q + i), _mm256_permutevar8x32_epi32(w, order));
    }
    return i;
}
/* Neighbours joined by multiply-adds: by 1 and 16, or by 1 and 4 and those by 1 and 16. */
FOR_AVX2 static int64_t squeeze_avx2(const uint8_t *q, int64_t n, int bits, uint8_t *out)
{
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + i));
        if (bits == 4) {
            const __m256i w = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x1001));
            const __m128i b = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
            _mm_storeu_si128((__m128i *)(void *)(out + i / 2), b);
        } else {
            const __m256i w = _mm256_madd_epi16(_mm256_maddubs_epi16(v, _mm256_set1_epi16(0x0401)), _mm256_set1_epi32(0x00100001));
            const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
            _mm_storel_epi64((__m128i *)(void *)(out + i / 4), _mm_packus_epi16(h, h));
        }
    }
    return i;
}
/* Eight values share 4 or 2 bytes: broadcast, shifted each by its own amount. */
FOR_AVX2 static int64_t off_bits_avx2(const uint8_t *in, int64_t n, int bits, float scale, float bias, float *x)
{
    const __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(bits)), mask = _mm256_set1_epi32((1 << bits) - 1);
    const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t w = 0;
        if (bits == 4) memcpy(&w, in + i / 2, 4);
        else memcpy(&w, in + i / 4, 2);
        const __m256i v = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)w), shifts), mask);
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_mul_ps(s, _mm256_cvtepi32_ps(v)), b));
    }
    return i;
}
#else
static int64_t grid_avx2(const float *x, int64_t n, float bias, float inv, float most, uint8_t *q) { (void)x; (void)n; (void)bias; (void)inv; (void)most; (void)q; return 0; }
static int64_t squeeze_avx2(const uint8_t *q, int64_t n, int bits, uint8_t *out) { (void)q; (void)n; (void)bits; (void)out; return 0; }
static int64_t off_bits_avx2(const uint8_t *in, int64_t n, int bits, float scale, float bias, float *x) { (void)in; (void)n; (void)bits; (void)scale; (void)bias; (void)x; return 0; }
#endif

enum { STRETCH = 512 }; /* values; a multiple of what shares a byte */

static void squeeze_row(const uint8_t *q, int64_t n, int bits, uint8_t *out)
{
    const int64_t done = has_avx2() ? squeeze_avx2(q, n, bits, out) : 0;
    squeeze(q + done, n - done, bits, out + done * bits / 8);
}

static void grid_row(const float *x, int64_t n, int bits, float bias, float inv, uint8_t *out)
{
    uint8_t q[STRETCH];
    const float most = (float)((1 << bits) - 1);
    for (int64_t i = 0; i < n; i += STRETCH) {
        const int64_t c = n - i < STRETCH ? n - i : STRETCH;
        uint8_t *to = bits == 8 ? out + i : q;
        const int64_t done = has_avx2() ? grid_avx2(x + i, c, bias, inv, most, to) : 0;
        grid(x + i + done, c - done, bias, inv, most, to + done);
        if (bits < 8) squeeze_row(q, c, bits, out + i * bits / 8);
    }
}

static void off_grid_row(const uint8_t *in, int64_t n, int bits, float scale, float bias, float *x)
{
    if (bits == 8) {
        (has_avx2() ? off_grid_avx2 : off_grid)(in, n, scale, bias, x);
        return;
    }
    for (int64_t i = has_avx2() ? off_bits_avx2(in, n, bits, scale, bias, x) : 0; i < n; i++) x[i] = scale * (float)bits_at(in, i, bits) + bias;
}

/* ---- tables ---- */

/* a: the values, b: the table. */
static octet_status check(const char *who, int bits, int layout, const void *a, const void *b, int64_t rows, int64_t dim)
{
    int64_t total;
    if (bits != 8 && bits != 4 && bits != 2) return fail(OCTET_EINVAL, "%s: bits = %d is not 8, 4 or 2", who, bits);
    if (layout != OCTET_ROWS_BEHIND && layout != OCTET_ROWS_IN_FRONT) return fail(OCTET_EINVAL, "%s: layout %d is none", who, layout);
    if (rows < 0 || dim < 0 || dim > INT64_MAX / 64 || !mul_ok(rows, dim + 16, &total) || total > INT64_MAX / 8)
        return fail(OCTET_EINVAL, "%s: %lld x %lld is not a size", who, (long long)rows, (long long)dim);
    if (rows && (!b || (dim && !a))) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    return OCTET_OK;
}

static bool halves(int bits, int layout) { return bits < 8 || layout == OCTET_ROWS_IN_FRONT; }

size_t octet_rows_bytes(int bits, int layout, int64_t dim)
{
    if ((bits != 8 && bits != 4 && bits != 2) || (layout != OCTET_ROWS_BEHIND && layout != OCTET_ROWS_IN_FRONT) || dim < 0 || dim > INT64_MAX / 64) return 0;
    return (size_t)(ceil_div(dim * bits, 8) + (halves(bits, layout) ? 4 : 8));
}

/* The nearest f16 that is finite and not above, or not below, x. */
static float half_beside(float x, bool above)
{
    x = clamp_nan_low(x, -65504.0f, 65504.0f);
    uint16_t h = f16_from_f32(x);
    const float y = f32_from_f16(h);
    if (above ? y < x : y > x) h = (uint16_t)(h == 0 || h == 0x8000 ? (above ? 1 : 0x8001) : (h >> 15) == above ? h - 1 : h + 1);
    return f32_from_f16(h);
}

/* q at random between its neighbours, so that the expected value is x. */
static void grid_stochastic(const float *x, int64_t n, float bias, float inv, uint32_t seed, uint8_t *q)
{
    for (int64_t j = 0; j < n; j++) {
        const float y = clamp_nan_low((x[j] - bias) * inv, 0.0f, 255.0f), low = floorf(y);
        const uint32_t up = (float)(random_bits(seed, (uint32_t)j) >> 8) * 0x1p-24f < y - low;
        q[j] = (uint8_t)((uint32_t)low + up);
    }
}

void rows_put(int bits, bool half, const float *row, int64_t dim, const uint32_t *seed, uint8_t *q, uint8_t *params)
{
    float lo = INFINITY, hi = -INFINITY;
    range_row(row, dim, &lo, &hi);
    if (lo > hi) lo = hi = 0;
    float pair[2]; /* scale, bias */
    pair[1] = half ? half_beside(lo, false) : lo;
    pair[0] = (float)(((double)hi - (double)pair[1]) / ((1 << bits) - 1));
    if (half) pair[0] = half_beside(pair[0], true); /* the last step reaches the greatest */
    if (!(pair[0] >= FLT_MIN)) pair[0] = 1; /* a constant row */
    if (half) {
        const uint16_t h[2] = { f16_from_f32(pair[0]), f16_from_f32(pair[1]) };
        memcpy(params, h, 4);
    } else {
        memcpy(params, pair, 8);
    }
    if (seed) grid_stochastic(row, dim, pair[1], 1.0f / pair[0], *seed, q);
    else grid_row(row, dim, bits, pair[1], 1.0f / pair[0], q);
}

void rows_get(int bits, bool half, const uint8_t *q, const uint8_t *params, int64_t dim, float *row)
{
    float pair[2];
    if (half) {
        uint16_t h[2];
        memcpy(h, params, 4);
        pair[0] = f32_from_f16(h[0]);
        pair[1] = f32_from_f16(h[1]);
    } else {
        memcpy(pair, params, 8);
    }
    off_grid_row(q, dim, bits, pair[0], pair[1], row);
}

octet_status octet_rows_quantize(int bits, int layout, const float *x, int64_t rows, int64_t dim, void *table)
{
    const octet_status st = check("octet_rows_quantize", bits, layout, x, table, rows, dim);
    if (st) return st;
    const size_t stride = octet_rows_bytes(bits, layout, dim), beside = halves(bits, layout) ? 4 : 8;
    const unsigned kept = fp_enter();
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * dim;
        uint8_t *to = (uint8_t *)table + (size_t)r * stride, *params = layout == OCTET_ROWS_BEHIND ? to + stride - beside : to;
        rows_put(bits, halves(bits, layout), row, dim, NULL, layout == OCTET_ROWS_BEHIND ? to : to + beside, params);
    }
    fp_leave(kept);
    return OCTET_OK;
}

octet_status octet_rows_dequantize(int bits, int layout, const void *table, int64_t rows, int64_t dim, float *x)
{
    const octet_status st = check("octet_rows_dequantize", bits, layout, x, table, rows, dim);
    if (st) return st;
    const size_t stride = octet_rows_bytes(bits, layout, dim), beside = halves(bits, layout) ? 4 : 8;
    const unsigned kept = fp_enter();
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *from = (const uint8_t *)table + (size_t)r * stride, *params = layout == OCTET_ROWS_BEHIND ? from + stride - beside : from;
        rows_get(bits, halves(bits, layout), layout == OCTET_ROWS_BEHIND ? from : from + beside, params, dim, x + r * dim);
    }
    fp_leave(kept);
    return OCTET_OK;
}

/* ---- weights in groups ---- */

typedef struct group_type { int lo, hi, bits; } group_type;

static bool group_type_of(octet_dtype t, bool symmetric, group_type *g)
{
    switch (t) {
    case OCTET_S8: *g = (group_type){ symmetric ? -127 : -128, 127, 8 }; return true;
    case OCTET_U8: *g = (group_type){ 0, 255, 8 }; return !symmetric;
    case OCTET_S4: *g = (group_type){ symmetric ? -7 : -8, 7, 4 }; return true;
    case OCTET_U4: *g = (group_type){ 0, 15, 4 }; return !symmetric;
    default: return false;
    }
}

static octet_status groups_check(const char *who, octet_dtype t, int64_t channels, int64_t length, int64_t group, bool symmetric,
                                 const void *w, const void *q, const float *scales, const int32_t *zeros, group_type *g)
{
    int64_t total;
    if (!group_type_of(t, symmetric, g)) return fail(OCTET_EINVAL, "%s: type %d is not OCTET_S8, OCTET_S4, or without symmetry OCTET_U8, OCTET_U4", who, (int)t);
    if (channels < 0 || length < 0 || !mul_ok(channels, length, &total) || total > INT64_MAX / 8)
        return fail(OCTET_EINVAL, "%s: %lld x %lld is not a size", who, (long long)channels, (long long)length);
    if (group < 0 || (g->bits == 4 && (group % 2 || length % 2))) return fail(OCTET_EINVAL, "%s: group or length is negative, or odd with 4 bits", who);
    if (channels && (!scales || (!symmetric && !zeros) || (length && (!w || !q)))) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    return OCTET_OK;
}

octet_status octet_quantize_groups(octet_dtype type, const float *w, int64_t channels, int64_t length, int64_t group, int symmetric,
                                   void *q, float *scales, int32_t *zeros)
{
    group_type g;
    const octet_status st = groups_check("octet_quantize_groups", type, channels, length, group, symmetric, w, q, scales, zeros, &g);
    if (st) return st;
    if (group == 0 || group > length) group = length > 0 ? length : 1;
    const unsigned kept = fp_enter();
    for (int64_t c = 0; c < channels; c++)
        for (int64_t p = 0, n = 0; n == 0 || p < length; p += group, n++) {
            const int64_t count = min64(group, length - p);
            float lo = INFINITY, hi = -INFINITY, scale;
            int32_t zero;
            uint8_t bytes[STRETCH];
            range_row(w + c * length + p, count, &lo, &hi);
            if (lo > hi) lo = hi = 0;
            octet_choose_quant(lo, hi, g.lo, g.hi, symmetric, &scale, &zero);
            scales[n * channels + c] = scale;
            if (zeros) zeros[n * channels + c] = zero;
            const quantizer z = { inverse_scale(scale), { (float)(g.lo - zero), (float)(g.hi - zero) }, zero };
            for (int64_t i = 0; i < count; i += STRETCH) {
                const int64_t at = c * length + p + i, many = min64(STRETCH, count - i);
                quantize_row(z, w + at, many, 0, g.bits == 8 ? (uint8_t *)q + at : bytes);
                for (int64_t j = 0; g.bits == 4 && j < many; j++) bytes[j] &= 15;
                if (g.bits == 4) squeeze_row(bytes, many, 4, (uint8_t *)q + at / 2);
            }
        }
    fp_leave(kept);
    return OCTET_OK;
}

octet_status octet_dequantize_groups(octet_dtype type, const void *q, int64_t channels, int64_t length, int64_t group,
                                     const float *scales, const int32_t *zeros, float *w)
{
    group_type g;
    const octet_status st = groups_check("octet_dequantize_groups", type, channels, length, group, type == OCTET_S8 || type == OCTET_S4, w, q, scales, zeros, &g);
    if (st) return st;
    if (group == 0 || group > length) group = length > 0 ? length : 1;
    const unsigned kept = fp_enter();
    for (int64_t c = 0; c < channels; c++)
        for (int64_t p = 0; p < length; p++) {
            const int64_t at = c * length + p, table = p / group * channels + c;
            int v = g.bits == 8 ? ((const uint8_t *)q)[at] : ((const uint8_t *)q)[at / 2] >> (at % 2 ? 4 : 0) & 15;
            if (type == OCTET_S8) v = (int8_t)v;
            if (type == OCTET_S4 && v > 7) v -= 16;
            w[at] = scales[table] * (float)((int64_t)v - (zeros ? zeros[table] : 0));
        }
    fp_leave(kept);
    return OCTET_OK;
}
