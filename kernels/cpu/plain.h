/* The kernel contract of gen.h in portable C, for any spec; reads args->spec. */
#ifndef OCTET_PLAIN_H
#define OCTET_PLAIN_H

#include "gen.h"

void plain_kernel(kernel_args *);

#endif
