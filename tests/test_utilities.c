/* What quant.h offers beside the products: ranges, groups, requantization, fp8, stochastic rounding, row-wise tables, layouts. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "octet/quant.h"

static float gauss_of(rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += rng_next(r) * 0x1p-32;
    return (float)(s - 6);
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* ---- ranges ---- */

Test(utilities, percentile_is_the_order_statistic)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rng r = { seed };
        const size_t n = 1 + (size_t)rng_below(&r, 3000);
        float *x = malloc(4 * n), *sorted = malloc(4 * n), lo, hi;
        size_t finite = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = seed % 7 == 0 ? (float)rng_below(&r, 5) : gauss_of(&r) * (rng_below(&r, 50) ? 1.0f : 1e3f);
            if (rng_below(&r, 40) == 0) x[i] = i % 2 ? NAN : -INFINITY;
            if (isfinite(x[i])) sorted[finite++] = x[i];
        }
        qsort(sorted, finite, 4, by_value);
        const double percent = seed % 3 == 0 ? 100 : 50 + (double)rng_below(&r, 500) * 0.1;
        cr_assert_eq(octet_range_percentile(x, n, percent > 100 ? 100 : percent, &lo, &hi), OCTET_OK, "%s", octet_why());
        if (finite) {
            size_t out = (size_t)((double)finite * (100 - (percent > 100 ? 100 : percent)) / 200);
            if (2 * out >= finite) out = (finite - 1) / 2;
            cr_assert(lo == sorted[out] && hi == sorted[finite - 1 - out], "seed %llu: %g %g, not %g %g", (unsigned long long)seed, (double)lo, (double)hi,
                      (double)sorted[out], (double)sorted[finite - 1 - out]);
        } else cr_assert(lo == 0 && hi == 0);
        free(x);
        free(sorted);
    }
}

static double error_with(const float *x, size_t n, float lo, float hi, int symmetric)
{
    float scale;
    int32_t zero;
    double sum = 0;
    cr_assert_eq(octet_choose_quant(lo, hi, symmetric ? -7 : 0, symmetric ? 7 : 15, symmetric, &scale, &zero), OCTET_OK);
    for (size_t i = 0; i < n; i++) {
        double q = rint((double)x[i] / (double)scale) + zero;
        const double least = symmetric ? -7 : 0, most = symmetric ? 7 : 15;
        q = q < least ? least : q > most ? most : q;
        const double e = (double)x[i] - (double)scale * (q - zero);
        sum += e * e;
    }
    return sum;
}

Test(utilities, mse_range_beats_the_whole_range_with_outliers)
{
    enum { N = 20000 };
    static float x[N];
    rng r = { 9 };
    for (int i = 0; i < N; i++) x[i] = gauss_of(&r);
    x[17] = 12;
    x[18] = -11;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        float lo, hi, l, h;
        octet_range(x, N, &l, &h);
        cr_assert_eq(octet_range_mse(x, N, symmetric ? -7 : 0, symmetric ? 7 : 15, symmetric, &lo, &hi), OCTET_OK);
        cr_assert(lo >= l && hi <= h && hi < 12);
        cr_assert_lt(error_with(x, N, lo, hi, symmetric), 0.9 * error_with(x, N, l, h, symmetric));
    }
    float lo, hi;
    cr_assert(octet_range_mse(NULL, 0, 0, 255, 0, &lo, &hi) == OCTET_OK && lo == 0 && hi == 0);
}

/* ---- groups ---- */

