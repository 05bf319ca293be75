/*
 * The chain of steps between the product and C, in registers: operands, activations, the gate. The order
 * of operations is quant/activation.h's. Four registers and the constants' address do for every step,
 * so even a tile of 12 vectors is never spilled.
 */
#include "gen_parts.h"

#define ACT(name) at(R_TMP, (int64_t)offsetof(kernel_const, act) + 32 * (name))

/* ---- functions of one value ---- */

/* p = the polynomial in t, highest coefficient first. */
static void poly(assembler *as, int p, int t, const int *names, int count)
{
    rm(as, VMOVDQU, p, ACT(names[0]));
    for (int i = 1; i < count; i++) rrm(as, VFMADD213PS, p, t, ACT(names[i]));
}

/* x = min(max(x, lo), hi), NaN kept; hi < 0: none. t is scratch. */
static void clamp(assembler *as, int x, int lo, int hi, int t)
{
    rm(as, VMOVDQU, t, ACT(lo));
    rrr(as, VMAXPS, x, t, x);
    if (hi < 0) return;
    rm(as, VMOVDQU, t, ACT(hi));
    rrr(as, VMINPS, x, t, x);
}

/* x = 1 + exp(-x); n, p are scratch. */
static void one_plus_exp_minus(assembler *as, int x, int n, int p)
{
    static const int terms[] = { EXP_C6, EXP_C5, EXP_C4, EXP_C3, EXP_C2, ACT_ONE, ACT_ONE };
    rrm(as, VPXOR, x, x, at(R_TMP, offsetof(kernel_const, sign)));
    clamp(as, x, EXP_LO, EXP_HI, n);
    rrm(as, VMULPS, n, x, ACT(EXP_LOG2E));
    op_reg(as, VROUNDPS, YMM, n, 0, n, 0);
    rm(as, VMOVDQU, p, ACT(EXP_LN2_HI)); /* x = x - n hi - n lo */
    rrr(as, VFNMADD213PS, p, n, x);
    rm(as, VMOVDQU, x, ACT(EXP_LN2_LO));
    rrr(as, VFNMADD213PS, x, n, p);
    poly(as, p, x, terms, COUNT(terms));
    rr(as, VCVTPS2DQ, n, n);
    op_reg(as, VPSLLD, YMM, n, 0, n, 23);
    rrr(as, VPADDD, p, p, n);
    rrm(as, VADDPS, x, p, ACT(ACT_ONE));
}

static void sigmoid(assembler *as, int x)
{
    one_plus_exp_minus(as, x, T0, T1);
    rm(as, VMOVDQU, T0, ACT(ACT_ONE));
    rrr(as, VDIVPS, x, T0, x);
}

static void silu(assembler *as, int x)
{
    rr(as, VMOVDQU, T2, x);
    one_plus_exp_minus(as, x, T0, T1);
    clamp(as, T2, SIGN_LO, -1, T0);
    rrr(as, VDIVPS, x, T2, x);
}

static void gelu_tanh(assembler *as, int x)
{
    rr(as, VMOVDQU, T2, x);
    rrr(as, VMULPS, T0, x, x);
    rm(as, VMOVDQU, T1, ACT(GELU_A));
    rrm(as, VFMADD213PS, T0, T1, ACT(GELU_B));
    rrr(as, VMULPS, x, x, T0);
    one_plus_exp_minus(as, x, T0, T1);
    clamp(as, T2, GELU_LO, -1, T0);
    rrr(as, VDIVPS, x, T2, x);
}

static void gelu(assembler *as, int x)
{
    static const int p[] = { ERF_P5, ERF_P4, ERF_P3, ERF_P2, ERF_P1, ERF_P0 }, q[] = { ERF_Q5, ERF_Q4, ERF_Q3, ERF_Q2, ERF_Q1, ACT_ONE };
    rrm(as, VMULPS, T0, x, ACT(ERF_SCALE));
    clamp(as, T0, ERF_LO, ERF_HI, T1);
    rrr(as, VMULPS, T1, T0, T0);
    poly(as, T2, T1, p, COUNT(p));
    rrr(as, VMULPS, T2, T2, T0);
    poly(as, T0, T1, q, COUNT(q));
    rrr(as, VDIVPS, T2, T2, T0);
    clamp(as, x, ERF_X_LO, -1, T0);
    rrm(as, VMULPS, x, x, ACT(ACT_HALF));
    rrr(as, VFMADD213PS, x, T2, x); /* x erf + x */
}

