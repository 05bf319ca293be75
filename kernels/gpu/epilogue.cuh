// From finished sums to C: octet_run's definition, operation for operation, on the eight neighbouring columns of one row that
// a thread holds (gpu_params.h says why eight). One f32 operation, one rounding: compiled without contraction, so that integer
// products equal the CPU's bit for bit.
#pragma once
#include "activation.h"
#include "gpu_params.h"
#include "ptx.cuh"

// A thread's columns, as two runs of four: neighbours, or with a gate four of the gate and the four they multiply.
struct eight {
    int64_t row;
    int64_t at[2];
    int     count[2]; // of the four, how many are inside
};

GPU_FN int up_to_four(int64_t left) { return left >= 4 ? 4 : left > 0 ? (int)left : 0; }

// The columns of packed rows 32 `group` .. that thread `q` of a quad has.
GPU_FN eight columns_of(const gpu_epilogue &e, int64_t row, int64_t group, int q)
{
    eight x;
    x.row = row;
    x.at[0] = e.gated ? 16 * group + 4 * q : 32 * group + 8 * q;
    x.count[0] = up_to_four(e.out_n - x.at[0]);
    x.at[1] = e.gated ? e.n / 2 + x.at[0] : x.at[0] + 4;
    x.count[1] = e.gated ? x.count[0] : up_to_four(e.out_n - x.at[1]);
    return x;
}

// N values that are read or written at once.
template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) piece { T v[N]; };

// ---- reading ----

template <class T> GPU_FN void load_four(const T *p, int count, bool wide, T v[4])
{
    if (wide && count == 4) {
        check_aligned(p, alignof(piece<T, 4>));
        const piece<T, 4> w = *(const piece<T, 4> *)(const void *)p;
#pragma unroll
        for (int c = 0; c < 4; c++) v[c] = w.v[c];
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) v[c] = c < count ? p[c] : (T)0;
    }
}

template <class T> GPU_FN void load_eight(const T *p, const eight &x, bool wide, T v[8])
{
    load_four(p + x.at[0], x.count[0], wide, v);
    load_four(p + x.at[1], x.count[1], wide, v + 4);
}

// N values of f32, f16 or bf16; four are those after a gate.
template <int N> GPU_FN void load_floats(int type, const void *base, int64_t offset, const eight &x, bool wide, float v[8])
{
    if (type == OCTET_F16 || type == OCTET_BF16) {
        const uint16_t *p = (const uint16_t *)base + offset;
#pragma unroll
        for (int h = 0; h < N / 4; h++) {
            uint16_t w[4];
            load_four(p + x.at[h], x.count[h], wide, w);
#pragma unroll
            for (int c = 0; c < 4; c++) v[4 * h + c] = type == OCTET_F16 ? float_of_half(w[c]) : f32_from_bf16(w[c]);
        }
        return;
    }
    const float *p = (const float *)base + offset;
#pragma unroll
    for (int h = 0; h < N / 4; h++) load_four(p + x.at[h], x.count[h], wide, v + 4 * h);
}

// ---- the chain ----

// One function of all N values: the kind is decided once, outside the loop, so that the values stay in registers.
#define GPU_EACH(expression) \
    _Pragma("unroll") for (int c = 0; c < N; c++) { const float y = v[c], u = t[c]; (void)u; v[c] = expression; } break

template <int N> GPU_FN void step_all(const gpu_op &o, const eight &x, float v[8])
{
    float t[8];
    if (o.shape == OCTET_PER_N || o.shape == OCTET_FULL) {
        load_floats<N>(o.type, o.t, o.ld * x.row, x, o.wide, t);
    } else {
        const float same = o.shape == OCTET_PER_M ? ((const float *)o.t)[x.row] : o.value;
#pragma unroll
        for (int c = 0; c < N; c++) t[c] = same;
    }
    switch (o.kind) {
    case OCTET_OP_ADD:
        if (o.shape == OCTET_SCALAR) { GPU_EACH(y + u); }
        GPU_EACH(fmaf(o.value, u, y));
    case OCTET_OP_MUL: GPU_EACH(y * u);
    case OCTET_OP_PRELU: GPU_EACH(f32_bits(y) >> 31 ? y * u : y);
    case OCTET_OP_CLIP: GPU_EACH(clamp_keep_nan(y, o.value, o.value2));
    case OCTET_OP_RELU: GPU_EACH(activate(OCTET_OP_RELU, y));
    case OCTET_OP_GELU: GPU_EACH(activate(OCTET_OP_GELU, y));
    case OCTET_OP_GELU_TANH: GPU_EACH(activate(OCTET_OP_GELU_TANH, y));
    case OCTET_OP_SILU: GPU_EACH(activate(OCTET_OP_SILU, y));
    case OCTET_OP_SIGMOID: GPU_EACH(activate(OCTET_OP_SIGMOID, y));
    case OCTET_OP_TANH: GPU_EACH(activate(OCTET_OP_TANH, y));
    }
}