Test(utilities, groups_come_back_within_half_a_step_and_are_what_pack_takes)
{
    static const octet_dtype types[] = { OCTET_S8, OCTET_S4, OCTET_U8, OCTET_U4 };
    for (uint64_t seed = 1; seed <= 80; seed++) {
        rng r = { seed * 3 };
        const octet_dtype t = types[seed % 4];
        const int symmetric = seed % 4 < 2 ? (int)(seed / 4 % 2) : 0, bits = t == OCTET_S4 || t == OCTET_U4 ? 4 : 8;
        const int64_t n = 1 + rng_below(&r, 20), k = 2 * (1 + rng_below(&r, 120)), group = seed % 3 ? 32 << seed % 3 : 0;
        const int64_t g = group && group < k ? group : k, groups = (k + g - 1) / g;
        float *w = malloc((size_t)(n * k) * 4), *back = malloc((size_t)(n * k) * 4), *scales = malloc((size_t)(groups * n) * 4);
        int32_t *zeros = calloc((size_t)(groups * n), 4);
        uint8_t *q = malloc((size_t)(n * k));
        for (int64_t i = 0; i < n * k; i++) w[i] = gauss_of(&r) + (symmetric ? 0.0f : 0.5f);
        cr_assert_eq(octet_quantize_groups(t, w, n, k, group, symmetric, q, scales, zeros), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_dequantize_groups(t, q, n, k, group, scales, zeros, back), OCTET_OK, "%s", octet_why());
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++) {
                const float s = scales[p / g * n + j];
                cr_assert(fabsf(w[j * k + p] - back[j * k + p]) <= 0.501f * s * (symmetric ? 1.0f : 2.0f), "seed %llu: %g -> %g, step %g", (unsigned long long)seed,
                          (double)w[j * k + p], (double)back[j * k + p], (double)s);
            }
        if (t != OCTET_U8 && (bits == 4 || !group || group == 32 || group == 64 || group == 128)) {
            octet_gemm_desc d = OCTET_GEMM_DESC;
            octet_gemm_args x = OCTET_GEMM_ARGS;
            octet_quant qb = OCTET_QUANT;
            octet_plan *p;
            octet_packed *b;
            float a[256], c[32];
            d.n = n, d.k = k, d.a = d.c = OCTET_F32, d.b = t, d.trans_b = 1, d.group = (int)group;
            if (t == OCTET_S8) d.a_as = OCTET_F32;
            qb.scales = scales, qb.zeros = zeros;
            cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
            cr_assert_eq(octet_pack(p, q, k, &qb, &b), OCTET_OK, "%s", octet_why());
            for (int64_t i = 0; i < k; i++) a[i] = (float)(i % 5) - 2;
            x.m = 1, x.a = a, x.lda = k, x.b = b, x.c = c, x.ldc = n;
            cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
            for (int64_t j = 0; j < n; j++) {
                double want = 0;
                for (int64_t i = 0; i < k; i++) want += (double)a[i] * (double)back[j * k + i];
                cr_assert_float_eq(c[j], (float)want, 1e-3f);
            }
            octet_packed_free(b);
            octet_plan_free(p);
        }
        free(w); free(back); free(scales); free(zeros); free(q);
    }
}

/* ---- requantization ---- */

Test(utilities, requantization_by_float_and_fixed_point)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        rng r = { seed * 5 + 1 };
        const int64_t rows = rng_below(&r, 6), cols = rng_below(&r, 70);
        const octet_dtype t = seed & 1 ? OCTET_U8 : OCTET_S8;
        const int lo = t == OCTET_U8 ? 0 : -128, hi = lo + 255, zero = lo + (int)rng_below(&r, 256);
        int32_t *x = calloc((size_t)(rows * cols + 1), 4), m[80], s[80];
        float scales[80];
        uint8_t *q = calloc(1, (size_t)(rows * cols + 1));
        for (int64_t i = 0; i < rows * cols; i++) x[i] = (int32_t)rng_next(&r) >> rng_below(&r, 30);
        for (int64_t j = 0; j < cols; j++) {
            scales[j] = (float)(1 + rng_below(&r, 1000)) * 1e-5f;
            cr_assert_eq(octet_fixed_multiplier((double)scales[j], &m[j], &s[j]), OCTET_OK);
            cr_assert_float_eq(ldexp((double)m[j], -s[j]) / (double)scales[j], 1, 1e-9);
        }
        const bool by_column = seed & 2;
        cr_assert_eq(octet_requantize(t, x, rows, cols, 0.001f, by_column ? scales : NULL, zero, q), OCTET_OK, "%s", octet_why());
        for (int64_t i = 0; i < rows * cols; i++) {
            const double v = rint((double)((float)x[i] * (by_column ? scales[i % cols] : 0.001f))) + zero;
            cr_assert_eq(q[i], (uint8_t)(int)(v < lo ? lo : v > hi ? hi : v));
        }
        cr_assert_eq(octet_requantize_fixed(t, x, rows, cols, 1 << 30, 40, by_column ? m : NULL, by_column ? s : NULL, zero, q), OCTET_OK, "%s", octet_why());
        for (int64_t i = 0; i < rows * cols; i++) {
            const int sh = by_column ? s[i % cols] : 40;
            int64_t v = (((int64_t)x[i] * (by_column ? m[i % cols] : 1 << 30) + (INT64_C(1) << (sh - 1))) >> sh) + zero;
            cr_assert_eq(q[i], (uint8_t)(v < lo ? lo : v > hi ? hi : v));
        }
        free(x);
        free(q);
    }
}

