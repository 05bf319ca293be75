/* octet_update_bags against its definition, whatever the threads: sums of gradients row by row, then each optimizer in plain C. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bag_case.h"
#include "octet/quant.h"

typedef struct training {
    bag_case         c;
    octet_bag_step   step;
    octet_bag_update update;
    guarded          grad, state, state2, table;
    void            *workspace;
} training;

static void new_training(training *t, uint64_t seed)
{
    static const octet_dtype tables[] = { OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_U8 };
    for (uint64_t s = seed * 1000;; s++) { /* the next case that can be trained */
        bag_case_new(&t->c, s, 0);
        bool good = t->c.d.pooling != OCTET_MAX && t->c.d.dim < 300;
        bool table = false;
        for (int i = 0; i < 4; i++) table = table || t->c.d.table == tables[i];
        if (good && table) break;
        bag_case_free(&t->c);
    }
    const octet_bag_desc *d = &t->c.d;
    rng r = { seed + 99 };
    const int64_t bags = d->pooling == OCTET_NONE ? t->c.x.count : t->c.x.bags, ld = d->dim + rng_below(&r, 5);
    t->step = (octet_bag_step)OCTET_BAG_STEP;
    t->update = (octet_bag_update)OCTET_BAG_UPDATE;
    octet_bag_update *u = &t->update;
    u->optimizer = 1 + (int)rng_below(&r, 4);
    u->lr = 0.05f;
    u->eps = 1e-6f;
    u->beta1 = 0.9f;
    u->beta2 = 0.99f;
    u->weight_decay = rng_below(&r, 2) ? 0.0f : 0.01f;
    u->step = 1 + rng_below(&r, 5);
    const int64_t states = u->optimizer == OCTET_ADAGRAD_ROWS ? t->c.x.rows : t->c.x.rows * d->dim;
    t->grad = guard_new(bags ? (size_t)((bags - 1) * ld + d->dim) * 4 : 0, 4, true);
    t->state = guard_new(u->optimizer == OCTET_SGD ? 0 : (size_t)states * 4, 4, true);
    t->state2 = guard_new(u->optimizer == OCTET_ADAM ? (size_t)states * 4 : 0, 4, true);
    t->table = guard_new(t->c.table.bytes, 4, true);
    memcpy(t->table.p, t->c.table.p, t->c.table.bytes);
    for (size_t i = 0; i < t->grad.bytes / 4; i++) ((float *)t->grad.p)[i] = (float)((int32_t)rng_next(&r) >> 12) * 0x1p-18f;
    for (size_t i = 0; i < t->state.bytes / 4; i++) ((float *)t->state.p)[i] = (float)rng_below(&r, 100) * 0.01f;
    for (size_t i = 0; i < t->state2.bytes / 4; i++) ((float *)t->state2.p)[i] = (float)rng_below(&r, 100) * 0.01f;
    t->step.grad = t->grad.p;
    t->step.ld_grad = ld;
    t->step.table = t->table.p;
    t->step.state = t->state.p;
    t->step.state2 = t->state2.p;
    u->tables = &t->c.x;
    u->steps = &t->step;
}

static void free_training(training *t)
{
    guarded *all[] = { &t->grad, &t->state, &t->state2, &t->table };
    for (int i = 0; i < 4; i++) guard_free(all[i]);
    bag_case_free(&t->c);
}

