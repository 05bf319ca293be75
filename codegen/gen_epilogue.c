/*
 * From sums to C, in registers: zero points, bias, scale, the chain (gen_chain.c), accumulate, clamp,
 * convert, store. The order of operations is quant/requant.h's. Stores write exactly the columns
 * there are. Integer sums are in ymm 0 .. 7 and use 8 to 15; once they are f32, every tile has 12 to 15.
 */
#include "gen_parts.h"

enum { C_AT = RCX, LDC = R8, V0 = 8, V1, V2, V3, COL0, COL1, COL2, COL3 };

/* Loads or stores the lowest `bytes` (1 .. 32) of register x, touching no byte more. */
void load_exact(assembler *as, int x, x86_mem m, int bytes)
{
    if (bytes == 32) { rm(as, VMOVDQU, x, m); return; }
    if (bytes > 16) { /* upper part to the low lane, across, then the lower part in */
        x86_mem up = m;
        up.disp += 16;
        load_exact(as, x, up, bytes - 16);
        op_reg(as, VINSERTI128, YMM, x, x, x, 1);
        op_mem(as, VINSERTI128, YMM, x, x, m, 0);
        return;
    }
    if (bytes == 16) { op_mem(as, VMOVDQU, XMM, x, 0, m, 0); return; }
    int done = 0;
    if (bytes >= 8) { op_mem(as, VMOVQ, XMM, x, 0, m, 0); done = 8; }
    else op_reg(as, VPXOR, XMM, x, x, x, 0);
    static const struct { int bytes; x86_op op; } parts[] = { { 4, VPINSRD }, { 2, VPINSRW }, { 1, VPINSRB } };
    for (size_t p = 0; p < COUNT(parts); p++)
        if (bytes - done >= parts[p].bytes) {
            x86_mem part = m;
            part.disp += done;
            op_mem(as, parts[p].op, XMM, x, x, part, done / parts[p].bytes);
            done += parts[p].bytes;
        }
}

/* From byte `from` of xmm x (a multiple of 8; 0 where bytes > 8). */
static void store_xmm(assembler *as, int x, int from, x86_mem m, int bytes)
{
    static const struct { int bytes; x86_op op; } parts[] = {
        { 8, VPEXTRQ }, { 4, VPEXTRD }, { 2, VPEXTRW }, { 1, VPEXTRB },
    };
    if (bytes == 16) { op_mem(as, VMOVDQU_ST, XMM, x, 0, m, 0); return; }
    int done = 0;
    for (size_t p = 0; p < COUNT(parts); p++)
        if (bytes - done >= parts[p].bytes) {
            x86_mem part = m;
            part.disp += done;
            const int index = (from + done) / parts[p].bytes;
            if (parts[p].bytes == 8 && index == 0) op_mem(as, VMOVQ_ST, XMM, x, 0, part, 0);
            else op_mem(as, parts[p].op, XMM, x, 0, part, index);
            done += parts[p].bytes;
        }
}

void store_exact(assembler *as, int x, x86_mem m, int bytes)
{
    if (bytes == 32) { rm(as, VMOVDQU_ST, x, m); return; }
    if (bytes <= 16) { store_xmm(as, x, 0, m, bytes); return; }
    store_xmm(as, x, 0, m, 16);
    op_reg(as, VEXTRACTI128, YMM, x, 0, x, 1);
    m.disp += 16;
    store_xmm(as, x, 0, m, bytes - 16);
}

static x86_mem via(assembler *as, x86_mem field)
{
    op_mem(as, MOV, 0, PTR, 0, field, 0);
    return at(PTR, 0);
}

