/*
 * octet-bench embedding: bags beside FBGEMM's, the obvious loop ("plain"), and a loop that only reads the same rows, prefetching
 * ("touch"): the ceiling for rows in memory. Rotates through many batches of indices, so that rows are as cold as the
 * table is large; every result is checked against double precision.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bag_bench.h"
#include "octet/quant.h"

enum { PATTERN = 512, TOUCH_AHEAD = 48, LOOKUPS = 1 << 21, SETS_MAX = 1 << 15 };

/* ---- problems ---- */

static int bits_of(octet_dtype t)
{
    return t == OCTET_F32 ? 32 : t == OCTET_F16 || t == OCTET_BF16 ? 16 : t == OCTET_U4 ? 4 : t == OCTET_U2 ? 2 : 8;
}
static bool quantized(octet_dtype t) { return t == OCTET_U8 || t == OCTET_U4 || t == OCTET_U2; }

/* A few hundred random rows, over and over. */
static bool fill_table(const bag_problem *p, uint8_t *table, rng *r)
{
    const size_t stride = (size_t)p->row_bytes;
    float *x = malloc(PATTERN * (size_t)p->dim * 4);
    uint8_t *rows = malloc(PATTERN * stride);
    if (!x || !rows) return false;
    for (int64_t i = 0; i < PATTERN * p->dim; i++) x[i] = (float)(2 * rng_unit(r) - 1);
    if (p->type == OCTET_F32) memcpy(rows, x, PATTERN * stride);
    else if (quantized(p->type)) octet_rows_quantize(bits_of(p->type), OCTET_ROWS_BEHIND, x, PATTERN, p->dim, rows);
    else octet_from_f32(p->type, x, (size_t)(PATTERN * p->dim), rows);
    for (int64_t row = 0; row < p->rows; row += PATTERN)
        memcpy(table + (size_t)row * stride, rows, stride * (size_t)(p->rows - row < PATTERN ? p->rows - row : PATTERN));
    free(x);
    free(rows);
    return true;
}

static int64_t below(rng *r, int64_t n) { return (int64_t)(((uint64_t)rng_u32(r) << 32 | rng_u32(r)) % (uint64_t)n); }

/* Lengths uniform in 1 .. 2 pooling - 1; no index twice in a bag. */
static void fill_indices(bag_problem *p, rng *r)
{
    int64_t at = 0;
    for (int64_t s = 0; s < (int64_t)p->sets * p->tables; s++) {
        int64_t *offset = p->offsets + s * (p->batch + 1);
        p->first[s] = at;
        *offset = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            const int64_t begin = at, n = 1 + below(r, 2 * p->pooling - 1);
            for (int64_t i = 0; i < n; i++) {
                bool again;
                do {
                    p->indices[at] = below(r, p->rows);
                    again = false;
                    for (int64_t k = begin; k < at && n <= p->rows / 2; k++) again = again || p->indices[k] == p->indices[at];
                } while (again);
                at++;
            }
            offset[b + 1] = at - p->first[s];
        }
        p->most = at - p->first[s] > p->most ? at - p->first[s] : p->most;
    }
    p->first[(int64_t)p->sets * p->tables] = at;
}

static void problem_close(bag_problem *p)
{
    const size_t bytes = (size_t)(p->rows * p->row_bytes);
    for (int t = 0; p->table && t < p->tables; t++) octet_table_free(p->table[t], bytes);
    free(p->table);
    free(p->indices);
    free(p->offsets);
    free(p->first);
    free(p->each);
    free(p->result);
    free(p->grad);
    free(p->state);
}

/* The system's pages, unless huge ones are asked for. */
static void *table_memory(size_t bytes, bool huge)
{
    void *p = NULL;
    if (huge) return octet_table_alloc(bytes, &p, NULL) ? NULL : p;
    bytes = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20); /* as octet_table_free gives back */
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

