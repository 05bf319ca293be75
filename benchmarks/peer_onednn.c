/* oneDNN's matmul, weights reordered beforehand to the layout it asks for. Version 3; of version 2 the s32 products. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <oneapi/dnnl/dnnl.h>

#include "bench.h"

#define V3 (DNNL_VERSION_MAJOR >= 3)

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static const char *open_onednn(const char *isa)
{
    if (isa && !strcmp(isa, "avx2")) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) || dnnl_stream_create(&stream, engine, dnnl_stream_default_flags)) return "no engine";
    return NULL;
}

static const char *version_onednn(void)
{
    static char text[64];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

typedef struct state {
    dnnl_primitive_t prim;
    dnnl_memory_t    src, weights, bias, dst, extra[4];
    int              count;
    dnnl_exec_arg_t  args[10];
} state;

/* Its OpenMP runtime, if that is what it runs on. */
static void use_threads(int n)
{
    void (*set)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set) set(n);
}

static dnnl_data_type_t type_of(octet_dtype t)
{
    switch (t) {
    case OCTET_U8: return dnnl_u8;
    case OCTET_S8: return dnnl_s8;
    case OCTET_S32: return dnnl_s32;
    case OCTET_F16: return dnnl_f16;
    case OCTET_BF16: return dnnl_bf16;
    default: return dnnl_f32;
    }
}

#if V3
static dnnl_memory_t memory(int nd, const int64_t *dims, dnnl_data_type_t t, dnnl_format_tag_t tag, void *data)
{
    dnnl_memory_desc_t md;
    dnnl_memory_t m = NULL;
    if (dnnl_memory_desc_create_with_tag(&md, nd, dims, t, tag)) return NULL;
    dnnl_memory_create(&m, md, engine, data);
    dnnl_memory_desc_destroy(md);
    return m;
}

static void add(state *s, int arg, dnnl_memory_t m) { s->args[s->count++] = (dnnl_exec_arg_t){ arg, m }; }

