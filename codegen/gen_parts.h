/* What the three parts of the generator share: register plan and the tile's state. */
#ifndef OCTET_GEN_PARTS_H
#define OCTET_GEN_PARTS_H

#include "asm.h"
#include "gen.h"

/* General registers of a kernel; everything is caller-saved, so nothing is pushed. */
enum {
    R_ARGS = RDI,
    R_A = RSI,
    R_B = RDX,
    R_N = RCX,                                      /* counts down                           */
    R_TMP = RAX,
    R_LDA = R8, R_LDA3 = R9, R_LDA5 = R10, R_LDA7 = R11 /* A_PLACE; free to the epilogue      */
};

#define ARG(field) at(R_ARGS, offsetof(kernel_args, field))

/* gen_dot.c: one small function for each dot product. */
void gen_dot_setup(assembler *, const kernel_spec *); /* zero accumulators, constants                */
void gen_dot_loop(assembler *, const kernel_spec *);  /* all whole quads                             */
void gen_dot_tail(assembler *, const kernel_spec *);  /* the last k_tail values of k                 */
void gen_dot_residual(assembler *, const kernel_spec *); /* packed A only                            */
void gen_dot_reduce(assembler *, const kernel_spec *); /* afterwards row i is whole in ymm i          */

/* gen_float.c: the whole of a floating tile's sums; raw_in and groups included. */
void gen_float(assembler *, const kernel_spec *);

/* A tile's values: row i, vector v (columns 8v ..) in ymm i * stride + v * step. */
typedef struct tile_regs { int rows, vecs, stride, step; } tile_regs;
tile_regs tile_of(const kernel_spec *);
static inline int reg_of(tile_regs t, int i, int v) { return i * t.stride + v * t.step; }
/* Columns of vector v, 1 .. 8; of C if `out`, which a gate makes half as many. */
int vec_cols(const kernel_spec *, int v, bool out);

/* What every step after the sums may use; the constants' address is in R_TMP only where a step says so. */
enum { T0 = 12, T1, T2, T3, PTR = R9 };

/* gen_epilogue.c: sums become C; leaves RCX at the row below. */
void gen_epilogue(assembler *, const kernel_spec *);
/* Loads or stores the lowest `bytes` (1 .. 32) of a register, touching no byte more; may clobber x. */
void load_exact(assembler *, int x, x86_mem, int bytes);
void store_exact(assembler *, int x, x86_mem, int bytes);
/* x: 8 f32 -> 8 bf16 in its low half; nearest even, NaN quiet. m, t are scratch; the constants' address is in R_TMP. */
void to_bf16(assembler *, int x, int m, int t);

/* gen_chain.c: the chain on the tile's values, the gate's halving included; moves on to the next tile. */
tile_regs gen_chain(assembler *, const kernel_spec *);
void gen_chain_down(assembler *, const kernel_spec *);
void gen_chain_across(assembler *, const kernel_spec *);

#endif
