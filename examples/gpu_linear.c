/*
 * A quantized linear layer on a GPU, as an inference server runs it: y = gelu(x W^T + b), u8 activations, s8 weights with a scale
 * for each output, bf16 out. The weights are packed once; runs go to the server's own stream and are captured in a graph, which is
 * then replayed. Where there is no GPU octet says why, and the same description runs on the CPU.
 *
 *   cc gpu_linear.c $(pkg-config --cflags --libs octet) -ldl && ./a.out
 *
 * The stream, the memory and the graph are the caller's: here through the driver API without its header, in a server through whatever
 * it uses already.
 */
#include <dlfcn.h>
#include <octet.h>
#include <octet/gpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 64, N = 256, K = 128, REPLAYS = 3 };

static uint8_t  x[M * K];
static int8_t   w[N * K];
static float    scales[N], bias[N];
static uint16_t y[M * N], on_cpu[M * N];

static octet_gemm_desc layer(void)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    d.n = N, d.k = K, d.a = OCTET_U8, d.b = OCTET_S8, d.c = OCTET_BF16, d.trans_b = 1, d.bias = OCTET_F32;
    d.chain[0].kind = OCTET_OP_GELU;
    return d;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, octet_why());
    exit(1);
}
#define TRY(call) do { if (call) fail(#call); } while (0)

/* The CPU: the answer, and the fallback. */
static void run_cpu(uint16_t *out)
{
    const octet_gemm_desc d = layer();
    octet_gemm_args a = OCTET_GEMM_ARGS;
    octet_quant q = OCTET_QUANT;
    octet_plan *plan;
    octet_packed *packed;
    q.scales = scales;
    TRY(octet_plan_gemm(NULL, &d, &plan));
    TRY(octet_pack(plan, w, K, &q, &packed));
    a.m = M, a.a = x, a.lda = K, a.b = packed, a.c = out, a.ldc = N, a.bias = bias, a.scale_a = 0.02f, a.zero_a = 128;
    TRY(octet_run(plan, &a));
    octet_packed_free(packed);
    octet_plan_free(plan);
}

/* ---- the caller's side of CUDA ---- */

static struct {
    int (*retain)(void **, int), (*push)(void *), (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
    int (*to_device)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t);
    int (*stream_new)(void **, unsigned), (*stream_wait)(void *), (*stream_free)(void *);
    int (*capture)(void *, int), (*captured)(void *, void **), (*instantiate)(void **, void *, unsigned long long), (*replay)(void *, void *);
} cu;

static int open_cuda(void)
{
    const struct { void *to; const char *name; } calls[] = {
        { &cu.retain, "cuDevicePrimaryCtxRetain" }, { &cu.push, "cuCtxPushCurrent_v2" }, { &cu.alloc, "cuMemAlloc_v2" }, { &cu.release, "cuMemFree_v2" },
        { &cu.to_device, "cuMemcpyHtoD_v2" }, { &cu.to_host, "cuMemcpyDtoH_v2" }, { &cu.stream_new, "cuStreamCreate" },
        { &cu.stream_wait, "cuStreamSynchronize" }, { &cu.stream_free, "cuStreamDestroy_v2" }, { &cu.capture, "cuStreamBeginCapture_v2" },
        { &cu.captured, "cuStreamEndCapture" }, { &cu.instantiate, "cuGraphInstantiateWithFlags" }, { &cu.replay, "cuGraphLaunch" },
    };
    void *so = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *p = so ? dlsym(so, calls[i].name) : NULL;
        if (!p) return 0;
        memcpy(calls[i].to, &p, sizeof p);
    }
    void *context;
    return !cu.retain(&context, 0) && !cu.push(context);
}

static void *put(const void *host, size_t bytes)
{
    uint64_t p;
    if (cu.alloc(&p, bytes) || (host && cu.to_device(p, host, bytes))) exit(1);
    return (void *)(uintptr_t)p;
}

static void run_gpu(octet_gpu *gpu)
{
    const octet_gemm_desc d = layer();
    octet_gpu_choice choice = OCTET_GPU_CHOICE;
    octet_gemm_args a = OCTET_GEMM_ARGS;
    octet_quant q = OCTET_QUANT;
    octet_plan *plan;
    octet_packed *packed;
    void *stream, *graph, *executable;
    choice.unseen = 1; /* the Hopper kernels, where they fit */
    void *dw = put(w, sizeof w), *dx = put(x, sizeof x), *db = put(bias, sizeof bias), *dy = put(NULL, sizeof y);
    q.scales = put(scales, sizeof scales);
    TRY(octet_gpu_plan_gemm(gpu, &d, &choice, &plan));
    TRY(octet_gpu_pack(plan, dw, K, &q, NULL, &packed));
    TRY(octet_gpu_sync(gpu, NULL));
    a.m = M, a.a = dx, a.lda = K, a.b = packed, a.c = dy, a.ldc = N, a.bias = db, a.scale_a = 0.02f, a.zero_a = 128;
    const size_t bytes = octet_gpu_workspace_bytes(plan, &a);
    void *workspace = bytes ? put(NULL, bytes) : NULL;
    printf("%s\n", octet_explain(plan, packed));

    if (cu.stream_new(&stream, 1) || cu.capture(stream, 1)) exit(1);
    TRY(octet_gpu_run(plan, &a, stream, workspace, bytes)); /* enqueued into the graph: nothing runs yet */
    if (cu.captured(stream, &graph) || cu.instantiate(&executable, graph, 0)) exit(1);
    for (int i = 0; i < REPLAYS; i++)
        if (cu.replay(executable, stream)) exit(1);
    TRY(octet_gpu_sync(gpu, stream));
    if (cu.to_host(y, (uint64_t)(uintptr_t)dy, sizeof y)) exit(1);
    octet_packed_free(packed);
    octet_plan_free(plan);
    cu.stream_free(stream);
}

int main(void)
{
    octet_gpu *gpu;
    for (int i = 0; i < M * K; i++) x[i] = (uint8_t)(i * 73 + i / 11);
    for (int i = 0; i < N * K; i++) w[i] = (int8_t)(i * 29 - i / 7);
    for (int j = 0; j < N; j++) scales[j] = 1e-3f * (float)(1 + j % 9), bias[j] = 0.1f * (float)(j % 5);
    run_cpu(on_cpu);
    if (octet_gpu_create(NULL, &gpu)) { /* OCTET_EDEVICE: the CPU's answer is the answer */
        printf("on the CPU: %s\n", octet_why());
        memcpy(y, on_cpu, sizeof y);
    } else if (!open_cuda()) {
        return 1;
    } else {
        run_gpu(gpu);
        octet_gpu_free(gpu);
    }
    /* integer sums, then the same operations in the same order: the same bits */
    const int same = !memcmp(y, on_cpu, sizeof y);
    printf("%d x %d outputs, %s\n", M, N, same ? "equal to the CPU's" : "NOT equal to the CPU's");
    return !same;
}
