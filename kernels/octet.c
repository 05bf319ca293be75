/*
 * The public entry points for products: check every promise of octet.h, then pack or run. A breach
 * becomes a sentence and a status before anything is written.
 */
#include <math.h>

#include "format.h"
#include "gpu_plan.h"
#include "run.h"
#include "mxcsr.h"
#include "octet/quant.h"
#include "requant.h"

/* ---- pack ---- */

size_t octet_packed_bound(const octet_plan *p)
{
    size_t bytes = 0;
    if (p && !p->gpu) packed_bound(&p->b, true, &bytes);
    return bytes;
}

void packed_dots(octet_packed *h)
{
    h->dots[0] = h->dots[1] = 0;
    for (int64_t i = 0; !h->blob->floating && i < blob_panels(h->blob); i++)
        for (int level = 0; level < AMAX_LEVELS; level++) h->dots[level] |= 1u << blob_info(h->blob, i).dot[level];
    h->places = plan_places(h->plan, h->blob->has_zeros, h->dots, h->blob->residual_quads);
}

static octet_packed *packed_handle(const octet_plan *p)
{
    octet_packed *h = mem_alloc(&p->ctx->allocator, sizeof *h);
    if (h) *h = (octet_packed){ .plan = plan_hold(p) };
    return h;
}

void octet_packed_free(octet_packed *h)
{
    if (!h) return;
    octet_plan *p = h->plan;
    const octet_allocator *a = &p->ctx->allocator;
    if (h->gpu) gpu_packed_drop(h);
    mem_free(a, h->memory, h->memory_bytes);
    mem_free(a, h, sizeof *h);
    octet_plan_free(p);
}

/* The kernels a blob asks for; none for a portable plan. */
static octet_status bind_kernels(const char *who, octet_packed *h)
{
    packed_dots(h);
    if (plan_generate(h->plan, h->blob->has_zeros, h->dots, h->blob->residual_quads)) return OCTET_OK;
    return fail(OCTET_ENOMEM, "%s: no room for generated code", who);
}

const char *b_breach(const octet_plan *p, const void *b, int64_t ldb)
{
    const octet_gemm_desc *d = &p->desc;
    const int64_t lines = d->trans_b ? d->n : d->k, width = d->trans_b ? d->k : d->n;
    int64_t span;
    if (p->b.floating && !format_of(d->b)->bytes && ldb % 2) return "ldb of a B of 4 bits is odd";
    if (b && format_of(d->b)->bytes > 1 && (uintptr_t)b % (unsigned)format_of(d->b)->bytes) return "b is misaligned for its type";
    if (ldb < width) return d->trans_b ? "ldb is less than k" : "ldb is less than n";
    if (!mul_ok(lines, ldb, &span) || span > INT64_MAX / 8) return "the size of B overflows";
    if (!b && lines && width) return "b is NULL";
    return NULL;
}

view b_lines(const octet_plan *p, const void *b, int64_t ldb)
{
    return (view){ b, p->desc.trans_b ? ldb : 1, p->desc.trans_b ? 1 : ldb, NULL, NULL };
}

octet_status quant_check(const char *who, const octet_plan *p, const octet_quant *given, octet_quant *q)
{
    const b_shape *s = &p->b;
    *q = (octet_quant)OCTET_QUANT;
    if (given && !copy_versioned(q, sizeof *q, sizeof(size_t), given))
        return fail(OCTET_EINVAL, "%s: qb->size is not of a known version; initialize with OCTET_QUANT", who);
    if ((uintptr_t)q->scales % 4 || (uintptr_t)q->zeros % 4) return fail(OCTET_EINVAL, "%s: qb's arrays are misaligned", who);
    if (is_floating(s->type) && (q->scale != 0.0f || q->zero || q->scales || q->zeros))
        return fail(OCTET_EINVAL, "%s: a floating point B has neither scales nor zero points", who);
    const format *f = format_of(s->type);
    const int64_t count = !q->zeros ? 1 : p->gpu ? 0 : s->n * s->groups; /* a GPU's cannot be read here */
    for (int64_t j = 0; j < count && !is_floating(s->type); j++) {
        const int32_t zero = q->zeros ? q->zeros[j] : q->zero;
        if (zero < f->lo || zero > f->hi)
            return fail(OCTET_EINVAL, "%s: zero point %d of column %lld is outside %d .. %d", who, zero, (long long)(j % max64(1, s->n)), f->lo, f->hi);
    }
    return OCTET_OK;
}

