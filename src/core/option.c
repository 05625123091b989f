#include "core/option.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *field(const cod_option *option, void *values)
{
    return (char *)values + option->offset;
}

const cod_option *cod_option_find(const cod_option_table *table, const char *key)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->options[i].key, key) == 0)
            return &table->options[i];
    return NULL;
}

/** Splits "a, b", or "[a, b]", into its items, which are left in `arena`. */
static cod_status split(const char *text, cod_arena *arena, const char ***items, size_t *count)
{
    *count = 0;
    const size_t length = strlen(text);
    *items = cod_arena_alloc(arena, (length + 1) * sizeof **items);
    char *copy = cod_arena_strdup(arena, text);
    COD_REQUIRE_MEMORY(*items);
    COD_REQUIRE_MEMORY(copy);
    if (length >= 2 && copy[0] == '[' && copy[length - 1] == ']') {
        copy[length - 1] = '\0';
        copy++;
    }
    for (char *rest = NULL, *item = strtok_r(copy, ", ", &rest); item != NULL; item = strtok_r(NULL, ", ", &rest))
        (*items)[(*count)++] = item;
    return COD_OK;
}

cod_status cod_options_set_defaults(const cod_option_table *table, void *values, cod_arena *arena)
{
    memset(values, 0, table->struct_bytes);
    for (size_t i = 0; i < table->count; i++) {
        const cod_option *option = &table->options[i];
        if (cod_option_set_text(option, values, option->default_text, arena) != COD_OK)
            return cod_fail_prefix(COD_ERR_ARGUMENT, "default of %s.%s", table->section, option->key);
    }
    return COD_OK;
}

cod_status cod_option_set_text(const cod_option *option, void *values, const char *text, cod_arena *arena)
{
    const char **items = &text;
    size_t count = 1;
    if (cod_option_is_list(option))
        COD_TRY(split(text, arena, &items, &count));
    return cod_option_set(option, values, items, count, arena);
}

static cod_status wrong_value(const cod_option *option, const char *text)
{
    cod_arena scratch = {0};
    const char *expected = cod_option_expectation(option, &scratch);
    const cod_status status = cod_fail(COD_ERR_ARGUMENT, "'%s' is not %s", text, expected ? expected : "valid");
    cod_arena_clear(&scratch);
    return status;
}

const char *const cod_option_auto[] = {"auto", NULL};

static cod_status parse_number(const cod_option *option, const char *text, bool integer, double *out)
{
    char *end = NULL;
    errno = 0;
    const double number = strtod(text, &end);
    const bool bounded = option->min != 0 || option->max != 0;
    if (end == text || *end != '\0' || !isfinite(number) ||
        (integer && (number != floor(number) || fabs(number) > 0x1p53)) ||
        (bounded && (number < option->min || number > option->max)))
        return wrong_value(option, text);
    *out = number;
    return COD_OK;
}

static cod_status parse_bool(const cod_option *option, const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return COD_OK;
        }
    }
    return wrong_value(option, text);
}

/** Letters of a choice before its "(k)"; 0 for one that takes no number. */
static size_t stem_of(const char *choice)
{
    const size_t length = strlen(choice);
    return length > 3 && strcmp(choice + length - 3, "(k)") == 0 ? length - 3 : 0;
}

/** Reads "name(3)" as choice `index`, "name(k)". */
static bool parse_argument(const cod_option *option, const char *text, size_t index, int *out)
{
    const size_t stem = stem_of(option->choices[index]);
    if (stem == 0 || strncmp(text, option->choices[index], stem + 1) != 0)
        return false;
    const char *digits = text + stem + 1;
    const size_t count = strspn(digits, "0123456789");
    const double number = strtod(digits, NULL);
    if (count == 0 || strcmp(digits + count, ")") != 0 || number < option->min || number > option->max)
        return false;
    *out = (int)(index + 256 * (size_t)number);
    return true;
}

static cod_status parse_choice(const cod_option *option, const char *text, int *out)
{
    size_t count = 0;
    for (; option->choices[count] != NULL; count++) {
        if (parse_argument(option, text, count, out))
            return COD_OK;
        if (stem_of(option->choices[count]) == 0 && strcmp(option->choices[count], text) == 0) {
            *out = (int)count;
            return COD_OK;
        }
        if (stem_of(option->choices[count]) > 0 &&
            strncmp(option->choices[count], text, stem_of(option->choices[count])) == 0)
            return wrong_value(option, text);
    }
    /* Beside all choices: words as short as `gpu` and `cpu` are near to each other whatever they mean. */
    const char *near = cod_suggest(text, option->choices, count);
    const cod_status status = wrong_value(option, text);
    return near == NULL ? status : cod_fail(status, "%s; did you mean '%s'?", cod_error_message(), near);
}

