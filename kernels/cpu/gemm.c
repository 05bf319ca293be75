/*
 * Start reading octet here. Every CPU product, of any type, from any view, is these loops round one
 * kernel call:
 *
 *   for a chunk of B's panels            all of them, unless sums must wait for more k
 *     for a block of mc rows of A        packed, it fills half of L2
 *       for a block of kc values of k    a B panel of that depth stays in L1
 *         pack the block of A            as bytes for T dots, in 16 bits for W, as its panels ask
 *         for each panel of B
 *           for each tile of rows        kernel: accumulate; on the last block of k, finish
 *
 * The dot of a panel is what its proof allows for the largest value of this block of A (proof.c).
 */
#include "task.h"

#include "format.h"
#include "mxcsr.h"
#include "plain.h"

enum {
    STACK_WORKSPACE = 48 << 10, /* what a run falls back to when no workspace is free         */
    WIDEN_TILES = 8,            /* widening a panel of B beforehand pays from so many tiles on */
    PLACE_ROWS = 8,             /* A is read where it lies for so few rows,                   */
    WHOLE_BYTES = 8192,         /* so little A is not split along k: it stays in L1           */
    PLACE_PANELS = 4,           /* or where so few panels read it                             */
    PLACE_ZEROS = 64,           /* rows at a time, then, if each has a zero point             */
    ALIAS_ROWS = 48,            /* more of them, 4 KiB apart, share sets of L1 and L2: copied   */
    TASK_MACS = 1 << 18,        /* less work than this is not worth a second thread           */
    KC_FLOAT = 2048,            /* deeper products wait in memory: each time costs 1 to 2 %      */
};

size_t cpu_workspace_bytes(void)
{
    const cpu_caches c = cpu_cache_sizes();
    return (size_t)(min64(max64(c.l2, 256 << 10), 2 << 20) * 3 / 2);
}

blocking cpu_blocking(blocking b)
{
    const cpu_caches c = cpu_cache_sizes();
    b.kc_given = b.kc != 0;
    /* of L1, half for a B panel of bytes (a quarter, widened); k up to it is not split at all */
    if (!b.kc) b.kc = (int32_t)max64(256, min64(KC_MAX, c.l1d / 2 / NR / 16 * 16));
    if (!b.kc_float) b.kc_float = b.kc_given ? b.kc : KC_FLOAT;
    if (!b.mc) b.mc = 1 << 20;
    if (!b.panels) b.panels = INT64_MAX / 64;
    if (!b.a_bytes) b.a_bytes = c.l2 / 2;
    return b;
}

/* ---- the loops ---- */

/* The panel's dot: what its proof allows at this level of A, or what B's type needs. */
static int panel_dot(const task *t, int64_t p, int level)
{
    if (t->wide_source) return DOT_W; /* the portable kernel, too, reads A in 16 bits then */
    if (t->plain) return DOT_PLAIN;
    return t->floating ? t->plan->dot : blob_info(t->blob, p).dot[level];
}

/* How many panels one call can do: of the same kind, while a single tile covers the rows. */
static int64_t panels_alike(const task *t, int64_t p, int64_t more, int level)
{
    const int64_t whole = min64(more + 1, (t->plan->out_n - t->out_nr * p) >> t->out_log2);
    int64_t n = 1;
    if (t->floating) return max64(1, whole);
    while (n < whole && (t->plain || blob_info(t->blob, p + n).dot[level] == blob_info(t->blob, p).dot[level])) n++;
    return n;
}

/* The chain's operands at row i and panel p. */
static void set_operands(const task *t, int64_t i, int64_t p)
{
    const octet_plan *plan = t->plan;
    for (int s = 0; s < plan->steps; s++) {
        const uint8_t c = plan->chain[s];
        const octet_operand *o = &t->g->operand[s];
        op_arg *x = &t->args->op[s];
        if (!chain_has_operand(c)) continue;
        const int64_t size = chain_type(c) ? 2 : 4;
        const char *base = o->t;
        x->panel_step = chain_shape(c) == OCTET_PER_M ? 0 : t->out_nr * size;
        x->row_step = chain_shape(c) == OCTET_PER_M ? 4 : chain_shape(c) == OCTET_FULL ? o->ld * size : 0;
        x->p = base + (t->g->row_base + i) * x->row_step + p * x->panel_step;
        x->up = plan->b.gated ? x->p + plan->b.n / 2 * size : x->p;
    }
}

