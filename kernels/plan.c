/*
 * From a description to decisions: the only place that decides. Checks every promise of
 * octet_gemm_desc, picks the generated or the portable kernels, the block sizes, and which kernels a
 * packed B can reach; octet_explain tells.
 */
#include <stdio.h>

#include "code.h"
#include "format.h"
#include "gemm.h"
#include "gpu_plan.h"

/* ---- kernels of a plan ---- */

kernel_spec plan_spec(const octet_plan *p, bool zero_b, int dot, bool place, int kind, int cols, int rows)
{
    const octet_gemm_desc *d = &p->desc;
    const bool integer = d->c == OCTET_U8 || d->c == OCTET_S8, floating = p->b.floating;
    const int64_t half = p->b.nr / 2, rest = p->out_n % half;
    kernel_spec s = {
        .dot = (uint8_t)dot,
        .stands_for = (uint8_t)(dot == DOT_PLAIN && floating ? p->dot : 0),
        .form = (uint8_t)(place ? A_PLACE : floating ? A_FLOAT : families[dot].form),
        .rows = (uint8_t)rows,
        .cols = (uint8_t)cols,
        .abreast = (uint8_t)(kind == KIND_FOUR ? 4 : kind == KIND_TWO ? 2 : 1),
        .a = (uint8_t)(floating ? OCTET_F32 : OCTET_U8),
        .c = (uint8_t)d->c,
        .zero_b = zero_b,
        .bias = d->bias == OCTET_S32 ? BIAS_S32 : d->bias == OCTET_F32 ? BIAS_F32 : BIAS_NONE,
        .accumulate = (d->flags & OCTET_ACCUMULATE) != 0,
        .clamp = !integer && (d->flags & (OCTET_RELU | OCTET_CLIP)),
        .gate_cols = (uint8_t)(!p->b.gated ? 0 : kind == KIND_LAST ? rest : half),
    };
    memcpy(s.chain, p->chain, sizeof s.chain);
    if (floating) {
        s.k_tail = (uint8_t)(dot == DOT_FS4 ? d->k % 8 : 0);
        s.scale_b = p->dot == DOT_FS8 || p->dot == DOT_FS4;
        s.group = p->b.groups > 1;
        if (dot == DOT_F32) s.zero_b = 0; /* taken off when the panel was widened */
    } else {
        s.k_tail = (uint8_t)(dot == DOT_WS ? 0 : d->k % 4);
        s.zero_a = p->zero_rows ? ZERO_A_ROWS : ZERO_A_ONE;
        s.scale_a_rows = d->scale_a == OCTET_PER_ROW && d->c != OCTET_S32;
    }
    return s;
}

/* May A be read where it lies? Every panel must be proven for any A, and no sums or residual need A packed. */
bool plan_places(const octet_plan *p, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual)
{
    return p->desc.a == OCTET_U8 && !p->desc.trans_a && !zero_b && !has_residual && !(dots[0] & ~(unsigned)T_DOTS);
}

static bool generate_one(const octet_plan *p, bool zero_b, int dot, bool place, bool b_place, int kind, int cols, int rows)
{
    kernel_set *set = &p->sets[zero_b];
    const int at = b_place ? set_index_b_place(place, kind, rows) : set_index(dot, place, kind, rows);
    if (atomic_load_explicit(&set->code[at], memory_order_acquire)) return true;
    kernel_spec spec = plan_spec(p, zero_b, dot, place, kind, cols, rows);
    spec.b_place = b_place;
    kernel *k = cache_acquire(&spec), *none = NULL;
    if (!k) return false;
    const kernel_fn code = kernel_code(k); /* the same for whoever comes first */
    if (!atomic_compare_exchange_strong(&set->at[at], &none, k)) cache_release(k);
    atomic_store_explicit(&set->code[at], code, memory_order_release);
    return true;
}

