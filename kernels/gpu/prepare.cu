// What goes before products: B into packed rows with its sums (once), and A into rows of the type in which it meets B, quantized
// by given or found scales, with its sums (where tensor maps cannot take it as it lies, or a range must be found).
#include "epilogue.cuh"

enum { THREADS = 128 };

GPU_FN float a_real(int type, const void *a, int64_t at)
{
    switch (type) {
    case OCTET_F16: return float_of_half(((const uint16_t *)a)[at]);
    case OCTET_BF16: return f32_from_bf16(((const uint16_t *)a)[at]);
    default: return ((const float *)a)[at];
    }
}

// The least and the greatest over the block, in every thread.
GPU_FN void block_range(float &lo, float &hi)
{
    GPU_SHARED(float, los, THREADS);
    GPU_SHARED(float, his, THREADS);
    const int t = (int)threadIdx.x;
    los[t] = lo;
    his[t] = hi;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half) {
            los[t] = los[t + half] < los[t] ? los[t + half] : los[t];
            his[t] = his[t + half] > his[t] ? his[t + half] : his[t];
        }
    }
    __syncthreads();
    lo = los[0];
    hi = his[0];
    __syncthreads();
}

GPU_FN int32_t block_sum(int32_t v)
{
    GPU_SHARED(int32_t, sums, THREADS);
    const int t = (int)threadIdx.x;
    sums[t] = v;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] = (int32_t)((uint32_t)sums[t] + (uint32_t)sums[t + half]);
    }
    __syncthreads();
    const int32_t total = sums[0];
    __syncthreads();
    return total;
}

GPU_FN void widen_range(float x, float &lo, float &hi)
{
    if (!(fabsf(x) <= FLT_MAX)) return;
    lo = x < lo ? x : lo;
    hi = x > hi ? x : hi;
}

// The range of all of A, in GPU_PARTIALS parts: one block each.
GPU_KERNEL __launch_bounds__(THREADS) void octet_find_range(const __grid_constant__ gpu_gather g)
{
    float lo = INFINITY, hi = -INFINITY;
    for (int64_t i = blockIdx.x; i < g.m; i += GPU_PARTIALS)
        for (int64_t k = threadIdx.x; k < g.k; k += THREADS) widen_range(a_real(g.a_type, g.a, i * g.a_row + k * g.a_col), lo, hi);
    block_range(lo, hi);
    if (threadIdx.x == 0) {
        g.partials[2 * blockIdx.x] = lo;
        g.partials[2 * blockIdx.x + 1] = hi;
    }
}

GPU_FN void find_scale(const gpu_gather &g, int64_t i, float *scale, int32_t *zero)
{
    float lo = INFINITY, hi = -INFINITY;
    if (g.per_tensor) {
        for (int r = (int)threadIdx.x; r < GPU_PARTIALS; r += THREADS) {
            lo = g.partials[2 * r] < lo ? g.partials[2 * r] : lo;
            hi = g.partials[2 * r + 1] > hi ? g.partials[2 * r + 1] : hi;
        }
    } else {
        for (int64_t k = threadIdx.x; k < g.k; k += THREADS) widen_range(a_real(g.a_type, g.a, i * g.a_row + k * g.a_col), lo, hi);
    }
    block_range(lo, hi);
    if (!(lo <= hi)) lo = hi = 0; // nothing finite
    choose_scale(lo, hi, g.as == OCTET_U8 ? 0 : -g.most, g.most, g.as == OCTET_S8, scale, zero);
}

