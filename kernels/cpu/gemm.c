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
#include "gemm.h"

#include "format.h"
#include "mxcsr.h"
#include "plain.h"

enum {
    STACK_WORKSPACE = 48 << 10, /* what a run falls back to when no workspace is free         */
    PAD = 64,                   /* kernels read up to 63 bytes past a packed block            */
    WIDEN_TILES = 8,            /* widening a panel of B beforehand pays from so many tiles on */
    PLACE_ROWS = 8,             /* A is read where it lies for so few rows,                   */
    WHOLE_BYTES = 8192,         /* so little A is not split along k: it stays in L1           */
    PLACE_PANELS = 4,           /* or where so few panels read it                             */
    PLACE_ZEROS = 64,           /* rows at a time, then, if each has a zero point             */
    TASK_MACS = 1 << 18,        /* less work than this is not worth a second thread           */
};

size_t cpu_workspace_bytes(void)
{
    const cpu_caches c = cpu_cache_sizes();
    return (size_t)(min64(max64(c.l2, 256 << 10), 2 << 20) * 3 / 2);
}

blocking cpu_blocking(blocking b)
{
    const cpu_caches c = cpu_cache_sizes();
    /* of L1, half for a B panel of bytes (a quarter, widened); k up to it is not split at all */
    if (!b.kc) b.kc = (int32_t)max64(256, min64(KC_MAX, c.l1d / 2 / NR / 16 * 16));
    if (!b.mc) b.mc = 1 << 20;
    if (!b.panels) b.panels = INT64_MAX / 64;
    if (!b.a_bytes) b.a_bytes = c.l2 / 2;
    return b;
}

/* ---- one task: some rows, some panels ---- */

typedef struct task {
    const gemm_problem *g;
    const blob         *blob;
    const kernel_set   *set;
    kernel_args        *args;       /* this task's own */
    int64_t             rows, panels;
    int64_t             k, kc, blocks;
    const residual_span *spans;       /* NULL: no residual                       */
    int64_t             span_count;   /* of a panel                              */
    const int32_t      *sums;
    const char         *scale_b, *zero_b;
    bool                split;        /* one row: W panels by DOT_S              */
    parts               tiles[2];     /* of the block of rows: for bytes, for W  */
    bool                gathered, wide_source, place, direct, plain;
    int                 elem;       /* bytes of a value of C */
    /* carved from the workspace */
    int64_t             mc, chunk;  /* rows, panels */
    uint8_t            *lines;      /* gathered A, a row each line_ld               */
    int64_t             line_ld;
    uint8_t            *quads;
    uint16_t           *wide;
    int16_t            *panel;      /* widened B, or NULL                           */
    int32_t            *raw, *row_sums, *zero_rows;
    int32_t             last_bias[NR]; /* of the last panel, which the caller's array may not fill */
    kernel_spec         spec;          /* what the portable kernel is to do          */
} task;

static uint8_t *take(uint8_t **at, int64_t bytes)
{
    uint8_t *p = *at;
    *at += round_up(bytes, 64);
    return p;
}

