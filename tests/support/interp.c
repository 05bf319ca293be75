/* See interp.h. Semantics from the Intel SDM, vol. 2; 128- and 256-bit VEX forms. */
#include "interp.h"

#include <Zydis/Zydis.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef union vec {
    uint8_t b[32]; int8_t sb[32]; uint16_t w[16]; int16_t sw[16]; uint32_t d[8]; int32_t sd[8]; uint64_t q[4]; float f[8];
} vec;

enum { STACK = 4096, CACHED = 32768 };
typedef struct insn { ZydisDecodedInstruction in; ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT]; } insn;
typedef struct machine {
    uint64_t            gpr[16], rip;
    vec                 v[16];
    bool                zf, cf, upper_clean;
    const interp_range *ranges;
    size_t              count;
    const char         *error;
    uint8_t             stack[STACK];
} machine;

static char text[256];

static void stop(machine *m, const insn *i, const char *why)
{
    char line[120] = "";
    ZydisFormatter f;
    ZydisFormatterInit(&f, ZYDIS_FORMATTER_STYLE_INTEL);
    if (i) ZydisFormatterFormatInstruction(&f, &i->in, i->op, i->in.operand_count_visible, line, sizeof line, m->rip, NULL);
    snprintf(text, sizeof text, "%s: %s", why, line);
    if (!m->error) m->error = text;
}

/* The bytes at `at`, if a declared range or the stack (with its red zone) holds them all. */
static void *memory(machine *m, const insn *i, uint64_t at, size_t n, bool write)
{
    for (size_t r = 0; r < m->count; r++) {
        const uint64_t begin = (uint64_t)(uintptr_t)m->ranges[r].begin;
        if (at >= begin && at + n <= begin + m->ranges[r].bytes && at + n >= at && (!write || m->ranges[r].writable))
            return (void *)(uintptr_t)at;
    }
    const uint64_t low = (uint64_t)(uintptr_t)m->stack;
    if (at >= m->gpr[4] - 128 && at >= low && at + n <= low + STACK) return (void *)(uintptr_t)at;
    stop(m, i, write ? "writes outside its buffers" : "reads outside its buffers");
    return NULL;
}

static int number(ZydisRegister r)
{
    return ZydisRegisterGetId(r);
}

static uint64_t address(const machine *m, const insn *i, const ZydisDecodedOperand *o)
{
    (void)i;
    uint64_t a = o->mem.disp.has_displacement ? (uint64_t)o->mem.disp.value : 0;
    if (o->mem.base) a += m->gpr[number(o->mem.base)];
    if (o->mem.index) a += m->gpr[number(o->mem.index)] * o->mem.scale;
    return a;
}

static uint64_t get(machine *m, const insn *i, int n)
{
    const ZydisDecodedOperand *o = &i->op[n];
    const size_t bytes = o->size / 8;
    uint64_t v = 0;
    if (o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return o->imm.value.u;
    if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
        const void *p = memory(m, i, address(m, i, o), bytes, false);
        if (p) memcpy(&v, p, bytes);
        return v;
    }
    v = m->gpr[number(o->reg.value)];
    return bytes == 8 ? v : v & ((UINT64_C(1) << 8 * bytes) - 1);
}

static void set(machine *m, const insn *i, int n, uint64_t v)
{
    const ZydisDecodedOperand *o = &i->op[n];
    const size_t bytes = o->size / 8;
    if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
        void *p = memory(m, i, address(m, i, o), bytes, true);
        if (p) memcpy(p, &v, bytes);
        return;
    }
    m->gpr[number(o->reg.value)] = bytes == 4 ? (uint32_t)v : v; /* 32-bit writes clear the upper half */
}

/* A vector source: register or memory; what memory holds is read exactly, the rest of the vector is 0. */
static vec vsrc(machine *m, const insn *i, int n)
{
    const ZydisDecodedOperand *o = &i->op[n];
    vec v;
    memset(&v, 0, sizeof v);
    if (o->type == ZYDIS_OPERAND_TYPE_REGISTER) {
        if (o->reg.value >= ZYDIS_REGISTER_XMM0 && o->reg.value <= ZYDIS_REGISTER_YMM31) return m->v[number(o->reg.value)];
        v.q[0] = m->gpr[number(o->reg.value)];
        return v;
    }
    const void *p = memory(m, i, address(m, i, o), o->size / 8, false);
    if (p) memcpy(&v, p, o->size / 8);
    return v;
}

