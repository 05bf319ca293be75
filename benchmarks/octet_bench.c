/*
 * octet-bench: what octet does on your shapes and your machine, checked, beside its peers.
 * `octet-bench` alone prints the commands; README.md here tells how to read the table.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "cache.h"
#include "code.h"
#include "gemm.h"

/* ---- options ---- */

enum { SHAPES = 4096, LISTS = 16 };
typedef struct shape { int64_t m, n, k; } shape;
typedef struct options {
    shape         shapes[SHAPES];
    int           shape_count, threads[LISTS], thread_count;
    octet_dtype   a, b, c;
    bool          f32, bias, relu, cold, verify, per_tensor;
    char          peers[128];
    const char   *isa, *data_a, *data_b, *types, *out;
    double        seconds;
    report_format format;
    uint64_t      seed;
} options;

static int usage(const char *why)
{
    fprintf(stderr, "octet-bench: %s\n"
        "usage: octet-bench gemm [options]       products, each verified\n"
        "       octet-bench codegen              what kernels, look-ups and calls cost\n"
        "       octet-bench machine              the machine's own ceilings\n"
        "       octet-bench compare OLD NEW      two JSON results; exit 1 if NEW is slower\n"
        "options (gemm)\n"
        "  --shapes=FILE | LIST   lines or a list of MxNxK; each may be a range from:to:step\n"
        "  --types=A:B:C          u8|s8|f32 : s8 : s32|u8|s8|f32        (u8:s8:s32)\n"
        "  --epilogue=LIST        none, or bias+relu+requant            (none)\n"
        "  --threads=LIST         (1)          --isa=plain|avx2         a cap for octet and its peers\n"
        "  --peers=LIST           none, all, onednn,fbgemm,openblas,blis (none)\n"
        "  --cache=warm|cold      (warm)       --verify=on|off          (on)\n"
        "  --data-a=uniform|7bit  --data-b=uniform|gauss|t5|7bit|file:PATH (gauss; 7bit is gauss in half the range)\n"
        "  --scales=column|tensor (column)     --min-time=SECONDS       a problem (0.2)\n"
        "  --format=table|csv|json             --out=FILE  --seed=N\n", why);
    return 2;
}

/* "64", "1:8:2" -> values, count */
static int range(const char *text, int64_t *values, int room)
{
    long long from, to, step;
    int n = 0;
    const int got = sscanf(text, "%lld:%lld:%lld", &from, &to, &step);
    if (got == 1) { to = from; step = 1; }
    else if (got != 3 || step <= 0) return -1;
    for (long long v = from; v <= to && n < room && v >= 0; v += step) values[n++] = v;
    return n;
}

static bool add_shapes(options *o, const char *text)
{
    int64_t v[3][256];
    int n[3];
    char part[3][64];
    if (sscanf(text, "%63[0-9:]%*[x ]%63[0-9:]%*[x ]%63[0-9:]", part[0], part[1], part[2]) != 3) return false;
    for (int i = 0; i < 3; i++)
        if ((n[i] = range(part[i], v[i], 256)) < 1) return false;
    for (int i = 0; i < n[0]; i++)
        for (int j = 0; j < n[1]; j++)
            for (int l = 0; l < n[2]; l++)
                if (o->shape_count < SHAPES) o->shapes[o->shape_count++] = (shape){ v[0][i], v[1][j], v[2][l] };
    return true;
}

static bool read_shapes(options *o, const char *value)
{
    FILE *f = fopen(value, "r");
    char line[256];
    if (!f) {
        char *copy = strdup(value), *save = NULL;
        bool ok = true;
        for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) ok = add_shapes(o, t) && ok;
        free(copy);
        return ok && o->shape_count;
    }
    bool ok = true;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "#\n")] = 0;
        if (strspn(line, " \t") == strlen(line)) continue;
        ok = add_shapes(o, line) && ok;
    }
    fclose(f);
    return ok && o->shape_count;
}

static octet_dtype dtype(const char *name)
{
    static const struct { const char *name; octet_dtype t; } types[] = {
        { "u8", OCTET_U8 }, { "s8", OCTET_S8 }, { "s32", OCTET_S32 }, { "f32", OCTET_F32 }, { "f16", OCTET_F16 }, { "bf16", OCTET_BF16 },
    };
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return types[i].t;
    return (octet_dtype)0;
}

