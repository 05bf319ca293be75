/* A client compiled against an older header, run against the library of today. */
#include <stdio.h>

#include "octet_0.h"

int main(void)
{
    const uint8_t a[6] = { 1, 2, 3, 4, 5, 6 };
    const int8_t b[6] = { 1, -1, 2, -2, 3, -3 };
    int32_t c[4] = { 0 };
    octet_gemm_desc d = { sizeof d, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0 };
    octet_quant q = { sizeof q, 0, 1 };
    octet_plan *p;
    octet_packed *packed;
    if (octet_plan_gemm(0, &d, &p) || octet_pack(p, b, 2, &q, &packed)) return 1;
    octet_gemm_args x = { sizeof x, 2, a, 3, packed, c, 2 };
    const int bad = octet_run(p, &x);
    octet_packed_free(packed);
    octet_plan_free(p);
    /* (b - 1): 0 -2, 1 -3, 2 -4 */
    const int right = c[0] == 8 && c[1] == -20 && c[2] == 17 && c[3] == -47;
    printf("%d passed, %d failed\n", !bad && right, bad || !right);
    return bad || !right;
}
