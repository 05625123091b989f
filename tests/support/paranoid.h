/**
 * @file
 * A backend around another that distrusts its plans.
 *
 * Before plan_run() it fills every output that the op only writes with NaN, so that what is not written shows; after
 * it, it checks that all the outputs' elements were written, that nothing else in the buffers changed (inputs, gaps
 * between strided pixels, neighbours in an arena), and that the guards around each buffer are whole. It also holds
 * callers to plans_prepare(): weights that a backend may pack must not have changed since. It works through upload()
 * and download() alone, so devices need not be addressable. Of a plan of several ops it checks them together, and that
 * they are a sequence (core/fused.h) where they really lie. Slow: it copies whole buffers at each run. Captures are
 * hidden, as what runs unseen cannot be checked.
 */
#ifndef COD_TESTS_SUPPORT_PARANOID_H
#define COD_TESTS_SUPPORT_PARANOID_H

#include "core/backend.h"

/** The wrapper, named "paranoid"; one inner backend at a time, borrowed. For one thread. */
const cod_backend *cod_paranoid_wrap(const cod_backend *inner);

/**
 * How many violations there were since the last call, with the message of the first in `first` (empty when none).
 * Violations do not make plan_run() fail.
 */
size_t cod_paranoid_violations(char *first, size_t bytes);

#endif
