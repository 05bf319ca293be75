/* Every kernel family interpreted, instruction by instruction, against the portable kernel: same
 * values, and no access outside what gen.h grants. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "family.h"
#include "interp.h"
#include "plain.h"

enum { PAD = 63 };

/* Memory of a kernel call; ends as gen.h says, 63 bytes of grace only where it grants them. */
typedef struct setup {
    kernel_spec   s;
    kernel_args   x;
    uint8_t      *a;
    int8_t       *b, *res_w;
    residual_k   *res_k;
    residual_span span[4];
    uint8_t      *c, *want;
    int32_t      *raw, sums[64], zero_b[64], bias[64], zero_a[64], row_sums[64];
    float         scale_b[64], scale_a[64];
    size_t        a_bytes, b_bytes, c_bytes;
    int64_t       tiles, panels;
} setup;

static size_t elem(octet_dtype t) { return t == OCTET_U8 || t == OCTET_S8 ? 1 : t == OCTET_F16 || t == OCTET_BF16 ? 2 : 4; }

static void setup_new(setup *u, rng *r, dot_kind dot, int rows, int cols)
{
    static const octet_dtype types[] = { OCTET_U8, OCTET_S8, OCTET_S32, OCTET_F32, OCTET_F16, OCTET_BF16 };
    const family *f = &families[dot];
    memset(u, 0, sizeof *u);
    kernel_spec *s = &u->s;
    s->dot = (uint8_t)dot;
    s->form = (uint8_t)(f->place && rng_below(r, 3) == 0 ? A_PLACE : f->form);
    s->rows = (uint8_t)rows;
    s->cols = (uint8_t)cols;
    s->k_tail = (uint8_t)(dot == DOT_WS ? 0 : rng_below(r, 4));
    s->c = (uint8_t)types[rng_below(r, 6)];
    s->zero_a = (uint8_t)rng_below(r, 3);
    s->zero_b = (uint8_t)rng_below(r, 2);
    s->scale_a_rows = (uint8_t)(s->c != OCTET_S32 && rng_below(r, 2));
    s->bias = (uint8_t)(s->c == OCTET_S32 ? rng_below(r, 2) : rng_below(r, 3));
    s->accumulate = (uint8_t)(elem((octet_dtype)s->c) > 1 && rng_below(r, 2));
    s->clamp = (uint8_t)(elem((octet_dtype)s->c) > 1 && rng_below(r, 2));

    const int64_t quads = rng_below(r, 3) ? rng_below(r, 12) : rng_below(r, 45), kq = quads + (s->k_tail != 0), k = 4 * quads + s->k_tail;
    const bool raw = rng_below(r, 4) == 0;
    u->tiles = raw || rng_below(r, 2) ? 1 : 1 + rng_below(r, 3);
    u->panels = raw || u->tiles > 1 ? 1 : 1 + rng_below(r, 3);
    kernel_args *x = &u->x;
    x->spec = s;
    x->consts = &gen_const;
    x->quads = quads;
    const int64_t lda = k + rng_below(r, 9);
    const size_t a_tile = s->form == A_PLACE ? (size_t)(rows * lda) : (size_t)(kq * rows * (s->form == A_QUADS ? 4 : 8));
    u->a_bytes = s->form == A_PLACE ? (size_t)((u->tiles * rows - 1) * lda + k) : (size_t)u->tiles * a_tile;
    if (s->form == A_PLACE && (int64_t)u->a_bytes < 0) u->a_bytes = 0;
    u->a = calloc(1, u->a_bytes + PAD + 1);
    x->a = u->a;
    x->a_step = (int64_t)a_tile;
    x->lda = lda;
    const int most = s->dot == DOT_T4 ? 16 : s->dot == DOT_T2 ? 32 : s->dot == DOT_T1 ? 64 : 127;
    for (size_t i = 0; i < u->a_bytes; i++)
        u->a[i] = (uint8_t)(s->form == A_WIDE ? (i & 1 ? 0 : rng_next(r)) : s->form == A_SPLIT ? (i & 4 ? rng_below(r, 2) : rng_below(r, 128)) : rng_next(r));
    const size_t b_panel = dot == DOT_WS ? (size_t)(8 * kq * cols) : (size_t)(k * cols);
    u->b_bytes = (size_t)u->panels * b_panel;
    u->b = calloc(1, u->b_bytes + PAD + 1);
    x->b = u->b;
    x->b_step = (int64_t)b_panel;
    for (size_t i = 0; i < u->b_bytes; i++) {
        const int v = (int)rng_below(r, 2 * most + 1) - most;
        if (dot == DOT_WS) { if (i % 2 == 0) { const int16_t w = (int16_t)v; memcpy(u->b + i, &w, 2); } }
        else u->b[i] = (int8_t)(rng_next(r) & 1 ? (v < 0 ? -most : most) : v);
    }
    /* residual, for packed A */
    enum { STEPS = 9 };
    u->res_k = calloc(4 * STEPS, sizeof *u->res_k);
    u->res_w = calloc(1, 32 * STEPS);
    x->res_k = u->res_k;
    x->quad0 = rng_below(r, 3) ? 0 : rng_below(r, 500);
    x->res_w = u->res_w;
    if (s->form != A_PLACE && k > 0 && rng_below(r, 3)) {
        for (int i = 0; i < 4 * STEPS; i++) {
            const int64_t at = rng_below(r, raw ? max64(1, 4 * quads) : k);
            u->res_k[i] = (residual_k){ (uint16_t)(at / 4 + x->quad0), (uint16_t)(at % 4 * 32) };
            for (int j = 0; j < 8; j++) u->res_w[32 * (i / 4) + 4 * j + i % 4] = (int8_t)((int)rng_below(r, 129) - 64);
        }
        for (int p = 0; p < 3; p++) u->span[p] = (residual_span){ (uint32_t)rng_below(r, 4), (uint32_t)rng_below(r, 6) };
        if (!(raw && quads == 0)) x->span = u->span;
        x->span_step = sizeof(residual_span);
    }
    const size_t e = elem((octet_dtype)s->c);
    const int64_t ldc = (int64_t)e * (8 * u->panels + rng_below(r, 5));
    u->c_bytes = (size_t)((u->tiles * rows - 1) * ldc) + e * (size_t)(8 * (u->panels - 1) + cols);
    u->c = calloc(1, u->c_bytes + 1);
    u->want = calloc(1, u->c_bytes + 1);
    for (size_t i = 0; i < u->c_bytes; i++) u->c[i] = (uint8_t)(s->c == OCTET_F32 ? (i & 3 ? 0x3f : rng_next(r)) : rng_next(r));
    memcpy(u->want, u->c, u->c_bytes);
    x->c = u->c;
    x->ldc = ldc;
    x->c_step = (int64_t)(8 * e);
    u->raw = calloc(4, 8 * 8);
    for (int i = 0; i < 64; i++) u->raw[i] = (int32_t)rng_next(r) >> 8;
    if (raw) {
        if (rng_below(r, 2)) x->raw_in = u->raw;
        if (rng_below(r, 2)) x->raw_out = u->raw;
    }
    for (int i = 0; i < 64; i++) {
        u->sums[i] = (int32_t)rng_next(r) >> 12;
        u->zero_b[i] = (int32_t)rng_below(r, 256) - 128;
        u->bias[i] = (int32_t)rng_next(r) >> 12;
        if (s->bias == BIAS_F32) { const float v = (float)u->bias[i] * 1e-3f; memcpy(&u->bias[i], &v, 4); }
        u->zero_a[i] = (int32_t)rng_below(r, 256);
        u->row_sums[i] = (int32_t)rng_below(r, 90000);
        u->scale_b[i] = (float)(1 + rng_below(r, 50)) * 1e-3f;
        u->scale_a[i] = (float)(1 + rng_below(r, 50)) * 1e-2f;
    }
    x->sums = u->sums;
    x->scale_b = u->scale_b;
    x->scale_b_step = rng_next(r) & 1 ? 32 : 0;
    x->zero_b = u->zero_b;
    x->zero_b_step = rng_next(r) & 1 ? 32 : 0;
    x->bias = u->bias;
    x->zero_a = u->zero_a;
    x->scale_a = u->scale_a;
    x->row_sums = u->row_sums;
    for (int i = 0; i < 8; i++) {
        x->zero_a_v[i] = u->zero_a[9] % 3 ? u->zero_a[8] : 0;
        x->scale_a_v[i] = u->scale_a[8];
        x->inv_scale_c[i] = 0.7f;
        x->zero_c[i] = s->c == OCTET_U8 ? 9 : -9;
        if (s->c == OCTET_S32) { x->lo.i[i] = -5000; x->hi.i[i] = 900000; }
        else if (e == 1) { x->lo.f[i] = s->c == OCTET_U8 ? -9 : -119; x->hi.f[i] = s->c == OCTET_U8 ? 246 : 136; }
        else { x->lo.f[i] = -3; x->hi.f[i] = 4000; }
    }
    x->tiles = u->tiles;
    x->panels = u->panels;
}

