/*
 * The GPU backend's host side over the fake driver: what is refused, what fails and how it is told, what a run may do. Kernels run
 * on the emulator only where a result is looked at.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "fake_cuda.h"
#include "gpu_case.h"

static fake_cuda_state *fake(void)
{
    fake_cuda_state *s = gpu_replace_driver();
    cr_assert(s, "the fake driver could not be opened");
    s->runs_kernels = 0;
    return s;
}

static octet_gpu *device(void)
{
    octet_gpu *g = gpu_device();
    cr_assert(g, "%s", octet_why());
    return g;
}

#define FAILS(expression, status, words) \
    do { \
        const octet_status got = (expression); \
        cr_assert_eq(got, status, "%s: %s", octet_status_name(got), octet_why()); \
        cr_assert(strstr(octet_why(), words), "\"%s\" does not say \"%s\"", octet_why(), words); \
    } while (0)
#define WORKS(expression) cr_assert_eq((expression), OCTET_OK, "%s", octet_why())

/* A product that every test can run: u8 x s8, on memory of the device. */
typedef struct fixture {
    octet_gemm_desc d;
    octet_gemm_args x;
    octet_plan *p;
    octet_packed *b;
    gpu_memory a, weights, c;
} fixture;
enum { M = 40, N = 48, K = 64 };

static void fixture_new(fixture *f, octet_gpu *g, const char *kernel)
{
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    uint8_t bytes[4 * M * N];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37);
    f->d = (octet_gemm_desc)OCTET_GEMM_DESC;
    f->x = (octet_gemm_args)OCTET_GEMM_ARGS;
    f->d.n = N, f->d.k = K, f->d.a = OCTET_U8, f->d.b = OCTET_S8, f->d.c = OCTET_S32;
    choice.kernel = kernel;
    f->a = gpu_put(bytes, M * K, true);
    f->weights = gpu_put(bytes, N * K, true);
    f->c = gpu_put(bytes, 4 * M * N, true);
    WORKS(octet_gpu_plan_gemm(g, &f->d, &choice, &f->p));
    WORKS(octet_gpu_pack(f->p, f->weights.p, N, NULL, NULL, &f->b));
    f->x.m = M, f->x.a = f->a.p, f->x.lda = K, f->x.b = f->b, f->x.c = f->c.p, f->x.ldc = N;
}

static void fixture_free(fixture *f)
{
    octet_packed_free(f->b);
    octet_plan_free(f->p);
    gpu_drop(&f->a), gpu_drop(&f->weights), gpu_drop(&f->c);
}

Test(gpu, opens_and_describes)
{
    fake_cuda_state *s = fake();
    octet_gpu *g;
    octet_gpu_info i = OCTET_GPU_INFO;
    WORKS(octet_gpu_create(NULL, &g));
    cr_assert_eq(s->loads, 4);
    WORKS(octet_gpu_describe(g, &i));
    cr_assert_str_eq(i.name, "emulated GPU");
    cr_assert(i.driver == 13000 && i.major == 9 && i.minor == 0 && i.processors == 4);
    octet_gpu_free(g);
    octet_gpu_kernel k = OCTET_GPU_KERNEL;
    int kernels = 0;
    WORKS(octet_gpu_create(NULL, &g));
    octet_gemm_desc d = OCTET_GEMM_DESC;
    d.n = d.k = 512, d.a = d.b = d.c = OCTET_BF16;
    for (; octet_gpu_kernel_at(g, kernels, &d, 64, &k) == OCTET_OK; kernels++) cr_assert(*k.name && (*k.refused || k.microseconds > 0));
    cr_assert_eq(kernels, gpu_kernel_count);
    FAILS(octet_gpu_kernel_at(g, kernels, &d, 64, &k), OCTET_EINVAL, "there are kernels 0 ..");
    FAILS(octet_gpu_kernel_at(g, 0, &d, -1, &k), OCTET_EINVAL, "m is negative");
    octet_gpu_free(g);
    octet_gpu_free(NULL);
    FAILS(octet_gpu_describe(NULL, &i), OCTET_EINVAL, "NULL");
    FAILS(octet_gpu_create(NULL, NULL), OCTET_EINVAL, "out is NULL");
    octet_gpu_opts o = OCTET_GPU_OPTS;
    o.ordinal = -1;
    FAILS(octet_gpu_create(&o, &g), OCTET_EINVAL, "negative");
    o.ordinal = 1;
    FAILS(octet_gpu_create(&o, &g), OCTET_EDEVICE, "invalid device ordinal");
    o.ordinal = 0, o.size = 3;
    FAILS(octet_gpu_create(&o, &g), OCTET_EINVAL, "OCTET_GPU_OPTS");
}