/* B's panel for a floating block, widened first where that pays: the dot and the bytes. */
static int float_panel(task *t, int64_t p, int64_t k0, int64_t kn, int64_t tiles)
{
    kernel_args *x = t->args;
    const blob *b = t->blob;
    const int64_t at_group = k0 ? k0 / t->plan->b.group * x->group_step : 0;
    x->scale_b = (const float *)(const void *)(t->scale_b + x->scale_b_step * p + at_group);
    x->zero_b = (const int32_t *)(const void *)(t->zero_b + x->zero_b_step * p + at_group);
    x->quads = kn;
    if (t->g->b_place) {
        x->b = (const int8_t *)(t->g->b_place + k0 * t->g->ldb + p * NR_FLOAT);
        return t->plain ? DOT_PLAIN : DOT_F32;
    }
    if (t->panel && tiles >= families[t->plan->dot].widen) {
        widen_float_panel(b, p, k0, kn, (float *)(void *)t->panel);
        x->b = (const int8_t *)t->panel;
        return DOT_F32;
    }
    x->b = (const int8_t *)b + b->panels + p * t->plan->b.stride + (k0 ? float_panel_bytes((octet_dtype)b->type, k0, blob_cols(b, p)) : 0);
    return t->plain ? DOT_PLAIN : t->plan->dot;
}

/* And for an integer block. */
static int integer_panel(task *t, int64_t p, int64_t k0, int64_t kn, int64_t block, int dot)
{
    kernel_args *x = t->args;
    const int cols = blob_cols(t->blob, p);
    const parts tiles = t->tiles[families[dot].form == A_WIDE];
    x->b = (const int8_t *)t->blob + t->blob->panels + p * t->plan->b.stride + k0 * cols;
    x->quads = kn / 4;
    if (dot == DOT_W && t->panel && tiles.count >= WIDEN_TILES && tiles.base >= families[DOT_WS].min_rows) {
        widen_panel(x->b, cols, kn, t->panel);
        x->b = (const int8_t *)t->panel;
        x->quads = (kn + 3) / 4;
        dot = DOT_WS;
    }
    if (dot == DOT_W && t->split) dot = DOT_S;
    x->span = t->spans ? t->spans + p * t->span_count + (t->blocks > 1 ? 1 + block : 0) : NULL;
    x->quad0 = k0 / 4;
    /* its columns; the caller's arrays end at n */
    x->sums = t->sums + NR * p;
    x->scale_b = (const float *)(const void *)(t->scale_b + x->scale_b_step * p);
    x->zero_b = (const int32_t *)(const void *)(t->zero_b + x->zero_b_step * p);
    return dot;
}

static void place_a(const task *t, int dot, int64_t row, int64_t r0, int rows, int64_t k0, int64_t kn)
{
    kernel_args *x = t->args;
    const int64_t kq = (kn + 3) / 4 * 4;
    if (t->place) {
        x->a = (const uint8_t *)t->g->a.views[0].base + row * x->lda + k0 * (t->floating ? 4 : 1);
        x->a_step = rows * x->lda;
    } else if (t->floating) {
        x->a = (const uint8_t *)(t->floats + r0 * (t->lined ? t->line_ld : kn));
        x->a_step = 4 * rows * (t->lined ? t->line_ld : kn);
    } else if (families[dot].form == A_QUADS) {
        x->a = t->quads + r0 * kq;
        x->a_step = rows * kq;
    } else {
        x->a = (const uint8_t *)(t->wide + r0 * kq);
        x->a_step = 2 * rows * kq;
    }
}

/* The tiles of panel p over one packed block; and of up to `more` panels after it, where one kernel
 * call can do them. Returns how many panels are done. */