static void setup_free(setup *u)
{
    free(u->a); free(u->b); free(u->res_k); free(u->res_w); free(u->c); free(u->want); free(u->raw);
}

/* 0 if the interpreted kernel equals the portable one. */
static int compare(setup *u, char *why, size_t room)
{
    static uint8_t code[32768];
    size_t bytes;
    uint64_t steps;
    int32_t raw_before[64], raw_got[64];
    kernel_args plain = u->x, *x = &u->x;
    if (gen_kernel(&u->s, code, sizeof code, &bytes)) { snprintf(why, room, "is not generated"); return 1; }
    const size_t grace = u->s.form == A_PLACE ? 0 : PAD;
    const interp_range ranges[] = {
        { x, sizeof *x, true }, { &gen_const, sizeof gen_const, false }, { u->a, u->a_bytes + grace, false }, { u->b, u->b_bytes + PAD, false },
        { u->res_k, 4 * 9 * sizeof(residual_k), false }, { u->res_w, 32 * 9, false }, { u->span, 3 * sizeof(residual_span), false },
        { u->c, u->c_bytes, true }, { u->raw, u->s.rows * 32u, true },
        { u->sums, (size_t)u->panels * 32, false }, { u->zero_b, (size_t)u->panels * 32, false }, { u->bias, (size_t)u->panels * 32, false },
        { u->scale_b, (size_t)u->panels * 32, false }, { u->zero_a, (size_t)u->tiles * u->s.rows * 4, false },
        { u->row_sums, (size_t)u->tiles * u->s.rows * 4, false }, { u->scale_a, (size_t)u->tiles * u->s.rows * 4, false },
    };
    memcpy(raw_before, u->raw, sizeof raw_before);
    const char *error = interp_run(code, bytes, x, ranges, sizeof ranges / sizeof *ranges, &steps);
    if (error) { snprintf(why, room, "%s", error); return 1; }
    memcpy(raw_got, u->raw, sizeof raw_got);
    memcpy(u->raw, raw_before, sizeof raw_before);
    plain.c = u->want;
    plain_kernel(&plain);
    if (memcmp(u->c, u->want, u->c_bytes)) { snprintf(why, room, "C differs"); return 1; }
    for (int i = 0; i < 64; i++) /* lanes past cols are anything */
        if (i % NR >= u->s.cols) raw_got[i] = u->raw[i];
    if (memcmp(raw_got, u->raw, sizeof raw_got)) { snprintf(why, room, "the raw sums differ"); return 1; }
    return 0;
}

