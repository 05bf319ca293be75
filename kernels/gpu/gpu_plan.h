/* What the CPU's entry points need of GPU plans: to free and to explain them. */
#ifndef OCTET_GPU_PLAN_H
#define OCTET_GPU_PLAN_H

#include "device.h"

void        gpu_plan_drop(octet_plan *);
void        gpu_packed_drop(octet_packed *);
const char *gpu_explain(const octet_plan *, char *text, size_t bytes);

#endif
