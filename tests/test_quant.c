/* Number formats: every binary16 and bfloat16, conversions at every rounding edge, quantization
 * against its definition in double, whatever MXCSR the caller has set. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "cases.h"
#include "octet/quant.h"

static uint32_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static float    from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

Test(quant, every_half_value_widens_and_narrows_back)
{
    static uint16_t h[65536], back[65536];
    static float x[65536];
    for (int t = 0; t < 2; t++) {
        const octet_dtype type = t ? OCTET_BF16 : OCTET_F16;
        for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
        cr_assert_eq(octet_to_f32(type, h, 65536, x), OCTET_OK);
        cr_assert_eq(octet_from_f32(type, x, 65536, back), OCTET_OK);
        for (int i = 0; i < 65536; i++) {
            const float want = t ? ref_bf16_to_f32(h[i]) : ref_f16_to_f32(h[i]);
            if (isnan(want)) {
                cr_assert(isnan(x[i]), "%04x", i);
                continue;
            }
            cr_assert_eq(bits(x[i]), bits(want), "%04x", i);
            cr_assert_eq(back[i], h[i], "%04x", i);
        }
        for (size_t n = 0; n < 20; n++) { /* tails */
            memset(back, 0xee, 64);
            octet_from_f32(type, x, n, back);
            cr_assert_eq(back[n], 0xeeee);
        }
    }
}

Test(quant, narrowing_rounds_to_nearest_even_at_every_edge)
{
    enum { N = 8 };
    for (uint32_t e = 0; e < 256; e++)
        for (uint32_t f = 0; f < 4096; f++) { /* every leading part, round bit, and a sticky bit */
            float x[N];
            uint16_t y[N];
            for (uint32_t i = 0; i < N; i++) x[i] = from_bits((i & 1) << 31 | e << 23 | f << 11 | (i >> 1 == 0 ? 0 : i >> 1 == 1 ? 1 : i >> 1 == 2 ? 0x400 : 0x7ff));
            for (int t = 0; t < 2; t++) {
                octet_from_f32(t ? OCTET_BF16 : OCTET_F16, x, N, y);
                for (int i = 0; i < N; i++) {
                    const uint16_t want = t ? ref_f32_to_bf16(x[i]) : ref_f32_to_f16(x[i]);
                    cr_assert_eq(y[i], want, "type %d, %08x gave %04x, not %04x", t, bits(x[i]), y[i], want);
                }
            }
        }
}

Test(quant, quantize_is_its_definition)
{
    rng r = { 9 };
    for (int round = 0; round < 300; round++) {
        enum { N = 70 };
        float x[N], back[N];
        uint8_t q[N];
        const bool u8 = round & 1;
        const int lo = u8 ? 0 : -128, hi = u8 ? 255 : 127, zero = lo + (int)rng_below(&r, 256);
        const float scale = (float)ldexp(1 + rng_next(&r) * 0x1p-32, (int)rng_below(&r, 20) - 12);
        for (int i = 0; i < N; i++) {
            x[i] = ((float)rng_next(&r) * 0x1p-31f - 1) * scale * 300;
            if (i % 9 == 0) x[i] = ((float)rng_below(&r, 600) - 300.5f) * scale; /* ties */
            if (i == 5) x[i] = NAN;
            if (i == 6) x[i] = INFINITY;
            if (i == 7) x[i] = -INFINITY;
            if (i == 8) x[i] = 1e-40f;
        }
        cr_assert_eq(octet_quantize(u8 ? OCTET_U8 : OCTET_S8, x, N, scale, zero, q), OCTET_OK);
        for (int i = 0; i < N; i++) {
            const float y = x[i] * (1.0f / scale);
            const double v = isnan(y) ? lo : rint((double)y) + zero;
            const int want = v < lo ? lo : v > hi ? hi : (int)v;
            cr_assert_eq(u8 ? q[i] : (int8_t)q[i], want, "x = %g scale = %g zero = %d", (double)x[i], (double)scale, zero);
        }
        octet_dequantize(u8 ? OCTET_U8 : OCTET_S8, q, N, scale, zero, back);
        for (int i = 0; i < N; i++) cr_assert_eq(back[i], scale * (float)((u8 ? q[i] : (int8_t)q[i]) - zero));
    }
}

