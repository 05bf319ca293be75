/* A problem of embedding bags, as octet-bench embedding and its peers see it. */
#ifndef OCTET_BAG_BENCH_H
#define OCTET_BAG_BENCH_H

#include "bench.h"
#include "octet/embedding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `tables` tables of one shape; `sets` different batches of indices, gone through in turn so that rows are cold. */
typedef struct bag_problem {
    int64_t      rows, dim, batch, pooling, row_bytes;
    int          tables, sets, threads;
    octet_dtype  type, out;
    int          mode, weights; /* octet_pooling, desc.weights                                */
    bool         update;        /* row-wise Adagrad, a gradient for each index                */
    uint8_t    **table;
    int64_t     *indices;       /* all sets, one after the other                              */
    int64_t     *offsets;       /* batch + 1 for each table of each set, from 0               */
    int64_t     *first;         /* sets * tables + 1: where each begins in indices            */
    float       *each;          /* a weight for each index                                    */
    char        *result;        /* tables x batch x dim                                       */
    float       *grad, *state;  /* update: most x dim; rows                                   */
    int64_t      most;          /* indices of the largest table of a set                      */
} bag_problem;

static inline int64_t bag_count(const bag_problem *p, int set, int t)
{
    return p->first[(int64_t)set * p->tables + t + 1] - p->first[(int64_t)set * p->tables + t];
}

typedef struct bag_peer {
    const char *name;
    void *(*prepare)(const bag_problem *, const char *isa); /* NULL: cannot do this problem */
    void (*run)(void *, int set);
    void (*close)(void *);
} bag_peer;
extern const bag_peer bag_peer_fbgemm;

int  embedding_report(const options *);
void random_rows_report(void); /* what a loop that only reads rows reaches, by their size */

#ifdef __cplusplus
}
#endif
#endif
