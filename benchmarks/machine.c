/*
 * The machine's own ceilings. A limit loop is a kernel's sequence without loads or loop control to
 * speak of: registers only, enough independent sums to hide every latency. Kernels are quoted as a
 * share of it, timed in turn, since the clock of a shared machine drifts.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "asm.h"
#include "bag_bench.h"
#include "cpu.h"
#include "family.h"

enum { STEPS = 256, ROWS = 6, ONES = 15 };
typedef void (*loop_fn)(void);

static loop_fn build(void (*body)(assembler *, int), int dot)
{
    uint8_t *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assembler as;
    size_t bytes;
    if (page == MAP_FAILED) return NULL;
    asm_begin(&as, page, 1 << 16);
    for (int i = 0; i < 16; i++) rrr(&as, VPXOR, i, i, i);
    rrr(&as, VPCMPEQW, ONES, ONES, ONES);
    op_reg(&as, VPSRLW, YMM, ONES, 0, ONES, 15);
    rrr(&as, VPXOR, 0, 0, 0);
    op_reg(&as, IMULI, 0, RCX, 0, RCX, 0);
    ri(&as, ADDI, RCX, STEPS);
    const label again = asm_label(&as);
    asm_place(&as, again);
    body(&as, dot);
    ri(&as, SUBI, RCX, 1);
    asm_jcc(&as, CC_NZ, again);
    op_reg(&as, VZEROUPPER, XMM, 0, 0, 0, 0);
    op_reg(&as, RET, 0, 0, 0, 0, 0);
    if (asm_finish(&as, &bytes) || mprotect(page, 1 << 16, PROT_READ | PROT_EXEC)) {
        munmap(page, 1 << 16);
        return NULL;
    }
    return (loop_fn)(void *)page;
}

/* Six rows: sums 0 .. 5, temporaries 6 .. 13, sources 14 and ones. */
static void dot_body(assembler *as, int dot)
{
    if (dot_is_float(dot)) { /* 12 sums, so that none waits; sources 14 and 15 */
        for (int i = 0; i < 12; i++) rrr(as, VFMADD231PS, i, 14, 14); /* 14 is 0: 1s in ONES would be denormals */
        return;
    }
    if (dot == DOT_W || dot == DOT_WS) {
        for (int i = 0; i < ROWS; i += 2) {
            for (int j = 0; j < 2; j++) rrr(as, VPMADDWD, 6 + i + j, 14, ONES);
            for (int j = 0; j < 2; j++) rrr(as, VPADDD, i + j, i + j, 6 + i + j);
        }
        return;
    }
    if (dot == DOT_S) {
        for (int i = 0; i < ROWS; i += 2) {
            for (int j = 0; j < 4; j++) rrr(as, VPMADDUBSW, 6 + j, 14, ONES);
            for (int j = 0; j < 2; j++) rrr(as, VPMADDWD, 6 + j, 6 + j, ONES);
            for (int j = 0; j < 2; j++) rrr(as, VPADDW, 10 + j, 10 + j, 8 + j);
            for (int j = 0; j < 2; j++) rrr(as, VPADDD, i + j, i + j, 6 + j);
        }
        return;
    }
    const int t = dot_quads((dot_kind)dot);
    for (int i = 0; i < ROWS; i += 2)
        for (int q = 0; q <= t; q++)
            for (int j = 0; j < 2; j++) {
                const int sum = 6 + 2 * j + 4 * (i & 2) / 2, part = sum + 1;
                if (q < t) rrr(as, VPMADDUBSW, q ? part : sum, 14, ONES);
                if (q && q < t) rrr(as, VPADDW, sum, sum, part);
                if (q == t) {
                    rrr(as, VPMADDWD, sum, sum, ONES);
                    rrr(as, VPADDD, i + j, i + j, sum);
                }
            }
}

static void chain_body(assembler *as, int dot)
{
    (void)dot;
    for (int i = 0; i < 64; i++) op_reg(as, ADD, 0, RAX, 0, RAX, 0); /* each waits for the one before: a cycle */
}

static void call(void *f)
{
    loop_fn fn = *(loop_fn *)f;
    fn();
}

