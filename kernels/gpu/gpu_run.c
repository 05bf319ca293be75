/*
 * A run on a GPU: choose the kernel for this m, state the product as kernels read it, enqueue what must go before it and then it.
 * Nothing is allocated and nothing waits; the parameters, tensor maps among them, are copied by the launch.
 */
#include "device.h"

#include "mxcsr.h"
#include "requant.h"

/* What goes before the product, and where in the workspace it leaves its results. */
typedef struct before {
    int     kernel;
    bool    gathers, sums, quantizes, ranges;
    int64_t pitch;
    size_t  rows, row_sums, scales, zeros, partials, bytes;
} before;

static size_t reserve(size_t *at, bool wanted, int64_t bytes)
{
    const size_t here = *at;
    if (wanted) *at += (size_t)round_up(bytes, 256);
    return here;
}

/* Bytes of a value of A as it meets B. */
static int met_bytes(const octet_plan *p) { return !p->b.floating ? 1 : p->a->bytes; }

static before plan_before(const octet_plan *p, const octet_gemm_args *x)
{
    const octet_gemm_desc *d = &p->desc;
    const gpu_problem problem = gpu_problem_of(d, x->m);
    before w = { .kernel = gpu_choose(p->gpu->candidates, &p->gpu->gpu->info, &problem) };
    w.quantizes = is_floating(d->a) && !p->b.floating;
    w.ranges = d->flags & OCTET_DYNAMIC && d->scale_a == OCTET_PER_TENSOR;
    if (w.kernel >= GPU_FIRST_HOPPER) /* a tensor map wants rows along k at multiples of 16 bytes */
        w.gathers = d->trans_a || (uintptr_t)x->a % 16 || x->lda >= (INT64_C(1) << 40) / p->a->bytes || x->lda * p->a->bytes % 16;
    w.gathers = w.gathers || w.quantizes;
    w.sums = !p->b.floating && (!x->b || x->b->gpu->has_zeros);
    w.pitch = round_up(max64(1, d->k) * met_bytes(p), GPU_PITCH);
    w.rows = reserve(&w.bytes, w.gathers, x->m * w.pitch);
    w.row_sums = reserve(&w.bytes, w.sums, 4 * x->m);
    w.scales = reserve(&w.bytes, w.quantizes, 4 * x->m);
    w.zeros = reserve(&w.bytes, w.quantizes, 4 * x->m);
    w.partials = reserve(&w.bytes, w.ranges, 8 * GPU_PARTIALS);
    return w;
}

/* ---- the epilogue ---- */

static bool fits(const void *p, int64_t ld, int64_t value, int64_t columns)
{
    const int64_t at_once = min64(16, value * columns);
    return (uintptr_t)p % (uintptr_t)at_once == 0 && ld * value % at_once == 0;
}

