/* The kernel contracts of gen.h and gen_bag.h in portable C, for any spec; read args->spec. */
#ifndef OCTET_PLAIN_H
#define OCTET_PLAIN_H

#include "gen_bag.h"

void plain_kernel(kernel_args *);
void plain_bag(bag_args *);

#endif
