/*
 * From a description to decisions: the only place that decides. Checks every promise of
 * octet_gemm_desc, picks the generated or the portable kernels, the block sizes, and which kernels a
 * packed B can reach; octet_explain tells.
 */
#include <stdio.h>

#include "code.h"
#include "format.h"
#include "gemm.h"

/* ---- kernels of a plan ---- */

kernel_spec plan_spec(const octet_plan *p, bool zero_b, int dot, bool place, int cols, int rows)
{
    const octet_gemm_desc *d = &p->desc;
    const bool integer = d->c == OCTET_U8 || d->c == OCTET_S8;
    return (kernel_spec){
        .dot = (uint8_t)dot,
        .form = (uint8_t)(place ? A_PLACE : families[dot].form),
        .rows = (uint8_t)rows,
        .cols = (uint8_t)cols,
        .k_tail = (uint8_t)(dot == DOT_WS ? 0 : d->k % 4),
        .c = (uint8_t)d->c,
        .zero_a = d->zero_a == OCTET_PER_ROW ? ZERO_A_ROWS : ZERO_A_ONE,
        .zero_b = zero_b,
        .scale_a_rows = d->scale_a == OCTET_PER_ROW && d->c != OCTET_S32,
        .bias = d->bias == OCTET_S32 ? BIAS_S32 : d->bias == OCTET_F32 ? BIAS_F32 : BIAS_NONE,
        .accumulate = (d->flags & OCTET_ACCUMULATE) != 0,
        .clamp = !integer && (d->flags & (OCTET_RELU | OCTET_CLIP)),
    };
}

/* May A be read where it lies? Every panel must be proven for any A, and no sums or residual need A packed. */
bool plan_places(const octet_plan *p, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual)
{
    return p->desc.a == OCTET_U8 && !p->desc.trans_a && !zero_b && !has_residual && !(dots[0] & ~(unsigned)T_DOTS);
}

static bool generate(const octet_plan *p, bool zero_b, int dot, bool place)
{
    kernel_set *set = &p->sets[zero_b];
    const family *f = &families[dot];
    const unsigned bit = 1u << (2 * dot + place);
    if (atomic_load_explicit(&set->ready, memory_order_acquire) & bit) return true;
    const int tail = (int)(p->desc.n % NR);
    for (int last = 0; last < 2; last++) {
        const int cols = last ? tail : p->desc.n >= NR ? NR : 0;
        for (int rows = f->min_rows; cols && rows <= f->mr; rows++) {
            _Atomic(kernel *) *at = &set->at[set_index(dot, place, last, rows)];
            if (atomic_load_explicit(&set->code[set_index(dot, place, last, rows)], memory_order_acquire)) continue;
            const kernel_spec spec = plan_spec(p, zero_b, dot, place, cols, rows);
            kernel *k = cache_acquire(&spec), *none = NULL;
            if (!k) return false;
            const kernel_fn code = kernel_code(k); /* the same for whoever comes first */
            if (!atomic_compare_exchange_strong(at, &none, k)) cache_release(k);
            atomic_store_explicit(&set->code[set_index(dot, place, last, rows)], code, memory_order_release);
        }
    }
    atomic_fetch_or(&set->ready, bit);
    return true;
}

bool plan_generate(const octet_plan *p, bool zero_b, const unsigned dots[AMAX_LEVELS], bool has_residual)
{
    if (!p->cpu) return true;
    unsigned want = dots[0] | dots[1] | (p->any_view ? W_DOTS : 0);
    if (want & W_DOTS) want |= 1u << DOT_WS | 1u << DOT_S;
    const bool place = plan_places(p, zero_b, dots, has_residual);
    for (int dot = DOT_W; dot < DOT_COUNT; dot++) {
        if (!(want >> dot & 1)) continue;
        if (!generate(p, zero_b, dot, false)) return false;
        if (place && families[dot].place && !generate(p, zero_b, dot, true)) return false;
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
        for (int zero_b = 0; zero_b < 2; zero_b++)
            made = made && plan_generate(p, zero_b, every, true) && plan_generate(p, zero_b, proven, false);
        octet_plan_free(p);
        if (!made) return fail(OCTET_ENOMEM, "octet_warm: no room for the code of description %zu", i);
    }
    return OCTET_OK;
}

/* ---- plans ---- */

