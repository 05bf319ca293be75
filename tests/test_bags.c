/* What runs of bags promise beyond values: many tables, threads, faults found where they are, bad input refused, nothing allocated,
 * pooled rows into a product, memory for tables. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bag_case.h"

static void in_turn(void *user, size_t count, octet_task task, void *arg)
{
    (void)user;
    for (size_t i = count; i-- > 0;) task(arg, i); /* backwards: nothing may wait for an earlier task */
}

static octet_ctx *context(int threads, octet_parallel parallel)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx;
    o.threads = threads;
    o.parallel = parallel;
    return octet_ctx_create(&o, &ctx) ? NULL : ctx;
}

/* Tables of any format, dim, pooling and batch in one call: each as the definition has it. */
Test(bags, many_tables_on_any_number_of_threads)
{
    enum { MOST = 12 };
    octet_ctx *ctxs[3] = { NULL, context(5, in_turn), context(3, NULL) };
    for (int round = 0; round < 250; round++) {
        rng r = { (uint64_t)round + 7000 };
        bag_case cases[MOST];
        octet_bag_desc descs[MOST];
        octet_bag_table tables[MOST];
        octet_bag_plan *plan;
        const int n = 1 + (int)rng_below(&r, MOST);
        octet_ctx *ctx = ctxs[round % 3];
        for (int t = 0; t < n; t++) {
            bag_case_new(&cases[t], (uint64_t)(round * MOST + t) + 500000, 0);
            descs[t] = cases[t].d;
            tables[t] = cases[t].x;
        }
        cr_assert_eq(octet_plan_bags(ctx, descs, sizeof *descs, (size_t)n, &plan), OCTET_OK, "%s", octet_why());
        octet_bag_args a = OCTET_BAG_ARGS;
        a.tables = tables;
        cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK, "round %d: %s", round, octet_why());
        for (int t = 0; t < n; t++) {
            cr_assert_eq(bag_case_check(&cases[t], "one of many"), 0);
            bag_case_free(&cases[t]);
        }
        octet_bag_plan_free(plan);
    }
    for (int i = 1; i < 3; i++) octet_ctx_free(ctxs[i]);
}

/* One table large enough to be cut, each kind of border. */
enum { ROWS = 3000, DIM = 24, BAGS = 4000, LONGEST = 9 };
typedef struct big { float *table, *out, *first; int64_t *indices, *offsets; int64_t count; octet_bag_desc d; octet_bag_table x; } big;

static big big_new(unsigned flags)
{
    big b = { malloc(4 * ROWS * DIM), malloc(4 * BAGS * DIM), malloc(4 * BAGS * DIM), malloc(8 * BAGS * LONGEST), malloc(8 * (BAGS + 1)), 0, OCTET_BAG_DESC, OCTET_BAG_TABLE };
    rng r = { 77 };
    for (int64_t i = 0; i < ROWS * DIM; i++) b.table[i] = (float)((int32_t)rng_next(&r) >> 10) * 0x1p-18f;
    for (int64_t i = 0; i < BAGS; i++) {
        const int64_t n = i == 17 ? 0 : rng_below(&r, LONGEST);
        b.offsets[i] = flags & OCTET_BAG_LENGTHS ? n : b.count;
        for (int64_t k = 0; k < n; k++) b.indices[b.count++] = rng_below(&r, ROWS);
    }
    b.offsets[BAGS] = b.count;
    b.d.table = OCTET_F32, b.d.dim = DIM, b.d.flags = flags;
    b.x.table = b.table, b.x.rows = ROWS, b.x.indices = b.indices, b.x.count = b.count, b.x.offsets = b.offsets, b.x.bags = BAGS;
    b.x.out = b.out, b.x.ld_out = DIM;
    return b;
}
static void big_free(big *b) { free(b->table), free(b->out), free(b->first), free(b->indices), free(b->offsets); }

static octet_status big_run(octet_ctx *ctx, const big *b, octet_bag_report *report, int validate_first)
{
    octet_bag_plan *plan;
    octet_bag_args a = OCTET_BAG_ARGS;
    cr_assert_eq(octet_plan_bags(ctx, &b->d, sizeof b->d, 1, &plan), OCTET_OK, "%s", octet_why());
    a.tables = &b->x, a.report = report, a.validate_first = validate_first;
    const octet_status st = octet_run_bags(plan, &a);
    octet_bag_plan_free(plan);
    return st;
}