/* acc -= zero_a (sum of B's column - k zero_b) + zero_b (sum of A's row) */
static void zero_points(assembler *as, const kernel_spec *s)
{
    const label none = asm_label(as);
    if (s->zero_a == ZERO_A_ONE) {
        op_mem(as, MOV32, 0, R_TMP, 0, ARG(zero_a_v), 0);
        op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
        asm_jcc(as, CC_Z, none);
    }
    if (s->zero_a) {
        rm(as, VMOVDQU, COL0, via(as, ARG(sums)));
        if (s->zero_a == ZERO_A_ONE) rrm(as, VPMULLD, V0, COL0, ARG(zero_a_v));
        else op_mem(as, MOV, 0, PTR, 0, ARG(zero_a), 0);
        for (int i = 0; i < s->rows; i++) {
            if (s->zero_a == ZERO_A_ROWS) {
                rm(as, VPBROADCASTD, V0, at(PTR, 4 * i));
                rrr(as, VPMULLD, V0, V0, COL0);
            }
            rrr(as, VPSUBD, i, i, V0);
        }
    }
    asm_place(as, none);
    if (s->zero_b) {
        rm(as, VMOVDQU, COL0, via(as, ARG(zero_b)));
        op_mem(as, MOV, 0, PTR, 0, ARG(row_sums), 0);
        for (int i = 0; i < s->rows; i++) {
            rm(as, VPBROADCASTD, V0, at(PTR, 4 * i));
            rrr(as, VPMULLD, V0, V0, COL0);
            rrr(as, VPSUBD, i, i, V0);
        }
    }
    if (s->bias == BIAS_S32) {
        rm(as, VMOVDQU, COL0, via(as, ARG(bias)));
        for (int i = 0; i < s->rows; i++) rrr(as, VPADDD, i, i, COL0);
    }
}

/* ymm i = (f32(sum) * scale_b) * scale_a + bias */
static void rescale_rows(assembler *as, const kernel_spec *s)
{
    rm(as, VMOVDQU, COL0, via(as, ARG(scale_b)));
    if (s->bias == BIAS_F32) rm(as, VMOVDQU, COL1, via(as, ARG(bias)));
    if (s->scale_a_rows) op_mem(as, MOV, 0, PTR, 0, ARG(scale_a), 0);
    else rm(as, VMOVDQU, V0, ARG(scale_a_v));
    for (int i = 0; i < s->rows; i++) {
        if (s->scale_a_rows) rm(as, VBROADCASTSS, V0, at(PTR, 4 * i));
        rr(as, VCVTDQ2PS, i, i);
        rrr(as, VMULPS, i, i, COL0);
        rrr(as, VMULPS, i, i, V0);
        if (s->bias == BIAS_F32) rrr(as, VADDPS, i, i, COL1);
    }
}

/* Floating: sums * scale_b + bias, a vector of columns at a time. */
static void scale_and_bias(assembler *as, const kernel_spec *s)
{
    const tile_regs t = tile_of(s);
    if (s->scale_b && !s->group) {
        op_mem(as, MOV, 0, PTR, 0, ARG(scale_b), 0);
        for (int v = 0; v < t.vecs; v++)
            for (int i = 0; i < t.rows; i++) rrm(as, VMULPS, reg_of(t, i, v), reg_of(t, i, v), at(PTR, 32 * v));
    }
    if (s->bias == BIAS_F32) {
        op_mem(as, MOV, 0, PTR, 0, ARG(bias), 0);
        for (int v = 0; v < t.vecs; v++) {
            load_exact(as, T0, at(PTR, 32 * v), 4 * vec_cols(s, v, false));
            for (int i = 0; i < t.rows; i++) rrr(as, VADDPS, reg_of(t, i, v), reg_of(t, i, v), T0);
        }
    }
}

static void next_row(assembler *as) { op_reg(as, ADD, 0, C_AT, 0, LDC, 0); }

static void finish_s32(assembler *as, const kernel_spec *s)
{
    if (s->clamp) {
        rm(as, VMOVDQU, COL2, ARG(lo));
        rm(as, VMOVDQU, COL3, ARG(hi));
    }
    for (int i = 0; i < s->rows; i++) {
        if (s->accumulate) {
            load_exact(as, V1, at(C_AT, 0), 4 * s->cols);
            rrr(as, VPADDD, i, i, V1);
        }
        if (s->clamp) {
            rrr(as, VPMAXSD, i, i, COL2);
            rrr(as, VPMINSD, i, i, COL3);
        }
        store_exact(as, i, at(C_AT, 0), 4 * s->cols);
        next_row(as);
    }
}

void to_bf16(assembler *as, int x, int m, int t)
{
    op_reg(as, VCMPPS, YMM, m, x, x, 3);                                   /* unordered: NaN       */
    op_reg(as, VPSRLD, YMM, t, 0, x, 16);
    rrm(as, VPAND, t, t, at(R_TMP, offsetof(kernel_const, one)));
    rrr(as, VPADDD, t, t, x);
    rrm(as, VPADDD, t, t, at(R_TMP, offsetof(kernel_const, round)));
    rrm(as, VPOR, x, x, at(R_TMP, offsetof(kernel_const, quiet)));
    op_reg(as, VBLENDVPS, YMM, x, t, x, m);
    op_reg(as, VPSRLD, YMM, x, 0, x, 16);
    rrr(as, VPACKUSDW, x, x, x);
    op_reg(as, VPERMQ, YMM, x, 0, x, 0x08);
}

