/* Rates measured on Zen 4 at 3.67 GHz, kc 512, registers and L1 only (benchmarks/RESULTS.md). */
#include "family.h"

const family families[DOT_COUNT] = {
    /*              dot        needs     form     place  mr min widen rate */
    [DOT_PLAIN] = { DOT_PLAIN, 0,        A_QUADS, false, 8, 1, 0,   0.5f },
    [DOT_W]     = { DOT_W,     CPU_AVX2, A_WIDE,  false, 6, 1, 0,   24.5f },
    [DOT_WS]    = { DOT_WS,    CPU_AVX2, A_WIDE,  false, 6, 4, 0,   26.0f },
    [DOT_S]     = { DOT_S,     CPU_AVX2, A_SPLIT, false, 1, 1, 0,   20.5f },
    [DOT_T1]    = { DOT_T1,    CPU_AVX2, A_QUADS, true,  8, 1, 0,   31.5f },
    [DOT_T2]    = { DOT_T2,    CPU_AVX2, A_QUADS, true,  8, 1, 0,   38.7f },
    [DOT_T4]    = { DOT_T4,    CPU_AVX2, A_QUADS, true,  8, 1, 0,   42.4f },
    [DOT_F32]   = { DOT_F32,   CPU_AVX2, A_FLOAT, true,  6, 1, 255, 15.6f },
    [DOT_F16]   = { DOT_F16,   CPU_AVX2, A_FLOAT, true,  6, 1, 255,   15.0f },
    [DOT_BF16]  = { DOT_BF16,  CPU_AVX2, A_FLOAT, true,  6, 1, 255,   15.0f },
    [DOT_FS8]   = { DOT_FS8,   CPU_AVX2, A_FLOAT, true,  6, 1, 4,   14.0f },
    [DOT_FS4]   = { DOT_FS4,   CPU_AVX2, A_FLOAT, true,  6, 1, 4,   12.0f },
};

const char *family_refuses(const family *f, unsigned cpu)
{
    if (f->needs & ~cpu) return "the CPU lacks a feature, or OCTET_ISA takes it away";
    return NULL;
}
