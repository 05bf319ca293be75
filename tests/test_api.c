/* The promises of octet.h, one by one: every misuse of every argument gets its status and a sentence,
 * and leaves outputs as they were. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"
#include "octet.h"

/* A small valid product to break in one place at a time. */
typedef struct fixture {
    octet_gemm_desc d;
    octet_gemm_args x;
    octet_plan     *p;
    octet_packed   *packed;
    uint8_t         a[64];
    int8_t          b[64];
    int32_t         c[64], bias[8];
} fixture;

static void fixture_new(fixture *f, octet_dtype c, unsigned flags)
{
    memset(f, 0, sizeof *f);
    f->d = (octet_gemm_desc)OCTET_GEMM_DESC;
    f->d.n = 5;
    f->d.k = 6;
    f->d.a = OCTET_U8;
    f->d.b = OCTET_S8;
    f->d.c = c;
    f->d.flags = flags;
    for (int i = 0; i < 64; i++) { f->a[i] = (uint8_t)i; f->b[i] = (int8_t)(i - 30); f->c[i] = 0x5a5a5a5a; }
    cr_assert_eq(octet_plan_gemm(NULL, &f->d, &f->p), OCTET_OK, "%s", octet_why());
    cr_assert_eq(octet_pack(f->p, f->b, 5, NULL, &f->packed), OCTET_OK, "%s", octet_why());
    f->x = (octet_gemm_args)OCTET_GEMM_ARGS;
    f->x.m = 3;
    f->x.a = f->a;
    f->x.lda = 6;
    f->x.b = f->packed;
    f->x.c = f->c;
    f->x.ldc = 5;
    f->x.bias = f->bias;
}
static void fixture_free(fixture *f)
{
    octet_packed_free(f->packed);
    octet_plan_free(f->p);
}

#define REFUSED(call, status, words) do { \
        const octet_status got_ = (call); \
        cr_expect_eq(got_, status, "%s: %s, not " #status, #call, octet_status_name(got_)); \
        cr_expect(strstr(octet_why(), words), "%s: '%s' does not say '%s'", #call, octet_why(), words); \
    } while (0)

static void desc_refused(octet_gemm_desc d, const char *words)
{
    octet_plan *p = (octet_plan *)(uintptr_t)1;
    REFUSED(octet_plan_gemm(NULL, &d, &p), OCTET_EINVAL, words);
    cr_expect_eq(p, (octet_plan *)(uintptr_t)1, "out was written");
}

Test(api, every_field_of_a_description_is_checked)
{
    octet_gemm_desc ok = OCTET_GEMM_DESC, d;
    octet_plan *p;
    ok.n = ok.k = 4;
    ok.a = OCTET_U8;
    ok.b = OCTET_S8;
    ok.c = OCTET_S32;
    cr_assert_eq(octet_plan_gemm(NULL, &ok, &p), OCTET_OK);
    octet_plan_free(p);
    REFUSED(octet_plan_gemm(NULL, NULL, &p), OCTET_EINVAL, "desc is NULL");
    REFUSED(octet_plan_gemm(NULL, &ok, NULL), OCTET_EINVAL, "out is NULL");
#define BROKEN(change, words) d = ok; change; desc_refused(d, words)
    BROKEN(d.size = 0, "size");
    BROKEN(d.size = 8, "size");
    BROKEN(d.size = 1 << 20, "size");
    BROKEN(d.n = -1, "negative");
    BROKEN(d.k = -1, "negative");
    BROKEN(d.m_hint = -5, "negative");
    BROKEN(d.a = (octet_dtype)0, "a must be");
    BROKEN(d.a = OCTET_S32, "a must be");
    BROKEN(d.b = OCTET_U8, "b must be");
    BROKEN(d.c = (octet_dtype)99, "c must be");
    BROKEN(d.a_as = OCTET_U8, "a_as");
    BROKEN((d.a = OCTET_F32, d.a_as = OCTET_S32), "a_as");
    BROKEN(d.trans_a = 2, "trans");
    BROKEN(d.trans_b = -1, "trans");
    BROKEN(d.trans_c = 7, "trans");
    BROKEN(d.flags = 1u << 20, "flags");
    BROKEN(d.zero_a = 2, "zero_a");
    BROKEN(d.scale_a = -1, "scale_a");
    BROKEN(d.bias = OCTET_U8, "bias");
    BROKEN(d.bias = OCTET_F32, "s32 bias");
    BROKEN((d.c = OCTET_U8, d.flags = OCTET_ACCUMULATE), "ACCUMULATE");
    BROKEN((d.n = INT64_MAX / 2, d.k = 16), "too large");
    BROKEN((d.n = INT64_C(1) << 40, d.k = INT64_C(1) << 40), "too large");
    d = ok;
    d.k = 33025;
    d.flags = OCTET_REFUSE_OVERFLOW;
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK);
    octet_plan_free(p);
    d.k++;
    REFUSED(octet_plan_gemm(NULL, &d, &p), OCTET_EUNSUPPORTED, "2^31");
}

