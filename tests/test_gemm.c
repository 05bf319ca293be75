/*
 * Products equal the plainest C, bit for bit: every kernel family, awkward sizes, adversarial values,
 * every border of every block, every option at random. All buffers lie between unreadable pages.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "gemm.h"
#include "octet/quant.h"

static int run_seed(uint64_t seed, int64_t m, int64_t n, int64_t k, const blocking *blocks)
{
    test_case c;
    case_new(&c, seed, m, n, k);
    const int bad = case_run(&c, NULL, blocks);
    case_free(&c);
    return bad;
}

Test(gemm, random_shapes_and_options)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 5000; seed++) bad += run_seed(seed, -1, -1, -1, NULL);
    cr_assert_eq(bad, 0, "%d of 5000 are wrong", bad);
}

Test(gemm, sizes_round_the_tile_and_zero)
{
    static const int64_t ms[] = { 0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 24, 25 }, ns[] = { 0, 1, 7, 8, 9, 15, 16, 17, 33 };
    static const int64_t ks[] = { 0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67, 129 };
    int bad = 0, count = 0;
    for (size_t i = 0; i < COUNT(ms); i++)
        for (size_t j = 0; j < COUNT(ns); j++)
            for (size_t l = 0; l < COUNT(ks); l++) bad += run_seed(1000000 + (uint64_t)count++, ms[i], ns[j], ks[l], NULL);
    cr_assert_eq(bad, 0, "%d of %d are wrong", bad, count);
}

Test(gemm, small_problems_cross_every_block_border)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        rng r = { seed * 7919 + 3 };
        const blocking b = { .kc = 32 + 16 * (int32_t)rng_below(&r, 4), .mc = 1 + rng_below(&r, 20), .panels = 1 + rng_below(&r, 5) };
        bad += run_seed(2000000 + seed, -1, -1, 20 + rng_below(&r, 400), &b);
    }
    cr_assert_eq(bad, 0, "%d of 1500 are wrong", bad);
}

/* ---- one family at a time, on data that its proof accepts ---- */

/* Weights for which a given dot is what packing proves; the limit of a lane is 128. */
static void weights_for(dot_kind dot, rng *r, int8_t *b, int64_t count)
{
    static const int most[DOT_COUNT] = { [DOT_W] = 127, [DOT_WS] = 127, [DOT_S] = 127, [DOT_T1] = 64, [DOT_T2] = 32, [DOT_T4] = 16 };
    for (int64_t i = 0; i < count; i++) b[i] = (int8_t)(rng_next(r) & 1 ? most[dot] : -most[dot]);
}

typedef struct simple { int64_t m, n, k; uint8_t *a; int8_t *b; int32_t *c, *want; octet_plan *p; octet_packed *packed; } simple;

static void simple_new(simple *s, int64_t m, int64_t n, int64_t k)
{
    *s = (simple){ .m = m, .n = n, .k = k };
    s->a = calloc(1, (size_t)(m * k + 1));
    s->b = calloc(1, (size_t)(n * k + 1));
    s->c = calloc(4, (size_t)(m * n + 1));
    s->want = calloc(4, (size_t)(m * n + 1));
}
static void simple_plan_blocked(simple *s, const octet_quant *q, blocking blocks)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    d.n = s->n;
    d.k = s->k;
    d.a = OCTET_U8;
    d.b = OCTET_S8;
    d.c = OCTET_S32;
    cr_assert_eq(plan_create(NULL, &d, blocks, false, false, &s->p), OCTET_OK, "%s", octet_why());
    cr_assert_eq(octet_pack(s->p, s->b, s->n, q, &s->packed), OCTET_OK, "%s", octet_why());
}
static void simple_plan(simple *s, const octet_quant *q) { simple_plan_blocked(s, q, (blocking){ 0 }); }
static bool simple_equal(simple *s)
{
    octet_gemm_args x = OCTET_GEMM_ARGS;
    x.m = s->m;
    x.a = s->a;
    x.lda = s->k;
    x.b = s->packed;
    x.c = s->c;
    x.ldc = s->n;
    cr_assert_eq(octet_run(s->p, &x), OCTET_OK, "%s", octet_why());
    const ref_gemm r = { .m = s->m, .n = s->n, .k = s->k, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .pa = s->a, .lda = s->k,
                         .pb = s->b, .ldb = s->n, .pc = s->want, .ldc = s->n };
    ref_run(&r);
    return !memcmp(s->c, s->want, (size_t)(s->m * s->n) * 4);
}
static void simple_free(simple *s)
{
    octet_packed_free(s->packed);
    octet_plan_free(s->p);
    free(s->a);
    free(s->b);
    free(s->c);
    free(s->want);
}