/* Divides the workspace. kmax values of k at most are packed together. */
static __attribute__((noinline)) void carve(task *t, uint8_t *memory, size_t bytes)
{
    const octet_plan *plan = t->g->plan;
    const unsigned any = t->g->b->dots[0] | t->g->b->dots[1];
    const int64_t kmax = round_up(min64(t->k, t->kc), 4);
    const bool t_form = (any & T_DOTS) && !t->wide_source, w_form = (any & W_DOTS) || t->wide_source;
    const int64_t fixed = 16 * PAD;
    const int64_t packed_row = (t_form || t->plain) * kmax + w_form * 2 * kmax;
    const int64_t a_row = packed_row + (t->gathered ? (1 + t->wide_source) * kmax : 0) + 8;
    int64_t avail = (int64_t)bytes - fixed;
    const int64_t widened = 2 * NR * kmax;
    const bool widen = w_form && !t->plain && avail >= 4 * widened;
    if (widen) avail -= widened;

    /* sums that wait for the next block of k get a third */
    const int64_t raw_share = t->blocks > 1 ? avail / 3 : 0, a_share = avail - raw_share;
    int64_t mc = t->rows; /* all of them, without dividing, or what fits */
    if (mc > plan->blocks.mc || mc * a_row > a_share || mc * packed_row > plan->blocks.a_bytes)
        mc = max64(1, min64(min64(a_share / a_row, plan->blocks.a_bytes / max64(1, packed_row)), min64(plan->blocks.mc, mc)));
    if (t->blocks > 1) mc = max64(1, min64(mc, raw_share / (4 * NR)));
    if (mc >= 24 && mc < t->rows) { /* whole tiles of 6 and of 8, and blocks of like size */
        const int64_t blocks = ceil_div(t->rows, mc / 24 * 24);
        mc = min64(mc / 24 * 24, round_up(ceil_div(t->rows, blocks), 24));
    }
    t->mc = mc;
    t->chunk = min64(t->panels, plan->blocks.panels);
    if (t->blocks > 1) t->chunk = max64(1, min64(t->chunk, raw_share / (4 * NR * mc)));

    t->line_ld = kmax;
    t->quads = t_form || t->plain ? take(&memory, mc * kmax + PAD) : NULL;
    t->wide = w_form ? (uint16_t *)(void *)take(&memory, 2 * mc * kmax + PAD) : NULL;
    t->lines = t->gathered ? take(&memory, (1 + t->wide_source) * mc * kmax) : NULL;
    t->row_sums = (int32_t *)(void *)take(&memory, 4 * mc);
    t->zero_rows = (int32_t *)(void *)take(&memory, 4 * mc);
    t->panel = widen ? (int16_t *)(void *)take(&memory, widened + PAD) : NULL;
    t->raw = t->blocks > 1 ? (int32_t *)(void *)take(&memory, 4 * NR * mc * t->chunk) : NULL;
}

/* Packs rows i0 .. of A in tiles of mr rows, as bytes or in 16 bits. */
static void pack_tiles(task *t, int64_t i0, int64_t k0, int64_t kn, bool wide, int32_t *sums)
{
    const view *v = &t->g->a.views[0];
    const bool lined_up = t->gathered;
    const int64_t ls = lined_up ? t->line_ld : v->line_stride, ks = lined_up ? 1 : v->k_stride, kq = round_up(kn, 4);
    const uint8_t *base = lined_up ? t->lines : (const uint8_t *)v->base + i0 * ls + k0 * ks;
    const uint8_t flip = lined_up ? 0 : t->g->a.flip;
    const parts tiles = t->tiles[wide];
    for (int64_t i = 0, r0 = 0; i < tiles.count; i++) {
        const int n = (int)part_size(tiles, i);
        if (wide && t->split) pack_split(base, ks, kn, flip, (uint8_t *)t->wide);
        else if (wide) pack_wide(base + r0 * ls, ls, ks, n, kn, flip, t->wide + r0 * kq);
        else pack_quads(base + r0 * ls, ls, ks, n, kn, flip, false, t->quads + r0 * kq);
        if (sums) add_line_sums(base + r0 * ls, ls, ks, n, kn, flip, sums + r0);
        r0 += n;
    }
}

/* A of 16 bits: straight to the wide form. */
static void pack_wide_source(task *t, int64_t i0, int64_t rows, int64_t k0, int64_t kn, int32_t *sums)
{
    const parts tiles = t->tiles[1];
    const int64_t kq = round_up(kn, 4);
    int16_t *lines = (int16_t *)(void *)t->lines;
    gather_wide(&t->g->a, i0, rows, k0, kn, lines, t->line_ld);
    for (int64_t i = 0, r0 = 0; i < tiles.count; i++) {
        const int n = (int)part_size(tiles, i);
        for (int64_t p = 0; p < kq; p++)
            for (int r = 0; r < n; r++)
                t->wide[r0 * kq + (p / 4 * n + r) * 4 + p % 4] = (uint16_t)(p < kn ? lines[(r0 + r) * t->line_ld + p] : 0);
        r0 += n;
    }
    for (int64_t r = 0; sums && r < rows; r++)
        for (int64_t p = 0; p < kn; p++) sums[r] = (int32_t)((uint32_t)sums[r] + (uint32_t)lines[r * t->line_ld + p]);
}

