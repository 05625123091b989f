#include "core/status.h"

#include "core/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Room for all problems of a configuration. */
static _Thread_local char message[8192];
static _Thread_local char place[256];
static _Thread_local bool said_elsewhere;

const char *cod_status_name(cod_status status)
{
    static const char *const names[] = {
        [COD_OK] = "ok",         [COD_ERR_ARGUMENT] = "argument",       [COD_ERR_MEMORY] = "memory",
        [COD_ERR_IO] = "io",     [COD_ERR_FORMAT] = "format",           [COD_ERR_UNSUPPORTED] = "unsupported",
        [COD_ERR_MPI] = "mpi",   [COD_ERR_BACKEND] = "backend",         [COD_ERR_NUMERIC] = "numeric",
        [COD_ERR_PEER] = "peer", [COD_ERR_INTERRUPTED] = "interrupted",
    };
    const size_t index = (size_t)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

cod_status cod_fail_at(cod_status code, const char *file, int line, const char *func, const char *fmt, ...)
{
    /* The new reason may quote the old one, so it is built aside. */
    char text[sizeof message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    cod_show(text, strlen(text), false, message, sizeof message);
    snprintf(place, sizeof place, "%s:%d %s", file, line, func);
    said_elsewhere = false;
    return code;
}

cod_status cod_fail_lines(cod_status code, const char *lines)
{
    cod_show(lines, strlen(lines), true, message, sizeof message);
    snprintf(place, sizeof place, "%s", __func__);
    said_elsewhere = false;
    return code;
}

cod_status cod_fail_prefix(cod_status code, const char *fmt, ...)
{
    char context[512], raw[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    cod_show(raw, strlen(raw), false, context, sizeof context);
    char text[sizeof message + sizeof context + 2];
    snprintf(text, sizeof text, "%s: %s", context, message);
    memcpy(message, text, sizeof message - 1);
    message[sizeof message - 1] = '\0';
    return code;
}

cod_status cod_fail_said_elsewhere(cod_status code)
{
    said_elsewhere = true;
    return code;
}

bool cod_error_said_elsewhere(void)
{
    return said_elsewhere;
}

const char *cod_error_message(void)
{
    return message[0] ? message : "no reason was recorded";
}

const char *cod_error_place(void)
{
    return place;
}
