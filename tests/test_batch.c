/* Many products in one call: the same bits as one by one, whatever the threads; and the calls' own promises. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "any_case.h"
#include "gemm.h"

static octet_ctx *context(int threads)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx = NULL;
    o.threads = threads;
    if (octet_ctx_create(&o, &ctx)) octet_ctx_create(NULL, &ctx);
    return ctx;
}

static size_t bytes_of(octet_dtype t) { return (size_t)any_bits(t) / 8; }

Test(batch, strided_and_by_pointers_equal_single_runs)
{
    enum { COUNT_ = 5 };
    octet_ctx *ctxs[2] = { context(1), context(3) };
    for (uint64_t seed = 1; seed <= 300; seed++) {
        any_case c;
        any_new(&c, 7000000 + seed, -1, -1, -1);
        octet_plan *p;
        octet_packed *b[COUNT_];
        cr_assert_eq(octet_plan_gemm(ctxs[seed & 1], &c.d, &p), OCTET_OK, "%s", octet_why());
        rng r = { seed };
        uint8_t *weights = malloc(c.b.bytes + 1);
        for (int i = 0; i < COUNT_; i++) {
            memcpy(weights, c.b.p, c.b.bytes);
            if (i && c.b.bytes) weights[rng_below(&r, (int64_t)c.b.bytes)] ^= 1; /* each its own B */
            cr_assert_eq(octet_pack(p, weights, c.ldb, &c.q, &b[i]), OCTET_OK, "%s", octet_why());
        }
        free(weights);
        const size_t sa = c.a.bytes + 64, sc = c.c.bytes + 64; /* multiples of every element */
        const size_t step_a = (sa + 63) / 64 * 64, step_c = (sc + 63) / 64 * 64;
        char *a = calloc(COUNT_, step_a), *out = calloc(COUNT_, step_c), *want = calloc(COUNT_, step_c);
        const void *as[COUNT_];
        void *cs[COUNT_];
        for (int i = 0; i < COUNT_; i++) {
            memcpy(a + (size_t)i * step_a, c.a.p, c.a.bytes);
            memcpy(out + (size_t)i * step_c, c.c.p, c.c.bytes);
            if (i && c.a.bytes) memset(a + (size_t)i * step_a, i, bytes_of(c.d.a));
            memcpy(want + (size_t)i * step_c, c.c.p, c.c.bytes);
            octet_gemm_args x = c.x;
            x.a = as[i] = a + (size_t)i * step_a;
            x.c = want + (size_t)i * step_c;
            cs[i] = out + (size_t)i * step_c;
            x.b = b[i];
            cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
        }
        octet_batch w = OCTET_BATCH;
        w.count = COUNT_;
        w.b = (const octet_packed *const *)b;
        octet_gemm_args x = c.x;
        if (seed % 3 == 0) {
            w.a = as;
            w.c = cs;
        } else {
            w.stride_a = (int64_t)(step_a / bytes_of(c.d.a));
            w.stride_c = (int64_t)(step_c / bytes_of(c.d.c));
            x.a = a;
            x.c = out;
        }
        cr_assert_eq(octet_run_batch(p, &x, &w), OCTET_OK, "%s", octet_why());
        cr_assert(!memcmp(out, want, COUNT_ * step_c), "seed %llu", (unsigned long long)seed);
        for (int i = 0; i < COUNT_; i++) octet_packed_free(b[i]);
        octet_plan_free(p);
        free(a); free(out); free(want);
        any_free(&c);
    }
    octet_ctx_free(ctxs[0]);
    octet_ctx_free(ctxs[1]);
}

/* A mixture of experts whose experts are all the same is one product. */
Test(batch, experts_by_offsets_equal_one_run)
{
    octet_ctx *ctxs[2] = { context(1), context(3) };
    for (uint64_t seed = 1; seed <= 300; seed++) {
        any_case c;
        any_new(&c, 8000000 + seed, 1 + (int64_t)(seed % 50), -1, -1);
        if ((c.d.flags & OCTET_DYNAMIC) && c.d.scale_a == OCTET_PER_TENSOR) { any_free(&c); continue; } /* each expert has its own range */
        octet_plan *p;
        octet_packed *b;
        cr_assert_eq(octet_plan_gemm(ctxs[seed & 1], &c.d, &p), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK, "%s", octet_why());
        const int64_t m = c.x.m, offsets[5] = { 0, m / 5, m / 5, m / 2, m };
        octet_batch w = OCTET_BATCH;
        w.count = 4;
        w.m_offsets = offsets;
        c.x.b = b;
        cr_assert_eq(octet_run_batch(p, &c.x, &w), OCTET_OK, "%s", octet_why());
        cr_assert_eq(any_check(&c, "experts"), 0);
        octet_packed_free(b);
        octet_plan_free(p);
        any_free(&c);
    }
    octet_ctx_free(ctxs[0]);
    octet_ctx_free(ctxs[1]);
}