/* The gradient of a row, or false where no index names it. */
static bool row_gradient(const training *t, int64_t row, float *g)
{
    const octet_bag_desc *d = &t->c.d;
    const octet_bag_table *x = &t->c.x;
    const int64_t bags = d->pooling == OCTET_NONE ? x->count : x->bags;
    bool named = false;
    for (int64_t b = 0; b < bags; b++) {
        int64_t from, to, divisor = 0;
        int counts, bad;
        ref_bag_span(d, x, b, &from, &to);
        for (int64_t i = from; i < to; i++) {
            ref_bag_row(d, x, ref_integer(x->indices, d->index ? d->index : OCTET_S64, i), &counts, &bad);
            divisor += counts;
        }
        for (int64_t i = from; i < to; i++) {
            if (ref_bag_row(d, x, ref_integer(x->indices, d->index ? d->index : OCTET_S64, i), &counts, &bad) != row) continue;
            float c = d->weights == OCTET_WEIGHT_EACH ? x->weights[i] : d->weights ? x->weights[i - from] : 1.0f;
            if (d->pooling == OCTET_MEAN) c = c * (1.0f / (float)divisor);
            for (int64_t j = 0; j < d->dim; j++) g[j] = named ? fmaf(c, t->step.grad[b * t->step.ld_grad + j], g[j]) : c * t->step.grad[b * t->step.ld_grad + j];
            named = true;
        }
    }
    return named;
}

/* One value, with the states as they were; returns the new one. h: of a row, already raised. */
static float one_value(const octet_bag_update *u, float x, float g, float *h, float *v)
{
    switch (u->optimizer) {
    case OCTET_SGD: return fmaf(-u->lr, g, x);
    case OCTET_ADAGRAD_ROWS: return fmaf(-(u->lr / (sqrtf(*h) + u->eps)), g, x);
    case OCTET_ADAGRAD: *h = fmaf(g, g, *h); return fmaf(-u->lr, g / (sqrtf(*h) + u->eps), x);
    default: {
        const float lr = (float)((double)u->lr / (1 - pow(u->beta1, (double)u->step))), correct = (float)(1 - pow(u->beta2, (double)u->step));
        *h = fmaf(u->beta1, *h, (1 - u->beta1) * g);
        *v = fmaf(u->beta2, *v, ((1 - u->beta2) * g) * g);
        return fmaf(-lr, *h / (sqrtf(*v / correct) + u->eps), x);
    }
    }
}

/* The definition, on copies: table, state, state2. */
static void reference(const training *t, uint8_t *table, float *state, float *state2)
{
    const octet_bag_desc *d = &t->c.d;
    octet_bag_table x = t->c.x;
    const int64_t dim = d->dim, stride = x.row_bytes ? x.row_bytes : (int64_t)octet_bag_row_bytes(d);
    float *g = malloc((size_t)dim * 4), *w = malloc((size_t)dim * 4);
    x.table = table;
    for (int64_t row = 0; row < x.rows; row++) {
        if (!row_gradient(t, row, g)) continue;
        for (int64_t j = 0; j < dim; j++) {
            const ref_value v = ref_table_value(d, &x, row, j);
            w[j] = d->table == OCTET_U8 ? v.scale * v.x + v.bias : v.x;
            if (t->update.weight_decay != 0.0f) g[j] = fmaf(t->update.weight_decay, w[j], g[j]);
        }
        if (t->update.optimizer == OCTET_ADAGRAD_ROWS) {
            float s[8] = { 0 };
            for (int64_t j = 0; j < dim; j++) s[j % 8] = fmaf(g[j], g[j], s[j % 8]);
            for (int l = 0; l < 4; l++) s[l] = s[l] + s[l + 4];
            for (int l = 0; l < 2; l++) s[l] = s[l] + s[l + 2];
            state[row] = state[row] + (s[0] + s[1]) / (float)dim;
        }
        for (int64_t j = 0; j < dim; j++) {
            float *h = t->update.optimizer == OCTET_ADAGRAD_ROWS ? &state[row] : &state[row * dim + j];
            w[j] = one_value(&t->update, w[j], g[j], h, &state2[row * dim + j]);
        }
        uint8_t *to = table + row * stride;
        const bool half = d->params == OCTET_F16 || (!d->params && d->layout == OCTET_ROWS_IN_FRONT);
        if (d->table == OCTET_F32) memcpy(to, w, (size_t)dim * 4);
        else if (d->table == OCTET_U8) {
            uint8_t *packed = malloc((size_t)dim + 8); /* in the layout that octet_rows_quantize has for this kind of scale */
            octet_rows_quantize(8, half ? OCTET_ROWS_IN_FRONT : OCTET_ROWS_BEHIND, w, 1, dim, packed);
            const int beside = half ? 4 : 8;
            memcpy(d->layout == OCTET_ROWS_IN_FRONT ? to + beside : to, half ? packed + beside : packed, (size_t)dim);
            memcpy(d->layout == OCTET_ROWS_IN_FRONT ? to : to + dim, half ? packed : packed + dim, (size_t)beside);
            free(packed);
        } else octet_from_f32(d->table, w, (size_t)dim, to);
    }
    free(g);
    free(w);
}

