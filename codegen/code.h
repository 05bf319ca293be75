/*
 * Executable memory. One arena for the process, never writable and executable at one address:
 * a memfd mapped twice, which also a write-xor-execute policy (PR_SET_MDWE, systemd's
 * MemoryDenyWriteExecute) lets through. The caller holds the cache's lock.
 */
#ifndef OCTET_CODE_H
#define OCTET_CODE_H

#include "base.h"

enum { CODE_ARENA = 64 << 20, CODE_GRAIN = 256 };

/* True if this process may run code it makes; asked once. */
bool code_allowed(void);
/* Copies a function in; its address to call, or NULL without room or permission. */
void *code_put(const uint8_t *bytes, size_t n);
void  code_drop(void *address, size_t n);
/* Parent and child would share the arena. So before a fork a copy is made, while the cache's lock keeps
 * the code as it is; the child maps it at the same addresses, the parent lets it go. Without memory
 * for the copy the child can run what the parent keeps, and make no more. */
void  code_before_fork(void);
void  code_after_fork(bool child);

/* name.c: what to call a function in perf's map and to the debugger, as OCTET_JIT asks. */
bool  code_named(void); /* perf is to see names */
void  code_name(const char *name, void *address, size_t n);
void *code_debugger_entry(const char *name, void *address, size_t n);
void  code_unname(void *debugger_entry);

#endif
