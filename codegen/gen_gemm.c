/*
 * A kernel, top to bottom: the loop over k, its tail, the residual, what an earlier block of k left,
 * and then either the raw sums out (a middle block) or the epilogue. See gen.h for the contract.
 */
#include <stdio.h>

#include "format.h"
#include "gen_parts.h"

#define X8(v) { v, v, v, v, v, v, v, v }
#define Z 0x80
/* vpshufb controls that bring value r of each 4-byte group (8-byte, of 16-bit values) to place v, and
 * zeros elsewhere. */
#define AT(v, w, x) ((v) == (w) ? (x) : Z)
#define QUAD(v, b) AT(v, 0, b), AT(v, 1, b), AT(v, 2, b), AT(v, 3, b)
#define QUADS(v, r) { QUAD(v, r), QUAD(v, 4 + r), QUAD(v, 8 + r), QUAD(v, 12 + r), QUAD(v, r), QUAD(v, 4 + r), QUAD(v, 8 + r), QUAD(v, 12 + r) }
#define WIDE1(v, w, b) AT(v, w, b), AT(v, w, b + 1)
#define WIDE(v, b) WIDE1(v, 0, b), WIDE1(v, 1, b), WIDE1(v, 2, b), WIDE1(v, 3, b)
#define WIDES(v, r) { WIDE(v, 2 * r), WIDE(v, 8 + 2 * r), WIDE(v, 2 * r), WIDE(v, 8 + 2 * r) }
#define FROM(M, v) { M(v, 0), M(v, 1), M(v, 2), M(v, 3) }

const kernel_const gen_const = {
    .pick = { { FROM(QUADS, 0), FROM(QUADS, 1), FROM(QUADS, 2), FROM(QUADS, 3) },
              { FROM(WIDES, 0), FROM(WIDES, 1), FROM(WIDES, 2), FROM(WIDES, 3) } },
    .tail3 = { 0, 1, 2, Z, 3, 4, 5, Z, 6, 7, 8, Z, 9, 10, 11, Z, 0, 1, 2, Z, 3, 4, 5, Z, 6, 7, 8, Z, 9, 10, 11, Z },
    .one = X8(1), .round = X8(0x7fff), .quiet = X8(0x400000),
};

static bool valid(const kernel_spec *s)
{
    const bool wide = s->dot == DOT_W || s->dot == DOT_WS;
    return s->dot > DOT_PLAIN && s->dot < DOT_COUNT && s->form < A_FORMS
        && (s->form == A_WIDE) == wide && (s->form == A_SPLIT) == (s->dot == DOT_S)
        && s->rows >= 1 && s->rows <= (wide ? 6 : s->dot == DOT_S ? 1 : MR_MAX) && s->cols >= 1 && s->cols <= NR && s->k_tail < 4
        && !(s->dot == DOT_WS && s->k_tail) && format_of((octet_dtype)s->c);
}

static void add_to(assembler *as, x86_mem field, x86_mem amount)
{
    op_mem(as, MOV, 0, R_TMP, 0, field, 0);
    op_mem(as, ADD, 0, R_TMP, 0, amount, 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, field, 0);
}

static void add_imm(assembler *as, x86_mem field, int bytes)
{
    op_mem(as, MOV, 0, R_TMP, 0, field, 0);
    ri(as, ADDI, R_TMP, bytes);
    op_mem(as, MOV_ST, 0, R_TMP, 0, field, 0);
}

static void advance_rows(assembler *as, const kernel_spec *s, x86_mem field) { add_imm(as, field, 4 * s->rows); }

/* field = field - 1; jumps where nothing is left, without storing. */
static void count_down(assembler *as, x86_mem field, label none_left)
{
    op_mem(as, MOV, 0, R_TMP, 0, field, 0);
    ri(as, SUBI, R_TMP, 1);
    asm_jcc(as, CC_Z, none_left);
    op_mem(as, MOV_ST, 0, R_TMP, 0, field, 0);
}

