/*
 * What a GPU kernel is told: one struct by value, the same for C and CUDA, and the layouts both sides must agree on.
 *
 * A packed B is rows of k, one for each column of B, 128 bytes apart or a multiple of it, in an order that gives
 * every thread eight neighbouring columns of C: 32 packed rows hold columns 8 q + 2 b + e of their group at row
 * 8 b + 2 q + e, because a tensor core's thread q (0 .. 3) gets columns 2 q + e of each block b of eight. With a gate
 * the first two blocks are the gate and the last two what it multiplies, so one thread has both.
 */
#ifndef OCTET_GPU_PARAMS_H
#define OCTET_GPU_PARAMS_H

#include "format.h"

enum {
    GPU_GROUP = 32,     /* packed rows that are permuted together  */
    GPU_PITCH = 128,    /* bytes: packed rows begin at multiples   */
    GPU_PARTIALS = 256, /* of the range of all of A                */
    GPU_PORTABLE_TILE = 64, /* rows, and packed rows, of a block   */
    GPU_THREADS_PREPARE = 128, GPU_THREADS_PORTABLE = 256, GPU_THREADS_HOPPER = 384,
    GPU_WIDE_C = 1, GPU_WIDE_BIAS = 2, GPU_WIDE_SUMS = 4, GPU_WIDE_B = 8 /* gpu_epilogue.wide */
};

/* As cuda.h has it; opaque here. */
#if !defined(__CUDACC__) && !defined(OCTET_EMULATED)
typedef struct gpu_map { _Alignas(128) uint64_t opaque[16]; } gpu_map;
#else
typedef struct alignas(128) gpu_map { uint64_t opaque[16]; } gpu_map;
#endif

typedef struct gpu_op {
    const void *t;
    int64_t     ld;     /* elements from row to row; 0: the same for each row  */
    float       value, value2;
    int32_t     kind, shape, type;
    int32_t     wide;   /* t may be read 16 bytes at a time                    */
} gpu_op;

/* Everything after the sum: octet_run's definition, with device pointers. */
typedef struct gpu_epilogue {
    void          *c;
    int64_t        c_row, c_col;   /* elements from row to row, column to column */
    int64_t        m, n, out_n;    /* rows; columns of B; columns of C           */
    const void    *bias;
    const float   *scale_rows;     /* NULL: scale_a */
    const int32_t *zero_rows;      /* NULL: zero_a  */
    const float   *scale_b;        /* n values      */
    const int32_t *zero_b, *col_sums, *row_sums; /* zero_b NULL: 0, row_sums then unused */
    const void    *sums;           /* added to the product first; NULL: nothing */
    int64_t        ld_sums;
    float          scale_a, lo, hi, inv_scale_c;
    int32_t        zero_a, lo_i, hi_i, zero_c;
    int32_t        c_type, bias_type, accumulate, clamp, integer, scaled, gated, steps;
    int32_t        wide;           /* GPU_WIDE_*: what may be read or written in pieces of four (eight) columns */
    gpu_op         op[OCTET_OPS];
} gpu_epilogue;

typedef struct gpu_params {
    gpu_map       map_a, map_b;       /* Hopper kernels */
    gpu_epilogue  e;
    int64_t       k;
    const void   *a;                  /* portable kernels */
    int64_t       a_row, a_col;       /* elements          */
    const uint8_t *b;
    int64_t       b_pitch;            /* bytes             */
    const float  *group_scales, *group_zeros; /* weight-only with groups: groups x n */
    int64_t       group;              /* values of k; 0: none */
    int32_t       a_type, b_type;
    int32_t       tiles_m, tiles_n, band; /* Hopper: the raster */
} gpu_params;

/* What turns A into rows that tensor maps take, and finds ranges. */
typedef struct gpu_gather {
    const void *a;
    int64_t     a_row, a_col, m, k;
    void       *out;                  /* NULL: only sums                          */
    int64_t     pitch;                /* of out, bytes                            */
    float      *partials;             /* GPU_PARTIALS x (least, most); NULL: none */
    float      *scale_rows;           /* found; NULL: given                       */
    int32_t    *zero_rows;
    int32_t    *row_sums;             /* NULL: not wanted                         */
    const float   *given_scale_rows;
    const int32_t *given_zero_rows;
    float       scale;
    int32_t     zero, a_type, as;     /* as: the type it has in out               */
    int32_t     dynamic, per_tensor, most;
    int32_t     wide;                 /* eight neighbours of a row lie at a multiple of their size */
} gpu_gather;

