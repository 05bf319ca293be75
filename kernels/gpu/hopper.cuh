// The product on Hopper's tensor cores: a ring of shared-memory stages that one thread fills by TMA, and warpgroups that multiply
// from it by wgmma and finish their own tile.
//
//   warpgroup 0     fetches: one stage is 128 bytes of k, bm rows of A and bn packed rows of B
//   warpgroups 1, 2 multiply. Together (TURNS 0): each half of the rows of one tile. In turns (TURNS 1): each its own tile, so that
//                   one finishes while the other multiplies.
//   clusters        two blocks, one above the other, share B: each fetches half of it for both
//
// The grid is persistent: block b takes tiles b, b + blocks, ... in the order of gpu_tile_at. A stage has two barriers: full
// (the bytes have come) and empty (every warp that reads it, in every block that it was sent to, is done).
// The design of warp-specialized persistent kernels is CUTLASS's and fast.cu's; see the README.
#pragma once
#include "epilogue.cuh"
#include "wgmma.cuh"

struct s8s8 {
    typedef int32_t sum;
    enum { bytes = 1 };
    template <int R> GPU_FN void multiply(int32_t (&d)[R], uint64_t a, uint64_t b, int add) { wgmma_s8s8(d, a, b, add); }
};
struct u8s8 {
    typedef int32_t sum;
    enum { bytes = 1 };
    template <int R> GPU_FN void multiply(int32_t (&d)[R], uint64_t a, uint64_t b, int add) { wgmma_u8s8(d, a, b, add); }
};
struct bf16 {
    typedef float sum;
    enum { bytes = 2 };
    template <int R> GPU_FN void multiply(float (&d)[R], uint64_t a, uint64_t b, int add) { wgmma_bf16(d, a, b, add); }
};
struct f16 {
    typedef float sum;
    enum { bytes = 2 };
    template <int R> GPU_FN void multiply(float (&d)[R], uint64_t a, uint64_t b, int add) { wgmma_f16(d, a, b, add); }
};

// Where the stages and barriers of a block are, and how often a stage is arrived at.
template <int BM, int BN, int STAGES> struct ring {
    uint32_t a, b, full, empty, went; // went: a warpgroup's products of a tile are done (in turns)
    GPU_FN uint32_t a_bytes() { return BM * GPU_ROW_BYTES; }
    GPU_FN uint32_t b_bytes() { return BN * GPU_ROW_BYTES; }
    GPU_FN ring at(const void *memory)
    {
        ring r;
        r.a = (shared_address(memory) + 1023) & ~(uint32_t)1023; // the swizzle is of absolute addresses
        r.b = r.a + STAGES * a_bytes();
        r.full = r.b + STAGES * b_bytes();
        r.empty = r.full + 8 * STAGES;
        r.went = r.empty + 8 * STAGES;
        return r;
    }
};

// A position in the ring: the stage, and the parity of the barriers' phase there.
template <int STAGES> struct position {
    int stage;
    uint32_t phase;
    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int64_t steps)
    {
        const int64_t to = stage + steps;
        phase ^= (uint32_t)(to / STAGES) & 1;
        stage = (int)(to % STAGES);
    }
};

template <int BM, int BN, int STAGES, int CLUSTER>
GPU_FN void fetch(const gpu_params &p, const ring<BM, BN, STAGES> &r, int block_k, int64_t steps, int64_t tiles, uint32_t rank)
{
    constexpr int part = BN / CLUSTER, most = 256;
    position<STAGES> at = { 0, 0 };
    for (int64_t t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
        const gpu_tile tile = gpu_tile_at(t, p.tiles_m, p.tiles_n, p.band);
        const int32_t m0 = (tile.m * CLUSTER + (int)rank) * BM, n0 = tile.n * BN;
        for (int64_t k = 0; k < steps; k++) {
            const uint32_t full = r.full + 8 * at.stage, a = r.a + at.stage * r.a_bytes(), b = r.b + at.stage * r.b_bytes();
            barrier_wait(r.empty + 8 * at.stage, at.phase ^ 1);
            barrier_expect(full, r.a_bytes() + r.b_bytes());
            tma_load(a, &p.map_a, full, (int32_t)k * block_k, m0);
            if (CLUSTER == 1) {
                static_assert(BN <= most, "a box has at most 256 rows");
                tma_load(b, &p.map_b, full, (int32_t)k * block_k, n0);
            } else {
                tma_load_multicast(b + rank * part * GPU_ROW_BYTES, &p.map_b, full, (int32_t)k * block_k, n0 + (int32_t)rank * part,
                                   (uint16_t)((1 << CLUSTER) - 1));
            }
            at.next();
        }
    }
}

