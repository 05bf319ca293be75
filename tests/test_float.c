/*
 * Floating point, weight-only and dynamically quantized products, and chains on every product: bit for bit the
 * definition of octet.h, which fixes the order of every sum, whatever the shape, block, thread or ISA. Buffers
 * lie between unreadable pages. Then the documented error bound, against double precision.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "any_case.h"
#include "format.h"
#include "gemm.h"

static int run_seed(uint64_t seed, int64_t m, int64_t n, int64_t k, octet_ctx *ctx, const blocking *blocks)
{
    any_case c;
    any_new(&c, seed, m, n, k);
    const int bad = any_run(&c, ctx, blocks);
    any_free(&c);
    return bad;
}

Test(floats, random_shapes_types_and_chains)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 6000; seed++) bad += run_seed(seed, -1, -1, -1, NULL, NULL);
    cr_assert_eq(bad, 0, "%d of 6000 are wrong", bad);
}

Test(floats, sizes_round_the_tile_and_zero)
{
    static const int64_t ms[] = { 0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 25 }, ns[] = { 0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 66, 80 };
    static const int64_t ks[] = { 0, 1, 3, 4, 5, 7, 8, 9, 31, 33, 64, 67, 129 };
    int bad = 0, count = 0;
    for (size_t i = 0; i < COUNT(ms); i++)
        for (size_t j = 0; j < COUNT(ns); j++)
            for (size_t l = 0; l < COUNT(ks); l++) bad += run_seed(1000000 + (uint64_t)count++, ms[i], ns[j], ks[l], NULL, NULL);
    cr_assert_eq(bad, 0, "%d of %d are wrong", bad, count);
}

Test(floats, small_problems_cross_every_block_border)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        rng r = { seed * 7919 + 3 };
        const blocking b = { .kc = 32 + 16 * (int32_t)rng_below(&r, 4), .mc = 1 + rng_below(&r, 20), .panels = 1 + rng_below(&r, 5) };
        bad += run_seed(2000000 + seed, -1, -1, 20 + rng_below(&r, 400), NULL, &b);
    }
    cr_assert_eq(bad, 0, "%d of 1500 are wrong", bad);
}

Test(floats, threads_do_not_change_a_bit)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    o.threads = 3;
    octet_ctx *ctx;
    if (octet_ctx_create(&o, &ctx)) cr_skip_test("no thread pool in this build");
    int bad = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) bad += run_seed(3000000 + seed, 20 + (int64_t)seed % 60, 100, 200, ctx, NULL);
    octet_ctx_free(ctx);
    cr_assert_eq(bad, 0, "%d of 60 are wrong", bad);
}

/* What the caller brings instead of a workspace of the context: little, or the stack's. */
Test(floats, little_workspace_gives_the_same_bits)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        any_case c;
        any_new(&c, 4000000 + seed, 1 + (int64_t)seed % 40, 70, 3000 + (int64_t)seed * 7);
        _Alignas(64) static char memory[48 << 10];
        c.x.workspace = memory;
        c.x.workspace_bytes = seed % 2 ? sizeof memory : 64;
        bad += any_run(&c, NULL, NULL);
        any_free(&c);
    }
    cr_assert_eq(bad, 0, "%d of 100 are wrong", bad);
}

