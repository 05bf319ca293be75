/* Opening libcuda, and what it says; see driver.h. */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#if OCTET_HAVE_CUDA_H
#include <cuda.h>
/* Our declarations against NVIDIA's. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CU_FUNC_MAX_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_DEV_PROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_DEV_CLOCK, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(CU_DEV_L2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(CU_DEV_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEV_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_DEV_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_MAP_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(CU_MAP_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME(CU_MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(CU_MAP_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(sizeof(gpu_map), sizeof(CUtensorMap));
SAME(_Alignof(gpu_map) % _Alignof(CUtensorMap), 0);
SAME(sizeof(CUdeviceptr), sizeof(uint64_t));
SAME(sizeof(cu_launch), sizeof(CUlaunchConfig));
SAME(offsetof(cu_launch, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(cu_launch, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(cu_launch, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(cu_launch, count), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(cu_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(cu_attribute, value), offsetof(CUlaunchAttribute, value));
#undef SAME
#endif


/* A cubin wants a driver of its compiler's generation. */
#if OCTET_HAVE_NVCC
enum { LEAST_DRIVER = 1000 * OCTET_HAVE_NVCC };
extern const unsigned char octet_fatbin_portable[], octet_fatbin_prepare[], octet_fatbin_hopper_s8[], octet_fatbin_hopper_16[];
static const gpu_image built[] = {
    { "portable", octet_fatbin_portable }, { "prepare", octet_fatbin_prepare },
    { "hopper_s8", octet_fatbin_hopper_s8 }, { "hopper_16", octet_fatbin_hopper_16 }, { NULL, NULL },
};
#else
enum { LEAST_DRIVER = 12000 };
static const gpu_image built[] = { { NULL, NULL } };
#endif

static const char *library = "libcuda.so.1";
static const gpu_image *images = built;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static cu_driver driver;
static bool opened;

void driver_replace(const char *name, const gpu_image *other)
{
    library = name;
    images = other;
}

const gpu_image *gpu_images(void) { return images; }

octet_status driver_check(const cu_driver *cu, int result, const char *call)
{
    const char *text = NULL;
    if (result == CU_OK) return OCTET_OK;
    if (!cu->error || cu->error(result, &text) || !text) text = "an error without a name";
    return fail(OCTET_EDEVICE, "%s: %s (%d)", call, text, result);
}

static bool open_locked(void)
{
    int version = 0;
    void *so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        const char *why = dlerror();
        fail(OCTET_EDEVICE, "no NVIDIA driver: %s", why ? why : "libcuda could not be opened");
        return false;
    }
    cu_driver cu;
#define CU_FIND(field, symbol, args) { \
        void *p = dlsym(so, #symbol); \
        if (!p) { fail(OCTET_EDEVICE, "the NVIDIA driver lacks %s: octet needs one of CUDA %d.0 or later", #symbol, LEAST_DRIVER / 1000); return false; } \
        memcpy(&cu.field, &p, sizeof p); }
    CU_CALLS(CU_FIND)
#undef CU_FIND
    void *load = dlsym(so, "cuFuncLoad"); /* CUDA 12.4 */
    memcpy(&cu.func_load, &load, sizeof load);
    if (driver_check(&cu, cu.init(0), "cuInit") || driver_check(&cu, cu.version(&version), "cuDriverGetVersion")) return false;
    if (version < LEAST_DRIVER) {
        fail(OCTET_EDEVICE, "the NVIDIA driver is of CUDA %d.%d: octet needs %d.0 or later", version / 1000, version % 1000 / 10, LEAST_DRIVER / 1000);
        return false;
    }
    driver = cu;
    return true;
}

const cu_driver *driver_open(void)
{
    const int kept = errno;
    pthread_mutex_lock(&opening);
    if (!opened) opened = open_locked(); /* tried again by the next caller: a driver may come up later */
    const cu_driver *cu = opened ? &driver : NULL;
    pthread_mutex_unlock(&opening);
    errno = kept;
    return cu;
}
