/**
 * @file
 * JSON: a writer into a growing text, and a reader that checks what it reads.
 */
#ifndef COD_IO_JSON_H
#define COD_IO_JSON_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * A text being written. Zeroed = an empty one, on one line. `key` is NULL in a list and at the root. A failure is kept
 * until cod_json_end().
 *
 *     cod_json json = {.indent = 2};
 *     cod_json_open(&json, NULL, '{');
 *     cod_json_number(&json, "psnr_y", 28.43);
 *     cod_json_close(&json);
 *     COD_TRY(cod_json_end(&json, &text));
 */
typedef struct cod_json {
    int indent; /**< spaces a level; 0 = all on one line */
    char *text;
    size_t length, capacity;
    int depth;
    bool separate; /**< a value precedes on the same level */
    char closers[64];
    cod_status status;
} cod_json;

/** Starts an object ('{') or list ('['). */
void cod_json_open(cod_json *json, const char *key, char bracket);
/** Ends the innermost object or list. */
void cod_json_close(cod_json *json);
/** Escaped as needed; bytes that are no UTF-8 become U+FFFD; NULL becomes null. */
void cod_json_string(cod_json *json, const char *key, const char *value);
/** The shortest text that reads back as the same number; null for NaN and infinity, which JSON does not have. */
void cod_json_number(cod_json *json, const char *key, double value);
void cod_json_integer(cod_json *json, const char *key, int64_t value);
void cod_json_bool(cod_json *json, const char *key, bool value);
void cod_json_null(cod_json *json, const char *key);

/** Hands over the text, or the kept failure; `json` is empty again. @param[out] text  new, without a newline; free() */
COD_MUST_CHECK cod_status cod_json_end(cod_json *json, char **text);
/** Drops what was written. */
void cod_json_clear(cod_json *json);

typedef enum cod_json_kind {
    COD_JSON_NULL,
    COD_JSON_BOOL,
    COD_JSON_NUMBER,
    COD_JSON_STRING,
    COD_JSON_LIST,
    COD_JSON_OBJECT,
} cod_json_kind;

/** A value read; belongs to the document that holds it. All readers take NULL as JSON's null. */
typedef struct cod_json_value cod_json_value;

/**
 * Reads one document of at most 64 levels, without duplicate keys, in UTF-8.
 * @param[out] document  new; cod_json_free()
 */
COD_MUST_CHECK cod_status cod_json_parse(const char *text, size_t bytes, cod_json_value **document);
/**
 * The same of a line of a file, which a crash may have torn.
 * @param[out] document  NULL where the line is no JSON
 * @return COD_ERR_MEMORY, which says nothing of the line; no other failure
 */
COD_MUST_CHECK cod_status cod_json_parse_line(const char *line, size_t bytes, cod_json_value **document);
void cod_json_free(cod_json_value *document);

cod_json_kind cod_json_kind_of(const cod_json_value *value);
/** Members of a list or object, else 0. */
size_t cod_json_count(const cod_json_value *value);
/** The member of an object, or NULL. */
const cod_json_value *cod_json_get(const cod_json_value *object, const char *key);
/** First member of a list or object, and the one after `value`; NULL = none. */
const cod_json_value *cod_json_first(const cod_json_value *parent);
const cod_json_value *cod_json_next(const cod_json_value *value);
/** The value's key in its object, else NULL. */
const char *cod_json_key(const cod_json_value *value);
/** The number, or `otherwise` when it is none. */
double cod_json_get_number(const cod_json_value *value, double otherwise);
bool cod_json_get_bool(const cod_json_value *value, bool otherwise);
/** The text, or `otherwise` when it is none. */
const char *cod_json_get_string(const cod_json_value *value, const char *otherwise);

/** Writes a value that was read; NULL becomes null. */
void cod_json_copy(cod_json *json, const char *key, const cod_json_value *value);

/** The library behind it and its version, such as "cJSON 1.7.15". */
void cod_json_library(char *text, size_t bytes);

#endif
