/*
 * octet-bench on a GPU. A timed call enqueues enough products for some milliseconds and waits; each takes the next set of operands, so
 * that nothing is in L2; octet and cuBLASLt in turn, pair by pair. Clocks differ from second to second under the power limit, ratios of
 * neighbours do not.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "gpu_bench.h"
#include "octet/gpu.h"

gpu_calls gpu;
static octet_gpu *device;
static octet_gpu_info info = OCTET_GPU_INFO;

static void *symbol(const char *name)
{
    static void *so;
    if (!so) so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return so ? dlsym(so, name) : NULL;
}

/* The device, its primary context current in this thread. */
static bool open_device(void)
{
    int (*retain)(void **, int), (*push)(void *);
    void *context;
    const struct { void *to; const char *name; } wanted[] = {
        { &gpu.alloc, "cuMemAlloc_v2" }, { &gpu.release, "cuMemFree_v2" }, { &gpu.to_device, "cuMemcpyHtoD_v2" }, { &gpu.to_host, "cuMemcpyDtoH_v2" },
        { &gpu.copy, "cuMemcpyDtoDAsync_v2" }, { &gpu.synchronize, "cuStreamSynchronize" }, { &retain, "cuDevicePrimaryCtxRetain" }, { &push, "cuCtxPushCurrent_v2" },
    };
    if (octet_gpu_create(NULL, &device) || octet_gpu_describe(device, &info)) {
        fprintf(stderr, "octet-bench: %s\n", octet_why());
        return false;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *p = symbol(wanted[i].name);
        if (!p) { fprintf(stderr, "octet-bench: the driver lacks %s\n", wanted[i].name); return false; }
        memcpy(wanted[i].to, &p, sizeof p);
    }
    return !retain(&context, 0) && !push(context);
}

/* ---- machine ---- */

/* Bytes read and written in a second by the driver's copy. */
static double copy_rate(void)
{
    const size_t bytes = (size_t)1 << 30;
    uint64_t a, b;
    double best = 0;
    if (gpu.alloc(&a, bytes)) return 0;
    if (gpu.alloc(&b, bytes)) { gpu.release(a); return 0; }
    for (int i = 0; i < 8; i++) {
        const double t = now_ns();
        for (int j = 0; j < 4; j++) gpu.copy(b, a, bytes, NULL);
        gpu.synchronize(NULL);
        const double rate = 8.0 * (double)bytes / (now_ns() - t) * 1e9;
        best = rate > best ? rate : best;
    }
    gpu.release(a);
    gpu.release(b);
    return best;
}

/* ---- operands ---- */

/* Full-range bytes, or uniform in -1 .. 1. */
static void *random_values(octet_dtype t, int64_t count, rng *r)
{
    const size_t bytes = (size_t)count * element_bytes(t);
    uint32_t *p = malloc(bytes + 8);
    if (!p) return NULL;
    if (element_bytes(t) == 1) {
        for (size_t i = 0; i < bytes / 4 + 1; i++) p[i] = rng_u32(r);
        return p;
    }
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)((int32_t)rng_u32(r) >> 8) * 0x1p-23f;
        if (t == OCTET_F32) ((float *)(void *)p)[i] = x;
        else ((uint16_t *)(void *)p)[i] = t == OCTET_F16 ? f16_from_f32(x) : bf16_from_f32(x);
    }
    return p;
}

static double value(octet_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case OCTET_U8: return ((const uint8_t *)p)[i];
    case OCTET_S8: return ((const int8_t *)p)[i];
    case OCTET_S32: return ((const int32_t *)p)[i];
    case OCTET_F16: return (double)f32_from_f16(((const uint16_t *)p)[i]);
    case OCTET_BF16: return (double)f32_from_bf16(((const uint16_t *)p)[i]);
    default: return (double)((const float *)p)[i];
    }
}

typedef struct bench_case {
    gpu_task     t;
    void        *a, *b;              /* host */
    float       *scale_a, *scale_b;  /* 8-bit products into floating C: one for each row and column */
    uint64_t     scales;
    octet_plan  *plan;
    octet_packed *packed[SETS];
    octet_gemm_args x;
    uint64_t     workspace;
    size_t       workspace_bytes;
    int          at, calls;          /* the next set; products in a timed call */
    void        *peer;
    bool         first;              /* the peer's first heuristic, not its best */
} bench_case;

