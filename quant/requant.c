/* Folding ReLU and clip into the range of an integer C; see requant.h. */
#include "quantize.h"

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

/* f rounded to an integer within s32. */
static int32_t to_s32(float f) { return f <= -0x1p31f ? INT32_MIN : f >= 0x1p31f ? INT32_MAX : (int32_t)nearbyintf(f); }

c_limits limits_of(const octet_gemm_desc *d, const octet_gemm_args *x)
{
    const format *c = format_of(d->c);
    c_limits l = { { -INFINITY, INFINITY }, 0, 0, 0 };
    if (d->flags & OCTET_RELU) l.f.lo = 0;
    if (d->flags & OCTET_CLIP) { /* min(max(relu, clip_lo), clip_hi) */
        l.f.lo = x->clip_lo > l.f.lo ? x->clip_lo : l.f.lo;
        l.f.hi = x->clip_hi;
        l.f.lo = l.f.lo < l.f.hi ? l.f.lo : l.f.hi;
    }
    if (d->c == OCTET_S32) {
        l.lo = to_s32(l.f.lo);
        l.hi = to_s32(l.f.hi);
    } else if (c->bytes == 1) {
        l.inv_scale_c = inverse_scale(x->scale_c);
        l.f = requant_bounds(c->lo, c->hi, x->zero_c, l.inv_scale_c, l.f.lo, l.f.hi);
    }
    return l;
}
