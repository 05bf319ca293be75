// One warpgroup's product of shared-memory operands: D (64 x N) = A (64 x k) B (k x N) + D, or without + D when `sum` is 0;
// k is 32 bytes. PTX ISA, "wgmma.mma_async". Element i of D in thread t: row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column
// 8 (i / 4) + 2 (t % 4) + i % 2.
#pragma once
#ifndef OCTET_EMULATED
#include "ptx.cuh"

#define WGMMA_NAMES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
    "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
    "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, " \
    "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
    "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_4(c, i) "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3])
#define WGMMA_16(c, i) WGMMA_4(c, i), WGMMA_4(c, i + 4), WGMMA_4(c, i + 8), WGMMA_4(c, i + 12)
#define WGMMA_64(c, i) WGMMA_16(c, i), WGMMA_16(c, i + 16), WGMMA_16(c, i + 32), WGMMA_16(c, i + 48)
#define WGMMA_128(c, i) WGMMA_64(c, i), WGMMA_64(c, i + 64)

// name, registers, the names of the operands after them, shape and types, type of D, its constraint, what follows the operands
#define WGMMA(name, regs, a, b, p, form, type, c, tail) \
    GPU_FN void name(type (&d)[regs], uint64_t da, uint64_t db, int32_t sum) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\nwgmma.mma_async.sync.aligned." form " {" WGMMA_NAMES_##regs "}, " a ", " b ", p" tail ";\n}" \
                     : WGMMA_##regs(c, 0) : "l"(da), "l"(db), "r"(sum)); \
    }
#define WGMMA_BOTH(name, k, types, type, c, tail) \
    WGMMA(name, 64, "%64", "%65", "%66", "m64n128" k types, type, c, tail) \
    WGMMA(name, 128, "%128", "%129", "%130", "m64n256" k types, type, c, tail)

WGMMA_BOTH(wgmma_s8s8, "k32", ".s32.s8.s8", int32_t, "r", "")
WGMMA_BOTH(wgmma_u8s8, "k32", ".s32.u8.s8", int32_t, "r", "")
WGMMA_BOTH(wgmma_bf16, "k16", ".f32.bf16.bf16", float, "f", ", 1, 1, 0, 0")
WGMMA_BOTH(wgmma_f16, "k16", ".f32.f16.f16", float, "f", ", 1, 1, 0, 0")
#endif
