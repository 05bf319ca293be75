/* From descriptions of tables to decisions: layouts, slices, kernels. And what both directions check about a table's data. */
#include <stdio.h>

#include "bags.h"
#include "cpu.h"
#include "format.h"
#include "plain.h"
#include "run.h"

enum { DIM_MAX = 1 << 20 };
/* Rows prefetched ahead: about as many bytes as may be on their way. Zen 4: 48 rows of up to 512 bytes, 16 of 4 KiB are best or nearly so. */
enum { AHEAD_BYTES = 24 << 10, AHEAD_LEAST = 16, AHEAD_MOST = 48 };

/* ---- plan ---- */

/* What is wrong with a description, or NULL; its defaults filled in. */
static const char *fill(octet_bag_desc *d)
{
    const bool quantized = d->table == OCTET_U8 || d->table == OCTET_U4 || d->table == OCTET_U2;
    if (!bag_bits(d->table)) return "table is not a type of tables";
    if (d->dim < 1 || d->dim > DIM_MAX) return "dim is outside 1 .. 2^20";
    if (quantized) {
        if (!d->layout) d->layout = OCTET_ROWS_BEHIND;
        if (!d->params) d->params = d->table == OCTET_U8 && d->layout == OCTET_ROWS_BEHIND ? OCTET_F32 : OCTET_F16;
        if (d->layout != OCTET_ROWS_BEHIND && d->layout != OCTET_ROWS_IN_FRONT) return "layout is none";
        if (d->params != OCTET_F32 && d->params != OCTET_F16) return "params is not f32 or f16";
    } else if (d->layout || d->params) {
        return "layout and params are for tables with scales";
    }
    if (d->pooling < OCTET_SUM || d->pooling > OCTET_NONE) return "pooling is none";
    if (d->weights < OCTET_UNWEIGHTED || d->weights > OCTET_WEIGHT_POSITION) return "weights is none of its values";
    if (d->weights && d->pooling == OCTET_MAX) return "a weighted maximum has no meaning that users agree on";
    if (d->weights == OCTET_WEIGHT_POSITION && d->pooling == OCTET_NONE) return "weights by position need bags";
    if (!d->index) d->index = OCTET_S64;
    if (!d->offset) d->offset = OCTET_S64;
    if (!d->out) d->out = OCTET_F32;
    if ((d->index != OCTET_S32 && d->index != OCTET_S64) || (d->offset != OCTET_S32 && d->offset != OCTET_S64)) return "index or offset is not s32 or s64";
    if (d->out != OCTET_F32 && d->out != OCTET_F16 && d->out != OCTET_BF16 && d->out != OCTET_U8) return "out is not f32, f16, bf16 or u8";
    if (d->out == OCTET_U8 && d->dim > BAG_ROW_OUT) return "rows of more than 1024 values are not quantized on their way out";
    if (d->bad_index < OCTET_BAD_ERROR || d->bad_index > OCTET_BAD_TRUST) return "bad_index is none of its values";
    if (d->flags & ~(unsigned)(OCTET_BAG_LENGTHS | OCTET_BAG_LAST_OFFSET | OCTET_BAG_SLICE | OCTET_BAG_PADDING | OCTET_BAG_REMAP | OCTET_BAG_NO_FALLBACK))
        return "flags has unknown bits";
    if ((d->flags & OCTET_BAG_LENGTHS) && (d->flags & (OCTET_BAG_LAST_OFFSET | OCTET_BAG_SLICE))) return "lengths have no last offset";
    if ((d->flags & OCTET_BAG_SLICE) && !(d->flags & OCTET_BAG_LAST_OFFSET)) return "OCTET_BAG_SLICE needs OCTET_BAG_LAST_OFFSET";
    return NULL;
}

