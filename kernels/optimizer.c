#include "optimizer.h"

#include <math.h>

#include "format.h"
#include "octet/quant.h"
#include "quantize.h"
#include "vectors.h"

#if OCTET_X86
#include <immintrin.h>
#endif

optimizer optimizer_of(const octet_bag_update *a, const octet_bag_desc *d, const octet_bag_step *s, int64_t values, int64_t params)
{
    optimizer o = { .kind = a->optimizer, .table = d->table, .half = d->params == OCTET_F16, .values = values, .params = params, .dim = d->dim,
                    .lr = a->lr, .eps = a->eps, .beta1 = a->beta1, .beta2 = a->beta2, .decay = a->weight_decay, .stochastic = a->stochastic != 0,
                    .seed = a->seed, .state = s->state, .state2 = s->state2 };
    if (o.kind == OCTET_ADAM) {
        o.lr_now = (float)((double)o.lr / (1 - pow(o.beta1, (double)a->step)));
        o.correct2 = (float)(1 - pow(o.beta2, (double)a->step));
    }
    return o;
}

/* ---- loops: plain, and for AVX2 ---- */

LOOP void add(const float *g, int64_t n, float w, bool first, float *sum)
{
    if (first)
        for (int64_t j = 0; j < n; j++) sum[j] = w * g[j];
    else
        for (int64_t j = 0; j < n; j++) sum[j] = fmaf(w, g[j], sum[j]);
}

LOOP void decay(float *restrict g, const float *restrict x, int64_t n, float w)
{
    for (int64_t j = 0; j < n; j++) g[j] = fmaf(w, x[j], g[j]);
}

/* Eight chains, joined in pairs. */
LOOP float join(const float s[8]) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }
LOOP float squares(const float *g, int64_t n)
{
    float s[8] = { 0 };
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (int l = 0; l < 8; l++) s[l] = fmaf(g[j + l], g[j + l], s[l]);
    for (int l = 0; j + l < n; l++) s[l] = fmaf(g[j + l], g[j + l], s[l]);
    return join(s);
}

LOOP void descend(float *restrict x, const float *restrict g, int64_t n, float step)
{
    for (int64_t j = 0; j < n; j++) x[j] = fmaf(-step, g[j], x[j]);
}

LOOP void adagrad(float *restrict x, const float *restrict g, float *restrict h, int64_t n, float lr, float eps)
{
    for (int64_t j = 0; j < n; j++) {
        h[j] = fmaf(g[j], g[j], h[j]);
        x[j] = fmaf(-lr, g[j] / (sqrtf(h[j]) + eps), x[j]);
    }
}

LOOP void adam(float *restrict x, const float *restrict g, float *restrict m, float *restrict v, const optimizer *o)
{
    const float b1 = o->beta1, b2 = o->beta2, c1 = 1 - b1, c2 = 1 - b2, lr = o->lr_now, correct = o->correct2, eps = o->eps;
    const int64_t n = o->dim;
    for (int64_t j = 0; j < n; j++) {
        m[j] = fmaf(b1, m[j], c1 * g[j]);
        v[j] = fmaf(b2, v[j], (c2 * g[j]) * g[j]);
        x[j] = fmaf(-lr, m[j] / (sqrtf(v[j] / correct) + eps), x[j]);
    }
}

/* n rows, no two of them the same: what takes long for one row, its root and quotients, then overlaps. */
LOOP void steps(const optimizer *o, int n, const optimizer_row *r, float (*sum)(const float *, int64_t))
{
    const int64_t dim = o->dim;
    float step[OPTIMIZER_ROWS];
    for (int i = 0; o->decay != 0.0f && i < n; i++) decay(r[i].g, r[i].x, dim, o->decay);
    for (int i = 0; o->kind == OCTET_ADAGRAD_ROWS && i < n; i++) {
        float *h = o->state + r[i].number;
        *h = *h + sum(r[i].g, dim) / (float)dim;
        step[i] = o->lr / (sqrtf(*h) + o->eps);
    }
    for (int i = 0; i < n; i++) {
        float *state = o->state + r[i].number * dim;
        switch (o->kind) {
        case OCTET_SGD: descend(r[i].x, r[i].g, dim, o->lr); break;
        case OCTET_ADAGRAD_ROWS: descend(r[i].x, r[i].g, dim, step[i]); break;
        case OCTET_ADAGRAD: adagrad(r[i].x, r[i].g, state, dim, o->lr, o->eps); break;
        default: adam(r[i].x, r[i].g, state, o->state2 + r[i].number * dim, o); break;
        }
    }
}

