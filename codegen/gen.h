/*
 * What a generated kernel is (its spec), what it is told at each call (its arguments), and what it
 * promises. One kernel computes one register tile of C over one block of k, and finishes it.
 *
 *   acc[rows][cols] = sum over 4 * quads (+ k_tail) values of k of A tile * B panel
 *                   + the residual of the panel + raw_in, if given
 *   raw_out given:  raw_out = acc, and nothing else happens (a middle block of k; no k_tail)
 *   otherwise:      C tile = the epilogue of octet.h's octet_run
 *
 * Layouts (a quad is 4 consecutive k; the last one may hold k_tail = 1 .. 3 values instead)
 *
 *   A_QUADS   u8   | quad 0: row 0 k0..k3, row 1 k0..k3, ... | quad 1: ... |   tail quad zero-filled
 *   A_WIDE    u16  the same with each value in 16 bits
 *   A_SPLIT   u8   one row, quads of value >> 1, each followed by a quad of value & 1
 *   A_PLACE   u8   row i at a + i * lda, k consecutive: A as the caller has it
 *   B panel   s8   | quad 0: col 0 k0..k3, col 1 k0..k3, ... cols | quad 1: ... | tail: k_tail values a column
 *   B wide    s16  the same, tail zero-filled (DOT_WS)
 *
 * Dots (per quad and row, 8 columns at a time; Zen 4, MAC per cycle for the full tile)
 *
 *   DOT_W     always exact: s16 x s16 by vpmaddwd, B widened on load       24.5 (6 x 8)
 *   DOT_WS    the same on a B panel widened beforehand                     26.2 (6 x 8)
 *   DOT_S     one row, always exact: vpmaddubsw with value >> 1, which 7-bit A cannot make
 *             saturate, doubled, and with value & 1                         20.5 (1 x 8; W: 16.3)
 *   DOT_T1    vpmaddubsw, then vpmaddwd by ones                            31.5 (8 x 8)
 *   DOT_T2    two vpmaddubsw added in 16 bits, then vpmaddwd by ones       38.7 (8 x 8)
 *   DOT_T4    four                                                         42.4 (8 x 8)
 *   DOT_PLAIN portable C
 *
 * Floating dots (a k at a time; tiles of rows x (8 columns a vector), MAC per cycle 16 at most)
 *
 *   DOT_F32 DOT_F16 DOT_BF16 DOT_FS8 DOT_FS4    by the type of B, widened on load; f32 by vfmadd231ps
 *
 *   A_FLOAT   f32  | k 0: row 0, row 1, ... | k 1: ... |
 *   A_PLACE   f32  as above
 *   B panel        | k 0: col 0, col 1, ... cols (16 but in the last panel) | k 1: ... |   of its type, but
 *                  bf16 panels of 16: | col 0, col 8 | col 1, col 9 | ..., so that one load serves two vectors
 *                  s4: blocks of 8 k, a column's in 4 bytes, k rising from the low bits; what is kept is the
 *                  value + 8, 0 .. 15, and zero points are 8 more, too
 *   b_place   f32  B as the caller has it: row k at b + k * ldb, panels side by side; read exactly
 *
 * Each sum is a chain of fused multiply-adds from k 0 on, never split, so every tile shape, block of k and
 * thread count gives the same bits. With `group` the chain runs over each group by itself, and
 * totals = fma(chain, scale, totals) joins them. Few rows go with several panels side by side: fewer than 8
 * sums would wait for each other (4 cycles, two a cycle).
 *
 * The chain of steps after the product: bytes of kernel_spec.chain, op | shape << 4 | type << 6.
 *
 * T needs the proof that pack.c makes: over T quads, the positive weights of one 16-bit lane, and
 * the negative ones, each sum to at most 32767 / max(A). Then nothing can saturate.
 *
 * Residual: what pack.c took out of the weights, as further quads of any four values of k: the kernel
 * gathers those values of A and multiplies them like any quad. In T kernels its lanes hold T1's bound.
 *
 * Reads of a panel, of A_QUADS and of A_WIDE may pass the end by up to 63 bytes (their owners pad);
 * those of caller's memory, and all writes, are exact.
 */
#ifndef OCTET_GEN_H
#define OCTET_GEN_H

