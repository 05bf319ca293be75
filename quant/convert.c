/*
 * f32 <-> binary16, bfloat16 and fp8, arrays; format.h and narrow.h define one value of each, the vectors here equal them.
 * Denormals are kept and rounding is to nearest even whatever MXCSR says: vcvtph2ps and vcvtps2ph ignore it (SDM vol. 1, 14.4.1;
 * DAZ reaches the f32 source of vcvtps2ph, but every f32 denormal is 0 in binary16 anyway), and where another floating point step
 * rounds, it is set.
 */
#include "mxcsr.h"
#include "narrow.h"
#include "octet/quant.h"
#include "vectors.h"

#if OCTET_X86
#include <immintrin.h>
#endif

const narrow_format *narrow_of(octet_dtype t)
{
    static const narrow_format f16 = { 10, 113, 0x7bff, 0x7c00, 0x7e00 }, bf16 = { 7, 1, 0x7f7f, 0x7f80, 0x7fc0 };
    static const narrow_format e4m3 = { 3, 121, 0x7e, 0x7e, 0x7f }, e5m2 = { 2, 113, 0x7b, 0x7c, 0x7e };
    switch (t) {
    case OCTET_F16: return &f16;
    case OCTET_BF16: return &bf16;
    case OCTET_E4M3: return &e4m3;
    case OCTET_E5M2: return &e5m2;
    default: return NULL;
    }
}
static bool wide(octet_dtype t) { return t == OCTET_F16 || t == OCTET_BF16; }

LOOP void to_bf16(const float *x, size_t n, uint16_t *y) { for (size_t i = 0; i < n; i++) y[i] = bf16_from_f32(x[i]); }
LOOP void from_bf16(const uint16_t *x, size_t n, float *y) { for (size_t i = 0; i < n; i++) y[i] = f32_from_bf16(x[i]); }
FOR_AVX2 static void to_bf16_avx2(const float *x, size_t n, uint16_t *y) { to_bf16(x, n, y); }
FOR_AVX2 static void from_bf16_avx2(const uint16_t *x, size_t n, float *y) { from_bf16(x, n, y); }

#if OCTET_X86
FOR_AVX2 static size_t to_f16(const float *x, size_t n, uint16_t *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
FOR_AVX2 static size_t from_f16(const uint16_t *x, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
    return i;
}

/* fp8 by way of binary16, which holds every value: e5m2 is its upper half; e4m3 moved into place is 2^-8 of itself. */
FOR_AVX2 static size_t from_fp8(octet_dtype t, const uint8_t *x, size_t n, float *y)
{
    const __m128i seven = _mm_set1_epi16(0x7f), sign = _mm_set1_epi16((short)0x8000);
    const __m256 scale = _mm256_set1_ps(256.0f), nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(x + i))), high = _mm_slli_epi16(v, 8);
        if (t == OCTET_E5M2) {
            _mm256_storeu_ps(y + i, _mm256_cvtph_ps(high));
            continue;
        }
        const __m128i mag = _mm_and_si128(v, seven);
        const __m256 f = _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(_mm_and_si128(high, sign), _mm_slli_epi16(mag, 7))), scale);
        const __m256i is_nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(mag, seven));
        _mm256_storeu_ps(y + i, _mm256_blendv_ps(f, nan, _mm256_castsi256_ps(is_nan)));
    }
    return i;
}

#define SET(v) _mm256_set1_epi32((int)(v))

/* Past the largest, NaN, sign: the end of every narrowing. */
FOR_AVX2 static inline __m256i narrow_end(const narrow_format *f, __m256i u, __m256i mag, __m256i code)
{
    code = _mm256_min_epi32(code, SET(f->past));
    code = _mm256_blendv_epi8(code, SET(f->nan), _mm256_cmpgt_epi32(mag, SET(0x7f800000)));
    const int to_sign = f->past > 255 ? 16 : 24;
    return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(u, to_sign), SET(f->past > 255 ? 0x8000 : 0x80)));
}