static void each(dot_kind dot, int rounds)
{
    char why[300], name[KERNEL_NAME];
    int count = 0;
    for (int round = 0; round < rounds; round++)
        for (int rows = families[dot].min_rows; rows <= families[dot].mr; rows++)
            for (int cols = 1; cols <= NR; cols++) {
                rng r = { ((uint64_t)round * 100 + (uint64_t)rows * 10 + (uint64_t)cols) * 0x9e3779b9 + dot };
                setup u;
                setup_new(&u, &r, dot, rows, cols);
                kernel_name(&u.s, name);
                cr_assert_eq(compare(&u, why, sizeof why), 0, "%s (round %d): %s", name, round, why);
                setup_free(&u);
                count++;
            }
    cr_log_info("%d kernels", count);
}

/* ---- floating kernels ---- */

typedef struct float_setup {
    kernel_spec s;
    kernel_args x;
    size_t      a_bytes, b_bytes, c_bytes, op_bytes[OCTET_OPS], up_bytes[OCTET_OPS], table_bytes;
    uint8_t    *a, *b, *c, *want, *op[OCTET_OPS], *up[OCTET_OPS];
    float      *scales, *zeros, *bias, *raw, totals[96];
    int64_t     tiles, panels;
} float_setup;

static uint8_t *floats(rng *r, size_t bytes, int size)
{
    uint8_t *p = calloc(1, bytes + PAD + 1);
    for (size_t i = 0; i + (size_t)size <= bytes; i += (size_t)size) {
        const float v = (float)((int)rng_below(r, 2001) - 1000) * 2e-3f;
        const uint16_t h = ref_f32_to_bf16(v);
        if (size == 4) memcpy(p + i, &v, 4);
        else memcpy(p + i, &h, 2);
    }
    return p;
}