static bool problem_open(bag_problem *p, bool huge, uint64_t seed)
{
    rng r = { seed };
    octet_bag_desc d = OCTET_BAG_DESC;
    d.table = p->type;
    d.dim = p->dim;
    p->row_bytes = (int64_t)octet_bag_row_bytes(&d);
    const int64_t call = p->batch * p->pooling * p->tables; /* lookups */
    p->sets = (int)(LOOKUPS / call < 2 ? 2 : LOOKUPS / call > SETS_MAX ? SETS_MAX : LOOKUPS / call);
    const int64_t most = (int64_t)p->sets * p->tables * p->batch * (2 * p->pooling - 1);
    p->table = calloc((size_t)p->tables, sizeof *p->table);
    p->indices = malloc((size_t)most * sizeof *p->indices);
    p->offsets = malloc((size_t)p->sets * (size_t)p->tables * (size_t)(p->batch + 1) * sizeof *p->offsets);
    p->first = malloc(((size_t)p->sets * (size_t)p->tables + 1) * sizeof *p->first);
    p->result = malloc((size_t)(p->tables * p->batch * p->dim) * 4);
    if (!p->table || !p->indices || !p->offsets || !p->first || !p->result) return false;
    for (int t = 0; t < p->tables; t++)
        if (!(p->table[t] = table_memory((size_t)(p->rows * p->row_bytes), huge)) || !fill_table(p, p->table[t], &r)) return false;
    fill_indices(p, &r);
    if (p->weights) {
        p->each = malloc((size_t)most * 4);
        if (!p->each) return false;
        for (int64_t i = 0; i < most; i++) p->each[i] = (float)rng_unit(&r);
    }
    if (p->update) {
        p->grad = malloc((size_t)(p->most * p->dim) * 4);
        p->state = calloc((size_t)p->rows, 4);
        if (!p->grad || !p->state) return false;
        for (int64_t i = 0; i < p->most * p->dim; i++) p->grad[i] = (float)(rng_unit(&r) - 0.5) * 1e-3f;
    }
    return true;
}

/* ---- the plain loop, and the loop that only reads ---- */

static void *prepare_self(const bag_problem *p, const char *isa) { (void)isa; return (void *)(uintptr_t)p; }
static void  close_nothing(void *x) { (void)x; }

static float half(const uint8_t *p) { uint16_t h; float f; memcpy(&h, p, 2); octet_to_f32(OCTET_F16, &h, 1, &f); return f; }

static void plain_row(const bag_problem *p, const uint8_t *row, float w, float *out)
{
    float scale = w, bias = 0;
    const int bits = bits_of(p->type);
    if (quantized(p->type)) {
        const uint8_t *params = row + (p->dim * bits + 7) / 8;
        float pair[2];
        if (bits == 8) memcpy(pair, params, 8);
        else { pair[0] = half(params); pair[1] = half(params + 2); }
        scale = w * pair[0];
        bias = w * pair[1];
        for (int64_t j = 0; j < p->dim; j++) out[j] += scale * (float)(row[j * bits / 8] >> j * bits % 8 & ((1 << bits) - 1)) + bias;
        return;
    }
    if (p->type == OCTET_F32) {
        const float *x = (const float *)(const void *)row;
        for (int64_t j = 0; j < p->dim; j++) out[j] += w * x[j];
        return;
    }
    float wide[1 << 13];
    octet_to_f32(p->type, row, (size_t)p->dim, wide);
    for (int64_t j = 0; j < p->dim; j++) out[j] += w * wide[j];
}

static void plain_update(const bag_problem *p, int t, const int64_t *indices, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float *x = (float *)(void *)p->table[t] + indices[i] * p->dim;
        const float *g = p->grad + i * p->dim;
        float sum = 0;
        for (int64_t j = 0; j < p->dim; j++) sum += g[j] * g[j];
        float *h = &p->state[indices[i]];
        *h += sum / (float)p->dim;
        const float step = 0.01f / (sqrtf(*h) + 1e-8f);
        for (int64_t j = 0; j < p->dim; j++) x[j] -= step * g[j];
    }
}

