/*
 * The one-call products: a plan from a small table, B packed into a borrowed workspace (or, if it is
 * larger, into memory of the call), one run. A small row-major B of f32 is not packed but read where it
 * lies. On the process's own context.
 */
#include <math.h>

#include "format.h"
#include "mxcsr.h"
#include "run.h"

/* Plans by description. A slot, once filled, stays: plans are small, and what does not find a slot
 * among its PROBES gets a plan for that call only. */
enum { PLANS = 1024, PROBES = 8 };
static _Atomic(octet_plan *) plans[PLANS];

static unsigned hash(const octet_gemm_desc *d)
{
    uint64_t h = (uint64_t)d->n * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)d->k * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= ((uint64_t)d->a << 3 | (uint64_t)d->b << 32 | (uint64_t)d->c << 8 | (uint64_t)d->flags << 12 | (uint64_t)d->bias << 20
          | (uint64_t)d->trans_a << 24 | (uint64_t)d->trans_b << 25) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)(h >> 40);
}

/* A plan to use until done_with. */
static octet_status plan_for(const octet_gemm_desc *d, octet_plan **out, bool *temporary)
{
    const unsigned at = hash(d);
    for (unsigned i = 0; i < PROBES; i++) {
        octet_plan *p = atomic_load_explicit(&plans[(at + i) % PLANS], memory_order_acquire);
        if (p && !memcmp(&p->desc, d, sizeof *d)) {
            *out = p;
            *temporary = false;
            return OCTET_OK;
        }
    }
    const octet_status st = plan_create(NULL, d, (blocking){ 0 }, false, true, out);
    if (st) return st;
    *temporary = true;
    for (unsigned i = 0; i < PROBES && *temporary; i++) {
        octet_plan *none = NULL;
        if (atomic_compare_exchange_strong(&plans[(at + i) % PLANS], &none, *out)) *temporary = false;
    }
    return OCTET_OK;
}

/* What the sisters differ in. */
typedef struct call {
    const char    *who;
    octet_dtype    a, b, c;
    int            trans_a, trans_b;
    int64_t        m, n, k;
    const void    *pa;
    int64_t        lda;
    const void    *pb;
    int64_t        ldb;
    void          *pc;
    int64_t        ldc;
    const octet_requant *q;
} call;

/* Reading B in place walks its rows once for each panel of 16 columns: good while they stay in L2. */
enum { IN_PLACE_BYTES = 256 << 10 };
static bool reads_b_in_place(const octet_plan *p, int64_t ldb)
{
    const octet_gemm_desc *d = &p->desc;
    return d->b == OCTET_F32 && !d->trans_b && d->k <= IN_PLACE_BYTES / 4 / max64(1, ldb);
}

/* The head of a packed B without the B. */
static void head_of(const octet_plan *p, blob *head, octet_packed *h)
{
    memset(head, 0, sizeof *head);
    head->n = p->b.columns;
    head->given_n = p->b.n;
    head->k = p->b.k;
    head->kc = KC_MIN;
    head->type = (uint8_t)p->b.type;
    head->nr = (uint8_t)p->b.nr;
    head->floating = p->b.floating;
    *h = (octet_packed){ .plan = (octet_plan *)(uintptr_t)p, .blob = head };
    h->portable = !plan_generate_b_place(p);
}

static octet_gemm_args args_of(const call *x, const octet_requant *q)
{
    octet_gemm_args args = OCTET_GEMM_ARGS;
    args.m = x->m;
    args.a = x->pa;
    args.lda = x->lda;
    args.c = x->pc;
    args.ldc = x->ldc;
    args.bias = q->bias;
    args.zero_a = q->zero_a;
    args.zero_c = q->zero_c;
    return args;
}

/* Does C share a byte with a B that is read where it lies? One answer for every size: no floating C may. */
static bool c_overlaps_b(const octet_plan *p, const void *b, int64_t ldb, int64_t m, const void *c, int64_t ldc)
{
    const octet_gemm_desc *d = &p->desc;
    const int64_t lines = d->trans_b ? d->n : d->k, width = d->trans_b ? d->k : d->n;
    if (!p->b.floating || lines == 0 || width == 0 || m == 0) return false;
    const uintptr_t x = (uintptr_t)b, y = (uintptr_t)c;
    return x < y + (uintptr_t)((m - 1) * ldc + d->n) * (uintptr_t)p->c->bytes && y < x + (uintptr_t)((lines - 1) * ldb + width) * (uintptr_t)format_of(d->b)->bytes;
}

