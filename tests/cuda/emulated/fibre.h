/**
 * @file
 * Fibres: stacks that one host thread switches between.
 */
#ifndef COD_TESTS_CUDA_FIBRE_H
#define COD_TESTS_CUDA_FIBRE_H

/** Stays where it is; zeroed by its constructor. */
struct cod_fibre {
    void (*body)() = nullptr;       /**< NULL: it has left */
    unsigned char *stack = nullptr; /**< NULL: it has not begun, or has left */
    void *stack_pointer = nullptr;
    void *fake_stack = nullptr; /**< of the address sanitizer */
};

/** The fibre will run `body` from its beginning. */
void cod_fibre_start(cod_fibre *fibre, void (*body)());
/** From the host's thread: runs the fibre until it yields or leaves. */
void cod_fibre_resume(cod_fibre *fibre);
/** From the running fibre: back to the host's thread, until it is resumed. */
void cod_fibre_yield();
/** The same, for the last time. */
[[noreturn]] void cod_fibre_leave();

#endif