static void draw_float_chain(rng *r, kernel_spec *s)
{
    const int steps = (int)rng_below(r, 4);
    int gate = -1;
    for (int i = 0; i < steps; i++) {
        int op = 1 + (int)rng_below(r, OCTET_OP_GLU), shape = 0, type = 0;
        if (op_is_gate(op)) {
            if (gate >= 0 || s->cols != NR_FLOAT || s->bias) op = OCTET_OP_TANH;
            else gate = i;
        }
        if (op <= OCTET_OP_PRELU) shape = (int)rng_below(r, 4);
        if (shape == OCTET_PER_N || shape == OCTET_FULL) type = rng_below(r, 2) ? 0 : 2;
        s->chain[i] = (uint8_t)(op | shape << 4 | type << 6);
    }
    for (int i = 0; i < gate; i++)
        if (chain_shape(s->chain[i]) == OCTET_FULL) s->chain[i] = OCTET_OP_RELU;
    if (gate >= 0) s->gate_cols = (uint8_t)(s->abreast > 1 ? 8 : 1 + rng_below(r, 8));
}

static void float_new(float_setup *u, rng *r, dot_kind dot, int rows, int cols)
{
    static const octet_dtype types[] = { OCTET_F32, OCTET_F16, OCTET_BF16 };
    memset(u, 0, sizeof *u);
    kernel_spec *s = &u->s;
    kernel_args *x = &u->x;
    s->dot = (uint8_t)dot;
    s->a = OCTET_F32;
    s->form = (uint8_t)(rng_below(r, 2) ? A_PLACE : A_FLOAT);
    s->rows = (uint8_t)rows;
    s->cols = (uint8_t)cols;
    s->abreast = (uint8_t)(cols == NR_FLOAT && rng_below(r, 2) ? dot_abreast(rows) : 1);
    s->c = (uint8_t)types[rng_below(r, 3)];
    s->scale_b = dot >= DOT_FS8 || (dot == DOT_F32 && rng_below(r, 4) == 0);
    s->zero_b = dot >= DOT_FS8 && rng_below(r, 2);
    s->group = s->scale_b && rng_below(r, 2);
    s->b_place = dot == DOT_F32 && !s->scale_b && rng_below(r, 2);
    s->bias = rng_below(r, 2) ? BIAS_F32 : BIAS_NONE;
    s->accumulate = (uint8_t)rng_below(r, 2);
    s->clamp = (uint8_t)rng_below(r, 2);
    const int64_t k = rng_below(r, 3) ? rng_below(r, 40) : rng_below(r, 150);
    s->k_tail = (uint8_t)(dot == DOT_FS4 ? k % 8 : 0);
    draw_float_chain(r, s);
    const bool raw = s->abreast == 1 && rng_below(r, 4) == 0;
    u->tiles = raw || s->abreast > 1 || rng_below(r, 2) ? 1 : 1 + rng_below(r, 3);
    u->panels = raw || u->tiles > 1 || cols < NR_FLOAT || s->gate_cols % 8 ? 1 : 1 + rng_below(r, 3);
    const int64_t all = u->panels * s->abreast, out = s->gate_cols ? 8 : NR_FLOAT, width = s->gate_cols ? s->gate_cols : cols;
    x->spec = s;
    x->consts = &gen_const;
    x->quads = k;
    x->tiles = u->tiles;
    x->panels = u->panels;
    const int64_t lda = 4 * (k + rng_below(r, 5));
    u->a_bytes = (size_t)(s->form == A_PLACE ? (u->tiles * rows - 1) * lda + 4 * k : u->tiles * rows * 4 * k);
    u->a = floats(r, u->a_bytes, 4);
    x->a = u->a;
    x->lda = lda;
    x->a_step = s->form == A_PLACE ? rows * lda : 4 * rows * k;
    const int64_t panel = dot == DOT_F32 ? 4 * k * cols : dot == DOT_FS8 ? k * cols : dot == DOT_FS4 ? 4 * ((k + 7) / 8) * cols : 2 * k * cols;
    x->b_step = s->b_place ? 4 * NR_FLOAT : (panel + 63) / 64 * 64;
    x->ldb = 4 * ((all - 1) * NR_FLOAT + cols + rng_below(r, 5));
    u->b_bytes = (size_t)(s->b_place ? (k ? (k - 1) * x->ldb : 0) + (k ? 4 * ((all - 1) * NR_FLOAT + cols) : 0) : (all - 1) * x->b_step + panel);
    u->b = floats(r, u->b_bytes, dot == DOT_F32 ? 4 : 2);
    if (dot == DOT_F16) /* any bits but the largest exponent */
        for (size_t i = 0; i + 2 <= u->b_bytes; i += 2) { const uint16_t h = ref_f32_to_f16((float)((int)rng_below(r, 2001) - 1000) * 2e-3f); memcpy(u->b + i, &h, 2); }
    x->b = (const int8_t *)u->b;
    x->group = 32 << rng_below(r, 2);
    x->group_step = 4 * NR_FLOAT * all;
    u->table_bytes = (size_t)(x->group_step * (k / x->group + 1));
    u->scales = (float *)(void *)floats(r, u->table_bytes, 4);
    u->zeros = (float *)(void *)floats(r, u->table_bytes, 4);
    for (size_t i = 0; i < u->table_bytes / 4; i++) u->zeros[i] = (float)rng_below(r, 16);
    x->scale_b = u->scales;
    x->zero_b = (const int32_t *)(const void *)u->zeros;
    x->scale_b_step = x->zero_b_step = 4 * NR_FLOAT;
    u->bias = (float *)(void *)floats(r, (size_t)(4 * ((all - 1) * NR_FLOAT + cols)), 4);
    x->bias = u->bias;
    const int size = s->c == OCTET_F32 ? 4 : 2;
    x->c_step = out * size;
    x->ldc = size * ((all - 1) * out + width + rng_below(r, 5));
    u->c_bytes = (size_t)((u->tiles * rows - 1) * x->ldc + size * ((all - 1) * out + width));
    u->c = floats(r, u->c_bytes, size);
    u->want = calloc(1, u->c_bytes + 1);
    memcpy(u->want, u->c, u->c_bytes);
    x->c = u->c;
    u->raw = (float *)(void *)floats(r, 4 * NR_FLOAT * MR_FLOAT, 4);
    if (raw) {
        if (rng_below(r, 2)) x->raw_in = (const int32_t *)(const void *)u->raw;
        if (rng_below(r, 2) && k % 8 == 0) x->raw_out = (int32_t *)(void *)u->raw;
    }
    x->totals = u->totals;
    for (int i = 0; i < 8; i++) { x->lo.f[i] = -2; x->hi.f[i] = 1.5f; }
    for (int i = 0; i < OCTET_OPS && s->chain[i]; i++) {
        const uint8_t c = s->chain[i];
        op_arg *o = &x->op[i];
        o->value = chain_op(c) == OCTET_OP_CLIP ? -1.0f : 0.75f;
        o->value2 = 1;
        if (!chain_has_operand(c)) continue;
        const bool before = i < chain_gate(s->chain), by_row = chain_shape(c) == OCTET_PER_M;
        const int es = chain_type(c) ? 2 : 4;
        const int64_t columns = (all - 1) * out + width;
        o->panel_step = by_row ? 0 : out * es;
        o->row_step = by_row ? 4 : chain_shape(c) == OCTET_FULL ? es * (columns + rng_below(r, 4)) : 0;
        u->op_bytes[i] = (size_t)(by_row ? 4 * u->tiles * rows : (u->tiles * rows - 1) * o->row_step + es * columns);
        u->up_bytes[i] = before ? (size_t)(es * columns) : 0;
        u->op[i] = floats(r, u->op_bytes[i], es);
        u->up[i] = floats(r, u->up_bytes[i], es);
        o->p = (const char *)u->op[i];
        o->up = (const char *)u->up[i];
    }
}

