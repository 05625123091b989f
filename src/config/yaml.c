#include "config_internal.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct anchor {
    struct anchor *next;
    const char *name;
    const cod_config_node *node;
} anchor;

typedef struct yaml_reader {
    cod_config *config;
    yaml_parser_t parser;
    const char *override;
    anchor *anchors;
} yaml_reader;

static cod_status fail_at(const yaml_reader *reader, yaml_mark_t mark, const char *fmt, ...) COD_PRINTF(3, 4);

static cod_status fail_at(const yaml_reader *reader, yaml_mark_t mark, const char *fmt, ...)
{
    char text[512], place[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const cod_config_node node = {.file = reader->config->reading,
                                  .line = mark.line + 1,
                                  .column = mark.column + 1,
                                  .override = reader->override};
    cod_config_place(reader->config, &node, place, sizeof place);
    return cod_fail(COD_ERR_ARGUMENT, "%s: %s", place, text);
}

static cod_status next_event(yaml_reader *reader, yaml_event_t *event)
{
    yaml_parser_t *parser = &reader->parser;
    if (yaml_parser_parse(parser, event))
        return COD_OK;
    if (parser->error == YAML_MEMORY_ERROR)
        return cod_fail(COD_ERR_MEMORY, "out of memory while reading '%s'", reader->config->reading);
    const char *problem = parser->problem != NULL ? parser->problem : "no valid YAML";
    if (parser->error == YAML_READER_ERROR)
        return fail_at(reader, parser->mark, "%s (byte %zu): the file is no UTF-8 text", problem,
                       parser->problem_offset);
    const char *hint =
        strstr(problem, "cannot start any token") != NULL ? "; YAML is indented with spaces, not tabs" : "";
    if (parser->context != NULL && parser->context_mark.line != parser->problem_mark.line)
        return fail_at(reader, parser->problem_mark, "%s, %s that started in line %zu%s", problem, parser->context,
                       parser->context_mark.line + 1, hint);
    return fail_at(reader, parser->problem_mark, "%s%s", problem, hint);
}

static cod_config_node *new_node(yaml_reader *reader, cod_config_kind kind, yaml_mark_t mark)
{
    return cod_config_node_new(reader->config, kind, reader->override, mark.line + 1, mark.column + 1);
}

/** An alias becomes a copy, so that an override changes one place only; the bound on nodes stops "billion laughs". */
static cod_config_node *copy_tree(yaml_reader *reader, const cod_config_node *source)
{
    cod_config_node *copy =
        cod_config_node_new(reader->config, source->kind, source->override, source->line, source->column);
    if (copy == NULL)
        return NULL;
    copy->key = source->key;
    copy->scalar = source->scalar;
    copy->null = source->null;
    for (const cod_config_node *child = source->first; child != NULL; child = child->next) {
        cod_config_node *child_copy = copy_tree(reader, child);
        if (child_copy == NULL)
            return NULL;
        cod_config_node_append(copy, child_copy);
    }
    return copy;
}

static size_t height(const cod_config_node *node)
{
    size_t tallest = 0;
    for (const cod_config_node *child = node->first; child != NULL; child = child->next) {
        const size_t below = height(child);
        tallest = below > tallest ? below : tallest;
    }
    return tallest + 1;
}

static cod_status read_alias(yaml_reader *reader, const yaml_event_t *event, size_t depth, cod_config_node **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    const anchor *found = reader->anchors;
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    if (found == NULL)
        return fail_at(reader, event->start_mark, "the alias '*%s' has no anchor '&%s' before it", name, name);
    if (depth + height(found->node) > COD_CONFIG_DEPTH_MAX)
        return fail_at(reader, event->start_mark, "more than %d levels", COD_CONFIG_DEPTH_MAX);
    *out = copy_tree(reader, found->node);
    if (*out == NULL)
        return fail_at(reader, event->start_mark, "%s", cod_error_message());
    (*out)->key = NULL;
    return COD_OK;
}

static cod_status keep_anchor(yaml_reader *reader, const yaml_char_t *name, const cod_config_node *node)
{
    if (name == NULL)
        return COD_OK;
    anchor *kept = cod_arena_alloc(&reader->config->arena, sizeof *kept);
    char *copy = cod_arena_strdup(&reader->config->arena, (const char *)name);
    if (kept == NULL || copy == NULL)
        return COD_ERR_MEMORY;
    *kept = (anchor){.next = reader->anchors, .name = copy, .node = node};
    reader->anchors = kept;
    return COD_OK;
}

static cod_status check_tag(const yaml_reader *reader, const yaml_event_t *event, const yaml_char_t *tag)
{
    static const char standard[] = "tag:yaml.org,2002:";
    if (tag == NULL || strcmp((const char *)tag, "!") == 0 ||
        strncmp((const char *)tag, standard, strlen(standard)) == 0)
        return COD_OK;
    return fail_at(reader, event->start_mark, "the tag '%s' has no meaning here", (const char *)tag);
}

static cod_status read_scalar(yaml_reader *reader, const yaml_event_t *event, cod_config_node **out)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    const char *text = (const char *)event->data.scalar.value;
    COD_TRY(check_tag(reader, event, event->data.scalar.tag));
    if (strlen(text) != event->data.scalar.length)
        return fail_at(reader, event->start_mark, "a zero byte in a text");
    cod_config_node *node = new_node(reader, COD_CONFIG_SCALAR, event->start_mark);
    if (node == NULL)
        return fail_at(reader, event->start_mark, "%s", cod_error_message());
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0] && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE; i++)
        node->null = node->null || (event->data.scalar.plain_implicit && strcmp(text, nulls[i]) == 0);
    node->scalar = cod_arena_strdup(&reader->config->arena, node->null ? "" : text);
    *out = node;
    return node->scalar != NULL ? keep_anchor(reader, event->data.scalar.anchor, node) : COD_ERR_MEMORY;
}

