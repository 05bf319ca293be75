/*
 * The backward pass: every index becomes an entry (row, bag, weight); entries are sorted by row; the gradients of each row are
 * added up in the order its indices stand in, and the row is updated once.
 *
 *   count    how many entries each of up to 2,048 ranges of rows has; every index is checked on the way
 *   scatter  each entry to its range: what a thread does is a share of the ranges, so it reads all indices and keeps its own
 *   sort     a range's entries by row, keeping their order: a counting sort, or insertion where they are few
 *   update   runs of equal rows, prefetched ahead
 *
 * A row belongs to one range, a range to one thread: results do not depend on how many there are.
 */
#include "bags.h"
#include "mxcsr.h"
#include "optimizer.h"
#include "run.h"

enum { RANGES = 2048, PER_RANGE = 8, FEW = 24, ENTRIES_AHEAD = 12, TASK_ENTRIES = 4096, SORT_BITS = 12, SORT_BITS_SHORT = 8 };

typedef struct entry { uint32_t row, bag; float weight; } entry;

typedef struct job {
    const bag_unit         *u;
    const octet_bag_table  *x;
    const octet_bag_step   *s;
    const octet_bag_update *args;
    int64_t                 bad;
    int                     shift;       /* a row's range is row >> shift */
    int64_t                 ranges;
    int64_t                 begin[RANGES + 1]; /* of each range in entries */
    entry                  *entries, *scratch;
    float                  *room;        /* 2 dim values a task */
    int64_t                 tasks;
    optimizer               step;
} job;

/* ---- every index, in order ---- */

static int64_t bags_of(const bag_unit *u, const octet_bag_table *x) { return u->desc.pooling == OCTET_NONE ? x->count : x->bags; }
static int64_t first_of(const bag_unit *u, const octet_bag_table *x)
{
    return u->desc.pooling != OCTET_NONE && (u->desc.flags & OCTET_BAG_SLICE) ? bag_integer(x->offsets, u->offset_bytes, 0) : 0;
}

/* The row an index names, or -1; *counts: it is part of the divisor. Bad ones were dealt with, or are trusted. */
static inline int64_t row_of(const bag_unit *u, const octet_bag_table *x, int64_t i, bool *counts, bool *bad)
{
    const octet_bag_desc *d = &u->desc;
    *counts = true;
    *bad = false;
    if ((d->flags & OCTET_BAG_PADDING) && i == x->padding) { *counts = false; return -1; }
    if (d->flags & OCTET_BAG_REMAP) {
        if (i == -1) return -1;
        *bad = d->bad_index != OCTET_BAD_TRUST && (uint64_t)i >= (uint64_t)x->remap_rows;
        if (!*bad && (i = x->remap[i]) == -1) return -1;
    }
    *bad = *bad || (d->bad_index != OCTET_BAD_TRUST && (uint64_t)i >= (uint64_t)x->rows);
    return !*bad ? i : d->bad_index == OCTET_BAD_ROW0 && x->rows ? 0 : -1;
}

static void count_entries(job *j)
{
    const bag_unit *u = j->u;
    const octet_bag_table *x = j->x;
    const int64_t bags = bags_of(u, x);
    int64_t end = first_of(u, x);
    const int64_t from = end;
    memset(j->begin, 0, sizeof j->begin);
    j->bad = 0;
    if (u->desc.pooling == OCTET_NONE) end = x->count;
    else if (u->desc.flags & OCTET_BAG_SLICE) end = bag_integer(x->offsets, u->offset_bytes, bags);
    else end = x->count;
    for (int64_t i = from; i < end; i++) {
        bool counts, bad;
        const int64_t row = row_of(u, x, bag_integer(x->indices, u->index_bytes, i), &counts, &bad);
        j->bad += bad;
        if (row >= 0) j->begin[(row >> j->shift) + 1]++;
    }
    for (int64_t r = 0; r < j->ranges; r++) j->begin[r + 1] += j->begin[r];
}