static void float_free(float_setup *u)
{
    free(u->a); free(u->b); free(u->c); free(u->want); free(u->scales); free(u->zeros); free(u->bias); free(u->raw);
    for (int i = 0; i < OCTET_OPS; i++) { free(u->op[i]); free(u->up[i]); }
}

/* The portable kernel knows no panels side by side: as many panels one after the other are the same. */
static int float_compare(float_setup *u, char *why, size_t room)
{
    static uint8_t code[32768];
    size_t bytes;
    uint64_t steps;
    float before[NR_FLOAT * MR_FLOAT], got[NR_FLOAT * MR_FLOAT];
    kernel_args plain = u->x, *x = &u->x;
    kernel_spec s = u->s;
    if (gen_kernel(&u->s, code, sizeof code, &bytes)) { snprintf(why, room, "is not generated"); return 1; }
    interp_range ranges[13 + 2 * OCTET_OPS] = {
        { x, sizeof *x, true }, { &gen_const, sizeof gen_const, false }, { u->a, u->a_bytes, false },
        { u->b, u->b_bytes + (u->s.b_place ? 0 : PAD), false }, { u->c, u->c_bytes, true }, { u->raw, 4 * NR_FLOAT * u->s.rows, true },
        { u->scales, u->table_bytes, false }, { u->zeros, u->table_bytes, false }, { u->totals, sizeof u->totals, true },
        { u->bias, (size_t)(4 * ((u->panels * u->s.abreast - 1) * NR_FLOAT + u->s.cols)), false },
    };
    size_t count = 10;
    for (int i = 0; i < OCTET_OPS && u->s.chain[i]; i++) {
        ranges[count++] = (interp_range){ u->op[i], u->op_bytes[i], false };
        ranges[count++] = (interp_range){ u->up[i], u->up_bytes[i], false };
    }
    memcpy(before, u->raw, sizeof before);
    const char *error = interp_run(code, bytes, x, ranges, count, &steps);
    if (error) { snprintf(why, room, "%s", error); return 1; }
    memcpy(got, u->raw, sizeof got);
    memcpy(u->raw, before, sizeof before);
    s.stands_for = s.dot;
    s.dot = DOT_PLAIN;
    s.abreast = 1;
    plain.spec = &s;
    plain.panels = u->panels * u->s.abreast;
    plain.c = u->want;
    plain_kernel(&plain);
    if (memcmp(u->c, u->want, u->c_bytes)) { snprintf(why, room, "C differs"); return 1; }
    for (int i = 0; u->x.raw_out && i < u->s.rows * NR_FLOAT; i++)
        if (i % NR_FLOAT < u->s.cols && memcmp(&got[i], &u->raw[i], 4)) { snprintf(why, room, "the sums differ"); return 1; }
    return 0;
}

