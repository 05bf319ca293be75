/* What the two parts of the bag generator share: registers, and the state of one generation. */
#ifndef OCTET_GEN_BAG_PARTS_H
#define OCTET_GEN_BAG_PARTS_H

#include "gen_bag.h"
#include "gen_parts.h"

enum { /* general registers; all but the caller-saved nine are put away in bag_args.saved */
    B_ARGS = RDI, B_ROW = RAX, B_NEXT = RBX, B_DATA = RCX, B_END = RDX, B_INDEX = RSI, B_WEIGHT = R8, B_OUT = R9,
    B_AHEAD = R10, B_LAST = R11, B_ROWS = R10, B_STRIDE = R11, /* with and without prefetching */
    B_OFFSET = R12, B_PARAMS = R13, B_SKIPPED = R14, B_GROUP = R15, B_X = RBP
};

/* Vector registers from 12 down. Sums are ymm 0 up; the value at hand is in T0; T1 is its weight (scale), T2 the sum of biases, or for
 * OCTET_MAX the bias. Constants lie below 12 where a format needs them, and leave fewer sums. */
enum { V_VALUE = T0, V_SCALE = T1, V_BETA = T2, V_FREE = T3, V_C1 = 11, V_C2 = 10, V_C3 = 9, V_C4 = 8 };

#define FIELD(field) at(B_ARGS, offsetof(bag_args, field))
#define CONST(reg, field) at(reg, offsetof(kernel_const, field))

typedef struct bag_gen {
    assembler      *as;
    const bag_spec *s;
    bag_vec         v[BAG_VECS];
    int             vecs, sums;   /* sums: registers for them */
    bool            quantized, grouped, max, weighted;
    bool            counts;       /* B_SKIPPED is wanted      */
    int             index_bytes;
    label           row, skip, bad, good, padded, pruned, bad_offset, few_weights, leave;
} bag_gen;

static inline void mov(bag_gen *g, int reg, x86_mem m) { op_mem(g->as, MOV, 0, reg, 0, m, 0); }
static inline void put(bag_gen *g, x86_mem m, int reg) { op_mem(g->as, MOV_ST, 0, reg, 0, m, 0); }
static inline void cmp(bag_gen *g, int a, int b) { op_reg(g->as, CMP, 0, a, 0, b, 0); }
static inline void copy(bag_gen *g, int to, int from) { op_reg(g->as, MOV, 0, to, 0, from, 0); }
static inline void zero(bag_gen *g, int reg) { op_reg(g->as, SUB, 0, reg, 0, reg, 0); }
static inline void increment(bag_gen *g, x86_mem m)
{
    mov(g, B_X, m);
    ri(g->as, ADDI, B_X, 1);
    put(g, m, B_X);
}
static inline void load_index(bag_gen *g, int reg, x86_mem m) { op_mem(g->as, g->s->index32 ? MOVSXD : MOV, 0, reg, 0, m, 0); }

/* gen_row.c */
/* The columns, and the registers for their sums. */
void row_plan(bag_gen *);
void row_constants(bag_gen *);
/* Scale (times weight) of the row at B_ROW to V_SCALE; bias (times weight) into V_BETA. */
void row_scale(bag_gen *);
/* ymm acc with the values of a vector of the row at B_ROW added, or for OCTET_NONE set, for OCTET_MAX the larger kept. */
void row_add(bag_gen *, int acc, const bag_vec *);
/* Bytes from..to of the slice's values, and what lies beside them, of the row at reg. */
void row_prefetch(bag_gen *, int reg, int from, int to);
/* Bytes of the slice's values. */
static inline int row_values(const bag_spec *s) { return (bag_cols(s) * bag_bits((octet_dtype)s->table) + 7) / 8; }

#endif
