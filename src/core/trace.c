#include "core/trace.h"

#include <stddef.h>
#include <time.h>

static cod_trace_sink trace_sink;
static void *trace_context;

void cod_trace_set_sink(cod_trace_sink sink, void *context)
{
    trace_sink = sink;
    trace_context = context;
}

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cod_clock_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double cod_clock_thread_s(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double cod_clock_process_s(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

double cod_trace_begin(void)
{
    return trace_sink != NULL ? cod_clock_s() : -1.0;
}

void cod_trace_end(double start_s, const char *category, const char *name)
{
    if (trace_sink == NULL || start_s < 0)
        return;
    const cod_trace_event event = {category, name, start_s, cod_clock_s() - start_s};
    trace_sink(trace_context, &event);
}

static void (*mark_begin)(const char *name);
static void (*mark_end)(void);

void cod_trace_set_ranges(void (*begin)(const char *name), void (*end)(void))
{
    mark_begin = begin;
    mark_end = end;
}

void cod_trace_range_begin(const char *name)
{
    if (mark_begin != NULL)
        mark_begin(name);
}

void cod_trace_range_end(void)
{
    if (mark_end != NULL)
        mark_end();
}
