/*
 * The arena behind code.h: 64 MiB of address space, of which only what is written takes memory.
 *
 *      memfd  ----mmap PROT_READ|PROT_WRITE----> rw    code_put() writes here
 *             ----mmap PROT_READ|PROT_EXEC-----> rx    ... and hands out this address
 *
 * Measured on Zen 3: 0.5 us to write and call a kernel, against 24 us with an mprotect flip.
 * Where memfd_create or its executable mapping is refused, a private RWX mapping serves (rw = rx);
 * where that is refused too, nothing is generated and the portable kernels compute.
 */
#if defined(__linux__)
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "code.h"

#if OCTET_X86

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif
#define MFD_EXEC_FLAG 0x10u

static struct {
    bool     asked, shared;
    uint8_t *rw, *rx;
    size_t   high;                             /* bytes ever used                           */
    size_t   hint;                             /* where the next search starts, in grains   */
    uint64_t used[CODE_ARENA / CODE_GRAIN / 64]; /* one bit a grain                         */
    int      copy_fd;                          /* while a fork is under way                */
    uint8_t *copy;
} arena;

/* Kernels before 6.3 do not know MFD_EXEC, and need not be told. */
static int executable_memfd(void)
{
    int fd = (int)syscall(SYS_memfd_create, "octet-jit", MFD_CLOEXEC | MFD_EXEC_FLAG);
    if (fd < 0) fd = (int)syscall(SYS_memfd_create, "octet-jit", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, CODE_ARENA)) { close(fd); fd = -1; }
    return fd;
}

static bool map_twice(void)
{
    int fd = executable_memfd();
    if (fd < 0) return false;
    uint8_t *rw = mmap(NULL, CODE_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t *rx = mmap(NULL, CODE_ARENA, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    close(fd);
    if (rw != MAP_FAILED && rx != MAP_FAILED) {
        arena.rw = rw;
        arena.rx = rx;
        arena.shared = true;
        return true;
    }
    if (rw != MAP_FAILED) munmap(rw, CODE_ARENA);
    if (rx != MAP_FAILED) munmap(rx, CODE_ARENA);
    return false;
}

static bool map_once(void)
{
    uint8_t *p = mmap(NULL, CODE_ARENA, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    arena.rw = arena.rx = p;
    return true;
}

bool code_allowed(void)
{
    if (!arena.asked) {
        int kept = errno;
        /* perf takes names from its map for anonymous memory only */
        if (code_named() ? !map_once() : !map_twice()) code_named() ? map_twice() : map_once();
        errno = kept;
        arena.asked = true;
    }
    return arena.rw != NULL;
}

static bool grain_used(size_t g) { return arena.used[g / 64] >> (g % 64) & 1; }
static void set_grains(size_t g, size_t n, bool used)
{
    for (size_t i = g; i < g + n; i++) {
        if (used) arena.used[i / 64] |= UINT64_C(1) << (i % 64);
        else arena.used[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
}

/* First fit at or after `from`. */
static size_t find_grains(size_t from, size_t n)
{
    const size_t total = CODE_ARENA / CODE_GRAIN;
    size_t run = 0;
    for (size_t g = from; g < total; g++) {
        run = grain_used(g) ? 0 : run + 1;
        if (run == n) return g + 1 - n;
    }
    return total;
}

void *code_put(const uint8_t *bytes, size_t n)
{
    const size_t total = CODE_ARENA / CODE_GRAIN, grains = (n + CODE_GRAIN - 1) / CODE_GRAIN;
    if (!code_allowed() || n == 0) return NULL;
    size_t g = find_grains(arena.hint, grains);
    if (g == total) g = find_grains(0, grains);
    if (g == total) return NULL;
    set_grains(g, grains, true);
    arena.hint = g + grains;
    if (arena.high < arena.hint * CODE_GRAIN) arena.high = arena.hint * CODE_GRAIN;
    memcpy(arena.rw + g * CODE_GRAIN, bytes, n);
    return arena.rx + g * CODE_GRAIN;
}

void code_drop(void *address, size_t n)
{
    const size_t g = (size_t)((uint8_t *)address - arena.rx) / CODE_GRAIN;
    if (arena.rw) memset(arena.rw + g * CODE_GRAIN, 0xcc, n); /* int3: a stale call stops at once */
    set_grains(g, (n + CODE_GRAIN - 1) / CODE_GRAIN, false);
}

void code_before_fork(void)
{
    arena.copy_fd = -1;
    if (!arena.shared || !arena.rw) return;
    const int kept = errno;
    arena.copy_fd = executable_memfd();
    arena.copy = arena.copy_fd < 0 ? MAP_FAILED : mmap(NULL, CODE_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, arena.copy_fd, 0);
    if (arena.copy != MAP_FAILED) memcpy(arena.copy, arena.rw, arena.high);
    errno = kept;
}

void code_after_fork(bool child)
{
    if (!arena.shared || !arena.rw) return;
    const int kept = errno;
    bool ok = arena.copy != MAP_FAILED;
    if (child && ok)
        ok = mmap(arena.rx, CODE_ARENA, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, arena.copy_fd, 0) != MAP_FAILED
          && mmap(arena.rw, CODE_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena.copy_fd, 0) != MAP_FAILED;
    if (arena.copy != MAP_FAILED) munmap(arena.copy, CODE_ARENA);
    if (arena.copy_fd >= 0) close(arena.copy_fd);
    if (child && !ok) arena.rw = NULL;
    errno = kept;
}

#else /* no generated code on this machine */
bool  code_allowed(void) { return false; }
void *code_put(const uint8_t *bytes, size_t n) { (void)bytes; (void)n; return NULL; }
void  code_drop(void *address, size_t n) { (void)address; (void)n; }
void  code_before_fork(void) {}
void  code_after_fork(bool child) { (void)child; }
#endif
