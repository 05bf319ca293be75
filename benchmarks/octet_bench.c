/*
 * octet-bench: what octet does on your shapes and your machine, checked, beside its peers.
 * `octet-bench` alone prints the commands; README.md here tells how to read the table.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bag_bench.h"
#include "base.h"
#include "gpu_bench.h"

/* ---- options ---- */

int usage(const char *why)
{
    fprintf(stderr, "octet-bench: %s\n"
        "usage: octet-bench gemm [options]       products, each verified\n"
        "       octet-bench embedding [options]  bags of rows of tables, each verified\n"
        "       octet-bench codegen              what kernels, look-ups and calls cost\n"
        "       octet-bench convert              quantize, convert, row-wise tables, layouts\n"
        "       octet-bench machine              the machine's own ceilings\n"
        "       octet-bench compare OLD NEW      two JSON results; exit 1 if NEW is slower\n"
        "options of embedding\n"
        "  --shapes=...           ROWSxDIMxBATCHxPOOLING      --types=f32|f16|bf16|e4m3|e5m2|u8|u4|u2[:f32|f16|bf16]  (f32)\n"
        "  --pooling=sum|mean|max (sum)                       --weights=none|each|position  (none)\n"
        "  --tables=N             so many of the shape in one call (1)    --pages=small|huge  (small)\n"
        "  --optimizer=adagrad_rows   the backward pass instead, a gradient for each index   --ahead=N  rows prefetched ahead\n"
        "  --peers=LIST           none, all, touch (reads the same rows, no more), fbgemm, plain  (none)\n"
        "options of gemm; those that apply also of embedding\n"
        "  --shapes=FILE | LIST   lines or a list of MxNxK; each may be a range from:to:step\n"
        "  --types=A:B:C          u8|s8 : s8 : s32|u8|s8|f32; f32|f16|bf16 : f32|f16|bf16|s4|u4 : f32|f16|bf16;\n"
        "                         f32|f16|bf16 : s8 : any, quantized on the way   (u8:s8:s32)\n"
        "  --weight-only          an s8 B is widened, A is not quantized   --group=0|32|64|128 (0; s4, u4: 32)\n"
        "  --dynamic=row|tensor|reduced   A's scale found in the call; reduced: by row, in 7 bits\n"
        "  --epilogue=LIST        none, or a + list of bias relu gelu gelu_tanh silu sigmoid tanh swiglu geglu add (none)\n"
        "  --batch=N              so many problems of the shape in one call, each with its own A, B and C   (1)\n"
        "  --threads=LIST         (1)          --isa=plain|avx2         a cap for octet and its peers\n"
        "  --peers=LIST           none, all, onednn,fbgemm,openblas,blis,xsmm (none)\n"
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

bool add_shapes(options *o, const char *text)
{
    int64_t v[4][256] = { { 0 } };
    int n[4] = { 1, 1, 1, 1 };
    char part[4][64];
    const int got = sscanf(text, "%63[0-9:]%*[x ]%63[0-9:]%*[x ]%63[0-9:]%*[x ]%63[0-9:]", part[0], part[1], part[2], part[3]);
    if (got < 3) return false;
    for (int i = 0; i < got; i++)
        if ((n[i] = range(part[i], v[i], 256)) < 1) return false;
    for (int i = 0; i < n[0]; i++)
        for (int j = 0; j < n[1]; j++)
            for (int k = 0; k < n[2]; k++)
                for (int l = 0; l < n[3]; l++)
                    if (o->shape_count < SHAPES) o->shapes[o->shape_count++] = (shape){ v[0][i], v[1][j], v[2][k], v[3][l] };
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
        { "s4", OCTET_S4 }, { "u4", OCTET_U4 }, { "u2", OCTET_U2 }, { "e4m3", OCTET_E4M3 }, { "e5m2", OCTET_E5M2 },
    };
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return types[i].t;
    return (octet_dtype)0;
}

bool read_types(options *o, const char *value)
{
    char a[8], b[8], c[8];
    if (sscanf(value, "%7[a-z0-9]:%7[a-z0-9]:%7[a-z0-9]", a, b, c) != 3) return false;
    o->a = dtype(a);
    o->b = dtype(b);
    o->c = dtype(c);
    o->types = value;
    return o->a && o->b && o->c; /* the plan says whether they go together */
}

/* "u8", "u8:f16" */
static bool read_table_types(options *o, const char *value)
{
    char a[8], c[8] = "f32";
    if (sscanf(value, "%7[a-z0-9]:%7[a-z0-9]", a, c) < 1) return false;
    o->a = dtype(a);
    o->c = dtype(c);
    o->types = value;
    return o->a && (o->c == OCTET_F32 || o->c == OCTET_F16 || o->c == OCTET_BF16);
}

/* Of the steps the first two are those of desc.flags and desc.bias, which peers have too. */
static bool read_epilogue(options *o, const char *list)
{
    static const struct { const char *name; int op; } ops[] = {
        { "gelu", OCTET_OP_GELU }, { "gelu_tanh", OCTET_OP_GELU_TANH }, { "silu", OCTET_OP_SILU }, { "sigmoid", OCTET_OP_SIGMOID },
        { "tanh", OCTET_OP_TANH }, { "swiglu", OCTET_OP_SWIGLU }, { "geglu", OCTET_OP_GEGLU }, { "add", OCTET_OP_ADD },
    };
    char *copy = strdup(list), *save = NULL;
    bool ok = true;
    for (char *t = strtok_r(copy, "+", &save); t; t = strtok_r(NULL, "+", &save)) {
        bool found = true;
        if (!strcmp(t, "bias")) o->bias = true;
        else if (!strcmp(t, "relu")) o->relu = true;
        else if (strcmp(t, "none") && strcmp(t, "requant")) {
            found = false;
            for (size_t i = 0; i < COUNT(ops) && o->steps < OCTET_OPS; i++)
                if (!strcmp(t, ops[i].name)) {
                    o->chain[o->steps++] = (octet_op){ ops[i].op, ops[i].op == OCTET_OP_ADD ? OCTET_FULL : 0, (octet_dtype)0 };
                    found = true;
                }
        }
        ok = ok && found;
    }
    free(copy);
    return ok;
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
    const bool bags = !strcmp(argv[1], "embedding");
    if (bags) read_table_types(o, "f32");
    for (int i = 2; i < argc; i++) {
        const char *a = argv[i];
        if (value_of(a, "--shapes", &v)) { if (!read_shapes(o, v)) return "--shapes: no such file, or not MxNxK"; }
        else if (bags && value_of(a, "--types", &v)) { if (!read_table_types(o, v)) return "--types: not a type of tables"; }
        else if (bags && value_of(a, "--pooling", &v)) o->mode = !strcmp(v, "mean") ? OCTET_MEAN : !strcmp(v, "max") ? OCTET_MAX : OCTET_SUM;
        else if (bags && value_of(a, "--weights", &v)) o->bag_weights = !strcmp(v, "each") ? OCTET_WEIGHT_EACH : !strcmp(v, "position") ? OCTET_WEIGHT_POSITION : 0;
        else if (bags && value_of(a, "--tables", &v)) o->tables = (int)max64(1, strtol(v, NULL, 10));
        else if (bags && value_of(a, "--ahead", &v)) o->ahead = (int)strtol(v, NULL, 10);
        else if (bags && value_of(a, "--pages", &v)) o->huge = !strcmp(v, "huge");
        else if (bags && value_of(a, "--optimizer", &v)) { if (strcmp(v, "adagrad_rows")) return "--optimizer: adagrad_rows is measured"; o->update = true; }
        else if (value_of(a, "--types", &v)) { if (!read_types(o, v)) return "--types: not a product of this version"; }
        else if (value_of(a, "--epilogue", &v)) {
            if (!read_epilogue(o, v)) return "--epilogue: no such step";
        }
        else if (value_of(a, "--threads", &v)) {
            o->thread_count = 0;
            for (char *end; *v && o->thread_count < LISTS; v = *end == ',' ? end + 1 : end) {
                o->threads[o->thread_count++] = (int)strtol(v, &end, 10);
                if (end == v || o->threads[o->thread_count - 1] < 1) return "--threads: not a list of numbers";
            }
        }
        else if (value_of(a, "--peers", &v)) snprintf(o->peers, sizeof o->peers, ",%s,", v);
        else if (!strcmp(a, "--weight-only")) o->weight_only = true;
        else if (value_of(a, "--group", &v)) o->group = (int)strtol(v, NULL, 10);
        else if (value_of(a, "--batch", &v)) o->batch = strtoll(v, NULL, 10);
        else if (value_of(a, "--dynamic", &v)) o->dynamic = v;
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
        else if (value_of(a, "--device", &v)) { if (strcmp(v, "cpu") && strcmp(v, "gpu")) return "--device: cpu or gpu"; o->gpu = !strcmp(v, "gpu"); }
        else if (value_of(a, "--kernel", &v)) o->kernel = v;
        else if (value_of(a, "--check", &v)) { if (strcmp(v, "off")) return "--check: this version has no checks yet"; }
        else if (value_of(a, "--fmm", &v)) { if (strcmp(v, "off")) return "--fmm: this version has no fast algorithms yet"; }
        else return a;
    }
    return NULL;
}

int over_shapes(const options *o, shape_fn one, void *state)
{
    int wrong = 0;
    for (int t = 0; t < o->thread_count; t++) {
        octet_ctx_opts opts = OCTET_CTX_OPTS;
        octet_ctx *ctx;
        opts.threads = o->threads[t];
        pin(o->threads[t] == 1 ? 0 : -1);
        if (octet_ctx_create(&opts, &ctx)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); exit(1); }
        for (int s = 0; s < o->shape_count && wrong >= 0; s++) {
            const int w = one(o, ctx, o->threads[t], &o->shapes[s], state);
            wrong = w < 0 ? w : wrong + w;
        }
        octet_ctx_free(ctx);
    }
    return wrong;
}

