#include "core/log.h"

#include "core/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    char raw[4096], line[2 * sizeof raw];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    cod_show(raw, strlen(raw), false, line, sizeof line);
    log_sink(log_context, level, line);
}