// The gate's activation of the first four, times the last four.
GPU_FN void gate_all(int kind, float v[8])
{
    enum { N = 4 };
    const float *t = v + 4;
    switch (kind) {
    case OCTET_OP_SWIGLU: GPU_EACH(activate(OCTET_OP_SWIGLU, y) * u);
    case OCTET_OP_GEGLU: GPU_EACH(activate(OCTET_OP_GEGLU, y) * u);
    case OCTET_OP_GEGLU_TANH: GPU_EACH(activate(OCTET_OP_GEGLU_TANH, y) * u);
    case OCTET_OP_GLU: GPU_EACH(activate(OCTET_OP_GLU, y) * u);
    }
}

// ---- writing ----

// N columns from x.at[0]: at once where they are all there and C lies so, else one by one.
template <class T, int N> GPU_FN void store(const gpu_epilogue &e, const eight &x, const T v[N])
{
    T *c = (T *)e.c + x.row * e.c_row + x.at[0] * e.c_col;
    if (e.wide & GPU_WIDE_C && x.count[N / 4 - 1] == 4) {
        piece<T, N> w;
#pragma unroll
        for (int i = 0; i < N; i++) w.v[i] = v[i];
        check_aligned(c, alignof(piece<T, N>));
        *(piece<T, N> *)(void *)c = w;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i % 4 < x.count[i / 4]) c[i * e.c_col] = v[i];
    }
}

// Eight of four bytes are two pieces of 16, and a thread that stored both would write halves of two sectors at a time. Neighbours in a
// quad exchange a piece, so that each store of the pair is a whole sector: the even one's, then the odd one's.
template <class T> GPU_FN void store_words(const gpu_epilogue &e, const eight &x, const T v[8])
{
    const bool odd = x.at[0] % 16 != 0;
    if (!(e.wide & GPU_WIDE_C) || x.at[0] / 16 * 16 + 16 > e.out_n) {
        store<T, 8>(e, x, v);
        return;
    }
    piece<T, 4> first, second;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const T other = exchange_with_neighbour(odd ? v[i] : v[4 + i]);
        first.v[i] = odd ? other : v[i];
        second.v[i] = odd ? v[4 + i] : other;
    }
    T *c = (T *)e.c + x.row * e.c_row + x.at[0] / 16 * 16 + (odd ? 4 : 0);
    check_aligned(c, alignof(piece<T, 4>));
    *(piece<T, 4> *)(void *)c = first;
    *(piece<T, 4> *)(void *)(c + 8) = second;
}

// What C held, as f32.
template <int N> GPU_FN void add_old(const gpu_epilogue &e, const eight &x, float v[N])
{
    const int64_t at = x.row * e.c_row + x.at[0] * e.c_col;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i % 4 >= x.count[i / 4]) continue;
        const int64_t p = at + i * e.c_col;
        v[i] += e.c_type == OCTET_F32 ? ((const float *)e.c)[p]
            : e.c_type == OCTET_F16 ? float_of_half(((const uint16_t *)e.c)[p]) : f32_from_bf16(((const uint16_t *)e.c)[p]);
    }
}

template <int N> GPU_FN void store_reals(const gpu_epilogue &e, const eight &x, float v[N])
{
    if (e.c_type == OCTET_U8 || e.c_type == OCTET_S8) {
        const bounds b = { e.lo, e.hi };
        uint8_t q[N];
#pragma unroll
        for (int i = 0; i < N; i++) q[i] = (uint8_t)requantize(v[i], e.inv_scale_c, b, e.zero_c);
        store<uint8_t, N>(e, x, q);
        return;
    }
    if (e.accumulate) add_old<N>(e, x, v);
    if (e.clamp)
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = clamp_keep_nan(v[i], e.lo, e.hi);
    if (e.c_type == OCTET_F32) {
        if (N == 8) store_words<float>(e, x, v);
        else store<float, N>(e, x, v);
        return;
    }
    uint16_t h[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const uint32_t p = e.c_type == OCTET_F16 ? pair_of_halves(v[i], v[i + 1]) : pair_of_bf16(v[i], v[i + 1]);
        h[i] = (uint16_t)p;
        h[i + 1] = (uint16_t)(p >> 16);
    }
    store<uint16_t, N>(e, x, h);
}