Test(bags, a_large_table_is_cut_without_a_trace)
{
    static const unsigned flags[] = { 0, OCTET_BAG_LAST_OFFSET, OCTET_BAG_LENGTHS };
    octet_ctx *seven = context(7, in_turn);
    for (int f = 0; f < 3; f++) {
        big b = big_new(flags[f]);
        cr_assert_eq(big_run(NULL, &b, NULL, 0), OCTET_OK);
        memcpy(b.first, b.out, 4 * BAGS * DIM);
        memset(b.out, 0, 4 * BAGS * DIM);
        cr_assert_eq(big_run(seven, &b, NULL, 0), OCTET_OK);
        cr_assert_arr_eq(b.first, b.out, 4 * BAGS * DIM);
        big_free(&b);
    }
    octet_ctx_free(seven);
}

/* Two bad indices, or a bad offset: the lowest is named whatever the threads, and what lies before it is complete. */
Test(bags, the_lowest_fault_is_named)
{
    octet_ctx *ctxs[2] = { NULL, context(7, in_turn) };
    for (int kind = 0; kind < 4; kind++)
        for (int c = 0; c < 2; c++)
            for (int first = 0; first < 2; first++) {
                big b = big_new(OCTET_BAG_LAST_OFFSET);
                octet_bag_report report = OCTET_BAG_REPORT;
                cr_assert_eq(big_run(NULL, &b, NULL, 0), OCTET_OK);
                memcpy(b.first, b.out, 4 * BAGS * DIM);
                memset(b.out, 0xc5, 4 * BAGS * DIM);
                int64_t bag = 2600;
                while (b.offsets[bag + 1] - b.offsets[bag] < 3) bag++;
                const int64_t at = b.offsets[bag] + 2;
                int64_t value = ROWS;
                b.indices[b.count - 1] = -1; /* another, later */
                if (kind == 0) b.indices[at] = value;
                if (kind == 1) b.indices[at] = value = -1;
                if (kind == 2) b.indices[at] = value = INT64_MIN;
                if (kind == 3) b.offsets[bag + 1] = value = b.count + 5;
                cr_assert_eq(big_run(ctxs[c], &b, &report, first), OCTET_EINVAL);
                cr_assert_eq(report.table, 0);
                cr_assert_eq(report.bag, bag, "kind %d: bag %lld, not %lld", kind, (long long)report.bag, (long long)bag);
                cr_assert_eq(report.entry, kind == 3 ? -1 : 2);
                cr_assert_eq(report.value, value);
                char want[80];
                snprintf(want, sizeof want, kind == 3 ? "table 0, bag %lld: it would end at index %lld" : "table 0, bag %lld, entry 2: index %lld is none of 3000 rows",
                         (long long)bag, (long long)value);
                cr_assert(strstr(octet_why(), want), "%s", octet_why());
                if (first) {
                    for (int64_t i = 0; i < 4 * BAGS * DIM; i++) cr_assert_eq(((uint8_t *)b.out)[i], 0xc5, "something was written");
                } else {
                    cr_assert_arr_eq(b.first, b.out, (size_t)(4 * bag * DIM), "bags before it are complete");
                }
                big_free(&b);
            }
    octet_ctx_free(ctxs[1]);
}

Test(bags, slices_of_wide_rows_are_complete_before_a_fault)
{
    enum { WIDE = 2000, N = 4 };
    octet_bag_desc d = OCTET_BAG_DESC;
    octet_bag_table x = OCTET_BAG_TABLE;
    octet_bag_args a = OCTET_BAG_ARGS;
    octet_bag_plan *plan;
    static float table[WIDE], out[N * WIDE];
    int64_t indices[N] = { 0, 0, 0, 1 }, offsets[N] = { 0, 1, 2, 3 };
    for (int j = 0; j < WIDE; j++) table[j] = (float)j;
    d.table = OCTET_F32, d.dim = WIDE;
    x.table = table, x.rows = 1, x.indices = indices, x.count = N, x.offsets = offsets, x.bags = N, x.out = out, x.ld_out = WIDE;
    a.tables = &x;
    cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
    cr_assert_eq(octet_run_bags(plan, &a), OCTET_EINVAL);
    cr_assert(strstr(octet_why(), "bag 3, entry 0"), "%s", octet_why());
    for (int b = 0; b < 3; b++) cr_assert_arr_eq(out + b * WIDE, table, sizeof table);
    octet_bag_plan_free(plan);
}

