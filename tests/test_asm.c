/* The encoder against judges that are not ours: two million random instructions through the Zydis
 * decoder, and every row once through GNU objdump. */
#include <criterion/criterion.h>
#include <Zydis/Zydis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asm.h"
#include "cases.h"

typedef struct drawn { x86_op op; int len, d, s, r, imm, k; bool mem, zeroing, bcast; x86_mem m; } drawn;

static bool has_vvvv(const x86_row *w) { return w->form == FORM_RVM || w->form == FORM_RVMI || w->form == FORM_RVMR; }

/* Instructions whose register form does not exist, or is another row's business. */
static bool memory_only(x86_op op) { return op == LEA || op == MOVZX8 || op == PREFETCHT0 || op == PREFETCHT1 || op == VMASKMOVPS; /* 8-bit registers have names of their own */ }
static bool register_only(const x86_row *w) { return w->form == FORM_VMI && w->enc == ENC_VEX; }
static bool one_length(x86_op op, int *len)
{
    switch (op) {
    case VMOVQ: case VMOVQ_ST: case VMOVD: case VMOVD_ST: case VCVTSI2SS: case VPINSRB: case VPINSRW: case VPINSRD: case VPEXTRB: case VPEXTRW: case VPEXTRD: case VPEXTRQ:
    case VZEROUPPER: *len = XMM; return true;
    case VPERMQ: case VEXTRACTI128: case VINSERTI128: *len = YMM; return true;
    default: return false;
    }
}

static drawn draw(rng *r)
{
    drawn x = { .op = (x86_op)rng_below(r, X86_OP_COUNT) };
    const x86_row *w = &x86_rows[x.op];
    const int registers = w->enc == ENC_EVEX ? 32 : 16;
    x.len = (int)rng_below(r, w->enc == ENC_EVEX ? 3 : 2);
    one_length(x.op, &x.len);
    x.d = (int)rng_below(r, registers);
    x.s = (int)rng_below(r, registers);
    x.r = (int)rng_below(r, registers);
    x.imm = w->form == FORM_RVMR ? (int)rng_below(r, 16) : w->enc == ENC_GPR && w->opcode != 0xc1 ? (int)rng_next(r) : (int)rng_below(r, 128);
    x.mem = !register_only(w) && (memory_only(x.op) || rng_next(r) & 1);
    if (w->enc == ENC_GPR && w->form == FORM_VMI) x.mem = false;
    int index = rng_below(r, 3) ? (int)rng_below(r, 16) : -1;
    if (index == RSP) index = -1;
    const int64_t range = rng_below(r, 3) ? 300 : 100000;
    x.m = (x86_mem){ (int)rng_below(r, 16), index, index < 0 ? 1 : 1 << rng_below(r, 4), rng_below(r, 4) ? (rng_below(r, 2 * range) - range) * (rng_next(r) & 1 ? 1 : 64) : 0 };
    if (w->enc == ENC_EVEX) {
        x.k = (int)rng_below(r, 8);
        x.zeroing = x.k && rng_next(r) & 1 && !(x.mem && w->form == FORM_MR);
        x.bcast = x.mem && (x.op == VPADDD_Z || x.op == VPDPBUSD_Z) && rng_next(r) & 1;
    }
    return x;
}

static size_t encode(const drawn *x, uint8_t *buffer)
{
    assembler as;
    size_t bytes;
    asm_begin(&as, buffer, 32);
    const bool evex = x86_rows[x->op].enc == ENC_EVEX;
    if (evex && x->mem) op_mem_evex(&as, x->op, x->len, x->d, x->s, x->m, x->imm, x->k, x->zeroing, x->bcast);
    else if (evex) op_reg_evex(&as, x->op, x->len, x->d, x->s, x->r, x->imm, x->k, x->zeroing);
    else if (x->mem) op_mem(&as, x->op, x->len, x->d, x->s, x->m, x->imm);
    else op_reg(&as, x->op, x->len, x->d, x->s, x->r, x->imm);
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_OK);
    return bytes;
}