/* Packs the block in the forms its panels ask for; returns the level of A (amax_level). */
static __attribute__((noinline)) int pack_block(task *t, int64_t i0, int64_t rows, int64_t k0, int64_t kn)
{
    const unsigned *dots = t->g->b->dots;
    int32_t *sums = t->blob->has_zeros ? t->row_sums : NULL;
    if (t->wide_source) {
        pack_wide_source(t, i0, rows, k0, kn, sums);
        return 0;
    }
    if (t->gathered) gather_lines(&t->g->a, i0, rows, k0, kn, t->lines, t->line_ld);
    if (t->plain) {
        pack_tiles(t, i0, k0, kn, false, sums);
        return 0;
    }
    int level = 0;
    if (dots[0] != dots[1]) { /* knowing the largest value could help */
        const view lines = { t->lines, t->line_ld, 1, NULL, NULL };
        const source packed = { .type = OCTET_U8, .count = 1, .views = &lines };
        level = t->gathered ? !any_above(&packed, 0, rows, 0, kn, (uint8_t)amax_level[1])
                            : !any_above(&t->g->a, i0, rows, k0, kn, (uint8_t)amax_level[1]);
    }
    if (dots[level] & T_DOTS) {
        pack_tiles(t, i0, k0, kn, false, sums);
        sums = NULL;
    }
    if (dots[level] & W_DOTS) pack_tiles(t, i0, k0, kn, true, sums);
    return level;
}

/* ---- tiles out ---- */

static int64_t at_dest(const dest *d, int64_t i, int64_t j)
{
    return (d->row_offset ? d->row_offset[i] : i * d->row_stride) + (d->col_offset ? d->col_offset[j] : j * d->col_stride);
}

typedef struct tile_place { int64_t i0, j0; int rows, cols; } tile_place;

static void move_tile(const dest *d, tile_place p, int elem, char *tile, bool out)
{
    for (int i = 0; i < p.rows; i++)
        for (int j = 0; j < p.cols; j++) {
            char *c = (char *)d->base + at_dest(d, p.i0 + i, p.j0 + j) * elem, *x = tile + (i * NR + j) * elem;
            memcpy(out ? c : x, out ? x : c, (size_t)elem);
        }
}

static void add_tile(const dest *d, tile_place p, octet_dtype type, const void *tile)
{
    for (int i = 0; i < p.rows; i++)
        for (int j = 0; j < p.cols; j++) {
            const int64_t at = at_dest(d, p.i0 + i, p.j0 + j);
            if (type == OCTET_S32) {
                int32_t *c = (int32_t *)d->base + at;
                *c = (int32_t)((uint32_t)*c + (uint32_t)d->weight * (uint32_t)((const int32_t *)tile)[i * NR + j]);
            } else {
                ((float *)d->base)[at] += (float)d->weight * ((const float *)tile)[i * NR + j];
            }
        }
}

/* One kernel call whose result does not lie as the kernel writes it. */
static __attribute__((noinline)) void call_scattered(task *t, kernel_fn fn, tile_place p)
{
    _Alignas(32) char tile[MR_MAX * NR * 4];
    const gemm_problem *g = t->g;
    const octet_gemm_desc *d = &g->plan->desc;
    t->args->c = tile;
    t->args->ldc = NR * t->elem;
    if (d->flags & OCTET_ACCUMULATE) move_tile(g->dest, p, t->elem, tile, false);
    fn(t->args);
    if (g->dests == 1 && !g->add) move_tile(g->dest, p, t->elem, tile, true);
    else
        for (int v = 0; v < g->dests; v++) add_tile(&g->dest[v], p, d->c, tile);
}

/* ---- the loops ---- */

/* The tiles of panel p over one packed block; and of up to `more` panels after it, where one kernel
 * call can do them. Returns how many panels are done. */
