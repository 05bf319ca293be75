/* Every kind of bag kernel interpreted, instruction by instruction: the portable kernel's values, and no access outside the rows,
 * indices, offsets and weights it was given. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bag_case.h"
#include "bags.h"
#include "interp.h"
#include "plain.h"

enum { CODE = 1 << 15 };

/* The kernel's arguments for all bags of a case whose offsets have a last entry, or are lengths. */
static void arguments(bag_args *k, const bag_case *c, const bag_unit *u, bag_spec *s, int64_t ahead, void *out)
{
    const octet_bag_table *x = &c->x;
    const int64_t at = bag_first(u, x);
    memset(k, 0x5b, sizeof *k);
    k->indices = x->indices;
    k->index = k->indices + at * u->index_bytes;
    k->last = k->indices + (x->count - 1) * u->index_bytes;
    k->ahead = k->indices + min64(at + ahead, x->count - 1) * u->index_bytes;
    k->further = ahead * u->index_bytes;
    k->data = (const char *)x->table + u->values;
    k->params = (const char *)x->table + u->params;
    k->stride = x->row_bytes ? x->row_bytes : u->row_bytes;
    k->rows = (uint64_t)x->rows;
    k->weights = x->weights + (c->d.weights == OCTET_WEIGHT_EACH ? at : 0);
    k->weight_count = x->weight_count;
    k->offsets = (const char *)x->offsets + (c->d.flags & OCTET_BAG_LENGTHS ? 0 : u->offset_bytes);
    k->at = at;
    k->count = x->count;
    k->bags = bags_of(u, x);
    k->out = out;
    k->out_step = x->ld_out * (s->out == OCTET_F32 ? 4 : 2);
    k->padding = x->padding;
    k->remap = x->remap;
    k->remap_rows = (uint64_t)x->remap_rows;
    k->bad = k->status = 0;
    k->consts = &gen_const;
    k->spec = s;
}

static bool same(int type, const void *a, const void *b)
{
    uint32_t x = 0, y = 0;
    const uint32_t inf = type == OCTET_F32 ? 0x7f800000 : type == OCTET_F16 ? 0x7c00 : 0x7f80, sign = type == OCTET_F32 ? 0x80000000u : 0x8000;
    memcpy(&x, a, type == OCTET_F32 ? 4 : 2);
    memcpy(&y, b, type == OCTET_F32 ? 4 : 2);
    return x == y || ((x & ~sign) > inf && (y & ~sign) > inf);
}

static int interpret(uint64_t seed, int ahead)
{
    static uint8_t code[CODE];
    static bag_args k, p;
    bag_case c;
    octet_bag_plan *plan;
    size_t bytes;
    uint64_t steps;
    int bad = 0;
    bag_case_new(&c, seed, 0);
    const bool last = c.d.pooling == OCTET_NONE || (c.d.flags & (OCTET_BAG_LENGTHS | OCTET_BAG_LAST_OFFSET));
    if (!last || c.d.out == OCTET_U8 || c.d.dim > BAG_COLS || c.x.count == 0) { bag_case_free(&c); return 0; }
    cr_assert_eq(octet_plan_bags(NULL, &c.d, sizeof c.d, 1, &plan), OCTET_OK);
    const bag_unit *u = &plan->unit[0];
    bag_spec s = u->spec[1];
    s.ahead = ahead > 0;
    cr_assert_eq(gen_bag(&s, code, sizeof code, &bytes), OCTET_OK);
    uint8_t *out = malloc(c.out.bytes + 1), *want = malloc(c.out.bytes + 1);
    memset(out, 0xc5, c.out.bytes);
    memset(want, 0xc5, c.out.bytes);
    arguments(&k, &c, u, &s, ahead, out);
    arguments(&p, &c, u, &s, ahead, want);
    const interp_range ranges[] = {
        { &k, sizeof k, true }, { out, c.out.bytes, true }, { &gen_const, sizeof gen_const, false }, { c.table.p, c.table.bytes, false },
        { c.indices.p, c.indices.bytes, false }, { c.offsets.p, c.offsets.bytes, false }, { c.weights.p, c.weights.bytes, false }, { c.remap.p, c.remap.bytes, false },
    };
    const char *why = interp_run(code, bytes, &k, ranges, sizeof ranges / sizeof *ranges, &steps);
    plain_bag(&p);
    char name[KERNEL_NAME];
    bag_name(&s, name);
    if (why) { printf("seed %llu, %s: %s\n", (unsigned long long)seed, name, why); bad = 1; }
    if (!bad && (k.status != p.status || k.bad != p.bad || k.bags != p.bags)) { printf("seed %llu, %s: status %d, bad %d\n", (unsigned long long)seed, name, (int)k.status, (int)k.bad); bad = 1; }
    const size_t elem = s.out == OCTET_F32 ? 4 : 2;
    for (size_t i = 0; !bad && i + elem <= c.out.bytes; i += elem)
        if (!same(s.out, out + i, want + i)) { printf("seed %llu, %s: value %zu differs\n", (unsigned long long)seed, name, i / elem); bad = 1; }
    free(out), free(want);
    octet_bag_plan_free(plan);
    bag_case_free(&c);
    return bad;
}

