/*
 * DLRM (arXiv 1906.00091), a complete forward pass with random weights, in f32 and in int8:
 *
 *   dense [13] -> bottom MLP -> x0 [d]                       products with bias and ReLU
 *   26 categorical -> 26 bags, one call -> x1 .. x26 [d]     f32 tables; 8-bit rows with scale and bias
 *   interaction: X X^T of each sample, X = x0 .. x26, its strictly lower triangle [351]   a batch of small products
 *   x0, interaction [d + 351] -> top MLP -> sigmoid -> probability of a click
 *
 *   dlrm [kaggle|mlperf] [batch]     both models, batch 128, unless told
 *
 * The int8 model quantizes weights per output, activations by the row in the call (OCTET_DYNAMIC), tables row by row. It exits with 1
 * if a probability is further than 0.02 from that of f32.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "octet.h"
#include "octet/embedding.h"

enum { DENSE = 13, TABLES = 26, FEATURES = TABLES + 1, PAIRS = FEATURES * (FEATURES - 1) / 2, LAYERS = 6, RUNS = 41 };
enum { ROWS_MOST = 100000 }; /* of a table; the real ones of Criteo go to 10 million (Kaggle), 40 million (MLPerf) */
enum { STAGE_BOTTOM, STAGE_BAGS, STAGE_INTERACTION, STAGE_JOIN, STAGE_TOP, STAGES };
static const char *const stage_names[STAGES] = { "bottom MLP", "26 bags", "interaction", "triangle", "top MLP" };
static const double FURTHEST = 0.02;

/* Layers by width, 0 ends; rows of Criteo's categories, cut at ROWS_MOST. */
typedef struct config { const char *name; int d, bottom[LAYERS], top[LAYERS]; } config;
static const config configs[] = {
    { "kaggle", 16, { 512, 256, 64, 16 }, { 512, 256, 1 } },
    { "mlperf", 128, { 512, 256, 128 }, { 1024, 1024, 512, 256, 1 } },
};
static const int rows_of_table[TABLES] = { 1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
                                           27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572 };

typedef struct layer {
    int64_t       n, k;
    float        *w, *bias;   /* n x k, n */
    int8_t       *q;
    float        *scales;
    octet_plan   *plan[2];    /* f32, int8 */
    octet_packed *packed[2];
} layer;

typedef struct model {
    const config   *c;
    int64_t         batch, top_in;
    int             bottoms, tops;
    layer           bottom[LAYERS], top[LAYERS];
    float          *tables[TABLES];
    uint8_t        *rows8[TABLES];
    int64_t         rows[TABLES];
    int32_t        *indices[TABLES];
    int32_t        *offsets;              /* one index a bag */
    octet_bag_plan *bags[2];
    octet_bag_table bag[2][TABLES];
    float          *dense, *x, *z, *in;   /* 13; 27 x d; 27 x 27; d + 351 of each sample */
    float          *hidden[2];            /* between layers */
    float          *out[2];               /* probabilities  */
} model;

static void check(octet_status st)
{
    if (!st) return;
    fprintf(stderr, "dlrm: %s\n", octet_why());
    exit(1);
}

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) { fprintf(stderr, "dlrm: no memory\n"); exit(1); }
    return p;
}

static uint64_t state = 1;
static float uniform(void) /* -1 .. 1 */
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(state >> 32) * 0x1p-31f;
}
static float *random_floats(int64_t n, float scale)
{
    float *x = memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = scale * uniform();
    return x;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- building ---- */

static void layer_new(layer *l, int64_t n, int64_t k, bool last)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_quant scales = OCTET_QUANT;
    l->n = n;
    l->k = k;
    l->w = random_floats(n * k, sqrtf(6.0f / (float)(n + k)));
    l->bias = random_floats(n, 0.1f);
    l->q = memory((size_t)(n * k));
    l->scales = memory((size_t)n * sizeof(float));
    check(octet_quantize_channels(l->w, n, k, l->q, l->scales));
    d.n = n, d.k = k, d.a = d.b = d.c = d.bias = OCTET_F32, d.trans_b = 1;
    if (last) d.chain[0].kind = OCTET_OP_SIGMOID;
    else d.flags = OCTET_RELU;
    check(octet_plan_gemm(NULL, &d, &l->plan[0]));
    check(octet_pack(l->plan[0], l->w, k, NULL, &l->packed[0]));
    d.b = OCTET_S8, d.flags |= OCTET_DYNAMIC, d.scale_a = OCTET_PER_ROW;
    scales.scales = l->scales;
    check(octet_plan_gemm(NULL, &d, &l->plan[1]));
    check(octet_pack(l->plan[1], l->q, k, &scales, &l->packed[1]));
}