/* ---- fp8 ---- */

static double fp8(octet_dtype t, int code)
{
    const int m = t == OCTET_E4M3 ? 3 : 2, bias = t == OCTET_E4M3 ? 7 : 15, e = code >> m & (t == OCTET_E4M3 ? 15 : 31), f = code & ((1 << m) - 1);
    if (t == OCTET_E4M3 ? (code & 0x7f) == 0x7f : e == 31 && f) return NAN;
    if (t == OCTET_E5M2 && e == 31) return code & 0x80 ? -INFINITY : INFINITY;
    const double v = e ? ldexp(f + (1 << m), e - bias - m) : ldexp(f, 1 - bias - m);
    return code & 0x80 ? -v : v;
}

Test(utilities, every_fp8_value_and_every_rounding_edge)
{
    static const octet_dtype types[] = { OCTET_E4M3, OCTET_E5M2 };
    for (int ti = 0; ti < 2; ti++) {
        const octet_dtype t = types[ti];
        uint8_t codes[256], back[256];
        float x[256];
        for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
        cr_assert_eq(octet_to_f32(t, codes, 256, x), OCTET_OK);
        cr_assert_eq(octet_from_f32(t, x, 256, back), OCTET_OK);
        for (int i = 0; i < 256; i++) {
            const double v = fp8(t, i);
            cr_assert(isnan(v) ? isnan(x[i]) : (double)x[i] == v && !signbit(x[i]) == !signbit(v), "code %02x: %g", i, (double)x[i]);
            cr_assert(isnan(v) ? isnan(fp8(t, back[i])) : back[i] == i, "code %02x came back as %02x", i, back[i]);
        }
        const int last = t == OCTET_E4M3 ? 0x7e : 0x7b;
        for (int i = 0; i < last; i++) { /* between neighbours: the middle goes to the even code, a hair to its own side */
            const float mid = (float)((fp8(t, i) + fp8(t, i + 1)) / 2), in[3] = { nextafterf(mid, 0), mid, nextafterf(mid, INFINITY) };
            uint8_t out[3];
            cr_assert_eq(octet_from_f32(t, in, 3, out), OCTET_OK);
            cr_assert(out[0] == i && out[1] == (i & 1 ? i + 1 : i) && out[2] == i + 1, "%s %02x: %02x %02x %02x", ti ? "e5m2" : "e4m3", i, out[0], out[1], out[2]);
        }
        const float past[6] = { 1e9f, -1e9f, INFINITY, 1e-30f, -1e-30f, 0x1p-149f };
        uint8_t out[6];
        cr_assert_eq(octet_from_f32(t, past, 6, out), OCTET_OK);
        const int top = t == OCTET_E4M3 ? 0x7e : 0x7c;
        cr_assert(out[0] == top && out[1] == (top | 0x80) && out[2] == top && out[3] == 0 && out[4] == 0x80 && out[5] == 0);
    }
}

/* ---- stochastic rounding ---- */

