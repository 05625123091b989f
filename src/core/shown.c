#include "core/shown.h"

#include <stdio.h>
#include <string.h>

size_t cod_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    if (c[0] < 0x80)
        return 1;
    const size_t length = c[0] >= 0xC2 && c[0] < 0xE0   ? 2
                          : c[0] >= 0xE0 && c[0] < 0xF0 ? 3
                          : c[0] >= 0xF0 && c[0] < 0xF5 ? 4
                                                        : 0;
    if (length == 0 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    /* Overlong forms, surrogates and what lies past U+10FFFF. */
    if ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] >= 0xA0) || (c[0] == 0xF0 && c[1] < 0x90) ||
        (c[0] == 0xF4 && c[1] >= 0x90))
        return 0;
    return length;
}

/** Whether the character is one that terminals obey: C0 and DEL, or C1, which UTF-8 writes as C2 80 to C2 9F. */
static bool is_control(const char *text, size_t length)
{
    const unsigned char *c = (const unsigned char *)text;
    return c[0] < 0x20 || c[0] == 0x7F || (length == 2 && c[0] == 0xC2 && c[1] < 0xA0);
}

size_t cod_show(const char *text, size_t bytes, bool lines, char *out, size_t room)
{
    enum { ESCAPED = 4 };
    size_t used = 0;
    for (size_t i = 0, length; i < bytes; i += length) {
        length = cod_utf8_length(text + i, bytes - i);
        const bool plain = length > 0 && (!is_control(text + i, length) || (lines && text[i] == '\n'));
        length += length == 0;
        if (used + (plain ? length : ESCAPED * length) >= room)
            break;
        if (plain)
            memcpy(out + used, text + i, length);
        for (size_t k = 0; !plain && k < length; k++)
            snprintf(out + used + ESCAPED * k, ESCAPED + 1, "\\x%02X", (unsigned)(unsigned char)text[i + k]);
        used += plain ? length : ESCAPED * length;
    }
    out[used] = '\0';
    return used;
}

cod_shown_text cod_shown(const char *text)
{
    cod_shown_text shown;
    cod_show(text, strlen(text), false, shown.text, sizeof shown.text);
    return shown;
}
