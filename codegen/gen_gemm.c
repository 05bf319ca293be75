/*
 * A kernel, top to bottom: the loop over k, its tail, the residual, what an earlier block of k left,
 * and then either the raw sums out (a middle block) or the epilogue. See gen.h for the contract.
 */
#include <math.h>
#include <stdio.h>

#include "format.h"
#include "gen_bag.h"
#include "gen_parts.h"

#define X8(v) { v, v, v, v, v, v, v, v }
#define X16(v) v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v
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
    .one = X8(1), .round = X8(0x7fff), .quiet = X8(0x400000), .high = X8(0xffff0000u), .sign = X8(0x80000000u),
    .nibble = { X8(0xfu), X8(0xf0u), X8(0xf00u), X8(0xf000u), X8(0xf0000u), X8(0xf00000u), X8(0xf000000u), X8(0xfu) },
    .shrink = { X8(1.0f), X8(0x1p-4f), X8(0x1p-8f), X8(0x1p-12f), X8(0x1p-16f), X8(0x1p-20f), X8(0x1p-24f), X8(1.0f) },
    .eight = X8(8.0f),
#define LANE(n, i) ((i) < (n) ? 0xffffffffu : 0)
#define LANES(n) { LANE(n, 0), LANE(n, 1), LANE(n, 2), LANE(n, 3), LANE(n, 4), LANE(n, 5), LANE(n, 6), LANE(n, 7) }
    .mask = { LANES(0), LANES(1), LANES(2), LANES(3), LANES(4), LANES(5), LANES(6), LANES(7) },
#undef LANES
#undef LANE
#define ACT(name, value) [name] = X8(value),
    .act = { ACT_CONSTS(ACT) },
#undef ACT
    .shift4 = { 0, 4, 8, 12, 16, 20, 24, 28 }, .shift2 = { 0, 2, 4, 6, 8, 10, 12, 14 }, .shift2_high = { 16, 18, 20, 22, 24, 26, 28, 30 },
    .steps = { 0, 1, 2, 3, 0, 1, 2, 3 }, .lowest = X8(-INFINITY), .f256 = X8(256.0f),
    .fp8_keep = { X16(0xbfff) }, .fp8_nan = { X16(0x3f80) }, .fp8_top = { X16(0x4000) },
};

tile_regs tile_of(const kernel_spec *s)
{
    if (!dot_is_float(s->dot)) return (tile_regs){ s->rows, 1, 1, 1 };
    const int vecs = s->abreast * (s->cols > 8 ? 2 : 1);
    return (tile_regs){ s->rows, vecs, vecs, 1 };
}

int vec_cols(const kernel_spec *s, int v, bool out)
{
    if (s->gate_cols) return !dot_is_float(s->dot) && !out ? NR : s->gate_cols;
    return s->abreast > 1 || s->cols - 8 * v >= 8 ? 8 : s->cols - 8 * v;
}

/* Chains that no kernel has: an unknown step, or two gates. */
static bool chain_valid(const kernel_spec *s, int half)
{
    const int gate = chain_gate(s->chain);
    for (int i = 0; i < OCTET_OPS; i++) {
        const uint8_t c = s->chain[i];
        if (chain_op(c) > OCTET_OP_GLU || chain_type(c) > 2 || (c && !chain_op(c)) || (i && c && !s->chain[i - 1])) return false;
        if (c && s->c == OCTET_S32) return false;
        if (i > gate && gate >= 0 && op_is_gate(chain_op(c))) return false;
        if (i < gate && chain_has_operand(c) && chain_shape(c) == OCTET_FULL) return false;
    }
    return gate >= 0 ? s->gate_cols >= 1 && s->gate_cols <= half && s->cols == 2 * half && !s->bias : s->gate_cols == 0;
}

