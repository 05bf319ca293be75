/*
 * Many products in one call. Their multiply-adds lie one after the other on a line; a task takes an equal stretch of it,
 * cut between rows, so that one large product and a hundred small ones are balanced alike. What no product changes is
 * worked out once for each task.
 */
#include "run.h"

/* ---- the line of work ---- */

typedef struct many many;
/* Product i of a batch, in the task's own storage; false: it has no rows. */
typedef bool (*state_fn)(const many *, int64_t i, view *rows, dest *c, gemm_problem *g);

struct many {
    int64_t  count;
    int64_t (*rows)(const many *, int64_t i);
    double  (*row_cost)(const many *, int64_t i);
    state_fn state;
    double   total;
    const void *what;                  /* of the kind of batch */
    bool        stated;                /* the problem is stated once, and only pointers change */
    const octet_plan *plan;            /* of all, or NULL      */
    const octet_gemm_args *args;
};

enum { CUT = 24 }; /* rows: whole tiles of 6 and of 8 */

/* Of a product that begins at `from` on the line: its first row at or past `at`. */
static int64_t row_at(double at, double from, double row_cost, int64_t m)
{
    if (at <= from) return 0;
    const double r = (at - from) / row_cost;
    return r >= (double)m ? m : min64(m, round_up((int64_t)r, CUT));
}

static void part(void *arg, int64_t i, int64_t tasks, uint8_t *memory, size_t bytes)
{
    const many *b = arg;
    const double lo = b->total * (double)i / (double)tasks, hi = b->total * (double)(i + 1) / (double)tasks;
    double from = 0;
    gemm_problem g;
    view rows;
    dest c;
    if (b->stated) problem_of(b->plan, b->args, &rows, &c, &g);
    for (int64_t j = 0; j < b->count; j++) {
        const int64_t m = b->rows(b, j);
        int64_t r0 = 0, r1 = m;
        if (tasks > 1) {
            const double cost = b->row_cost(b, j);
            if (i > 0) r0 = row_at(lo, from, cost, m);
            if (i + 1 < tasks) r1 = row_at(hi, from, cost, m);
            from += cost * (double)m;
        }
        if (r0 < r1 && b->state(b, j, &rows, &c, &g)) cpu_gemm_rows(&g, r0, r1 - r0, memory, bytes);
    }
}

static void run_many(many *b, octet_ctx *ctx, const octet_gemm_args *first)
{
    int64_t tasks = 1;
    if (ctx->threads > 1) {
        b->total = 0;
        for (int64_t j = 0; j < b->count; j++) b->total += b->row_cost(b, j) * (double)b->rows(b, j);
        tasks = cpu_tasks(ctx, b->total);
    }
    cpu_parts(ctx, first->workspace, first->workspace_bytes, tasks, part, b);
}

/* ---- one plan ---- */

static int64_t batch_rows(const many *b, int64_t i)
{
    const octet_batch *w = b->what;
    return w->m_offsets ? w->m_offsets[i + 1] - w->m_offsets[i] : b->args->m;
}
static double plan_row_cost(const many *b, int64_t i) { (void)i; return cpu_gemm_cost(&b->plan->b, 1); }

/* Everything by row, from row r on. */
static void shift_rows(const octet_plan *p, const octet_gemm_args *x, int64_t r, octet_gemm_args *y)
{
    const octet_gemm_desc *d = &p->desc;
    *y = *x;
    if (x->a) y->a = (const char *)x->a + r * (d->trans_a ? 1 : x->lda) * p->a->bytes;
    if (x->c) y->c = (char *)x->c + r * (d->trans_c ? 1 : x->ldc) * p->c->bytes;
    if (x->scale_a_rows) y->scale_a_rows = x->scale_a_rows + r;
    if (x->zero_a_rows) y->zero_a_rows = x->zero_a_rows + r;
    if (x->sums) y->sums = (const int32_t *)x->sums + r * x->ld_sums;
    for (int i = 0; i < p->steps; i++) {
        const uint8_t c = p->chain[i];
        if (!chain_has_operand(c) || chain_shape(c) == OCTET_PER_N || !x->operand[i].t) continue;
        const int64_t step = chain_shape(c) == OCTET_PER_M ? 4 : x->operand[i].ld * (chain_type(c) ? 2 : 4);
        y->operand[i].t = (const char *)x->operand[i].t + r * step;
    }
}

