/*
 * Embedding bags, top to bottom: a bag's border; the head of a row (index, check, place, prefetch, weight); its values into the
 * sums; the bag finished, converted, stored. Rare things (bad, padding and pruned indices) stand behind the code.
 * See gen_bag.h for the contract, octet/embedding.h for what is computed.
 */
#include <stdio.h>

#include "format.h"
#include "gen_bag_parts.h"

static const int put_away[6] = { RBX, RBP, R12, R13, R14, R15 };

/* ---- a row's head ---- */

/* The place of the row that `ahead` indices on will be wanted, to B_NEXT. */
static void look_ahead(bag_gen *g)
{
    assembler *as = g->as;
    load_index(g, B_NEXT, at(B_AHEAD, 0));
    if (g->s->remap) { /* further ahead, its entry of the remap array; then the entry that came, if there is one */
        copy(g, B_X, B_AHEAD);
        op_mem(as, ADD, 0, B_X, 0, FIELD(further), 0);
        cmp(g, B_LAST, B_X);
        op_reg(as, CMOVB, 0, B_X, 0, B_LAST, 0);
        load_index(g, B_X, at(B_X, 0));
        mov(g, B_ROW, FIELD(remap));
        op_mem(as, PREFETCHT1, 0, 0, 0, at_index(B_ROW, B_X, 4, 0), 0);
        const label none = asm_label(as);
        op_mem(as, CMP, 0, B_NEXT, 0, FIELD(remap_rows), 0);
        asm_jcc(as, CC_AE, none); /* wherever that then points, it is but a prefetch */
        op_mem(as, MOVSXD, 0, B_NEXT, 0, at_index(B_ROW, B_NEXT, 4, 0), 0);
        asm_place(as, none);
    }
    ri(as, ADDI, B_AHEAD, g->index_bytes);
    cmp(g, B_LAST, B_AHEAD);
    op_reg(as, CMOVB, 0, B_AHEAD, 0, B_LAST, 0);
    op_mem(as, IMUL, 0, B_NEXT, 0, FIELD(stride), 0);
}

/* The rows of BAG_NEAR indices on once more: the first prefetch may have come to nothing while all miss buffers were taken. */
static void look_near(bag_gen *g)
{
    op_mem(g->as, LEA, 0, B_NEXT, 0, at(B_INDEX, BAG_NEAR * g->index_bytes), 0);
    cmp(g, B_LAST, B_NEXT);
    op_reg(g->as, CMOVB, 0, B_NEXT, 0, B_LAST, 0);
    load_index(g, B_NEXT, at(B_NEXT, 0));
    op_mem(g->as, IMUL, 0, B_NEXT, 0, FIELD(stride), 0);
}

/* The index at B_INDEX becomes the place of its row in B_ROW, or the code goes where such an index goes. */
static void row_head(bag_gen *g)
{
    assembler *as = g->as;
    const bag_spec *s = g->s;
    if (s->ahead) look_ahead(g);
    load_index(g, B_ROW, at(B_INDEX, 0));
    if (s->padding) {
        op_mem(as, CMP, 0, B_ROW, 0, FIELD(padding), 0);
        asm_jcc(as, CC_Z, g->padded);
    }
    if (s->remap) {
        ri(as, CMPI, B_ROW, -1);
        asm_jcc(as, CC_Z, g->pruned);
        if (s->bad != OCTET_BAD_TRUST) {
            op_mem(as, CMP, 0, B_ROW, 0, FIELD(remap_rows), 0);
            asm_jcc(as, CC_AE, g->bad);
        }
        mov(g, B_X, FIELD(remap));
        op_mem(as, MOVSXD, 0, B_ROW, 0, at_index(B_X, B_ROW, 4, 0), 0);
        ri(as, CMPI, B_ROW, -1);
        asm_jcc(as, CC_Z, g->pruned);
    }
    if (s->bad != OCTET_BAD_TRUST) {
        if (s->ahead) op_mem(as, CMP, 0, B_ROW, 0, FIELD(rows), 0);
        else cmp(g, B_ROW, B_ROWS);
        asm_jcc(as, CC_AE, g->bad);
    }
    asm_place(as, g->good);
    if (s->ahead) op_mem(as, IMUL, 0, B_ROW, 0, FIELD(stride), 0);
    else op_reg(as, IMUL, 0, B_ROW, 0, B_STRIDE, 0);
    row_scale(g);
}