static bool same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

/* Tables hold NaN of any payload: compared as values. */
static bool same_tables(const training *t, const uint8_t *want)
{
    octet_bag_table a = t->c.x, b = t->c.x;
    a.table = t->table.p;
    b.table = want;
    for (int64_t row = 0; row < a.rows; row++)
        for (int64_t j = 0; j < t->c.d.dim; j++) {
            const ref_value x = ref_table_value(&t->c.d, &a, row, j), y = ref_table_value(&t->c.d, &b, row, j);
            if (!same_floats(&x.x, &y.x, 1) || !same_floats(&x.scale, &y.scale, 1) || !same_floats(&x.bias, &y.bias, 1)) return false;
        }
    return true;
}

static void run(training *t, octet_ctx *ctx)
{
    octet_bag_plan *plan;
    cr_assert_eq(octet_plan_bags(ctx, &t->c.d, sizeof t->c.d, 1, &plan), OCTET_OK, "%s", octet_why());
    t->update.workspace_bytes = octet_update_bags_bytes(plan, t->c.x.count);
    t->workspace = aligned_alloc(64, (t->update.workspace_bytes + 63) / 64 * 64);
    t->update.workspace = t->workspace;
    const octet_status st = octet_update_bags(plan, &t->update);
    cr_assert_eq(st, OCTET_OK, "seed %llu: %s", (unsigned long long)t->c.seed, octet_why());
    free(t->workspace);
    octet_bag_plan_free(plan);
}

Test(training, random_updates_equal_the_definition)
{
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        training t;
        new_training(&t, seed);
        uint8_t *table = malloc(t.table.bytes + 1);
        float *state = calloc(t.state.bytes + 4, 1), *state2 = calloc((size_t)(t.c.x.rows * t.c.d.dim) * 4 + 4, 1);
        if (t.table.bytes) memcpy(table, t.table.p, t.table.bytes);
        if (t.state.bytes) memcpy(state, t.state.p, t.state.bytes);
        if (t.state2.bytes) memcpy(state2, t.state2.p, t.state2.bytes);
        reference(&t, table, state, state2);
        run(&t, NULL);
        cr_assert(same_tables(&t, table), "seed %llu (case %llu): tables differ, optimizer %d, type %d", (unsigned long long)seed, (unsigned long long)t.c.seed,
                  t.update.optimizer, (int)t.c.d.table);
        cr_assert(same_floats(t.state.p, state, t.state.bytes / 4), "seed %llu: states differ", (unsigned long long)seed);
        cr_assert(same_floats(t.state2.p, state2, t.state2.bytes / 4), "seed %llu: second states differ", (unsigned long long)seed);
        free(table);
        free(state);
        free(state2);
        free_training(&t);
    }
}

/* A large batch with many duplicates: the sorted path, several ranges and tasks. */
enum { ROWS = 5000, DIM = 20, BAGS = 3000, LONGEST = 17 };
typedef struct big { int64_t *indices, *offsets; float *grad; int64_t count; } big;

