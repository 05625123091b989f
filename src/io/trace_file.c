#include "io/trace_file.h"

#include "io/json.h"
#include "io/trace_merge.h"
#include "io_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct cod_trace_file {
    FILE *file;
    char *path;
    int rank, failure; /* errno of the first failed write */
    double wall_minus_monotonic_s;
    uint64_t events, events_max;
    pthread_mutex_t mutex;
};

static void trace_free(cod_trace_file *trace)
{
    if (trace->file != NULL)
        fclose(trace->file);
    pthread_mutex_destroy(&trace->mutex);
    free(trace->path);
    free(trace);
}

/** Writes one object of the array, the comma first, so that the array is valid as soon as it is closed. */
static void write_object(cod_trace_file *trace, const char *separator, cod_json *json)
{
    char *text = NULL;
    if (cod_json_end(json, &text) != COD_OK)
        return;
    if (trace->failure == 0 && fprintf(trace->file, "%s%s", separator, text) < 0)
        trace->failure = errno;
    free(text);
}

void cod_io_metadata_begin(cod_json *json, const char *name, int rank)
{
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "ph", "M");
    cod_json_string(json, "name", name);
    cod_json_integer(json, "pid", rank);
    cod_json_open(json, "args", '{');
}

void cod_io_metadata_end(cod_json *json)
{
    cod_json_close(json);
    cod_json_close(json);
}

static void write_metadata(cod_trace_file *trace, const char *separator, const char *what, const char *key,
                           const char *name)
{
    cod_json json = {0};
    cod_io_metadata_begin(&json, what, trace->rank);
    if (name != NULL)
        cod_json_string(&json, key, name);
    else
        cod_json_integer(&json, key, trace->rank);
    cod_io_metadata_end(&json);
    write_object(trace, separator, &json);
}

static cod_status create_file(cod_trace_file *trace)
{
    int file;
    COD_TRY(cod_io_open_own(trace->path, O_WRONLY, &file));
    struct stat info;
    const bool emptied = fstat(file, &info) == 0 && (!S_ISREG(info.st_mode) || ftruncate(file, 0) == 0);
    trace->file = emptied ? fdopen(file, "w") : NULL;
    if (trace->file != NULL)
        return COD_OK;
    const cod_status status = cod_fail_system("create", trace->path);
    close(file);
    return status;
}

cod_status cod_trace_file_open(const char *path, int rank, const char *name, uint64_t events_max, cod_trace_file **out)
{
    *out = NULL;
    cod_trace_file *trace = calloc(1, sizeof *trace);
    COD_REQUIRE_MEMORY(trace);
    pthread_mutex_init(&trace->mutex, NULL);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    trace->wall_minus_monotonic_s = (double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec - cod_clock_s();
    trace->rank = rank;
    trace->events_max = events_max;
    trace->path = strdup(path);
    cod_status status = trace->path != NULL ? create_file(trace) : cod_fail(COD_ERR_MEMORY, "out of memory");
    if (status != COD_OK) {
        trace_free(trace);
        return status;
    }
    write_metadata(trace, "[\n", "process_name", "name", name);
    write_metadata(trace, ",\n", "process_sort_index", "sort_index", NULL);
    *out = trace;
    return COD_OK;
}

void cod_trace_file_describe(cod_trace_file *trace, const cod_trace_process *process)
{
    cod_json json = {0};
    cod_io_metadata_begin(&json, COD_TRACE_PROCESS, process->rank);
    cod_json_integer(&json, "rank", process->rank);
    cod_json_integer(&json, "group", process->group);
    cod_json_string(&json, "host", process->host);
    cod_json_integer(&json, "clock_of", process->clock_of);
    cod_json_number(&json, "clock_ahead_us", 1e6 * process->clock_ahead_s);
    cod_json_number(&json, "clock_spread_us", 1e6 * process->clock_spread_s);
    cod_io_metadata_end(&json);
    write_object(trace, ",\n", &json);
}

void cod_trace_file_sink(void *context, const cod_trace_event *event)
{
    cod_trace_file *trace = context;
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "ph", "X");
    cod_json_string(&json, "cat", event->category);
    cod_json_string(&json, "name", event->name);
    cod_json_integer(&json, "pid", trace->rank);
    cod_json_integer(&json, "tid", gettid());
    cod_json_number(&json, "ts", 1e6 * (event->start_s + trace->wall_minus_monotonic_s));
    cod_json_number(&json, "dur", 1e6 * event->duration_s);
    cod_json_close(&json);
    pthread_mutex_lock(&trace->mutex);
    trace->events++;
    if (trace->events_max == 0 || trace->events <= trace->events_max)
        write_object(trace, ",\n", &json);
    pthread_mutex_unlock(&trace->mutex);
    cod_json_clear(&json);
}

cod_status cod_trace_file_close(cod_trace_file *trace)
{
    if (trace == NULL)
        return COD_OK;
    if (trace->events_max > 0 && trace->events > trace->events_max) {
        char text[96];
        snprintf(text, sizeof text, "%" PRIu64 " events left out", trace->events - trace->events_max);
        write_metadata(trace, ",\n", "process_labels", "labels", text);
    }
    if (trace->failure == 0 && (fputs("\n]\n", trace->file) < 0 || fflush(trace->file) != 0))
        trace->failure = errno;
    cod_status status = COD_OK;
    if (trace->failure != 0) {
        errno = trace->failure;
        status = cod_fail_system("write", trace->path);
    }
    trace_free(trace);
    return status;
}
