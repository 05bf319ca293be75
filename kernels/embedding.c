/*
 * Bags run: the tables of a call are laid end to end on one line, measured by the bytes their indices will move, and the line is cut
 * into a part for each thread, at bags' borders. A part goes through its tables one by one; while one is being pooled the first
 * rows of the next ones are on their way.
 */
#include "bags.h"
#include "mxcsr.h"
#include "octet/quant.h"
#include "run.h"

enum { LINE = 64, PART_BYTES = 64 << 10, ROWS_FLYING = 48 };

/* ---- one table, some bags ---- */

static int64_t row_stride(const bag_unit *u, const octet_bag_table *x) { return x->row_bytes ? x->row_bytes : u->row_bytes; }

static bool is_far(const bag_unit *u, const octet_bag_table *x) { return x->rows > u->near_rows; }

/* The rows of the first indices from `at` on, of a table in memory; returns how many. */
static int64_t prefetch_first(const bag_unit *u, const octet_bag_table *x, int64_t at, int64_t ahead)
{
    if (at < 0 || at >= x->count || !is_far(u, x)) return 0;
    const uintptr_t stride = (uintptr_t)row_stride(u, x), table = (uintptr_t)x->table, last = (uintptr_t)min64(u->row_bytes, 4 * BAG_COLS) - 1;
    const int64_t end = min64(x->count, at + (ahead > 0 ? ahead : u->ahead));
    const bool remap = u->desc.flags & OCTET_BAG_REMAP;
    for (int64_t i = at; i < end; i++) {
        int64_t row = bag_integer(x->indices, u->index_bytes, i);
        if (remap) {
            if ((uint64_t)row >= (uint64_t)x->remap_rows) continue;
            row = x->remap[row];
        }
        const uintptr_t p = table + (uintptr_t)row * stride;
        for (uintptr_t line = 0; line < last; line += LINE) __builtin_prefetch((const void *)(p + line), 0, 2);
        __builtin_prefetch((const void *)(p + last), 0, 2);
    }
    return end - at;
}

/* What all kernel calls of some bags share. */
static void begin(bag_args *k, const bag_unit *u, const octet_bag_table *x, int64_t b0, int64_t at, int64_t ahead)
{
    k->indices = x->indices;
    k->index = k->indices + at * u->index_bytes;
    k->last = k->indices + (x->count - 1) * u->index_bytes;
    k->ahead = k->indices + min64(at + ahead, x->count - 1) * u->index_bytes;
    k->further = ahead * u->index_bytes;
    k->stride = row_stride(u, x);
    k->rows = (uint64_t)x->rows;
    k->weights = x->weights ? x->weights + (u->desc.weights == OCTET_WEIGHT_EACH ? at : 0) : NULL;
    k->weight_count = x->weight_count;
    k->offsets = (const char *)x->offsets + (b0 + !(u->desc.flags & OCTET_BAG_LENGTHS)) * u->offset_bytes;
    k->at = at;
    k->count = x->count;
    k->padding = x->padding;
    k->remap = x->remap;
    k->remap_rows = (uint64_t)x->remap_rows;
    k->bad = 0;
    k->status = BAG_DONE;
    k->consts = &gen_const;
}

/* `bags` bags to `out`, `step` bytes apart. */
static bool pool(bag_args *k, bag_fn fn, int64_t bags, char *out, int64_t step)
{
    k->bags = bags;
    k->out = out;
    k->out_step = step;
    fn(k);
    return k->status == BAG_DONE;
}

/* The same, each row quantized from f32: through a few rows of scratch. */
static bool pool_to_bytes(bag_args *k, bag_fn fn, const bag_unit *u, int64_t bags, char *out, int64_t step)
{
    float scratch[BAG_ROW_OUT];
    const int64_t some = BAG_ROW_OUT / u->desc.dim;
    for (int64_t b = 0; b < bags; b += some) {
        const int64_t n = min64(some, bags - b);
        const bool done = pool(k, fn, n, (char *)scratch, u->desc.dim * 4);
        for (int64_t i = 0; i < n - k->bags; i++)
            octet_rows_quantize(8, OCTET_ROWS_BEHIND, scratch + i * u->desc.dim, 1, u->desc.dim, out + (b + i) * step);
        if (!done) {
            k->bags += bags - b - n;
            return false;
        }
    }
    k->bags = 0;
    return true;
}