/* b: a view of columns. Packs into `memory`, or into memory of its own. */
static octet_status pack(const char *who, const octet_plan *p, const source *b, const octet_quant *qb,
                         void *memory, size_t bytes, octet_packed **out)
{
    octet_quant q;
    size_t bound, used;
    if (p->gpu) return fail(OCTET_EINVAL, "%s: the plan is of a GPU: octet_gpu_pack packs for it", who);
    octet_status st = quant_check(who, p, qb, &q);
    if (st) return st;
    packed_bound(&p->b, q.zeros != NULL, &bound);
    if (memory && bytes < octet_packed_bound(p))
        return fail(OCTET_EINVAL, "%s: %zu bytes are fewer than octet_packed_bound's %zu", who, bytes, octet_packed_bound(p));
    octet_packed *h = packed_handle(p);
    if (!h) return fail(OCTET_ENOMEM, "%s: no memory for a handle", who);
    if (!memory) {
        h->memory = memory = mem_alloc(&p->ctx->allocator, bound);
        h->memory_bytes = bound;
        if (!memory) {
            octet_packed_free(h);
            return fail(OCTET_ENOMEM, "%s: no memory for %zu bytes", who, bound);
        }
    }
    const unsigned kept = fp_enter(); /* costs are weighed in floating point */
    const bool packed = pack_b(b, &p->b, p->blocks.kc, &q, !p->quick, p->cpu, memory, &used);
    fp_leave(kept);
    if (!packed) {
        octet_packed_free(h);
        return fail(OCTET_EINVAL, "%s: a weighted sum of B does not fit 8 bits", who);
    }
    h->blob = memory;
    if ((st = bind_kernels(who, h)) != OCTET_OK) {
        octet_packed_free(h);
        return st;
    }
    *out = h;
    return OCTET_OK;
}

octet_status pack_source(const octet_plan *p, const source *b, const octet_quant *qb, octet_packed **out)
{
    return pack("octet_pack", p, b, qb, NULL, 0, out);
}

static octet_status pack_checked(const char *who, const octet_plan *p, const void *b, int64_t ldb, const octet_quant *qb,
                                 void *memory, size_t bytes, octet_packed **out)
{
    if (!p || !out) return fail(OCTET_EINVAL, "%s: %s is NULL", who, p ? "out" : "plan");
    const char *broken = b_breach(p, b, ldb);
    if (broken) return fail(OCTET_EINVAL, "%s: %s", who, broken);
    const view lines = b_lines(p, b, ldb);
    const source s = { .type = p->desc.b, .count = 1, .views = &lines };
    return pack(who, p, &s, qb, memory, bytes, out);
}

octet_status octet_pack(const octet_plan *p, const void *b, int64_t ldb, const octet_quant *qb, octet_packed **out)
{
    return pack_checked("octet_pack", p, b, ldb, qb, NULL, 0, out);
}

octet_status octet_pack_into(const octet_plan *p, const void *b, int64_t ldb, const octet_quant *qb,
                             void *memory, size_t bytes, octet_packed **out)
{
    if (!memory) return fail(OCTET_EINVAL, "octet_pack_into: memory is NULL");
    if ((uintptr_t)memory % 64) return fail(OCTET_EINVAL, "octet_pack_into: memory is not 64-byte aligned");
    return pack_checked("octet_pack_into", p, b, ldb, qb, memory, bytes, out);
}

const void *octet_packed_data(const octet_packed *h, size_t *bytes)
{
    if (bytes) *bytes = h && h->blob ? (size_t)h->blob->bytes : 0;
    return h ? h->blob : NULL;
}

