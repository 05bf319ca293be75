/* Ranges that leave outliers out: by percentile, exactly, and by least squared error of what is kept. */
#include <float.h>
#include <math.h>

#include "mxcsr.h"
#include "octet/quant.h"
#include "quantize.h"

/* Floats in order as integers: the sign bit turned where it is clear, all bits where it is set. */
static uint32_t key_of(float x)
{
    const uint32_t u = f32_bits(x);
    return u >> 31 ? ~u : u | 0x80000000u;
}
static float of_key(uint32_t k) { return bits_f32(k >> 31 ? k & 0x7fffffffu : ~k); }

/* The value of rank `rank` (0: the least) among the finite ones, by three passes over 11, 11 and 10 bits. */
static float ranked(const float *x, size_t n, size_t rank)
{
    static const int shifts[3] = { 21, 10, 0 }, widths[3] = { 11, 11, 10 };
    uint32_t prefix = 0, mask = 0;
    for (int pass = 0; pass < 3; pass++) {
        size_t count[2048] = { 0 };
        const uint32_t digits = (1u << widths[pass]) - 1;
        for (size_t i = 0; i < n; i++) {
            const uint32_t k = key_of(x[i]);
            if ((k & mask) == prefix && fabsf(x[i]) <= FLT_MAX) count[k >> shifts[pass] & digits]++;
        }
        uint32_t d = 0;
        while (d < digits && rank >= count[d]) rank -= count[d++];
        prefix |= d << shifts[pass];
        mask |= digits << shifts[pass];
    }
    return of_key(prefix);
}

octet_status octet_range_percentile(const float *x, size_t n, double percent, float *lo, float *hi)
{
    if (!lo || !hi || (n && !x)) return fail(OCTET_EINVAL, "octet_range_percentile: a pointer is NULL");
    if (!(percent > 0 && percent <= 100)) return fail(OCTET_EINVAL, "octet_range_percentile: percent = %g is outside 0 .. 100", percent);
    const unsigned kept = fp_enter();
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) finite += fabsf(x[i]) <= FLT_MAX;
    *lo = *hi = 0;
    size_t out = (size_t)((double)finite * (100 - percent) / 200); /* left out at each end */
    if (2 * out >= finite) out = finite ? (finite - 1) / 2 : 0;
    if (finite) {
        *lo = ranked(x, n, out);
        *hi = ranked(x, n, finite - 1 - out);
    }
    fp_leave(kept);
    return OCTET_OK;
}

enum { BINS = 2048, TRIES = 100 };

/* The squared error of quantizing values, at their bins' middles, with q in qlo .. qhi covering lo .. hi. */
static double error_of(const size_t *count, float least, double width, float lo, float hi, int32_t qlo, int32_t qhi, int symmetric)
{
    float scale;
    int32_t zero;
    double sum = 0;
    if (octet_choose_quant(lo, hi, qlo, qhi, symmetric, &scale, &zero)) return INFINITY;
    for (int i = 0; i < BINS; i++) {
        if (!count[i]) continue;
        const double v = (double)least + ((double)i + 0.5) * width;
        double q = nearbyint(v / (double)scale) + zero;
        q = q < qlo ? qlo : q > qhi ? qhi : q;
        const double e = v - (double)scale * (q - zero);
        sum += (double)count[i] * e * e;
    }
    return sum;
}

octet_status octet_range_mse(const float *x, size_t n, int32_t qlo, int32_t qhi, int symmetric, float *lo, float *hi)
{
    if (!lo || !hi || (n && !x)) return fail(OCTET_EINVAL, "octet_range_mse: a pointer is NULL");
    if (!(qlo < qhi && qlo >= -128 && qhi <= 255 && (!symmetric || (qlo < 0 && qhi > 0))))
        return fail(OCTET_EINVAL, "octet_range_mse: qlo = %d, qhi = %d is no range of 8-bit values%s", qlo, qhi, symmetric ? " round 0" : "");
    const octet_status st = octet_range(x, n, lo, hi);
    if (st || *lo == *hi) return st;
    const unsigned kept = fp_enter();
    const float least = *lo, most = *hi;
    const double width = ((double)most - (double)least) / BINS;
    size_t count[BINS] = { 0 };
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) <= FLT_MAX)) continue;
        const int64_t bin = (int64_t)(((double)x[i] - (double)least) / width);
        count[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
    }
    double best = INFINITY;
    for (int t = TRIES; t > TRIES / 5; t--) { /* ends drawn in together */
        const float f = (float)t / TRIES, a = least * f, b = most * f;
        const double e = error_of(count, least, width, a, b, qlo, qhi, symmetric);
        if (e < best) {
            best = e;
            *lo = a;
            *hi = b;
        }
    }
    fp_leave(kept);
    return OCTET_OK;
}
