/*
 * The backward pass: every index becomes an entry (row, bag, weight), and each row is updated once, by the sum of its entries'
 * gradients in the order its indices stand in.
 *
 *   mark      a filter of bits by hashed row tells entries that may share their row from those that cannot
 *   direct    those that cannot are updated where they stand: gradients are read in order, rows prefetched ahead
 *   scatter   the others go to up to 2,048 ranges of rows,
 *   sort      a range's by row, keeping their order: counting sorts, or insertion where they are few,
 *   update    and runs of equal rows are added up
 *
 * In each step what one thread does concerns rows that no other has, and a row's result is the same either way: it does not
 * depend on how many threads there are.
 */
#include "bags.h"
#include "mxcsr.h"
#include "optimizer.h"
#include "run.h"

enum { RANGES = 2048, PER_RANGE = 8, FEW = 24, ENTRIES_AHEAD = 24, TASK_ENTRIES = 4096, SORT_BITS = 12, SORT_BITS_SHORT = 8 };

typedef struct entry { uint32_t row, bag; float weight; } entry;

typedef struct job {
    const bag_unit         *u;
    const octet_bag_table  *x;
    const octet_bag_step   *s;
    const octet_bag_update *args;
    optimizer               step;
    int64_t                 tasks;
    _Atomic uint64_t       *filter;      /* the lower half of a word: seen; the upper: seen again */
    int                     filter_shift;
    entry                  *entries, *scratch;
    float                  *room;        /* of each task: see rows_ready                           */
    int64_t                 bad[THREADS_MAX];
    int64_t                 kept[THREADS_MAX][2]; /* of each task, the entries that wait: from, to */
    int                     shift;       /* a row's range is row >> shift                          */
    int64_t                 ranges;
    int64_t                 begin[RANGES + 1]; /* of each range in entries                         */
} job;

/* ---- every index, in order ---- */

/* The row an index names, or -1; *counts: it is part of the divisor. What is read is checked, trusted or not: a row is written. */
static inline int64_t row_of(const bag_unit *u, const octet_bag_table *x, int64_t i, bool *counts, bool *bad)
{
    const octet_bag_desc *d = &u->desc;
    *counts = true;
    *bad = false;
    if ((d->flags & OCTET_BAG_PADDING) && i == x->padding) { *counts = false; return -1; }
    if (d->flags & OCTET_BAG_REMAP) {
        if (i == -1) return -1;
        *bad = (uint64_t)i >= (uint64_t)x->remap_rows;
        if (!*bad && (i = x->remap[i]) == -1) return -1;
    }
    *bad = *bad || (uint64_t)i >= (uint64_t)x->rows;
    return !*bad ? i : d->bad_index == OCTET_BAD_ROW0 && x->rows ? 0 : -1;
}

/* Where task t's bags begin: at a like share of the indices. */
static int64_t first_bag(const job *j, int64_t t, int64_t *at)
{
    const bag_unit *u = j->u;
    const octet_bag_table *x = j->x;
    const int64_t bags = bags_of(u, x), from = bag_first(u, x), goal = from + (int64_t)((double)bag_indices(u, x) * (double)t / (double)j->tasks);
    int64_t low = 0, high = bags;
    if (t == j->tasks) return bags;
    *at = goal;
    if (u->desc.pooling == OCTET_NONE) return goal;
    if (u->desc.flags & OCTET_BAG_LENGTHS) {
        for (*at = 0; low < bags && *at < goal; low++) *at += bag_integer(x->offsets, u->offset_bytes, low);
        return low;
    }
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bag_integer(x->offsets, u->offset_bytes, mid) < goal) low = mid + 1;
        else high = mid;
    }
    *at = low < bags ? bag_integer(x->offsets, u->offset_bytes, low) : x->count;
    return low;
}

/* Calls seen(arg, row, bag, weight, i) for each index i of bags b0 .. b1-1 that names a row; `at` is where b0 begins. Returns how many
 * were bad. */