octet_status octet_packed_load(const octet_plan *p, const void *memory, size_t bytes, octet_packed **out)
{
    const char *who = "octet_packed_load";
    bool corrupt;
    if (!p || !memory || !out) return fail(OCTET_EINVAL, "%s: %s is NULL", who, !p ? "plan" : !memory ? "blob" : "out");
    if (p->gpu) return fail(OCTET_EINVAL, "%s: the plan is of a GPU: octet_gpu_pack packs for it", who);
    if ((uintptr_t)memory % 64) return fail(OCTET_EINVAL, "%s: blob is not 64-byte aligned", who);
    const char *reason = blob_refuses(memory, bytes, &p->b, &corrupt);
    if (reason) return fail(corrupt ? OCTET_ECORRUPT : OCTET_EINVAL, "%s: %s", who, reason);
    octet_packed *h = packed_handle(p);
    if (!h) return fail(OCTET_ENOMEM, "%s: no memory for a handle", who);
    h->blob = memory;
    const octet_status st = bind_kernels(who, h);
    if (st) octet_packed_free(h);
    else *out = h;
    return st;
}

octet_status octet_unpack(const octet_packed *h, int trans, void *b, int64_t ldb)
{
    if (!h || h->gpu) return fail(OCTET_EINVAL, "octet_unpack: packed is %s", h ? "of a GPU" : "NULL");
    const b_shape s = blob_shape(h->blob);
    const int bytes = format_of(s.type)->bytes;
    if (!b && s.n && s.k) return fail(OCTET_EINVAL, "octet_unpack: b is NULL");
    if (trans & ~1) return fail(OCTET_EINVAL, "octet_unpack: trans must be 0 or 1");
    if (ldb < (trans ? s.k : s.n)) return fail(OCTET_EINVAL, "octet_unpack: ldb is less than %s", trans ? "k" : "n");
    if (!bytes && ldb % 2) return fail(OCTET_EINVAL, "octet_unpack: ldb of a B of 4 bits is odd");
    if (bytes > 1 && (uintptr_t)b % (unsigned)bytes) return fail(OCTET_EINVAL, "octet_unpack: b is misaligned for its type");
    if (span_of(trans ? s.n : s.k, trans ? s.k : s.n, ldb, bytes + 1) < 0)
        return fail(OCTET_EINVAL, "octet_unpack: the size of B overflows");
    unpack_b(h->blob, b, trans ? ldb : 1, trans ? 1 : ldb);
    return OCTET_OK;
}

/* ---- run ---- */

/* A and C as columns of one buffer of equal pitch, like the slices of a concatenation: no byte is shared. */
static bool side_by_side(const octet_plan *p, const octet_gemm_args *x, int64_t a_row, int64_t c_row)
{
    const int64_t pitch = x->lda * p->a->bytes;
    if (pitch != x->ldc * p->c->bytes || pitch == 0) return false;
    const uintptr_t a = (uintptr_t)x->a, c = (uintptr_t)x->c, step = (uintptr_t)pitch;
    const int64_t offset = (int64_t)(c >= a ? (c - a) % step : (step - (a - c) % step) % step); /* of C within A's pitch */
    return offset >= a_row && offset + c_row <= pitch;
}

/* Bytes from the first to past the last of a step's operand; -1 on a breach. */
static int64_t operand_bytes(const octet_plan *p, const octet_gemm_args *x, int step)
{
    const uint8_t c = p->chain[step];
    const int size = chain_type(c) ? 2 : 4;
    const int64_t n = p->b.gated && step > chain_gate(p->chain) ? p->out_n : p->desc.n;
    switch (chain_shape(c)) {
    case OCTET_PER_N: return n * size;
    case OCTET_PER_M: return x->m * size;
    default: return x->operand[step].ld < n ? -1 : span_of(x->m, n, x->operand[step].ld, size);
    }
}