/* Writes n bytes of v to memory, or a register whose bits above the vector length a VEX write clears. */
static void vdst(machine *m, const insn *i, int n, vec v, size_t bytes)
{
    const ZydisDecodedOperand *o = &i->op[n];
    if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
        void *p = memory(m, i, address(m, i, o), bytes, true);
        if (p) memcpy(p, &v, bytes);
        return;
    }
    vec clean;
    memset(&clean, 0, sizeof clean);
    memcpy(&clean, &v, bytes);
    m->v[number(o->reg.value)] = clean;
    m->upper_clean = false;
}

static int16_t sat16(int32_t x) { return (int16_t)(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }
static uint8_t sat_u8(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }
static int8_t  sat_s8(int32_t x) { return (int8_t)(x < -128 ? -128 : x > 127 ? 127 : x); }
static uint16_t sat_u16(int32_t x) { return (uint16_t)(x < 0 ? 0 : x > 65535 ? 65535 : x); }

uint16_t ref_f32_to_f16(float);
float    ref_f16_to_f32(uint16_t);

/* One vector instruction; false: not one of ours. */
static bool vector(machine *m, const insn *in)
{
    const ZydisMnemonic op = in->in.mnemonic;
    const size_t len = in->in.avx.vector_length / 8;
    const int lanes = (int)len / 16;
    const int last = in->in.operand_count_visible - 1;
    const bool immediate = in->op[last].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
    const uint8_t imm = immediate ? (uint8_t)in->op[last].imm.value.u : 0;
    vec a, b, r;
    memset(&r, 0, sizeof r);
#define BINARY(body) a = vsrc(m, in, 1); b = vsrc(m, in, 2); body; vdst(m, in, 0, r, len); return true
#define EACH(count) for (int j = 0; j < (int)(count); j++)
#define LANES(per) for (int l = 0; l < lanes; l++) for (int j = 0; j < (per); j++)
    switch (op) {
    case ZYDIS_MNEMONIC_VPADDW: BINARY(EACH(len / 2) r.w[j] = (uint16_t)(a.w[j] + b.w[j]));
    case ZYDIS_MNEMONIC_VPADDD: BINARY(EACH(len / 4) r.d[j] = a.d[j] + b.d[j]);
    case ZYDIS_MNEMONIC_VPSUBD: BINARY(EACH(len / 4) r.d[j] = a.d[j] - b.d[j]);
    case ZYDIS_MNEMONIC_VPMULLD: BINARY(EACH(len / 4) r.d[j] = a.d[j] * b.d[j]);
    case ZYDIS_MNEMONIC_VPMAXSD: BINARY(EACH(len / 4) r.sd[j] = a.sd[j] > b.sd[j] ? a.sd[j] : b.sd[j]);
    case ZYDIS_MNEMONIC_VPMINSD: BINARY(EACH(len / 4) r.sd[j] = a.sd[j] < b.sd[j] ? a.sd[j] : b.sd[j]);
    case ZYDIS_MNEMONIC_VPAND: BINARY(EACH(len / 8) r.q[j] = a.q[j] & b.q[j]);
    case ZYDIS_MNEMONIC_VPOR: BINARY(EACH(len / 8) r.q[j] = a.q[j] | b.q[j]);
    case ZYDIS_MNEMONIC_VPXOR: BINARY(EACH(len / 8) r.q[j] = a.q[j] ^ b.q[j]);
    case ZYDIS_MNEMONIC_VPCMPEQW: BINARY(EACH(len / 2) r.w[j] = a.w[j] == b.w[j] ? 0xffff : 0);
    case ZYDIS_MNEMONIC_VPMADDWD: BINARY(EACH(len / 4) r.d[j] = (uint32_t)(a.sw[2 * j] * b.sw[2 * j]) + (uint32_t)(a.sw[2 * j + 1] * b.sw[2 * j + 1]));
    case ZYDIS_MNEMONIC_VPMADDUBSW: BINARY(EACH(len / 2) r.sw[j] = sat16(a.b[2 * j] * b.sb[2 * j] + a.b[2 * j + 1] * b.sb[2 * j + 1]));
    case ZYDIS_MNEMONIC_VPHADDD: BINARY(LANES(2) {
        r.d[4 * l + j] = a.d[4 * l + 2 * j] + a.d[4 * l + 2 * j + 1];
        r.d[4 * l + 2 + j] = b.d[4 * l + 2 * j] + b.d[4 * l + 2 * j + 1]; });
    case ZYDIS_MNEMONIC_VPSHUFB: BINARY(LANES(16) r.b[16 * l + j] = b.b[16 * l + j] & 0x80 ? 0 : a.b[16 * l + (b.b[16 * l + j] & 15)]);
    case ZYDIS_MNEMONIC_VPACKSSDW: BINARY(LANES(4) { r.sw[8 * l + j] = sat16(a.sd[4 * l + j]); r.sw[8 * l + 4 + j] = sat16(b.sd[4 * l + j]); });
    case ZYDIS_MNEMONIC_VPACKUSDW: BINARY(LANES(4) { r.w[8 * l + j] = sat_u16(a.sd[4 * l + j]); r.w[8 * l + 4 + j] = sat_u16(b.sd[4 * l + j]); });
    case ZYDIS_MNEMONIC_VPACKSSWB: BINARY(LANES(8) { r.sb[16 * l + j] = sat_s8(a.sw[8 * l + j]); r.sb[16 * l + 8 + j] = sat_s8(b.sw[8 * l + j]); });
    case ZYDIS_MNEMONIC_VPACKUSWB: BINARY(LANES(8) { r.b[16 * l + j] = sat_u8(a.sw[8 * l + j]); r.b[16 * l + 8 + j] = sat_u8(b.sw[8 * l + j]); });
    case ZYDIS_MNEMONIC_VPUNPCKLDQ: BINARY(LANES(2) { r.d[4 * l + 2 * j] = a.d[4 * l + j]; r.d[4 * l + 2 * j + 1] = b.d[4 * l + j]; });
    case ZYDIS_MNEMONIC_VPUNPCKHDQ: BINARY(LANES(2) { r.d[4 * l + 2 * j] = a.d[4 * l + 2 + j]; r.d[4 * l + 2 * j + 1] = b.d[4 * l + 2 + j]; });
    case ZYDIS_MNEMONIC_VPSRLVD: BINARY(EACH(len / 4) r.d[j] = b.d[j] > 31 ? 0 : a.d[j] >> b.d[j]);
    case ZYDIS_MNEMONIC_VPERMILPS: if (immediate) return false; BINARY(LANES(4) r.d[4 * l + j] = a.d[4 * l + (b.d[4 * l + j] & 3)]);
    case ZYDIS_MNEMONIC_VCVTSI2SS: {
        a = vsrc(m, in, 1);
        b = vsrc(m, in, 2);
        a.f[0] = (float)(int64_t)b.q[0];
        vdst(m, in, 0, a, 16);
        return true;
    }
    case ZYDIS_MNEMONIC_VMULPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] * b.f[j]);
    case ZYDIS_MNEMONIC_VADDPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] + b.f[j]);
    case ZYDIS_MNEMONIC_VSUBPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] - b.f[j]);
    case ZYDIS_MNEMONIC_VDIVPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] / b.f[j]);
    case ZYDIS_MNEMONIC_VFMADD231PS: { const vec d = m->v[number(in->op[0].reg.value)]; BINARY(EACH(len / 4) r.f[j] = fmaf(a.f[j], b.f[j], d.f[j])); }
    case ZYDIS_MNEMONIC_VFMADD213PS: { const vec d = m->v[number(in->op[0].reg.value)]; BINARY(EACH(len / 4) r.f[j] = fmaf(a.f[j], d.f[j], b.f[j])); }
    case ZYDIS_MNEMONIC_VFMSUB213PS: { const vec d = m->v[number(in->op[0].reg.value)]; BINARY(EACH(len / 4) r.f[j] = fmaf(a.f[j], d.f[j], -b.f[j])); }
    case ZYDIS_MNEMONIC_VFNMADD213PS: { const vec d = m->v[number(in->op[0].reg.value)]; BINARY(EACH(len / 4) r.f[j] = fmaf(-a.f[j], d.f[j], b.f[j])); }
    case ZYDIS_MNEMONIC_VMASKMOVPS: { /* a load: lanes whose mask is off are not read */
        if (in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY) return false;
        a = vsrc(m, in, 1);
        EACH(len / 4) {
            if (!(a.d[j] >> 31)) continue;
            const void *p = memory(m, in, address(m, in, &in->op[2]) + 4 * (uint64_t)j, 4, false);
            if (p) memcpy(&r.d[j], p, 4);
        }
        vdst(m, in, 0, r, len);
        return true;
    }
    case ZYDIS_MNEMONIC_VMAXPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] > b.f[j] ? a.f[j] : b.f[j]);
    case ZYDIS_MNEMONIC_VMINPS: BINARY(EACH(len / 4) r.f[j] = a.f[j] < b.f[j] ? a.f[j] : b.f[j]);
    case ZYDIS_MNEMONIC_VCMPPS:
        if (imm != 3) return false;
        BINARY(EACH(len / 4) r.d[j] = isnan(a.f[j]) || isnan(b.f[j]) ? ~0u : 0);
    case ZYDIS_MNEMONIC_VBLENDVPS: {
        const vec mask = vsrc(m, in, 3);
        BINARY(EACH(len / 4) r.d[j] = mask.d[j] >> 31 ? b.d[j] : a.d[j]);
    }
    default: break;
    }
    if (op == ZYDIS_MNEMONIC_VINSERTI128) {
        a = vsrc(m, in, 1);
        b = vsrc(m, in, 2);
        memcpy(&a.b[16 * (imm & 1)], &b, 16);
        vdst(m, in, 0, a, 32);
        return true;
    }
    if (op == ZYDIS_MNEMONIC_VPINSRB || op == ZYDIS_MNEMONIC_VPINSRW || op == ZYDIS_MNEMONIC_VPINSRD) {
        a = vsrc(m, in, 1);
        b = vsrc(m, in, 2);
        if (op == ZYDIS_MNEMONIC_VPINSRB) a.b[imm & 15] = b.b[0];
        else if (op == ZYDIS_MNEMONIC_VPINSRW) a.w[imm & 7] = b.w[0];
        else a.d[imm & 3] = b.d[0];
        vdst(m, in, 0, a, 16);
        return true;
    }
    a = vsrc(m, in, 1); /* all that follow have one source */
    switch (op) {
    case ZYDIS_MNEMONIC_VMOVDQU: vdst(m, in, 0, a, len); return true;
    case ZYDIS_MNEMONIC_VMOVQ: vdst(m, in, 0, a, 8); return true;
    case ZYDIS_MNEMONIC_VMOVD: vdst(m, in, 0, a, 4); return true;
    case ZYDIS_MNEMONIC_VPSRLW: EACH(len / 2) r.w[j] = (uint16_t)(imm > 15 ? 0 : a.w[j] >> imm); break;
    case ZYDIS_MNEMONIC_VPSLLW: EACH(len / 2) r.w[j] = (uint16_t)(imm > 15 ? 0 : a.w[j] << imm); break;
    case ZYDIS_MNEMONIC_VPMOVZXBW: EACH(len / 2) r.w[j] = a.b[j]; break;
    case ZYDIS_MNEMONIC_VPSRLD: EACH(len / 4) r.d[j] = imm > 31 ? 0 : a.d[j] >> imm; break;
    case ZYDIS_MNEMONIC_VPSRAD: EACH(len / 4) r.sd[j] = a.sd[j] >> (imm > 31 ? 31 : imm); break;
    case ZYDIS_MNEMONIC_VPMOVSXBD: EACH(len / 4) r.sd[j] = a.sb[j]; break;
    case ZYDIS_MNEMONIC_VROUNDPS:
        if (imm) return false; /* nearest even alone */
        EACH(len / 4) r.f[j] = rintf(a.f[j]);
        break;
    case ZYDIS_MNEMONIC_VPSLLD: EACH(len / 4) r.d[j] = imm > 31 ? 0 : a.d[j] << imm; break;
    case ZYDIS_MNEMONIC_VPMOVSXBW: EACH(len / 2) r.sw[j] = a.sb[j]; break;
    case ZYDIS_MNEMONIC_VPMOVZXBD: EACH(len / 4) r.d[j] = a.b[j]; break;
    case ZYDIS_MNEMONIC_VPMOVZXWD: EACH(len / 4) r.d[j] = a.w[j]; break;
    case ZYDIS_MNEMONIC_VBROADCASTSS:
    case ZYDIS_MNEMONIC_VPBROADCASTD: EACH(len / 4) r.d[j] = a.d[0]; break;
    case ZYDIS_MNEMONIC_VPBROADCASTQ: EACH(len / 8) r.q[j] = a.q[0]; break;
    case ZYDIS_MNEMONIC_VPSHUFD: LANES(4) r.d[4 * l + j] = a.d[4 * l + (imm >> 2 * j & 3)]; break;
    case ZYDIS_MNEMONIC_VPERMQ: EACH(4) r.q[j] = a.q[imm >> 2 * j & 3]; break;
    case ZYDIS_MNEMONIC_VEXTRACTI128: memcpy(&r, &a.b[16 * (imm & 1)], 16); vdst(m, in, 0, r, 16); return true;
    case ZYDIS_MNEMONIC_VPEXTRB: r.b[0] = a.b[imm & 15]; vdst(m, in, 0, r, 1); return in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY;
    case ZYDIS_MNEMONIC_VPEXTRW: r.w[0] = a.w[imm & 7]; vdst(m, in, 0, r, 2); return in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY;
    case ZYDIS_MNEMONIC_VPEXTRD: r.d[0] = a.d[imm & 3]; vdst(m, in, 0, r, 4); return in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY;
    case ZYDIS_MNEMONIC_VPEXTRQ: r.q[0] = a.q[imm & 1]; vdst(m, in, 0, r, 8); return in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY;
    case ZYDIS_MNEMONIC_VCVTDQ2PS: EACH(len / 4) r.f[j] = (float)a.sd[j]; break;
    case ZYDIS_MNEMONIC_VCVTPS2DQ: EACH(len / 4) r.sd[j] = fabsf(a.f[j]) < 0x1p31f ? (int32_t)rintf(a.f[j]) : INT32_MIN; break;
    case ZYDIS_MNEMONIC_VCVTPH2PS: EACH(len / 4) r.f[j] = ref_f16_to_f32(a.w[j]); break;
    case ZYDIS_MNEMONIC_VCVTPS2PH:
        if (imm & 4) return false; /* would take MXCSR's rounding */
        EACH(len / 4) r.w[j] = ref_f32_to_f16(a.f[j]);
        vdst(m, in, 0, r, len / 2);
        return true;
    default: return false;
    }
    vdst(m, in, 0, r, len);
    return true;
}