static bag_spec spec_of(const octet_bag_desc *d, int64_t cols, bool first, bool only)
{
    bag_spec s = { .dot = DOT_BAG, .table = (uint8_t)d->table, .half = d->params == OCTET_F16, .front = d->layout == OCTET_ROWS_IN_FRONT && first && only,
                   .pooling = (uint8_t)d->pooling, .weights = (uint8_t)d->weights, .bad = (uint8_t)d->bad_index, .index32 = d->index == OCTET_S32,
                   .offset32 = d->offset == OCTET_S32, .lengths = (d->flags & OCTET_BAG_LENGTHS) != 0, .padding = (d->flags & OCTET_BAG_PADDING) != 0,
                   .remap = (d->flags & OCTET_BAG_REMAP) != 0, .out = (uint8_t)(d->out == OCTET_U8 ? OCTET_F32 : d->out),
                   .cols_low = (uint8_t)(cols & 255), .cols_high = (uint8_t)(cols >> 8) };
    if (d->pooling == OCTET_NONE) s.offset32 = s.lengths = 0; /* not read: one kernel for all */
    return s;
}

static void layout(bag_unit *u)
{
    const octet_bag_desc *d = &u->desc;
    const int64_t bytes = ceil_div(d->dim * bag_bits(d->table), 8), beside = !d->params ? 0 : d->params == OCTET_F16 ? 4 : 8;
    const bool front = d->layout == OCTET_ROWS_IN_FRONT;
    u->row_bytes = bytes + beside;
    u->values = front ? beside : 0;
    u->params = front ? 0 : bytes;
    u->index_bytes = d->index == OCTET_S32 ? 4 : 8;
    u->offset_bytes = d->offset == OCTET_S32 ? 4 : 8;
    u->table_align = d->table == OCTET_F32 ? 4 : d->table == OCTET_F16 || d->table == OCTET_BF16 ? 2 : 1;
    u->out_bytes = d->out == OCTET_U8 ? d->dim + 8 : d->dim * format_of(d->out)->bytes;
    u->slices = ceil_div(d->dim, BAG_COLS);
    u->near_rows = cpu_cache_sizes().l2 / 2 / u->row_bytes;
    u->ahead = max64(AHEAD_LEAST, min64(AHEAD_MOST, AHEAD_BYTES / u->row_bytes));
    u->spec[0] = spec_of(d, BAG_COLS, true, u->slices == 1);
    u->spec[1] = spec_of(d, d->dim - (u->slices - 1) * BAG_COLS, true, u->slices == 1);
}

static bool generate(bag_unit *u)
{
    for (int last = u->slices == 1; last < 2; last++)
        for (int ahead = 0; ahead < 2; ahead++) {
            kernel_spec key;
            bag_spec s = u->spec[last];
            s.ahead = (uint8_t)ahead;
            memcpy(&key, &s, sizeof key);
            kernel *k = u->kernels[last][ahead] = cache_acquire(&key);
            if (!k) return false;
            u->code[last][ahead] = (bag_fn)(void (*)(void))kernel_code(k);
        }
    return true;
}