/* h: B, packed; or with b_place only its head. */
static octet_status run_once(const octet_plan *p, const call *x, const octet_requant *q, const octet_packed *h, const float *b_place)
{
    octet_gemm_args args = args_of(x, q);
    gemm_problem g;
    view rows;
    dest c;
    args.b = h;
    const char *broken = args_breach(p, &args);
    if (!broken && c_overlaps_b(p, x->pb, x->ldb, x->m, x->pc, x->ldc)) broken = "c overlaps b";
    if (broken) return fail(OCTET_EINVAL, "%s: %s", x->who, broken);
    problem_of(p, &args, &rows, &c, &g);
    g.b_place = b_place;
    g.ldb = x->ldb;
    cpu_gemm(&g);
    return OCTET_OK;
}

static octet_status run_in_place(const octet_plan *p, const call *x)
{
    const octet_requant none = OCTET_REQUANT;
    blob head;
    octet_packed h;
    head_of(p, &head, &h);
    return run_once(p, x, &none, &h, x->pb);
}

/* B packed into `memory`: an operand that lives as long as that. */
static void pack_once(const octet_plan *p, const void *pb, int64_t ldb, const octet_requant *q, void *memory, octet_packed *h)
{
    const view lines = b_lines(p, pb, ldb);
    const source b = { .type = p->desc.b, .count = 1, .views = &lines };
    octet_quant qb = OCTET_QUANT;
    qb.scale = q->scale;
    qb.scales = q->scales;
    qb.zero = q->zero_b;
    size_t used;
    const unsigned kept = fp_enter();
    pack_b(&b, &p->b, p->blocks.kc, &qb, false, p->cpu, memory, &used);
    fp_leave(kept);
    *h = (octet_packed){ .plan = (octet_plan *)(uintptr_t)p, .blob = memory };
    packed_dots(h);
    h->portable = !plan_generate(p, h->blob->has_zeros, h->dots, false); /* no room for code: this once, slowly */
}

static octet_status run_packed(const octet_plan *p, const call *x, const octet_requant *q, void *memory)
{
    octet_packed h;
    pack_once(p, x->pb, x->ldb, q, memory, &h);
    return run_once(p, x, q, &h, NULL);
}

/* Memory for a B packed for this call: a workspace's, or allocated. */
typedef struct room { octet_ctx *ctx; int slot; void *memory; size_t bytes; } room;

static bool room_take(const octet_plan *p, room *r)
{
    *r = (room){ .ctx = p->ctx, .slot = -1 };
    packed_bound(&p->b, false, &r->bytes);
    if (r->bytes <= r->ctx->workspace_bytes && (r->slot = ctx_take_workspace(r->ctx)) >= 0)
        r->memory = atomic_load(&r->ctx->memory) + (size_t)r->slot * r->ctx->workspace_bytes;
    else
        r->memory = mem_alloc(&r->ctx->allocator, r->bytes);
    return r->memory;
}

static void room_leave(room *r)
{
    if (r->slot >= 0) ctx_return_workspace(r->ctx, r->slot);
    else mem_free(&r->ctx->allocator, r->memory, r->bytes);
}

static octet_gemm_desc desc_of(const call *x, const octet_requant *q, unsigned flags)
{
    octet_gemm_desc d;
    memset(&d, 0, sizeof d); /* compared as bytes */
    d.size = sizeof d;
    d.n = x->n;
    d.k = x->k;
    d.a = x->a;
    d.b = x->b;
    d.c = x->c;
    d.trans_a = x->trans_a;
    d.trans_b = x->trans_b;
    d.bias = q->bias ? OCTET_S32 : (octet_dtype)0;
    d.flags = flags | (q->relu ? OCTET_RELU : 0);
    d.scale_a = flags & OCTET_DYNAMIC ? OCTET_PER_ROW : OCTET_PER_TENSOR;
    return d;
}