static __attribute__((noinline)) int64_t run_panel(task *t, int64_t p, int64_t more, int64_t i0, int64_t block, int64_t chunk0, int level)
{
    const gemm_problem *g = t->g;
    const blob *b = t->blob;
    kernel_args *x = t->args;
    int32_t start[MR_MAX * NR_FLOAT]; /* of a tile that starts from given sums */
    const int cols = blob_cols(b, p);
    const int64_t k0 = block * t->kc, kn = min64(t->kc, t->k - k0);
    const bool last = block + 1 >= t->blocks, given = g->sums && block == 0, one_by_one = t->raw || !t->direct || given;
    int dot = panel_dot(t, p, level);
    const parts tiles = t->tiles[families[dot].form == A_WIDE];
    int64_t panels = tiles.count == 1 && !one_by_one ? panels_alike(t, p, more, level) : 1;
    int kind = t->out_nr * (p + 1) > t->plan->out_n ? KIND_LAST : KIND_FULL, abreast = 1;
    if (t->floating && panels > 1 && !t->plain) {
        abreast = (int)min64(dot_abreast((int)tiles.base), panels >= 4 ? 4 : panels >= 2 ? 2 : 1);
        kind = abreast == 4 ? KIND_FOUR : abreast == 2 ? KIND_TWO : KIND_FULL;
        panels = abreast == 4 ? panels & ~INT64_C(3) : abreast == 2 ? panels & ~INT64_C(1) : panels;
    }
    dot = t->floating ? float_panel(t, p, k0, kn, tiles.count) : integer_panel(t, p, k0, kn, block, dot);
    if (g->bias)
        x->bias = t->floating || cols == NR ? (const char *)g->bias + 4 * t->nr * p : (const char *)t->last_bias;

    /* tiles of base + 1 rows, then of base; a kernel call takes all alike, unless sums wait or values scatter */
    for (int64_t i = 0, r0 = 0; i < tiles.count;) {
        const int n = (int)part_size(tiles, i);
        const int64_t alike = one_by_one ? 1 : i < tiles.extra ? tiles.extra : tiles.count - i;
        kernel_fn fn;
        if (t->plain) {
            fn = plain_kernel;
            t->spec = plan_spec(t->plan, b->has_zeros, dot, t->place || t->lined, kind, cols, n);
            t->spec.b_place = g->b_place != NULL;
        } else {
            const bool rows_lie = t->place || t->lined;
            const int at = g->b_place ? set_index_b_place(rows_lie, kind, n) : set_index(dot, rows_lie, kind, n);
            fn = atomic_load_explicit(&t->set->code[at], memory_order_relaxed);
        }
        x->tiles = alike;
        x->panels = panels / abreast;
        place_a(t, dot, i0 + r0, r0, n, k0, kn);
        if (one_by_one) {
            int32_t *raw = t->raw ? t->raw + ((p - chunk0) * t->mc + r0) * t->nr : start;
            if (given) load_sums(t, i0 + r0, n, p, raw);
            x->raw_in = block || given ? raw : NULL;
            x->raw_out = last ? NULL : raw;
        }
        x->zero_a = t->zero_rows + r0;
        x->row_sums = t->row_sums + r0;
        x->scale_a = t->dynamic ? t->scale_rows + r0 : g->scale_a_rows ? g->scale_a_rows + i0 + r0 : NULL;
        x->c = (char *)g->dest->base + ((i0 + r0) * g->dest->row_stride + t->out_nr * p) * t->elem;
        set_operands(t, i0 + r0, p);
        const int out_cols = (int)min64(t->out_nr * panels, t->plan->out_n - t->out_nr * p);
        if (!t->direct && last) call_scattered(t, fn, (tile_place){ i0 + r0, t->out_nr * p, n, out_cols });
        else fn(x);
        if (g->done && last) g->done(g->done_user, g->done_i + i0 + r0, t->out_nr * p, alike * n, out_cols);
        i += alike;
        r0 += alike * n;
    }
    return panels;
}

/* A floating A whose rows run along k: read where they lie, or widened in that shape. */
static bool along_k(const gemm_problem *g)
{
    const view *v = &g->a.views[0];
    return (!g->plan->desc.trans_a || g->plan->any_view) && g->a.count == 1 && !g->a.weights && v->k_stride == 1 && !v->line_offset && !v->k_offset;
}

/* Is A better read where it lies? */
static bool may_place(const gemm_problem *g, int64_t rows, int64_t panels)
{
    const view *v = &g->a.views[0];
    if (g->plan->b.floating) return g->a.type == OCTET_F32 && along_k(g) && !(rows > ALIAS_ROWS && v->line_stride % 1024 == 0);
    return g->plan->cpu && !g->b->portable && (rows <= PLACE_ROWS || panels <= PLACE_PANELS) && g->a.flip == 0 && source_is_plain(&g->a)
        && v->k_stride == 1 && g->b->places;
}

/* How k is cut: not at all while a single tile of A passes over each panel, or so little A stays in L1. */
static int64_t k_block(const task *t, size_t bytes)
{
    const blocking *blocks = &t->plan->blocks;
    if (!t->floating) return t->rows <= families[DOT_W].mr && t->rows * t->k <= WHOLE_BYTES ? max64(t->k, t->blob->kc) : t->blob->kc;
    const bool halved = !t->place && t->plan->dot == DOT_F32; /* A is copied to L2, which it then shares with a panel of 64 KiB */
    const int64_t kc = blocks->kc_given ? round_up(blocks->kc_float, t->plan->b.groups > 1 ? t->plan->b.group : 8) : blocks->kc_float / (halved ? 2 : 1);
    const bool whole = t->rows <= MR_FLOAT && !blocks->kc_given && (t->place || 8 * t->rows * t->k <= (int64_t)bytes);
    return whole || t->k <= kc ? max64(1, t->k) : kc;
}

