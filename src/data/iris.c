/*
 * A table of measurements as CSV (RFC 4180), such as iris (Fisher 1936): numbers, and the class's name in the last
 * column, with a header or without.
 */
#include "data/examples_internal.h"

#include "core/file_kind.h"
#include "core/regular_file.h"

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
    size_t *lines;       /**< [rows] where in the file each row begins, from 1 */
} table;

/** Where cut_line() is in the text. */
typedef struct cursor {
    char *rest;
    size_t line; /**< from 1 */
} cursor;

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
    FILE *file = cod_regular_stream(path);
    if (file == NULL)
        return cod_fail(COD_ERR_IO, "data.path: '%s': %s", path,
                        errno == EINVAL ? "is no regular file" : strerror(errno));
    const cod_status status = read_open(file, path, text, length);
    fclose(file);
    return status;
}

/**
 * Cuts off a field that begins with a quote: up to the next single quote, with two for each that belongs to it. Commas
 * and line breaks within are its own.
 *
 * @param[out] end  what follows the field: a comma, a line break or the end
 */
static cod_status cut_quoted(const table *t, cursor *c, const char *line, char **end)
{
    const size_t first = c->line;
    const char *start = c->rest;
    char *in = c->rest + 1, *out = c->rest;
    for (; *in != '\0' && !(in[0] == '"' && in[1] != '"'); in++) {
        if (*in == '"')
            in++;
        c->line += *in == '\n';
        *out++ = *in;
    }
    if (*in == '\0')
        return cod_fail(COD_ERR_FORMAT, "%s:%zu:%td: a quote that is not closed", t->path, first, start - line + 1);
    *end = in + 1;
    if (strchr(",\r\n", **end) == NULL)
        return cod_fail(COD_ERR_FORMAT, "%s:%zu: after a closing quote a comma is wanted, not '%.8s'", t->path, c->line,
                        *end);
    *out = '\0';
    return COD_OK;
}

/** Cuts the next line's fields off. @param[out] count  0 for an empty line */
static cod_status cut_line(const table *t, cursor *c, const char *fields[MAX_COLUMNS], size_t *count)
{
    const char *line = c->rest;
    bool more = *line != '\0' && *line != '\r' && *line != '\n';
    char *end = c->rest;
    for (*count = 0; more; c->rest = end + 1) {
        fields[*count] = end = c->rest;
        if (*end == '"')
            COD_TRY(cut_quoted(t, c, line, &end));
        else
            end += strcspn(end, ",\r\n");
        more = *end == ',';
        if (++*count == MAX_COLUMNS && more)
            return cod_fail(COD_ERR_FORMAT, "%s:%zu: has more than %d columns", t->path, c->line, MAX_COLUMNS);
        if (more)
            *end = '\0';
    }
    c->rest = end + (end[0] == '\r' && end[1] == '\n' ? 2 : *end != '\0');
    c->line++;
    *end = '\0';
    return COD_OK;
}

static bool is_number(const char *field, float *value)
{
    char *end;
    *value = strtof(field, &end);
    return end != field && end[strspn(end, " ")] == '\0' && isfinite(*value);
}

/**
 * A first line whose fields, but for the class, are no numbers is a header, and one of numbers is a row. What may be
 * either, or a header of numbers as some programs write it, is refused: a row would be lost, or a class too many.
 */
static cod_status drop_header(table *t)
{
    const char *class = t->fields[t->columns - 1];
    size_t numbers = 0;
    float value;
    bool known = false;
    for (size_t c = 0; c + 1 < t->columns; c++)
        numbers += is_number(t->fields[c], &value);
    for (size_t i = 1; i < t->rows; i++)
        known = known || strcmp(t->fields[(i + 1) * t->columns - 1], class) == 0;
    if (numbers > 0 && (numbers + 1 < t->columns || !known))
        return cod_fail(
            COD_ERR_FORMAT,
            "%s:%zu: is this line a header or a row? Some of its fields are numbers, and %s; give the table a "
            "header of names",
            t->path, t->lines[0], known ? "some are not" : "no other row is of its class");
    if (numbers == 0) {
        t->rows--;
        t->fields += t->columns;
        t->lines++;
    }
    if (t->rows == 0)
        return cod_fail(COD_ERR_FORMAT, "%s: no line follows the header", t->path);
    return COD_OK;
}

static cod_status cut(table *t, cod_arena *arena)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    const char *line[MAX_COLUMNS];
    const size_t mark = sizeof byte_order_mark - 1;
    cursor c = {.rest = t->text + (strncmp(t->text, byte_order_mark, mark) == 0 ? mark : 0), .line = 1};
    /* Not lines times columns: empty lines have none, and each field of a line has its comma. */
    size_t fields = 1, lines = 1;
    for (const char *at = t->text; *at != '\0'; at++) {
        lines += *at == '\n' || *at == '\r';
        fields += *at == ',' || *at == '\n' || *at == '\r';
    }
    t->fields = cod_arena_alloc(arena, fields * sizeof *t->fields);
    t->lines = cod_arena_alloc(arena, lines * sizeof *t->lines);
    if (t->fields == NULL || t->lines == NULL)
        return COD_ERR_MEMORY;
    while (*c.rest != '\0') {
        const size_t number = c.line;
        size_t found;
        COD_TRY(cut_line(t, &c, line, &found));
        if (found == 0)
            continue;
        if (found == 1 && t->rows == 0)
            return cod_fail(COD_ERR_FORMAT, "%s:%zu: at least two columns are wanted, with commas between them",
                            t->path, number);
        if (t->rows == 0)
            t->columns = found;
        if (found != t->columns)
            return cod_fail(COD_ERR_FORMAT, "%s:%zu: %zu fields, where the first line has %zu", t->path, number, found,
                            t->columns);
        memcpy(t->fields + t->rows * t->columns, line, found * sizeof *line);
        t->lines[t->rows++] = number;
    }
    if (t->rows == 0)
        return cod_fail(COD_ERR_FORMAT, "%s: at least two columns are wanted, with commas between them", t->path);
    return drop_header(t);
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
            float value;
            if (!is_number(field, &value))
                return cod_fail(COD_ERR_FORMAT, "%s:%zu: column %zu: '%.32s' is no number", t->path, t->lines[i], c + 1,
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
    return cod_explain_file(status, t.path, COD_FILE_EMPTY, "a table");
}
