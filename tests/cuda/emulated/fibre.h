/**
 * @file
 * Fibres: stacks that one host thread switches between.
 */
#ifndef COD_TESTS_CUDA_FIBRE_H
#define COD_TESTS_CUDA_FIBRE_H

#include <cstddef>

/** Stays where it is; zeroed by its constructor. */
struct cod_fibre {
    void *stack_pointer = nullptr;
    unsigned char *stack = nullptr;
    void *fake_stack = nullptr; /**< of the address sanitizer */
};

/** Makes the fibre ready to run `body` from its beginning; its stack is kept from one time to the next. */
void cod_fibre_start(cod_fibre *fibre, void (*body)());
/** From the host's thread: runs the fibre until it yields or leaves. */
void cod_fibre_resume(cod_fibre *fibre);
/** From the running fibre: back to the host's thread, until it is resumed. */
void cod_fibre_yield();
/** The same, for the last time. */
[[noreturn]] void cod_fibre_leave();
void cod_fibre_clear(cod_fibre *fibre);

#endif
