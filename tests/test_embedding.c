/* Embedding bags against the definition: every combination at random, on one thread and several, generated and portable. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bag_case.h"

static octet_status run_one(octet_ctx *ctx, bag_case *c, const octet_bag_args *options)
{
    octet_bag_plan *plan;
    octet_status st = octet_plan_bags(ctx, &c->d, sizeof c->d, 1, &plan);
    if (st) return st;
    octet_bag_args a = OCTET_BAG_ARGS;
    if (options) a = *options;
    a.tables = &c->x;
    st = octet_run_bags(plan, &a);
    octet_bag_plan_free(plan);
    return st;
}

static int random_cases(octet_ctx *ctx, uint64_t from, int count, const char *what)
{
    int bad = 0;
    for (int i = 0; i < count && bad < 5; i++) {
        bag_case c;
        octet_bag_report report = OCTET_BAG_REPORT;
        octet_bag_args a = OCTET_BAG_ARGS;
        bag_case_new(&c, from + (uint64_t)i, 0);
        a.report = &report;
        a.ahead = i % 5 ? 0 : 1 + i % 7;
        a.validate_first = i % 3 == 0;
        const octet_status st = run_one(ctx, &c, &a);
        cr_assert_eq(st, OCTET_OK, "seed %llu: %s", (unsigned long long)c.seed, octet_why());
        bad += bag_case_check(&c, what);
        if (c.d.bad_index == OCTET_BAD_SKIP || c.d.bad_index == OCTET_BAD_ROW0)
            cr_assert_eq(report.bad, c.bad, "seed %llu: %lld bad, not %lld", (unsigned long long)c.seed, (long long)report.bad, (long long)c.bad);
        bag_case_free(&c);
    }
    return bad;
}

Test(embedding, random_bags_equal_the_definition) { cr_assert_eq(random_cases(NULL, 1, 6000, "one thread"), 0); }