// A block takes whole rows.
GPU_KERNEL __launch_bounds__(THREADS) void octet_gather(const __grid_constant__ gpu_gather g)
{
    const bool quantizes = (g.as == OCTET_U8 || g.as == OCTET_S8) && g.a_type != g.as;
    const int size = g.as == OCTET_U8 || g.as == OCTET_S8 ? 1 : g.as == OCTET_F32 ? 4 : 2;
    for (int64_t i = blockIdx.x; i < g.m; i += gridDim.x) {
        float scale = g.given_scale_rows ? g.given_scale_rows[i] : g.scale;
        int32_t zero = g.given_zero_rows ? g.given_zero_rows[i] : g.zero, sum = 0;
        if (g.dynamic) find_scale(g, i, &scale, &zero);
        const float inverse = 1.0f / (scale == 0.0f ? 1.0f : scale);
        const float least = g.as == OCTET_U8 ? 0.0f : g.dynamic ? (float)-g.most : -128.0f;
        const bounds b = { least - (float)zero, (float)(g.most - zero) };
        uint8_t *out = g.out ? (uint8_t *)g.out + i * g.pitch : NULL;
        for (int64_t k = threadIdx.x; k < (out ? g.pitch / size : g.k); k += THREADS) {
            const int64_t at = i * g.a_row + k * g.a_col;
            const bool inside = k < g.k;
            if (size == 1) {
                uint8_t q = 0;
                if (inside) q = quantizes ? (uint8_t)requantize(a_real(g.a_type, g.a, at), inverse, b, zero) : ((const uint8_t *)g.a)[at];
                sum += g.as == OCTET_U8 ? (int32_t)q : (int32_t)(int8_t)q;
                if (out) out[k] = q;
            } else if (size == 2) {
                ((uint16_t *)out)[k] = inside ? ((const uint16_t *)g.a)[at] : 0;
            } else {
                ((uint32_t *)out)[k] = inside ? ((const uint32_t *)g.a)[at] : 0;
            }
        }
        if (g.row_sums) {
            sum = block_sum(sum);
            if (threadIdx.x == 0) g.row_sums[i] = sum;
        }
        if (g.scale_rows && threadIdx.x == 0) {
            g.scale_rows[i] = scale;
            g.zero_rows[i] = zero;
        }
    }
}

// A block packs whole columns.
GPU_KERNEL __launch_bounds__(THREADS, 8) void octet_pack_rows(const __grid_constant__ gpu_pack g)
{
    const bool nibbles = g.b_type == OCTET_S4 || g.b_type == OCTET_U4;
    const int size = nibbles || g.b_type == OCTET_S8 ? 1 : g.b_type == OCTET_F32 ? 4 : 2;
    const int64_t rows = gpu_packed_rows(g.n, g.gated);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t j = gpu_packed_column(row, g.n, g.gated);
        const int32_t zero = j < 0 ? 0 : g.zeros ? g.zeros[j] : g.zero;
        int32_t sum = 0;
        uint8_t *out = g.out + row * g.pitch;
        for (int64_t at = threadIdx.x; at < g.pitch / size; at += THREADS) {
            if (nibbles) {
                uint8_t v = 0;
                for (int half = 0; half < 2; half++) {
                    const int64_t k = 2 * at + half, from = k * g.b_k + j * g.b_n;
                    if (j >= 0 && k < g.k) v |= (uint8_t)((((const uint8_t *)g.b)[from / 2] >> 4 * (from % 2) & 15) << 4 * half);
                }
                out[at] = v;
                continue;
            }
            const bool inside = j >= 0 && at < g.k;
            const int64_t from = inside ? at * g.b_k + j * g.b_n : 0;
            if (size == 4) {
                ((uint32_t *)out)[at] = inside ? ((const uint32_t *)g.b)[from] : 0;
            } else if (size == 2) {
                ((uint16_t *)out)[at] = inside ? ((const uint16_t *)g.b)[from] : 0;
            } else {
                const int8_t v = inside ? ((const int8_t *)g.b)[from] : (int8_t)0;
                ((int8_t *)out)[at] = v;
                if (inside) sum += v - zero;
            }
        }
        if (g.integer) sum = block_sum(sum);
        if (j < 0 || threadIdx.x) continue;
        if (g.integer) {
            g.col_sums[j] = sum;
            g.zero_b[j] = zero;
        }
        for (int64_t p = 0; p < g.groups; p++) {
            if (g.scale_b) g.scale_b[p * g.n + j] = g.scales ? g.scales[p * g.n + j] : g.scale;
            if (g.float_zeros) g.float_zeros[p * g.n + j] = (float)(g.zeros ? g.zeros[p * g.n + j] : g.zero);
        }
    }
}
