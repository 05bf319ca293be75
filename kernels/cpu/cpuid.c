/* CPUID, asked once. Caches by leaf 4 (Intel) or 0x8000001d (AMD), which share a format. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu.h"

#if OCTET_X86
#include <cpuid.h>

static unsigned detect(void)
{
    unsigned a, b, c, d, lo, hi;
    const unsigned want = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want) != want) return 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    if ((lo & 6) != 6) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    return CPU_AVX2;
}

static cpu_caches detect_caches(void)
{
    cpu_caches found = { 32 << 10, 256 << 10, 8 << 20 };
    unsigned a, b, c, d;
    unsigned leaf = 4;
    if (__get_cpuid(0x80000000, &a, &b, &c, &d) && a >= 0x8000001d) {
        __get_cpuid_count(0x8000001d, 0, &a, &b, &c, &d);
        if (a & 31) leaf = 0x8000001d;
    }
    for (unsigned i = 0; i < 8; i++) {
        if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || !(a & 31)) break;
        const int64_t bytes = (int64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((int64_t)c + 1);
        if ((a & 31) == 2) continue; /* instructions */
        switch (a >> 5 & 7) {
        case 1: found.l1d = bytes; break;
        case 2: found.l2 = bytes; break;
        case 3: found.l3 = bytes; break;
        default: break;
        }
    }
    return found;
}
#else
static unsigned   detect(void) { return 0; }
static cpu_caches detect_caches(void) { return (cpu_caches){ 32 << 10, 256 << 10, 8 << 20 }; }
#endif

unsigned cpu_features(void)
{
    static atomic_uint known; /* the top bit marks an answer */
    unsigned f = atomic_load_explicit(&known, memory_order_relaxed);
    if (f == 0) {
        static const struct { const char *name; unsigned keep; } caps[] = { { "plain", 0 }, { "avx2", CPU_AVX2 } };
        const char *cap = getenv("OCTET_ISA");
        f = detect();
        for (size_t i = 0; cap && i < COUNT(caps); i++)
            if (!strcmp(cap, caps[i].name)) f &= caps[i].keep;
        f |= 1u << 31;
        atomic_store_explicit(&known, f, memory_order_relaxed);
    }
    return f & ~(1u << 31);
}

static cpu_caches sizes;
static void       ask_sizes(void) { sizes = detect_caches(); }

cpu_caches cpu_cache_sizes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_sizes);
    return sizes;
}