Test(bags, offsets_that_fall_are_refused_wherever_the_line_is_cut)
{
    octet_ctx *ctxs[2] = { NULL, context(9, in_turn) };
    for (int64_t at = 1; at < BAGS; at += 97)
        for (int c = 0; c < 2; c++) {
            big b = big_new(OCTET_BAG_LAST_OFFSET);
            octet_bag_report report = OCTET_BAG_REPORT;
            b.offsets[at] = at % 2 ? b.offsets[at - 1] - 1 : INT64_MAX;
            cr_assert_eq(big_run(ctxs[c], &b, &report, 0), OCTET_EINVAL);
            cr_assert_eq(report.bag, at - 1, "%lld, not %lld", (long long)report.bag, (long long)at - 1);
            big_free(&b);
        }
    octet_ctx_free(ctxs[1]);
}

/* ---- one by one, what the header says about entries ---- */

typedef struct tiny { float table[3 * 2], out[2 * 2]; octet_bag_desc d; octet_bag_table x; octet_bag_report report; } tiny;
static void tiny_run(tiny *t, const int64_t *indices, int64_t count, const int64_t *offsets, int64_t bags)
{
    octet_bag_plan *plan;
    octet_bag_args a = OCTET_BAG_ARGS;
    const float values[6] = { 1, -2, 10, 20, 100, 200 };
    memcpy(t->table, values, sizeof values);
    memset(t->out, 0xff, sizeof t->out);
    t->report = (octet_bag_report)OCTET_BAG_REPORT;
    t->d.table = OCTET_F32, t->d.dim = 2;
    t->x.table = t->table, t->x.rows = 3, t->x.indices = indices, t->x.count = count, t->x.offsets = offsets, t->x.bags = bags, t->x.out = t->out, t->x.ld_out = 2;
    cr_assert_eq(octet_plan_bags(NULL, &t->d, sizeof t->d, 1, &plan), OCTET_OK, "%s", octet_why());
    a.tables = &t->x, a.report = &t->report;
    cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK, "%s", octet_why());
    octet_bag_plan_free(plan);
}
#define TINY(...) tiny t = { .d = OCTET_BAG_DESC, .x = OCTET_BAG_TABLE }; __VA_ARGS__
static bool plus_zero(float x) { return x == 0 && !signbit(x); }

