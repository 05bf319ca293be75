/*
 * The part of the CUDA driver's ABI that octet uses, declared here so that no CUDA header is needed; where <cuda.h> is, driver.c
 * compares every line of it.
 */
#ifndef OCTET_CUABI_H
#define OCTET_CUABI_H

#include <stddef.h>
#include <stdint.h>

#include "gpu_params.h"

enum {
    CU_OK = 0,
    CU_LAUNCH_CLUSTER = 4,                 /* CUlaunchAttributeID         */
    CU_FUNC_MAX_SHARED = 8,                /* CUfunction_attribute        */
    CU_DEV_PROCESSORS = 16, CU_DEV_CLOCK = 13, CU_DEV_L2 = 38, CU_DEV_MAJOR = 75, CU_DEV_MINOR = 76, CU_DEV_SHARED_OPTIN = 97,
    CU_MAP_UINT8 = 0, CU_MAP_UINT16 = 1,   /* CUtensorMapDataType         */
    CU_MAP_SWIZZLE_128 = 3, CU_MAP_L2_256 = 3
};

typedef union cu_attribute_value { char pad[64]; struct { unsigned x, y, z; } cluster; } cu_attribute_value;
typedef struct cu_attribute { int id; char pad[4]; cu_attribute_value value; } cu_attribute;
typedef struct cu_launch {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void         *stream;
    cu_attribute *attributes;
    unsigned      count;
} cu_launch;

/*    field           symbol with its version      arguments */
#define CU_CALLS(X) \
    X(init,           cuInit,                       (unsigned flags)) \
    X(version,        cuDriverGetVersion,           (int *version)) \
    X(error,          cuGetErrorString,             (int error, const char **text)) \
    X(device,         cuDeviceGet,                  (int *device, int ordinal)) \
    X(name,           cuDeviceGetName,              (char *name, int bytes, int device)) \
    X(memory,         cuDeviceTotalMem_v2,          (size_t *bytes, int device)) \
    X(attribute,      cuDeviceGetAttribute,         (int *value, int attribute, int device)) \
    X(retain,         cuDevicePrimaryCtxRetain,     (void **context, int device)) \
    X(release,        cuDevicePrimaryCtxRelease_v2, (int device)) \
    X(push,           cuCtxPushCurrent_v2,          (void *context)) \
    X(pop,            cuCtxPopCurrent_v2,           (void **context)) \
    X(stream_context, cuStreamGetCtx,               (void *stream, void **context)) \
    X(synchronize,    cuStreamSynchronize,          (void *stream)) \
    X(alloc,          cuMemAlloc_v2,                (uint64_t *p, size_t bytes)) \
    X(free,           cuMemFree_v2,                 (uint64_t p)) \
    X(library,        cuLibraryLoadData,            (void **library, const void *image, int *a, void **b, unsigned c, int *d, void **e, unsigned f)) \
    X(unload,         cuLibraryUnload,              (void *library)) \
    X(kernel,         cuLibraryGetKernel,           (void **kernel, void *library, const char *name)) \
    X(function,       cuKernelGetFunction,          (void **function, void *kernel)) \
    X(kernel_set,     cuKernelSetAttribute,         (int attribute, int value, void *kernel, int device)) \
    X(encode,         cuTensorMapEncodeTiled,       (gpu_map *map, int type, uint32_t rank, void *p, const uint64_t *dims, const uint64_t *strides, \
                                                     const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill)) \
    X(launch,         cuLaunchKernelEx,             (const cu_launch *launch, void *kernel, void **params, void **extra))

#define CU_FIELD(field, symbol, args) int (*field) args;
typedef struct cu_driver {
    CU_CALLS(CU_FIELD)
    int (*func_load)(void *function); /* finishes a lazy load; NULL in drivers before 12.4 */
} cu_driver;
#undef CU_FIELD

#endif