Test(api, every_argument_of_a_run_is_checked_and_c_is_untouched)
{
    fixture f;
    fixture_new(&f, OCTET_S32, OCTET_CLIP);
    f.x.clip_hi = 1;
    octet_gemm_args x;
    octet_packed *other;
    octet_plan *other_plan;
    cr_assert_eq(octet_plan_gemm(NULL, &f.d, &other_plan), OCTET_OK);
    cr_assert_eq(octet_pack(other_plan, f.b, 5, NULL, &other), OCTET_OK);
    int32_t before[64];
    memcpy(before, f.c, sizeof before);
    REFUSED(octet_run(NULL, &f.x), OCTET_EINVAL, "plan is NULL");
    REFUSED(octet_run(f.p, NULL), OCTET_EINVAL, "args is NULL");
#define BAD(change, words) x = f.x; change; REFUSED(octet_run(f.p, &x), OCTET_EINVAL, words)
    BAD(x.size = 0, "size");
    BAD(x.size = 5000, "size");
    BAD(x.m = -1, "m is negative");
    BAD(x.a = NULL, "a is NULL");
    BAD(x.b = NULL, "b is NULL");
    BAD(x.b = other, "another plan");
    BAD(x.c = NULL, "c is NULL");
    BAD(x.lda = 5, "lda");
    BAD(x.lda = -6, "lda");
    BAD(x.ldc = 4, "ldc");
    BAD((x.m = INT64_C(1) << 40, x.lda = INT64_C(1) << 40), "overflows");
    BAD((x.m = INT64_C(1) << 40, x.ldc = INT64_C(1) << 40), "overflows");
    BAD(x.c = (char *)f.c + 2, "misaligned");
    BAD(x.a = f.c, "overlaps a");
    BAD(x.zero_a = -1, "zero_a");
    BAD(x.zero_a = 256, "zero_a");
    BAD((x.clip_lo = 2, x.clip_hi = 1), "clip_lo");
    BAD(x.clip_hi = NAN, "clip_lo");
    BAD(x.workspace = (char *)f.c + 4, "workspace");
    cr_assert_arr_eq(before, f.c, sizeof before);
    octet_packed_free(other);
    octet_plan_free(other_plan);
    fixture_free(&f);

    fixture_new(&f, OCTET_U8, 0);
    BAD(x.scale_c = -1, "scale_c");
    BAD(x.scale_c = INFINITY, "scale_c");
    BAD(x.scale_c = NAN, "scale_c");
    BAD(x.scale_c = 1e-40f, "scale_c");
    BAD(x.zero_c = -1, "zero_c");
    BAD(x.zero_c = 256, "zero_c");
    fixture_free(&f);
}

/* A and C as column slices of one buffer, in either order; one column more is an overlap. */
Test(api, slices_of_one_buffer_do_not_overlap)
{
    uint8_t buffer[4 * 20];
    fixture f;
    fixture_new(&f, OCTET_U8, 0);
    for (int swap = 0; swap < 2; swap++) {
        for (int i = 0; i < 80; i++) buffer[i] = (uint8_t)(i % 7);
        octet_gemm_args x = f.x;
        x.lda = x.ldc = 20;
        x.a = buffer + (swap ? 10 : 0);
        x.c = buffer + (swap ? 5 : 6);
        cr_assert_eq(octet_run(f.p, &x), OCTET_OK, "%s", octet_why());
        x.c = buffer + (swap ? 6 : 5);
        REFUSED(octet_run(f.p, &x), OCTET_EINVAL, "overlaps a");
    }
    fixture_free(&f);
}

