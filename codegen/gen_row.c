/*
 * One row of a table in registers: its values widened by format, its scale and bias, and how they meet the sums. The formats' tricks,
 * by what eight values cost: u8 widen, convert, multiply-add; u4 one load broadcast, each lane shifted and masked, convert,
 * multiply-add; u2 shifted, then looked up in four lanes; fp8 moved into f16's place.
 */
#include "gen_bag_parts.h"

int bag_vecs(const bag_spec *s, bag_vec v[BAG_VECS])
{
    const int bits = bag_bits((octet_dtype)s->table), cols = bag_cols(s), row = (cols * bits + 7) / 8;
    const int load = bits == 2 ? 4 : bits; /* bytes that eight values are loaded from */
    int n = 0;
    for (int col = 0; col < cols; col += 8) {
        int byte = col * bits / 8;
        if (byte + bits > row) byte = row >= bits ? row - bits : 0;  /* eight values are `bits` bytes */
        const int first = byte * 8 / bits, from = row >= load ? (byte + load > row ? row - load : byte) : 0;
        v[n++] = (bag_vec){ first, cols - first < 8 ? cols - first : 8, from, row < load ? row : load, 8 * (byte - from) };
    }
    return n;
}

static int constants_of(const bag_spec *s) /* registers below 12 */
{
    switch (s->table) {
    case OCTET_U4: return 2;
    case OCTET_U2: return 3;
    case OCTET_E4M3: return 4;
    default: return 0;
    }
}

void row_constants(bag_gen *g)
{
    assembler *as = g->as;
    mov(g, B_ROW, FIELD(consts));
    switch (g->s->table) {
    case OCTET_U4:
        rm(as, VMOVDQU, V_C1, CONST(B_ROW, shift4));
        rm(as, VMOVDQU, V_C2, CONST(B_ROW, nibble));
        break;
    case OCTET_U2:
        rm(as, VMOVDQU, V_C1, CONST(B_ROW, shift2));
        rm(as, VMOVDQU, V_C2, CONST(B_ROW, shift2_high));
        rm(as, VMOVDQU, V_C3, CONST(B_ROW, steps));
        break;
    case OCTET_E4M3:
        rm(as, VMOVDQU, V_C1, CONST(B_ROW, fp8_keep));
        rm(as, VMOVDQU, V_C2, CONST(B_ROW, fp8_nan));
        rm(as, VMOVDQU, V_C3, CONST(B_ROW, fp8_top));
        rm(as, VMOVDQU, V_C4, CONST(B_ROW, f256));
        break;
    default: break;
    }
}

/* V_VALUE = the vector's values in f32. */
static void widen(bag_gen *g, const bag_vec *v)
{
    assembler *as = g->as;
    const x86_mem m = at_index(B_DATA, B_ROW, 1, v->byte);
    const int bits = bag_bits((octet_dtype)g->s->table), full = bits == 2 ? 4 : bits;
    const bool exact = v->bytes < full;
    if (exact) load_exact(as, V_VALUE, m, v->bytes);
#define FROM(op, len) do { if (exact) op_reg(as, op, len, V_VALUE, 0, V_VALUE, 0); else op_mem(as, op, len, V_VALUE, 0, m, 0); } while (0)
    switch (g->s->table) {
    case OCTET_F32: if (!exact) rm(as, VMOVDQU, V_VALUE, m); break;
    case OCTET_F16: FROM(VCVTPH2PS, YMM); break;
    case OCTET_BF16:
        FROM(VPMOVZXWD, YMM);
        op_reg(as, VPSLLD, YMM, V_VALUE, 0, V_VALUE, 16);
        break;
    case OCTET_E5M2: /* the upper half of an f16 */
        FROM(VPMOVZXBW, XMM);
        op_reg(as, VPSLLW, XMM, V_VALUE, 0, V_VALUE, 8);
        rr(as, VCVTPH2PS, V_VALUE, V_VALUE);
        break;
    case OCTET_E4M3: /* an f16 with an exponent 8 less; 0x7f is NaN; V_BETA is free */
        FROM(VPMOVSXBW, XMM);
        op_reg(as, VPSLLW, XMM, V_VALUE, 0, V_VALUE, 7);
        op_reg(as, VPAND, XMM, V_VALUE, V_VALUE, V_C1, 0);
        op_reg(as, VPAND, XMM, V_BETA, V_VALUE, V_C2, 0);
        op_reg(as, VPCMPEQW, XMM, V_BETA, V_BETA, V_C2, 0);
        op_reg(as, VPAND, XMM, V_BETA, V_BETA, V_C3, 0);
        op_reg(as, VPOR, XMM, V_VALUE, V_VALUE, V_BETA, 0);
        rr(as, VCVTPH2PS, V_VALUE, V_VALUE);
        rrr(as, VMULPS, V_VALUE, V_VALUE, V_C4);
        break;
    case OCTET_U8:
        FROM(VPMOVZXBD, YMM);
        rr(as, VCVTDQ2PS, V_VALUE, V_VALUE);
        break;
    case OCTET_U4:
        FROM(VPBROADCASTD, YMM);
        rrr(as, VPSRLVD, V_VALUE, V_VALUE, V_C1);
        rrr(as, VPAND, V_VALUE, V_VALUE, V_C2);
        rr(as, VCVTDQ2PS, V_VALUE, V_VALUE);
        break;
    case OCTET_U2:
        FROM(VPBROADCASTD, YMM);
        if (v->shift == 8) op_reg(as, VPSRLD, YMM, V_VALUE, 0, V_VALUE, 8);
        rrr(as, VPSRLVD, V_VALUE, V_VALUE, v->shift == 16 ? V_C2 : V_C1);
        rrr(as, VPERMILPS, V_VALUE, V_C3, V_VALUE);
        break;
    default: break;
    }
#undef FROM
}

