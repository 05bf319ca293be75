/* A context: the caller's allocator and threads, and a few workspaces that runs borrow. */
#include "gemm.h"
#include "plan.h"

enum { WORKSPACES_DEFAULT = 4 };

octet_status octet_ctx_create(const octet_ctx_opts *opts, octet_ctx **out)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    if (!out) return fail(OCTET_EINVAL, "octet_ctx_create: out is NULL");
    if (opts && !copy_versioned(&o, sizeof o, sizeof(size_t), opts))
        return fail(OCTET_EINVAL, "octet_ctx_create: opts->size is not of a known version; initialize with OCTET_CTX_OPTS");
    if (!o.allocator.alloc != !o.allocator.free)
        return fail(OCTET_EINVAL, "octet_ctx_create: an allocator needs both alloc and free");
    if (o.threads < 0 || o.threads > THREADS_MAX)
        return fail(OCTET_EINVAL, "octet_ctx_create: threads = %d is outside 0 .. %d", o.threads, THREADS_MAX);
    if (o.workspaces < 0 || o.workspaces > WORKSPACES_MAX)
        return fail(OCTET_EINVAL, "octet_ctx_create: workspaces = %d is outside 0 .. %d", o.workspaces, WORKSPACES_MAX);
    if (o.threads == 0) o.threads = 1;
    if (o.threads > 1 && !o.parallel && !OCTET_HAVE_PTHREADPOOL)
        return fail(OCTET_EUNSUPPORTED, "octet_ctx_create: this build has no thread pool of its own; pass opts.parallel");

    octet_ctx *c = mem_alloc(&o.allocator, sizeof *c);
    if (!c) return fail(OCTET_ENOMEM, "octet_ctx_create: no memory for a context");
    memset(c, 0, sizeof *c);
    atomic_store(&c->refs, 1);
    c->allocator = o.allocator;
    c->threads = o.threads;
    c->parallel = o.parallel;
    c->parallel_user = o.parallel_user;
    c->workspaces = o.workspaces ? o.workspaces : WORKSPACES_DEFAULT;
    c->workspace_bytes = (size_t)o.threads * cpu_workspace_bytes();
    if (c->threads > 1 && !c->parallel && !pool_create(c->threads, &c->parallel, &c->pool)) {
        mem_free(&o.allocator, c, sizeof *c);
        return fail(OCTET_ENOMEM, "octet_ctx_create: no memory for a pool of %d threads", o.threads);
    }
    if (c->pool) c->parallel_user = c->pool;
    *out = c;
    return OCTET_OK;
}

void ctx_drop(octet_ctx *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1) return;
    pool_destroy(c->pool);
    mem_free(&c->allocator, atomic_load(&c->memory), (size_t)c->workspaces * c->workspace_bytes);
    const octet_allocator a = c->allocator;
    mem_free(&a, c, sizeof *c);
}

void octet_ctx_free(octet_ctx *c) { ctx_drop(c); }

/* The process's own context is made once and never freed. */
static octet_ctx *process_ctx(void)
{
    static _Atomic(octet_ctx *) own;
    octet_ctx *c = atomic_load_explicit(&own, memory_order_acquire);
    if (c) return c;
    if (octet_ctx_create(NULL, &c)) return NULL;
    octet_ctx *none = NULL;
    if (atomic_compare_exchange_strong(&own, &none, c)) return c;
    ctx_drop(c);
    return none;
}

octet_ctx *ctx_hold(octet_ctx *c)
{
    if (!c) c = process_ctx();
    if (c) atomic_fetch_add(&c->refs, 1);
    return c;
}

bool ctx_prepare(octet_ctx *c)
{
    if (atomic_load(&c->memory)) return true;
    uint8_t *m = mem_alloc(&c->allocator, (size_t)c->workspaces * c->workspace_bytes);
    uint8_t *none = NULL;
    if (!m) return false;
    if (!atomic_compare_exchange_strong(&c->memory, &none, m))
        mem_free(&c->allocator, m, (size_t)c->workspaces * c->workspace_bytes);
    return true;
}

int ctx_take_workspace(octet_ctx *c)
{
    for (int i = 0; i < c->workspaces; i++)
        if (!atomic_load_explicit(&c->busy[i], memory_order_relaxed)
            && !atomic_exchange_explicit(&c->busy[i], 1, memory_order_acquire))
            return i;
    return -1;
}

void ctx_return_workspace(octet_ctx *c, int slot)
{
    atomic_store_explicit(&c->busy[slot], 0, memory_order_release);
}

void ctx_parallel(const octet_ctx *c, size_t count, octet_task task, void *arg)
{
    if (count > 1 && c->parallel) {
        c->parallel(c->parallel_user, count, task, arg);
        return;
    }
    for (size_t i = 0; i < count; i++) task(arg, i);
}