static bool read_types(options *o, const char *value)
{
    char a[8], b[8], c[8];
    if (sscanf(value, "%7[a-z0-9]:%7[a-z0-9]:%7[a-z0-9]", a, b, c) != 3) return false;
    o->a = dtype(a);
    o->b = dtype(b);
    o->c = dtype(c);
    o->types = value;
    return (o->a == OCTET_U8 || o->a == OCTET_S8 || o->a == OCTET_F32) && o->b == OCTET_S8
        && (o->c == OCTET_S32 || o->c == OCTET_U8 || o->c == OCTET_S8 || o->c == OCTET_F32);
}

static bool value_of(const char *arg, const char *name, const char **value)
{
    const size_t n = strlen(name);
    if (strncmp(arg, name, n) || arg[n] != '=') return false;
    *value = arg + n + 1;
    return true;
}

static const char *read_options(options *o, int argc, char **argv)
{
    const char *v;
    for (int i = 2; i < argc; i++) {
        const char *a = argv[i];
        if (value_of(a, "--shapes", &v)) { if (!read_shapes(o, v)) return "--shapes: no such file, or not MxNxK"; }
        else if (value_of(a, "--types", &v)) { if (!read_types(o, v)) return "--types: not a product of this version"; }
        else if (value_of(a, "--epilogue", &v)) {
            o->bias = strstr(v, "bias");
            o->relu = strstr(v, "relu");
        }
        else if (value_of(a, "--threads", &v)) {
            o->thread_count = 0;
            for (char *end; *v && o->thread_count < LISTS; v = *end == ',' ? end + 1 : end) {
                o->threads[o->thread_count++] = (int)strtol(v, &end, 10);
                if (end == v || o->threads[o->thread_count - 1] < 1) return "--threads: not a list of numbers";
            }
        }
        else if (value_of(a, "--peers", &v)) snprintf(o->peers, sizeof o->peers, ",%s,", v);
        else if (value_of(a, "--isa", &v)) o->isa = v;
        else if (value_of(a, "--cache", &v)) o->cold = !strcmp(v, "cold");
        else if (value_of(a, "--verify", &v)) o->verify = strcmp(v, "off") != 0;
        else if (value_of(a, "--data-a", &v)) o->data_a = v;
        else if (value_of(a, "--data-b", &v)) o->data_b = v;
        else if (value_of(a, "--data", &v)) o->data_a = !strcmp(v, "7bit") ? v : "uniform", o->data_b = v;
        else if (value_of(a, "--scales", &v)) o->per_tensor = !strcmp(v, "tensor");
        else if (value_of(a, "--min-time", &v)) o->seconds = strtod(v, NULL);
        else if (value_of(a, "--seed", &v)) o->seed = strtoull(v, NULL, 10);
        else if (value_of(a, "--out", &v)) o->out = v;
        else if (value_of(a, "--format", &v))
            o->format = !strcmp(v, "csv") ? REPORT_CSV : !strcmp(v, "json") ? REPORT_JSON : REPORT_TABLE;
        else if (value_of(a, "--device", &v)) { if (strcmp(v, "cpu")) return "--device: this version computes on the CPU only"; }
        else if (value_of(a, "--check", &v)) { if (strcmp(v, "off")) return "--check: this version has no checks yet"; }
        else if (value_of(a, "--fmm", &v)) { if (strcmp(v, "off")) return "--fmm: this version has no fast algorithms yet"; }
        else return a;
    }
    return NULL;
}

/* ---- octet's side ---- */

typedef struct ours {
    octet_plan     *plan;
    octet_packed   *packed;
    octet_gemm_args args;
    double          prepare_us;
} ours;

static octet_gemm_desc desc_of(const problem *p)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    d.n = p->n;
    d.k = p->k;
    d.m_hint = p->m;
    d.a = p->a;
    d.b = p->b;
    d.c = p->c;
    d.trans_b = 1;
    d.flags = p->relu ? OCTET_RELU : 0;
    d.bias = p->bias ? OCTET_S32 : (octet_dtype)0;
    return d;
}