static octet_status gemm(const call *x, unsigned flags)
{
    octet_requant q = OCTET_REQUANT;
    if (x->q && !copy_versioned(&q, sizeof q, sizeof(size_t), x->q))
        return fail(OCTET_EINVAL, "%s: q->size is not of a known version; initialize with OCTET_REQUANT", x->who);
    const octet_gemm_desc d = desc_of(x, &q, flags);
    octet_plan *p;
    bool temporary;
    octet_status st = plan_for(&d, &p, &temporary);
    if (st) return st;
    const char *broken = b_breach(p, x->pb, x->ldb);
    if (broken)
        st = fail(OCTET_EINVAL, "%s: %s", x->who, broken);
    else if (q.zero_b < -128 || q.zero_b > 127)
        st = fail(OCTET_EINVAL, "%s: zero_b = %d is outside -128 .. 127", x->who, q.zero_b);
    else if ((uintptr_t)q.scales % 4)
        st = fail(OCTET_EINVAL, "%s: scales is misaligned", x->who);
    else if (reads_b_in_place(p, x->ldb))
        st = run_in_place(p, x);
    else {
        room r;
        if (!room_take(p, &r)) st = fail(OCTET_ENOMEM, "%s: no memory for %zu bytes", x->who, r.bytes);
        else {
            st = run_packed(p, x, &q, r.memory);
            room_leave(&r);
        }
    }
    if (temporary) octet_plan_free(p);
    return st;
}

/* ---- batches of f32 ---- */

typedef struct f32_batch {
    const char  *who;
    int64_t      m, n, k, lda, ldb, ldc, count;
    int          trans_a, trans_b;
    const float *a, *b;
    float       *c;
    int64_t      stride_a, stride_b, stride_c;
    const float *const *as, *const *bs;
    float       *const *cs;
    const octet_plan *plan;
    octet_gemm_args   args;
    void             *packed; /* room for one B, where it is not read in place */
} f32_batch;

static const float *a_of(const f32_batch *w, int64_t i) { return w->as ? w->as[i] : w->a + i * w->stride_a; }
static const float *b_of(const f32_batch *w, int64_t i) { return w->bs ? w->bs[i] : w->b + i * w->stride_b; }
static float       *c_of(const f32_batch *w, int64_t i) { return w->cs ? w->cs[i] : w->c + i * w->stride_c; }

/* All of them, by one task: the process's own context has one thread. B is read in place, or packed one after the other. */
static void batch_part(void *arg, int64_t task_, int64_t tasks, uint8_t *memory, size_t bytes)
{
    const f32_batch *w = arg;
    const octet_plan *p = w->plan;
    const octet_requant none = OCTET_REQUANT;
    blob head;
    octet_packed h;
    gemm_problem g;
    view rows;
    dest c;
    (void)task_;
    (void)tasks;
    if (!w->packed) head_of(p, &head, &h);
    problem_of(p, &w->args, &rows, &c, &g);
    g.b = &h;
    for (int64_t i = 0; i < w->count; i++) {
        rows.base = a_of(w, i);
        c.base = c_of(w, i);
        if (!w->packed) {
            g.b_place = b_of(w, i);
            g.ldb = w->ldb;
        } else if (i == 0 || b_of(w, i) != b_of(w, i - 1)) {
            pack_once(p, b_of(w, i), w->ldb, &none, w->packed, &h);
        }
        if (w->m && w->n) cpu_gemm_rows(&g, 0, w->m, memory, bytes);
    }
}

static octet_status f32_batch_run(f32_batch *w)
{
    const call x = { w->who, OCTET_F32, OCTET_F32, OCTET_F32, w->trans_a, w->trans_b, w->m, w->n, w->k, NULL, w->lda, NULL, w->ldb, NULL, w->ldc, NULL };
    const octet_requant none = OCTET_REQUANT;
    const octet_gemm_desc d = desc_of(&x, &none, 0);
    octet_plan *p;
    bool temporary;
    octet_status st = plan_for(&d, &p, &temporary);
    if (st) return st;
    blob head;
    octet_packed h;
    head_of(p, &head, &h);
    w->plan = p;
    w->args = args_of(&x, &none);
    w->args.b = &h;
    if (w->count < 0) st = fail(OCTET_EINVAL, "%s: count is negative", w->who);
    else if (!w->cs && w->stride_c == 0 && w->count > 1) st = fail(OCTET_EINVAL, "%s: stride_c is 0, so that every product would write the same C", w->who);
    for (int64_t i = 0; i < w->count && !st; i++) {
        int64_t far;
        const int64_t strides[3] = { w->stride_a, w->stride_b, w->stride_c };
        for (int t = 0; t < 3 && !st; t++)
            if (!mul_ok(i, strides[t], &far) || far > INT64_MAX / 8 || far < INT64_MIN / 8) st = fail(OCTET_EINVAL, "%s: a stride overflows", w->who);
        if (st) break;
        w->args.a = a_of(w, i);
        w->args.c = c_of(w, i);
        const char *broken = b_breach(p, b_of(w, i), w->ldb);
        if (!broken) broken = args_breach(p, &w->args);
        if (!broken && c_overlaps_b(p, b_of(w, i), w->ldb, w->m, w->args.c, w->ldc)) broken = "c overlaps b";
        if (broken) st = fail(OCTET_EINVAL, "%s: product %lld: %s", w->who, (long long)i, broken);
    }
    w->args.b = NULL;
    room r = { .slot = -1 };
    const bool packs = !reads_b_in_place(p, w->ldb);
    if (!st && packs && w->count && !room_take(p, &r)) st = fail(OCTET_ENOMEM, "%s: no memory for %zu bytes", w->who, r.bytes);
    w->packed = r.memory;
    if (!st && w->count) cpu_parts(p->ctx, NULL, 0, 1, batch_part, w);
    if (r.memory) room_leave(&r);
    if (temporary) octet_plan_free(p);
    return st;
}