static __attribute__((noinline)) int64_t run_panel(task *t, int64_t p, int64_t more, int64_t i0, int64_t block, int64_t chunk0, int level)
{
    const gemm_problem *g = t->g;
    const blob *b = t->blob;
    kernel_args *x = t->args;
    const int cols = panel_cols(b->n, p);
    const int64_t k0 = block * t->kc, kn = min64(t->kc, t->k - k0), kq = round_up(kn, 4);
    const bool last = block + 1 >= t->blocks, one_by_one = t->raw || !t->direct;
    int dot = t->wide_source ? DOT_W : t->plain ? DOT_PLAIN : blob_info(b, p).dot[level];
    const parts tiles = t->tiles[families[dot].form == A_WIDE];

    /* panels of the same kind, while a single tile covers the rows */
    int64_t panels = 1;
    if (tiles.count == 1 && !one_by_one && cols == NR)
        while (panels <= more && panel_cols(b->n, p + panels) == NR && (t->plain || blob_info(b, p + panels).dot[level] == blob_info(b, p).dot[level]))
            panels++;

    x->b = blob_panel(b, p) + k0 * cols;
    x->quads = kn / 4;
    if (dot == DOT_W && t->panel && tiles.count >= WIDEN_TILES && tiles.base >= families[DOT_WS].min_rows) {
        widen_panel(x->b, cols, kn, t->panel);
        x->b = (const int8_t *)t->panel;
        x->quads = kq / 4;
        dot = DOT_WS;
    }
    if (dot == DOT_W && t->split) dot = DOT_S;
    x->span = t->spans ? t->spans + p * t->span_count + (t->blocks > 1 ? 1 + block : 0) : NULL;
    x->quad0 = k0 / 4;

    /* its columns; the caller's arrays end at n */
    x->sums = t->sums + NR * p;
    x->scale_b = (const float *)(const void *)((const char *)t->scale_b + x->scale_b_step * p);
    x->zero_b = (const int32_t *)(const void *)((const char *)t->zero_b + x->zero_b_step * p);
    if (g->bias) x->bias = cols == NR ? (const char *)g->bias + 4 * NR * p : (const char *)t->last_bias;

    /* tiles of base + 1 rows, then of base; a kernel call takes all alike, unless sums wait or values scatter */
    for (int64_t i = 0, r0 = 0; i < tiles.count;) {
        const int n = (int)part_size(tiles, i);
        const int64_t alike = one_by_one ? 1 : i < tiles.extra ? tiles.extra : tiles.count - i;
        kernel_fn fn;
        if (t->plain) {
            fn = plain_kernel;
            t->spec = plan_spec(g->plan, b->has_zeros, dot, false, cols, n);
        } else {
            fn = atomic_load_explicit(&t->set->code[set_index(dot, t->place, cols < NR, n)], memory_order_relaxed);
        }
        x->tiles = alike;
        x->panels = panels;
        if (t->place) {
            x->a = (const uint8_t *)g->a.views[0].base + (i0 + r0) * g->a.views[0].line_stride + k0;
            x->a_step = n * x->lda;
        } else if (families[dot].form == A_QUADS) {
            x->a = t->quads + r0 * kq;
            x->a_step = n * kq;
        } else {
            x->a = (const uint8_t *)(t->wide + r0 * kq);
            x->a_step = 2 * n * kq;
        }
        if (t->raw) {
            int32_t *raw = t->raw + ((p - chunk0) * t->mc + r0) * NR;
            x->raw_in = block ? raw : NULL;
            x->raw_out = last ? NULL : raw;
        }
        x->zero_a = t->zero_rows + r0;
        x->row_sums = t->row_sums + r0;
        x->scale_a = g->scale_a_rows ? g->scale_a_rows + i0 + r0 : NULL;
        x->c = (char *)g->dest->base + ((i0 + r0) * g->dest->row_stride + NR * p) * t->elem;
        if (!t->direct && last) call_scattered(t, fn, (tile_place){ i0 + r0, NR * p, n, cols });
        else fn(x);
        i += alike;
        r0 += alike * n;
    }
    return panels;
}

