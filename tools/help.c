#include "tools/help.h"

#include "tools/print.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 80, LEAST = 40, MOST = 120, GAP = 2, HANGING = 6, CELLS = 3 };

static bool is_unwrapped;

/** Where the next word goes. */
typedef struct writer {
    FILE *out;
    size_t columns, column;
    size_t hanging;      /**< indentation of the lines that follow in a paragraph */
    bool keeps_brackets; /**< "[--seeds LIST]" stays on one line */
} writer;

void cod_help_leave_unwrapped(void)
{
    is_unwrapped = true;
}

static size_t columns_of(FILE *out)
{
    const size_t columns = cod_print_columns(out);
    return columns == 0 ? COLUMNS : columns < LEAST ? LEAST : columns > MOST ? MOST : columns;
}

static void put_spaces(writer *w, size_t column)
{
    for (; w->column < column; w->column++)
        fputc(' ', w->out);
}

static void put_newline(writer *w, size_t column)
{
    fputc('\n', w->out);
    w->column = 0;
    put_spaces(w, column);
}

static size_t word_length(const writer *w, const char *text, size_t length)
{
    size_t i = 0;
    for (int depth = 0; i < length && (text[i] != ' ' || (w->keeps_brackets && depth > 0)); i++)
        depth += (text[i] == '[') - (text[i] == ']');
    return i;
}

/** From the writer's column on; lines after the first are indented by w->hanging. */
static void put_words(writer *w, const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        const size_t word = word_length(w, text + at, length - at);
        if (at > 0 && w->column + 1 + word > w->columns)
            put_newline(w, w->hanging);
        else if (at > 0)
            put_spaces(w, w->column + 1);
        cod_print(w->out, "%.*s", (int)word, text + at);
        w->column += word;
        at += word;
        at += strspn(text + at, " ");
    }
}

/** A line without tabs. */
static void put_paragraph(writer *w, const char *line, size_t length)
{
    static const char usage[] = "usage: ";
    const size_t indent = strspn(line, " ") < length ? strspn(line, " ") : length;
    const bool is_usage = strncmp(line, usage, sizeof usage - 1) == 0 || indent == sizeof usage - 1;
    w->keeps_brackets = is_usage;
    w->hanging = is_usage ? sizeof usage - 1 + HANGING : indent == 0 ? 0 : indent < HANGING ? HANGING : indent;
    put_spaces(w, indent);
    put_words(w, line + indent, length - indent);
    put_newline(w, 0);
}

/** Splits a line at its tabs. @return the number of its cells */
static size_t split(const char *line, size_t length, const char *cells[CELLS], size_t lengths[CELLS])
{
    size_t count = 0;
    for (size_t at = 0; count < CELLS; at += lengths[count - 1] + 1) {
        const char *tab = count + 1 < CELLS ? memchr(line + at, '\t', length - at) : NULL;
        cells[count] = line + at;
        lengths[count++] = tab != NULL ? (size_t)(tab - line) - at : length - at;
        if (tab == NULL)
            break;
    }
    return count;
}

/** Lines with tabs. A term that is too long for its column has a line of its own. @return the bytes of the table */
static size_t put_table(writer *w, const char *text)
{
    const char *cells[CELLS];
    size_t lengths[CELLS], columns[CELLS] = {0}, widths[CELLS] = {0}, bytes = 0;
    for (size_t line; line = strcspn(text + bytes, "\n"), memchr(text + bytes, '\t', line) != NULL;) {
        const size_t count = split(text + bytes, line, cells, lengths);
        for (size_t i = 0; i + 1 < count; i++)
            widths[i] = lengths[i] > widths[i] ? lengths[i] : widths[i];
        bytes += line + (text[bytes + line] == '\n');
    }
    for (size_t i = 0; i + 1 < CELLS; i++) {
        const size_t widest = w->columns / 3 - GAP;
        columns[i + 1] = columns[i] + (widths[i] < widest ? widths[i] : widest) + GAP;
    }
    w->keeps_brackets = false;
    for (size_t at = 0; at < bytes;) {
        const size_t line = strcspn(text + at, "\n"), count = split(text + at, line, cells, lengths);
        for (size_t i = 0; i < count; i++) {
            w->hanging = columns[i];
            if (w->column > 0 && w->column + GAP > columns[i])
                put_newline(w, columns[i]);
            put_spaces(w, columns[i]);
            const size_t indent = i == 0 ? strspn(cells[i], " ") : 0;
            put_spaces(w, indent);
            put_words(w, cells[i] + indent, lengths[i] - indent);
        }
        put_newline(w, 0);
        at += line + (text[at + line] == '\n');
    }
    return bytes;
}

void cod_help_print(FILE *out, const char *help)
{
    writer w = {.out = out, .columns = columns_of(out)};
    const char *text = help;
    while (*text != '\0' && !is_unwrapped) {
        const size_t line = strcspn(text, "\n");
        if (memchr(text, '\t', line) != NULL) {
            text += put_table(&w, text);
        } else {
            put_paragraph(&w, text, line);
            text += line + (text[line] == '\n');
        }
    }
    if (is_unwrapped)
        fputs(help, out);
}
