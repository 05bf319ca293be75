// The bf16 and f16 kernels of kernels.def.
#include "hopper.cuh"
#include "kernels.def"

GPU_HOPPER_16(HOPPER_ENTRY)
