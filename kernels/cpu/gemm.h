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
    const float        *b_place;     /* a f32 B read where it lies, row-major; b then has its head alone */
    int64_t             ldb;
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
    int64_t             row_base;    /* row 0 of what goes by row in them                     */
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

/* What it costs, in multiply-adds. */
static inline double cpu_gemm_cost(const b_shape *b, int64_t m) { return (double)m * (double)b->n * (double)max64(1, b->k); }
/* Tasks worth splitting so much into, for more threads than one. */
int64_t cpu_tasks(const octet_ctx *, double cost);
/* Calls part(arg, i, tasks, memory, bytes) for i = 0 .. tasks-1 with a workspace each: a share of the caller's, of the
 * context's, or, where there is neither, 48 KiB of stack and one task. */
typedef void (*cpu_part)(void *arg, int64_t i, int64_t tasks, uint8_t *memory, size_t bytes);
void cpu_parts(octet_ctx *, void *workspace, size_t workspace_bytes, int64_t tasks, cpu_part part, void *arg);

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
/* b_place: of a plan whose B is f32, in the room of the type it has not. */
static inline int set_index_b_place(bool place, int kind, int rows) { return (place * KINDS + kind) * (MR_MAX + 1) + rows; }
static inline int set_index(int dot, bool place, int kind, int rows)
{
    if (dot_is_float(dot)) return (((dot == DOT_F32) * 2 + place) * KINDS + kind) * (MR_MAX + 1) + rows;
    return ((dot * 2 + place) * 2 + kind) * (MR_MAX + 1) + rows;
}
_Static_assert(2 * 2 * KINDS * (MR_MAX + 1) <= SET_SIZE && DOT_F32 == 7, "both kinds of plan fit a set");

/* The spec of a tile of this plan. */
kernel_spec plan_spec(const octet_plan *, bool zero_b, int dot, bool place, int kind, int cols, int rows);
/* The columns of b, ldb as lines. */
view        b_lines(const octet_plan *, const void *b, int64_t ldb);
/* packed->dots and places, from the blob. */
void packed_dots(octet_packed *);
/* A product of any sources and destinations; checks nothing. For tests, and what is built on views. */
octet_status pack_source(const octet_plan *, const source *b, const octet_quant *, octet_packed **out);
/* Generates what B of these dots can reach; dots as octet_packed's. False: no room for code. */
bool plan_generate(const octet_plan *, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual);
/* The same for a f32 B that is not packed. */
bool plan_generate_b_place(const octet_plan *);
bool plan_places(const octet_plan *, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual);

#endif