Test(quant, chosen_scales_cover_the_range_and_zero)
{
    rng r = { 11 };
    for (int i = 0; i < 5000; i++) {
        const float a = ((float)rng_next(&r) * 0x1p-31f - 1) * 100, b = a + (float)rng_next(&r) * 0x1p-32f * 50;
        const int sym = i & 1, qlo = sym ? -127 : 0, qhi = sym ? 127 : i & 2 ? 255 : 127;
        float scale;
        int32_t zero;
        cr_assert_eq(octet_choose_quant(a, b, qlo, qhi, sym, &scale, &zero), OCTET_OK);
        cr_assert(scale > 0 && zero >= qlo && zero <= qhi);
        if (sym) cr_assert_eq(zero, 0);
        /* both ends within half a step of what they should be, and 0 exact */
        cr_assert_geq(scale * ((float)qhi - (float)zero + 0.51f), b);
        cr_assert_leq(scale * ((float)qlo - (float)zero - 0.51f), a);
    }
    float scale;
    int32_t zero;
    cr_assert_eq(octet_choose_quant(0, 0, 0, 255, 0, &scale, &zero), OCTET_OK);
    cr_assert(scale == 1 && zero == 0);
    cr_assert_eq(octet_choose_quant(-FLT_MAX, FLT_MAX, 0, 255, 0, &scale, &zero), OCTET_OK);
    cr_assert(isfinite(scale));
    cr_assert_eq(octet_choose_quant(2, 1, 0, 255, 0, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, INFINITY, 0, 255, 0, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, NAN, 0, 255, 0, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, 1, 5, 5, 0, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, 1, 0, 255, 1, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, 1, -300, 255, 0, &scale, &zero), OCTET_EINVAL);
    cr_assert_eq(octet_choose_quant(0, 1, 0, 255, 0, NULL, &zero), OCTET_EINVAL);
}

Test(quant, ranges_skip_nan_and_infinity)
{
    const float x[] = { NAN, 3, -INFINITY, -2, INFINITY, 1 };
    float lo, hi;
    cr_assert_eq(octet_range(x, 6, &lo, &hi), OCTET_OK);
    cr_assert(lo == -2 && hi == 3);
    cr_assert_eq(octet_range(x, 1, &lo, &hi), OCTET_OK);
    cr_assert(lo == 0 && hi == 0);
    cr_assert_eq(octet_range(NULL, 0, &lo, &hi), OCTET_OK);
    cr_assert_eq(octet_range(NULL, 1, &lo, &hi), OCTET_EINVAL);
}

Test(quant, channels_are_symmetric_and_never_reach_minus_128)
{
    float w[3 * 40], scales[3];
    int8_t q[3 * 40];
    for (int i = 0; i < 120; i++) w[i] = (float)((i * 37) % 101 - 60) * (i < 40 ? 0.01f : i < 80 ? 0 : 5);
    cr_assert_eq(octet_quantize_channels(w, 3, 40, q, scales), OCTET_OK);
    for (int i = 0; i < 120; i++) {
        cr_assert_geq(q[i], -127);
        cr_assert_float_eq(q[i] * scales[i / 40], w[i], scales[i / 40] * 0.5f + 1e-6f);
    }
    cr_assert_eq(octet_quantize_channels(w, -1, 40, q, scales), OCTET_EINVAL);
    cr_assert_eq(octet_quantize_channels(w, INT64_MAX, 40, q, scales), OCTET_EINVAL);
    cr_assert_eq(octet_quantize_channels(NULL, 1, 1, q, scales), OCTET_EINVAL);
}

Test(quant, misuse_is_refused)
{
    float x[1] = { 0 };
    uint8_t q[1];
    uint16_t h[1];
    cr_assert_eq(octet_quantize(OCTET_F32, x, 1, 1, 0, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_U8, NULL, 1, 1, 0, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_U8, x, 1, 0, 0, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_U8, x, 1, -1, 0, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_U8, x, 1, NAN, 0, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_U8, x, 1, 1, -1, q), OCTET_EINVAL);
    cr_assert_eq(octet_quantize(OCTET_S8, x, 1, 1, 128, q), OCTET_EINVAL);
    cr_assert_eq(octet_dequantize(OCTET_S8, q, 1, 1, 0, NULL), OCTET_EINVAL);
    cr_assert_eq(octet_from_f32(OCTET_U8, x, 1, h), OCTET_EINVAL);
    cr_assert_eq(octet_from_f32(OCTET_F16, NULL, 1, h), OCTET_EINVAL);
    cr_assert_eq(octet_to_f32(OCTET_F16, h, 1, NULL), OCTET_EINVAL);
}

#if defined(__x86_64__)
/* A caller that rounds down, flushes and traps nothing: same products, same MXCSR afterwards. */
Test(quant, an_altered_mxcsr_changes_nothing)
{
    const unsigned settings[] = { 0x1f80 | 0x2000, 0x1f80 | 0x4000, 0x1f80 | 0x6000, 0x1f80 | 0x8040, 0x1f80 | 0xe040 };
    for (uint64_t seed = 1; seed <= 400; seed++) {
        test_case c;
        case_new(&c, 5000000 + seed, -1, -1, -1);
        octet_plan *p;
        octet_packed *b;
        cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK);
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK);
        c.x.b = b;
        const unsigned set = settings[seed % 5];
        _mm_setcsr(set);
        const octet_status st = octet_run(p, &c.x);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(0x1f80);
        cr_assert_eq(st, OCTET_OK);
        cr_assert_eq(after & ~0x3fu, set, "MXCSR came back as %x", after);
        cr_assert_eq(case_check(&c, "altered MXCSR"), 0);
        octet_packed_free(b);
        octet_plan_free(p);
        case_free(&c);
    }
}
#endif
