/*
 * From views to quads: the one routine that both A and B are packed by, and what goes with it
 * (widening, sums, the largest value). Shapes that vectors serve well have a vector path; all else
 * takes the plain loop, which is the definition.
 */
#include "pack.h"
#include "quantize.h"

#if OCTET_X86
#include <immintrin.h>
#endif

/* ---- general views ---- */

static int64_t offset_of(const view *v, int64_t line, int64_t k)
{
    return (v->line_offset ? v->line_offset[line] : line * v->line_stride) + (v->k_offset ? v->k_offset[k] : k * v->k_stride);
}

static int32_t load(octet_dtype type, const void *base, int64_t i)
{
    return type == OCTET_U8 ? ((const uint8_t *)base)[i] : ((const int8_t *)base)[i];
}

static int32_t weighted(const source *s, int64_t line, int64_t k)
{
    int32_t sum = 0;
    for (int v = 0; v < s->count; v++)
        sum += (s->weights ? s->weights[v] : 1) * load(s->type, s->views[v].base, offset_of(&s->views[v], line, k));
    return sum;
}

static quantizer quantizer_of(const source *s, int64_t line)
{
    const float inv = s->scale_rows ? inverse_scale(s->scale_rows[line - s->row0]) : s->inv_scale;
    const int32_t zero = s->zero_rows ? s->zero_rows[line - s->row0] : s->zero;
    quantizer z = quantizer_for(s->as, inv, zero);
    if (s->most) {
        z.b.hi = (float)(s->most - zero);
        if (s->as == OCTET_S8) z.b.lo = (float)(-s->most - zero);
    }
    return z;
}

enum { STRETCH = 256 };

/* kn values of a line of a floating source, from k0 on, as f32: where they lie, or in `room`. */
static const float *line_floats(const source *s, int64_t line, int64_t k0, int64_t kn, float room[STRETCH])
{
    const view *v = &s->views[0];
    if (v->k_stride != 1 || v->k_offset) {
        pack_floats(s, line, 1, k0, kn, room);
        return room;
    }
    const int64_t at = offset_of(v, line, k0);
    if (s->type == OCTET_F32) return (const float *)v->base + at;
    widen_floats(s->type, (const uint16_t *)v->base + at, kn, room);
    return room;
}

void lines_range(const source *s, int64_t line0, int64_t lines, int64_t k, float *lo, float *hi)
{
    float room[STRETCH + 8];
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t p = 0; p < k; p += STRETCH) {
            const int64_t n = min64(STRETCH, k - p);
            range_row(line_floats(s, line0 + i, p, n, room), n, lo, hi);
        }
    if (*lo > *hi) *lo = *hi = 0;
}

static void quantize_line(const source *s, int64_t line, int64_t k0, int64_t kn, uint8_t *out)
{
    float room[STRETCH + 8];
    const quantizer z = quantizer_of(s, line);
    for (int64_t p = 0; p < kn; p += STRETCH) {
        const int64_t n = min64(STRETCH, kn - p);
        quantize_row(z, line_floats(s, line, k0 + p, n, room), n, s->flip, out + p);
    }
}

void gather_lines(const source *s, int64_t line0, int64_t lines, int64_t k0, int64_t kn, uint8_t *out, int64_t ld)
{
    for (int64_t i = 0; i < lines; i++) {
        uint8_t *row = out + i * ld;
        const int64_t line = line0 + i;
        if (s->type != OCTET_U8 && s->type != OCTET_S8) {
            quantize_line(s, line, k0, kn, row);
            continue;
        }
        for (int64_t p = 0; p < kn; p++) row[p] = (uint8_t)weighted(s, line, k0 + p) ^ s->flip;
    }
}

void gather_wide(const source *s, int64_t line0, int64_t lines, int64_t k0, int64_t kn, int16_t *out, int64_t ld)
{
    for (int64_t i = 0; i < lines; i++)
        for (int64_t p = 0; p < kn; p++) out[i * ld + p] = (int16_t)weighted(s, line0 + i, k0 + p);
}

/* ---- quads ---- */

static void tail_quad(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int rest,
                      uint8_t flip, bool compact, uint8_t *out)
{
    const int width = compact ? rest : 4;
    for (int i = 0; i < lines; i++)
        for (int q = 0; q < width; q++)
            out[i * width + q] = q < rest ? base[i * line_stride + q * k_stride] ^ flip : 0;
}

