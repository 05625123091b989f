/**
 * @file
 * Text of the report: text from outside is escaped, and numbers have the same format everywhere and a unit.
 */
#ifndef COD_REPORT_MARKUP_H
#define COD_REPORT_MARKUP_H

#include <stdbool.h>
#include <stdio.h>

/** A short text by value, for use within the expression that makes it. */
typedef struct cod_short {
    char text[64];
} cod_short;

/** Any number of columns of cod_markup_part(). */
#define COD_MARKUP_ALL ((size_t)-1)

/**
 * UTF-8 with & < > " ' escaped, as text or attribute of HTML and SVG; control characters, which XML does not have,
 * become U+FFFD.
 */
void cod_markup(FILE *out, const char *text);
/** The same for the part that fits into `most` columns; it ends in an ellipsis if there is more. */
void cod_markup_part(FILE *out, const char *text, size_t most);
/** Columns of a UTF-8 text: East Asian characters count twice. */
size_t cod_markup_length(const char *text);

/** Bytes in base64 (RFC 4648), for data URLs. */
void cod_markup_base64(FILE *out, const void *bytes, size_t count);

/**
 * Formats a number with `digits` digits after the point, a true minus sign, and groups of thousands from 10 000 on; "–"
 * for NaN.
 */
cod_short cod_number_text(double value, int digits);
/** The same, with its sign also when it is positive. */
cod_short cod_signed_text(double value, int digits);
/** Three significant digits: "0.0123", "12.3", "12 300". */
cod_short cod_figure_text(double value);
/** "12.3 MB", decimal prefixes. */
cod_short cod_bytes_text(double bytes);
/** "0.45 s", "12.3 s", "3 min 20 s", "2 h 5 min". */
cod_short cod_seconds_text(double seconds);
/** "20 Mbit/s"; "no limit" of infinity. */
cod_short cod_rate_text(double bits_per_second);
/** "p = 0.012"; "p &lt; 0.001", escaped already. */
cod_short cod_p_text(double p);

#endif