Test(gpu, says_why_there_is_none)
{
    octet_gpu *g = NULL;
    driver_replace("libcuda-that-is-not-here.so.1", gpu_images());
    FAILS(octet_gpu_create(NULL, &g), OCTET_EDEVICE, "no NVIDIA driver");
    driver_replace("libm.so.6", gpu_images());
    FAILS(octet_gpu_create(NULL, &g), OCTET_EDEVICE, "lacks cuInit");
    fake_cuda_state *s = fake();
    s->version = 11080;
    FAILS(octet_gpu_create(NULL, &g), OCTET_EDEVICE, "of CUDA 11.8");
    s->version = 13000;
    s->major = 7;
    FAILS(octet_gpu_create(NULL, &g), OCTET_EDEVICE, "architecture 7.0");
    s->major = 9;
    static const gpu_image none[] = { { NULL, NULL } };
    driver_replace("libcuda.so.1", none); /* the driver stays open */
    FAILS(octet_gpu_create(NULL, &g), OCTET_EDEVICE, "without nvcc");
    cr_assert_null(g);
}

/* Each call of opening, planning, packing and running, failing once: its words come through and nothing leaks. */
Test(gpu, every_call_may_fail)
{
    fake_cuda_state *s = fake();
    static const char *const opening[] = { "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuLibraryLoadData", "cuLibraryGetKernel",
                                           "cuKernelSetAttribute" };
    octet_gpu *g, *other;
    WORKS(octet_gpu_create(NULL, &g));
    for (size_t i = 0; i < COUNT(opening); i++) {
        s->failing = opening[i], s->failing_with = 1;
        FAILS(octet_gpu_create(NULL, &other), OCTET_EDEVICE, "invalid argument (1)");
        cr_assert_null(s->failing, "%s was not called", opening[i]);
    }
    fixture f;
    octet_plan *p;
    octet_packed *b;
    fixture_new(&f, g, "octet_u8s8_128x256");
    const int live = s->live_allocations;
    static const char *const planning[] = { "cuCtxPushCurrent", "cuKernelGetFunction" };
    for (size_t i = 0; i < COUNT(planning); i++) {
        s->failing = planning[i], s->failing_with = 201;
        FAILS(octet_gpu_plan_gemm(g, &f.d, NULL, &p), OCTET_EDEVICE, "invalid device context");
    }
    static const char *const packing[] = { "cuCtxPushCurrent", "cuStreamGetCtx", "cuLaunchKernelEx" };
    for (size_t i = 0; i < COUNT(packing); i++) {
        s->failing = packing[i], s->failing_with = 1;
        FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, FAKE_STREAM, &b), OCTET_EDEVICE, "invalid argument");
    }
    s->failing = "cuMemAlloc", s->failing_with = 2;
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_ENOMEM, "no device memory");
    s->failing = "cuMemAlloc", s->failing_with = 1;
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_EDEVICE, "cuMemAlloc: invalid argument");
    static const char *const running[] = { "cuCtxPushCurrent", "cuStreamGetCtx", "cuTensorMapEncodeTiled", "cuLaunchKernelEx" };
    for (size_t i = 0; i < COUNT(running); i++) {
        s->failing = running[i], s->failing_with = 1;
        FAILS(octet_gpu_run(f.p, &f.x, FAKE_STREAM, NULL, 0), OCTET_EDEVICE, "invalid argument");
    }
    cr_assert_eq(s->depth, 0);
    cr_assert_eq(s->live_allocations, live);
    WORKS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0)); /* none of them ended the context */
    fixture_free(&f);
    octet_gpu_free(g);
    cr_assert_eq(s->live_allocations, 0);
}

