/**
 * @file
 * Trace hooks: all modules report intervals of time to one sink, set by `tools` or `train`, which writes a file or sums
 * them up.
 */
#ifndef COD_CORE_TRACE_H
#define COD_CORE_TRACE_H

#include <stdint.h>

typedef struct cod_trace_event {
    const char *category; /**< "op", "comm", "exchange", "data", "step"; static string */
    const char *name;     /**< valid while the sink runs */
    double start_s, duration_s;
} cod_trace_event;

/** May be called from any thread. */
typedef void (*cod_trace_sink)(void *context, const cod_trace_event *event);

/** Sets the sink. With NULL, the initial value, tracing costs one test. Not to be called while other threads trace. */
void cod_trace_set_sink(cod_trace_sink sink, void *context);

/** Seconds of a monotonic clock. */
double cod_clock_s(void);
/** Processor seconds of the calling thread, without time in which it waits or other threads have its core. */
double cod_clock_thread_s(void);
/** Processor seconds of all threads of the process. */
double cod_clock_process_s(void);

/** Start of a traced interval: the clock if a sink is set, otherwise a negative number. */
double cod_trace_begin(void);
/** Reports the interval since cod_trace_begin(); does nothing when that returned a negative number. */
void cod_trace_end(double start_s, const char *category, const char *name);

/**
 * Sets the functions that mark named ranges of queued work for a device's profiler; a backend provides them. With NULL,
 * the initial value, a range costs one test. Not to be called while other threads mark ranges.
 */
void cod_trace_set_ranges(void (*begin)(const char *name), void (*end)(void));
/** Called before and after calls that queue work. Ranges of one thread nest. */
void cod_trace_range_begin(const char *name);
void cod_trace_range_end(void);

#endif
