#include "tools/print.h"

#include "core/shown.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ESCAPED = 4 };

static void put(FILE *out, const char *text, size_t bytes, bool lines)
{
    char *const shown = malloc(ESCAPED * bytes + 1);
    if (shown == NULL)
        return;
    fwrite(shown, 1, cod_show(text, bytes, lines, shown, ESCAPED * bytes + 1), out);
    free(shown);
}

void cod_print(FILE *out, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    const int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0)
        return;
    const size_t bytes = (size_t)length, format = strlen(fmt), first = strspn(fmt, "\n");
    size_t last = 0;
    while (last < format - first && fmt[format - 1 - last] == '\n')
        last++;
    fwrite(text, 1, first, out);
    put(out, text + first, bytes - first - last, false);
    fwrite(text + bytes - last, 1, last, out);
    free(text);
}

void cod_print_text(FILE *out, const char *text)
{
    put(out, text, strlen(text), true);
}