Test(api, row_arrays_and_bias_are_checked)
{
    fixture f;
    octet_gemm_args x;
    int32_t zeros[3] = { 0, 300, 0 };
    float scales[3] = { 1, 1, 1 };
    fixture_new(&f, OCTET_F32, 0);
    fixture_free(&f);
    f.d.zero_a = f.d.scale_a = OCTET_PER_ROW;
    f.d.bias = OCTET_F32;
    cr_assert_eq(octet_plan_gemm(NULL, &f.d, &f.p), OCTET_OK);
    cr_assert_eq(octet_pack(f.p, f.b, 5, NULL, &f.packed), OCTET_OK);
    f.x.b = f.packed;
    f.x.zero_a_rows = zeros;
    f.x.scale_a_rows = scales;
    BAD((void)0, "zero_a_rows");
    zeros[1] = 0;
    BAD(x.zero_a_rows = NULL, "zero_a_rows");
    BAD(x.scale_a_rows = NULL, "scale_a_rows");
    BAD(x.bias = NULL, "bias is NULL");
    BAD(x.bias = (char *)f.bias + 1, "bias is misaligned");
    BAD(x.bias = f.c, "overlaps bias");
    cr_assert_eq(octet_run(f.p, &f.x), OCTET_OK, "%s", octet_why());
    fixture_free(&f);
}

Test(api, packing_is_checked)
{
    fixture f;
    fixture_new(&f, OCTET_S32, 0);
    octet_packed *out = (octet_packed *)(uintptr_t)1;
    octet_quant q = OCTET_QUANT;
    int32_t zeros[5] = { 0, 0, 200, 0, 0 };
    REFUSED(octet_pack(NULL, f.b, 5, NULL, &out), OCTET_EINVAL, "plan is NULL");
    REFUSED(octet_pack(f.p, NULL, 5, NULL, &out), OCTET_EINVAL, "b is NULL");
    REFUSED(octet_pack(f.p, f.b, 4, NULL, &out), OCTET_EINVAL, "ldb");
    REFUSED(octet_pack(f.p, f.b, INT64_MAX / 2, NULL, &out), OCTET_EINVAL, "overflows");
    REFUSED(octet_pack(f.p, f.b, 5, NULL, NULL), OCTET_EINVAL, "out is NULL");
    q.size = 3;
    REFUSED(octet_pack(f.p, f.b, 5, &q, &out), OCTET_EINVAL, "size");
    q = (octet_quant)OCTET_QUANT;
    q.zero = 128;
    REFUSED(octet_pack(f.p, f.b, 5, &q, &out), OCTET_EINVAL, "zero point");
    q.zero = 0;
    q.zeros = zeros;
    REFUSED(octet_pack(f.p, f.b, 5, &q, &out), OCTET_EINVAL, "column 2");
    q.zeros = (int32_t *)(void *)((char *)zeros + 1);
    REFUSED(octet_pack(f.p, f.b, 5, &q, &out), OCTET_EINVAL, "misaligned");
    const size_t bound = octet_packed_bound(f.p);
    char *memory = aligned_alloc(64, bound + 64);
    REFUSED(octet_pack_into(f.p, f.b, 5, NULL, NULL, bound, &out), OCTET_EINVAL, "memory is NULL");
    REFUSED(octet_pack_into(f.p, f.b, 5, NULL, memory + 32, bound, &out), OCTET_EINVAL, "aligned");
    REFUSED(octet_pack_into(f.p, f.b, 5, NULL, memory, bound - 1, &out), OCTET_EINVAL, "fewer than");
    cr_assert_eq(out, (octet_packed *)(uintptr_t)1);
    cr_assert_eq(octet_pack_into(f.p, f.b, 5, NULL, memory, bound, &out), OCTET_OK);
    f.x.b = out;
    cr_assert_eq(octet_run(f.p, &f.x), OCTET_OK);
    octet_packed_free(out);
    free(memory);
    REFUSED(octet_unpack(NULL, 0, f.b, 5), OCTET_EINVAL, "packed is NULL");
    REFUSED(octet_unpack(f.packed, 0, NULL, 5), OCTET_EINVAL, "b is NULL");
    REFUSED(octet_unpack(f.packed, 2, f.b, 5), OCTET_EINVAL, "trans");
    REFUSED(octet_unpack(f.packed, 0, f.b, 4), OCTET_EINVAL, "ldb");
    REFUSED(octet_unpack(f.packed, 1, f.b, 5), OCTET_EINVAL, "ldb");
    fixture_free(&f);
}