static void next_index(bag_gen *g)
{
    asm_place(g->as, g->skip);
    ri(g->as, ADDI, B_INDEX, g->index_bytes);
    if (g->weighted) ri(g->as, ADDI, B_WEIGHT, 4);
}

/* What rarely happens. */
static void stubs(bag_gen *g)
{
    assembler *as = g->as;
    const bag_spec *s = g->s;
    asm_place(as, g->bad);
    if (s->bad == OCTET_BAD_ERROR) {
        zero(g, B_X);
        ri(as, ADDI, B_X, BAG_BAD_INDEX);
        asm_jump(as, g->leave);
    } else {
        increment(g, FIELD(bad));
        if (s->bad == OCTET_BAD_ROW0) {
            zero(g, B_ROW);
            op_mem(as, CMP, 0, B_ROW, 0, FIELD(rows), 0);
            asm_jcc(as, CC_B, g->good); /* unless there is no row */
        }
    }
    asm_place(as, g->pruned);
    if (g->max) ri(as, ADDI, B_SKIPPED, 1);
    asm_jump(as, g->skip);
    asm_place(as, g->padded);
    if (g->counts) ri(as, ADDI, B_SKIPPED, 1);
    asm_jump(as, g->skip);
    asm_place(as, g->bad_offset);
    zero(g, B_X);
    ri(as, ADDI, B_X, BAG_BAD_OFFSET);
    asm_jump(as, g->leave);
    asm_place(as, g->few_weights);
    zero(g, B_X);
    ri(as, ADDI, B_X, BAG_FEW_WEIGHTS);
    asm_jump(as, g->leave);
}

/* ---- a bag ---- */

/* B_END: where its indices end; its length is kept. */
static void begin_bag(bag_gen *g)
{
    assembler *as = g->as;
    const bag_spec *s = g->s;
    if (s->pooling == OCTET_NONE) {
        op_mem(as, LEA, 0, B_END, 0, at(B_INDEX, g->index_bytes), 0);
    } else {
        op_mem(as, s->offset32 ? MOVSXD : MOV, 0, B_ROW, 0, at(B_OFFSET, 0), 0);
        ri(as, ADDI, B_OFFSET, s->offset32 ? 4 : 8);
        mov(g, B_X, FIELD(at));
        if (s->lengths) op_reg(as, ADD, 0, B_ROW, 0, B_X, 0);
        mov(g, B_END, FIELD(count));
        cmp(g, B_END, B_ROW); /* unsigned: a negative one is large */
        asm_jcc(as, CC_B, g->bad_offset);
        cmp(g, B_ROW, B_X);
        asm_jcc(as, CC_B, g->bad_offset);
        mov(g, B_END, FIELD(indices));
        op_mem(as, LEA, 0, B_END, 0, at_index(B_END, B_ROW, g->index_bytes, 0), 0);
        copy(g, B_NEXT, B_ROW);
        op_reg(as, SUB, 0, B_NEXT, 0, B_X, 0);
        if (s->weights == OCTET_WEIGHT_POSITION) {
            mov(g, B_X, FIELD(weight_count));
            cmp(g, B_X, B_NEXT);
            asm_jcc(as, CC_B, g->few_weights);
        }
        put(g, FIELD(at), B_ROW);
        put(g, FIELD(length), B_NEXT);
    }
    if (s->weights == OCTET_WEIGHT_POSITION) mov(g, B_WEIGHT, FIELD(weights));
    if (g->counts) zero(g, B_SKIPPED);
    if (g->quantized && !g->max) rrr(as, VPXOR, V_BETA, V_BETA, V_BETA);
}

static void clear_sums(bag_gen *g, int n)
{
    if (g->max) {
        mov(g, B_X, FIELD(consts));
        rm(g->as, VMOVDQU, 0, CONST(B_X, lowest));
        for (int i = 1; i < n; i++) rrr(g->as, VPOR, i, 0, 0);
        return;
    }
    for (int i = 0; i < n; i++) rrr(g->as, VPXOR, i, i, i);
}

