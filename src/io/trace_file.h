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

/** What merging traces needs to know of a rank. */
typedef struct cod_trace_process {
    int rank, group;
    const char *host;
    int clock_of;          /**< rank by whose wall clock the next two are; -1 = they are not known */
    double clock_ahead_s;  /**< this rank's wall clock less that one, measured when tracing began */
    double clock_spread_s; /**< by which that may be wrong, either way */
} cod_trace_process;

/** Writes that into the trace, for cod_trace_merge(). */
void cod_trace_file_describe(cod_trace_file *trace, const cod_trace_process *process);

/** The sink: cod_trace_set_sink(cod_trace_file_sink, trace). From any thread; each thread is a track of its own. */
void cod_trace_file_sink(void *trace, const cod_trace_event *event);

/**
 * Ends the file and takes the trace. Call it when the trace is no longer the sink. Returns the first failure since the
 * file was opened; NULL is fine.
 */
COD_MUST_CHECK cod_status cod_trace_file_close(cod_trace_file *trace);

#endif
