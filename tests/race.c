/* Threads that share plans, packed operands, workspaces and the kernel cache. A plain program, so that
 * the thread sanitizer can watch it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bag_case.h"

enum { THREADS = 8 };

typedef struct shared { octet_plan *p; octet_packed *b; const test_case *c; atomic_int bad; } shared;

static void *run_shared(void *arg)
{
    shared *s = arg;
    octet_gemm_args x = s->c->x;
    char *out = malloc(s->c->c.bytes + 1);
    for (int i = 0; i < 60; i++) {
        memcpy(out, s->c->c.p, s->c->c.bytes);
        x.c = out;
        if (octet_run(s->p, &x) || memcmp(out, s->c->want.p, s->c->c.bytes)) atomic_fetch_add(&s->bad, 1);
    }
    free(out);
    return NULL;
}

static void *own_cases(void *arg)
{
    const uint64_t base = 6000000 + 1000 * (uint64_t)(uintptr_t)arg;
    uintptr_t bad = 0;
    for (uint64_t i = 0; i < 40; i++) {
        test_case c;
        case_new(&c, base % 3 ? 6000000 + i : base + i, -1, -1, -1); /* most threads meet on the same kernels */
        bad += (uintptr_t)case_run(&c, NULL, NULL);
        case_free(&c);
        if (i % 10 == 9) { /* and evict under the others' feet */
            octet_cache_limit(0);
            octet_cache_limit(4 << 20);
        }
    }
    return (void *)bad;
}

static int shared_plans(void)
{
    int bad = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        test_case c;
        pthread_t id[THREADS];
        shared s = { .c = &c };
        case_new(&c, 7000000 + seed, 40, 70, 300);
        if (octet_plan_gemm(NULL, &c.d, &s.p) || octet_pack(s.p, c.b.p, c.ldb, &c.q, &s.b)) return 1;
        c.x.b = s.b;
        void *start = malloc(c.c.bytes + 1);
        memcpy(start, c.c.p, c.c.bytes);
        bad += octet_run(s.p, &c.x) != OCTET_OK;
        bad += case_check(&c, "shared");
        memcpy(c.c.p, start, c.c.bytes);
        free(start);
        for (int i = 0; i < THREADS; i++) pthread_create(&id[i], NULL, run_shared, &s);
        for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
        bad += atomic_load(&s.bad);
        octet_packed_free(s.b);
        octet_plan_free(s.p);
        case_free(&c);
    }
    return bad;
}

static int shared_cache(void)
{
    pthread_t id[THREADS];
    uintptr_t bad = 0;
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&id[i], NULL, own_cases, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *b;
        pthread_join(id[i], &b);
        bad += (uintptr_t)b;
    }
    return (int)bad;
}

/* One plan of bags, run on many threads over tables of its context's pool, and updates of own tables. */
static void *run_bags(void *arg)
{
    octet_bag_plan *plan = arg;
    uintptr_t bad = 0;
    for (int i = 0; i < 20; i++) {
        bag_case c;
        octet_bag_args a = OCTET_BAG_ARGS;
        bag_case_new(&c, 4242, 0);
        a.tables = &c.x;
        bad += octet_run_bags(plan, &a) != OCTET_OK || bag_case_check(&c, "shared");
        bag_case_free(&c);
    }
    return (void *)bad;
}

static int shared_bags(void)
{
    pthread_t id[THREADS];
    uintptr_t bad = 0;
    bag_case c;
    octet_bag_plan *plan;
    bag_case_new(&c, 4242, 0);
    if (octet_plan_bags(NULL, &c.d, sizeof c.d, 1, &plan)) return 1;
    for (int i = 0; i < THREADS; i++) pthread_create(&id[i], NULL, run_bags, plan);
    for (int i = 0; i < THREADS; i++) {
        void *b;
        pthread_join(id[i], &b);
        bad += (uintptr_t)b;
    }
    octet_bag_plan_free(plan);
    bag_case_free(&c);
    return (int)bad;
}

