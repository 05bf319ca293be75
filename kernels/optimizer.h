/* One row and its gradient: the optimizers' steps as octet/embedding.h defines them, vectorized. */
#ifndef OCTET_OPTIMIZER_H
#define OCTET_OPTIMIZER_H

#include "base.h"
#include "octet/embedding.h"

typedef struct optimizer {
    int         kind;       /* octet_optimizer          */
    octet_dtype table;
    bool        half;       /* u8: scale and bias in f16 */
    int64_t     values, params; /* where they lie in a row */
    int64_t     dim;
    float       lr, eps, beta1, beta2, decay;
    float       lr_now, correct2; /* Adam: lr / (1 - beta1^step), 1 - beta2^step */
    bool        stochastic;
    uint64_t    seed;
    float      *state, *state2;
} optimizer;

optimizer optimizer_of(const octet_bag_update *, const octet_bag_desc *, const octet_bag_step *, int64_t values, int64_t params);
/* sum += weight g, or with `first` sum = weight g */
void optimizer_add(const float *g, int64_t n, float weight, bool first, float *sum);
enum { OPTIMIZER_ROWS = 16 };
/* Row `number`, which lies at `row`; its gradient is used up if there is weight decay. x: for optimizer_steps. */
typedef struct optimizer_row { char *row; int64_t number; float *g, *x; } optimizer_row;
/* n rows, at most OPTIMIZER_ROWS, all different; wide: room for dim values. */
void optimizer_steps(const optimizer *, int n, optimizer_row *, float *wide);
void optimizer_prefetch(const optimizer *, int64_t number);

#endif
