/* One task of a product: some rows, some panels. gemm.c runs it, feed.c packs A for it, scatter.c moves tiles that do
 * not lie as kernels write them. */
#ifndef OCTET_TASK_H
#define OCTET_TASK_H

#include "gemm.h"

enum { PAD = 64 }; /* kernels read up to 63 bytes past a packed block */

typedef struct task {
    const gemm_problem *g;
    const octet_plan   *plan;
    const blob         *blob;
    const kernel_set   *set;
    kernel_args        *args;       /* this task's own */
    int64_t             rows, panels;
    int64_t             k, kc, blocks;
    const residual_span *spans;       /* NULL: no residual                       */
    int64_t             span_count;   /* of a panel                              */
    const int32_t      *sums;
    const char         *scale_b, *zero_b;
    int                 nr, out_nr, out_log2; /* columns of a panel, and those of C it makes */
    bool                floating;
    bool                split;        /* one row: W panels by DOT_S              */
    parts               tiles[2];     /* of the block of rows: for bytes, for W; [0] floating */
    bool                gathered, wide_source, place, direct, plain, dynamic;
    bool                lined;        /* floating: A widened in rows, not in tiles           */
    int                 elem;       /* bytes of a value of C */
    /* carved from the workspace */
    int64_t             mc, chunk;  /* rows, panels */
    uint8_t            *lines;      /* gathered A, a row each line_ld               */
    int64_t             line_ld;
    uint8_t            *quads;
    uint16_t           *wide;
    float              *floats;
    int16_t            *panel;      /* widened B, or NULL                           */
    int32_t            *raw, *row_sums, *zero_rows;
    float              *scale_rows; /* of a block of rows whose scales are found here */
    int32_t             last_bias[NR]; /* of the last panel, which the caller's array may not fill */
    kernel_spec         spec;          /* what the portable kernel is to do          */
} task;

/* feed.c */
/* Divides the workspace. */
void carve(task *, uint8_t *memory, size_t bytes);
/* What is needed of rows i0 .. before their first block of k: zero points, and ranges if they are to be found. */
void begin_rows(task *, int64_t i0, int64_t rows);
/* Packs the block of A in the forms its panels ask for; returns the level of A (amax_level). */
int  pack_block(task *, int64_t i0, int64_t rows, int64_t k0, int64_t kn);

/* scatter.c */
typedef struct tile_place { int64_t i0, j0; int rows, cols; } tile_place; /* j0, cols: of C */
void call_scattered(task *, kernel_fn, tile_place);
/* The sums a tile starts from, as kernels read them: rows x nr at `raw`. p: the panel. */
void load_sums(const task *, int64_t i, int rows, int64_t p, int32_t *raw);

#endif