/* The threads of a host, made for each job: pthreadpool's own waits are not compiled for the sanitizer,
 * which would take every hand-over of work for a race. */
typedef struct host_job { octet_task task; void *arg; size_t i; } host_job;

static void *host_one(void *arg)
{
    const host_job *j = arg;
    j->task(j->arg, j->i);
    return NULL;
}

static void host_run(void *user, size_t count, octet_task task, void *arg)
{
    pthread_t id[THREADS];
    host_job job[THREADS];
    (void)user;
    for (size_t i = 0; i < count; i += THREADS) {
        const size_t some = count - i < THREADS ? count - i : THREADS;
        for (size_t k = 0; k < some; k++) {
            job[k] = (host_job){ task, arg, i + k };
            pthread_create(&id[k], NULL, host_one, &job[k]);
        }
        for (size_t k = 0; k < some; k++) pthread_join(id[k], NULL);
    }
}

/* A large batch on a host's threads: its parts and an update's tasks must not touch one another's. */
static int pooled_bags(void)
{
    enum { ROWS = 2000, DIM = 16, BAGS = 6000 };
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx;
    octet_bag_plan *plan;
    octet_bag_desc d = OCTET_BAG_DESC;
    octet_bag_table x = OCTET_BAG_TABLE;
    octet_bag_args a = OCTET_BAG_ARGS;
    octet_bag_step s = OCTET_BAG_STEP;
    octet_bag_update u = OCTET_BAG_UPDATE;
    float *table = calloc(ROWS * DIM, 4), *out = calloc(BAGS * DIM, 4), *state = calloc(ROWS, 4);
    int64_t *indices = calloc(BAGS * 4, 8), *offsets = calloc(BAGS, 8);
    rng r = { 3 };
    int bad = 0;
    o.threads = 4;
    o.parallel = host_run;
    if (octet_ctx_create(&o, &ctx)) return 1;
    for (int i = 0; i < BAGS * 4; i++) indices[i] = rng_below(&r, i % 3 ? ROWS : 5);
    for (int i = 0; i < BAGS; i++) offsets[i] = 4 * i;
    for (int i = 0; i < ROWS * DIM; i++) table[i] = 1;
    d.table = OCTET_F32, d.dim = DIM;
    x.table = table, x.rows = ROWS, x.indices = indices, x.count = BAGS * 4, x.offsets = offsets, x.bags = BAGS, x.out = out, x.ld_out = DIM;
    a.tables = &x;
    bad += octet_plan_bags(ctx, &d, sizeof d, 1, &plan) || octet_run_bags(plan, &a) || out[BAGS * DIM - 1] != 4;
    s.table = table, s.grad = out, s.ld_grad = DIM, s.state = state;
    u.tables = &x, u.steps = &s, u.optimizer = OCTET_ADAGRAD_ROWS, u.lr = 0.1f, u.workspace_bytes = octet_update_bags_bytes(plan, x.count);
    void *workspace = u.workspace = aligned_alloc(64, (u.workspace_bytes + 63) / 64 * 64);
    bad += octet_update_bags(plan, &u) != OCTET_OK;
    free(workspace), free(table), free(out), free(state), free(indices), free(offsets);
    octet_bag_plan_free(plan);
    octet_ctx_free(ctx);
    return bad;
}

int main(void)
{
    static const struct { const char *name; int (*run)(void); } tests[] = {
        { "eight threads share plans", shared_plans },
        { "eight threads share the cache, and evict", shared_cache },
        { "eight threads share a plan of bags", shared_bags },
        { "a pool cuts bags and updates", pooled_bags },
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const int bad = tests[i].run();
        if (bad) printf("%s: %d wrong\n", tests[i].name, bad);
        failed += bad > 0;
    }
    printf("%d passed, %d failed\n", (int)(sizeof tests / sizeof *tests) - failed, failed);
    return failed;
}

