/* The built-in thread pool: pthreadpool, if the build found it. */
#include "plan.h"

#if OCTET_HAVE_PTHREADPOOL
#include <errno.h>
#include <pthread.h>
#include <pthreadpool.h>
#include <stdlib.h>
#include <unistd.h>

/* One run at a time has the pool; a run that finds it taken computes on its caller. So it is with
 * every run in a forked child, which inherits no threads. */
typedef struct pool {
    pthreadpool_t threads;
    atomic_flag   taken;
    pid_t         owner;
} pool;

typedef struct job { octet_task task; void *arg; } job;

static void one(void *user, size_t i)
{
    const job *j = user;
    j->task(j->arg, i);
}

static void pool_run(void *user, size_t count, octet_task task, void *arg)
{
    pool *p = user;
    if (p->owner != getpid() || atomic_flag_test_and_set_explicit(&p->taken, memory_order_acquire)) {
        for (size_t i = 0; i < count; i++) task(arg, i);
        return;
    }
    const int kept = errno; /* the pool's waits may set it */
    job j = { task, arg };
    pthreadpool_parallelize_1d(p->threads, one, &j, count, 0);
    errno = kept;
    atomic_flag_clear_explicit(&p->taken, memory_order_release);
}

bool pool_create(int threads, octet_parallel *run, void **user)
{
    const int kept = errno;
    pool *p = calloc(1, sizeof *p);
    errno = kept;
    if (!p) return false;
    p->threads = pthreadpool_create((size_t)threads);
    p->owner = getpid();
    errno = kept;
    if (!p->threads) { free(p); return false; }
    *run = pool_run;
    *user = p;
    return true;
}

void pool_destroy(void *user)
{
    pool *p = user;
    if (!p) return;
    if (p->owner == getpid()) pthreadpool_destroy(p->threads);
    free(p);
}
#else
bool pool_create(int threads, octet_parallel *run, void **user) { (void)threads; (void)run; (void)user; return false; }
void pool_destroy(void *user) { (void)user; }
#endif
