/* Folding ReLU and clip into the range of an integer C; see requant.h. */
#include "requant.h"

bounds requant_bounds(int32_t qlo, int32_t qhi, int32_t zero_c, float inv_scale_c,
                      float clip_lo, float clip_hi)
{
    const float lo = (float)(qlo - zero_c), hi = (float)(qhi - zero_c);
    bounds b;
    /* round(clip(x) * inv) == clamp(round(x * inv), round(lo * inv), round(hi * inv)) */
    b.lo = clamp_nan_low(nearbyintf(clamp_nan_low(clip_lo * inv_scale_c, lo, hi)), lo, hi);
    b.hi = clamp_nan_low(nearbyintf(clamp_nan_low(clip_hi * inv_scale_c, lo, hi)), lo, hi);
    return b;
}
