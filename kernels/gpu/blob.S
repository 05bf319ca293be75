/* A file as read-only bytes; NAME and FILE come from the build. */
        .section .rodata
        .balign 64
        .globl  NAME
        .hidden NAME
        .type   NAME, %object
NAME:   .incbin FILE
        .size   NAME, . - NAME
        .section .note.GNU-stack, "", %progbits