static big big_batch(int spread)
{
    big b = { malloc(sizeof(int64_t) * BAGS * LONGEST), malloc(sizeof(int64_t) * (BAGS + 1)), malloc(4 * BAGS * DIM), 0 };
    rng r = { 5 };
    for (int64_t i = 0; i < BAGS; i++) {
        b.offsets[i] = b.count;
        for (int64_t n = rng_below(&r, LONGEST); n > 0; n--) b.indices[b.count++] = rng_below(&r, spread) * (ROWS / spread);
    }
    b.offsets[BAGS] = b.count;
    for (int64_t i = 0; i < BAGS * DIM; i++) b.grad[i] = (float)((int32_t)rng_next(&r) >> 12) * 0x1p-18f;
    return b;
}

static void big_run(octet_ctx *ctx, const big *b, octet_dtype type, int stochastic, uint64_t seed, uint8_t *table, float *state)
{
    octet_bag_desc d = OCTET_BAG_DESC;
    octet_bag_table x = OCTET_BAG_TABLE;
    octet_bag_step s = OCTET_BAG_STEP;
    octet_bag_update u = OCTET_BAG_UPDATE;
    octet_bag_plan *plan;
    d.table = type, d.dim = DIM, d.pooling = OCTET_MEAN, d.flags = OCTET_BAG_LAST_OFFSET;
    cr_assert_eq(octet_plan_bags(ctx, &d, sizeof d, 1, &plan), OCTET_OK);
    x.rows = ROWS, x.indices = b->indices, x.count = b->count, x.offsets = b->offsets, x.bags = BAGS;
    s.table = table, s.grad = b->grad, s.ld_grad = DIM, s.state = state;
    u.tables = &x, u.steps = &s, u.optimizer = OCTET_ADAGRAD_ROWS, u.lr = 0.1f, u.eps = 1e-6f, u.stochastic = stochastic, u.seed = seed;
    u.workspace_bytes = octet_update_bags_bytes(plan, b->count);
    void *workspace = u.workspace = aligned_alloc(64, (u.workspace_bytes + 63) / 64 * 64);
    cr_assert_eq(octet_update_bags(plan, &u), OCTET_OK, "%s", octet_why());
    free(workspace);
    octet_bag_plan_free(plan);
}

/* The host's threads, one after the other, last task first: nothing may depend on their order. */
static void backwards(void *user, size_t count, octet_task task, void *arg)
{
    (void)user;
    for (size_t i = count; i-- > 0;) task(arg, i);
}

Test(training, the_same_bits_on_any_number_of_threads)
{
    static const octet_dtype types[] = { OCTET_F32, OCTET_BF16, OCTET_U8 };
    static const int spreads[] = { ROWS, 700, 3 };
    for (int ty = 0; ty < 3; ty++)
        for (int sp = 0; sp < 3; sp++) {
            const big b = big_batch(spreads[sp]);
            const size_t bytes = (size_t)ROWS * (types[ty] == OCTET_F32 ? 4 * DIM : types[ty] == OCTET_U8 ? DIM + 8 : 2 * DIM);
            uint8_t *first = calloc(1, bytes), *table = calloc(1, bytes);
            float *first_state = calloc(ROWS, 4), *state = calloc(ROWS, 4);
            big_run(NULL, &b, types[ty], 1, 42, first, first_state);
            for (int threads = 2; threads <= 7; threads += 5) {
                octet_ctx_opts o = OCTET_CTX_OPTS;
                octet_ctx *ctx;
                o.threads = threads;
                o.parallel = threads == 7 ? backwards : NULL;
                if (octet_ctx_create(&o, &ctx)) continue; /* built without a pool */
                memset(table, 0, bytes);
                memset(state, 0, 4 * ROWS);
                big_run(ctx, &b, types[ty], 1, 42, table, state);
                cr_assert_arr_eq(table, first, bytes, "type %d, spread %d, %d threads", (int)types[ty], spreads[sp], threads);
                cr_assert_arr_eq(state, first_state, 4 * ROWS);
                octet_ctx_free(ctx);
            }
            memset(table, 0, bytes);
            memset(state, 0, 4 * ROWS);
            big_run(NULL, &b, types[ty], 1, 43, table, state);
            if (types[ty] != OCTET_F32) cr_assert(memcmp(table, first, bytes), "another seed draws otherwise");
            else cr_assert_arr_eq(table, first, bytes, "f32 is not rounded at all");
            free(first), free(table), free(first_state), free(state), free(b.indices), free(b.offsets), free(b.grad);
        }
}

