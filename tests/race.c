/* Threads that share plans, packed operands, workspaces and the kernel cache. A plain program, so that
 * the thread sanitizer can watch it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

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

int main(void)
{
    static const struct { const char *name; int (*run)(void); } tests[] = {
        { "eight threads share plans", shared_plans },
        { "eight threads share the cache, and evict", shared_cache },
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const int bad = tests[i].run();
        if (bad) printf("%s: %d wrong\n", tests[i].name, bad);
        failed += bad > 0;
    }
    printf("%d passed, %d failed\n", 2 - failed, failed);
    return failed;
}