static void run_plain(void *x, int set)
{
    const bag_problem *p = x;
    for (int t = 0; t < p->tables; t++) {
        const int64_t from = p->first[(int64_t)set * p->tables + t];
        const int64_t *offset = p->offsets + ((int64_t)set * p->tables + t) * (p->batch + 1), *indices = p->indices + from;
        if (p->update) { plain_update(p, t, indices, bag_count(p, set, t)); continue; }
        for (int64_t b = 0; b < p->batch; b++) {
            float *out = (float *)(void *)p->result + (t * p->batch + b) * p->dim;
            for (int64_t j = 0; j < p->dim; j++) out[j] = 0;
            for (int64_t i = offset[b]; i < offset[b + 1]; i++) {
                const float w = !p->weights ? 1.0f : p->weights == OCTET_WEIGHT_EACH ? p->each[from + i] : p->each[i - offset[b]];
                plain_row(p, p->table[t] + indices[i] * p->row_bytes, w, out);
            }
            const float n = (float)(offset[b + 1] - offset[b]);
            for (int64_t j = 0; p->mode == OCTET_MEAN && n > 0 && j < p->dim; j++) out[j] /= n;
        }
    }
}

static volatile uint64_t sink;

/* Each line of each row once: one load; an update also writes it, and reads the gradient. */
static void run_touch(void *x, int set)
{
    const bag_problem *p = x;
    uint64_t sum = 0;
    for (int t = 0; t < p->tables; t++) {
        const int64_t *indices = p->indices + p->first[(int64_t)set * p->tables + t], count = bag_count(p, set, t);
        const int64_t lines = (p->row_bytes + 63) / 64;
        const int64_t ahead = lines > 8 ? TOUCH_AHEAD / 2 : TOUCH_AHEAD;
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *next = p->table[t] + indices[i + ahead < count ? i + ahead : count - 1] * p->row_bytes;
            uint8_t *row = p->table[t] + indices[i] * p->row_bytes;
            for (int64_t l = 0; l < lines; l++) __builtin_prefetch(next + 64 * l, 0, 2);
            __builtin_prefetch(next + p->row_bytes - 1, 0, 2);
            if (p->update) __builtin_prefetch(p->state + indices[i + ahead < count ? i + ahead : count - 1], 0, 2);
            if (p->update) {
                const uint8_t *g = (const uint8_t *)(p->grad + i * p->dim);
                for (int64_t l = 0; l < lines; l++) {
                    volatile uint8_t *const line = row + 64 * l;
                    sum += g[64 * l];
                    *line = *line;
                }
                volatile float *const h = p->state + indices[i];
                *h = *h;
            } else {
                for (int64_t l = 0; l < lines; l++) sum += row[64 * l];
                sum += row[p->row_bytes - 1];
            }
        }
    }
    sink = sum;
}

static const bag_peer bag_peer_plain = { "plain", prepare_self, run_plain, close_nothing };
static const bag_peer bag_peer_touch = { "touch", prepare_self, run_touch, close_nothing };
static const bag_peer *const bag_peers[] = {
    &bag_peer_touch,
#if HAVE_FBGEMM
    &bag_peer_fbgemm,
#endif
    &bag_peer_plain, NULL,
};

/* ---- octet ---- */

typedef struct our_bags {
    const bag_problem *p;
    octet_bag_plan    *plan;
    octet_bag_table   *tables;
    octet_bag_step    *steps;
    octet_bag_args     args;
    octet_bag_update   update;
    double             prepare_us;
} our_bags;