/* ---- first call, in a process of its own ---- */

int first_call(int argc, char **argv)
{
    options o = { .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32 };
    if (argc != 4 || !read_types(&o, argv[2]) || !add_shapes(&o, argv[3])) return 2;
    problem p = { .m = o.shapes[0].m, .n = o.shapes[0].n, .k = o.shapes[0].k, .a = o.a, .b = o.b, .c = o.c, .threads = 1, .count = 1 };
    if (!problem_new(&p) || !fill(&p, "uniform", "gauss", false, 1)) return 2;
    const double t = now_ns();
    octet_requant q = OCTET_REQUANT;
    octet_status st;
    if (o.a == OCTET_U8 && o.c == OCTET_S32) st = octet_gemm_u8s8s32(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n);
    else if (o.a == OCTET_U8 && o.c == OCTET_U8) st = octet_gemm_u8s8u8(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n, &q);
    else if (o.a == OCTET_S8 && o.c == OCTET_S32) st = octet_gemm_s8s8s32(0, 1, p.m, p.n, p.k, p.pa, p.k, p.pb, p.k, p.pc, p.n);
    else if (o.a == OCTET_F32 && o.b == OCTET_F32) st = octet_gemm_f32(0, 1, p.m, p.n, p.k, p.pa, p.k, (const float *)(const void *)p.pb, p.k, p.pc, p.n);
    else return 2;
    printf("%.1f\n", (now_ns() - t) * 1e-3);
    problem_free(&p);
    return st ? 1 : 0;
}

