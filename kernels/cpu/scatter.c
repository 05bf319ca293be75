/* Tiles that do not lie in memory as kernels write them: any strides, offset vectors, several destinations; and sums
 * that come from elsewhere. */
#include "task.h"

static int64_t at_dest(const dest *d, int64_t i, int64_t j)
{
    return (d->row_offset ? d->row_offset[i] : i * d->row_stride) + (d->col_offset ? d->col_offset[j] : j * d->col_stride);
}

static void move_tile(const dest *d, tile_place p, int elem, char *tile, bool out)
{
    for (int i = 0; i < p.rows; i++)
        for (int j = 0; j < p.cols; j++) {
            char *c = (char *)d->base + at_dest(d, p.i0 + i, p.j0 + j) * elem, *x = tile + (i * NR_FLOAT + j) * elem;
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
                *c = (int32_t)((uint32_t)*c + (uint32_t)d->weight * (uint32_t)((const int32_t *)tile)[i * NR_FLOAT + j]);
            } else {
                ((float *)d->base)[at] += (float)d->weight * ((const float *)tile)[i * NR_FLOAT + j];
            }
        }
}

/* One kernel call whose result does not lie as the kernel writes it. */
__attribute__((noinline)) void call_scattered(task *t, kernel_fn fn, tile_place p)
{
    _Alignas(32) char tile[MR_MAX * NR_FLOAT * 4];
    const gemm_problem *g = t->g;
    const octet_gemm_desc *d = &t->plan->desc;
    t->args->c = tile;
    t->args->ldc = NR_FLOAT * t->elem;
    if (d->flags & OCTET_ACCUMULATE) move_tile(g->dest, p, t->elem, tile, false);
    fn(t->args);
    if (g->dests == 1 && !g->add) move_tile(g->dest, p, t->elem, tile, true);
    else
        for (int v = 0; v < g->dests; v++) add_tile(&g->dest[v], p, d->c, tile);
}

void load_sums(const task *t, int64_t i, int rows, int64_t p, int32_t *raw)
{
    const b_shape *s = &t->plan->b;
    const int cols = blob_cols(t->blob, p);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j++) {
            const int64_t line = b_line(s, p * t->nr + j);
            raw[r * t->nr + j] = line < 0 ? 0 : ((const int32_t *)t->g->sums)[(i + r) * t->g->ld_sums + line];
        }
}