static void finish_float(assembler *as, const kernel_spec *s, tile_regs t)
{
    const int bytes = s->c == OCTET_F32 ? 4 : 2;
    if (s->clamp) {
        rm(as, VMOVDQU, T2, ARG(lo));
        rm(as, VMOVDQU, T3, ARG(hi));
    }
    for (int i = 0; i < t.rows; i++) {
        for (int v = 0; v < t.vecs; v++) {
            const int x = reg_of(t, i, v), size = bytes * vec_cols(s, v, true);
            const x86_mem c = at(C_AT, 8 * bytes * v);
            if (s->accumulate) {
                load_exact(as, T0, c, size);
                if (s->c == OCTET_F16) rr(as, VCVTPH2PS, T0, T0);
                if (s->c == OCTET_BF16) {
                    rr(as, VPMOVZXWD, T0, T0);
                    op_reg(as, VPSLLD, YMM, T0, 0, T0, 16);
                }
                rrr(as, VADDPS, x, x, T0);
            }
            if (s->clamp) { /* the bound first: NaN in the second operand stays */
                rrr(as, VMAXPS, x, T2, x);
                rrr(as, VMINPS, x, T3, x);
            }
            if (s->c == OCTET_F16) op_reg(as, VCVTPS2PH, YMM, x, 0, x, 0);
            if (s->c == OCTET_BF16) {
                op_mem(as, MOV, 0, R_TMP, 0, ARG(consts), 0);
                to_bf16(as, x, T0, T1);
            }
            store_exact(as, x, c, size);
        }
        next_row(as);
    }
}

/* Four rows at a time: 8 x s32 each -> 8 bytes each. */
static void finish_bytes(assembler *as, const kernel_spec *s)
{
    const x86_op pack = s->c == OCTET_U8 ? VPACKUSWB : VPACKSSWB;
    rm(as, VMOVDQU, COL0, ARG(inv_scale_c));
    rm(as, VMOVDQU, COL1, ARG(lo));
    rm(as, VMOVDQU, COL2, ARG(hi));
    rm(as, VMOVDQU, COL3, ARG(zero_c));
    for (int i = 0; i < s->rows; i++) {
        rrr(as, VMULPS, i, i, COL0);
        rrr(as, VMAXPS, i, i, COL1); /* the bound second: NaN becomes the lowest */
        rrr(as, VMINPS, i, i, COL2);
        rr(as, VCVTPS2DQ, i, i);
        rrr(as, VPADDD, i, i, COL3);
    }
    for (int i = 0; i < s->rows; i += 4) {
        const int n = s->rows - i < 4 ? s->rows - i : 4;
        const int r1 = n > 1 ? i + 1 : i, r2 = n > 2 ? i + 2 : i, r3 = n > 3 ? i + 3 : r2;
        rrr(as, VPACKSSDW, V0, i, r1);
        rrr(as, VPACKSSDW, V1, r2, r3);
        rrr(as, pack, V0, V0, V1);                    /* low lane: columns 0-3 of 4 rows; high: 4-7 */
        op_reg(as, VEXTRACTI128, YMM, V0, 0, V1, 1);
        op_reg(as, VPUNPCKLDQ, XMM, V2, V0, V1, 0);   /* rows 0, 1 */
        op_reg(as, VPUNPCKHDQ, XMM, V3, V0, V1, 0);   /* rows 2, 3 */
        for (int r = 0; r < n; r++) {
            store_xmm(as, r < 2 ? V2 : V3, 8 * (r & 1), at(C_AT, 0), vec_cols(s, 0, true));
            next_row(as);
        }
    }
}

void gen_epilogue(assembler *as, const kernel_spec *s)
{
    if (dot_is_float(s->dot)) {
        scale_and_bias(as, s);
    } else {
        zero_points(as, s);
        if (s->c != OCTET_S32) rescale_rows(as, s);
    }
    const tile_regs t = gen_chain(as, s);
    op_mem(as, MOV, 0, C_AT, 0, ARG(c), 0);
    op_mem(as, MOV, 0, LDC, 0, ARG(ldc), 0);
    if (s->c == OCTET_S32) finish_s32(as, s);
    else if (s->c == OCTET_U8 || s->c == OCTET_S8) finish_bytes(as, s);
    else finish_float(as, s, t);
}
