/*
 * Handwritten digits, end to end: an MLP trained in f32 (train.py), quantized by octet, run in int8.
 *
 *   pixels u8 -> [int8 product, bias, ReLU, requantize] -> u8 -> [same] -> u8 -> [product, bias] -> f32
 *
 * Weights are quantized symmetrically, a scale for each output; the activations' scales come from
 * running 256 training images in f32. Prints accuracy and time beside f32 (OpenBLAS if installed).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "octet.h"
#include "octet/quant.h"

enum { LAYERS = 3, PIXELS = 64, CLASSES = 10, BATCH_MAX = 512, WIDTH_MAX = 128 };

typedef struct layer {
    int32_t out, in;
    float  *w, *bias;    /* out x in, as trained    */
    int8_t *q;           /* the same, quantized     */
    float  *scales;      /* of each output          */
    float   scale_out;   /* of this layer's u8 output */
    octet_plan   *plan;
    octet_packed *packed;
} layer;

typedef struct images { int32_t count; uint8_t *pixels, *labels; } images;

static void die(const char *what)
{
    fprintf(stderr, "digits: %s\n", what);
    exit(1);
}
static void check(octet_status st)
{
    if (st) die(octet_why());
}

static void need(void *p, size_t bytes, FILE *f)
{
    if (fread(p, 1, bytes, f) != bytes) die("a data file is truncated");
}

static FILE *open_file(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) die(path);
    return f;
}

static images load_images(const char *folder, const char *name)
{
    images x;
    FILE *f = open_file(folder, name);
    need(&x.count, 4, f);
    if (x.count < 1 || x.count > BATCH_MAX) die("too many images");
    x.pixels = malloc((size_t)x.count * PIXELS);
    x.labels = malloc((size_t)x.count);
    need(x.pixels, (size_t)x.count * PIXELS, f);
    need(x.labels, (size_t)x.count, f);
    fclose(f);
    return x;
}

static void load_weights(const char *folder, layer *l)
{
    FILE *f = open_file(folder, "weights.bin");
    for (int i = 0; i < LAYERS; i++, l++) {
        need(&l->out, 4, f);
        need(&l->in, 4, f);
        if (l->out < 1 || l->out > WIDTH_MAX || l->in < 1 || l->in > WIDTH_MAX) die("a layer has an impossible size");
        const size_t n = (size_t)l->out * (size_t)l->in;
        l->w = malloc(4 * n);
        l->bias = malloc(4 * (size_t)l->out);
        l->q = malloc(n);
        l->scales = malloc(4 * (size_t)l->out);
        need(l->w, 4 * n, f);
        need(l->bias, 4 * (size_t)l->out, f);
    }
    fclose(f);
}

/* ---- f32 ---- */

typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
static sgemm_fn sgemm;

static void plain_sgemm(const float *a, const float *w, float *c, int m, int n, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float s = 0;
            for (int p = 0; p < k; p++) s += a[i * k + p] * w[j * k + p];
            c[i * n + j] = s;
        }
}

static float act[LAYERS + 1][BATCH_MAX * WIDTH_MAX];

/* act[0] holds the pixels; act[i + 1] receives layer i's output. */
static void run_f32(const layer *l, int count)
{
    for (int i = 0; i < LAYERS; i++) {
        if (sgemm) sgemm(101, 111, 112, count, l[i].out, l[i].in, 1, act[i], l[i].in, l[i].w, l[i].in, 0, act[i + 1], l[i].out);
        else plain_sgemm(act[i], l[i].w, act[i + 1], count, l[i].out, l[i].in);
        for (int r = 0; r < count; r++)
            for (int j = 0; j < l[i].out; j++) {
                float *v = &act[i + 1][r * l[i].out + j];
                *v += l[i].bias[j];
                if (i + 1 < LAYERS && *v < 0) *v = 0;
            }
    }
}

/* ---- int8 ---- */

static void quantize_layers(layer *l, int calibrated)
{
    for (int i = 0; i < LAYERS; i++) {
        octet_gemm_desc d = OCTET_GEMM_DESC;
        octet_quant q = OCTET_QUANT;
        float lo, hi;
        int32_t zero;
        check(octet_quantize_channels(l[i].w, l[i].out, l[i].in, l[i].q, l[i].scales));
        d.n = l[i].out;
        d.k = l[i].in;
        d.a = OCTET_U8;
        d.b = OCTET_S8;
        d.c = i + 1 < LAYERS ? OCTET_U8 : OCTET_F32;
        d.trans_b = 1; /* PyTorch's [N, K] */
        d.bias = OCTET_F32;
        if (i + 1 < LAYERS) d.flags = OCTET_RELU;
        check(octet_range(act[i + 1], (size_t)calibrated * (size_t)l[i].out, &lo, &hi));
        check(octet_choose_quant(0, hi, 0, 255, 0, &l[i].scale_out, &zero));
        q.scales = l[i].scales;
        check(octet_plan_gemm(NULL, &d, &l[i].plan));
        check(octet_pack(l[i].plan, l[i].q, l[i].in, &q, &l[i].packed));
    }
}

