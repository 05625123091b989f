/**
 * @file
 * Trace files for ui.perfetto.dev and chrome://tracing (the Trace Event format, JSON array): the sink of core/trace.h.
 */
#ifndef COD_IO_TRACE_FILE_H
#define COD_IO_TRACE_FILE_H

#include "core/status.h"
#include "core/trace.h"

#include <stdint.h>

typedef struct cod_trace_file cod_trace_file;

/**
 * Creates a trace file. Times in it are wall-clock microseconds, so that the files of several ranks can be laid over
 * each other.
 *
 * @param[in]  rank        shown as the process, `name` beside it
 * @param[in]  events_max  further events are counted only; 0 = no bound
 * @param[out] trace       new; cod_trace_file_close()
 */
COD_MUST_CHECK cod_status cod_trace_file_open(const char *path, int rank, const char *name, uint64_t events_max,
                                              cod_trace_file **trace);

/** The sink: cod_trace_set_sink(cod_trace_file_sink, trace). From any thread; each thread is a track of its own. */
void cod_trace_file_sink(void *trace, const cod_trace_event *event);

/**
 * Ends the file and takes the trace. Call it when the trace is no longer the sink. Returns the first failure since the
 * file was opened; NULL is fine.
 */
COD_MUST_CHECK cod_status cod_trace_file_close(cod_trace_file *trace);

#endif