/* What is wrong with the chain's operands; NULL if nothing. c_bytes: of C. */
static const char *operands_breach(const octet_plan *p, const octet_gemm_args *x, int64_t c_bytes)
{
    for (int i = 0; i < p->steps; i++) {
        const uint8_t c = p->chain[i];
        const octet_operand *o = &x->operand[i];
        if (chain_op(c) == OCTET_OP_CLIP && !(o->value <= o->value2)) return "value of a clip is not at most value2";
        if (!chain_has_operand(c)) continue;
        const int64_t bytes = operand_bytes(p, x, i);
        if (bytes < 0) return "ld of a step's operand is less than its columns, or its size overflows";
        if (bytes && !o->t) return "a step's operand is NULL";
        if ((uintptr_t)o->t % (chain_type(c) ? 2 : 4)) return "a step's operand is misaligned for its type";
        const bool in_place = chain_shape(c) == OCTET_FULL && o->t == x->c && o->ld == x->ldc && !p->desc.trans_c
            && p->c->bytes == (chain_type(c) ? 2 : 4);
        if (overlap(o->t, bytes, x->c, c_bytes) && !in_place) return "c overlaps a step's operand";
    }
    return NULL;
}

static const char *breach(const octet_plan *p, const octet_gemm_args *x, bool has_a)
{
    const bool on_gpu = p->gpu != NULL; /* what is there cannot be read here */
    const octet_gemm_desc *d = &p->desc;
    const format *a = p->a, *c = p->c, *as = p->a_as;
    if (x->m < 0) return "m is negative";
    if (!x->b) return "b is NULL";
    if (x->b->plan != p) return "b was packed for another plan; octet_packed_load binds its data to this one";
    const int64_t a_lines = d->trans_a ? d->k : x->m, a_width = d->trans_a ? x->m : d->k;
    const int64_t c_lines = d->trans_c ? p->out_n : x->m, c_width = d->trans_c ? x->m : p->out_n;
    if (has_a && x->lda < a_width) return d->trans_a ? "lda is less than m" : "lda is less than k";
    if (x->ldc < c_width) return d->trans_c ? "ldc is less than m" : p->b.gated ? "ldc is less than n / 2" : "ldc is less than n";
    const int64_t a_bytes = has_a ? span_of(a_lines, a_width, x->lda, a->bytes) : 0, c_bytes = span_of(c_lines, c_width, x->ldc, c->bytes);
    if (a_bytes < 0 || c_bytes < 0) return "the size of A or C overflows";
    if (a_bytes && !x->a) return "a is NULL";
    if (c_bytes && !x->c) return "c is NULL";
    if ((has_a && ((uintptr_t)x->a & (unsigned)(a->bytes - 1))) || ((uintptr_t)x->c & (unsigned)(c->bytes - 1))) return "a or c is misaligned for its type";
    if (overlap(x->a, a_bytes, x->c, c_bytes) && !side_by_side(p, x, a_width * a->bytes, c_width * c->bytes)) return "c overlaps a";
    if (d->bias && d->n) {
        if (!x->bias) return "bias is NULL";
        if ((uintptr_t)x->bias % 4) return "bias is misaligned";
        if (overlap(x->bias, 4 * d->n, x->c, c_bytes)) return "c overlaps bias";
    }
    if (!p->b.floating && !(d->flags & OCTET_DYNAMIC)) {
        if (d->zero_a == OCTET_PER_ROW) {
            if (x->m && (!x->zero_a_rows || (uintptr_t)x->zero_a_rows % 4)) return "zero_a_rows is NULL or misaligned";
            for (int64_t i = 0; i < x->m && !on_gpu; i++)
                if (x->zero_a_rows[i] < as->lo || x->zero_a_rows[i] > as->hi) return "a zero point in zero_a_rows is outside the range of A";
        } else if (x->zero_a < as->lo || x->zero_a > as->hi) {
            return "zero_a is outside the range of A";
        }
        if (d->scale_a == OCTET_PER_ROW && x->m && (!x->scale_a_rows || (uintptr_t)x->scale_a_rows % 4))
            return "scale_a_rows is NULL or misaligned";
    }
    if (x->sums) {
        const int64_t bytes = x->ld_sums < d->n ? -1 : span_of(x->m, d->n, x->ld_sums, 4);
        if (bytes < 0) return "ld_sums is less than n, or the size of sums overflows";
        if ((uintptr_t)x->sums % 4) return "sums is misaligned";
        const bool is_c = x->sums == x->c && x->ld_sums == x->ldc && !d->trans_c && d->c == (p->b.floating ? OCTET_F32 : OCTET_S32) && !p->b.gated;
        if (overlap(x->sums, bytes, x->c, c_bytes) && !is_c) return "c overlaps sums";
    }
    if (!on_gpu && overlap(x->b->blob, (int64_t)x->b->blob->bytes, x->c, c_bytes)) return "c overlaps the packed b";
    if (d->scale_a == OCTET_PER_ROW && overlap(x->scale_a_rows, 4 * x->m, x->c, c_bytes)) return "c overlaps scale_a_rows";
    if (d->zero_a == OCTET_PER_ROW && overlap(x->zero_a_rows, 4 * x->m, x->c, c_bytes)) return "c overlaps zero_a_rows";
    if (x->workspace && overlap(x->workspace, (int64_t)min64((int64_t)x->workspace_bytes, INT64_MAX), x->c, c_bytes)) return "c overlaps workspace";
    const char *operands = operands_breach(p, x, c_bytes);
    if (operands) return operands;
    if (c->integer && c->bytes == 1) {
        if (!(x->scale_c >= 0 && x->scale_c < INFINITY)) return "scale_c is negative, infinite or NaN";
        if (x->scale_c != 0 && x->scale_c < 0x1p-126f) return "scale_c is a denormal, which has no reciprocal";
        if (x->zero_c < c->lo || x->zero_c > c->hi) return "zero_c is outside the range of C";
    }
    if ((d->flags & OCTET_CLIP) && !(x->clip_lo <= x->clip_hi)) return "clip_lo is not at most clip_hi";
    if ((uintptr_t)x->workspace % 64) return "workspace is not 64-byte aligned";
    return NULL;
}

