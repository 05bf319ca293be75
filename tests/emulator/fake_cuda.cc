// libcuda's calls over the emulator: device memory is host memory between guard pages, a launch runs the kernel's own source at
// once. It refuses what the real driver refuses (cuda.h's documentation of each call).
#include "fake_cuda.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "emulator.h"
#include "gpu_params.h"
#include "kernels.def"

#define EXPORT extern "C" __attribute__((visibility("default")))

#define DECLARE(name, ...) extern "C" void name(const gpu_params);
GPU_HOPPER_S8(DECLARE)
GPU_HOPPER_16(DECLARE)
DECLARE(octet_portable_s32)
DECLARE(octet_portable_f32)
extern "C" void octet_find_range(const gpu_gather);
extern "C" void octet_gather(const gpu_gather);
extern "C" void octet_gather_columns(const gpu_gather);
extern "C" void octet_pack_rows(const gpu_pack);

namespace {

struct kernel { const char *name; size_t bytes; void (*run)(const void *); };
template <class P, void (*F)(const P)> void call(const void *p) { F(*(const P *)p); }

#define ROW(name, ...) { #name, sizeof(gpu_params), call<gpu_params, name> },
const kernel kernels[] = {
    GPU_HOPPER_S8(ROW) GPU_HOPPER_16(ROW) ROW(octet_portable_s32) ROW(octet_portable_f32)
    { "octet_find_range", sizeof(gpu_gather), call<gpu_gather, octet_find_range> }, { "octet_gather", sizeof(gpu_gather), call<gpu_gather, octet_gather> },
    { "octet_gather_columns", sizeof(gpu_gather), call<gpu_gather, octet_gather_columns> }, { "octet_pack_rows", sizeof(gpu_pack), call<gpu_pack, octet_pack_rows> },
};

fake_cuda_state state = { 13000, 9, 0, 4, 1, 1 /* runs */, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", NULL, NULL, 0 };
int primary, foreign;             // their addresses are the contexts
struct allocation { char *map; size_t bytes; };
std::map<uint64_t, allocation> allocations;
std::map<const void *, int> shared_limit; // of a kernel

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, INVALID_CONTEXT = 201, LAUNCH_FAILED = 719 };

// What the test asked of this call, or a fault that has come up.
int trouble(const char *name, bool on_device)
{
    if (state.failing && !strcmp(state.failing, name)) {
        state.failing = NULL;
        return state.failing_with;
    }
    return on_device ? state.pending_fault : 0;
}
// A launch with its parameters, which it copies.
struct launch_config { unsigned grid[3], block[3], shared; void *stream; struct { int id; char pad[4]; unsigned cluster[16]; } *attributes; unsigned count; };
struct launched { const kernel *k; unsigned blocks, threads, cluster, shared; alignas(128) unsigned char params[4096]; };
bool capturing;
std::vector<launched> graph;

int run(const launched &l)
{
    if (!state.runs_kernels) return 0;
    if (state.seed) emu::seed = state.seed * 2654435761u + 88172645463325252u;
    state.seed = 0;
    if (emu::launch(l.blocks, l.threads, l.cluster, l.shared, [&] { l.k->run(l.params); })) return 0;
    state.violations++;
    state.pending_fault = LAUNCH_FAILED;
    return 0;
}

#define TROUBLE(name, on_device) if (const int t = trouble(name, on_device)) return t

}

EXPORT fake_cuda_state *fake_cuda() { return &state; }