static void run_task(const gemm_problem *g, kernel_args *args, int64_t row0, int64_t rows, int64_t panel0, int64_t panels, uint8_t *memory, size_t bytes)
{
    const octet_plan *plan = g->plan;
    const blob *b = g->b->blob;
    int32_t zeros[PLACE_ZEROS];
    float totals[MR_FLOAT * NR_FLOAT];
    task t;
    t.g = g;
    t.plan = plan;
    t.rows = rows;
    t.panels = panels;
    t.blob = b;
    t.set = &plan->sets[b->has_zeros != 0];
    t.args = args;
    t.k = b->k;
    t.nr = b->nr;
    t.out_log2 = (b->nr == NR ? 3 : 4) - b->gated;
    t.out_nr = 1 << t.out_log2;
    t.floating = b->floating;
    t.spans = b->residual_quads ? (const residual_span *)(const void *)((const char *)b + b->spans) : NULL;
    t.span_count = t.spans ? span_count(b->k, b->kc) : 0;
    t.plain = !plan->cpu || g->b->portable;
    t.elem = plan->c->bytes;
    t.wide_source = g->a.weights != NULL && !t.floating;
    t.gathered = !source_is_plain(&g->a);
    t.dynamic = (plan->desc.flags & OCTET_DYNAMIC) && plan->desc.scale_a == OCTET_PER_ROW;
    t.direct = g->dests == 1 && !g->add && !g->dest->row_offset && !g->dest->col_offset && g->dest->col_stride == 1;
    t.sums = (const int32_t *)(const void *)((const char *)b + b->sums);
    t.scale_b = b->scales ? (const char *)b + b->scales : (const char *)b->scale;
    t.zero_b = b->zeros ? (const char *)b + b->zeros : (const char *)b->zero;
    t.panel = NULL;
    t.raw = NULL;
    t.row_sums = NULL;
    if (g->bias && b->n % NR && !t.floating) {
        memset(t.last_bias, 0, sizeof t.last_bias);
        memcpy(t.last_bias, (const char *)g->bias + 4 * (b->n / NR * NR), 4 * (size_t)(b->n % NR));
    }
    args->spec = &t.spec;
    args->consts = &gen_const;
    args->res_k = blob_res_k(b);
    args->res_w = blob_res_w(b);
    args->ldb = 4 * g->ldb;
    args->b_step = g->b_place ? 4 * NR_FLOAT : plan->b.stride;
    args->c_step = t.out_nr * t.elem;
    args->span_step = t.spans ? t.span_count * (int64_t)sizeof(residual_span) : 0;
    args->scale_b_step = b->scales ? 4 * t.nr : 0;
    args->zero_b_step = b->zeros ? 4 * t.nr : 0;
    args->span = NULL;
    args->raw_in = NULL;
    args->raw_out = NULL;
    args->ldc = g->dest->row_stride * t.elem;
    args->lda = g->a.views[0].line_stride * (t.floating ? 4 : 1);
    args->group = plan->b.group;
    args->group_step = 4 * round_up(b->n, NR_FLOAT);
    args->totals = totals;
    t.place = may_place(g, rows, panels);
    t.lined = t.floating && !t.place && along_k(g);
    t.kc = k_block(&t, bytes);
    t.blocks = t.k <= t.kc ? 1 : ceil_div(t.k, t.kc);
    if (t.place && t.blocks == 1 && (!t.floating || !bytes || plan->dot == DOT_F32)) { /* no memory is needed */
        t.mc = g->zero_a_rows ? min64(rows, PLACE_ZEROS) : rows;
        t.chunk = panels;
        t.zero_rows = zeros;
    } else {
        carve(&t, memory, bytes);
        if (t.lined) args->lda = 4 * t.line_ld;
    }
    const unsigned kept = plan->floats ? fp_enter() : 0;

    for (int64_t c0 = panel0; c0 < panel0 + panels; c0 += t.chunk)
        for (int64_t i0 = row0; i0 < row0 + rows; i0 += t.mc) {
            const int64_t mb = min64(t.mc, row0 + rows - i0), c1 = min64(c0 + t.chunk, panel0 + panels);
            begin_rows(&t, i0, mb);
            for (int64_t block = 0; block < t.blocks; block++) {
                const int64_t k0 = block * t.kc;
                const int level = t.place ? 0 : pack_block(&t, i0, mb, k0, min64(t.kc, t.k - k0));
                for (int64_t p = c0; p < c1;) p += run_panel(&t, p, c1 - p - 1, i0, block, c0, level);
            }
        }
    if (plan->floats) fp_leave(kept);
}