typedef void (*seen_fn)(void *arg, int64_t row, int64_t bag, float weight, int64_t i);
static inline __attribute__((always_inline)) int64_t each_entry(const job *j, int64_t b0, int64_t b1, int64_t at, bool weigh, seen_fn seen, void *arg)
{
    const bag_unit *u = j->u;
    const octet_bag_desc *d = &u->desc;
    const octet_bag_table *x = j->x;
    const bool uncounted = weigh && d->pooling == OCTET_MEAN && (d->flags & OCTET_BAG_PADDING);
    int64_t sum = 0, end = at;
    for (int64_t b = b0; b < b1; b++) {
        const int64_t from = end;
        bool counts, bad;
        float inverse = 1.0f;
        end = bag_end(u, x, b, from);
        if (weigh && d->pooling == OCTET_MEAN) {
            int64_t divisor = end - from;
            for (int64_t i = from; uncounted && i < end; i++) {
                row_of(u, x, bag_integer(x->indices, u->index_bytes, i), &counts, &bad);
                divisor -= !counts;
            }
            if (divisor) inverse = 1.0f / (float)divisor;
        }
        for (int64_t i = from; i < end; i++) {
            const int64_t row = row_of(u, x, bag_integer(x->indices, u->index_bytes, i), &counts, &bad);
            sum += bad;
            if (row < 0) continue;
            float w = 1.0f;
            if (weigh && d->weights) w = x->weights[d->weights == OCTET_WEIGHT_EACH ? i : i - from];
            if (weigh && d->pooling == OCTET_MEAN) w = w * inverse;
            seen(arg, row, b, w, i);
        }
    }
    return sum;
}

/* ---- which rows are named once ---- */

static inline uint64_t hash_of(int64_t row) { return (uint64_t)row * UINT64_C(0x9e3779b97f4a7c15); }
static inline _Atomic uint64_t *word_of(const job *j, uint64_t h) { return &j->filter[h >> j->filter_shift]; }
static inline uint64_t bit_of(const job *j, uint64_t h) { return UINT64_C(1) << (h >> (j->filter_shift - 5) & 31); }

static inline __attribute__((always_inline)) void mark_alone(void *arg, int64_t row, int64_t bag, float weight, int64_t i)
{
    const job *j = arg;
    const uint64_t h = hash_of(row), bit = bit_of(j, h), was = atomic_load_explicit(word_of(j, h), memory_order_relaxed);
    (void)bag, (void)weight, (void)i;
    atomic_store_explicit(word_of(j, h), was | bit | (was & bit) << 32, memory_order_relaxed);
}
static inline __attribute__((always_inline)) void mark_beside(void *arg, int64_t row, int64_t bag, float weight, int64_t i)
{
    const job *j = arg;
    const uint64_t h = hash_of(row), bit = bit_of(j, h);
    (void)bag, (void)weight, (void)i;
    if (atomic_fetch_or_explicit(word_of(j, h), bit, memory_order_relaxed) & bit) atomic_fetch_or_explicit(word_of(j, h), bit << 32, memory_order_relaxed);
}
static inline bool alone(const job *j, int64_t row)
{
    const uint64_t h = hash_of(row);
    return !(atomic_load_explicit(word_of(j, h), memory_order_relaxed) >> 32 & bit_of(j, h));
}

static void mark(void *arg, size_t t)
{
    job *j = arg;
    int64_t at = 0, next;
    const int64_t b0 = first_bag(j, (int64_t)t, &at), b1 = first_bag(j, (int64_t)t + 1, &next);
    if (j->tasks == 1) j->bad[t] = each_entry(j, b0, b1, at, false, mark_alone, j);
    else j->bad[t] = each_entry(j, b0, b1, at, false, mark_beside, j);
}

/* ---- rows named once ---- */

static inline int64_t stride_of(const job *j) { return j->x->row_bytes ? j->x->row_bytes : j->u->row_bytes; }

static inline void prefetch_row(const job *j, int64_t row)
{
    const char *p = (const char *)((uintptr_t)j->s->table + (uintptr_t)row * (uintptr_t)stride_of(j));
    for (int64_t i = 0; i < min64(j->u->row_bytes, 2048); i += 64) __builtin_prefetch(p + i, 0, 2);
    optimizer_prefetch(&j->step, row);
}

static inline void prefetch_index(const job *j, int64_t i)
{
    int64_t row = bag_integer(j->x->indices, j->u->index_bytes, i);
    if (j->u->desc.flags & OCTET_BAG_REMAP) row = (uint64_t)row < (uint64_t)j->x->remap_rows ? j->x->remap[row] : -1;
    if ((uint64_t)row < (uint64_t)j->x->rows) prefetch_row(j, row);
}

/* Rows waiting to be updated together. */
typedef struct rows_ready {
    const job    *j;
    float        *room; /* gradients of the rows that wait, then a row's values */
    int           n, most;
    optimizer_row row[OPTIMIZER_ROWS];
} rows_ready;

static int rows_at_once(int64_t dim) { return dim <= BAG_COLS ? OPTIMIZER_ROWS : 1; }

static rows_ready ready_rows(const job *j, size_t task)
{
    const int64_t dim = j->u->desc.dim;
    return (rows_ready){ .j = j, .room = j->room + (int64_t)task * (rows_at_once(dim) + 1) * round_up(dim, 16), .most = rows_at_once(dim) };
}

