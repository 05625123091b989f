/**
 * @file
 * Makes one trace of those of a run's ranks (trace_file.h), with one process for each rank.
 *
 * Ranks of one host have one clock. The clock of another host is set back by what its ranks were ahead of the reference
 * rank, by the median of their measurements; where a trace does not say that, its wall clock stands. Traces are read
 * and written line by line.
 */
#ifndef COD_IO_TRACE_MERGE_H
#define COD_IO_TRACE_MERGE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

/** Name of the metadata event that describes a rank. */
#define COD_TRACE_PROCESS "codistill_rank"

/** A rank's trace, and what was found in it. */
typedef struct cod_trace_part {
    const char *path; /**< by the caller, as the rank: borrowed */
    int rank;
    int group; /**< -1 = the trace does not say it, as that of an earlier version; then there is no host either */
    char host[256];
    int clock_of;
    double clock_ahead_us, clock_spread_us;
    double moved_us; /**< by which its times were set back */
    size_t events;   /**< intervals */
    size_t damaged;  /**< lines that were left out */
    bool cut;        /**< it ends before its end: the rank was killed, or still writes */
} cod_trace_part;

/**
 * Writes the merged trace to `output`, which appears when it is complete.
 *
 * @param[in,out] parts  [count] path and rank are set
 * @return COD_ERR_IO when a trace cannot be read or the output cannot be written
 */
COD_MUST_CHECK cod_status cod_trace_merge(cod_trace_part *parts, size_t count, const char *output);

#endif
