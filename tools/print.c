#include "tools/print.h"

#include "core/shown.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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