/* Returns false when the function returned or failed. */
static bool step(machine *m, const insn *in)
{
    uint64_t next = m->rip + in->in.length, v;
    const size_t bits = in->op[0].size;
    const bool wide = bits == 64;
#define FLAGS(result) m->zf = ((wide ? (result) : (uint32_t)(result)) == 0)
    switch (in->in.mnemonic) {
    case ZYDIS_MNEMONIC_RET:
        if (m->gpr[4] != (uint64_t)(uintptr_t)(m->stack + STACK - 8)) stop(m, in, "returns with another stack pointer");
        if (!m->upper_clean) stop(m, in, "returns with dirty upper halves");
        return false;
    case ZYDIS_MNEMONIC_VZEROUPPER:
        for (int i = 0; i < 16; i++) memset(&m->v[i].b[16], 0, 16);
        m->upper_clean = true;
        break;
    case ZYDIS_MNEMONIC_PREFETCHT0: case ZYDIS_MNEMONIC_PREFETCHT1: break; /* may point anywhere */
    case ZYDIS_MNEMONIC_MOV: case ZYDIS_MNEMONIC_MOVZX: set(m, in, 0, get(m, in, 1)); break;
    case ZYDIS_MNEMONIC_LEA: set(m, in, 0, address(m, in, &in->op[1])); break;
    case ZYDIS_MNEMONIC_ADD: v = get(m, in, 0) + get(m, in, 1); m->cf = v < get(m, in, 1); FLAGS(v); set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_SUB: m->cf = get(m, in, 0) < get(m, in, 1); v = get(m, in, 0) - get(m, in, 1); FLAGS(v); set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_CMP: m->cf = get(m, in, 0) < get(m, in, 1); FLAGS(get(m, in, 0) - get(m, in, 1)); break;
    case ZYDIS_MNEMONIC_TEST: m->cf = false; FLAGS(get(m, in, 0) & get(m, in, 1)); break;
    case ZYDIS_MNEMONIC_OR: v = get(m, in, 0) | get(m, in, 1); m->cf = false; FLAGS(v); set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_SHL: v = get(m, in, 0) << get(m, in, 1); FLAGS(v); set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_SHR: v = get(m, in, 0) >> get(m, in, 1); FLAGS(v); set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_IMUL: set(m, in, 0, in->in.operand_count_visible == 3 ? get(m, in, 1) * get(m, in, 2) : get(m, in, 0) * get(m, in, 1)); break;
    case ZYDIS_MNEMONIC_MOVSXD: set(m, in, 0, (uint64_t)(int64_t)(int32_t)get(m, in, 1)); break;
    case ZYDIS_MNEMONIC_CMOVB: v = get(m, in, 1); if (m->cf) set(m, in, 0, v); break;
    case ZYDIS_MNEMONIC_JMP: next += (uint64_t)in->op[0].imm.value.s; break;
    case ZYDIS_MNEMONIC_JZ: if (m->zf) next += (uint64_t)in->op[0].imm.value.s; break;
    case ZYDIS_MNEMONIC_JNZ: if (!m->zf) next += (uint64_t)in->op[0].imm.value.s; break;
    case ZYDIS_MNEMONIC_JB: if (m->cf) next += (uint64_t)in->op[0].imm.value.s; break;
    case ZYDIS_MNEMONIC_JNB: if (!m->cf) next += (uint64_t)in->op[0].imm.value.s; break;
    default:
        if (!vector(m, in)) stop(m, in, "is not an instruction the interpreter knows");
    }
    m->rip = next;
    return !m->error;
}

