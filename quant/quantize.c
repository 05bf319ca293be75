/* Choosing a scale and a zero point, quantizing and dequantizing arrays. */
#include "quantize.h"

#include <float.h>

#include "mxcsr.h"
#include "vectors.h"
#include "octet/quant.h"

#if OCTET_X86
#include <immintrin.h>

__attribute__((target("avx2")))
static int64_t quantize_avx2(quantizer z, const float *x, int64_t n, uint8_t flip, uint8_t *q)
{
    const __m256 inv = _mm256_set1_ps(z.inv_scale), lo = _mm256_set1_ps(z.b.lo), hi = _mm256_set1_ps(z.b.hi);
    const __m256i zero = _mm256_set1_epi32(z.zero), byte = _mm256_set1_epi32(255);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), f = _mm256_set1_epi8((char)flip);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i v[4];
        for (int j = 0; j < 4; j++) {
            __m256 y = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), inv);
            y = _mm256_min_ps(_mm256_max_ps(y, lo), hi);
            v[j] = _mm256_and_si256(_mm256_add_epi32(_mm256_cvtps_epi32(y), zero), byte);
        }
        const __m256i w = _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
        _mm256_storeu_si256((__m256i *)(q + i), _mm256_xor_si256(_mm256_permutevar8x32_epi32(w, order), f));
    }
    return i;
}
/* Four of each, so that none waits for the one before. */
__attribute__((target("avx2")))
static int64_t range_avx2(const float *x, int64_t n, float *lo, float *hi)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), most = _mm256_set1_ps(FLT_MAX);
    const __m256 up = _mm256_set1_ps(INFINITY), down = _mm256_set1_ps(-INFINITY);
    __m256 a[4], b[4];
    int64_t i = 0;
    for (int j = 0; j < 4; j++) { a[j] = up; b[j] = down; }
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) {
            const __m256 v = _mm256_loadu_ps(x + i + 8 * j), finite = _mm256_cmp_ps(_mm256_and_ps(v, magnitude), most, _CMP_LE_OQ);
            a[j] = _mm256_min_ps(a[j], _mm256_blendv_ps(up, v, finite));
            b[j] = _mm256_max_ps(b[j], _mm256_blendv_ps(down, v, finite));
        }
    __m256 p = _mm256_min_ps(_mm256_min_ps(a[0], a[1]), _mm256_min_ps(a[2], a[3])), q = _mm256_max_ps(_mm256_max_ps(b[0], b[1]), _mm256_max_ps(b[2], b[3]));
    p = _mm256_min_ps(p, _mm256_permute2f128_ps(p, p, 1));
    q = _mm256_max_ps(q, _mm256_permute2f128_ps(q, q, 1));
    p = _mm256_min_ps(p, _mm256_permute_ps(p, 0x4e));
    q = _mm256_max_ps(q, _mm256_permute_ps(q, 0x4e));
    p = _mm256_min_ps(p, _mm256_permute_ps(p, 0xb1));
    q = _mm256_max_ps(q, _mm256_permute_ps(q, 0xb1));
    const float least = _mm256_cvtss_f32(p), greatest = _mm256_cvtss_f32(q);
    *lo = least < *lo ? least : *lo;
    *hi = greatest > *hi ? greatest : *hi;
    return i;
}
#else
static int64_t range_avx2(const float *x, int64_t n, float *lo, float *hi)
{
    (void)x; (void)n; (void)lo; (void)hi;
    return 0;
}
static int64_t quantize_avx2(quantizer z, const float *x, int64_t n, uint8_t flip, uint8_t *q)
{
    (void)z; (void)x; (void)n; (void)flip; (void)q;
    return 0;
}
#endif

void quantize_row(quantizer z, const float *x, int64_t n, uint8_t flip, uint8_t *q)
{
    int64_t i = has_avx2() ? quantize_avx2(z, x, n, flip, q) : 0;
    for (; i < n; i++) q[i] = quantize_value(z, x[i]) ^ flip;
}

void range_row(const float *x, int64_t n, float *lo, float *hi)
{
    for (int64_t i = has_avx2() ? range_avx2(x, n, lo, hi) : 0; i < n; i++) {
        if (!(fabsf(x[i]) <= FLT_MAX)) continue;
        *lo = x[i] < *lo ? x[i] : *lo;
        *hi = x[i] > *hi ? x[i] : *hi;
    }
}

octet_status octet_range(const float *x, size_t n, float *lo, float *hi)
{
    if (!lo || !hi || (n && !x)) return fail(OCTET_EINVAL, "octet_range: a pointer is NULL");
    float least = INFINITY, most = -INFINITY;
    const unsigned kept = fp_enter(); /* denormals count, whatever MXCSR says of them */
    range_row(x, (int64_t)n, &least, &most);
    fp_leave(kept);
    *lo = least <= most ? least : 0.0f;
    *hi = least <= most ? most : 0.0f;
    return OCTET_OK;
}