static void each_float(dot_kind dot, int rounds)
{
    char why[300], name[KERNEL_NAME];
    int count = 0;
    for (int round = 0; round < rounds; round++)
        for (int rows = 1; rows <= MR_FLOAT; rows++)
            for (int cols = 1; cols <= NR_FLOAT; cols++)
                for (int again = 0; again < (cols == NR_FLOAT ? 6 : 1); again++) {
                    rng r = { ((uint64_t)round * 1000 + (uint64_t)rows * 100 + (uint64_t)cols + 7777 * (uint64_t)again) * 0x9e3779b9 + dot };
                    static float_setup u;
                    float_new(&u, &r, dot, rows, cols);
                    kernel_name(&u.s, name);
                    cr_assert_eq(float_compare(&u, why, sizeof why), 0, "%s (round %d, %d): %s", name, round, again, why);
                    float_free(&u);
                    count++;
                }
    cr_log_info("%d kernels", count);
}

Test(kernels, f32) { each_float(DOT_F32, 10); }
Test(kernels, f16) { each_float(DOT_F16, 6); }
Test(kernels, bf16) { each_float(DOT_BF16, 6); }
Test(kernels, s8_widened) { each_float(DOT_FS8, 6); }
Test(kernels, s4_widened) { each_float(DOT_FS4, 8); }