cod_status cod_option_set(const cod_option *option, void *values, const char *const *items, size_t count,
                          cod_arena *arena)
{
    void *target = field(option, values);
    if (!cod_option_is_list(option) && count != 1)
        return cod_fail(COD_ERR_ARGUMENT, "a list of %zu items is not %s", count,
                        cod_option_expectation(option, arena));
    double number = 0;
    switch (option->type) {
    case COD_OPTION_BOOL:
        return parse_bool(option, items[0], target);
    case COD_OPTION_INT:
        COD_TRY(parse_number(option, items[0], true, &number));
        *(int64_t *)target = (int64_t)number;
        return COD_OK;
    case COD_OPTION_FLOAT:
        if (option->choices == cod_option_auto && strcmp(items[0], cod_option_auto[0]) == 0) {
            *(double *)target = NAN;
            return COD_OK;
        }
        return parse_number(option, items[0], false, target);
    case COD_OPTION_STRING: {
        const char *copy = cod_arena_strdup(arena, items[0]);
        COD_REQUIRE_MEMORY(copy);
        *(const char **)target = copy;
        return COD_OK;
    }
    case COD_OPTION_CHOICE:
        return parse_choice(option, items[0], target);
    case COD_OPTION_INT_LIST: {
        int64_t *numbers = cod_arena_alloc(arena, count * sizeof *numbers);
        COD_REQUIRE_MEMORY(numbers);
        for (size_t i = 0; i < count; i++) {
            COD_TRY(parse_number(option, items[i], true, &number));
            numbers[i] = (int64_t)number;
        }
        *(cod_int_list *)target = (cod_int_list){.count = count, .items = numbers};
        return COD_OK;
    }
    case COD_OPTION_FLOAT_LIST: {
        double *numbers = cod_arena_alloc(arena, count * sizeof *numbers);
        COD_REQUIRE_MEMORY(numbers);
        for (size_t i = 0; i < count; i++)
            COD_TRY(parse_number(option, items[i], false, &numbers[i]));
        *(cod_float_list *)target = (cod_float_list){.count = count, .items = numbers};
        return COD_OK;
    }
    case COD_OPTION_STRING_LIST: {
        const char **strings = cod_arena_alloc(arena, count * sizeof *strings);
        COD_REQUIRE_MEMORY(strings);
        for (size_t i = 0; i < count; i++) {
            strings[i] = cod_arena_strdup(arena, items[i]);
            COD_REQUIRE_MEMORY(strings[i]);
        }
        *(cod_string_list *)target = (cod_string_list){.count = count, .items = strings};
        return COD_OK;
    }
    }
    return cod_fail(COD_ERR_ARGUMENT, "option '%s' has no known type", option->key);
}

/** A growing text in `arena`; good for the short strings of options. */
static char *append(cod_arena *arena, char *text, const char *more)
{
    const size_t length = text ? strlen(text) : 0;
    char *joined = cod_arena_alloc(arena, length + strlen(more) + 1);
    if (joined == NULL)
        return NULL;
    if (text != NULL)
        memcpy(joined, text, length);
    strcpy(joined + length, more);
    return joined;
}

/** YAML's plain scalars are enough for words, numbers and paths; all else goes between double quotes. */
static const char *quoted(const char *text, cod_arena *arena)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+";
    if (text[0] != '\0' && text[0] != '-' && strspn(text, plain) == strlen(text) && strcasecmp(text, "null") != 0)
        return text;
    char *out = cod_arena_alloc(arena, 4 * strlen(text) + 3), *at = out;
    if (out == NULL)
        return NULL;
    *at++ = '"';
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7F) {
            at += sprintf(at, "\\x%02X", c);
        } else {
            if (c == '"' || c == '\\')
                *at++ = '\\';
            *at++ = (char)c;
        }
    }
    *at++ = '"';
    return out;
}

static const char *format_choice(const cod_option *option, int value, cod_arena *arena)
{
    char text[64];
    const char *choice = option->choices[cod_choice_index(value)];
    if (stem_of(choice) == 0)
        return choice;
    snprintf(text, sizeof text, "%.*s(%d)", (int)stem_of(choice), choice, cod_choice_argument(value));
    return cod_arena_strdup(arena, text);
}

enum { NUMBER_TEXT = 64 };

