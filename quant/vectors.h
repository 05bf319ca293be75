/*
 * How quant/ gets its vectors: a plain loop, always inlined, in two wrappers, one of them compiled for AVX2, where the
 * compiler's vectors do the rest. The plain loop is the definition.
 */
#ifndef OCTET_VECTORS_H
#define OCTET_VECTORS_H

#include "base.h"

#define LOOP static inline __attribute__((always_inline))
#if OCTET_X86
#define FOR_AVX2 __attribute__((target("avx2,fma,f16c")))
static inline bool has_avx2(void) /* every processor with AVX2 and FMA has F16C */
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define FOR_AVX2
static inline bool has_avx2(void) { return false; }
#endif

#endif
