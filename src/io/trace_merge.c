#include "io/trace_merge.h"

#include "core/regular_file.h"
#include "core/statistics.h"
#include "io/json.h"
#include "io_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 16, HEAD_LINES = 8 };

/** A trace that is being read: "[", then an object in each line, with a comma behind all but the last, then "]". */
typedef struct reading {
    FILE *file;
    char *line; /**< [LINE_BYTES] */
    bool ended; /**< "]" was read */
    bool whole; /**< the last line ended with a newline */
} reading;

static cod_status begin_reading(const char *path, reading *r)
{
    *r = (reading){.file = cod_regular_stream(path), .line = malloc(LINE_BYTES)};
    if (r->file == NULL)
        return cod_fail_system("read", path);
    COD_REQUIRE_MEMORY(r->line);
    return COD_OK;
}

static void end_reading(reading *r)
{
    if (r->file != NULL)
        fclose(r->file);
    free(r->line);
}

/** Passes over the rest of a line that is too long to be one of an event. */
static void skip_line(FILE *file)
{
    for (int c = getc(file); c != EOF && c != '\n';)
        c = getc(file);
}

/** The next line that may be an object, without its comma; NULL = there is none. */
static const char *next_line(reading *r)
{
    while (fgets(r->line, LINE_BYTES, r->file) != NULL) {
        size_t length = strlen(r->line);
        r->whole = length > 0 && r->line[length - 1] == '\n';
        if (!r->whole && length == LINE_BYTES - 1)
            skip_line(r->file);
        while (length > 0 && strchr("\n\r, ", r->line[length - 1]) != NULL)
            r->line[--length] = '\0';
        if (strcmp(r->line, "]") == 0)
            r->ended = true;
        else if (length > 0 && strcmp(r->line, "[") != 0)
            return r->line;
    }
    return NULL;
}

static const char *text_of(const cod_json_value *event, const char *key)
{
    return cod_json_get_string(cod_json_get(event, key), "");
}

static bool is_named(const cod_json_value *event, const char *name)
{
    return strcmp(text_of(event, "name"), name) == 0;
}

/** Reads what a trace says of its rank. */
static void take_description(const cod_json_value *args, cod_trace_part *part)
{
    const double group = cod_json_get_number(cod_json_get(args, "group"), -1);
    const double clock_of = cod_json_get_number(cod_json_get(args, "clock_of"), -1);
    part->group = group >= 0 && group < 1e9 ? (int)group : -1;
    part->clock_of = clock_of >= 0 && clock_of < 1e9 ? (int)clock_of : -1;
    part->clock_ahead_us = cod_json_get_number(cod_json_get(args, "clock_ahead_us"), 0);
    part->clock_spread_us = cod_json_get_number(cod_json_get(args, "clock_spread_us"), 0);
    snprintf(part->host, sizeof part->host, "%.255s", text_of(args, "host"));
}

/** The description is among the first lines. */
static cod_status read_head(cod_trace_part *part)
{
    reading r;
    const char *line;
    part->group = part->clock_of = -1;
    part->host[0] = '\0';
    cod_status status = begin_reading(part->path, &r);
    for (int i = 0; status == COD_OK && i < HEAD_LINES && (line = next_line(&r)) != NULL; i++) {
        cod_json_value *event = NULL;
        if (cod_json_parse(line, strlen(line), &event) == COD_OK && is_named(event, COD_TRACE_PROCESS))
            take_description(cod_json_get(event, "args"), part);
        cod_json_free(event);
    }
    end_reading(&r);
    return status;
}

/** By how much the clock of a part's host was ahead: the median of what its ranks say; none on the reference's host. */
static cod_status find_shift(const cod_trace_part *parts, size_t count, cod_trace_part *part)
{
    double *ahead = malloc((count + 1) * sizeof *ahead);
    size_t found = 0;
    bool same_host = false;
    COD_REQUIRE_MEMORY(ahead);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].clock_of != part->clock_of || strcmp(parts[i].host, part->host) != 0)
            continue;
        same_host = same_host || parts[i].rank == part->clock_of;
        ahead[found++] = parts[i].clock_ahead_us;
    }
    part->moved_us = part->clock_of >= 0 && !same_host ? cod_median(ahead, found) : 0;
    free(ahead);
    return COD_OK;
}

/** A merged trace that is being written. */
typedef struct merging {
    cod_file_writer *file;
    bool begun; /**< an object was written */
} merging;

static cod_status write_text(merging *m, const char *text)
{
    COD_TRY(cod_file_writer_write(m->file, m->begun ? ",\n" : "[\n", 2));
    m->begun = true;
    return cod_file_writer_write(m->file, text, strlen(text));
}