static bool generate(const octet_plan *p, bool zero_b, int dot, bool place, bool b_place)
{
    kernel_set *set = &p->sets[zero_b];
    const family *f = &families[dot];
    const unsigned bit = 1u << (2 * (b_place ? DOT_PLAIN : dot) + place);
    const int half = p->b.nr / (p->b.gated ? 2 : 1);
    if (atomic_load_explicit(&set->ready, memory_order_acquire) & bit) return true;
    for (int kind = 0; kind < (dot_is_float(dot) ? KINDS : 2); kind++) {
        const int64_t tail = p->out_n % half, panels = p->out_n / half;
        const int64_t need = kind == KIND_FOUR ? 4 : kind == KIND_TWO ? 2 : 1;
        const int cols = kind == KIND_LAST && !p->b.gated ? (int)tail : p->b.nr;
        if (kind == KIND_LAST ? !tail : panels < need) continue;
        for (int rows = f->min_rows; rows <= f->mr; rows++) {
            if (need > 1 && (dot_abreast(rows) < need)) break;
            if (!generate_one(p, zero_b, dot, place, b_place, kind, cols, rows)) return false;
        }
    }
    atomic_fetch_or(&set->ready, bit);
    return true;
}

/* A floating plan: B's own type and, where large m would have panels widened, f32. */
static bool generate_floats(const octet_plan *p, bool zero_b)
{
    for (int dot = p->dot;; dot = DOT_F32) {
        const bool along_k = !p->desc.trans_a || p->any_view;
        if (along_k && !generate(p, zero_b, dot, true, false)) return false;
        if ((!along_k || p->any_view) && !generate(p, zero_b, dot, false, false)) return false;
        if (dot == DOT_F32) return true;
    }
}

bool plan_generate_b_place(const octet_plan *p)
{
    return !p->cpu || generate(p, false, DOT_F32, !p->desc.trans_a, true);
}

bool plan_generate(const octet_plan *p, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual)
{
    if (!p->cpu) return true;
    if (p->b.floating) return generate_floats(p, zero_b);
    unsigned want = dots[0] | dots[1] | (p->any_view ? W_DOTS : 0);
    if (want & W_DOTS) want |= 1u << DOT_WS | 1u << DOT_S;
    const bool place = plan_places(p, zero_b, dots, has_residual);
    for (int dot = DOT_W; dot < DOT_F32; dot++) {
        if (!(want >> dot & 1)) continue;
        if (!generate(p, zero_b, dot, false, false)) return false;
        if (place && families[dot].place && !generate(p, zero_b, dot, true, false)) return false;
    }
    return true;
}

octet_status octet_warm(const octet_gemm_desc *descs, size_t stride, size_t count)
{
    static const unsigned every[AMAX_LEVELS] = { W_DOTS, W_DOTS | T_DOTS };
    static const unsigned proven[AMAX_LEVELS] = { T_DOTS, T_DOTS };
    if (count && (!descs || stride < sizeof(size_t))) return fail(OCTET_EINVAL, "octet_warm: descs is NULL or stride too small");
    for (size_t i = 0; i < count; i++) {
        octet_plan *p;
        const octet_status st = octet_plan_gemm(NULL, (const octet_gemm_desc *)(const void *)((const char *)descs + i * stride), &p);
        if (st) return st;
        bool made = true;
        for (int zero_b = 0; zero_b < (is_floating(p->desc.b) ? 1 : 2); zero_b++) /* a floating B has no zero points */
            made = made && plan_generate(p, zero_b, every, true) && plan_generate(p, zero_b, proven, false);
        octet_plan_free(p);
        if (!made) return fail(OCTET_ENOMEM, "octet_warm: no room for the code of description %zu", i);
    }
    return OCTET_OK;
}

/* ---- plans ---- */

/* What is wrong with the chain; NULL if nothing. */
static const char *chain_breach(const octet_gemm_desc *d)
{
    int gate = -1;
    bool ended = false;
    for (int i = 0; i < OCTET_OPS; i++) {
        const octet_op *o = &d->chain[i];
        const bool operand = o->kind == OCTET_OP_ADD || o->kind == OCTET_OP_MUL || o->kind == OCTET_OP_PRELU;
        if (o->kind == 0 && (o->shape || o->type)) return "a step of the chain without a kind has a shape or a type";
        if (o->kind && ended) return "the chain has a gap";
        ended = o->kind == 0;
        if (ended) continue;
        if (o->kind < 0 || o->kind > OCTET_OP_GLU) return "a step of the chain is no octet_op_kind";
        if (o->shape < OCTET_SCALAR || o->shape > OCTET_FULL) return "the shape of a step is not OCTET_SCALAR, _PER_N, _PER_M or _FULL";
        if (o->type && !is_floating(o->type)) return "the type of a step's operand must be f32, f16 or bf16";
        if (!operand && (o->shape || o->type)) return "a step without an operand has a shape or a type";
        if (o->type && o->type != OCTET_F32 && o->shape == OCTET_PER_M) return "an operand by row must be f32";
        if (op_is_gate(o->kind)) {
            if (gate >= 0) return "the chain has two gates";
            if (d->n % 2) return "a gate needs an even n";
            if (d->bias) return "with a gate the bias is a step of the chain, not desc.bias";
            gate = i;
        }
    }
    for (int i = 0; i < gate; i++)
        if (d->chain[i].shape == OCTET_FULL) return "before a gate an operand may not be OCTET_FULL";
    return NULL;
}