static void tanh_of(assembler *as, int x)
{
    static const int p[] = { TANH_P4, TANH_P3, TANH_P2, TANH_P1, ACT_ONE }, q[] = { TANH_Q4, TANH_Q3, TANH_Q2, TANH_Q1, ACT_ONE };
    clamp(as, x, TANH_LO, TANH_HI, T0);
    rrr(as, VMULPS, T0, x, x);
    poly(as, T1, T0, p, COUNT(p));
    rrr(as, VMULPS, x, T1, x);
    poly(as, T1, T0, q, COUNT(q));
    rrr(as, VDIVPS, x, x, T1);
    clamp(as, x, ACT_MINUS_ONE, ACT_ONE, T0);
}

static void activation(assembler *as, int op, int x)
{
    switch (op) {
    case OCTET_OP_GELU: case OCTET_OP_GEGLU: gelu(as, x); break;
    case OCTET_OP_GELU_TANH: case OCTET_OP_GEGLU_TANH: gelu_tanh(as, x); break;
    case OCTET_OP_SILU: case OCTET_OP_SWIGLU: silu(as, x); break;
    case OCTET_OP_SIGMOID: case OCTET_OP_GLU: sigmoid(as, x); break;
    case OCTET_OP_TANH: tanh_of(as, x); break;
    default: /* RELU */
        rrr(as, VPXOR, T0, T0, T0);
        rrr(as, VMAXPS, x, T0, x);
    }
}

/* ---- operands ---- */

static int64_t op_field(int step, size_t field) { return (int64_t)(offsetof(kernel_args, op) + (size_t)step * sizeof(op_arg) + field); }
#define OP(step, field) at(R_ARGS, op_field(step, offsetof(op_arg, field)))

static int element(uint8_t c) { return chain_type(c) ? 2 : 4; }

/* x = f32 of `cols` values at m, of the operand's type. */
static void load_operand(assembler *as, uint8_t c, int x, x86_mem m, int cols)
{
    if (chain_type(c) == 1 && cols == 8) { rm(as, VCVTPH2PS, x, m); return; }
    if (chain_type(c) == 2 && cols == 8) rm(as, VPMOVZXWD, x, m);
    else load_exact(as, x, m, element(c) * cols);
    if (chain_type(c) == 1) rr(as, VCVTPH2PS, x, x);
    if (chain_type(c) == 2) {
        if (cols < 8) rr(as, VPMOVZXWD, x, x);
        op_reg(as, VPSLLD, YMM, x, 0, x, 16);
    }
}

/* acc = acc op T0 */
static void combine(assembler *as, int op, int step, int acc)
{
    switch (op) {
    case OCTET_OP_ADD:
        rm(as, VBROADCASTSS, T1, OP(step, value));
        rrr(as, VFMADD231PS, acc, T1, T0);
        break;
    case OCTET_OP_MUL: rrr(as, VMULPS, acc, acc, T0); break;
    default: /* PRELU: by the sign bit */
        rrr(as, VMULPS, T1, acc, T0);
        op_reg(as, VBLENDVPS, YMM, acc, acc, T1, acc);
    }
}

static void scalar_step(assembler *as, const kernel_spec *s, int step, tile_regs t)
{
    const int op = chain_op(s->chain[step]);
    rm(as, VBROADCASTSS, T0, OP(step, value));
    if (op == OCTET_OP_CLIP) rm(as, VBROADCASTSS, T1, OP(step, value2));
    for (int i = 0; i < t.rows; i++)
        for (int v = 0; v < t.vecs; v++) {
            const int x = reg_of(t, i, v);
            if (op == OCTET_OP_ADD) rrr(as, VADDPS, x, x, T0);
            else if (op == OCTET_OP_CLIP) {
                rrr(as, VMAXPS, x, T0, x);
                rrr(as, VMINPS, x, T1, x);
            } else combine(as, op, step, x);
        }
}

/* A value for each column. Before a gate the columns are in two places: the gate's, and those it multiplies. */
static void column_step(assembler *as, const kernel_spec *s, int step, tile_regs t, bool before_gate)
{
    const uint8_t c = s->chain[step];
    const int size = element(c);
    op_mem(as, MOV, 0, PTR, 0, OP(step, p), 0);
    if (before_gate) op_mem(as, MOV, 0, R_B, 0, OP(step, up), 0);
    for (int v = 0; v < t.vecs; v++) {
        const int cols = vec_cols(s, v, !before_gate);
        if (!before_gate) {
            load_operand(as, c, T0, at(PTR, 8 * size * v), cols);
        } else if (dot_is_float(s->dot)) {
            load_operand(as, c, T0, at(v % 2 ? R_B : PTR, 8 * size * (v / 2)), cols);
        } else { /* four and four */
            load_operand(as, c, T0, at(PTR, 0), s->gate_cols);
            load_operand(as, c, T1, at(R_B, 0), s->gate_cols);
            op_reg(as, VINSERTI128, YMM, T0, T0, T1, 1);
        }
        for (int i = 0; i < t.rows; i++) combine(as, chain_op(c), step, reg_of(t, i, v));
    }
}

