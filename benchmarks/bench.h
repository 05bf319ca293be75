/*
 * What the parts of octet-bench share: a problem with its data, a peer, a measurement, a row.
 * The timer at the end is the C face of Google Benchmark.
 */
#ifndef OCTET_BENCH_H
#define OCTET_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "octet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- problems ---- */

/* C[m,n] = A[m,k] B[k,n], row-major, tight; B is kept as n x k, as PyTorch keeps weights. A batch has `count` of
 * each, one after the other. */
typedef struct problem {
    int64_t     m, n, k, count;
    octet_dtype a, b, c;
    bool        bias, relu, weight_only, dynamic, by_row, reduced;
    int         group;
    octet_op    chain[OCTET_OPS];
    int         threads;
    const char *isa;       /* a cap for everyone who can be capped, or NULL */
    bool        floating;  /* A meets B in f32                     */
    bool        plain_f32; /* f32 all through, no epilogue         */
    void       *pa, *pc;   /* of types a and c                     */
    int8_t     *pb;        /* n x k, of type b                     */
    float      *scales;    /* n, of B; with group a row of n for each */
    int32_t    *pbias;     /* n                                    */
    float      *fbias, *residual; /* n, m x n                      */
    float       scale_a, scale_c;
    int32_t     zero_a, zero_c;
    float      *fa, *fb, *fc; /* the same product in f32, for peers that have only that */
} problem;
size_t  element_bytes(octet_dtype);
size_t  b_bytes(const problem *); /* of one B */
int64_t out_n(const problem *);   /* columns of C: a gate halves them */

enum { SHAPES = 4096, LISTS = 16 };
typedef struct shape { int64_t m, n, k, l; } shape; /* of bags: rows, dim, batch, pooling */
typedef struct options {
    shape         shapes[SHAPES];
    int           shape_count, threads[LISTS], thread_count;
    octet_dtype   a, b, c;
    bool          bias, relu, cold, verify, per_tensor, weight_only;
    int           group, steps;
    int64_t       batch;
    octet_op      chain[OCTET_OPS];
    const char   *dynamic; /* "", row, tensor, reduced */
    char          peers[128];
    const char   *isa, *data_a, *data_b, *types, *out;
    double        seconds;
    int           mode, bag_weights, tables, ahead; /* of bags: octet_pooling, ... */
    bool          huge, update;
    bool          gpu;
    const char   *kernel;  /* of the GPU: a name, "all", or NULL: the plan's choice */
    int           format; /* report_format */
    uint64_t      seed;
} options;

int    usage(const char *why);
bool   read_types(options *, const char *value);
bool   add_shapes(options *, const char *text);
double first_call_us(const char *types, const shape *);
/* one() for each count of threads, in a context of so many, and each shape: how many were wrong; -1: it could not go on. */
typedef int (*shape_fn)(const options *, octet_ctx *, int threads, const shape *, void *state);
int    over_shapes(const options *, shape_fn one, void *state);

/* ---- gemm_bench.c, codegen_bench.c, convert_bench.c ---- */

typedef struct ours { /* octet's side of a problem */
    octet_plan     *plan;
    octet_packed  **packed;
    octet_gemm_args args;
    octet_batch     batch;
    int64_t         count;
    double          prepare_us;
} ours;
bool ours_open(ours *, octet_ctx *, const problem *);
void ours_run(void *);
void ours_close(ours *);
int  gemm_report(const options *);
int  codegen_report(void);
int  convert_report(const options *);

/* ---- peers ---- */

typedef struct peer {
    const char *name;
    bool        f32;                        /* computes the f32 product instead                  */
    const char *(*open)(const char *isa);   /* NULL if it can be used, else why not; before any prepare */
    const char *(*version)(void);
    void *(*prepare)(const problem *);      /* packs constants; NULL: cannot do this problem     */
    void (*run)(void *);
    void (*close)(void *);
} peer;
extern const peer *const peers[]; /* ends with NULL */

/* ---- data.c ---- */

typedef struct rng { uint64_t s; } rng;
uint32_t rng_u32(rng *);
double   rng_unit(rng *); /* 0 <= . < 1 */
/* Fills A, B and the f32 twins. data_a: uniform, 7bit; data_b: uniform, gauss, t5, 7bit or file:PATH;
 * scales of B: per tensor or column. False: no such data. */
bool fill(problem *, const char *data_a, const char *data_b, bool per_tensor, uint64_t seed);
bool problem_new(problem *);
void problem_free(problem *);
/* The plain product, saturated nowhere; true if C equals it, or for a floating product is within the documented
 * bound: all rows, or as many random ones. Of a peer's C, where it has one of its own. */
bool verify(const problem *, int64_t rows, rng *);
bool verify_peer(const problem *, const void *c, int64_t rows, rng *);

/* ---- sampler.c ---- */

double now_ns(void);

typedef struct stats {
    double min, median, p99, ratio, ratio_low; /* ns a call; peer over octet: median, lower 95 % bound */
    int    pairs;
} stats;
typedef void (*call_fn)(void *);
/* Times f, or f and g in turn, pair by pair: at least 30 pairs and `seconds` of them. cold: everything
 * is evicted before each call. g's stats go to *other. */
stats sample(call_fn f, void *fx, call_fn g, void *gx, double seconds, bool cold, stats *other);
void  pin(int cpu); /* the calling thread and what it starts; -1: to all again */

/* ---- report.c ---- */

typedef enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSON } report_format;
typedef struct row {
    const char *op, *impl, *kernel, *types, *problem, *check, *cache, *verified;
    int         threads;
    double      min_ns, median_ns, p99_ns, gops, gbytes, percent_of_peak, prepare_us, first_call_us;
    size_t      packed_bytes, workspace_bytes;
    double      ratio, ratio_low; /* 0: none */
} row;
void report_begin(FILE *, report_format, const char *command, uint64_t seed);
void report_row(const row *);
void report_end(void);
/* octet-bench compare OLD NEW: 0, 1 if NEW is slower beyond the noise, 2 if they cannot be read. */
int report_compare(const char *old_path, const char *new_path);

/* ---- machine.c ---- */

/* Multiply-accumulates per second of a limit loop: registers only, the sequence of a dot kind
 * (gen.h); 0 where it cannot run. */
double limit_rate(int dot, double seconds);
double core_hz(void);
int    machine_report(void);

/* ---- bench.cc: Google Benchmark (sampler.c where it is not installed) ---- */

/* ns of one call of f(x), the median of 5 repetitions of at least `seconds` each. */
double benchmark_ns(const char *name, call_fn f, void *x, double seconds);

#ifdef __cplusplus
}
#endif
#endif