typedef struct gpu_pack {
    const void    *b;
    int64_t        b_k, b_n;          /* elements from one k, one column, to the next */
    int64_t        n, k, groups;
    uint8_t       *out;
    int64_t        pitch;
    const float   *scales;            /* given; NULL: scale */
    const int32_t *zeros;             /* given; NULL: zero  */
    float          scale;
    int32_t        zero;
    float         *scale_b;           /* groups x n   */
    int32_t       *zero_b, *col_sums; /* n, integer products */
    float         *float_zeros;       /* groups x n, weight-only */
    int32_t        b_type, gated, integer;
} gpu_pack;

/* Packed rows of n columns. */
OCTET_BOTH int64_t gpu_packed_rows(int64_t n, bool gated)
{
    return gated ? ceil_div(n / 2, GPU_GROUP / 2) * GPU_GROUP : round_up(n, GPU_GROUP);
}

/* The row that column j is packed in. */
OCTET_BOTH int64_t gpu_packed_row(int64_t j, int64_t n, bool gated)
{
    if (!gated) return j / 32 * 32 + j % 8 / 2 * 8 + j % 32 / 8 * 2 + j % 2;
    const int64_t up = j >= n / 2, c = j - up * (n / 2);
    return c / 16 * 32 + (c % 4 / 2 + 2 * up) * 8 + c % 16 / 4 * 2 + c % 2;
}

/* And back: -1 for padding. */
OCTET_BOTH int64_t gpu_packed_column(int64_t row, int64_t n, bool gated)
{
    const int64_t b = row % 32 / 8, q = row % 8 / 2, e = row % 2;
    if (!gated) {
        const int64_t j = row / 32 * 32 + 8 * q + 2 * b + e;
        return j < n ? j : -1;
    }
    const int64_t c = row / 32 * 16 + 4 * q + b % 2 * 2 + e;
    return c >= n / 2 ? -1 : b < 2 ? c : n / 2 + c;
}

/* ---- Hopper: pure arithmetic that tests can check anywhere ---- */

enum { GPU_ROW_BYTES = 128, GPU_SMEM = 232448 };

/* A shared-memory operand whose rows are 128 bytes of K, SWIZZLE_128B, base a multiple of 1024 (PTX ISA, "matrix descriptor"):
 * address / 16 in bits 0-13, stride between groups of 8 rows / 16 in 32-45, the swizzle in 62-63. */
OCTET_BOTH uint64_t gpu_descriptor(uint32_t address)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | UINT64_C(1) << 16 | (uint64_t)(1024 >> 4) << 32 | UINT64_C(1) << 62;
}

/* The swizzle: 16-byte pieces of a 128-byte row, xored with the row mod 8. Its own inverse. */
OCTET_BOTH uint32_t gpu_swizzle(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

typedef struct gpu_tile { int m, n; } gpu_tile;

/* Tile t of a persistent grid: bands of `band` tile rows, walked column by column, so that a band of A and a few panels of
 * B stay in L2. */
OCTET_BOTH gpu_tile gpu_tile_at(int64_t t, int tiles_m, int tiles_n, int band)
{
    const int64_t per_band = (int64_t)band * tiles_n, b = t / per_band, r = t - b * per_band;
    const int first = (int)b * band, rows = tiles_m - first < band ? tiles_m - first : band;
    gpu_tile at;
    at.n = (int)(r / rows);
    at.m = first + (int)(r - (int64_t)at.n * rows);
    return at;
}

/* Shared memory of a ring of `stages` tiles of bm + bn rows, its barriers, and room to align it. */
#define GPU_RING_BYTES(bm, bn, stages) ((stages) * ((bm) + (bn)) * GPU_ROW_BYTES + 16 * (stages) + 16 + 1024)

#endif