Test(batch, a_group_of_anything_equals_the_definition)
{
    enum { N = 40 };
    for (int threads = 1; threads <= 3; threads += 2) {
        octet_ctx *ctx = context(threads);
        static any_case c[N];
        octet_gemm_item items[N];
        octet_plan *p[N];
        octet_packed *b[N];
        for (int i = 0; i < N; i++) {
            any_new(&c[i], 9000000 + (uint64_t)(threads * 100 + i), -1, -1, -1);
            cr_assert_eq(octet_plan_gemm(ctx, &c[i].d, &p[i]), OCTET_OK, "%s", octet_why());
            cr_assert_eq(octet_pack(p[i], c[i].b.p, c[i].ldb, &c[i].q, &b[i]), OCTET_OK, "%s", octet_why());
            c[i].x.b = b[i];
            items[i] = (octet_gemm_item){ p[i], &c[i].x };
        }
        cr_assert_eq(octet_run_group(items, N), OCTET_OK, "%s", octet_why());
        for (int i = 0; i < N; i++) {
            cr_assert_eq(any_check(&c[i], "group"), 0);
            octet_packed_free(b[i]);
            octet_plan_free(p[i]);
            any_free(&c[i]);
        }
        octet_ctx_free(ctx);
    }
}

Test(batch, one_call_products_and_batches_of_f32)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        rng r = { seed * 7 + 1 };
        const int64_t m = rng_below(&r, 40), n = rng_below(&r, 70), k = rng_below(&r, seed % 9 ? 80 : 700), count = 3;
        const int ta = (int)rng_below(&r, 2), tb = (int)rng_below(&r, 2);
        const int64_t lda = (ta ? m : k) + rng_below(&r, 3), ldb = (tb ? k : n) + rng_below(&r, seed % 5 ? 3 : 2000), ldc = n + rng_below(&r, 3);
        const int64_t al = ta ? k : m, aw = ta ? m : k, bl = tb ? n : k, bw = tb ? k : n;
        guarded a[3], b[3], c[3];
        const float *as[3], *bs[3];
        float *cs[3];
        for (int i = 0; i < count; i++) {
            a[i] = guard_new((size_t)(al ? (al - 1) * lda + aw : 0) * 4, 4, i & 1);
            b[i] = guard_new((size_t)(bl ? (bl - 1) * ldb + bw : 0) * 4, 4, true);
            c[i] = guard_new((size_t)(m ? (m - 1) * ldc + n : 0) * 4, 4, true);
            as[i] = a[i].p, bs[i] = b[i].p, cs[i] = c[i].p;
            for (size_t j = 0; j < a[i].bytes / 4; j++) ((float *)a[i].p)[j] = (float)((int)rng_below(&r, 2001) - 1000) * 1e-3f;
            for (size_t j = 0; j < b[i].bytes / 4; j++) ((float *)b[i].p)[j] = (float)((int)rng_below(&r, 2001) - 1000) * 1e-3f;
        }
        const octet_status st = seed % 2 ? octet_gemm_f32_batch_pointers(ta, tb, m, n, k, as, lda, bs, ldb, cs, ldc, count)
                                         : octet_gemm_f32(ta, tb, m, n, k, as[0], lda, bs[0], ldb, cs[0], ldc);
        cr_assert_eq(st, OCTET_OK, "%s", octet_why());
        for (int s = 0; s < (seed % 2 ? count : 1); s++)
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    float want = 0;
                    for (int64_t q = 0; q < k; q++) want = fmaf(as[s][ta ? q * lda + i : i * lda + q], bs[s][tb ? j * ldb + q : q * ldb + j], want);
                    cr_assert(cs[s][i * ldc + j] == want, "seed %llu: %lld %lld", (unsigned long long)seed, (long long)i, (long long)j);
                }
        for (int i = 0; i < count; i++) { guard_free(&a[i]); guard_free(&b[i]); guard_free(&c[i]); }
    }
    /* strided, B the same for all */
    float a[6 * 4], b[4 * 3], c[2 * 9];
    for (int i = 0; i < 24; i++) a[i] = (float)i;
    for (int i = 0; i < 12; i++) b[i] = (float)(i - 5);
    cr_assert_eq(octet_gemm_f32_batch(0, 0, 3, 3, 4, a, 4, 12, b, 3, 0, c, 3, 9, 2), OCTET_OK, "%s", octet_why());
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                float want = 0;
                for (int q = 0; q < 4; q++) want += a[12 * s + 4 * i + q] * b[3 * q + j];
                cr_assert_eq(c[9 * s + 3 * i + j], want);
            }
}