/* To the tile below, or the one in the next panel, or on. */
static void next_or_out(assembler *as, const kernel_spec *s, label again, label out)
{
    const label beside = asm_label(as);
    count_down(as, ARG(tiles), beside);
    op_mem(as, MOV_ST, 0, RCX, 0, ARG(c), 0); /* the epilogue left it at the next row */
    add_to(as, ARG(a), ARG(a_step));
    if (s->zero_a == ZERO_A_ROWS) advance_rows(as, s, ARG(zero_a));
    if (s->scale_a_rows) advance_rows(as, s, ARG(scale_a));
    if (s->zero_b) advance_rows(as, s, ARG(row_sums));
    asm_jump(as, again);
    asm_place(as, beside);
    count_down(as, ARG(panels), out);
    add_to(as, ARG(b), ARG(b_step));
    add_to(as, ARG(c), ARG(c_step));
    add_to(as, ARG(span), ARG(span_step));
    add_imm(as, ARG(sums), 4 * NR);
    if (s->c != OCTET_S32) add_to(as, ARG(scale_b), ARG(scale_b_step));
    if (s->zero_b) add_to(as, ARG(zero_b), ARG(zero_b_step));
    if (s->bias) add_imm(as, ARG(bias), 4 * NR);
    asm_jump(as, again);
}

octet_status gen_kernel(const kernel_spec *s, uint8_t *out, size_t room, size_t *bytes)
{
    assembler as;
    if (!valid(s)) return OCTET_EUNSUPPORTED;
    asm_begin(&as, out, room);
    const label next_tile = asm_label(&as), out_of_tiles = asm_label(&as), no_tail = asm_label(&as), no_raw_in = asm_label(&as), epilogue = asm_label(&as);
    asm_place(&as, next_tile);
    gen_dot_setup(&as, s);
    gen_dot_loop(&as, s);
    if (s->k_tail) { /* only the last block of k has it */
        op_mem(&as, MOV, 0, R_TMP, 0, ARG(raw_out), 0);
        op_reg(&as, TEST, 0, R_TMP, 0, R_TMP, 0);
        asm_jcc(&as, CC_NZ, no_tail);
        gen_dot_tail(&as, s);
        asm_place(&as, no_tail);
    }
    gen_dot_residual(&as, s);
    gen_dot_reduce(&as, s);

    op_mem(&as, MOV, 0, R_TMP, 0, ARG(raw_in), 0);
    op_reg(&as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(&as, CC_Z, no_raw_in);
    for (int i = 0; i < s->rows; i++) rrm(&as, VPADDD, i, i, at(R_TMP, 32 * i));
    asm_place(&as, no_raw_in);

    op_mem(&as, MOV, 0, R_TMP, 0, ARG(raw_out), 0);
    op_reg(&as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(&as, CC_Z, epilogue);
    for (int i = 0; i < s->rows; i++) rm(&as, VMOVDQU_ST, i, at(R_TMP, 32 * i));
    op_reg(&as, VZEROUPPER, XMM, 0, 0, 0, 0);
    op_reg(&as, RET, 0, 0, 0, 0, 0);

    asm_place(&as, epilogue);
    gen_epilogue(&as, s);
    next_or_out(&as, s, next_tile, out_of_tiles);
    asm_place(&as, out_of_tiles);
    op_reg(&as, VZEROUPPER, XMM, 0, 0, 0, 0);
    op_reg(&as, RET, 0, 0, 0, 0, 0);
    return asm_finish(&as, bytes);
}

const char *dot_name(int dot)
{
    static const char *const names[DOT_COUNT] = { "plain", "avx2-w", "avx2-ws", "avx2-s", "avx2-t1", "avx2-t2", "avx2-t4" };
    return dot >= 0 && dot < DOT_COUNT ? names[dot] : "?";
}

void kernel_name(const kernel_spec *s, char name[KERNEL_NAME])
{
    const format *c = format_of((octet_dtype)s->c);
    snprintf(name, KERNEL_NAME, "u8s8%s-%s-%dx%d%s%s%s%s%s%s", c ? c->name : "?", dot_name(s->dot),
             s->rows, s->cols, s->form == A_PLACE ? "-place" : "", s->k_tail ? "-tail" : "",
             s->zero_a || s->zero_b ? "-zp" : "", s->bias ? "-bias" : "", s->accumulate ? "-acc" : "", s->clamp ? "-clamp" : "");
}