static bool our_bags_open(our_bags *o, octet_ctx *ctx, const bag_problem *p, int ahead)
{
    octet_bag_desc *d = calloc((size_t)p->tables, sizeof *d);
    memset(o, 0, sizeof *o);
    o->p = p;
    o->tables = calloc((size_t)p->tables, sizeof *o->tables);
    o->steps = calloc((size_t)p->tables, sizeof *o->steps);
    for (int t = 0; t < p->tables; t++) {
        d[t] = (octet_bag_desc)OCTET_BAG_DESC;
        d[t].table = p->type;
        d[t].dim = p->dim;
        d[t].pooling = p->mode;
        d[t].weights = p->weights;
        d[t].out = p->out;
        d[t].flags = OCTET_BAG_LAST_OFFSET;
        o->tables[t] = (octet_bag_table)OCTET_BAG_TABLE;
        o->tables[t].table = p->table[t];
        o->tables[t].rows = p->rows;
        o->tables[t].bags = p->batch;
        o->tables[t].ld_out = p->dim;
        o->tables[t].out = p->result + t * p->batch * p->dim * (p->out == OCTET_F32 ? 4 : 2);
        o->steps[t] = (octet_bag_step)OCTET_BAG_STEP;
        o->steps[t].table = p->table[t];
        o->steps[t].grad = p->grad;
        o->steps[t].ld_grad = p->dim;
        o->steps[t].state = p->state;
    }
    o->args = (octet_bag_args)OCTET_BAG_ARGS;
    o->args.tables = o->tables;
    o->args.ahead = ahead;
    const double start = now_ns();
    const octet_status st = octet_plan_bags(ctx, d, sizeof *d, (size_t)p->tables, &o->plan);
    o->prepare_us = (now_ns() - start) * 1e-3;
    free(d);
    if (st) return false;
    if (p->update) {
        o->update = (octet_bag_update)OCTET_BAG_UPDATE;
        o->update.tables = o->tables;
        o->update.steps = o->steps;
        o->update.optimizer = OCTET_ADAGRAD_ROWS;
        o->update.lr = 0.01f;
        o->update.eps = 1e-8f;
        o->update.workspace_bytes = octet_update_bags_bytes(o->plan, p->most);
        o->update.workspace = aligned_alloc(64, (o->update.workspace_bytes + 63) / 64 * 64);
    }
    return true;
}

static void our_bags_run(void *x, int set)
{
    our_bags *o = x;
    const bag_problem *p = o->p;
    for (int t = 0; t < p->tables; t++) {
        const int64_t from = p->first[(int64_t)set * p->tables + t];
        o->tables[t].indices = p->indices + from;
        o->tables[t].count = bag_count(p, set, t);
        o->tables[t].offsets = p->offsets + ((int64_t)set * p->tables + t) * (p->batch + 1);
        o->tables[t].weights = p->weights ? p->each + (p->weights == OCTET_WEIGHT_EACH ? from : 0) : NULL;
        o->tables[t].weight_count = p->weights == OCTET_WEIGHT_POSITION ? 2 * p->pooling : 0;
    }
    const octet_status st = p->update ? octet_update_bags(o->plan, &o->update) : octet_run_bags(o->plan, &o->args);
    if (st) {
        fprintf(stderr, "octet-bench: %s\n", octet_why());
        exit(1);
    }
}

static void our_bags_close(our_bags *o)
{
    octet_bag_plan_free(o->plan);
    free(o->tables);
    free(o->steps);
    free(o->update.workspace);
}

