#include "gpu_case.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake_cuda.h"
#include "ref_any.h"

#ifndef FAKE_CUDA
#define FAKE_CUDA "libcuda.so.1"
#endif

bool gpu_is_real(void)
{
    const char *want = getenv("OCTET_TEST_GPU");
    return want && !strcmp(want, "real");
}

/* The driver in libcuda's place: the build's, or the mutants'. */
static const char *stand_in(void)
{
    const char *other = getenv("OCTET_TEST_LIBCUDA");
    return other ? other : FAKE_CUDA;
}

static void *library(void) { return dlopen(gpu_is_real() ? "libcuda.so.1" : stand_in(), RTLD_NOW | RTLD_LOCAL); }

fake_cuda_state *gpu_replace_driver(void)
{
    static const gpu_image images[] = { { "portable", "" }, { "prepare", "" }, { "hopper_s8", "" }, { "hopper_16", "" }, { NULL, NULL } };
    if (gpu_is_real()) return NULL;
    void *so = library();
    if (!so) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    fake_cuda_state *(*state)(void);
    void *p = dlsym(so, "fake_cuda");
    memcpy(&state, &p, sizeof p);
    driver_replace(stand_in(), images);
    return state();
}

octet_gpu *gpu_device(void)
{
    static octet_gpu *g; /* of this process, to its end */
    if (g) return g;
    gpu_replace_driver();
    if (octet_gpu_create(NULL, &g)) fprintf(stderr, "%s\n", octet_why());
    return g;
}

/* ---- memory, by the driver's own calls ---- */

static void *call(const char *name)
{
    void *p = dlsym(library(), name);
    if (!p) abort();
    return p;
}

/* In the primary context, which octet retains. */
static void in_context(bool enter)
{
    static void *context;
    int (*retain)(void **, int), (*push)(void *), (*pop)(void **);
    void *p = call("cuDevicePrimaryCtxRetain");
    memcpy(&retain, &p, sizeof p);
    p = call("cuCtxPushCurrent_v2");
    memcpy(&push, &p, sizeof p);
    p = call("cuCtxPopCurrent_v2");
    memcpy(&pop, &p, sizeof p);
    if (!context) retain(&context, 0);
    void *old;
    if (enter ? push(context) : pop(&old)) abort();
}

gpu_memory gpu_put(const void *host, size_t bytes, bool at_end)
{
    gpu_memory m = { 0, NULL, bytes };
    const size_t room = (bytes + 255) / 256 * 256 + (bytes == 0) * 256;
    int (*alloc)(uint64_t *, size_t), (*copy)(uint64_t, const void *, size_t);
    void *p = call("cuMemAlloc_v2");
    memcpy(&alloc, &p, sizeof p);
    p = call("cuMemcpyHtoD_v2");
    memcpy(&copy, &p, sizeof p);
    in_context(true);
    if (alloc(&m.base, room)) abort();
    m.p = (void *)(uintptr_t)(m.base + (at_end ? room - bytes : 0));
    if (host && bytes && copy((uint64_t)(uintptr_t)m.p, host, bytes)) abort();
    in_context(false);
    return m;
}

void gpu_get(void *host, const gpu_memory *m)
{
    int (*copy)(void *, uint64_t, size_t);
    void *p = call("cuMemcpyDtoH_v2");
    memcpy(&copy, &p, sizeof p);
    in_context(true);
    if (m->bytes && copy(host, (uint64_t)(uintptr_t)m->p, m->bytes)) abort();
    in_context(false);
}

void gpu_drop(gpu_memory *m)
{
    int (*release)(uint64_t);
    void *p = call("cuMemFree_v2");
    memcpy(&release, &p, sizeof p);
    if (!m->base) return;
    in_context(true);
    if (release(m->base)) abort();
    in_context(false);
    m->base = 0;
}

/* ---- a case ---- */

