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

/* sums += a quad of A, 8 bytes a row from `a` on, times the widened B in w_b, w_b + 1. */
static void w_rows(assembler *as, const kernel_spec *s, x86_mem a)
{
    const int b = w_b(s), temps = b + 2, together = 16 - temps >= 4 ? 2 : 1;
    for (int i0 = 0; i0 < s->rows; i0 += together) {
        const int i1 = i0 + together < s->rows ? i0 + together : s->rows;
        for (int i = i0; i < i1; i++) {
            const int x = temps + 2 * (i - i0);
            rm(as, VPBROADCASTQ, x + 1, at(a.base, a.disp + 8 * i));
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
    w_rows(as, s, a_at(s, 0, quad));
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
        w_rows(as, s, a_at(s, 0, 0));
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

/* Residual: registers free of the loops' use. */
enum { RES_K = R8, RES_W = R9, RES_AT = R10, RES_CONST = R11 };

/* x = bytes at place v of each row's gathered quad, the others 0, from RES_AT * scale + disp. */
static void pick(assembler *as, const kernel_spec *s, x86_op load, int x, int v, int scale, int64_t disp)
{
    rm(as, load, x, at_index(R_A, RES_AT, scale, disp));
    rrm(as, VPSHUFB, x, x, at_index(RES_CONST, R_TMP, 1, (int64_t)offsetof(kernel_const, pick) + 128 * (4 * (s->form == A_WIDE) + v)));
}

/* RES_AT, R_TMP: the quad that holds value v of k, and its place's control. */
static void locate(assembler *as, int v)
{
    op_mem(as, MOVZX16, 0, RES_AT, 0, at(RES_K, 4 * v), 0);
    op_mem(as, MOVZX16, 0, R_TMP, 0, at(RES_K, 4 * v + 2), 0);
}

static void residual_t(assembler *as, const kernel_spec *s)
{
    enum { X = 10, Y = 11, T = 12 };
    const bool one = s->rows == 1;
    for (int v = 0; v < 4; v++) { /* row i's quad in dword i; of a single row, in every dword */
        locate(as, v);
        if (!one) op_reg(as, IMULI, 0, RES_AT, 0, RES_AT, a_quad(s));
        pick(as, s, one ? VPBROADCASTD : VMOVDQU, v ? Y : X, v, one ? 4 : 1, 0);
        if (v) rrr(as, VPOR, X, X, Y);
    }
    rm(as, VMOVDQU, T_B, at(RES_W, 0));
    for (int i0 = 0; i0 < s->rows; i0 += 4) {
        const int i1 = i0 + 4 < s->rows ? i0 + 4 : s->rows;
        if (!one) op_reg(as, VPERMQ, YMM, Y, 0, X, i0 ? 0xee : 0x44);
        for (int i = i0; !one && i < i1; i++) op_reg(as, VPSHUFD, YMM, T + i - i0, 0, Y, 0x55 * (i - i0));
        for (int i = i0; i < i1; i++) rrr(as, VPMADDUBSW, T + i - i0, one ? X : T + i - i0, T_B);
        for (int i = i0; i < i1; i++) rrr(as, VPMADDWD, T + i - i0, T + i - i0, ONES);
        for (int i = i0; i < i1; i++) rrr(as, VPADDD, i, i, T + i - i0);
    }
}

static void residual_s(assembler *as, const kernel_spec *s)
{
    enum { X = 10, Y = 11, T = 12 };
    for (int v = 0; v < 4; v++) {
        locate(as, v);
        pick(as, s, VPBROADCASTD, v ? T : X, v, 8, 0);
        if (v) rrr(as, VPOR, X, X, T);
        pick(as, s, VPBROADCASTD, v ? T : Y, v, 8, 4);
        if (v) rrr(as, VPOR, Y, Y, T);
    }
    rm(as, VMOVDQU, T_B, at(RES_W, 0));
    rrr(as, VPMADDUBSW, X, X, T_B);
    rrr(as, VPMADDUBSW, Y, Y, T_B);
    rrr(as, VPMADDWD, X, X, TWOS);
    rrr(as, VPMADDWD, Y, Y, ONES);
    rrr(as, VPADDD, 0, 0, X);
    rrr(as, VPADDD, 0, 0, Y);
}

/* By way of the red zone: the sums leave no registers to broadcast in. */
static void residual_w(assembler *as, const kernel_spec *s)
{
    enum { SLOT = -64 };
    const int b = w_b(s), x = 14, y = 15;
    for (int half = 0; 4 * half < s->rows; half++) {
        for (int v = 0; v < 4; v++) {
            locate(as, v);
            op_reg(as, IMULI, 0, RES_AT, 0, RES_AT, a_quad(s));
            pick(as, s, VMOVDQU, v ? y : x, v, 1, 32 * half);
            if (v) rrr(as, VPOR, x, x, y);
        }
        rm(as, VMOVDQU_ST, x, at(RSP, SLOT + 32 * half));
    }
    rm(as, VPMOVSXBW, b, at(RES_W, 0));
    rm(as, VPMOVSXBW, b + 1, at(RES_W, 16));
    w_rows(as, s, at(RSP, SLOT));
}

void gen_dot_residual(assembler *as, const kernel_spec *s)
{
    if (s->form == A_PLACE) return;
    const label again = asm_label(as), done = asm_label(as);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(span), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_Z, done);
    op_mem(as, MOV32, 0, R_N, 0, at(R_TMP, offsetof(residual_span, quads)), 0);
    op_reg(as, TEST, 0, R_N, 0, R_N, 0);
    asm_jcc(as, CC_Z, done);
    op_mem(as, MOV32, 0, R_TMP, 0, at(R_TMP, offsetof(residual_span, first)), 0);
    ri(as, SHLI, R_TMP, 4); /* 4 residual_k a quad */
    op_mem(as, MOV, 0, RES_K, 0, ARG(res_k), 0);
    op_reg(as, ADD, 0, RES_K, 0, R_TMP, 0);
    op_mem(as, MOV, 0, RES_W, 0, ARG(res_w), 0);
    op_mem(as, LEA, 0, RES_W, 0, at_index(RES_W, R_TMP, 2, 0), 0);
    op_mem(as, MOV, 0, R_A, 0, ARG(a), 0);
    op_mem(as, MOV, 0, R_TMP, 0, ARG(quad0), 0);
    op_reg(as, IMULI, 0, R_TMP, 0, R_TMP, a_quad(s));
    op_reg(as, SUB, 0, R_A, 0, R_TMP, 0); /* where quad 0 would be */
    op_mem(as, MOV, 0, RES_CONST, 0, ARG(consts), 0);
    asm_place(as, again);
    if (is_wide(s)) residual_w(as, s);
    else if (s->dot == DOT_S) residual_s(as, s);
    else residual_t(as, s);
    ri(as, ADDI, RES_K, 4 * (int)sizeof(residual_k));
    ri(as, ADDI, RES_W, 4 * NR);
    ri(as, SUBI, R_N, 1);
    asm_jcc(as, CC_NZ, again);
    asm_place(as, done);
}

void gen_dot_reduce(assembler *as, const kernel_spec *s)
{
    if (!is_wide(s)) return;
    for (int i = 0; i < s->rows; i++) { /* 0 0 1 1 | 2 2 3 3  and  4 4 5 5 | 6 6 7 7 */
        rrr(as, VPHADDD, i, 2 * i, 2 * i + 1);         /* 0 1 4 5 | 2 3 6 7 */
        op_reg(as, VPERMQ, YMM, i, 0, i, 0xd8);        /* 0 1 2 3 | 4 5 6 7 */
    }
}
