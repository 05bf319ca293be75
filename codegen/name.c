/*
 * Names for generated code, on request only (OCTET_JIT=perf,gdb): a line in /tmp/perf-PID.map for
 * perf, and for the debugger an ELF file in memory that holds one symbol, announced through the
 * GDB JIT interface (GDB manual, "JIT Compilation Interface").
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "code.h"

#if OCTET_X86
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

/* Laid out as the debugger expects; its names are the interface. */
struct jit_code_entry {
    struct jit_code_entry *next, *prev;
    const char            *symfile;
    uint64_t               size;
};
struct jit_descriptor {
    uint32_t               version, action;
    struct jit_code_entry *relevant, *first;
};
extern struct jit_descriptor __jit_debug_descriptor;
extern void                  __jit_debug_register_code(void);
__attribute__((weak)) struct jit_descriptor __jit_debug_descriptor = { 1, 0, NULL, NULL };
__attribute__((weak, noinline)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }
enum { JIT_REGISTER = 1, JIT_UNREGISTER = 2 };

static bool asked_for(const char *what)
{
    const char *list = getenv("OCTET_JIT");
    return list && strstr(list, what);
}

bool code_named(void)
{
    static int wanted = -1; /* asked with the cache's lock held */
    if (wanted < 0) wanted = asked_for("perf");
    return wanted;
}

void code_name(const char *name, void *address, size_t n)
{
    if (!code_named()) return;
    const int kept = errno;
    char path[48], line[160];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    const int len = snprintf(line, sizeof line, "%zx %zx octet:%s\n", (size_t)address, n, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0) {
        if (write(fd, line, (size_t)len) != len) { /* a name is not worth a failure */ }
        close(fd);
    }
    errno = kept;
}

typedef struct symfile {
    Elf64_Ehdr head;
    Elf64_Shdr section[4];
    Elf64_Sym  symbol[2];
    char       strings[160];
} symfile;

void *code_debugger_entry(const char *name, void *address, size_t n)
{
    static int wanted = -1;
    if (wanted < 0) wanted = asked_for("gdb");
    if (!wanted) return NULL;
    struct jit_code_entry *e = calloc(1, sizeof *e + sizeof(symfile));
    if (!e) return NULL;
    symfile *f = (symfile *)(e + 1);
    static const char fixed[] = "\0.text\0.symtab\0.strtab\0octet:";
    const size_t name_at = sizeof fixed - 1;
    memcpy(f->strings, fixed, name_at);
    snprintf(f->strings + name_at, sizeof f->strings - name_at, "%s", name);
    f->head = (Elf64_Ehdr){
        .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
        .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_ehsize = sizeof f->head,
        .e_shoff = offsetof(symfile, section), .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 4, .e_shstrndx = 3,
    };
    f->section[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
        .sh_addr = (uint64_t)(uintptr_t)address, .sh_size = n, .sh_addralign = 16 };
    f->section[2] = (Elf64_Shdr){ .sh_name = 7, .sh_type = SHT_SYMTAB, .sh_offset = offsetof(symfile, symbol),
        .sh_size = sizeof f->symbol, .sh_link = 3, .sh_info = 1, .sh_entsize = sizeof(Elf64_Sym), .sh_addralign = 8 };
    f->section[3] = (Elf64_Shdr){ .sh_name = 15, .sh_type = SHT_STRTAB, .sh_offset = offsetof(symfile, strings),
        .sh_size = sizeof f->strings, .sh_addralign = 1 };
    f->symbol[1] = (Elf64_Sym){ .st_name = (uint32_t)(name_at - 6), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
        .st_shndx = 1, .st_value = (uint64_t)(uintptr_t)address, .st_size = n };
    e->symfile = (const char *)f;
    e->size = sizeof *f;
    e->next = __jit_debug_descriptor.first;
    if (e->next) e->next->prev = e;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = e;
    __jit_debug_descriptor.action = JIT_REGISTER;
    __jit_debug_register_code();
    return e;
}

void code_unname(void *debugger_entry)
{
    struct jit_code_entry *e = debugger_entry;
    if (!e) return;
    if (e->prev) e->prev->next = e->next;
    else __jit_debug_descriptor.first = e->next;
    if (e->next) e->next->prev = e->prev;
    __jit_debug_descriptor.relevant = e;
    __jit_debug_descriptor.action = JIT_UNREGISTER;
    __jit_debug_register_code();
    free(e);
}

#else
bool  code_named(void) { return false; }
void  code_name(const char *name, void *address, size_t n) { (void)name; (void)address; (void)n; }
void *code_debugger_entry(const char *name, void *address, size_t n) { (void)name; (void)address; (void)n; return NULL; }
void  code_unname(void *debugger_entry) { (void)debugger_entry; }
#endif
