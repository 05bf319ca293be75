#include "guard.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

guarded guard_new(size_t bytes, size_t align, bool at_end)
{
    guarded g = { .bytes = bytes };
    const size_t inner = (bytes + PAGE - 1) / PAGE * PAGE + (bytes == 0) * PAGE;
    g.map_bytes = inner + 2 * PAGE;
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g.map == MAP_FAILED || mprotect((char *)g.map + PAGE, inner, PROT_READ | PROT_WRITE)) abort();
    const size_t gap = (inner - bytes) / align * align;
    g.p = (char *)g.map + PAGE + (at_end ? gap : 0);
    return g;
}

void guard_free(guarded *g)
{
    if (g->map) munmap(g->map, g->map_bytes);
    g->map = NULL;
}
