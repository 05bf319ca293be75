// The int8 kernels of kernels.def.
#include "hopper.cuh"
#include "kernels.def"

#define ENTRY(name, op, bm, bn, stages, cluster, turns, seen) \
    GPU_KERNEL __launch_bounds__(HOPPER_THREADS, 1) void name(const __grid_constant__ gpu_params p) \
    { \
        static_assert(GPU_RING_BYTES(bm, bn, stages) <= GPU_SMEM, "shared memory"); \
        GPU_DYNAMIC_SHARED(memory); \
        hopper<op, bm, bn, stages, cluster, turns>(p, memory); \
    }
GPU_HOPPER_S8(ENTRY)