void batch_args(const octet_plan *p, const octet_gemm_args *x, const octet_batch *w, int64_t i, octet_gemm_args *y)
{
    if (w->m_offsets) {
        shift_rows(p, x, w->m_offsets[i], y);
        y->m = w->m_offsets[i + 1] - w->m_offsets[i];
    } else {
        y->a = w->a ? w->a[i] : (const char *)x->a + i * w->stride_a * p->a->bytes;
        y->c = w->c ? w->c[i] : (char *)x->c + i * w->stride_c * p->c->bytes;
    }
    if (w->b) y->b = w->b[i];
}

static bool batch_state(const many *b, int64_t i, view *rows, dest *c, gemm_problem *g)
{
    const octet_batch *w = b->what;
    const octet_plan *p = b->plan;
    const octet_gemm_args *x = b->args;
    if (!b->stated) {
        octet_gemm_args y = *x;
        batch_args(p, x, w, i, &y);
        view own; /* problem_of points g at what it is given */
        dest to;
        problem_of(p, &y, &own, &to, g);
        *rows = own;
        *c = to;
        g->a.views = rows;
        g->dest = c;
        g->operand = x->operand; /* y's do not outlive this call */
        g->row_base = w->m_offsets ? w->m_offsets[i] : 0;
        g->done_i = w->m_offsets ? w->m_offsets[i] : i * x->m;
        return y.m > 0;
    }
    rows->base = w->a ? w->a[i] : (const char *)x->a + i * w->stride_a * p->a->bytes;
    c->base = w->c ? w->c[i] : (char *)x->c + i * w->stride_c * p->c->bytes;
    g->b = w->b ? w->b[i] : x->b;
    g->done_i = i * x->m;
    return true;
}

octet_status batch_check(const char *who, const octet_plan *p, const octet_gemm_args *x, const octet_batch *batch, octet_batch *to)
{
    const char *(*breach)(const octet_plan *, const octet_gemm_args *) = p->gpu ? gpu_args_breach : args_breach;
    octet_gemm_args y;
    if (!batch) return fail(OCTET_EINVAL, "%s: batch is NULL", who);
    if (!copy_versioned(to, sizeof *to, offsetof(octet_batch, stride_a), batch))
        return fail(OCTET_EINVAL, "%s: batch->size is not of a known version; initialize with OCTET_BATCH", who);
    const octet_batch w = *to;
    if (w.count < 0) return fail(OCTET_EINVAL, "%s: count is negative", who);
    if (w.m_offsets && (w.a || w.c)) return fail(OCTET_EINVAL, "%s: m_offsets goes with the pointers in args, not with a or c", who);
    if (!w.m_offsets && !w.c && w.stride_c == 0 && w.count > 1) return fail(OCTET_EINVAL, "%s: stride_c is 0, so that every product would write the same C", who);
    if (w.m_offsets && w.count && w.m_offsets[0] < 0) return fail(OCTET_EINVAL, "%s: m_offsets[0] is negative", who);
    for (int64_t i = 0; w.m_offsets && i < w.count; i++)
        if (w.m_offsets[i + 1] < w.m_offsets[i]) return fail(OCTET_EINVAL, "%s: m_offsets[%lld] is less than the one before", who, (long long)i + 1);
    y = *x;
    if (w.m_offsets && w.count) { /* all rows at once: sizes, leading dimensions, what overlaps */
        y.m = w.m_offsets[w.count];
        if (w.b) y.b = w.b[0];
        const char *broken = breach(p, &y);
        if (broken) return fail(OCTET_EINVAL, "%s: rows 0 .. m_offsets[%lld]: %s", who, (long long)w.count, broken);
    } else if (w.count > 1) { /* what one product may share with its C, several may not */
        bool shared = x->sums && x->sums == x->c;
        for (int i = 0; i < p->steps; i++) shared = shared || (chain_has_operand(p->chain[i]) && x->operand[i].t == x->c);
        if (shared) return fail(OCTET_EINVAL, "%s: sums or an operand is c, but the same for all products", who);
    }
    for (int64_t i = 0; i < w.count; i++) {
        int64_t far_a = 0, far_c = 0;
        if ((!w.m_offsets && !w.a && !mul_ok(i, w.stride_a, &far_a)) || (!w.m_offsets && !w.c && !mul_ok(i, w.stride_c, &far_c)) || far_a > INT64_MAX / 8 || far_a < INT64_MIN / 8 || far_c > INT64_MAX / 8 || far_c < INT64_MIN / 8)
            return fail(OCTET_EINVAL, "%s: a stride overflows", who);
        batch_args(p, x, &w, i, &y);
        const char *broken = breach(p, &y);
        if (broken) return fail(OCTET_EINVAL, "%s: product %lld: %s", who, (long long)i, broken);
    }
    return OCTET_OK;
}