/* The last batch's results, in double precision: within the bound of octet/embedding.h, with one rounding of the output. */
static bool verify_bags(const bag_problem *p, int set)
{
    const int bits = bits_of(p->type);
    for (int t = 0; t < p->tables; t++) {
        const int64_t from = p->first[(int64_t)set * p->tables + t], *offset = p->offsets + ((int64_t)set * p->tables + t) * (p->batch + 1);
        for (int64_t b = 0; b < p->batch; b += 1 + p->batch / 16)
            for (int64_t j = 0; j < p->dim; j += 1 + p->dim / 64) {
                double sum = 0, size = 0, most = -INFINITY;
                const int64_t n = offset[b + 1] - offset[b];
                for (int64_t i = offset[b]; i < offset[b + 1]; i++) {
                    const uint8_t *row = p->table[t] + p->indices[from + i] * p->row_bytes;
                    const double w = !p->weights ? 1 : p->weights == OCTET_WEIGHT_EACH ? p->each[from + i] : p->each[i - offset[b]];
                    float x = 0, pair[2] = { 1, 0 };
                    if (quantized(p->type)) {
                        const uint8_t *params = row + (p->dim * bits + 7) / 8;
                        x = (float)(row[j * bits / 8] >> j * bits % 8 & ((1 << bits) - 1));
                        if (bits == 8) memcpy(pair, params, 8);
                        else { pair[0] = half(params); pair[1] = half(params + 2); }
                    } else if (p->type == OCTET_F32) {
                        memcpy(&x, row + 4 * j, 4);
                    } else {
                        octet_to_f32(p->type, row + j * bits / 8, 1, &x);
                    }
                    const double real = (double)pair[0] * x + pair[1];
                    sum += w * real;
                    size += w * (fabs((double)pair[0] * x) + fabs(pair[1]));
                    most = real > most ? real : most;
                }
                const double want = p->mode == OCTET_MAX ? most : p->mode == OCTET_MEAN && n ? sum / (double)n : sum;
                const int64_t at = (t * p->batch + b) * p->dim + j;
                float got;
                if (p->out == OCTET_F32) memcpy(&got, p->result + 4 * at, 4);
                else octet_to_f32(p->out, p->result + 2 * at, 1, &got);
                const double ulp = p->out == OCTET_F32 ? 0 : p->out == OCTET_F16 ? 0x1p-11 : 0x1p-8;
                if (!(fabs(got - want) <= (double)(n + 3) * 0x1.1p-24 * size + ulp * fabs(want) + 1e-30)) return false;
            }
    }
    return true;
}

/* ---- report ---- */

/* A peer or octet, a batch of indices at a time. Two that are timed in turn are half a rotation apart, and so do not warm each other. */
typedef struct runner { void (*run)(void *, int); void *x; int set, sets; } runner;
static void next_set(void *v)
{
    runner *r = v;
    r->run(r->x, r->set);
    r->set = (r->set + 1) % r->sets;
}

static bool asked(const options *o, const char *name)
{
    char want[32];
    snprintf(want, sizeof want, ",%s,", name);
    return strstr(o->peers, want) || strstr(o->peers, ",all,");
}

