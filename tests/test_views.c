/* Panels gathered through views, tiles stored through destination lists: what tensor contraction,
 * Strassen and the checks will stand on. Against sums written out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "gemm.h"

static void *zeroed(int64_t bytes) { return calloc(1, (size_t)bytes + 8); }

static octet_plan *plan_of(int64_t n, int64_t k, octet_dtype a, octet_dtype c, blocking b)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_plan *p = NULL;
    d.n = n;
    d.k = k;
    d.a = a;
    d.b = OCTET_S8;
    d.c = c;
    cr_assert_eq(plan_create(NULL, &d, b, true, false, &p), OCTET_OK, "%s", octet_why());
    return p;
}

/* A random choice of distinct places for a x b elements, as a vector for each direction. */
static void scatter(rng *r, int64_t a, int64_t b, int64_t *row, int64_t *col)
{
    for (int64_t i = 0; i < a; i++) row[i] = i * 1000 + rng_below(r, 3);
    for (int64_t j = 0; j < b; j++) col[j] = j * 4 + 7 * (j % 2);
    for (int64_t i = a - 1; i > 0; i--) { /* any order */
        const int64_t j = rng_below(r, i + 1), t = row[i];
        row[i] = row[j];
        row[j] = t;
    }
}

enum { MOST = 30, SPACE = 40000 };

Test(views, offset_vectors_on_every_side)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng draws = { seed * 977 }, *r = &draws;
        const int64_t m = rng_below(r, MOST), n = rng_below(r, MOST), k = rng_below(r, 100);
        int64_t ar[MOST], ak[128], bc[MOST], bk[128], cr_[MOST], cc[MOST];
        int8_t *a = zeroed(SPACE), *b = zeroed(SPACE * 4);
        int32_t *c = zeroed(4 * SPACE), *want = zeroed(4 * SPACE);
        scatter(r, m, k, ar, ak);
        scatter(r, n, k, bc, bk);
        scatter(r, m, n, cr_, cc);
        for (int i = 0; i < SPACE; i++) a[i] = (int8_t)rng_next(r);
        for (int i = 0; i < SPACE; i++) b[i] = (int8_t)rng_next(r);
        for (int i = 0; i < SPACE; i++) c[i] = want[i] = 77;
        const blocking blocks = { .kc = 32, .mc = 1 + rng_below(r, 12), .panels = 1 + rng_below(r, 3) };
        octet_plan *p = plan_of(n, k, OCTET_S8, OCTET_S32, blocks);
        octet_packed *packed;
        const view bv = { b, 0, 0, bc, bk }, av = { a, 0, 0, ar, ak };
        const source bs = { .type = OCTET_S8, .count = 1, .views = &bv };
        cr_assert_eq(pack_source(p, &bs, NULL, &packed), OCTET_OK);
        const dest out = { c, 0, 0, cr_, cc, 1 };
        gemm_problem g;
        memset(&g, 0, sizeof g);
        g.plan = p;
        g.b = packed;
        g.m = m;
        g.a = (source){ .type = OCTET_S8, .count = 1, .views = &av, .flip = 0x80 };
        g.dests = 1;
        g.dest = &out;
        for (int i = 0; i < 8; i++) g.fixed.zero_a_v[i] = 128;
        cpu_gemm(&g);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                int32_t s = 0;
                for (int64_t q = 0; q < k; q++) s += a[ar[i] + ak[q]] * b[bc[j] + bk[q]];
                want[cr_[i] + cc[j]] = s;
            }
        cr_assert(!memcmp(c, want, 4 * SPACE), "seed %llu", (unsigned long long)seed);
        octet_packed_free(packed);
        octet_plan_free(p);
        free(a); free(b); free(c); free(want);
    }
}