Test(gpu, a_fault_stays)
{
    fake_cuda_state *s = fake();
    octet_gpu *g;
    fixture f;
    octet_plan *p;
    octet_packed *b;
    WORKS(octet_gpu_create(NULL, &g));
    fixture_new(&f, g, NULL);
    WORKS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0));
    s->pending_fault = 700;
    FAILS(octet_gpu_sync(g, NULL), OCTET_EDEVICE, "illegal memory access");
    s->pending_fault = 0; /* whatever the driver says now */
    FAILS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0), OCTET_EDEVICE, "an earlier fault ended this GPU context: an illegal memory access");
    FAILS(octet_gpu_sync(g, NULL), OCTET_EDEVICE, "an earlier fault");
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_EDEVICE, "an earlier fault");
    FAILS(octet_gpu_plan_gemm(g, &f.d, NULL, &p), OCTET_EDEVICE, "an earlier fault");
    fixture_free(&f);
    octet_gpu_free(g);
    static const int ends[] = { 710, 719 }; /* wherever it comes up */
    for (size_t i = 0; i < COUNT(ends); i++) {
        WORKS(octet_gpu_create(NULL, &g));
        fixture_new(&f, g, NULL);
        s->failing = "cuMemAlloc", s->failing_with = ends[i];
        FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_EDEVICE, "cuMemAlloc");
        FAILS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0), OCTET_EDEVICE, "an earlier fault");
        fixture_free(&f);
        octet_gpu_free(g);
    }
}

/* Only enqueues: no allocation, no loading, no waiting; the stream is the caller's; the current context is as it was. */
Test(gpu, a_run_only_enqueues)
{
    fake_cuda_state *s = fake();
    octet_gpu *g = device();
    static const char *const kernels[] = { "octet_portable_s32", "octet_u8s8_128x256_c2", "octet_u8s8_128x128_turns" };
    for (size_t i = 0; i < COUNT(kernels); i++) {
        fixture f;
        fixture_new(&f, g, kernels[i]);
        const fake_cuda_state before = *s;
        WORKS(octet_gpu_run(f.p, &f.x, FAKE_STREAM, NULL, 0));
        cr_assert_str_eq(s->last_kernel, kernels[i]);
        cr_assert_eq(s->last_stream, FAKE_STREAM);
        cr_assert(s->launches == before.launches + 1 && s->loads == before.loads && s->functions == before.functions
                  && s->live_allocations == before.live_allocations && s->synchronizations == before.synchronizations && s->depth == 0);
        FAILS(octet_gpu_run(f.p, &f.x, FAKE_FOREIGN_STREAM, NULL, 0), OCTET_EINVAL, "another context");
        FAILS(octet_gpu_sync(g, FAKE_FOREIGN_STREAM), OCTET_EINVAL, "another context");
        cr_assert_eq(s->depth, 0);
        fixture_free(&f);
    }
    cr_assert_eq(s->violations, 0);
}

Test(gpu, a_child_gets_a_status)
{
    fake();
    octet_gpu *g = device();
    fixture f;
    fixture_new(&f, g, NULL);
    const pid_t child = fork();
    if (child == 0) {
        octet_gpu *again;
        int bad = octet_gpu_run(f.p, &f.x, NULL, NULL, 0) != OCTET_EDEVICE || !strstr(octet_why(), "forked");
        bad |= octet_gpu_sync(g, NULL) != OCTET_EDEVICE;
        (void)again;
        _exit(bad);
    }
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    fixture_free(&f);
}

