// What goes before products: B into packed rows with its sums (once), and A into rows of the type in which it meets B, quantized
// by given or found scales, with its sums (where tensor maps cannot take it as it lies, or a range must be found).
#include "epilogue.cuh"

enum { THREADS = GPU_THREADS_PREPARE };

GPU_FN int bytes_of(int type) { return type == OCTET_U8 || type == OCTET_S8 ? 1 : type == OCTET_F32 ? 4 : 2; }

// ---- A's values, as bits ----

GPU_FN uint32_t one_value(const gpu_gather &g, int64_t i, int64_t k)
{
    const int64_t at = i * g.a_row + k * g.a_col;
    switch (bytes_of(g.a_type)) {
    case 1: return ((const uint8_t *)g.a)[at];
    case 2: return ((const uint16_t *)g.a)[at];
    default: return ((const uint32_t *)g.a)[at];
    }
}

template <class T, int N> GPU_FN void load_piece(const T *p, uint32_t v[N])
{
    check_aligned(p, alignof(piece<T, N>));
    const piece<T, N> w = *(const piece<T, N> *)(const void *)p;
#pragma unroll
    for (int c = 0; c < N; c++) v[c] = w.v[c];
}

// Eight from k on of row i, 0 past the end: at once where they are neighbours and lie so.
GPU_FN void eight_values(const gpu_gather &g, int64_t i, int64_t k, uint32_t v[8])
{
    const int64_t at = i * g.a_row + k;
    if (g.wide && k + 8 <= g.k) {
        switch (bytes_of(g.a_type)) {
        case 1: load_piece<uint8_t, 8>((const uint8_t *)g.a + at, v); return;
        case 2: load_piece<uint16_t, 8>((const uint16_t *)g.a + at, v); return;
        default:
            load_piece<uint32_t, 4>((const uint32_t *)g.a + at, v);
            load_piece<uint32_t, 4>((const uint32_t *)g.a + at + 4, v + 4);
            return;
        }
    }
#pragma unroll
    for (int c = 0; c < 8; c++) v[c] = k + c < g.k ? one_value(g, i, k + c) : 0;
}