/* The entries of ranges r0 .. r1-1, each range's in order. */
static void scatter(const job *j, int64_t r0, int64_t r1)
{
    const bag_unit *u = j->u;
    const octet_bag_desc *d = &u->desc;
    const octet_bag_table *x = j->x;
    int64_t at[RANGES], end = first_of(u, x);
    const bool slow = d->pooling == OCTET_MEAN && (d->flags & OCTET_BAG_PADDING);
    const uint64_t low = (uint64_t)r0 << j->shift, rows = ((uint64_t)r1 << j->shift) - low;
    memcpy(at + r0, j->begin + r0, (size_t)(r1 - r0) * sizeof *at);
    for (int64_t b = 0; b < bags_of(u, x); b++) {
        const int64_t from = end;
        end = bag_end(u, x, b, from);
        int64_t divisor = end - from;
        bool counts, bad;
        for (int64_t i = from; slow && i < end; i++) {
            row_of(u, x, bag_integer(x->indices, u->index_bytes, i), &counts, &bad);
            divisor -= !counts;
        }
        const float inverse = d->pooling == OCTET_MEAN && divisor ? 1.0f / (float)divisor : 1.0f;
        for (int64_t i = from; i < end; i++) {
            const int64_t row = row_of(u, x, bag_integer(x->indices, u->index_bytes, i), &counts, &bad);
            if (row < 0 || (uint64_t)row - low >= rows) continue;
            float w = d->weights == OCTET_WEIGHT_EACH ? x->weights[i] : d->weights == OCTET_WEIGHT_POSITION ? x->weights[i - from] : 1.0f;
            if (d->pooling == OCTET_MEAN) w = w * inverse;
            j->entries[at[row >> j->shift]++] = (entry){ (uint32_t)row, (uint32_t)b, w };
        }
    }
}

/* ---- sorting a range ---- */

static void insertion(entry *e, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const entry v = e[i];
        int64_t k = i;
        for (; k > 0 && e[k - 1].row > v.row; k--) e[k] = e[k - 1];
        e[k] = v;
    }
}

/* By `bits` bits from `shift` on, from a to b; stable. */
static void counting_pass(const entry *a, entry *b, int64_t n, int shift, int bits)
{
    uint32_t at[1 << SORT_BITS], sum = 0;
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    memset(at, 0, ((size_t)mask + 1) * sizeof *at);
    for (int64_t i = 0; i < n; i++) at[a[i].row >> shift & mask]++;
    for (uint32_t r = 0; r <= mask; r++) {
        const uint32_t count = at[r];
        at[r] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) b[at[a[i].row >> shift & mask]++] = a[i];
}

/* Rows of a range differ in their lowest j->shift bits. */
static void sort_range(const job *j, int64_t r)
{
    entry *e = j->entries + j->begin[r], *other = j->scratch + j->begin[r];
    const int64_t n = j->begin[r + 1] - j->begin[r];
    if (n <= FEW) { insertion(e, n); return; }
    const int most = n < 1 << SORT_BITS_SHORT ? SORT_BITS_SHORT : SORT_BITS, passes = (j->shift + most - 1) / most;
    for (int p = 0, shift = 0; p < passes; p++) {
        const int bits = (j->shift - shift + passes - p - 1) / (passes - p);
        counting_pass(e, other, n, shift, bits);
        entry *const sorted = other;
        other = e;
        e = sorted;
        shift += bits;
    }
    if (passes % 2) memcpy(other, e, (size_t)n * sizeof *e);
}

/* ---- updating ---- */

static inline int64_t stride_of(const job *j) { return j->x->row_bytes ? j->x->row_bytes : j->u->row_bytes; }

static void prefetch_entry(const job *j, const entry *e)
{
    const char *row = (const char *)j->s->table + (int64_t)e->row * stride_of(j), *g = (const char *)(j->s->grad + (int64_t)e->bag * j->s->ld_grad);
    const int64_t dim = j->u->desc.dim;
    for (int64_t i = 0; i < min64(j->u->row_bytes, 2048); i += 64) __builtin_prefetch(row + i, 1, 3);
    for (int64_t i = 0; i < min64(4 * dim, 2048); i += 64) __builtin_prefetch(g + i, 0, 3);
    optimizer_prefetch(&j->step, e->row);
}

/* The rows of ranges r0 .. r1-1; room: 2 dim values. */
static void update_ranges(const job *j, int64_t r0, int64_t r1, float *room)
{
    const int64_t dim = j->u->desc.dim, n = j->begin[r1];
    for (int64_t i = j->begin[r0]; i < n;) {
        const entry *e = j->entries + i;
        int64_t same = 1;
        while (i + same < n && e[same].row == e->row) same++;
        for (int64_t k = 0; k < same; k++)
            if (i + k + ENTRIES_AHEAD < n) prefetch_entry(j, &e[k + ENTRIES_AHEAD]);
        float *g = room;
        if (same == 1 && e->weight == 1.0f && j->step.decay == 0.0f) g = (float *)(uintptr_t)(j->s->grad + (int64_t)e->bag * j->s->ld_grad); /* only read */
        else
            for (int64_t k = 0; k < same; k++) optimizer_add(j->s->grad + (int64_t)e[k].bag * j->s->ld_grad, dim, e[k].weight, k == 0, room);
        optimizer_step(&j->step, (char *)j->s->table + (int64_t)e->row * stride_of(j), e->row, g, room + dim);
        i += same;
    }
}

