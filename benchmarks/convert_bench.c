/* octet-bench convert: the array functions of quant.h, in cache and from memory, beside what reading alone costs. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "octet/quant.h"

enum { DIM = 128 };
typedef struct arrays { int64_t n; float *x, *y, *scales; uint8_t *q; int32_t *s; } arrays;

static void quantize(void *v) { arrays *a = v; octet_quantize(OCTET_U8, a->x, (size_t)a->n, 0.02f, 128, a->q); }
static void dequantize(void *v) { arrays *a = v; octet_dequantize(OCTET_U8, a->q, (size_t)a->n, 0.02f, 128, a->y); }
static void requantize(void *v) { arrays *a = v; octet_requantize(OCTET_U8, a->s, a->n / DIM, DIM, 0.001f, NULL, 5, a->q); }
static void requantize_columns(void *v) { arrays *a = v; octet_requantize(OCTET_U8, a->s, a->n / DIM, DIM, 0, a->scales, 5, a->q); }
static void requantize_fixed(void *v) { arrays *a = v; octet_requantize_fixed(OCTET_U8, a->s, a->n / DIM, DIM, 1 << 30, 40, NULL, NULL, 5, a->q); }
static void range(void *v) { arrays *a = v; float lo, hi; octet_range(a->x, (size_t)a->n, &lo, &hi); }
static void to_f16(void *v) { arrays *a = v; octet_from_f32(OCTET_F16, a->x, (size_t)a->n, a->q); }
static void from_f16(void *v) { arrays *a = v; octet_to_f32(OCTET_F16, a->q, (size_t)a->n, a->y); }
static void to_bf16(void *v) { arrays *a = v; octet_from_f32(OCTET_BF16, a->x, (size_t)a->n, a->q); }
static void from_bf16(void *v) { arrays *a = v; octet_to_f32(OCTET_BF16, a->q, (size_t)a->n, a->y); }
static void to_bf16_stochastic(void *v) { arrays *a = v; octet_from_f32_stochastic(OCTET_BF16, a->x, (size_t)a->n, 1, a->q); }
static void to_e4m3(void *v) { arrays *a = v; octet_from_f32(OCTET_E4M3, a->x, (size_t)a->n, a->q); }
static void from_e4m3(void *v) { arrays *a = v; octet_to_f32(OCTET_E4M3, a->q, (size_t)a->n, a->y); }
static void to_e5m2(void *v) { arrays *a = v; octet_from_f32(OCTET_E5M2, a->x, (size_t)a->n, a->q); }
static void rows8(void *v) { arrays *a = v; octet_rows_quantize(8, OCTET_ROWS_BEHIND, a->x, a->n / DIM, DIM, a->q); }
static void rows8_back(void *v) { arrays *a = v; octet_rows_dequantize(8, OCTET_ROWS_BEHIND, a->q, a->n / DIM, DIM, a->y); }
static void rows4(void *v) { arrays *a = v; octet_rows_quantize(4, OCTET_ROWS_BEHIND, a->x, a->n / DIM, DIM, a->q); }
static void rows4_back(void *v) { arrays *a = v; octet_rows_dequantize(4, OCTET_ROWS_BEHIND, a->q, a->n / DIM, DIM, a->y); }
static void rows2(void *v) { arrays *a = v; octet_rows_quantize(2, OCTET_ROWS_BEHIND, a->x, a->n / DIM, DIM, a->q); }
static void rows2_back(void *v) { arrays *a = v; octet_rows_dequantize(2, OCTET_ROWS_BEHIND, a->q, a->n / DIM, DIM, a->y); }
static void transpose4(void *v) { arrays *a = v; octet_transpose(a->x, a->n / DIM, DIM, DIM, 4, a->y, a->n / DIM); }
static void interleave(void *v) { arrays *a = v; octet_interleave_k(a->s, a->n / DIM, DIM, DIM, 1, a->q); }
static void copy(void *v) { arrays *a = v; memcpy(a->y, a->x, (size_t)a->n * 4); }

int convert_report(const options *o)
{
    /* bytes read and written for a value */
    static const struct { const char *name; call_fn f; double bytes; } jobs[] = {
        { "copy f32", copy, 8 }, { "range", range, 4 }, { "quantize u8", quantize, 5 }, { "dequantize u8", dequantize, 5 },
        { "requantize u8", requantize, 5 }, { "requantize, by column", requantize_columns, 5 }, { "requantize, fixed point", requantize_fixed, 5 },
        { "f32 to f16", to_f16, 6 }, { "f16 to f32", from_f16, 6 }, { "f32 to bf16", to_bf16, 6 }, { "bf16 to f32", from_bf16, 6 },
        { "f32 to bf16, stochastic", to_bf16_stochastic, 6 }, { "f32 to e4m3", to_e4m3, 5 }, { "e4m3 to f32", from_e4m3, 5 },
        { "f32 to e5m2", to_e5m2, 5 }, { "rows of 128, 8 bits", rows8, 5 }, { "  and back", rows8_back, 5 },
        { "rows of 128, 4 bits", rows4, 4.5 }, { "  and back", rows4_back, 4.5 }, { "rows of 128, 2 bits", rows2, 4.25 }, { "  and back", rows2_back, 4.25 },
        { "transpose, 4 bytes", transpose4, 8 }, { "interleave 4 k, bytes", interleave, 2 },
    };
    const int64_t sizes[2] = { 4096, 16 << 20 };
    rng r = { o->seed };
    arrays a = { sizes[1], NULL, NULL, NULL, NULL, NULL };
    a.x = aligned_alloc(64, (size_t)a.n * 4);
    a.y = aligned_alloc(64, (size_t)a.n * 4);
    a.s = aligned_alloc(64, (size_t)a.n * 4);
    a.q = aligned_alloc(64, (size_t)a.n * 4);
    a.scales = aligned_alloc(64, DIM * 4);
    if (!a.x || !a.y || !a.s || !a.q || !a.scales) return usage("no memory");
    for (int64_t i = 0; i < a.n; i++) {
        a.x[i] = (float)(rng_unit(&r) * 4 - 2);
        a.s[i] = (int32_t)(rng_u32(&r) >> 14) - 131072;
        a.y[i] = 0;
    }
    for (int j = 0; j < DIM; j++) a.scales[j] = 0.001f + (float)j * 1e-6f;
    octet_from_f32(OCTET_F16, a.x, (size_t)a.n, a.q);
    printf("%-28s %14s %14s %10s\n", "one thread", "in L1, G/s", "memory, G/s", "GB/s");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        double rate[2];
        for (int s = 0; s < 2; s++) {
            stats other;
            a.n = sizes[s];
            rate[s] = (double)a.n / sample(jobs[i].f, &a, NULL, NULL, o->seconds / 2, false, &other).median;
        }
        printf("%-28s %14.2f %14.2f %10.1f\n", jobs[i].name, rate[0], rate[1], rate[1] * jobs[i].bytes);
    }
    free(a.x); free(a.y); free(a.s); free(a.q); free(a.scales);
    return 0;
}
