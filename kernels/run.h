/* What one run and many share: octet.c checks the arguments of a product and states it, batch.c does it often. */
#ifndef OCTET_RUN_H
#define OCTET_RUN_H

#include "gemm.h"

/* args_breach for a product whose A is made on the way: a and lda are not looked at. */
const char *args_breach_but_a(const octet_plan *, const octet_gemm_args *);
/* The product as the CPU computes it, but for the views' storage, which the caller lends. */
void problem_of(const octet_plan *, const octet_gemm_args *, view *rows, dest *c, gemm_problem *);

#endif
