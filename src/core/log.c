#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>

static cod_log_sink log_sink;
static void *log_context;
static cod_log_level log_level = COD_LOG_INFO;

void cod_log_set_sink(cod_log_sink sink, void *context, cod_log_level level)
{
    log_sink = sink;
    log_context = context;
    log_level = level;
}

void cod_log(cod_log_level level, const char *fmt, ...)
{
    if (log_sink == NULL || level < log_level)
        return;
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    log_sink(log_context, level, line);
}