static void flush(rows_ready *w)
{
    optimizer_steps(&w->j->step, w->n, w->row, w->room + w->most * w->j->u->desc.dim);
    w->n = 0;
}

/* The gradient of the next row that waits: a place for it. */
static inline float *gradient_room(const rows_ready *w) { return w->room + w->n * w->j->u->desc.dim; }

static inline void add_row(rows_ready *w, int64_t row, float *g)
{
    w->row[w->n++] = (optimizer_row){ (char *)w->j->s->table + row * stride_of(w->j), row, g, NULL };
    if (w->n == w->most) flush(w);
}

/* One entry's gradient as it is, where nothing is to be done to it; it is only read then. */
static inline float *single_gradient(const rows_ready *w, int64_t bag, float weight)
{
    float *g = (float *)(uintptr_t)(w->j->s->grad + bag * w->j->s->ld_grad);
    if (weight == 1.0f && w->j->step.decay == 0.0f) return g;
    optimizer_add(g, w->j->u->desc.dim, weight, true, gradient_room(w));
    return gradient_room(w);
}

typedef struct going { entry *wait; rows_ready ready; } going;

static inline __attribute__((always_inline)) void update_or_keep(void *arg, int64_t row, int64_t bag, float weight, int64_t i)
{
    going *o = arg;
    const job *j = o->ready.j;
    if (i + ENTRIES_AHEAD < j->x->count) prefetch_index(j, i + ENTRIES_AHEAD);
    if (alone(j, row)) add_row(&o->ready, row, single_gradient(&o->ready, bag, weight));
    else *o->wait++ = (entry){ (uint32_t)row, (uint32_t)bag, weight };
}

static void direct(void *arg, size_t t)
{
    job *j = arg;
    int64_t at = 0, next;
    const int64_t b0 = first_bag(j, (int64_t)t, &at), b1 = first_bag(j, (int64_t)t + 1, &next);
    const unsigned kept = fp_enter();
    going o = { j->entries + at, ready_rows(j, t) };
    j->kept[t][0] = at;
    each_entry(j, b0, b1, at, true, update_or_keep, &o);
    flush(&o.ready);
    j->kept[t][1] = o.wait - j->entries;
    fp_leave(kept);
}

/* ---- the others, by ranges of rows ---- */

