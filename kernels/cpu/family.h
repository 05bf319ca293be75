/* THE TABLE of kernel families: one row declares, selects, tests and benchmarks a family. */
#ifndef OCTET_FAMILY_H
#define OCTET_FAMILY_H

#include "cpu.h"
#include "gen.h"

typedef struct family {
    const char *name;
    dot_kind    dot;
    unsigned    needs;  /* CPU_* bits, all of them                            */
    a_form      form;   /* the packed form of A it reads                      */
    bool        place;  /* can read A where it lies, too                      */
    uint8_t     mr, min_rows; /* rows of a tile: min_rows .. mr               */
    float       rate;   /* MAC per cycle of the full tile, A and B in L1; what pack.c weighs by */
} family;

extern const family families[DOT_COUNT]; /* by dot_kind */

/* Why this CPU cannot run a family, or NULL. */
const char *family_refuses(const family *, unsigned cpu);

/* Tiles of a block of `rows` rows: how many, and how many rows tile t has. Balanced, so that the
 * last is not a sliver: 20 rows by 6 are 5 5 5 5. */
static inline int64_t tiles_of(int64_t rows, int mr) { return ceil_div(rows, mr); }
static inline int64_t tile_rows(int64_t rows, int64_t tiles, int64_t t) { return rows / tiles + (t < rows % tiles); }
static inline int64_t tile_start(int64_t rows, int64_t tiles, int64_t t) { return t * (rows / tiles) + min64(t, rows % tiles); }

#endif