/* 1 / length, or 0 where nothing counts, to bag_args.inverse. */
static void divisor(bag_gen *g)
{
    assembler *as = g->as;
    const label none = asm_label(as);
    mov(g, B_X, FIELD(length));
    if (g->counts) op_reg(as, SUB, 0, B_X, 0, B_SKIPPED, 0);
    rrr(as, VPXOR, V_VALUE, V_VALUE, V_VALUE);
    op_reg(as, TEST, 0, B_X, 0, B_X, 0);
    asm_jcc(as, CC_Z, none);
    op_reg(as, VCVTSI2SS, XMM, V_VALUE, V_VALUE, B_X, 0);
    op_reg(as, VBROADCASTSS, YMM, V_VALUE, 0, V_VALUE, 0);
    mov(g, B_X, FIELD(consts));
    rm(as, VMOVDQU, V_SCALE, CONST(B_X, shrink));
    rrr(as, VDIVPS, V_VALUE, V_SCALE, V_VALUE);
    asm_place(as, none);
    rm(as, VMOVDQU_ST, V_VALUE, FIELD(inverse));
}

/* Vectors v0 .. of a bag, in ymm 0 up, to the output. */
static void finish(bag_gen *g, int v0, int n)
{
    assembler *as = g->as;
    const bag_spec *s = g->s;
    const int bytes = s->out == OCTET_F32 ? 4 : 2;
    if (g->max) { /* nothing seen: +0 */
        const label seen = asm_label(as);
        mov(g, B_X, FIELD(length));
        cmp(g, B_X, B_SKIPPED);
        asm_jcc(as, CC_NZ, seen);
        for (int i = 0; i < n; i++) rrr(as, VPXOR, i, i, i);
        asm_place(as, seen);
    }
    if (s->out == OCTET_BF16) mov(g, R_TMP, FIELD(consts));
    for (int i = 0; i < n; i++) {
        const bag_vec *v = &g->v[v0 + i];
        if (g->quantized && !g->max) rrr(as, VADDPS, i, i, V_BETA);
        if (s->pooling == OCTET_MEAN) rrm(as, VMULPS, i, i, FIELD(inverse));
        if (s->out == OCTET_F16) op_reg(as, VCVTPS2PH, YMM, i, 0, i, 0);
        if (s->out == OCTET_BF16) to_bf16(as, i, V_VALUE, V_SCALE);
        store_exact(as, i, at(B_OUT, v->col * bytes), v->cols * bytes);
    }
}

/* All sums in registers. */
static void whole_rows(bag_gen *g)
{
    assembler *as = g->as;
    const label done = asm_label(as);
    clear_sums(g, g->vecs);
    cmp(g, B_INDEX, B_END);
    asm_jcc(as, CC_Z, done);
    asm_place(as, g->row);
    row_head(g);
    if (g->s->ahead) {
        const int values = row_values(g->s);
        row_prefetch(g, B_NEXT, 0, values);
        if (!g->s->remap && values > 16) {
            look_near(g);
            row_prefetch(g, B_NEXT, 0, values);
        }
    }
    for (int i = 0; i < g->vecs; i++) row_add(g, i, &g->v[i]);
    next_index(g);
    cmp(g, B_INDEX, B_END);
    asm_jcc(as, CC_NZ, g->row);
    asm_place(as, done);
    if (g->s->pooling == OCTET_MEAN) divisor(g);
    finish(g, 0, g->vecs);
}

/* One block of columns: the sums so far, the group's rows, and the bag finished if its indices are through. */
static void group_block(bag_gen *g, int v0, int n)
{
    assembler *as = g->as;
    const bag_spec *s = g->s;
    const int values = row_values(s);
    const int64_t sums = (int64_t)offsetof(bag_args, sums) + 32 * v0;
    const label fresh = asm_label(as), begun = asm_label(as), again = asm_label(as), none = asm_label(as), keep = asm_label(as), on = asm_label(as);
    mov(g, B_X, FIELD(started));
    op_reg(as, TEST, 0, B_X, 0, B_X, 0);
    asm_jcc(as, CC_Z, fresh);
    for (int i = 0; i < n; i++) rm(as, VMOVDQU, i, at(B_ARGS, sums + 32 * i));
    asm_jump(as, begun);
    asm_place(as, fresh);
    clear_sums(g, n);
    asm_place(as, begun);
    zero(g, B_X);
    op_reg(as, TEST, 0, B_GROUP, 0, B_GROUP, 0);
    asm_jcc(as, CC_Z, none);
    asm_place(as, again);
    mov(g, B_ROW, at_index(B_ARGS, B_X, 8, offsetof(bag_args, place)));
    if (s->ahead) {
        mov(g, B_NEXT, at_index(B_ARGS, B_X, 8, offsetof(bag_args, next_place)));
        row_prefetch(g, B_NEXT, g->v[v0].byte, v0 + n == g->vecs ? values : g->v[v0 + n].byte);
    }
    if (g->quantized || g->weighted) rm(as, VBROADCASTSS, V_SCALE, at_index(B_ARGS, B_X, 4, offsetof(bag_args, scale)));
    if (g->quantized && g->max) rm(as, VBROADCASTSS, V_BETA, at_index(B_ARGS, B_X, 4, offsetof(bag_args, bias)));
    for (int i = 0; i < n; i++) row_add(g, i, &g->v[v0 + i]);
    ri(as, ADDI, B_X, 1);
    cmp(g, B_X, B_GROUP);
    asm_jcc(as, CC_NZ, again);
    asm_place(as, none);
    cmp(g, B_INDEX, B_END);
    asm_jcc(as, CC_NZ, keep);
    finish(g, v0, n);
    asm_jump(as, on);
    asm_place(as, keep);
    for (int i = 0; i < n; i++) rm(as, VMOVDQU_ST, i, at(B_ARGS, sums + 32 * i));
    asm_place(as, on);
}