double first_call_us(const char *types, const shape *s)
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

int main(int argc, char **argv)
{
    static options o = {
        .threads = { 1 }, .thread_count = 1, .a = OCTET_U8, .b = OCTET_S8, .c = OCTET_S32, .verify = true, .peers = ",none,",
        .data_a = "uniform", .data_b = "gauss", .types = "u8:s8:s32", .seconds = 0.2, .seed = 1, .batch = 1, .dynamic = "", .tables = 1,
    };
    if (argc < 2) return usage("a command is missing");
    if (!strcmp(argv[1], "first-call")) return first_call(argc, argv);
    if (!strcmp(argv[1], "compare")) return argc == 4 ? report_compare(argv[2], argv[3]) : usage("compare takes two files");
    const char *why = read_options(&o, argc, argv);
    if (why) return usage(why);
    if (o.isa) setenv("OCTET_ISA", o.isa, 1);
    if (!strcmp(argv[1], "machine") && o.gpu) return gpu_machine_report();
    if (!strcmp(argv[1], "gemm") && o.gpu) {
        if (!o.shape_count) read_shapes(&o, "512x4096x4096,4096x4096x4096");
        return gpu_gemm_report(&o);
    }
    if (!strcmp(argv[1], "machine")) { pin(0); return machine_report(); }
    if (!strcmp(argv[1], "codegen")) return codegen_report();
    if (!strcmp(argv[1], "convert")) { pin(0); return convert_report(&o); }
    if (!strcmp(argv[1], "embedding")) {
        if (!o.shape_count) read_shapes(&o, "1000000x16x100x20,1000000x64x100x20,1000000x128x100x20");
        return embedding_report(&o);
    }
    if (strcmp(argv[1], "gemm")) return usage("no such command");
    if (!o.shape_count) read_shapes(&o, "1x1024x1024,6x512x512,16x256x512,64x64x64,64x800x320,128x128x128,512x512x512");
    return gemm_report(&o);
}