/* Of many steps too small for the format, the expected one is taken. */
Test(training, stochastic_rounding_keeps_small_steps)
{
    enum { N = 64, STEPS = 4000 };
    static const octet_dtype types[] = { OCTET_F16, OCTET_BF16 };
    for (int ty = 0; ty < 2; ty++) {
        uint16_t table[N], nearest[N];
        float grad[N], one = 1.0f, out[N];
        int64_t index = 0, offset[2] = { 0, 1 };
        octet_bag_desc d = OCTET_BAG_DESC;
        octet_bag_table x = OCTET_BAG_TABLE;
        octet_bag_step s = OCTET_BAG_STEP;
        octet_bag_update u = OCTET_BAG_UPDATE;
        octet_bag_plan *plan;
        _Alignas(64) static uint8_t workspace[1 << 16];
        for (int j = 0; j < N; j++) {
            octet_from_f32(types[ty], &one, 1, &table[j]);
            nearest[j] = table[j];
            grad[j] = -1.0f;
        }
        d.table = types[ty], d.dim = N, d.flags = OCTET_BAG_LAST_OFFSET;
        cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
        x.rows = 1, x.indices = &index, x.count = 1, x.offsets = offset, x.bags = 1;
        s.grad = grad, s.ld_grad = N;
        u.tables = &x, u.steps = &s, u.optimizer = OCTET_SGD, u.lr = 1e-4f, u.workspace = workspace, u.workspace_bytes = sizeof workspace;
        for (int i = 0; i < STEPS; i++) {
            s.table = table, u.stochastic = 1, u.seed = (uint64_t)i;
            cr_assert_eq(octet_update_bags(plan, &u), OCTET_OK, "%s", octet_why());
            s.table = nearest, u.stochastic = 0;
            cr_assert_eq(octet_update_bags(plan, &u), OCTET_OK);
        }
        octet_to_f32(types[ty], table, N, out);
        double mean = 0;
        for (int j = 0; j < N; j++) mean += out[j] / N;
        cr_assert(fabs(mean - 1.4) < 0.02, "type %d: %g after steps that add up to 0.4", (int)types[ty], mean);
        octet_to_f32(types[ty], nearest, N, out);
        cr_assert_eq(out[0], 1.0f, "nearest even never moves");
        octet_bag_plan_free(plan);
    }
}

