/*
 * A table of measurements as CSV, such as iris (Fisher 1936): a header, numbers, and the class's name in the last
 * column.
 */
#include "data/examples_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 4096 };

/** A CSV file, cut into its fields in place. */
typedef struct table {
    const char *path;
    char *text;
    size_t rows, columns;
    const char **fields; /**< [rows, columns], without the header */
} table;

/** @param[out] text  NULL before; free() it, also after a failure */
static cod_status read_open(FILE *file, const char *path, char **text, size_t *length)
{
    enum { LONGEST = 1 << 30 };
    size_t capacity = 1 << 15, got = 0;
    do {
        capacity *= 2;
        if (capacity > LONGEST)
            return cod_fail(COD_ERR_FORMAT, "%s: is too long for a table", path);
        char *grown = realloc(*text, capacity);
        if (grown == NULL)
            return cod_fail(COD_ERR_MEMORY, "no memory to read '%s'", path);
        *text = grown;
        got += fread(*text + got, 1, capacity - 1 - got, file);
    } while (got == capacity - 1);
    if (ferror(file))
        return cod_fail(COD_ERR_IO, "%s: %s", path, strerror(errno));
    (*text)[got] = '\0';
    *length = got;
    return COD_OK;
}

static cod_status read_text(const char *path, char **text, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return cod_fail(COD_ERR_IO, "data.path: '%s': %s", path, strerror(errno));
    const cod_status status = read_open(file, path, text, length);
    fclose(file);
    return status;
}

/** Cuts the next line's fields off; quotes round a field are dropped. @return how many, 0 for an empty line */
static size_t cut_line(char **rest, const char *fields[MAX_COLUMNS])
{
    char *line = *rest;
    const size_t length = strcspn(line, "\r\n");
    size_t count = 0;
    *rest = line + length + (line[length] == '\r' && line[length + 1] == '\n' ? 2 : line[length] != '\0');
    line[length] = '\0';
    if (length == 0)
        return 0;
    for (char *at = line; at != NULL && count < MAX_COLUMNS;) {
        char *comma = strchr(at, ',');
        char *end = comma != NULL ? comma : at + strlen(at);
        *end = '\0';
        if (end - at >= 2 && *at == '"' && end[-1] == '"') {
            end[-1] = '\0';
            at++;
        }
        fields[count++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
    return count;
}

static cod_status cut(table *t, cod_arena *arena)
{
    const char *line[MAX_COLUMNS];
    char *rest = t->text;
    size_t fields = 1; /* not lines times columns: empty lines have none, and each field of a line has its comma */
    for (const char *at = t->text; *at != '\0'; at++)
        fields += *at == ',' || *at == '\n' || *at == '\r';
    t->columns = cut_line(&rest, line);
    if (t->columns < 2)
        return cod_fail(COD_ERR_FORMAT, "%s:1: a header of at least two columns is wanted, with commas between them",
                        t->path);
    t->fields = cod_arena_alloc(arena, fields * sizeof *t->fields);
    COD_REQUIRE_MEMORY(t->fields);
    for (size_t number = 2; *rest != '\0'; number++) {
        const size_t found = cut_line(&rest, line);
        if (found == 0)
            continue;
        if (found != t->columns)
            return cod_fail(COD_ERR_FORMAT, "%s:%zu: %zu fields, where the header has %zu", t->path, number, found,
                            t->columns);
        memcpy(t->fields + t->rows++ * t->columns, line, found * sizeof *line);
    }
    if (t->rows == 0)
        return cod_fail(COD_ERR_FORMAT, "%s: no line follows the header", t->path);
    return COD_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/** @param names  sorted, each once */
static cod_status keep_classes(const table *t, const char *const *names, size_t count, cod_examples *out)
{
    const cod_status status = cod_examples_reserve(out, t->rows, count);
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s: the last column", t->path);
    for (size_t k = 0; k < count; k++) {
        out->class_names[k] = cod_arena_strdup(&out->arena, names[k]);
        if (out->class_names[k] == NULL)
            return COD_ERR_MEMORY;
    }
    for (size_t i = 0; i < t->rows; i++) {
        const char *const *found = bsearch(&t->fields[(i + 1) * t->columns - 1], names, count, sizeof *names, by_text);
        out->labels[i] = (uint32_t)(found - names);
    }
    return COD_OK;
}

/** The last column's different texts, sorted, and each row's place among them. */
static cod_status take_classes(const table *t, cod_examples *out)
{
    const char **names = malloc(t->rows * sizeof *names);
    COD_REQUIRE_MEMORY(names);
    for (size_t i = 0; i < t->rows; i++)
        names[i] = t->fields[(i + 1) * t->columns - 1];
    qsort(names, t->rows, sizeof *names, by_text);
    size_t count = 0;
    for (size_t i = 0; i < t->rows; i++)
        if (count == 0 || strcmp(names[count - 1], names[i]) != 0)
            names[count++] = names[i];
    const cod_status status = keep_classes(t, (const char *const *)names, count, out);
    free(names);
    return status;
}

static cod_status take_numbers(const table *t, cod_examples *out)
{
    const size_t features = t->columns - 1;
    float *floats = cod_arena_alloc(&out->arena, t->rows * features * sizeof *floats);
    COD_REQUIRE_MEMORY(floats);
    for (size_t i = 0; i < t->rows; i++)
        for (size_t c = 0; c < features; c++) {
            const char *field = t->fields[i * t->columns + c];
            char *end;
            const float value = strtof(field, &end);
            if (end == field || end[strspn(end, " ")] != '\0' || !isfinite(value))
                return cod_fail(COD_ERR_FORMAT, "%s: row %zu, column %zu: '%.32s' is no number", t->path, i + 1, c + 1,
                                field);
            floats[i * features + c] = value;
        }
    out->floats = floats;
    out->height = out->width = 1;
    out->channels = (int64_t)features;
    return COD_OK;
}

cod_status cod_iris_read(const cod_data_options *options, bool report, cod_examples *out)
{
    (void)report;
    table t = {.path = options->path.items[0]};
    size_t length = 0;
    cod_status status = read_text(t.path, &t.text, &length);
    if (status == COD_OK && strlen(t.text) != length)
        status = cod_fail(COD_ERR_FORMAT, "%s: is no text: byte %zu is zero", t.path, strlen(t.text));
    COD_THEN(status, cut(&t, &out->arena));
    COD_THEN(status, take_classes(&t, out));
    COD_THEN(status, take_numbers(&t, out));
    free(t.text);
    return status;
}