/** Adds the keys of `source`, a mapping or a list of mappings, that `target` has not. */
static cod_status merge(yaml_reader *reader, cod_config_node *target, cod_config_node *source, yaml_mark_t mark)
{
    if (source->kind == COD_CONFIG_LIST) {
        for (cod_config_node *item = source->first, *next; item != NULL; item = next) {
            next = item->next;
            COD_TRY(merge(reader, target, item, mark));
        }
        return COD_OK;
    }
    if (source->kind != COD_CONFIG_MAPPING)
        return fail_at(reader, mark, "'<<' merges a mapping, such as *name");
    for (cod_config_node *child = source->first, *next; child != NULL; child = next) {
        next = child->next;
        if (cod_config_child(target, child->key) == NULL)
            cod_config_node_append(target, child);
    }
    return COD_OK;
}

static cod_status read_value(yaml_reader *reader, yaml_event_t *event, size_t depth, cod_config_node **out);

static cod_status read_list(yaml_reader *reader, size_t depth, cod_config_node *list)
{
    for (;;) {
        yaml_event_t event;
        COD_TRY(next_event(reader, &event));
        const bool end = event.type == YAML_SEQUENCE_END_EVENT;
        cod_config_node *item = NULL;
        const cod_status status = end ? COD_OK : read_value(reader, &event, depth + 1, &item);
        yaml_event_delete(&event);
        if (status != COD_OK || end)
            return status;
        cod_config_node_append(list, item);
    }
}