const char *gemm_breach(const octet_gemm_desc *d)
{
    const unsigned flags = OCTET_ACCUMULATE | OCTET_RELU | OCTET_CLIP | OCTET_NO_FALLBACK | OCTET_REFUSE_OVERFLOW | OCTET_DYNAMIC | OCTET_REDUCED;
    const bool byte_c = d->c == OCTET_U8 || d->c == OCTET_S8, byte_a = d->a == OCTET_U8 || d->a == OCTET_S8;
    const bool nibbles = d->b == OCTET_S4 || d->b == OCTET_U4;
    if (d->n < 0 || d->k < 0 || d->m_hint < 0) return "n, k or m_hint is negative";
    if (!byte_a && !is_floating(d->a)) return "a must be OCTET_U8, OCTET_S8, OCTET_F32, OCTET_F16 or OCTET_BF16";
    if (d->b != OCTET_S8 && (byte_a || (!is_floating(d->b) && !nibbles)))
        return byte_a ? "b must be OCTET_S8 with an integer a" : "b must be OCTET_S8, OCTET_S4, OCTET_U4, OCTET_F32, OCTET_F16 or OCTET_BF16";
    if (d->c < OCTET_U8 || d->c > OCTET_BF16) return "c must be OCTET_U8, OCTET_S8, OCTET_S32, OCTET_F32, OCTET_F16 or OCTET_BF16";
    if (d->a_as && (byte_a || d->b != OCTET_S8)) return "a_as is for a floating a with an s8 b";
    if (d->a_as && d->a_as != OCTET_U8 && d->a_as != OCTET_S8 && d->a_as != OCTET_F32) return "a_as must be OCTET_U8, OCTET_S8 or OCTET_F32";
    if ((d->trans_a | d->trans_b | d->trans_c) & ~1) return "trans_a, trans_b and trans_c must be 0 or 1";
    if (d->flags & ~flags) return "flags has an unknown bit";
    if ((d->zero_a | d->scale_a) & ~1) return "zero_a and scale_a must be OCTET_PER_TENSOR or OCTET_PER_ROW";
    if (d->bias && d->bias != OCTET_S32 && d->bias != OCTET_F32) return "bias must be 0, OCTET_S32 or OCTET_F32";
    if (d->bias == OCTET_F32 && d->c == OCTET_S32) return "an s32 C takes an s32 bias";
    if ((d->flags & OCTET_ACCUMULATE) && byte_c) return "OCTET_ACCUMULATE needs an s32, f32, f16 or bf16 C";
    if (d->chain[0].kind && d->c == OCTET_S32) return "an s32 C takes no chain";
    const bool floats = met_as(d) == OCTET_F32;
    if (floats) {
        if (!is_floating(d->c)) return "c of a floating or weight-only product must be OCTET_F32, OCTET_F16 or OCTET_BF16";
        if (d->bias == OCTET_S32) return "a floating or weight-only product takes an f32 bias";
        if (d->zero_a || d->scale_a) return "zero_a and scale_a are for a quantized A";
    }
    if ((d->flags & OCTET_DYNAMIC) && (floats || byte_a)) return "OCTET_DYNAMIC quantizes a floating a for an s8 b";
    if ((d->flags & OCTET_DYNAMIC) && d->c == OCTET_S32) return "OCTET_DYNAMIC has no meaning for an s32 C, which would need its scales";
    if ((d->flags & OCTET_DYNAMIC) && d->zero_a) return "with OCTET_DYNAMIC zero_a is found, not given";
    if ((d->flags & OCTET_REDUCED) && (!(d->flags & OCTET_DYNAMIC) || met_as(d) != OCTET_U8)) return "OCTET_REDUCED goes with OCTET_DYNAMIC and u8";
    if (d->group && d->group != 32 && d->group != 64 && d->group != 128) return "group must be 0, 32, 64 or 128";
    if (d->group && (!floats || is_floating(d->b))) return "group is for weight-only products";
    return chain_breach(d);
}

