#include "report/run_internal.h"

#include "io/file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 30 };

static double step_of(const cod_json_value *row)
{
    return cod_json_get_number(cod_json_get(row, "step"), NAN);
}

/** Keeps a document until the end. Takes it, also on failure. */
static cod_status keep(cod_run_data *data, cod_json_value *document)
{
    if (data->parsed_count == data->parsed_room) {
        const size_t room = 2 * data->parsed_room + 256;
        cod_json_value **larger = realloc(data->parsed, room * sizeof *larger);
        if (larger == NULL) {
            cod_json_free(document);
            return cod_fail(COD_ERR_MEMORY, "no memory for a run's metrics");
        }
        data->parsed = larger;
        data->parsed_room = room;
    }
    data->parsed[data->parsed_count++] = document;
    return COD_OK;
}

/** Adds a line to a group's rows, in place of those that are not before its step. What is no row is left out. */
static cod_status add_row(cod_run_data *data, cod_run_group *group, const char *line, size_t bytes)
{
    cod_json_value *row = NULL;
    COD_TRY(cod_json_parse_line(line, bytes, &row));
    if (row == NULL)
        return COD_OK;
    COD_TRY(keep(data, row));
    const double step = step_of(row);
    if (isnan(step))
        return COD_OK;
    while (group->count > 0 && step_of(group->rows[group->count - 1]) >= step)
        group->count--;
    group->rows[group->count++] = row;
    return COD_OK;
}

static cod_status read_rows(cod_run_data *data, cod_run_group *group, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    size_t lines = 0;
    for (const char *c = text; c < end; c++)
        lines += *c == '\n';
    group->rows = cod_arena_alloc(&data->arena, (lines + 1) * sizeof *group->rows);
    COD_REQUIRE_MEMORY(group->rows);
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (newline == NULL) /* the run is about to write the rest */
            break;
        COD_TRY(add_row(data, group, text, (size_t)(newline - text)));
        text = newline + 1;
    }
    return COD_OK;
}

static cod_status read_group(cod_run_data *data, const char *path, int number)
{
    void *text = NULL;
    size_t bytes;
    cod_run_group *group = &data->groups[data->group_count];
    COD_TRY(cod_file_read(path, MAX_FILE_BYTES, &text, &bytes));
    group->group = number;
    const cod_status status = read_rows(data, group, text, bytes);
    free(text);
    data->group_count += status == COD_OK;
    return status;
}

static cod_status read_groups(cod_run_data *data, const char *folder)
{
    cod_string_list names;
    COD_TRY(cod_folder_list(folder, "metrics.", ".jsonl", &data->arena, &names));
    for (size_t i = 0; i < names.count && data->group_count < COD_RUN_MOST_GROUPS; i++) {
        uint64_t number;
        if (!cod_file_number(names.items[i], "metrics.", 1, ".jsonl", INT_MAX, &number))
            continue;
        const char *path = cod_path_join(&data->arena, folder, names.items[i]);
        COD_REQUIRE_MEMORY(path);
        COD_TRY(read_group(data, path, (int)number));
    }
    if (data->group_count == 0)
        return cod_fail(COD_ERR_IO, "'%s' holds no metrics.GROUP.jsonl: the run has told nothing yet", folder);
    return COD_OK;
}

/** A file that may be missing. @param[out] out  unchanged then */
static cod_status read_document(cod_arena *arena, const char *folder, const char *name, cod_json_value **out)
{
    void *text = NULL;
    size_t bytes;
    const char *path = cod_path_join(arena, folder, name);
    COD_REQUIRE_MEMORY(path);
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(cod_file_read(path, MAX_FILE_BYTES, &text, &bytes));
    const cod_status status = cod_json_parse(text, bytes, out);
    free(text);
    return status == COD_OK ? COD_OK : cod_fail(status, "%s: %s", path, cod_error_message());
}

static int by_group(const void *a, const void *b)
{
    const cod_run_group *x = a, *y = b;
    return (x->group > y->group) - (x->group < y->group);
}

cod_status cod_run_data_read(const char *folder, cod_run_data *data)
{
    void *config = NULL;
    size_t bytes;
    *data = (cod_run_data){.config = ""};
    COD_TRY(read_groups(data, folder));
    qsort(data->groups, data->group_count, sizeof data->groups[0], by_group);
    const char *samples = cod_path_join(&data->arena, folder, "samples");
    const char *yaml = cod_path_join(&data->arena, folder, "config.yaml");
    COD_REQUIRE_MEMORY(samples);
    COD_REQUIRE_MEMORY(yaml);
    COD_TRY(read_document(&data->arena, folder, "summary.json", &data->summary));
    COD_TRY(read_document(&data->arena, folder, "crops.json", &data->crops));
    if (cod_file_exists(samples))
        COD_TRY(cod_folder_list(samples, "step-", ".png", &data->arena, &data->samples));
    if (cod_file_exists(yaml)) {
        COD_TRY(cod_file_read(yaml, MAX_FILE_BYTES, &config, &bytes));
        char *text = cod_arena_alloc(&data->arena, bytes + 1);
        if (text != NULL)
            memcpy(text, config, bytes), text[bytes] = '\0';
        free(config);
        COD_REQUIRE_MEMORY(text);
        data->config = text;
    }
    return COD_OK;
}

void cod_run_data_clear(cod_run_data *data)
{
    for (size_t i = 0; i < data->parsed_count; i++)
        cod_json_free(data->parsed[i]);
    free(data->parsed);
    cod_json_free(data->summary);
    cod_json_free(data->crops);
    cod_arena_clear(&data->arena);
    *data = (cod_run_data){.config = ""};
}
