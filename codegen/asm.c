/*
 * Encoding, by the rows of x86op.h. Layout of the prefixes: Intel SDM vol. 2, 2.2.1 (REX), 2.3.5
 * (VEX), 2.7.1 (EVEX; disp8*N in 2.7.5).
 */
#include "asm.h"

#define X(id, name, enc, map, pp, w, opcode, form, memory, digit) \
    [id] = { name, enc, map, pp, w, opcode, form, memory, digit },
const x86_row x86_rows[X86_OP_COUNT] = { X86_OPS(X) };
#undef X

void asm_begin(assembler *as, uint8_t *buffer, size_t bytes)
{
    as->begin = as->at = buffer;
    as->end = buffer + bytes;
    as->error = OCTET_OK;
    as->labels = as->fixups = 0;
}

static void put(assembler *as, const void *bytes, size_t n)
{
    if (as->error) return;
    if ((size_t)(as->end - as->at) < n) { as->error = OCTET_ENOMEM; return; }
    memcpy(as->at, bytes, n);
    as->at += n;
}

static void refuse(assembler *as) { if (!as->error) as->error = OCTET_EINVAL; }

label asm_label(assembler *as)
{
    if (as->labels == ASM_LABELS) { refuse(as); return 0; }
    as->where[as->labels] = -1;
    return as->labels++;
}

void asm_place(assembler *as, label l) { as->where[l] = (int32_t)(as->at - as->begin); }

static void rel32(assembler *as, label l)
{
    if (as->fixups == ASM_FIXUPS) { refuse(as); return; }
    as->fixup[as->fixups].at = (int32_t)(as->at - as->begin);
    as->fixup[as->fixups++].label = l;
    put(as, (uint8_t[4]){ 0 }, 4);
}

void asm_jump(assembler *as, label l)
{
    put(as, (uint8_t[]){ 0xe9 }, 1);
    rel32(as, l);
}

void asm_jcc(assembler *as, int cc, label l)
{
    put(as, (uint8_t[]){ 0x0f, (uint8_t)(0x80 | cc) }, 2);
    rel32(as, l);
}

octet_status asm_finish(assembler *as, size_t *bytes)
{
    for (int i = 0; i < as->fixups && !as->error; i++) {
        const int32_t from = as->fixup[i].at, to = as->where[as->fixup[i].label];
        if (to < 0) { refuse(as); break; }
        const int32_t rel = to - (from + 4);
        memcpy(as->begin + from, &rel, 4);
    }
    *bytes = (size_t)(as->at - as->begin);
    return as->error;
}

/* What sits in ModRM.rm: a register (mem NULL) or memory. */
typedef struct operand { int reg; const x86_mem *mem; } operand;

/* Bits 3 and 4 of the register numbers go to the prefix: bit3(x) is 8 where it is set. */
static int high(int reg) { return reg >> 3 & 1; }
static int higher(int reg) { return reg >> 4 & 1; }

typedef struct prefix { int r, x, b; } prefix;
static prefix prefix_of(int d, operand o)
{
    prefix p = { high(d), 0, 0 };
    if (!o.mem) p.b = high(o.reg);
    else { p.b = high(o.mem->base); p.x = o.mem->index >= 0 ? high(o.mem->index) : 0; }
    return p;
}

/* ModRM, SIB and displacement; disp8 counts in units of `unit` bytes (1 but for EVEX). */
static void modrm(assembler *as, int d, operand o, int unit)
{
    uint8_t buf[6];
    size_t n = 0;
    if (!o.mem) {
        buf[n++] = (uint8_t)(0xc0 | (d & 7) << 3 | (o.reg & 7));
        put(as, buf, n);
        return;
    }
    const x86_mem m = *o.mem;
    if (m.disp != (int32_t)m.disp || m.index == RSP || m.base < 0 || m.base > 15 || m.index > 15) { refuse(as); return; }
    const int32_t disp = (int32_t)m.disp;
    const bool none = disp == 0 && (m.base & 7) != RBP;
    const bool short_disp = disp % unit == 0 && disp / unit >= -128 && disp / unit <= 127;
    const int mod = none ? 0 : short_disp ? 1 : 2;
    if (m.index >= 0 || (m.base & 7) == RSP) {
        const int ss = m.scale == 8 ? 3 : m.scale == 4 ? 2 : m.scale == 2 ? 1 : 0;
        buf[n++] = (uint8_t)(mod << 6 | (d & 7) << 3 | 4);
        buf[n++] = (uint8_t)(ss << 6 | (m.index >= 0 ? m.index & 7 : 4) << 3 | (m.base & 7));
    } else {
        buf[n++] = (uint8_t)(mod << 6 | (d & 7) << 3 | (m.base & 7));
    }
    if (mod == 1) buf[n++] = (uint8_t)(disp / unit);
    put(as, buf, n);
    if (mod == 2) put(as, &disp, 4);
}