/* One slice of the columns of bags b0 .. b1-1. */
static bool pool_slice(bag_args *k, const bag_unit *u, const octet_bag_table *x, int64_t slice, int64_t b0, int64_t b1, bool far)
{
    const octet_bag_desc *d = &u->desc;
    const bool last = slice == u->slices - 1, bytes = d->out == OCTET_U8;
    const bag_fn fn = u->code[last][far];
    const int elem = bytes ? 1 : d->out == OCTET_F32 ? 4 : 2;
    const int64_t step = x->ld_out * elem;
    char *out = (char *)x->out + b0 * step + slice * BAG_COLS * elem;
    bag_spec spec = u->spec[last];
    int64_t end64 = x->count;
    int32_t end32 = (int32_t)x->count; /* of the last bag, where offsets do not have it */
    const bool without = d->pooling != OCTET_NONE && !(d->flags & (OCTET_BAG_LENGTHS | OCTET_BAG_LAST_OFFSET)) && b1 == x->bags;
    const int64_t listed = b1 - b0 - without;
    k->spec = &spec;
    k->data = (const char *)x->table + u->values + slice * BAG_COLS * bag_bits(d->table) / 8;
    k->params = (const char *)x->table + u->params;
    if (!(bytes ? pool_to_bytes(k, fn, u, listed, out, step) : pool(k, fn, listed, out, step))) {
        k->bags += without;
        return false;
    }
    if (!without) return true;
    k->offsets = u->offset_bytes == 4 ? (const char *)&end32 : (const char *)&end64;
    out += listed * step;
    return bytes ? pool_to_bytes(k, fn, u, 1, out, step) : pool(k, fn, 1, out, step);
}

/* What made the kernel stop. */
static int find_fault(const bag_args *k, const bag_unit *u, const octet_bag_table *x, size_t t, int64_t b0, int64_t b1, int64_t at, bag_fault *f)
{
    *f = (bag_fault){ (int)k->status, (int64_t)t, b1 - k->bags, -1, 0 };
    const int64_t start = bag_start(u, x, f->bag, b0, at);
    if (f->status == BAG_BAD_INDEX) {
        const int64_t i = (k->index - k->indices) / u->index_bytes;
        f->value = bag_integer(x->indices, u->index_bytes, i);
        f->entry = i - start;
    } else {
        const int64_t end = bag_end(u, x, f->bag, start);
        f->value = f->status == BAG_FEW_WEIGHTS ? end - start : end;
    }
    return f->status;
}

int bag_run(const bag_unit *u, const octet_bag_table *x, size_t t, int64_t b0, int64_t b1, int64_t at, int64_t ahead, int64_t *bad, bag_fault *fault)
{
    bag_args k;
    int status = BAG_DONE;
    if (b0 == b1) return BAG_DONE;
    if (at < 0 || at > x->count) {
        *fault = (bag_fault){ BAG_BAD_OFFSET, (int64_t)t, b0, -1, at };
        return BAG_BAD_OFFSET;
    }
    if (ahead <= 0) ahead = u->ahead;
    for (int64_t slice = 0; slice < u->slices; slice++) {
        begin(&k, u, x, b0, at, ahead);
        const bool done = pool_slice(&k, u, x, slice, b0, b1, x->count > 0 && is_far(u, x));
        if (slice == 0) *bad += k.bad; /* each slice meets the same */
        if (!done) { /* the bags before it are to be complete: their other slices, too */
            status = find_fault(&k, u, x, t, b0, b1, at, fault);
            b1 = fault->bag;
            if (b0 == b1) break;
        }
    }
    return status;
}