Test(gemm, every_family_is_reached_and_exact_at_its_limit)
{
    rng r = { 42 };
    if (!cpu_features()) cr_skip_test("no AVX2 on this machine");
    for (int dot = DOT_W; dot < DOT_F32; dot++)
        for (int64_t m = 1; m <= 26; m++) {
            simple s;
            simple_new(&s, m, 8 + m % 9, 96 + m % 5);
            weights_for((dot_kind)dot, &r, s.b, s.n * s.k);
            simple_plan(&s, NULL);
            if (dot >= DOT_T1) /* the proof must have found it */
                cr_assert_geq(blob_info(s.packed->blob, 0).dot[0], dot, "%s not chosen", dot_name(dot));
            /* A against B: 255 where column j is positive and 0 elsewhere, and the reverse */
            for (int64_t i = 0; i < m; i++)
                for (int64_t p = 0; p < s.k; p++) s.a[i * s.k + p] = (s.b[p * s.n + i % s.n] > 0) == (i & 1) ? 255 : 0;
            cr_assert(simple_equal(&s), "%s: m = %lld", dot_name(dot), (long long)m);
            simple_free(&s);
        }
}

/* What a one-call product does where there is no room for its kernels. */
Test(gemm, an_operand_without_kernels_is_computed_portably)
{
    rng r = { 77 };
    for (int64_t m = 1; m <= 12; m++) {
        simple s;
        simple_new(&s, m, 5 + m, 30 + 7 * m);
        for (int64_t i = 0; i < s.m * s.k; i++) s.a[i] = (uint8_t)rng_next(&r);
        for (int64_t i = 0; i < s.n * s.k; i++) s.b[i] = (int8_t)(m & 1 ? rng_next(&r) : (uint32_t)rng_below(&r, 20));
        simple_plan(&s, NULL);
        s.packed->portable = true;
        cr_assert(simple_equal(&s), "m = %lld", (long long)m);
        simple_free(&s);
    }
}

Test(gemm, saturating_pairs_are_exact)
{
    /* what a 16-bit sum of two products cannot hold: 255 * 127 * 2 and 255 * -128 * 2 */
    for (int sign = 0; sign < 2; sign++) {
        simple s;
        simple_new(&s, 5, 11, 40);
        memset(s.a, 255, (size_t)(s.m * s.k));
        memset(s.b, sign ? -128 : 127, (size_t)(s.n * s.k));
        simple_plan(&s, NULL);
        cr_assert(simple_equal(&s));
        cr_assert_eq(s.c[0], 255 * (sign ? -128 : 127) * 40);
        simple_free(&s);
    }
}