octet_status octet_run_batch(const octet_plan *p, const octet_gemm_args *args, const octet_batch *batch)
{
    const char *who = "octet_run_batch";
    octet_gemm_args x;
    octet_batch w;
    if (!p || !args) return fail(OCTET_EINVAL, "%s: %s is NULL", who, p ? "args" : "plan");
    if (p->gpu) return fail(OCTET_EINVAL, "%s: the plan is of a GPU: octet_gpu_run_batch runs it", who);
    if (!copy_versioned(&x, sizeof x, offsetof(octet_gemm_args, bias), args))
        return fail(OCTET_EINVAL, "%s: args->size is not of a known version; initialize with OCTET_GEMM_ARGS", who);
    const octet_status st = batch_check(who, p, &x, batch, &w);
    if (st) return st;
    if (w.count == 0) return OCTET_OK;
    many b = { .count = w.count, .rows = batch_rows, .row_cost = plan_row_cost, .state = batch_state, .what = &w, .plan = p, .args = &x,
               .stated = !w.m_offsets && !(p->desc.flags & OCTET_DYNAMIC) }; /* by row, or of A's values: stated each time */
    run_many(&b, p->ctx, &x);
    return OCTET_OK;
}

/* ---- any plans ---- */

static int64_t group_rows(const many *b, int64_t i) { return ((const octet_gemm_item *)b->what)[i].args->m; }
static double group_row_cost(const many *b, int64_t i) { return cpu_gemm_cost(&((const octet_gemm_item *)b->what)[i].plan->b, 1); }
static bool group_state(const many *b, int64_t i, view *rows, dest *c, gemm_problem *g)
{
    const octet_gemm_item *it = &((const octet_gemm_item *)b->what)[i];
    problem_of(it->plan, it->args, rows, c, g);
    return true;
}

octet_status octet_run_group(const octet_gemm_item *items, size_t count)
{
    const char *who = "octet_run_group";
    if (count && !items) return fail(OCTET_EINVAL, "%s: items is NULL", who);
    for (size_t i = 0; i < count; i++) {
        if (!items[i].plan || !items[i].args) return fail(OCTET_EINVAL, "%s: item %zu: %s is NULL", who, i, items[i].plan ? "args" : "plan");
        if (items[i].args->size != sizeof(octet_gemm_args))
            return fail(OCTET_EINVAL, "%s: item %zu: args->size is not this version's; initialize with OCTET_GEMM_ARGS", who, i);
        if (items[i].plan->ctx != items[0].plan->ctx) return fail(OCTET_EINVAL, "%s: item %zu is of another context than the first", who, i);
        const char *broken = args_breach(items[i].plan, items[i].args);
        if (broken) return fail(OCTET_EINVAL, "%s: item %zu: %s", who, i, broken);
    }
    if (count == 0) return OCTET_OK;
    many b = { .count = (int64_t)count, .rows = group_rows, .row_cost = group_row_cost, .state = group_state, .what = items };
    run_many(&b, items[0].plan->ctx, items[0].args);
    return OCTET_OK;
}
