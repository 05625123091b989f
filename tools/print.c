#include "tools/print.h"

#include "core/shown.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ESCAPED = 4, PIECE = 4096 };

static bool lost; /**< something of standard output, for want of memory */

/** Without memory, a piece of whole characters after the other: a message is to come out where there is none left. */
static void put(FILE *out, const char *text, size_t bytes, bool lines)
{
    char shown[ESCAPED * PIECE + 1];
    for (size_t piece; bytes > 0; text += piece, bytes -= piece) {
        piece = bytes < PIECE ? bytes : PIECE;
        while (piece > 1 && piece < bytes && (text[piece] & 0xC0) == 0x80)
            piece--;
        fwrite(shown, 1, cod_show(text, piece, lines, shown, sizeof shown), out);
    }
}

void cod_print(FILE *out, const char *fmt, ...)
{
    char room[PIECE], *longer = NULL;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(room, sizeof room, fmt, args);
    if (length >= (int)sizeof room)
        length = vasprintf(&longer, fmt, again);
    va_end(again);
    va_end(args);
    if (length < 0) {
        lost = lost || out == stdout;
        return;
    }
    const char *text = longer != NULL ? longer : room;
    const size_t bytes = (size_t)length, format = strlen(fmt), first = strspn(fmt, "\n");
    size_t last = 0;
    while (last < format - first && fmt[format - 1 - last] == '\n')
        last++;
    fwrite(text, 1, first, out);
    put(out, text + first, bytes - first - last, false);
    fwrite(text + bytes - last, 1, last, out);
    free(longer);
}

void cod_print_text(FILE *out, const char *text)
{
    put(out, text, strlen(text), true);
}

bool cod_print_has_lost(void)
{
    return lost;
}

size_t cod_print_columns(FILE *out)
{
    struct winsize size = {0};
    const char *said = getenv("COLUMNS");
    if (!isatty(fileno(out)))
        return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const long columns = said != NULL ? strtol(said, NULL, 10) : 0;
    return columns > 0 ? (size_t)columns : 0;
}

void cod_print_progress(FILE *out, const char *name, const char *fmt, ...)
{
    enum { USUAL = 80, SHORTEST = 8 };
    char rest[256];
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(rest, sizeof rest, fmt, args);
    va_end(args);
    const size_t columns = cod_print_columns(out) > 0 ? cod_print_columns(out) : USUAL;
    const size_t taken = (size_t)length + sizeof ": ";
    const size_t room = columns > taken + SHORTEST ? columns - taken : SHORTEST;
    const cod_shown_text shown = cod_shown(name);
    const char *end = shown.text;
    if (strlen(end) > room) {
        end += strlen(end) - (room - 3);
        while ((*end & 0xC0) == 0x80) /* within a character */
            end++;
    }
    fputs("\r\033[K", out);
    cod_print(out, "%s%s: %s", end != shown.text ? "..." : "", end, rest);
}