#define REFUSED(change, status, words) do { \
        octet_bag_update u = good; octet_bag_table x = x0; octet_bag_step s = s0; u.tables = &x; u.steps = &s; \
        memset(table, 7, sizeof table); change; \
        cr_expect_eq(octet_update_bags(plan, &u), status, #change); \
        cr_expect(strstr(octet_why(), words), "%s: %s", #change, octet_why()); \
        for (size_t q = 0; q < sizeof table; q++) cr_assert_eq(((uint8_t *)table)[q], 7, #change); \
    } while (0)

Test(training, bad_input_changes_nothing)
{
    float table[8 * 4], grad[2 * 4] = { 0 }, state[32] = { 0 }, state2[32] = { 0 };
    int64_t indices[4] = { 0, 3, 7, 3 }, offsets[3] = { 0, 2, 4 };
    int64_t bad_indices[4] = { 0, 3, 8, 3 }, bad_offsets[3] = { 0, 5, 4 };
    _Alignas(64) static uint8_t workspace[1 << 14];
    octet_bag_desc d = OCTET_BAG_DESC;
    octet_bag_table x0 = OCTET_BAG_TABLE;
    octet_bag_step s0 = OCTET_BAG_STEP;
    octet_bag_update good = OCTET_BAG_UPDATE;
    octet_bag_plan *plan, *max;
    d.table = OCTET_F32, d.dim = 4, d.flags = OCTET_BAG_LAST_OFFSET;
    cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
    x0.rows = 8, x0.indices = indices, x0.count = 4, x0.offsets = offsets, x0.bags = 2;
    s0.table = table, s0.grad = grad, s0.ld_grad = 4, s0.state = state, s0.state2 = state2;
    good.optimizer = OCTET_ADAM, good.lr = 0.1f, good.step = 1, good.workspace = workspace, good.workspace_bytes = sizeof workspace;
    good.beta1 = 0.9f, good.beta2 = 0.9f;
    REFUSED(u.size = 5, OCTET_EINVAL, "update->size");
    REFUSED(u.tables = NULL, OCTET_EINVAL, "tables or steps is NULL");
    REFUSED(u.steps = NULL, OCTET_EINVAL, "tables or steps is NULL");
    REFUSED(u.optimizer = 5, OCTET_EINVAL, "optimizer is none");
    REFUSED(u.optimizer = 0, OCTET_EINVAL, "optimizer is none");
    REFUSED(u.lr = NAN, OCTET_EINVAL, "lr");
    REFUSED(u.eps = -1, OCTET_EINVAL, "lr, eps");
    REFUSED(u.beta1 = 1, OCTET_EINVAL, "beta1");
    REFUSED(u.step = 0, OCTET_EINVAL, "step is less than 1");
    REFUSED(u.workspace = workspace + 8, OCTET_EINVAL, "not 64-byte aligned");
    REFUSED(u.workspace = NULL, OCTET_EINVAL, "workspace_bytes");
    REFUSED(u.workspace_bytes = 64, OCTET_EINVAL, "workspace_bytes = 64, but");
    REFUSED(s.grad = NULL, OCTET_EINVAL, "grad is NULL");
    REFUSED(s.ld_grad = 3, OCTET_EINVAL, "ld_grad is less than dim");
    REFUSED(s.ld_grad = INT64_MAX / 2, OCTET_EINVAL, "overflows");
    REFUSED(s.table = NULL, OCTET_EINVAL, "table is NULL");
    REFUSED(s.table = (char *)table + 2, OCTET_EINVAL, "misaligned");
    REFUSED(s.state = NULL, OCTET_EINVAL, "state is NULL");
    REFUSED(s.state2 = NULL, OCTET_EINVAL, "state2 is NULL");
    REFUSED(s.state = table, OCTET_EINVAL, "state overlaps");
    REFUSED(s.state2 = state, OCTET_EINVAL, "state2 overlaps");
    REFUSED(s.grad = table, OCTET_EINVAL, "table overlaps grad");
    REFUSED(s.size = 3, OCTET_EINVAL, "size is not of a known version");
    REFUSED(x.rows = -1, OCTET_EINVAL, "rows or count is negative");
    REFUSED(x.indices = bad_indices, OCTET_EINVAL, "table 0, bag 1, entry 0: index 8 is none of 8 rows");
    REFUSED(x.offsets = bad_offsets, OCTET_EINVAL, "table 0, bag 0: it would end at index 5");
    REFUSED(x.rows = INT64_C(1) << 33, OCTET_EUNSUPPORTED, "more than 2^32 - 1 rows");
    cr_expect_eq(octet_update_bags(NULL, &good), OCTET_EINVAL);
    cr_expect_eq(octet_update_bags(plan, NULL), OCTET_EINVAL);
    d.pooling = OCTET_MAX;
    cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &max), OCTET_OK);
    octet_bag_update u = good;
    u.tables = &x0, u.steps = &s0;
    cr_expect_eq(octet_update_bags(max, &u), OCTET_EUNSUPPORTED);
    cr_expect(strstr(octet_why(), "no backward pass"));
    octet_bag_plan_free(max);
    octet_bag_plan_free(plan);
    cr_expect_eq(octet_update_bags_bytes(NULL, 5), 0);
}
