/*
 * A table of measurements as CSV (RFC 4180), such as iris (Fisher 1936): numbers, and the class's name in the last
 * column, with a header or without.
 */
#include "data/examples_internal.h"
#include "data/faults.h"

#include "core/file_kind.h"
#include "core/regular_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_COLUMNS = 4096 };

/** A CSV file, cut into its fields in place. */
typedef struct table {
    const char *path;
    char *text;
    size_t rows, columns;
    const char **fields; /**< [rows, columns], without the header */
    size_t *lines;       /**< [rows] where in the file each row begins, from 1 */
    cod_faults faults;   /**< of rows, each with its line first */
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
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return cod_fail(COD_ERR_IO, "data.path: '%s' is a folder; name the table in it, a CSV file", path);
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

/** @return NULL for a finite number, between spaces perhaps; otherwise what is wrong with the field */
static const char *number_fault(const char *field, float *value)
{
    char *end;
    *value = strtof(field, &end);
    if (field[strspn(field, " \t")] == '\0')
        return "is empty";
    if (end == field || end[strspn(end, " \t")] != '\0' || isnan(*value))
        return "is no number";
    return isfinite(*value) ? NULL : "is beyond the largest number of 32 bits";
}

/** Fails where rows have faults; says it of all at once. */
static cod_status check_faults(const table *t)
{
    char text[COD_FAULTS_TEXT];
    if (t->faults.count == 0)
        return COD_OK;
    const cod_status status = cod_fail(COD_ERR_FORMAT, "%s:%s", t->path, cod_faults_first(&t->faults, "; line ", text));
    return t->faults.count == 1 ? status
                                : cod_fail(status, "%s; %zu rows cannot be used", cod_error_message(), t->faults.count);
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
        numbers += number_fault(t->fields[c], &value) == NULL;
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

/** Refuses a first line without commas, with the separator that it seems to have. */
static cod_status refuse_separator(const table *t, size_t number, const char *field)
{
    static const char separators[] = ";\t|";
    static const char *const names[] = {"semicolons", "tabs", "bars"};
    const size_t at = strcspn(field, separators);
    if (field[at] == '\0')
        return cod_fail(COD_ERR_FORMAT, "%s:%zu: at least two columns are wanted, with commas between them", t->path,
                        number);
    return cod_fail(COD_ERR_FORMAT, "%s:%zu: its columns are separated by %s; commas are wanted, and decimal points",
                    t->path, number, names[strchr(separators, field[at]) - separators]);
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
            return refuse_separator(t, number, line[0]);
        if (t->rows == 0)
            t->columns = found;
        if (found != t->columns) {
            cod_faults_add(&t->faults, "%zu: %zu fields, where the first line has %zu", number, found, t->columns);
            continue;
        }
        memcpy(t->fields + t->rows * t->columns, line, found * sizeof *line);
        t->lines[t->rows++] = number;
    }
    if (t->rows == 0)
        return cod_fail(COD_ERR_FORMAT, "%s: at least two columns are wanted, with commas between them", t->path);
    COD_TRY(check_faults(t));
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

/** @param[out] length  of the text without spaces around it */
static const char *trim(const char *text, size_t *length)
{
    static const char spaces[] = " \t";
    text += strspn(text, spaces);
    *length = strlen(text);
    while (*length > 0 && strchr(spaces, text[*length - 1]) != NULL)
        --*length;
    return text;
}

static int by_trimmed_text(const void *a, const void *b)
{
    size_t first, second;
    const char *x = trim(*(const char *const *)a, &first), *y = trim(*(const char *const *)b, &second);
    const int order = memcmp(x, y, first < second ? first : second);
    return order != 0 ? order : first < second ? -1 : first > second;
}

/** Refuses a row without a class, and classes that only spaces tell apart. @param names  [count] is sorted anew */
static cod_status check_classes(table *t, const char **names, size_t count)
{
    for (size_t i = 0; i < t->rows; i++) {
        size_t length;
        trim(t->fields[(i + 1) * t->columns - 1], &length);
        if (length == 0)
            cod_faults_add(&t->faults, "%zu: column %zu, which names the class, is empty", t->lines[i], t->columns);
    }
    COD_TRY(check_faults(t));
    qsort(names, count, sizeof *names, by_trimmed_text);
    for (size_t k = 1; k < count; k++)
        if (by_trimmed_text(&names[k - 1], &names[k]) == 0)
            return cod_fail(COD_ERR_FORMAT, "%s: only spaces tell the classes '%.64s' and '%.64s' apart", t->path,
                            names[k - 1], names[k]);
    return COD_OK;
}

/** The last column's different texts, sorted, and each row's place among them. */
static cod_status take_classes(table *t, cod_examples *out)
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
    cod_status status = check_classes(t, names, count);
    qsort(names, count, sizeof *names, by_text);
    COD_THEN(status, keep_classes(t, (const char *const *)names, count, out));
    free(names);
    return status;
}

static cod_status take_numbers(table *t, cod_examples *out)
{
    const size_t features = t->columns - 1;
    float *floats = cod_arena_alloc(&out->arena, t->rows * features * sizeof *floats);
    COD_REQUIRE_MEMORY(floats);
    for (size_t i = 0; i < t->rows; i++) {
        const size_t before = t->faults.count;
        for (size_t c = 0; c < features && t->faults.count == before; c++) {
            const char *field = t->fields[i * t->columns + c];
            const char *fault = number_fault(field, &floats[i * features + c]);
            if (fault != NULL)
                cod_faults_add(&t->faults, "%zu: column %zu: '%.32s' %s", t->lines[i], c + 1, field, fault);
        }
    }
    COD_TRY(check_faults(t));
    out->floats = floats;
    out->height = out->width = 1;
    out->channels = (int64_t)features;
    return COD_OK;
}

static cod_status check_text(const table *t, size_t length)
{
    const char *text = t->text;
    if (strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0)
        return cod_fail(COD_ERR_FORMAT, "%s: is text in UTF-16: save it as UTF-8", t->path);
    if (strlen(text) != length)
        return cod_fail(COD_ERR_FORMAT, "%s: is no text: byte %zu is zero", t->path, strlen(text));
    return COD_OK;
}

cod_status cod_iris_read(const cod_data_options *options, bool report, cod_examples *out)
{
    (void)report;
    table t = {.path = options->path.items[0]};
    size_t length = 0;
    cod_status status = read_text(t.path, &t.text, &length);
    COD_THEN(status, check_text(&t, length));
    COD_THEN(status, cut(&t, &out->arena));
    COD_THEN(status, take_classes(&t, out));
    COD_THEN(status, take_numbers(&t, out));
    cod_faults_clear(&t.faults);
    free(t.text);
    return cod_explain_file(status, t.path, 0, "a table");
}
