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

/* gen_epilogue.c: sums in ymm 0 .. rows-1 become C; leaves RCX at the row below. */
void gen_epilogue(assembler *, const kernel_spec *);

#endif
