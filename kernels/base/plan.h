/* The objects behind the public handles, as the rooms of kernels/ share them. */
#ifndef OCTET_PLAN_H
#define OCTET_PLAN_H

#include <stdatomic.h>

#include "base.h"

enum { WORKSPACES_MAX = 64, THREADS_MAX = 256 };

struct octet_ctx {
    atomic_int      refs;
    octet_allocator allocator;
    int             threads;
    octet_parallel  parallel; /* NULL: tasks run one after another on the caller */
    void           *parallel_user;
    void           *pool;     /* of octet's own, or NULL */
    /* Workspaces of the context's own, made with the first plan: slot i is at memory + i * bytes. */
    int             workspaces;
    size_t          workspace_bytes;
    _Atomic(uint8_t *) memory;
    atomic_uchar    busy[WORKSPACES_MAX];
};

/* NULL -> the process's own. Adds a reference; NULL without memory. */
octet_ctx *ctx_hold(octet_ctx *);
void       ctx_drop(octet_ctx *);
/* Makes the workspaces if there are none yet. */
bool       ctx_prepare(octet_ctx *);
/* A workspace nobody uses, or -1. */
int        ctx_take_workspace(octet_ctx *);
void       ctx_return_workspace(octet_ctx *, int slot);
/* Runs task(arg, 0 .. count-1). */
void       ctx_parallel(const octet_ctx *, size_t count, octet_task task, void *arg);

/* A built-in pool, if the library has one; see parallel.c. */
bool  pool_create(int threads, octet_parallel *run, void **user);
void  pool_destroy(void *user);

/* Block sizes; 0: from the caches. Tests set them so that small problems cross every border. */
typedef struct blocking {
    int32_t kc;     /* values of k in a block, a multiple of 16, at least 32 */
    int64_t mc;     /* rows of A packed together                            */
    int64_t panels; /* of B in a block                                      */
    int64_t a_bytes; /* of packed A in a block                              */
    int32_t kc_float; /* kc of floating products                            */
    bool    kc_given; /* by a test: floating products too are cut there     */
} blocking;

/* B as it is packed: panels of nr columns, each of all k. A gate interleaves the halves of n, so that a panel holds
 * nr/2 columns of the gate and then the nr/2 that they multiply, and pads both to whole panels. */
typedef struct b_shape {
    octet_dtype type;
    bool        floating;      /* A meets B in f32                                 */
    bool        gated;
    int         nr;
    int64_t     n, k, columns; /* as given; columns with the padding of a gate     */
    int64_t     group, groups; /* values of k that share a scale (all: k), of which there are groups */
    int64_t     stride;        /* bytes from one whole panel to the next           */
} b_shape;

/* The line of the given B that packed column j is, or -1 for padding. */
static inline int64_t b_line(const b_shape *s, int64_t j)
{
    if (!s->gated) return j;
    const int64_t half = s->nr / 2, at = j / s->nr * half + j % half;
    return at >= s->n / 2 ? -1 : j % s->nr < half ? at : s->n / 2 + at;
}

/* The generated kernels of a plan, for B without and with zero points. */
typedef struct kernel_set kernel_set;
/* What a plan and a packed operand of a GPU have besides (kernels/gpu/device.h). */
typedef struct gpu_plan   gpu_plan;
typedef struct gpu_packed gpu_packed;

struct octet_plan {
    atomic_int      refs;
    octet_ctx      *ctx;
    octet_gemm_desc desc;
    blocking        blocks;
    b_shape         b;
    int64_t         out_n;     /* columns of C: n, or with a gate half of it */
    uint8_t         chain[OCTET_OPS]; /* as in kernel_spec                   */
    int             steps;     /* of the chain                               */
    int             dot;       /* floating: the kernels that B's type needs  */
    unsigned        cpu;       /* CPU_* bits in use; 0: the portable kernels */
    bool            any_view;  /* B of any kind meets A of 16 bits: W everywhere it may go */
    const struct format *a, *a_as, *c; /* of A as it comes and as it meets B, of C */
    bool            zero_rows; /* a zero point for each row of A, given or found */
    bool            floats;    /* some step is in floating point             */
    bool            quick;     /* B changes with every call: no search for residuals       */
    kernel_set     *sets;      /* 2 */
    gpu_plan       *gpu;       /* NULL: of the CPU */
};

struct octet_packed {
    octet_plan       *plan;
    const struct blob *blob;
    void             *memory;  /* to free, or NULL: the caller's */
    size_t            memory_bytes;
    unsigned          dots[2]; /* which dots the panels ask for, by level of A: bits 1 << dot_kind */
    bool              places;  /* A may be read where it lies                                      */
    bool              portable; /* though the plan has kernels, this operand's were not to be had  */
    gpu_packed       *gpu;      /* NULL: of the CPU; else blob is NULL                            */
};

/* With blocks given; octet_plan_gemm is this with zeros. */
octet_status plan_create(octet_ctx *, const octet_gemm_desc *, blocking, bool any_view, bool quick, octet_plan **);
octet_plan  *plan_hold(const octet_plan *);

/* The first promise of octet.h that is broken, as a sentence; NULL if none. Of a description, a B that is to be packed, the arguments
 * of a run on the CPU and on a GPU. */
const char *gemm_breach(const octet_gemm_desc *);
const char *b_breach(const octet_plan *, const void *b, int64_t ldb);
/* B's scales and zero points, in this version's struct; on the CPU each zero point is checked. */
octet_status quant_check(const char *who, const octet_plan *, const octet_quant *given, octet_quant *q);
const char *args_breach(const octet_plan *, const octet_gemm_args *);
const char *gpu_args_breach(const octet_plan *, const octet_gemm_args *);
/* The same of a batch, each of whose products is checked; w: the batch, in this version's struct. */
octet_status batch_check(const char *who, const octet_plan *, const octet_gemm_args *, const octet_batch *, octet_batch *w);
/* The arguments of product i as a run of its own; y holds those of another, or x's. */
void batch_args(const octet_plan *, const octet_gemm_args *x, const octet_batch *, int64_t i, octet_gemm_args *y);

static inline bool is_floating(octet_dtype t) { return t == OCTET_F32 || t == OCTET_F16 || t == OCTET_BF16; }
/* The type A has when it meets B: its own, or what it is quantized to, or f32. */
static inline octet_dtype met_as(const octet_gemm_desc *d)
{
    if (!is_floating(d->a)) return d->a;
    if (d->b != OCTET_S8) return OCTET_F32;
    return d->a_as ? d->a_as : OCTET_U8;
}
static inline octet_dtype plan_a_type(const octet_plan *p) { return met_as(&p->desc); }

#endif
