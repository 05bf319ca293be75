/*
 * A kernel of embedding bags: what it is generated for, what it is told, and what it promises. One call pools `bags` bags,
 * one after the other, over the columns of one slice of the table (whole rows, but for dims past BAG_COLS).
 *
 *   for each bag:  acc = 0;  for each index of it:  check, find the row, prefetch the row `ahead` indices on (bags do not
 *                  matter to that), acc += w * row;  finish, convert, store
 *
 * Values of 8 columns make a vector. Where all vectors of a row fit the registers, acc stays there:
 *
 *   index -> row -> acc, acc, ... acc                      dim 64: 8 vectors
 *
 * Wider rows go in groups of up to BAG_GROUP: first their indices are checked and their places noted, then each block of
 * columns takes all rows of the group, its sums loaded and stored once a group:
 *
 *   group of 16 rows: places | block 0: load acc, 16 rows, store | block 1: ... |     dim 128: 2 blocks of 8 vectors
 *
 * Columns past the last whole vector: the last vector ends where the row does and computes some columns again, equally.
 * Integers of 4 and 2 bits: one load is broadcast and each lane shifts its own value down.
 *
 * Reads of rows, indices, offsets and weights are exact, and so are writes. Prefetches may point anywhere.
 */
#ifndef OCTET_GEN_BAG_H
#define OCTET_GEN_BAG_H

#include "gen.h"
#include "octet/embedding.h"

enum { BAG_COLS = 1024, BAG_GROUP = 16, BAG_NEAR = 14, BAG_NEAR_BYTES = 1024 };

/* As kernel_spec a key of the cache, told apart by its first byte. */
typedef struct bag_spec {
    uint8_t dot;       /* DOT_BAG                                             */
    uint8_t table;     /* octet_dtype                                         */
    uint8_t half;      /* scale and bias are f16                              */
    uint8_t front;     /* and lie in front of the values                      */
    uint8_t pooling, weights, bad;
    uint8_t index32, offset32, lengths, padding, remap;
    uint8_t out;       /* OCTET_F32, F16, BF16                                */
    uint8_t ahead;     /* 1: rows are prefetched                              */
    uint8_t cols_low, cols_high; /* of the slice                              */
    uint8_t unused[sizeof(kernel_spec) - 16];
} bag_spec;
_Static_assert(sizeof(bag_spec) == sizeof(kernel_spec), "both are keys of one cache");

static inline int  bag_cols(const bag_spec *s) { return s->cols_low | s->cols_high << 8; }
static inline bool bag_quantized(const bag_spec *s) { return s->table == OCTET_U8 || s->table == OCTET_U4 || s->table == OCTET_U2; }
/* Of a value of the table. */
static inline int bag_bits(octet_dtype t)
{
    switch (t) {
    case OCTET_F32: return 32;
    case OCTET_F16: case OCTET_BF16: return 16;
    case OCTET_U8: case OCTET_E4M3: case OCTET_E5M2: return 8;
    case OCTET_U4: return 4;
    case OCTET_U2: return 2;
    default: return 0;
    }
}

enum { BAG_DONE, BAG_BAD_INDEX, BAG_BAD_OFFSET, BAG_FEW_WEIGHTS }; /* bag_args.status */

typedef struct bag_args {
    const char    *indices, *index; /* the array; the next one                                 */
    const char    *ahead, *last;    /* the index to prefetch next; the array's last            */
    int64_t        further;         /* remap: bytes on from there, whose entry of it is prefetched */
    const char    *data, *params;   /* of row 0: the slice's values; scale and bias            */
    int64_t        stride;
    uint64_t       rows;
    const float   *weights;         /* at the next index; by position: all of them             */
    int64_t        weight_count;
    const char    *offsets;         /* where the next bag ends; its length                     */
    int64_t        at, count;       /* the index the next bag begins at; of indices            */
    int64_t        bags;            /* left to do                                              */
    char          *out;
    int64_t        out_step;        /* bytes from bag to bag                                   */
    int64_t        padding;
    const int32_t *remap;
    uint64_t       remap_rows;
    int64_t        bad;             /* indices skipped or replaced                             */
    int64_t        status;
    const kernel_const *consts;
    const bag_spec     *spec;       /* for the portable kernel                                 */
    /* the kernel's own */
    int64_t        length, started, saved[6];
    int64_t        place[BAG_GROUP], next_place[BAG_GROUP];
    float          scale[BAG_GROUP], bias[BAG_GROUP];
    float          inverse[8];
    float          sums[BAG_COLS];
} bag_args;

typedef void (*bag_fn)(bag_args *);

const char *table_name(octet_dtype); /* "u4" */
/* As gen_kernel and kernel_name. */
octet_status gen_bag(const bag_spec *, uint8_t *out, size_t room, size_t *bytes);
void         bag_name(const bag_spec *, char name[KERNEL_NAME]);

/* A vector of columns of the slice: `cols` of them from column `col` on, whose values begin at byte `byte` of its values and, within the
 * load, at bit `shift`; `bytes` is what may be read there. */
typedef struct bag_vec { int col, cols, byte, bytes, shift; } bag_vec;
enum { BAG_VECS = BAG_COLS / 8 };
int bag_vecs(const bag_spec *, bag_vec v[BAG_VECS]);

#endif