/* To nearest even, normal numbers by an addition that carries, denormals by a floating point addition that rounds. */
FOR_AVX2 static inline __m256i nearest8(const narrow_format *f, __m256i u)
{
    const int shift = 23 - f->bits;
    const __m256i magic = SET((f->least + shift) << 23), mag = _mm256_and_si256(u, SET(0x7fffffff)); /* its unit is the format's least */
    const __m256i odd = _mm256_and_si256(_mm256_srl_epi32(mag, _mm_cvtsi32_si128(shift)), SET(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(mag, SET((1 << (shift - 1)) - 1)), odd);
    const __m256i normal = _mm256_sub_epi32(_mm256_srl_epi32(rounded, _mm_cvtsi32_si128(shift)), SET((f->least - 1) << f->bits));
    const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(mag), _mm256_castsi256_ps(magic));
    const __m256i denormal = _mm256_sub_epi32(_mm256_castps_si256(sum), magic);
    return narrow_end(f, u, mag, _mm256_blendv_epi8(denormal, normal, _mm256_cmpgt_epi32(mag, SET((f->least << 23) - 1))));
}

/* narrow_bits with random bits. */
FOR_AVX2 static inline __m256i stochastic8(const narrow_format *f, __m256i u, __m256i random)
{
    const __m256i mag = _mm256_and_si256(u, SET(0x7fffffff)), field = _mm256_srli_epi32(mag, 23), one = SET(1);
    const __m256i hidden = _mm256_andnot_si256(_mm256_cmpeq_epi32(field, _mm256_setzero_si256()), SET(0x800000));
    const __m256i m = _mm256_or_si256(_mm256_and_si256(mag, SET(0x7fffff)), hidden), above = _mm256_sub_epi32(_mm256_max_epi32(field, one), SET(f->least));
    const __m256i under = _mm256_max_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), above), _mm256_setzero_si256());
    const __m256i whole = _mm256_add_epi32(under, SET(23 - f->bits)), shift = _mm256_min_epi32(whole, SET(31));
    const __m256i left = _mm256_srlv_epi32(m, _mm256_min_epi32(_mm256_sub_epi32(whole, shift), SET(31)));
    const __m256i add = _mm256_and_si256(random, _mm256_sub_epi32(_mm256_sllv_epi32(one, shift), one));
    const __m256i exponent = _mm256_sll_epi32(_mm256_max_epi32(above, _mm256_setzero_si256()), _mm_cvtsi32_si128(f->bits));
    return narrow_end(f, u, mag, _mm256_add_epi32(_mm256_srlv_epi32(_mm256_add_epi32(left, add), shift), exponent));
}

FOR_AVX2 static inline __m256i random8(__m256i counter, uint32_t seed) /* random_bits of eight */
{
    __m256i h = _mm256_add_epi32(_mm256_mullo_epi32(counter, SET(0x9e3779b9u)), SET(seed));
    h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 16)), SET(0x7feb352du));
    h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 15)), SET(0x846ca68bu));
    return _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
}

/* 32 values at a time, stochastic or to nearest; values of 2 or 1 bytes. */
FOR_AVX2 static size_t narrow_avx2(octet_dtype t, const float *x, size_t n, bool stochastic, uint32_t seed, void *y)
{
    const narrow_format f = *narrow_of(t);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i v[4];
        for (int j = 0; j < 4; j++) {
            const __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)(x + i + 8 * j));
            v[j] = stochastic ? stochastic8(&f, u, random8(_mm256_add_epi32(lanes, SET((uint32_t)i + 8u * (unsigned)j)), seed)) : nearest8(&f, u);
        }
        const __m256i a = _mm256_packus_epi32(v[0], v[1]), b = _mm256_packus_epi32(v[2], v[3]);
        if (wide(t)) {
            _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)y + i), _mm256_permute4x64_epi64(a, 0xd8));
            _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)y + i + 16), _mm256_permute4x64_epi64(b, 0xd8));
        } else {
            _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)y + i), _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
        }
    }
    return i;
}
#else
static size_t to_f16(const float *x, size_t n, uint16_t *y) { (void)x; (void)n; (void)y; return 0; }
static size_t from_f16(const uint16_t *x, size_t n, float *y) { (void)x; (void)n; (void)y; return 0; }
static size_t from_fp8(octet_dtype t, const uint8_t *x, size_t n, float *y) { (void)t; (void)x; (void)n; (void)y; return 0; }
static size_t narrow_avx2(octet_dtype t, const float *x, size_t n, bool stochastic, uint32_t seed, void *y)
{
    (void)t; (void)x; (void)n; (void)stochastic; (void)seed; (void)y;
    return 0;
}
#endif