Test(gpu, arguments_are_checked)
{
    fake();
    octet_gpu *g = device();
    fixture f;
    octet_plan *p, *cpu;
    octet_packed *b;
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    fixture_new(&f, g, NULL);
    octet_gemm_desc d = f.d;
    FAILS(octet_gpu_plan_gemm(NULL, &d, NULL, &p), OCTET_EINVAL, "gpu is NULL");
    FAILS(octet_gpu_plan_gemm(g, NULL, NULL, &p), OCTET_EINVAL, "desc is NULL");
    d.b = OCTET_U8;
    FAILS(octet_gpu_plan_gemm(g, &d, NULL, &p), OCTET_EINVAL, "b must be");
    d = f.d;
    choice.kernel = "octet_s8s8_128x256";
    FAILS(octet_gpu_plan_gemm(g, &d, &choice, &p), OCTET_EUNSUPPORTED, "other types");
    choice.kernel = "octet_of_my_own";
    FAILS(octet_gpu_plan_gemm(g, &d, &choice, &p), OCTET_EINVAL, "there is no kernel");
    choice.kernel = NULL;
    d.flags = OCTET_NO_FALLBACK;
    FAILS(octet_gpu_plan_gemm(g, &d, &choice, &p), OCTET_EUNSUPPORTED, "OCTET_NO_FALLBACK");
    choice.unseen = 1;
    WORKS(octet_gpu_plan_gemm(g, &d, &choice, &p));
    octet_plan_free(p);

    octet_gemm_args x = f.x;
    FAILS(octet_gpu_run(NULL, &x, NULL, NULL, 0), OCTET_EINVAL, "plan is NULL");
    FAILS(octet_gpu_run(f.p, NULL, NULL, NULL, 0), OCTET_EINVAL, "args is NULL");
    x.m = -1;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "m is negative");
    x = f.x, x.lda = K - 1;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "lda is less than k");
    x = f.x, x.ldc = N - 1;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "ldc is less than n");
    x = f.x, x.a = NULL;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "a is NULL");
    x = f.x, x.c = (char *)x.c + 1;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "misaligned");
    x = f.x, x.m = INT64_C(1) << 60;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "overflows");
    x = f.x, x.c = (void *)(uintptr_t)x.a;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "c overlaps a");
    x = f.x, x.b = NULL;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "b is NULL");
    x = f.x, x.size = 5;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "OCTET_GEMM_ARGS");
    x = f.x, x.zero_a = 256;
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "zero_a is outside");

    FAILS(octet_gpu_pack(f.p, NULL, N, NULL, NULL, &b), OCTET_EINVAL, "b is NULL");
    FAILS(octet_gpu_pack(f.p, f.weights.p, N - 1, NULL, NULL, &b), OCTET_EINVAL, "ldb is less than n");
    FAILS(octet_gpu_pack(f.p, f.weights.p, INT64_MAX / 2, NULL, NULL, &b), OCTET_EINVAL, "overflows");
    octet_quant q = OCTET_QUANT;
    q.zero = 128;
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, &q, NULL, &b), OCTET_EINVAL, "zero point 128");

    /* one backend's plans in the other's calls */
    WORKS(octet_plan_gemm(NULL, &f.d, &cpu));
    FAILS(octet_gpu_run(cpu, &f.x, NULL, NULL, 0), OCTET_EINVAL, "plan is of the CPU");
    FAILS(octet_gpu_pack(cpu, f.weights.p, N, NULL, NULL, &b), OCTET_EINVAL, "plan is of the CPU");
    FAILS(octet_run(f.p, &f.x), OCTET_EINVAL, "plan is of a GPU");
    FAILS(octet_run(cpu, &f.x), OCTET_EINVAL, "another plan");
    FAILS(octet_pack(f.p, f.weights.p, N, NULL, &b), OCTET_EINVAL, "plan is of a GPU");
    FAILS(octet_pack_into(f.p, f.weights.p, N, NULL, (void *)(uintptr_t)64, 64, &b), OCTET_EINVAL, "");
    FAILS(octet_packed_load(f.p, (void *)(uintptr_t)64, 64, &b), OCTET_EINVAL, "plan is of a GPU");
    FAILS(octet_unpack(f.b, 0, &x, N), OCTET_EINVAL, "of a GPU");
    const octet_gemm_item item = { f.p, &f.x };
    FAILS(octet_run_group(&item, 1), OCTET_EINVAL, "plan is of a GPU");
    octet_batch batch = OCTET_BATCH;
    FAILS(octet_run_batch(f.p, &f.x, &batch), OCTET_EINVAL, "plan is of a GPU");
    size_t bytes = 1;
    cr_assert_null(octet_packed_data(f.b, &bytes));
    cr_assert(bytes == 0 && octet_packed_bound(f.p) == 0 && octet_workspace_bytes(f.p, 5, 1) == 0 && octet_gpu_workspace_bytes(cpu, &f.x) == 0);
    cr_assert(strstr(octet_explain(f.p, f.b), "emulated GPU"));
    octet_plan_free(cpu);
    fixture_free(&f);
}