octet_status octet_plan_bags(octet_ctx *ctx, const octet_bag_desc *descs, size_t stride, size_t tables, octet_bag_plan **out)
{
    if (!out) return fail(OCTET_EINVAL, "octet_plan_bags: out is NULL");
    if (!descs || !tables || stride < sizeof(size_t)) return fail(OCTET_EINVAL, "octet_plan_bags: descs is NULL, tables 0, or stride too small");
    if (tables > (SIZE_MAX / 4 - sizeof(octet_bag_plan)) / sizeof(bag_unit)) return fail(OCTET_EINVAL, "octet_plan_bags: %zu tables are too many", tables);
    octet_ctx *c = ctx_hold(ctx);
    const size_t bytes = sizeof(octet_bag_plan) + tables * sizeof(bag_unit);
    octet_bag_plan *p = c ? mem_alloc(&c->allocator, bytes) : NULL;
    if (!p) {
        ctx_drop(c);
        return fail(OCTET_ENOMEM, "octet_plan_bags: no memory for a plan of %zu tables", tables);
    }
    memset(p, 0, bytes);
    p->ctx = c;
    p->tables = tables;
    octet_status st = OCTET_OK;
    for (size_t t = 0; t < tables && !st; t++) {
        bag_unit *u = &p->unit[t];
        const char *broken = NULL;
        if (!copy_versioned(&u->desc, sizeof u->desc, offsetof(octet_bag_desc, layout), (const char *)descs + t * stride))
            broken = "size is not of a known version; initialize with OCTET_BAG_DESC";
        else broken = fill(&u->desc);
        if (broken) {
            st = fail(OCTET_EINVAL, "octet_plan_bags: table %zu: %s", t, broken);
            break;
        }
        layout(u);
        if (!(cpu_features() & CPU_AVX2) || !generate(u)) {
            if (u->desc.flags & OCTET_BAG_NO_FALLBACK)
                st = fail(OCTET_EUNSUPPORTED, "octet_plan_bags: table %zu: no kernel can be generated here (no AVX2, or no executable memory)", t);
            for (int i = 0; i < 4; i++) u->code[i / 2][i % 2] = plain_bag;
        }
    }
    if (st) {
        octet_bag_plan_free(p);
        return st;
    }
    *out = p;
    return OCTET_OK;
}

void octet_bag_plan_free(octet_bag_plan *p)
{
    if (!p) return;
    octet_ctx *c = p->ctx;
    for (size_t t = 0; t < p->tables; t++)
        for (int i = 0; i < 4; i++) cache_release(p->unit[t].kernels[i / 2][i % 2]);
    mem_free(&c->allocator, p, sizeof *p + p->tables * sizeof(bag_unit));
    ctx_drop(c);
}

const char *octet_explain_bags(const octet_bag_plan *p, size_t table)
{
    static _Thread_local char text[160];
    char name[KERNEL_NAME];
    if (!p || table >= p->tables) return "no such table";
    const bag_unit *u = &p->unit[table];
    bag_spec s = u->spec[u->slices == 1];
    s.ahead = 1;
    bag_name(&s, name);
    snprintf(text, sizeof text, "%s %s, rows of %lld bytes, %lld slice%s", name, u->code[1][1] == plain_bag ? "plain" : "avx2", (long long)u->row_bytes,
             (long long)u->slices, u->slices > 1 ? "s" : "");
    return text;
}

size_t octet_bag_row_bytes(const octet_bag_desc *desc)
{
    bag_unit u;
    if (!desc || !copy_versioned(&u.desc, sizeof u.desc, offsetof(octet_bag_desc, layout), desc) || fill(&u.desc)) return 0;
    layout(&u);
    return (size_t)u.row_bytes;
}

/* ---- what a run is given ---- */

const octet_bag_table *bag_table(const void *tables, size_t stride, size_t t, octet_bag_table *room)
{
    const char *p = (const char *)tables + t * (stride ? stride : sizeof *room);
    size_t size;
    memcpy(&size, p, sizeof size);
    if (size == sizeof *room) return (const octet_bag_table *)(const void *)p;
    return copy_versioned(room, sizeof *room, offsetof(octet_bag_table, weights), p) ? room : NULL;
}

static bool misaligned(const void *p, int64_t bytes) { return (uintptr_t)p & (uintptr_t)(bytes - 1); }

/* The indices of all bags, if lengths say so: none negative, their sum the number of indices. */
static const char *lengths_breach(const bag_unit *u, const octet_bag_table *x)
{
    int64_t sum = 0;
    for (int64_t b = 0; b < x->bags; b++) {
        const int64_t n = bag_integer(x->offsets, u->offset_bytes, b);
        if (n < 0) return "a length is negative";
        if (!add_ok(sum, n, &sum)) return "the sum of lengths overflows";
    }
    return sum == x->count ? NULL : "lengths do not add up to count";
}

