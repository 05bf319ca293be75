// The product of any description on any GPU that octet is built for: every type, stride, alignment and epilogue, and the
// CPU's results bit for bit (each element is one chain of fused multiply-adds, k rising). Slower than the others, never a refusal.
//
// A block of 256 threads makes 64 rows by 64 packed rows of B: thread (x8, y) has rows 2 y and 2 y + 1, and the eight columns that
// the layout gives quad thread x8 % 4 of group x8 / 4.
#include "epilogue.cuh"

enum { TILE = GPU_PORTABLE_TILE, STEP = 16, THREADS = GPU_THREADS_PORTABLE };

template <class T> GPU_FN T a_value(const gpu_params &p, int64_t i, int64_t k)
{
    const int64_t at = i * p.a_row + k * p.a_col;
    switch (p.a_type) {
    case OCTET_U8: return (T)((const uint8_t *)p.a)[at];
    case OCTET_S8: return (T)((const int8_t *)p.a)[at];
    case OCTET_F16: return (T)float_of_half(((const uint16_t *)p.a)[at]);
    case OCTET_BF16: return (T)f32_from_bf16(((const uint16_t *)p.a)[at]);
    default: return (T)((const float *)p.a)[at];
    }
}

// Packed row `row`, value k.
template <class T> GPU_FN T b_value(const gpu_params &p, int64_t row, int64_t k)
{
    const uint8_t *b = p.b + row * p.b_pitch;
    switch (p.b_type) {
    case OCTET_S8: return (T)((const int8_t *)b)[k];
    case OCTET_U4: return (T)(b[k / 2] >> 4 * (k % 2) & 15);
    case OCTET_S4: return (T)((int)((b[k / 2] >> 4 * (k % 2) & 15) ^ 8) - 8);
    case OCTET_F16: return (T)float_of_half(((const uint16_t *)b)[k]);
    case OCTET_BF16: return (T)f32_from_bf16(((const uint16_t *)b)[k]);
    default: return (T)((const float *)b)[k];
    }
}

// Where row `row` of a tile has value k: values of k apart, and a word more after each 32 rows, so that the rows a warp reads are in
// different banks.
enum { LINE = TILE + TILE / 32 };
GPU_FN int tile_at(int row, int k) { return k * LINE + row + row / 32; }

GPU_FN int32_t multiply_add(int32_t a, int32_t b, int32_t c) { return (int32_t)((uint32_t)c + (uint32_t)a * (uint32_t)b); }
GPU_FN float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

template <class T> GPU_FN void portable(const gpu_params &p)
{
    GPU_SHARED(T, a_tile, LINE * STEP);
    GPU_SHARED(T, b_tile, LINE * STEP);
    const gpu_epilogue &e = p.e;
    const int t = (int)threadIdx.x, x8 = t % 8, y = t / 8; // 8 x 32 threads
    const int64_t rows = gpu_packed_rows(e.n, e.gated), across = ceil_div(rows, TILE), tiles = ceil_div(e.m, TILE) * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t i0 = tile / across * TILE, j0 = tile % across * TILE;
        const int64_t group = j0 / GPU_GROUP + x8 / 4;
        T sum[2][8], total[2][8], zero[8];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int c = 0; c < 8; c++) sum[r][c] = total[r][c] = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) zero[c] = 0;
        eight at[2];
#pragma unroll
        for (int r = 0; r < 2; r++) at[r] = columns_of(e, i0 + 2 * y + r, group, x8 % 4);
        if (!e.integer && e.sums) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                T given[8];
                if (at[r].row >= e.m) continue;
                load_eight((const T *)e.sums + at[r].row * e.ld_sums, at[r], false, given);
#pragma unroll
                for (int c = 0; c < 8; c++) sum[r][c] = p.group ? (T)0 : given[c], total[r][c] = given[c];
            }
        }
        for (int64_t k0 = 0; k0 < p.k; k0 += STEP) {
            if (p.group_zeros && (p.group ? k0 % p.group == 0 : k0 == 0))
                load_eight((const T *)p.group_zeros + (p.group ? k0 / p.group * e.n : 0), at[0], false, zero);
            for (int i = t; i < TILE * STEP; i += THREADS) {
                const int64_t row = i0 + i / STEP, b = j0 + i / STEP, k = k0 + i % STEP;
                a_tile[tile_at(i / STEP, i % STEP)] = row < e.m && k < p.k ? a_value<T>(p, row, k) : (T)0;
                b_tile[tile_at(i / STEP, i % STEP)] = b < rows && k < p.k ? b_value<T>(p, b, k) : (T)0;
            }
            __syncthreads();
            const int steps = p.k - k0 < STEP ? (int)(p.k - k0) : STEP;
            for (int k = 0; k < steps; k++) {
                T b[8];
#pragma unroll
                for (int c = 0; c < 8; c++) b[c] = b_tile[tile_at(x8 / 4 * GPU_GROUP + 8 * (c / 2) + 2 * (x8 % 4) + c % 2, k)] - zero[c];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const T a = a_tile[tile_at(2 * y + r, k)];
#pragma unroll
                    for (int c = 0; c < 8; c++) sum[r][c] = multiply_add(a, b[c], sum[r][c]);
                }
            }
            __syncthreads();
            if (p.group && ((k0 + STEP) % p.group == 0 || k0 + STEP >= p.k)) {
                T scale[8];
                load_eight((const T *)p.group_scales + k0 / p.group * e.n, at[0], false, scale);
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int c = 0; c < 8; c++) {
                        total[r][c] = multiply_add(sum[r][c], scale[c], total[r][c]);
                        sum[r][c] = 0;
                    }
            }
        }
#pragma unroll 1
        for (int r = 0; r < 2; r++) { // once in the code: it is long
            T v[8];
#pragma unroll
            for (int c = 0; c < 8; c++) v[c] = r ? p.group ? total[1][c] : sum[1][c] : p.group ? total[0][c] : sum[0][c];
            const eight x = columns_of(e, i0 + 2 * y + r, group, x8 % 4);
            if (x.row < e.m && x.count[0]) finish(e, x, v);
        }
    }
}

GPU_KERNEL __launch_bounds__(THREADS) void octet_portable_s32(const __grid_constant__ gpu_params p) { portable<int32_t>(p); }
GPU_KERNEL __launch_bounds__(THREADS) void octet_portable_f32(const __grid_constant__ gpu_params p) { portable<float>(p); }