Test(gpu, workspace_is_as_asked)
{
    fake_cuda_state *s = fake();
    octet_gpu *g = device();
    fixture f;
    fixture_new(&f, g, "octet_u8s8_128x256");
    cr_assert_eq(octet_gpu_workspace_bytes(f.p, &f.x), 0);
    octet_gemm_args x = f.x;
    x.a = (const char *)f.x.a + 1, x.m = M - 1;
    const size_t bytes = octet_gpu_workspace_bytes(f.p, &x);
    cr_assert(bytes >= 128 * (M - 1));
    gpu_memory w = gpu_put(NULL, bytes + 256, false);
    FAILS(octet_gpu_run(f.p, &x, NULL, NULL, 0), OCTET_EINVAL, "octet_gpu_workspace_bytes");
    FAILS(octet_gpu_run(f.p, &x, NULL, w.p, bytes - 1), OCTET_EINVAL, "octet_gpu_workspace_bytes");
    FAILS(octet_gpu_run(f.p, &x, NULL, (char *)w.p + 64, bytes), OCTET_EINVAL, "multiple of 256");
    octet_gemm_args over = x;
    over.c = (char *)w.p + 128;
    FAILS(octet_gpu_run(f.p, &over, NULL, w.p, bytes), OCTET_EINVAL, "c overlaps the workspace");
    octet_batch batch = OCTET_BATCH; /* of two, the second not at a multiple of 16 */
    octet_gemm_args base = f.x;
    base.m = 8, batch.count = 2, batch.stride_a = 8 * K + 1, batch.stride_c = 8 * N;
    cr_assert_eq(octet_gpu_workspace_bytes(f.p, &base), 0);
    const size_t of_batch = octet_gpu_batch_workspace_bytes(f.p, &base, &batch);
    cr_assert_gt(of_batch, 0);
    FAILS(octet_gpu_run_batch(f.p, &base, &batch, NULL, NULL, 0), OCTET_EINVAL, "product 1: the workspace is smaller");
    WORKS(octet_gpu_run_batch(f.p, &base, &batch, NULL, w.p, of_batch));
    batch.count = -1;
    cr_assert_eq(octet_gpu_batch_workspace_bytes(f.p, &base, &batch), 0);
    const int launches = s->launches;
    WORKS(octet_gpu_run(f.p, &x, NULL, w.p, bytes));
    cr_assert_eq(s->launches, launches + 2);
    gpu_drop(&w);
    fixture_free(&f);
}

typedef struct counted { int allocations; size_t bytes; bool refuse, crooked; gpu_memory m; } counted;
static uint64_t count_alloc(void *user, size_t bytes)
{
    counted *c = user;
    if (c->refuse) return 0;
    c->allocations++;
    c->bytes = bytes;
    c->m = gpu_put(NULL, bytes, false);
    return c->m.base + (c->crooked ? 8 : 0);
}
static void count_free(void *user, uint64_t p, size_t bytes)
{
    counted *c = user;
    (void)p;
    cr_assert_eq(bytes, c->bytes);
    c->allocations--;
    gpu_drop(&c->m);
}