/* ---- the line of work ---- */

typedef struct spot { size_t table; int64_t bag, at; } spot; /* at: where the bag begins */

typedef struct work {
    const octet_bag_plan *plan;
    const octet_bag_args *args;
    size_t                stride;
    int64_t               parts;
    spot                  cuts[THREADS_MAX + 1];
    int                   status[THREADS_MAX];
    bag_fault             fault[THREADS_MAX]; /* where status tells of one */
    int64_t               bad[THREADS_MAX];
} work;

static double index_cost(const bag_unit *u) { return (double)(u->row_bytes + LINE); }
static double bag_cost(const bag_unit *u) { return (double)(u->out_bytes + LINE); }
static double table_cost(const bag_unit *u, const octet_bag_table *x) { return (double)bag_indices(u, x) * index_cost(u) + (double)bags_of(u, x) * bag_cost(u); }

/* The first bag from `from` on that begins at or after `cost` along its table. Whatever offsets hold, it is one of the table's. */
static spot cut_table(const bag_unit *u, const octet_bag_table *x, size_t t, spot from, double cost)
{
    const double ic = index_cost(u), bc = bag_cost(u);
    const int64_t bags = bags_of(u, x);
    spot c = { t, from.table == t ? from.bag : 0, from.table == t ? from.at : 0 };
    if (u->desc.pooling == OCTET_NONE) {
        const int64_t b = cost / (ic + bc) < (double)bags ? (int64_t)(cost / (ic + bc)) : bags;
        return (spot){ t, max64(b, c.bag), max64(b, c.bag) };
    }
    if (u->desc.flags & OCTET_BAG_LENGTHS) { /* checked by now */
        for (; c.bag < bags && (double)c.at * ic + (double)c.bag * bc < cost; c.bag++) c.at += bag_integer(x->offsets, u->offset_bytes, c.bag);
        return c;
    }
    const int64_t first = bags ? bag_integer(x->offsets, u->offset_bytes, 0) : 0;
    int64_t low = c.bag, high = bags;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        const double begins = (double)bag_integer(x->offsets, u->offset_bytes, mid) - (double)first;
        if (begins * ic + (double)mid * bc < cost) low = mid + 1;
        else high = mid;
    }
    return (spot){ t, low, low < bags ? bag_integer(x->offsets, u->offset_bytes, low) : 0 };
}

static const octet_bag_table *table_at(const work *w, size_t t, octet_bag_table *room) { return bag_table(w->args->tables, w->stride, t, room); }

static spot table_begin(const bag_unit *u, const octet_bag_table *x, size_t t) { return (spot){ t, 0, bag_first(u, x) }; }

static void cut_line(work *w, double total)
{
    octet_bag_table room;
    size_t t = 0;
    double before = 0;
    const octet_bag_table *x = table_at(w, 0, &room);
    spot c = table_begin(&w->plan->unit[0], x, 0);
    w->cuts[0] = c;
    for (int64_t i = 1; i < w->parts; i++) {
        const double goal = total * (double)i / (double)w->parts;
        while (t + 1 < w->plan->tables && before + table_cost(&w->plan->unit[t], x) <= goal) {
            before += table_cost(&w->plan->unit[t], x);
            x = table_at(w, ++t, &room);
            c = table_begin(&w->plan->unit[t], x, t);
        }
        w->cuts[i] = c = cut_table(&w->plan->unit[t], x, t, c, goal - before);
    }
    w->cuts[w->parts] = (spot){ w->plan->tables, 0, 0 };
}