static bool float_valid(const kernel_spec *s)
{
    const bool c = s->c == OCTET_F32 || s->c == OCTET_F16 || s->c == OCTET_BF16;
    return c && (s->form == A_FLOAT || s->form == A_PLACE) && s->rows >= 1 && s->rows <= MR_FLOAT && s->cols >= 1 && s->cols <= NR_FLOAT
        && (s->abreast == 1 || (s->cols == NR_FLOAT && s->abreast == dot_abreast(s->rows)) || (s->cols == NR_FLOAT && s->abreast == 2 && s->rows == 1))
        && s->k_tail < (s->dot == DOT_FS4 ? 8 : 1) && !s->zero_a && !s->scale_a_rows && s->bias != BIAS_S32
        && !(s->b_place && (s->dot != DOT_F32 || s->scale_b)) && !(s->zero_b && s->dot < DOT_FS8) && (s->scale_b || !s->group) && s->a == OCTET_F32 && chain_valid(s, NR_FLOAT / 2);
}

static bool valid(const kernel_spec *s)
{
    if (s->dot >= DOT_COUNT) return false;
    if (dot_is_float(s->dot)) return float_valid(s);
    const bool wide = s->dot == DOT_W || s->dot == DOT_WS;
    return s->dot > DOT_PLAIN && s->form < A_FORMS && s->form != A_FLOAT
        && (s->form == A_WIDE) == wide && (s->form == A_SPLIT) == (s->dot == DOT_S)
        && s->rows >= 1 && s->rows <= (wide ? 6 : s->dot == DOT_S ? 1 : MR_MAX) && s->cols >= 1 && s->cols <= NR && s->k_tail < 4
        && !(s->dot == DOT_WS && s->k_tail) && s->c >= OCTET_U8 && s->c <= OCTET_BF16 && s->abreast <= 1 && !s->b_place && !s->group && !s->scale_b
        && chain_valid(s, NR / 2);
}

static void add_to(assembler *as, x86_mem field, x86_mem amount)
{
    op_mem(as, MOV, 0, R_TMP, 0, field, 0);
    op_mem(as, ADD, 0, R_TMP, 0, amount, 0);
    op_mem(as, MOV_ST, 0, R_TMP, 0, field, 0);
}

static void add_times(assembler *as, x86_mem field, x86_mem amount, int times)
{
    op_mem(as, MOV, 0, R_TMP, 0, amount, 0);
    if (times != 1) op_reg(as, IMULI, 0, R_TMP, 0, R_TMP, times);
    op_mem(as, ADD, 0, R_TMP, 0, field, 0);
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
    if (s->zero_b && !dot_is_float(s->dot)) advance_rows(as, s, ARG(row_sums));
    gen_chain_down(as, s);
    asm_jump(as, again);
    asm_place(as, beside);
    count_down(as, ARG(panels), out);
    if (dot_is_float(s->dot)) {
        const int n = s->abreast;
        add_times(as, ARG(b), ARG(b_step), n);
        add_times(as, ARG(c), ARG(c_step), n);
        if (s->scale_b) add_times(as, ARG(scale_b), ARG(scale_b_step), n);
        if (s->zero_b) add_times(as, ARG(zero_b), ARG(zero_b_step), n);
        if (s->bias) add_imm(as, ARG(bias), 4 * NR_FLOAT * n);
    } else {
        add_to(as, ARG(b), ARG(b_step));
        add_to(as, ARG(c), ARG(c_step));
        add_to(as, ARG(span), ARG(span_step));
        add_imm(as, ARG(sums), 4 * NR);
        if (s->c != OCTET_S32) add_to(as, ARG(scale_b), ARG(scale_b_step));
        if (s->zero_b) add_to(as, ARG(zero_b), ARG(zero_b_step));
        if (s->bias) add_imm(as, ARG(bias), 4 * NR);
    }
    gen_chain_across(as, s);
    asm_jump(as, again);
}

