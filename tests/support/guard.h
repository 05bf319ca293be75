/* Buffers between two unreadable pages, flush with one of them: an access one byte past faults. */
#ifndef OCTET_TEST_GUARD_H
#define OCTET_TEST_GUARD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct guarded { void *p; size_t bytes; void *map; size_t map_bytes; } guarded;

/* align: of p, a power of two up to 64. at_end: flush with the page after it (as far as align lets),
 * else with the one before. bytes may be 0. */
guarded guard_new(size_t bytes, size_t align, bool at_end);
void    guard_free(guarded *);

#endif
