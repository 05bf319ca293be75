// A CPU that runs CUDA kernels, so that their real source is tested where there is no GPU.
//
// Every CUDA thread is a fiber; a cluster of blocks runs at once on one OS thread, switching where threads wait. Time is
// adversarial: TMA loads land at a random later moment, a wgmma group reads shared memory either when it is committed or
// as late as its wait allows, warps and blocks stall at random. Shared memory starts poisoned (and registers, by the
// compiler's option). What the PTX ISA forbids is reported: an arrival too many, of the wrong kind, or at a block
// that has ended; a misaligned tile; a thread that ends with products in flight; a deadlock.
//
// It models the ISA as its text reads, for what octet's kernels use; it says nothing of speed, and orders memory strongly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace emu {

enum { SHARED = 232448, WINDOW = 1024 + 16 }; // bytes a block may have; where dynamic shared memory begins, aligned to 16 only

struct index3 { unsigned x, y, z; };

extern int violations;          // since the process began; each is printed
extern uint64_t seed;           // of what is random next

// Runs kernel() for every thread of the grid; clusters of `cluster` blocks run together; `shared` bytes are a block's. False after a
// violation.
bool launch(unsigned blocks, unsigned threads, unsigned cluster, unsigned shared, const std::function<void()> &kernel);

// ---- of the running thread ----
const index3 &thread();
const index3 &block();
extern index3 grid_size, block_size;
void  violation(const char *what);
void *static_shared(const void *key, size_t bytes); // the block's own, poisoned
uint8_t *dynamic_shared();
void  sync_block();
void  sync_warp();
void  sync_cluster();
uint32_t exchange(uint32_t);     // with the lane beside it
uint32_t rank();                // of the block in its cluster
uint32_t address_of(const void *shared);

void  barrier_init(uint32_t bar, uint32_t arrivals);
void  barrier_init_done();
void  barrier_expect(uint32_t bar, uint32_t bytes);
void  barrier_wait(uint32_t bar, uint32_t parity);
void  barrier_arrive(uint32_t bar, uint32_t rank);
void  tma_load(uint32_t to, const void *map, uint32_t bar, int32_t inner, int32_t outer, uint16_t mask);

enum product { S8S8, U8S8, BF16, F16 };
void  wgmma(product, void *sums, int registers, uint64_t a, uint64_t b, bool add);
void  wgmma_fence();
void  wgmma_commit();
void  wgmma_wait(size_t left);
void  registers(int wanted, bool more); // setmaxnreg of the warp

// What the fake driver writes where a tensor map goes.
struct map { uint64_t magic; const char *p; uint64_t inner, outer, pitch; uint32_t box_inner, box_outer; int32_t bytes; };
const uint64_t MAP_MAGIC = 0x6f637465746d6170;

}