static void epilogue_of(const octet_plan *p, const octet_gemm_args *x, const before *w, uint8_t *workspace, gpu_epilogue *e)
{
    const octet_gemm_desc *d = &p->desc;
    const gpu_packed *b = x->b->gpu;
    const uint8_t *packed = (const uint8_t *)(uintptr_t)b->memory;
    const bool even = !p->b.gated || p->b.n / 2 % 4 == 0; /* both halves begin at a multiple of four columns */
    e->c = x->c;
    e->c_row = d->trans_c ? 1 : x->ldc;
    e->c_col = d->trans_c ? x->ldc : 1;
    e->m = x->m;
    e->n = p->b.n;
    e->out_n = p->out_n;
    e->bias = x->bias;
    e->bias_type = (int32_t)d->bias;
    e->sums = x->sums;
    e->ld_sums = x->ld_sums;
    e->c_type = (int32_t)d->c;
    e->accumulate = (d->flags & OCTET_ACCUMULATE) != 0;
    e->integer = !p->b.floating;
    e->gated = p->b.gated;
    e->steps = p->steps;
    e->scaled = !is_floating(d->b) && p->b.groups == 1;
    e->scale_b = (const float *)(const void *)(packed + b->scales);
    e->col_sums = (const int32_t *)(const void *)(packed + b->sums);
    e->zero_b = e->integer && b->has_zeros ? (const int32_t *)(const void *)(packed + b->zeros) : NULL;
    e->row_sums = w->sums ? (const int32_t *)(const void *)(workspace + w->row_sums) : NULL;
    e->scale_a = x->scale_a;
    e->zero_a = x->zero_a;
    e->scale_rows = w->quantizes ? (const float *)(const void *)(workspace + w->scales) : d->scale_a == OCTET_PER_ROW ? x->scale_a_rows : NULL;
    e->zero_rows = w->quantizes ? (const int32_t *)(const void *)(workspace + w->zeros) : d->zero_a == OCTET_PER_ROW ? x->zero_a_rows : NULL;
    const c_limits l = limits_of(d, x);
    e->clamp = (d->flags & (OCTET_RELU | OCTET_CLIP)) != 0;
    e->lo = l.f.lo;
    e->hi = l.f.hi;
    e->lo_i = l.lo;
    e->hi_i = l.hi;
    e->inv_scale_c = l.inv_scale_c;
    e->zero_c = x->zero_c;
    e->wide = (even ? GPU_WIDE_B : 0) | (even && fits(x->bias, 0, 4, 4) ? GPU_WIDE_BIAS : 0) | (even && fits(x->sums, x->ld_sums, 4, 4) ? GPU_WIDE_SUMS : 0)
        | (!d->trans_c && fits(x->c, x->ldc, p->c->bytes, p->b.gated ? 4 : 8) ? GPU_WIDE_C : 0);
    bool past_gate = false;
    for (int i = 0; i < p->steps; i++) {
        const octet_op *o = &d->chain[i];
        const octet_operand *v = &x->operand[i];
        gpu_op *to = &e->op[i];
        to->kind = o->kind;
        to->shape = o->shape;
        to->type = o->type ? (int32_t)o->type : OCTET_F32;
        to->t = v->t;
        to->ld = o->shape == OCTET_FULL ? v->ld : 0;
        to->value = o->kind == OCTET_OP_ADD && o->shape != OCTET_SCALAR && v->value == 0.0f ? 1.0f : v->value;
        to->value2 = v->value2;
        to->wide = (even || past_gate) && fits(v->t, to->ld, to->type == OCTET_F32 ? 4 : 2, 4);
        past_gate = past_gate || o->kind >= OCTET_OP_SWIGLU;
    }
}

/* ---- the product ---- */

static octet_status encode(octet_gpu *g, gpu_map *map, const void *p, int bytes, int64_t k, int64_t rows, int64_t pitch, int box_rows)
{
    const uint64_t dims[2] = { (uint64_t)k, (uint64_t)rows }, strides[1] = { (uint64_t)pitch };
    const uint32_t box[2] = { (uint32_t)(GPU_ROW_BYTES / bytes), (uint32_t)box_rows }, steps[2] = { 1, 1 };
    return gpu_check(g, g->cu->encode(map, bytes == 1 ? CU_MAP_UINT8 : CU_MAP_UINT16, 2, (void *)(uintptr_t)p, dims, strides, box, steps, 0,
                                      CU_MAP_SWIZZLE_128, CU_MAP_L2_256, 0), "cuTensorMapEncodeTiled");
}

static octet_status launch_hopper(const octet_plan *p, int kernel, gpu_params *q, int64_t a_pitch, void *stream)
{
    octet_gpu *g = p->gpu->gpu;
    const gpu_kernel_row *r = &gpu_kernels[kernel];
    const gpu_problem problem = gpu_problem_of(&p->desc, q->e.m);
    const int bytes = met_bytes(p);
    const int64_t rows = gpu_packed_rows(p->b.n, p->b.gated);
    q->tiles_m = (int32_t)ceil_div(q->e.m, r->bm * r->cluster); /* pairs, in a cluster */
    q->tiles_n = (int32_t)ceil_div(rows, r->bn);
    q->band = gpu_band(r, &g->info, &problem);
    octet_status st = OCTET_OK;
    if (q->k) { /* with k = 0 nothing is fetched, and a map of nothing cannot be */
        st = encode(g, &q->map_a, q->a, bytes, q->k, q->e.m, a_pitch, r->bm);
        if (!st) st = encode(g, &q->map_b, q->b, bytes, q->k, rows, q->b_pitch, r->bn / r->cluster);
    }
    const int64_t tiles = (int64_t)q->tiles_m * q->tiles_n * r->cluster, room = g->info.processors / r->cluster * r->cluster;
    if (!st) st = gpu_launch(g, kernel, min64(tiles, max64(room, r->cluster)), GPU_THREADS_HOPPER, GPU_RING_BYTES(r->bm, r->bn, r->stages), r->cluster, stream, q);
    return st;
}

