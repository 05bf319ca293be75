/*
 * octet: exact quantized matrix products, generated for each shape at run time.
 *
 * C[m,n] = epilogue( A[m,k] B[k,n] )
 *
 *   integer      A: u8, s8, or a floating type quantized on the way in    B: s8
 *   floating     A: f32, f16, bf16                                        B: f32, f16, bf16
 *   weight-only  A: f32, f16, bf16                                        B: s8, s4, u4
 *
 * Three ways in, from the quickest to write to the quickest to run:
 *
 *   1. octet_gemm_u8s8s32(), octet_gemm_f32() and their sisters: one call, like cblas. B is packed on every call.
 *   2. octet_plan_gemm(), octet_pack(), octet_run(): decide once, pack the constant B once,
 *      run often. A run allocates nothing, generates nothing, and any m may be run.
 *   3. octet_warm(), octet_cache_*(): look after the cache of generated kernels.
 *
 * octet_run_batch() and octet_run_group() run many products in one call.
 * octet/embedding.h has embedding bags, octet/quant.h number formats and arrays, octet/gpu.h products on a GPU.
 *
 * Rules that hold for every function here
 *
 *   Exact       Integer results equal the plainest C, bit for bit, whatever the instruction set,
 *               the number of threads, m, or the values: nothing saturates inside a product.
 *               Sums are kept modulo 2^32, so they are the true sums while |sum| < 2^31: always
 *               for k <= 65,793 with u8 x s8 (255 * 128 * k) and k <= 33,025 with zero points on
 *               both sides (255 * 255 * k). Past that the defined result is the wrapped one; a plan made with
 *               OCTET_REFUSE_OVERFLOW is refused instead.
 *   Same bits   Floating point products are one chain of fused multiply-adds for each element of C, k
 *               rising from 0, on every instruction set: a result does not depend on m, the number of
 *               threads, batching, or whether generated or portable kernels ran. See octet_run.
 *   Failures    A function that can fail returns an octet_status, and octet_why() then tells the
 *               calling thread in one sentence what was wrong. Outputs are untouched unless the
 *               status is OCTET_OK. Nothing prints, aborts, exits, or sets errno.
 *   Structs     Every struct begins with its size. Initialize with the macro of the same name in
 *               capitals: `octet_gemm_desc d = OCTET_GEMM_DESC;`. Zero then means "default" in
 *               every field; a program built against an older header keeps working.
 *   Sizes       64-bit, strides in elements. m, n and k may be 0: with m or n 0 nothing is
 *               written; with k 0 the product is 0 and the epilogue still applies.
 *   Threads     Every object may be used by any number of threads at once, except that it must
 *               not be freed while in use. Plans and packed operands keep their context alive.
 *   Rounding    Floating point steps round to nearest even, whatever MXCSR the caller has set;
 *               the caller's settings are back in place on return. Denormals are kept.
 *   Fork        A child may go on using everything it inherited.
 */
#ifndef OCTET_H
#define OCTET_H

#include <stddef.h>
#include <stdint.h>

#define OCTET_VERSION_MAJOR 0
#define OCTET_VERSION_MINOR 4
#define OCTET_VERSION_PATCH 0

#if defined(__GNUC__)
#define OCTET_API __attribute__((visibility("default")))
#else
#define OCTET_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octet_status {
    OCTET_OK = 0,
    OCTET_EINVAL,       /* an argument breaks its documented contract             */
    OCTET_ENOMEM,       /* an allocation failed; nothing has changed              */
    OCTET_EUNSUPPORTED, /* well-formed, but nothing on this machine computes it   */
    OCTET_EDEVICE,      /* there is no GPU to be had, or its driver failed        */
    OCTET_ECORRUPT      /* a packed blob does not match its checksum              */
} octet_status;

typedef enum octet_dtype {
    OCTET_U8 = 1, /* 0 .. 255                 */
    OCTET_S8,     /* -128 .. 127              */
    OCTET_S32,
    OCTET_F32,
    OCTET_F16,    /* IEEE binary16            */
    OCTET_BF16,   /* the upper half of an f32 */
    OCTET_S4,     /* -8 .. 7; two values a byte, the low four bits first */
    OCTET_U4,     /* 0 .. 15; the same        */
    OCTET_E4M3,   /* fp8 of OCP: 4 exponent bits, no infinity, largest 448      */
    OCTET_E5M2,   /* fp8 of OCP: 5 exponent bits, infinities, largest 57344     */
    OCTET_U2,     /* 0 .. 3; four values a byte, the low two bits first: tables of octet/embedding.h */
    OCTET_S64     /* indices and offsets there                                  */
} octet_dtype;

