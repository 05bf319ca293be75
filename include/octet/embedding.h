/*
 * Embedding bags: rows of a table gathered by index, weighted, and pooled.
 *
 *   out[b][j] = pool over the indices i of bag b of  w[i] * value(table[row(i)][j])
 *
 *   octet_plan_bags   one kernel generated for each table's description; a plan may have many tables
 *   octet_run_bags    all tables in one call: many formats, dims, poolings, batch sizes
 *   octet_update_bags the backward pass and the optimizer's step in one, exact and deterministic
 *   octet_gemm_bags   pooled rows straight into the packed A of a product
 *   octet_table_alloc memory for tables, in huge pages where the system has them
 *
 * Rows
 *
 *   OCTET_F32 F16 BF16 E4M3 E5M2   dim values
 *   OCTET_U8 U4 U2                 dim integers q of 8, 4, 2 bits, low bits first (low nibble first), the row's last
 *                                  byte filled up, and a scale and a bias, in this order: value = scale q + bias.
 *
 *     layout                  params       as in
 *     OCTET_ROWS_BEHIND       f32 (U8)     FBGEMM's CPU tables, octet_rows_quantize       | q ... | scale | bias |
 *     OCTET_ROWS_BEHIND       f16 (U4, U2) the same
 *     OCTET_ROWS_IN_FRONT     f16          FBGEMM's table-batched tables                  | scale | bias | q ... |
 *     either                  f16 or f32   with desc.params
 *
 *   Rows begin row_bytes apart (0: one follows the other); no byte of a row needs any alignment but that of its
 *   floating type.
 *
 * What is computed, in f32, each operation rounded once, i rising:
 *
 *   floating rows  sum = fma(w_n, x_n, ... fma(w_1, x_1, +0)),  without weights  sum = sum + x_i
 *   integer rows   acc = fma(w_i scale_i, q_i, acc),  beta = fma(w_i, bias_i, beta),  sum = acc + beta
 *                  without weights fma(scale_i, q_i, acc), beta + bias_i
 *   OCTET_MEAN     sum (1 / f32(length))
 *   OCTET_MAX      the largest value, scale q + bias in two roundings; of equals (+0, -0) the first; any NaN makes a NaN
 *   OCTET_NONE     no bags: each index makes a row: x, w x, scale q + bias, (w scale) q + (w bias)
 *
 * Results are equal bit for bit (a NaN's sign and payload excepted) whatever the instruction set, the number of threads and
 * the tables of the call. With S = sum of |w x| (|w scale q| + |w bias|), n entries and u = 2^-24, sums are within
 * (n + 3) u / (1 - (n + 3) u) S of the exact ones, in the absence of overflow and underflow; f16 and bf16 outputs round once more.
 *
 * Which entries count
 *
 *   an empty bag, or one of skipped entries alone     +0 for sum, mean and max
 *   duplicates                                        each time
 *   padding (OCTET_BAG_PADDING: index == padding)     leaves sum and divisor alone, as in PyTorch
 *   pruned (OCTET_BAG_REMAP: remapped to -1, or an    leaves the sum alone, counts in the divisor, as in FBGEMM
 *           index of -1)
 *   bad, with OCTET_BAD_SKIP                          as pruned
 *   OCTET_MEAN with weights                           sum(w x) / length
 *   OCTET_WEIGHT_POSITION                             weight p goes to the p-th index of each bag, whatever is skipped
 *   OCTET_NONE                                        a skipped index makes a row of +0
 *
 * An index is good if it is one of the table's rows; with OCTET_BAG_REMAP if it is -1, or within the remap array and its
 * entry there is -1 or one of the table's rows. Inputs are never modified; rows of outputs between bags' values are not written.
 */
#ifndef OCTET_EMBEDDING_H
#define OCTET_EMBEDDING_H

#include "../octet.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octet_pooling { OCTET_SUM = 0, OCTET_MEAN, OCTET_MAX, OCTET_NONE } octet_pooling;

enum { /* octet_bag_desc.weights */
    OCTET_UNWEIGHTED = 0,
    OCTET_WEIGHT_EACH,     /* a weight for each index (PyTorch's per_sample_weights)          */
    OCTET_WEIGHT_POSITION  /* a weight for each place in a bag                                */
};

