// The int8 kernels of kernels.def.
#include "hopper.cuh"
#include "kernels.def"

GPU_HOPPER_S8(HOPPER_ENTRY)
