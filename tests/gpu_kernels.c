/*
 * The GPU kernels against the definition, bit for bit: on the emulator, or with OCTET_TEST_GPU=real on the first device.
 * Floating sums are of small integers where tensor cores make them, so that they too are exact in any order. A plain program, so that
 * a machine with a GPU needs nothing else to run it; a name as argument runs that part alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "fake_cuda.h"
#include "gpu_case.h"
#include "ref.h"

#define CHECK(right, ...) \
    do { \
        if (!(right)) { \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            return 1; \
        } \
    } while (0)
#define WORKS(expression) CHECK((expression) == OCTET_OK, "%s", octet_why())

static int portable_any_product(octet_gpu *g)
{
    const int cases = gpu_is_real() ? 1500 : 150;
    int bad = 0;
    for (int i = 0; i < cases && bad < 3; i++) {
        any_case c;
        any_new(&c, 31000 + (uint64_t)i, -1, -1, -1);
        bad += gpu_run_case(&c, g, c.d.b == OCTET_S8 && c.d.a_as != OCTET_F32 ? "octet_portable_s32" : "octet_portable_f32");
        any_free(&c);
    }
    return bad;
}

/* Round tiles of 64, groups of 32, quads of 8 and nothing at all. */
static int portable_edges(octet_gpu *g)
{
    static const int64_t sizes[] = { 0, 1, 7, 8, 9, 31, 33, 63, 64, 65 };
    int bad = 0;
    for (int i = 0; i < 60; i++) {
        any_case c;
        any_new(&c, 32000 + (uint64_t)i, sizes[i % 10], sizes[(i * 7 + i / 10) % 10], sizes[(i * 3 + i / 7) % 10]);
        bad += gpu_run_case(&c, g, NULL);
        any_free(&c);
    }
    return bad;
}

/* The next case whose types are a kernel's: its operands met as the kernel takes them. */
static uint64_t next_for(const gpu_kernel_row *r, uint64_t seed, any_case *c, int64_t m, int64_t n, int64_t k)
{
    for (bool found = false; !found; seed++) { /* what is drawn does not depend on sizes that are given */
        any_new(c, seed, m < 0 ? m : 2, n < 0 ? n : 2, k < 0 ? k : 2);
        const gpu_problem p = gpu_problem_of(&c->d, c->x.m);
        found = p.a == r->a && p.b == r->b;
        any_free(c);
    }
    any_new(c, seed - 1, m, n, k);
    return seed;
}

static int hopper_any_product(octet_gpu *g)
{
    const int each = gpu_is_real() ? 60 : 4;
    int bad = 0;
    rng draws = { 5 };
    for (int i = GPU_FIRST_HOPPER; i < gpu_kernel_count; i++) {
        const gpu_kernel_row *r = &gpu_kernels[i];
        uint64_t seed = 40000 + 5000 * (uint64_t)i;
        if (!g->kernels[i]) continue;
        if (gpu_is_real()) fprintf(stderr, "%s\n", r->name); /* what hangs or faults is then known */
        for (int n = 0; n < each; n++) {
            any_case c;
            const bool large = n % 4 == 3;
            seed = next_for(r, seed, &c, large ? 100 + rng_below(&draws, 300) : -1, large ? 100 + rng_below(&draws, 500) : -1,
                            n % 4 == 2 ? 300 + rng_below(&draws, 700) : -1);
            gpu_make_exact(&c);
            bad += gpu_run_case(&c, g, r->name);
            any_free(&c);
        }
    }
    return bad;
}

static int hopper_edges(octet_gpu *g)
{
    static const struct { int64_t m, n, k; } edges[] = {
        { 1, 1, 1 }, { 0, 8, 8 }, { 8, 0, 8 }, { 3, 5, 0 }, { 127, 255, 64 }, { 129, 257, 129 }, { 64, 32, 1024 }, { 300, 34, 65 },
    };
    int bad = 0;
    for (int i = GPU_FIRST_HOPPER; i < gpu_kernel_count; i++) {
        if (!g->kernels[i]) continue;
        for (size_t e = (size_t)i % 2; e < COUNT(edges); e += gpu_is_real() ? 1 : 2) {
            any_case c;
            next_for(&gpu_kernels[i], 900000 + 100 * (uint64_t)i + e, &c, edges[e].m, edges[e].n, edges[e].k);
            gpu_make_exact(&c);
            bad += gpu_run_case(&c, g, gpu_kernels[i].name);
            any_free(&c);
        }
    }
    return bad;
}

