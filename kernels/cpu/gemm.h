/* A product as the CPU computes it: views in, destinations out. octet.c fills one in for each run. */
#ifndef OCTET_GEMM_H
#define OCTET_GEMM_H

#include "cache.h"
#include "pack.h"
#include "plan.h"

/* Where finished values go. Element (i, j) at base + (row_offset ? row_offset[i] : i * row_stride)
 * + the same for columns. */
typedef struct dest {
    void          *base;
    int64_t        row_stride, col_stride;
    const int64_t *row_offset, *col_offset;
    int32_t        weight;
} dest;

typedef struct gemm_problem {
    const octet_plan   *plan;
    const octet_packed *b;
    int64_t             m;
    source              a;           /* lines are rows of A                                   */
    int                 dests;       /* one, weight ignored: C = epilogue. Several, or add: each
                                        D += weight * epilogue, for s32 and f32               */
    const dest         *dest;
    bool                add;
    kernel_args         fixed;       /* what no tile changes                                  */
    const int32_t      *zero_a_rows; /* NULL: fixed.zero_a_v                                  */
    const float        *scale_a_rows;
    const void         *bias;
    const octet_operand *operand;    /* of the chain's steps                                  */
    const void         *sums;        /* what the product is added to, or NULL                 */
    int64_t             ld_sums;
    octet_tile_done     done;        /* NULL: nobody asks; done_i is added to its rows        */
    void               *done_user;
    int64_t             done_i;
    void               *workspace;   /* NULL: the context's                                   */
    size_t              workspace_bytes;
} gemm_problem;

void cpu_gemm(gemm_problem *); /* uses fixed up */
/* Rows row0 .. of it by the calling thread alone, with this much workspace. */
void cpu_gemm_rows(const gemm_problem *, int64_t row0, int64_t rows, uint8_t *memory, size_t bytes);

/* Workspace of one task. */
size_t cpu_workspace_bytes(void);
/* From the caches, where `b` leaves a field 0. */
blocking cpu_blocking(blocking b);

/*
 * The kernels of a plan, by what selects one at run time. Integer plans have a kernel for each dot, place, kind
 * (KIND_FULL, KIND_LAST) and number of rows; floating ones for B's own type and, B widened beforehand, for f32.
 */
enum { KIND_FULL, KIND_LAST, KIND_TWO, KIND_FOUR, KINDS }; /* a whole panel; the last one; several side by side */
enum { SET_SIZE = 7 * 2 * 2 * (MR_MAX + 1) };
struct kernel_set {
    atomic_uint       ready; /* bit 2 dot + place: all of these are there */
    _Atomic(kernel *) at[SET_SIZE];   /* references */
    _Atomic(kernel_fn) code[SET_SIZE];
};
static inline int set_index(int dot, bool place, int kind, int rows)
{
    if (dot_is_float(dot)) return (((dot == DOT_F32) * 2 + place) * KINDS + kind) * (MR_MAX + 1) + rows;
    return ((dot * 2 + place) * 2 + kind) * (MR_MAX + 1) + rows;
}
_Static_assert(2 * 2 * KINDS * (MR_MAX + 1) <= SET_SIZE && DOT_F32 == 7, "both kinds of plan fit a set");

/* The spec of a tile of this plan. */
kernel_spec plan_spec(const octet_plan *, bool zero_b, int dot, bool place, int kind, int cols, int rows);
/* Why b, ldb cannot be this plan's B, or NULL; and B's columns as lines. */
const char *b_breach(const octet_plan *, const void *b, int64_t ldb);
view        b_lines(const octet_plan *, const void *b, int64_t ldb);
/* packed->dots and places, from the blob. */
void packed_dots(octet_packed *);
/* A product of any sources and destinations; checks nothing. For tests, and what is built on views. */
octet_status pack_source(const octet_plan *, const source *b, const octet_quant *, octet_packed **out);
/* Generates what B of these dots can reach; dots as octet_packed's. False: no room for code. */
bool plan_generate(const octet_plan *, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual);
bool plan_places(const octet_plan *, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual);

#endif
