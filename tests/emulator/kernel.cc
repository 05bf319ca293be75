// One CUDA source of kernels/gpu, compiled for the emulator; the build names it.
#include "emulator_cuda.h"
#include KERNEL_SOURCE
