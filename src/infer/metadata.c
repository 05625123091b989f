/*
 * A model's architecture in a safetensors file: from our metadata, or recognised by the tensors of a known foreign
 * model.
 */
#include "infer_internal.h"

#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OPTIONS_KEY[] = "codistill.options";

/** Adds an option to the JSON object; lists as lists of texts or numbers, all else as one text. */
static cod_status option_write(cod_json *json, const cod_option *option, const void *options, cod_arena *arena)
{
    const void *field = (const char *)options + option->offset;
    char number[32];
    if (option->type == COD_OPTION_STRING) {
        cod_json_string(json, option->key, *(const char *const *)field);
    } else if (option->type == COD_OPTION_INT_LIST) {
        const cod_int_list *list = field;
        cod_json_open(json, option->key, '[');
        for (size_t i = 0; i < list->count; i++) {
            snprintf(number, sizeof number, "%lld", (long long)list->items[i]);
            cod_json_string(json, NULL, number);
        }
        cod_json_close(json);
    } else if (option->type == COD_OPTION_FLOAT_LIST) {
        const cod_float_list *list = field;
        cod_json_open(json, option->key, '[');
        for (size_t i = 0; i < list->count; i++)
            cod_json_number(json, NULL, list->items[i]);
        cod_json_close(json);
    } else if (option->type == COD_OPTION_STRING_LIST) {
        const cod_string_list *list = field;
        cod_json_open(json, option->key, '[');
        for (size_t i = 0; i < list->count; i++)
            cod_json_string(json, NULL, list->items[i]);
        cod_json_close(json);
    } else {
        const char *text = cod_option_format(option, options, arena);
        COD_REQUIRE_MEMORY(text);
        cod_json_string(json, option->key, text);
    }
    return COD_OK;
}

cod_status cod_model_metadata(const cod_model_kind *kind, const void *options, cod_arena *arena,
                              cod_st_text metadata[COD_MODEL_METADATA_COUNT])
{
    cod_json json = {0};
    char *text = NULL;
    cod_status status = COD_OK;
    cod_json_open(&json, NULL, '{');
    for (size_t i = 0; i < kind->table->count && status == COD_OK; i++)
        status = option_write(&json, &kind->table->options[i], options, arena);
    cod_json_close(&json);
    if (status != COD_OK) {
        cod_json_clear(&json);
        return status;
    }
    COD_TRY(cod_json_end(&json, &text));
    metadata[0] = (cod_st_text){COD_KIND_METADATA, kind->name};
    metadata[1] = (cod_st_text){OPTIONS_KEY, cod_arena_strdup(arena, text)};
    metadata[2] = (cod_st_text){"format", "pt"};
    free(text);
    COD_REQUIRE_MEMORY(metadata[1].value);
    return COD_OK;
}

/** A scalar's text, in `arena` where it has to be made; NULL when the value is none. */
static const char *scalar_text(const cod_json_value *value, cod_arena *arena)
{
    char number[32];
    switch (cod_json_kind_of(value)) {
    case COD_JSON_STRING:
        return cod_json_get_string(value, NULL);
    case COD_JSON_BOOL:
        return cod_json_get_bool(value, false) ? "true" : "false";
    case COD_JSON_NUMBER:
        snprintf(number, sizeof number, "%.17g", cod_json_get_number(value, 0));
        return cod_arena_strdup(arena, number);
    default:
        return NULL;
    }
}

static cod_status option_read(const cod_model_kind *kind, const cod_json_value *value, void *options, cod_arena *arena)
{
    const char *key = cod_json_key(value);
    const cod_option *option = cod_option_find(kind->table, key);
    if (option == NULL)
        return cod_fail(COD_ERR_FORMAT, "model '%s' has no option '%s' in this version", kind->name, key);
    const bool list = cod_json_kind_of(value) == COD_JSON_LIST;
    const size_t count = list ? cod_json_count(value) : 1;
    const char **items = cod_arena_alloc(arena, (count + 1) * sizeof *items);
    COD_REQUIRE_MEMORY(items);
    size_t at = 0;
    for (const cod_json_value *item = list ? cod_json_first(value) : value; item != NULL && at < count;
         item = cod_json_next(item)) {
        items[at] = scalar_text(item, arena);
        if (items[at++] == NULL)
            return cod_fail(COD_ERR_FORMAT, "option '%s' is neither a text, a number nor a list of them", key);
    }
    if (cod_option_set(option, options, items, count, arena) != COD_OK)
        return cod_fail_prefix(COD_ERR_FORMAT, "option '%s'", key);
    return COD_OK;
}

static cod_status defaults_new(const cod_model_kind *kind, cod_arena *arena, void **options)
{
    *options = cod_arena_alloc(arena, kind->table->struct_bytes);
    COD_REQUIRE_MEMORY(*options);
    return cod_options_set_defaults(kind->table, *options, arena);
}

static cod_status values_read(const cod_model_kind *kind, const cod_json_value *document, cod_arena *arena,
                              void *options)
{
    if (cod_json_kind_of(document) != COD_JSON_OBJECT)
        return cod_fail(COD_ERR_FORMAT, "not a JSON object");
    for (const cod_json_value *value = cod_json_first(document); value != NULL; value = cod_json_next(value))
        COD_TRY(option_read(kind, value, options, arena));
    return COD_OK;
}

static cod_status options_read(const cod_model_kind *kind, const char *text, cod_arena *arena, void **options)
{
    COD_TRY(defaults_new(kind, arena, options));
    if (text == NULL)
        return COD_OK;
    cod_json_value *document = NULL;
    COD_TRY(cod_json_parse(text, strlen(text), &document));
    const cod_status status = values_read(kind, document, arena, *options);
    cod_json_free(document);
    return status;
}

/** "mlp, srresnet": all registered kinds. */
static void kind_names(char *text, size_t bytes)
{
    const cod_model_kind *kind;
    text[0] = '\0';
    for (size_t i = 0; (kind = cod_model_kind_at(i)) != NULL; i++)
        cod_names_add(text, bytes, kind->name);
}

cod_status cod_model_metadata_read(const cod_st_file *file, cod_arena *arena, const cod_model_kind **kind,
                                   void **options)
{
    char names[256];
    const char *name = cod_st_metadata(file, COD_KIND_METADATA);
    *kind = NULL;
    if (name == NULL)
        return COD_OK;
    const cod_model_kind *found = cod_model_kind_find(name);
    if (found == NULL) {
        kind_names(names, sizeof names);
        return cod_fail(COD_ERR_FORMAT, "unknown model '%.64s'; this version knows %s", name, names);
    }
    if (options_read(found, cod_st_metadata(file, OPTIONS_KEY), arena, options) != COD_OK)
        return cod_fail_prefix(COD_ERR_FORMAT, "metadata '%s'", OPTIONS_KEY);
    *kind = found;
    return COD_OK;
}

cod_status cod_model_options(const cod_model_kind *kind, const cod_st_text *settings, size_t count, cod_arena *arena,
                             void **options)
{
    COD_TRY(defaults_new(kind, arena, options));
    for (size_t i = 0; i < count; i++) {
        const cod_option *option = cod_option_find(kind->table, settings[i].key);
        COD_REQUIRE(option != NULL, "model '%s' has no option '%s'", kind->name, settings[i].key);
        if (cod_option_set(option, *options, &settings[i].value, 1, arena) != COD_OK)
            return cod_fail_prefix(COD_ERR_FORMAT, "%s", settings[i].key);
    }
    return COD_OK;
}
