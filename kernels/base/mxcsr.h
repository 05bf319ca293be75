/* Our floating point steps round to nearest even and keep denormals, whatever the caller has set:
 * each entry that computes in floating point runs between fp_enter and fp_leave. */
#ifndef OCTET_MXCSR_H
#define OCTET_MXCSR_H

#include "base.h"

#if OCTET_X86
#include <xmmintrin.h>

static inline unsigned fp_enter(void)
{
    unsigned kept = _mm_getcsr();
    if ((kept & ~0x3fu) != 0x1f80) _mm_setcsr(0x1f80); /* all masked, nearest, no FTZ, no DAZ; flags aside */
    return kept;
}

static inline void fp_leave(unsigned kept)
{
    if ((kept & ~0x3fu) != 0x1f80) _mm_setcsr(kept);
}
#else
static inline unsigned fp_enter(void) { return 0; }
static inline void     fp_leave(unsigned kept) { (void)kept; }
#endif

#endif
