/* Problems and their data, drawn the same way for every peer; and the check of every result. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "octet/quant.h"

uint32_t rng_u32(rng *r) /* xorshift64* */
{
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return (uint32_t)(r->s * UINT64_C(0x2545f4914f6cdd1d) >> 32);
}
double rng_unit(rng *r) { return rng_u32(r) * 0x1p-32; }

static double normal(rng *r)
{
    return sqrt(-2.0 * log(rng_unit(r) + 0x1p-33)) * cos(6.283185307179586 * rng_unit(r));
}

static double student5(rng *r)
{
    double chi = 0;
    for (int i = 0; i < 5; i++) { const double x = normal(r); chi += x * x; }
    return normal(r) / sqrt(chi / 5);
}

static void *fresh(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p) memset(p, 0, (bytes + 127) / 64 * 64);
    return p;
}

static size_t bytes_of(octet_dtype t) { return t == OCTET_U8 || t == OCTET_S8 ? 1 : t == OCTET_F16 || t == OCTET_BF16 ? 2 : 4; }

bool problem_new(problem *p)
{
    const size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k;
    p->pa = fresh(m * k * bytes_of(p->a));
    p->pb = fresh(n * k);
    p->pc = fresh(m * n * 4);
    p->scales = fresh(n * 4);
    p->pbias = fresh(n * 4);
    p->fa = fresh(m * k * 4);
    p->fb = fresh(n * k * 4);
    p->fc = fresh(m * n * 4);
    return p->pa && p->pb && p->pc && p->scales && p->pbias && p->fa && p->fb && p->fc;
}

void problem_free(problem *p)
{
    void *all[] = { p->pa, p->pb, p->pc, p->scales, p->pbias, p->fa, p->fb, p->fc };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Real weights: a file of f32, repeated to size. */
static bool from_file(const char *path, float *w, size_t n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    size_t have = fread(w, 4, n, f);
    fclose(f);
    for (size_t i = have; have && i < n; i++) w[i] = w[i - have];
    return have > 0;
}

bool fill(problem *p, const char *data_a, const char *data_b, bool per_tensor, uint64_t seed)
{
    rng r = { seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
    const bool seven = !strcmp(data_a, "7bit");
    const size_t an = (size_t)(p->m * p->k), bn = (size_t)(p->n * p->k);
    if (!seven && strcmp(data_a, "uniform")) return false;
    for (size_t i = 0; i < an; i++) {
        const int v = (int)(rng_u32(&r) >> (seven ? 25 : 24));
        p->fa[i] = (float)v;
        if (p->a == OCTET_U8) ((uint8_t *)p->pa)[i] = (uint8_t)v;
        else if (p->a == OCTET_S8) ((int8_t *)p->pa)[i] = (int8_t)(v - (seven ? 64 : 128));
        else ((float *)p->pa)[i] = (float)v * 0.01f;
    }
    for (int64_t i = 0; !seven && p->k && i < p->m; i++) /* a row that could saturate */
        if (p->a == OCTET_U8) ((uint8_t *)p->pa)[i * p->k + rng_u32(&r) % p->k] = 255;

    const int top = !strcmp(data_b, "7bit") ? 63 : 127;
    if (!strcmp(data_b, "uniform")) {
        for (size_t i = 0; i < bn; i++) p->pb[i] = (int8_t)(rng_u32(&r) >> 24);
        for (int64_t j = 0; j < p->n; j++) p->scales[j] = 0.01f;
    } else {
        if (!strncmp(data_b, "file:", 5)) {
            if (!from_file(data_b + 5, p->fb, bn)) return false;
        } else if (!strcmp(data_b, "t5")) {
            for (size_t i = 0; i < bn; i++) p->fb[i] = (float)student5(&r);
        } else if (!strcmp(data_b, "gauss") || top == 63) { /* 7bit: gaussian weights in half the range */
            for (size_t i = 0; i < bn; i++) p->fb[i] = (float)normal(&r);
        } else {
            return false;
        }
        const int64_t length = per_tensor ? p->n * p->k : p->k;
        for (int64_t c = 0; c < (per_tensor ? 1 : p->n); c++) {
            float lo, hi;
            int32_t zero;
            octet_range(p->fb + c * length, (size_t)length, &lo, &hi);
            octet_choose_quant(lo, hi, -top, top, 1, &p->scales[c], &zero);
            octet_quantize(OCTET_S8, p->fb + c * length, (size_t)length, p->scales[c], 0, p->pb + c * length);
        }
        for (int64_t j = 1; per_tensor && j < p->n; j++) p->scales[j] = p->scales[0];
    }
    for (size_t i = 0; i < bn; i++) p->fb[i] = (float)p->pb[i];
    for (int64_t j = 0; j < p->n; j++) p->pbias[j] = (int32_t)(rng_u32(&r) % 2001) - 1000;
    p->scale_a = 0.02f;
    p->zero_a = p->a == OCTET_U8 && p->c != OCTET_S32 ? 3 : 0;
    p->zero_c = p->c == OCTET_U8 ? 5 : 0;
    p->scale_c = 0.02f * p->scales[0] * (float)sqrt((double)p->k + 1) * 40;
    return true;
}

static int32_t a_at(const problem *p, int64_t i, int64_t q)
{
    if (p->a == OCTET_U8) return ((const uint8_t *)p->pa)[i * p->k + q];
    if (p->a == OCTET_S8) return ((const int8_t *)p->pa)[i * p->k + q];
    const float x = ((const float *)p->pa)[i * p->k + q] * (1.0f / p->scale_a);
    const float y = rintf(x) + (float)p->zero_a;
    return y < 0 ? 0 : y > 255 ? 255 : (int32_t)y;
}

/* a: row i of A, zero point taken off. */
static bool right(const problem *p, const int32_t *a, int64_t i, int64_t j)
{
    const int8_t *b = p->pb + j * p->k;
    uint32_t raw = 0;
    for (int64_t q = 0; q < p->k; q++) raw += (uint32_t)(a[q] * b[q]);
    if (p->bias) raw += (uint32_t)p->pbias[j];
    if (p->c == OCTET_S32) {
        const int32_t v = (int32_t)raw < 0 && p->relu ? 0 : (int32_t)raw;
        return ((const int32_t *)p->pc)[i * p->n + j] == v;
    }
    float real = (float)(int32_t)raw * p->scales[j];
    real = real * p->scale_a;
    if (p->relu && real < 0) real = 0;
    if (p->c == OCTET_F32) return ((const float *)p->pc)[i * p->n + j] == real;
    const int lo = p->c == OCTET_U8 ? 0 : -128, hi = p->c == OCTET_U8 ? 255 : 127;
    const float q = rintf(real * (1.0f / p->scale_c)) + (float)p->zero_c;
    const int v = q < lo ? lo : q > hi ? hi : (int)q;
    return (p->c == OCTET_U8 ? ((const uint8_t *)p->pc)[i * p->n + j] : ((const int8_t *)p->pc)[i * p->n + j]) == v;
}

bool verify(const problem *p, int64_t rows, rng *r)
{
    int32_t *a = malloc(4 * (size_t)p->k + 4);
    bool ok = a != NULL;
    for (int64_t s = 0; ok && s < (p->m < rows ? p->m : rows); s++) {
        const int64_t i = p->m <= rows ? s : (int64_t)(rng_u32(r) % (uint64_t)p->m);
        for (int64_t q = 0; q < p->k; q++) a[q] = a_at(p, i, q) - p->zero_a;
        for (int64_t j = 0; ok && j < p->n; j++) ok = right(p, a, i, j);
    }
    free(a);
    return ok;
}