/* C_v += w_v (sum of a_u A_u) (sum of b_u B_u): one product of a fast algorithm. */
Test(views, weighted_sums_in_and_several_blocks_out)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng draws = { seed * 3571 }, *r = &draws;
        const int64_t m = rng_below(r, MOST), n = rng_below(r, MOST), k = rng_below(r, 100);
        const octet_dtype at = seed & 1 ? OCTET_U8 : OCTET_S8, ct = seed & 2 ? OCTET_S32 : OCTET_F32;
        static const int32_t aw[3] = { 1, -1, 1 }, bw[2] = { 1, -1 }, cw[2] = { 1, -1 };
        uint8_t *a = zeroed(3 * MOST * 128);
        int8_t *b = zeroed(2 * MOST * 128);
        int32_t *c = zeroed(2 * MOST * MOST * 4), *want = zeroed(2 * MOST * MOST * 4);
        for (int i = 0; i < 3 * MOST * 128; i++) a[i] = (uint8_t)rng_next(r);
        for (int i = 0; i < 2 * MOST * 128; i++) b[i] = (int8_t)((int)rng_below(r, 128) - 64);
        view av[3], bv[2];
        for (int v = 0; v < 3; v++) av[v] = (view){ a + v * MOST * 128, 128, 1, NULL, NULL };
        for (int v = 0; v < 2; v++) bv[v] = (view){ b + v * MOST * 128, 1, MOST, NULL, NULL };
        octet_plan *p = plan_of(n, k, at, ct, (blocking){ .kc = 32, .mc = 7 });
        octet_packed *packed;
        const source bs = { .type = OCTET_S8, .count = 2, .views = bv, .weights = bw };
        cr_assert_eq(pack_source(p, &bs, NULL, &packed), OCTET_OK, "%s", octet_why());
        const dest out[2] = { { c, MOST, 1, NULL, NULL, cw[0] }, { c + MOST * MOST, 1, MOST, NULL, NULL, cw[1] } };
        gemm_problem g;
        memset(&g, 0, sizeof g);
        g.plan = p;
        g.b = packed;
        g.m = m;
        g.a = (source){ .type = at, .count = 3, .views = av, .weights = aw };
        g.dests = 2;
        g.dest = out;
        for (int i = 0; i < 8; i++) g.fixed.scale_a_v[i] = 1;
        cpu_gemm(&g);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                int32_t s = 0;
                for (int64_t q = 0; q < k; q++) {
                    int32_t x = 0, y = 0;
                    for (int v = 0; v < 3; v++)
                        x += aw[v] * (at == OCTET_U8 ? a[v * MOST * 128 + i * 128 + q] : (int8_t)a[v * MOST * 128 + i * 128 + q]);
                    for (int v = 0; v < 2; v++) y += bw[v] * b[v * MOST * 128 + q * MOST + j];
                    s += x * y;
                }
                if (ct == OCTET_S32) {
                    want[i * MOST + j] = s;
                    want[MOST * MOST + j * MOST + i] = -s;
                } else {
                    ((float *)want)[i * MOST + j] = (float)s;
                    ((float *)want)[MOST * MOST + j * MOST + i] = (float)-s;
                }
            }
        cr_assert(!memcmp(c, want, 2 * MOST * MOST * 4), "seed %llu", (unsigned long long)seed);
        octet_packed_free(packed);
        octet_plan_free(p);
        free(a); free(b); free(c); free(want);
    }
}

Test(views, a_sum_of_weights_that_leaves_8_bits_is_refused)
{
    const int8_t b[2] = { 100, 100 };
    static const int32_t w[2] = { 1, 1 };
    const view v[2] = { { b, 1, 1, NULL, NULL }, { b + 1, 1, 1, NULL, NULL } };
    const source s = { .type = OCTET_S8, .count = 2, .views = v, .weights = w };
    octet_plan *p = plan_of(1, 1, OCTET_U8, OCTET_S32, (blocking){ 0 });
    octet_packed *packed = NULL;
    cr_assert_eq(pack_source(p, &s, NULL, &packed), OCTET_EINVAL);
    cr_assert(strstr(octet_why(), "8 bits"));
    cr_assert_null(packed);
    octet_plan_free(p);
}
