/**
 * @file
 * A heap whose arrays end, while it is on, where no byte can be read: reading behind one is a segmentation fault.
 * A program that links guard_heap.c has it in place of malloc().
 */
#ifndef COD_TESTS_CPU_GUARD_HEAP_H
#define COD_TESTS_CPU_GUARD_HEAP_H

#include <stdbool.h>

/** Not to be called while another thread allocates. Memory is given back as usual, whether it is on or off by then. */
void guard_heap(bool on);

#endif