static const char *offsets_breach(const bag_unit *u, const octet_bag_table *x)
{
    const unsigned flags = u->desc.flags;
    const int64_t entries = x->bags + ((flags & OCTET_BAG_LAST_OFFSET) != 0);
    int64_t bytes;
    if (x->bags < 0) return "bags is negative";
    if (!mul_ok(entries, u->offset_bytes, &bytes)) return "the size of offsets overflows";
    if (entries && (!x->offsets || misaligned(x->offsets, u->offset_bytes))) return "offsets is NULL or misaligned";
    if (flags & OCTET_BAG_LENGTHS) return lengths_breach(u, x);
    if (!entries) return x->count ? "there are indices, but no bags" : NULL;
    if (u->offset_bytes == 4 && !(flags & OCTET_BAG_LAST_OFFSET) && x->count > INT32_MAX) return "count is more than offsets of 32 bits can tell";
    if (flags & OCTET_BAG_SLICE) return NULL;
    if (bag_integer(x->offsets, u->offset_bytes, 0) != 0) return "the first offset is not 0";
    if ((flags & OCTET_BAG_LAST_OFFSET) && bag_integer(x->offsets, u->offset_bytes, x->bags) != x->count) return "the last offset is not count";
    return NULL;
}

bool bag_overlaps(const bag_unit *u, const octet_bag_table *x, const void *p, int64_t bytes)
{
    const octet_bag_desc *d = &u->desc;
    const int64_t stride = x->row_bytes ? x->row_bytes : u->row_bytes, table = x->rows ? (x->rows - 1) * stride + u->row_bytes : 0;
    const int64_t offsets = d->pooling == OCTET_NONE ? 0 : x->bags + ((d->flags & OCTET_BAG_LAST_OFFSET) != 0);
    const int64_t weights = d->weights == OCTET_WEIGHT_EACH ? x->count : d->weights ? x->weight_count : 0;
    return overlap(p, bytes, x->table, table) || overlap(p, bytes, x->indices, x->count * u->index_bytes)
        || overlap(p, bytes, x->offsets, offsets * u->offset_bytes) || overlap(p, bytes, x->weights, 4 * weights)
        || ((d->flags & OCTET_BAG_REMAP) && overlap(p, bytes, x->remap, 4 * x->remap_rows));
}

static const char *output_breach(const bag_unit *u, const octet_bag_table *x)
{
    const octet_bag_desc *d = &u->desc;
    const int elem = d->out == OCTET_U8 ? 1 : d->out == OCTET_F32 ? 4 : 2;
    const int64_t width = u->out_bytes / elem, bytes = span_of(bags_of(u, x), width, x->ld_out, elem);
    if (x->ld_out < width) return d->out == OCTET_U8 ? "ld_out is less than dim + 8" : "ld_out is less than dim";
    if (bytes < 0) return "the size of out overflows";
    if (bytes && (!x->out || misaligned(x->out, elem))) return "out is NULL or misaligned";
    return bag_overlaps(u, x, x->out, bytes) ? "out overlaps table, indices, offsets, weights or remap" : NULL;
}

const char *bag_breach(const bag_unit *u, const octet_bag_table *x, int use)
{
    const octet_bag_desc *d = &u->desc;
    const int64_t stride = x->row_bytes ? x->row_bytes : u->row_bytes;
    int64_t table_bytes, indices;
    if (x->rows < 0 || x->count < 0) return "rows or count is negative";
    if (stride < u->row_bytes) return "row_bytes is less than a row has";
    if (!mul_ok(x->rows, stride, &table_bytes)) return "the size of table overflows";
    if (x->rows && !x->table && (use & BAG_READS_TABLE)) return "table is NULL";
    if (((use & BAG_READS_TABLE) && misaligned(x->table, u->table_align)) || stride % u->table_align) return "table or row_bytes is misaligned for its type";
    if (!mul_ok(x->count, u->index_bytes, &indices)) return "the size of indices overflows";
    if (x->count && (!x->indices || misaligned(x->indices, u->index_bytes))) return "indices is NULL or misaligned";
    if (d->weights == OCTET_WEIGHT_EACH && x->count && (!x->weights || misaligned(x->weights, 4))) return "weights is NULL or misaligned";
    if (d->weights == OCTET_WEIGHT_POSITION && (x->weight_count < 0 || x->weight_count > INT64_MAX / 8 || (x->weight_count && (!x->weights || misaligned(x->weights, 4)))))
        return "weights is NULL or misaligned, or weight_count out of range";
    if (d->flags & OCTET_BAG_REMAP) {
        if (x->remap_rows < 0 || x->remap_rows > INT64_MAX / 8) return "remap_rows is out of range";
        if (x->remap_rows && (!x->remap || misaligned(x->remap, 4))) return "remap is NULL or misaligned";
    }
    const char *broken = d->pooling == OCTET_NONE ? NULL : offsets_breach(u, x);
    return broken ? broken : use & BAG_WRITES_OUT ? output_breach(u, x) : NULL;
}

