/**
 * @file
 * Trace hooks: everyone reports what takes time; one sink, set by `tools` or `train`, turns it into a file or figures.
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

/** Sets the sink; NULL (the start) makes tracing free but for one test. Not to be called while others trace. */
void cod_trace_set_sink(cod_trace_sink sink, void *context);

/** Seconds of a monotonic clock. */
double cod_clock_s(void);
/** Seconds that the calling thread has computed: time in which it waits, or others have its core, does not count. */
double cod_clock_thread_s(void);
/** Those of all threads of the process. */
double cod_clock_process_s(void);

/** Start of a traced interval: the clock when a sink is set, else a negative number at no cost. */
double cod_trace_begin(void);
/** Reports the interval since cod_trace_begin(); does nothing when that returned a negative number. */
void cod_trace_end(double start_s, const char *category, const char *name);

/**
 * Sets what marks named ranges of queued work for a profiler of devices, which a backend knows; NULL (the start) makes ranges free but
 * for one test. Not to be called while other threads mark some.
 */
void cod_trace_set_ranges(void (*begin)(const char *name), void (*end)(void));
/** Around calls that queue work. Ranges of a thread lie in each other. */
void cod_trace_range_begin(const char *name);
void cod_trace_range_end(void);

#endif