Test(utilities, stochastic_rounding_takes_a_neighbour_and_is_right_on_average)
{
    static const octet_dtype types[] = { OCTET_F16, OCTET_BF16, OCTET_E4M3, OCTET_E5M2 };
    enum { N = 4096 };
    static float x[N], y[N];
    static uint16_t h[N], again[N];
    for (int t = 0; t < 4; t++) {
        static const float values[] = { 1.0f, 1.03f, -3.3f, 100.7f, 0.0007f, 3e-6f, -0.1f, 1e-9f, 1e-12f, 1e-30f };
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            for (int i = 0; i < N; i++) x[i] = values[v];
            cr_assert_eq(octet_from_f32_stochastic(types[t], x, N, 77 + v, h), OCTET_OK);
            cr_assert_eq(octet_from_f32_stochastic(types[t], x, N, 77 + v, again), OCTET_OK);
            cr_assert(!memcmp(h, again, t < 2 ? 2 * N : N), "not repeatable");
            cr_assert_eq(octet_to_f32(types[t], h, N, y), OCTET_OK);
            double sum = 0, lo = 1e9, hi = -1e9;
            for (int i = 0; i < N; i++) {
                sum += (double)y[i];
                lo = (double)y[i] < lo ? (double)y[i] : lo;
                hi = (double)y[i] > hi ? (double)y[i] : hi;
            }
            int distinct = 0;
            for (int i = 0; i < N; i++) distinct += (double)y[i] != lo && (double)y[i] != hi;
            cr_assert(distinct == 0 && (lo == hi || (lo <= (double)values[v] && hi >= (double)values[v])), "%g became %g .. %g", (double)values[v], lo, hi);
            const double unit = hi - lo, chance = unit > 0 ? ((double)values[v] - lo) / unit : 0; /* of going up */
            cr_assert_leq(fabs(sum / N - (double)values[v]), 4.5 * unit * sqrt(chance * (1 - chance) / N) + (lo == hi ? fabs((double)values[v]) * 1e-3 + 1e-8 : 0), "%g has mean %g", (double)values[v], sum / N);
            if (fabsf(values[v]) < 1e-8f && t != 1 && t != 0) cr_assert_eq(sum, 0, "%g was drawn up", (double)values[v]); /* once in 10^5 or more */
        }
    }
    const float odd[3] = { NAN, INFINITY, -0.0f };
    cr_assert_eq(octet_from_f32_stochastic(OCTET_BF16, odd, 3, 1, h), OCTET_OK);
    cr_assert((h[0] & 0x7fff) > 0x7f80 && h[1] == 0x7f80 && h[2] == 0x8000);
}

/* ---- row-wise tables ---- */

Test(utilities, row_tables_come_back_and_have_the_layout_they_say)
{
    for (int bits = 2; bits <= 8; bits *= 2)
        for (int layout = OCTET_ROWS_BEHIND; layout <= OCTET_ROWS_IN_FRONT; layout++)
            for (int64_t dim = 0; dim <= 70; dim += dim < 20 ? 1 : 17) {
                enum { ROWS = 5 };
                rng r = { (uint64_t)(bits * 1000 + layout * 100 + dim + 1) };
                const size_t stride = octet_rows_bytes(bits, layout, dim), beside = bits == 8 && layout == OCTET_ROWS_BEHIND ? 8 : 4;
                cr_assert_eq(stride, (size_t)((dim * bits + 7) / 8) + beside);
                guarded table = guard_new(ROWS * stride, 1, true), in = guard_new((size_t)(ROWS * dim) * 4, 4, true), out = guard_new((size_t)(ROWS * dim) * 4, 4, true);
                float *x = in.p, *y = out.p;
                for (int64_t i = 0; i < ROWS * dim; i++) x[i] = i / (dim ? dim : 1) == 3 ? 2.5f : gauss_of(&r); /* row 3 is constant */
                cr_assert_eq(octet_rows_quantize(bits, layout, x, ROWS, dim, table.p), OCTET_OK, "%s", octet_why());
                cr_assert_eq(octet_rows_dequantize(bits, layout, table.p, ROWS, dim, y), OCTET_OK, "%s", octet_why());
                for (int64_t row = 0; row < ROWS; row++) {
                    const uint8_t *p = (const uint8_t *)table.p + (size_t)row * stride, *params = layout == OCTET_ROWS_BEHIND ? p + stride - beside : p;
                    const uint8_t *values = layout == OCTET_ROWS_BEHIND ? p : p + beside;
                    float scale, bias;
                    if (beside == 8) { memcpy(&scale, params, 4); memcpy(&bias, params + 4, 4); }
                    else {
                        uint16_t s[2];
                        memcpy(s, params, 4);
                        scale = ref_f16_to_f32(s[0]);
                        bias = ref_f16_to_f32(s[1]);
                    }
                    for (int64_t i = 0; i < dim; i++) {
                        const int q = values[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1); /* low bits first */
                        cr_assert_float_eq(y[row * dim + i], scale * (float)q + bias, 1e-6f);
                        cr_assert(fabsf(y[row * dim + i] - x[row * dim + i]) <= 0.51f * scale + 4e-3f, "bits %d dim %lld: %g -> %g", bits, (long long)dim,
                                  (double)x[row * dim + i], (double)y[row * dim + i]);
                    }
                }
                guard_free(&table);
                guard_free(&in);
                guard_free(&out);
            }
}

/* ---- layouts ---- */