/* ---- faults in indices and offsets ---- */

static bool index_good(const bag_unit *u, const octet_bag_table *x, int64_t i)
{
    if ((u->desc.flags & OCTET_BAG_PADDING) && i == x->padding) return true;
    if (u->desc.flags & OCTET_BAG_REMAP) {
        if (i == -1) return true;
        if ((uint64_t)i >= (uint64_t)x->remap_rows) return false;
        i = x->remap[i];
        if (i == -1) return true;
    }
    return (uint64_t)i < (uint64_t)x->rows;
}

/* Whether every index from..to is good, at a glance where there is no padding and no remap. */
static bool all_good(const bag_unit *u, const octet_bag_table *x, int64_t from, int64_t to)
{
    uint64_t worst = 0;
    if (u->desc.flags & (OCTET_BAG_PADDING | OCTET_BAG_REMAP)) {
        for (int64_t i = from; i < to; i++)
            if (!index_good(u, x, bag_integer(x->indices, u->index_bytes, i))) return false;
        return true;
    }
    if (u->index_bytes == 4) {
        uint32_t most = 0; /* negative ones are the greatest */
        for (int64_t i = from; i < to; i++) most = ((const uint32_t *)x->indices)[i] > most ? ((const uint32_t *)x->indices)[i] : most;
        if (most > INT32_MAX) return from == to;
        worst = most;
    } else {
        for (int64_t i = from; i < to; i++) worst = ((const uint64_t *)x->indices)[i] > worst ? ((const uint64_t *)x->indices)[i] : worst;
    }
    return from == to || worst < (uint64_t)x->rows;
}

int64_t bag_first(const bag_unit *u, const octet_bag_table *x)
{
    return u->desc.pooling != OCTET_NONE && (u->desc.flags & OCTET_BAG_SLICE) ? bag_integer(x->offsets, u->offset_bytes, 0) : 0;
}

int64_t bag_indices(const bag_unit *u, const octet_bag_table *x)
{
    if (u->desc.pooling == OCTET_NONE || !(u->desc.flags & OCTET_BAG_SLICE)) return x->count;
    const int64_t from = bag_integer(x->offsets, u->offset_bytes, 0), to = bag_integer(x->offsets, u->offset_bytes, x->bags);
    return from >= 0 && to >= from && to <= x->count ? to - from : x->count;
}

int64_t bag_start(const bag_unit *u, const octet_bag_table *x, int64_t b, int64_t b0, int64_t at)
{
    if (u->desc.pooling == OCTET_NONE) return b;
    if (!(u->desc.flags & OCTET_BAG_LENGTHS)) return bag_integer(x->offsets, u->offset_bytes, b);
    for (; b0 < b; b0++) at += bag_integer(x->offsets, u->offset_bytes, b0);
    return at;
}