/* ---- threads ---- */

int64_t cpu_tasks(const octet_ctx *ctx, double cost)
{
    if (ctx->threads == 1 || cost < TASK_MACS) return 1;
    return cost / TASK_MACS < ctx->threads ? (int64_t)(cost / TASK_MACS) + 1 : ctx->threads;
}

typedef struct crew { cpu_part part; void *arg; int64_t tasks; uint8_t *memory; size_t bytes; } crew;

static void one_of_crew(void *arg, size_t i)
{
    const crew *c = arg;
    c->part(c->arg, (int64_t)i, c->tasks, c->memory + i * c->bytes, c->bytes);
}

static __attribute__((noinline)) void on_the_stack(cpu_part part, void *arg)
{
    _Alignas(64) uint8_t memory[STACK_WORKSPACE];
    part(arg, 0, 1, memory, sizeof memory);
}

void cpu_parts(octet_ctx *ctx, void *workspace, size_t workspace_bytes, int64_t tasks, cpu_part part, void *arg)
{
    crew c = { part, arg, tasks, workspace, workspace_bytes };
    int slot = -1;
    if (workspace) {
        while (c.tasks > 1 && workspace_bytes / (size_t)c.tasks < STACK_WORKSPACE) c.tasks--;
        if (c.tasks > 1) c.bytes /= (size_t)c.tasks;
        c.bytes = c.bytes / 64 * 64;
        if (c.bytes < STACK_WORKSPACE) c.memory = NULL;
    } else if ((slot = ctx_take_workspace(ctx)) >= 0) {
        c.memory = atomic_load_explicit(&ctx->memory, memory_order_acquire) + (size_t)slot * ctx->workspace_bytes;
        c.bytes = ctx->workspace_bytes;
        if (tasks > 1) c.bytes = c.bytes / (size_t)tasks / 64 * 64;
    }
    if (!c.memory) on_the_stack(part, arg);
    else if (c.tasks == 1) part(arg, 0, 1, c.memory, c.bytes);
    else ctx_parallel(ctx, (size_t)c.tasks, one_of_crew, &c);
    if (slot >= 0) ctx_return_workspace(ctx, slot);
}

/* C in rectangles. Rows are split first, while each task keeps several tiles; what is left over splits the panels. */
static void rectangle(void *arg, int64_t i, int64_t tasks, uint8_t *memory, size_t bytes)
{
    gemm_problem *g = arg;
    const int64_t panels = blob_panels(g->b->blob);
    if (tasks == 1) {
        run_task(g, &g->fixed, 0, g->m, 0, panels, memory, bytes);
        return;
    }
    int64_t row_tasks = tasks;
    while (row_tasks > 1 && (g->m / row_tasks < 4 * MR_MAX || tasks % row_tasks)) row_tasks--;
    const parts rows = cut(g->m, row_tasks), columns = cut(panels, min64(tasks / row_tasks, panels));
    const int64_t r = i / columns.count, c = i % columns.count;
    if (r >= rows.count) return; /* fewer panels than tasks */
    kernel_args args = g->fixed;
    run_task(g, &args, part_start(rows, r), part_size(rows, r), part_start(columns, c), part_size(columns, c), memory, bytes);
}

void cpu_gemm(gemm_problem *g)
{
    const blob *b = g->b->blob;
    const int64_t panels = blob_panels(b);
    if (g->m == 0 || panels == 0) return;
    const int64_t tasks = g->plan->ctx->threads == 1 ? 1 : cpu_tasks(g->plan->ctx, cpu_gemm_cost(&g->plan->b, g->m));
    const int64_t unsplit = !b->floating ? b->kc : g->m <= MR_FLOAT && !g->plan->blocks.kc_given ? INT64_MAX : g->plan->blocks.kc_float;
    if (tasks == 1 && b->k <= unsplit && (!b->floating || g->m <= MR_FLOAT || g->plan->dot == DOT_F32) && may_place(g, g->m, panels)) {
        run_task(g, &g->fixed, 0, g->m, 0, panels, NULL, 0); /* nothing is packed, nothing waits */
        return;
    }
    cpu_parts(g->plan->ctx, g->workspace, g->workspace_bytes, tasks, rectangle, g);
}

void cpu_gemm_rows(const gemm_problem *g, int64_t row0, int64_t rows, uint8_t *memory, size_t bytes)
{
    kernel_args args = g->fixed;
    run_task(g, &args, row0, rows, 0, blob_panels(g->b->blob), memory, bytes);
}