static bool operands(bench_case *c, const options *o, const shape *s)
{
    gpu_task *t = &c->t;
    rng r = { o->seed * 77 + 1 };
    *t = (gpu_task){ .m = s->m, .n = s->n, .k = s->k, .a = o->a, .b = o->b, .c = o->c };
    const size_t a = (size_t)(t->m * t->k) * element_bytes(t->a), b = (size_t)(t->n * t->k) * element_bytes(t->b), out = (size_t)(t->m * t->n) * 4;
    const double twice = 2.0 * (double)info.l2_bytes;
    t->sets = (int)ceil(twice / (double)(a + b + out / 2 + 1));
    if (t->sets < 2) t->sets = 2;
    if (t->sets > SETS) t->sets = SETS;
    c->a = random_values(t->a, t->m * t->k, &r);
    c->b = random_values(t->b, t->n * t->k, &r);
    if (!c->a || !c->b) return false;
    for (int i = 0; i < t->sets; i++)
        if (gpu.alloc(&t->pa[i], a + 256) || gpu.alloc(&t->pb[i], b + 256) || gpu.alloc(&t->pc[i], out + 256)
            || gpu.to_device(t->pa[i], c->a, a) || gpu.to_device(t->pb[i], c->b, b)) return false;
    if (element_bytes(t->a) == 1) {
        c->scale_a = malloc((size_t)t->m * 4);
        c->scale_b = malloc((size_t)t->n * 4);
        for (int64_t i = 0; i < t->m; i++) c->scale_a[i] = 0.001f + 0.0001f * (float)(i % 7);
        for (int64_t i = 0; i < t->n; i++) c->scale_b[i] = 0.002f + 0.0003f * (float)(i % 5);
        if (gpu.alloc(&c->scales, (size_t)(t->m + t->n) * 4 + 512) || gpu.to_device(c->scales, c->scale_a, (size_t)t->m * 4)
            || gpu.to_device(c->scales + (uint64_t)(t->m * 4 + 255) / 256 * 256, c->scale_b, (size_t)t->n * 4)) return false;
    }
    return true;
}

static bool plan(bench_case *c, const char *kernel)
{
    const gpu_task *t = &c->t;
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    octet_quant q = OCTET_QUANT;
    d.n = t->n, d.k = t->k, d.m_hint = t->m, d.a = t->a, d.b = t->b, d.c = t->c, d.trans_b = 1;
    d.scale_a = c->scales && t->c != OCTET_S32 ? OCTET_PER_ROW : OCTET_PER_TENSOR;
    if (c->scales) q.scales = (const float *)(uintptr_t)(c->scales + (uint64_t)(t->m * 4 + 255) / 256 * 256);
    choice.kernel = kernel;
    choice.unseen = 1;
    if (octet_gpu_plan_gemm(device, &d, &choice, &c->plan)) return false;
    for (int i = 0; i < t->sets; i++)
        if (octet_gpu_pack(c->plan, (const void *)(uintptr_t)t->pb[i], t->k, &q, NULL, &c->packed[i])) return false;
    c->x = (octet_gemm_args)OCTET_GEMM_ARGS;
    c->x.m = t->m, c->x.lda = t->k, c->x.ldc = t->n, c->x.b = c->packed[0];
    c->x.a = (const void *)(uintptr_t)t->pa[0], c->x.c = (void *)(uintptr_t)t->pc[0];
    c->x.scale_c = (float)(sqrt((double)t->k) * 74 * 74 * 0.0013 * 0.0026 / 40); /* the sums' spread is 40 of C's units */
    c->x.zero_c = t->c == OCTET_U8 ? 128 : 0;
    c->x.scale_a_rows = (const float *)(uintptr_t)c->scales;
    c->workspace_bytes = octet_gpu_workspace_bytes(c->plan, &c->x);
    return !c->workspace_bytes || !gpu.alloc(&c->workspace, c->workspace_bytes);
}