Test(api, blobs_load_or_are_refused)
{
    fixture f;
    octet_packed *out;
    bool corrupt;
    size_t bytes;
    fixture_new(&f, OCTET_S32, 0);
    cr_assert_eq(octet_run(f.p, &f.x), OCTET_OK);
    const void *data = octet_packed_data(f.packed, &bytes);
    char *copy = aligned_alloc(64, bytes + 64);
    memcpy(copy, data, bytes);
    cr_assert_eq(octet_packed_load(f.p, copy, bytes, &out), OCTET_OK, "%s", octet_why());
    int32_t want[15];
    memcpy(want, f.c, sizeof want);
    memset(f.c, 0, sizeof f.c);
    f.x.b = out;
    cr_assert_eq(octet_run(f.p, &f.x), OCTET_OK);
    cr_assert_arr_eq(f.c, want, sizeof want);
    octet_packed_free(out);

    REFUSED(octet_packed_load(NULL, copy, bytes, &out), OCTET_EINVAL, "plan is NULL");
    REFUSED(octet_packed_load(f.p, NULL, bytes, &out), OCTET_EINVAL, "blob is NULL");
    REFUSED(octet_packed_load(f.p, copy + 8, bytes, &out), OCTET_EINVAL, "aligned");
    REFUSED(octet_packed_load(f.p, copy, 10, &out), OCTET_EINVAL, "truncated");
    REFUSED(octet_packed_load(f.p, copy, bytes - 1, &out), OCTET_EINVAL, "truncated");
    octet_gemm_desc d = f.d;
    octet_plan *other;
    d.n++;
    cr_assert_eq(octet_plan_gemm(NULL, &d, &other), OCTET_OK);
    REFUSED(octet_packed_load(other, copy, bytes, &out), OCTET_EINVAL, "n and k");
    octet_plan_free(other);
    /* every single flipped bit is refused, one way or the other; none is used */
    for (size_t i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            copy[i] = (char)(copy[i] ^ 1 << bit);
            cr_assert(blob_refuses(copy, bytes, &f.p->b, &corrupt), "byte %zu bit %d", i, bit);
            copy[i] = (char)(copy[i] ^ 1 << bit);
        }
    copy[bytes / 2] ^= 1;
    REFUSED(octet_packed_load(f.p, copy, bytes, &out), OCTET_ECORRUPT, "checksum");
    free(copy);
    fixture_free(&f);
}

Test(api, zero_sizes_are_defined)
{
    for (int which = 0; which < 8; which++) {
        const int64_t m = which & 1 ? 3 : 0, n = which & 2 ? 5 : 0, k = which & 4 ? 4 : 0;
        octet_gemm_desc d = OCTET_GEMM_DESC;
        octet_plan *p;
        octet_packed *b;
        uint8_t a[64] = { 0 };
        int8_t w[64] = { 0 };
        float c[64];
        float bias[5] = { 1, 2, 3, 4, 5 };
        for (int i = 0; i < 64; i++) c[i] = -1;
        d.n = n;
        d.k = k;
        d.a = OCTET_U8;
        d.b = OCTET_S8;
        d.c = OCTET_F32;
        d.bias = OCTET_F32;
        cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
        cr_assert_eq(octet_pack(p, k && n ? w : NULL, n, NULL, &b), OCTET_OK, "%s", octet_why());
        octet_gemm_args x = OCTET_GEMM_ARGS;
        x.m = m;
        x.a = m && k ? a : NULL;
        x.lda = k;
        x.b = b;
        x.c = m && n ? c : NULL;
        x.ldc = n;
        x.bias = n ? bias : NULL;
        cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
        for (int i = 0; i < 64; i++) cr_assert_eq(c[i], i < m * n ? bias[i % 5] : -1);
        cr_assert_eq(octet_unpack(b, 0, k && n ? w : NULL, n), OCTET_OK, "%s", octet_why());
        octet_packed_free(b);
        octet_plan_free(p);
    }
}

