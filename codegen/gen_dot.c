/*
 * The inner loops. Registers:
 *
 *   T   ymm 0..rows-1 sums | 8 ones | 9.. B | up to 15 temporaries, two a row, two rows interleaved
 *   W   ymm 0..2rows-1 sums: columns 0-3 and 4-7 of a row, pairs of k apart | then 2 of B | temporaries
 *
 * What settled the recipes, on Zen 4: T in 8 rows with every B vector in a register but the fourth
 * of T4 (38.8 MAC a cycle with both of T2 in registers, 30.8 with none); two rows interleaved
 * (+2 %); W in 6 rows, both vpmaddwd of a row before their adds; no unrolling gain beyond 16 k.
 */
#include "gen_parts.h"

enum { ONES = 8, T_B = 9, LOW = 1, TWOS = 7 };

static bool is_wide(const kernel_spec *s) { return s->dot == DOT_W || s->dot == DOT_WS; }

/* Bytes of a quad of A and of B. */
static int a_quad(const kernel_spec *s)
{
    return s->form == A_PLACE ? 4 : s->form == A_SPLIT ? 8 : s->rows * (s->form == A_WIDE ? 8 : 4);
}
static int b_quad(const kernel_spec *s) { return s->cols * (s->dot == DOT_WS ? 8 : 4); }

/* Row i of A, `quad` quads from the current one. Rows in place are base + lda * i, as x86 can say it. */
static x86_mem a_at(const kernel_spec *s, int i, int quad)
{
    const int64_t disp = (int64_t)quad * a_quad(s);
    if (s->form == A_SPLIT) return at(R_A, disp);
    if (s->form != A_PLACE) return at(R_A, disp + i * (s->form == A_WIDE ? 8 : 4));
    static const struct { int8_t index, scale; } row[MR_MAX] = {
        { -1, 1 }, { R_LDA, 1 }, { R_LDA, 2 }, { R_LDA3, 1 }, { R_LDA, 4 }, { R_LDA5, 1 }, { R_LDA3, 2 }, { R_LDA7, 1 },
    };
    return at_index(R_A, row[i].index, row[i].scale, disp);
}

void gen_dot_setup(assembler *as, const kernel_spec *s)
{
    const int sums = is_wide(s) ? 2 * s->rows : s->rows;
    op_mem(as, MOV, 0, R_A, 0, ARG(a), 0);
    op_mem(as, MOV, 0, R_B, 0, ARG(b), 0);
    op_mem(as, MOV, 0, R_N, 0, ARG(quads), 0);
    if (s->form == A_PLACE && s->rows > 1) {
        op_mem(as, MOV, 0, R_LDA, 0, ARG(lda), 0);
        if (s->rows > 3) op_mem(as, LEA, 0, R_LDA3, 0, at_index(R_LDA, R_LDA, 2, 0), 0);
        if (s->rows > 5) op_mem(as, LEA, 0, R_LDA5, 0, at_index(R_LDA, R_LDA, 4, 0), 0);
        if (s->rows > 7) op_mem(as, LEA, 0, R_LDA7, 0, at_index(R_LDA3, R_LDA, 4, 0), 0);
    }
    for (int i = 0; i < sums; i++) rrr(as, VPXOR, i, i, i);
    if (s->dot == DOT_S) rrr(as, VPXOR, LOW, LOW, LOW);
    if (!is_wide(s)) {
        rrr(as, VPCMPEQW, ONES, ONES, ONES);
        op_reg(as, VPSRLW, YMM, ONES, 0, ONES, 15);
    }
    if (s->dot == DOT_S) rrr(as, VPADDW, TWOS, ONES, ONES);
}

/* sums += A's quads q0 .. q0+t-1 times B's, added in 16 bits: one 8-column vector of B for each quad.
 * b[j] >= 0 names the register that holds it; else it is read from memory. */
