/*
 * Panels: how A and B reach the kernels.
 *
 * A and B are packed by one routine. Seen from a panel, both are a few *lines* (rows of A, columns
 * of B) running along k, and a panel is their quads side by side:
 *
 *   | line 0 k0..k3 | line 1 k0..k3 | ... | line 0 k4..k7 | ...          (u8 or s8)
 *
 * Where the lines come from is a view: two strides, or a vector of offsets for either direction
 * (tensor contraction), or a weighted sum of several views (Strassen). Kernels know none of that.
 *
 * B is packed whole: panels of 8 columns, the last one as wide as it is; all k together, so that
 * the layout depends on nothing but n and k. Beside the weights stand their column sums and, where
 * a panel was changed to be added in 16 bits, the residual that undoes the change (proof.c).
 */
#ifndef OCTET_PACK_H
#define OCTET_PACK_H

#include "family.h"
#include "plan.h"

/* ---- views ---- */

/* Element (line, k) lies `line * line_stride + k * k_stride` elements after base; an offset vector
 * replaces its product. */
typedef struct view {
    const void    *base;
    int64_t        line_stride, k_stride;
    const int64_t *line_offset, *k_offset; /* NULL: strides */
} view;

/* What is gathered: the sum of weight[v] * views[v]. weights NULL: one view, as it is. */
typedef struct source {
    octet_dtype    type; /* of A: U8, S8, F32, F16, BF16; of B: any           */
    int            count;
    const view    *views;
    const int32_t *weights;
    uint8_t        flip;       /* A as s8: 0x80 turns each value into value + 128  */
    /* Floating: quantized on the way in, unless `as` is F32                         */
    octet_dtype    as;         /* U8, S8 or F32                                    */
    int32_t        most;       /* the largest value it is quantized to; 0: the type's */
    float          inv_scale;  /* used where the row pointers are NULL             */
    int32_t        zero;
    const float   *scale_rows; /* for each line, from line row0 on                 */
    const int32_t *zero_rows;
    int64_t        row0;
} source;

/* True if the lines can be read in place or copied quad by quad, without gather_lines. */
static inline bool source_is_plain(const source *s)
{
    return s->count == 1 && !s->weights && (s->type == OCTET_U8 || s->type == OCTET_S8) && !s->views[0].line_offset && !s->views[0].k_offset;
}

/* lines x kn values, each line's k together (ld apart), flipped and quantized: a plain u8 matrix.
 * A weighted sum that leaves 16 bits wraps. */
void gather_lines(const source *, int64_t line0, int64_t lines, int64_t k0, int64_t kn, uint8_t *out, int64_t ld);
/* Weighted sums need more than 8 bits: the same in s16, not flipped. */
void gather_wide(const source *, int64_t line0, int64_t lines, int64_t k0, int64_t kn, int16_t *out, int64_t ld);

/* lines x kn values as f32, those of a k side by side: A_FLOAT, and B's panels of f32. May write up to 7
 * values past the last. */
void pack_floats(const source *, int64_t line0, int lines, int64_t k0, int64_t kn, float *out);
/* n values of F32, F16 or BF16 as f32. */
void widen_floats(octet_dtype, const void *x, int64_t n, float *y);
/* The range of finite values of lines; 0 and 0 if there are none. */
void lines_range(const source *, int64_t line0, int64_t lines, int64_t k, float *lo, float *hi);

/* Quads of 1 .. 8 lines of bytes; the last quad is zero-filled, or with `compact` holds kn % 4 bytes a line. */
void pack_quads(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn,
                uint8_t flip, bool compact, uint8_t *out);
/* The same in 16 bits, zero-filled: A_WIDE. */
void pack_wide(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn, uint8_t flip, uint16_t *out);
/* One line: A_SPLIT. */
void pack_split(const uint8_t *line, int64_t k_stride, int64_t kn, uint8_t flip, uint8_t *out);
/* s8 panel of `cols` columns, kn values each, compact tail -> DOT_WS's s16 panel, tail zero-filled. */
void widen_panel(const int8_t *panel, int cols, int64_t kn, int16_t *out);
/* sum[i] += the kn values of line i, flipped. */
void add_line_sums(const uint8_t *base, int64_t line_stride, int64_t k_stride, int lines, int64_t kn, uint8_t flip, int32_t *sum);
/* True if some value of the matrix, flipped, is over `limit`; stops at the first. */
bool any_above(const source *, int64_t line0, int64_t lines, int64_t k0, int64_t kn, uint8_t limit);

/* ---- packed B ---- */

enum { BLOB_VERSION = 2, AMAX_LEVELS = 2, KC_MIN = 32, KC_MAX = 2048 };
/* Proofs are kept for two ranges of A: everything, and what fits 7 bits. */
static const int amax_level[AMAX_LEVELS] = { 255, 127 };

typedef struct panel_info {
    uint8_t  dot[AMAX_LEVELS]; /* the fastest dot proven exact for A up to amax_level[] */
    uint16_t values;           /* of k in its residual, for people                     */
} panel_info;

/* The head of a blob; offsets are from its start, 0 where a section is absent. */
typedef struct blob {
    char     magic[8];
    uint32_t version, order;
    uint64_t bytes, checksum; /* of everything, with this field 0 */
    int64_t  n, k;            /* n: columns as packed, b_shape's  */
    int32_t  kc, has_zeros;   /* residual spans are for blocks of kc */
    uint8_t  dot[AMAX_LEVELS]; /* of every panel, where there is no info */
    uint8_t  per_column_scale, per_column_zero;
    uint32_t residual_quads;
    uint64_t panels, sums, scales, zeros, info, spans, res_k, res_w;
    float    scale[NR];       /* broadcast; or see scales */
    int32_t  zero[NR];
    int64_t  given_n, group;
    uint8_t  type, nr, floating, gated; /* as in b_shape */
    uint8_t  reserved[12];
} blob;

