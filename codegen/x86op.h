/*
 * The instructions octet writes, one row each. A new instruction is a new row; asm.c encodes it,
 * tests/test_asm.c checks it at random against an independent decoder.
 *
 *   X(name, decoder's name, encoding, map, prefix, w, opcode, form, memory)
 *
 *   form    RVM  d = s op r/m       RVMI, RVMR: the same with an immediate, with a fourth register
 *           RM   d = op r/m         RMI: with an immediate
 *           MR   r/m = op d (stores, extracts)                 MRI: with an immediate
 *           VMI  d = r op imm       the digit that picks the operation sits in `digit`
 *           M    op m, the digit in `digit`
 *           NONE
 *   memory  what a full 512-bit operand would read, as a shift of the vector length: FULL, HALF,
 *           QUARTER; or E1 .. E8, an element of so many bytes. EVEX scales disp8 by it.
 *   W       0, 1; for general registers 1 means 64 bits
 */
#ifndef OCTET_X86OP_H
#define OCTET_X86OP_H

enum x86_enc { ENC_GPR, ENC_VEX, ENC_EVEX };
enum x86_map { MAP_NONE, MAP_0F, MAP_0F38, MAP_0F3A };
enum x86_pp { PP_NONE, PP_66, PP_F3, PP_F2 };
enum x86_form { FORM_NONE, FORM_RVM, FORM_RVMI, FORM_RVMR, FORM_RM, FORM_RMI, FORM_MR, FORM_MRI, FORM_VMI, FORM_M };
enum x86_memory { MEM_FULL, MEM_HALF, MEM_QUARTER, MEM_E1 = 8, MEM_E2, MEM_E4, MEM_E8, MEM_E16 };