static octet_status prepare(const octet_plan *p, const octet_gemm_args *x, const before *w, uint8_t *workspace, void *stream)
{
    octet_gpu *g = p->gpu->gpu;
    const octet_gemm_desc *d = &p->desc;
    const bool dynamic = d->flags & OCTET_DYNAMIC;
    const octet_dtype as = p->b.floating ? d->a : plan_a_type(p);
    gpu_gather q = {
        .a = x->a, .a_row = d->trans_a ? 1 : x->lda, .a_col = d->trans_a ? x->lda : 1, .m = x->m, .k = d->k, .pitch = w->pitch,
        .out = w->gathers ? workspace + w->rows : NULL, .partials = w->ranges ? (float *)(void *)(workspace + w->partials) : NULL,
        .row_sums = w->sums ? (int32_t *)(void *)(workspace + w->row_sums) : NULL,
        .scale_rows = w->quantizes ? (float *)(void *)(workspace + w->scales) : NULL,
        .zero_rows = w->quantizes ? (int32_t *)(void *)(workspace + w->zeros) : NULL,
        .given_scale_rows = d->scale_a == OCTET_PER_ROW && !dynamic ? x->scale_a_rows : NULL,
        .given_zero_rows = d->zero_a == OCTET_PER_ROW ? x->zero_a_rows : NULL, .scale = x->scale_a, .zero = x->zero_a,
        .a_type = (int32_t)d->a, .as = (int32_t)as, .dynamic = dynamic, .per_tensor = w->ranges,
        .most = as == OCTET_S8 || (d->flags & OCTET_REDUCED) ? 127 : 255,
        .wide = !d->trans_a && fits(x->a, x->lda, p->a->bytes, 8),
    };
    const bool columns = d->trans_a && x->lda > 1;
    octet_status st = OCTET_OK;
    if (w->ranges) st = gpu_launch(g, GPU_RANGE, GPU_PARTIALS, GPU_THREADS_PREPARE, 0, 1, stream, &q);
    if (!st) st = gpu_launch(g, columns ? GPU_GATHER_COLUMNS : GPU_GATHER, min64(columns ? ceil_div(x->m, 32) : x->m, 65536), GPU_THREADS_PREPARE, 0, 1, stream, &q);
    return st;
}

/* One product, checked, in the device's context. */
static octet_status enqueue(const octet_plan *p, const octet_gemm_args *x, const before *w, uint8_t *workspace, void *stream)
{
    const octet_gemm_desc *d = &p->desc;
    const gpu_packed *b = x->b->gpu;
    gpu_params q = { .k = d->k, .b = (const uint8_t *)(uintptr_t)b->memory, .b_pitch = b->pitch, .b_type = (int32_t)d->b };
    octet_status st = OCTET_OK;
    if (x->m == 0 || p->out_n == 0) return OCTET_OK;
    const unsigned kept = fp_enter();
    epilogue_of(p, x, w, workspace, &q.e);
    fp_leave(kept);
    if (w->gathers || w->sums) st = prepare(p, x, w, workspace, stream);
    if (st) return st;
    q.a = w->gathers ? workspace + w->rows : x->a;
    q.a_row = w->gathers ? w->pitch / met_bytes(p) : d->trans_a ? 1 : x->lda;
    q.a_col = w->gathers ? 1 : d->trans_a ? x->lda : 1;
    q.a_type = (int32_t)(p->b.floating ? d->a : plan_a_type(p));
    if (w->kernel >= GPU_FIRST_HOPPER) return launch_hopper(p, w->kernel, &q, q.a_row * met_bytes(p), stream);
    if (p->b.floating && !is_floating(d->b)) {
        const uint8_t *packed = q.b;
        q.group = p->b.groups > 1 ? p->b.group : 0;
        q.group_scales = (const float *)(const void *)(packed + b->scales);
        q.group_zeros = (const float *)(const void *)(packed + b->float_zeros);
    }
    const int64_t tiles = ceil_div(x->m, GPU_PORTABLE_TILE) * ceil_div(gpu_packed_rows(p->b.n, p->b.gated), GPU_PORTABLE_TILE);
    return gpu_launch(p->gpu->gpu, w->kernel, min64(tiles, 1 << 20), GPU_THREADS_PORTABLE, 0, 1, stream, &q);
}

/* ---- the calls ---- */