static int layers_new(layer *l, const int *widths, int64_t in, bool top)
{
    int n = 0;
    for (; n < LAYERS && widths[n]; in = widths[n++]) layer_new(&l[n], widths[n], in, top && widths[n] == 1);
    return n;
}

static void tables_new(model *m)
{
    const int64_t d = m->c->d;
    octet_bag_desc descs[2][TABLES];
    m->offsets = memory((size_t)(m->batch + 1) * sizeof *m->offsets);
    for (int64_t b = 0; b <= m->batch; b++) m->offsets[b] = (int32_t)b;
    for (int t = 0; t < TABLES; t++) {
        m->rows[t] = rows_of_table[t] < ROWS_MOST ? rows_of_table[t] : ROWS_MOST;
        m->tables[t] = random_floats(m->rows[t] * d, 1.0f / sqrtf((float)d));
        m->rows8[t] = memory((size_t)m->rows[t] * octet_rows_bytes(8, OCTET_ROWS_BEHIND, d));
        check(octet_rows_quantize(8, OCTET_ROWS_BEHIND, m->tables[t], m->rows[t], d, m->rows8[t]));
        m->indices[t] = memory((size_t)m->batch * sizeof(int32_t));
        for (int64_t b = 0; b < m->batch; b++) m->indices[t][b] = (int32_t)((uniform() * 0.5f + 0.5f) * (float)(m->rows[t] - 1));
        for (int p = 0; p < 2; p++) {
            octet_bag_desc *desc = &descs[p][t];
            octet_bag_table *x = &m->bag[p][t];
            *desc = (octet_bag_desc)OCTET_BAG_DESC;
            desc->table = p ? OCTET_U8 : OCTET_F32, desc->dim = d, desc->index = desc->offset = OCTET_S32, desc->flags = OCTET_BAG_LAST_OFFSET;
            *x = (octet_bag_table)OCTET_BAG_TABLE;
            x->table = p ? (void *)m->rows8[t] : (void *)m->tables[t];
            x->rows = m->rows[t], x->indices = m->indices[t], x->count = m->batch, x->offsets = m->offsets, x->bags = m->batch;
            x->out = m->x + (t + 1) * d; /* straight to its place in X */
            x->ld_out = FEATURES * d;
        }
    }
    for (int p = 0; p < 2; p++) check(octet_plan_bags(NULL, descs[p], sizeof descs[p][0], TABLES, &m->bags[p]));
}

static void model_new(model *m, const config *c, int64_t batch)
{
    int64_t widest = 0;
    memset(m, 0, sizeof *m);
    m->c = c;
    m->batch = batch;
    m->top_in = c->d + PAIRS;
    m->bottoms = layers_new(m->bottom, c->bottom, DENSE, false);
    m->tops = layers_new(m->top, c->top, m->top_in, true);
    for (int i = 0; i < LAYERS; i++) {
        if (m->bottom[i].n > widest) widest = m->bottom[i].n;
        if (m->top[i].n > widest) widest = m->top[i].n;
    }
    m->dense = random_floats(batch * DENSE, 1.0f);
    m->x = memory((size_t)(batch * FEATURES * c->d) * sizeof(float));
    m->z = memory((size_t)(batch * FEATURES * FEATURES) * sizeof(float));
    m->in = memory((size_t)(batch * m->top_in) * sizeof(float));
    for (int p = 0; p < 2; p++) {
        m->hidden[p] = memory((size_t)(batch * widest) * sizeof(float));
        m->out[p] = memory((size_t)batch * sizeof(float));
    }
    tables_new(m);
}

static void model_free(model *m)
{
    for (int i = 0; i < 2 * LAYERS; i++) {
        layer *l = i < LAYERS ? &m->bottom[i] : &m->top[i - LAYERS];
        free(l->w), free(l->bias), free(l->q), free(l->scales);
        for (int p = 0; p < 2; p++) octet_packed_free(l->packed[p]), octet_plan_free(l->plan[p]);
    }
    for (int t = 0; t < TABLES; t++) free(m->tables[t]), free(m->rows8[t]), free(m->indices[t]);
    for (int p = 0; p < 2; p++) octet_bag_plan_free(m->bags[p]), free(m->hidden[p]), free(m->out[p]);
    free(m->offsets), free(m->dense), free(m->x), free(m->z), free(m->in);
}