static cod_status write_json(merging *m, cod_json *json)
{
    char *text = NULL;
    COD_TRY(cod_json_end(json, &text));
    const cod_status status = write_text(m, text);
    free(text);
    return status;
}

/** Metadata of a process. @param text  NULL = `number` */
static cod_status write_metadata(merging *m, int rank, const char *name, const char *key, const char *text, int number)
{
    cod_json json = {0};
    cod_io_metadata_begin(&json, name, rank);
    if (text != NULL)
        cod_json_string(&json, key, text);
    else
        cod_json_integer(&json, key, number);
    cod_io_metadata_end(&json);
    return write_json(m, &json);
}

static cod_status write_process(merging *m, const cod_trace_part *part)
{
    char name[320];
    if (part->group >= 0)
        snprintf(name, sizeof name, "rank %d, group %d on %s", part->rank, part->group, part->host);
    else
        snprintf(name, sizeof name, "rank %d", part->rank);
    COD_TRY(write_metadata(m, part->rank, "process_name", "name", name, 0));
    return write_metadata(m, part->rank, "process_sort_index", "sort_index", NULL, part->rank);
}

/** The event with its rank as the process, and its time set back. */
static cod_status write_moved(merging *m, const cod_trace_part *part, const cod_json_value *event)
{
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    for (const cod_json_value *v = cod_json_first(event); v != NULL; v = cod_json_next(v)) {
        const char *key = cod_json_key(v);
        if (strcmp(key, "pid") == 0)
            cod_json_integer(&json, key, part->rank);
        else if (strcmp(key, "ts") == 0)
            cod_json_number(&json, key, cod_json_get_number(v, 0) - part->moved_us);
        else
            cod_json_copy(&json, key, v);
    }
    cod_json_close(&json);
    return write_json(m, &json);
}

/** Takes an event over. What only names the process is left out, as it has its name already. */
static cod_status take_event(merging *m, cod_trace_part *part, const char *line, const cod_json_value *event)
{
    const bool metadata = strcmp(text_of(event, "ph"), "M") == 0;
    if (metadata && (is_named(event, "process_name") || is_named(event, "process_sort_index")))
        return COD_OK;
    part->events += !metadata;
    const bool as_it_is = part->moved_us == 0 && cod_json_get_number(cod_json_get(event, "pid"), -1) == part->rank;
    return as_it_is ? write_text(m, line) : write_moved(m, part, event);
}

static cod_status take_events(merging *m, cod_trace_part *part, reading *r)
{
    const char *line;
    bool sound = true;
    part->events = part->damaged = 0;
    while ((line = next_line(r)) != NULL) {
        cod_json_value *event = NULL;
        sound = cod_json_parse(line, strlen(line), &event) == COD_OK && cod_json_kind_of(event) == COD_JSON_OBJECT;
        const cod_status status = sound ? take_event(m, part, line, event) : COD_OK;
        cod_json_free(event);
        COD_TRY(status);
        part->damaged += !sound;
    }
    if (ferror(r->file))
        return cod_fail_system("read", part->path);
    part->cut = !r->ended;
    if (part->cut && !sound && part->damaged > 0) /* the line in which it was cut off */
        part->damaged--;
    return COD_OK;
}

static cod_status merge_part(merging *m, cod_trace_part *part)
{
    reading r;
    cod_status status = begin_reading(part->path, &r);
    COD_THEN(status, write_process(m, part));
    COD_THEN(status, take_events(m, part, &r));
    if (part->cut)
        COD_THEN(status, write_metadata(m, part->rank, "process_labels", "labels",
                                        "cut off: the rank was killed, or still ran", 0));
    end_reading(&r);
    return status;
}

cod_status cod_trace_merge(cod_trace_part *parts, size_t count, const char *output)
{
    merging m = {0};
    for (size_t i = 0; i < count; i++)
        COD_TRY(read_head(&parts[i]));
    for (size_t i = 0; i < count; i++)
        COD_TRY(find_shift(parts, count, &parts[i]));
    COD_TRY(cod_file_writer_create(output, &m.file));
    cod_status status = COD_OK;
    for (size_t i = 0; i < count; i++)
        COD_THEN(status, merge_part(&m, &parts[i]));
    COD_THEN(status, cod_file_writer_write(m.file, m.begun ? "\n]\n" : "[]\n", 3));
    if (status == COD_OK)
        return cod_file_writer_commit(m.file);
    cod_file_writer_abort(m.file);
    return status;
}
