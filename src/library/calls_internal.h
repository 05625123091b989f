/**
 * @file
 * What every public call does first and last.
 */
#ifndef COD_LIBRARY_CALLS_INTERNAL_H
#define COD_LIBRARY_CALLS_INTERNAL_H

#include "library/handle_internal.h"

/** Whether the handle is open, and this the process that opened it. */
COD_MUST_CHECK cod_status handle_check(const codistill *handle);

/** The public status of a call, whose message is kept in the handle. */
codistill_status handle_give(codistill *handle, cod_status status);

#endif
