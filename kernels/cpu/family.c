/* Rates measured on Zen 4 at 3.67 GHz, kc 512, registers and L1 only (benchmarks/RESULTS.md). */
#include "family.h"

const family families[DOT_COUNT] = {
    /*              dot        needs     form     place  mr min  rate */
    [DOT_PLAIN] = { DOT_PLAIN, 0,        A_QUADS, false, 8, 1, 0.5f },
    [DOT_W]     = { DOT_W,     CPU_AVX2, A_WIDE,  false, 6, 1, 24.5f },
    [DOT_WS]    = { DOT_WS,    CPU_AVX2, A_WIDE,  false, 6, 4, 26.0f },
    [DOT_S]     = { DOT_S,     CPU_AVX2, A_SPLIT, false, 1, 1, 20.5f },
    [DOT_T1]    = { DOT_T1,    CPU_AVX2, A_QUADS, true,  8, 1, 31.5f },
    [DOT_T2]    = { DOT_T2,    CPU_AVX2, A_QUADS, true,  8, 1, 38.7f },
    [DOT_T4]    = { DOT_T4,    CPU_AVX2, A_QUADS, true,  8, 1, 42.4f },
};

const char *family_refuses(const family *f, unsigned cpu)
{
    if (f->needs & ~cpu) return "the CPU lacks a feature, or OCTET_ISA takes it away";
    return NULL;
}
