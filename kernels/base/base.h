/* Small things every file needs: sizes that are checked, rounding, and how a call fails. */
#ifndef OCTET_BASE_H
#define OCTET_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "octet.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Definitions that GPU kernels share with the CPU: small pure functions of numbers. */
#if defined(__CUDACC__)
#define OCTET_BOTH static __host__ __device__ __forceinline__
#else
#define OCTET_BOTH static inline
#endif

#if defined(__x86_64__) && defined(__linux__)
#define OCTET_X86 1
#else
#define OCTET_X86 0
#endif

OCTET_BOTH int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
OCTET_BOTH int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
OCTET_BOTH int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
OCTET_BOTH int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* *out = a * b, a + b; false where a size would overflow. */
static inline bool mul_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool add_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }

/* A matrix of `lines` lines of `width` values: its bytes from the first to past the last; -1 on a breach. */
static inline int64_t span_of(int64_t lines, int64_t width, int64_t ld, int bytes)
{
    int64_t values;
    if (lines == 0 || width == 0) return 0;
    if (!mul_ok(lines - 1, ld, &values) || !add_ok(values, width, &values) || values > INT64_MAX / 8) return -1;
    return values * bytes;
}

static inline bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* Records the sentence that octet_why() returns to this thread, and returns `status`. */
octet_status fail(octet_status status, const char *sentence, ...) __attribute__((format(printf, 2, 3)));

/* Copies a caller's struct of any age into ours: the fields it has, zeros for those it has not.
 * False if its size is impossible. */
static inline bool copy_versioned(void *ours, size_t our_size, size_t least, const void *theirs)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < least || size > 4096) return false;
    memset(ours, 0, our_size);
    memcpy(ours, theirs, size < our_size ? size : our_size);
    if (size > our_size) { /* a newer client: what we do not know must be at its default */
        const unsigned char *p = (const unsigned char *)theirs;
        for (size_t i = our_size; i < size; i++)
            if (p[i]) return false;
    }
    memcpy(ours, &our_size, sizeof our_size);
    return true;
}

/* The way back: fills a caller's struct of any age, which keeps its size. False if that is impossible. */
static inline bool give_versioned(void *theirs, size_t least, const void *ours, size_t our_size)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < least || size > 4096) return false;
    memcpy(theirs, ours, size < our_size ? size : our_size);
    memcpy(theirs, &size, sizeof size);
    return true;
}

/* memory.c: the caller's allocator or malloc; 64-byte aligned; sizes are given back on free. */
void *mem_alloc(const octet_allocator *a, size_t bytes);
void  mem_free(const octet_allocator *a, void *p, size_t bytes);

#endif