int64_t bag_end(const bag_unit *u, const octet_bag_table *x, int64_t b, int64_t at)
{
    const octet_bag_desc *d = &u->desc;
    if (d->pooling == OCTET_NONE) return at + 1;
    if (d->flags & OCTET_BAG_LENGTHS) return at + bag_integer(x->offsets, u->offset_bytes, b);
    return b + 1 == x->bags && !(d->flags & OCTET_BAG_LAST_OFFSET) ? x->count : bag_integer(x->offsets, u->offset_bytes, b + 1);
}

bag_fault bag_validate(const bag_unit *u, const octet_bag_table *x, size_t t)
{
    const octet_bag_desc *d = &u->desc;
    const int64_t bags = bags_of(u, x), first = bag_first(u, x);
    bag_fault f = { BAG_BAD_OFFSET, (int64_t)t, 0, -1, first };
    if (bags == 0) f.status = BAG_DONE;
    if (bags == 0) return f;
    if (first < 0 || first > x->count) return f;
    int64_t at = first;
    f.status = BAG_DONE;
    for (f.bag = 0; d->pooling != OCTET_NONE && f.bag < bags; f.bag++) { /* offsets; then indices may be read */
        const int64_t end = bag_end(u, x, f.bag, at);
        if (end < at || end > x->count) { f.status = BAG_BAD_OFFSET; f.value = end; break; }
        if (d->weights == OCTET_WEIGHT_POSITION && end - at > x->weight_count) { f.status = BAG_FEW_WEIGHTS; f.value = end - at; break; }
        at = end;
    }
    if (d->pooling == OCTET_NONE) at = x->count;
    if (d->bad_index != OCTET_BAD_ERROR || all_good(u, x, first, at)) return f;
    at = first; /* there is one, in a bag before any that breaks off */
    for (f.bag = 0;; f.bag++) {
        const int64_t end = bag_end(u, x, f.bag, at);
        for (int64_t i = at; i < end; i++)
            if (!index_good(u, x, bag_integer(x->indices, u->index_bytes, i)))
                return (bag_fault){ BAG_BAD_INDEX, (int64_t)t, f.bag, i - at, bag_integer(x->indices, u->index_bytes, i) };
        at = end;
    }
}

octet_status bag_fail(const char *who, const bag_unit *u, const octet_bag_table *x, const bag_fault *f, octet_bag_report *report)
{
    bag_report(report, 0, f);
    const long long t = (long long)f->table, b = (long long)f->bag, e = (long long)f->entry, v = (long long)f->value;
    if (f->status == BAG_BAD_OFFSET)
        return fail(OCTET_EINVAL, "%s: table %lld, bag %lld: it would end at index %lld, before it begins or after the last of %lld", who, t, b, v, (long long)x->count);
    if (f->status == BAG_FEW_WEIGHTS)
        return fail(OCTET_EINVAL, "%s: table %lld, bag %lld: %lld indices, but %lld weights", who, t, b, v, (long long)x->weight_count);
    if (u->desc.flags & OCTET_BAG_REMAP)
        return fail(OCTET_EINVAL, "%s: table %lld, bag %lld, entry %lld: index %lld is none of %lld, or is remapped to none of %lld rows", who, t, b, e, v,
                    (long long)x->remap_rows, (long long)x->rows);
    return fail(OCTET_EINVAL, "%s: table %lld, bag %lld, entry %lld: index %lld is none of %lld rows", who, t, b, e, v, (long long)x->rows);
}

bool bag_report_ok(const octet_bag_report *report)
{
    size_t size;
    if (!report) return true;
    memcpy(&size, report, sizeof size);
    return size >= offsetof(octet_bag_report, table) && size <= 4096;
}

void bag_report(octet_bag_report *report, int64_t bad, const bag_fault *f)
{
    octet_bag_report r = { sizeof r, bad, -1, -1, -1, 0 };
    if (!report) return;
    if (f) {
        r.table = f->table;
        r.bag = f->bag;
        r.entry = f->entry;
        r.value = f->value;
    }
    memcpy(&r.size, report, sizeof r.size);
    memcpy(report, &r, r.size < sizeof r ? r.size : sizeof r);
}