Test(api, contexts_are_checked)
{
    octet_ctx_opts o = OCTET_CTX_OPTS;
    octet_ctx *c;
    REFUSED(octet_ctx_create(&o, NULL), OCTET_EINVAL, "out is NULL");
    o.threads = -1;
    REFUSED(octet_ctx_create(&o, &c), OCTET_EINVAL, "threads");
    o.threads = 257;
    REFUSED(octet_ctx_create(&o, &c), OCTET_EINVAL, "threads");
    o.threads = 0;
    o.workspaces = 65;
    REFUSED(octet_ctx_create(&o, &c), OCTET_EINVAL, "workspaces");
    o.workspaces = 0;
    o.allocator.free = (void (*)(void *, void *, size_t))(uintptr_t)1;
    REFUSED(octet_ctx_create(&o, &c), OCTET_EINVAL, "allocator");
    o.size = 1;
    REFUSED(octet_ctx_create(&o, &c), OCTET_EINVAL, "size");
    cr_assert_eq(octet_ctx_create(NULL, &c), OCTET_OK);
    octet_ctx_free(c);
    octet_ctx_free(NULL);
    octet_plan_free(NULL);
    octet_packed_free(NULL);
}

Test(api, one_call_products_are_checked)
{
    uint8_t a[16] = { 0 };
    int8_t b[16] = { 0 };
    int32_t c[16] = { 7 };
    octet_requant q = OCTET_REQUANT;
    REFUSED(octet_gemm_u8s8s32(2, 0, 2, 2, 2, a, 2, b, 2, c, 2), OCTET_EINVAL, "trans");
    REFUSED(octet_gemm_u8s8s32(0, 0, -1, 2, 2, a, 2, b, 2, c, 2), OCTET_EINVAL, "m is negative");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, -2, 2, a, 2, b, 2, c, 2), OCTET_EINVAL, "negative");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, 2, 2, NULL, 2, b, 2, c, 2), OCTET_EINVAL, "a is NULL");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, 2, 2, a, 2, NULL, 2, c, 2), OCTET_EINVAL, "b is NULL");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, 2, 2, a, 2, b, 1, c, 2), OCTET_EINVAL, "ldb");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, 2, 2, a, 1, b, 2, c, 2), OCTET_EINVAL, "lda");
    REFUSED(octet_gemm_u8s8s32(0, 0, 2, 2, 2, a, 2, b, 2, NULL, 2), OCTET_EINVAL, "c is NULL");
    q.zero_b = 500;
    REFUSED(octet_gemm_u8s8u8(0, 0, 2, 2, 2, a, 2, b, 2, (uint8_t *)c, 2, &q), OCTET_EINVAL, "zero_b");
    q.zero_b = 0;
    q.zero_c = 500;
    REFUSED(octet_gemm_u8s8u8(0, 0, 2, 2, 2, a, 2, b, 2, (uint8_t *)c, 2, &q), OCTET_EINVAL, "zero_c");
    q.size = 4;
    REFUSED(octet_gemm_u8s8u8(0, 0, 2, 2, 2, a, 2, b, 2, (uint8_t *)c, 2, &q), OCTET_EINVAL, "size");
    cr_assert_eq(c[0], 7);
}

Test(api, names_versions_and_explanations)
{
    cr_assert_str_eq(octet_status_name(OCTET_ENOMEM), "OCTET_ENOMEM");
    cr_assert_str_eq(octet_status_name((octet_status)77), "not an octet_status");
    cr_assert_eq(octet_version(), 400);
    cr_assert_str_eq(octet_explain(NULL, NULL), "no plan");
    fixture f;
    fixture_new(&f, OCTET_S32, 0);
    cr_assert(strstr(octet_explain(f.p, f.packed), "u8s8s32"));
    fixture_free(&f);
    size_t bytes = 1;
    cr_assert_null(octet_packed_data(NULL, &bytes));
    cr_assert_eq(bytes, 0);
    cr_assert_eq(octet_packed_bound(NULL), 0);
    cr_assert_eq(octet_workspace_bytes(NULL, 1, 1), 0);
}