#if OCTET_X86
/* Eight lines, k consecutive: an 8 x 8 transpose of quads, 32 values of k at a time. */
__attribute__((target("avx2")))
static int64_t quads_8_lines(const uint8_t *base, int64_t ls, int64_t kn, uint8_t flip, uint8_t *out)
{
    const __m256i f = _mm256_set1_epi8((char)flip);
    int64_t p = 0;
    for (; p + 32 <= kn; p += 32, out += 256) {
        __m256i r[8], t[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(base + i * ls + p)), f);
        for (int i = 0; i < 4; i++) {
            t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        for (int h = 0; h < 2; h++) { /* lines 0-3 and 4-7: quads 0 1 2 3 | 4 5 6 7 of four lines each */
            r[4 * h + 0] = _mm256_unpacklo_epi64(t[4 * h], t[4 * h + 2]);
            r[4 * h + 1] = _mm256_unpackhi_epi64(t[4 * h], t[4 * h + 2]);
            r[4 * h + 2] = _mm256_unpacklo_epi64(t[4 * h + 1], t[4 * h + 3]);
            r[4 * h + 3] = _mm256_unpackhi_epi64(t[4 * h + 1], t[4 * h + 3]);
        }
        for (int q = 0; q < 4; q++) {
            _mm256_storeu_si256((__m256i *)(out + 32 * q), _mm256_permute2x128_si256(r[q], r[4 + q], 0x20));
            _mm256_storeu_si256((__m256i *)(out + 32 * (4 + q)), _mm256_permute2x128_si256(r[q], r[4 + q], 0x31));
        }
    }
    return p;
}

/* Eight consecutive lines beside each other in memory (B row-major, A transposed): 4 rows of 8 bytes. */
__attribute__((target("avx2")))
static int64_t quads_8_across(const uint8_t *base, int64_t ks, int64_t kn, uint8_t flip, uint8_t *out)
{
    const __m128i f = _mm_set1_epi8((char)flip);
    int64_t p = 0;
    for (; p + 4 <= kn; p += 4, out += 32) {
        const __m128i r0 = _mm_loadl_epi64((const __m128i *)(base + p * ks));
        const __m128i r1 = _mm_loadl_epi64((const __m128i *)(base + (p + 1) * ks));
        const __m128i r2 = _mm_loadl_epi64((const __m128i *)(base + (p + 2) * ks));
        const __m128i r3 = _mm_loadl_epi64((const __m128i *)(base + (p + 3) * ks));
        const __m128i a = _mm_xor_si128(_mm_unpacklo_epi8(r0, r1), f), b = _mm_xor_si128(_mm_unpacklo_epi8(r2, r3), f);
        _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi16(a, b));
        _mm_storeu_si128((__m128i *)(out + 16), _mm_unpackhi_epi16(a, b));
    }
    return p;
}

/* Any number of lines, k consecutive: 16 values of k of one line at a time. */
__attribute__((target("avx2")))
static int64_t quads_of_lines(const uint8_t *base, int64_t ls, int lines, int64_t kn, uint8_t flip, uint8_t *out)
{
    const __m128i f = _mm_set1_epi8((char)flip);
    const int64_t quad = 4 * lines;
    int64_t p = 0;
    for (; p + 16 <= kn; p += 16, out += 4 * quad)
        for (int i = 0; i < lines; i++) {
            const __m128i v = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(base + i * ls + p)), f);
            uint8_t *o = out + 4 * i;
            uint32_t q[4];
            _mm_storeu_si128((__m128i *)(void *)q, v);
            for (int j = 0; j < 4; j++) memcpy(o + j * quad, &q[j], 4);
        }
    for (; p + 4 <= kn; p += 4, out += quad)
        for (int i = 0; i < lines; i++) {
            uint32_t v;
            memcpy(&v, base + i * ls + p, 4);
            v ^= flip * UINT32_C(0x01010101);
            memcpy(out + 4 * i, &v, 4);
        }
    return p;
}
#endif

void pack_quads(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn,
                uint8_t flip, bool compact, uint8_t *out)
{
    int64_t p = 0; /* values of k done, a multiple of 4 */
#if OCTET_X86
    if (cpu_features() & CPU_AVX2) {
        if (k_stride == 1 && lines == 8) p = quads_8_lines(base, line_stride, kn, flip, out);
        if (k_stride == 1) p += quads_of_lines(base + p, line_stride, lines, kn - p, flip, out + p * lines);
        else if (line_stride == 1 && lines == 8) p = quads_8_across(base, k_stride, kn, flip, out);
    }
#endif
    for (; p + 4 <= kn; p += 4)
        for (int i = 0; i < lines; i++)
            for (int q = 0; q < 4; q++)
                out[p * lines + 4 * i + q] = base[i * line_stride + (p + q) * k_stride] ^ flip;
    if (p < kn) tail_quad(base + p * k_stride, line_stride, k_stride, lines, (int)(kn - p), flip, compact, out + p * lines);
}