GPU_FN float real_of(int type, uint32_t v)
{
    return type == OCTET_F16 ? float_of_half((uint16_t)v) : type == OCTET_BF16 ? f32_from_bf16((uint16_t)v) : bits_f32(v);
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

// The range of all of A, in GPU_PARTIALS parts: one block each. Threads go along what is contiguous.
GPU_KERNEL __launch_bounds__(THREADS) void octet_find_range(const __grid_constant__ gpu_gather g)
{
    float lo = INFINITY, hi = -INFINITY;
    const bool down = g.a_row == 1 && g.a_col != 1;
    for (int64_t line = blockIdx.x; line < (down ? g.k : g.m); line += GPU_PARTIALS)
        for (int64_t at = threadIdx.x; at < (down ? g.m : g.k); at += THREADS)
            widen_range(real_of(g.a_type, down ? one_value(g, at, line) : one_value(g, line, at)), lo, hi);
    block_range(lo, hi);
    if (threadIdx.x == 0) {
        g.partials[2 * blockIdx.x] = lo;
        g.partials[2 * blockIdx.x + 1] = hi;
    }
}

// ---- quantizing ----

// How values of A become values of out.
struct conversion {
    bool    quantizes;
    float   scale, inverse;
    int32_t zero;
    bounds  b;
};

GPU_FN bool quantizes(const gpu_gather &g) { return bytes_of(g.as) == 1 && g.a_type != g.as; }

GPU_FN conversion conversion_by(const gpu_gather &g, float scale, int32_t zero)
{
    const float least = g.as == OCTET_U8 ? 0.0f : g.dynamic ? (float)-g.most : -128.0f;
    conversion c = { quantizes(g), scale, 1.0f / (scale == 0.0f ? 1.0f : scale), zero, { least - (float)zero, (float)(g.most - zero) } };
    return c;
}

GPU_FN conversion conversion_of(const gpu_gather &g, float lo, float hi)
{
    float scale;
    int32_t zero;
    if (!(lo <= hi)) lo = hi = 0; // nothing finite
    choose_scale(lo, hi, g.as == OCTET_U8 ? 0 : -g.most, g.most, g.as == OCTET_S8, &scale, &zero);
    return conversion_by(g, scale, zero);
}

GPU_FN conversion given_conversion(const gpu_gather &g, int64_t i)
{
    return conversion_by(g, g.given_scale_rows ? g.given_scale_rows[i] : g.scale, g.given_zero_rows ? g.given_zero_rows[i] : g.zero);
}

GPU_FN uint32_t convert(const gpu_gather &g, const conversion &c, uint32_t v)
{
    return c.quantizes ? (uint8_t)requantize(real_of(g.a_type, v), c.inverse, c.b, c.zero) : v;
}

GPU_FN int32_t summand(const gpu_gather &g, uint32_t v) { return g.as == OCTET_U8 ? (int32_t)v : (int32_t)(int8_t)v; }

// Of all of A, from its parts: the same in every block.
GPU_FN conversion whole_conversion(const gpu_gather &g)
{
    float lo = INFINITY, hi = -INFINITY;
    for (int r = (int)threadIdx.x; r < GPU_PARTIALS; r += THREADS) {
        lo = g.partials[2 * r] < lo ? g.partials[2 * r] : lo;
        hi = g.partials[2 * r + 1] > hi ? g.partials[2 * r + 1] : hi;
    }
    block_range(lo, hi);
    return conversion_of(g, lo, hi);
}

GPU_FN void store_eight(const gpu_gather &g, uint8_t *out, int64_t k, const uint32_t v[8])
{
    switch (bytes_of(g.as)) {
    case 1: {
        piece<uint8_t, 8> w;
#pragma unroll
        for (int c = 0; c < 8; c++) w.v[c] = (uint8_t)v[c];
        *(piece<uint8_t, 8> *)(void *)(out + k) = w;
        return;
    }
    case 2: {
        piece<uint16_t, 8> w;
#pragma unroll
        for (int c = 0; c < 8; c++) w.v[c] = (uint16_t)v[c];
        *(piece<uint16_t, 8> *)(void *)(out + 2 * k) = w;
        return;
    }
    default:
#pragma unroll
        for (int h = 0; h < 8; h += 4) {
            piece<uint32_t, 4> w;
#pragma unroll
            for (int c = 0; c < 4; c++) w.v[c] = v[h + c];
            *(piece<uint32_t, 4> *)(void *)(out + 4 * (k + h)) = w;
        }
    }
}

// A block takes whole rows, a thread eight values at a time.
GPU_KERNEL __launch_bounds__(THREADS, 4) void octet_gather(const __grid_constant__ gpu_gather g)
{
    conversion whole = conversion_by(g, 1.0f, 0);
    if (g.dynamic && g.per_tensor) whole = whole_conversion(g);
    const int64_t wide = g.out ? g.pitch / bytes_of(g.as) : g.k; // a multiple of eight where it is written
    for (int64_t i = blockIdx.x; i < g.m; i += gridDim.x) {
        uint32_t v[8];
        conversion c = whole;
        if (g.dynamic && !g.per_tensor) {
            float lo = INFINITY, hi = -INFINITY;
            for (int64_t k = 8 * (int64_t)threadIdx.x; k < g.k; k += 8 * THREADS) {
                eight_values(g, i, k, v);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (k + e < g.k) widen_range(real_of(g.a_type, v[e]), lo, hi);
            }
            block_range(lo, hi);
            c = conversion_of(g, lo, hi);
        } else if (!g.dynamic) {
            c = given_conversion(g, i);
        }
        int32_t sum = 0;
        for (int64_t k = 8 * (int64_t)threadIdx.x; k < wide; k += 8 * THREADS) {
            eight_values(g, i, k, v);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                v[e] = k + e < g.k ? convert(g, c, v[e]) : 0;
                sum += summand(g, v[e]);
            }
            if (g.out) store_eight(g, (uint8_t *)g.out + i * g.pitch, k, v);
        }
        if (g.row_sums) {
            sum = block_sum(sum);
            if (threadIdx.x == 0) g.row_sums[i] = sum;
        }
        if (g.scale_rows && threadIdx.x == 0) {
            g.scale_rows[i] = c.scale;
            g.zero_rows[i] = c.zero;
        }
    }
}

