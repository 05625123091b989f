#include "config_internal.h"

#include "core/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cod_config_place(const cod_config *config, const cod_config_node *node, char *out, size_t bytes)
{
    if (node == NULL)
        snprintf(out, bytes, "%s", config->name);
    else if (node->override != NULL)
        snprintf(out, bytes, "command line: %s", node->override);
    else
        snprintf(out, bytes, "%s:%zu:%zu", node->file != NULL ? node->file : config->name, node->line, node->column);
}

static void complain(cod_config *config, const cod_config_node *node, const char *fmt, va_list args)
{
    char raw[1024], text[2 * sizeof raw];
    vsnprintf(raw, sizeof raw, fmt, args);
    cod_show(raw, strlen(raw), false, text, sizeof text);
    if (config->complaint_count == config->complaint_capacity) {
        const size_t capacity = 2 * config->complaint_capacity + 16;
        cod_config_complaint *moved = realloc(config->complaints, capacity * sizeof *moved);
        config->incomplete |= moved == NULL;
        if (moved == NULL)
            return;
        config->complaints = moved;
        config->complaint_capacity = capacity;
    }
    cod_config_node *kept = node != NULL ? cod_arena_alloc(&config->arena, sizeof *kept) : NULL;
    const char *copy = cod_arena_strdup(&config->arena, text);
    config->incomplete |= copy == NULL || (node != NULL && kept == NULL);
    if (copy == NULL)
        return;
    if (kept != NULL)
        *kept = *node;
    config->complaints[config->complaint_count++] = (cod_config_complaint){.node = kept, .text = copy};
}

void cod_config_problem(cod_config *config, const cod_config_node *node, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    complain(config, node, fmt, args);
    va_end(args);
}

void cod_config_problem_key(cod_config *config, const char *key, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const cod_config_node *node = cod_config_find(config, key);
    cod_config_problem(config, node, node != NULL ? "%s: %s" : "%s (not set, the default holds): %s", key, text);
}

bool cod_config_has_problem(const cod_config *config, const char *key)
{
    const cod_config_node *node = cod_config_find(config, key);
    bool found = false;
    for (size_t i = 0; i < config->complaint_count && node != NULL; i++) {
        const cod_config_node *other = config->complaints[i].node;
        found =
            found || (other != NULL && other->key == node->key && other->line == node->line &&
                      other->column == node->column && other->file == node->file && other->override == node->override);
    }
    return found;
}

size_t cod_config_problem_count(const cod_config *config)
{
    return config->complaint_count;
}

/** File by file in their own order, then the command line's. */
static bool before(const cod_config_node *a, const cod_config_node *b)
{
    static const cod_config_node whole;
    a = a != NULL ? a : &whole;
    b = b != NULL ? b : &whole;
    if ((a->override != NULL) != (b->override != NULL))
        return a->override == NULL;
    const int files = strcmp(a->file != NULL ? a->file : "", b->file != NULL ? b->file : "");
    if (files != 0)
        return files < 0;
    return a->override == NULL && (a->line != b->line ? a->line < b->line : a->column < b->column);
}

static void sort(cod_config_complaint *items, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && before(items[j].node, items[j - 1].node); j--) {
            const cod_config_complaint swap = items[j];
            items[j] = items[j - 1];
            items[j - 1] = swap;
        }
}

cod_status cod_config_check(const cod_config *config)
{
    const size_t count = config->complaint_count;
    if (config->incomplete)
        return cod_fail(COD_ERR_MEMORY, "out of memory while checking '%s'", config->name);
    if (count == 0)
        return COD_OK;
    sort(config->complaints, count);
    cod_text text = {0};
    if (count > 1)
        cod_text_add(&text, "%s: %zu problems\n", cod_shown(config->name).text, count);
    for (size_t i = 0; i < count && i < COD_CONFIG_PROBLEMS_SHOWN; i++) {
        char place[512];
        cod_config_place(config, config->complaints[i].node, place, sizeof place);
        cod_text_add(&text, "%s%s: %s", i > 0 ? "\n" : "", cod_shown(place).text, config->complaints[i].text);
    }
    if (count > COD_CONFIG_PROBLEMS_SHOWN)
        cod_text_add(&text, "\nand %zu more", count - COD_CONFIG_PROBLEMS_SHOWN);
    char *message = NULL;
    COD_TRY(cod_text_end(&text, &message));
    const cod_status status = cod_fail_lines(COD_ERR_ARGUMENT, message);
    free(message);
    return status;
}

void cod_text_add(cod_text *text, const char *fmt, ...)
{
    if (text->status != COD_OK)
        return;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    const size_t needed = text->length + (size_t)length + 1;
    if (needed > text->capacity) {
        char *moved = realloc(text->data, 2 * needed);
        if (moved == NULL) {
            text->status = cod_fail(COD_ERR_MEMORY, "out of memory: %zu bytes of text", needed);
            va_end(again);
            return;
        }
        text->data = moved;
        text->capacity = 2 * needed;
    }
    vsnprintf(text->data + text->length, text->capacity - text->length, fmt, again);
    va_end(again);
    text->length = needed - 1;
}

cod_status cod_text_end(cod_text *text, char **out)
{
    cod_text_add(text, "%s", "");
    const cod_status status = text->status;
    *out = status == COD_OK ? text->data : NULL;
    if (status != COD_OK)
        free(text->data);
    *text = (cod_text){0};
    return status;
}
