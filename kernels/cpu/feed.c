/*
 * How A reaches the kernels: the workspace divided, and a block of rows by a block of k packed in the form its
 * panels ask for: bytes, 16 bits, 7 + 1 bits, or f32; quantized on the way if it comes in floating point.
 */
#include "task.h"

#include "format.h"
#include "octet/quant.h"

enum { LINE_GAP = 16 }; /* floats between rows of A: at a multiple of 4 KiB they would share sets of L1 */

static uint8_t *take(uint8_t **at, int64_t bytes)
{
    uint8_t *p = *at;
    *at += round_up(bytes, 64);
    return p;
}

/* What a row of A takes, and B's panel widened: by the forms that the panels ask for. */
__attribute__((noinline)) void carve(task *t, uint8_t *memory, size_t bytes)
{
    const octet_plan *plan = t->plan;
    const unsigned any = t->g->b->dots[0] | t->g->b->dots[1];
    const int64_t kmax = round_up(min64(t->k, t->kc), 4);
    const bool f_form = t->floating && !t->place;
    const bool t_form = !t->floating && (((any & T_DOTS) && !t->wide_source) || t->plain);
    const bool w_form = !t->floating && ((any & W_DOTS) || t->wide_source);
    const int64_t fixed = 20 * PAD;
    const int64_t line = t->lined ? kmax + LINE_GAP : kmax;
    const int64_t packed_row = t_form * kmax + w_form * 2 * kmax + f_form * 4 * line;
    const int64_t a_row = packed_row + (!t->floating && t->gathered ? (1 + t->wide_source) * kmax : 0) + 12;
    int64_t avail = (int64_t)bytes - fixed;
    const int64_t widened = t->floating ? 4 * NR_FLOAT * kmax : 2 * NR * kmax;
    const bool widen = !t->plain && avail >= 4 * widened && (t->floating ? plan->dot != DOT_F32 : w_form);
    if (widen) avail -= widened;

    /* sums that wait for the next block of k get a third */
    const int64_t raw_row = 4 * t->nr;
    const int64_t raw_share = t->blocks > 1 ? avail / 3 : 0, a_share = avail - raw_share;
    int64_t mc = t->rows; /* all of them, without dividing, or what fits */
    if (mc > plan->blocks.mc || mc * a_row > a_share || mc * packed_row > plan->blocks.a_bytes)
        mc = max64(1, min64(min64(a_share / a_row, plan->blocks.a_bytes / max64(1, packed_row)), min64(plan->blocks.mc, mc)));
    if (t->blocks > 1) mc = max64(1, min64(mc, raw_share / raw_row));
    if (mc >= 24 && mc < t->rows) { /* whole tiles of 6 and of 8, and blocks of like size */
        const int64_t blocks = ceil_div(t->rows, mc / 24 * 24);
        mc = min64(mc / 24 * 24, round_up(ceil_div(t->rows, blocks), 24));
    }
    t->mc = mc;
    t->chunk = min64(t->panels, plan->blocks.panels);
    if (t->blocks > 1) t->chunk = max64(1, min64(t->chunk, raw_share / (raw_row * mc)));

    t->line_ld = line;
    t->quads = t_form ? take(&memory, mc * kmax + PAD) : NULL;
    t->wide = w_form ? (uint16_t *)(void *)take(&memory, 2 * mc * kmax + PAD) : NULL;
    t->floats = f_form ? (float *)(void *)take(&memory, 4 * mc * line + PAD) : NULL;
    t->lines = !t->floating && t->gathered ? take(&memory, (1 + t->wide_source) * mc * kmax) : NULL;
    t->row_sums = (int32_t *)(void *)take(&memory, 4 * mc);
    t->zero_rows = (int32_t *)(void *)take(&memory, 4 * mc);
    t->scale_rows = (float *)(void *)take(&memory, 4 * mc);
    t->panel = widen ? (int16_t *)(void *)take(&memory, widened + PAD) : NULL;
    t->raw = t->blocks > 1 ? (int32_t *)(void *)take(&memory, raw_row * mc * t->chunk) : NULL;
}

void begin_rows(task *t, int64_t i0, int64_t rows)
{
    const gemm_problem *g = t->g;
    const int32_t shift = g->a.flip ? 128 : 0;
    if (t->floating) {
        t->tiles[0] = tiles_of(rows, MR_FLOAT);
        return;
    }
    t->tiles[0] = tiles_of(rows, families[DOT_T1].mr);
    t->tiles[1] = tiles_of(rows, families[DOT_W].mr);
    t->split = rows == 1 && !t->wide_source && !t->plain;
    if (t->blob->has_zeros) memset(t->row_sums, 0, (size_t)rows * 4);
    if (t->dynamic) {
        for (int64_t i = 0; i < rows; i++) {
            float lo, hi;
            lines_range(&g->a, i0 + i, 1, t->k, &lo, &hi);
            const bool u8 = g->a.as == OCTET_U8;
            octet_choose_quant(lo, hi, u8 ? 0 : -g->a.most, g->a.most, !u8, &t->scale_rows[i], &t->zero_rows[i]);
        }
        return;
    }
    for (int64_t i = 0; g->zero_a_rows && i < rows; i++) t->zero_rows[i] = g->zero_a_rows[i0 + i] + shift;
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

static int pack_float_block(task *t, int64_t i0, int64_t rows, int64_t k0, int64_t kn)
{
    const view *v = &t->g->a.views[0];
    for (int64_t i = 0; t->lined && i < rows; i++)
        widen_floats(t->g->a.type, (const char *)v->base + ((i0 + i) * v->line_stride + k0) * t->plan->a->bytes, kn, t->floats + i * t->line_ld);
    if (t->lined) return 0;
    const parts tiles = t->tiles[0];
    for (int64_t i = 0, r0 = 0; i < tiles.count; i++) {
        const int n = (int)part_size(tiles, i);
        pack_floats(&t->g->a, i0 + r0, n, k0, kn, t->floats + r0 * kn);
        r0 += n;
    }
    return 0;
}

static void gather_block(task *t, int64_t i0, int64_t rows, int64_t k0, int64_t kn)
{
    source a = t->g->a;
    if (t->dynamic) {
        a.scale_rows = t->scale_rows;
        a.zero_rows = t->zero_rows;
        a.row0 = i0;
    }
    gather_lines(&a, i0, rows, k0, kn, t->lines, t->line_ld);
}

__attribute__((noinline)) int pack_block(task *t, int64_t i0, int64_t rows, int64_t k0, int64_t kn)
{
    const unsigned *dots = t->g->b->dots;
    int32_t *sums = t->blob->has_zeros ? t->row_sums : NULL;
    if (t->floating) return pack_float_block(t, i0, rows, k0, kn);
    if (t->wide_source) {
        pack_wide_source(t, i0, rows, k0, kn, sums);
        return 0;
    }
    if (t->gathered) gather_block(t, i0, rows, k0, kn);
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
