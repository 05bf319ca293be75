/*
 * An interpreter of the machine code octet generates, for tests: decoded by Zydis (so the encoder is
 * not its own judge), every memory access checked against declared ranges, an instruction it does
 * not know is a failure. What sanitizers cannot see in generated code, this sees.
 */
#ifndef OCTET_TEST_INTERP_H
#define OCTET_TEST_INTERP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct interp_range { const void *begin; size_t bytes; bool writable; } interp_range;

/* Runs the function at `code` (bytes long) with its first argument in rdi until it returns. NULL, or
 * what went wrong. *steps counts instructions. */
const char *interp_run(const void *code, size_t bytes, void *argument, const interp_range *ranges, size_t count, uint64_t *steps);

#endif
