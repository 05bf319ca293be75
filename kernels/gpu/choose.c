/*
 * Which kernel: the table, the reasons of each refusal, and a model of what each would take. Pure functions of a device's
 * description, so that they are tested anywhere.
 *
 * The model counts clocks of one multiprocessor. A stage of 128 bytes of k costs the more of its products (64 x 256 x 32 bytes
 * are 128 clocks of the four tensor cores) and its bytes from L2 (46 a clock for each of 132 multiprocessors: DeepGEMM's measure of an
 * H100, 6150 a clock in all, gives them); a finished tile costs its epilogue unless another warpgroup multiplies meanwhile.
 */
#include "device.h"

#include "kernels.def"

#define ROW(name, op, bm, bn, stages, cluster, turns, seen) \
    { #name, IMAGE, GPU_HOPPER, A_OF_##op, B_OF_##op, bm, bn, stages, cluster, turns, seen },
#define A_OF_s8s8 OCTET_S8
#define B_OF_s8s8 OCTET_S8
#define A_OF_u8s8 OCTET_U8
#define B_OF_u8s8 OCTET_S8
#define A_OF_bf16 OCTET_BF16
#define B_OF_bf16 OCTET_BF16
#define A_OF_f16 OCTET_F16
#define B_OF_f16 OCTET_F16
#define NO_TYPE (octet_dtype)0

const gpu_kernel_row gpu_kernels[] = {
    [GPU_RANGE] = { "octet_find_range", "prepare", GPU_PREPARES, NO_TYPE, NO_TYPE, 0, 0, 0, 0, 0, false },
    [GPU_GATHER] = { "octet_gather", "prepare", GPU_PREPARES, NO_TYPE, NO_TYPE, 0, 0, 0, 0, 0, false },
    [GPU_GATHER_COLUMNS] = { "octet_gather_columns", "prepare", GPU_PREPARES, NO_TYPE, NO_TYPE, 0, 0, 0, 0, 0, false },
    [GPU_PACK] = { "octet_pack_rows", "prepare", GPU_PREPARES, NO_TYPE, NO_TYPE, 0, 0, 0, 0, 0, false },
    [GPU_PORTABLE_S32] = { "octet_portable_s32", "portable", GPU_PORTABLE, NO_TYPE, NO_TYPE, GPU_PORTABLE_TILE, GPU_PORTABLE_TILE, 0, 1, 0, false },
    [GPU_PORTABLE_F32] = { "octet_portable_f32", "portable", GPU_PORTABLE, NO_TYPE, NO_TYPE, GPU_PORTABLE_TILE, GPU_PORTABLE_TILE, 0, 1, 0, false },
#define IMAGE "hopper_s8"
    GPU_HOPPER_S8(ROW)
#undef IMAGE
#define IMAGE "hopper_16"
    GPU_HOPPER_16(ROW)
#undef IMAGE
};
const int gpu_kernel_count = (int)COUNT(gpu_kernels);
_Static_assert(COUNT(gpu_kernels) <= GPU_KERNELS_MAX, "candidates are bits of 64");

gpu_problem gpu_problem_of(const octet_gemm_desc *d, int64_t m)
{
    gpu_problem p = { m, d->n, d->k, is_floating(d->a) && met_as(d) == OCTET_F32 ? d->a : met_as(d), d->b, false, met_as(d) != OCTET_F32,
                      (d->flags & OCTET_NO_FALLBACK) != 0 };
    for (int i = 0; i < OCTET_OPS; i++) p.gated = p.gated || d->chain[i].kind >= OCTET_OP_SWIGLU;
    return p;
}

const char *gpu_refuses(const gpu_kernel_row *r, const octet_gpu_info *g, const gpu_problem *p, bool unseen)
{
    static const int portable_majors[] = { 8, 9, 10, 12 };
    const int64_t most = INT32_MAX - 4096; /* TMA counts rows and columns in 32 bits */
    if (r->role == GPU_HOPPER && (g->major != 9 || g->minor != 0)) return "needs the sm_90a architecture";
    bool built = false;
    for (size_t i = 0; i < COUNT(portable_majors); i++) built = built || g->major == portable_majors[i];
    if (!built) return "not built for this architecture";
    if (p && r->role == GPU_PREPARES) return "no product";
    if (p && r->role == GPU_PORTABLE) {
        if (p->integer != (r == &gpu_kernels[GPU_PORTABLE_S32])) return "other sums";
        return p->no_portable ? "OCTET_NO_FALLBACK is set" : "";
    }
    if (p && (r->a != p->a || r->b != p->b)) return "other types";
    if (p && (p->m > most || p->n > most || p->k > most)) return "a size past 2^31";
    return r->role == GPU_HOPPER && !r->seen && !unseen ? "never checked on such a device: a plan must ask for it" : "";
}

double gpu_cost(const gpu_kernel_row *r, const octet_gpu_info *g, const gpu_problem *p)
{
    const double processors = g->processors > 0 ? g->processors : 1;
    const int64_t m = min64(max64(1, p->m), INT64_C(1) << 40), rows = gpu_packed_rows(p->n, p->gated); /* past it costs only compare */
    const int64_t tiles_m = ceil_div(m, r->bm * r->cluster) * r->cluster, tiles_n = ceil_div(rows, r->bn);
    const double rounds = (double)ceil_div(tiles_m * tiles_n, (int64_t)processors);
    if (r->role != GPU_HOPPER) /* 128 lanes at a third of their rate */
        return 4000 + rounds * (double)p->k * r->bm * r->bn / 40;
    const int bytes = p->integer ? 1 : 2;
    const double steps = (double)ceil_div(p->k * bytes, GPU_ROW_BYTES);
    const double products = 4 * 128.0 * r->bm / 64 * r->bn / 256;
    const double fed = GPU_ROW_BYTES * (r->bm + (double)r->bn / r->cluster) / 46;
    const double stage = products > fed ? products : fed;
    const double epilogue = 400 + (double)r->bm * r->bn / 16;
    const double tile = steps * stage, overlapped = tile > epilogue ? 0 : epilogue - tile;
    return 3000 + rounds * (tile + (r->turns ? overlapped : epilogue)) + (r->turns ? epilogue : 0) + (r->cluster > 1 ? 500 : 0);
}

int gpu_band(const gpu_kernel_row *r, const octet_gpu_info *g, const gpu_problem *p)
{
    const int64_t row_bytes = max64(1, p->k) * (p->integer ? 1 : 2), room = (g->l2_bytes > 0 ? g->l2_bytes : INT64_C(50) << 20) / 2;
    const int64_t rows = room / row_bytes / (r->bm * r->cluster);
    return rows < 4 ? 4 : rows > 16 ? 16 : (int)rows;
}

int gpu_choose(uint64_t candidates, const octet_gpu_info *g, const gpu_problem *p)
{
    int best = -1;
    double least = 0;
    bool tensor_cores = false;
    for (int i = GPU_FIRST_HOPPER; i < gpu_kernel_count; i++)
        tensor_cores = tensor_cores || (candidates >> i & 1 && !*gpu_refuses(&gpu_kernels[i], g, p, true));
    for (int i = 0; i < gpu_kernel_count; i++) {
        if (!(candidates >> i & 1) || *gpu_refuses(&gpu_kernels[i], g, p, true)) continue;
        if (gpu_kernels[i].role == GPU_PORTABLE && tensor_cores && !p->integer) continue; /* other bits: never by m */
        const double cost = gpu_cost(&gpu_kernels[i], g, p);
        if (best < 0 || cost < least) best = i, least = cost;
    }
    return best;
}
