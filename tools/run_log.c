#include "tools/run_log.h"

#include "core/log.h"
#include "tools/print.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_BYTES = 16384, PATH_BYTES = 4096, MOST_GROUPS = 4096, PATIENCE_S = 2 };

/** "2026-11-28T14:05:09 LINE" */
static void add_time(const char *line, char text[LINE_BYTES])
{
    char when[32];
    struct tm local;
    const time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime_r(&now, &local));
    snprintf(text, LINE_BYTES, "%s %s", when, line);
}

static void path_of(const char *folder, int group, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/log.%d.txt", folder, group);
}

void cod_run_log_open(cod_run_log *log, const char *folder, int group, bool leads)
{
    *log = (cod_run_log){.folder = folder, .group = group, .leads = leads, .thread = pthread_self()};
    if (leads)
        log->waiting = open_memstream(&log->waiting_text, &log->waiting_bytes);
}

static void drop_waiting(cod_run_log *log)
{
    if (log->waiting != NULL)
        fclose(log->waiting);
    free(log->waiting_text);
    log->waiting = NULL;
    log->waiting_text = NULL;
    log->waiting_bytes = 0;
}

static void give_up(cod_run_log *log)
{
    cod_log_warn("no more lines go to the log file: %s", cod_error_message());
    log->folder = NULL;
}

/** Appends lines, without the last one's newline. */
static void append(cod_run_log *log, const char *lines)
{
    log->writing = true;
    if (cod_file_log_line(log->file, lines) != COD_OK)
        give_up(log);
    log->writing = false;
}

void cod_run_log_begin(cod_run_log *log)
{
    char path[PATH_BYTES];
    if (log->folder == NULL || !log->leads)
        return;
    path_of(log->folder, log->group, path);
    log->writing = true;
    if (cod_file_log_open(path, &log->file) != COD_OK)
        give_up(log);
    log->writing = false;
    if (log->waiting != NULL && fflush(log->waiting) == 0 && log->waiting_bytes > 0 && log->file != NULL) {
        log->waiting_text[log->waiting_bytes - 1] = '\0';
        append(log, log->waiting_text);
    }
    drop_waiting(log);
}

void cod_run_log_line(cod_run_log *log, const char *line)
{
    char text[LINE_BYTES];
    if (log->folder == NULL || !log->leads || !pthread_equal(log->thread, pthread_self()) || log->writing)
        return;
    add_time(line, text);
    if (log->file != NULL)
        append(log, text);
    else if (log->waiting != NULL)
        cod_print(log->waiting, "%s\n", text);
}

void cod_run_log_close(cod_run_log *log)
{
    drop_waiting(log);
    cod_file_log_close(log->file);
    *log = (cod_run_log){0};
}

/** Last lines, for a thread of their own. */
typedef struct last_lines {
    char *folder, *waiting; /**< waiting: for `own` alone; "" = none */
    int first, end, own;
    bool only_there; /**< only groups that have a log */
    char line[LINE_BYTES];
} last_lines;

static void free_last(last_lines *last)
{
    free(last->folder);
    free(last->waiting);
    free(last);
}

static void *write_last(void *context)
{
    last_lines *last = context;
    char path[PATH_BYTES];
    for (int g = last->first; g < last->end; g++) {
        cod_file_log *file = NULL;
        path_of(last->folder, g, path);
        if (last->only_there && !cod_file_exists(path))
            break;
        cod_status status = cod_file_log_open(path, &file);
        if (g == last->own && last->waiting[0] != '\0')
            COD_THEN(status, cod_file_log_line(file, last->waiting));
        COD_THEN(status, cod_file_log_line(file, last->line));
        cod_file_log_close(file);
    }
    return NULL;
}

/** The lines that wait, without the last newline; new. */
static char *take_waiting(cod_run_log *log)
{
    if (log == NULL || log->waiting == NULL || !pthread_equal(log->thread, pthread_self()) ||
        fflush(log->waiting) != 0 || log->waiting_bytes == 0)
        return strdup("");
    return strndup(log->waiting_text, log->waiting_bytes - 1);
}

void cod_run_log_end(cod_run_log *log, const cod_run_config *config, int groups, const char *line)
{
    const char *folder = log != NULL ? log->folder : cod_run_config_folder(config);
    const int only = config->only_group;
    last_lines *last = folder != NULL ? calloc(1, sizeof *last) : NULL;
    pthread_t thread;
    if (last == NULL)
        return;
    *last = (last_lines){.folder = strdup(folder),
                         .waiting = take_waiting(log),
                         .first = only >= 0 ? only : 0,
                         .end = only >= 0    ? only + 1
                                : groups > 0 ? groups
                                             : MOST_GROUPS,
                         .own = log != NULL ? log->group : -1,
                         .only_there = groups == 0};
    add_time(line, last->line);
    if (last->folder == NULL || last->waiting == NULL || pthread_create(&thread, NULL, write_last, last) != 0) {
        free_last(last);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(thread, NULL, &until) == 0) /* else it keeps what it has, until the process ends */
        free_last(last);
}