EXPORT int cuInit(unsigned) { TROUBLE("cuInit", false); return 0; }
EXPORT int cuDriverGetVersion(int *v) { TROUBLE("cuDriverGetVersion", false); *v = state.version; return 0; }
EXPORT int cuGetErrorString(int e, const char **text)
{
    static const struct { int e; const char *text; } known[] = {
        { INVALID_VALUE, "invalid argument" }, { OUT_OF_MEMORY, "out of memory" }, { 101, "invalid device ordinal" }, { INVALID_CONTEXT, "invalid device context" },
        { NOT_FOUND, "named symbol not found" }, { 700, "an illegal memory access was encountered" }, { LAUNCH_FAILED, "unspecified launch failure" },
    };
    for (const auto &k : known)
        if (k.e == e) { *text = k.text; return 0; }
    *text = NULL;
    return INVALID_VALUE;
}
EXPORT int cuDeviceGet(int *d, int ordinal) { TROUBLE("cuDeviceGet", false); *d = ordinal; return ordinal < state.devices ? 0 : 101; }
EXPORT int cuDeviceGetName(char *name, int bytes, int) { TROUBLE("cuDeviceGetName", false); snprintf(name, (size_t)bytes, "emulated GPU"); return 0; }
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int) { *bytes = (size_t)1 << 30; return 0; }
EXPORT int cuDeviceGetAttribute(int *v, int attribute, int)
{
    TROUBLE("cuDeviceGetAttribute", false);
    switch (attribute) {
    case 75: *v = state.major; break;
    case 76: *v = state.minor; break;
    case 16: *v = state.processors; break;
    case 13: *v = 1980000; break;
    case 38: *v = 50 << 20; break;
    case 97: *v = emu::SHARED; break;
    default: return INVALID_VALUE;
    }
    return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **c, int) { TROUBLE("cuDevicePrimaryCtxRetain", false); *c = &primary; return 0; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
EXPORT int cuCtxPushCurrent_v2(void *c) { TROUBLE("cuCtxPushCurrent", false); if (c != &primary) return INVALID_CONTEXT; state.depth++; return 0; }
EXPORT int cuCtxPopCurrent_v2(void **c) { if (!state.depth) return INVALID_CONTEXT; state.depth--; *c = &primary; return 0; }
EXPORT int cuStreamGetCtx(void *stream, void **c) { TROUBLE("cuStreamGetCtx", false); *c = stream == FAKE_FOREIGN_STREAM ? &foreign : &primary; return 0; }
EXPORT int cuStreamSynchronize(void *) { TROUBLE("cuStreamSynchronize", true); state.synchronizations++; return 0; }

// Streams and graphs: a captured launch is kept with its parameters, and run by cuGraphLaunch.
EXPORT int cuStreamCreate(void **stream, unsigned) { *stream = FAKE_STREAM; return 0; }
EXPORT int cuStreamDestroy_v2(void *) { return 0; }
EXPORT int cuStreamBeginCapture_v2(void *, int) { if (capturing) return INVALID_VALUE; capturing = true; graph.clear(); return 0; }
EXPORT int cuStreamEndCapture(void *, void **g) { if (!capturing) return INVALID_VALUE; capturing = false; *g = &graph; return 0; }
EXPORT int cuGraphInstantiateWithFlags(void **executable, void *g, unsigned long long) { *executable = g; return g == &graph ? 0 : INVALID_VALUE; }
EXPORT int cuGraphLaunch(void *executable, void *)
{
    if (executable != &graph) return INVALID_VALUE;
    for (const launched &l : graph)
        if (const int t = run(l)) return t;
    return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *p, size_t bytes)
{
    TROUBLE("cuMemAlloc", true);
    if (!state.depth) return INVALID_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    const size_t page = 4096, room = (bytes + page - 1) / page * page;
    char *map = (char *)mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, room, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
    memset(map + page, 0xcb, room);
    char *at = map + page + (room - (bytes + 255) / 256 * 256); // flush with the page after it, as far as 256 lets
    *p = (uint64_t)(uintptr_t)at;
    allocations[*p] = { map, room + 2 * page };
    state.live_allocations++;
    return 0;
}
EXPORT int cuMemFree_v2(uint64_t p)
{
    TROUBLE("cuMemFree", true);
    const auto a = allocations.find(p);
    if (a == allocations.end()) return INVALID_VALUE;
    munmap(a->second.map, a->second.bytes);
    allocations.erase(a);
    state.live_allocations--;
    return 0;
}
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return 0; }
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (const void *)(uintptr_t)from, bytes); return 0; }

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *) { memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes); return 0; }