#if OCTET_X86
/* Any number of lines, k consecutive: 16 values of k of one line become four quads of 16 bits. */
__attribute__((target("avx2")))
static int64_t wide_of_lines(const uint8_t *base, int64_t ls, int lines, int64_t kn, uint8_t flip, uint16_t *out)
{
    const __m128i f = _mm_set1_epi8((char)flip);
    const int64_t quad = 4 * lines;
    int64_t p = 0;
    for (; p + 16 <= kn; p += 16, out += 4 * quad)
        for (int i = 0; i < lines; i++) {
            const __m256i v = _mm256_cvtepu8_epi16(_mm_xor_si128(_mm_loadu_si128((const __m128i *)(base + i * ls + p)), f));
            const __m128i lo = _mm256_castsi256_si128(v), hi = _mm256_extracti128_si256(v, 1);
            uint16_t *o = out + 4 * i;
            _mm_storel_epi64((__m128i *)(void *)o, lo);
            _mm_storeh_pd((double *)(void *)(o + quad), _mm_castsi128_pd(lo));
            _mm_storel_epi64((__m128i *)(void *)(o + 2 * quad), hi);
            _mm_storeh_pd((double *)(void *)(o + 3 * quad), _mm_castsi128_pd(hi));
        }
    for (; p + 4 <= kn; p += 4, out += quad)
        for (int i = 0; i < lines; i++) {
            uint32_t v;
            memcpy(&v, base + i * ls + p, 4);
            _mm_storel_epi64((__m128i *)(void *)(out + 4 * i), _mm_cvtepu8_epi16(_mm_xor_si128(_mm_cvtsi32_si128((int)v), f)));
        }
    return p;
}
#endif

void pack_wide(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn, uint8_t flip, uint16_t *out)
{
    int64_t p = 0;
#if OCTET_X86
    if (k_stride == 1 && (cpu_features() & CPU_AVX2)) p = wide_of_lines(base, line_stride, lines, kn, flip, out);
#endif
    for (; p < kn; p += 4)
        for (int i = 0; i < lines; i++)
            for (int q = 0; q < 4; q++)
                out[p * lines + 4 * i + q] = p + q < kn ? base[i * line_stride + (p + q) * k_stride] ^ flip : 0;
}

void pack_split(const uint8_t *line, int64_t k_stride, int64_t kn, uint8_t flip, uint8_t *out)
{
    for (int64_t p = 0; p < kn; p += 4, out += 8) {
        uint32_t quad = 0;
        if (k_stride == 1 && p + 4 <= kn) memcpy(&quad, line + p, 4);
        else
            for (int64_t q = 0; q < min64(4, kn - p); q++) quad |= (uint32_t)line[(p + q) * k_stride] << 8 * q;
        quad ^= flip * UINT32_C(0x01010101);
        if (p + 4 > kn) quad &= (UINT32_C(1) << 8 * (kn - p)) - 1;
        const uint32_t high = quad >> 1 & 0x7f7f7f7f, low = quad & 0x01010101;
        memcpy(out, &high, 4);
        memcpy(out + 4, &low, 4);
    }
}

static void widen_s8(const int8_t *x, int64_t n, int16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i];
}

void widen_panel(const int8_t *panel, int cols, int64_t kn, int16_t *out)
{
    const int64_t whole = kn / 4 * 4 * cols;
    const int rest = (int)(kn % 4);
    widen_s8(panel, whole, out);
    for (int j = 0; rest && j < cols; j++)
        for (int q = 0; q < 4; q++) out[whole + 4 * j + q] = q < rest ? panel[whole + rest * j + q] : 0;
}

void add_line_sums(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn, uint8_t flip, int32_t *sum)
{
    for (int i = 0; i < lines; i++) {
        const uint8_t *line = base + i * line_stride;
        uint32_t s = (uint32_t)sum[i];
        if (k_stride == 1)
            for (int64_t p = 0; p < kn; p++) s += line[p] ^ flip;
        else
            for (int64_t p = 0; p < kn; p++) s += line[p * k_stride] ^ flip;
        sum[i] = (int32_t)s;
    }
}

/* ---- the largest value ---- */

static uint8_t max_of(const uint8_t *x, int64_t n, uint8_t flip)
{
    uint8_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t v = x[i] ^ flip;
        m = v > m ? v : m;
    }
    return m;
}

bool any_above(const source *s, int64_t line0, int64_t lines, int64_t k0, int64_t kn, uint8_t limit)
{
    enum { STEP = 256 };
    const view *v = &s->views[0];
    const bool along_k = v->k_stride == 1;
    const int64_t outer = along_k ? lines : kn, inner = along_k ? kn : lines;
    const uint8_t *base = (const uint8_t *)v->base + line0 * v->line_stride + k0 * v->k_stride;
    if (!along_k && v->line_stride != 1) return true; /* not worth a slow look */
    for (int64_t i = 0; i < outer; i++) {
        const uint8_t *row = base + i * (along_k ? v->line_stride : v->k_stride);
        for (int64_t p = 0; p < inner; p += STEP)
            if (max_of(row + p, min64(STEP, inner - p), s->flip) > limit) return true;
    }
    return false;
}
