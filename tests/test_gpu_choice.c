/* What the GPU's host side decides by pure functions: layouts, the raster, descriptors, refusals, costs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

Test(gpu_choice, packed_rows_are_a_permutation)
{
    for (int gated = 0; gated < 2; gated++)
        for (int64_t n = 0; n < 200; n += 1 + gated) {
            const int64_t rows = gpu_packed_rows(n, gated);
            int seen = 0;
            cr_assert(rows % GPU_GROUP == 0 && rows >= n);
            for (int64_t j = 0; j < n; j++) {
                const int64_t row = gpu_packed_row(j, n, gated);
                cr_assert(row >= 0 && row < rows);
                cr_assert_eq(gpu_packed_column(row, n, gated), j);
            }
            for (int64_t row = 0; row < rows; row++) seen += gpu_packed_column(row, n, gated) >= 0;
            cr_assert_eq(seen, n);
        }
}

/* What the layout is for: in a tensor core's fragment a thread has eight neighbouring columns. */
Test(gpu_choice, a_thread_has_neighbours)
{
    for (int q = 0; q < 4; q++)
        for (int i = 0; i < 16; i += 4)
            for (int e = 0; e < 2; e++) {
                const int64_t column = 8 * (i / 4) + 2 * q + e; /* of element i + e of thread q */
                cr_assert_eq(gpu_packed_column(column, 32, false), 8 * q + i / 2 + e);
                cr_assert_eq(gpu_packed_column(column, 32, true), (i >= 8) * 16 + 4 * q + i % 8 / 2 + e);
            }
}

Test(gpu_choice, the_raster_visits_each_tile_once)
{
    for (int m = 1; m < 40; m += 3)
        for (int n = 1; n < 30; n += 2)
            for (int band = 1; band <= 16; band *= 2) {
                char *seen = calloc((size_t)(m * n), 1);
                for (int t = 0; t < m * n; t++) {
                    const gpu_tile at = gpu_tile_at(t, m, n, band);
                    cr_assert(at.m >= 0 && at.m < m && at.n >= 0 && at.n < n && !seen[at.m * n + at.n]++);
                }
                free(seen);
            }
}

Test(gpu_choice, descriptors_and_swizzle)
{
    /* address 0x12340, strides 16 and 1024 bytes, 128-byte swizzle: the bits of the PTX ISA's table */
    cr_assert_eq(gpu_descriptor(0x12340), UINT64_C(0x1234) | UINT64_C(1) << 16 | UINT64_C(64) << 32 | UINT64_C(1) << 62);
    cr_assert_eq(gpu_descriptor(0x400) + 2, gpu_descriptor(0x420)); /* a step of 32 bytes along k */
    char seen[8192 / 16] = { 0 };
    for (uint32_t a = 0; a < 8192; a += 16) {
        const uint32_t s = gpu_swizzle(a);
        cr_assert(gpu_swizzle(s) == a && s / 128 == a / 128 && !seen[s / 16]++);
    }
    for (int i = GPU_FIRST_HOPPER; i < gpu_kernel_count; i++) {
        const gpu_kernel_row *r = &gpu_kernels[i];
        cr_assert_leq(GPU_RING_BYTES(r->bm, r->bn, r->stages), GPU_SMEM, "%s", r->name);
    }
}

static octet_gpu_info h200(void)
{
    octet_gpu_info g = OCTET_GPU_INFO;
    g.major = 9, g.processors = 132, g.clock_khz = 1980000, g.l2_bytes = 60 << 20, g.shared_bytes = GPU_SMEM;
    return g;
}

static uint64_t candidates(const octet_gpu_info *g, const gpu_problem *p)
{
    uint64_t bits = 0;
    for (int i = 0; i < gpu_kernel_count; i++)
        if (!*gpu_refuses(&gpu_kernels[i], g, p, true)) bits |= UINT64_C(1) << i;
    return bits;
}

