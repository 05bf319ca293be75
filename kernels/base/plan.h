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
} blocking;

/* The generated kernels of a plan, for B without and with zero points. */
typedef struct kernel_set kernel_set;

struct octet_plan {
    atomic_int      refs;
    octet_ctx      *ctx;
    octet_gemm_desc desc;
    blocking        blocks;
    unsigned        cpu;       /* CPU_* bits in use; 0: the portable kernels */
    bool            any_view;  /* B of any kind meets A of 16 bits: W everywhere it may go */
    const struct format *a, *a_as, *c; /* of A as it comes and as it meets B, of C */
    bool            floats;    /* some step is in floating point             */
    bool            quick;     /* B changes with every call: no search for residuals       */
    kernel_set     *sets;      /* 2 */
};

struct octet_packed {
    octet_plan       *plan;
    const struct blob *blob;
    void             *memory;  /* to free, or NULL: the caller's */
    size_t            memory_bytes;
    unsigned          dots[2]; /* which dots the panels ask for, by level of A: bits 1 << dot_kind */
    bool              places;  /* A may be read where it lies                                      */
    bool              portable; /* though the plan has kernels, this operand's were not to be had  */
};

/* With blocks given; octet_plan_gemm is this with zeros. */
octet_status plan_create(octet_ctx *, const octet_gemm_desc *, blocking, bool any_view, bool quick, octet_plan **);
octet_plan  *plan_hold(const octet_plan *);
/* The type A has when it meets B: a, or what f32 is quantized to. */
static inline octet_dtype plan_a_type(const octet_plan *p)
{
    if (p->desc.a != OCTET_F32) return p->desc.a;
    return p->desc.a_as ? p->desc.a_as : OCTET_U8;
}

#endif
