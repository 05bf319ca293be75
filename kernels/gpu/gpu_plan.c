/* Plans and packed operands of a GPU: the CPU's plan with a device and its candidates, and B packed there by a kernel. */
#include "gpu_plan.h"

#include <stdio.h>
#include <unistd.h>

/* Every kernel that some m can reach is brought onto the device now, so that a run never loads. */
static octet_status load_kernels(octet_gpu *g, uint64_t wanted)
{
    octet_status st = gpu_enter(g, "octet_gpu_plan_gemm");
    if (st) return st;
    for (int i = 0; !st && i < gpu_kernel_count; i++) {
        void *function;
        if (!(wanted >> i & 1)) continue;
        st = gpu_check(g, g->cu->function(&function, g->kernels[i]), "cuKernelGetFunction");
        if (!st && g->cu->func_load) st = gpu_check(g, g->cu->func_load(function), "cuFuncLoad");
    }
    gpu_leave(g);
    return st;
}

octet_status octet_gpu_plan_gemm(octet_gpu *g, const octet_gemm_desc *desc, const octet_gpu_choice *choice, octet_plan **out)
{
    const char *who = "octet_gpu_plan_gemm";
    octet_gpu_choice c = OCTET_GPU_CHOICE;
    octet_gemm_desc d;
    if (!g || !desc || !out) return fail(OCTET_EINVAL, "%s: %s is NULL", who, !g ? "gpu" : desc ? "out" : "desc");
    if (choice && !copy_versioned(&c, sizeof c, sizeof(size_t), choice))
        return fail(OCTET_EINVAL, "%s: choice->size is not of a known version; initialize with OCTET_GPU_CHOICE", who);
    if (!copy_versioned(&d, sizeof d, offsetof(octet_gemm_desc, a_as), desc))
        return fail(OCTET_EINVAL, "%s: desc->size is not of a known version; initialize with OCTET_GEMM_DESC", who);
    const unsigned flags = d.flags;
    d.flags &= ~(unsigned)OCTET_NO_FALLBACK; /* of the CPU's kernels, there */
    octet_plan *p;
    octet_status st = plan_create(g->host, &d, (blocking){ 0 }, false, true, &p);
    if (st) return st;
    p->desc.flags = flags;
    uint64_t candidates = 0;
    const char *refused = NULL;
    const gpu_problem any = gpu_problem_of(&p->desc, -1);
    for (int i = 0; i < gpu_kernel_count; i++) {
        const gpu_kernel_row *r = &gpu_kernels[i];
        if (c.kernel && strcmp(c.kernel, r->name)) continue;
        const char *why = gpu_refuses(r, &g->info, &any, c.unseen || c.kernel);
        if (!*why && !g->kernels[i]) why = "not in this build";
        if (*why) refused = why;
        else candidates |= UINT64_C(1) << i;
    }
    if (!candidates)
        st = c.kernel ? refused ? fail(OCTET_EUNSUPPORTED, "%s: %s: %s", who, c.kernel, refused) : fail(OCTET_EINVAL, "%s: there is no kernel %s", who, c.kernel)
                      : fail(OCTET_EUNSUPPORTED, "%s: OCTET_NO_FALLBACK is set, and no other kernel than the portable one takes this product", who);
    if (!st) st = load_kernels(g, candidates | 1u << GPU_RANGE | 1u << GPU_GATHER | 1u << GPU_GATHER_COLUMNS | 1u << GPU_PACK);
    gpu_plan *own = st ? NULL : mem_alloc(&p->ctx->allocator, sizeof *own);
    if (!st && !own) st = fail(OCTET_ENOMEM, "%s: no memory for a plan", who);
    if (st) {
        octet_plan_free(p);
        return st;
    }
    own->gpu = gpu_hold(g);
    own->candidates = candidates;
    p->gpu = own;
    *out = p;
    return OCTET_OK;
}

void gpu_plan_drop(octet_plan *p)
{
    octet_gpu_free(p->gpu->gpu);
    mem_free(&p->ctx->allocator, p->gpu, sizeof *p->gpu);
}

const char *gpu_explain(const octet_plan *p, char *text, size_t bytes)
{
    const gpu_problem at = gpu_problem_of(&p->desc, p->desc.m_hint);
    const int k = gpu_choose(p->gpu->candidates, &p->gpu->gpu->info, &at);
    snprintf(text, bytes, "%s%s%s on %s: %s%s", p->a->name, format_of(p->desc.b)->name, p->c->name, p->gpu->gpu->info.name,
             k < 0 ? "no kernel" : gpu_kernels[k].name, p->desc.m_hint ? "" : " (m_hint is 0)");
    return text;
}

/* ---- packed operands ---- */

typedef struct packed_layout { int64_t rows, pitch; size_t scales, zeros, sums, float_zeros, bytes; } packed_layout;