Test(gpu_choice, refusals_have_reasons)
{
    octet_gpu_info g = h200();
    const gpu_problem bf16 = { 512, 512, 512, OCTET_BF16, OCTET_BF16, false, false, false };
    const gpu_problem mixed = { 512, 512, 512, OCTET_F16, OCTET_BF16, false, false, false };
    const gpu_problem wide = { 512, INT64_C(1) << 31, 64, OCTET_BF16, OCTET_BF16, false, false, false };
    const gpu_kernel_row *hopper = NULL, *portable = &gpu_kernels[GPU_PORTABLE_F32];
    for (int i = GPU_FIRST_HOPPER; i < gpu_kernel_count && !hopper; i++)
        if (gpu_kernels[i].a == OCTET_BF16) hopper = &gpu_kernels[i];
    cr_assert_str_eq(gpu_refuses(hopper, &g, &bf16, true), "");
    cr_assert(hopper->seen || *gpu_refuses(hopper, &g, &bf16, false));
    cr_assert_str_eq(gpu_refuses(hopper, &g, &mixed, true), "other types");
    cr_assert_str_eq(gpu_refuses(hopper, &g, &wide, true), "a size past 2^31");
    cr_assert_str_eq(gpu_refuses(portable, &g, &wide, true), "");
    g.major = 8;
    cr_assert_str_eq(gpu_refuses(hopper, &g, &bf16, true), "needs the sm_90a architecture");
    cr_assert_str_eq(gpu_refuses(portable, &g, &bf16, true), "");
    g.major = 11;
    cr_assert(*gpu_refuses(portable, &g, &bf16, true));
    g.major = 9;
    cr_assert_eq(gpu_choose(candidates(&g, &mixed), &g, &mixed), GPU_PORTABLE_F32);
    gpu_problem only = mixed;
    only.no_portable = true;
    cr_assert_eq(gpu_choose(candidates(&g, &only), &g, &only), -1);
}

/* The model prefers what the ceilings say: large tiles and a cluster for large products, small tiles where a large one would leave
 * most of the device idle, never the portable kernel for a product of any size. */
Test(gpu_choice, costs_are_sensible)
{
    const octet_gpu_info g = h200();
    for (int64_t m = 512; m <= 8192; m *= 2) {
        const gpu_problem p = { m, 4096, 4096, OCTET_BF16, OCTET_BF16, false, false, false };
        const int best = gpu_choose(candidates(&g, &p), &g, &p);
        cr_assert_geq(best, GPU_FIRST_HOPPER);
        const gpu_kernel_row *r = &gpu_kernels[best];
        if (m >= 4096) cr_assert(r->cluster == 2 && r->bm * r->bn >= 128 * 128, "%s", r->name);
        double floor = (double)m * 4096 * 4096 / 132 / 2048; /* 4096 operations a clock and multiprocessor */
        cr_assert_geq(gpu_cost(r, &g, &p), floor);
        cr_assert_leq(gpu_cost(r, &g, &p), 2.2 * floor + 10000, "%s at m = %lld", r->name, (long long)m);
    }
    const gpu_problem few = { 128, 1024, 8192, OCTET_BF16, OCTET_BF16, false, false, false };
    const gpu_kernel_row *r = &gpu_kernels[gpu_choose(candidates(&g, &few), &g, &few)];
    cr_assert(r->bm * r->bn < 128 * 256, "%s", r->name);
    double before = 0; /* more work is never cheaper */
    for (int64_t k = 128; k <= 16384; k *= 2) {
        const gpu_problem p = { 4096, 4096, k, OCTET_U8, OCTET_S8, false, true, false };
        const int best = gpu_choose(candidates(&g, &p), &g, &p);
        cr_assert_geq(best, GPU_FIRST_HOPPER);
        const double cost = gpu_cost(&gpu_kernels[best], &g, &p);
        cr_assert_gt(cost, before);
        before = cost;
    }
}

/* A floating result may not depend on m: tensor cores, once they serve a plan, serve it at each m; sums of integers are the same anywhere. */
Test(gpu_choice, never_other_bits_by_m)
{
    const octet_gpu_info g = h200();
    for (int64_t k = 0; k < 40; k++)
        for (int64_t m = 1; m < 70000; m = m * 3 + 1) {
            const gpu_problem floats = { m, 4096, k, OCTET_F16, OCTET_F16, false, false, false };
            cr_assert_geq(gpu_choose(candidates(&g, &floats), &g, &floats), GPU_FIRST_HOPPER);
            const gpu_problem integers = { m, 4096, k, OCTET_U8, OCTET_S8, false, true, false };
            cr_assert_geq(gpu_choose(candidates(&g, &integers), &g, &integers), 0);
        }
}
