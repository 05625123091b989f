#include "io/json.h"

#include "io_internal.h"

#include "core/shown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put(cod_json *json, const char *bytes, size_t count)
{
    if (json->status != COD_OK)
        return;
    void *text = json->text;
    json->status = cod_io_reserve(&text, &json->capacity, json->length, count + 1);
    json->text = text;
    if (json->status != COD_OK)
        return;
    memcpy(json->text + json->length, bytes, count);
    json->length += count;
    json->text[json->length] = '\0';
}

static void put_line(cod_json *json)
{
    if (json->indent <= 0)
        return;
    put(json, "\n", 1);
    for (int i = 0; i < json->depth * json->indent; i++)
        put(json, " ", 1);
}

static void put_quoted(cod_json *json, const char *text)
{
    size_t rest = strlen(text);
    put(json, "\"", 1);
    while (rest > 0 && json->status == COD_OK) {
        const size_t length = cod_utf8_length(text, rest);
        const unsigned char c = (unsigned char)*text;
        if (length == 0) {
            put(json, "\xEF\xBF\xBD", 3);
        } else if (c == '"' || c == '\\') {
            put(json, (const char[]){'\\', (char)c}, 2);
        } else if (c < 0x20 || c == 0x7F) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", c);
            put(json, escape, 6);
        } else {
            put(json, text, length);
        }
        text += length ? length : 1;
        rest -= length ? length : 1;
    }
    put(json, "\"", 1);
}

/** Writes the text before a value: comma, line break, key. */
static void lead(cod_json *json, const char *key)
{
    const bool object = json->depth > 0 && json->closers[json->depth - 1] == '}';
    if (json->status == COD_OK && ((key != NULL) != object || (json->depth == 0 && json->length > 0)))
        json->status =
            cod_fail(COD_ERR_ARGUMENT, "a JSON value has a key in objects, and only there; the root is one value");
    if (json->separate)
        put(json, json->indent > 0 ? "," : ", ", json->indent > 0 ? 1 : 2);
    if (json->depth > 0)
        put_line(json);
    if (key != NULL) {
        put_quoted(json, key);
        put(json, ": ", 2);
    }
    json->separate = true;
}

void cod_json_open(cod_json *json, const char *key, char bracket)
{
    lead(json, key);
    if (json->status == COD_OK && json->depth == (int)sizeof json->closers)
        json->status = cod_fail(COD_ERR_ARGUMENT, "JSON of more than %zu levels", sizeof json->closers);
    if (json->status != COD_OK)
        return;
    put(json, &bracket, 1);
    json->closers[json->depth++] = bracket == '{' ? '}' : ']';
    json->separate = false;
}

void cod_json_close(cod_json *json)
{
    if (json->status == COD_OK && json->depth == 0)
        json->status = cod_fail(COD_ERR_ARGUMENT, "nothing is open in this JSON text");
    if (json->status != COD_OK)
        return;
    json->depth--;
    if (json->separate)
        put_line(json);
    put(json, &json->closers[json->depth], 1);
    json->separate = true;
}

static void put_value(cod_json *json, const char *key, const char *text)
{
    lead(json, key);
    put(json, text, strlen(text));
}

void cod_json_string(cod_json *json, const char *key, const char *value)
{
    if (value == NULL) {
        cod_json_null(json, key);
        return;
    }
    lead(json, key);
    put_quoted(json, value);
}

void cod_json_number(cod_json *json, const char *key, double value)
{
    char text[32] = "null";
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_value(json, key, text);
}

void cod_json_integer(cod_json *json, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_value(json, key, text);
}

void cod_json_bool(cod_json *json, const char *key, bool value)
{
    put_value(json, key, value ? "true" : "false");
}

void cod_json_null(cod_json *json, const char *key)
{
    put_value(json, key, "null");
}

cod_status cod_json_end(cod_json *json, char **text)
{
    *text = NULL;
    if (json->status == COD_OK && (json->depth != 0 || json->length == 0))
        json->status =
            cod_fail(COD_ERR_ARGUMENT, "a JSON text ends with %d levels open and %zu bytes", json->depth, json->length);
    const cod_status status = json->status;
    if (status == COD_OK) {
        *text = json->text;
        json->text = NULL;
    }
    cod_json_clear(json);
    return status;
}

void cod_json_clear(cod_json *json)
{
    free(json->text);
    *json = (cod_json){.indent = json->indent};
}
