/*
 * Timing in turn. On a shared machine absolute times drift by a third; the ratio of two calls made
 * one after the other does not. So every figure against a peer is a median of pair ratios, with the
 * lower 95 % bound of that median by order statistics.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { PAIRS = 31, PAIRS_MAX = 4000, EVICT = 96 << 20 };

double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void pin(int cpu)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (cpu < 0 || i == cpu) CPU_SET(i, &s);
    sched_setaffinity(0, sizeof s, &s);
}

static void evict(void)
{
    static volatile uint8_t *junk;
    if (!junk) {
        junk = malloc(EVICT);
        if (junk) memset((void *)(uintptr_t)junk, 1, EVICT);
    }
    for (size_t i = 0; junk && i < EVICT; i += 64) (void)junk[i];
}

static double once(call_fn f, void *x, long calls, bool cold)
{
    if (cold) evict();
    const double t = now_ns();
    for (long i = 0; i < calls; i++) f(x);
    return (now_ns() - t) / (double)calls;
}

/* Calls for about 30 us of work: short enough to alternate often, long enough for the clock. */
static long calls_for(call_fn f, void *x)
{
    long calls = 1;
    for (;;) {
        const double t = once(f, x, calls, false) * (double)calls;
        if (t > 3e4 || calls > 1 << 20) return calls;
        calls *= 2;
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static stats summary(double *v, int n)
{
    stats s = { 0 };
    qsort(v, (size_t)n, sizeof *v, by_value);
    s.min = v[0];
    s.median = v[n / 2];
    s.p99 = v[(int)ceil(0.99 * n) - 1];
    s.pairs = n;
    return s;
}

/* The largest order statistic that the median exceeds with 95 %: P(Bin(n, 1/2) <= k - 1) <= 0.05. */
static int bound_index(int n)
{
    const int k = (int)floor(n / 2.0 - 1.645 * sqrt(n) / 2.0);
    return k > 0 ? k : 0;
}

stats sample(call_fn f, void *fx, call_fn g, void *gx, double seconds, bool cold, stats *other)
{
    static double a[PAIRS_MAX], b[PAIRS_MAX], ratio[PAIRS_MAX];
    f(fx);
    if (g) g(gx);
    const long fc = cold ? 1 : calls_for(f, fx), gc = cold || !g ? 1 : calls_for(g, gx);
    const double start = now_ns();
    int n = 0;
    while (n < PAIRS_MAX && (n < PAIRS || now_ns() - start < seconds * 1e9)) {
        if (n % 2 == 0) a[n] = once(f, fx, fc, cold);
        if (g) b[n] = once(g, gx, gc, cold);
        if (n % 2 == 1) a[n] = once(f, fx, fc, cold);
        if (g) ratio[n] = b[n] / a[n];
        n++;
    }
    stats s = summary(a, n);
    if (g) {
        *other = summary(b, n);
        qsort(ratio, (size_t)n, sizeof *ratio, by_value);
        other->ratio = ratio[n / 2];
        other->ratio_low = ratio[bound_index(n)];
    }
    return s;
}

#if !HAVE_GOOGLE_BENCHMARK
double benchmark_ns(const char *name, call_fn f, void *x, double seconds)
{
    double t[5];
    (void)name;
    for (int i = 0; i < 5; i++) {
        long calls = 0;
        const double start = now_ns();
        do f(x), calls++;
        while (now_ns() - start < seconds * 1e9);
        t[i] = (now_ns() - start) / (double)calls;
    }
    return summary(t, 5).median;
}
#endif
