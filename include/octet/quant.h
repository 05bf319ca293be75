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

/*
 * Scale and zero point with which q in qlo .. qhi covers lo .. hi, widened to contain 0 so that 0
 * is represented exactly (a padding value must be). scale = (hi - lo) / (qhi - qlo), at least the
 * smallest normal f32; zero = round(qlo - lo / scale), clamped.
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

/* f32 <-> OCTET_F16 or OCTET_BF16. NaN stays NaN (made quiet), infinities and denormals stay. */
OCTET_API octet_status octet_from_f32(octet_dtype type, const float *x, size_t n, uint16_t *y);
OCTET_API octet_status octet_to_f32(octet_dtype type, const uint16_t *x, size_t n, float *y);

#ifdef __cplusplus
}
#endif
#endif