static packed_layout layout_of(const octet_plan *p)
{
    const bool scaled = !is_floating(p->desc.b), integer = !p->b.floating;
    const int bits = p->desc.b == OCTET_S4 || p->desc.b == OCTET_U4 ? 4 : 8 * format_of(p->desc.b)->bytes;
    const size_t columns = 4 * (size_t)round_up(p->b.n, 64), grouped = 4 * (size_t)round_up(p->b.groups * p->b.n, 64);
    packed_layout l = { gpu_packed_rows(p->b.n, p->b.gated), round_up(max64(1, ceil_div(p->b.k * bits, 8)), GPU_PITCH), 0, 0, 0, 0, 0 };
    l.scales = (size_t)(l.rows * l.pitch);
    l.zeros = l.scales + (scaled ? grouped : 0);
    l.sums = l.zeros + (integer ? columns : 0);
    l.float_zeros = l.sums + (integer ? columns : 0);
    l.bytes = l.float_zeros + (scaled && !integer ? grouped : 0) + 256; /* never none */
    return l;
}

static octet_status device_alloc(octet_gpu *g, size_t bytes, uint64_t *at)
{
    const char *who = "octet_gpu_pack";
    enum { OUT_OF_MEMORY = 2 };
    *at = 0;
    if (!g->allocator.alloc) {
        const int result = g->cu->alloc(at, bytes);
        if (result != CU_OK && result != OUT_OF_MEMORY) return gpu_check(g, result, "cuMemAlloc");
    } else {
        *at = g->allocator.alloc(g->allocator.user, bytes);
    }
    return *at ? OCTET_OK : fail(OCTET_ENOMEM, "%s: no device memory for %zu bytes", who, bytes);
}

static void device_free(octet_gpu *g, uint64_t at, size_t bytes)
{
    if (g->allocator.free) g->allocator.free(g->allocator.user, at, bytes);
    else (void)gpu_check(g, g->cu->free(at), "cuMemFree"); /* waits for the device: its faults surface here too */
}

void gpu_packed_drop(octet_packed *h)
{
    octet_gpu *g = h->plan->gpu->gpu;
    if (g->allocator.free && g->owner == getpid()) { /* the host's memory goes back to it whatever the device says */
        g->allocator.free(g->allocator.user, h->gpu->memory, h->gpu->bytes);
    } else if (!g->allocator.free && !gpu_enter(g, "octet_packed_free")) {
        device_free(g, h->gpu->memory, h->gpu->bytes);
        gpu_leave(g);
    }
    mem_free(&h->plan->ctx->allocator, h->gpu, sizeof *h->gpu);
}

octet_status octet_gpu_pack(const octet_plan *p, const void *b, int64_t ldb, const octet_quant *qb, void *stream, octet_packed **out)
{
    const char *who = "octet_gpu_pack";
    octet_quant q;
    if (!p || !out) return fail(OCTET_EINVAL, "%s: %s is NULL", who, p ? "out" : "plan");
    if (!p->gpu) return fail(OCTET_EINVAL, "%s: the plan is of the CPU: octet_pack packs for it", who);
    const char *broken = b_breach(p, b, ldb);
    if (broken) return fail(OCTET_EINVAL, "%s: %s", who, broken);
    octet_status st = quant_check(who, p, qb, &q);
    if (st) return st;
    octet_gpu *g = p->gpu->gpu;
    const octet_allocator *host = &p->ctx->allocator;
    const packed_layout l = layout_of(p);
    st = gpu_enter_stream(g, who, stream);
    if (st) return st;
    octet_packed *h = mem_alloc(host, sizeof *h);
    gpu_packed *own = mem_alloc(host, sizeof *own);
    uint64_t memory = 0;
    st = h && own ? device_alloc(g, l.bytes, &memory) : fail(OCTET_ENOMEM, "%s: no host memory", who);
    if (!st && memory % 256) st = fail(OCTET_EINVAL, "%s: the allocator's memory is not at a multiple of 256", who);
    if (!st && l.rows) {
        const bool integer = !p->b.floating, scaled = !is_floating(p->desc.b);
        gpu_pack pack = {
            .b = b, .b_k = p->desc.trans_b ? 1 : ldb, .b_n = p->desc.trans_b ? ldb : 1, .n = p->b.n, .k = p->b.k, .groups = p->b.groups,
            .out = (uint8_t *)(uintptr_t)memory, .pitch = l.pitch, .scales = q.scales, .zeros = q.zeros,
            .scale = q.scale == 0.0f ? 1.0f : q.scale, .zero = q.zero, .scale_b = scaled ? (float *)(uintptr_t)(memory + l.scales) : NULL,
            .zero_b = (int32_t *)(uintptr_t)(memory + l.zeros), .col_sums = (int32_t *)(uintptr_t)(memory + l.sums),
            .float_zeros = scaled && !integer ? (float *)(uintptr_t)(memory + l.float_zeros) : NULL,
            .b_type = (int32_t)p->desc.b, .gated = p->b.gated, .integer = integer,
        };
        st = gpu_launch(g, GPU_PACK, min64(l.rows, 65536), GPU_THREADS_PREPARE, 0, 1, stream, &pack);
    }
    if (st && memory) device_free(g, memory, l.bytes);
    gpu_leave(g);
    if (st) {
        mem_free(host, own, sizeof *own);
        mem_free(host, h, sizeof *h);
        return st;
    }
    *own = (gpu_packed){ memory, l.bytes, l.pitch, l.scales, l.zeros, l.sums, l.float_zeros, q.zeros || q.zero };
    *h = (octet_packed){ .plan = plan_hold(p), .gpu = own };
    *out = h;
    return OCTET_OK;
}