/* acc becomes the larger; of equals it stays; a NaN of either remains. */
static void keep_larger(bag_gen *g, int acc)
{
    const int unordered = g->quantized ? V_FREE : V_BETA; /* whichever is idle */
    op_reg(g->as, VCMPPS, YMM, unordered, V_VALUE, V_VALUE, 3);
    rrr(g->as, VMAXPS, acc, V_VALUE, acc); /* the second, where either is a NaN or both are equal */
    op_reg(g->as, VBLENDVPS, YMM, acc, acc, V_VALUE, unordered);
}

void row_add(bag_gen *g, int acc, const bag_vec *v)
{
    assembler *as = g->as;
    const bool set = g->s->pooling == OCTET_NONE, scaled = g->quantized || g->weighted;
    if (g->s->table == OCTET_F32 && v->bytes == 32 && !g->max) { /* straight from memory */
        const x86_mem m = at_index(B_DATA, B_ROW, 1, v->byte);
        if (set && !scaled) rm(as, VMOVDQU, acc, m);
        else if (set) rrm(as, VMULPS, acc, V_SCALE, m);
        else if (scaled) rrm(as, VFMADD231PS, acc, V_SCALE, m);
        else rrm(as, VADDPS, acc, acc, m);
        return;
    }
    widen(g, v);
    if (g->max) {
        if (g->quantized) {
            rrr(as, VMULPS, V_VALUE, V_VALUE, V_SCALE);
            rrr(as, VADDPS, V_VALUE, V_VALUE, V_BETA);
        }
        keep_larger(g, acc);
    } else if (set) {
        if (scaled) rrr(as, VMULPS, acc, V_VALUE, V_SCALE);
        else op_reg(as, VPOR, YMM, acc, V_VALUE, V_VALUE, 0);
    } else if (scaled) {
        rrr(as, VFMADD231PS, acc, V_VALUE, V_SCALE);
    } else {
        rrr(as, VADDPS, acc, acc, V_VALUE);
    }
}

void row_scale(bag_gen *g)
{
    assembler *as = g->as;
    const x86_mem p = at_index(B_PARAMS, B_ROW, 1, 0), p4 = at_index(B_PARAMS, B_ROW, 1, 4);
    if (!g->quantized) {
        if (g->weighted) rm(as, VBROADCASTSS, V_SCALE, at(B_WEIGHT, 0));
        return;
    }
    if (g->s->half) {
        op_mem(as, VPBROADCASTD, XMM, V_VALUE, 0, p, 0);
        rr(as, VCVTPH2PS, V_VALUE, V_VALUE); /* scale bias scale bias ... */
        op_reg(as, VPSHUFD, YMM, V_SCALE, 0, V_VALUE, 0xa0);
        op_reg(as, VPSHUFD, YMM, g->max ? V_BETA : V_FREE, 0, V_VALUE, 0xf5);
    } else {
        rm(as, VBROADCASTSS, V_SCALE, p);
        rm(as, VBROADCASTSS, g->max ? V_BETA : V_FREE, p4);
    }
    if (g->max) return;
    if (g->weighted) {
        rm(as, VBROADCASTSS, V_VALUE, at(B_WEIGHT, 0));
        rrr(as, VMULPS, V_SCALE, V_SCALE, V_VALUE);
        if (g->s->pooling == OCTET_NONE) rrr(as, VMULPS, V_BETA, V_FREE, V_VALUE);
        else rrr(as, VFMADD231PS, V_BETA, V_FREE, V_VALUE);
    } else if (g->s->pooling == OCTET_NONE) {
        rrr(as, VPOR, V_BETA, V_FREE, V_FREE);
    } else {
        rrr(as, VADDPS, V_BETA, V_BETA, V_FREE);
    }
}

void row_prefetch(bag_gen *g, int reg, int from, int to)
{
    const bag_spec *s = g->s;
    const int values = row_values(s), beside = g->quantized ? (s->half ? 4 : 8) : 0;
    const int begin = s->front ? -beside : 0, end = values + (s->front ? 0 : beside);
    for (int line = begin; line < end; line += 64)
        if ((line >= from || from == 0) && (line < to || to == values)) op_mem(g->as, PREFETCHT1, 0, 0, 0, at_index(B_DATA, reg, 1, line), 0);
    const int bytes = end - begin;
    if (bytes <= 16 && (bytes & (bytes - 1)) == 0) return; /* within a line, as such tables lie */
    if (to == values && bytes % 64 != 1) op_mem(g->as, PREFETCHT1, 0, 0, 0, at_index(B_DATA, reg, 1, end - 1), 0);
}

void row_plan(bag_gen *g)
{
    g->vecs = bag_vecs(g->s, g->v);
    g->sums = 12 - constants_of(g->s);
}
