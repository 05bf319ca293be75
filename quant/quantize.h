/* f32 -> u8 or s8: q = clamp(round(x * inv_scale) + zero). The one definition, and its vector form. */
#ifndef OCTET_QUANTIZE_H
#define OCTET_QUANTIZE_H

#include <math.h>

#include "format.h"
#include "requant.h"

typedef struct quantizer {
    float   inv_scale;
    bounds  b; /* of the type, minus zero */
    int32_t zero;
} quantizer;

/* A scale of 0 means 1, here as everywhere. */
static inline float inverse_scale(float scale) { return scale == 0.0f ? 1.0f : 1.0f / scale; }

static inline quantizer quantizer_for(octet_dtype type, float inv_scale, int32_t zero)
{
    const format *f = format_of(type);
    return (quantizer){ inv_scale, { (float)(f->lo - zero), (float)(f->hi - zero) }, zero };
}

static inline uint8_t quantize_value(quantizer z, float x)
{
    return (uint8_t)requantize(x, z.inv_scale, z.b, z.zero);
}

/* n values, each then xored with flip (0x80 turns s8 into value + 128). */
void quantize_row(quantizer, const float *x, int64_t n, uint8_t flip, uint8_t *q);

/* Widens lo .. hi to hold the finite ones of n values. */
void range_row(const float *x, int64_t n, float *lo, float *hi);

/* rows.c, one row: its values to q of `bits` bits, scale and bias (f16 if `half`) to params, as octet_rows_quantize; with a seed
 * (8 bits) at random. And back. */
void rows_put(int bits, bool half, const float *row, int64_t dim, const uint32_t *seed, uint8_t *q, uint8_t *params);
void rows_get(int bits, bool half, const uint8_t *q, const uint8_t *params, int64_t dim, float *row);

#endif