/* Weights that break lanes here and there, so that residuals exist; A chosen against what was packed. */
Test(gemm, residuals_are_exact_against_adversarial_a)
{
    int with_residual = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        rng r = { seed };
        simple s;
        simple_new(&s, 1 + rng_below(&r, seed % 3 ? 30 : 90), 1 + rng_below(&r, 60), 200 + rng_below(&r, 900));
        for (int64_t i = 0; i < s.n * s.k; i++)
            s.b[i] = (int8_t)(rng_below(&r, 100) < 2 ? (rng_next(&r) & 1 ? 127 : -128) : (int)rng_below(&r, 41) - 20);
        simple_plan_blocked(&s, NULL, (blocking){ .kc = seed % 2 ? 64 : 0, .mc = seed % 5 ? 0 : 9 });
        with_residual += s.packed->blob->residual_quads > 0;
        for (int64_t i = 0; i < s.m; i++) {
            const int64_t j = rng_below(&r, s.n);
            for (int64_t p = 0; p < s.k; p++)
                s.a[i * s.k + p] = seed % 3 == 0 ? (uint8_t)rng_below(&r, 128) : (s.b[p * s.n + j] > 0) == (i & 1) ? 255 : 0;
        }
        cr_assert(simple_equal(&s), "seed %llu: %s", (unsigned long long)seed, octet_explain(s.p, s.packed));
        int8_t *back = calloc(1, (size_t)(s.n * s.k));
        cr_assert_eq(octet_unpack(s.packed, 0, back, s.n), OCTET_OK);
        cr_assert_arr_eq(back, s.b, (size_t)(s.n * s.k));
        free(back);
        simple_free(&s);
    }
    if (cpu_features()) cr_assert_gt(with_residual, 20, "the data made no residuals: %d", with_residual);
}

Test(gemm, the_proof_holds_lane_by_lane)
{
    if (!cpu_features()) cr_skip_test("no AVX2 on this machine");
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rng r = { seed * 31 };
        simple s;
        simple_new(&s, 1, 8 * (1 + rng_below(&r, 3)), 16 + rng_below(&r, 300));
        for (int64_t i = 0; i < s.n * s.k; i++) s.b[i] = (int8_t)((int)rng_below(&r, 81) - 40 + (rng_below(&r, 60) ? 0 : 80));
        simple_plan(&s, NULL);
        const blob *b = s.packed->blob;
        for (int64_t p = 0; p < blob_panels(b); p++)
            for (int level = 0; level < AMAX_LEVELS; level++) {
                const int t = dot_quads((dot_kind)blob_info(b, p).dot[level]), limit = 32767 / amax_level[level];
                for (int64_t q = 0; t && q < b->k / 4; q++) {
                    const int64_t group = q / t * t, end = group + t <= b->k / 4 ? group + t : q + 1, begin = group + t <= b->k / 4 ? group : q;
                    for (int lane = 0; lane < 16; lane++) {
                        int pos = 0, neg = 0;
                        for (int64_t u = begin; u < end; u++)
                            for (int h = 0; h < 2; h++) {
                                const int v = blob_panel(b, p)[32 * u + 2 * lane + h];
                                pos += v > 0 ? v : 0;
                                neg -= v < 0 ? v : 0;
                            }
                        cr_assert(pos <= limit && neg <= limit, "panel %lld quad %lld lane %d: %d %d", (long long)p, (long long)q, lane, pos, neg);
                    }
                }
            }
        for (uint32_t q = 0; q < b->residual_quads; q++) /* and in the residual, two by two */
            for (int lane = 0; lane < 16; lane++) {
                const int x = blob_res_w(b)[32 * q + 2 * (uint32_t)lane], y = blob_res_w(b)[32 * q + 2 * (uint32_t)lane + 1];
                const int pos = (x > 0 ? x : 0) + (y > 0 ? y : 0), neg = (x < 0 ? -x : 0) + (y < 0 ? -y : 0);
                cr_assert(pos <= 128 && neg <= 128, "residual quad %u lane %d: %d %d", q, lane, x, y);
            }
        simple_free(&s);
    }
}

Test(gemm, sums_wrap_at_large_k_as_documented)
{
    for (int64_t k = 65792; k <= 65800; k += 2) {
        simple s;
        simple_new(&s, 2, 3, k);
        memset(s.a, 255, (size_t)(s.m * s.k));
        memset(s.b, -128, (size_t)(s.n * s.k));
        simple_plan(&s, NULL);
        cr_assert(simple_equal(&s));
        cr_assert_eq(s.c[0], (int32_t)(uint32_t)(UINT64_C(0) - 255 * 128 * (uint64_t)k));
        simple_free(&s);
    }
}