// The same where neighbours are in the same column (A transposed): a block takes 32 rows, turned in shared memory 32 values of k at a
// time; thread (x, y) reads row x.
GPU_KERNEL __launch_bounds__(THREADS, 4) void octet_gather_columns(const __grid_constant__ gpu_gather g)
{
    enum { SIDE = 32, DEPTH = THREADS / SIDE };
    GPU_SHARED(uint32_t, tile, SIDE * (SIDE + 1));
    GPU_SHARED(float, ranges, 2 * THREADS);
    GPU_SHARED(int32_t, sums, THREADS);
    const int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE, size = bytes_of(g.as);
    conversion whole = conversion_by(g, 1.0f, 0);
    if (g.dynamic && g.per_tensor) whole = whole_conversion(g);
    const int64_t wide = g.out ? g.pitch / size : g.k;
    for (int64_t i0 = (int64_t)blockIdx.x * SIDE; i0 < g.m; i0 += (int64_t)gridDim.x * SIDE) {
        const int64_t i = i0 + x;
        const bool there = i < g.m;
        conversion c = whole;
        if (g.dynamic && !g.per_tensor) {
            float lo = INFINITY, hi = -INFINITY;
            for (int64_t k = y; k < g.k; k += DEPTH)
                if (there) widen_range(real_of(g.a_type, one_value(g, i, k)), lo, hi);
            ranges[2 * threadIdx.x] = lo;
            ranges[2 * threadIdx.x + 1] = hi;
            __syncthreads();
            for (int d = 0; d < DEPTH; d++) {
                lo = ranges[2 * (d * SIDE + x)] < lo ? ranges[2 * (d * SIDE + x)] : lo;
                hi = ranges[2 * (d * SIDE + x) + 1] > hi ? ranges[2 * (d * SIDE + x) + 1] : hi;
            }
            __syncthreads();
            c = conversion_of(g, lo, hi);
        } else if (!g.dynamic && there) {
            c = given_conversion(g, i);
        }
        int32_t sum = 0;
        for (int64_t k0 = 0; k0 < wide; k0 += SIDE) {
            for (int k = y; k < SIDE; k += DEPTH) {
                const uint32_t v = there && k0 + k < g.k ? convert(g, c, one_value(g, i, k0 + k)) : 0;
                tile[x * (SIDE + 1) + k] = v;
                sum += summand(g, v);
            }
            __syncthreads();
            for (int r = y; g.out && r < SIDE && i0 + r < g.m; r += DEPTH) { // pitch / size is a multiple of 32
                const uint32_t v = tile[r * (SIDE + 1) + x];
                uint8_t *to = (uint8_t *)g.out + (i0 + r) * g.pitch + size * (k0 + x);
                if (size == 1) *to = (uint8_t)v;
                else if (size == 2) *(uint16_t *)(void *)to = (uint16_t)v;
                else *(uint32_t *)(void *)to = v;
            }
            __syncthreads();
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (y == 0 && there) {
            for (int d = 1; d < DEPTH; d++) sum += sums[d * SIDE + x];
            if (g.row_sums) g.row_sums[i] = sum;
            if (g.scale_rows) g.scale_rows[i] = c.scale, g.zero_rows[i] = c.zero;
        }
        __syncthreads();
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
