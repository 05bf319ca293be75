/* What a server does to a library: many threads, fork, no memory, no executable memory, its own
 * allocator and its own threads. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "any_case.h"
#include "cases.h"
#include "cpu.h"
#include "octet.h"
#include "plan.h"

/* ---- threads: see race.c for those that share ---- */

static void host_parallel(void *user, size_t count, octet_task task, void *arg)
{
    ++*(size_t *)user;
    for (size_t i = count; i-- > 0;) task(arg, i); /* any order */
}

Test(system, any_number_of_threads_gives_the_same_answer)
{
    for (int threads = 1; threads <= 7; threads++)
        for (int own = 0; own < 2; own++) {
            octet_ctx_opts o = OCTET_CTX_OPTS;
            octet_ctx *ctx;
            size_t calls = 0;
            o.threads = threads;
            if (own) {
                o.parallel = host_parallel;
                o.parallel_user = &calls;
            }
            const octet_status st = octet_ctx_create(&o, &ctx);
            if (st == OCTET_EUNSUPPORTED) continue; /* built without a pool */
            cr_assert_eq(st, OCTET_OK, "%s", octet_why());
            static const int64_t shapes[][3] = { { 300, 40, 200 }, { 3, 900, 300 }, { 70, 130, 257 }, { 1, 5000, 64 } };
            for (int i = 0; i < 12; i++) {
                test_case c;
                case_new(&c, 8000000 + (uint64_t)i, shapes[i % 4][0], shapes[i % 4][1], shapes[i % 4][2]);
                cr_assert_eq(case_run(&c, ctx, NULL), 0);
                case_free(&c);
            }
            if (own && threads > 1) cr_assert_gt(calls, 0);
            octet_ctx_free(ctx);
        }
}

/* ---- fork ---- */

static int some_cases(uint64_t base, int count)
{
    int bad = 0;
    for (int i = 0; i < count; i++) {
        test_case c;
        case_new(&c, base + (uint64_t)i, -1, -1, -1);
        bad += case_run(&c, NULL, NULL);
        case_free(&c);
    }
    return bad;
}

Test(system, parent_and_child_generate_and_evict_apart)
{
    test_case c;
    octet_plan *p;
    octet_packed *b;
    case_new(&c, 9000001, 20, 30, 100);
    cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK);
    cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK);
    c.x.b = b;
    void *start = malloc(c.c.bytes + 1);
    memcpy(start, c.c.p, c.c.bytes);
    int to_child[2], to_parent[2];
    char token = 0;
    cr_assert(!pipe(to_child) && !pipe(to_parent));
    const pid_t child = fork();
    if (child == 0) {
        int bad = some_cases(9100000, 60); /* new kernels, in what would be the parent's pages */
        octet_cache_limit(0);
        bad += write(to_parent[1], &token, 1) != 1;
        bad += read(to_child[0], &token, 1) != 1;
        octet_cache_limit(4 << 20);
        bad += some_cases(9200000, 60);
        bad += octet_run(p, &c.x) != OCTET_OK; /* what it inherited still runs */
        bad += case_check(&c, "in the child");
        _exit(bad ? 1 : 0);
    }
    int bad = read(to_parent[0], &token, 1) != 1;
    bad += some_cases(9300000, 60); /* the child has evicted; ours must be whole */
    octet_cache_limit(0);
    octet_cache_limit(4 << 20);
    bad += some_cases(9400000, 60);
    bad += write(to_child[1], &token, 1) != 1;
    bad += octet_run(p, &c.x) != OCTET_OK;
    bad += case_check(&c, "in the parent");
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert_eq(bad, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed: %x", (unsigned)status);
    free(start);
    octet_packed_free(b);
    octet_plan_free(p);
    case_free(&c);
}

