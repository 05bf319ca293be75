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

size_t element_bytes(octet_dtype t) { return t == OCTET_U8 || t == OCTET_S8 ? 1 : t == OCTET_F16 || t == OCTET_BF16 ? 2 : 4; }

static bool nibbles(octet_dtype t) { return t == OCTET_S4 || t == OCTET_U4; }
size_t b_bytes(const problem *p) { return nibbles(p->b) ? (size_t)(p->n * (p->k + p->k % 2)) / 2 : (size_t)(p->n * p->k) * element_bytes(p->b); }

int64_t out_n(const problem *p)
{
    for (int i = 0; i < OCTET_OPS; i++)
        if (p->chain[i].kind >= OCTET_OP_SWIGLU) return p->n / 2;
    return p->n;
}

static bool is_float(octet_dtype t) { return t == OCTET_F32 || t == OCTET_F16 || t == OCTET_BF16; }
static int64_t groups_of(const problem *p) { return p->group && p->group < p->k ? (p->k + p->group - 1) / p->group : 1; }

bool problem_new(problem *p)
{
    const size_t m = (size_t)(p->m * p->count), n = (size_t)p->n, k = (size_t)p->k, nk = n * k * (size_t)p->count;
    p->floating = is_float(p->a) && (p->b != OCTET_S8 || p->weight_only);
    p->plain_f32 = p->a == OCTET_F32 && p->b == OCTET_F32 && p->c == OCTET_F32;
    if (nibbles(p->b) && !p->group) p->group = 32;
    p->pa = fresh(m * k * element_bytes(p->a));
    p->pb = fresh(b_bytes(p) * (size_t)p->count);
    p->pc = fresh(m * n * 4);
    p->scales = fresh(n * (size_t)groups_of(p) * 4);
    p->pbias = fresh(n * 4);
    p->fbias = fresh(n * 4);
    p->residual = fresh(m * n * 4);
    p->fa = fresh(m * k * 4);
    p->fb = fresh(nk * 4);
    p->fc = fresh(m * n * 4);
    return p->pa && p->pb && p->pc && p->scales && p->pbias && p->fbias && p->residual && p->fa && p->fb && p->fc;
}