/* Is A better read where it lies? */
static bool may_place(const gemm_problem *g, int64_t rows, int64_t panels)
{
    return g->plan->cpu && !g->b->portable && (rows <= PLACE_ROWS || panels <= PLACE_PANELS) && g->a.flip == 0 && source_is_plain(&g->a)
        && g->a.views[0].k_stride == 1 && g->b->places;
}

static void run_task(const gemm_problem *g, kernel_args *args, int64_t row0, int64_t rows, int64_t panel0, int64_t panels, uint8_t *memory, size_t bytes)
{
    const octet_plan *plan = g->plan;
    const blob *b = g->b->blob;
    int32_t zeros[PLACE_ZEROS];
    task t;
    t.g = g;
    t.rows = rows;
    t.panels = panels;
    t.blob = b;
    t.set = &plan->sets[b->has_zeros != 0];
    t.args = args;
    t.k = b->k;
    t.kc = b->kc;
    if (t.k > t.kc && rows <= families[DOT_W].mr && rows * t.k <= WHOLE_BYTES) t.kc = t.k;
    t.blocks = t.k <= t.kc ? 1 : ceil_div(t.k, t.kc);
    t.span_count = span_count(b->k, b->kc);
    t.spans = b->residual_quads ? (const residual_span *)(const void *)((const char *)b + b->spans) : NULL;
    t.plain = !plan->cpu || g->b->portable;
    t.elem = plan->c->bytes;
    t.wide_source = g->a.weights != NULL;
    t.gathered = !source_is_plain(&g->a);
    t.direct = g->dests == 1 && !g->add && !g->dest->row_offset && !g->dest->col_offset && g->dest->col_stride == 1;
    t.sums = (const int32_t *)(const void *)((const char *)b + b->sums);
    t.scale_b = b->scales ? (const char *)b + b->scales : (const char *)b->scale;
    t.zero_b = b->zeros ? (const char *)b + b->zeros : (const char *)b->zero;
    t.panel = NULL;
    t.raw = NULL;
    t.row_sums = NULL;
    if (g->bias && b->n % NR) {
        memset(t.last_bias, 0, sizeof t.last_bias);
        memcpy(t.last_bias, (const char *)g->bias + 4 * (b->n / NR * NR), 4 * (size_t)(b->n % NR));
    }
    args->spec = &t.spec;
    args->consts = &gen_const;
    args->res_k = blob_res_k(b);
    args->res_w = blob_res_w(b);
    args->b_step = panel_stride(b->k);
    args->c_step = NR * t.elem;
    args->span_step = t.spans ? t.span_count * (int64_t)sizeof(residual_span) : 0;
    args->scale_b_step = b->scales ? 4 * NR : 0;
    args->zero_b_step = b->zeros ? 4 * NR : 0;
    args->raw_in = NULL;
    args->raw_out = NULL;
    args->ldc = g->dest->row_stride * t.elem;
    args->lda = g->a.views[0].line_stride;
    t.place = may_place(g, rows, panels);
    if (t.place && t.blocks == 1) { /* no memory is needed */
        t.mc = g->zero_a_rows ? min64(rows, PLACE_ZEROS) : rows;
        t.chunk = panels;
        t.zero_rows = zeros;
    } else {
        carve(&t, memory, bytes);
    }
    const unsigned kept = plan->floats ? fp_enter() : 0;

    for (int64_t c0 = panel0; c0 < panel0 + panels; c0 += t.chunk)
        for (int64_t i0 = row0; i0 < row0 + rows; i0 += t.mc) {
            const int64_t mb = min64(t.mc, row0 + rows - i0), c1 = min64(c0 + t.chunk, panel0 + panels);
            t.tiles[0] = tiles_of(mb, families[DOT_T1].mr);
            t.tiles[1] = tiles_of(mb, families[DOT_W].mr);
            t.split = mb == 1 && !t.wide_source && !t.plain;
            if (b->has_zeros) memset(t.row_sums, 0, (size_t)mb * 4);
            for (int64_t i = 0; g->zero_a_rows && i < mb; i++)
                t.zero_rows[i] = g->zero_a_rows[i0 + i] + (g->a.flip ? 128 : 0);
            for (int64_t block = 0; block < t.blocks; block++) {
                const int64_t k0 = block * t.kc;
                const int level = t.place ? 0 : pack_block(&t, i0, mb, k0, min64(t.kc, t.k - k0));
                for (int64_t p = c0; p < c1;) p += run_panel(&t, p, c1 - p - 1, i0, block, c0, level);
            }
        }
    if (plan->floats) fp_leave(kept);
}