/* Ranges of task t: from where its share of the entries begins. */
static int64_t first_range(const job *j, int64_t t)
{
    const int64_t goal = (int64_t)((double)j->begin[j->ranges] * (double)t / (double)j->tasks);
    int64_t r = 0;
    if (t == j->tasks) return j->ranges;
    while (r < j->ranges && j->begin[r] < goal) r++;
    return r;
}

static void run_task(void *arg, size_t t)
{
    const job *j = arg;
    const int64_t r0 = first_range(j, (int64_t)t), r1 = first_range(j, (int64_t)t + 1);
    const unsigned kept = fp_enter();
    if (r0 < r1) {
        scatter(j, r0, r1);
        for (int64_t r = r0; r < r1; r++) sort_range(j, r);
        update_ranges(j, r0, r1, j->room + 2 * (int64_t)t * round_up(j->u->desc.dim, 16));
    }
    fp_leave(kept);
}

/* ---- the call ---- */

static int64_t workspace_for(int64_t dim, int64_t count, int64_t threads)
{
    return 2 * round_up(count * (int64_t)sizeof(entry), 64) + threads * 8 * round_up(dim, 16);
}

size_t octet_update_bags_bytes(const octet_bag_plan *p, int64_t max_count)
{
    int64_t most = 0;
    if (!p || max_count < 0 || max_count > INT64_MAX / 64) return 0;
    for (size_t t = 0; t < p->tables; t++) most = max64(most, workspace_for(p->unit[t].desc.dim, max_count, p->ctx->threads));
    return (size_t)most;
}

/* The first promise about what is to change that is broken. */
static const char *step_breach(const bag_unit *u, const octet_bag_table *x, const octet_bag_step *s, const octet_bag_update *a)
{
    const octet_bag_desc *d = &u->desc;
    const int64_t bags = d->pooling == OCTET_NONE ? x->count : x->bags, stride = x->row_bytes ? x->row_bytes : u->row_bytes;
    const int64_t grads = s->ld_grad < d->dim ? -1 : span_of(bags, d->dim, s->ld_grad, 4), table = x->rows ? (x->rows - 1) * stride + u->row_bytes : 0;
    const int states = a->optimizer == OCTET_SGD ? 0 : a->optimizer == OCTET_ADAM ? 2 : 1;
    int64_t values;
    if (grads < 0) return "ld_grad is less than dim, or the size of grad overflows";
    if (grads && (!s->grad || (uintptr_t)s->grad % 4)) return "grad is NULL or misaligned";
    if (x->rows && (!s->table || ((uintptr_t)s->table & (uintptr_t)(u->table_align - 1)))) return "table is NULL or misaligned for its type";
    if (!mul_ok(x->rows, a->optimizer == OCTET_ADAGRAD_ROWS ? 1 : d->dim, &values) || values > INT64_MAX / 8) return "the size of state overflows";
    if (states && values && (!s->state || (uintptr_t)s->state % 4)) return "state is NULL or misaligned";
    if (states > 1 && values && (!s->state2 || (uintptr_t)s->state2 % 4)) return "state2 is NULL or misaligned";
    if (overlap(s->table, table, s->grad, grads)) return "table overlaps grad";
    if (states && (overlap(s->state, 4 * values, s->table, table) || overlap(s->state, 4 * values, s->grad, grads))) return "state overlaps table or grad";
    if (states > 1 && (overlap(s->state2, 4 * values, s->table, table) || overlap(s->state2, 4 * values, s->grad, grads) || overlap(s->state2, 4 * values, s->state, 4 * values)))
        return "state2 overlaps table, grad or state";
    return NULL;
}

static const char *update_breach(const octet_bag_update *a)
{
    if (!a->tables || !a->steps) return "tables or steps is NULL";
    if (a->optimizer < OCTET_SGD || a->optimizer > OCTET_ADAM) return "optimizer is none";
    if (!(a->lr - a->lr == 0) || !(a->eps >= 0) || !(a->weight_decay - a->weight_decay == 0)) return "lr, eps or weight_decay is not a number, or negative";
    if (a->optimizer == OCTET_ADAM && !(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1)) return "beta1 or beta2 is outside 0 .. 1";
    if (a->optimizer == OCTET_ADAM && a->step < 1) return "step is less than 1";
    if ((uintptr_t)a->workspace % 64) return "workspace is not 64-byte aligned";
    if (!bag_report_ok(a->report)) return "report->size is not of a known version; initialize with OCTET_BAG_REPORT";
    return NULL;
}