static bool ours_open(ours *x, octet_ctx *ctx, const problem *p)
{
    const octet_gemm_desc d = desc_of(p);
    const double t = now_ns();
    octet_quant q = OCTET_QUANT;
    q.scales = p->c == OCTET_S32 ? NULL : p->scales;
    if (octet_plan_gemm(ctx, &d, &x->plan)) return false;
    if (octet_pack(x->plan, p->pb, p->k, &q, &x->packed)) {
        octet_plan_free(x->plan);
        return false;
    }
    x->prepare_us = (now_ns() - t) * 1e-3;
    x->args = (octet_gemm_args)OCTET_GEMM_ARGS;
    x->args.m = p->m;
    x->args.a = p->pa;
    x->args.lda = p->k;
    x->args.b = x->packed;
    x->args.c = p->pc;
    x->args.ldc = p->n;
    x->args.bias = p->pbias;
    x->args.scale_a = p->scale_a;
    x->args.zero_a = p->zero_a;
    x->args.scale_c = p->scale_c;
    x->args.zero_c = p->zero_c;
    return true;
}

static void ours_run(void *x)
{
    ours *o = x;
    if (octet_run(o->plan, &o->args)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); exit(1); }
}

static void ours_close(ours *x)
{
    octet_packed_free(x->packed);
    octet_plan_free(x->plan);
}

/* Percent of the limit loops of the dots that B's panels run, weighted by panels, timed just now. */
static double percent_of_peak(const ours *x, const problem *p, double macs_per_s, int threads)
{
    const blob *b = x->packed->blob;
    double seconds = 0;
    int64_t count[DOT_COUNT] = { 0 };
    if (!x->plan->cpu || p->n == 0) return 0;
    for (int64_t j = 0; j < blob_panels(b); j++) count[blob_info(b, j).dot[0]]++;
    for (int dot = DOT_W; dot < DOT_COUNT; dot++)
        if (count[dot]) seconds += (double)count[dot] / (double)blob_panels(b) / limit_rate(dot, 0.01);
    return seconds > 0 ? 100 * macs_per_s * seconds / threads : 0;
}

/* ---- first call, in a process of its own ---- */

static int first_call(int argc, char **argv)
{
    options o = { .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32 };
    if (argc != 4 || !read_types(&o, argv[2]) || !add_shapes(&o, argv[3])) return 2;
    problem p = { .m = o.shapes[0].m, .n = o.shapes[0].n, .k = o.shapes[0].k, .a = o.a, .b = o.b, .c = o.c, .threads = 1 };
    if (!problem_new(&p) || !fill(&p, "uniform", "gauss", false, 1)) return 2;
    const double t = now_ns();
    octet_requant q = OCTET_REQUANT;
    octet_status st;
    if (o.a == OCTET_U8 && o.c == OCTET_S32) st = octet_gemm_u8s8s32(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n);
    else if (o.a == OCTET_U8 && o.c == OCTET_U8) st = octet_gemm_u8s8u8(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n, &q);
    else if (o.a == OCTET_S8 && o.c == OCTET_S32) st = octet_gemm_s8s8s32(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n);
    else return 2;
    printf("%.1f\n", (now_ns() - t) * 1e-3);
    problem_free(&p);
    return st ? 1 : 0;
}

static double first_call_us(const char *types, const shape *s)
{
    char command[256], line[64] = "";
    snprintf(command, sizeof command, "/proc/%ld/exe first-call %s %lldx%lldx%lld 2>/dev/null", (long)getpid(), types, (long long)s->m,
             (long long)s->n, (long long)s->k);
    FILE *f = popen(command, "r");
    if (!f) return 0;
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    pclose(f);
    return strtod(line, NULL);
}

/* ---- gemm ---- */

static bool wanted(const options *o, const peer *p)
{
    char name[40];
    snprintf(name, sizeof name, ",%s,", p->name);
    return strstr(o->peers, ",all,") || strstr(o->peers, name);
}

static void call_ours(void *x) { ours_run(x); }

