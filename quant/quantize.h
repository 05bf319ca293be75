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

#endif
