/*
 * Number formats: choosing scales, quantizing, converting.
 *
 * A quantized tensor keeps integers q with  real = scale * (q - zero).
 * All arrays are contiguous; n may be 0; inputs and outputs must not overlap unless equal in
 * type and address. Rounding is to nearest even throughout; MXCSR as in octet.h.
 */
#ifndef OCTET_QUANT_H
#define OCTET_QUANT_H

#include "../octet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The smallest and the largest of n floats, NaN and infinities left out; 0 and 0 if none is left. */
OCTET_API octet_status octet_range(const float *x, size_t n, float *lo, float *hi);

/* The range that holds the middle `percent` % of the finite values: at each end n (100 - percent) / 200 of them, rounded down, are left
 * out. Exact. */
OCTET_API octet_status octet_range_percentile(const float *x, size_t n, double percent, float *lo, float *hi);

/* Of the ranges f lo .. f hi, f = 1, 0.99 .. 0.21, lo and hi those of octet_range, the one with which octet_choose_quant's
 * quantization (the same qlo, qhi, symmetric) has the least squared error over the values, sorted into 2,048 bins. */
OCTET_API octet_status octet_range_mse(const float *x, size_t n, int32_t qlo, int32_t qhi, int symmetric, float *lo, float *hi);

/*
 * Scale and zero point with which q in qlo .. qhi covers lo .. hi, widened to contain 0 so that 0
 * is represented exactly (a padding value must be). scale = (hi - lo) / (qhi - qlo), at least the
 * smallest normal f32, at most the largest, and 1 if lo = hi = 0; zero = round(qlo - lo / scale), clamped.
 * symmetric: zero is 0 (qlo < 0) and scale = max(|lo|, |hi|) / qhi.
 * OCTET_EINVAL: not lo <= hi, an infinity or NaN, not qlo < qhi within -128 .. 255.
 * (For u8 activations qhi = 127 gives PyTorch's reduced range, on which octet is faster.)
 */
OCTET_API octet_status octet_choose_quant(float lo, float hi, int32_t qlo, int32_t qhi, int symmetric,
                                          float *scale, int32_t *zero);

/* q[i] = clamp(round(x[i] * (1 / scale)) + zero) to the type; NaN gives the lowest value.
 * type: OCTET_U8 or OCTET_S8. scale must be positive and finite. */
OCTET_API octet_status octet_quantize(octet_dtype type, const float *x, size_t n, float scale, int32_t zero, void *q);
/* x[i] = scale * (q[i] - zero) */
OCTET_API octet_status octet_dequantize(octet_dtype type, const void *q, size_t n, float scale, int32_t zero, float *x);

/*
 * f32 weights, symmetric, a scale for each output channel: q = clamp(round(w / scale), -127, 127).
 * w and q are channels x length, row-major (PyTorch's [N, K]); scales receives `channels` values.
 */
OCTET_API octet_status octet_quantize_channels(const float *w, int64_t channels, int64_t length,
                                               int8_t *q, float *scales);

/*
 * The same for groups of `group` values of a channel (0: all of it), to OCTET_S8, OCTET_S4 or, without symmetry, also OCTET_U8,
 * OCTET_U4; symmetric: -127 .. 127, -7 .. 7. w is channels x length; q too, s4 and u4 two values a byte, the first low (length and
 * group even). scales and zeros (NULL is fine with symmetric) get a row of `channels` values for each of the
 * ceil(length / group) groups (at least one): what octet_quant and desc.group take for a B with trans_b.
 */
OCTET_API octet_status octet_quantize_groups(octet_dtype type, const float *w, int64_t channels, int64_t length, int64_t group, int symmetric,
                                             void *q, float *scales, int32_t *zeros);
/* w = scale (q - zero). zeros NULL: 0, for OCTET_S8 and OCTET_S4 only. */
OCTET_API octet_status octet_dequantize_groups(octet_dtype type, const void *q, int64_t channels, int64_t length, int64_t group,
                                               const float *scales, const int32_t *zeros, float *w);