Test(kernels, w) { each(DOT_W, 14); }
Test(kernels, ws) { each(DOT_WS, 24); }
Test(kernels, s) { each(DOT_S, 60); }
Test(kernels, t1) { each(DOT_T1, 12); }
Test(kernels, t2) { each(DOT_T2, 12); }
Test(kernels, t4) { each(DOT_T4, 12); }

/* The interpreter must fail what deserves it: a mutant of each kind. */
Test(kernels, the_interpreter_sees_a_byte_too_far)
{
    char why[300];
    int caught = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rng r = { seed * 77 };
        setup u;
        setup_new(&u, &r, DOT_T2, 8, 8);
        u.c_bytes--; /* one byte of C less is granted than is written */
        if (!u.x.raw_out) caught += compare(&u, why, sizeof why) && strstr(why, "outside its buffers");
        else caught++;
        u.c_bytes++;
        setup_free(&u);
    }
    cr_assert_eq(caught, 40);
}

Test(kernels, invalid_specs_are_refused)
{
    static uint8_t code[32768];
    size_t bytes;
    const kernel_spec ok = { .dot = DOT_T2, .form = A_QUADS, .rows = 8, .cols = 8, .c = OCTET_S32 };
    kernel_spec s;
    cr_assert_eq(gen_kernel(&ok, code, sizeof code, &bytes), OCTET_OK);
    cr_assert_eq(gen_kernel(&ok, code, 64, &bytes), OCTET_ENOMEM);
#define REFUSES(change) s = ok; change; cr_expect_eq(gen_kernel(&s, code, sizeof code, &bytes), OCTET_EUNSUPPORTED, #change)
    REFUSES(s.dot = DOT_PLAIN);
    REFUSES(s.dot = DOT_COUNT);
    REFUSES(s.rows = 0);
    REFUSES(s.rows = 9);
    REFUSES(s.cols = 0);
    REFUSES(s.cols = 9);
    REFUSES(s.k_tail = 4);
    REFUSES(s.form = A_WIDE);
    REFUSES(s.form = A_FORMS);
    REFUSES(s.c = 0);
    REFUSES((s.dot = DOT_W, s.form = A_WIDE, s.rows = 7));
    REFUSES((s.dot = DOT_S, s.form = A_SPLIT, s.rows = 2));
    const kernel_spec real = { .dot = DOT_F32, .form = A_PLACE, .rows = 6, .cols = 16, .abreast = 1, .a = OCTET_F32, .c = OCTET_F32 };
    cr_assert_eq(gen_kernel(&real, code, sizeof code, &bytes), OCTET_OK);
#undef REFUSES
#define REFUSES(change) s = real; change; cr_expect_eq(gen_kernel(&s, code, sizeof code, &bytes), OCTET_EUNSUPPORTED, #change)
    REFUSES(s.rows = 7);
    REFUSES(s.cols = 17);
    REFUSES(s.form = A_QUADS);
    REFUSES(s.abreast = 4);
    REFUSES(s.c = OCTET_U8);
    REFUSES(s.group = 1);
    REFUSES(s.zero_b = 1);
    REFUSES((s.dot = DOT_F16, s.b_place = 1));
    REFUSES(s.chain[0] = 15);
    REFUSES(s.chain[1] = OCTET_OP_RELU);
    REFUSES(s.chain[0] = OCTET_OP_SWIGLU);
}