/** Whole numbers of ordinary size in full; else the shortest text that reads back as the same number. */
static void format_float(double value, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%.0f", value);
    if (fabs(value) < 1e6 && strtod(text, NULL) == value)
        return;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

const char *cod_option_format(const cod_option *option, const void *values, cod_arena *arena)
{
    const void *source = (const char *)values + option->offset;
    char number[NUMBER_TEXT];
    switch (option->type) {
    case COD_OPTION_BOOL:
        return *(const bool *)source ? "true" : "false";
    case COD_OPTION_INT:
        snprintf(number, sizeof number, "%lld", (long long)*(const int64_t *)source);
        return cod_arena_strdup(arena, number);
    case COD_OPTION_FLOAT:
        if (isnan(*(const double *)source))
            return cod_option_auto[0];
        format_float(*(const double *)source, number);
        return cod_arena_strdup(arena, number);
    case COD_OPTION_STRING:
        return quoted(*(const char *const *)source, arena);
    case COD_OPTION_CHOICE:
        return format_choice(option, *(const int *)source, arena);
    case COD_OPTION_INT_LIST: {
        const cod_int_list *list = source;
        char *text = append(arena, NULL, "[");
        for (size_t i = 0; i < list->count && text != NULL; i++) {
            snprintf(number, sizeof number, "%s%lld", i ? ", " : "", (long long)list->items[i]);
            text = append(arena, text, number);
        }
        return text ? append(arena, text, "]") : NULL;
    }
    case COD_OPTION_FLOAT_LIST: {
        const cod_float_list *list = source;
        char *text = append(arena, NULL, "[");
        for (size_t i = 0; i < list->count && text != NULL; i++) {
            format_float(list->items[i], number);
            text = append(arena, text, i ? ", " : "");
            text = text ? append(arena, text, number) : NULL;
        }
        return text ? append(arena, text, "]") : NULL;
    }
    case COD_OPTION_STRING_LIST: {
        const cod_string_list *list = source;
        char *text = append(arena, NULL, "[");
        for (size_t i = 0; i < list->count && text != NULL; i++) {
            const char *item = quoted(list->items[i], arena);
            text = append(arena, text, i ? ", " : "");
            text = text && item ? append(arena, text, item) : NULL;
        }
        return text ? append(arena, text, "]") : NULL;
    }
    }
    return "";
}

const char *cod_option_expectation(const cod_option *option, cod_arena *arena)
{
    const bool list = cod_option_is_list(option);
    const bool whole = option->type == COD_OPTION_INT || option->type == COD_OPTION_INT_LIST;
    char text[160];
    switch (option->type) {
    case COD_OPTION_BOOL:
        return "true or false";
    case COD_OPTION_INT:
    case COD_OPTION_FLOAT:
    case COD_OPTION_INT_LIST:
    case COD_OPTION_FLOAT_LIST: {
        const char *kind = whole ? "whole number" : "number";
        const char *article = list ? "a list of " : "a ", *plural = list ? "s" : "";
        if (option->min == 0 && option->max == 0)
            snprintf(text, sizeof text, "%s%s%s", article, kind, plural);
        else if (option->max >= 1e15)
            snprintf(text, sizeof text, "%s%s%s of at least %g", article, kind, plural, option->min);
        else
            snprintf(text, sizeof text, "%s%s%s from %.10g to %.10g", article, kind, plural, option->min, option->max);
        return append(arena, text, option->choices == cod_option_auto ? ", or auto" : "");
    }
    case COD_OPTION_STRING:
        return "a text";
    case COD_OPTION_STRING_LIST:
        return "a list of texts";
    case COD_OPTION_CHOICE: {
        char *joined = append(arena, NULL, "one of: ");
        bool argument = false;
        for (size_t i = 0; option->choices[i] != NULL && joined != NULL; i++) {
            if (i > 0)
                joined = append(arena, joined, ", ");
            joined = joined ? append(arena, joined, option->choices[i]) : NULL;
            argument = argument || stem_of(option->choices[i]) > 0;
        }
        snprintf(text, sizeof text, ", k from %.10g to %.10g", option->min, option->max);
        return joined != NULL && argument ? append(arena, joined, text) : joined;
    }
    }
    return "valid";
}

/** Damerau-Levenshtein distance (optimal string alignment), words up to 63 letters; longer ones count as far. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    const size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST)
        return LONGEST;
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[m % 3][n];
}

const char *cod_suggest(const char *text, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t best_distance = 1 + strlen(text) / 3;
    for (size_t i = 0; i < count; i++) {
        const size_t distance = edit_distance(text, candidates[i]);
        if (distance < best_distance || (distance == best_distance && best == NULL)) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}

void cod_names_add(char *text, size_t bytes, const char *name)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}