/* |computed - exact| <= k u / (1 - k u) sum |a b|, and half a unit of C's last place. */
Test(floats, error_is_within_the_documented_bound)
{
    static const octet_dtype types[] = { OCTET_F32, OCTET_F16, OCTET_BF16 };
    static const double half_ulp[] = { 0x1p-24, 0x1p-11, 0x1p-8 };
    double worst = 0;
    for (int t = 0; t < 9; t++)
        for (int k = 1; k <= 5000; k = k * 3 + 1)
            for (int data = 0; data < 3; data++) {
                const int64_t m = 7, n = 19;
                rng r = { (uint64_t)(t * 1000 + k * 3 + data + 1) };
                const octet_dtype bt = types[t % 3], ct = types[t / 3];
                float *a = calloc(4, (size_t)(m * k));
                void *b = calloc(4, (size_t)(k * n)), *c = calloc(4, (size_t)(m * n));
                for (int64_t i = 0; i < m * k; i++) a[i] = data == 0 ? (float)((int)rng_below(&r, 2001) - 1000) * 1e-3f : data == 1 ? 1.0f + 0x1p-23f * (float)rng_below(&r, 100) : (i & 1 ? -1.0f : 1.0f) * (1 + 0x1p-20f * (float)rng_below(&r, 99));
                for (int64_t i = 0; i < k * n; i++) {
                    const float v = data == 1 ? 0x1.fffffep0f : (float)((int)rng_below(&r, 2001) - 1000) * 1e-3f;
                    if (bt == OCTET_F32) ((float *)b)[i] = v;
                    else ((uint16_t *)b)[i] = bt == OCTET_F16 ? ref_f32_to_f16(v) : ref_f32_to_bf16(v);
                }
                octet_gemm_desc d = OCTET_GEMM_DESC;
                octet_gemm_args x = OCTET_GEMM_ARGS;
                octet_plan *p;
                octet_packed *packed;
                d.n = n, d.k = k, d.a = OCTET_F32, d.b = bt, d.c = ct;
                cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
                cr_assert_eq(octet_pack(p, b, n, NULL, &packed), OCTET_OK, "%s", octet_why());
                x.m = m, x.a = a, x.lda = k, x.b = packed, x.c = c, x.ldc = n;
                cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        long double exact = 0, size = 0;
                        for (int64_t q = 0; q < k; q++) {
                            const float bv = bt == OCTET_F32 ? ((float *)b)[q * n + j] : bt == OCTET_F16 ? ref_f16_to_f32(((uint16_t *)b)[q * n + j]) : ref_bf16_to_f32(((uint16_t *)b)[q * n + j]);
                            exact += (long double)a[i * k + q] * (long double)bv;
                            size += fabsl((long double)a[i * k + q] * (long double)bv);
                        }
                        const float got = ct == OCTET_F32 ? ((float *)c)[i * n + j] : ct == OCTET_F16 ? ref_f16_to_f32(((uint16_t *)c)[i * n + j]) : ref_bf16_to_f32(((uint16_t *)c)[i * n + j]);
                        const double ku = k * 0x1p-24, bound = ku / (1 - ku) * (double)size;
                        const double limit = bound + (ct == OCTET_F32 ? 0 : half_ulp[t / 3] * (fabs((double)exact) + bound)) + (ct == OCTET_F16 ? 0x1p-25 : 0);
                        if (isinf(got)) continue; /* f16 ends at 65504 */
                        const double error = (double)fabsl((long double)got - exact);
                        cr_assert_leq(error, limit, "k = %d: error %g, bound %g", k, error, limit);
                        if (ct == OCTET_F32 && error / bound > worst) worst = error / bound;
                    }
                octet_packed_free(packed);
                octet_plan_free(p);
                free(a); free(b); free(c);
            }
    cr_assert_gt(worst, 0.05, "the bound was never approached: %g", worst);
}

Test(floats, nan_infinity_and_denormals)
{
    static const uint32_t odd[] = { 0x7fc00000, 0x7f800000, 0xff800000, 1, 0x807fffff, 0, 0x80000000, 0x3f800000, 0x7f7fffff };
    const int n = 9;
    float b[81], a[9], c[9];
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gemm_args x = OCTET_GEMM_ARGS;
    octet_plan *p;
    octet_packed *packed;
    d.n = n, d.k = 1, d.a = d.b = d.c = OCTET_F32;
    memcpy(b, odd, sizeof odd);
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK);
    cr_assert_eq(octet_pack(p, b, n, NULL, &packed), OCTET_OK);
    for (int i = 0; i < n; i++) {
        memcpy(a, &odd[i], 4);
        x.m = 1, x.a = a, x.lda = 1, x.b = packed, x.c = c, x.ldc = n;
        cr_assert_eq(octet_run(p, &x), OCTET_OK);
        for (int j = 0; j < n; j++) {
            const float want = fmaf(a[0], b[j], 0.0f);
            cr_assert(isnan(want) ? isnan(c[j]) : !memcmp(&want, &c[j], 4), "%08x * %08x", odd[i], odd[j]);
        }
    }
    octet_packed_free(packed);
    octet_plan_free(p);
}