typedef struct octet_ctx    octet_ctx;    /* allocator, threads, workspaces          */
typedef struct octet_plan   octet_plan;   /* every decision about a product; immutable */
typedef struct octet_packed octet_packed; /* a constant B, laid out; immutable       */

/* The version of the library that runs, as 10000 major + 100 minor + patch. */
OCTET_API int octet_version(void);

/* "OCTET_EINVAL" for OCTET_EINVAL; never NULL. */
OCTET_API const char *octet_status_name(octet_status);

/* Why the last failing octet call of this thread failed, in one sentence; "" before the first. */
OCTET_API const char *octet_why(void);

/* ---- Context ------------------------------------------------------------------------------ */

/* Memory for everything octet keeps (except code pages, its fixed tables and the built-in pool). alloc returns
 * `bytes` bytes at a multiple of `align` (a power of two, at most 64), or NULL. */
typedef struct octet_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *p, size_t bytes);
    void *user;
} octet_allocator;

/* The host's own threads: call task(arg, i) once for each i in 0 .. count-1, on any threads, in
 * any order, and return when all are done. Tasks never wait for one another. */
typedef void (*octet_task)(void *arg, size_t i);
typedef void (*octet_parallel)(void *user, size_t count, octet_task task, void *arg);

typedef struct octet_ctx_opts {
    size_t          size;
    octet_allocator allocator;     /* default: malloc                                           */
    int             threads;       /* tasks a run is split into, 1 .. 256; default 1: none       */
    octet_parallel  parallel;      /* runs them; default: a pool of octet's own (pthreadpool),
                                      made only if threads > 1; OCTET_EUNSUPPORTED without it    */
    void           *parallel_user;
    int             workspaces;    /* runs at once served from the context's own workspaces,
                                      0 .. 64 (0: 4); see octet_workspace_bytes                  */
} octet_ctx_opts;
#define OCTET_CTX_OPTS { sizeof(octet_ctx_opts), { 0, 0, 0 }, 0, 0, 0, 0 }

/* A context. opts may be NULL. Everywhere else a NULL context means the process's own: one
 * thread, malloc, made at first use.
 * OCTET_EINVAL, OCTET_ENOMEM, OCTET_EUNSUPPORTED (threads wanted, built without a pool). */
OCTET_API octet_status octet_ctx_create(const octet_ctx_opts *opts, octet_ctx **out);
/* Gives the context up; it lives on while a plan or packed operand uses it. NULL is fine. */
OCTET_API void octet_ctx_free(octet_ctx *);

/* ---- Plan --------------------------------------------------------------------------------- */

enum { /* octet_gemm_desc.flags */
    OCTET_ACCUMULATE      = 1 << 0, /* add to what C holds; C must be s32, f32, f16 or bf16        */
    OCTET_RELU            = 1 << 1, /* max(., 0), after the chain and what C holds                 */
    OCTET_CLIP            = 1 << 2, /* min(max(., args.clip_lo), args.clip_hi), last               */
    OCTET_NO_FALLBACK     = 1 << 3, /* OCTET_EUNSUPPORTED rather than the slow portable kernels    */
    OCTET_REFUSE_OVERFLOW = 1 << 4, /* OCTET_EUNSUPPORTED if k > 33,025: a sum might wrap          */
    OCTET_DYNAMIC         = 1 << 5, /* A's scale and zero point are found in the call, from the
                                       range of each row or of all of A, as scale_a says           */
    OCTET_REDUCED         = 1 << 6  /* with OCTET_DYNAMIC and u8: 7 bits, 0 .. 127, on which kernels
                                       without VNNI are faster                                     */
};

enum { /* octet_gemm_desc.zero_a, .scale_a */
    OCTET_PER_TENSOR = 0, /* one value                                                              */
    OCTET_PER_ROW    = 1  /* one value for each row of A                                            */
};