Test(batch, one_call_half_and_dynamic_products)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        rng r = { seed * 13 + 5 };
        const int64_t m = 1 + rng_below(&r, 20), n = 1 + rng_below(&r, 40), k = 1 + rng_below(&r, 90);
        uint16_t *a = calloc(2, (size_t)(m * k)), *b = calloc(2, (size_t)(k * n)), *c = calloc(2, (size_t)(m * n));
        const bool bf = seed & 1;
        for (int64_t i = 0; i < m * k; i++) a[i] = (bf ? ref_f32_to_bf16 : ref_f32_to_f16)((float)((int)rng_below(&r, 201) - 100) * 0.01f);
        for (int64_t i = 0; i < k * n; i++) b[i] = (bf ? ref_f32_to_bf16 : ref_f32_to_f16)((float)((int)rng_below(&r, 201) - 100) * 0.01f);
        cr_assert_eq((bf ? octet_gemm_bf16 : octet_gemm_f16)(0, 0, m, n, k, a, k, b, n, c, n), OCTET_OK, "%s", octet_why());
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                float want = 0;
                for (int64_t q = 0; q < k; q++)
                    want = bf ? fmaf(ref_bf16_to_f32(a[i * k + q]), ref_bf16_to_f32(b[q * n + j]), want) : fmaf(ref_f16_to_f32(a[i * k + q]), ref_f16_to_f32(b[q * n + j]), want);
                cr_assert_eq(c[i * n + j], (bf ? ref_f32_to_bf16 : ref_f32_to_f16)(want));
            }
        free(a); free(b); free(c);
    }
    /* dynamic: the values that the grid holds come out exactly */
    const float a[2 * 2] = { 0, 255, 51, 0 };
    const int8_t b[2 * 2] = { 1, -2, 3, 4 };
    float c[4];
    octet_requant q = OCTET_REQUANT;
    q.scale = 0.5f;
    cr_assert_eq(octet_gemm_f32_dynamic(0, 0, 2, 2, 2, a, 2, b, 2, c, 2, &q), OCTET_OK, "%s", octet_why());
    cr_assert(c[0] == 382.5f && c[1] == 510.0f && fabsf(c[2] - 25.5f) < 1e-4f && fabsf(c[3] + 51.0f) < 1e-4f, "%g %g %g %g", (double)c[0], (double)c[1], (double)c[2], (double)c[3]);
}

