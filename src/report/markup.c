#include "report/markup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NARROW_SPACE "\xE2\x80\xAF"
#define REPLACEMENT  "\xEF\xBF\xBD"

/** Bytes of the character at `text`, which the JSON reader has found to be UTF-8. */
static size_t character(const char *text)
{
    size_t length = 1;
    while (((unsigned char)text[length] & 0xC0) == 0x80)
        length++;
    return length;
}

static const char *escape(const char *text)
{
    switch (*text) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\n':
    case '\t':
        return NULL;
    default:
        break;
    }
    const unsigned char first = (unsigned char)*text;
    const bool not_xml =
        first < 0x20 || first == 0x7F || strncmp(text, "\xEF\xBF\xBE", 3) == 0 || strncmp(text, "\xEF\xBF\xBF", 3) == 0;
    return not_xml ? REPLACEMENT : NULL;
}

/** Scripts of East Asia from U+2E80 on, and what lies past U+FFFF, are twice as wide. */
static size_t columns(const char *text)
{
    const unsigned char first = (unsigned char)text[0], second = first >= 0x80 ? (unsigned char)text[1] : 0;
    const bool wide = first >= 0xF0 || (first == 0xE2 && second >= 0xBA) || (first >= 0xE3 && first <= 0xED) ||
                      (first == 0xEF && second >= 0xA4 && second < 0xBF);
    return wide ? 2 : 1;
}

size_t cod_markup_length(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text += character(text))
        count += columns(text);
    return count;
}

void cod_markup_part(FILE *out, const char *text, size_t most)
{
    const bool cut = most != COD_MARKUP_ALL && cod_markup_length(text) > most;
    size_t left = cut ? most - 1 : most;
    for (; *text != '\0' && left >= columns(text); text += character(text)) {
        const char *escaped = escape(text);
        left -= most != COD_MARKUP_ALL ? columns(text) : 0;
        if (escaped != NULL)
            fputs(escaped, out);
        else
            fwrite(text, 1, character(text), out);
    }
    if (cut)
        fputs("…", out);
}

void cod_markup(FILE *out, const char *text)
{
    cod_markup_part(out, text, COD_MARKUP_ALL);
}

void cod_markup_base64(FILE *out, const void *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *data = bytes;
    for (size_t i = 0; i < count; i += 3) {
        const unsigned long block = (unsigned long)data[i] << 16 |
                                    (i + 1 < count ? (unsigned long)data[i + 1] << 8 : 0) |
                                    (i + 2 < count ? data[i + 2] : 0);
        fputc(digits[block >> 18 & 63], out);
        fputc(digits[block >> 12 & 63], out);
        fputc(i + 1 < count ? digits[block >> 6 & 63] : '=', out);
        fputc(i + 2 < count ? digits[block & 63] : '=', out);
    }
}

cod_short cod_number_text(double value, int digits)
{
    cod_short out = {"–"};
    char plain[400];
    if (isnan(value))
        return out;
    if (fabs(value) >= 1e15 || isinf(value)) {
        snprintf(out.text, sizeof out.text, "%s%.3g", value < 0 ? "−" : "", fabs(value));
        return out;
    }
    snprintf(plain, sizeof plain, "%.*f", digits < 0 ? 0 : digits > 9 ? 9 : digits, fabs(value));
    const size_t whole = strcspn(plain, ".");
    const bool zero = strspn(plain, "0.") == strlen(plain);
    size_t length = (size_t)snprintf(out.text, sizeof out.text, "%s", value < 0 && !zero ? "−" : "");
    for (size_t i = 0; plain[i] != '\0'; i++)
        length +=
            (size_t)snprintf(out.text + length, sizeof out.text - length, "%s%c",
                             whole > 4 && i > 0 && i < whole && (whole - i) % 3 == 0 ? NARROW_SPACE : "", plain[i]);
    return out;
}

cod_short cod_signed_text(double value, int digits)
{
    cod_short out = cod_number_text(value, digits);
    const bool zero = strspn(out.text, "0.") == strlen(out.text);
    if (value > 0 && !zero) {
        const cod_short plain = out;
        snprintf(out.text, sizeof out.text, "+%.*s", (int)sizeof out.text - 2, plain.text);
    }
    return out;
}

cod_short cod_figure_text(double value)
{
    const double size = fabs(value);
    if (size == 0 || !isfinite(value))
        return cod_number_text(value, 0);
    char rounded[32]; /* 0.9999 is 1.00 */
    snprintf(rounded, sizeof rounded, "%.2e", size);
    const int digits = 2 - atoi(strchr(rounded, 'e') + 1);
    const double unit = pow(10, -digits);
    return cod_number_text(digits < 0 ? round(value / unit) * unit : value, digits);
}

/**
 * Three significant digits and the unit that suits, each a thousand times the one before; `exact`: without zeros at the
 * end.
 */
static cod_short with_unit(double value, const char *const *units, size_t count, bool exact)
{
    cod_short out = {"–"};
    if (isnan(value))
        return out;
    size_t k = 0;
    for (; k + 1 < count && fabs(value) >= 999.5; k++)
        value /= 1000;
    if (exact)
        snprintf(out.text, sizeof out.text, "%.3g %s", value, units[k]);
    else
        snprintf(out.text, sizeof out.text, "%.40s %s", cod_figure_text(value).text, units[k]);
    return out;
}

cod_short cod_bytes_text(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    return with_unit(bytes, units, sizeof units / sizeof units[0], false);
}

cod_short cod_rate_text(double bits_per_second)
{
    static const char *const units[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    cod_short out = {"no limit"};
    return isinf(bits_per_second) ? out : with_unit(bits_per_second, units, sizeof units / sizeof units[0], true);
}

cod_short cod_seconds_text(double seconds)
{
    cod_short out;
    const double whole = round(seconds);
    if (isnan(seconds))
        return (cod_short){"–"};
    if (whole < 100)
        snprintf(out.text, sizeof out.text, "%.40s s", cod_figure_text(seconds).text);
    else if (whole < 3600)
        snprintf(out.text, sizeof out.text, "%.0f min %.0f s", floor(whole / 60), fmod(whole, 60));
    else
        snprintf(out.text, sizeof out.text, "%.40s h %.0f min", cod_number_text(floor(whole / 3600), 0).text,
                 floor(fmod(whole, 3600) / 60));
    return out;
}

cod_short cod_p_text(double p)
{
    cod_short out;
    if (p < 0.001)
        snprintf(out.text, sizeof out.text, "p &lt; 0.001");
    else
        snprintf(out.text, sizeof out.text, "p = %.*f", p < 0.095 ? 3 : 2, p);
    return out;
}
