/* A row per number format, and the conversions of single values that define the vector ones. */
#ifndef OCTET_FORMAT_H
#define OCTET_FORMAT_H

#include "base.h"

typedef struct format {
    const char *name;
    int         bytes;  /* 0: two values a byte */
    bool        integer;
    int32_t     lo, hi; /* of an integer */
} format;

/* NULL for a value that is no octet_dtype. */
const format *format_of(octet_dtype t);

OCTET_BOTH uint32_t f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
OCTET_BOTH float    bits_f32(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

/* f32 -> bf16, nearest even; NaN made quiet, payload's upper bits kept. */
OCTET_BOTH uint16_t bf16_from_f32(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
OCTET_BOTH float f32_from_bf16(uint16_t h) { return bits_f32((uint32_t)h << 16); }

uint16_t f16_from_f32(float x);   /* nearest even, as vcvtps2ph */
float    f32_from_f16(uint16_t h); /* exact, NaN made quiet, as vcvtph2ps */

#endif