Test(semantics, empty_bags_give_plus_zero)
{
    for (int pooling = OCTET_SUM; pooling <= OCTET_MAX; pooling++) {
        TINY(t.d.pooling = pooling);
        tiny_run(&t, (int64_t[]){ 1 }, 1, (int64_t[]){ 0, 0 }, 2);
        cr_assert(plus_zero(t.out[0]) && plus_zero(t.out[1]));
        cr_assert_eq(t.out[2], 10);
    }
}
Test(semantics, bags_of_skipped_entries_give_plus_zero)
{
    for (int pooling = OCTET_SUM; pooling <= OCTET_MAX; pooling++)
        for (int how = 0; how < 3; how++) {
            const int32_t remap[3] = { -1, 1, 2 };
            TINY(t.d.pooling = pooling);
            if (how == 0) t.d.flags = OCTET_BAG_PADDING, t.x.padding = 0;
            if (how == 1) t.d.flags = OCTET_BAG_REMAP, t.x.remap = remap, t.x.remap_rows = 3;
            if (how == 2) t.d.bad_index = OCTET_BAD_SKIP;
            const int64_t skipped = how == 2 ? 99 : 0;
            tiny_run(&t, (int64_t[]){ skipped, skipped, 2 }, 3, (int64_t[]){ 0, 2 }, 2);
            cr_assert(plus_zero(t.out[0]) && plus_zero(t.out[1]), "pooling %d, %d", pooling, how);
            cr_assert_eq(t.out[2], 100);
            cr_assert_eq(t.report.bad, how == 2 ? 2 : 0);
        }
}
Test(semantics, mean_divides_by_length_with_pruned_without_padding)
{
    const int32_t remap[3] = { -1, 1, 2 };
    { TINY(t.d.pooling = OCTET_MEAN, t.d.flags = OCTET_BAG_REMAP, t.x.remap = remap, t.x.remap_rows = 3);
      tiny_run(&t, (int64_t[]){ 0, 1 }, 2, (int64_t[]){ 0 }, 1);
      cr_assert_eq(t.out[0], 5); }
    { TINY(t.d.pooling = OCTET_MEAN, t.d.flags = OCTET_BAG_PADDING, t.x.padding = 0);
      tiny_run(&t, (int64_t[]){ 0, 1 }, 2, (int64_t[]){ 0 }, 1);
      cr_assert_eq(t.out[0], 10); }
    { TINY(t.d.pooling = OCTET_MEAN, t.d.bad_index = OCTET_BAD_SKIP);
      tiny_run(&t, (int64_t[]){ -7, 1 }, 2, (int64_t[]){ 0 }, 1);
      cr_assert_eq(t.out[0], 5); }
}
Test(semantics, weighted_mean_is_the_weighted_sum_over_length)
{
    const float w[2] = { 2, 4 };
    TINY(t.d.pooling = OCTET_MEAN, t.d.weights = OCTET_WEIGHT_EACH, t.x.weights = w);
    tiny_run(&t, (int64_t[]){ 1, 2 }, 2, (int64_t[]){ 0 }, 1);
    cr_assert_eq(t.out[0], (2 * 10 + 4 * 100) / 2.0f);
}
Test(semantics, positional_weights_count_skipped_entries)
{
    const float w[3] = { 1, 5, 7 };
    TINY(t.d.weights = OCTET_WEIGHT_POSITION, t.x.weights = w, t.x.weight_count = 3, t.d.flags = OCTET_BAG_PADDING, t.x.padding = 0);
    tiny_run(&t, (int64_t[]){ 0, 1, 2, 2 }, 4, (int64_t[]){ 0, 2 }, 2);
    cr_assert_eq(t.out[0], 5 * 10);
    cr_assert_eq(t.out[2], 1 * 100 + 5 * 100);
}
Test(semantics, duplicates_count_each_time)
{
    TINY(t.d.pooling = OCTET_SUM);
    tiny_run(&t, (int64_t[]){ 1, 1, 1 }, 3, (int64_t[]){ 0 }, 1);
    cr_assert_eq(t.out[0], 30);
}
Test(semantics, of_equal_maxima_the_first_and_nan_propagates)
{
    for (int order = 0; order < 2; order++) { /* +0 then -0, and the reverse */
        octet_bag_desc d = OCTET_BAG_DESC;
        octet_bag_table x = OCTET_BAG_TABLE;
        octet_bag_args a = OCTET_BAG_ARGS;
        octet_bag_plan *plan;
        float table[3] = { 0.0f, -0.0f, NAN }, out[2];
        int64_t indices[5] = { order, 1 - order, 1, 2, 0 }, offsets[2] = { 0, 2 };
        d.table = OCTET_F32, d.dim = 1, d.pooling = OCTET_MAX;
        x.table = table, x.rows = 3, x.indices = indices, x.count = 5, x.offsets = offsets, x.bags = 2, x.out = out, x.ld_out = 1;
        a.tables = &x;
        cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
        cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK);
        cr_assert_eq(out[0], 0);
        cr_assert_eq(signbit(out[0]) != 0, order == 1);
        cr_assert(isnan(out[1]));
        octet_bag_plan_free(plan);
    }
}
Test(semantics, minus_one_needs_a_remap)
{
    const int32_t remap[2] = { 2, -1 };
    { TINY(t.d.flags = OCTET_BAG_REMAP, t.x.remap = remap, t.x.remap_rows = 2);
      tiny_run(&t, (int64_t[]){ -1, 0, 1 }, 3, (int64_t[]){ 0 }, 1);
      cr_assert_eq(t.out[0], 100); }
    const int32_t wild[2] = { 3, -2 };
    for (int64_t i = -1; i < 3; i++) {
        octet_bag_plan *plan;
        octet_bag_args a = OCTET_BAG_ARGS;
        octet_bag_desc d = OCTET_BAG_DESC;
        octet_bag_table x = OCTET_BAG_TABLE;
        float table[3] = { 1, 2, 3 }, out;
        int64_t offset = 0;
        d.table = OCTET_F32, d.dim = 1, d.flags = i < 0 ? 0 : OCTET_BAG_REMAP;
        x.table = table, x.rows = 3, x.indices = &i, x.count = 1, x.offsets = &offset, x.bags = 1, x.out = &out, x.ld_out = 1, x.remap = wild, x.remap_rows = 2;
        a.tables = &x;
        cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
        cr_assert_eq(octet_run_bags(plan, &a), OCTET_EINVAL, "index %lld", (long long)i);
        octet_bag_plan_free(plan);
    }
}
Test(semantics, none_passes_rows_on_bit_for_bit)
{
    uint32_t table[2] = { 0x80000000u, 0x00000001u }, out[3]; /* -0, a denormal */
    int32_t indices[3] = { 1, 0, 1 };
    octet_bag_desc d = OCTET_BAG_DESC;
    octet_bag_table x = OCTET_BAG_TABLE;
    octet_bag_args a = OCTET_BAG_ARGS;
    octet_bag_plan *plan;
    d.table = OCTET_F32, d.dim = 1, d.pooling = OCTET_NONE, d.index = OCTET_S32;
    x.table = table, x.rows = 2, x.indices = indices, x.count = 3, x.out = out, x.ld_out = 1;
    a.tables = &x;
    cr_assert_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &plan), OCTET_OK);
    cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK, "%s", octet_why());
    cr_assert(out[0] == 1 && out[1] == 0x80000000u && out[2] == 1);
    octet_bag_plan_free(plan);
}