static void unplan(bench_case *c)
{
    for (int i = 0; i < SETS; i++) octet_packed_free(c->packed[i]), c->packed[i] = NULL;
    octet_plan_free(c->plan);
    c->plan = NULL;
    if (c->workspace) gpu.release(c->workspace);
    c->workspace = 0;
}

static void forget(bench_case *c)
{
    for (int i = 0; i < c->t.sets; i++) {
        if (c->t.pa[i]) gpu.release(c->t.pa[i]);
        if (c->t.pb[i]) gpu.release(c->t.pb[i]);
        if (c->t.pc[i]) gpu.release(c->t.pc[i]);
    }
    if (c->scales) gpu.release(c->scales);
    free(c->a), free(c->b), free(c->scale_a), free(c->scale_b);
}

/* ---- calls ---- */

static void run_one(bench_case *c, int set)
{
    c->x.a = (const void *)(uintptr_t)c->t.pa[set];
    c->x.b = c->packed[set];
    c->x.c = (void *)(uintptr_t)c->t.pc[set];
    if (octet_gpu_run(c->plan, &c->x, NULL, (void *)(uintptr_t)c->workspace, c->workspace_bytes)) {
        fprintf(stderr, "octet-bench: %s\n", octet_why());
        exit(1);
    }
}

static void finish_calls(void)
{
    if (octet_gpu_sync(device, NULL)) {
        fprintf(stderr, "octet-bench: %s\n", octet_why());
        exit(1);
    }
}

static void call_octet(void *x)
{
    bench_case *c = x;
    for (int i = 0; i < c->calls; i++) run_one(c, c->at = (c->at + 1) % c->t.sets);
    finish_calls();
}

static void call_peer(void *x)
{
    bench_case *c = x;
    for (int i = 0; i < c->calls; i++) cublaslt_run(c->peer, c->at = (c->at + 1) % c->t.sets, c->first);
    finish_calls();
}

/* Enough products for about 3 ms. */
static void choose_calls(bench_case *c)
{
    c->calls = 1;
    call_octet(c);
    for (;;) {
        const double t = now_ns();
        call_octet(c);
        const double ns = now_ns() - t;
        if (ns > 3e6 || c->calls >= 512) return;
        c->calls *= 2;
    }
}

/* Random elements of C against the sum in double precision, which is exact for integers. */
static bool right(const bench_case *c, bool peer)
{
    const gpu_task *t = &c->t;
    const octet_dtype type = peer && element_bytes(t->a) == 1 ? OCTET_S32 : t->c;
    const bool scaled = c->scales && type != OCTET_S32;
    rng r = { 5 };
    void *out = malloc((size_t)(t->m * t->n) * element_bytes(type) + 8);
    bool good = out && !gpu.to_host(out, t->pc[c->at], (size_t)(t->m * t->n) * element_bytes(type));
    for (int e = 0; good && e < 200; e++) {
        const int64_t i = (int64_t)(rng_unit(&r) * (double)t->m), j = (int64_t)(rng_unit(&r) * (double)t->n);
        double sum = 0, size = 0;
        for (int64_t k = 0; k < t->k; k++) {
            const double y = value(t->a, c->a, i * t->k + k) * value(t->b, c->b, j * t->k + k);
            sum += y;
            size += fabs(y);
        }
        if (scaled) sum *= (double)c->scale_a[i] * (double)c->scale_b[j], size = fabs(sum);
        if (type == OCTET_U8 || type == OCTET_S8) { /* f32 steps between: next to a half it may be either neighbour */
            const double lo = type == OCTET_U8 ? 0 : -128, hi = lo + 255, q = nearbyint(sum / (double)c->x.scale_c) + (double)c->x.zero_c;
            good = fabs(value(type, out, i * t->n + j) - (q < lo ? lo : q > hi ? hi : q)) <= 1;
            continue;
        }
        const double unit = type == OCTET_BF16 ? 0x1p-8 : type == OCTET_F16 ? 0x1p-11 : type == OCTET_S32 ? 0 : 0x1p-22;
        const double bound = unit * fabs(sum) + (element_bytes(t->a) == 1 ? 0 : (double)t->k * 0x1p-22 * size) + (type == OCTET_F16 ? 0x1p-24 : 0);
        good = fabs(value(type, out, i * t->n + j) - sum) <= bound;
    }
    free(out);
    return good;
}