/** Reads the value of a key and puts it into the mapping; '<<' is kept aside in *merged, to be taken last. */
static cod_status read_member(yaml_reader *reader, const yaml_event_t *key, size_t depth, cod_config_node *mapping,
                              cod_config_node **merged)
{
    if (key->type != YAML_SCALAR_EVENT)
        return fail_at(reader, key->start_mark, "a key must be a word");
    const char *name = cod_arena_strdup(&reader->config->arena, (const char *)key->data.scalar.value);
    if (name == NULL)
        return COD_ERR_MEMORY;
    yaml_event_t event;
    COD_TRY(next_event(reader, &event));
    cod_config_node *value = NULL;
    const cod_status status = read_value(reader, &event, depth + 1, &value);
    yaml_event_delete(&event);
    COD_TRY(status);
    if (strcmp(name, "<<") == 0 && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && *merged == NULL) {
        *merged = value;
        return COD_OK;
    }
    value->key = name;
    value->line = key->start_mark.line + 1;
    value->column = key->start_mark.column + 1;
    const cod_config_node *twin = cod_config_child(mapping, name);
    if (twin != NULL) {
        cod_config_problem(reader->config, value, "'%s' stands twice here; first in line %zu", name, twin->line);
        return COD_OK;
    }
    if (mapping->count == COD_CONFIG_KEYS_MAX)
        return fail_at(reader, key->start_mark, "more than %d keys in one mapping", COD_CONFIG_KEYS_MAX);
    cod_config_node_append(mapping, value);
    return COD_OK;
}

static cod_status read_mapping(yaml_reader *reader, size_t depth, cod_config_node *mapping)
{
    cod_config_node *merged = NULL;
    for (;;) {
        yaml_event_t event;
        COD_TRY(next_event(reader, &event));
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        cod_status status = COD_OK;
        if (!end)
            status = read_member(reader, &event, depth, mapping, &merged);
        else if (merged != NULL)
            status = merge(reader, mapping, merged, event.start_mark);
        yaml_event_delete(&event);
        if (status != COD_OK || end)
            return status;
    }
}

static cod_status read_value(yaml_reader *reader, yaml_event_t *event, size_t depth, cod_config_node **out)
{
    if (depth > COD_CONFIG_DEPTH_MAX)
        return fail_at(reader, event->start_mark, "more than %d levels", COD_CONFIG_DEPTH_MAX);
    if (event->type == YAML_ALIAS_EVENT)
        return read_alias(reader, event, depth, out);
    if (event->type == YAML_SCALAR_EVENT)
        return read_scalar(reader, event, out);
    const bool list = event->type == YAML_SEQUENCE_START_EVENT;
    COD_TRY(check_tag(reader, event, list ? event->data.sequence_start.tag : event->data.mapping_start.tag));
    cod_config_node *node = new_node(reader, list ? COD_CONFIG_LIST : COD_CONFIG_MAPPING, event->start_mark);
    if (node == NULL)
        return fail_at(reader, event->start_mark, "%s", cod_error_message());
    COD_TRY(list ? read_list(reader, depth, node) : read_mapping(reader, depth, node));
    *out = node;
    return keep_anchor(reader, list ? event->data.sequence_start.anchor : event->data.mapping_start.anchor, node);
}

/** STREAM-START [DOCUMENT-START value DOCUMENT-END] STREAM-END. */
static cod_status read_stream(yaml_reader *reader, cod_config_node **root)
{
    for (bool document = false;;) {
        yaml_event_t event;
        COD_TRY(next_event(reader, &event));
        const yaml_event_type_t type = event.type;
        cod_status status = COD_OK;
        if (type == YAML_DOCUMENT_START_EVENT && document)
            status = fail_at(reader, event.start_mark, "a second document starts here; one is read");
        else if (type == YAML_DOCUMENT_START_EVENT)
            document = true;
        else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT)
            status = read_value(reader, &event, 1, root);
        yaml_event_delete(&event);
        if (status != COD_OK || type == YAML_STREAM_END_EVENT)
            return status;
    }
}

cod_status cod_config_parse(cod_config *config, const char *text, size_t bytes, const char *override,
                            cod_config_node **root)
{
    *root = NULL;
    yaml_reader reader = {.config = config, .override = override};
    if (!yaml_parser_initialize(&reader.parser))
        return cod_fail(COD_ERR_MEMORY, "out of memory");
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    const cod_status status = read_stream(&reader, root);
    yaml_parser_delete(&reader.parser);
    return status;
}

void cod_config_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "libyaml %s", yaml_get_version_string());
}