/* ---- threads ---- */

typedef struct split { /* C in rectangles */
    const gemm_problem *g;
    parts               rows, panels;
    uint8_t            *memory;
    size_t              bytes; /* each */
} split;

static void one_task(void *arg, size_t i)
{
    const split *s = arg;
    const int64_t r = s->panels.count == 1 ? (int64_t)i : (int64_t)i / s->panels.count, c = (int64_t)i - r * s->panels.count;
    kernel_args args = s->g->fixed;
    run_task(s->g, &args, part_start(s->rows, r), part_size(s->rows, r), part_start(s->panels, c), part_size(s->panels, c),
             s->memory + i * s->bytes, s->bytes);
}

static __attribute__((noinline)) void on_the_stack(gemm_problem *g)
{
    _Alignas(64) uint8_t memory[STACK_WORKSPACE];
    run_task(g, &g->fixed, 0, g->m, 0, panels_of(g->b->blob->n), memory, sizeof memory);
}

/* Rows are split first, while each task keeps several tiles; what is left over splits the panels. */
static void divide(split *s, int64_t tasks)
{
    const int64_t m = s->g->m, panels = panels_of(s->g->b->blob->n);
    int64_t row_tasks = tasks;
    while (row_tasks > 1 && (m / row_tasks < 4 * MR_MAX || tasks % row_tasks)) row_tasks--;
    s->rows = cut(m, row_tasks);
    s->panels = cut(panels, min64(row_tasks == tasks ? 1 : tasks / row_tasks, panels));
}

void cpu_gemm(gemm_problem *g)
{
    octet_ctx *ctx = g->plan->ctx;
    const blob *b = g->b->blob;
    const int64_t panels = panels_of(b->n);
    if (g->m == 0 || panels == 0) return;
    int64_t tasks = 1;
    if (ctx->threads > 1) {
        const double macs = (double)g->m * (double)b->n * (double)max64(1, b->k);
        if (macs >= TASK_MACS) tasks = (int64_t)(macs / TASK_MACS < ctx->threads ? macs / TASK_MACS + 1 : ctx->threads);
    }
    if (tasks == 1 && b->k <= b->kc && may_place(g, g->m, panels)) { /* nothing is packed, nothing waits */
        run_task(g, &g->fixed, 0, g->m, 0, panels, NULL, 0);
        return;
    }
    split s = { .g = g, .memory = g->workspace };
    int slot = -1;
    if (g->workspace) {
        while (tasks > 1 && g->workspace_bytes / (size_t)tasks < STACK_WORKSPACE) tasks--;
        s.bytes = g->workspace_bytes / (size_t)tasks / 64 * 64;
        if (s.bytes < STACK_WORKSPACE) s.memory = NULL;
    } else if ((slot = ctx_take_workspace(ctx)) >= 0) {
        s.memory = atomic_load_explicit(&ctx->memory, memory_order_acquire) + (size_t)slot * ctx->workspace_bytes;
        s.bytes = ctx->workspace_bytes;
        if (tasks > 1) s.bytes = s.bytes / (size_t)tasks / 64 * 64;
    }
    if (!s.memory) {
        on_the_stack(g);
    } else if (tasks == 1) {
        run_task(g, &g->fixed, 0, g->m, 0, panels, s.memory, s.bytes);
    } else {
        divide(&s, tasks);
        ctx_parallel(ctx, (size_t)(s.rows.count * s.panels.count), one_task, &s);
    }
    if (slot >= 0) ctx_return_workspace(ctx, slot);
}