static void run_part(void *arg, size_t i)
{
    work *w = arg;
    octet_bag_table room, room_ahead;
    const spot from = w->cuts[i], to = w->cuts[i + 1];
    const size_t end = to.table + (to.bag > 0); /* past the last table of this part */
    size_t next = from.table; /* whose first rows are prefetched next */
    int64_t flying = 0;       /* rows prefetched, of tables not yet begun */
    const unsigned kept = fp_enter();
    w->status[i] = BAG_DONE;
    w->bad[i] = 0;
    for (size_t t = from.table; t < end; t++) {
        const bag_unit *u = &w->plan->unit[t];
        const octet_bag_table *x = table_at(w, t, &room);
        const spot begins = t == from.table ? from : table_begin(u, x, t);
        for (; next < end && (next <= t + 1 || flying < ROWS_FLYING); next++) {
            const bag_unit *v = &w->plan->unit[next];
            const octet_bag_table *y = table_at(w, next, &room_ahead);
            flying += prefetch_first(v, y, next == from.table ? from.at : bag_first(v, y), w->args->ahead);
        }
        w->status[i] = bag_run(u, x, t, begins.bag, t == to.table ? to.bag : bags_of(u, x), begins.at, w->args->ahead, &w->bad[i], &w->fault[i]);
        if (w->status[i] != BAG_DONE) break; /* what comes later cannot be lower */
        if (is_far(u, x)) flying -= min64(flying, min64(x->count, w->args->ahead > 0 ? w->args->ahead : u->ahead));
    }
    fp_leave(kept);
}

octet_status octet_run_bags(const octet_bag_plan *p, const octet_bag_args *args)
{
    octet_bag_args copy;
    octet_bag_table room;
    work w;
    if (!p || !args) return fail(OCTET_EINVAL, "octet_run_bags: %s is NULL", p ? "args" : "plan");
    if (args->size != sizeof copy) {
        if (!copy_versioned(&copy, sizeof copy, offsetof(octet_bag_args, stride), args))
            return fail(OCTET_EINVAL, "octet_run_bags: args->size is not of a known version; initialize with OCTET_BAG_ARGS");
        args = &copy;
    }
    if (!args->tables) return fail(OCTET_EINVAL, "octet_run_bags: tables is NULL");
    if (!bag_report_ok(args->report)) return fail(OCTET_EINVAL, "octet_run_bags: report->size is not of a known version; initialize with OCTET_BAG_REPORT");
    if (args->report) bag_report(args->report, 0, NULL);
    w.plan = p;
    w.args = args;
    w.stride = args->stride ? args->stride : sizeof room;
    double total = 0;
    for (size_t t = 0; t < p->tables; t++) {
        const octet_bag_table *x = table_at(&w, t, &room);
        const char *broken = x ? bag_breach(&p->unit[t], x, BAG_READS_TABLE | BAG_WRITES_OUT) : "size is not of a known version; initialize with OCTET_BAG_TABLE";
        if (broken) return fail(OCTET_EINVAL, "octet_run_bags: table %zu: %s", t, broken);
        total += table_cost(&p->unit[t], x);
    }
    for (size_t t = 0; args->validate_first && t < p->tables; t++) {
        const octet_bag_table *x = table_at(&w, t, &room);
        const bag_fault f = bag_validate(&p->unit[t], x, t);
        if (f.status != BAG_DONE) return bag_fail("octet_run_bags", &p->unit[t], x, &f, args->report);
    }
    w.parts = p->ctx->threads == 1 ? 1 : max64(1, min64(p->ctx->threads, (int64_t)(total / PART_BYTES)));
    cut_line(&w, total);
    if (w.parts == 1) run_part(&w, 0);
    else ctx_parallel(p->ctx, (size_t)w.parts, run_part, &w);
    int64_t bad = 0;
    for (int64_t i = 0; i < w.parts; i++) { /* parts lie in order: the first fault is the lowest */
        if (w.status[i] != BAG_DONE) {
            const size_t t = (size_t)w.fault[i].table;
            return bag_fail("octet_run_bags", &p->unit[t], table_at(&w, t, &room), &w.fault[i], args->report);
        }
        bad += w.bad[i];
    }
    if (args->report) bag_report(args->report, bad, NULL);
    return OCTET_OK;
}