/* See run.h and plan.h. */
static const char *const of_a_gpu = "the plan is of a GPU: octet_gpu_run runs it";
const char *args_breach(const octet_plan *p, const octet_gemm_args *x) { return p->gpu ? of_a_gpu : breach(p, x, true); }
const char *args_breach_but_a(const octet_plan *p, const octet_gemm_args *x) { return p->gpu ? of_a_gpu : breach(p, x, false); }
const char *gpu_args_breach(const octet_plan *p, const octet_gemm_args *x) { return breach(p, x, true); }

static void set_i(int32_t v[8], int32_t x) { for (int i = 0; i < 8; i++) v[i] = x; }
static void set_f(float v[8], float x) { for (int i = 0; i < 8; i++) v[i] = x; }

/* What the epilogue needs, in the form kernels read it. */
static void prepare(const octet_plan *p, const octet_gemm_args *x, float scale_a, int32_t zero_a, uint8_t flip, kernel_args *k)
{
    const octet_gemm_desc *d = &p->desc;
    const bool clamped = d->flags & (OCTET_RELU | OCTET_CLIP), bytes = p->c->bytes == 1;
    if (!p->b.floating) {
        set_i(k->zero_a_v, p->zero_rows ? 0 : zero_a + (flip ? 128 : 0));
        set_f(k->scale_a_v, scale_a);
    }
    if (!clamped && !bytes) return;
    const unsigned kept = fp_enter();
    const c_limits l = limits_of(d, x);
    if (d->c == OCTET_S32) {
        set_i(k->lo.i, l.lo);
        set_i(k->hi.i, l.hi);
    } else {
        if (bytes) {
            set_f(k->inv_scale_c, l.inv_scale_c);
            set_i(k->zero_c, x->zero_c);
        }
        set_f(k->lo.f, l.f.lo);
        set_f(k->hi.f, l.f.hi);
    }
    fp_leave(kept);
}

