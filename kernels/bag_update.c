#include "bags.h"
octet_status octet_update_bags(const octet_bag_plan *plan, const octet_bag_update *update) { (void)plan; (void)update; return fail(OCTET_EUNSUPPORTED, "not yet"); }
size_t octet_update_bags_bytes(const octet_bag_plan *plan, int64_t max_count) { (void)plan; (void)max_count; return 64; }
