/* What this processor has. The environment (OCTET_ISA) can take features away, never add them. */
#ifndef OCTET_CPU_H
#define OCTET_CPU_H

#include "base.h"

enum { CPU_AVX2 = 1 << 0 }; /* AVX2, FMA and F16C, and an OS that saves ymm */

typedef struct cpu_caches { int64_t l1d, l2, l3; } cpu_caches; /* bytes; of one core, l3 shared */

unsigned   cpu_features(void);
cpu_caches cpu_cache_sizes(void);

#endif
