/* The CUDA driver, opened once for the process; and the images of the kernels. */
#ifndef OCTET_DRIVER_H
#define OCTET_DRIVER_H

#include "cuabi.h"

/* NULL with a sentence recorded (octet_why) where there is no driver or it is too old. Never closed: libcuda does not like it. */
const cu_driver *driver_open(void);
/* OCTET_OK, or OCTET_EDEVICE with the driver's own words. */
octet_status driver_check(const cu_driver *, int result, const char *call);

/* The kernels' machine code, a fatbin for each source; NULL ends them. None in a build without nvcc. */
typedef struct gpu_image { const char *name; const void *data; } gpu_image;
const gpu_image *gpu_images(void);

/* Tests: another library in libcuda's place, and images that it understands. Before the first driver_open. */
void driver_replace(const char *library, const gpu_image *images);

#endif
