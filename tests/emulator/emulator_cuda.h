// CUDA's names and ptx.cuh's functions over the emulator: included before a kernel source in place of nvcc's own.
#pragma once
#include <cmath>
#include <cstring>

#include "emulator.h"

#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (emu::thread())
#define blockIdx (emu::block())
#define gridDim (emu::grid_size)
#define blockDim (emu::block_size)

#define GPU_KERNEL extern "C"
#define GPU_FN static inline
#define GPU_DYNAMIC_SHARED(name) const uint8_t *name = emu::dynamic_shared()
#define GPU_SHARED(type, name, count) \
    static const char name##_key = 0; \
    type *name = (type *)emu::static_shared(&name##_key, sizeof(type) * (count))

static inline void __syncthreads() { emu::sync_block(); }

static inline uint32_t shared_address(const void *p) { return emu::address_of(p); }
static inline void barrier_init(uint32_t bar, uint32_t arrivals) { emu::barrier_init(bar, arrivals); }
static inline void barrier_init_done() { emu::barrier_init_done(); }
static inline void barrier_expect(uint32_t bar, uint32_t bytes) { emu::barrier_expect(bar, bytes); }
static inline void barrier_wait(uint32_t bar, uint32_t parity) { emu::barrier_wait(bar, parity); }
static inline void barrier_arrive(uint32_t bar) { emu::barrier_arrive(bar, emu::rank()); }
static inline void barrier_arrive_at(uint32_t bar, uint32_t rank) { emu::barrier_arrive(bar, rank); }
static inline uint32_t cluster_rank() { return emu::rank(); }
static inline void cluster_sync() { emu::sync_cluster(); }
static inline void tma_prefetch_map(const void *) {}
static inline void tma_load(uint32_t to, const void *map, uint32_t bar, int32_t inner, int32_t outer)
{
    emu::tma_load(to, map, bar, inner, outer, (uint16_t)(1u << emu::rank()));
}
static inline void tma_load_multicast(uint32_t to, const void *map, uint32_t bar, int32_t inner, int32_t outer, uint16_t mask)
{
    emu::tma_load(to, map, bar, inner, outer, mask);
}
static inline void wgmma_fence() { emu::wgmma_fence(); }
static inline void wgmma_commit() { emu::wgmma_commit(); }
template <int N> static inline void wgmma_wait() { emu::wgmma_wait(N); }
template <class T> static inline void pin(T &) {}
template <int R> static inline void registers_more() { emu::registers(R, true); }
template <int R> static inline void registers_fewer() { emu::registers(R, false); }
static inline void keep_branch() {}
static inline void check_aligned(const void *p, size_t bytes)
{
    if ((uintptr_t)p % bytes) emu::violation("an access of several values is not at a multiple of their size");
}

template <int R> static inline void wgmma_s8s8(int32_t (&d)[R], uint64_t a, uint64_t b, int add) { emu::wgmma(emu::S8S8, d, R, a, b, add); }
template <int R> static inline void wgmma_u8s8(int32_t (&d)[R], uint64_t a, uint64_t b, int add) { emu::wgmma(emu::U8S8, d, R, a, b, add); }
template <int R> static inline void wgmma_bf16(float (&d)[R], uint64_t a, uint64_t b, int add) { emu::wgmma(emu::BF16, d, R, a, b, add); }
template <int R> static inline void wgmma_f16(float (&d)[R], uint64_t a, uint64_t b, int add) { emu::wgmma(emu::F16, d, R, a, b, add); }

template <class T> static inline T exchange_with_neighbour(T v)
{
    static_assert(sizeof(T) == 4, "a word");
    uint32_t w;
    memcpy(&w, &v, 4);
    w = emu::exchange(w);
    memcpy(&v, &w, 4);
    return v;
}

static inline float float_of_half(uint16_t h)
{
    _Float16 f;
    memcpy(&f, &h, 2);
    return (float)f;
}
static inline uint16_t half_of_float(float x)
{
    const _Float16 f = (_Float16)x;
    uint16_t h;
    memcpy(&h, &f, 2);
    return h;
}
static inline uint32_t pair_of_halves(float lo, float hi) { return (uint32_t)half_of_float(lo) | (uint32_t)half_of_float(hi) << 16; }
static inline uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (x != x) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline uint32_t pair_of_bf16(float lo, float hi) { return (uint32_t)bf16_of(lo) | (uint32_t)bf16_of(hi) << 16; }