/*
 * The chain: up to OCTET_OPS steps on each value of C, in the order given, in f32, in registers.
 * t is the step's operand: a number, a value for each column or row, or an m x n matrix, given at
 * each run in octet_gemm_args.operand. value and value2 are numbers there. Errors against the exact function: SIGMOID,
 * TANH 4e-7 relative (SIGMOID below x = -88: 6.1e-39); SILU 4e-7, GELU_TANH 1e-6 max(|result|, |x| / 1000); GELU 1e-6 absolute below x = -1, 1e-6 relative
 * above. A NaN stays a NaN.
 */
typedef enum octet_op_kind {
    OCTET_OP_ADD = 1,    /* x + value t, one rounding (a scaled residual); OCTET_SCALAR: x + value */
    OCTET_OP_MUL,        /* x t; OCTET_SCALAR: x value                                            */
    OCTET_OP_PRELU,      /* x t where x is negative; OCTET_SCALAR: x value (leaky ReLU)           */
    OCTET_OP_CLIP,       /* min(max(x, value), value2)                                            */
    OCTET_OP_RELU,       /* max(x, 0)                                                             */
    OCTET_OP_GELU,       /* x (1 + erf(x / sqrt 2)) / 2                                           */
    OCTET_OP_GELU_TANH,  /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2                     */
    OCTET_OP_SILU,       /* x / (1 + exp -x)                                                      */
    OCTET_OP_SIGMOID,    /* 1 / (1 + exp -x)                                                      */
    OCTET_OP_TANH,
    /* Gates halve the columns: B's columns 0 .. n/2-1 are the gate, n/2 .. n-1 what it multiplies, as a
     * fused gate-and-up weight has them. C and all that follows in the chain have n/2 columns. One in
     * a chain, n even; before it operands are numbers, by row or by column (n of them).           */
    OCTET_OP_SWIGLU,     /* silu(gate) up      */
    OCTET_OP_GEGLU,      /* gelu(gate) up      */
    OCTET_OP_GEGLU_TANH, /* gelu_tanh(gate) up */
    OCTET_OP_GLU         /* sigmoid(gate) up   */
} octet_op_kind;

enum { /* octet_op.shape */
    OCTET_SCALAR = 0,
    OCTET_PER_N,         /* a value for each column */
    OCTET_PER_M,         /* a value for each row    */
    OCTET_FULL           /* m x n, row-major with leading dimension operand.ld */
};

typedef struct octet_op {
    int         kind;  /* octet_op_kind; 0 ends the chain               */
    int         shape; /* of t, for ADD, MUL and PRELU                  */
    octet_dtype type;  /* of t: OCTET_F32 (default), OCTET_F16, OCTET_BF16; by row only f32 */
} octet_op;
enum { OCTET_OPS = 8 };

typedef struct octet_operand {
    const void *t;      /* of octet_op.type                            */
    int64_t     ld;     /* OCTET_FULL                                  */
    float       value;  /* of ADD with a t, 0 means 1                  */
    float       value2;
} octet_operand;

/*
 * What a kernel is specialised on: change a field and you want another plan. What may change from
 * run to run (m, pointers, leading dimensions, scales) is in octet_gemm_args.
 *
 * A floating point A meets an s8 B quantized, as octet_quantize() does while it is packed,
 * q = clamp(round(x / scale_a) + zero_a) to a_as; or with a_as = OCTET_F32 as it is, and B's integers are
 * widened in registers (weight-only). s4 and u4 are always weight-only.
 */
typedef struct octet_gemm_desc {
    size_t      size;
    int64_t     n, k;                      /* columns of B and C; rows of B                        */
    int64_t     m_hint;                    /* the usual m; 0: unknown. Any m may be run            */
    octet_dtype a;                         /* required: u8, s8, f32, f16, bf16                     */
    octet_dtype b;                         /* required: s8; with a floating a also f32, f16, bf16, s4, u4 */
    octet_dtype c;                         /* required: s32, u8, s8, f32, f16, bf16; of a floating or
                                              weight-only product f32, f16, bf16                   */
    octet_dtype a_as;                      /* floating a and s8 b: OCTET_U8 (default), OCTET_S8 or OCTET_F32 */
    int         trans_a, trans_b, trans_c; /* 1: the matrix lies transposed in memory              */
    unsigned    flags;                     /* OCTET_ACCUMULATE | OCTET_RELU | ...                  */
    int         zero_a, scale_a;           /* OCTET_PER_TENSOR (default) or OCTET_PER_ROW          */
    octet_dtype bias;                      /* 0: none. OCTET_S32: in units of the product, added
                                              before scaling. OCTET_F32: added after scaling; C must
                                              then not be s32. None with a gate: use the chain     */
    int64_t     group;                     /* weight-only: 32, 64 or 128 values of k share a scale and
                                              a zero point; 0: all of k do                         */
    octet_op    chain[OCTET_OPS];          /* after scale and bias; C must not be s32              */
} octet_gemm_desc;
#define OCTET_GEMM_DESC { sizeof(octet_gemm_desc), 0, 0, 0, (octet_dtype)0, (octet_dtype)0, (octet_dtype)0, \
                          (octet_dtype)0, 0, 0, 0, 0, 0, 0, (octet_dtype)0, 0, { { 0, 0, (octet_dtype)0 } } }