octet_status octet_choose_quant(float lo, float hi, int32_t qlo, int32_t qhi, int symmetric, float *scale, int32_t *zero)
{
    if (!scale || !zero) return fail(OCTET_EINVAL, "octet_choose_quant: a pointer is NULL");
    if (!(fabsf(lo) <= FLT_MAX && fabsf(hi) <= FLT_MAX && lo <= hi))
        return fail(OCTET_EINVAL, "octet_choose_quant: lo = %g, hi = %g is not a finite range", (double)lo, (double)hi);
    if (!(qlo < qhi && qlo >= -128 && qhi <= 255 && (symmetric ? qlo < 0 && qhi > 0 : 1)))
        return fail(OCTET_EINVAL, "octet_choose_quant: qlo = %d, qhi = %d is no range of 8-bit values%s", qlo, qhi,
                    symmetric ? " round 0" : "");
    const unsigned kept = fp_enter();
    choose_scale(lo, hi, qlo, qhi, symmetric, scale, zero);
    fp_leave(kept);
    return OCTET_OK;
}

static octet_status check(const char *who, octet_dtype type, const void *a, const void *b, size_t n, float scale, int32_t zero)
{
    if (type != OCTET_U8 && type != OCTET_S8) return fail(OCTET_EINVAL, "%s: type %d is neither OCTET_U8 nor OCTET_S8", who, (int)type);
    if (n && (!a || !b)) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    if (!(scale > 0 && scale <= FLT_MAX)) return fail(OCTET_EINVAL, "%s: scale %g is not positive and finite", who, (double)scale);
    const format *f = format_of(type);
    if (zero < f->lo || zero > f->hi)
        return fail(OCTET_EINVAL, "%s: zero point %d is outside %d .. %d", who, zero, f->lo, f->hi);
    return OCTET_OK;
}

octet_status octet_quantize(octet_dtype type, const float *x, size_t n, float scale, int32_t zero, void *q)
{
    const octet_status st = check("octet_quantize", type, x, q, n, scale, zero);
    if (st) return st;
    const unsigned kept = fp_enter();
    quantize_row(quantizer_for(type, inverse_scale(scale), zero), x, (int64_t)n, 0, q);
    fp_leave(kept);
    return OCTET_OK;
}

LOOP void dequantize_plain(octet_dtype type, const void *q, size_t n, float scale, int32_t zero, float *x)
{
    if (type == OCTET_U8)
        for (size_t i = 0; i < n; i++) x[i] = scale * (float)(((const uint8_t *)q)[i] - zero);
    else
        for (size_t i = 0; i < n; i++) x[i] = scale * (float)(((const int8_t *)q)[i] - zero);
}
FOR_AVX2 static void dequantize_avx2(octet_dtype type, const void *q, size_t n, float scale, int32_t zero, float *x)
{
    dequantize_plain(type, q, n, scale, zero, x);
}

octet_status octet_dequantize(octet_dtype type, const void *q, size_t n, float scale, int32_t zero, float *x)
{
    const octet_status st = check("octet_dequantize", type, q, x, n, scale, zero);
    if (st) return st;
    const unsigned kept = fp_enter();
    (has_avx2() ? dequantize_avx2 : dequantize_plain)(type, q, n, scale, zero, x);
    fp_leave(kept);
    return OCTET_OK;
}

octet_status octet_quantize_channels(const float *w, int64_t channels, int64_t length, int8_t *q, float *scales)
{
    int64_t total;
    if (channels < 0 || length < 0 || !mul_ok(channels, length, &total))
        return fail(OCTET_EINVAL, "octet_quantize_channels: %lld x %lld is not a size", (long long)channels, (long long)length);
    if ((channels && !scales) || (total && (!w || !q))) return fail(OCTET_EINVAL, "octet_quantize_channels: a pointer is NULL");
    const unsigned kept = fp_enter();
    for (int64_t c = 0; c < channels; c++) {
        float lo, hi;
        octet_range(w + c * length, (size_t)length, &lo, &hi);
        int32_t zero;
        octet_choose_quant(lo, hi, -127, 127, 1, &scales[c], &zero);
        quantizer z = quantizer_for(OCTET_S8, inverse_scale(scales[c]), 0);
        z.b.lo = -127.0f;
        quantize_row(z, w + c * length, length, 0, (uint8_t *)q + c * length);
    }
    fp_leave(kept);
    return OCTET_OK;
}