static void count_ranges(job *j)
{
    memset(j->begin, 0, sizeof j->begin);
    for (int64_t t = 0; t < j->tasks; t++)
        for (int64_t i = j->kept[t][0]; i < j->kept[t][1]; i++) j->begin[((int64_t)j->entries[i].row >> j->shift) + 1]++;
    for (int64_t r = 0; r < j->ranges; r++) j->begin[r + 1] += j->begin[r];
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

/* Entries in their order, to the ranges of a task. */
static void scatter(void *arg, size_t task)
{
    const job *j = arg;
    const int64_t r0 = first_range(j, (int64_t)task), r1 = first_range(j, (int64_t)task + 1);
    int64_t at[RANGES];
    if (r0 >= r1) return;
    memcpy(at + r0, j->begin + r0, (size_t)(r1 - r0) * sizeof *at);
    for (int64_t t = 0; t < j->tasks; t++)
        for (int64_t i = j->kept[t][0]; i < j->kept[t][1]; i++) {
            const int64_t r = (int64_t)j->entries[i].row >> j->shift;
            if (r >= r0 && r < r1) j->scratch[at[r]++] = j->entries[i];
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
    entry *e = j->scratch + j->begin[r], *other = j->entries + j->begin[r]; /* whose entries are all in scratch by now */
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

/* The rows of ranges r0 .. r1-1. */
static void update_ranges(const job *j, int64_t r0, int64_t r1, rows_ready *w)
{
    const int64_t dim = j->u->desc.dim, n = j->begin[r1];
    for (int64_t i = j->begin[r0]; i < n;) {
        const entry *e = j->scratch + i;
        int64_t same = 1;
        while (i + same < n && e[same].row == e->row) same++;
        for (int64_t k = 0; k < same; k++)
            if (i + k + ENTRIES_AHEAD < n) prefetch_row(j, e[k + ENTRIES_AHEAD].row);
        float *g = same == 1 ? single_gradient(w, e->bag, e->weight) : gradient_room(w);
        for (int64_t k = 0; same > 1 && k < same; k++) optimizer_add(j->s->grad + (int64_t)e[k].bag * j->s->ld_grad, dim, e[k].weight, k == 0, g);
        add_row(w, e->row, g);
        i += same;
    }
    flush(w);
}

static void sort_and_update(void *arg, size_t t)
{
    const job *j = arg;
    const int64_t r0 = first_range(j, (int64_t)t), r1 = first_range(j, (int64_t)t + 1);
    const unsigned kept = fp_enter();
    rows_ready w = ready_rows(j, t);
    for (int64_t r = r0; r < r1; r++) sort_range(j, r);
    if (r0 < r1) update_ranges(j, r0, r1, &w);
    fp_leave(kept);
}

/* ---- the call ---- */

/* 16 to 32 bits for each index: one in 16 at most waits in vain. */
static int64_t filter_words(int64_t count)
{
    int64_t words = 8;
    while (words < count / 2) words *= 2;
    return words;
}

static int64_t workspace_for(int64_t dim, int64_t count, int64_t threads)
{
    return 2 * round_up(count * (int64_t)sizeof(entry), 64) + filter_words(count) * 8 + threads * 4 * (rows_at_once(dim) + 1) * round_up(dim, 16);
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
    const int64_t stride = x->row_bytes ? x->row_bytes : u->row_bytes;
    const int64_t grads = s->ld_grad < d->dim ? -1 : span_of(bags_of(u, x), d->dim, s->ld_grad, 4), table = x->rows ? (x->rows - 1) * stride + u->row_bytes : 0;
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
    if (x->rows > UINT32_MAX || bags_of(u, x) > UINT32_MAX) return "more than 2^32 - 1 rows or bags";
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
    const char *broken = bag_breach(u, x, 0);
    if (broken) return fail(OCTET_EINVAL, "%s: table %zu: %s", who, t, broken);
    if ((broken = unsupported(u, x))) return fail(OCTET_EUNSUPPORTED, "%s: table %zu: %s", who, t, broken);
    if ((broken = step_breach(u, x, s, a))) return fail(OCTET_EINVAL, "%s: table %zu: %s", who, t, broken);
    const int64_t want = workspace_for(u->desc.dim, x->count, p->ctx->threads);
    if (!a->workspace || (uint64_t)want > a->workspace_bytes)
        return fail(OCTET_EINVAL, "%s: table %zu: workspace_bytes = %zu, but %lld are needed (octet_update_bags_bytes)", who, t, a->workspace_bytes, (long long)want);
    const bag_fault f = bag_validate(u, x, t);
    return f.status == BAG_DONE ? OCTET_OK : bag_fail(who, u, x, &f, a->report);
}

static void in_tasks(const octet_ctx *ctx, job *j, octet_task task)
{
    if (j->tasks == 1) task(j, 0);
    else ctx_parallel(ctx, (size_t)j->tasks, task, j);
}

octet_status octet_update_bags(const octet_bag_plan *p, const octet_bag_update *args)
{
    octet_bag_update a;
    job j;
    if (!p || !args) return fail(OCTET_EINVAL, "octet_update_bags: %s is NULL", p ? "update" : "plan");
    if (!copy_versioned(&a, sizeof a, offsetof(octet_bag_update, stochastic), args))
        return fail(OCTET_EINVAL, "octet_update_bags: update->size is not of a known version; initialize with OCTET_BAG_UPDATE");
    const char *broken = update_breach(&a);
    if (!broken) bag_report(a.report, 0, NULL);
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
        const int64_t bytes = round_up(j.x->count * (int64_t)sizeof(entry), 64), words = filter_words(j.x->count);
        j.entries = a.workspace;
        j.scratch = (entry *)(void *)((char *)a.workspace + bytes);
        j.filter = (_Atomic uint64_t *)(void *)((char *)a.workspace + 2 * bytes);
        j.room = (float *)(void *)((char *)j.filter + 8 * words);
        j.filter_shift = 64;
        for (int64_t w = words; w > 1; w /= 2) j.filter_shift--;
        memset((void *)j.filter, 0, (size_t)words * 8);
        j.tasks = p->ctx->threads == 1 ? 1 : max64(1, min64(p->ctx->threads, j.x->count / TASK_ENTRIES));
        in_tasks(p->ctx, &j, mark);
        in_tasks(p->ctx, &j, direct);
        int64_t left = 0;
        for (int64_t i = 0; i < j.tasks; i++) {
            bad += j.bad[i];
            left += j.kept[i][1] - j.kept[i][0];
        }
        if (!left) continue;
        j.shift = 0;
        while (((uint64_t)j.x->rows - 1) >> j.shift >= (uint64_t)min64(RANGES, max64(1, left / PER_RANGE))) j.shift++;
        j.ranges = ((j.x->rows - 1) >> j.shift) + 1;
        count_ranges(&j);
        in_tasks(p->ctx, &j, scatter);
        in_tasks(p->ctx, &j, sort_and_update);
    }
    bag_report(a.report, bad, NULL);
    return OCTET_OK;
}