static uint8_t q8[LAYERS][BATCH_MAX * WIDTH_MAX];
static float   logits[BATCH_MAX * CLASSES];

static void run_int8(const layer *l, int count)
{
    float scale = 1; /* of the pixels */
    for (int i = 0; i < LAYERS; i++) {
        octet_gemm_args x = OCTET_GEMM_ARGS;
        x.m = count;
        x.a = q8[i];
        x.lda = l[i].in;
        x.b = l[i].packed;
        x.c = i + 1 < LAYERS ? (void *)q8[i + 1] : (void *)logits;
        x.ldc = l[i].out;
        x.bias = l[i].bias;
        x.scale_a = scale;
        x.scale_c = l[i].scale_out;
        check(octet_run(l[i].plan, &x));
        scale = l[i].scale_out;
    }
}

/* ---- the report ---- */

static double accuracy(const float *scores, const images *x)
{
    int right = 0;
    for (int r = 0; r < x->count; r++) {
        int best = 0;
        for (int j = 1; j < CLASSES; j++)
            if (scores[r * CLASSES + j] > scores[r * CLASSES + best]) best = j;
        right += best == x->labels[r];
    }
    return 100.0 * right / x->count;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians of calls made in turn, so that a drifting clock meets both. */
static void time_both(const layer *l, int count, double *f32, double *int8)
{
    enum { RUNS = 201 };
    static double a[RUNS], b[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double t = now_us();
        run_f32(l, count);
        a[i] = now_us() - t;
        t = now_us();
        run_int8(l, count);
        b[i] = now_us() - t;
    }
    qsort(a, RUNS, sizeof *a, by_value);
    qsort(b, RUNS, sizeof *b, by_value);
    *f32 = a[RUNS / 2];
    *int8 = b[RUNS / 2];
}

static void load_pixels(const images *x)
{
    for (int i = 0; i < x->count * PIXELS; i++) act[0][i] = q8[0][i] = x->pixels[i];
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "examples/digits";
    layer l[LAYERS] = { { 0 } };
    load_weights(folder, l);
    if (l[0].in != PIXELS || l[LAYERS - 1].out != CLASSES) die("the weights are of another model");
    const images calibrate = load_images(folder, "calibrate.bin"), test = load_images(folder, "test.bin");
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (blas) sgemm = (sgemm_fn)dlsym(blas, "cblas_sgemm");
    void (*threads)(int) = blas ? (void (*)(int))dlsym(blas, "openblas_set_num_threads") : NULL;
    if (threads) threads(1);

    load_pixels(&calibrate);
    run_f32(l, calibrate.count);
    quantize_layers(l, calibrate.count);

    load_pixels(&test);
    run_f32(l, test.count);
    run_int8(l, test.count);
    const double f32 = accuracy(act[LAYERS], &test), int8 = accuracy(logits, &test);
    printf("handwritten digits, MLP %d-%d-%d-%d, %d test images\n", l[0].in, l[0].out, l[1].out, l[2].out, test.count);
    printf("  accuracy   f32 %.2f %%   int8 %.2f %%\n", f32, int8);
    for (int i = 0; i < LAYERS; i++) printf("  layer %d    %s\n", i + 1, octet_explain(l[i].plan, l[i].packed));
    const int batches[] = { 1, 16, test.count };
    for (int i = 0; i < 3; i++) {
        double t32, t8;
        time_both(l, batches[i], &t32, &t8);
        printf("  batch %-4d f32 %8.2f us (%s)   int8 %8.2f us   %.1f times faster\n", batches[i], t32, sgemm ? "OpenBLAS" : "plain C", t8, t32 / t8);
    }
    for (int i = 0; i < LAYERS; i++) {
        octet_packed_free(l[i].packed);
        octet_plan_free(l[i].plan);
        free(l[i].w); free(l[i].bias); free(l[i].q); free(l[i].scales);
    }
    free(calibrate.pixels); free(calibrate.labels); free(test.pixels); free(test.labels);
    /* a run that lost accuracy is a failure, so that a test can be made of it */
    return int8 + 1.0 < f32 || f32 < 95;
}