static void *prepare(const problem *p)
{
    const bool quantized = p->a == OCTET_U8 || p->a == OCTET_S8;
    if ((!quantized && (!p->floating || p->bias || p->b < OCTET_F32 || p->b > OCTET_BF16)) || p->relu || p->chain[0].kind || !p->m || !p->n || !p->k) return NULL;
    use_threads(p->threads);
    state *s = calloc(1, sizeof *s);
    const dnnl_dims_t am = { p->m, p->k }, bm = { p->k, p->n }, cm = { p->m, p->n }, bias = { 1, p->n }, one = { 1 }, cols = { p->n };
    dnnl_memory_desc_t a, b, c, bd = NULL;
    dnnl_memory_desc_create_with_tag(&a, 2, am, type_of(p->a), dnnl_ab);
    dnnl_memory_desc_create_with_tag(&b, 2, bm, type_of(p->b), dnnl_format_tag_any);
    dnnl_memory_desc_create_with_tag(&c, 2, cm, type_of(p->c), dnnl_ab);
    if (p->bias) dnnl_memory_desc_create_with_tag(&bd, 2, bias, dnnl_s32, dnnl_ab);
    dnnl_primitive_attr_t attr;
    dnnl_primitive_attr_create(&attr);
    if (quantized && p->c != OCTET_S32) {
        dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_SRC, 0);
        dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, 2);
        if (p->zero_a) dnnl_primitive_attr_set_zero_points_mask(attr, DNNL_ARG_SRC, 0);
        if (p->c != OCTET_F32) {
            dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_DST, 0);
            dnnl_primitive_attr_set_zero_points_mask(attr, DNNL_ARG_DST, 0);
        }
    }
    dnnl_primitive_desc_t pd = NULL;
    const bool ok = !dnnl_matmul_primitive_desc_create(&pd, engine, a, b, bd, c, attr);
    if (ok && !dnnl_primitive_create(&s->prim, pd)) {
        const_dnnl_memory_desc_t want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        dnnl_memory_t plain = memory(2, bm, type_of(p->b), dnnl_ba, p->pb);
        dnnl_memory_create(&s->weights, want, engine, DNNL_MEMORY_ALLOCATE);
        dnnl_primitive_desc_t rd;
        dnnl_primitive_t reorder;
        const_dnnl_memory_desc_t from;
        dnnl_memory_get_memory_desc(plain, &from);
        dnnl_reorder_primitive_desc_create(&rd, from, engine, want, engine, NULL);
        dnnl_primitive_create(&reorder, rd);
        dnnl_exec_arg_t ra[] = { { DNNL_ARG_FROM, plain }, { DNNL_ARG_TO, s->weights } };
        dnnl_primitive_execute(reorder, stream, 2, ra);
        dnnl_stream_wait(stream);
        dnnl_primitive_destroy(reorder);
        dnnl_primitive_desc_destroy(rd);
        dnnl_memory_destroy(plain);
        s->src = memory(2, am, type_of(p->a), dnnl_ab, p->pa);
        s->dst = memory(2, cm, type_of(p->c), dnnl_ab, p->pc);
        add(s, DNNL_ARG_SRC, s->src);
        add(s, DNNL_ARG_WEIGHTS, s->weights);
        add(s, DNNL_ARG_DST, s->dst);
        if (p->bias) add(s, DNNL_ARG_BIAS, s->bias = memory(2, bias, dnnl_s32, dnnl_ab, p->pbias));
        if (quantized && p->c != OCTET_S32) {
            problem *q = (problem *)(uintptr_t)p;
            int n = 0;
            add(s, DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, s->extra[n++] = memory(1, one, dnnl_f32, dnnl_a, &q->scale_a));
            add(s, DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, s->extra[n++] = memory(1, cols, dnnl_f32, dnnl_a, q->scales));
            if (p->zero_a) add(s, DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, memory(1, one, dnnl_s32, dnnl_a, &q->zero_a));
            if (p->c != OCTET_F32) {
                add(s, DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, s->extra[n++] = memory(1, one, dnnl_f32, dnnl_a, &q->scale_c));
                add(s, DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, s->extra[n++] = memory(1, one, dnnl_s32, dnnl_a, &q->zero_c));
            }
        }
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    dnnl_memory_desc_destroy(a);
    dnnl_memory_desc_destroy(b);
    dnnl_memory_desc_destroy(c);
    if (bd) dnnl_memory_desc_destroy(bd);
    if (s->count) return s;
    free(s);
    return NULL;
}
#else /* version 2: s32 outputs only, which need no attributes */
static void *prepare(const problem *p)
{
    if (p->floating || p->a == OCTET_F32 || p->c != OCTET_S32 || p->bias || p->relu || !p->m || !p->n || !p->k) return NULL;
    use_threads(p->threads);
    state *s = calloc(1, sizeof *s);
    const dnnl_dims_t am = { p->m, p->k }, bm = { p->k, p->n }, cm = { p->m, p->n };
    dnnl_memory_desc_t a, b, c, plain;
    dnnl_memory_desc_init_by_tag(&a, 2, am, type_of(p->a), dnnl_ab);
    dnnl_memory_desc_init_by_tag(&b, 2, bm, dnnl_s8, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&plain, 2, bm, dnnl_s8, dnnl_ba);
    dnnl_memory_desc_init_by_tag(&c, 2, cm, dnnl_s32, dnnl_ab);
    dnnl_matmul_desc_t d;
    dnnl_primitive_desc_t pd, rd;
    dnnl_primitive_t reorder;
    dnnl_memory_t from;
    if (dnnl_matmul_desc_init(&d, &a, &b, NULL, &c) || dnnl_primitive_desc_create(&pd, &d, NULL, engine, NULL)) {
        free(s);
        return NULL;
    }
    const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_primitive_create(&s->prim, pd);
    dnnl_memory_create(&from, &plain, engine, p->pb);
    dnnl_memory_create(&s->weights, want, engine, DNNL_MEMORY_ALLOCATE);
    dnnl_reorder_primitive_desc_create(&rd, &plain, engine, want, engine, NULL);
    dnnl_primitive_create(&reorder, rd);
    dnnl_exec_arg_t ra[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, s->weights } };
    dnnl_primitive_execute(reorder, stream, 2, ra);
    dnnl_stream_wait(stream);
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(rd);
    dnnl_memory_destroy(from);
    dnnl_memory_create(&s->src, &a, engine, p->pa);
    dnnl_memory_create(&s->dst, &c, engine, p->pc);
    s->args[0] = (dnnl_exec_arg_t){ DNNL_ARG_SRC, s->src };
    s->args[1] = (dnnl_exec_arg_t){ DNNL_ARG_WEIGHTS, s->weights };
    s->args[2] = (dnnl_exec_arg_t){ DNNL_ARG_DST, s->dst };
    s->count = 3;
    dnnl_primitive_desc_destroy(pd);
    return s;
}
#endif

static void run(void *x)
{
    state *s = x;
    dnnl_primitive_execute(s->prim, stream, s->count, s->args);
    dnnl_stream_wait(stream);
}

static void close_onednn(void *x)
{
    state *s = x;
    dnnl_primitive_destroy(s->prim);
    for (int i = 0; i < s->count; i++) dnnl_memory_destroy(s->args[i].memory);
    free(s);
}

const peer peer_onednn = { "onednn", false, open_onednn, version_onednn, prepare, run, close_onednn };