/* What becomes of an index that is not good. Checks cost nothing that can be measured. */
typedef enum octet_bad_index {
    OCTET_BAD_ERROR = 0, /* OCTET_EINVAL naming the lowest table and bag, whatever the threads; the bags of that table before it are
                            complete, the rest of all outputs unspecified (args.validate_first: nothing is written) */
    OCTET_BAD_SKIP,      /* contributes nothing, is counted in the report                             */
    OCTET_BAD_ROW0,      /* row 0 instead, counted (as FBGEMM's bounds check, but indices stay)       */
    OCTET_BAD_TRUST      /* not checked: a bad index reads wild memory                                */
} octet_bad_index;

enum { /* octet_bag_desc.flags */
    OCTET_BAG_LENGTHS     = 1 << 0, /* `offsets` holds the length of each bag instead                           */
    OCTET_BAG_LAST_OFFSET = 1 << 1, /* offsets has bags + 1 entries (PyTorch: include_last_offset), else bags   */
    OCTET_BAG_SLICE       = 1 << 2, /* offsets, with OCTET_BAG_LAST_OFFSET, are a piece of longer ones (FBGEMM's table-batched
                                       [T B + 1]): the first need not be 0, nor the last the number of indices      */
    OCTET_BAG_PADDING     = 1 << 3, /* octet_bag_table.padding is skipped                                       */
    OCTET_BAG_REMAP       = 1 << 4, /* indices go through octet_bag_table.remap                                 */
    OCTET_BAG_NO_FALLBACK = 1 << 5  /* OCTET_EUNSUPPORTED rather than the slow portable kernel                  */
};

/* One table and how bags of it are pooled: what a kernel is generated for. */
typedef struct octet_bag_desc {
    size_t      size;
    octet_dtype table;   /* required                                                                        */
    int64_t     dim;     /* required: values of a row, 1 .. 2^20                                            */
    int         layout;  /* of U8, U4, U2; 0: OCTET_ROWS_BEHIND                                             */
    octet_dtype params;  /* type of scale and bias: OCTET_F32, OCTET_F16; 0: as octet_rows_quantize has it  */
    int         pooling; /* octet_pooling                                                                   */
    int         weights;
    octet_dtype index;   /* OCTET_S64 (0), OCTET_S32                                                        */
    octet_dtype offset;  /* OCTET_S64 (0), OCTET_S32; of lengths, too                                       */
    octet_dtype out;     /* OCTET_F32 (0), OCTET_F16, OCTET_BF16; OCTET_U8: rows of octet_rows_quantize(8, OCTET_ROWS_BEHIND),
                            then dim is at most 1024 and ld_out counts bytes, dim + 8 at least                  */
    int         bad_index;
    unsigned    flags;
} octet_bag_desc;
#define OCTET_BAG_DESC { sizeof(octet_bag_desc), (octet_dtype)0, 0, 0, (octet_dtype)0, 0, 0, (octet_dtype)0, (octet_dtype)0, (octet_dtype)0, 0, 0 }

typedef struct octet_bag_plan octet_bag_plan; /* immutable */

/* A plan for `tables` tables, descs being so many structs each `stride` bytes after the one before. A run allocates and
 * generates nothing. OCTET_EINVAL: a field is none of the above, weighted OCTET_MAX. OCTET_EUNSUPPORTED, OCTET_ENOMEM. */
OCTET_API octet_status octet_plan_bags(octet_ctx *ctx, const octet_bag_desc *descs, size_t stride, size_t tables, octet_bag_plan **out);
OCTET_API void octet_bag_plan_free(octet_bag_plan *); /* NULL is fine */
/* "bag-u8-sum-64-s64-f32 avx2, rows of 72 bytes, 1 slice" of one table; valid until the same thread calls it again. */
OCTET_API const char *octet_explain_bags(const octet_bag_plan *plan, size_t table);
/* Bytes from one row to the next where no row_bytes is given; 0 for a description that has none. */
OCTET_API size_t octet_bag_row_bytes(const octet_bag_desc *desc);

