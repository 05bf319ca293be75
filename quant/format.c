/* The formats, and binary16 in plain C: the definition that vcvtps2ph is tested against. */
#include "format.h"

const format *format_of(octet_dtype t)
{
    static const format formats[] = {
        [OCTET_U8]   = { "u8",   1, true,  0, 255 },
        [OCTET_S8]   = { "s8",   1, true,  -128, 127 },
        [OCTET_S32]  = { "s32",  4, true,  INT32_MIN, INT32_MAX },
        [OCTET_F32]  = { "f32",  4, false, 0, 0 },
        [OCTET_F16]  = { "f16",  2, false, 0, 0 },
        [OCTET_BF16] = { "bf16", 2, false, 0, 0 },
        [OCTET_S4]   = { "s4",   0, true,  -8, 7 },
        [OCTET_U4]   = { "u4",   0, true,  0, 15 },
        [OCTET_E4M3] = { "e4m3", 1, false, 0, 0 },
        [OCTET_E5M2] = { "e5m2", 1, false, 0, 0 },
    };
    return (int)t >= 1 && (size_t)t < COUNT(formats) ? &formats[t] : NULL;
}

uint16_t f16_from_f32(float x)
{
    const uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x1ff));
    if (mag >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 2^16 and up: infinity */
    if (mag < 0x38800000) {                                  /* below 2^-14: denormal */
        if (mag < 0x33000000) return (uint16_t)sign;         /* below 2^-25           */
        const uint32_t m = (mag & 0x7fffff) | 0x800000, shift = 126 - (mag >> 23);
        const uint32_t q = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
        return (uint16_t)(sign | (q + (rest > half || (rest == half && (q & 1)))));
    }
    const uint32_t q = (mag - 0x38000000) >> 13, rest = mag & 0x1fff; /* a carry may reach infinity */
    return (uint16_t)(sign | (q + (rest > 0x1000 || (rest == 0x1000 && (q & 1)))));
}

float f32_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return bits_f32(sign | 0x7f800000 | m << 13 | (m ? 0x400000 : 0));
    if (e) return bits_f32(sign | (e + 112) << 23 | m << 13);
    return bits_f32(f32_bits((float)m * 0x1p-24f) | sign);
}
