/* cc hello.c $(pkg-config --cflags --libs octet) && ./a.out */
#include <octet.h>
#include <stdio.h>

int main(void)
{
    const uint8_t a[2 * 3] = { 1, 2, 3, 255, 255, 255 };
    const int8_t b[3 * 2] = { 127, -1, 127, -2, 127, -3 };
    int32_t c[2 * 2];
    octet_gemm_desc d = OCTET_GEMM_DESC;
    octet_gemm_args x = OCTET_GEMM_ARGS;
    octet_plan *plan;
    octet_packed *packed;

    d.n = 2, d.k = 3, d.a = OCTET_U8, d.b = OCTET_S8, d.c = OCTET_S32;
    if (octet_plan_gemm(NULL, &d, &plan) || octet_pack(plan, b, 2, NULL, &packed)) return puts(octet_why()), 1;
    x.m = 2, x.a = a, x.lda = 3, x.b = packed, x.c = c, x.ldc = 2;
    if (octet_run(plan, &x)) return puts(octet_why()), 1;
    printf("%d %d\n%d %d\n", c[0], c[1], c[2], c[3]); /* 97155 is 3 * 255 * 127: nothing saturated */
    octet_packed_free(packed);
    octet_plan_free(plan);
    return c[2] != 97155;
}