static void encode_gpr(assembler *as, const x86_row *row, int d, operand o)
{
    const prefix p = prefix_of(d, o);
    const int rex = row->w << 3 | p.r << 2 | p.x << 1 | p.b;
    if (rex) put(as, (uint8_t[]){ (uint8_t)(0x40 | rex) }, 1);
    if (row->map == MAP_0F) put(as, (uint8_t[]){ 0x0f }, 1);
    put(as, &row->opcode, 1);
    if (row->form != FORM_NONE) modrm(as, d, o, 1);
}

static void encode_vex(assembler *as, const x86_row *row, int len, int d, int s, operand o)
{
    const prefix p = prefix_of(d, o);
    if (len > YMM || d > 15 || s > 15 || (!o.mem && o.reg > 15)) { refuse(as); return; }
    const int tail = (~s & 15) << 3 | len << 2 | row->pp;
    if (row->map == MAP_0F && !row->w && !p.x && !p.b)
        put(as, (uint8_t[]){ 0xc5, (uint8_t)(!p.r << 7 | tail) }, 2);
    else
        put(as, (uint8_t[]){ 0xc4, (uint8_t)(!p.r << 7 | !p.x << 6 | !p.b << 5 | row->map), (uint8_t)(row->w << 7 | tail) }, 3);
    put(as, &row->opcode, 1);
    if (row->form != FORM_NONE) modrm(as, d, o, 1);
}

typedef struct mask { int k; bool zeroing, bcast; } mask;

static void encode_evex(assembler *as, const x86_row *row, int len, int d, int s, operand o, mask k)
{
    prefix p = prefix_of(d, o);
    if (!o.mem) p.x = higher(o.reg);
    const int element = row->w ? 8 : 4;
    const int unit = k.bcast ? element : row->memory >= MEM_E1 ? 1 << (row->memory - MEM_E1) : (16 << len) >> row->memory;
    put(as, (uint8_t[]){ 0x62,
        (uint8_t)(!p.r << 7 | !p.x << 6 | !p.b << 5 | !higher(d) << 4 | row->map),
        (uint8_t)(row->w << 7 | (~s & 15) << 3 | 4 | row->pp),
        (uint8_t)(k.zeroing << 7 | len << 5 | k.bcast << 4 | !higher(s) << 3 | k.k),
        row->opcode }, 5);
    modrm(as, d, o, unit);
}

static void encode(assembler *as, x86_op op, int len, int d, int s, operand o, int imm, mask k)
{
    const x86_row *row = &x86_rows[op];
    const bool has_vvvv = row->form == FORM_RVM || row->form == FORM_RVMI || row->form == FORM_RVMR;
    int reg = d, vvvv = has_vvvv ? s : 0;
    if (row->form == FORM_VMI) { /* the digit takes ModRM.reg; the destination is vvvv, or r/m itself */
        reg = row->digit;
        vvvv = row->enc == ENC_GPR ? 0 : d;
    }
    if (row->form == FORM_M) reg = row->digit;
    switch (row->enc) {
    case ENC_GPR: encode_gpr(as, row, reg, o); break;
    case ENC_VEX: encode_vex(as, row, len, reg, vvvv, o); break;
    default: encode_evex(as, row, len, reg, vvvv, o, k); break;
    }
    switch (row->form) {
    case FORM_RVMR: put(as, (uint8_t[]){ (uint8_t)(imm << 4) }, 1); break;
    case FORM_RMI: case FORM_VMI:
        if (row->enc == ENC_GPR && row->opcode != 0xc1) { put(as, &imm, 4); break; } /* fall through */
    case FORM_RVMI: case FORM_MRI: put(as, (uint8_t[]){ (uint8_t)imm }, 1); break;
    default: break;
    }
}

void op_reg(assembler *as, x86_op op, int len, int d, int s, int r, int imm)
{
    encode(as, op, len, d, s, (operand){ r, NULL }, imm, (mask){ 0 });
}

void op_mem(assembler *as, x86_op op, int len, int d, int s, x86_mem m, int imm)
{
    encode(as, op, len, d, s, (operand){ 0, &m }, imm, (mask){ 0 });
}

void op_reg_evex(assembler *as, x86_op op, int len, int d, int s, int r, int imm, int k, bool zeroing)
{
    encode(as, op, len, d, s, (operand){ r, NULL }, imm, (mask){ k, zeroing, false });
}

void op_mem_evex(assembler *as, x86_op op, int len, int d, int s, x86_mem m, int imm, int k, bool zeroing, bool bcast)
{
    encode(as, op, len, d, s, (operand){ 0, &m }, imm, (mask){ k, zeroing, bcast });
}