/* NULL if the decoder reads back what was asked for. */
static const char *judge(const drawn *x, const uint8_t *code, size_t bytes)
{
    static ZydisDecoder decoder;
    static bool ready;
    ZydisDecodedInstruction in;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
    const x86_row *w = &x86_rows[x->op];
    if (!ready) ready = ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64));
    if (ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code, bytes, &in, op))) return "does not decode";
    if (in.length != bytes) return "has another length";
    if (strcmp(ZydisMnemonicGetString(in.mnemonic), w->name)) return ZydisMnemonicGetString(in.mnemonic);
    if (w->form == FORM_NONE) return NULL;
    if (w->enc != ENC_GPR && (int)in.avx.vector_length != 128 << x->len) return "vector length";
    const int mask = w->enc == ENC_EVEX;
    /* operands in order of reading: d, (mask), s, r/m, immediate; MR forms store d in the r/m */
    const bool store = w->form == FORM_MR || w->form == FORM_MRI;
    int at = 0;
    const ZydisDecodedOperand *d = NULL, *s = NULL, *rm_ = NULL;
    if ((w->form == FORM_VMI && w->enc == ENC_GPR) || w->form == FORM_M) { rm_ = &op[0]; }
    else if (store) { rm_ = &op[0]; at = 1 + mask; d = &op[at]; }
    else {
        d = &op[at++];
        at += mask;
        if (has_vvvv(w)) s = &op[at++];
        rm_ = &op[at];
    }
    if (d && ZydisRegisterGetId(d->reg.value) != x->d) return "destination";
    if (s && ZydisRegisterGetId(s->reg.value) != x->s) return "second operand";
    if (mask && (int)(op[1].reg.value - ZYDIS_REGISTER_K0) != x->k) return "mask";
    if (mask && (in.avx.mask.mode == ZYDIS_MASK_MODE_ZEROING) != x->zeroing) return "zeroing";
    if (x->mem) {
        if (rm_->type != ZYDIS_OPERAND_TYPE_MEMORY) return "not memory";
        if (ZydisRegisterGetId(rm_->mem.base) != x->m.base) return "base";
        if ((rm_->mem.index != ZYDIS_REGISTER_NONE) != (x->m.index >= 0)) return "index";
        if (x->m.index >= 0 && (ZydisRegisterGetId(rm_->mem.index) != x->m.index || rm_->mem.scale != x->m.scale)) return "index or scale";
        if ((rm_->mem.disp.has_displacement ? rm_->mem.disp.value : 0) != x->m.disp) return "displacement";
        if (x->bcast && in.avx.broadcast.mode == ZYDIS_BROADCAST_MODE_INVALID) return "broadcast";
    } else {
        if (rm_->type != ZYDIS_OPERAND_TYPE_REGISTER || ZydisRegisterGetId(rm_->reg.value) != x->r) return "register operand";
    }
    const ZydisDecodedOperand *last = &op[in.operand_count_visible - 1];
    if (w->form == FORM_RVMR && ZydisRegisterGetId(last->reg.value) != x->imm) return "fourth register";
    if (last->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && (int32_t)last->imm.value.s != x->imm && (uint8_t)last->imm.value.u != x->imm) return "immediate";
    return NULL;
}

Test(asm, two_million_random_instructions_decode_as_meant)
{
    rng r = { 2024 };
    uint8_t code[32];
    for (int i = 0; i < 2000000; i++) {
        const drawn x = draw(&r);
        const size_t bytes = encode(&x, code);
        const char *wrong = judge(&x, code, bytes);
        cr_assert_null(wrong, "instruction %d, %s: %s (len %d d %d s %d r %d mem %d base %d index %d scale %d disp %lld imm %d k %d)", i,
                       x86_rows[x.op].name, wrong, x.len, x.d, x.s, x.r, x.mem, x.m.base, x.m.index, x.m.scale, (long long)x.m.disp, x.imm, x.k);
    }
}