Test(bag_kernels, interpreted_within_bounds)
{
    int bad = 0;
    for (uint64_t seed = 900000; seed < 903500 && bad < 5; seed++) bad += interpret(seed, (int)(seed % 3) * 5);
    cr_assert_eq(bad, 0);
}

Test(bag_kernels, what_is_no_kernel_is_refused)
{
    static uint8_t code[CODE];
    size_t bytes;
    const bag_spec good = { .dot = DOT_BAG, .table = OCTET_U8, .out = OCTET_F32, .cols_low = 64 };
    bag_spec s = good;
    cr_assert_eq(gen_bag(&s, code, sizeof code, &bytes), OCTET_OK);
    cr_assert_eq(gen_bag(&s, code, 100, &bytes), OCTET_ENOMEM);
#define REFUSES(change) s = good; change; cr_expect_eq(gen_bag(&s, code, sizeof code, &bytes), OCTET_EUNSUPPORTED, #change)
    REFUSES(s.dot = 0);
    REFUSES(s.table = OCTET_S8);
    REFUSES(s.table = 200);
    REFUSES(s.out = OCTET_U8);
    REFUSES(s.cols_low = 0);
    REFUSES(s.cols_high = 5);
    REFUSES(s.pooling = 4);
    REFUSES(s.weights = 3);
    REFUSES((s.weights = 1, s.pooling = OCTET_MAX));
    REFUSES(s.bad = 4);
    REFUSES(s.half = 2);
    REFUSES((s.table = OCTET_F32, s.half = 1));
    REFUSES(s.index32 = 2);
    REFUSES(s.unused[3] = 1);
    /* the widest of every format fits the cache's limit */
    static const int tables[] = { OCTET_F32, OCTET_F16, OCTET_BF16, OCTET_U8, OCTET_U4, OCTET_U2, OCTET_E4M3, OCTET_E5M2 };
    for (int t = 0; t < 8; t++)
        for (int pooling = 0; pooling < 4; pooling++)
            for (int out = OCTET_F32; out <= OCTET_BF16; out++) {
                bag_spec wide = { .dot = DOT_BAG, .table = (uint8_t)tables[t], .out = (uint8_t)out, .cols_high = 3, .cols_low = 255, .pooling = (uint8_t)pooling, .padding = 1,
                                  .remap = 1, .ahead = 1, .weights = pooling != OCTET_MAX };
                cr_assert_eq(gen_bag(&wide, code, sizeof code, &bytes), OCTET_OK, "table %d, pooling %d, out %d", tables[t], pooling, out);
            }
}