static void row_step(assembler *as, const kernel_spec *s, int step, tile_regs t)
{
    op_mem(as, MOV, 0, PTR, 0, OP(step, p), 0);
    for (int i = 0; i < t.rows; i++) {
        rm(as, VBROADCASTSS, T0, at(PTR, 4 * i));
        for (int v = 0; v < t.vecs; v++) combine(as, chain_op(s->chain[step]), step, reg_of(t, i, v));
    }
}

static void full_step(assembler *as, const kernel_spec *s, int step, tile_regs t)
{
    const uint8_t c = s->chain[step];
    op_mem(as, MOV, 0, PTR, 0, OP(step, p), 0);
    for (int i = 0; i < t.rows; i++) {
        for (int v = 0; v < t.vecs; v++) {
            load_operand(as, c, T0, at(PTR, 8 * element(c) * v), vec_cols(s, v, true));
            combine(as, chain_op(c), step, reg_of(t, i, v));
        }
        op_mem(as, ADD, 0, PTR, 0, OP(step, row_step), 0);
    }
}

/* Halves the columns: gate vectors are even, or of an integer tile the lower lane. */
static tile_regs gate(assembler *as, const kernel_spec *s, int op, tile_regs t)
{
    const bool pairs = dot_is_float(s->dot);
    for (int i = 0; i < t.rows; i++)
        for (int v = 0; v < t.vecs; v += pairs ? 2 : 1) {
            const int x = reg_of(t, i, v);
            if (!pairs) op_reg(as, VEXTRACTI128, YMM, x, 0, T3, 1);
            activation(as, op, x);
            rrr(as, VMULPS, x, x, pairs ? reg_of(t, i, v + 1) : T3);
        }
    if (!pairs) return t;
    return (tile_regs){ t.rows, t.vecs / 2, t.stride, 2 };
}

tile_regs gen_chain(assembler *as, const kernel_spec *s)
{
    tile_regs t = tile_of(s);
    const int gate_at = chain_gate(s->chain);
    for (int step = 0; step < OCTET_OPS && s->chain[step]; step++) {
        const uint8_t c = s->chain[step];
        const int op = chain_op(c);
        if (op > OCTET_OP_CLIP) {
            op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
            if (op_is_gate(op)) t = gate(as, s, op, t);
            else
                for (int i = 0; i < t.rows; i++)
                    for (int v = 0; v < t.vecs; v++) activation(as, op, reg_of(t, i, v));
            continue;
        }
        switch (chain_has_operand(c) ? chain_shape(c) : OCTET_SCALAR) {
        case OCTET_PER_N: column_step(as, s, step, t, step < gate_at); break;
        case OCTET_PER_M: row_step(as, s, step, t); break;
        case OCTET_FULL: full_step(as, s, step, t); break;
        default: scalar_step(as, s, step, t);
        }
    }
    return t;
}

/* ---- on to the next tile ---- */

static void advance(assembler *as, int step, size_t pointer, size_t by, int times)
{
    op_mem(as, MOV, 0, R_TMP, 0, at(R_ARGS, op_field(step, by)), 0);
    if (times != 1) op_reg(as, IMULI, 0, R_TMP, 0, R_TMP, times);
    op_mem(as, ADD, 0, R_TMP, 0, at(R_ARGS, op_field(step, pointer)), 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, at(R_ARGS, op_field(step, pointer)), 0);
}

void gen_chain_down(assembler *as, const kernel_spec *s)
{
    for (int step = 0; step < OCTET_OPS && s->chain[step]; step++)
        if (chain_has_operand(s->chain[step]) && chain_shape(s->chain[step]) != OCTET_PER_N)
            advance(as, step, offsetof(op_arg, p), offsetof(op_arg, row_step), s->rows);
}

void gen_chain_across(assembler *as, const kernel_spec *s)
{
    for (int step = 0; step < OCTET_OPS && s->chain[step]; step++)
        if (chain_has_operand(s->chain[step]) && chain_shape(s->chain[step]) != OCTET_PER_M) {
            advance(as, step, offsetof(op_arg, p), offsetof(op_arg, panel_step), s->abreast ? s->abreast : 1);
            if (step < chain_gate(s->chain)) advance(as, step, offsetof(op_arg, up), offsetof(op_arg, panel_step), s->abreast ? s->abreast : 1);
        }
}