/* The parent lets go of everything at once, before the child has run: the child's copy is from before the fork. */
Test(system, a_late_child_keeps_what_its_parent_evicts)
{
    for (int round = 0; round < 5; round++) {
        test_case c;
        octet_plan *p;
        octet_packed *b;
        case_new(&c, 9900000 + (uint64_t)round, 20, 30, 100);
        cr_assert_eq(octet_plan_gemm(NULL, &c.d, &p), OCTET_OK);
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK);
        c.x.b = b;
        const pid_t child = fork();
        if (child == 0) {
            usleep(20000);
            _exit(octet_run(p, &c.x) != OCTET_OK || case_check(&c, "in a late child"));
        }
        octet_packed_free(b);
        octet_plan_free(p);
        octet_cache_limit(0);
        octet_cache_limit(4 << 20);
        const int bad = some_cases(9950000, 30); /* over the old places */
        int status = 0;
        waitpid(child, &status, 0);
        cr_assert_eq(bad, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
        case_free(&c);
    }
}

Test(system, a_child_of_a_context_with_threads_can_run)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx;
    o.threads = 3;
    if (octet_ctx_create(&o, &ctx)) cr_skip_test("built without a pool");
    test_case c;
    case_new(&c, 9500000, 200, 60, 200);
    cr_assert_eq(case_run(&c, ctx, NULL), 0);
    const pid_t child = fork();
    if (child == 0) {
        test_case mine;
        case_new(&mine, 9500001, 200, 60, 200);
        _exit(case_run(&mine, ctx, NULL));
    }
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    case_free(&c);
    octet_ctx_free(ctx);
}

/* ---- memory ---- */

typedef struct budget { int left; long live; size_t bytes; } budget;
static void *scarce_alloc(void *user, size_t bytes, size_t align)
{
    budget *b = user;
    if (b->left-- <= 0) return NULL;
    b->live++;
    b->bytes += bytes;
    return aligned_alloc(align, bytes);
}
static void scarce_free(void *user, void *p, size_t bytes)
{
    budget *b = user;
    b->live--;
    b->bytes -= bytes;
    free(p);
}

Test(system, each_failing_allocation_is_reported_and_nothing_leaks)
{
    int refused = 0;
    for (int allowed = 0; allowed < 12; allowed++) {
        budget money = { allowed, 0, 0 };
        octet_ctx_opts o = OCTET_CTX_OPTS;
        o.allocator = (octet_allocator){ scarce_alloc, scarce_free, &money };
        octet_ctx *ctx = NULL;
        octet_plan *p = NULL;
        octet_packed *b = NULL;
        int8_t w[64] = { 1 };
        octet_gemm_desc d = OCTET_GEMM_DESC;
        d.n = d.k = 8;
        d.a = OCTET_U8;
        d.b = OCTET_S8;
        d.c = OCTET_S32;
        errno = 77;
        octet_status st = octet_ctx_create(&o, &ctx);
        if (!st) st = octet_plan_gemm(ctx, &d, &p);
        if (!st) st = octet_pack(p, w, 8, NULL, &b);
        cr_assert(st == OCTET_OK || st == OCTET_ENOMEM, "%s", octet_why());
        refused += st == OCTET_ENOMEM;
        cr_assert_eq(errno, 77, "errno was touched");
        if (st == OCTET_OK) { /* and a run allocates nothing at all */
            const int left = money.left;
            uint8_t a[24] = { 2 };
            int32_t c[24];
            octet_gemm_args x = OCTET_GEMM_ARGS;
            x.m = 3;
            x.a = a;
            x.lda = 8;
            x.b = b;
            x.c = c;
            x.ldc = 8;
            cr_assert_eq(octet_run(p, &x), OCTET_OK);
            cr_assert_eq(money.left, left);
            cr_assert_eq(c[0], 2);
        }
        octet_ctx_free(ctx); /* the others keep it alive */
        octet_packed_free(b);
        octet_plan_free(p);
        cr_assert_eq(money.live, 0, "%ld allocations leak with %d allowed", money.live, allowed);
        cr_assert_eq(money.bytes, 0, "sizes given back do not match");
    }
    cr_assert_geq(refused, 5);
}