static const char *workspace_breach(const octet_plan *p, const octet_gemm_args *x, const before *w, const void *workspace, size_t bytes)
{
    const octet_gemm_desc *d = &p->desc;
    if (w->kernel < 0) return "no kernel of this plan takes so large an m";
    if (!w->bytes) return NULL;
    if (!workspace || bytes < w->bytes) return "the workspace is smaller than octet_gpu_workspace_bytes";
    if ((uintptr_t)workspace % 256) return "the workspace is not at a multiple of 256";
    const int64_t c_bytes = span_of(d->trans_c ? p->out_n : x->m, d->trans_c ? x->m : p->out_n, x->ldc, p->c->bytes);
    return overlap(workspace, (int64_t)w->bytes, x->c, c_bytes) ? "c overlaps the workspace" : NULL;
}

static octet_status args_of(const char *who, const octet_plan *p, const octet_gemm_args *args, octet_gemm_args *x)
{
    if (!p || !args) return fail(OCTET_EINVAL, "%s: %s is NULL", who, p ? "args" : "plan");
    if (!p->gpu) return fail(OCTET_EINVAL, "%s: the plan is of the CPU: octet_run runs it", who);
    if (!copy_versioned(x, sizeof *x, offsetof(octet_gemm_args, bias), args))
        return fail(OCTET_EINVAL, "%s: args->size is not of a known version; initialize with OCTET_GEMM_ARGS", who);
    if (x->done) return fail(OCTET_EINVAL, "%s: done is for the CPU", who);
    x->workspace = NULL;
    x->workspace_bytes = 0;
    return OCTET_OK;
}

size_t octet_gpu_workspace_bytes(const octet_plan *p, const octet_gemm_args *args)
{
    octet_gemm_args x;
    if (args_of("octet_gpu_workspace_bytes", p, args, &x) || x.m < 0 || (x.b && x.b->plan != p)) return 0;
    int64_t most;
    if (!mul_ok(x.m, round_up(max64(1, p->desc.k) * 4, GPU_PITCH) + 16, &most)) return 0;
    return plan_before(p, &x).bytes;
}

size_t octet_gpu_batch_workspace_bytes(const octet_plan *p, const octet_gemm_args *args, const octet_batch *batch)
{
    const char *who = "octet_gpu_batch_workspace_bytes";
    octet_gemm_args x, y;
    octet_batch b;
    size_t most = 0;
    if (args_of(who, p, args, &x) || batch_check(who, p, &x, batch, &b)) return 0;
    for (int64_t i = 0; i < b.count; i++) {
        y = x;
        batch_args(p, &x, &b, i, &y);
        const size_t bytes = plan_before(p, &y).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

octet_status octet_gpu_run(const octet_plan *p, const octet_gemm_args *args, void *stream, void *workspace, size_t bytes)
{
    const char *who = "octet_gpu_run";
    octet_gemm_args x;
    octet_status st = args_of(who, p, args, &x);
    if (st) return st;
    const char *broken = gpu_args_breach(p, &x);
    const before w = broken ? (before){ 0 } : plan_before(p, &x);
    if (!broken) broken = workspace_breach(p, &x, &w, workspace, bytes);
    if (broken) return fail(OCTET_EINVAL, "%s: %s", who, broken);
    st = gpu_enter_stream(p->gpu->gpu, who, stream);
    if (st) return st;
    st = enqueue(p, &x, &w, workspace, stream);
    gpu_leave(p->gpu->gpu);
    return st;
}

octet_status octet_gpu_run_batch(const octet_plan *p, const octet_gemm_args *args, const octet_batch *batch, void *stream, void *workspace, size_t bytes)
{
    const char *who = "octet_gpu_run_batch";
    octet_gemm_args x, y;
    octet_batch b;
    octet_status st = args_of(who, p, args, &x);
    if (!st) st = batch_check(who, p, &x, batch, &b);
    if (st) return st;
    for (int64_t i = 0; i < b.count; i++) {
        y = x;
        batch_args(p, &x, &b, i, &y);
        const before w = plan_before(p, &y);
        const char *broken = workspace_breach(p, &y, &w, workspace, bytes);
        if (broken) return fail(OCTET_EINVAL, "%s: product %lld: %s", who, (long long)i, broken);
    }
    st = gpu_enter_stream(p->gpu->gpu, who, stream);
    if (st) return st;
    for (int64_t i = 0; !st && i < b.count; i++) {
        y = x;
        batch_args(p, &x, &b, i, &y);
        const before w = plan_before(p, &y);
        st = enqueue(p, &y, &w, workspace, stream);
    }
    gpu_leave(p->gpu->gpu);
    return st;
}