Test(floats, packed_weights_come_back_and_fit_their_bound)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        any_case c;
        any_new(&c, 5000000 + seed, 1, -1, -1);
        octet_plan *p;
        octet_packed *packed;
        size_t bytes;
        cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &packed), OCTET_OK, "%s", octet_why());
        octet_packed_data(packed, &bytes);
        cr_assert_leq(bytes, octet_packed_bound(p));
        const int64_t met = c.d.b == OCTET_S8 && c.d.a_as != OCTET_F32, n16 = (c.d.n + 15) / 16 * 16, k8 = (c.d.k + 7) / 8 * 8;
        const int64_t groups = c.d.group && c.d.group < c.d.k ? (c.d.k + c.d.group - 1) / c.d.group : 1, tables = any_bits(c.d.b) < 16 ? 8 * n16 * groups : 0;
        if (!met && any_bits(c.d.a) > 8) cr_assert_leq((int64_t)octet_packed_bound(p), n16 * k8 * any_bits(c.d.b) / 8 + tables + 64 * (n16 / 16) + 1024);
        guarded back = guard_new(c.b.bytes, 1, false);
        memcpy(back.p, c.b.p, c.b.bytes); /* gaps */
        const int64_t lines = c.d.trans_b ? c.d.n : c.d.k, width = c.d.trans_b ? c.d.k : c.d.n;
        const int bits = any_bits(c.d.b);
        for (int64_t i = 0; i < lines; i++)
            for (int64_t j = 0; j < width * bits / 8; j++) ((uint8_t *)back.p)[i * c.ldb * bits / 8 + j] = 0x77;
        cr_assert_eq(octet_unpack(packed, c.d.trans_b, back.p, c.ldb), OCTET_OK, "%s", octet_why());
        cr_assert(!memcmp(back.p, c.b.p, c.b.bytes), "seed %llu", (unsigned long long)seed);
        /* a blob stored and loaded serves as well */
        octet_packed *again;
        char *copy = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memcpy(copy, octet_packed_data(packed, NULL), bytes);
        cr_assert_eq(octet_packed_load(p, copy, bytes, &again), OCTET_OK, "%s", octet_why());
        octet_packed_free(again);
        copy[bytes / 2] ^= 4;
        cr_assert_neq(octet_packed_load(p, copy, bytes, &again), OCTET_OK);
        free(copy);
        octet_packed_free(packed);
        octet_plan_free(p);
        guard_free(&back);
        any_free(&c);
    }
}

/* ---- pieces reported ---- */

typedef struct seen { int64_t m, n; uint8_t *done; int bad; } seen;
static void tile_done(void *user, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    seen *s = user;
    for (int64_t r = i; r < i + rows; r++)
        for (int64_t c = j; c < j + cols; c++) {
            if (r < 0 || c < 0 || r >= s->m || c >= s->n || s->done[r * s->n + c]) { s->bad++; return; }
            s->done[r * s->n + c] = 1;
        }
}

Test(floats, every_value_is_reported_finished_once)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        any_case c;
        any_new(&c, 6000000 + seed, -1, -1, -1);
        seen s = { c.x.m, any_out_n(&c), calloc(1, (size_t)(c.x.m * c.d.n + 1)), 0 };
        c.x.done = tile_done;
        c.x.done_user = &s;
        cr_assert_eq(any_run(&c, NULL, NULL), 0);
        for (int64_t i = 0; i < s.m * s.n; i++) s.bad += !s.done[i];
        cr_assert_eq(s.bad, 0, "seed %llu", (unsigned long long)seed);
        free(s.done);
        any_free(&c);
    }
}