/* What a run of a small product costs its caller, who does not wait for it: the least of some hundreds. */
static double host_cost_us(void)
{
    static bench_case c;
    const options o = { .a = OCTET_BF16, .b = OCTET_BF16, .c = OCTET_BF16 };
    const shape small = { 128, 256, 256, 0 };
    double least = INFINITY;
    enum { RUNS = 200 };
    if (operands(&c, &o, &small) && plan(&c, NULL))
        for (int turn = 0; turn < 20; turn++) {
            finish_calls();
            const double t = now_ns();
            for (int i = 0; i < RUNS; i++) run_one(&c, 0);
            least = fmin(least, (now_ns() - t) * 1e-3 / RUNS);
        }
    finish_calls();
    unplan(&c);
    forget(&c);
    return least;
}

/* ---- the report ---- */

static double peak(const gpu_task *t) { return (element_bytes(t->a) == 1 ? 8192.0 : 4096.0) * info.processors * info.clock_khz * 1e3; }

static void print(const bench_case *c, const options *o, const char *impl, const char *kernel, const char *verified, const stats *s)
{
    const gpu_task *t = &c->t;
    char problem[64];
    const double operations = 2.0 * (double)t->m * (double)t->n * (double)t->k, ns = s->median / c->calls;
    snprintf(problem, sizeof problem, "%lldx%lldx%lld", (long long)t->m, (long long)t->n, (long long)t->k);
    row r = { .op = "gemm", .impl = impl, .kernel = kernel, .types = o->types, .problem = problem, .check = "off", .cache = "cold", .verified = verified,
              .threads = 0, .min_ns = s->min / c->calls, .median_ns = ns, .p99_ns = s->p99 / c->calls, .gops = operations / ns,
              .gbytes = (double)((t->m + t->n) * t->k * (int64_t)element_bytes(t->a) + t->m * t->n * (int64_t)element_bytes(t->c)) / ns,
              .percent_of_peak = 100e9 * operations / ns / peak(t), .workspace_bytes = c->workspace_bytes, .ratio = s->ratio, .ratio_low = s->ratio_low };
    report_row(&r);
}

int gpu_machine_report(void)
{
    if (!open_device()) return 1;
    printf("device             %s, architecture %d.%d, driver of CUDA %d.%d\n", info.name, info.major, info.minor, info.driver / 1000, info.driver % 1000 / 10);
    printf("multiprocessors    %d at %.2f GHz, %lld KiB of shared memory for a block\n", info.processors, info.clock_khz * 1e-6, (long long)(info.shared_bytes >> 10));
    printf("memory             %.1f GiB, L2 %lld MiB\n", (double)info.memory_bytes / (double)(1 << 30), (long long)(info.l2_bytes >> 20));
    printf("copy               %.2f TB/s, read and written\n", copy_rate() * 1e-12);
    printf("host cost of a run %.2f us\n", host_cost_us());
    if (info.major == 9) printf("tensor cores       %.0f TFLOPS in 16 bits, twice that in 8, at that clock\n", 4096e-9 * info.processors * info.clock_khz);
    printf("\nkernel                           why a plan does not get it unasked\n");
    octet_gpu_kernel k = OCTET_GPU_KERNEL;
    for (int i = 0; octet_gpu_kernel_at(device, i, NULL, 0, &k) == OCTET_OK; i++) printf("%-32s %s\n", k.name, *k.refused ? k.refused : "-");
    octet_gpu_free(device);
    return 0;
}

/* s32 sums to the types of C by a pass of its own at 92 % of the copy's rate: ns. */
static double dequantize_ns(const gpu_task *t, double rate)
{
    return (double)(t->m * t->n) * (4 + (double)element_bytes(t->c)) / (0.92 * rate) * 1e9;
}

