/*
 * The encoder: rows of x86op.h in, bytes out, with labels. Errors stick: callers emit freely and ask
 * asm_finish() once. Knows registers and memory operands, nothing of matrices.
 */
#ifndef OCTET_ASM_H
#define OCTET_ASM_H

#include "base.h"
#include "x86op.h"

typedef struct x86_row {
    const char *name; /* as decoders print it */
    uint8_t     enc, map, pp, w, opcode, form, memory, digit;
} x86_row;
extern const x86_row x86_rows[X86_OP_COUNT];

enum { XMM = 0, YMM = 1, ZMM = 2 }; /* vector length */
enum { ASM_LABELS = 160, ASM_FIXUPS = 320 };

typedef struct x86_mem {
    int     base, index; /* index -1: none */
    int     scale;       /* 1, 2, 4, 8     */
    int64_t disp;
} x86_mem;

static inline x86_mem at(int base, int64_t disp) { return (x86_mem){ base, -1, 1, disp }; }
static inline x86_mem at_index(int base, int index, int scale, int64_t disp)
{
    return (x86_mem){ base, index, scale, disp };
}

typedef struct assembler {
    uint8_t     *begin, *at, *end;
    octet_status error;
    int          labels, fixups;
    int32_t      where[ASM_LABELS]; /* offset of a placed label, or -1 */
    struct { int32_t at; int label; } fixup[ASM_FIXUPS];
} assembler;

typedef int label;
enum { CC_B = 2, CC_AE = 3, CC_Z = 4, CC_NZ = 5 };

void asm_begin(assembler *, uint8_t *buffer, size_t bytes);
/* Resolves jumps; the length through *bytes, or what went wrong first: OCTET_ENOMEM (the buffer was
 * too small), OCTET_EINVAL (an operand that the row cannot have: a generator's bug). */
octet_status asm_finish(assembler *, size_t *bytes);

label asm_label(assembler *);
void  asm_place(assembler *, label);
void  asm_jump(assembler *, label);         /* jmp rel32 */
void  asm_jcc(assembler *, int cc, label);  /* jcc rel32 */

/* Vector instructions. len is XMM, YMM or ZMM; d, s, r are registers; unused operands are 0.
 * MR forms store register d. imm is ignored by forms without one; RVMR takes its register there. */
void op_reg(assembler *, x86_op, int len, int d, int s, int r, int imm);
void op_mem(assembler *, x86_op, int len, int d, int s, x86_mem, int imm);
/* EVEX with an opmask: k 0 .. 7, zeroing, and with op_mem_evex {1toN} broadcast. */
void op_reg_evex(assembler *, x86_op, int len, int d, int s, int r, int imm, int k, bool zeroing);
void op_mem_evex(assembler *, x86_op, int len, int d, int s, x86_mem, int imm, int k, bool zeroing, bool bcast);

/* The forms generators use most. */
static inline void rrr(assembler *as, x86_op op, int d, int s, int r) { op_reg(as, op, YMM, d, s, r, 0); }
static inline void rrm(assembler *as, x86_op op, int d, int s, x86_mem m) { op_mem(as, op, YMM, d, s, m, 0); }
static inline void rr(assembler *as, x86_op op, int d, int r) { op_reg(as, op, YMM, d, 0, r, 0); }
static inline void rm(assembler *as, x86_op op, int d, x86_mem m) { op_mem(as, op, YMM, d, 0, m, 0); }
/* General registers: reg op= imm, with the flags set. */
static inline void ri(assembler *as, x86_op op, int reg, int imm) { op_reg(as, op, 0, reg, 0, reg, imm); }

#endif