/*
 * Decides how such products are computed on this machine. ctx may be NULL.
 * OCTET_EINVAL        a field is out of range, or a size overflows
 * OCTET_EUNSUPPORTED  well-formed, but refused by a flag
 * OCTET_ENOMEM
 */
OCTET_API octet_status octet_plan_gemm(octet_ctx *ctx, const octet_gemm_desc *desc, octet_plan **out);
OCTET_API void octet_plan_free(octet_plan *);

/* ---- Packed operand ----------------------------------------------------------------------- */

/* What B's integers stand for: real = scale * (q - zero). Pointers win over the single values,
 * and are copied. With desc.group they hold ceil(k / group) rows of n values, at least one, the group of k = 0 first.
 * A floating point B has neither. */
typedef struct octet_quant {
    size_t         size;
    float          scale;  /* 0: 1.0                         */
    int32_t        zero;   /* within the range of B's type   */
    const float   *scales; /* n values, one for each column  */
    const int32_t *zeros;  /* n values, one for each column  */
} octet_quant;
#define OCTET_QUANT { sizeof(octet_quant), 0, 0, 0, 0 }

/*
 * Lays B out for the plan's kernels; proves what may be added in 16 bits without saturation, and
 * generates the kernels that a run can reach. The layout does not depend on m: it serves any m.
 *
 *   b     k x n, row-major with leading dimension ldb >= n; with trans_b n x k with ldb >= k,
 *         which is how PyTorch keeps a Linear's weight. May be changed or freed afterwards. Of s4
 *         and u4 two neighbours in a row share a byte, the first in its low four bits; ldb is even.
 *   qb    scales and zero points of B; NULL: scale 1, zero point 0.
 *
 * Takes at most octet_packed_bound(plan) bytes. Integer products: 1.15 k n + 8 n + 4096, plus 4 n for zero
 * points given by column. Others: the bytes of B and of its scales and zero points as f32, with n rounded up to 16 and k to 8,
 * and at most 64 for each 16 columns and 1024 more. With a gate n / 2 counts as rounded up to 4 (integer) or 8. OCTET_EINVAL,
 * OCTET_ENOMEM.
 */
OCTET_API octet_status octet_pack(const octet_plan *plan, const void *b, int64_t ldb,
                                  const octet_quant *qb, octet_packed **out);
/* The same into the caller's memory: `bytes` >= octet_packed_bound(plan), 64-byte aligned, and
 * kept until octet_packed_free. A failure may leave anything in `memory`. */
OCTET_API octet_status octet_pack_into(const octet_plan *plan, const void *b, int64_t ldb, const octet_quant *qb,
                                       void *memory, size_t bytes, octet_packed **out);
/* The most bytes that a packed B of this plan takes, whatever the values. */
OCTET_API size_t octet_packed_bound(const octet_plan *plan);
OCTET_API void octet_packed_free(octet_packed *);

/* A packed operand is a blob without pointers, valid for any machine and any plan of equal n, k,
 * type of B, group and gate that meets B in the same way (integers or f32): store it, and load it where it is needed. */
OCTET_API const void *octet_packed_data(const octet_packed *, size_t *bytes);
/* Checks version, sizes, bounds and checksum, then uses `blob` in place (64-byte aligned, kept
 * until octet_packed_free). OCTET_EINVAL: not for this plan, misaligned, truncated, of another
 * version or byte order. OCTET_ECORRUPT: the checksum disagrees. The checksum guards against
 * accidents, not against an adversary. OCTET_ENOMEM. */