Test(api, the_cache_is_bounded_and_warms)
{
    octet_cache_stats s = OCTET_CACHE_STATS, t = OCTET_CACHE_STATS;
    REFUSED(octet_cache_info(NULL), OCTET_EINVAL, "NULL");
    REFUSED(octet_cache_limit((size_t)1 << 40), OCTET_EINVAL, "arena");
    s.size = 0;
    REFUSED(octet_cache_info(&s), OCTET_EINVAL, "size");
    s = (octet_cache_stats)OCTET_CACHE_STATS;
    if (!cpu_features()) cr_skip_test("no generated code on this machine");
    octet_gemm_desc d[2] = { OCTET_GEMM_DESC, OCTET_GEMM_DESC };
    for (int i = 0; i < 2; i++) {
        d[i].n = 20;
        d[i].k = 30 + i;
        d[i].a = OCTET_U8;
        d[i].b = OCTET_S8;
        d[i].c = OCTET_U8;
    }
    REFUSED(octet_warm(NULL, sizeof d[0], 1), OCTET_EINVAL, "NULL");
    cr_assert_eq(octet_warm(d, sizeof d[0], 2), OCTET_OK, "%s", octet_why());
    octet_cache_info(&s);
    cr_assert(s.executable && s.kernels > 20 && s.in_use == 0);
    /* whatever the data, packing now generates nothing */
    int8_t b[20 * 31];
    for (int kind = 0; kind < 4; kind++) {
        octet_plan *p;
        octet_packed *packed;
        octet_quant q = OCTET_QUANT;
        q.zero = kind & 1;
        for (size_t i = 0; i < sizeof b; i++) b[i] = (int8_t)(kind < 2 ? rand() : rand() % 20 - 10);
        cr_assert_eq(octet_plan_gemm(NULL, &d[kind & 1], &p), OCTET_OK);
        cr_assert_eq(octet_pack(p, b, 20, &q, &packed), OCTET_OK);
        octet_cache_info(&t);
        cr_assert_eq(s.generated, t.generated, "kind %d", kind);
        cr_assert_gt(t.in_use, 0);
        octet_packed_free(packed);
        octet_plan_free(p);
    }
    cr_assert_eq(octet_cache_limit(0), OCTET_OK);
    octet_cache_info(&t);
    cr_assert(t.kernels == 0 && t.code_bytes == 0 && t.evicted >= s.kernels);
    /* with no room at all a plan still gets its kernels, and they go with it */
    fixture f;
    fixture_new(&f, OCTET_S32, 0);
    octet_cache_info(&t);
    cr_assert_gt(t.in_use, 0);
    fixture_free(&f);
    octet_cache_info(&t);
    cr_assert_eq(t.kernels, 0);
    cr_assert_eq(octet_cache_limit(4 << 20), OCTET_OK);
}

/* A newer client's struct is longer; what this library does not know must be at its default. */
Test(api, longer_structs_of_newer_clients)
{
    struct { octet_gemm_desc d; int64_t news[2]; } newer = { OCTET_GEMM_DESC, { 0, 0 } };
    octet_plan *p;
    newer.d.size = sizeof newer;
    newer.d.n = newer.d.k = 3;
    newer.d.a = OCTET_U8;
    newer.d.b = OCTET_S8;
    newer.d.c = OCTET_S32;
    cr_assert_eq(octet_plan_gemm(NULL, &newer.d, &p), OCTET_OK);
    octet_plan_free(p);
    newer.news[1] = 1;
    REFUSED(octet_plan_gemm(NULL, &newer.d, &p), OCTET_EINVAL, "size");
}

static void *other_thread(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)octet_why()[0];
}
Test(api, sentences_belong_to_their_thread)
{
    pthread_t id;
    void *first;
    octet_plan_gemm(NULL, NULL, NULL);
    cr_assert_neq(octet_why()[0], 0);
    pthread_create(&id, NULL, other_thread, NULL);
    pthread_join(id, &first);
    cr_assert_null(first);
}

/* ---- floating point, weight-only, chains ---- */