#if OCTET_X86
/* The chains of squares(), which the compiler leaves scalar. */
FOR_AVX2 static float squares_avx2(const float *g, int64_t n)
{
    __m256 s = _mm256_setzero_ps();
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) s = _mm256_fmadd_ps(_mm256_loadu_ps(g + j), _mm256_loadu_ps(g + j), s);
    float v[8];
    _mm256_storeu_ps(v, s);
    for (int l = 0; j + l < n; l++) v[l] = fmaf(g[j + l], g[j + l], v[l]);
    return join(v);
}
#else
static float squares_avx2(const float *g, int64_t n) { return squares(g, n); }
#endif

FOR_AVX2 static void add_avx2(const float *g, int64_t n, float w, bool first, float *sum) { add(g, n, w, first, sum); }
FOR_AVX2 static void steps_avx2(const optimizer *o, int n, const optimizer_row *r) { steps(o, n, r, squares_avx2); }
static void          add_plain(const float *g, int64_t n, float w, bool first, float *sum) { add(g, n, w, first, sum); }
static float         squares_plain(const float *g, int64_t n) { return squares(g, n); }
static void          steps_plain(const optimizer *o, int n, const optimizer_row *r) { steps(o, n, r, squares_plain); }

void optimizer_add(const float *g, int64_t n, float weight, bool first, float *sum)
{
    (has_avx2() ? add_avx2 : add_plain)(g, n, weight, first, sum);
}

/* A seed for the draws of one row. */
static uint64_t row_seed(const optimizer *o, int64_t number)
{
    uint64_t h = (o->seed ^ (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15)) + UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 31) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 29;
}

void optimizer_steps(const optimizer *o, int n, optimizer_row *r, float *wide)
{
    void (*const to)(const optimizer *, int, const optimizer_row *) = has_avx2() ? steps_avx2 : steps_plain;
    if (o->table == OCTET_F32) {
        for (int i = 0; i < n; i++) r[i].x = (float *)(void *)r[i].row;
        to(o, n, r);
        return;
    }
    for (int i = 0; i < n; i++) {
        char *row = r[i].row;
        const uint32_t seed = (uint32_t)row_seed(o, r[i].number);
        r[i].x = wide;
        if (o->table == OCTET_U8) rows_get(8, o->half, (uint8_t *)row + o->values, (uint8_t *)row + o->params, o->dim, wide);
        else octet_to_f32(o->table, row, (size_t)o->dim, wide);
        to(o, 1, &r[i]);
        if (o->table == OCTET_U8) rows_put(8, o->half, wide, o->dim, o->stochastic ? &seed : NULL, (uint8_t *)row + o->values, (uint8_t *)row + o->params);
        else if (o->stochastic) octet_from_f32_stochastic(o->table, wide, (size_t)o->dim, row_seed(o, r[i].number), row);
        else octet_from_f32(o->table, wide, (size_t)o->dim, row);
    }
}

void optimizer_prefetch(const optimizer *o, int64_t number)
{
    if (o->kind == OCTET_SGD) return;
    if (o->kind == OCTET_ADAGRAD_ROWS) {
        __builtin_prefetch(o->state + number, 0, 2);
        return;
    }
    for (int64_t j = 0; j < min64(o->dim, 512); j += 16) {
        __builtin_prefetch(o->state + number * o->dim + j, 0, 2);
        if (o->kind == OCTET_ADAM) __builtin_prefetch(o->state2 + number * o->dim + j, 0, 2);
    }
}
