/* Every byte octet keeps comes from here: the context's allocator, or malloc. */
#include <errno.h>
#include <stdlib.h>

#include "base.h"

enum { ALIGN = 64 };

void *mem_alloc(const octet_allocator *a, size_t bytes)
{
    if (bytes > (size_t)INT64_MAX - ALIGN) return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN + (bytes == 0) * ALIGN;
    if (a && a->alloc) return a->alloc(a->user, bytes, ALIGN);
    int kept = errno;
    void *p = aligned_alloc(ALIGN, bytes);
    errno = kept;
    return p;
}

void mem_free(const octet_allocator *a, void *p, size_t bytes)
{
    if (!p) return;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN + (bytes == 0) * ALIGN;
    if (a && a->alloc) a->free(a->user, p, bytes);
    else free(p);
}