Test(gpu, memory_is_the_hosts)
{
    fake();
    counted c = { 0 };
    octet_gpu_opts o = OCTET_GPU_OPTS;
    octet_gpu *g;
    fixture f;
    octet_packed *b;
    o.allocator = (octet_gpu_allocator){ count_alloc, count_free, &c };
    WORKS(octet_gpu_create(&o, &g));
    fixture_new(&f, g, NULL);
    cr_assert_eq(c.allocations, 1);
    octet_packed_free(f.b);
    cr_assert_eq(c.allocations, 0);
    c.refuse = true;
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_ENOMEM, "no device memory");
    c.refuse = false, c.crooked = true;
    FAILS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &b), OCTET_EINVAL, "multiple of 256");
    cr_assert_eq(c.allocations, 0);
    c.crooked = false;
    WORKS(octet_gpu_pack(f.p, f.weights.p, N, NULL, NULL, &f.b));
    fake()->pending_fault = 700;
    FAILS(octet_gpu_sync(g, NULL), OCTET_EDEVICE, "illegal memory access");
    fake()->pending_fault = 0;
    octet_packed_free(f.b); /* goes back to the host whatever became of the device */
    cr_assert_eq(c.allocations, 0);
    f.b = NULL;
    fixture_free(&f);
    octet_gpu_free(g);
    o.allocator.free = NULL;
    FAILS(octet_gpu_create(&o, &g), OCTET_EINVAL, "only one of");
}

/* Batches equal runs of their own: strided, by pointers, with own weights, and cut by m_offsets. */
Test(gpu, batches)
{
    fake_cuda_state *s = fake();
    octet_gpu *g = device();
    fixture f;
    s->runs_kernels = 1;
    fixture_new(&f, g, "octet_u8s8_128x128_turns");
    octet_batch batch = OCTET_BATCH;
    octet_packed *other;
    static int32_t want[M * N], got[M * N];
    WORKS(octet_gpu_pack(f.p, (const char *)f.weights.p, N, NULL, NULL, &other));
    WORKS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0));
    gpu_get(want, &f.c);
    const octet_packed *bs[] = { f.b, other, f.b, other };
    const int64_t offsets[] = { 0, 7, 7, 30, M };
    const void *as[4];
    void *cs[4];
    octet_gemm_args x = f.x;
    for (int kind = 0; kind < 3; kind++) {
        gpu_memory c = gpu_put(NULL, sizeof want, true);
        x.c = c.p;
        batch = (octet_batch)OCTET_BATCH;
        batch.count = 4;
        x.m = kind == 2 ? M : M / 4;
        for (int i = 0; i < 4; i++) as[i] = (const char *)f.a.p + i * (M / 4) * K, cs[i] = (char *)c.p + i * (M / 4) * N * 4;
        if (kind == 0) batch.stride_a = M / 4 * K, batch.stride_c = M / 4 * N;
        if (kind == 1) batch.a = as, batch.c = cs, batch.b = bs;
        if (kind == 2) batch.m_offsets = offsets, batch.b = bs;
        /* products 10 rows apart lie at multiples of 16 bytes, those from row 7 on do too: no workspace */
        WORKS(octet_gpu_run_batch(f.p, &x, &batch, NULL, NULL, 0));
        WORKS(octet_gpu_sync(g, NULL));
        gpu_get(got, &c);
        cr_assert_eq(memcmp(got, want, sizeof want), 0, "kind %d", kind);
        gpu_drop(&c);
    }
    x.c = f.c.p;
    batch = (octet_batch)OCTET_BATCH;
    batch.count = 2;
    FAILS(octet_gpu_run_batch(f.p, &x, &batch, NULL, NULL, 0), OCTET_EINVAL, "stride_c is 0");
    batch.count = -1;
    FAILS(octet_gpu_run_batch(f.p, &x, &batch, NULL, NULL, 0), OCTET_EINVAL, "count is negative");
    FAILS(octet_gpu_run_batch(f.p, &x, NULL, NULL, NULL, 0), OCTET_EINVAL, "batch is NULL");
    octet_packed_free(other);
    fixture_free(&f);
    cr_assert_eq(s->violations, 0);
}

/* What a later call may still use is not freed under it. */
Test(gpu, the_device_outlives_its_handle)
{
    fake_cuda_state *s = fake();
    octet_gpu *g;
    fixture f;
    WORKS(octet_gpu_create(NULL, &g));
    fixture_new(&f, g, NULL);
    octet_gpu_free(g);
    WORKS(octet_gpu_run(f.p, &f.x, NULL, NULL, 0));
    fixture_free(&f);
    cr_assert_eq(s->live_allocations, 0);
}
