// Hopper's instructions by name (PTX ISA 8.0 and later; the section is in brackets where the name does not lead to it).
// The CPU emulator of the tests has functions of the same names, and is compiled in place of this file.
#pragma once
#ifndef OCTET_EMULATED
#include <cuda_fp16.h>
#include <stdint.h>

#define GPU_KERNEL extern "C" __global__
#define GPU_FN static __device__ __forceinline__
#define GPU_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]
#define GPU_SHARED(type, name, count) __shared__ type name[count]

GPU_FN uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// ---- mbarrier ----
GPU_FN void barrier_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
GPU_FN void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// One arrival, and `bytes` more to come by TMA before the phase ends.
GPU_FN void barrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
GPU_FN void barrier_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nwait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra wait;\ndone:\n}" ::"r"(bar), "r"(parity) : "memory");
}
// One arrival here, or at the same offset in block `rank` of the cluster. No scope wider than the default: what is handed over is
// read by wgmma or not at all, and a release to the cluster would cost a fence of the whole GPU's in every stage.
GPU_FN void barrier_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
GPU_FN void barrier_arrive_at(uint32_t bar, uint32_t rank)
{
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar), "r"(rank) : "memory");
}

// ---- clusters ----
GPU_FN uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
GPU_FN void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- TMA ----
GPU_FN void tma_prefetch_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
GPU_FN void tma_load(uint32_t to, const void *map, uint32_t bar, int32_t inner, int32_t outer)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(bar), "r"(inner), "r"(outer) : "memory");
}
// The same bytes, and their completion, at the same offsets in every block of `mask`.
GPU_FN void tma_load_multicast(uint32_t to, const void *map, uint32_t bar, int32_t inner, int32_t outer, uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(to), "l"(map), "r"(bar), "r"(inner), "r"(outer), "h"(mask) : "memory");
}

// ---- wgmma (the products themselves are in wgmma.cuh) ----
GPU_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GPU_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> GPU_FN void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Keeps the compiler from moving an accumulator across the asynchronous part.
GPU_FN void pin(float &r) { asm volatile("" : "+f"(r)::"memory"); }
GPU_FN void pin(int32_t &r) { asm volatile("" : "+r"(r)::"memory"); }

template <int R> GPU_FN void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> GPU_FN void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }

// Ends a case of a switch, so that the compiler does not turn the switch into moves by predicates.
GPU_FN void keep_branch() { asm volatile(""); }
// Where the emulator checks that an access of several values lies at a multiple of their size.
GPU_FN void check_aligned(const void *, size_t) {}

// A value for the one of the thread beside this one (lanes 2 i and 2 i + 1), which calls it too.
template <class T> GPU_FN T exchange_with_neighbour(T v) { return __shfl_xor_sync(3u << (threadIdx.x % 32 & ~1u), v, 1); }

// ---- numbers ----
GPU_FN float float_of_half(uint16_t h) { return __half2float(__ushort_as_half(h)); }
GPU_FN uint16_t half_of_float(float x) { return __half_as_ushort(__float2half_rn(x)); }
// A pair of 16-bit values, the first in the low half; the fast forms of Hopper's epilogue.
GPU_FN uint32_t pair_of_halves(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
GPU_FN uint32_t pair_of_bf16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
#endif