/* s32 sums, rows x cols, to OCTET_U8 or OCTET_S8: q = clamp(round(f32(x) scale) + zero), with a scale for each column if scales
 * is given. The scale is that of the sum over that of q. */
OCTET_API octet_status octet_requantize(octet_dtype type, const int32_t *x, int64_t rows, int64_t cols, float scale, const float *scales,
                                        int32_t zero, void *q);
/* Without floating point: q = clamp(((x multiplier + 2^(shift-1)) >> shift) + zero), in 64 bits, halves rounded up; shift 1 .. 62. With
 * multipliers and shifts given, of each column. octet_fixed_multiplier finds both: scale ~ multiplier 2^-shift, multiplier in
 * 2^30 .. 2^31 - 1, for 2^-31 <= scale < 2^30. */
OCTET_API octet_status octet_fixed_multiplier(double scale, int32_t *multiplier, int32_t *shift);
OCTET_API octet_status octet_requantize_fixed(octet_dtype type, const int32_t *x, int64_t rows, int64_t cols, int32_t multiplier, int32_t shift,
                                              const int32_t *multipliers, const int32_t *shifts, int32_t zero, void *q);

/*
 * f32 <-> OCTET_F16, OCTET_BF16 (2 bytes a value), OCTET_E4M3, OCTET_E5M2 (1 byte). To nearest even; denormals stay; a NaN stays a NaN
 * (of f16 and bf16 made quiet, its upper bits kept). Past the largest value: infinity, and for E4M3, which has none, the largest,
 * 448. octet_to_f32 is exact.
 */
OCTET_API octet_status octet_from_f32(octet_dtype type, const float *x, size_t n, void *y);
OCTET_API octet_status octet_to_f32(octet_dtype type, const void *x, size_t n, float *y);
/* Up or down at random, so that the expected value is x: value i goes to the neighbour away from 0 with the probability of its
 * distance from the other, which above the largest value is infinity. The draws depend on seed and i modulo 2^32 alone. */
OCTET_API octet_status octet_from_f32_stochastic(octet_dtype type, const float *x, size_t n, uint64_t seed, void *y);

/*
 * Row-wise tables of embeddings: `dim` values of 8, 4 or 2 bits a row, low bits first, x = scale q + bias with a scale and a bias for
 * each row, its range over 2^bits - 1 steps and its least finite value; NaN gives the lowest step. In f16 the bias is rounded down and
 * the scale up, and both stay within 65504: rows past that are clipped. Rows of f32 range over less than 2^127.
 */
enum {
    OCTET_ROWS_BEHIND = 1, /* scale and bias behind the row's values; f32 with 8 bits, f16 with 4 and 2 */
    OCTET_ROWS_IN_FRONT    /* in front of them, f16                                                   */
};
/* Bytes of a row; 0 if bits, layout or dim is none. */
OCTET_API size_t octet_rows_bytes(int bits, int layout, int64_t dim);
OCTET_API octet_status octet_rows_quantize(int bits, int layout, const float *x, int64_t rows, int64_t dim, void *table);
OCTET_API octet_status octet_rows_dequantize(int bits, int layout, const void *table, int64_t rows, int64_t dim, float *x);

/* y[j][i] = x[i][j], elements of 1, 2 or 4 bytes; ldx >= cols, ldy >= rows. */
OCTET_API octet_status octet_transpose(const void *x, int64_t rows, int64_t cols, int64_t ldx, int bytes, void *y, int64_t ldy);
/* For dot products of 4 bytes or 2 halves (VNNI): y[p / r][j][p % r] = x[p][j], r = 4 / bytes, zeros past k; bytes 1 or 2. y holds
 * ceil(k / r) r n elements. */
OCTET_API octet_status octet_interleave_k(const void *x, int64_t k, int64_t n, int64_t ldx, int bytes, void *y);

#ifdef __cplusplus
}
#endif
#endif