/* How B lies when packed. */
static b_shape shape_of(const octet_gemm_desc *d)
{
    b_shape s = { .type = d->b, .floating = met_as(d) == OCTET_F32, .n = d->n, .k = d->k, .columns = d->n };
    s.nr = s.floating ? NR_FLOAT : NR;
    for (int i = 0; i < OCTET_OPS; i++) s.gated = s.gated || op_is_gate(d->chain[i].kind);
    if (s.gated) s.columns = 2 * round_up(d->n / 2, s.nr / 2);
    s.group = d->group && d->group < d->k ? d->group : max64(1, d->k);
    s.groups = max64(1, ceil_div(d->k, s.group));
    if (d->k <= INT64_C(1) << 56) s.stride = s.floating ? float_panel_stride(d->b, d->k) : panel_stride(d->k);
    return s;
}

static int dot_for(octet_dtype b)
{
    static const struct { octet_dtype b; dot_kind dot; } dots[] = {
        { OCTET_F32, DOT_F32 }, { OCTET_F16, DOT_F16 }, { OCTET_BF16, DOT_BF16 }, { OCTET_S8, DOT_FS8 }, { OCTET_S4, DOT_FS4 }, { OCTET_U4, DOT_FS4 },
    };
    for (size_t i = 0; i < COUNT(dots); i++)
        if (dots[i].b == b) return dots[i].dot;
    return DOT_PLAIN;
}

octet_status plan_create(octet_ctx *ctx, const octet_gemm_desc *desc, blocking blocks, bool any_view, bool quick, octet_plan **out)
{
    octet_gemm_desc d;
    size_t bytes;
    if (!desc || !out) return fail(OCTET_EINVAL, "octet_plan_gemm: %s is NULL", desc ? "out" : "desc");
    if (!copy_versioned(&d, sizeof d, offsetof(octet_gemm_desc, a_as), desc))
        return fail(OCTET_EINVAL, "octet_plan_gemm: desc->size is not of a known version; initialize with OCTET_GEMM_DESC");
    const char *broken = gemm_breach(&d);
    if (broken) return fail(OCTET_EINVAL, "octet_plan_gemm: %s", broken);
    const b_shape shape = shape_of(&d);
    if (d.n > INT64_C(1) << 56 || d.k > INT64_C(1) << 56 || !packed_bound(&shape, true, &bytes))
        return fail(OCTET_EINVAL, "octet_plan_gemm: n = %lld by k = %lld is too large", (long long)d.n, (long long)d.k);
    if ((d.flags & OCTET_REFUSE_OVERFLOW) && !shape.floating) {
        const int64_t safe = INT32_MAX / (255 * 255); /* with zero points, factors reach 255 in magnitude */
        if (d.k > safe)
            return fail(OCTET_EUNSUPPORTED, "octet_plan_gemm: at k = %lld a sum can pass 2^31 and OCTET_REFUSE_OVERFLOW "
                        "is set; up to k = %lld none can", (long long)d.k, (long long)safe);
    }
    const unsigned cpu = cpu_features();
    const bool generated = cpu && cache_enabled();
    if (!generated && (d.flags & OCTET_NO_FALLBACK))
        return fail(OCTET_EUNSUPPORTED, "octet_plan_gemm: %s, and OCTET_NO_FALLBACK is set",
                    cpu ? "this process may not make code executable" : family_refuses(&families[DOT_W], cpu));

    octet_ctx *c = ctx_hold(ctx);
    if (!c) return fail(OCTET_ENOMEM, "octet_plan_gemm: no memory for the process's context");
    octet_plan *p = mem_alloc(&c->allocator, sizeof *p);
    kernel_set *sets = mem_alloc(&c->allocator, 2 * sizeof *sets);
    if (!p || !sets || !ctx_prepare(c)) {
        mem_free(&c->allocator, sets, 2 * sizeof *sets);
        mem_free(&c->allocator, p, sizeof *p);
        ctx_drop(c);
        return fail(OCTET_ENOMEM, "octet_plan_gemm: no memory for a plan or its workspaces");
    }
    memset(p, 0, sizeof *p);
    memset(sets, 0, 2 * sizeof *sets);
    atomic_store(&p->refs, 1);
    p->ctx = c;
    p->desc = d;
    p->blocks = cpu_blocking(blocks);
    p->cpu = generated ? cpu : 0;
    p->a = format_of(d.a);
    p->c = format_of(d.c);
    p->a_as = format_of(plan_a_type(p));
    p->b = shape;
    p->out_n = shape.gated ? d.n / 2 : d.n;
    p->dot = shape.floating ? dot_for(d.b) : DOT_PLAIN;
    for (; p->steps < OCTET_OPS && d.chain[p->steps].kind; p->steps++) {
        const octet_op *o = &d.chain[p->steps];
        p->chain[p->steps] = (uint8_t)(o->kind | o->shape << 4 | (o->type == OCTET_F16 ? 1 : o->type == OCTET_BF16 ? 2 : 0) << 6);
    }
    p->zero_rows = d.zero_a == OCTET_PER_ROW || ((d.flags & OCTET_DYNAMIC) && d.scale_a == OCTET_PER_ROW && met_as(&d) == OCTET_U8);
    p->floats = d.c != OCTET_S32 || is_floating(d.a) || (d.flags & OCTET_CLIP);
    p->any_view = any_view;
    p->quick = quick;
    p->sets = sets;
    *out = p;
    return OCTET_OK;
}

