/* s32 sums to 8 bits, by a float or by a fixed-point multiplier; and matrices laid out anew: transposed, or for dot
 * products of 4 bytes or 2 halves (VNNI). */
#include <float.h>
#include <math.h>

#include "mxcsr.h"
#include "octet/quant.h"
#include "quantize.h"
#include "vectors.h"

#if OCTET_X86
#include <immintrin.h>
#endif

/* ---- requantize ---- */

LOOP void requantize_row(const int32_t *x, int64_t n, const float *scales, float scale, bounds b, int32_t zero, uint8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        const float y = clamp_nan_low((float)x[i] * (scales ? scales[i] : scale), b.lo, b.hi);
        q[i] = (uint8_t)((int32_t)nearbyintf(y) + zero);
    }
}
FOR_AVX2 static void requantize_avx2(const int32_t *x, int64_t n, const float *scales, float scale, bounds b, int32_t zero, uint8_t *q)
{
    if (scales) requantize_row(x, n, scales, 0, b, zero, q);
    else requantize_row(x, n, NULL, scale, b, zero, q);
}

/* (x multiplier + 2^(shift-1)) >> shift, in 64 bits. */
LOOP void fixed_row(const int32_t *x, int64_t n, const int32_t *multipliers, const int32_t *shifts, int32_t multiplier, int32_t shift,
                    int32_t lo, int32_t hi, int32_t zero, uint8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t s = shifts ? shifts[i] : shift;
        int64_t y = ((int64_t)x[i] * (multipliers ? multipliers[i] : multiplier) + (INT64_C(1) << (s - 1))) >> s;
        y = y < lo ? lo : y > hi ? hi : y;
        q[i] = (uint8_t)((int32_t)y + zero);
    }
}
FOR_AVX2 static void fixed_avx2(const int32_t *x, int64_t n, const int32_t *multipliers, const int32_t *shifts, int32_t multiplier, int32_t shift,
                                int32_t lo, int32_t hi, int32_t zero, uint8_t *q)
{
    if (multipliers) fixed_row(x, n, multipliers, shifts, 0, 1, lo, hi, zero, q);
    else fixed_row(x, n, NULL, NULL, multiplier, shift, lo, hi, zero, q);
}

static octet_status check(const char *who, octet_dtype type, const void *x, const void *q, int64_t rows, int64_t cols, int32_t zero)
{
    int64_t total;
    if (type != OCTET_U8 && type != OCTET_S8) return fail(OCTET_EINVAL, "%s: type %d is neither OCTET_U8 nor OCTET_S8", who, (int)type);
    if (rows < 0 || cols < 0 || !mul_ok(rows, cols, &total) || total > INT64_MAX / 8)
        return fail(OCTET_EINVAL, "%s: %lld x %lld is not a size", who, (long long)rows, (long long)cols);
    if (total && (!x || !q)) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    const format *f = format_of(type);
    if (zero < f->lo || zero > f->hi) return fail(OCTET_EINVAL, "%s: zero point %d is outside %d .. %d", who, zero, f->lo, f->hi);
    return OCTET_OK;
}

octet_status octet_requantize(octet_dtype type, const int32_t *x, int64_t rows, int64_t cols, float scale, const float *scales,
                              int32_t zero, void *q)
{
    const octet_status st = check("octet_requantize", type, x, q, rows, cols, zero);
    if (st) return st;
    if (!scales && !(scale > 0 && scale <= FLT_MAX)) return fail(OCTET_EINVAL, "octet_requantize: scale %g is not positive and finite", (double)scale);
    if (rows == 0 || cols == 0) return OCTET_OK;
    const format *f = format_of(type);
    const bounds b = { (float)(f->lo - zero), (float)(f->hi - zero) };
    const unsigned kept = fp_enter();
    for (int64_t r = 0; r < rows; r++)
        (has_avx2() ? requantize_avx2 : requantize_row)(x + r * cols, cols, scales, scale, b, zero, (uint8_t *)q + r * cols);
    fp_leave(kept);
    return OCTET_OK;
}