Test(utilities, transpose_and_interleave)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        rng r = { seed };
        const int bytes = 1 << seed % 3;
        const int64_t rows = rng_below(&r, 50), cols = rng_below(&r, 50), ldx = cols + rng_below(&r, 4), ldy = rows + rng_below(&r, 4);
        uint8_t *x = calloc((size_t)(rows * ldx + 1), 4), *y = calloc((size_t)(cols * ldy + 1), 4), *z = calloc((size_t)((rows + 4) * cols + 1), 4);
        for (int64_t i = 0; i < rows * ldx * bytes; i++) x[i] = (uint8_t)rng_next(&r);
        cr_assert_eq(octet_transpose(x, rows, cols, ldx, bytes, y, ldy), OCTET_OK, "%s", octet_why());
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) cr_assert(!memcmp(x + (i * ldx + j) * bytes, y + (j * ldy + i) * bytes, (size_t)bytes));
        if (bytes < 4) {
            const int per = 4 / bytes;
            cr_assert_eq(octet_interleave_k(x, rows, cols, ldx, bytes, z), OCTET_OK, "%s", octet_why());
            for (int64_t p = 0; p < (rows + per - 1) / per * per; p++)
                for (int64_t j = 0; j < cols; j++) {
                    uint32_t want = 0, got = 0;
                    if (p < rows) memcpy(&want, x + (p * ldx + j) * bytes, (size_t)bytes);
                    memcpy(&got, z + ((p / per * cols + j) * per + p % per) * bytes, (size_t)bytes);
                    cr_assert_eq(got, want);
                }
        }
        free(x); free(y); free(z);
    }
}

#define REFUSED(call) cr_expect_eq((call), OCTET_EINVAL, "%s", #call); cr_expect(octet_why()[0])
Test(utilities, misuse_gets_a_sentence)
{
    float f[8] = { 0 }, lo, hi;
    int32_t i32[8] = { 0 }, m, s;
    uint8_t b[64];
    REFUSED(octet_range_percentile(f, 8, 0, &lo, &hi));
    REFUSED(octet_range_percentile(f, 8, 101, &lo, &hi));
    REFUSED(octet_range_percentile(NULL, 8, 99, &lo, &hi));
    REFUSED(octet_range_mse(f, 8, 5, 5, 0, &lo, &hi));
    REFUSED(octet_range_mse(f, 8, 0, 255, 1, &lo, &hi));
    REFUSED(octet_quantize_groups(OCTET_F32, f, 1, 8, 0, 0, b, f, i32));
    REFUSED(octet_quantize_groups(OCTET_U4, f, 1, 8, 0, 1, b, f, i32));
    REFUSED(octet_quantize_groups(OCTET_S4, f, 1, 7, 0, 1, b, f, i32));
    REFUSED(octet_quantize_groups(OCTET_S8, f, -1, 8, 0, 1, b, f, i32));
    REFUSED(octet_quantize_groups(OCTET_S8, f, 1, 8, 0, 0, b, f, NULL));
    REFUSED(octet_dequantize_groups(OCTET_U8, b, 1, 8, 0, f, NULL, f));
    REFUSED(octet_requantize(OCTET_S32, i32, 1, 8, 1, NULL, 0, b));
    REFUSED(octet_requantize(OCTET_U8, i32, 1, 8, 0, NULL, 0, b));
    REFUSED(octet_requantize(OCTET_U8, i32, 1, 8, 1, NULL, 256, b));
    REFUSED(octet_fixed_multiplier(0, &m, &s));
    REFUSED(octet_fixed_multiplier(1, NULL, &s));
    REFUSED(octet_requantize_fixed(OCTET_U8, i32, 1, 8, 1, 0, NULL, NULL, 0, b));
    REFUSED(octet_requantize_fixed(OCTET_U8, i32, 1, 8, 1, 1, i32, NULL, 0, b));
    REFUSED(octet_from_f32(OCTET_S8, f, 8, b));
    REFUSED(octet_to_f32(OCTET_F16, NULL, 8, f));
    REFUSED(octet_from_f32_stochastic(OCTET_F32, f, 8, 1, b));
    REFUSED(octet_rows_quantize(3, OCTET_ROWS_BEHIND, f, 1, 8, b));
    REFUSED(octet_rows_quantize(8, 0, f, 1, 8, b));
    REFUSED(octet_rows_dequantize(8, OCTET_ROWS_BEHIND, b, -1, 8, f));
    cr_expect_eq(octet_rows_bytes(5, OCTET_ROWS_BEHIND, 8), 0);
    REFUSED(octet_transpose(f, 2, 2, 1, 4, b, 2));
    REFUSED(octet_transpose(f, 2, 2, 2, 8, b, 2));
    REFUSED(octet_interleave_k(f, 2, 2, 2, 4, b));
    REFUSED(octet_interleave_k(f, 2, 2, 1, 2, b));
}