static void narrow(octet_dtype t, const float *x, size_t n, bool stochastic, uint32_t seed, void *y)
{
    const narrow_format *f = narrow_of(t);
    const unsigned kept = fp_enter();
    for (size_t i = has_avx2() ? narrow_avx2(t, x, n, stochastic, seed, y) : 0; i < n; i++) {
        const uint32_t u = f32_bits(x[i]), code = narrow_bits(f, u, stochastic, random_bits(seed, (uint32_t)i));
        if (wide(t)) ((uint16_t *)y)[i] = (uint16_t)(code | (u >> 16 & 0x8000));
        else ((uint8_t *)y)[i] = (uint8_t)(code | (u >> 24 & 0x80));
    }
    fp_leave(kept);
}

static float f32_from_fp8(octet_dtype t, uint8_t v)
{
    if (t == OCTET_E5M2) return f32_from_f16((uint16_t)(v << 8));
    if ((v & 0x7f) == 0x7f) return bits_f32(0x7fc00000);
    return f32_from_f16((uint16_t)((v & 0x80) << 8 | (v & 0x7f) << 7)) * 256.0f;
}

/* ---- the calls ---- */

static octet_status check(const char *who, octet_dtype type, size_t n, const void *narrowed, const void *x)
{
    if (!narrow_of(type)) return fail(OCTET_EINVAL, "%s: type %d is none of OCTET_F16, OCTET_BF16, OCTET_E4M3, OCTET_E5M2", who, (int)type);
    if (n && (!narrowed || !x)) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    if (wide(type) && (uintptr_t)narrowed % 2) return fail(OCTET_EINVAL, "%s: an array is misaligned for its type", who);
    return OCTET_OK;
}

octet_status octet_from_f32(octet_dtype type, const float *x, size_t n, void *y)
{
    const octet_status st = check("octet_from_f32", type, n, y, x);
    if (st) return st;
    uint16_t *h = y;
    if (type == OCTET_F16)
        for (size_t i = has_avx2() ? to_f16(x, n, h) : 0; i < n; i++) h[i] = f16_from_f32(x[i]);
    else if (type == OCTET_BF16) (has_avx2() ? to_bf16_avx2 : to_bf16)(x, n, h);
    else narrow(type, x, n, false, 0, y);
    return OCTET_OK;
}

octet_status octet_from_f32_stochastic(octet_dtype type, const float *x, size_t n, uint64_t seed, void *y)
{
    const octet_status st = check("octet_from_f32_stochastic", type, n, y, x);
    if (!st) narrow(type, x, n, true, (uint32_t)(seed ^ seed >> 32), y);
    return st;
}

octet_status octet_to_f32(octet_dtype type, const void *x, size_t n, float *y)
{
    const octet_status st = check("octet_to_f32", type, n, x, y);
    if (st) return st;
    const uint16_t *h = x;
    const uint8_t *b = x;
    if (type == OCTET_F16)
        for (size_t i = has_avx2() ? from_f16(h, n, y) : 0; i < n; i++) y[i] = f32_from_f16(h[i]);
    else if (type == OCTET_BF16) (has_avx2() ? from_bf16_avx2 : from_bf16)(h, n, y);
    else
        for (size_t i = has_avx2() ? from_fp8(type, b, n, y) : 0; i < n; i++) y[i] = f32_from_fp8(type, b[i]);
    return OCTET_OK;
}