/* False: a wrong result, or none. */
static bool one_kernel(bench_case *c, const options *o, const char *kernel, const char *no_peer, double rate)
{
    if (!plan(c, kernel)) {
        fprintf(stderr, "octet-bench: %s\n", octet_why());
        unplan(c);
        return false;
    }
    char name[160];
    choose_calls(c);
    snprintf(name, sizeof name, "%s", octet_explain(c->plan, c->packed[0]));
    c->at = 0;
    const bool good = !o->verify || (run_one(c, 0), finish_calls(), right(c, false));
    const char *word = o->verify ? good ? "yes" : "no" : "skipped";
    if (no_peer) {
        stats alone = sample(call_octet, c, NULL, NULL, o->seconds, false, NULL);
        print(c, o, "octet", name, word, &alone);
    } else {
        stats theirs, ours;
        for (int first = 0; first < 2; first++) {
            c->first = first;
            ours = sample(call_octet, c, call_peer, c, o->seconds, false, &theirs);
            if (!first) print(c, o, "octet", name, word, &ours);
            print(c, o, first ? "cublaslt0" : "cublaslt", "", "skipped", &theirs);
            if (!first && element_bytes(c->t.a) == 1 && c->t.c != OCTET_S32 && rate > 0) {
                const double more = dequantize_ns(&c->t, rate) * c->calls;
                stats both = { .min = theirs.min + more, .median = theirs.median + more, .p99 = theirs.p99 + more, .ratio = theirs.ratio + more / ours.median };
                print(c, o, "+dequant", "", "skipped", &both);
            }
        }
    }
    unplan(c);
    return good;
}

int gpu_gemm_report(const options *o)
{
    bool all = true;
    if (!open_device()) return 1;
    const bool wants_peer = strstr(o->peers, ",all,") || strstr(o->peers, ",cublaslt,");
    const char *no_peer = wants_peer ? cublaslt_open() : "not wanted";
    if (wants_peer && no_peer) {
        fprintf(stderr, "octet-bench: cublaslt left out: %s\n", no_peer);
        if (strstr(o->peers, ",cublaslt,")) return 1; /* asked for by name: figures without it would be the wrong ones */
    }
    const double rate = wants_peer && !no_peer ? copy_rate() : 0;
    FILE *f = o->out ? fopen(o->out, "w") : stdout;
    if (!f) { perror(o->out); return 2; }
    report_begin(f, (report_format)o->format, "gemm", o->seed);
    for (int i = 0; i < o->shape_count; i++) {
        static bench_case c;
        memset(&c, 0, sizeof c);
        if (!operands(&c, o, &o->shapes[i])) {
            fprintf(stderr, "octet-bench: no device memory for shape %d\n", i);
            forget(&c);
            all = false;
            continue;
        }
        if (!no_peer && (c.peer = cublaslt_prepare(&c.t, 8)) != NULL && !cublaslt_best(c.peer, 0.05)) {
            cublaslt_close(c.peer);
            c.peer = NULL;
        }
        const char *why = c.peer ? NULL : no_peer ? no_peer : "it cannot do this product";
        if (o->kernel && !strcmp(o->kernel, "all")) { /* a row for each that takes the product: what tunes the cost model */
            octet_gemm_desc d = OCTET_GEMM_DESC;
            octet_gpu_kernel k = OCTET_GPU_KERNEL;
            d.n = c.t.n, d.k = c.t.k, d.a = c.t.a, d.b = c.t.b, d.c = c.t.c;
            for (int n = 0; octet_gpu_kernel_at(device, n, &d, c.t.m, &k) == OCTET_OK; n++)
                if ((!*k.refused || strstr(k.refused, "never checked")) && !strstr(k.name, "portable")) all = one_kernel(&c, o, k.name, why, rate) && all;
        } else {
            all = one_kernel(&c, o, o->kernel, why, rate) && all;
        }
        if (c.peer) cublaslt_close(c.peer);
        forget(&c);
    }
    report_end();
    if (f != stdout) fclose(f);
    octet_gpu_free(device);
    return all ? 0 : 1;
}