static double seconds_of(loop_fn *f, double seconds)
{
    stats other;
    return sample(call, f, NULL, NULL, seconds, false, &other).median * 1e-9;
}

double limit_rate(int dot, double seconds)
{
    static loop_fn loops[DOT_COUNT];
    if (dot <= DOT_PLAIN || dot >= DOT_COUNT || family_refuses(&families[dot], cpu_features())) return 0;
    if (!loops[dot]) loops[dot] = build(dot_body, dot);
    if (!loops[dot]) return 0;
    const int t = dot == DOT_S ? 1 : dot_quads((dot_kind)dot);
    const double macs = (double)STEPS * (dot_is_float(dot) ? 12 * 8 : ROWS * (t ? 32 * t : 16));
    return macs / seconds_of(&loops[dot], seconds);
}

double core_hz(void)
{
    static loop_fn chain;
    if (!chain) chain = build(chain_body, 0);
    return chain ? 64.0 * STEPS / seconds_of(&chain, 0.02) : 0;
}

/* ---- memory ---- */

typedef void (*read_fn)(const void *, size_t);
typedef struct stretch { read_fn read; const void *p; size_t bytes; } stretch;

/* rdi: where, rsi: bytes, a multiple of 256. */
static read_fn reader(void)
{
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assembler as;
    size_t bytes;
    if (page == MAP_FAILED) return NULL;
    asm_begin(&as, page, 4096);
    const label again = asm_label(&as);
    asm_place(&as, again);
    for (int i = 0; i < 8; i++) rrm(&as, VPADDD, i, i, at(RDI, 32 * i));
    ri(&as, ADDI, RDI, 256);
    ri(&as, SUBI, RSI, 256);
    asm_jcc(&as, CC_NZ, again);
    op_reg(&as, VZEROUPPER, XMM, 0, 0, 0, 0);
    op_reg(&as, RET, 0, 0, 0, 0, 0);
    if (asm_finish(&as, &bytes) || mprotect(page, 4096, PROT_READ | PROT_EXEC)) return NULL;
    return (read_fn)(void *)page;
}

static void read_all(void *x)
{
    const stretch *s = x;
    s->read(s->p, s->bytes);
}

int machine_report(void)
{
    const cpu_caches c = cpu_cache_sizes();
    printf("instruction sets   %s\n", cpu_features() & CPU_AVX2 ? "avx2" : "plain");
    printf("caches             L1d %lld KiB, L2 %lld KiB, L3 %lld KiB\n", (long long)c.l1d >> 10, (long long)c.l2 >> 10, (long long)c.l3 >> 10);
    const double hz = core_hz();
    printf("clock              %.2f GHz (a chain of dependent adds)\n\n", hz * 1e-9);
    printf("%-10s %12s %12s\n", "limit loop", "GOPS", "MAC/cycle");
    for (int dot = DOT_W; dot <= DOT_F32; dot++) {
        const double rate = limit_rate(dot, 0.1);
        if (rate) printf("%-10s %12.1f %12.1f\n", dot_name(dot), 2e-9 * rate, rate / hz);
    }
    printf("\n%-22s %12s\n", "one thread reads from", "GB/s");
    const struct { const char *name; int64_t bytes; } levels[] = {
        { "L1", c.l1d / 2 }, { "L2", c.l2 / 2 }, { "L3", min64(c.l3 / 2, 12 << 20) }, { "memory", max64(4 * c.l3, 256 << 20) },
    };
    const read_fn read = cpu_features() & CPU_AVX2 ? reader() : NULL;
    for (size_t i = 0; read && i < sizeof levels / sizeof *levels; i++) {
        const size_t bytes = (size_t)levels[i].bytes / 4096 * 4096;
        void *p = aligned_alloc(4096, bytes);
        if (!p) continue;
        memset(p, 1, bytes);
        stretch s = { read, p, bytes };
        stats other;
        printf("%-22s %12.1f\n", levels[i].name, (double)bytes / sample(read_all, &s, NULL, NULL, 0.2, false, &other).median);
        free(p);
    }
    random_rows_report();
    return 0;
}