/* s32 C, which any_case does not draw: full-range values, 255 x -128 among them, every zero point, accumulated. */
static int sums_as_they_are(octet_gpu *g)
{
    static const char *const kernels[] = { "octet_portable_s32", "octet_u8s8_128x256_c2", "octet_u8s8_64x256_turns" };
    enum { M = 70, N = 45, K = 200 };
    for (size_t v = 0; v < COUNT(kernels); v++) {
        rng r = { 11 + v };
        uint8_t *a = malloc(M * K);
        int8_t *b = malloc(K * N);
        int32_t *c = malloc(M * N * 4), *want = malloc(M * N * 4), bias[N], zeros[N];
        for (int i = 0; i < M * K; i++) a[i] = i % 3 ? 255 : (uint8_t)rng_next(&r);
        for (int i = 0; i < K * N; i++) b[i] = i % 2 ? -128 : (int8_t)rng_next(&r);
        for (int j = 0; j < N; j++) bias[j] = (int32_t)rng_next(&r), zeros[j] = (int32_t)rng_below(&r, 256) - 128;
        for (int i = 0; i < M * N; i++) {
            c[i] = (int32_t)rng_next(&r);
            uint32_t sum = (uint32_t)c[i] + (uint32_t)bias[i % N];
            for (int k = 0; k < K; k++) sum += (uint32_t)((a[i / N * K + k] - 77) * (b[k * N + i % N] - zeros[i % N]));
            want[i] = (int32_t)sum;
        }
        gpu_memory da = gpu_put(a, M * K, true), db = gpu_put(b, K * N, true), dc = gpu_put(c, M * N * 4, true), dbias = gpu_put(bias, sizeof bias, true),
                   dzeros = gpu_put(zeros, sizeof zeros, true), dw;
        octet_gemm_desc d = OCTET_GEMM_DESC;
        octet_gemm_args x = OCTET_GEMM_ARGS;
        octet_quant q = OCTET_QUANT;
        octet_gpu_choice choice = OCTET_GPU_CHOICE;
        octet_plan *p;
        octet_packed *packed;
        d.n = N, d.k = K, d.a = OCTET_U8, d.b = OCTET_S8, d.c = OCTET_S32, d.flags = OCTET_ACCUMULATE, d.bias = OCTET_S32;
        x.m = M, x.a = da.p, x.lda = K, x.c = dc.p, x.ldc = N, x.bias = dbias.p, x.zero_a = 77;
        q.zeros = dzeros.p;
        choice.kernel = kernels[v];
        const octet_status st = octet_gpu_plan_gemm(g, &d, &choice, &p);
        if (st == OCTET_EUNSUPPORTED && gpu_is_real()) continue; /* another architecture */
        WORKS(st);
        WORKS(octet_gpu_pack(p, db.p, N, &q, NULL, &packed));
        x.b = packed;
        dw = gpu_put(NULL, octet_gpu_workspace_bytes(p, &x), false);
        WORKS(octet_gpu_run(p, &x, NULL, dw.p, dw.bytes));
        WORKS(octet_gpu_sync(g, NULL));
        gpu_get(c, &dc);
        CHECK(!memcmp(c, want, M * N * 4), "%s: wrong sums", kernels[v]);
        octet_packed_free(packed);
        octet_plan_free(p);
        gpu_memory *all[] = { &da, &db, &dc, &dbias, &dzeros, &dw };
        for (size_t i = 0; i < COUNT(all); i++) gpu_drop(all[i]);
        free(a), free(b), free(c), free(want);
    }
    return 0;
}

