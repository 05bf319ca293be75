/*
 * The kernel cache. Entries live in one table and never move; a bucket is a chain of entry numbers.
 *
 * Readers follow a chain without a lock, take a reference by raising `refs` from a value >= 0, and
 * then compare the spec once more: an entry recycled in between no longer matches, and the reader
 * goes the slow way. An entry leaves only after `refs` went from 0 to -1, so code with a reference
 * is never freed. A thread that misses puts a BUSY entry in its place, generates outside the lock,
 * and wakes those who wait for it.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "code.h"

enum { ENTRIES = 8192, BUCKETS = 4096, CHAIN_MAX = 64, CODE_MAX = 32768 };
enum { EMPTY, BUSY, READY };

/* A spec as words, which a reader may load while an entry is recycled. */
enum { WORDS = sizeof(kernel_spec) / 8 };
typedef struct key { uint64_t w[WORDS]; } key;
_Static_assert(sizeof(kernel_spec) == sizeof(key), "a spec is hashed and compared as words");

struct kernel {
    _Atomic uint64_t key[WORDS];
    atomic_int  refs;  /* -1: nobody may take it */
    atomic_int  state;
    atomic_int  next;  /* entry number + 1; 0 ends the chain */
    kernel_fn   code;
    uint32_t    bytes;
    uint64_t    born;
    void       *debugger_entry;
};

static struct {
    pthread_mutex_t  lock;
    pthread_cond_t   made;
    atomic_int       bucket[BUCKETS]; /* entry number + 1 */
    kernel           entry[ENTRIES];
    int              entries;         /* ever used */
    int              free_list;       /* entry number + 1 */
    size_t           kernels;
    atomic_size_t    code_bytes, limit;
    uint64_t         births, generated, evicted;
    atomic_uint_fast64_t hits;
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER, .made = PTHREAD_COND_INITIALIZER, .limit = 4 << 20 };

static key key_of(const kernel_spec *s)
{
    key k;
    memcpy(&k, s, sizeof k);
    return k;
}

static unsigned hash(key k)
{
    uint64_t h = 0; /* products that do not wait for one another */
    for (int i = 0; i < WORDS; i++) h ^= (k.w[i] ^ (uint64_t)i << 60) * (UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)i << 33));
    h ^= h >> 29;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return (unsigned)(h >> 52) % BUCKETS;
}

static key held_key(const kernel *e)
{
    key k;
    for (int i = 0; i < WORDS; i++) k.w[i] = atomic_load_explicit(&e->key[i], memory_order_relaxed);
    return k;
}

static bool same(const kernel *e, key k)
{
    const key held = held_key(e);
    uint64_t differs = 0;
    for (int i = 0; i < WORDS; i++) differs |= held.w[i] ^ k.w[i];
    return !differs;
}

/* Without the lock: an entry of this spec with a reference taken, or NULL. */
static kernel *take(key s)
{
    int e = atomic_load_explicit(&cache.bucket[hash(s)], memory_order_acquire);
    for (int steps = 0; e && steps < CHAIN_MAX; steps++) {
        kernel *k = &cache.entry[e - 1];
        if (atomic_load_explicit(&k->state, memory_order_acquire) == READY && same(k, s)) {
            int refs = atomic_load_explicit(&k->refs, memory_order_relaxed);
            while (refs >= 0 && !atomic_compare_exchange_weak(&k->refs, &refs, refs + 1)) {}
            if (refs >= 0) {
                if (atomic_load(&k->state) == READY && same(k, s)) return k;
                atomic_fetch_sub(&k->refs, 1);
            }
        }
        e = atomic_load_explicit(&k->next, memory_order_acquire);
    }
    return NULL;
}

/* The rest of this file down to cache_acquire runs with the lock held. */

static kernel *find(key s)
{
    for (int e = atomic_load(&cache.bucket[hash(s)]); e; e = atomic_load(&cache.entry[e - 1].next))
        if (same(&cache.entry[e - 1], s)) return &cache.entry[e - 1];
    return NULL;
}

static void unlink_entry(kernel *k)
{
    const int number = (int)(k - cache.entry) + 1;
    atomic_int *link = &cache.bucket[hash(held_key(k))];
    while (atomic_load(link) != number) link = &cache.entry[atomic_load(link) - 1].next;
    atomic_store(link, atomic_load(&k->next));
    atomic_store(&k->state, EMPTY);
    atomic_store(&k->next, cache.free_list);
    cache.free_list = number;
}

static bool evict_oldest(void)
{
    kernel *oldest;
    int none;
    do { /* again if a reader just took the one that was found */
        oldest = NULL;
        none = 0;
        for (int i = 0; i < cache.entries; i++) {
            kernel *k = &cache.entry[i];
            if (atomic_load(&k->state) == READY && atomic_load(&k->refs) == 0 && (!oldest || k->born < oldest->born)) oldest = k;
        }
        if (!oldest) return false;
    } while (!atomic_compare_exchange_strong(&oldest->refs, &none, -1));
    code_unname(oldest->debugger_entry);
    code_drop((void *)oldest->code, oldest->bytes);
    cache.code_bytes -= oldest->bytes;
    cache.kernels--;
    cache.evicted++;
    unlink_entry(oldest);
    return true;
}