Test(gemm, packed_size_is_within_its_bound)
{
    rng r = { 5 };
    for (int i = 0; i < 400; i++) {
        simple s;
        simple_new(&s, 1, 1 + rng_below(&r, 300), rng_below(&r, i % 2 ? 40 : 700));
        for (int64_t j = 0; j < s.n * s.k; j++) s.b[j] = (int8_t)(i % 3 ? rng_next(&r) : (uint32_t)rng_below(&r, 90));
        float *scales = calloc(4, (size_t)s.n);
        octet_quant q = OCTET_QUANT;
        q.scales = scales;
        simple_plan(&s, &q);
        size_t bytes;
        octet_packed_data(s.packed, &bytes);
        cr_assert_leq((double)bytes, 1.15 * (double)(s.k * s.n) + 8 * (double)s.n + 4096, "n %lld k %lld: %zu", (long long)s.n, (long long)s.k, bytes);
        free(scales);
        simple_free(&s);
    }
}

Test(gemm, strides_past_2_31)
{
    /* two rows of A and C, and two columns' weights, 2^31 + 64 elements apart, in address space that is never touched between */
    const int64_t far = (INT64_C(1) << 31) + 64;
    guarded a = guard_new((size_t)far + 64, 1, true), b = guard_new((size_t)far + 40, 1, true), c = guard_new((size_t)far + 2, 1, true);
    octet_gemm_desc d = OCTET_GEMM_DESC;
    d.n = 2;
    d.k = 40;
    d.a = OCTET_U8;
    d.b = OCTET_S8;
    d.c = OCTET_U8;
    d.trans_b = 1;
    octet_plan *p;
    octet_packed *packed;
    for (int i = 0; i < 40; i++) {
        ((uint8_t *)a.p)[i] = (uint8_t)i;
        ((uint8_t *)a.p)[far + i] = 1;
        ((int8_t *)b.p)[i] = 1;
        ((int8_t *)b.p)[far + i] = (int8_t)(i & 1);
    }
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK);
    cr_assert_eq(octet_pack(p, b.p, far, NULL, &packed), OCTET_OK, "%s", octet_why());
    octet_gemm_args x = OCTET_GEMM_ARGS;
    x.m = 2;
    x.a = a.p;
    x.lda = far;
    x.b = packed;
    x.c = c.p;
    x.ldc = far;
    x.scale_c = 10;
    cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
    const uint8_t *out = c.p;
    cr_assert(out[0] == 78 && out[1] == 40 && out[far] == 4 && out[far + 1] == 2, "%d %d %d %d", out[0], out[1], out[far], out[far + 1]);
    octet_packed_free(packed);
    octet_plan_free(p);
    guard_free(&a);
    guard_free(&b);
    guard_free(&c);
}