/* The data of one table in one run. */
typedef struct octet_bag_table {
    size_t         size;
    const void    *table;       /* rows x row_bytes; of a floating type aligned to it                          */
    int64_t        rows;        /* 0 is legal                                                                  */
    int64_t        row_bytes;   /* 0: octet_bag_row_bytes                                                      */
    const void    *indices;     /* `count` of desc.index                                                       */
    int64_t        count;
    const void    *offsets;     /* of desc.offset; first 0, never falling, last (if it is there) count; without it, in 32 bits, count < 2^31. With OCTET_BAG_LENGTHS `bags`
                                   values that are not negative, of sum count. OCTET_NONE: not read            */
    int64_t        bags;        /* OCTET_NONE: not read: count                                                 */
    const float   *weights;     /* OCTET_WEIGHT_EACH: count; OCTET_WEIGHT_POSITION: weight_count, no less than the longest bag has */
    int64_t        weight_count;
    int64_t        padding;     /* OCTET_BAG_PADDING                                                           */
    const int32_t *remap;       /* OCTET_BAG_REMAP: remap_rows entries, -1 where a row is pruned               */
    int64_t        remap_rows;
    void          *out;         /* bags x dim, bag b at out + b ld_out. Tables side by side: pointers into one row, ld_out its
                                   length. Shares no byte with inputs of this table; not checked between tables */
    int64_t        ld_out;      /* in values (OCTET_U8: bytes), at least dim                                   */
} octet_bag_table;
#define OCTET_BAG_TABLE { sizeof(octet_bag_table), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What a run met, where somebody asks. */
typedef struct octet_bag_report {
    size_t  size;
    int64_t bad;      /* with OCTET_BAD_SKIP, _ROW0: how many indices were bad                                   */
    int64_t table, bag, entry; /* after OCTET_EINVAL for an index, an offset that falls or passes count, or too few weights: where; entry
                                  counts from the bag's first, -1: the bag itself. Else -1                        */
    int64_t value;    /* the index there; or where the bag ends, or its length                                    */
} octet_bag_report;
#define OCTET_BAG_REPORT { sizeof(octet_bag_report), 0, 0, 0, 0, 0 }

typedef struct octet_bag_args {
    size_t                 size;
    const octet_bag_table *tables;         /* one for each table of the plan                                      */
    size_t                 stride;         /* bytes from one to the next; 0: sizeof(octet_bag_table)              */
    int                    validate_first; /* 1: every index and offset is read once beforehand (0.3 .. 1 ns each), so that an error
                                              leaves outputs as they were                                         */
    int                    ahead;          /* rows prefetched ahead; 0: by the size of a row                      */
    octet_bag_report      *report;         /* may be NULL                                                         */
} octet_bag_args;
#define OCTET_BAG_ARGS { sizeof(octet_bag_args), 0, 0, 0, 0, 0 }

/* Runs every table. Work is divided over the context's threads by indices, not by bags; a bag is never cut. No memory is
 * allocated. OCTET_EINVAL: an argument, an offset or (as desc.bad_index says) an index breaks its contract; outputs may be
 * partly written only where offsets or indices were at fault. */
OCTET_API octet_status octet_run_bags(const octet_bag_plan *plan, const octet_bag_args *args);

/* ---- Into a product ----------------------------------------------------------------------------- */

/*
 * octet_run with pooled rows for A: A[m, k] has the tables' values side by side, k the sum of their dims and m the bags that each
 * of them has. Blocks of rows are pooled into cache and packed (quantized, as the plan says) from there; all of A is never in
 * memory. The plan's A must be f32 without trans_a, the bags' outputs f32; args->a, args->lda, and the tables' out, ld_out are not
 * read. Both plans of one context; k at most 8192, tables 256; OCTET_DYNAMIC by row. C is the same, bit for bit, as that of octet_run_bags and octet_run. Where bags are at fault C is
 * partly written, unless validate_first.
 */
OCTET_API octet_status octet_gemm_bags(const octet_plan *plan, const octet_gemm_args *args, const octet_bag_plan *bags, const octet_bag_args *bag_args);

/* ---- Training ------------------------------------------------------------------------------------ */

typedef enum octet_optimizer {
    OCTET_SGD = 1,      /* x = fma(-lr, g, x)                                                                           */
    OCTET_ADAGRAD,      /* h = fma(g, g, h);  x = fma(-lr, g / (sqrt(h) + eps), x)           state: h, rows x dim        */
    OCTET_ADAGRAD_ROWS, /* h = h + S / dim;   x = fma(-(lr / (sqrt(h) + eps)), g, x)         state: h, a value a row     */
    OCTET_ADAM          /* m = fma(beta1, m, (1 - beta1) g);  v = fma(beta2, v, ((1 - beta2) g) g);
                           x = fma(-lr / (1 - beta1^step), m / (sqrt(v / (1 - beta2^step)) + eps), x)
                                                                                             state: m; state2: v; rows x dim */
} octet_optimizer;