const char *interp_run(const void *code, size_t bytes, void *argument, const interp_range *ranges, size_t count, uint64_t *steps)
{
    static machine m;
    static insn    decoded[CACHED];
    static uint8_t known[CACHED];
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    memset(known, 0, sizeof known);
    memset(m.v, 0xa5, sizeof m.v); /* nothing may depend on what a register held */
    memset(m.gpr, 0x5a, sizeof m.gpr);
    m.gpr[4] = (uint64_t)(uintptr_t)(m.stack + STACK - 8);
    m.gpr[7] = (uint64_t)(uintptr_t)argument;
    m.rip = (uint64_t)(uintptr_t)code;
    m.ranges = ranges;
    m.count = count;
    m.error = NULL;
    m.upper_clean = true;
    *steps = 0;
    for (;;) {
        const uint64_t at = m.rip - (uint64_t)(uintptr_t)code;
        if (at >= bytes || at >= CACHED) { stop(&m, NULL, "jumps out of its code"); break; }
        insn *in = &decoded[at];
        if (!known[at]) {
            if (ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, (const void *)(uintptr_t)m.rip, bytes - at, &in->in, in->op))) {
                stop(&m, NULL, "cannot be decoded");
                break;
            }
            known[at] = 1;
        }
        ++*steps;
        if (!step(&m, in) || *steps > 50000000) break;
    }
    return m.error;
}