Test(asm, objdump_reads_every_row)
{
    char path[] = "/tmp/octet-asm-XXXXXX", command[128], line[256];
    if (system("objdump --version > /dev/null 2>&1")) cr_skip_test("no objdump");
    const int fd = mkstemp(path);
    uint8_t code[32];
    rng r = { 7 };
    char want[X86_OP_COUNT * 4][20];
    int count = 0;
    for (int op = 0; op < X86_OP_COUNT; op++)
        for (int i = 0; i < 4; i++) {
            drawn x;
            do x = draw(&r); while (x.op != (x86_op)op);
            const size_t n = encode(&x, code);
            cr_assert_eq(write(fd, code, n), (ssize_t)n);
            snprintf(want[count++], sizeof want[0], "%s", x86_rows[op].name);
        }
    close(fd);
    snprintf(command, sizeof command, "objdump -D -w -b binary -m i386:x86-64 -M intel %s", path);
    FILE *f = popen(command, "r");
    int at = 0;
    while (fgets(line, sizeof line, f)) {
        char *tab = strchr(line, '\t');
        tab = tab ? strchr(tab + 1, '\t') : NULL;
        if (!tab) continue;
        char *name = tab + 1;
        static char compare[] = "vcmpps";
        if (!strncmp(name, "vcmp", 4)) name = compare; /* it names the predicate */
        if (!strncmp(name, "rex", 3) || *name == '{') name += strcspn(name, " ") + 1;
        cr_assert_lt(at, count, "objdump sees more instructions: %s", line);
        cr_assert(!strncmp(name, want[at], strlen(want[at])), "objdump reads '%s' where %s was written", name, want[at]);
        at++;
    }
    pclose(f);
    unlink(path);
    cr_assert_eq(at, count);
}

Test(asm, jumps_reach_their_labels)
{
    uint8_t code[4096];
    assembler as;
    size_t bytes;
    asm_begin(&as, code, sizeof code);
    const label back = asm_label(&as), ahead = asm_label(&as);
    asm_place(&as, back);
    for (int i = 0; i < 100; i++) op_reg(&as, VPADDD, YMM, 1, 2, 3, 0);
    asm_jcc(&as, CC_NZ, back);
    asm_jump(&as, ahead);
    for (int i = 0; i < 100; i++) op_reg(&as, VPADDD, YMM, 1, 2, 3, 0);
    asm_place(&as, ahead);
    op_reg(&as, RET, 0, 0, 0, 0, 0);
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_OK);
    int32_t rel;
    memcpy(&rel, code + 400 + 2, 4);
    cr_assert_eq(rel, -406);
    memcpy(&rel, code + 406 + 1, 4);
    cr_assert_eq(rel, 400);
}

Test(asm, errors_stick)
{
    uint8_t code[16];
    assembler as;
    size_t bytes;
    asm_begin(&as, code, 6); /* too small */
    for (int i = 0; i < 4; i++) rrr(&as, VPADDD, 1, 2, 3);
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_ENOMEM);
    asm_begin(&as, code, sizeof code); /* a label that is never placed */
    asm_jump(&as, asm_label(&as));
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_EINVAL);
    asm_begin(&as, code, sizeof code); /* ymm 17 has no VEX form */
    rrr(&as, VPADDD, 17, 2, 3);
    rrr(&as, VPADDD, 1, 2, 3);
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_EINVAL);
    asm_begin(&as, code, sizeof code); /* rsp cannot be an index */
    rrm(&as, VPADDD, 1, 2, at_index(RAX, RSP, 1, 0));
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_EINVAL);
    asm_begin(&as, code, sizeof code); /* a displacement past 32 bits */
    rrm(&as, VPADDD, 1, 2, at(RAX, INT64_C(1) << 33));
    cr_assert_eq(asm_finish(&as, &bytes), OCTET_EINVAL);
}