static int run_bags(const options *o, octet_ctx *ctx, int threads, const shape *s, void *none)
{
    (void)none;
    bag_problem p = { .rows = s->m, .dim = s->n, .batch = s->k, .pooling = s->l, .tables = o->tables, .threads = threads, .type = o->a, .out = o->c,
                      .mode = o->mode, .weights = o->bag_weights, .update = o->update };
    our_bags ours;
    char name[80], types[64];
    bool right = true;
    if (p.update) p.mode = OCTET_NONE;
    if (!p.rows || !p.dim || !p.batch || !p.pooling || p.dim > 1 << 13) return usage("embedding: shapes are ROWSxDIMxBATCHxPOOLING"), -2;
    if (!problem_open(&p, o->huge, o->seed)) { fprintf(stderr, "octet-bench: no memory for this problem\n"); problem_close(&p); return 1; }
    if (!our_bags_open(&ours, ctx, &p, o->ahead)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); problem_close(&p); return 1; }
    snprintf(name, sizeof name, "%lldx%lldx%lldx%lld", (long long)p.rows, (long long)p.dim, (long long)p.batch, (long long)p.pooling);
    if (p.tables > 1) snprintf(name + strlen(name), sizeof name - strlen(name), "*%d", p.tables);
    static const char *const modes[] = { "sum", "mean", "max", "none" };
    snprintf(types, sizeof types, "%s %s%s", o->types, p.update ? "adagrad_rows" : modes[p.mode], p.weights ? p.weights == OCTET_WEIGHT_EACH ? " each" : " position" : "");
    if (isatty(2)) fprintf(stderr, "\r\033[K%s ...", name);
    if (o->verify && !p.update) {
        our_bags_run(&ours, 0);
        right = verify_bags(&p, 0);
    }
    const int64_t total = p.first[(int64_t)p.sets * p.tables];
    const double lookups = (double)total / p.sets, bytes = lookups * (double)(p.row_bytes + 8) * (p.update ? 3 : 1);
    runner mine = { our_bags_run, &ours, p.sets / 2, p.sets };
    stats theirs;
    const stats m = sample(next_set, &mine, NULL, NULL, o->seconds, o->cold, &theirs);
    if (isatty(2)) fprintf(stderr, "\r\033[K");
    row line = { .op = "embedding", .impl = "octet", .kernel = octet_explain_bags(ours.plan, 0), .types = types, .problem = name, .check = "off",
                 .cache = o->cold ? "cold" : o->huge ? "huge" : "warm", .verified = p.update || !o->verify ? "skipped" : right ? "yes" : "no", .threads = threads,
                 .min_ns = m.min, .median_ns = m.median, .p99_ns = m.p99, .gops = lookups / m.median, .gbytes = bytes / m.median, .prepare_us = ours.prepare_us };
    double touch = 0;
    char kernel[200];
    snprintf(kernel, sizeof kernel, "%s", line.kernel);
    line.kernel = kernel;
    row others[4];
    int n = 0;
    for (int i = 0; bag_peers[i]; i++) {
        if (!asked(o, bag_peers[i]->name)) continue;
        void *state = bag_peers[i]->prepare(&p, o->isa);
        if (!state) continue;
        runner his = { bag_peers[i]->run, state, 0, p.sets };
        sample(next_set, &mine, next_set, &his, o->seconds, o->cold, &theirs);
        bool ok = true;
        if (o->verify && !p.update && bag_peers[i] != &bag_peer_touch && p.out == OCTET_F32) {
            bag_peers[i]->run(state, 0);
            ok = verify_bags(&p, 0);
        }
        others[n++] = (row){ .op = "embedding", .impl = bag_peers[i]->name, .kernel = "", .types = types, .problem = name, .check = "off", .cache = line.cache,
                             .verified = !o->verify || p.update || bag_peers[i] == &bag_peer_touch ? "skipped" : ok ? "yes" : "no", .threads = threads,
                             .min_ns = theirs.min, .median_ns = theirs.median, .p99_ns = theirs.p99, .gops = lookups / theirs.median,
                             .gbytes = bytes / theirs.median, .ratio = theirs.ratio, .ratio_low = theirs.ratio_low };
        if (bag_peers[i] == &bag_peer_touch) touch = theirs.ratio;
        bag_peers[i]->close(state);
    }
    line.percent_of_peak = 100 * touch;
    report_row(&line);
    for (int i = 0; i < n; i++) report_row(&others[i]);
    if (!right) fprintf(stderr, "wrong: octet-bench embedding --shapes=%s --types=%s --seed=%llu\n", name, o->types, (unsigned long long)o->seed);
    our_bags_close(&ours);
    problem_close(&p);
    return !right;
}

void random_rows_report(void)
{
    static const int64_t bytes[] = { 16, 32, 64, 72, 128, 256, 512, 1024, 2048, 4096 };
    printf("\n%-22s %12s %12s %12s %12s\n", "random rows of 256 MiB", "4 KiB pages", "GB/s", "huge pages", "GB/s");
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        printf("%4lld bytes, M rows/s   ", (long long)bytes[i]);
        for (int huge = 0; huge < 2; huge++) {
            bag_problem p = { .rows = (256 << 20) / bytes[i], .dim = bytes[i], .batch = 100, .pooling = 20, .tables = 1, .threads = 1, .type = OCTET_E4M3, .out = OCTET_F32 };
            stats other;
            if (problem_open(&p, huge, 1)) {
                runner r = { run_touch, &p, 0, p.sets };
                const double rows = (double)p.first[p.sets] / p.sets, rate = rows / sample(next_set, &r, NULL, NULL, 0.2, false, &other).median;
                printf("%12.1f %12.1f", 1e3 * rate, rate * (double)bytes[i]);
            }
            problem_close(&p);
        }
        printf("\n");
    }
}

int embedding_report(const options *o)
{
    FILE *to = o->out ? fopen(o->out, "w") : stdout;
    if (!to) return usage("--out: cannot be written");
    report_begin(to, o->format, "embedding", o->seed);
    const int wrong = over_shapes(o, run_bags, NULL);
    report_end();
    if (to != stdout) fclose(to);
    return wrong < 0 ? 2 : wrong > 0;
}