/* Every kind of product, single, in a batch and in a group: what a run needs was made before it. */
Test(system, no_run_allocates_or_generates)
{
    budget money = { 1 << 20, 0, 0 };
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *ctx;
    o.allocator = (octet_allocator){ scarce_alloc, scarce_free, &money };
    cr_assert_eq(octet_ctx_create(&o, &ctx), OCTET_OK);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        any_case c;
        octet_plan *p;
        octet_packed *b;
        any_new(&c, 9700000 + seed, -1, -1, seed % 4 ? -1 : 3000);
        cr_assert_eq(octet_plan_gemm(ctx, &c.d, &p), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_pack(p, c.b.p, c.ldb, &c.q, &b), OCTET_OK, "%s", octet_why());
        c.x.b = b;
        octet_cache_stats before = OCTET_CACHE_STATS, after = OCTET_CACHE_STATS;
        const int left = money.left;
        octet_cache_info(&before);
        octet_batch w = OCTET_BATCH;
        w.count = 1;
        const octet_gemm_item item = { p, &c.x };
        cr_assert_eq(octet_run(p, &c.x), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_run_batch(p, &c.x, &w), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_run_group(&item, 1), OCTET_OK, "%s", octet_why());
        octet_cache_info(&after);
        cr_assert_eq(money.left, left, "seed %llu allocated", (unsigned long long)seed);
        cr_assert(before.generated == after.generated && before.hits == after.hits, "seed %llu asked for a kernel", (unsigned long long)seed);
        octet_packed_free(b);
        octet_plan_free(p);
        any_free(&c);
    }
    octet_ctx_free(ctx);
    cr_assert_eq(money.live, 0);
}

/* ---- no executable memory ---- */

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

/* Under a write-xor-execute policy (systemd's MemoryDenyWriteExecute) code is still generated. */
Test(system, write_xor_execute_policies_are_survived)
{
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)) _exit(42);
        octet_cache_stats s = OCTET_CACHE_STATS;
        const int bad = some_cases(9600000, 40);
        octet_cache_info(&s);
        _exit(bad || (cpu_features() && (!s.executable || !s.kernels)));
    }
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status));
    if (WEXITSTATUS(status) == 42) cr_skip_test("this kernel has no PR_SET_MDWE");
    cr_assert_eq(WEXITSTATUS(status), 0);
}

/* Where no code can be made at all (here: no address space for it), plain C computes, and says so. */

Test(system, without_executable_memory_plain_c_computes)
{
    const pid_t child = fork();
    if (child == 0) {
        struct rlimit r = { 0, 0 };
        FILE *f = fopen("/proc/self/statm", "r");
        unsigned long pages = 0;
        if (!f || fscanf(f, "%lu", &pages) != 1) _exit(42);
        fclose(f);
        r.rlim_cur = r.rlim_max = (pages + (48 << 20) / 4096) * 4096; /* less than the arena wants */
        if (setrlimit(RLIMIT_AS, &r)) _exit(42);
        octet_cache_stats s = OCTET_CACHE_STATS;
        octet_cache_info(&s);
        if (s.executable) _exit(2);
        int bad = some_cases(9700000, 40);
        octet_gemm_desc d = OCTET_GEMM_DESC;
        octet_plan *p;
        d.n = d.k = 8;
        d.a = OCTET_U8;
        d.b = OCTET_S8;
        d.c = OCTET_S32;
        if (octet_plan_gemm(NULL, &d, &p)) _exit(3);
        bad += !strstr(octet_explain(p, NULL), "plain");
        octet_plan_free(p);
        d.flags = OCTET_NO_FALLBACK;
        bad += octet_plan_gemm(NULL, &d, &p) != OCTET_EUNSUPPORTED;
        _exit(bad ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42) cr_skip_test("no resource limits here");
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
}

/* The environment takes features away. */
Test(system, the_isa_cap_only_lowers)
{
    static const char *const caps[] = { "plain", "avx2", "nonsense" };
    for (int i = 0; i < 3; i++) {
        const pid_t child = fork();
        if (child == 0) {
            setenv("OCTET_ISA", caps[i], 1);
            const unsigned had = __builtin_cpu_supports("avx2") ? CPU_AVX2 : 0;
            const unsigned want = i == 0 ? 0 : had;
            _exit((cpu_features() & ~want) || some_cases(9800000, 20));
        }
        int status = 0;
        waitpid(child, &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", caps[i]);
    }
}