EXPORT int cuLibraryLoadData(void **l, const void *image, int *, void **, unsigned, int *, void **, unsigned)
{
    TROUBLE("cuLibraryLoadData", false);
    if (!image) return INVALID_VALUE;
    state.loads++;
    *l = (void *)image;
    return 0;
}
EXPORT int cuLibraryUnload(void *l) { return l ? 0 : INVALID_VALUE; }
EXPORT int cuLibraryGetKernel(void **k, void *, const char *name)
{
    TROUBLE("cuLibraryGetKernel", false);
    for (const kernel &r : kernels)
        if (!strcmp(r.name, name)) { *k = (void *)&r; return 0; }
    return NOT_FOUND;
}
EXPORT int cuKernelGetFunction(void **f, void *k)
{
    TROUBLE("cuKernelGetFunction", false);
    if (!state.depth) return INVALID_CONTEXT;
    state.functions++;
    *f = k;
    return 0;
}
EXPORT int cuKernelSetAttribute(int attribute, int value, void *k, int)
{
    TROUBLE("cuKernelSetAttribute", false);
    if (attribute != 8 || value < 0 || value > emu::SHARED) return INVALID_VALUE;
    shared_limit[k] = value;
    return 0;
}

EXPORT int cuTensorMapEncodeTiled(void *to, int type, uint32_t rank, void *p, const uint64_t *dims, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill)
{
    TROUBLE("cuTensorMapEncodeTiled", false);
    const int bytes = type == 0 ? 1 : type == 1 ? 2 : 0;
    const bool good = (uintptr_t)to % 64 == 0 && rank == 2 && bytes && (uintptr_t)p % 16 == 0 && strides[0] % 16 == 0 && strides[0] < (uint64_t)1 << 40
        && dims[0] && dims[1] && dims[0] <= (uint64_t)1 << 32 && dims[1] <= (uint64_t)1 << 32 && box[0] && box[0] <= 256 && box[1] && box[1] <= 256
        && box[0] * (unsigned)bytes == 128 && steps[0] == 1 && steps[1] == 1 && interleave == 0 && swizzle == 3 && l2 >= 0 && l2 <= 3 && fill == 0;
    if (!good) return INVALID_VALUE;
    const emu::map m = { emu::MAP_MAGIC, (const char *)p, dims[0], dims[1], strides[0], box[0], box[1], bytes };
    memset(to, 0, 128);
    memcpy(to, &m, sizeof m);
    state.encodes++;
    return 0;
}

EXPORT int cuLaunchKernelEx(const launch_config *c, void *k, void **params, void **extra)
{
    TROUBLE("cuLaunchKernelEx", true);
    const kernel *r = (const kernel *)k;
    const unsigned cluster = c->count ? c->attributes[0].cluster[0] : 1;
    const int limit = shared_limit.count(k) ? shared_limit[k] : 48 << 10;
    if (!state.depth) return INVALID_CONTEXT;
    if (extra || !c->grid[0] || c->grid[1] != 1 || c->grid[2] != 1 || !c->block[0] || c->block[0] > 1024 || (int)c->shared > limit
        || c->grid[0] % cluster || (c->count && c->attributes[0].id != 4)) {
        state.violations++;
        return INVALID_VALUE;
    }
    state.launches++;
    state.last_stream = c->stream;
    snprintf(state.last_kernel, sizeof state.last_kernel, "%s", r->name);
    launched l = { r, c->grid[0], c->block[0], cluster, c->shared, {} };
    memcpy(l.params, params[0], r->bytes);
    if (capturing) {
        graph.push_back(l);
        return 0;
    }
    return run(l);
}
