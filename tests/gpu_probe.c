/* A few products through kernels with clusters, turns and long k, checked: what each planted bug of emulator/mutants.py must fail, and
 * the source as it is must pass. */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "fake_cuda.h"
#include "gpu_case.h"

int main(void)
{
    static const struct { const char *kernel; int64_t m, n, k; } products[] = {
        { "octet_portable_s32", 70, 70, 50 },
        { "octet_u8s8_128x256_c2", 300, 520, 1300 }, { "octet_u8s8_128x128_turns_c2", 300, 300, 900 }, { "octet_u8s8_64x256_turns", 330, 300, 700 },
        { "octet_u8s8_128x256", 140, 300, 700 }, { "octet_u8s8_128x128", 130, 40, 0 }, { "octet_u8s8_64x256_turns", 1100, 260, 130 },
    };
    octet_gpu *g = gpu_device();
    fake_cuda_state *s = gpu_replace_driver();
    uint64_t seed = 1;
    if (!g || !s) return 2;
    s->runs_kernels = 1;
    s->processors = 2;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        any_case c;
        for (bool found = false; !found; seed++) { /* u8 as it is, every column with its own zero point and scale, into f32 */
            any_new(&c, seed, 2, 2, 2);
            found = c.d.a == OCTET_U8 && c.d.c == OCTET_F32 && c.q.zeros;
            any_free(&c);
        }
        for (int turn = 0; turn < 3; turn++) { /* other timings */
            any_new(&c, seed - 1, products[i].m, products[i].n, products[i].k);
            s->seed = seed + (uint64_t)turn * 1000;
            const int bad = gpu_run_case(&c, g, products[i].kernel);
            any_free(&c);
            if (bad || s->violations) return 1;
        }
    }
    puts("1 passed, 0 failed");
    return 0;
}