octet_status octet_fixed_multiplier(double scale, int32_t *multiplier, int32_t *shift)
{
    if (!multiplier || !shift) return fail(OCTET_EINVAL, "octet_fixed_multiplier: a pointer is NULL");
    if (!(scale >= 0x1p-31 && scale < 0x1p30)) return fail(OCTET_EINVAL, "octet_fixed_multiplier: scale %g is outside 2^-31 .. 2^30", scale);
    int e;
    const unsigned kept = fp_enter();
    const double f = frexp(scale, &e); /* scale = f 2^e, f in [1/2, 1) */
    int64_t m = (int64_t)nearbyint(f * 0x1p31);
    fp_leave(kept);
    if (m == INT64_C(1) << 31) { m /= 2; e++; }
    if (e > 30) { m = INT32_MAX; e = 30; } /* rounded up to 2^30, whose shift would be 0 */
    *multiplier = (int32_t)m;
    *shift = 31 - e;
    return OCTET_OK;
}

octet_status octet_requantize_fixed(octet_dtype type, const int32_t *x, int64_t rows, int64_t cols, int32_t multiplier, int32_t shift,
                                    const int32_t *multipliers, const int32_t *shifts, int32_t zero, void *q)
{
    const char *who = "octet_requantize_fixed";
    const octet_status st = check(who, type, x, q, rows, cols, zero);
    if (st) return st;
    if (!multipliers != !shifts) return fail(OCTET_EINVAL, "%s: multipliers and shifts go together", who);
    for (int64_t i = 0; i < (shifts ? cols : 1); i++)
        if ((shifts ? shifts[i] : shift) < 1 || (shifts ? shifts[i] : shift) > 62) return fail(OCTET_EINVAL, "%s: a shift is outside 1 .. 62", who);
    if (rows == 0 || cols == 0) return OCTET_OK;
    const format *f = format_of(type);
    for (int64_t r = 0; r < rows; r++)
        (has_avx2() ? fixed_avx2 : fixed_row)(x + r * cols, cols, multipliers, shifts, multiplier, shift, f->lo - zero, f->hi - zero, zero, (uint8_t *)q + r * cols);
    return OCTET_OK;
}

/* ---- layouts ---- */

/* In tiles of 8 columns by as many rows as fill a cache line of y: 8, because lines 4 KiB apart share a set of 8 ways. */
enum { TILE = 8, LINE = 64 };
LOOP void transpose_as(const char *x, int64_t rows, int64_t cols, int64_t ldx, char *y, int64_t ldy, const int bytes)
{
    for (int64_t i0 = 0; i0 < rows; i0 += LINE / bytes)
        for (int64_t j0 = 0; j0 < cols; j0 += TILE)
            for (int64_t j = j0; j < min64(cols, j0 + TILE); j++)
                for (int64_t i = i0; i < min64(rows, i0 + LINE / bytes); i++) memcpy(y + (j * ldy + i) * bytes, x + (i * ldx + j) * bytes, (size_t)bytes);
}

#if OCTET_X86
/* 4 bytes, whole tiles of 16 x 8: two transposes of 8 x 8 side by side. The rest, at the right and below, is the loop's. */
FOR_AVX2 static void transpose4_avx2(const char *x, int64_t rows, int64_t cols, int64_t ldx, char *y, int64_t ldy)
{
    const float *f = (const float *)(const void *)x;
    float *g = (float *)(void *)y;
    const int64_t whole_rows = rows / 16 * 16, whole_cols = cols / 8 * 8;
    for (int64_t i = 0; i < whole_rows; i += 8)
        for (int64_t j = 0; j < whole_cols; j += 8) {
            __m256 r[8], t[8], u[8];
            for (int k = 0; k < 8; k++) r[k] = _mm256_loadu_ps(f + (i + k) * ldx + j);
            for (int k = 0; k < 4; k++) {
                t[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
                t[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
            }
            for (int k = 0; k < 2; k++) {
                u[4 * k] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0x44);
                u[4 * k + 1] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0xee);
                u[4 * k + 2] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0x44);
                u[4 * k + 3] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0xee);
            }
            for (int k = 0; k < 4; k++) {
                _mm256_storeu_ps(g + (j + k) * ldy + i, _mm256_permute2f128_ps(u[k], u[4 + k], 0x20));
                _mm256_storeu_ps(g + (j + 4 + k) * ldy + i, _mm256_permute2f128_ps(u[k], u[4 + k], 0x31));
            }
        }
    transpose_as(x + whole_cols * 4, whole_rows, cols - whole_cols, ldx, y + whole_cols * ldy * 4, ldy, 4);
    transpose_as(x + whole_rows * ldx * 4, rows - whole_rows, cols, ldx, y + whole_rows * 4, ldy, 4);
}
#else
static void transpose4_avx2(const char *x, int64_t rows, int64_t cols, int64_t ldx, char *y, int64_t ldy) { transpose_as(x, rows, cols, ldx, y, ldy, 4); }
#endif

