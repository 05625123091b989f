#include "fibre.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

static const size_t stack_bytes = 64 << 10, guard_bytes = 4 << 10;

/**
 * Stacks that no fibre has. A fibre has one from its first turn until it leaves, and the last that came back goes first, since it is in the
 * processor's caches: of threads that wait for nobody, all run on one. Stacks begin at different places of a page, because a cache holds
 * only some of the lines that are a number of pages apart.
 */
static std::vector<unsigned char *> unused;
static const size_t colour_bytes = 256, colours = 16;

static cod_fibre host; /* the thread that resumes fibres */
static cod_fibre *running;
static const void *host_bottom;
static size_t host_bytes;

#if defined(__x86_64__)
extern "C" void cod_fibre_switch(void **save, void *load);
/* The registers that a call keeps; the return address lies above them. */
asm(".text\n.globl cod_fibre_switch\n.type cod_fibre_switch,@function\ncod_fibre_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size cod_fibre_switch,.-cod_fibre_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
#else
#error "the emulated GPU switches stacks on x86-64 alone"
#endif

/** The sanitizer is told of the switch before and after it. */
static void switch_to(cod_fibre *from, cod_fibre *to)
{
#if defined(__SANITIZE_ADDRESS__)
    const bool to_host = to == &host;
    __sanitizer_start_switch_fiber(&from->fake_stack, to_host ? host_bottom : to->stack,
                                   to_host ? host_bytes : stack_bytes);
    cod_fibre_switch(&from->stack_pointer, to->stack_pointer);
    __sanitizer_finish_switch_fiber(from->fake_stack, from == &host ? nullptr : &host_bottom,
                                    from == &host ? nullptr : &host_bytes);
#else
    (void)host_bottom, (void)host_bytes;
    cod_fibre_switch(&from->stack_pointer, to->stack_pointer);
#endif
}

static unsigned char *take_stack()
{
    if (unused.empty()) {
        void *memory =
            mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0)
            abort();
        unused.push_back(static_cast<unsigned char *>(memory) + guard_bytes);
    }
    unsigned char *stack = unused.back();
    unused.pop_back();
    return stack;
}

static void give_back(cod_fibre *fibre)
{
    unused.push_back(fibre->stack);
    fibre->stack = nullptr;
}

static void enter()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(running->fake_stack, &host_bottom, &host_bytes);
#endif
    running->body();
    cod_fibre_leave();
}

void cod_fibre_start(cod_fibre *fibre, void (*body)())
{
    if (fibre->stack != nullptr) { /* its kernel was abandoned */
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(fibre->stack, stack_bytes);
#endif
        give_back(fibre);
    }
    fibre->body = body;
}

static void begin(cod_fibre *fibre)
{
    fibre->stack = take_stack();
    const size_t colour = (reinterpret_cast<uintptr_t>(fibre->stack) / guard_bytes) % colours * colour_bytes;
    /* As cod_fibre_switch() leaves a stack: six registers, where to return, and a place that keeps `enter`'s stack aligned. */
    void **top = reinterpret_cast<void **>(fibre->stack + stack_bytes - colour) - 2;
    top[0] = reinterpret_cast<void *>(enter);
    memset(top - 6, 0, 6 * sizeof *top);
    fibre->stack_pointer = top - 6;
}

void cod_fibre_resume(cod_fibre *fibre)
{
    running = fibre;
    if (fibre->stack == nullptr)
        begin(fibre);
    switch_to(&host, fibre);
    if (fibre->body == nullptr)
        give_back(fibre);
}

void cod_fibre_yield()
{
    switch_to(running, &host);
}

void cod_fibre_leave()
{
    running->body = nullptr;
    switch_to(running, &host);
    abort();
}
