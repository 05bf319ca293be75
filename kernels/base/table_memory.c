/* Memory for tables of embeddings: huge pages where the system lets us, and the kernel's own word on whether it did. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "octet/embedding.h"

#include "base.h"

#define HUGE ((size_t)2 << 20)
#define HUGE_2MB (21 << 26) /* log2 of the page, where MAP_HUGE_SHIFT has it: the default may be 1 GiB */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Bytes of p .. p + bytes that /proc/self/smaps counts as transparent huge pages. */
static size_t transparent(const char *p, size_t bytes)
{
    char line[256];
    unsigned long begin = 0, end = 0, kb;
    size_t sum = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long b, e;
        if (sscanf(line, "%lx-%lx ", &b, &e) == 2) {
            begin = b;
            end = e;
        } else if (sscanf(line, "AnonHugePages: %lu kB", &kb) == 1 && begin < (uintptr_t)p + bytes && end > (uintptr_t)p) {
            sum += (size_t)kb << 10;
        }
    }
    if (f) fclose(f);
    return sum;
}

static void populate(char *p, size_t bytes)
{
    if (!madvise(p, bytes, MADV_POPULATE_WRITE)) return;
    for (size_t i = 0; i < bytes; i += 4096) ((volatile char *)p)[i] = 0; /* a kernel older than 5.14 */
}

/* At a multiple of 2 MiB: more is mapped, and what sticks out given back. */
static char *map_aligned(size_t bytes)
{
    char *p = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    const size_t before = (HUGE - (uintptr_t)p % HUGE) % HUGE;
    if (before) munmap(p, before);
    if (HUGE - before) munmap(p + before + bytes, HUGE - before);
    return p + before;
}

octet_status octet_table_alloc(size_t bytes, void **out, int *pages)
{
    if (!out) return fail(OCTET_EINVAL, "octet_table_alloc: out is NULL");
    if (bytes == 0 || bytes > (size_t)1 << 47) return fail(OCTET_EINVAL, "octet_table_alloc: %zu bytes are outside 1 .. 2^47", bytes);
    const int kept = errno;
    const size_t whole = (bytes + HUGE - 1) / HUGE * HUGE;
    int got = OCTET_PAGES_HUGE;
    char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | HUGE_2MB, -1, 0);
    if (p == MAP_FAILED) {
        p = map_aligned(whole);
        if (p) {
            madvise(p, whole, MADV_HUGEPAGE); /* may be refused; the count tells */
            populate(p, whole);
            const size_t huge = transparent(p, whole);
            got = huge >= whole ? OCTET_PAGES_HUGE : huge ? OCTET_PAGES_SOME_HUGE : OCTET_PAGES_SMALL;
        }
    }
    errno = kept;
    if (!p) return fail(OCTET_ENOMEM, "octet_table_alloc: the system has no %zu bytes", bytes);
    *out = p;
    if (pages) *pages = got;
    return OCTET_OK;
}

void octet_table_free(void *table, size_t bytes)
{
    const int kept = errno;
    if (table) munmap(table, (bytes + HUGE - 1) / HUGE * HUGE);
    errno = kept;
}
