/* Opening a device and going in and out of its context; what it says when something failed. */
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* ---- in and out ---- */

/* What ends a context: every later call would say the same. */
static bool ends_context(int result)
{
    static const int ends[] = { 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999 };
    for (size_t i = 0; i < COUNT(ends); i++)
        if (result == ends[i]) return true;
    return false;
}

octet_status gpu_check(octet_gpu *g, int result, const char *call)
{
    if (result == CU_OK) return OCTET_OK;
    if (ends_context(result)) atomic_store(&g->fault, result);
    return driver_check(g->cu, result, call);
}

octet_status gpu_enter(octet_gpu *g, const char *who)
{
    if (g->owner != getpid()) return fail(OCTET_EDEVICE, "%s: this GPU context is of the process that forked this one", who);
    const int fault = atomic_load(&g->fault);
    if (fault) {
        const char *text = NULL;
        if (g->cu->error(fault, &text) || !text) text = "an error without a name";
        return fail(OCTET_EDEVICE, "%s: an earlier fault ended this GPU context: %s (%d)", who, text, fault);
    }
    return gpu_check(g, g->cu->push(g->context), "cuCtxPushCurrent");
}

void gpu_leave(octet_gpu *g)
{
    void *own;
    (void)g->cu->pop(&own); /* of what gpu_enter pushed: nothing to fail */
}

octet_status gpu_enter_stream(octet_gpu *g, const char *who, void *stream)
{
    octet_status st = gpu_enter(g, who);
    if (st || !stream) return st;
    void *of = NULL;
    st = gpu_check(g, g->cu->stream_context(stream, &of), "cuStreamGetCtx");
    if (!st && of != g->context) st = fail(OCTET_EINVAL, "%s: the stream is of another context than the device's primary one", who);
    if (st) gpu_leave(g);
    return st;
}