/* clang-format off */
#define X86_OPS(X) \
    /* integer arithmetic */ \
    X(VPMADDUBSW,  "vpmaddubsw",  ENC_VEX, MAP_0F38, PP_66, 0, 0x04, FORM_RVM, MEM_FULL, 0) \
    X(VPMADDWD,    "vpmaddwd",    ENC_VEX, MAP_0F,   PP_66, 0, 0xf5, FORM_RVM, MEM_FULL, 0) \
    X(VPADDW,      "vpaddw",      ENC_VEX, MAP_0F,   PP_66, 0, 0xfd, FORM_RVM, MEM_FULL, 0) \
    X(VPADDD,      "vpaddd",      ENC_VEX, MAP_0F,   PP_66, 0, 0xfe, FORM_RVM, MEM_FULL, 0) \
    X(VPSUBD,      "vpsubd",      ENC_VEX, MAP_0F,   PP_66, 0, 0xfa, FORM_RVM, MEM_FULL, 0) \
    X(VPMULLD,     "vpmulld",     ENC_VEX, MAP_0F38, PP_66, 0, 0x40, FORM_RVM, MEM_FULL, 0) \
    X(VPHADDD,     "vphaddd",     ENC_VEX, MAP_0F38, PP_66, 0, 0x02, FORM_RVM, MEM_FULL, 0) \
    X(VPMAXSD,     "vpmaxsd",     ENC_VEX, MAP_0F38, PP_66, 0, 0x3d, FORM_RVM, MEM_FULL, 0) \
    X(VPMINSD,     "vpminsd",     ENC_VEX, MAP_0F38, PP_66, 0, 0x39, FORM_RVM, MEM_FULL, 0) \
    X(VPAND,       "vpand",       ENC_VEX, MAP_0F,   PP_66, 0, 0xdb, FORM_RVM, MEM_FULL, 0) \
    X(VPOR,        "vpor",        ENC_VEX, MAP_0F,   PP_66, 0, 0xeb, FORM_RVM, MEM_FULL, 0) \
    X(VPXOR,       "vpxor",       ENC_VEX, MAP_0F,   PP_66, 0, 0xef, FORM_RVM, MEM_FULL, 0) \
    X(VPCMPEQW,    "vpcmpeqw",    ENC_VEX, MAP_0F,   PP_66, 0, 0x75, FORM_RVM, MEM_FULL, 0) \
    X(VPSRLW,      "vpsrlw",      ENC_VEX, MAP_0F,   PP_66, 0, 0x71, FORM_VMI, MEM_FULL, 2) \
    X(VPSRLD,      "vpsrld",      ENC_VEX, MAP_0F,   PP_66, 0, 0x72, FORM_VMI, MEM_FULL, 2) \
    X(VPSLLD,      "vpslld",      ENC_VEX, MAP_0F,   PP_66, 0, 0x72, FORM_VMI, MEM_FULL, 6) \
    X(VPSRAD,      "vpsrad",      ENC_VEX, MAP_0F,   PP_66, 0, 0x72, FORM_VMI, MEM_FULL, 4) \
    X(VPSRLVD,     "vpsrlvd",     ENC_VEX, MAP_0F38, PP_66, 0, 0x45, FORM_RVM, MEM_FULL, 0) \
    X(VPSLLW,      "vpsllw",      ENC_VEX, MAP_0F,   PP_66, 0, 0x71, FORM_VMI, MEM_FULL, 6) \
    /* widening, shuffling, packing */ \
    X(VPMOVSXBW,   "vpmovsxbw",   ENC_VEX, MAP_0F38, PP_66, 0, 0x20, FORM_RM,  MEM_HALF, 0) \
    X(VPMOVSXBD,   "vpmovsxbd",   ENC_VEX, MAP_0F38, PP_66, 0, 0x21, FORM_RM,  MEM_QUARTER, 0) \
    X(VPMOVZXBD,   "vpmovzxbd",   ENC_VEX, MAP_0F38, PP_66, 0, 0x31, FORM_RM,  MEM_QUARTER, 0) \
    X(VPMOVZXWD,   "vpmovzxwd",   ENC_VEX, MAP_0F38, PP_66, 0, 0x33, FORM_RM,  MEM_HALF, 0) \
    X(VPMOVZXBW,   "vpmovzxbw",   ENC_VEX, MAP_0F38, PP_66, 0, 0x30, FORM_RM,  MEM_HALF, 0) \
    X(VPSHUFB,     "vpshufb",     ENC_VEX, MAP_0F38, PP_66, 0, 0x00, FORM_RVM, MEM_FULL, 0) \
    X(VPACKSSDW,   "vpackssdw",   ENC_VEX, MAP_0F,   PP_66, 0, 0x6b, FORM_RVM, MEM_FULL, 0) \
    X(VPACKUSDW,   "vpackusdw",   ENC_VEX, MAP_0F38, PP_66, 0, 0x2b, FORM_RVM, MEM_FULL, 0) \
    X(VPACKSSWB,   "vpacksswb",   ENC_VEX, MAP_0F,   PP_66, 0, 0x63, FORM_RVM, MEM_FULL, 0) \
    X(VPACKUSWB,   "vpackuswb",   ENC_VEX, MAP_0F,   PP_66, 0, 0x67, FORM_RVM, MEM_FULL, 0) \
    X(VPUNPCKLDQ,  "vpunpckldq",  ENC_VEX, MAP_0F,   PP_66, 0, 0x62, FORM_RVM, MEM_FULL, 0) \
    X(VPUNPCKHDQ,  "vpunpckhdq",  ENC_VEX, MAP_0F,   PP_66, 0, 0x6a, FORM_RVM, MEM_FULL, 0) \
    X(VPSHUFD,     "vpshufd",     ENC_VEX, MAP_0F,   PP_66, 0, 0x70, FORM_RMI, MEM_FULL, 0) \
    X(VPERMQ,      "vpermq",      ENC_VEX, MAP_0F3A, PP_66, 1, 0x00, FORM_RMI, MEM_FULL, 0) \
    X(VEXTRACTI128,"vextracti128",ENC_VEX, MAP_0F3A, PP_66, 0, 0x39, FORM_MRI, MEM_E16, 0) \
    X(VINSERTI128, "vinserti128", ENC_VEX, MAP_0F3A, PP_66, 0, 0x38, FORM_RVMI,MEM_E16, 0) \
    /* loads and stores */ \
    X(VPBROADCASTD,"vpbroadcastd",ENC_VEX, MAP_0F38, PP_66, 0, 0x58, FORM_RM,  MEM_E4, 0) \
    X(VPBROADCASTQ,"vpbroadcastq",ENC_VEX, MAP_0F38, PP_66, 0, 0x59, FORM_RM,  MEM_E8, 0) \
    X(VBROADCASTSS,"vbroadcastss",ENC_VEX, MAP_0F38, PP_66, 0, 0x18, FORM_RM,  MEM_E4, 0) \
    X(VMASKMOVPS,  "vmaskmovps",  ENC_VEX, MAP_0F38, PP_66, 0, 0x2c, FORM_RVM, MEM_FULL, 0) \
    X(VMOVDQU,     "vmovdqu",     ENC_VEX, MAP_0F,   PP_F3, 0, 0x6f, FORM_RM,  MEM_FULL, 0) \
    X(VMOVDQU_ST,  "vmovdqu",     ENC_VEX, MAP_0F,   PP_F3, 0, 0x7f, FORM_MR,  MEM_FULL, 0) \
    X(VMOVQ,       "vmovq",       ENC_VEX, MAP_0F,   PP_F3, 0, 0x7e, FORM_RM,  MEM_E8, 0) \
    X(VMOVQ_ST,    "vmovq",       ENC_VEX, MAP_0F,   PP_66, 0, 0xd6, FORM_MR,  MEM_E8, 0) \
    X(VMOVD,       "vmovd",       ENC_VEX, MAP_0F,   PP_66, 0, 0x6e, FORM_RM,  MEM_E4, 0) \
    X(VMOVD_ST,    "vmovd",       ENC_VEX, MAP_0F,   PP_66, 0, 0x7e, FORM_MR,  MEM_E4, 0) \
    X(VPINSRB,     "vpinsrb",     ENC_VEX, MAP_0F3A, PP_66, 0, 0x20, FORM_RVMI,MEM_E1, 0) \
    X(VPINSRW,     "vpinsrw",     ENC_VEX, MAP_0F,   PP_66, 0, 0xc4, FORM_RVMI,MEM_E2, 0) \
    X(VPINSRD,     "vpinsrd",     ENC_VEX, MAP_0F3A, PP_66, 0, 0x22, FORM_RVMI,MEM_E4, 0) \
    X(VPEXTRB,     "vpextrb",     ENC_VEX, MAP_0F3A, PP_66, 0, 0x14, FORM_MRI, MEM_E1, 0) \
    X(VPEXTRW,     "vpextrw",     ENC_VEX, MAP_0F3A, PP_66, 0, 0x15, FORM_MRI, MEM_E2, 0) \
    X(VPEXTRD,     "vpextrd",     ENC_VEX, MAP_0F3A, PP_66, 0, 0x16, FORM_MRI, MEM_E4, 0) \
    X(VPEXTRQ,     "vpextrq",     ENC_VEX, MAP_0F3A, PP_66, 1, 0x16, FORM_MRI, MEM_E8, 0) \
    /* floating point */ \
    X(VCVTDQ2PS,   "vcvtdq2ps",   ENC_VEX, MAP_0F,   PP_NONE, 0, 0x5b, FORM_RM, MEM_FULL, 0) \
    X(VCVTPS2DQ,   "vcvtps2dq",   ENC_VEX, MAP_0F,   PP_66, 0, 0x5b, FORM_RM,  MEM_FULL, 0) \
    X(VCVTSI2SS,   "vcvtsi2ss",   ENC_VEX, MAP_0F,   PP_F3, 1, 0x2a, FORM_RVM, MEM_E8, 0) \
    X(VMULPS,      "vmulps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x59, FORM_RVM, MEM_FULL, 0) \
    X(VADDPS,      "vaddps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x58, FORM_RVM, MEM_FULL, 0) \
    X(VSUBPS,      "vsubps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x5c, FORM_RVM, MEM_FULL, 0) \
    X(VDIVPS,      "vdivps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x5e, FORM_RVM, MEM_FULL, 0) \
    X(VROUNDPS,    "vroundps",    ENC_VEX, MAP_0F3A, PP_66, 0, 0x08, FORM_RMI, MEM_FULL, 0) \
    X(VFMADD213PS, "vfmadd213ps", ENC_VEX, MAP_0F38, PP_66, 0, 0xa8, FORM_RVM, MEM_FULL, 0) \
    X(VFMSUB213PS, "vfmsub213ps", ENC_VEX, MAP_0F38, PP_66, 0, 0xaa, FORM_RVM, MEM_FULL, 0) \
    X(VFMADD231PS, "vfmadd231ps", ENC_VEX, MAP_0F38, PP_66, 0, 0xb8, FORM_RVM, MEM_FULL, 0) \
    X(VFNMADD213PS,"vfnmadd213ps",ENC_VEX, MAP_0F38, PP_66, 0, 0xac, FORM_RVM, MEM_FULL, 0) \
    X(VMAXPS,      "vmaxps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x5f, FORM_RVM, MEM_FULL, 0) \
    X(VMINPS,      "vminps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0x5d, FORM_RVM, MEM_FULL, 0) \
    X(VCMPPS,      "vcmpps",      ENC_VEX, MAP_0F,   PP_NONE, 0, 0xc2, FORM_RVMI, MEM_FULL, 0) \
    X(VBLENDVPS,   "vblendvps",   ENC_VEX, MAP_0F3A, PP_66, 0, 0x4a, FORM_RVMR, MEM_FULL, 0) \
    X(VPERMILPS,   "vpermilps",   ENC_VEX, MAP_0F38, PP_66, 0, 0x0c, FORM_RVM, MEM_FULL, 0) \
    X(VCVTPH2PS,   "vcvtph2ps",   ENC_VEX, MAP_0F38, PP_66, 0, 0x13, FORM_RM,  MEM_HALF, 0) \
    X(VCVTPS2PH,   "vcvtps2ph",   ENC_VEX, MAP_0F3A, PP_66, 0, 0x1d, FORM_MRI, MEM_HALF, 0) \
    /* EVEX: encoded and checked; no family uses them yet */ \
    X(VPADDD_Z,    "vpaddd",      ENC_EVEX, MAP_0F,   PP_66, 0, 0xfe, FORM_RVM, MEM_FULL, 0) \
    X(VPDPBUSD_Z,  "vpdpbusd",    ENC_EVEX, MAP_0F38, PP_66, 0, 0x50, FORM_RVM, MEM_FULL, 0) \
    X(VPBROADCASTD_Z,"vpbroadcastd",ENC_EVEX,MAP_0F38,PP_66, 0, 0x58, FORM_RM,  MEM_E4, 0) \
    X(VMOVDQU32_Z, "vmovdqu32",   ENC_EVEX, MAP_0F,   PP_F3, 0, 0x6f, FORM_RM,  MEM_FULL, 0) \
    X(VMOVDQU32_STZ,"vmovdqu32",  ENC_EVEX, MAP_0F,   PP_F3, 0, 0x7f, FORM_MR,  MEM_FULL, 0) \
    /* general registers */ \
    X(MOV,         "mov",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x8b, FORM_RM, MEM_E8, 0) \
    X(MOV_ST,      "mov",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x89, FORM_MR, MEM_E8, 0) \
    X(MOV32,       "mov",         ENC_GPR, MAP_NONE, PP_NONE, 0, 0x8b, FORM_RM, MEM_E4, 0) \
    X(LEA,         "lea",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x8d, FORM_RM, MEM_E8, 0) \
    X(ADD,         "add",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x03, FORM_RM, MEM_E8, 0) \
    X(SUB,         "sub",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x2b, FORM_RM, MEM_E8, 0) \
    X(CMP,         "cmp",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x3b, FORM_RM, MEM_E8, 0) \
    X(OR,          "or",          ENC_GPR, MAP_NONE, PP_NONE, 1, 0x0b, FORM_RM, MEM_E8, 0) \
    X(TEST,        "test",        ENC_GPR, MAP_NONE, PP_NONE, 1, 0x85, FORM_MR, MEM_E8, 0) \
    X(MOVZX8,      "movzx",       ENC_GPR, MAP_0F,   PP_NONE, 0, 0xb6, FORM_RM, MEM_E1, 0) \
    X(MOVZX16,     "movzx",       ENC_GPR, MAP_0F,   PP_NONE, 0, 0xb7, FORM_RM, MEM_E2, 0) \
    X(MOVSXD,      "movsxd",      ENC_GPR, MAP_NONE, PP_NONE, 1, 0x63, FORM_RM, MEM_E4, 0) \
    X(IMUL,        "imul",        ENC_GPR, MAP_0F,   PP_NONE, 1, 0xaf, FORM_RM, MEM_E8, 0) \
    X(CMOVB,       "cmovb",       ENC_GPR, MAP_0F,   PP_NONE, 1, 0x42, FORM_RM, MEM_E8, 0) \
    X(IMULI,       "imul",        ENC_GPR, MAP_NONE, PP_NONE, 1, 0x69, FORM_RMI, MEM_E8, 0) \
    X(ADDI,        "add",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x81, FORM_VMI, MEM_E8, 0) \
    X(SUBI,        "sub",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x81, FORM_VMI, MEM_E8, 5) \
    X(CMPI,        "cmp",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0x81, FORM_VMI, MEM_E8, 7) \
    X(SHLI,        "shl",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0xc1, FORM_VMI, MEM_E8, 4) \
    X(SHRI,        "shr",         ENC_GPR, MAP_NONE, PP_NONE, 1, 0xc1, FORM_VMI, MEM_E8, 5) \
    X(PREFETCHT0,  "prefetcht0",  ENC_GPR, MAP_0F,   PP_NONE, 0, 0x18, FORM_M,   MEM_E1, 1) \
    X(PREFETCHT1,  "prefetcht1",  ENC_GPR, MAP_0F,   PP_NONE, 0, 0x18, FORM_M,   MEM_E1, 2) \
    X(VZEROUPPER,  "vzeroupper",  ENC_VEX, MAP_0F,   PP_NONE, 0, 0x77, FORM_NONE, MEM_FULL, 0) \
    X(RET,         "ret",         ENC_GPR, MAP_NONE, PP_NONE, 0, 0xc3, FORM_NONE, MEM_FULL, 0)
/* clang-format on */

#define X(name, ...) name,
typedef enum x86_op { X86_OPS(X) X86_OP_COUNT } x86_op;
#undef X

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };

#endif