void gpu_make_exact(any_case *c)
{
    rng r = { c->seed + 77 };
    const struct { guarded *g; octet_dtype t; } all[] = { { &c->a, c->d.a }, { &c->b, c->d.b }, { &c->sums, c->x.sums ? OCTET_F32 : OCTET_U8 } };
    for (int k = 0; k < 3; k++) {
        const int bits = any_bits(all[k].t);
        if (bits < 16 || (k == 2 && any_bits(c->d.a) == 8)) continue;
        for (size_t i = 0; i < all[k].g->bytes * 8 / (size_t)bits; i++) {
            const float v = (float)((int)rng_below(&r, 17) - 8);
            if (all[k].t == OCTET_F32) ((float *)all[k].g->p)[i] = v;
            else ((uint16_t *)all[k].g->p)[i] = all[k].t == OCTET_F16 ? ref_f32_to_f16(v) : ref_f32_to_bf16(v);
        }
    }
}

int gpu_run_case(any_case *c, octet_gpu *g, const char *kernel)
{
    enum { A, B, C, BIAS, SCALE_ROWS, ZERO_ROWS, SCALES, ZEROS, SUMS, OPERANDS, COUNT_ALL = OPERANDS + OCTET_OPS };
    guarded *host[COUNT_ALL] = { &c->a, &c->b, &c->c, &c->bias, &c->scale_rows, &c->zero_rows, &c->scales, &c->zeros, &c->sums };
    for (int i = 0; i < OCTET_OPS; i++) host[OPERANDS + i] = &c->operand[i];
    gpu_memory m[COUNT_ALL];
    rng r = { c->seed + 99 };
    for (int i = 0; i < COUNT_ALL; i++) m[i] = gpu_put(host[i]->p, host[i]->bytes, rng_below(&r, 2));
    octet_gemm_args x = c->x;
    octet_quant q = c->q;
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    octet_plan *p = NULL;
    octet_packed *b = NULL;
    gpu_memory workspace = { 0, NULL, 0 };
    choice.kernel = kernel;
    choice.unseen = 1;
    x.a = m[A].p, x.c = m[C].p, x.bias = m[BIAS].p, x.scale_a_rows = m[SCALE_ROWS].p, x.zero_a_rows = m[ZERO_ROWS].p;
    if (x.sums) x.sums = m[SUMS].p;
    if (q.scales) q.scales = m[SCALES].p;
    if (q.zeros) q.zeros = m[ZEROS].p;
    for (int i = 0; i < OCTET_OPS; i++)
        if (x.operand[i].t) x.operand[i].t = m[OPERANDS + i].p;
    octet_status st = octet_gpu_plan_gemm(g, &c->d, &choice, &p);
    if (!st) st = octet_gpu_pack(p, m[B].p, c->ldb, &q, NULL, &b);
    x.b = b;
    if (!st) {
        workspace = gpu_put(NULL, octet_gpu_workspace_bytes(p, &x), false);
        st = octet_gpu_run(p, &x, NULL, workspace.p, workspace.bytes);
    }
    if (!st) st = octet_gpu_sync(g, NULL);
    int bad = 1;
    if (st) {
        fprintf(stderr, "%s, case %llu (%lld x %lld x %lld): %s: %s\n", kernel ? kernel : "chosen kernel", (unsigned long long)c->seed, (long long)x.m,
                (long long)c->d.n, (long long)c->d.k, octet_status_name(st), octet_why());
        if (gpu_is_real() && st == OCTET_EDEVICE) { /* nothing after it can run */
            puts("0 passed, 1 failed");
            exit(1);
        }
    } else {
        gpu_get(c->c.p, &m[C]);
        bad = any_check(c, octet_explain(p, b));
    }
    octet_packed_free(b);
    octet_plan_free(p);
    gpu_drop(&workspace);
    for (int i = 0; i < COUNT_ALL; i++) gpu_drop(&m[i]);
    return bad;
}