static void rows_in_groups(bag_gen *g)
{
    assembler *as = g->as;
    const label group = asm_label(as), filled = asm_label(as), done = asm_label(as);
    zero(g, B_X);
    put(g, FIELD(started), B_X);
    asm_place(as, group);
    zero(g, B_GROUP);
    asm_place(as, g->row);
    cmp(g, B_INDEX, B_END);
    asm_jcc(as, CC_Z, filled);
    ri(as, CMPI, B_GROUP, BAG_GROUP);
    asm_jcc(as, CC_Z, filled);
    row_head(g);
    put(g, at_index(B_ARGS, B_GROUP, 8, offsetof(bag_args, place)), B_ROW);
    if (g->s->ahead) put(g, at_index(B_ARGS, B_GROUP, 8, offsetof(bag_args, next_place)), B_NEXT);
    const int values = row_values(g->s);
    if (g->s->ahead && !g->s->remap && values < BAG_NEAR_BYTES) {
        look_near(g);
        row_prefetch(g, B_NEXT, 0, values);
    }
    if (g->quantized || g->weighted) op_mem(as, VMOVD_ST, XMM, V_SCALE, 0, at_index(B_ARGS, B_GROUP, 4, offsetof(bag_args, scale)), 0);
    if (g->quantized && g->max) op_mem(as, VMOVD_ST, XMM, V_BETA, 0, at_index(B_ARGS, B_GROUP, 4, offsetof(bag_args, bias)), 0);
    ri(as, ADDI, B_GROUP, 1);
    next_index(g);
    asm_jump(as, g->row);
    asm_place(as, filled);
    if (g->s->pooling == OCTET_MEAN) divisor(g); /* in vain but for the last group */
    const int blocks = (g->vecs + g->sums - 1) / g->sums;
    for (int b = 0, v = 0; b < blocks; b++) {
        const int n = (g->vecs - v + blocks - b - 1) / (blocks - b);
        group_block(g, v, n);
        v += n;
    }
    cmp(g, B_INDEX, B_END);
    asm_jcc(as, CC_Z, done);
    zero(g, B_X);
    ri(as, ADDI, B_X, 1);
    put(g, FIELD(started), B_X);
    asm_jump(as, group);
    asm_place(as, done);
}

static bool bag_valid(const bag_spec *s)
{
    const int cols = bag_cols(s);
    for (size_t i = 0; i < sizeof s->unused; i++)
        if (s->unused[i]) return false;
    return s->dot == DOT_BAG && bag_bits((octet_dtype)s->table) && cols >= 1 && cols <= BAG_COLS && s->pooling <= OCTET_NONE
        && s->weights <= OCTET_WEIGHT_POSITION && s->bad <= OCTET_BAD_TRUST && !(s->weights && s->pooling == OCTET_MAX)
        && (s->out == OCTET_F32 || s->out == OCTET_F16 || s->out == OCTET_BF16) && (bag_quantized(s) || (!s->half && !s->front))
        && s->half <= 1 && s->front <= 1 && s->index32 <= 1 && s->offset32 <= 1 && s->lengths <= 1 && s->padding <= 1 && s->remap <= 1 && s->ahead <= 1;
}