/* What an update changes of one table. */
typedef struct octet_bag_step {
    size_t       size;
    void        *table;   /* as octet_bag_table.table, which is not read here                                       */
    const float *grad;    /* of the loss by each pooled value: bags x dim (OCTET_NONE: count x dim), ld_grad apart   */
    int64_t      ld_grad;
    float       *state, *state2;
} octet_bag_step;
#define OCTET_BAG_STEP { sizeof(octet_bag_step), 0, 0, 0, 0, 0 }

typedef struct octet_bag_update {
    size_t                 size;
    const octet_bag_table *tables;    /* as for octet_run_bags; table, out and ld_out are not read */
    size_t                 stride;    /* 0: sizeof(octet_bag_table)                                */
    const octet_bag_step  *steps;
    size_t                 step_stride;  /* 0: sizeof(octet_bag_step)                              */
    int                    optimizer; /* octet_optimizer                                           */
    float                  lr, eps, beta1, beta2, weight_decay; /* 0 each means 0 */
    int64_t                step;      /* OCTET_ADAM: 1, 2, ...                                     */
    int                    stochastic; /* 1: f16, bf16 and u8 tables are rounded up or down at random, so that the expected value
                                          is exact; draws depend on seed, row and column alone      */
    uint64_t               seed;      /* another one for each step                                 */
    void                  *workspace; /* octet_update_bags_bytes, 64-byte aligned                  */
    size_t                 workspace_bytes;
    octet_bag_report      *report;
} octet_bag_update;
#define OCTET_BAG_UPDATE { sizeof(octet_bag_update), 0, 0, 0, 0, 0, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, 0 }

/*
 * The backward pass of octet_run_bags and one step of the optimizer, exact: the gradients of each row are added up first, in the
 * order in which its indices stand, then the row is updated once; rows that no index names stay untouched.
 *
 *   g = fma(c_n, grad[bag n], ... fma(c_2, grad[bag 2], c_1 grad[bag 1])),  c = weight (1 / f32(length)), each as far as the plan has it
 *   g = fma(weight_decay, x, g)          where weight_decay is not 0
 *   S = sum of g_j^2: eight chains of fma over j = l, l + 8, ..., l = 0 .. 7, then joined l with l + 4, l + 2, l + 1
 *
 * Rows are read as f32; f16 and bf16 are rounded to nearest even (or see stochastic). A u8 row gets a new scale and bias as
 * octet_rows_quantize gives them, and its values on that grid. The same bits whatever the number of threads.
 *
 * Every index and offset is checked before anything changes: OCTET_EINVAL leaves all tables as they were (OCTET_BAD_SKIP and _ROW0 as
 * above; _TRUST as _SKIP: a row would be written). OCTET_EUNSUPPORTED: OCTET_MAX; tables of E4M3, E5M2, U4, U2; more than 2^32 - 1 rows or bags. Gradients, states and tables must
 * not overlap; one table may not be updated twice in a call.
 */
OCTET_API octet_status octet_update_bags(const octet_bag_plan *plan, const octet_bag_update *update);
/* Workspace for tables of at most max_count indices; about 32 bytes an index. */
OCTET_API size_t octet_update_bags_bytes(const octet_bag_plan *plan, int64_t max_count);

/* ---- Memory for tables --------------------------------------------------------------------------- */

enum { OCTET_PAGES_SMALL = 0, OCTET_PAGES_SOME_HUGE, OCTET_PAGES_HUGE };

/* Zeroed memory straight from the system, at a multiple of 2 MiB, in huge pages where it lets us: reserved ones (MAP_HUGETLB) or
 * transparent ones (madvise). Random rows then miss the TLB less. *pages (may be NULL) tells what came of it, as the kernel's own account
 * of the memory has it. OCTET_ENOMEM; OCTET_EINVAL: bytes 0 or more than 2^47. */
OCTET_API octet_status octet_table_alloc(size_t bytes, void **out, int *pages);
OCTET_API void octet_table_free(void *table, size_t bytes); /* bytes as they were asked for; NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
