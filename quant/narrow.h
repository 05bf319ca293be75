/* f32 to a narrower format, by integer arithmetic on its bits: one definition for every format and rounding. */
#ifndef OCTET_NARROW_H
#define OCTET_NARROW_H

#include "format.h"

/* mantissa bits; the f32 exponent of its least normal number; the codes of what is past its largest number, and of NaN */
typedef struct narrow_format { int bits, least; uint32_t most, past, nan; } narrow_format;

/* NULL: not a format that this converts. */
const narrow_format *narrow_of(octet_dtype);

/*
 * The significand, 24 bits, moved right until it is in the format's units (further for its denormals), after adding
 * what rounds: half a unit, less one for an even result (nearest even), or up to 31 random bits (stochastic).
 */
static inline uint32_t narrow_bits(const narrow_format *f, uint32_t u, bool stochastic, uint32_t random)
{
    const uint32_t mag = u & 0x7fffffff;
    const int e = mag >> 23 ? (int)(mag >> 23) : 1;
    const int under = f->least > e ? f->least - e : 0, whole = 23 - f->bits + under, shift = whole < 31 ? whole : 31, before = whole - shift < 31 ? whole - shift : 31;
    const uint32_t m = ((mag & 0x7fffff) | (mag >> 23 ? 0x800000 : 0)) >> before; /* what 31 bits cannot move is less than they can tell */
    const uint32_t unit = (uint32_t)1 << shift;
    const uint32_t round = shift == 0 ? 0 : stochastic ? random & (unit - 1) : (unit >> 1) - 1 + (m >> shift & 1);
    uint32_t code = ((m + round) >> shift) + (under ? 0 : (uint32_t)(e - f->least) << f->bits);
    code = code > f->most || mag == 0x7f800000 ? f->past : code;
    return mag > 0x7f800000 ? f->nan : code;
}

/* 32 random bits for element i, the same whatever the order: a multiplicative hash (Wellons' lowbias32). */
static inline uint32_t random_bits(uint32_t seed, uint32_t i)
{
    uint32_t h = i * 0x9e3779b9u + seed;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    return h ^ h >> 16;
}

#endif