octet_status octet_gemm_f32_batch(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int64_t stride_a,
                                  const float *b, int64_t ldb, int64_t stride_b, float *c, int64_t ldc, int64_t stride_c, int64_t count)
{
    return f32_batch_run(&(f32_batch){ .who = "octet_gemm_f32_batch", .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .count = count,
                                       .trans_a = trans_a, .trans_b = trans_b, .a = a, .b = b, .c = c, .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c });
}

octet_status octet_gemm_f32_batch_pointers(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *const *a, int64_t lda,
                                           const float *const *b, int64_t ldb, float *const *c, int64_t ldc, int64_t count)
{
    const char *who = "octet_gemm_f32_batch_pointers";
    if (count > 0 && (!a || !b || !c)) return fail(OCTET_EINVAL, "%s: %s is NULL", who, !a ? "a" : !b ? "b" : "c");
    return f32_batch_run(&(f32_batch){ .who = who, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .count = count,
                                       .trans_a = trans_a, .trans_b = trans_b, .as = a, .bs = b, .cs = c });
}

/* ---- the sisters ---- */

#define CALL_OF(name, A, B, C, quant, flags) \
    gemm(&(call){ name, A, B, C, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, quant }, flags)
#define CALL(name, A, C, quant) CALL_OF(name, A, OCTET_S8, C, quant, 0)

octet_status octet_gemm_u8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc)
{
    return CALL("octet_gemm_u8s8s32", OCTET_U8, OCTET_S32, NULL);
}
octet_status octet_gemm_s8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc)
{
    return CALL("octet_gemm_s8s8s32", OCTET_S8, OCTET_S32, NULL);
}
octet_status octet_gemm_u8s8u8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                               const int8_t *b, int64_t ldb, uint8_t *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_u8s8u8", OCTET_U8, OCTET_U8, q);
}
octet_status octet_gemm_s8s8s8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                               const int8_t *b, int64_t ldb, int8_t *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_s8s8s8", OCTET_S8, OCTET_S8, q);
}
octet_status octet_gemm_u8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, float *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_u8s8f32", OCTET_U8, OCTET_F32, q);
}
octet_status octet_gemm_s8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                                const int8_t *b, int64_t ldb, float *c, int64_t ldc, const octet_requant *q)
{
    return CALL("octet_gemm_s8s8f32", OCTET_S8, OCTET_F32, q);
}

octet_status octet_gemm_f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                            const float *b, int64_t ldb, float *c, int64_t ldc)
{
    return CALL_OF("octet_gemm_f32", OCTET_F32, OCTET_F32, OCTET_F32, NULL, 0);
}
octet_status octet_gemm_f16(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                            const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    return CALL_OF("octet_gemm_f16", OCTET_F16, OCTET_F16, OCTET_F16, NULL, 0);
}
octet_status octet_gemm_bf16(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                             const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    return CALL_OF("octet_gemm_bf16", OCTET_BF16, OCTET_BF16, OCTET_BF16, NULL, 0);
}
octet_status octet_gemm_f32_dynamic(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                                    const int8_t *b, int64_t ldb, float *c, int64_t ldc, const octet_requant *q)
{
    return CALL_OF("octet_gemm_f32_dynamic", OCTET_F32, OCTET_S8, OCTET_F32, q, OCTET_DYNAMIC);
}