// Sums of one warpgroup's tile: MI blocks of 64 rows by BN columns.
template <class OP, int MI, int BN> struct tile_sums {
    typename OP::sum v[MI][BN / 2];
    __device__ __forceinline__ void pin_all()
    {
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int i = 0; i < BN / 2; i++) pin(v[m][i]);
    }
};

template <int STAGES, int CLUSTER> GPU_FN void release(uint32_t empty, int stage, int lane)
{
    if (lane >= CLUSTER) return;
    if (CLUSTER > 1) barrier_arrive_at(empty + 8 * stage, (uint32_t)lane);
    else barrier_arrive(empty + 8 * stage);
}

// All of k. A stage is given back when the products of the next one are on their way: one group is always in flight.
template <class OP, int MI, int BM, int BN, int STAGES, int CLUSTER>
GPU_FN void multiply_tile(const ring<BM, BN, STAGES> &r, position<STAGES> &at, int64_t steps, int first_row, tile_sums<OP, MI, BN> &sum)
{
    const int lane = (int)threadIdx.x % 32;
    int before = 0;
    for (int64_t k = 0; k < steps; k++) {
        barrier_wait(r.full + 8 * at.stage, at.phase);
        const uint64_t a = gpu_descriptor(r.a + at.stage * r.a_bytes() + first_row * GPU_ROW_BYTES);
        const uint64_t b = gpu_descriptor(r.b + at.stage * r.b_bytes());
        sum.pin_all();
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; part++) // 32 bytes of k each: 2 in a descriptor's units
#pragma unroll
            for (int m = 0; m < MI; m++) OP::multiply(sum.v[m], a + 2 * part + (64 * GPU_ROW_BYTES >> 4) * m, b + 2 * part, k > 0 || part > 0);
        wgmma_commit();
        sum.pin_all();
        wgmma_wait<1>();
        if (k) release<STAGES, CLUSTER>(r.empty, before, lane);
        before = at.stage;
        at.next();
    }
    wgmma_wait<0>();
    sum.pin_all();
    if (steps) release<STAGES, CLUSTER>(r.empty, before, lane);
}

GPU_FN void add_sums(const gpu_epilogue &e, const eight &x, float v[8])
{
    if (!e.sums) return;
    float t[8];
    load_eight((const float *)e.sums + x.row * e.ld_sums, x, e.wide & GPU_WIDE_SUMS, t);
#pragma unroll
    for (int c = 0; c < 8; c++) v[c] += t[c];
}
GPU_FN void add_sums(const gpu_epilogue &, const eight &, int32_t *) {} // finish adds integer ones

// Piece `piece` of a thread's sums, eight neighbouring columns of one row: half of a block of 64 rows, group of 32 columns. One branch to
// eight moves; as selections it would be more work than most epilogues.
template <class OP, int MI, int BN> GPU_FN void pick(const tile_sums<OP, MI, BN> &sum, int piece, typename OP::sum v[8])
{
#define PICK(i) \
    case i: \
        if (i < MI * BN / 16) { \
            constexpr int at = i < MI * BN / 16 ? i : 0; \
            _Pragma("unroll") for (int c = 0; c < 8; c++) v[c] = sum.v[at / (BN / 16)][16 * (at % (BN / 16) / 2) + 4 * (c / 2) + 2 * (at % 2) + c % 2]; \
            keep_branch(); \
        } \
        break;
    switch (piece) {
        PICK(0) PICK(1) PICK(2) PICK(3) PICK(4) PICK(5) PICK(6) PICK(7)
        PICK(8) PICK(9) PICK(10) PICK(11) PICK(12) PICK(13) PICK(14) PICK(15)
    }
#undef PICK
}