static bool layout_ok(const void *x, int64_t rows, int64_t cols, int64_t ld, int bytes)
{
    int64_t total;
    return rows >= 0 && cols >= 0 && ld >= cols && mul_ok(rows, ld, &total) && total <= INT64_MAX / 8 && (x || !rows || !cols) && bytes > 0;
}

octet_status octet_transpose(const void *x, int64_t rows, int64_t cols, int64_t ldx, int bytes, void *y, int64_t ldy)
{
    if (bytes != 1 && bytes != 2 && bytes != 4) return fail(OCTET_EINVAL, "octet_transpose: bytes = %d is not 1, 2 or 4", bytes);
    if (!layout_ok(x, rows, cols, ldx, bytes) || !layout_ok(y, cols, rows, ldy, bytes))
        return fail(OCTET_EINVAL, "octet_transpose: a pointer is NULL, a size negative, or a leading dimension less than its row");
    if (rows == 0 || cols == 0) return OCTET_OK;
    if (bytes == 1) transpose_as(x, rows, cols, ldx, y, ldy, 1);
    else if (bytes == 2) transpose_as(x, rows, cols, ldx, y, ldy, 2);
    else if (has_avx2()) transpose4_avx2(x, rows, cols, ldx, y, ldy);
    else transpose_as(x, rows, cols, ldx, y, ldy, 4);
    return OCTET_OK;
}

/* Rows p .. p + per - 1 side by side, value by value; rows past the end are zero. */
LOOP void interleave(const char *x, int64_t n, int64_t ldx, int64_t have, char *y, const int bytes, const int per)
{
    if (have >= per) {
        for (int64_t j = 0; j < n; j++)
            for (int q = 0; q < per; q++) memcpy(y + (j * per + q) * bytes, x + (q * ldx + j) * bytes, (size_t)bytes);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int q = 0; q < per; q++) {
            if (q < have) memcpy(y + (j * per + q) * bytes, x + (q * ldx + j) * bytes, (size_t)bytes);
            else memset(y + (j * per + q) * bytes, 0, (size_t)bytes);
        }
}
FOR_AVX2 static void interleave_avx2(const char *x, int64_t n, int64_t ldx, int64_t have, char *y, int bytes)
{
    if (bytes == 1) interleave(x, n, ldx, have, y, 1, 4);
    else interleave(x, n, ldx, have, y, 2, 2);
}

octet_status octet_interleave_k(const void *x, int64_t k, int64_t n, int64_t ldx, int bytes, void *y)
{
    if (bytes != 1 && bytes != 2) return fail(OCTET_EINVAL, "octet_interleave_k: bytes = %d is neither 1 nor 2", bytes);
    if (!layout_ok(x, k, n, ldx, bytes) || (!y && k && n))
        return fail(OCTET_EINVAL, "octet_interleave_k: a pointer is NULL, a size negative, or ldx less than n");
    if (k == 0 || n == 0) return OCTET_OK;
    const int per = 4 / bytes;
    for (int64_t p = 0; p < k; p += per) {
        const char *from = (const char *)x + p * ldx * bytes;
        char *to = (char *)y + p * n * bytes;
        if (has_avx2()) interleave_avx2(from, n, ldx, k - p, to, bytes);
        else if (bytes == 1) interleave(from, n, ldx, k - p, to, 1, 4);
        else interleave(from, n, ldx, k - p, to, 2, 2);
    }
    return OCTET_OK;
}
