/*
 * kernel_spec -> code, for the whole process. A hit takes no lock; a miss generates outside the
 * lock, once for each spec however many threads ask; bounded, oldest unused out first.
 */
#ifndef OCTET_CACHE_H
#define OCTET_CACHE_H

#include "gen.h"

typedef struct kernel kernel;

/* A reference to the kernel of this spec, generated if need be; NULL without memory for code or a
 * spec that no generator serves. Give it back with cache_release. */
kernel   *cache_acquire(const kernel_spec *);
void      cache_release(kernel *); /* NULL is fine */
kernel_fn kernel_code(const kernel *);

/* True if code can be made at all. */
bool cache_enabled(void);

#endif