// The epilogue is long, so it is in the code once: a loop over the pieces. With k = 0 (empty) nothing has ever been put there.
template <class OP, int MI, int BN>
GPU_FN void finish_tile(const gpu_epilogue &e, int64_t first_row, int64_t first_column, const tile_sums<OP, MI, BN> &sum, bool empty)
{
    static_assert(MI * BN / 16 <= 16, "pick has sixteen pieces");
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
#pragma unroll 1
    for (int piece = 0; piece < MI * BN / 16; piece++) {
        typename OP::sum v[8];
        pick(sum, piece, v);
        if (empty)
#pragma unroll
            for (int c = 0; c < 8; c++) v[c] = 0;
        const int64_t row = first_row + 64 * (piece / (BN / 16)) + 16 * warp + lane / 4 + 8 * (piece % 2);
        const eight x = columns_of(e, row, first_column / GPU_GROUP + piece % (BN / 16) / 2, lane % 4);
        if (row >= e.m || !x.count[0]) continue;
        add_sums(e, x, v);
        finish(e, x, v);
    }
}

template <class OP, int BM, int BN, int STAGES, int CLUSTER, int TURNS> GPU_FN void hopper(const gpu_params &p, const uint8_t *memory)
{
    constexpr int MI = TURNS ? BM / 64 : BM / 128, block_k = GPU_ROW_BYTES / OP::bytes;
    const ring<BM, BN, STAGES> r = ring<BM, BN, STAGES>::at(memory);
    const int group = (int)threadIdx.x / 128;
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        if (p.k) tma_prefetch_map(&p.map_a), tma_prefetch_map(&p.map_b);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(r.full + 8 * s, 1);
            barrier_init(r.empty + 8 * s, (TURNS ? 4 : 8) * CLUSTER); // a warp that reads it, and its twins
        }
        for (int w = 0; w < 2; w++) barrier_init(r.went + 8 * w, 4);
        barrier_init_done();
    }
    if (CLUSTER > 1) cluster_sync();
    else __syncthreads();
    const int64_t steps = ceil_div(p.k, (int64_t)block_k), tiles = (int64_t)p.tiles_m * p.tiles_n;
    if (group == 0) {
        registers_fewer<40>();
        if (threadIdx.x == 0) fetch<BM, BN, STAGES, CLUSTER>(p, r, block_k, steps, tiles, rank);
    } else {
        registers_more<232>();
        position<STAGES> at = { 0, 0 };
        int64_t turn = 0;
        for (int64_t t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER, turn++) {
            if (TURNS && turn % 2 != group - 1) {
                at.skip(steps);
                continue;
            }
            const gpu_tile tile = gpu_tile_at(t, p.tiles_m, p.tiles_n, p.band);
            const int first = TURNS ? 0 : (group - 1) * 64 * MI;
            tile_sums<OP, MI, BN> sum;
            // After the other's products of the tile before: a barrier tells phases apart by parity only, so nobody may run
            // ahead of a stage that was not filled once since.
            if (TURNS) barrier_wait(r.went + 8 * (2 - group), (uint32_t)((turn + 1) / 2 & 1) ^ 1);
            multiply_tile<OP, MI, BM, BN, STAGES, CLUSTER>(r, at, steps, first, sum);
            if (TURNS && threadIdx.x % 32 == 0) barrier_arrive(r.went + 8 * (group - 1));
            finish_tile<OP, MI, BN>(p.e, (int64_t)(tile.m * CLUSTER + (int)rank) * BM + first, (int64_t)tile.n * BN, sum, steps == 0);
        }
    }
    if (CLUSTER > 1) cluster_sync(); // a block may not end while its twin still writes to it or arrives at it
}

// An entry point for a row of kernels.def.
#define HOPPER_ENTRY(name, op, bm, bn, stages, cluster, turns, seen) \
    GPU_KERNEL __launch_bounds__(GPU_THREADS_HOPPER, 1) void name(const __grid_constant__ gpu_params p) \
    { \
        static_assert(GPU_RING_BYTES(bm, bn, stages) <= GPU_SMEM, "shared memory"); \
        GPU_DYNAMIC_SHARED(memory); \
        hopper<op, bm, bn, stages, cluster, turns>(p, memory); \
    }
