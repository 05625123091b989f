/**
 * @file
 * Text from outside (names of files, classes, tensors, hosts; words of other programs) as a terminal or a log may show
 * it: bytes that a terminal would obey, or that are no text, become "\xNN".
 */
#ifndef COD_CORE_SHOWN_H
#define COD_CORE_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

/** Length of the UTF-8 character at `text`, of which `bytes` remain; 0 when it is none. */
size_t cod_utf8_length(const char *text, size_t bytes);

/**
 * Copies `text` with every byte of a control character (C0, DEL, C1) and every byte that is not UTF-8 as "\xNN". A
 * backslash stays as it is, so that shown text is shown the same again.
 *
 * @param lines  whether newlines stay, for a text of several lines whose parts have been escaped
 * @param[out] out  [room] at least one byte; ends with NUL; what does not fit is left out, whole characters at a time
 * @return the length of what is in `out`
 */
size_t cod_show(const char *text, size_t bytes, bool lines, char *out, size_t room);

enum { COD_SHOWN_BYTES = 4 * 4096 + 1 }; /**< room for each path */

/** For an argument of printf(): cod_shown(name).text lives until the end of the statement. */
typedef struct cod_shown_text {
    char text[COD_SHOWN_BYTES];
} cod_shown_text;

/** The same of a text that ends with NUL. */
cod_shown_text cod_shown(const char *text);

#endif