OCTET_API octet_status octet_packed_load(const octet_plan *plan, const void *blob, size_t bytes, octet_packed **out);
/* Writes the original weights back, every value as it was given: k x n with ldb >= n, or with
 * trans n x k with ldb >= k. */
OCTET_API octet_status octet_unpack(const octet_packed *, int trans, void *b, int64_t ldb);

/* ---- Run ---------------------------------------------------------------------------------- */

/* rows i .. i + rows - 1, columns j .. j + cols - 1 of C are finished; every value of C is in one piece.
 * Called while they are in the cache, by whichever thread computed them. */
typedef void (*octet_tile_done)(void *user, int64_t i, int64_t j, int64_t rows, int64_t cols);

typedef struct octet_gemm_args {
    size_t              size;
    int64_t             m;            /* rows of A and C                                              */
    const void         *a;            /* m x k, lda >= k; with trans_a k x m, lda >= m                */
    int64_t             lda;
    const octet_packed *b;
    void               *c;            /* m x n, ldc >= n; with trans_c n x m, ldc >= m.
                                         Shares no byte with A, bias, scales or B; A and C may be
                                         columns of one buffer of equal pitch                         */
    int64_t             ldc;
    const void         *bias;         /* n values of desc.bias                                        */
    float               scale_a;      /* of A; 0: 1.0                                                 */
    int32_t             zero_a;       /* of A, within the range of its (quantized) type               */
    const float        *scale_a_rows; /* m values, with OCTET_PER_ROW                                 */
    const int32_t      *zero_a_rows;  /* m values, with OCTET_PER_ROW                                 */
    float               scale_c;      /* of a u8 or s8 C, at least 2^-126; 0: 1.0                     */
    int32_t             zero_c;       /* of a u8 or s8 C, within its range                            */
    float               clip_lo, clip_hi; /* with OCTET_CLIP, in C's real units; lo <= hi             */
    void               *workspace;    /* octet_workspace_bytes, 64-byte aligned, one for each run in
                                         flight; NULL: the context's own                              */
    size_t              workspace_bytes;
    octet_operand       operand[OCTET_OPS]; /* of the chain's steps, in its order                       */
    const void         *sums;         /* m x n, s32 for integer products and f32 for others, row-major with
                                         ld_sums: what the product is added to, in its own units, before
                                         anything else; NULL: 0. With k = 0 the epilogue alone is run on
                                         them. Shares no byte with C unless it is C, of equal type and ld */
    int64_t             ld_sums;
    octet_tile_done     done;         /* called for each finished piece of C; NULL: not                 */
    void               *done_user;
} octet_gemm_args;
#define OCTET_GEMM_ARGS { sizeof(octet_gemm_args), 0, 0, 0, 0, 0, 0, 0, 0.0f, 0, 0, 0, 0.0f, 0, 0.0f, 0.0f, 0, 0, \
                          { { 0, 0, 0.0f, 0.0f } }, 0, 0, 0, 0 }

/*
 * Integer products: C[i][j], with  raw = sum over p of (A[i][p] - zero_a[i]) (B[p][j] - zero_b[j])   modulo 2^32:
 *
 *   C s32           act( raw + bias_s32[j] + C_old[i][j] )                  modulo 2^32
 *   C f32 f16 bf16  act( chain(real) + C_old[i][j] ), rounded to C's type
 *   C u8 s8         clamp( round( act(chain(real)) / scale_c ) + zero_c )   to the range of the type
 *
 *   real = (f32(raw + bias_s32[j]) * scale_b[j]) * scale_a[i] + bias_f32[j]
 *
 * Others: C f32 f16 bf16 as above, with
 *
 *   real = sum + bias_f32[j]                            B f32, f16, bf16
 *   real = sum * scale_b[j] + bias_f32[j]               B s8, s4, u4 without group
 *   real = fma over groups g of (sum_g, scale_b[g][j], .) + bias_f32[j]       with group
 *
 *   sum (of group g) = fma(a[k-1], b[k-1], ... fma(a[1], b[1], fma(a[0], b[0], 0)) ...)
 *
 * over its values of k, a and b being A[i][p] and B[p][j] (- zero_b) widened to f32, which is exact. Whatever the
 * order that kernels, threads and blocks take, each element is this one chain, so results are equal bit for bit
 * (a NaN's sign and payload excepted) on every machine. With u = 2^-24 and S = sum over p of |a b|, in the
 * absence of overflow and underflow
 *
 *   | sum - exact | <= k u / (1 - k u) S       then one rounding for each step after it
 *
 * and a C of f16 or bf16 adds half a unit in its last place: 2^-11, 2^-8 relative. Denormals are kept.
 *
 * OCTET_DYNAMIC: scale and zero point of a row (of all of A) as octet_range() and octet_choose_quant() give them, u8 to
 * 0 .. 255 (0 .. 127 with OCTET_REDUCED), s8 symmetric to -127 .. 127.
 *
 * each * and + one f32 operation rounded to nearest even, / scale_c a multiplication by
 * (1.0f / scale_c); act is ReLU, then clip. For an integer C a NaN becomes the least value that act
 * and the type allow; a floating point C keeps it.
 * quant/requant.h has it in C. For an s32 C clip bounds are rounded to integers.
 *
 * No memory is allocated and no code generated. OCTET_EINVAL leaves C as it was.
 */