void problem_free(problem *p)
{
    void *all[] = { p->pa, p->pb, p->pc, p->scales, p->pbias, p->fbias, p->residual, p->fa, p->fb, p->fc };
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

static void fill_integer_a(problem *p, size_t n, bool seven, rng *r)
{
    for (size_t i = 0; i < n; i++) {
        const int v = (int)(rng_u32(r) >> (seven ? 25 : 24));
        p->fa[i] = (float)v;
        if (p->a == OCTET_U8) ((uint8_t *)p->pa)[i] = (uint8_t)v;
        else if (p->a == OCTET_S8) ((int8_t *)p->pa)[i] = (int8_t)(v - (seven ? 64 : 128));
        else ((float *)p->pa)[i] = (float)v * 0.01f;
    }
    for (int64_t i = 0; !seven && p->k && i < p->m * p->count; i++) /* a row that could saturate */
        if (p->a == OCTET_U8) ((uint8_t *)p->pa)[i * p->k + rng_u32(r) % p->k] = 255;
}

static void to_type(octet_dtype t, float *x, size_t n, void *y)
{
    if (t == OCTET_F32) memcpy(y, x, n * 4);
    else {
        octet_from_f32(t, x, n, y);
        octet_to_f32(t, y, n, x); /* what is multiplied */
    }
}

/* 4 bits, symmetric in groups; u4 has its zero at 8. */
static void fill_nibbles(problem *p)
{
    const int64_t group = p->group && p->group < p->k ? p->group : p->k;
    memset(p->pb, 0, b_bytes(p) * (size_t)p->count);
    for (int64_t j = 0; j < p->n * p->count; j++)
        for (int64_t q0 = 0; q0 < p->k; q0 += group) {
            const int64_t end = q0 + group < p->k ? q0 + group : p->k, ld = p->k + p->k % 2;
            float most = 0;
            for (int64_t q = q0; q < end; q++) most = fabsf(p->fb[j * p->k + q]) > most ? fabsf(p->fb[j * p->k + q]) : most;
            float *scale = &p->scales[q0 / group * p->n + j % p->n]; /* a batch shares the first's scales */
            if (j < p->n) *scale = most > 0 ? most / 7 : 1;
            for (int64_t q = q0; q < end; q++) {
                int v = (int)rintf(p->fb[j * p->k + q] / *scale);
                v = v < -8 ? -8 : v > 7 ? 7 : v;
                p->fb[j * p->k + q] = *scale * (float)v;
                ((uint8_t *)p->pb)[(j * ld + q) / 2] |= (uint8_t)(((p->b == OCTET_U4 ? v + 8 : v) & 15) << (q % 2 ? 4 : 0));
            }
        }
}

bool fill(problem *p, const char *data_a, const char *data_b, bool per_tensor, uint64_t seed)
{
    rng r = { seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
    const bool seven = !strcmp(data_a, "7bit"), normal_a = p->floating || p->dynamic;
    const size_t an = (size_t)(p->m * p->k * p->count), bn = (size_t)(p->n * p->k * p->count);
    if (!seven && strcmp(data_a, "uniform")) return false;
    if (normal_a) {
        for (size_t i = 0; i < an; i++) p->fa[i] = (float)normal(&r);
        to_type(p->a, p->fa, an, p->pa);
    } else {
        fill_integer_a(p, an, seven, &r);
    }

    const int top = !strcmp(data_b, "7bit") ? 63 : 127;
    if (!strcmp(data_b, "uniform") && !p->floating) {
        for (size_t i = 0; i < bn; i++) p->pb[i] = (int8_t)(rng_u32(&r) >> 24);
        for (int64_t j = 0; j < p->n; j++) p->scales[j] = 0.01f;
    } else {
        if (!strncmp(data_b, "file:", 5)) {
            if (!from_file(data_b + 5, p->fb, bn)) return false;
        } else if (!strcmp(data_b, "t5")) {
            for (size_t i = 0; i < bn; i++) p->fb[i] = (float)student5(&r);
        } else if (!strcmp(data_b, "gauss") || top == 63 || p->floating) { /* 7bit: gaussian weights in half the range */
            for (size_t i = 0; i < bn; i++) p->fb[i] = (float)normal(&r);
        } else {
            return false;
        }
        const int64_t length = per_tensor ? p->n * p->k : p->k;
        for (int64_t c = 0; p->b == OCTET_S8 && c < (per_tensor ? 1 : p->n) * p->count; c++) {
            const int64_t column = per_tensor ? 0 : c % p->n;
            float lo, hi;
            int32_t zero;
            octet_range(p->fb + c * length, (size_t)length, &lo, &hi);
            if (c == column) octet_choose_quant(lo, hi, -top, top, 1, &p->scales[c], &zero);
            octet_quantize(OCTET_S8, p->fb + c * length, (size_t)length, p->scales[column], 0, p->pb + c * length);
        }
        for (int64_t j = 1; per_tensor && j < p->n; j++) p->scales[j] = p->scales[0];
    }
    if (p->b == OCTET_S8) {
        for (size_t i = 0; i < bn; i++) p->fb[i] = (float)p->pb[i] * (normal_a ? p->scales[i / (size_t)p->k % (size_t)p->n] : 1.0f);
    } else if (nibbles(p->b)) fill_nibbles(p);
    else to_type(p->b, p->fb, bn, p->pb);
    for (int64_t j = 0; j < p->n; j++) p->pbias[j] = (int32_t)(rng_u32(&r) % 2001) - 1000;
    for (int64_t j = 0; j < p->n; j++) p->fbias[j] = (float)normal(&r);
    for (int64_t j = 0; j < p->m * p->n * p->count; j++) p->residual[j] = (float)normal(&r);
    p->scale_a = 0.02f;
    p->zero_a = p->a == OCTET_U8 && p->c != OCTET_S32 ? 3 : 0;
    p->zero_c = p->c == OCTET_U8 ? 5 : 0;
    p->scale_c = 0.02f * p->scales[0] * (float)sqrt((double)p->k + 1) * 40;
    return true;
}

/* ---- checks ---- */

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
    const int8_t *b = p->pb + (i / p->m * p->n + j) * p->k;
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

/* Step by step in double precision. */
static double act(int op, double x)
{
    switch (op) {
    case OCTET_OP_GELU: case OCTET_OP_GEGLU: return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case OCTET_OP_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case OCTET_OP_SILU: case OCTET_OP_SWIGLU: return x / (1 + exp(-x));
    case OCTET_OP_SIGMOID: return 1 / (1 + exp(-x));
    case OCTET_OP_TANH: return tanh(x);
    default: return x;
    }
}

static double product(const problem *p, int64_t i, int64_t j, double *size)
{
    const float *a = p->fa + i * p->k, *b = p->fb + i / p->m * p->n * p->k + j * p->k;
    double sum = 0;
    *size = 0;
    for (int64_t q = 0; q < p->k; q++) {
        const double v = (double)a[q] * (double)b[q];
        sum += v;
        *size += fabs(v);
    }
    if (p->bias) sum += (double)p->fbias[j];
    return sum;
}

static double value_of_c(const problem *p, const void *c, int64_t at)
{
    float x;
    if (element_bytes(p->c) == 4) return (double)((const float *)c)[at];
    octet_to_f32(p->c, (const uint16_t *)c + at, 1, &x);
    return (double)x;
}

/* Within the bound of octet.h; the steps after the product have slopes of at most 1.2 or multiply by `up`. */
static bool float_right(const problem *p, const void *c, int64_t i, int64_t j)
{
    const double u = 0x1p-24, ku = (double)p->k * u;
    double size, up_size = 0, x = product(p, i, j, &size), slope = 1.2;
    double rel = 4e-6 * (p->chain[0].kind != 0) + 4 * u;
    if (p->c == OCTET_F16) rel += 0x1p-11;
    if (p->c == OCTET_BF16) rel += 0x1p-8;
    if (p->b == OCTET_S8 || nibbles(p->b)) rel += 3 * u, size *= 1 + 4 * (double)groups_of(p) / (double)p->k;
    double extra = 0;
    for (int s = 0; s < OCTET_OPS && p->chain[s].kind; s++) {
        const int op = p->chain[s].kind;
        if (op == OCTET_OP_ADD) x += (double)p->residual[i % p->m * p->n + j];
        else if (op >= OCTET_OP_SWIGLU) {
            const double up = product(p, i, p->n / 2 + j, &up_size), gate = act(op, x);
            extra = ku / (1 - ku) * up_size * fabs(gate);
            slope *= fabs(up);
            x = gate * up;
        } else x = act(op, x);
    }
    if (p->relu && x < 0) x = 0;
    const double bound = ku / (1 - ku) * size * slope + extra;
    return fabs(value_of_c(p, c, i * out_n(p) + j) - x) <= bound + rel * (fabs(x) + bound) + 1e-6 * (p->chain[0].kind != 0) + 0x1p-24;
}

/* The same quantization as the call finds: by row, or over all of A. */
static void dynamic_row(const problem *p, int64_t i, int32_t *a, float *scale)
{
    float lo, hi;
    int32_t zero;
    uint8_t *q = malloc((size_t)p->k + 1);
    octet_range(p->by_row ? p->fa + i * p->k : p->fa + i / p->m * p->m * p->k, (size_t)(p->by_row ? p->k : p->m * p->k), &lo, &hi);
    octet_choose_quant(lo, hi, 0, p->reduced ? 127 : 255, 0, scale, &zero);
    octet_quantize(OCTET_U8, p->fa + i * p->k, (size_t)p->k, *scale, zero, q);
    for (int64_t x = 0; x < p->k; x++) a[x] = (p->reduced && q[x] > 127 ? 127 : q[x]) - zero;
    free(q);
}

static bool dynamic_right(const problem *p, const void *c, const int32_t *a, float scale, int64_t i, int64_t j)
{
    const int8_t *b = p->pb + (i / p->m * p->n + j) * p->k;
    int32_t raw = 0;
    for (int64_t q = 0; q < p->k; q++) raw += a[q] * b[q];
    if (p->bias) raw += p->pbias[j];
    const double real = (double)raw * (double)p->scales[j] * (double)scale, x = p->relu && real < 0 ? 0 : real;
    const double rel = p->c == OCTET_F16 ? 0x1.1p-11 : p->c == OCTET_BF16 ? 0x1.1p-8 : 0x1p-22;
    return fabs(value_of_c(p, c, i * p->n + j) - x) <= rel * fabs(x) + 1e-30;
}

bool verify_peer(const problem *p, const void *c, int64_t rows, rng *r)
{
    int32_t *a = malloc(4 * (size_t)p->k + 4);
    const int64_t m = p->m * p->count;
    bool ok = a != NULL;
    problem of_c = *p;
    of_c.pc = (void *)(uintptr_t)c;
    for (int64_t s = 0; ok && s < (m < rows ? m : rows); s++) {
        const int64_t i = m <= rows ? s : (int64_t)(rng_u32(r) % (uint64_t)m);
        float scale = 1;
        if (p->dynamic) dynamic_row(p, i, a, &scale);
        else
            for (int64_t q = 0; !p->floating && q < p->k; q++) a[q] = a_at(p, i, q) - p->zero_a;
        for (int64_t j = 0; ok && j < out_n(p); j++)
            ok = p->floating ? float_right(p, c, i, j) : p->dynamic ? dynamic_right(p, c, a, scale, i, j) : right(&of_c, a, i, j);
    }
    free(a);
    return ok;
}

bool verify(const problem *p, int64_t rows, rng *r) { return verify_peer(p, p->pc, rows, r); }
