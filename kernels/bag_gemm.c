/*
 * Bags into a product: blocks of rows are pooled into a corner of the workspace, table beside table, and the product packs
 * its A from there while they are in the cache.
 */
#include "bags.h"
#include "mxcsr.h"
#include "run.h"

enum { K_MAX = 8192, TABLES_MAX = 256, ROOM_BYTES = 192 << 10, GEMM_LEAST = 48 << 10 }; /* what any product gets by with */

typedef struct fused {
    const octet_bag_plan *bags;
    const octet_bag_args *bag_args;
    size_t                stride;
    const gemm_problem   *problem;
    int64_t               k;
    int                   status[THREADS_MAX];
    int64_t               bad[THREADS_MAX];
} fused;

/* Rows i0 .. i1-1 of A to `room`; at[t]: where bag i0 of table t begins, which moves on. */
static int pool_rows(const fused *f, int64_t i0, int64_t i1, float *room, int64_t *at, int64_t *bad)
{
    float *column = room;
    bag_fault fault;
    for (size_t t = 0; t < f->bags->tables; t++) {
        const bag_unit *u = &f->bags->unit[t];
        octet_bag_table own;
        const octet_bag_table *x = bag_table(f->bag_args->tables, f->stride, t, &own);
        if (x != &own) own = *x;
        own.ld_out = f->k;
        own.out = (float *)((uintptr_t)column - (uintptr_t)(4 * i0 * f->k)); /* where row 0 would be */
        const int status = bag_run(u, &own, t, i0, i1, at[t], f->bag_args->ahead, bad, &fault);
        if (status != BAG_DONE) return status;
        if (i1 < own.bags || u->desc.pooling == OCTET_NONE) at[t] = bag_start(u, &own, i1, i0, at[t]);
        column += u->desc.dim;
    }
    return BAG_DONE;
}

/* Rows `from` .. `to`-1 of the product, `some` at a time by way of `room`. */
static void run_rows(fused *f, int64_t i, int64_t from, int64_t to, float *room, int64_t some, uint8_t *memory, size_t bytes)
{
    gemm_problem g = *f->problem;
    view v = g.a.views[0];
    int64_t at[TABLES_MAX];
    g.a.views = &v;
    for (size_t t = 0; from < to && t < f->bags->tables; t++) {
        octet_bag_table own;
        const octet_bag_table *x = bag_table(f->bag_args->tables, f->stride, t, &own);
        at[t] = bag_start(&f->bags->unit[t], x, from, 0, bag_first(&f->bags->unit[t], x));
    }
    for (int64_t i0 = from; i0 < to; i0 += some) {
        const int64_t n = min64(some, to - i0);
        const unsigned kept = fp_enter();
        f->status[i] = pool_rows(f, i0, i0 + n, room, at, &f->bad[i]);
        fp_leave(kept);
        if (f->status[i] != BAG_DONE) return;
        v.base = (const void *)((uintptr_t)room - (uintptr_t)(4 * i0 * f->k));
        cpu_gemm_rows(&g, i0, n, memory, bytes);
    }
}

static __attribute__((noinline)) void on_the_stack(fused *f, int64_t i, int64_t from, int64_t to, uint8_t *memory, size_t bytes)
{
    float room[K_MAX];
    run_rows(f, i, from, to, room, K_MAX / f->k, memory, bytes);
}

static void part(void *arg, int64_t i, int64_t tasks, uint8_t *memory, size_t bytes)
{
    fused *f = arg;
    const parts rows = cut(f->problem->m, tasks);
    const int64_t from = part_start(rows, i), to = from + part_size(rows, i), row = max64(4, 4 * f->k);
    const int64_t some = max64(1, min64(ROOM_BYTES, (int64_t)bytes / 2) / row), room = round_up(some * row, 64);
    f->status[i] = BAG_DONE;
    f->bad[i] = 0;
    if ((int64_t)bytes - room >= GEMM_LEAST) run_rows(f, i, from, to, (float *)(void *)memory, some, memory + room, bytes - (size_t)room);
    else on_the_stack(f, i, from, to, memory, bytes);
}

