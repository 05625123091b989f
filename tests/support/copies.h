/**
 * @file
 * What copy() and host buffers of every backend must do.
 */
#ifndef COD_TESTS_SUPPORT_COPIES_H
#define COD_TESTS_SUPPORT_COPIES_H

#include "support/ops.h"

/**
 * Host to device, between devices' buffers, inside one buffer, and back, through a queue of its own; then what is
 * refused.
 */
void cod_test_copies(cod_test_device on);

#endif
