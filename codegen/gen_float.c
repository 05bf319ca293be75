/*
 * Floating point sums: acc(i, v) = fma(a[i][k], b[k][v], acc(i, v)), k by k. Registers:
 *
 *   ymm 0 .. rows * vecs - 1 sums | then whichever of the two is fewer is held, A's rows or B's
 *   vectors, and the other passes through what is left
 *
 * 6 x 16: 12 sums, 2 of B, 2 for A's broadcasts; 8 loads for 12 fused multiply-adds. B is widened as it
 * is loaded: f16 by vcvtph2ps; bf16 by a shift or a mask; s8 by vpmovsxbd; s4 by a mask, a conversion of the
 * four bits where they lie, and a multiply-add that brings them down and takes the zero point off, exactly.
 */
#include "gen_parts.h"

enum { BLOCK4 = 8, UNROLL = 4 }; /* values of k in a block of s4; unrolled otherwise */

/* Bytes of one value of k in a panel; of s4, of a block. */
static int b_bytes(const kernel_spec *s)
{
    switch (s->dot) {
    case DOT_F32: return 4 * s->cols;
    case DOT_FS8: return s->cols;
    case DOT_FS4: return 4 * s->cols;
    default: return 2 * s->cols;
    }
}

static bool paired(const kernel_spec *s) { return s->dot == DOT_BF16 && s->cols == NR_FLOAT; }

/* Panels 2 and 3 to the right; zero points. Rows in place need R8 .. R10 from 4 rows on, when no panel is beside. */
enum { R_STEP = R10, R_STEP3 = R11 };
static int r_zero(const kernel_spec *s) { return s->rows > 3 ? R11 : R9; }

/* B in place: its rows are R_LDB bytes apart, panels follow one another; MASK has the columns of a narrow vector. */
enum { R_LDB = R11, MASK = 15 };
static bool masked(const kernel_spec *s) { return s->b_place && s->cols % 8; }

/* `bytes` into the panel of vector v, from the current k. */
static x86_mem b_at(int v, int64_t bytes)
{
    static const struct { int8_t index, scale; } panel[ABREAST_MAX] = { { -1, 1 }, { R_STEP, 1 }, { R_STEP, 2 }, { R_STEP3, 1 } };
    return at_index(R_B, panel[v / 2].index, panel[v / 2].scale, bytes);
}

static x86_mem a_at(const kernel_spec *s, int i, int k)
{
    static const struct { int8_t index, scale; } row[MR_FLOAT] = { { -1, 1 }, { R_LDA, 1 }, { R_LDA, 2 }, { R_LDA3, 1 }, { R_LDA, 4 }, { R_LDA5, 1 } };
    if (s->form != A_PLACE) return at(R_A, 4 * (k * s->rows + i));
    return at_index(R_A, row[i].index, row[i].scale, 4 * k);
}

#define CONST(field, n) at(R_TMP, (int64_t)offsetof(kernel_const, field) + 32 * (n))

/* s4: what all vectors of a value of k share, in registers from `free` on where there are that many. */
typedef struct shared4 { int nibble, shrink; } shared4;
static shared4 share4(assembler *as, int k, int free)
{
    if (free + 2 > 16) return (shared4){ -1, -1 };
    rm(as, VMOVDQU, free, CONST(nibble, k));
    rm(as, VMOVDQU, free + 1, CONST(shrink, k));
    return (shared4){ free, free + 1 };
}

static void load_s4(assembler *as, const kernel_spec *s, int d, int v, int k, shared4 shared)
{
    const x86_mem raw = b_at(v, 32 * (v % 2)), zero = s->zero_b ? at(r_zero(s), 32 * v) : CONST(eight, 0);
    if (k == BLOCK4 - 1) { /* the top bits: an integer with no sign left */
        rm(as, VMOVDQU, d, raw);
        op_reg(as, VPSRLD, YMM, d, 0, d, 28);
        rr(as, VCVTDQ2PS, d, d);
        rrm(as, VSUBPS, d, d, zero);
        return;
    }
    if (shared.nibble < 0) { /* from memory */
        rm(as, VMOVDQU, d, CONST(nibble, k));
        rrm(as, VPAND, d, d, raw);
        rr(as, VCVTDQ2PS, d, d);
        rrm(as, VMULPS, d, d, CONST(shrink, k));
        rrm(as, VSUBPS, d, d, zero);
        return;
    }
    rrm(as, VPAND, d, shared.nibble, raw);
    rr(as, VCVTDQ2PS, d, d);
    rrm(as, VFMSUB213PS, d, shared.shrink, zero);
}

