/* A plan of embedding bags, as its makers and users in kernels/ share it. */
#ifndef OCTET_BAGS_H
#define OCTET_BAGS_H

#include "cache.h"
#include "gen_bag.h"
#include "plan.h"

enum { BAG_ROW_OUT = BAG_COLS }; /* values of the widest row that is quantized on its way out */

/* One table's decisions. Rows wider than BAG_COLS go in slices of columns: all of BAG_COLS but the last. */
typedef struct bag_unit {
    octet_bag_desc desc;        /* every default filled in                          */
    int64_t        row_bytes;   /* the least                                        */
    int64_t        values, params; /* where in a row its values and its scale lie   */
    int            index_bytes, offset_bytes, table_align;
    int64_t        out_bytes;   /* of a row as it is written                        */
    int64_t        slices;
    int64_t        near_rows, ahead; /* tables of so many rows are in the cache, no need to prefetch; how far ahead else */
    bag_spec       spec[2];     /* of a whole slice, of the last one                */
    kernel        *kernels[2][2];
    bag_fn         code[2][2];  /* of whole, last; without, with prefetching        */
} bag_unit;

struct octet_bag_plan {
    octet_ctx *ctx;
    size_t     tables;
    bag_unit   unit[];
};

/* Table t of a run, whatever the version of its struct; NULL if that is unknown. */
const octet_bag_table *bag_table(const void *tables, size_t stride, size_t t, octet_bag_table *room);
/* The first promise about the data of a table that is broken, but for those about single indices and offsets, which are read only for
 * lengths; NULL if none. */
enum { BAG_READS_TABLE = 1, BAG_WRITES_OUT = 2 };
const char *bag_breach(const bag_unit *, const octet_bag_table *, int use);
/* Whether any input of a table shares a byte with these. */
bool bag_overlaps(const bag_unit *, const octet_bag_table *, const void *p, int64_t bytes);

/* Where data of a run is at fault. */
typedef struct bag_fault { int status; int64_t table, bag, entry, value; } bag_fault;
/* Every offset and, where they are errors, index of a table, in order: the first fault, or status BAG_DONE. */
bag_fault    bag_validate(const bag_unit *, const octet_bag_table *, size_t t);
octet_status bag_fail(const char *who, const bag_unit *, const octet_bag_table *, const bag_fault *, octet_bag_report *);
/* False if `report` is of an unknown version. */
bool bag_report_ok(const octet_bag_report *report);
void bag_report(octet_bag_report *report, int64_t bad, const bag_fault *); /* NULL: none */

static inline int64_t bags_of(const bag_unit *u, const octet_bag_table *x) { return u->desc.pooling == OCTET_NONE ? x->count : x->bags; }
static inline int64_t bag_integer(const void *p, int bytes, int64_t i)
{
    return bytes == 4 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* Where the first bag begins. */
int64_t bag_first(const bag_unit *, const octet_bag_table *);
/* Indices that its bags have, or seem to: within 0 .. count whatever offsets hold. */
int64_t bag_indices(const bag_unit *, const octet_bag_table *);
/* Where bag b begins, of bags from b0, which begins at `at`; where b ends if it begins at `at`. Offsets are taken as they are. */
int64_t bag_start(const bag_unit *, const octet_bag_table *, int64_t b, int64_t b0, int64_t at);
int64_t bag_end(const bag_unit *, const octet_bag_table *, int64_t b, int64_t at);

/* Bags b0 .. b1-1 of a table, pooled by the calling thread; `at`: where b0 begins. *bad grows by the indices skipped or replaced. BAG_DONE, or
 * the fault's status with *fault filled in. */
int bag_run(const bag_unit *, const octet_bag_table *, size_t t, int64_t b0, int64_t b1, int64_t at, int64_t ahead, int64_t *bad, bag_fault *fault);

#endif