/* What is broken between the two, or NULL. */
static const char *pair_breach(const octet_plan *p, const octet_gemm_args *x, const octet_bag_plan *b, const octet_bag_args *y, size_t stride)
{
    const octet_gemm_desc *d = &p->desc;
    int64_t k = 0;
    if (p->ctx != b->ctx) return "the plans are of different contexts";
    if (d->a != OCTET_F32 || d->trans_a) return "the product's A is not f32, or transposed";
    if ((d->flags & OCTET_DYNAMIC) && d->scale_a == OCTET_PER_TENSOR) return "the range of all of A is not known while it is made; OCTET_PER_ROW";
    if (b->tables > TABLES_MAX) return "there are more than 256 tables";
    for (size_t t = 0; t < b->tables; t++) {
        if (b->unit[t].desc.out != OCTET_F32) return "a table's out is not f32";
        k += b->unit[t].desc.dim;
    }
    if (k != d->k) return "k is not the sum of the tables' dims";
    if (k > K_MAX) return "k is more than 8192";
    const char *broken = args_breach_but_a(p, x);
    const int64_t lines = d->trans_c ? p->out_n : x->m, width = d->trans_c ? x->m : p->out_n;
    for (size_t t = 0; t < b->tables && !broken; t++) {
        octet_bag_table room;
        const octet_bag_table *table = bag_table(y->tables, stride, t, &room);
        broken = table ? bag_breach(&b->unit[t], table, BAG_READS_TABLE) : "size is not of a known version; initialize with OCTET_BAG_TABLE";
        if (!broken && bags_of(&b->unit[t], table) != x->m) broken = "a table has not m bags";
        if (!broken && bag_overlaps(&b->unit[t], table, x->c, span_of(lines, width, x->ldc, p->c->bytes))) broken = "c overlaps what bags read";
    }
    return broken;
}

octet_status octet_gemm_bags(const octet_plan *p, const octet_gemm_args *args, const octet_bag_plan *bags, const octet_bag_args *pooled)
{
    static const char who[] = "octet_gemm_bags";
    octet_gemm_args x;
    octet_bag_args y;
    octet_bag_table room;
    fused f;
    if (!p || !args || !bags || !pooled) return fail(OCTET_EINVAL, "%s: an argument is NULL", who);
    if (!copy_versioned(&x, sizeof x, offsetof(octet_gemm_args, bias), args) || !copy_versioned(&y, sizeof y, offsetof(octet_bag_args, stride), pooled))
        return fail(OCTET_EINVAL, "%s: a size is not of a known version; initialize with OCTET_GEMM_ARGS, OCTET_BAG_ARGS", who);
    if (!y.tables) return fail(OCTET_EINVAL, "%s: tables is NULL", who);
    if (!bag_report_ok(y.report)) return fail(OCTET_EINVAL, "%s: report->size is not of a known version; initialize with OCTET_BAG_REPORT", who);
    bag_report(y.report, 0, NULL);
    f.stride = y.stride ? y.stride : sizeof room;
    const char *broken = pair_breach(p, &x, bags, &y, f.stride);
    if (broken) return fail(OCTET_EINVAL, "%s: %s", who, broken);
    for (size_t t = 0; y.validate_first && t < bags->tables; t++) {
        const octet_bag_table *table = bag_table(y.tables, f.stride, t, &room);
        const bag_fault fault = bag_validate(&bags->unit[t], table, t);
        if (fault.status != BAG_DONE) return bag_fail(who, &bags->unit[t], table, &fault, y.report);
    }
    gemm_problem g;
    view rows;
    dest c;
    x.a = NULL;
    x.lda = p->desc.k;
    problem_of(p, &x, &rows, &c, &g);
    f.bags = bags;
    f.bag_args = &y;
    f.problem = &g;
    f.k = p->desc.k;
    int64_t tasks = x.m ? min64(x.m, cpu_tasks(p->ctx, cpu_gemm_cost(&p->b, x.m))) : 0, bad = 0;
    for (int64_t i = 0; i < THREADS_MAX; i++) { f.status[i] = BAG_DONE; f.bad[i] = 0; }
    if (tasks && p->out_n) cpu_parts(p->ctx, x.workspace, x.workspace_bytes, tasks, part, &f);
    bool faulty = false;
    for (int64_t i = 0; i < tasks; i++) {
        faulty = faulty || f.status[i] != BAG_DONE;
        bad += f.bad[i];
    }
    for (size_t t = 0; faulty && t < bags->tables; t++) { /* which of several is the first is told as octet_run_bags tells it */
        const octet_bag_table *table = bag_table(y.tables, f.stride, t, &room);
        const bag_fault fault = bag_validate(&bags->unit[t], table, t);
        if (fault.status != BAG_DONE) return bag_fail(who, &bags->unit[t], table, &fault, y.report);
    }
    bag_report(y.report, bad, NULL);
    return OCTET_OK;
}