Test(gemm, one_call_products_equal_the_reference)
{
    for (uint64_t seed = 1; seed <= 800; seed++) {
        rng r = { seed * 101 };
        const int64_t m = rng_below(&r, 30), n = rng_below(&r, 60), k = rng_below(&r, 120);
        const int ta = (int)rng_below(&r, 2), tb = (int)rng_below(&r, 2), kind = (int)rng_below(&r, 6);
        const int64_t lda = (ta ? m : k) + rng_below(&r, 3), ldb = (tb ? k : n) + rng_below(&r, 3), ldc = n + rng_below(&r, 3);
        uint8_t *a = calloc(1, (size_t)((ta ? k : m) * lda + 1));
        int8_t *b = calloc(1, (size_t)((tb ? n : k) * ldb + 1));
        int32_t *c = calloc(4, (size_t)(m * ldc + 1)), *want = calloc(4, (size_t)(m * ldc + 1)), *bias = calloc(4, (size_t)n + 1);
        float *scales = calloc(4, (size_t)n + 1);
        for (int64_t i = 0; i < (ta ? k : m) * lda; i++) a[i] = (uint8_t)rng_next(&r);
        for (int64_t i = 0; i < (tb ? n : k) * ldb; i++) b[i] = (int8_t)rng_next(&r);
        for (int64_t j = 0; j < n; j++) { bias[j] = (int32_t)rng_below(&r, 999); scales[j] = 0.001f * (float)(1 + rng_below(&r, 9)); }
        octet_requant q = OCTET_REQUANT;
        if (seed & 1) q.scales = scales;
        else q.scale = 0.004f;
        if (seed & 2) q.bias = bias;
        q.relu = (int)(seed >> 2 & 1);
        q.zero_a = 3;
        q.zero_b = seed % 5 == 0 ? -7 : 0;
        q.zero_c = kind == 2 || kind == 3 ? -4 : 0;
        ref_gemm g = { .m = m, .n = n, .k = k, .a = kind == 0 || kind == 2 || kind == 4 ? OCTET_U8 : OCTET_S8, .b = OCTET_S8, .pa = a, .lda = lda,
                       .trans_a = ta, .pb = b, .ldb = ldb, .trans_b = tb, .pc = want, .ldc = ldc, .zero_a = 3, .zero_b = q.zero_b,
                       .zero_c = q.zero_c, .scale_b = q.scale, .scale_b_cols = q.scales, .bias = q.bias, .bias_type = OCTET_S32,
                       .flags = q.relu ? OCTET_RELU : 0 };
        octet_status st = OCTET_OK;
        if (kind == 2) q.zero_c = g.zero_c = 4;
        switch (kind) {
        case 0: g.c = OCTET_S32; st = octet_gemm_u8s8s32(ta, tb, m, n, k, a, lda, b, ldb, c, ldc); break;
        case 1: g.c = OCTET_S32; st = octet_gemm_s8s8s32(ta, tb, m, n, k, (int8_t *)a, lda, b, ldb, c, ldc); break;
        case 2: g.c = OCTET_U8; st = octet_gemm_u8s8u8(ta, tb, m, n, k, a, lda, b, ldb, (uint8_t *)c, ldc, &q); break;
        case 3: g.c = OCTET_S8; st = octet_gemm_s8s8s8(ta, tb, m, n, k, (int8_t *)a, lda, b, ldb, (int8_t *)c, ldc, &q); break;
        case 4: g.c = OCTET_F32; st = octet_gemm_u8s8f32(ta, tb, m, n, k, a, lda, b, ldb, (float *)c, ldc, &q); break;
        default: g.c = OCTET_F32; st = octet_gemm_s8s8f32(ta, tb, m, n, k, (int8_t *)a, lda, b, ldb, (float *)c, ldc, &q); break;
        }
        if (kind < 2) { g.zero_a = g.zero_b = 0; g.bias = NULL; g.flags = 0; }
        cr_assert_eq(st, OCTET_OK, "%s", octet_why());
        ref_run(&g);
        cr_assert(!memcmp(c, want, (size_t)(m * ldc) * 4), "seed %llu", (unsigned long long)seed);
        free(a); free(b); free(c); free(want); free(bias); free(scales);
    }
}

/* A plan's workspace: the caller's of any size, or none, gives the same answer. */
Test(gemm, any_workspace_gives_the_same_answer)
{
    for (uint64_t seed = 1; seed <= 120; seed++) {
        test_case c;
        case_new(&c, 3000000 + seed, -1, -1, 100 + (int64_t)seed * 20);
        const size_t bytes = seed % 4 == 0 ? 0 : seed % 4 == 1 ? 64 : seed % 4 == 2 ? 60 << 10 : 1 << 20;
        guarded w = guard_new(bytes, 64, true);
        c.x.workspace = w.p;
        c.x.workspace_bytes = bytes / 64 * 64;
        cr_assert_eq(case_run(&c, NULL, NULL), 0);
        guard_free(&w);
        case_free(&c);
    }
}

Test(gemm, a_run_generates_nothing)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        test_case c;
        octet_plan *p;
        octet_packed *b;
        octet_cache_stats before = OCTET_CACHE_STATS, after = OCTET_CACHE_STATS;
        case_new(&c, 4000000 + seed, -1, -1, -1);
        cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK);
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK);
        octet_cache_info(&before);
        c.x.b = b;
        cr_assert_eq(octet_run(p, &c.x), OCTET_OK);
        octet_cache_info(&after);
        cr_assert_eq(before.generated, after.generated);
        octet_packed_free(b);
        octet_plan_free(p);
        case_free(&c);
    }
}
