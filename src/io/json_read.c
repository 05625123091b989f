#include "io/json.h"

#include "io_internal.h"

#include "core/shown.h"

#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A cod_json_value is a cJSON under another name, so that no caller sees the library. */
static const cJSON *item(const cod_json_value *value)
{
    return (const cJSON *)(const void *)value;
}

static const cod_json_value *wrap(const cJSON *json)
{
    return (const cod_json_value *)(const void *)json;
}

/**
 * cJSON takes any bytes, up to 1000 levels, control characters in texts and zero bytes written as \u0000; these are
 * refused before it sees them.
 */
static cod_status scan(const char *text, size_t bytes)
{
    enum { DEPTH_MAX = 64 };
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes;) {
        const size_t length = cod_utf8_length(text + i, bytes - i);
        const char c = text[i];
        if (length == 0 || c == '\0' || (quoted && (unsigned char)c < 0x20))
            return cod_fail(COD_ERR_FORMAT, "JSON: byte %zu is no valid text", i);
        if (quoted && c == '\\') {
            if (bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
                return cod_fail(COD_ERR_FORMAT, "JSON: zero byte in the text at byte %zu", i);
            i++; /* and the escaped character below */
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '{' || c == '[')) {
            if (++depth > DEPTH_MAX)
                return cod_fail(COD_ERR_FORMAT, "JSON: more than %d levels at byte %zu", DEPTH_MAX, i);
        } else if (!quoted && (c == '}' || c == ']')) {
            depth--;
        }
        i += length;
    }
    return COD_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static cod_status check_keys(const cJSON *parent)
{
    size_t count = 0;
    for (const cJSON *child = parent->child; child != NULL; child = child->next, count++)
        if (cJSON_IsObject(child) || cJSON_IsArray(child))
            COD_TRY(check_keys(child));
    if (!cJSON_IsObject(parent) || count < 2)
        return COD_OK;
    const char **keys = malloc(count * sizeof *keys);
    COD_REQUIRE_MEMORY(keys);
    size_t at = 0;
    for (const cJSON *child = parent->child; child != NULL; child = child->next)
        keys[at++] = child->string;
    qsort(keys, count, sizeof *keys, by_key);
    cod_status status = COD_OK;
    for (size_t i = 1; i < count && status == COD_OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            status = cod_fail(COD_ERR_FORMAT, "JSON: key '%s' stands twice in one object", keys[i]);
    free(keys);
    return status;
}

cod_status cod_json_parse(const char *text, size_t bytes, cod_json_value **document)
{
    *document = NULL;
    COD_TRY(scan(text, bytes));
    const char *end = NULL;
    errno = 0;
    cJSON *json = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (json == NULL && errno == ENOMEM)
        return cod_fail(COD_ERR_MEMORY, "out of memory for JSON of %zu bytes", bytes);
    if (json == NULL)
        return cod_fail(COD_ERR_FORMAT, "no valid JSON at byte %zu of %zu", end ? (size_t)(end - text) : 0, bytes);
    cod_status status = COD_OK;
    for (const char *rest = end; rest < text + bytes && status == COD_OK; rest++)
        if (strchr(" \t\r\n", *rest) == NULL)
            status = cod_fail(COD_ERR_FORMAT, "more after the end of the JSON at byte %zu", (size_t)(rest - text));
    COD_THEN(status, check_keys(json));
    if (status != COD_OK) {
        cJSON_Delete(json);
        return status;
    }
    *document = (cod_json_value *)(void *)json;
    return COD_OK;
}

cod_status cod_json_parse_line(const char *line, size_t bytes, cod_json_value **document)
{
    const cod_status status = cod_json_parse(line, bytes, document);
    return status == COD_ERR_MEMORY ? status : COD_OK;
}

void cod_json_free(cod_json_value *document)
{
    cJSON_Delete((cJSON *)(void *)document);
}

cod_json_kind cod_json_kind_of(const cod_json_value *value)
{
    const cJSON *json = item(value);
    return cJSON_IsBool(json)     ? COD_JSON_BOOL
           : cJSON_IsNumber(json) ? COD_JSON_NUMBER
           : cJSON_IsString(json) ? COD_JSON_STRING
           : cJSON_IsArray(json)  ? COD_JSON_LIST
           : cJSON_IsObject(json) ? COD_JSON_OBJECT
                                  : COD_JSON_NULL;
}

const cod_json_value *cod_json_first(const cod_json_value *parent)
{
    const cod_json_kind kind = cod_json_kind_of(parent);
    return kind == COD_JSON_LIST || kind == COD_JSON_OBJECT ? wrap(item(parent)->child) : NULL;
}

const cod_json_value *cod_json_next(const cod_json_value *value)
{
    return value != NULL ? wrap(item(value)->next) : NULL;
}

const char *cod_json_key(const cod_json_value *value)
{
    return value != NULL ? item(value)->string : NULL;
}

size_t cod_json_count(const cod_json_value *value)
{
    size_t count = 0;
    for (const cod_json_value *child = cod_json_first(value); child != NULL; child = cod_json_next(child))
        count++;
    return count;
}

const cod_json_value *cod_json_get(const cod_json_value *object, const char *key)
{
    return cod_json_kind_of(object) == COD_JSON_OBJECT ? wrap(cJSON_GetObjectItemCaseSensitive(item(object), key))
                                                       : NULL;
}

double cod_json_get_number(const cod_json_value *value, double otherwise)
{
    return cod_json_kind_of(value) == COD_JSON_NUMBER ? item(value)->valuedouble : otherwise;
}

bool cod_json_get_bool(const cod_json_value *value, bool otherwise)
{
    return cod_json_kind_of(value) == COD_JSON_BOOL ? cJSON_IsTrue(item(value)) : otherwise;
}

const char *cod_json_get_string(const cod_json_value *value, const char *otherwise)
{
    return cod_json_kind_of(value) == COD_JSON_STRING ? item(value)->valuestring : otherwise;
}

void cod_json_copy(cod_json *json, const char *key, const cod_json_value *value)
{
    const cod_json_kind kind = cod_json_kind_of(value);
    switch (kind) {
    case COD_JSON_NULL:
        cod_json_null(json, key);
        break;
    case COD_JSON_BOOL:
        cod_json_bool(json, key, cod_json_get_bool(value, false));
        break;
    case COD_JSON_NUMBER:
        cod_json_number(json, key, cod_json_get_number(value, 0));
        break;
    case COD_JSON_STRING:
        cod_json_string(json, key, cod_json_get_string(value, ""));
        break;
    case COD_JSON_LIST:
    case COD_JSON_OBJECT:
        cod_json_open(json, key, kind == COD_JSON_LIST ? '[' : '{');
        for (const cod_json_value *child = cod_json_first(value); child != NULL; child = cod_json_next(child))
            cod_json_copy(json, kind == COD_JSON_LIST ? NULL : cod_json_key(child), child);
        cod_json_close(json);
        break;
    }
}

void cod_json_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "cJSON %s", cJSON_Version());
}