/* ---- bad input ---- */

#define NO_PLAN(change, words) do { octet_bag_desc d = good; octet_bag_plan *p = NULL; change; \
        cr_expect_eq(octet_plan_bags(NULL, &d, sizeof d, 1, &p), OCTET_EINVAL, #change); \
        cr_expect(strstr(octet_why(), words), "%s: %s", #change, octet_why()); cr_expect_null(p); } while (0)
#define NO_RUN(change, words) do { octet_bag_table x = x0; octet_bag_args a = a0; a.tables = &x; memset(out, 7, sizeof out); change; \
        cr_expect_eq(octet_run_bags(plan, &a), OCTET_EINVAL, #change); \
        cr_expect(strstr(octet_why(), words), "%s: %s", #change, octet_why()); \
        for (size_t q = 0; q < sizeof out; q++) cr_assert_eq(((uint8_t *)out)[q], 7, #change); } while (0)

Test(bags, bad_input_gets_a_sentence_and_changes_nothing)
{
    octet_bag_desc good = OCTET_BAG_DESC;
    octet_bag_plan *plan, *lengths, *position, *remapped;
    good.table = OCTET_U8, good.dim = 8;
    NO_PLAN(d.size = 3, "size is not of a known version");
    NO_PLAN(d.table = (octet_dtype)0, "table is not a type");
    NO_PLAN(d.table = OCTET_S8, "table is not a type");
    NO_PLAN(d.dim = 0, "dim is outside");
    NO_PLAN(d.dim = (1 << 20) + 1, "dim is outside");
    NO_PLAN(d.layout = 3, "layout is none");
    NO_PLAN(d.params = OCTET_BF16, "params");
    NO_PLAN((d.table = OCTET_F32, d.layout = OCTET_ROWS_BEHIND), "for tables with scales");
    NO_PLAN(d.pooling = 4, "pooling is none");
    NO_PLAN(d.weights = 3, "weights is none");
    NO_PLAN((d.weights = 1, d.pooling = OCTET_MAX), "weighted maximum");
    NO_PLAN((d.weights = OCTET_WEIGHT_POSITION, d.pooling = OCTET_NONE), "need bags");
    NO_PLAN(d.index = OCTET_U8, "index or offset");
    NO_PLAN(d.offset = OCTET_F32, "index or offset");
    NO_PLAN(d.out = OCTET_S8, "out is not");
    NO_PLAN((d.out = OCTET_U8, d.dim = 1025), "not quantized on their way out");
    NO_PLAN(d.bad_index = 4, "bad_index");
    NO_PLAN(d.flags = 64, "unknown bits");
    NO_PLAN(d.flags = OCTET_BAG_LENGTHS | OCTET_BAG_LAST_OFFSET, "lengths have no last offset");
    NO_PLAN(d.flags = OCTET_BAG_SLICE, "needs OCTET_BAG_LAST_OFFSET");
    cr_expect_eq(octet_plan_bags(NULL, &good, sizeof good, 1, NULL), OCTET_EINVAL);
    cr_expect_eq(octet_plan_bags(NULL, NULL, sizeof good, 1, &plan), OCTET_EINVAL);
    cr_expect_eq(octet_plan_bags(NULL, &good, sizeof good, 0, &plan), OCTET_EINVAL);
    cr_expect_eq(octet_plan_bags(NULL, &good, sizeof good, SIZE_MAX / 8, &plan), OCTET_EINVAL);
    cr_expect_eq(octet_bag_row_bytes(&good), 16);
    cr_expect_eq(octet_bag_row_bytes(NULL), 0);

    cr_assert_eq(octet_plan_bags(NULL, &good, sizeof good, 1, &plan), OCTET_OK);
    good.flags = OCTET_BAG_LENGTHS;
    cr_assert_eq(octet_plan_bags(NULL, &good, sizeof good, 1, &lengths), OCTET_OK);
    good.flags = 0, good.weights = OCTET_WEIGHT_POSITION;
    cr_assert_eq(octet_plan_bags(NULL, &good, sizeof good, 1, &position), OCTET_OK);
    good.weights = 0, good.flags = OCTET_BAG_REMAP;
    cr_assert_eq(octet_plan_bags(NULL, &good, sizeof good, 1, &remapped), OCTET_OK);
    uint8_t table[4 * 16] = { 0 };
    float out[2 * 8], weights[1] = { 1 };
    int64_t indices[4] = { 0, 1, 2, 3 }, offsets[2] = { 0, 2 };
    octet_bag_table x0 = OCTET_BAG_TABLE;
    octet_bag_args a0 = OCTET_BAG_ARGS;
    x0.table = table, x0.rows = 4, x0.indices = indices, x0.count = 4, x0.offsets = offsets, x0.bags = 2, x0.out = out, x0.ld_out = 8;
    NO_RUN(a.size = 1, "args->size");
    NO_RUN(a.tables = NULL, "tables is NULL");
    NO_RUN(x.size = 9, "size is not of a known version");
    NO_RUN(x.rows = -1, "negative");
    NO_RUN(x.count = -1, "negative");
    NO_RUN(x.bags = -1, "bags is negative");
    NO_RUN(x.row_bytes = 15, "row_bytes is less");
    NO_RUN((x.rows = INT64_MAX / 8, x.row_bytes = 64), "overflows");
    NO_RUN(x.count = INT64_MAX / 4, "overflows");
    NO_RUN(x.bags = INT64_MAX / 4, "overflows");
    NO_RUN(x.table = NULL, "table is NULL");
    NO_RUN(x.indices = NULL, "indices is NULL");
    NO_RUN(x.indices = (char *)indices + 4, "misaligned");
    NO_RUN(x.offsets = NULL, "offsets is NULL");
    NO_RUN(x.offsets = (char *)offsets + 4, "misaligned");
    NO_RUN(x.out = NULL, "out is NULL");
    NO_RUN(x.out = (char *)out + 2, "misaligned");
    NO_RUN(x.ld_out = 7, "ld_out is less");
    NO_RUN(x.ld_out = INT64_MAX / 4, "overflows");
    NO_RUN(x.out = (float *)(void *)table, "out overlaps");
    NO_RUN(x.out = (float *)(void *)indices, "out overlaps");
    NO_RUN((offsets[0] = 1), "the first offset is not 0");
    offsets[0] = 0;
    NO_RUN((x.bags = 0), "there are indices, but no bags");
    octet_bag_report old = OCTET_BAG_REPORT;
    old.size = 4;
    NO_RUN(a.report = &old, "report->size");
    cr_expect_eq(octet_run_bags(NULL, &a0), OCTET_EINVAL);
    cr_expect_eq(octet_run_bags(plan, NULL), OCTET_EINVAL);
    octet_bag_plan *keep = plan;
    plan = lengths;
    NO_RUN((offsets[0] = 3, offsets[1] = 2), "do not add up");
    NO_RUN((offsets[0] = -1, offsets[1] = 5), "negative");
    NO_RUN((offsets[0] = INT64_MAX, offsets[1] = INT64_MAX), "overflows");
    offsets[0] = 0, offsets[1] = 2;
    plan = position;
    NO_RUN((x.weights = weights, x.weight_count = 1), "table 0, bag 0: 2 indices, but 1 weights");
    NO_RUN((x.weights = NULL, x.weight_count = 2), "weights is NULL");
    NO_RUN((x.weights = weights, x.weight_count = -1), "out of range");
    plan = remapped;
    NO_RUN(x.remap_rows = 4, "remap is NULL");
    NO_RUN(x.remap_rows = -4, "out of range");
    plan = keep;
    octet_bag_plan_free(plan), octet_bag_plan_free(lengths), octet_bag_plan_free(position), octet_bag_plan_free(remapped);
    octet_bag_plan_free(NULL);
}

#if defined(__x86_64__)
#include <xmmintrin.h>

/* Rounding upward and flushing denormals in the caller: no result of ours changes, and the caller's MXCSR is back afterwards. */
Test(bags, the_callers_rounding_does_not_matter)
{
    for (uint64_t seed = 40; seed < 140; seed++) {
        bag_case c;
        octet_bag_plan *plan;
        octet_bag_args a = OCTET_BAG_ARGS;
        bag_case_new(&c, seed, 0);
        a.tables = &c.x;
        cr_assert_eq(octet_plan_bags(NULL, &c.d, sizeof c.d, 1, &plan), OCTET_OK);
        const unsigned was = _mm_getcsr();
        _mm_setcsr(0xdfc0);
        const octet_status st = octet_run_bags(plan, &a);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(was);
        cr_assert(st == OCTET_OK && after == 0xdfc0);
        cr_assert_eq(bag_case_check(&c, "altered MXCSR"), 0);
        octet_bag_plan_free(plan);
        bag_case_free(&c);
    }
}
#endif

/* ---- memory ---- */

static int64_t held, allocations, allowed;
static void *counted(void *user, size_t bytes, size_t align)
{
    (void)user;
    if (allocations >= allowed) return NULL;
    allocations++;
    held++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}
static void uncounted(void *user, void *p, size_t bytes) { (void)user, (void)bytes; held--; free(p); }

Test(bags, a_plan_is_all_that_is_allocated)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx;
    big b = big_new(OCTET_BAG_LAST_OFFSET);
    octet_bag_plan *plan;
    octet_bag_args a = OCTET_BAG_ARGS;
    octet_cache_stats before = OCTET_CACHE_STATS, after = OCTET_CACHE_STATS;
    o.allocator.alloc = counted, o.allocator.free = uncounted;
    allowed = 1;
    cr_assert_eq(octet_ctx_create(&o, &ctx), OCTET_OK);
    cr_assert_eq(octet_plan_bags(ctx, &b.d, sizeof b.d, 1, &plan), OCTET_ENOMEM);
    allowed = 100;
    cr_assert_eq(octet_plan_bags(ctx, &b.d, sizeof b.d, 1, &plan), OCTET_OK);
    const int64_t made = allocations;
    a.tables = &b.x;
    octet_cache_info(&before);
    cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK);
    octet_cache_info(&after);
    cr_assert_eq(allocations, made);
    cr_assert_eq(before.generated, after.generated);
    octet_ctx_free(ctx); /* the plan keeps it */
    cr_assert_eq(octet_run_bags(plan, &a), OCTET_OK);
    octet_bag_plan_free(plan);
    cr_assert_eq(held, 0);
    big_free(&b);
}

Test(bags, tables_in_memory_of_their_own)
{
    void *p = NULL;
    int pages = -1;
    cr_assert_eq(octet_table_alloc(5 << 20, &p, &pages), OCTET_OK, "%s", octet_why());
    cr_assert_eq((uintptr_t)p % (2 << 20), 0);
    for (size_t i = 0; i < 5 << 20; i += 1000) cr_assert_eq(((char *)p)[i], 0);
    memset(p, 1, 5 << 20);
    cr_assert(pages == OCTET_PAGES_SMALL || pages == OCTET_PAGES_SOME_HUGE || pages == OCTET_PAGES_HUGE);
    octet_table_free(p, 5 << 20);
    octet_table_free(NULL, 5);
    p = &pages;
    cr_assert_eq(octet_table_alloc(0, &p, NULL), OCTET_EINVAL);
    cr_assert_eq(octet_table_alloc((size_t)1 << 48, &p, NULL), OCTET_EINVAL);
    cr_assert_eq(octet_table_alloc((size_t)1 << 47, &p, NULL), OCTET_ENOMEM);
    cr_assert_eq(octet_table_alloc(5, NULL, NULL), OCTET_EINVAL);
    cr_assert_eq(p, &pages);
}

/* ---- into a product ---- */

Test(bags, a_product_of_pooled_rows_is_that_of_two_calls)
{
    enum { M = 137, N = 40, T = 3 };
    static const int64_t dims[T] = { 24, 16, 100 };
    octet_ctx *ctxs[2] = { NULL, context(3, in_turn) };
    for (int kind = 0; kind < 4; kind++)
        for (int c = 0; c < 2; c++) {
            rng r = { (uint64_t)kind + 1 };
            octet_bag_desc d[T];
            octet_bag_table x[T];
            float *tables[T];
            int64_t *indices[T], *offsets[T];
            static float a[M * 140], got[M * N], want[M * N];
            static float w[N * 140], scales[N];
            static int8_t q[N * 140];
            octet_gemm_desc g = OCTET_GEMM_DESC;
            octet_gemm_args y = OCTET_GEMM_ARGS;
            octet_quant quant = OCTET_QUANT;
            octet_plan *plan;
            octet_packed *packed;
            octet_bag_plan *bags;
            octet_bag_args ba = OCTET_BAG_ARGS;
            for (int t = 0, col = 0; t < T; col += (int)dims[t++]) {
                d[t] = (octet_bag_desc)OCTET_BAG_DESC, x[t] = (octet_bag_table)OCTET_BAG_TABLE;
                d[t].table = OCTET_F32, d[t].dim = dims[t], d[t].pooling = t % 2 ? OCTET_MEAN : OCTET_SUM;
                d[t].flags = t == 1 ? OCTET_BAG_LENGTHS : t == 2 ? OCTET_BAG_LAST_OFFSET : 0;
                tables[t] = malloc((size_t)(50 * dims[t]) * 4);
                indices[t] = malloc(8 * M * 6);
                offsets[t] = malloc(8 * (M + 1));
                for (int64_t i = 0; i < 50 * dims[t]; i++) tables[t][i] = (float)((int32_t)rng_next(&r) >> 12) * 0x1p-18f;
                int64_t n = 0;
                for (int b = 0; b < M; b++) {
                    const int64_t len = rng_below(&r, 6);
                    offsets[t][b] = t == 1 ? len : n;
                    for (int64_t i = 0; i < len; i++) indices[t][n++] = rng_below(&r, 50);
                }
                offsets[t][M] = n;
                x[t].table = tables[t], x[t].rows = 50, x[t].indices = indices[t], x[t].count = n, x[t].offsets = offsets[t], x[t].bags = M;
                x[t].out = a + col, x[t].ld_out = 140;
            }
            for (int i = 0; i < N * 140; i++) w[i] = (float)((int32_t)rng_next(&r) >> 12) * 0x1p-18f;
            octet_quantize_channels(w, N, 140, q, scales);
            g.n = N, g.k = 140, g.a = OCTET_F32, g.b = kind ? OCTET_S8 : OCTET_F32, g.c = OCTET_F32, g.trans_b = 1;
            if (kind == 1) g.flags = OCTET_DYNAMIC, g.scale_a = OCTET_PER_ROW;
            if (kind == 2) g.a_as = OCTET_U8;
            if (kind == 3) g.a_as = OCTET_F32;
            if (kind) quant.scales = scales;
            cr_assert_eq(octet_plan_gemm(ctxs[c], &g, &plan), OCTET_OK, "%s", octet_why());
            cr_assert_eq(octet_pack(plan, kind ? (void *)q : (void *)w, 140, &quant, &packed), OCTET_OK, "%s", octet_why());
            cr_assert_eq(octet_plan_bags(ctxs[c], d, sizeof *d, T, &bags), OCTET_OK);
            ba.tables = x;
            cr_assert_eq(octet_run_bags(bags, &ba), OCTET_OK, "%s", octet_why());
            y.m = M, y.a = a, y.lda = 140, y.b = packed, y.c = want, y.ldc = N;
            if (kind == 2) y.scale_a = 0.5f, y.zero_a = 128;
            cr_assert_eq(octet_run(plan, &y), OCTET_OK, "%s", octet_why());
            for (int small = 0; small < 2; small++) { /* with a workspace that holds a few rows, too */
                _Alignas(64) static uint8_t memory[64 << 10];
                memset(got, 0, sizeof got);
                y.a = NULL, y.lda = 0, y.c = got;
                y.workspace = small ? memory : NULL, y.workspace_bytes = small ? sizeof memory : 0;
                cr_assert_eq(octet_gemm_bags(plan, &y, bags, &ba), OCTET_OK, "%s", octet_why());
                cr_assert_arr_eq(got, want, sizeof got, "kind %d, context %d", kind, c);
            }
            octet_bag_report report = OCTET_BAG_REPORT;
            ba.report = &report;
            indices[2][x[2].count - 1] = 50;
            cr_assert_eq(octet_gemm_bags(plan, &y, bags, &ba), OCTET_EINVAL);
            cr_assert(report.table == 2 && report.value == 50, "%s", octet_why());
            memset(got, 9, sizeof got);
            ba.validate_first = 1;
            cr_assert_eq(octet_gemm_bags(plan, &y, bags, &ba), OCTET_EINVAL);
            for (size_t i = 0; i < sizeof got; i++) cr_assert_eq(((uint8_t *)got)[i], 9);
            indices[2][x[2].count - 1] = 0;
            y.m = M - 1;
            cr_assert_eq(octet_gemm_bags(plan, &y, bags, &ba), OCTET_EINVAL);
            cr_assert(strstr(octet_why(), "has not m bags"), "%s", octet_why());
            y.m = M, y.c = tables[0];
            cr_assert_eq(octet_gemm_bags(plan, &y, bags, &ba), OCTET_EINVAL);
            cr_assert(strstr(octet_why(), "overlaps"), "%s", octet_why());
            cr_assert_eq(octet_gemm_bags(plan, &y, bags, NULL), OCTET_EINVAL);
            octet_packed_free(packed);
            octet_plan_free(plan);
            octet_bag_plan_free(bags);
            for (int t = 0; t < T; t++) free(tables[t]), free(indices[t]), free(offsets[t]);
        }
    octet_ctx_free(ctxs[1]);
}