static int run_problem(const options *o, octet_ctx *ctx, int threads, const shape *s, const bool *usable)
{
    problem p = { .m = s->m, .n = s->n, .k = s->k, .a = o->a, .b = o->b, .c = o->c, .bias = o->bias, .relu = o->relu,
                  .threads = threads, .isa = o->isa };
    ours x;
    char name[64];
    rng r = { o->seed * 77 + 1 };
    int wrong = 0;
    if (!problem_new(&p)) { fprintf(stderr, "octet-bench: no memory for this problem\n"); return 1; }
    if (!fill(&p, o->data_a, o->data_b, o->per_tensor, o->seed)) { problem_free(&p); return usage("no such --data"), -2; }
    if (!ours_open(&x, ctx, &p)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); problem_free(&p); return 1; }
    snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)p.m, (long long)p.n, (long long)p.k);
    if (isatty(2)) fprintf(stderr, "\r\033[K%s ...", name);

    const double ops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    const double bytes = (double)(p.m * p.k) + (double)(p.n * p.k) + (double)(p.m * p.n) * (p.c == OCTET_S32 || p.c == OCTET_F32 ? 4 : 1);
    const bool many = p.m * p.n * p.k > 1 << 26;
    ours_run(&x);
    const bool right = !o->verify || verify(&p, INT64_MAX, &r);
    stats theirs;
    const stats mine = sample(call_ours, &x, NULL, NULL, o->seconds, o->cold, &theirs);
    if (isatty(2)) fprintf(stderr, "\r\033[K");
    row line = {
        .op = "gemm", .impl = "octet", .kernel = octet_explain(x.plan, x.packed), .types = o->types, .problem = name, .check = "off",
        .cache = o->cold ? "cold" : "warm", .verified = o->verify ? right ? "yes" : "no" : "skipped", .threads = threads,
        .min_ns = mine.min, .median_ns = mine.median, .p99_ns = mine.p99, .gops = ops / mine.median, .gbytes = bytes / mine.median,
        .percent_of_peak = percent_of_peak(&x, &p, ops / 2 / mine.median * 1e9, threads), .prepare_us = x.prepare_us,
        .first_call_us = o->format == REPORT_TABLE ? 0 : first_call_us(o->types, s), .packed_bytes = (size_t)x.packed->blob->bytes,
        .workspace_bytes = octet_workspace_bytes(x.plan, p.m, threads),
    };
    report_row(&line);
    if (!right) {
        wrong = 1;
        fprintf(stderr, "wrong: octet-bench gemm --shapes=%s --types=%s --data-a=%s --data-b=%s --seed=%llu\n", name, o->types, o->data_a,
                o->data_b, (unsigned long long)o->seed);
    }
    for (int i = 0; peers[i]; i++) {
        if (!usable[i]) continue;
        const double t = now_ns();
        void *state = peers[i]->prepare(&p);
        if (!state) continue;
        const double prepare = (now_ns() - t) * 1e-3;
        peers[i]->run(state);
        const bool ok = !peers[i]->f32 && o->verify && verify(&p, many ? 8 : INT64_MAX, &r); /* one wrong value is enough */
        sample(call_ours, &x, peers[i]->run, state, o->seconds, o->cold, &theirs);
        row other = {
            .op = "gemm", .impl = peers[i]->name, .kernel = peers[i]->version(), .types = peers[i]->f32 ? "f32:f32:f32" : o->types,
            .problem = name, .check = "off", .cache = line.cache, .verified = peers[i]->f32 || !o->verify ? "skipped" : ok ? "yes" : "no",
            .threads = threads, .min_ns = theirs.min, .median_ns = theirs.median, .p99_ns = theirs.p99, .gops = ops / theirs.median,
            .gbytes = bytes / theirs.median, .prepare_us = prepare, .ratio = theirs.ratio, .ratio_low = theirs.ratio_low,
        };
        report_row(&other);
        peers[i]->close(state);
    }
    ours_close(&x);
    problem_free(&p);
    return wrong;
}