/* Real values: within the bound of octet/gpu.h of the sums in double precision. */
static int tensor_core_sums_within_bound(octet_gpu *g)
{
    enum { M = 40, N = 64, K = 520 };
    for (int v = 0; v < 2; v++) {
        const octet_dtype t = v ? OCTET_F16 : OCTET_BF16;
        rng r = { 21 + (uint64_t)v };
        uint16_t *a = malloc(M * K * 2), *b = malloc(K * N * 2);
        float *c = malloc(M * N * 4);
        for (int i = 0; i < M * K + K * N; i++) {
            const float y = (float)rng_below(&r, 2000001) * 1e-6f - 1.0f;
            (i < M * K ? a : b - M * K)[i] = t == OCTET_F16 ? ref_f32_to_f16(y) : ref_f32_to_bf16(y);
        }
        gpu_memory da = gpu_put(a, M * K * 2, false), db = gpu_put(b, K * N * 2, false), dc = gpu_put(NULL, M * N * 4, false);
        octet_gemm_desc d = OCTET_GEMM_DESC;
        octet_gemm_args x = OCTET_GEMM_ARGS;
        octet_gpu_choice choice = OCTET_GPU_CHOICE;
        octet_plan *p;
        octet_packed *packed;
        d.n = N, d.k = K, d.a = d.b = t, d.c = OCTET_F32;
        x.m = M, x.a = da.p, x.lda = K, x.c = dc.p, x.ldc = N;
        choice.kernel = v ? "octet_f16_128x128_turns_c2" : "octet_bf16_128x256";
        const octet_status st = octet_gpu_plan_gemm(g, &d, &choice, &p);
        if (st == OCTET_EUNSUPPORTED && gpu_is_real()) continue;
        WORKS(st);
        WORKS(octet_gpu_pack(p, db.p, N, NULL, NULL, &packed));
        x.b = packed;
        CHECK(octet_gpu_workspace_bytes(p, &x) == 0, "an aligned A wants workspace");
        WORKS(octet_gpu_run(p, &x, NULL, NULL, 0));
        WORKS(octet_gpu_sync(g, NULL));
        gpu_get(c, &dc);
        for (int i = 0; i < M * N; i++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                const uint16_t u = a[i / N * K + k], w = b[k * N + i % N];
                const double y = t == OCTET_F16 ? (double)ref_f16_to_f32(u) * ref_f16_to_f32(w) : (double)ref_bf16_to_f32(u) * ref_bf16_to_f32(w);
                sum += y;
                size += y < 0 ? -y : y;
            }
            const double off = (double)c[i] - sum;
            CHECK((off < 0 ? -off : off) <= K * 0x1p-22 * size, "element %d: %g, not %g", i, (double)c[i], sum);
        }
        octet_packed_free(packed);
        octet_plan_free(p);
        gpu_drop(&da), gpu_drop(&db), gpu_drop(&dc);
        free(a), free(b), free(c);
    }
    return 0;
}

/* Different runs of one plan give the same bits. */
static int again_the_same(octet_gpu *g)
{
    enum { M = 200, N = 300, K = 500 };
    static uint16_t c[2][M * N];
    rng r = { 3 };
    uint16_t *values = malloc((M + N) * K * 2);
    for (int i = 0; i < (M + N) * K; i++) values[i] = ref_f32_to_bf16((float)rng_below(&r, 2001) * 1e-3f - 1.0f);
    gpu_memory a = gpu_put(values, M * K * 2, false), b = gpu_put(values + M * K, N * K * 2, false), dc = gpu_put(NULL, M * N * 2, false);
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gemm_args x = OCTET_GEMM_ARGS;
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    octet_plan *p;
    octet_packed *packed;
    d.n = N, d.k = K, d.a = d.b = d.c = OCTET_BF16, d.trans_b = 1;
    choice.unseen = 1;
    WORKS(octet_gpu_plan_gemm(g, &d, &choice, &p));
    WORKS(octet_gpu_pack(p, b.p, K, NULL, NULL, &packed));
    x.m = M, x.a = a.p, x.lda = K, x.b = packed, x.c = dc.p, x.ldc = N;
    gpu_memory w = gpu_put(NULL, octet_gpu_workspace_bytes(p, &x), false);
    for (int turn = 0; turn < (gpu_is_real() ? 200 : 3); turn++) {
        WORKS(octet_gpu_run(p, &x, NULL, w.p, w.bytes));
        WORKS(octet_gpu_sync(g, NULL));
        gpu_get(c[turn > 0], &dc);
        CHECK(!memcmp(c[0], c[turn > 0], sizeof c[0]), "run %d gave other bits", turn);
    }
    octet_packed_free(packed);
    octet_plan_free(p);
    gpu_drop(&a), gpu_drop(&b), gpu_drop(&dc), gpu_drop(&w);
    free(values);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*run)(octet_gpu *); } parts[] = {
        { "portable_edges", portable_edges }, { "portable_any_product", portable_any_product }, { "hopper_edges", hopper_edges },
        { "hopper_any_product", hopper_any_product }, { "sums_as_they_are", sums_as_they_are },
        { "tensor_core_sums_within_bound", tensor_core_sums_within_bound }, { "again_the_same", again_the_same },
    };
    int passed = 0, failed = 0;
    octet_gpu *g = gpu_device();
    fake_cuda_state *s = gpu_replace_driver();
    if (!g) return 2;
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (argc > 1 && strcmp(argv[1], parts[i].name)) continue;
        const int bad = parts[i].run(g) || (s && s->violations);
        if (bad) fprintf(stderr, "%s: wrong\n", parts[i].name);
        passed += !bad;
        failed += bad;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