Test(api, every_field_of_a_floating_description_is_checked)
{
    octet_gemm_desc ok = OCTET_GEMM_DESC, d;
    octet_plan *p;
    ok.n = ok.k = 4;
    ok.a = ok.b = ok.c = OCTET_F32;
    cr_assert_eq(octet_plan_gemm(NULL, &ok, &p), OCTET_OK);
    octet_plan_free(p);
    BROKEN(d.b = OCTET_U8, "b must be");
    BROKEN(d.b = OCTET_E4M3, "b must be");
    BROKEN(d.a = OCTET_U8, "b must be OCTET_S8 with an integer a");
    BROKEN(d.c = OCTET_S32, "c of a floating");
    BROKEN(d.c = OCTET_U8, "c of a floating");
    BROKEN(d.c = OCTET_E5M2, "c must be");
    BROKEN(d.a_as = OCTET_F32, "a_as is for");
    BROKEN((d.b = OCTET_S8, d.a_as = OCTET_F16), "a_as must be");
    BROKEN((d.b = OCTET_S4, d.a_as = OCTET_U8), "a_as is for");
    BROKEN(d.bias = OCTET_S32, "takes an f32 bias");
    BROKEN(d.zero_a = OCTET_PER_ROW, "zero_a and scale_a");
    BROKEN(d.group = 32, "weight-only");
    BROKEN((d.b = OCTET_S4, d.group = 48), "group must be");
    BROKEN(d.flags = OCTET_DYNAMIC, "OCTET_DYNAMIC");
    BROKEN((d.b = OCTET_S8, d.flags = OCTET_REDUCED), "OCTET_REDUCED");
    BROKEN((d.b = OCTET_S8, d.a_as = OCTET_S8, d.flags = OCTET_DYNAMIC | OCTET_REDUCED), "OCTET_REDUCED");
    BROKEN((d.b = OCTET_S8, d.flags = OCTET_DYNAMIC, d.c = OCTET_S32), "s32 C");
    BROKEN((d.b = OCTET_S8, d.flags = OCTET_DYNAMIC, d.zero_a = OCTET_PER_ROW), "found, not given");
    BROKEN(d.chain[1].kind = OCTET_OP_RELU, "gap");
    BROKEN(d.chain[0].shape = OCTET_PER_N, "without a kind");
    BROKEN(d.chain[0].kind = 99, "octet_op_kind");
    BROKEN(d.chain[0].kind = -1, "octet_op_kind");
    BROKEN((d.chain[0].kind = OCTET_OP_ADD, d.chain[0].shape = 4), "shape");
    BROKEN((d.chain[0].kind = OCTET_OP_ADD, d.chain[0].shape = OCTET_PER_N, d.chain[0].type = OCTET_S8), "operand must be");
    BROKEN((d.chain[0].kind = OCTET_OP_ADD, d.chain[0].shape = OCTET_PER_M, d.chain[0].type = OCTET_F16), "by row");
    BROKEN((d.chain[0].kind = OCTET_OP_RELU, d.chain[0].shape = OCTET_PER_N), "without an operand");
    BROKEN((d.chain[0].kind = OCTET_OP_SWIGLU, d.chain[1].kind = OCTET_OP_GLU), "two gates");
    BROKEN((d.chain[0].kind = OCTET_OP_SWIGLU, d.n = 5), "even n");
    BROKEN((d.chain[0].kind = OCTET_OP_SWIGLU, d.bias = OCTET_F32), "with a gate");
    BROKEN((d.chain[0].kind = OCTET_OP_ADD, d.chain[0].shape = OCTET_FULL, d.chain[1].kind = OCTET_OP_GLU), "before a gate");
    BROKEN((d.a = OCTET_U8, d.b = OCTET_S8, d.c = OCTET_S32, d.chain[0].kind = OCTET_OP_RELU), "takes no chain");
    BROKEN((d.n = INT64_C(1) << 40, d.k = INT64_C(1) << 40), "too large");
}