static void integer_sums(assembler *as, const kernel_spec *s)
{
    const label no_tail = asm_label(as), no_raw_in = asm_label(as);
    gen_dot_setup(as, s);
    gen_dot_loop(as, s);
    if (s->k_tail) { /* only the last block of k has it */
        op_mem(as, MOV, 0, R_TMP, 0, ARG(raw_out), 0);
        op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
        asm_jcc(as, CC_NZ, no_tail);
        gen_dot_tail(as, s);
        asm_place(as, no_tail);
    }
    gen_dot_residual(as, s);
    gen_dot_reduce(as, s);

    op_mem(as, MOV, 0, R_TMP, 0, ARG(raw_in), 0);
    op_reg(as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(as, CC_Z, no_raw_in);
    for (int i = 0; i < s->rows; i++) rrm(as, VPADDD, i, i, at(R_TMP, 32 * i));
    asm_place(as, no_raw_in);
}

octet_status gen_kernel(const kernel_spec *s, uint8_t *out, size_t room, size_t *bytes)
{
    assembler as;
    if (s->dot == DOT_BAG) {
        bag_spec bag;
        memcpy(&bag, s, sizeof bag);
        return gen_bag(&bag, out, room, bytes);
    }
    if (!valid(s)) return OCTET_EUNSUPPORTED;
    asm_begin(&as, out, room);
    const label next_tile = asm_label(&as), out_of_tiles = asm_label(&as), epilogue = asm_label(&as);
    asm_place(&as, next_tile);
    if (dot_is_float(s->dot)) gen_float(&as, s);
    else integer_sums(&as, s);
    op_mem(&as, MOV, 0, R_TMP, 0, ARG(raw_out), 0);
    op_reg(&as, TEST, 0, R_TMP, 0, R_TMP, 0);
    asm_jcc(&as, CC_Z, epilogue);
    const tile_regs t = tile_of(s);
    const int row = dot_is_float(s->dot) ? 4 * NR_FLOAT : 4 * NR;
    for (int i = 0; i < t.rows; i++)
        for (int v = 0; v < t.vecs; v++) rm(&as, VMOVDQU_ST, reg_of(t, i, v), at(R_TMP, row * i + 32 * v));
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
    static const char *const names[DOT_COUNT] = { "plain", "avx2-w", "avx2-ws", "avx2-s", "avx2-t1", "avx2-t2", "avx2-t4",
                                                  "avx2-f32", "avx2-f16", "avx2-bf16", "avx2-s8", "avx2-s4" };
    return dot >= 0 && dot < DOT_COUNT ? names[dot] : "?";
}

void kernel_name(const kernel_spec *s, char name[KERNEL_NAME])
{
    static const char *const ops[] = { "", "add", "mul", "prelu", "clip", "relu", "gelu", "gelut", "silu", "sigmoid", "tanh",
                                       "swiglu", "geglu", "geglut", "glu", "?" };
    if (s->dot == DOT_BAG) {
        bag_spec bag;
        memcpy(&bag, s, sizeof bag);
        bag_name(&bag, name);
        return;
    }
    const format *c = format_of((octet_dtype)s->c);
    const bool is_float = dot_is_float(s->dot);
    int n = snprintf(name, KERNEL_NAME, "%s%s-%s-%dx%d%s%s%s%s%s%s%s", is_float ? "f32" : "u8s8", c ? c->name : "?", dot_name(s->dot),
                     s->rows, s->cols * (s->abreast ? s->abreast : 1), s->b_place ? "-bplace" : s->form == A_PLACE ? "-place" : "", s->k_tail ? "-tail" : "",
                     s->zero_a || s->zero_b ? "-zp" : "", s->bias ? "-bias" : "", s->accumulate ? "-acc" : "", s->clamp ? "-clamp" : "",
                     s->group ? "-group" : "");
    for (int i = 0; i < OCTET_OPS && s->chain[i] && n < KERNEL_NAME; i++)
        n += snprintf(name + n, (size_t)(KERNEL_NAME - n), "-%s", ops[chain_op(s->chain[i])]);
}