/* Register d = vector v of B, k values on. */
static void load_b(assembler *as, const kernel_spec *s, int d, int v, int k)
{
    const int64_t at_k = (int64_t)k * b_bytes(s);
    const int half = v % 2;
    if (s->b_place) {
        if (masked(s) && v == tile_of(s).vecs - 1) rrm(as, VMASKMOVPS, d, MASK, at(R_B, 32 * v));
        else rm(as, VMOVDQU, d, at(R_B, 32 * v));
        return;
    }
    switch (s->dot) {
    case DOT_F32: rm(as, VMOVDQU, d, b_at(v, at_k + 32 * half)); break;
    case DOT_F16: rm(as, VCVTPH2PS, d, b_at(v, at_k + 16 * half)); break;
    case DOT_BF16:
        if (paired(s) && half) { /* R_TMP: the mask */
            rm(as, VMOVDQU, d, b_at(v, at_k));
            rrm(as, VPAND, d, d, at(R_TMP, offsetof(kernel_const, high)));
        } else {
            rm(as, paired(s) ? VMOVDQU : VPMOVZXWD, d, b_at(v, at_k + (paired(s) ? 0 : 16 * half)));
            op_reg(as, VPSLLD, YMM, d, 0, d, 16);
        }
        break;
    default:
        rm(as, VPMOVSXBD, d, b_at(v, at_k + 8 * half));
        rr(as, VCVTDQ2PS, d, d);
    }
    if (s->zero_b) rrm(as, VSUBPS, d, d, at(r_zero(s), 32 * v));
}

/* Several rows leave the loads too late for the hardware's prefetcher to hide memory: 6 x 4096 x 2048 went from 56 to 86
 * GFLOPS, with f16 weights from 81 to 114. A single row keeps it busy enough, and loses by this. */
static void prefetch(assembler *as, const kernel_spec *s, int k)
{
    enum { AHEAD = 4096, LINE = 64 };
    const int bytes = s->dot == DOT_FS4 ? b_bytes(s) / BLOCK4 : b_bytes(s), at_k = k * bytes;
    if (s->rows == 1 || s->b_place || at_k % LINE >= bytes) return; /* once a line */
    for (int v = 0; v < tile_of(s).vecs; v += 2) op_mem(as, PREFETCHT0, 0, 0, 0, b_at(v, AHEAD + at_k), 0);
}

/* sums += A's values k on times B's. */
static void step(assembler *as, const kernel_spec *s, int k)
{
    prefetch(as, s, k);
    const tile_regs t = tile_of(s);
    const bool hold_a = t.rows < t.vecs, four = s->dot == DOT_FS4;
    const int first = t.rows * t.vecs, held = hold_a ? t.rows : t.vecs;
    int passing = first + held, room = 16 - passing - masked(s);
    shared4 shared = { -1, -1 };
    if (four) { /* two registers for what the vectors share; B's loads come before A's where B is held */
        shared = share4(as, k, hold_a && room > 2 ? 14 : passing);
        if (hold_a && room > 2) room -= 2;
    }
    if (hold_a) {
        for (int i = 0; i < t.rows; i++) rm(as, VBROADCASTSS, first + i, a_at(s, i, k));
        for (int v = 0; v < t.vecs; v++) {
            const int b = passing + v % room;
            if (t.rows == 1 && s->dot == DOT_F32 && !masked(s)) {
                rrm(as, VFMADD231PS, reg_of(t, 0, v), first, s->b_place ? at(R_B, 32 * v) : b_at(v, (int64_t)k * b_bytes(s) + 32 * (v % 2)));
                continue;
            }
            if (four) load_s4(as, s, b, v, k, shared);
            else load_b(as, s, b, v, k);
            for (int i = 0; i < t.rows; i++) rrr(as, VFMADD231PS, reg_of(t, i, v), first + i, b);
        }
        return;
    }
    for (int v = 0; v < t.vecs; v++) {
        if (four) load_s4(as, s, first + v, v, k, shared);
        else load_b(as, s, first + v, v, k);
    }
    for (int i = 0; i < t.rows; i++) {
        const int a = passing + i % room;
        rm(as, VBROADCASTSS, a, a_at(s, i, k));
        for (int v = 0; v < t.vecs; v++) rrr(as, VFMADD231PS, reg_of(t, i, v), a, first + v);
    }
}

static void steps(assembler *as, const kernel_spec *s, int count, bool advance_b)
{
    for (int k = 0; k < count; k++) {
        step(as, s, k);
        if (s->b_place) op_reg(as, ADD, 0, R_B, 0, R_LDB, 0);
    }
    ri(as, ADDI, R_A, count * (s->form == A_PLACE ? 4 : 4 * s->rows));
    if (advance_b && !s->b_place) ri(as, ADDI, R_B, s->dot == DOT_FS4 ? b_bytes(s) : count * b_bytes(s));
}

/* R_N values of k; of s4 the k_tail past a whole block last. */
static void loop(assembler *as, const kernel_spec *s)
{
    const int unroll = s->dot == DOT_FS4 ? BLOCK4 : UNROLL;
    const label again = asm_label(as), rest = asm_label(as), one = asm_label(as), done = asm_label(as);
    ri(as, CMPI, R_N, unroll);
    asm_jcc(as, CC_B, rest);
    asm_place(as, again);
    steps(as, s, unroll, true);
    ri(as, SUBI, R_N, unroll);
    ri(as, CMPI, R_N, unroll);
    asm_jcc(as, CC_AE, again);
    asm_place(as, rest);
    if (s->dot == DOT_FS4 && !s->k_tail) return;
    op_reg(as, TEST, 0, R_N, 0, R_N, 0);
    asm_jcc(as, CC_Z, done);
    if (s->dot == DOT_FS4) {
        steps(as, s, s->k_tail, true);
    } else {
        asm_place(as, one);
        steps(as, s, 1, true);
        ri(as, SUBI, R_N, 1);
        asm_jcc(as, CC_NZ, one);
    }
    asm_place(as, done);
}

