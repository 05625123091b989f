/**
 * @file
 * What every public call does first and last.
 */
#ifndef COD_LIBRARY_CALLS_INTERNAL_H
#define COD_LIBRARY_CALLS_INTERNAL_H

#include "library/handle_internal.h"

/** Whether the handle is open, and this the process that opened it. */
COD_MUST_CHECK cod_status handle_check(const codistill *handle);

/** Begins a call: other threads' calls of the handle wait until it leaves. */
void handle_enter(codistill *handle);

/** Ends it: the public status, whose message is kept in the handle. */
codistill_status handle_leave(codistill *handle, cod_status status);

#endif