static const char *unsupported(const bag_unit *u, const octet_bag_table *x)
{
    const octet_bag_desc *d = &u->desc;
    if (d->pooling == OCTET_MAX) return "OCTET_MAX has no backward pass";
    if (d->table != OCTET_F32 && d->table != OCTET_F16 && d->table != OCTET_BF16 && d->table != OCTET_U8) return "tables of this type are not updated";
    if (x->rows > UINT32_MAX || x->bags > UINT32_MAX || (d->pooling == OCTET_NONE && x->count > UINT32_MAX)) return "more than 2^32 - 1 rows or bags";
    return NULL;
}

static const octet_bag_step *step_at(const octet_bag_update *a, size_t t, octet_bag_step *room)
{
    const char *p = (const char *)a->steps + t * (a->step_stride ? a->step_stride : sizeof *room);
    return copy_versioned(room, sizeof *room, offsetof(octet_bag_step, state), p) ? room : NULL;
}

/* The promises about table t, its bags, its indices, in this order. */
static octet_status check_table(const octet_bag_plan *p, const octet_bag_update *a, size_t t)
{
    static const char who[] = "octet_update_bags";
    const bag_unit *u = &p->unit[t];
    octet_bag_table room;
    octet_bag_step  step_room;
    const octet_bag_table *x = bag_table(a->tables, a->stride, t, &room);
    const octet_bag_step *s = step_at(a, t, &step_room);
    if (!x || !s) return fail(OCTET_EINVAL, "%s: table %zu: size is not of a known version; initialize with OCTET_BAG_TABLE, OCTET_BAG_STEP", who, t);
    const char *broken = bag_breach(u, x, false);
    if (!broken) broken = step_breach(u, x, s, a);
    if (broken) return fail(OCTET_EINVAL, "%s: table %zu: %s", who, t, broken);
    if ((broken = unsupported(u, x))) return fail(OCTET_EUNSUPPORTED, "%s: table %zu: %s", who, t, broken);
    const int64_t want = workspace_for(u->desc.dim, x->count, p->ctx->threads);
    if (!a->workspace || (uint64_t)want > a->workspace_bytes)
        return fail(OCTET_EINVAL, "%s: table %zu: workspace_bytes = %zu, but %lld are needed (octet_update_bags_bytes)", who, t, a->workspace_bytes, (long long)want);
    const bag_fault f = bag_validate(u, x, t);
    return f.status == BAG_DONE ? OCTET_OK : bag_fail(who, u, x, f, a->report);
}

octet_status octet_update_bags(const octet_bag_plan *p, const octet_bag_update *args)
{
    octet_bag_update a;
    job j;
    if (!p || !args) return fail(OCTET_EINVAL, "octet_update_bags: %s is NULL", p ? "update" : "plan");
    if (!copy_versioned(&a, sizeof a, offsetof(octet_bag_update, stochastic), args))
        return fail(OCTET_EINVAL, "octet_update_bags: update->size is not of a known version; initialize with OCTET_BAG_UPDATE");
    const char *broken = update_breach(&a);
    if (broken) return fail(OCTET_EINVAL, "octet_update_bags: %s", broken);
    for (size_t t = 0; t < p->tables; t++) {
        const octet_status st = check_table(p, &a, t);
        if (st) return st;
    }
    int64_t bad = 0;
    for (size_t t = 0; t < p->tables; t++) {
        octet_bag_table room;
        octet_bag_step  step_room;
        j.u = &p->unit[t];
        j.x = bag_table(a.tables, a.stride, t, &room);
        j.s = step_at(&a, t, &step_room);
        j.step = optimizer_of(&a, &j.u->desc, j.s, j.u->values, j.u->params);
        j.shift = 0;
        while ((uint64_t)j.x->rows >> j.shift > (uint64_t)min64(RANGES, max64(1, j.x->count / PER_RANGE))) j.shift++;
        j.ranges = ((j.x->rows - 1) >> j.shift) + 1;
        if (!j.x->rows) j.ranges = 0;
        j.entries = a.workspace;
        j.scratch = (entry *)(void *)((char *)a.workspace + round_up(j.x->count * (int64_t)sizeof(entry), 64));
        j.room = (float *)(void *)((char *)j.scratch + round_up(j.x->count * (int64_t)sizeof(entry), 64));
        count_entries(&j);
        bad += j.bad;
        j.tasks = p->ctx->threads == 1 ? 1 : max64(1, min64(p->ctx->threads, j.begin[j.ranges] / TASK_ENTRIES));
        if (j.tasks == 1) run_task(&j, 0);
        else ctx_parallel(p->ctx, (size_t)j.tasks, run_task, &j);
    }
    bag_report(a.report, bad, (bag_fault){ BAG_DONE, 0, 0, 0, 0 });
    return OCTET_OK;
}