octet_status gen_bag(const bag_spec *s, uint8_t *out, size_t room, size_t *bytes)
{
    assembler as;
    if (!bag_valid(s)) return OCTET_EUNSUPPORTED;
    asm_begin(&as, out, room);
    bag_gen g = { .as = &as, .s = s, .quantized = bag_quantized(s), .max = s->pooling == OCTET_MAX, .weighted = s->weights != 0,
                  .index_bytes = s->index32 ? 4 : 8 };
    g.counts = g.max || (s->pooling == OCTET_MEAN && s->padding);
    row_plan(&g);
    g.grouped = g.vecs > g.sums;
    label *const labels[] = { &g.row, &g.skip, &g.bad, &g.good, &g.padded, &g.pruned, &g.bad_offset, &g.few_weights, &g.leave };
    for (size_t i = 0; i < COUNT(labels); i++) *labels[i] = asm_label(&as);
    const label next = asm_label(&as), out_of_bags = asm_label(&as);

    for (int i = 0; i < 6; i++) put(&g, at(B_ARGS, (int64_t)offsetof(bag_args, saved) + 8 * i), put_away[i]);
    row_constants(&g);
    mov(&g, B_DATA, FIELD(data));
    mov(&g, B_PARAMS, FIELD(params));
    mov(&g, B_INDEX, FIELD(index));
    mov(&g, s->ahead ? B_AHEAD : B_ROWS, s->ahead ? FIELD(ahead) : FIELD(rows));
    mov(&g, s->ahead ? B_LAST : B_STRIDE, s->ahead ? FIELD(last) : FIELD(stride));
    mov(&g, B_OFFSET, FIELD(offsets));
    mov(&g, B_OUT, FIELD(out));
    if (s->weights == OCTET_WEIGHT_EACH) mov(&g, B_WEIGHT, FIELD(weights));

    asm_place(&as, next);
    mov(&g, B_X, FIELD(bags));
    op_reg(&as, TEST, 0, B_X, 0, B_X, 0);
    asm_jcc(&as, CC_Z, out_of_bags);
    begin_bag(&g);
    if (g.grouped) rows_in_groups(&g);
    else whole_rows(&g);
    op_mem(&as, ADD, 0, B_OUT, 0, FIELD(out_step), 0);
    mov(&g, B_X, FIELD(bags));
    ri(&as, SUBI, B_X, 1);
    put(&g, FIELD(bags), B_X);
    asm_jump(&as, next);
    stubs(&g);
    asm_place(&as, out_of_bags);
    zero(&g, B_X);
    asm_place(&as, g.leave);
    put(&g, FIELD(status), B_X);
    put(&g, FIELD(index), B_INDEX); /* so that another call can go on from here */
    if (s->ahead) put(&g, FIELD(ahead), B_AHEAD);
    put(&g, FIELD(offsets), B_OFFSET);
    if (s->weights == OCTET_WEIGHT_EACH) put(&g, FIELD(weights), B_WEIGHT);
    for (int i = 0; i < 6; i++) mov(&g, put_away[i], at(B_ARGS, (int64_t)offsetof(bag_args, saved) + 8 * i));
    op_reg(&as, VZEROUPPER, XMM, 0, 0, 0, 0);
    op_reg(&as, RET, 0, 0, 0, 0, 0);
    return asm_finish(&as, bytes);
}

const char *table_name(octet_dtype t)
{
    const format *f = format_of(t);
    return t == OCTET_U2 ? "u2" : f ? f->name : "?"; /* no product has u2 */
}

void bag_name(const bag_spec *s, char name[KERNEL_NAME])
{
    static const char *const poolings[] = { "sum", "mean", "max", "none" }, *const weights[] = { "", "-each", "-position" },
                      *const bad[] = { "", "-skip", "-row0", "-trust" };
    const format *out = format_of((octet_dtype)s->out);
    snprintf(name, KERNEL_NAME, "bag-%s%s%s-%s%s-%d-s%d-%s%s%s%s%s", table_name((octet_dtype)s->table), s->half ? "-half" : "", s->front ? "-front" : "",
             poolings[s->pooling & 3], weights[s->weights % 3], bag_cols(s), s->index32 ? 32 : 64, out ? out->name : "?", bad[s->bad & 3],
             s->padding ? "-pad" : "", s->remap ? "-remap" : "", s->ahead ? "" : "-near");
}