#include "activation.h"
#include "base.h"

enum { NR = 8, NR_FLOAT = 16, MR_MAX = 8, MR_FLOAT = 6, ABREAST_MAX = 4, KERNEL_NAME = 96 };

typedef enum dot_kind {
    DOT_PLAIN, DOT_W, DOT_WS, DOT_S, DOT_T1, DOT_T2, DOT_T4, DOT_F32, DOT_F16, DOT_BF16, DOT_FS8, DOT_FS4, DOT_COUNT,
    DOT_BAG = 255 /* not a product: a bag_spec (gen_bag.h) */
} dot_kind;
typedef enum a_form { A_QUADS, A_WIDE, A_SPLIT, A_FLOAT, A_PLACE, A_FORMS } a_form;

static inline bool dot_is_float(int dot) { return dot >= DOT_F32; }
/* Panels side by side in a tile of so many rows. */
static inline int dot_abreast(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

/* How many quads are added in 16 bits; 0 where nothing is. */
static inline int dot_quads(dot_kind d) { return d == DOT_T1 ? 1 : d == DOT_T2 ? 2 : d == DOT_T4 ? 4 : 0; }

enum { ZERO_A_NONE, ZERO_A_ONE, ZERO_A_ROWS };
enum { BIAS_NONE, BIAS_S32, BIAS_F32 };

/* The key of the kernel cache: compared as bytes, so every byte is a field. */
typedef struct kernel_spec {
    uint8_t dot, form;
    uint8_t rows, cols;     /* 1 .. MR_MAX, 1 .. NR                       */
    uint8_t k_tail;         /* 0 .. 3                                     */
    uint8_t c;              /* octet_dtype                                */
    uint8_t zero_a, zero_b; /* ZERO_A_*; 1: B has zero points             */
    uint8_t scale_a_rows;   /* 1: a scale for each row                    */
    uint8_t bias;           /* BIAS_*                                     */
    uint8_t accumulate;     /* 1: add C                                   */
    uint8_t clamp;          /* 1: s32 or float C is clamped to lo .. hi   */
    uint8_t abreast;        /* panels side by side in a tile: 1, or floating 2, 4 */
    uint8_t scale_b;        /* floating: 1: sums, with group each group's, are scaled */
    uint8_t group;          /* floating: 1: in groups of k                */
    uint8_t a;              /* octet_dtype of A as it meets B: U8 or F32  */
    uint8_t chain[OCTET_OPS];
    uint8_t gate_cols;      /* with a gate: columns of C from each panel, 1 .. half of it; else 0 */
    uint8_t stands_for;     /* DOT_PLAIN: the dot whose layout it reads   */
    uint8_t b_place;        /* DOT_F32: 1: B is not packed                */
    uint8_t unused[5];
} kernel_spec;

static inline int  chain_op(uint8_t c) { return c & 15; }
static inline int  chain_shape(uint8_t c) { return c >> 4 & 3; }
static inline int  chain_type(uint8_t c) { return c >> 6; } /* 0 f32, 1 f16, 2 bf16 */
static inline bool chain_has_operand(uint8_t c)
{
    return chain_shape(c) != OCTET_SCALAR && (chain_op(c) == OCTET_OP_ADD || chain_op(c) == OCTET_OP_MUL || chain_op(c) == OCTET_OP_PRELU);
}
static inline bool op_is_gate(int op) { return op >= OCTET_OP_SWIGLU; }
/* The place of the gate in the chain, or -1. */
static inline int chain_gate(const uint8_t chain[OCTET_OPS])
{
    for (int i = 0; i < OCTET_OPS; i++)
        if (op_is_gate(chain_op(chain[i]))) return i;
    return -1;
}

/* Constants that kernels read; see gen_const. */
typedef struct kernel_const {
    uint8_t  pick[2][4][4][32]; /* vpshufb: [A_QUADS, A_WIDE][to place][from place k % 4] */
    uint8_t  tail3[32];         /* vpshufb: 3-byte columns to quads          */
    uint32_t one[8], round[8], quiet[8]; /* of bf16 rounding                 */
    uint32_t high[8];                /* 0xffff0000: the upper bf16 of a pair */
    uint32_t sign[8];
    uint32_t nibble[8][8];           /* s4: value k of a block where it lies,  */
    float    shrink[8][8], eight[8]; /* and what brings it down to 0 .. 15     */
    uint32_t mask[8][8];             /* of the first so many lanes           */
    float    act[ACT_CONST_COUNT][8];
    uint32_t shift4[8], shift2[8], shift2_high[8]; /* 4, 2 bits: of each lane's value in a broadcast word */
    float    steps[8], lowest[8], f256[8];          /* 0 1 2 3, twice; -inf; 256                          */
    uint16_t fp8_keep[16], fp8_nan[16], fp8_top[16];
} kernel_const;
extern const kernel_const gen_const;

/* Residual of one panel within one block of k: quads from res_k[4 first] and res_w[32 first] on. */
typedef struct residual_span { uint32_t first, quads; } residual_span;

/* A value of k as the residual's gather wants it: its quad, and 32 times its place there, which is an offset into kernel_const.pick. */
typedef struct residual_k { uint16_t quad, pick; } residual_k;

/* An operand of the chain, at the tile's first row and column. */
typedef struct op_arg {
    const char *p, *up;      /* up: before a gate and by column, that of the columns gated */
    int64_t     row_step, panel_step; /* bytes to the next row, to the next panel of B     */
    float       value, value2;
} op_arg;

typedef struct kernel_args {
    /* broadcast to 8 lanes */
    int32_t zero_a_v[8];
    float   scale_a_v[8];
    float   inv_scale_c[8];
    union { float f[8]; int32_t i[8]; } lo, hi;
    int32_t zero_c[8];

    /* One call does `tiles` tiles one below the other, or `panels` tiles side by side: one of the two
     * is 1, and both are where raw_in or raw_out is given. */
    int64_t        tiles, panels;
    const uint8_t *a;
    int64_t        a_step;          /* from tile to tile, in bytes                   */
    int64_t        lda;             /* A_PLACE, in bytes                             */
    const int8_t  *b;
    int64_t        b_step;          /* from panel to panel, in bytes                 */
    int64_t        ldb;             /* b_place, in bytes                             */
    int64_t        quads;           /* floating: values of k                         */
    const residual_span *span;      /* of this panel, or NULL: no residual anywhere  */
    int64_t        span_step;       /* in bytes                                      */
    int64_t         quad0;          /* the first quad of this block of k, from which `a` starts */
    const residual_k *res_k;        /* four values of k for each quad,               */
    const int8_t   *res_w;          /* and 8 columns of four rest weights            */
    const int32_t *raw_in;          /* rows x 8 (floating: 16), lanes past cols anything; or NULL */
    int32_t       *raw_out;
    void          *c;
    int64_t        ldc, c_step;     /* in bytes: to the next row, to the next panel  */
    int64_t        scale_b_step, zero_b_step; /* in bytes: 32, or 0 for one value broadcast */
    const int32_t *sums;            /* of the panel's columns, zero_b taken into account */
    const float   *scale_b;         /* 8 each (floating: 16)                         */
    const int32_t *zero_b;          /* floating: as f32                              */
    const void    *bias;
    const int32_t *zero_a;          /* a value for each row of the tile              */
    const float   *scale_a;
    const int32_t *row_sums;        /* of A, zero_b only                             */
    const kernel_const *consts;
    const kernel_spec  *spec;       /* for DOT_PLAIN, which reads it                 */
    /* floating, in groups of k: values of k in a group; bytes from a group's scales and zero points to the next's;
     * room for the sums of a tile, and for where the kernel stands */
    int64_t        group, group_step;
    float         *totals;
    int64_t        left;
    const float   *scale_at;
    op_arg         op[OCTET_OPS];
} kernel_args;


typedef void (*kernel_fn)(kernel_args *); /* uses its arguments up */

/* Writes the kernel to `out`. OCTET_EUNSUPPORTED: no such kernel; OCTET_ENOMEM: it does not fit. */
octet_status gen_kernel(const kernel_spec *, uint8_t *out, size_t room, size_t *bytes);
/* "avx2-t2" for DOT_T2, "?" for what is none. */
const char *dot_name(int dot);
/* "u8s8s32-avx2-t2-8x8" */
void kernel_name(const kernel_spec *, char name[KERNEL_NAME]);

#endif
