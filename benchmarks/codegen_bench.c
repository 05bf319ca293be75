/* octet-bench codegen: what kernels, look-ups and calls cost. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "cache.h"
#include "gemm.h"

typedef struct gen_job { kernel_spec spec; uint8_t code[32768]; size_t bytes; } gen_job;
static void gen_once(void *x)
{
    gen_job *j = x;
    if (gen_kernel(&j->spec, j->code, sizeof j->code, &j->bytes)) exit(1);
}
static void hit_once(void *x)
{
    gen_job *j = x;
    cache_release(cache_acquire(&j->spec));
}

typedef struct bare { kernel_fn fn; kernel_args args; const uint8_t *a; void *c; } bare;
static void bare_once(void *x)
{
    bare *b = x;
    b->args.tiles = b->args.panels = 1;
    b->args.a = b->a;
    b->args.c = b->c;
    b->fn(&b->args);
}

typedef struct blas_call { const problem *p; } blas_call;
static void blas_once(void *x)
{
    const problem *p = ((blas_call *)x)->p;
    if (octet_gemm_u8s8s32(0, 1, p->m, p->n, p->k, p->pa, p->k, p->pb, p->k, p->pc, p->n)) exit(1);
}

typedef struct pack_run { ours o; const problem *p; uint8_t *memory; octet_packed handle; source b; view lines; } pack_run;
static void pack_run_once(void *x) /* what a one-call product must do at least: pack B, run */
{
    pack_run *r = x;
    octet_quant q = OCTET_QUANT;
    size_t used;
    pack_b(&r->b, &r->o.plan->b, r->o.plan->blocks.kc, &q, false, r->o.plan->cpu, r->memory, &used);
    packed_dots(&r->handle);
    r->o.args.b = &r->handle;
    if (octet_run(r->o.plan, &r->o.args)) exit(1);
}

typedef struct caller { ours *x; double *ns; int count; pthread_barrier_t *start; } caller;
static void *call_often(void *arg)
{
    caller *c = arg;
    ours mine = *c->x;
    int32_t out[8 * 256];
    mine.args.c = out;
    pthread_barrier_wait(c->start);
    for (int i = 0; i < c->count; i++) {
        const double t = now_ns();
        ours_run(&mine);
        c->ns[i] = now_ns() - t;
    }
    return NULL;
}
static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_callers(ours *x, int threads)
{
    enum { CALLS = 20000, MOST = 8 };
    static double ns[MOST][CALLS];
    pthread_t id[MOST];
    caller c[MOST];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        c[i] = (caller){ x, ns[i], CALLS, &start };
        pthread_create(&id[i], NULL, call_often, &c[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
    pthread_barrier_destroy(&start);
    qsort(ns, (size_t)threads * CALLS, sizeof(double), by_value);
    const double *all = &ns[0][0];
    printf("%d callers, one plan: p50 %.0f ns, p99 %.0f ns, p99/p50 %.2f\n", threads, all[threads * CALLS / 2],
           all[(int)(threads * CALLS * 0.99)], all[(int)(threads * CALLS * 0.99)] / all[threads * CALLS / 2]);
}

int codegen_report(void)
{
    pin(0);
    if (!cache_enabled() || !cpu_features()) { printf("this process generates no code\n"); return 0; }
    printf("%-44s %10s %8s\n", "kernel", "generate", "bytes");
    for (int dot = DOT_W; dot < DOT_COUNT; dot++) {
        static gen_job j;
        char name[KERNEL_NAME];
        j.spec = (kernel_spec){ .dot = (uint8_t)dot, .form = (uint8_t)families[dot].form, .rows = families[dot].mr, .cols = NR,
                                .k_tail = dot == DOT_WS ? 0 : 3, .c = OCTET_U8, .zero_a = 1, .zero_b = 1, .bias = BIAS_S32 };
        if (dot_is_float(dot))
            j.spec = (kernel_spec){ .dot = (uint8_t)dot, .form = A_PLACE, .rows = families[dot].mr, .cols = NR_FLOAT, .abreast = 1, .a = OCTET_F32,
                                    .c = OCTET_F32, .scale_b = dot >= DOT_FS8, .bias = BIAS_F32, .chain = { OCTET_OP_GELU } };
        kernel_name(&j.spec, name);
        printf("%-44s %7.2f us", name, benchmark_ns("generate", gen_once, &j, 0.02) * 1e-3);
        printf(" %8zu\n", j.bytes);
    }
    static gen_job j;
    j.spec = (kernel_spec){ .dot = DOT_T2, .form = A_QUADS, .rows = 8, .cols = NR, .c = OCTET_S32, .zero_a = 1 };
    kernel *held = cache_acquire(&j.spec);
    printf("\ncache hit                       %8.1f ns\n", benchmark_ns("hit", hit_once, &j, 0.05));
    cache_release(held);

    /* a planned run against its kernel, called bare: one tile, A read in place */
    problem p = { .m = 1, .n = 8, .k = 64, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .threads = 1, .count = 1 };
    ours x;
    if (!problem_new(&p) || !fill(&p, "uniform", "7bit", true, 1) || !ours_open(&x, NULL, &p)) return 1;
    const blob *b = x.packed[0]->blob;
    const kernel_set *set = &x.plan->sets[0];
    const int dot = blob_info(b, 0).dot[0];
    const bool place = plan_places(x.plan, false, x.packed[0]->dots, b->residual_quads);
    bare direct = { kernel_code(set->at[set_index(dot, place, KIND_FULL, 1)]), { .lda = p.k, .b = blob_panel(b, 0), .quads = p.k / 4,
        .ldc = 4 * p.n, .sums = (const int32_t *)(const void *)((const char *)b + b->sums), .consts = &gen_const }, p.pa, p.pc };
    stats run;
    const stats kernel_time = sample(bare_once, &direct, ours_run, &x, 0.3, false, &run);
    printf("1x8x64: kernel alone            %8.1f ns\n        planned run adds        %8.1f ns\n", kernel_time.median, run.median - kernel_time.median);

    pack_run least = { .o = x, .p = &p };
    least.memory = aligned_alloc(64, octet_packed_bound(x.plan));
    least.lines = (view){ p.pb, p.k, 1, NULL, NULL };
    least.b = (source){ .type = OCTET_S8, .count = 1, .views = &least.lines };
    least.handle = (octet_packed){ .plan = x.plan, .blob = (const blob *)(const void *)least.memory };
    blas_call one = { &p };
    stats blas;
    const stats packed = sample(pack_run_once, &least, blas_once, &one, 0.3, false, &blas);
    printf("        packing B and that run  %8.1f ns\n        one call adds           %8.1f ns\n", packed.median, blas.median - packed.median);
    free(least.memory);
    ours_close(&x);
    problem_free(&p);

    double us[9];
    for (int i = 0; i < 9; i++) us[i] = first_call_us("u8:s8:s32", &(shape){ 1, 128, 128, 1 });
    qsort(us, 9, sizeof *us, by_value);
    printf("first call of a process, 1x128x128 %5.0f us (median of 9; %.0f .. %.0f)\n", us[4], us[0], us[8]);

    pin(-1);
    problem q = { .m = 8, .n = 256, .k = 256, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .threads = 1, .count = 1 };
    if (!problem_new(&q) || !fill(&q, "uniform", "gauss", false, 1) || !ours_open(&x, NULL, &q)) return 1;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    print_callers(&x, (int)min64(8, cpus));
    if (cpus < 8) print_callers(&x, 8);
    ours_close(&x);
    problem_free(&q);
    return 0;
}