static int gemm(const options *o)
{
    bool usable[16] = { false };
    int wrong = 0;
    FILE *to = o->out ? fopen(o->out, "w") : stdout;
    if (!to) return usage("--out: cannot be written");
    for (int i = 0; peers[i]; i++) {
        if (!wanted(o, peers[i])) continue;
        const char *why = peers[i]->open(o->isa);
        usable[i] = !why;
        if (why) fprintf(stderr, "octet-bench: %s left out: %s\n", peers[i]->name, why);
    }
    report_begin(to, o->format, "gemm", o->seed);
    for (int t = 0; t < o->thread_count; t++) {
        octet_ctx_opts opts = OCTET_CTX_OPTS;
        octet_ctx *ctx;
        opts.threads = o->threads[t];
        pin(o->threads[t] == 1 ? 0 : -1);
        if (octet_ctx_create(&opts, &ctx)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); return 1; }
        for (int s = 0; s < o->shape_count && wrong >= 0; s++) {
            const int w = run_problem(o, ctx, o->threads[t], &o->shapes[s], usable);
            wrong = w < 0 ? w : wrong + w;
        }
        octet_ctx_free(ctx);
    }
    report_end();
    if (to != stdout) fclose(to);
    return wrong < 0 ? 2 : wrong > 0;
}

/* ---- codegen: what kernels, look-ups and calls cost ---- */

typedef struct gen_job { kernel_spec spec; uint8_t code[16384]; size_t bytes; } gen_job;
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

static int codegen(void)
{
    pin(0);
    if (!cache_enabled() || !cpu_features()) { printf("this process generates no code\n"); return 0; }
    printf("%-44s %10s %8s\n", "kernel", "generate", "bytes");
    for (int dot = DOT_W; dot < DOT_COUNT; dot++) {
        static gen_job j;
        char name[KERNEL_NAME];
        j.spec = (kernel_spec){ .dot = (uint8_t)dot, .form = (uint8_t)families[dot].form, .rows = families[dot].mr, .cols = NR,
                                .k_tail = dot == DOT_WS ? 0 : 3, .c = OCTET_U8, .zero_a = 1, .zero_b = 1, .bias = BIAS_S32 };
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
    problem p = { .m = 1, .n = 8, .k = 64, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .threads = 1 };
    ours x;
    if (!problem_new(&p) || !fill(&p, "uniform", "7bit", true, 1) || !ours_open(&x, NULL, &p)) return 1;
    const blob *b = x.packed->blob;
    const kernel_set *set = &x.plan->sets[0];
    const int dot = blob_info(b, 0).dot[0];
    const bool place = plan_places(x.plan, false, x.packed->dots, b->residual_quads);
    bare direct = { kernel_code(set->at[set_index(dot, place, false, 1)]), { .lda = p.k, .b = blob_panel(b, 0), .quads = p.k / 4,
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
    for (int i = 0; i < 9; i++) us[i] = first_call_us("u8:s8:s32", &(shape){ 1, 128, 128 });
    qsort(us, 9, sizeof *us, by_value);
    printf("first call of a process, 1x128x128 %5.0f us (median of 9; %.0f .. %.0f)\n", us[4], us[0], us[8]);

    pin(-1);
    problem q = { .m = 8, .n = 256, .k = 256, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .threads = 1 };
    if (!problem_new(&q) || !fill(&q, "uniform", "gauss", false, 1) || !ours_open(&x, NULL, &q)) return 1;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    print_callers(&x, (int)min64(8, cpus));
    if (cpus < 8) print_callers(&x, 8);
    ours_close(&x);
    problem_free(&q);
    return 0;
}

int main(int argc, char **argv)
{
    static options o = {
        .threads = { 1 }, .thread_count = 1, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .verify = true, .peers = ",none,",
        .data_a = "uniform", .data_b = "gauss", .types = "u8:s8:s32", .seconds = 0.2, .seed = 1,
    };
    if (argc < 2) return usage("a command is missing");
    if (!strcmp(argv[1], "first-call")) return first_call(argc, argv);
    if (!strcmp(argv[1], "compare")) return argc == 4 ? report_compare(argv[2], argv[3]) : usage("compare takes two files");
    const char *why = read_options(&o, argc, argv);
    if (why) return usage(why);
    if (o.isa) setenv("OCTET_ISA", o.isa, 1);
    if (!strcmp(argv[1], "machine")) { pin(0); return machine_report(); }
    if (!strcmp(argv[1], "codegen")) return codegen();
    if (strcmp(argv[1], "gemm")) return usage("no such command");
    if (!o.shape_count) read_shapes(&o, "1x1024x1024,6x512x512,16x256x512,64x64x64,64x800x320,128x128x128,512x512x512");
    return gemm(&o);
}
