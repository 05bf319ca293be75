/* THE TABLE of kernel families: one row declares, selects, tests and benchmarks a family. */
#ifndef OCTET_FAMILY_H
#define OCTET_FAMILY_H

#include "cpu.h"
#include "gen.h"

typedef struct family {
    dot_kind    dot;    /* and by dot_name() its name                         */
    unsigned    needs;  /* CPU_* bits, all of them                            */
    a_form      form;   /* the packed form of A it reads                      */
    bool        place;  /* can read A where it lies, too                      */
    uint8_t     mr, min_rows; /* rows of a tile: min_rows .. mr               */
    uint8_t     widen;  /* floating: B's panel is widened to f32 beforehand from so many tiles on */
    float       rate;   /* MAC per cycle of the full tile, A and B in L1; what pack.c weighs by */
} family;

extern const family families[DOT_COUNT]; /* by dot_kind */

/* What a packed panel may ask for, as bits 1 << dot_kind. */
enum { W_DOTS = 1 << DOT_W, T_DOTS = 1 << DOT_T1 | 1 << DOT_T2 | 1 << DOT_T4 };

/* Why this CPU cannot run a family, or NULL. */
const char *family_refuses(const family *, unsigned cpu);

/* A number of things cut into like parts: the first `extra` have base + 1, the others base. So 20 rows
 * in tiles of at most 6 are 5 5 5 5, and no tile is a sliver. */
typedef struct parts { int64_t count, base, extra; } parts;

static inline parts cut(int64_t things, int64_t count)
{
    if (count == 1) return (parts){ 1, things, 0 };
    return (parts){ count, things / count, things % count };
}
static inline parts tiles_of(int64_t rows, int mr)
{
    return rows <= mr ? (parts){ 1, rows, 0 } : cut(rows, ceil_div(rows, mr));
}
static inline int64_t part_size(parts p, int64_t i) { return p.base + (i < p.extra); }
static inline int64_t part_start(parts p, int64_t i) { return i * p.base + min64(i, p.extra); }

#endif