static inline int64_t panels_of(int64_t n, int nr) { return (n + nr - 1) >> (nr == NR ? 3 : 4); }
static inline int64_t blob_panels(const blob *b) { return panels_of(b->n, b->nr); }
static inline int     blob_cols(const blob *b, int64_t p) { return (int)min64(b->nr, b->n - p * b->nr); }
/* Whole panels are this far apart; from k = 64 on, a cache line's multiple. */
static inline int64_t panel_stride(int64_t k) { return k >= 64 ? round_up(NR * k, 64) : NR * k; }

/* The most bytes a blob can take; false if that overflows. */
bool packed_bound(const b_shape *, bool zeros_by_column, size_t *bytes);

/* Fills `memory` (packed_bound bytes, 64-byte aligned). search: extract residuals where they pay;
 * without it panels are only classified, which is quick. False: a weighted sum does not fit s8. */
bool pack_b(const source *b, const b_shape *, int32_t kc, const octet_quant *q, bool search, unsigned cpu,
            void *memory, size_t *bytes);
/* Why this is no blob of this shape; NULL if it is one. *corrupt: the checksum alone is wrong. */
const char *blob_refuses(const void *memory, size_t bytes, const b_shape *, bool *corrupt);
/* The original weights, element (j, p) at out[j * line_stride + p * k_stride]. */
void unpack_b(const blob *, void *out, int64_t line_stride, int64_t k_stride);

/* ---- pack_float.c: panels of B that meet A in f32; pack.c calls these ---- */

typedef struct float_layout { int64_t panels, scales, zeros, end, row; } float_layout; /* row: of scales, in floats */
/* Bytes of a whole panel, and of one of `cols` columns. */
int64_t float_panel_bytes(octet_dtype, int64_t k, int cols);
int64_t float_panel_stride(octet_dtype, int64_t k);
float_layout float_lay_out(const b_shape *, bool zeros);
void float_panels(const source *b, const b_shape *, const octet_quant *q, const float_layout *, char *base);
/* Panel p, k0 .. k0+kn-1, of a type other than f32, as f32; what scales do is left out, zero points are taken off.
 * May write up to 7 values past the last. */
void widen_float_panel(const blob *, int64_t p, int64_t k0, int64_t kn, float *out);
void unpack_float(const blob *, const b_shape *, void *out, int64_t line_stride, int64_t k_stride);
void blob_seal(blob *); /* the checksum */
static inline b_shape blob_shape(const blob *b)
{
    const int64_t group = b->group ? b->group : max64(1, b->k);
    return (b_shape){ .type = (octet_dtype)b->type, .floating = b->floating, .gated = b->gated, .nr = b->nr, .n = b->given_n, .k = b->k,
                      .columns = b->n, .group = group, .groups = max64(1, ceil_div(b->k, group)) };
}

static inline const int8_t *blob_panel(const blob *b, int64_t p)
{
    return (const int8_t *)b + b->panels + p * (b->floating ? float_panel_stride((octet_dtype)b->type, b->k) : panel_stride(b->k));
}
static inline panel_info blob_info(const blob *b, int64_t p)
{
    if (b->info) return ((const panel_info *)((const char *)b + b->info))[p];
    return (panel_info){ { b->dot[0], b->dot[1] }, 0 };
}
/* Spans of a panel: all its k first, then each block's, if there are several. Blocks follow one another,
 * so that both ways to run a panel, whole or block by block, find their residual in one piece. */
static inline int64_t span_count(int64_t k, int32_t kc) { return k <= kc ? 1 : 1 + ceil_div(k, kc); }
static inline const residual_span *blob_spans(const blob *b, int64_t p)
{
    return (const residual_span *)(const void *)((const char *)b + b->spans) + p * span_count(b->k, b->kc);
}

enum { RES_W = 4 * NR, RES_K = 4 * (int)sizeof(residual_k) }; /* bytes of a residual quad */
static inline const residual_k *blob_res_k(const blob *b) { return (const residual_k *)(const void *)((const char *)b + b->res_k); }
static inline const int8_t     *blob_res_w(const blob *b) { return (const int8_t *)b + b->res_w; }

/* ---- proof.c: what may be added in 16 bits ---- */

/* Of one packed panel: the largest sum of positive, or of negated negative, weights of a 16-bit lane
 * over 1, 2 and 4 quads. */
void panel_peaks(const int8_t *panel, int cols, int64_t k, int peak[3]);
/* The dot for A up to amax, given the peaks. */
dot_kind proven_dot(const int peak[3], int amax, unsigned cpu);

typedef struct residual {
    residual_k *k;   /* four a quad                           */
    int8_t     *w;   /* 8 columns of four a quad              */
    uint32_t    quads, room;
} residual;
/*
 * Takes the excess out of a panel's weights where that makes it faster, appends what it took to
 * `rest`, and fills span_count() spans. Returns the dots of both levels.
 */
panel_info prove_panel(int8_t *panel, int cols, int64_t k, int32_t kc, unsigned cpu, residual *rest, residual_span *spans);

#endif
