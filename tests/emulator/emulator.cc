// The engine; see emulator.h.
#include "emulator.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "gpu_params.h"

namespace emu {

int violations;
uint64_t seed = 88172645463325252u;
index3 grid_size, block_size;

namespace {

uint32_t random_bits()
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

// A barrier of all of some threads.
struct gate { int come = 0; uint64_t opened = 0; };

struct mbarrier {
    int arrivals = 0, pending = 0;
    int64_t bytes = 0;              // still to come
    uint32_t phase = 0;
    bool live = false;
    int kind = 0;                   // of its arrivals: 1 with bytes expected, 2 without. One barrier has one role
    void settle()
    {
        if (pending || bytes) return;
        phase++;
        pending = arrivals;
    }
};

struct cta {
    std::vector<char> memory;
    std::map<uint32_t, mbarrier> barriers;
    std::map<const void *, std::vector<char>> statics;
    std::vector<gate> warps;
    gate all;
    std::vector<int> registers; // of each warp's threads
    bool initialized = false;   // the barriers' initialization was fenced
    int alive = 0;
    uint32_t rank = 0;
    index3 at;
};

struct mma { product kind; void *sums; int registers; uint64_t a, b; bool add; };

struct fiber {
    fiber *beside = nullptr;
    ucontext_t first;
    jmp_buf here;
    bool started = false, done = false;
    std::vector<char> stack;
    cta *block = nullptr;
    int t = 0;
    index3 at;
    uint32_t given[2] = { 0, 0 };         // to the lane beside it, in turn
    uint64_t exchanges = 0;
    bool fenced = false;                  // since the last group
    std::vector<mma> open;
    std::vector<std::vector<mma>> groups; // committed; an empty one has read already
};

struct loading { cta *to; uint32_t at; map m; uint32_t bar; int32_t inner, outer; };

jmp_buf scheduler;
ucontext_t scheduler_context;
fiber *now;
std::vector<cta> blocks;
gate cluster_gate;
uint32_t window_end;
std::vector<loading> in_flight;
const std::function<void()> *body;

void yield()
{
    if (!_setjmp(now->here)) _longjmp(scheduler, 1);
}

void pass(gate &g, int threads)
{
    const uint64_t turn = g.opened;
    if (++g.come == threads) {
        g.come = 0;
        g.opened++;
    } else {
        while (g.opened == turn) yield();
    }
}

void entry()
{
    (*body)();
    if (!now->groups.empty() || !now->open.empty()) violation("a thread ends with products in flight");
    now->block->alive--;
    now->done = true;
    for (;;) yield();
}

mbarrier &barrier_at(cta &c, uint32_t bar)
{
    mbarrier &b = c.barriers[bar];
    if (!b.live) violation("a barrier is used that was never initialized");
    return b;
}

void arrive(cta &c, uint32_t bar, int kind)
{
    if (c.alive <= 0) violation("an arrival at a block that has ended");
    mbarrier &b = barrier_at(c, bar);
    if (b.kind && b.kind != kind) violation("a barrier is arrived at by another role than before");
    b.kind = kind;
    if (--b.pending < 0) violation("an arrival too many");
}

void land(const loading &l)
{
    if (l.to->alive <= 0) violation("a TMA load lands in a block that has ended");
    for (uint32_t r = 0; r < l.m.box_outer; r++) {
        const int64_t outer = (int64_t)l.outer + r;
        for (uint32_t i = 0; i < l.m.box_inner; i++) {
            const int64_t inner = (int64_t)l.inner + i;
            const uint32_t a = gpu_swizzle(l.at + r * 128 + i * l.m.bytes);
            if (a + l.m.bytes > window_end) { violation("a TMA load outside shared memory"); return; }
            if (inner >= 0 && inner < (int64_t)l.m.inner && outer >= 0 && outer < (int64_t)l.m.outer)
                memcpy(&l.to->memory[a], l.m.p + outer * l.m.pitch + inner * l.m.bytes, l.m.bytes);
            else
                memset(&l.to->memory[a], 0, l.m.bytes);
        }
    }
    mbarrier &b = barrier_at(*l.to, l.bar);
    b.bytes -= (int64_t)l.m.box_outer * l.m.box_inner * l.m.bytes;
    b.settle();
}

void land_one()
{
    if (in_flight.empty()) return;
    const size_t i = random_bits() % in_flight.size();
    const loading l = in_flight[i];
    in_flight.erase(in_flight.begin() + (long)i);
    land(l);
}

// ---- wgmma ----

// 32 bytes of k of row `row` of an operand, through the bits of its descriptor.
void operand(uint64_t d, int row, char to[32])
{
    const uint32_t start = (uint32_t)(d & 0x3fff) << 4, stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    if (d >> 62 != 1 || (d >> 49 & 7)) violation("a descriptor is not SWIZZLE_128B with base offset 0");
    if ((start & 1023) >= 128) violation("an operand does not begin at a multiple of 1024");
    for (int half = 0; half < 2; half++) {
        const uint32_t a = gpu_swizzle(start + (uint32_t)(row >> 3) * stride + (row & 7) * 128 + 16 * half);
        if (a + 16 > window_end) { violation("a wgmma operand outside shared memory"); return; }
        memcpy(to + 16 * half, &now->block->memory[a], 16);
    }
}

float value16(product kind, const char *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    if (kind == F16) {
        _Float16 f;
        memcpy(&f, &h, 2);
        return (float)f;
    }
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// Element i of thread t: row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (t % 4) + i % 2.
void run(const mma &m)
{
    const int t = now->t % 128;
    char a[2][32], b[32];
    for (int half = 0; half < 2; half++) operand(m.a, 16 * (t / 32) + t % 32 / 4 + 8 * half, a[half]);
    for (int i = 0; i < m.registers; i += 4)
        for (int e = 0; e < 2; e++) {
            operand(m.b, 8 * (i / 4) + 2 * (t % 4) + e, b);
            for (int half = 0; half < 2; half++) {
                const int at = i + 2 * half + e;
                if (m.kind == S8S8 || m.kind == U8S8) {
                    int32_t *d = (int32_t *)m.sums;
                    uint32_t sum = m.add ? (uint32_t)d[at] : 0;
                    for (int k = 0; k < 32; k++) sum += (uint32_t)((m.kind == S8S8 ? (int)(int8_t)a[half][k] : (int)(uint8_t)a[half][k]) * (int)(int8_t)b[k]);
                    d[at] = (int32_t)sum;
                } else {
                    float *d = (float *)m.sums, sum = m.add ? d[at] : 0;
                    for (int k = 0; k < 32; k += 2) sum += value16(m.kind, a[half] + k) * value16(m.kind, b + k);
                    d[at] = sum;
                }
            }
        }
}

void start(fiber &f)
{
    getcontext(&f.first);
    f.first.uc_stack.ss_sp = f.stack.data();
    f.first.uc_stack.ss_size = f.stack.size();
    f.first.uc_link = &scheduler_context;
    makecontext(&f.first, entry, 0);
    f.started = true;
}

// Runs f until it waits.
void resume(fiber &f)
{
    now = &f;
    if (_setjmp(scheduler)) return;
    if (f.started) _longjmp(f.here, 1);
    start(f);
    setcontext(&f.first);
}

bool run_cluster(std::vector<std::unique_ptr<fiber>> &fibers, unsigned threads, unsigned cluster)
{
    size_t left = fibers.size();
    long idle = 0, sweep = 0, next = 0;
    int stalled_block = -1, stalled_warp = -1;
    while (left) {
        left = 0;
        if (sweep++ >= next) {
            next = sweep + 5 + random_bits() % (random_bits() % 2 ? 30 : 300);
            stalled_block = random_bits() % 3 ? -1 : (int)(random_bits() % cluster);
            stalled_warp = random_bits() % 4 ? (int)(random_bits() % (fibers.size() / 32 + 1)) : -1;
        }
        const size_t from = random_bits() % fibers.size();
        for (size_t i = 0; i < fibers.size(); i++) {
            const size_t n = (i + from) % fibers.size();
            fiber &f = *fibers[n];
            if (f.done) continue;
            if ((int)(n / threads) != stalled_block && (int)(n / 32) != stalled_warp) resume(f);
            if (!f.done) left++;
            if ((random_bits() & 63) == 0) land_one();
        }
        idle = in_flight.empty() ? idle + 1 : 0;
        land_one();
        if (left && idle > 8000) {
            violation("a deadlock: nothing moves");
            return false;
        }
    }
    while (!in_flight.empty()) land_one();
    return true;
}

}

void violation(const char *what)
{
    if (violations++ < 10) fprintf(stderr, "emulator: %s (block %u, thread %d)\n", what, now ? now->block->at.x : 0, now ? now->t : 0);
}

bool launch(unsigned grid, unsigned threads, unsigned cluster, unsigned shared, const std::function<void()> &kernel)
{
    window_end = WINDOW + shared;
    const int before = violations;
    std::vector<std::unique_ptr<fiber>> fibers(threads * cluster);
    grid_size = { grid, 1, 1 };
    block_size = { threads, 1, 1 };
    body = &kernel;
    for (auto &f : fibers) {
        f.reset(new fiber);
        f->stack.resize(128 << 10);
    }
    for (unsigned g = 0; g < grid; g += cluster) {
        blocks.assign(cluster, cta());
        cluster_gate = gate();
        in_flight.clear();
        for (unsigned c = 0; c < cluster; c++) {
            cta &b = blocks[c];
            b.memory.assign(SHARED + WINDOW, (char)0xcb);
            b.rank = c;
            b.alive = (int)threads;
            b.warps.resize((threads + 31) / 32);
            b.registers.assign(b.warps.size(), 65536 / (int)threads / 8 * 8);
            b.at = { g + c, 0, 0 };
            for (unsigned t = 0; t < threads; t++) {
                fiber &f = *fibers[c * threads + t];
                f.block = &b;
                f.t = (int)t;
                f.at = { t, 0, 0 };
                f.started = f.done = f.fenced = false;
                f.beside = (t ^ 1) < threads ? fibers[c * threads + (t ^ 1)].get() : nullptr;
                f.exchanges = 0;
                f.open.clear();
                f.groups.clear();
            }
        }
        if (!run_cluster(fibers, threads, cluster)) break;
        for (const cta &b : blocks) {
            long sum = 0;
            for (int r : b.registers) sum += 32L * r;
            if (sum > 65536 && threads > 256) violation("warps asked for more registers than there are");
        }
    }
    now = nullptr;
    return violations == before;
}

const index3 &thread() { return now->at; }
const index3 &block() { return now->block->at; }
uint32_t rank() { return now->block->rank; }
uint8_t *dynamic_shared() { return (uint8_t *)now->block->memory.data() + WINDOW; }
uint32_t address_of(const void *p) { return (uint32_t)((const char *)p - now->block->memory.data()); }

void *static_shared(const void *key, size_t bytes)
{
    std::vector<char> &v = now->block->statics[key];
    if (v.empty()) v.assign(bytes + 16, (char)0xcb);
    return v.data() + (16 - (uintptr_t)v.data() % 16) % 16;
}

void sync_block() { pass(now->block->all, (int)block_size.x); }
void sync_warp() { pass(now->block->warps[(size_t)now->t / 32], 32); }
void sync_cluster() { pass(cluster_gate, (int)(block_size.x * blocks.size())); }

uint32_t exchange(uint32_t v)
{
    fiber *me = now, *other = now->beside;
    if (!other || other->done) { violation("an exchange with a lane that is not there"); return 0; }
    me->given[me->exchanges++ % 2] = v;
    while (other->exchanges < me->exchanges) yield();
    return other->given[(me->exchanges - 1) % 2];
}

void barrier_init(uint32_t bar, uint32_t arrivals)
{
    mbarrier b;
    b.arrivals = b.pending = (int)arrivals;
    b.live = true;
    if (bar % 8 || bar < WINDOW || bar + 8 > window_end) violation("a barrier is misaligned or outside shared memory");
    now->block->barriers[bar] = b;
}

void barrier_init_done() { now->block->initialized = true; }

void barrier_expect(uint32_t bar, uint32_t bytes)
{
    arrive(*now->block, bar, 1);
    mbarrier &b = barrier_at(*now->block, bar);
    b.bytes += bytes;
    b.settle();
}

void barrier_arrive(uint32_t bar, uint32_t rank)
{
    if (rank >= blocks.size()) { violation("an arrival at a block outside the cluster"); return; }
    arrive(blocks[rank], bar, 2);
    barrier_at(blocks[rank], bar).settle();
}

void barrier_wait(uint32_t bar, uint32_t parity)
{
    while ((barrier_at(*now->block, bar).phase & 1) == parity) yield();
}

void tma_load(uint32_t to, const void *at, uint32_t bar, int32_t inner, int32_t outer, uint16_t mask)
{
    map m;
    memcpy(&m, at, sizeof m);
    if (m.magic != MAP_MAGIC) { violation("a TMA load through what is no tensor map"); return; }
    if (!now->block->initialized) violation("a TMA load names a barrier whose initialization was not fenced");
    if (to % 1024) violation("a swizzled tile does not begin at a multiple of 1024");
    for (uint32_t i = 0; i < blocks.size(); i++)
        if (mask >> i & 1) in_flight.push_back({ &blocks[i], to, m, bar, inner, outer });
}

void wgmma(product kind, void *sums, int registers, uint64_t a, uint64_t b, bool add)
{
    if (!now->fenced) violation("wgmma without a fence after its registers were last touched");
    now->open.push_back({ kind, sums, registers, a, b, add });
}

void wgmma_fence() { now->fenced = true; }

void registers(int wanted, bool more)
{
    int &have = now->block->registers[(size_t)now->t / 32];
    if (wanted < 24 || wanted > 256 - 8 || wanted % 8) violation("setmaxnreg takes multiples of 8 from 24 to 248 here");
    if (more ? wanted < have : wanted > have) violation("setmaxnreg in the wrong direction");
    sync_warp();
    have = wanted;
    sync_warp();
}

void wgmma_commit()
{
    now->fenced = false;
    sync_warp();
    now->groups.push_back(now->open);
    now->open.clear();
    if (random_bits() & 1) return;
    for (auto &g : now->groups) { // reads at once, and those before it, which it adds to
        for (const mma &m : g) run(m);
        g.clear();
    }
}

void wgmma_wait(size_t left)
{
    while (now->groups.size() > left) {
        for (const mma &m : now->groups.front()) run(m);
        now->groups.erase(now->groups.begin());
    }
    sync_warp(); // .sync.aligned: a warp leaves together
}

}