/* A in floating point that is quantized: by the given scales, or by those that its range asks for. */
static void quantized(const octet_plan *p, const octet_gemm_args *x, gemm_problem *g, float *scale, int32_t *zero)
{
    const octet_gemm_desc *d = &p->desc;
    const unsigned kept = fp_enter();
    if (d->flags & OCTET_DYNAMIC) {
        g->a.most = d->flags & OCTET_REDUCED || g->a.as == OCTET_S8 ? 127 : 255;
        *zero = 0;
        g->zero_a_rows = NULL;
        g->scale_a_rows = NULL;
        if (d->scale_a == OCTET_PER_TENSOR) {
            float lo, hi;
            lines_range(&g->a, 0, x->m, d->k, &lo, &hi);
            octet_choose_quant(lo, hi, g->a.as == OCTET_U8 ? 0 : -127, g->a.most, g->a.as == OCTET_S8, scale, zero);
            g->a.zero = *zero;
        }
    }
    g->a.inv_scale = 1.0f / *scale;
    g->a.scale_rows = g->scale_a_rows;
    g->a.zero_rows = g->zero_a_rows;
    fp_leave(kept);
}

void problem_of(const octet_plan *p, const octet_gemm_args *x, view *rows, dest *c, gemm_problem *g)
{
    const octet_gemm_desc *d = &p->desc;
    *rows = (view){ x->a, d->trans_a ? 1 : x->lda, d->trans_a ? x->lda : 1, NULL, NULL };
    *c = (dest){ x->c, d->trans_c ? 1 : x->ldc, d->trans_c ? x->ldc : 1, NULL, NULL, 1 };
    g->plan = p;
    g->b = x->b;
    g->b_place = NULL;
    g->ldb = 0;
    g->m = x->m;
    g->a = (source){ .type = d->a, .count = 1, .views = rows, .flip = plan_a_type(p) == OCTET_S8 ? 0x80 : 0,
                     .as = plan_a_type(p), .zero = x->zero_a };
    g->dests = 1;
    g->dest = c;
    g->add = false;
    g->zero_a_rows = d->zero_a == OCTET_PER_ROW ? x->zero_a_rows : NULL;
    g->scale_a_rows = d->scale_a == OCTET_PER_ROW ? x->scale_a_rows : NULL;
    g->bias = d->bias ? x->bias : NULL;
    g->operand = x->operand;
    g->row_base = 0;
    g->sums = x->sums;
    g->ld_sums = x->ld_sums;
    g->done = x->done;
    g->done_user = x->done_user;
    g->done_i = 0;
    g->workspace = x->workspace;
    g->workspace_bytes = x->workspace_bytes;
    for (int i = 0; i < p->steps; i++) {
        const bool unset = chain_op(p->chain[i]) == OCTET_OP_ADD && chain_has_operand(p->chain[i]) && x->operand[i].value == 0.0f;
        g->fixed.op[i].value = unset ? 1.0f : x->operand[i].value;
        g->fixed.op[i].value2 = x->operand[i].value2;
    }
    float scale = x->scale_a == 0.0f ? 1.0f : x->scale_a;
    int32_t zero = x->zero_a;
    if (is_floating(d->a) && !p->b.floating) quantized(p, x, g, &scale, &zero);
    prepare(p, x, scale, zero, g->a.flip, &g->fixed);
}

static octet_status run_checked(const octet_plan *p, const octet_gemm_args *x)
{
    view rows;
    dest c;
    gemm_problem g;
    problem_of(p, x, &rows, &c, &g);
    cpu_gemm(&g);
    return OCTET_OK;
}

octet_status octet_run(const octet_plan *p, const octet_gemm_args *args)
{
    octet_gemm_args x;
    if (!p || !args) return fail(OCTET_EINVAL, "octet_run: %s is NULL", p ? "args" : "plan");
    if (args->size != sizeof x) { /* of another version */
        if (!copy_versioned(&x, sizeof x, offsetof(octet_gemm_args, bias), args))
            return fail(OCTET_EINVAL, "octet_run: args->size is not of a known version; initialize with OCTET_GEMM_ARGS");
        args = &x;
    }
    const char *broken = args_breach(p, args);
    if (broken) return fail(OCTET_EINVAL, "octet_run: %s", broken);
    return run_checked(p, args);
}

size_t octet_workspace_bytes(const octet_plan *p, int64_t max_m, int threads)
{
    (void)max_m;
    if (!p || p->gpu || threads < 1 || threads > THREADS_MAX) return 0;
    return (size_t)threads * cpu_workspace_bytes();
}