/* ---- the forward pass; p: 0 f32, 1 int8 ---- */

static void run_layers(const model *m, const layer *l, int count, int p, const float *in, int64_t ld, float *out, int64_t ld_out)
{
    for (int i = 0; i < count; i++) {
        octet_gemm_args x = OCTET_GEMM_ARGS;
        const bool last = i == count - 1;
        x.m = m->batch, x.a = in, x.lda = ld, x.b = l[i].packed[p], x.bias = l[i].bias;
        x.c = last ? out : m->hidden[i % 2];
        x.ldc = last ? ld_out : l[i].n;
        check(octet_run(l[i].plan[p], &x));
        in = x.c;
        ld = x.ldc;
    }
}

static void forward(model *m, int p, double us[STAGES])
{
    const int64_t d = m->c->d, wide = FEATURES * d;
    double t[STAGES + 1];
    t[STAGE_BOTTOM] = now_us();
    run_layers(m, m->bottom, m->bottoms, p, m->dense, DENSE, m->x, wide);
    t[STAGE_BAGS] = now_us();
    octet_bag_args bags = OCTET_BAG_ARGS;
    bags.tables = m->bag[p];
    check(octet_run_bags(m->bags[p], &bags));
    t[STAGE_INTERACTION] = now_us();
    check(octet_gemm_f32_batch(0, 1, FEATURES, FEATURES, d, m->x, d, wide, m->x, d, wide, m->z, FEATURES, FEATURES * FEATURES, m->batch));
    t[STAGE_JOIN] = now_us();
    for (int64_t b = 0; b < m->batch; b++) {
        float *in = m->in + b * m->top_in;
        const float *z = m->z + b * FEATURES * FEATURES;
        memcpy(in, m->x + b * wide, (size_t)d * sizeof *in);
        in += d;
        for (int i = 1; i < FEATURES; in += i++) memcpy(in, z + i * FEATURES, (size_t)i * sizeof *in);
    }
    t[STAGE_TOP] = now_us();
    run_layers(m, m->top, m->tops, p, m->in, m->top_in, m->out[p], 1);
    t[STAGES] = now_us();
    for (int s = 0; s < STAGES; s++) us[s] = t[s + 1] - t[s];
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int report(const config *c, int64_t batch)
{
    static double us[2][STAGES][RUNS];
    model m;
    double furthest = 0, low = 1, high = 0, total[2] = { 0, 0 };
    model_new(&m, c, batch);
    for (int r = 0; r < RUNS; r++)
        for (int p = 0; p < 2; p++) {
            double one[STAGES];
            forward(&m, p, one);
            for (int s = 0; s < STAGES; s++) us[p][s][r] = one[s];
        }
    for (int64_t b = 0; b < batch; b++) {
        furthest = fmax(furthest, fabs((double)m.out[0][b] - (double)m.out[1][b]));
        low = fmin(low, m.out[0][b]);
        high = fmax(high, m.out[0][b]);
    }
    printf("DLRM %s: d = %d, batch %lld, tables of at most %d rows\n", c->name, c->d, (long long)batch, ROWS_MOST);
    printf("%-14s %10s %10s   one thread, median of %d, us\n", "stage", "f32", "int8", RUNS);
    for (int s = 0; s < STAGES; s++) {
        for (int p = 0; p < 2; p++) {
            qsort(us[p][s], RUNS, sizeof(double), by_value);
            total[p] += us[p][s][RUNS / 2];
        }
        printf("%-14s %10.1f %10.1f\n", stage_names[s], us[0][s][RUNS / 2], us[1][s][RUNS / 2]);
    }
    printf("%-14s %10.1f %10.1f   %.0f and %.0f samples a second\n", "all", total[0], total[1], 1e6 * (double)batch / total[0], 1e6 * (double)batch / total[1]);
    const bool good = furthest <= FURTHEST && high > low;
    printf("probabilities %.3f .. %.3f; int8 is within %.4f of f32 (%.2f are allowed)%s\n\n", low, high, furthest, FURTHEST, good ? "" : ": TOO FAR");
    model_free(&m);
    return !good;
}

int main(int argc, char **argv)
{
    const long batch = argc > 2 ? strtol(argv[2], NULL, 10) : 128;
    int wrong = 0, ran = 0;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (argc < 2 || !strcmp(argv[1], configs[i].name)) {
            wrong += report(&configs[i], batch > 0 ? batch : 128);
            ran++;
        }
    if (!ran) return fprintf(stderr, "dlrm: kaggle or mlperf\n"), 2;
    return wrong > 0;
}
