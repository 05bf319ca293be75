/* octet-bench gemm: each problem run, checked, and timed in turn with every peer that has it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "gemm.h"

/* ---- octet's side ---- */

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
    if (p->weight_only && p->b == OCTET_S8) d.a_as = OCTET_F32;
    if (p->dynamic) {
        d.flags |= OCTET_DYNAMIC | (p->reduced ? OCTET_REDUCED : 0);
        d.scale_a = p->by_row ? OCTET_PER_ROW : OCTET_PER_TENSOR;
    }
    d.group = p->group;
    d.bias = !p->bias ? (octet_dtype)0 : p->floating ? OCTET_F32 : OCTET_S32;
    memcpy(d.chain, p->chain, sizeof d.chain);
    return d;
}

bool ours_open(ours *x, octet_ctx *ctx, const problem *p)
{
    const octet_gemm_desc d = desc_of(p);
    const double t = now_ns();
    octet_quant q = OCTET_QUANT;
    const bool scaled = p->b == OCTET_S8 ? p->c != OCTET_S32 : p->b == OCTET_S4 || p->b == OCTET_U4;
    q.scales = scaled ? p->scales : NULL;
    q.zero = p->b == OCTET_U4 ? 8 : 0;
    x->count = p->count;
    x->packed = calloc((size_t)p->count, sizeof *x->packed);
    if (octet_plan_gemm(ctx, &d, &x->plan)) return false;
    for (int64_t i = 0; i < p->count; i++)
        if (octet_pack(x->plan, (const char *)p->pb + (size_t)i * b_bytes(p), p->k, &q, &x->packed[i])) return false;
    x->prepare_us = (now_ns() - t) * 1e-3;
    x->args = (octet_gemm_args)OCTET_GEMM_ARGS;
    x->args.m = p->m;
    x->args.a = p->pa;
    x->args.lda = p->k;
    x->args.b = x->packed[0];
    x->args.c = p->pc;
    x->args.ldc = out_n(p);
    x->args.bias = p->floating ? (const void *)p->fbias : p->pbias;
    x->args.scale_a = p->scale_a;
    x->args.zero_a = p->zero_a;
    x->args.scale_c = p->scale_c;
    x->args.zero_c = p->zero_c;
    for (int i = 0; i < OCTET_OPS; i++) x->args.operand[i] = (octet_operand){ p->residual, p->n, 0, 0 };
    x->batch = (octet_batch)OCTET_BATCH;
    x->batch.count = p->count;
    x->batch.stride_a = p->m * p->k;
    x->batch.stride_c = p->m * out_n(p);
    x->batch.b = (const octet_packed *const *)x->packed;
    return true;
}

void ours_run(void *x)
{
    ours *o = x;
    const octet_status st = o->count == 1 ? octet_run(o->plan, &o->args) : octet_run_batch(o->plan, &o->args, &o->batch);
    if (st) { fprintf(stderr, "octet-bench: %s\n", octet_why()); exit(1); }
}

void ours_close(ours *x)
{
    for (int64_t i = 0; i < x->count; i++) octet_packed_free(x->packed[i]);
    free(x->packed);
    octet_plan_free(x->plan);
}

/* Percent of the limit loops of the dots that B's panels run, weighted by panels, timed just now. */
static double percent_of_peak(const ours *x, const problem *p, double macs_per_s, int threads)
{
    const blob *b = x->packed[0]->blob;
    double seconds = 0;
    int64_t count[DOT_COUNT] = { 0 };
    if (!x->plan->cpu || p->n == 0) return 0;
    if (b->floating) return 100 * macs_per_s / limit_rate(DOT_F32, 0.01) / threads;
    for (int64_t j = 0; j < blob_panels(b); j++) count[blob_info(b, j).dot[0]]++;
    for (int dot = DOT_W; dot < DOT_F32; dot++)
        if (count[dot]) seconds += (double)count[dot] / (double)blob_panels(b) / limit_rate(dot, 0.01);
    return seconds > 0 ? 100 * macs_per_s * seconds / threads : 0;
}

/* ---- peers: one state for each problem of a batch ---- */

typedef struct theirs_of { const peer *peer; problem *problems; void **states; int64_t count; } theirs_of;

static bool theirs_open(theirs_of *t, const peer *e, const problem *p)
{
    *t = (theirs_of){ e, calloc((size_t)p->count, sizeof(problem)), calloc((size_t)p->count, sizeof(void *)), 0 };
    for (int64_t i = 0; i < p->count; i++) {
        problem *q = &t->problems[i];
        *q = *p;
        q->count = 1;
        q->pa = (char *)p->pa + (size_t)(i * p->m * p->k) * element_bytes(p->a);
        q->pb = (int8_t *)p->pb + (size_t)i * b_bytes(p);
        q->pc = (char *)p->pc + (size_t)(i * p->m * out_n(p)) * element_bytes(p->c);
        q->fa = p->fa + i * p->m * p->k;
        q->fb = p->fb + i * p->n * p->k;
        q->fc = p->fc + i * p->m * p->n;
        if (!(t->states[i] = e->prepare(q))) return i > 0;
        t->count++;
    }
    return true;
}

static void theirs_run(void *x)
{
    const theirs_of *t = x;
    for (int64_t i = 0; i < t->count; i++) t->peer->run(t->states[i]);
}

static void theirs_close(theirs_of *t)
{
    for (int64_t i = 0; i < t->count; i++) t->peer->close(t->states[i]);
    free(t->problems);
    free(t->states);
}