OCTET_API octet_status octet_run(const octet_plan *plan, const octet_gemm_args *args);

/* Bytes of workspace with which a run of at most max_m rows on `threads` threads is fastest (a
 * smaller or absent one never makes a run fail, only smaller blocks). */
OCTET_API size_t octet_workspace_bytes(const octet_plan *plan, int64_t max_m, int threads);

/* ---- Many products in one call ---- */

/*
 * `count` products of one plan, i = 0 .. count-1. Where a vector of pointers is given, it wins over the stride
 * (in elements, from the pointers in args; 0: the same for all, a broadcast). Work is divided over threads across
 * products. Bias, operands, sums and values by row are the same for all; no product may write what another reads or
 * writes (checked only where all share it). m_offsets makes it a mixture of experts: product i has rows m_offsets[i] .. m_offsets[i+1]-1 of A, C,
 * and of everything by row; count + 1 values that do not fall, the strides are then unused.
 * Pieces reported to args.done have rows i m + row (from m_offsets: as in C).
 */
typedef struct octet_batch {
    size_t                     size;
    int64_t                    count;
    int64_t                    stride_a, stride_c;
    const void *const         *a;
    void *const               *c;
    const octet_packed *const *b;         /* NULL: args.b for all */
    const int64_t             *m_offsets;
} octet_batch;
#define OCTET_BATCH { sizeof(octet_batch), 0, 0, 0, 0, 0, 0, 0 }
OCTET_API octet_status octet_run_batch(const octet_plan *plan, const octet_gemm_args *args, const octet_batch *batch);

/* Any products: free m, n, k, types and epilogues; all plans of one context, args of this header's size. Each is checked before
 * anything is written; no product may write what another reads or writes. workspace is that of the first. */
typedef struct octet_gemm_item {
    const octet_plan      *plan;
    const octet_gemm_args *args;
} octet_gemm_item;
OCTET_API octet_status octet_run_group(const octet_gemm_item *items, size_t count);

/* The kernel, panel kinds and blocking, for people:
 * "u8s8s32-avx2 w 12% t2 88% residual 0.4%, nr=8 kc=2048 threads=1". packed may be NULL.
 * Valid until the same thread calls it again. */
OCTET_API const char *octet_explain(const octet_plan *plan, const octet_packed *packed);

/* ---- One call, like cblas ----------------------------------------------------------------- */

/*
 * c[m,n] = op(a)[m,k] op(b)[k,n], row-major; op transposes where trans_ is 1. On the process's own
 * context; plans are cached. B is packed in every call: for a constant B use octet_pack.
 */
OCTET_API octet_status octet_gemm_u8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                          const uint8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                          int32_t *c, int64_t ldc);
OCTET_API octet_status octet_gemm_s8s8s32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                          const int8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                          int32_t *c, int64_t ldc);

/* Quantization of the one-call products. scale is that of the product: scale_a * scale_b, divided
 * by scale_c where C is an integer. */