Test(api, every_argument_of_a_floating_run_is_checked_and_c_is_untouched)
{
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_plan *p;
    octet_packed *b;
    static float a[64], w[64], c[64], t[64];
    static const float seven = 7;
    for (int i = 0; i < 64; i++) c[i] = seven;
    d.n = 4, d.k = 6, d.a = d.b = d.c = OCTET_F32;
    d.chain[0] = (octet_op){ OCTET_OP_ADD, OCTET_FULL, OCTET_F32 };
    d.chain[1] = (octet_op){ OCTET_OP_CLIP, 0, (octet_dtype)0 };
    d.chain[2] = (octet_op){ OCTET_OP_MUL, OCTET_PER_M, OCTET_F32 };
    cr_assert_eq(octet_plan_gemm(NULL, &d, &p), OCTET_OK, "%s", octet_why());
    octet_quant q = OCTET_QUANT;
    q.scale = 2;
    REFUSED(octet_pack(p, w, 4, &q, &b), OCTET_EINVAL, "neither scales nor zero points");
    REFUSED(octet_pack(p, (char *)w + 1, 4, NULL, &b), OCTET_EINVAL, "misaligned");
    REFUSED(octet_pack(p, w, 3, NULL, &b), OCTET_EINVAL, "ldb");
    cr_assert_eq(octet_pack(p, w, 4, NULL, &b), OCTET_OK, "%s", octet_why());
    octet_gemm_args ok = OCTET_GEMM_ARGS, x;
    ok.m = 3, ok.a = a, ok.lda = 6, ok.b = b, ok.c = c, ok.ldc = 4;
    ok.operand[0] = (octet_operand){ t, 4, 0, 0 };
    ok.operand[2] = (octet_operand){ t, 0, 0, 0 };
#define SPOILT(change, words) x = ok; change; REFUSED(octet_run(p, &x), OCTET_EINVAL, words)
    SPOILT(x.operand[0].t = NULL, "operand is NULL");
    SPOILT(x.operand[0].ld = 3, "ld of a step");
    SPOILT(x.operand[0].t = (char *)t + 2, "misaligned");
    SPOILT((x.operand[0].t = c + 1), "overlaps a step");
    SPOILT((x.operand[0].t = c, x.operand[0].ld = 5), "overlaps a step");
    SPOILT(x.operand[0].ld = INT64_MAX / 4, "overflows");
    SPOILT((x.operand[1].value = 2, x.operand[1].value2 = 1), "clip");
    SPOILT(x.operand[1].value = NAN, "clip");
    SPOILT(x.operand[2].t = NULL, "operand is NULL");
    SPOILT((x.sums = t, x.ld_sums = 3), "ld_sums");
    SPOILT((x.sums = (char *)t + 1, x.ld_sums = 4), "misaligned");
    SPOILT((x.sums = c + 1, x.ld_sums = 4), "overlaps sums");
    SPOILT(x.a = c, "overlaps a");
    SPOILT(x.a = (char *)a + 1, "misaligned");
    for (int i = 0; i < 64; i++) cr_assert(c[i] == seven, "c was written");
    x = ok;
    x.operand[0].t = c; /* a residual in place, and sums in place */
    x.operand[0].ld = 4;
    x.operand[1] = (octet_operand){ NULL, 0, -100, 100 };
    cr_assert_eq(octet_run(p, &x), OCTET_OK, "%s", octet_why());
    /* another plan's operand */
    octet_plan *other;
    d.b = OCTET_F16;
    cr_assert_eq(octet_plan_gemm(NULL, &d, &other), OCTET_OK);
    x = ok;
    REFUSED(octet_run(other, &x), OCTET_EINVAL, "another plan");
    size_t bytes;
    octet_packed *loaded;
    const void *blob = octet_packed_data(b, &bytes);
    REFUSED(octet_packed_load(other, blob, bytes, &loaded), OCTET_EINVAL, "type, group or gate");
    octet_plan_free(other);
    octet_packed_free(b);
    octet_plan_free(p);

    /* four bits */
    octet_gemm_desc f = OCTET_GEMM_DESC;
    f.n = 4, f.k = 6, f.a = f.c = OCTET_F32, f.b = OCTET_S4;
    cr_assert_eq(octet_plan_gemm(NULL, &f, &p), OCTET_OK);
    q = (octet_quant)OCTET_QUANT;
    REFUSED(octet_pack(p, w, 5, NULL, &b), OCTET_EINVAL, "odd");
    q.zero = 9;
    REFUSED(octet_pack(p, w, 4, &q, &b), OCTET_EINVAL, "outside -8 .. 7");
    octet_plan_free(p);
}

Test(api, floating_zero_sizes_are_legal)
{
    static const int64_t sizes[4][3] = { { 0, 4, 4 }, { 3, 0, 4 }, { 3, 4, 0 }, { 0, 0, 0 } };
    for (int i = 0; i < 4; i++) {
        float a[16] = { 1 }, w[16] = { 1 }, c[16];
        for (int j = 0; j < 16; j++) c[j] = 5;
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        cr_assert_eq(octet_gemm_f32(0, 0, m, n, k, a, k, w, n, c, n), OCTET_OK, "%s", octet_why());
        for (int64_t j = 0; j < 16; j++) cr_assert_eq(c[j], j < m * n && k == 0 ? 0.0f : m * n == 0 || j >= m * n ? 5.0f : c[j]);
    }
}
