/*
 * The definition of every product once more, floating and weight-only ones and chains included, by
 * description and arguments. Activations alone are the library's own (quant/activation.h): test_chain.c
 * holds those against double precision.
 */
#ifndef OCTET_TEST_REF_ANY_H
#define OCTET_TEST_REF_ANY_H

#include "octet.h"

/* Computes into `c` what octet_run(plan of d, x) would write to x->c, which may differ from c; b as given to octet_pack. */
void ref_any(const octet_gemm_desc *d, const octet_gemm_args *x, const void *b, int64_t ldb, const octet_quant *q, void *c);

#endif