GPU_FN void store_s32(const gpu_epilogue &e, const eight &x, const uint32_t raw[8])
{
    int32_t v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t sum = raw[i];
        if (e.accumulate && i % 4 < x.count[i / 4]) sum += ((const uint32_t *)e.c)[x.row * e.c_row + (x.at[0] + i) * e.c_col];
        v[i] = (int32_t)sum;
        if (e.clamp) {
            v[i] = v[i] > e.lo_i ? v[i] : e.lo_i;
            v[i] = v[i] < e.hi_i ? v[i] : e.hi_i;
        }
    }
    store_words<int32_t>(e, x, v);
}

// ---- the whole ----

GPU_FN float row_scale(const gpu_epilogue &e, int64_t row)
{
    const float s = e.scale_rows ? e.scale_rows[row] : e.scale_a;
    return s == 0.0f ? 1.0f : s;
}

// Real values to C: the chain, the gate in it, and the store.
GPU_FN void finish_reals(const gpu_epilogue &e, const eight &x, float v[8])
{
    int n = 0;
    for (; n < e.steps && e.op[n].kind < OCTET_OP_SWIGLU; n++) step_all<8>(e.op[n], x, v);
    if (e.gated) {
        gate_all(e.op[n].kind, v);
        for (n++; n < e.steps; n++) step_all<4>(e.op[n], x, v);
        store_reals<4>(e, x, v);
    } else {
        store_reals<8>(e, x, v);
    }
}

// Integer sums of A and B as they are: zero points are subtracted here, modulo 2^32.
GPU_FN void finish(const gpu_epilogue &e, const eight &x, const int32_t sum[8])
{
    uint32_t raw[8];
    int32_t w[8];
    const uint32_t zero_a = (uint32_t)(e.zero_rows ? e.zero_rows[x.row] : e.zero_a);
#pragma unroll
    for (int c = 0; c < 8; c++) raw[c] = (uint32_t)sum[c];
    if (e.sums) {
        load_eight((const int32_t *)e.sums + x.row * e.ld_sums, x, e.wide & GPU_WIDE_SUMS, w);
#pragma unroll
        for (int c = 0; c < 8; c++) raw[c] += (uint32_t)w[c];
    }
    if (zero_a) {
        load_eight(e.col_sums, x, e.wide & GPU_WIDE_B, w);
#pragma unroll
        for (int c = 0; c < 8; c++) raw[c] -= zero_a * (uint32_t)w[c];
    }
    if (e.zero_b) {
        const uint32_t row_sum = (uint32_t)e.row_sums[x.row];
        load_eight(e.zero_b, x, e.wide & GPU_WIDE_B, w);
#pragma unroll
        for (int c = 0; c < 8; c++) raw[c] -= row_sum * (uint32_t)w[c];
    }
    if (e.bias_type == OCTET_S32) {
        load_eight((const int32_t *)e.bias, x, e.wide & GPU_WIDE_BIAS, w);
#pragma unroll
        for (int c = 0; c < 8; c++) raw[c] += (uint32_t)w[c];
    }
    if (e.c_type == OCTET_S32) {
        store_s32(e, x, raw);
        return;
    }
    float v[8], t[8];
    const float scale = row_scale(e, x.row);
    load_eight(e.scale_b, x, e.wide & GPU_WIDE_B, t);
#pragma unroll
    for (int c = 0; c < 8; c++) v[c] = rescale((int32_t)raw[c], t[c], scale);
    if (e.bias_type == OCTET_F32) {
        load_eight((const float *)e.bias, x, e.wide & GPU_WIDE_BIAS, t);
#pragma unroll
        for (int c = 0; c < 8; c++) v[c] = v[c] + t[c];
    }
    finish_reals(e, x, v);
}

// Floating sums; what they are added to (e.sums) is already in them.
GPU_FN void finish(const gpu_epilogue &e, const eight &x, const float sum[8])
{
    float v[8], t[8];
#pragma unroll
    for (int c = 0; c < 8; c++) v[c] = sum[c];
    if (e.scaled) {
        load_eight(e.scale_b, x, e.wide & GPU_WIDE_B, t);
#pragma unroll
        for (int c = 0; c < 8; c++) v[c] = v[c] * t[c];
    }
    if (e.bias_type == OCTET_F32) {
        load_eight((const float *)e.bias, x, e.wide & GPU_WIDE_BIAS, t);
#pragma unroll
        for (int c = 0; c < 8; c++) v[c] = v[c] + t[c];
    }
    finish_reals(e, x, v);
}