typedef struct octet_requant {
    size_t         size;
    float          scale;                  /* 0: 1.0                                     */
    const float   *scales;                 /* n values, one for each column, or NULL     */
    int32_t        zero_a, zero_b, zero_c; /* each within the range of its type          */
    const int32_t *bias;                   /* n values, added before scaling, or NULL    */
    int            relu;                   /* 1: max(., zero_c), or 0 where C is f32     */
} octet_requant;
#define OCTET_REQUANT { sizeof(octet_requant), 0, 0, 0, 0, 0, 0, 0 }

/* As above with a requantized (u8, s8) or dequantized (f32) C. q may be NULL. */
OCTET_API octet_status octet_gemm_u8s8u8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                         const uint8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                         uint8_t *c, int64_t ldc, const octet_requant *q);
OCTET_API octet_status octet_gemm_s8s8s8(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                         const int8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                         int8_t *c, int64_t ldc, const octet_requant *q);
OCTET_API octet_status octet_gemm_u8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                          const uint8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                          float *c, int64_t ldc, const octet_requant *q);
OCTET_API octet_status octet_gemm_s8s8f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                          const int8_t *a, int64_t lda, const int8_t *b, int64_t ldb,
                                          float *c, int64_t ldc, const octet_requant *q);

/* Floating point: A, B and C of one type. f16 and bf16 are given as uint16_t. C shares no byte with A or B. */
OCTET_API octet_status octet_gemm_f32(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                      const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);
OCTET_API octet_status octet_gemm_f16(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                      const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc);
OCTET_API octet_status octet_gemm_bf16(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                       const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc);

/* f32 in and out, int8 between: A quantized to u8 row by row with the range each row has (OCTET_DYNAMIC), B's
 * columns scaled by q->scale(s); q->zero_b; bias is not scaled: s32 in units of the product; zero_a and zero_c are not used. q may
 * be NULL. */
OCTET_API octet_status octet_gemm_f32_dynamic(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                              const float *a, int64_t lda, const int8_t *b, int64_t ldb,
                                              float *c, int64_t ldc, const octet_requant *q);

/* Batches of small f32 products, B not packed: problem i has a + i stride_a, b + i stride_b, c + i stride_c
 * (a stride of 0 in A or B: the same for all), or with octet_gemm_f32_batch_pointers a[i], b[i], c[i]. A row-major B of up to
 * 256 KiB is read where it lies; others are packed, in a workspace or, if they are larger, in memory of the call. */
OCTET_API octet_status octet_gemm_f32_batch(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                            const float *a, int64_t lda, int64_t stride_a,
                                            const float *b, int64_t ldb, int64_t stride_b,
                                            float *c, int64_t ldc, int64_t stride_c, int64_t count);
OCTET_API octet_status octet_gemm_f32_batch_pointers(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                                                     const float *const *a, int64_t lda, const float *const *b, int64_t ldb,
                                                     float *const *c, int64_t ldc, int64_t count);

/* ---- The cache of generated kernels ------------------------------------------------------- */

/* One cache serves the process. It never holds more than limit_bytes of code, apart from kernels
 * in use by plans; the least recently made kernels without a plan go first. */
typedef struct octet_cache_stats {
    size_t   size;
    size_t   kernels, in_use;             /* held now; of them used by plans              */
    size_t   code_bytes, limit_bytes;
    uint64_t hits, generated, evicted;    /* since the process began                      */
    int      executable;                  /* 1: code can be run; 0: portable kernels only */
} octet_cache_stats;
#define OCTET_CACHE_STATS { sizeof(octet_cache_stats), 0, 0, 0, 0, 0, 0, 0, 0 }

OCTET_API octet_status octet_cache_info(octet_cache_stats *out);
/* Evicts until at most this many bytes of code are held, and keeps to it. Default 4 MiB, at most
 * 64 MiB. */
OCTET_API octet_status octet_cache_limit(size_t bytes);
/* Generates every kernel that plans of these products can reach, so that no later plan or pack has
 * to. descs are `count` structs, each `stride` bytes after the one before. Kernels without a plan
 * may be evicted again. */
OCTET_API octet_status octet_warm(const octet_gemm_desc *descs, size_t stride, size_t count);

/*
 * Environment, read once:
 *   OCTET_ISA=plain|avx2   products use no more than this (it can only take away)
 *   OCTET_JIT=perf,gdb     name generated kernels in /tmp/perf-PID.map, and to the debugger
 */

#ifdef __cplusplus
}
#endif
#endif