#define REFUSED(call, words) do { \
        cr_expect_eq((call), OCTET_EINVAL, "%s", #call); \
        cr_expect(strstr(octet_why(), words), "%s: '%s' does not say '%s'", #call, octet_why(), words); \
    } while (0)

Test(batch, misuse_gets_a_sentence)
{
    any_case c;
    octet_plan *p;
    octet_packed *b;
    any_new(&c, 1, 4, 8, 8);
    c.d = (octet_gemm_desc)OCTET_GEMM_DESC;
    float a[64] = { 0 }, w[64] = { 0 }, out[64] = { 0 };
    c.d.n = c.d.k = 4, c.d.a = c.d.b = c.d.c = OCTET_F32;
    cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK);
    cr_assert_eq(octet_pack(p, w, 4, NULL, &b), OCTET_OK);
    octet_gemm_args x = OCTET_GEMM_ARGS;
    x.m = 2, x.a = a, x.lda = 4, x.b = b, x.c = out, x.ldc = 4;
    octet_batch v = OCTET_BATCH, bad;
    v.count = 2, v.stride_a = v.stride_c = 8;
    cr_assert_eq(octet_run_batch(p, &x, &v), OCTET_OK);
    REFUSED(octet_run_batch(NULL, &x, &v), "plan is NULL");
    REFUSED(octet_run_batch(p, NULL, &v), "args is NULL");
    REFUSED(octet_run_batch(p, &x, NULL), "batch is NULL");
    bad = v, bad.size = 3;
    REFUSED(octet_run_batch(p, &x, &bad), "OCTET_BATCH");
    bad = v, bad.count = -1;
    REFUSED(octet_run_batch(p, &x, &bad), "count is negative");
    bad = v, bad.stride_c = 0;
    REFUSED(octet_run_batch(p, &x, &bad), "stride_c");
    bad = v, bad.stride_a = INT64_MAX / 2;
    REFUSED(octet_run_batch(p, &x, &bad), "overflows");
    const int64_t falling[3] = { 0, 2, 1 }, negative[3] = { -1, 0, 1 };
    bad = v, bad.m_offsets = falling;
    REFUSED(octet_run_batch(p, &x, &bad), "m_offsets[2]");
    bad.m_offsets = negative;
    REFUSED(octet_run_batch(p, &x, &bad), "negative");
    const int64_t far[2] = { INT64_C(1) << 58, (INT64_C(1) << 58) + 1 }, late[2] = { 1, 2 };
    bad = v, bad.count = 1, bad.m_offsets = far;
    REFUSED(octet_run_batch(p, &x, &bad), "overflows");
    octet_gemm_args none = x;
    none.a = NULL;
    bad.m_offsets = late;
    REFUSED(octet_run_batch(p, &none, &bad), "a is NULL");
    none = x, none.sums = out, none.ld_sums = 4;
    REFUSED(octet_run_batch(p, &none, &v), "the same for all products");
    bad = v, bad.stride_a = INT64_MAX, bad.a = (const void *const[]){ a, a };
    cr_expect_eq(octet_run_batch(p, &x, &bad), OCTET_OK, "an unused stride was looked at");
    octet_gemm_desc warm[2] = { c.d, c.d };
    warm[1].a = warm[1].b = warm[1].c = OCTET_F16;
    cr_expect_eq(octet_warm(warm, sizeof *warm, 2), OCTET_OK, "%s", octet_why());
    const void *as[2] = { a, NULL };
    bad = v, bad.a = as;
    REFUSED(octet_run_batch(p, &x, &bad), "product 1: a is NULL");
    const octet_packed *bs[2] = { b, NULL };
    bad = v, bad.b = bs;
    REFUSED(octet_run_batch(p, &x, &bad), "product 1: b is NULL");
    v.count = 0;
    cr_assert_eq(octet_run_batch(p, &x, &v), OCTET_OK);

    octet_gemm_item items[2] = { { p, &x }, { NULL, &x } };
    REFUSED(octet_run_group(NULL, 1), "items is NULL");
    REFUSED(octet_run_group(items, 2), "item 1: plan is NULL");
    items[1] = (octet_gemm_item){ p, NULL };
    REFUSED(octet_run_group(items, 2), "item 1: args is NULL");
    octet_gemm_args y = x;
    y.lda = 1;
    items[1].args = &y;
    REFUSED(octet_run_group(items, 2), "item 1: lda");
    octet_ctx *other = context(1);
    octet_plan *q;
    cr_assert_eq(octet_plan_gemm(other, &c.d, &q), OCTET_OK);
    items[1] = (octet_gemm_item){ q, &x };
    REFUSED(octet_run_group(items, 2), "another context");
    octet_plan_free(q);
    octet_ctx_free(other);
    cr_assert_eq(octet_run_group(NULL, 0), OCTET_OK);

    REFUSED(octet_gemm_f32_batch(0, 0, 2, 2, 2, a, 2, 4, w, 2, 4, out, 2, 0, 2), "stride_c");
    REFUSED(octet_gemm_f32_batch(0, 0, 2, 2, 2, a, 2, 4, w, 2, 4, out, 2, 4, -2), "count");
    REFUSED(octet_gemm_f32_batch(0, 0, 2, 2, 2, a, 1, 4, w, 2, 4, out, 2, 4, 2), "lda");
    REFUSED(octet_gemm_f32_batch(0, 0, 2, 2, 2, a, 2, 4, w, 1, 4, out, 2, 4, 2), "ldb");
    REFUSED(octet_gemm_f32_batch_pointers(0, 0, 2, 2, 2, NULL, 2, NULL, 2, NULL, 2, 1), "a is NULL");
    REFUSED(octet_gemm_f32(0, 0, 2, 2, 2, a, 2, NULL, 2, out, 2), "b is NULL");
    REFUSED(octet_gemm_f32(0, 0, 2, 2, 2, a, 2, w, 2, a, 2), "overlaps");
    REFUSED(octet_gemm_f32(0, 0, 2, 2, 2, a, 2, w, 2, w + 1, 2), "c overlaps b");
    REFUSED(octet_gemm_f32_batch(0, 0, 2, 2, 2, a, 2, INT64_C(1) << 61, w, 2, 4, out, 2, 4, 2), "stride overflows");
    REFUSED(octet_run(p, &(octet_gemm_args){ .size = sizeof x, .m = 1, .a = a, .lda = 4, .b = b, .c = (void *)(uintptr_t)octet_packed_data(b, NULL), .ldc = 4 }), "packed b");
    octet_packed_free(b);
    octet_plan_free(p);
    any_free(&c);
}
