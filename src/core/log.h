/**
 * @file
 * Log lines for people. Libraries call cod_log(); where the lines go is the sink's business, and `tools` sets the sink.
 */
#ifndef COD_CORE_LOG_H
#define COD_CORE_LOG_H

#include "core/status.h"

typedef enum cod_log_level { COD_LOG_DEBUG, COD_LOG_INFO, COD_LOG_WARN, COD_LOG_ERROR } cod_log_level;

/** Receives one line without a newline, control characters as "\xNN"; may be called from any thread. */
typedef void (*cod_log_sink)(void *context, cod_log_level level, const char *line);

/** Sets where lines of at least `level` go; NULL drops them. Not to be called while other threads log. */
void cod_log_set_sink(cod_log_sink sink, void *context, cod_log_level level);

#define cod_log_debug(...) cod_log(COD_LOG_DEBUG, __VA_ARGS__)
#define cod_log_info(...)  cod_log(COD_LOG_INFO, __VA_ARGS__)
#define cod_log_warn(...)  cod_log(COD_LOG_WARN, __VA_ARGS__)

void cod_log(cod_log_level level, const char *fmt, ...) COD_PRINTF(2, 3);

#endif