static kernel *new_entry(key s)
{
    if (!cache.free_list && cache.entries == ENTRIES && !evict_oldest()) return NULL;
    int number = cache.free_list;
    if (number) cache.free_list = atomic_load(&cache.entry[number - 1].next);
    else number = ++cache.entries;
    kernel *k = &cache.entry[number - 1];
    for (int i = 0; i < WORDS; i++) atomic_store_explicit(&k->key[i], s.w[i], memory_order_relaxed);
    atomic_store(&k->refs, -1);
    atomic_store(&k->state, BUSY);
    atomic_int *head = &cache.bucket[hash(s)];
    atomic_store(&k->next, atomic_load(head));
    atomic_store(head, number);
    return k;
}

static void before_fork(void)
{
    pthread_mutex_lock(&cache.lock);
    code_before_fork();
}
static void after_fork_parent(void)
{
    code_after_fork(false);
    pthread_mutex_unlock(&cache.lock);
}
static void after_fork_child(void)
{
    code_after_fork(true);
    for (int i = 0; i < cache.entries; i++) /* their makers do not exist here */
        if (atomic_load(&cache.entry[i].state) == BUSY) unlink_entry(&cache.entry[i]);
    pthread_cond_init(&cache.made, NULL);
    pthread_mutex_unlock(&cache.lock);
}
static void hook_fork(void) { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

/* The lock is never taken before fork knows of it. */
static void lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hook_fork);
    pthread_mutex_lock(&cache.lock);
}
static void unlock(void) { pthread_mutex_unlock(&cache.lock); }

static void keep_limit(void)
{
    while (atomic_load(&cache.code_bytes) > atomic_load(&cache.limit) && evict_oldest()) {}
}

/* Generates what `k`, a BUSY entry, stands for; lets go of the lock while it does. */
static bool make(kernel *k, kernel_spec spec)
{
    uint8_t buffer[CODE_MAX];
    size_t bytes = 0;
    unlock();
    const octet_status st = gen_kernel(&spec, buffer, sizeof buffer, &bytes);
    lock();
    void *code = st ? NULL : code_put(buffer, bytes);
    while (!st && !code && evict_oldest()) code = code_put(buffer, bytes);
    if (!code) {
        unlink_entry(k);
    } else {
        char name[KERNEL_NAME];
        kernel_name(&spec, name);
        code_name(name, code, bytes);
        k->debugger_entry = code_debugger_entry(name, code, bytes);
        k->code = (kernel_fn)code;
        k->bytes = (uint32_t)bytes;
        k->born = ++cache.births;
        cache.code_bytes += bytes;
        cache.kernels++;
        cache.generated++;
        atomic_store(&k->refs, 1);
        atomic_store(&k->state, READY);
        keep_limit();
    }
    pthread_cond_broadcast(&cache.made);
    return code != NULL;
}

kernel *cache_acquire(const kernel_spec *s)
{
    const key want = key_of(s);
    kernel *k = take(want);
    if (k) {
        atomic_fetch_add_explicit(&cache.hits, 1, memory_order_relaxed);
        return k;
    }
    lock();
    while ((k = find(want)) && atomic_load(&k->state) == BUSY) pthread_cond_wait(&cache.made, &cache.lock);
    if (k) atomic_fetch_add(&k->refs, 1); /* under the lock nothing is evicted: refs >= 0 */
    else if (code_allowed() && (k = new_entry(want)) && !make(k, *s)) k = NULL;
    unlock();
    return k;
}

void cache_release(kernel *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1 || atomic_load(&cache.code_bytes) <= atomic_load(&cache.limit)) return;
    lock();
    keep_limit();
    unlock();
}

kernel_fn kernel_code(const kernel *k) { return k->code; }

bool cache_enabled(void)
{
    lock();
    const bool yes = code_allowed();
    unlock();
    return yes;
}

octet_status octet_cache_info(octet_cache_stats *out)
{
    octet_cache_stats s = OCTET_CACHE_STATS;
    if (!out) return fail(OCTET_EINVAL, "octet_cache_info: out is NULL");
    lock();
    s.kernels = cache.kernels;
    s.code_bytes = cache.code_bytes;
    s.limit_bytes = cache.limit;
    s.generated = cache.generated;
    s.evicted = cache.evicted;
    s.executable = code_allowed();
    for (int i = 0; i < cache.entries; i++)
        if (atomic_load(&cache.entry[i].state) == READY && atomic_load(&cache.entry[i].refs) > 0) s.in_use++;
    unlock();
    s.hits = atomic_load(&cache.hits);
    if (give_versioned(out, 2 * sizeof s.size, &s, sizeof s)) return OCTET_OK;
    return fail(OCTET_EINVAL, "octet_cache_info: out->size is not set; initialize it with OCTET_CACHE_STATS");
}

octet_status octet_cache_limit(size_t bytes)
{
    if (bytes > CODE_ARENA)
        return fail(OCTET_EINVAL, "octet_cache_limit: %zu bytes are more than the %d of the arena", bytes, CODE_ARENA);
    lock();
    cache.limit = bytes;
    keep_limit();
    unlock();
    return OCTET_OK;
}