static void t_rows(assembler *as, const kernel_spec *s, int q0, int t, const int b[4], int temps)
{
    for (int i0 = 0; i0 < s->rows; i0 += 2) {
        const int i1 = i0 + 2 < s->rows ? i0 + 2 : s->rows;
        for (int q = 0; q < t; q++) {
            /* the first quad's products go to one temporary of the row, each later one's are added to it */
            const int part = q ? 1 : 0;
            for (int i = i0; i < i1; i++) rm(as, VPBROADCASTD, temps + 2 * (i - i0) + part, a_at(s, i, q0 + q));
            for (int i = i0; i < i1; i++) {
                const int x = temps + 2 * (i - i0) + part;
                if (b[q] >= 0) rrr(as, VPMADDUBSW, x, x, b[q]);
                else rrm(as, VPMADDUBSW, x, x, at(R_B, (int64_t)(q0 + q) * b_quad(s)));
            }
            if (q)
                for (int i = i0; i < i1; i++) rrr(as, VPADDW, temps + 2 * (i - i0), temps + 2 * (i - i0), temps + 2 * (i - i0) + 1);
        }
        for (int i = i0; i < i1; i++) rrr(as, VPMADDWD, temps + 2 * (i - i0), temps + 2 * (i - i0), ONES);
        for (int i = i0; i < i1; i++) rrr(as, VPADDD, i, i, temps + 2 * (i - i0));
    }
}

static void t_step(assembler *as, const kernel_spec *s, int q0, int t)
{
    /* 16 registers: a fourth B is read from memory, and a lone row of A needs each B once only */
    int b[4] = { -1, -1, -1, -1 };
    if (s->rows > 1)
        for (int q = 0; q < t && q < 3; q++) {
            b[q] = T_B + q;
            rm(as, VMOVDQU, b[q], at(R_B, (int64_t)(q0 + q) * b_quad(s)));
        }
    t_rows(as, s, q0, t, b, 12);
}

static int w_b(const kernel_spec *s) { return 2 * s->rows; }

/* sums += A's quad (at `quad`) times the widened B in w_b, w_b + 1. */
static void w_rows(assembler *as, const kernel_spec *s, int quad)
{
    const int b = w_b(s), temps = b + 2, together = 16 - temps >= 4 ? 2 : 1;
    for (int i0 = 0; i0 < s->rows; i0 += together) {
        const int i1 = i0 + together < s->rows ? i0 + together : s->rows;
        for (int i = i0; i < i1; i++) {
            const int x = temps + 2 * (i - i0);
            rm(as, VPBROADCASTQ, x + 1, a_at(s, i, quad));
            rrr(as, VPMADDWD, x, x + 1, b);
            rrr(as, VPMADDWD, x + 1, x + 1, b + 1);
        }
        for (int i = i0; i < i1; i++) {
            const int x = temps + 2 * (i - i0);
            rrr(as, VPADDD, 2 * i, 2 * i, x);
            rrr(as, VPADDD, 2 * i + 1, 2 * i + 1, x + 1);
        }
    }
}

static void w_step(assembler *as, const kernel_spec *s, int quad)
{
    const int b = w_b(s);
    const x86_op load = s->dot == DOT_WS ? VMOVDQU : VPMOVSXBW;
    const int half = s->dot == DOT_WS ? 32 : 16;
    rm(as, load, b, at(R_B, (int64_t)quad * b_quad(s)));
    rm(as, load, b + 1, at(R_B, (int64_t)quad * b_quad(s) + half));
    w_rows(as, s, quad);
}

/* One row, A split: sum += 2 (value >> 1) b; LOW, in 16 bits, += (value & 1) b. b: T_B holds the quad. */
static void s_row(assembler *as, const kernel_spec *s, int quad)
{
    const int x = 10 + 2 * (quad % 2), y = x + 1;
    x86_mem low = a_at(s, 0, quad);
    rm(as, VPBROADCASTD, x, low);
    low.disp += 4;
    rm(as, VPBROADCASTD, y, low);
    rrr(as, VPMADDUBSW, x, x, T_B);
    rrr(as, VPMADDUBSW, y, y, T_B);
    rrr(as, VPMADDWD, x, x, TWOS);
    rrr(as, VPADDW, LOW, LOW, y);
    rrr(as, VPADDD, 0, 0, x);
}

/* LOW holds 16 quads at most, 256 each: far from 32767. */
static void s_flush(assembler *as)
{
    rrr(as, VPMADDWD, LOW, LOW, ONES);
    rrr(as, VPADDD, 0, 0, LOW);
    rrr(as, VPXOR, LOW, LOW, LOW);
}

static void advance(assembler *as, const kernel_spec *s, int quads)
{
    ri(as, ADDI, R_A, quads * a_quad(s));
    ri(as, ADDI, R_B, quads * b_quad(s));
    ri(as, SUBI, R_N, quads);
}

/* while (n >= u) u quads, for each u of a falling list. One or two rows need so few operations a
 * quad that the mispredicted end of a long loop shows: they go 16 at a time. */