/* The vectors against the definition of one value, over a walk through every exponent; the tail is done one by one. */
Test(utilities, long_arrays_equal_single_values)
{
    static const octet_dtype types[] = { OCTET_F16, OCTET_BF16, OCTET_E4M3, OCTET_E5M2 };
    enum { N = 100003 };
    static float x[N];
    static uint16_t all[N], one;
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t u = i * 42949u * (i % 3 ? 1u : 3u);
        memcpy(&x[i], &u, 4);
    }
    for (int t = 0; t < 4; t++) {
        cr_assert_eq(octet_from_f32(types[t], x, N, all), OCTET_OK);
        for (int i = 0; i < N; i++) {
            one = 0;
            cr_assert_eq(octet_from_f32(types[t], &x[i], 1, &one), OCTET_OK);
            cr_assert_eq(t < 2 ? all[i] : ((uint8_t *)all)[i], one, "type %d: %a", (int)types[t], (double)x[i]);
        }
        static float wide[N];
        octet_from_f32_stochastic(types[t], x, N, 5, all);
        octet_to_f32(types[t], all, N, wide);
        for (int i = 0; i < N; i++) /* within a unit, past the largest excepted */
            cr_assert(isnan(x[i]) ? isnan(wide[i]) : fabsf(x[i]) > 440 || fabsf(wide[i] - x[i]) <= fabsf(x[i]) * 0.26f + 0.002f, "%a became %a", (double)x[i], (double)wide[i]);
    }
}

Test(utilities, rows_at_the_ends_of_f16_and_of_the_least_and_the_largest)
{
    static const float rows[4][4] = { { -70000, 0, 1, 1e6f }, { 0, 1e-7f, 2e-7f, 3e-7f }, { 1000.3f, 1000.35f, 1000.4f, 1000.4f }, { NAN, INFINITY, -2, 2 } };
    for (int bits = 2; bits <= 8; bits *= 2)
        for (int layout = OCTET_ROWS_BEHIND; layout <= OCTET_ROWS_IN_FRONT; layout++)
            for (int r = 0; r < 4; r++) {
                uint8_t table[32];
                float back[4];
                cr_assert_eq(octet_rows_quantize(bits, layout, rows[r], 1, 4, table), OCTET_OK);
                cr_assert_eq(octet_rows_dequantize(bits, layout, table, 1, 4, back), OCTET_OK);
                for (int i = 0; i < 4; i++) cr_assert(isfinite(back[i]), "bits %d row %d: %g", bits, r, (double)back[i]);
                if (r == 1 || r == 2) /* the range is covered: the ends are within a step and what f16 rounds */
                    cr_assert(fabsf(back[0] - rows[r][0]) <= (r == 1 ? 1.1e-7f : 0.55f) && fabsf(back[3] - rows[r][3]) <= (r == 1 ? 1.1e-7f : 0.55f), "bits %d row %d: %g .. %g",
                              bits, r, (double)back[0], (double)back[3]);
            }
    cr_assert_eq(octet_rows_bytes(8, 99, 4), 0);
}

Test(utilities, one_size_zero_and_another_huge_is_nothing_to_do)
{
    cr_assert_eq(octet_interleave_k(NULL, INT64_MAX / 8, 0, 0, 1, NULL), OCTET_OK);
    cr_assert_eq(octet_requantize(OCTET_U8, NULL, INT64_MAX, 0, 1, NULL, 0, NULL), OCTET_OK);
    cr_assert_eq(octet_requantize_fixed(OCTET_U8, NULL, INT64_MAX, 0, 1, 1, NULL, NULL, 0, NULL), OCTET_OK);
    cr_assert_eq(octet_transpose(NULL, INT64_MAX / 8, 0, 0, 4, NULL, INT64_MAX / 8), OCTET_OK);
    uint8_t row[8];
    cr_assert_eq(octet_rows_quantize(8, OCTET_ROWS_BEHIND, NULL, 1, 0, row), OCTET_OK);
}