octet_status octet_plan_gemm(octet_ctx *ctx, const octet_gemm_desc *desc, octet_plan **out)
{
    return plan_create(ctx, desc, (blocking){ 0 }, false, false, out);
}

octet_plan *plan_hold(const octet_plan *p)
{
    octet_plan *mine = (octet_plan *)(uintptr_t)p; /* a count is not a change */
    atomic_fetch_add(&mine->refs, 1);
    return mine;
}

void octet_plan_free(octet_plan *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
    octet_ctx *c = p->ctx;
    if (p->gpu) gpu_plan_drop(p);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < SET_SIZE; i++) cache_release(atomic_load(&p->sets[s].at[i]));
    mem_free(&c->allocator, p->sets, 2 * sizeof *p->sets);
    mem_free(&c->allocator, p, sizeof *p);
    ctx_drop(c);
}

/* ---- for people ---- */

const char *octet_explain(const octet_plan *p, const octet_packed *packed)
{
    static _Thread_local char text[320];
    if (!p) return "no plan";
    if (p->gpu) return gpu_explain(p, text, sizeof text);
    const octet_gemm_desc *d = &p->desc;
    const char *as = !is_floating(d->a) || p->b.floating ? "" : plan_a_type(p) == OCTET_U8 ? ":u8" : ":s8";
    int at = snprintf(text, sizeof text, "%s%s%s%s-%s", format_of(d->a)->name, as, format_of(d->b)->name, format_of(d->c)->name, p->cpu ? "avx2" : "plain");
    if (p->b.groups > 1) at += snprintf(text + at, sizeof text - (size_t)at, " group=%lld", (long long)p->b.group);
    if (packed && packed->blob->n && p->cpu && !p->b.floating) {
        int64_t count[DOT_COUNT] = { 0 };
        const blob *b = packed->blob;
        for (int64_t i = 0; i < blob_panels(b); i++) count[blob_info(b, i).dot[0]]++;
        for (int dot = DOT_W; dot < DOT_F32; dot++)
            if (count[dot])
                at += snprintf(text + at, sizeof text - (size_t)at, " %s %.0f%%", dot_name(dot) + 5, 100.0 * (double)count[dot] / (double)blob_panels(b));
        if (b->residual_quads)
            at += snprintf(text + at, sizeof text - (size_t)at, " residual %.1f%%",
                           100.0 * 4 * b->residual_quads / ((double)b->k * (double)blob_panels(b)));
    }
    snprintf(text + at, sizeof text - (size_t)at, ", nr=%d kc=%d threads=%d%s", p->b.nr, p->b.floating ? p->blocks.kc_float : packed ? packed->blob->kc : p->blocks.kc,
             p->ctx->threads, p->cpu ? "" : cpu_features() ? " (no executable memory)" : " (no AVX2)");
    return text;
}