/* The first promise of octet.h that the description breaks, as a sentence; NULL if none. */
static const char *breach(const octet_gemm_desc *d)
{
    const unsigned flags = OCTET_ACCUMULATE | OCTET_RELU | OCTET_CLIP | OCTET_NO_FALLBACK | OCTET_REFUSE_OVERFLOW;
    const bool byte_c = d->c == OCTET_U8 || d->c == OCTET_S8;
    if (d->n < 0 || d->k < 0 || d->m_hint < 0) return "n, k or m_hint is negative";
    if (d->a != OCTET_U8 && d->a != OCTET_S8 && d->a != OCTET_F32) return "a must be OCTET_U8, OCTET_S8 or OCTET_F32";
    if (d->b != OCTET_S8) return "b must be OCTET_S8";
    if (!format_of(d->c)) return "c is no octet_dtype";
    if (d->a == OCTET_F32 ? d->a_as && d->a_as != OCTET_U8 && d->a_as != OCTET_S8 : d->a_as != 0)
        return "a_as must be OCTET_U8 or OCTET_S8, with a = OCTET_F32 only";
    if ((d->trans_a | d->trans_b | d->trans_c) & ~1) return "trans_a, trans_b and trans_c must be 0 or 1";
    if (d->flags & ~flags) return "flags has an unknown bit";
    if ((d->zero_a | d->scale_a) & ~1) return "zero_a and scale_a must be OCTET_PER_TENSOR or OCTET_PER_ROW";
    if (d->bias && d->bias != OCTET_S32 && d->bias != OCTET_F32) return "bias must be 0, OCTET_S32 or OCTET_F32";
    if (d->bias == OCTET_F32 && d->c == OCTET_S32) return "an s32 C takes an s32 bias";
    if ((d->flags & OCTET_ACCUMULATE) && byte_c) return "OCTET_ACCUMULATE needs an s32, f32, f16 or bf16 C";
    return NULL;
}

octet_status plan_create(octet_ctx *ctx, const octet_gemm_desc *desc, blocking blocks, bool any_view, bool quick, octet_plan **out)
{
    octet_gemm_desc d;
    size_t bytes;
    if (!desc || !out) return fail(OCTET_EINVAL, "octet_plan_gemm: %s is NULL", desc ? "out" : "desc");
    if (!copy_versioned(&d, sizeof d, offsetof(octet_gemm_desc, a_as), desc))
        return fail(OCTET_EINVAL, "octet_plan_gemm: desc->size is not of a known version; initialize with OCTET_GEMM_DESC");
    const char *broken = breach(&d);
    if (broken) return fail(OCTET_EINVAL, "octet_plan_gemm: %s", broken);
    if (!packed_bound(d.n, d.k, true, &bytes))
        return fail(OCTET_EINVAL, "octet_plan_gemm: n = %lld by k = %lld is too large", (long long)d.n, (long long)d.k);
    if (d.flags & OCTET_REFUSE_OVERFLOW) {
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
    p->floats = d.c != OCTET_S32 || d.a == OCTET_F32 || (d.flags & OCTET_CLIP);
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
    const octet_gemm_desc *d = &p->desc;
    int at = snprintf(text, sizeof text, "%s%s%s%s-%s", format_of(d->a)->name, d->a == OCTET_F32 ? (plan_a_type(p) == OCTET_U8 ? ":u8" : ":s8") : "",
                      format_of(d->b)->name, format_of(d->c)->name, p->cpu ? "avx2" : "plain");
    if (packed && packed->blob->n && p->cpu) {
        int64_t count[DOT_COUNT] = { 0 };
        const blob *b = packed->blob;
        for (int64_t i = 0; i < panels_of(b->n); i++) count[blob_info(b, i).dot[0]]++;
        for (int dot = DOT_W; dot < DOT_COUNT; dot++)
            if (count[dot])
                at += snprintf(text + at, sizeof text - (size_t)at, " %s %.0f%%", dot_name(dot) + 5, 100.0 * (double)count[dot] / (double)panels_of(b->n));
        if (b->residual_quads)
            at += snprintf(text + at, sizeof text - (size_t)at, " residual %.1f%%",
                           100.0 * 4 * b->residual_quads / ((double)b->k * (double)panels_of(b->n)));
    }
    snprintf(text + at, sizeof text - (size_t)at, ", nr=%d kc=%d threads=%d%s", NR, packed ? packed->blob->kc : p->blocks.kc,
             p->ctx->threads, p->cpu ? "" : cpu_features() ? " (no executable memory)" : " (no AVX2)");
    return text;
}