void gen_dot_loop(assembler *as, const kernel_spec *s)
{
    static const int unrolls[] = { 16, 4, 1 };
    const int t = is_wide(s) || s->dot == DOT_S ? 1 : dot_quads(s->dot);
    for (size_t level = s->rows <= 2 ? 0 : 1; level < COUNT(unrolls); level++) {
        const int u = unrolls[level];
        const label again = asm_label(as), done = asm_label(as);
        ri(as, CMPI, R_N, u);
        asm_jcc(as, CC_B, done);
        asm_place(as, again);
        for (int q = 0; q < u; q += u == 1 ? 1 : t) {
            if (is_wide(s)) w_step(as, s, q);
            else if (s->dot == DOT_S) {
                rm(as, VMOVDQU, T_B, at(R_B, (int64_t)q * b_quad(s)));
                s_row(as, s, q);
            } else t_step(as, s, q, u == 1 ? 1 : t);
        }
        if (s->dot == DOT_S) s_flush(as);
        advance(as, s, u);
        ri(as, CMPI, R_N, u);
        asm_jcc(as, CC_AE, again);
        asm_place(as, done);
    }
}

/* The tail of B as whole quads in register d: each column's k_tail bytes, then zeros. */
static void b_tail(assembler *as, const kernel_spec *s, int d)
{
    switch (s->k_tail) {
    case 1: rm(as, VPMOVZXBD, d, at(R_B, 0)); break;
    case 2: rm(as, VPMOVZXWD, d, at(R_B, 0)); break;
    default: /* columns 0-3 to the low lane, 4-7 to the high one, then 3 bytes to 4 */
        op_mem(as, VMOVDQU, XMM, d, 0, at(R_B, 0), 0);
        op_mem(as, VINSERTI128, YMM, d, d, at(R_B, 12), 1);
        op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
        rrm(as, VPSHUFB, d, d, at(R_TMP, offsetof(kernel_const, tail3)));
    }
}

/* The last k_tail bytes of row i in every lane of x, without reading past them. */
static void a_tail_in_place(assembler *as, const kernel_spec *s, int i, int x)
{
    x86_mem m = a_at(s, i, 0);
    op_mem(as, s->k_tail == 1 ? MOVZX8 : MOVZX16, 0, R_TMP, 0, m, 0);
    if (s->k_tail == 3) {
        m.disp += 2;
        op_mem(as, MOVZX8, 0, R_N, 0, m, 0);
        ri(as, SHLI, R_N, 16);
        op_reg(as, OR, 0, R_TMP, 0, R_N, 0);
    }
    op_reg(as, VMOVD, XMM, x, 0, R_TMP, 0);
    rr(as, VPBROADCASTD, x, x);
}

void gen_dot_tail(assembler *as, const kernel_spec *s)
{
    if (!s->k_tail) return;
    if (is_wide(s)) {
        const int b = w_b(s);
        b_tail(as, s, b);
        op_reg(as, VEXTRACTI128, YMM, b, 0, b + 1, 1);
        rr(as, VPMOVSXBW, b + 1, b + 1);
        rr(as, VPMOVSXBW, b, b);
        w_rows(as, s, 0);
        return;
    }
    b_tail(as, s, T_B);
    if (s->dot == DOT_S) {
        s_row(as, s, 0);
        s_flush(as);
        return;
    }
    if (s->form != A_PLACE) {
        t_rows(as, s, 0, 1, (int[]){ T_B, -1, -1, -1 }, 12);
        return;
    }
    for (int i = 0; i < s->rows; i++) {
        a_tail_in_place(as, s, i, 12);
        rrr(as, VPMADDUBSW, 12, 12, T_B);
        rrr(as, VPMADDWD, 12, 12, ONES);
        rrr(as, VPADDD, i, i, 12);
    }
}

void gen_dot_reduce(assembler *as, const kernel_spec *s)
{
    if (!is_wide(s)) return;
    for (int i = 0; i < s->rows; i++) { /* 0 0 1 1 | 2 2 3 3  and  4 4 5 5 | 6 6 7 7 */
        rrr(as, VPHADDD, i, 2 * i, 2 * i + 1);         /* 0 1 4 5 | 2 3 6 7 */
        op_reg(as, VPERMQ, YMM, i, 0, i, 0xd8);        /* 0 1 2 3 | 4 5 6 7 */
    }
}

/*
 * For each step two values of k, k0 and k1, and for each column their rest weights: brings A[i][k0],
 * A[i][k1] of all rows together as 16-bit pairs, then multiplies them as W does. One row does so in
 * registers; several go by way of the red zone, from where each row's pair is broadcast.
 */
