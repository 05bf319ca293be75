/*
 * A random table with bags of it: every format, layout, pooling, weight, index type and flag that octet/embedding.h allows, drawn
 * from a seed, in guarded buffers; and the definition of what comes out, in the plainest C there is.
 */
#ifndef OCTET_TEST_BAG_CASE_H
#define OCTET_TEST_BAG_CASE_H

#include "cases.h"
#include "octet/embedding.h"

typedef struct bag_case {
    uint64_t        seed;
    octet_bag_desc  d;
    octet_bag_table x;
    int64_t         lookups; /* of the indices, those that bags have */
    int64_t         bad;     /* how many are not good                */
    guarded         table, indices, offsets, weights, remap, out, want;
} bag_case;

/* dim 0: drawn. Specials: NaN, infinities, denormals among values and weights. */
void bag_case_new(bag_case *, uint64_t seed, int64_t dim);
void bag_case_free(bag_case *);
/* `out` against the definition, gaps between rows included; 0, or 1 after printing how to repeat it. */
int  bag_case_check(bag_case *, const char *what);
/* Both filled with a pattern. */
void bag_case_clear(bag_case *);

/* Row `row` of a table, value j, as f32; for integers with q and both parameters apart. */
typedef struct ref_value { float x, scale, bias; } ref_value;
ref_value ref_table_value(const octet_bag_desc *, const octet_bag_table *, int64_t row, int64_t j);
int64_t   ref_integer(const void *p, octet_dtype type, int64_t i);
/* Where bag b begins and ends. */
void      ref_bag_span(const octet_bag_desc *, const octet_bag_table *, int64_t b, int64_t *begin, int64_t *end);
/* The row that index i names, -1: none; *counts: 0 where it leaves the divisor alone. *bad: 1 where it is not good. */
int64_t   ref_bag_row(const octet_bag_desc *, const octet_bag_table *, int64_t index, int *counts, int *bad);
/* All bags; the definition. */
void      ref_bags(const octet_bag_desc *, const octet_bag_table *, void *out);

#endif
