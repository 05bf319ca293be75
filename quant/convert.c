/* f32 <-> binary16 and bfloat16, arrays; format.h defines one value of each. */
#include "format.h"
#include "octet/quant.h"

#if OCTET_X86
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

/* These conversions keep denormals and round to nearest even, whatever MXCSR says: vcvtph2ps ignores
 * DAZ, and vcvtps2ph takes its rounding from the instruction (SDM vol. 1, 14.4.1). DAZ does reach the
 * f32 source of vcvtps2ph, but every f32 denormal is 0 in binary16 anyway. */
__attribute__((target("avx2,f16c")))
static size_t f16_from(const float *x, size_t n, uint16_t *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
__attribute__((target("avx2,f16c")))
static size_t f16_to(const uint16_t *x, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    return i;
}
static bool has_f16c(void) /* not every compiler's __builtin_cpu_supports knows it; cpuid is slow in virtual machines */
{
    static atomic_int known; /* 1 yes, 2 no */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (!k) {
        unsigned a, b, c = 0, d;
        k = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? 1 : 2;
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return k == 1;
}
#else
static size_t f16_from(const float *x, size_t n, uint16_t *y) { (void)x; (void)n; (void)y; return 0; }
static size_t f16_to(const uint16_t *x, size_t n, float *y) { (void)x; (void)n; (void)y; return 0; }
static bool   has_f16c(void) { return false; }
#endif

static octet_status check(const char *who, octet_dtype type, size_t n, const void *a, const void *b)
{
    if (type != OCTET_F16 && type != OCTET_BF16) return fail(OCTET_EINVAL, "%s: type %d is neither OCTET_F16 nor OCTET_BF16", who, (int)type);
    if (n && (!a || !b)) return fail(OCTET_EINVAL, "%s: a pointer is NULL", who);
    return OCTET_OK;
}

octet_status octet_from_f32(octet_dtype type, const float *x, size_t n, uint16_t *y)
{
    const octet_status st = check("octet_from_f32", type, n, x, y);
    if (st) return st;
    if (type == OCTET_F16)
        for (size_t i = has_f16c() ? f16_from(x, n, y) : 0; i < n; i++) y[i] = f16_from_f32(x[i]);
    else
        for (size_t i = 0; i < n; i++) y[i] = bf16_from_f32(x[i]);
    return OCTET_OK;
}

octet_status octet_to_f32(octet_dtype type, const uint16_t *x, size_t n, float *y)
{
    const octet_status st = check("octet_to_f32", type, n, x, y);
    if (st) return st;
    if (type == OCTET_F16)
        for (size_t i = has_f16c() ? f16_to(x, n, y) : 0; i < n; i++) y[i] = f32_from_f16(x[i]);
    else
        for (size_t i = 0; i < n; i++) y[i] = f32_from_bf16(x[i]);
    return OCTET_OK;
}