void gen_dot_residual(assembler *as, const kernel_spec *s)
{
    enum { REST = 8, X = 9, Y = 10, SLOT = -64, KS = R8, WS = R9, OFF = R10, CONSTS = R11 };
    if (s->form == A_PLACE) return;
    const bool wide = s->form == A_WIDE;
    const int  value = wide ? 8 : 4, per_load = 32 / value;
    const label again = asm_label(as), done = asm_label(as);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(span), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_Z, done);
    op_mem(as, MOV32, 0, R_N, 0, at(R_TMP, offsetof(residual_span, steps)), 0);
    op_reg(as, TEST, 0, R_N, 0, R_N, 0);
    asm_jcc(as, CC_Z, done);
    op_mem(as, MOV32, 0, R_TMP, 0, at(R_TMP, offsetof(residual_span, first)), 0);
    op_mem(as, MOV, 0, KS, 0, ARG(res_k), 0);
    op_mem(as, LEA, 0, KS, 0, at_index(KS, R_TMP, 8, 0), 0);
    ri(as, SHLI, R_TMP, 4);
    op_mem(as, MOV, 0, WS, 0, ARG(res_w), 0);
    op_reg(as, ADD, 0, WS, 0, R_TMP, 0);
    op_mem(as, MOV, 0, R_A, 0, ARG(a), 0);
    op_mem(as, MOV, 0, CONSTS, 0, ARG(consts), 0);
    asm_place(as, again);
    rm(as, VPMOVSXBW, REST, at(WS, 0));
    for (int which = 0; which < 2; which++) {
        const x86_mem pick = at_index(CONSTS, R_TMP, 1, (int64_t)offsetof(kernel_const, pick) + 128 * (2 * wide + which));
        op_mem(as, MOVZX16, 0, OFF, 0, at(KS, 4 * which), 0);
        op_mem(as, MOVZX16, 0, R_TMP, 0, at(KS, 4 * which + 2), 0);
        if (s->dot == DOT_S) { /* 2 (value >> 1) + (value & 1) */
            const int x = which ? Y : X;
            rm(as, VPBROADCASTD, 12, at_index(R_A, OFF, 8, 4));
            rm(as, VPBROADCASTD, x, at_index(R_A, OFF, 8, 0));
            rrr(as, VPADDW, x, x, x); /* bytes of up to 127: no carry between them */
            rrr(as, VPADDW, x, x, 12);
            rrm(as, VPSHUFB, x, x, pick);
            continue;
        }
        if (s->rows == 1) {
            rm(as, wide ? VPBROADCASTQ : VPBROADCASTD, which ? Y : X, at_index(R_A, OFF, value, 0));
            rrm(as, VPSHUFB, which ? Y : X, which ? Y : X, pick);
            continue;
        }
        op_reg(as, IMULI, 0, OFF, 0, OFF, a_quad(s));
        for (int i0 = 0, n = 0; i0 < s->rows; i0 += per_load, n++) {
            const int x = which ? Y : X + 2 * n;
            rm(as, VMOVDQU, x, at_index(R_A, OFF, 1, (int64_t)i0 * value));
            rrm(as, VPSHUFB, x, x, pick);
            if (which) {
                rrr(as, VPOR, x, x, X + 2 * n);
                if (wide) rm(as, VMOVDQU_ST, x, at(RSP, SLOT + 32 * n));
            }
        }
    }
    if (s->rows == 1) {
        rrr(as, VPOR, X, X, Y);
        rrr(as, VPMADDWD, X, X, REST);
        rrr(as, VPADDD, 0, 0, X);
    }
    for (int i = 0; s->rows > 1 && i < s->rows; i++) {
        const int x = 12 + i % 4;
        if (!wide && i % 4 == 0) op_reg(as, VPERMQ, YMM, X, 0, Y, i ? 0xee : 0x44);
        if (!wide) op_reg(as, VPSHUFD, YMM, x, 0, X, 0x55 * (i % 4));
        else rm(as, VPBROADCASTD, x, at(RSP, SLOT + value * i));
        rrr(as, VPMADDWD, x, x, REST);
        rrr(as, VPADDD, i, i, x);
    }
    ri(as, ADDI, KS, 8);
    ri(as, ADDI, WS, 16);
    ri(as, SUBI, R_N, 1);
    asm_jcc(as, CC_NZ, again);
    asm_place(as, done);
}