octet_status gpu_launch(octet_gpu *g, int kernel, int64_t blocks, int threads, unsigned shared_bytes, int cluster, void *stream, void *params)
{
    cu_attribute shape = { .id = CU_LAUNCH_CLUSTER, .value.cluster = { (unsigned)cluster, 1, 1 } };
    cu_launch l = { (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, shared_bytes, stream, &shape, cluster > 1 };
    return gpu_check(g, g->cu->launch(&l, g->kernels[kernel], &params, NULL), gpu_kernels[kernel].name);
}

/* ---- opening ---- */

static octet_status describe(octet_gpu *g)
{
    const cu_driver *cu = g->cu;
    octet_gpu_info *i = &g->info;
    size_t memory = 0;
    int l2 = 0, shared = 0;
    const struct { int attribute; int *to; } wanted[] = {
        { CU_DEV_MAJOR, &i->major }, { CU_DEV_MINOR, &i->minor }, { CU_DEV_PROCESSORS, &i->processors },
        { CU_DEV_CLOCK, &i->clock_khz }, { CU_DEV_L2, &l2 }, { CU_DEV_SHARED_OPTIN, &shared },
    };
    i->size = sizeof *i;
    octet_status st = driver_check(cu, cu->version(&i->driver), "cuDriverGetVersion");
    if (!st) st = driver_check(cu, cu->name(i->name, (int)sizeof i->name, g->device), "cuDeviceGetName");
    if (!st) st = driver_check(cu, cu->memory(&memory, g->device), "cuDeviceTotalMem");
    for (size_t k = 0; !st && k < COUNT(wanted); k++) st = driver_check(cu, cu->attribute(wanted[k].to, wanted[k].attribute, g->device), "cuDeviceGetAttribute");
    i->memory_bytes = (int64_t)memory;
    i->l2_bytes = l2;
    i->shared_bytes = shared;
    return st;
}

/* The image a kernel is in, loaded once; kernels of another architecture are left out. */
static octet_status load(octet_gpu *g)
{
    const gpu_image *images = gpu_images();
    const cu_driver *cu = g->cu;
    if (!images[0].data) return fail(OCTET_EDEVICE, "this octet was built without nvcc: it holds no GPU kernels");
    for (int i = 0; i < gpu_kernel_count; i++) {
        const gpu_kernel_row *r = &gpu_kernels[i];
        const char *refused = gpu_refuses(r, &g->info, NULL, true);
        int at = 0;
        if (*refused && r->role != GPU_HOPPER)
            return fail(OCTET_EDEVICE, "%s is of architecture %d.%d, for which octet has no kernels", g->info.name, g->info.major, g->info.minor);
        if (*refused) continue;
        while (images[at].name && strcmp(images[at].name, r->image)) at++;
        if (!images[at].name) continue;
        octet_status st = OCTET_OK;
        if (!g->libraries[at])
            st = driver_check(cu, cu->library(&g->libraries[at], images[at].data, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
        if (!st) st = driver_check(cu, cu->kernel(&g->kernels[i], g->libraries[at], r->name), r->name);
        if (!st && r->role == GPU_HOPPER)
            st = driver_check(cu, cu->kernel_set(CU_FUNC_MAX_SHARED, GPU_RING_BYTES(r->bm, r->bn, r->stages), g->kernels[i], g->device),
                              "cuKernelSetAttribute");
        if (st) return st;
    }
    return OCTET_OK;
}

octet_status octet_gpu_create(const octet_gpu_opts *opts, octet_gpu **out)
{
    const char *who = "octet_gpu_create";
    octet_gpu_opts o = OCTET_GPU_OPTS;
    const int kept = errno;
    if (!out) return fail(OCTET_EINVAL, "%s: out is NULL", who);
    if (opts && !copy_versioned(&o, sizeof o, sizeof(size_t), opts))
        return fail(OCTET_EINVAL, "%s: opts->size is not of a known version; initialize with OCTET_GPU_OPTS", who);
    if (o.ordinal < 0) return fail(OCTET_EINVAL, "%s: ordinal is negative", who);
    if (!o.allocator.alloc != !o.allocator.free) return fail(OCTET_EINVAL, "%s: the allocator has only one of alloc and free", who);
    const cu_driver *cu = driver_open();
    if (!cu) { errno = kept; return OCTET_EDEVICE; }
    octet_ctx *host = ctx_hold(NULL);
    octet_gpu *g = host ? mem_alloc(&host->allocator, sizeof *g) : NULL;
    if (!g) {
        if (host) ctx_drop(host);
        return fail(OCTET_ENOMEM, "%s: no memory for a context", who);
    }
    memset(g, 0, sizeof *g);
    atomic_store(&g->refs, 1);
    g->owner = getpid();
    g->cu = cu;
    g->host = host;
    g->allocator = o.allocator;
    octet_status st = driver_check(cu, cu->device(&g->device, o.ordinal), "cuDeviceGet");
    if (!st) st = describe(g);
    if (!st) st = driver_check(cu, cu->retain(&g->context, g->device), "cuDevicePrimaryCtxRetain");
    if (!st) st = load(g);
    errno = kept;
    if (st) octet_gpu_free(g);
    else *out = g;
    return st;
}

octet_gpu *gpu_hold(octet_gpu *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void octet_gpu_free(octet_gpu *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1) return;
    octet_ctx *host = g->host;
    if (g->owner == getpid()) { /* a forked child leaves the driver alone */
        for (int i = 0; i < GPU_KERNELS_MAX; i++)
            if (g->libraries[i]) (void)g->cu->unload(g->libraries[i]);
        if (g->context) (void)g->cu->release(g->device);
    }
    mem_free(&host->allocator, g, sizeof *g);
    ctx_drop(host);
}

octet_status octet_gpu_describe(const octet_gpu *g, octet_gpu_info *out)
{
    if (!g || !out) return fail(OCTET_EINVAL, "octet_gpu_describe: %s is NULL", g ? "out" : "gpu");
    if (give_versioned(out, sizeof(size_t), &g->info, sizeof g->info)) return OCTET_OK;
    return fail(OCTET_EINVAL, "octet_gpu_describe: out->size is not of a known version; initialize with OCTET_GPU_INFO");
}

octet_status octet_gpu_sync(octet_gpu *g, void *stream)
{
    if (!g) return fail(OCTET_EINVAL, "octet_gpu_sync: gpu is NULL");
    octet_status st = gpu_enter_stream(g, "octet_gpu_sync", stream);
    if (st) return st;
    st = gpu_check(g, g->cu->synchronize(stream), "cuStreamSynchronize");
    gpu_leave(g);
    return st;
}

octet_status octet_gpu_kernel_at(const octet_gpu *g, int i, const octet_gemm_desc *desc, int64_t m, octet_gpu_kernel *out)
{
    const char *who = "octet_gpu_kernel_at";
    octet_gemm_desc d;
    octet_gpu_kernel k = OCTET_GPU_KERNEL;
    if (!g || !out) return fail(OCTET_EINVAL, "%s: %s is NULL", who, g ? "out" : "gpu");
    if (i < 0 || i >= gpu_kernel_count) return fail(OCTET_EINVAL, "%s: there are kernels 0 .. %d", who, gpu_kernel_count - 1);
    if (desc && !copy_versioned(&d, sizeof d, sizeof(size_t), desc)) return fail(OCTET_EINVAL, "%s: desc->size is not of a known version", who);
    const char *broken = desc ? gemm_breach(&d) : NULL;
    if (!broken && m < 0) broken = "m is negative";
    if (broken) return fail(OCTET_EINVAL, "%s: %s", who, broken);
    const gpu_kernel_row *r = &gpu_kernels[i];
    const gpu_problem p = desc ? gpu_problem_of(&d, m) : (gpu_problem){ 0 };
    snprintf(k.name, sizeof k.name, "%s", r->name);
    snprintf(k.refused, sizeof k.refused, "%s", gpu_refuses(r, &g->info, desc ? &p : NULL, false));
    if (desc && r->role != GPU_PREPARES) k.microseconds = gpu_cost(r, &g->info, &p) / (g->info.clock_khz > 0 ? g->info.clock_khz * 0.9e-3 : 1.6e3);
    if (give_versioned(out, sizeof(size_t), &k, sizeof k)) return OCTET_OK;
    return fail(OCTET_EINVAL, "%s: out->size is not of a known version; initialize with OCTET_GPU_KERNEL", who);
}