static void zero_sums(assembler *as, tile_regs t)
{
    for (int i = 0; i < t.rows * t.vecs; i++) rrr(as, VPXOR, i, i, i);
}

/* Sums or totals from raw_in, if it is given; else zero. */
static void begin(assembler *as, const kernel_spec *s, bool totals)
{
    const tile_regs t = tile_of(s);
    const label fresh = asm_label(as), begun = asm_label(as);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(raw_in), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_Z, fresh);
    for (int i = 0; i < t.rows; i++)
        for (int v = 0; v < t.vecs; v++) rm(as, VMOVDQU, reg_of(t, i, v), at(R_TMP, 4 * NR_FLOAT * i + 32 * v));
    asm_jump(as, begun);
    asm_place(as, fresh);
    zero_sums(as, t);
    asm_place(as, begun);
    if (!totals) return;
    op_mem(as, MOV, 0, R_TMP, 0, ARG(totals), 0);
    for (int i = 0; i < t.rows * t.vecs; i++) rm(as, VMOVDQU_ST, i, at(R_TMP, 32 * i));
}

/* Groups of k one after the other; the totals wait in memory. */
static void groups(assembler *as, const kernel_spec *s)
{
    const tile_regs t = tile_of(s);
    const int x = t.rows * t.vecs;
    const label again = asm_label(as), whole = asm_label(as), out = asm_label(as);
    begin(as, s, true);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(scale_b), 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, ARG(scale_at), 0);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(quads), 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, ARG(left), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_Z, out);
    asm_place(as, again);
    op_mem(as, MOV, 0, R_N, 0, ARG(left), 0);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(group), 0);
    op_reg(as, CMP, 0, R_N, 0, R_TMP, 0);
    asm_jcc(as, CC_B, whole);
    op_mem(as, MOV, 0, R_N, 0, ARG(group), 0);
    asm_place(as, whole);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(left), 0);
    op_reg(as, SUB, 0, R_TMP, 0, R_N, 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, ARG(left), 0);
    zero_sums(as, t);
    if (paired(s) || s->dot == DOT_FS4) op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
    loop(as, s);
    op_mem(as, MOV, 0, R_N, 0, ARG(scale_at), 0);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(totals), 0);
    for (int v = 0; v < t.vecs; v++) {
        rm(as, VMOVDQU, x, at(R_N, 32 * v));
        for (int i = 0; i < t.rows; i++) {
            const int acc = reg_of(t, i, v);
            rrm(as, VFMADD213PS, acc, x, at(R_TMP, 32 * acc));
            rm(as, VMOVDQU_ST, acc, at(R_TMP, 32 * acc));
        }
    }
    op_mem(as, ADD, 0, R_N, 0, ARG(group_step), 0);
    op_mem(as, MOV_ST, 0, R_N, 0, ARG(scale_at), 0);
    if (s->zero_b) op_mem(as, ADD, 0, r_zero(s), 0, ARG(group_step), 0);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(left), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_NZ, again);
    asm_place(as, out);
}

void gen_float(assembler *as, const kernel_spec *s)
{
    op_mem(as, MOV, 0, R_A, 0, ARG(a), 0);
    op_mem(as, MOV, 0, R_B, 0, ARG(b), 0);
    if (s->form == A_PLACE && s->rows > 1) {
        op_mem(as, MOV, 0, R_LDA, 0, ARG(lda), 0);
        if (s->rows > 3) op_mem(as, LEA, 0, R_LDA3, 0, at_index(R_LDA, R_LDA, 2, 0), 0);
        if (s->rows > 5) op_mem(as, LEA, 0, R_LDA5, 0, at_index(R_LDA, R_LDA, 4, 0), 0);
    }
    if (s->b_place) op_mem(as, MOV, 0, R_LDB, 0, ARG(ldb), 0);
    if (masked(s)) {
        op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
        rm(as, VMOVDQU, MASK, at(R_TMP, (int64_t)offsetof(kernel_const, mask) + 32 * (s->cols % 8)));
    }
    if (s->abreast > 1 && !s->b_place) op_mem(as, MOV, 0, R_STEP, 0, ARG(b_step), 0);
    if (s->abreast > 3 && !s->b_place) op_mem(as, LEA, 0, R_STEP3, 0, at_index(R_STEP, R_STEP, 2, 0), 0);
    if (s->zero_b) op_mem(as, MOV, 0, r_zero(s), 0, ARG(zero_b), 0);
    if (s->group) {
        groups(as, s);
        return;
    }
    begin(as, s, false);
    op_mem(as, MOV, 0, R_N, 0, ARG(quads), 0);
    if (paired(s) || s->dot == DOT_FS4) op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
    loop(as, s);
}
