#include "data/faults.h"

#include "core/log.h"
#include "core/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 360 /**< of one in a message */ };

void cod_faults_add(cod_faults *faults, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    faults->count++;
    if (faults->kept == faults->capacity) {
        const size_t capacity = faults->capacity > 0 ? 2 * faults->capacity : 16;
        char **grown = realloc(faults->texts, capacity * sizeof *grown);
        if (grown == NULL)
            return;
        faults->texts = grown;
        faults->capacity = capacity;
    }
    va_start(args, fmt);
    const int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length >= 0)
        faults->texts[faults->kept++] = text;
}

const char *cod_faults_first(const cod_faults *faults, const char *between, char text[COD_FAULTS_TEXT])
{
    const size_t named = faults->kept < COD_FAULTS_NAMED ? faults->kept : COD_FAULTS_NAMED;
    int used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < named; i++)
        used += snprintf(text + used, COD_FAULTS_TEXT - (size_t)used, "%s%.*s", i > 0 ? between : "", LONGEST,
                         faults->texts[i]);
    if (named < faults->count)
        snprintf(text + used, COD_FAULTS_TEXT - (size_t)used, "; and %zu more", faults->count - named);
    return text;
}

/** Lists all in a new file. @return whether it is complete */
static bool write_all(const cod_faults *faults, const char *path)
{
    FILE *file = fopen(path, "wx");
    if (file == NULL)
        return false;
    for (size_t i = 0; i < faults->kept; i++) {
        const size_t length = strlen(faults->texts[i]), room = 4 * length + 1;
        char *shown = malloc(room);
        if (shown != NULL)
            fwrite(shown, 1, cod_show(faults->texts[i], length, false, shown, room), file);
        fputc('\n', file);
        free(shown);
    }
    const bool failed = ferror(file) != 0, unfinished = fclose(file) != 0;
    return !failed && !unfinished && faults->kept == faults->count;
}

void cod_faults_report(const cod_faults *faults, size_t of, const char *items, const char *path)
{
    char text[COD_FAULTS_TEXT];
    if (path != NULL)
        remove(path); /* never written through a link that lies there */
    const bool listed = faults->count > COD_FAULTS_NAMED && path != NULL && write_all(faults, path);
    cod_faults_first(faults, "; ", text);
    if (faults->count == 1)
        cod_log_warn("left out: %s", text);
    else if (faults->count > 1)
        cod_log_warn("left out: %zu of %zu %s: %s%s%s%s", faults->count, of, items, text, listed ? ": '" : "",
                     listed ? path : "", listed ? "' lists all" : "");
}

void cod_faults_clear(cod_faults *faults)
{
    for (size_t i = 0; i < faults->kept; i++)
        free(faults->texts[i]);
    free(faults->texts);
    *faults = (cod_faults){0};
}