static bool wanted(const options *o, const peer *p)
{
    char name[40];
    snprintf(name, sizeof name, ",%s,", p->name);
    return strstr(o->peers, ",all,") || strstr(o->peers, name);
}

static void call_ours(void *x) { ours_run(x); }

static int run_problem(const options *o, octet_ctx *ctx, int threads, const shape *s, void *state)
{
    const bool *usable = state;
    problem p = { .m = s->m, .n = s->n, .k = s->k, .a = o->a, .b = o->b, .c = o->c, .bias = o->bias, .relu = o->relu,
                  .threads = threads, .isa = o->isa, .count = o->batch, .group = o->group, .weight_only = o->weight_only,
                  .dynamic = *o->dynamic != 0, .by_row = strcmp(o->dynamic, "tensor") != 0, .reduced = !strcmp(o->dynamic, "reduced") };
    memcpy(p.chain, o->chain, sizeof p.chain);
    char types[64];
    snprintf(types, sizeof types, "%s%s%s%s", o->types, o->weight_only ? ":w" : "", *o->dynamic ? ":" : "", o->dynamic);
    ours x;
    char name[64];
    rng r = { o->seed * 77 + 1 };
    int wrong = 0;
    if (!problem_new(&p)) { fprintf(stderr, "octet-bench: no memory for this problem\n"); return 1; }
    if (!fill(&p, o->data_a, o->data_b, o->per_tensor, o->seed)) { problem_free(&p); return usage("no such --data"), -2; }
    if (!ours_open(&x, ctx, &p)) { fprintf(stderr, "octet-bench: %s\n", octet_why()); problem_free(&p); return 1; }
    snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)p.m, (long long)p.n, (long long)p.k);
    if (p.count > 1) snprintf(name + strlen(name), sizeof name - strlen(name), "*%lld", (long long)p.count);
    if (isatty(2)) fprintf(stderr, "\r\033[K%s ...", name);

    const double ops = 2.0 * (double)p.m * (double)p.n * (double)p.k * (double)p.count;
    const double bytes = (double)p.count * ((double)(p.m * p.k) * (double)element_bytes(p.a) + (double)b_bytes(&p) + (double)(p.m * out_n(&p)) * (double)element_bytes(p.c));
    const bool many = p.m * p.n * p.k > 1 << 26;
    ours_run(&x);
    const bool right = !o->verify || verify(&p, p.floating && many ? 16 : INT64_MAX, &r);
    stats theirs;
    const stats mine = sample(call_ours, &x, NULL, NULL, o->seconds, o->cold, &theirs);
    if (isatty(2)) fprintf(stderr, "\r\033[K");
    row line = {
        .op = "gemm", .impl = "octet", .kernel = octet_explain(x.plan, x.packed[0]), .types = types, .problem = name, .check = "off",
        .cache = o->cold ? "cold" : "warm", .verified = o->verify ? right ? "yes" : "no" : "skipped", .threads = threads,
        .min_ns = mine.min, .median_ns = mine.median, .p99_ns = mine.p99, .gops = ops / mine.median, .gbytes = bytes / mine.median,
        .percent_of_peak = percent_of_peak(&x, &p, ops / 2 / mine.median * 1e9, threads), .prepare_us = x.prepare_us,
        .first_call_us = o->format == REPORT_TABLE ? 0 : first_call_us(o->types, s), .packed_bytes = (size_t)x.packed[0]->blob->bytes,
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
        theirs_of state;
        if (!theirs_open(&state, peers[i], &p) || !state.count) { theirs_close(&state); continue; }
        const double prepare = (now_ns() - t) * 1e-3;
        theirs_run(&state);
        const bool same = !peers[i]->f32 || p.plain_f32; /* it computes this product, not an f32 one beside it */
        const bool ok = same && o->verify && verify_peer(&p, peers[i]->f32 ? p.fc : p.pc, many ? 8 : INT64_MAX, &r); /* one wrong value is enough */
        sample(call_ours, &x, theirs_run, &state, o->seconds, o->cold, &theirs);
        row other = {
            .op = "gemm", .impl = peers[i]->name, .kernel = peers[i]->version(), .types = peers[i]->f32 ? "f32:f32:f32" : types,
            .problem = name, .check = "off", .cache = line.cache, .verified = !same || !o->verify ? "skipped" : ok ? "yes" : "no",
            .threads = threads, .min_ns = theirs.min, .median_ns = theirs.median, .p99_ns = theirs.p99, .gops = ops / theirs.median,
            .gbytes = bytes / theirs.median, .prepare_us = prepare, .ratio = theirs.ratio, .ratio_low = theirs.ratio_low,
        };
        report_row(&other);
        theirs_close(&state);
    }
    ours_close(&x);
    problem_free(&p);
    return wrong;
}

int gemm_report(const options *o)
{
    bool usable[16] = { false };
    FILE *to = o->out ? fopen(o->out, "w") : stdout;
    if (!to) return usage("--out: cannot be written");
    for (int i = 0; peers[i]; i++) {
        if (!wanted(o, peers[i])) continue;
        const char *why = peers[i]->open(o->isa);
        usable[i] = !why;
        if (why) fprintf(stderr, "octet-bench: %s left out: %s\n", peers[i]->name, why);
    }
    report_begin(to, o->format, "gemm", o->seed);
    const int wrong = over_shapes(o, run_problem, usable);
    report_end();
    if (to != stdout) fclose(to);
    return wrong < 0 ? 2 : wrong > 0;
}

