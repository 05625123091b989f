/**
 * @file
 * A heap whose arrays end, while it is on, where no byte can be read: reading behind one is a segmentation fault.
 * A program that links guard_heap.c has it in place of malloc().
 */
#ifndef COD_TESTS_CPU_GUARD_HEAP_H
#define COD_TESTS_CPU_GUARD_HEAP_H

#include <stdbool.h>

/**
 * Turns it on or off. No other thread may allocate during this call, nor while it is on. Memory from either heap may be
 * freed at any time.
 */
void guard_heap(bool on);

#endif
