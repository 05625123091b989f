#include "tools/complete.h"

#include "tools/arguments.h"
#include "tools/cmd.h"
#include "tools/print.h"

#include "core/backend.h"
#include "infer/named_model.h"
#include "infer/upscaler.h"
#include "nn/model.h"
#include "train/config.h"
#include "train/recipe.h"
#include "train/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Values are offered as whole words: "--strategies=single,", "train.loss=", with each of them behind it. */
typedef struct offer {
    const char *before;
    int length; /**< of `before` */
} offer;

/** For the value of `word` that begins behind its first `start` letters; of a list, for its last item. */
static offer offer_for(const char *word, size_t start)
{
    const char *comma = strrchr(word + start, ',');
    return (offer){word, (int)(comma != NULL ? (size_t)(comma + 1 - word) : start)};
}

static void offer_value(offer o, const char *value)
{
    if (strpbrk(value, "() ") == NULL) /* "name(k)" is no value as it stands */
        cod_print(stdout, "%.*s%s\n", o.length, o.before, value);
}

static void offer_values(offer o, const char *const *values)
{
    for (; values != NULL && *values != NULL; values++)
        offer_value(o, *values);
}

void cod_complete_word(const char *word, const char *meaning)
{
    const char *end = meaning != NULL ? strstr(meaning, ". ") : NULL;
    const char *newline = meaning != NULL ? strchr(meaning, '\n') : NULL;
    if (newline != NULL && (end == NULL || newline < end))
        end = newline;
    cod_print(stdout, "%s", word);
    if (meaning != NULL) {
        putchar('\t');
        cod_print(stdout, "%.*s", end != NULL ? (int)(end - meaning) : (int)strlen(meaning), meaning);
    }
    putchar('\n');
}

static const char *model_at(size_t index)
{
    return cod_named_models[index];
}

static const char *bicubic_at(size_t index)
{
    return index == 0 ? COD_BICUBIC : NULL;
}

static const char *backend_at(size_t index)
{
    return index == 0 ? COD_BACKEND_AUTO : cod_backend_name_at(index - 1);
}

static const char *kind_at(size_t index)
{
    const cod_model_kind *kind = cod_model_kind_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const char *recipe_at(size_t index)
{
    const cod_recipe_kind *kind = cod_recipe_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const char *strategy_at(size_t index)
{
    const cod_strategy_kind *kind = cod_strategy_at(index);
    return kind != NULL ? kind->name : NULL;
}

static void offer_kinds(offer o, int kinds)
{
    static const struct {
        int kind;
        const char *(*name_at)(size_t index);
    } lists[] = {{COD_WORDS_MODELS, model_at}, {COD_WORDS_BICUBIC, bicubic_at}, {COD_WORDS_BACKENDS, backend_at},
                 {COD_WORDS_KINDS, kind_at},   {COD_WORDS_RECIPES, recipe_at},  {COD_WORDS_STRATEGIES, strategy_at}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (size_t k = 0; (kinds & lists[i].kind) != 0 && lists[i].name_at(k) != NULL; k++)
            offer_value(o, lists[i].name_at(k));
    if ((kinds & (COD_WORDS_FILES | COD_WORDS_MODELS)) != 0)
        puts(":files");
}

/** What a help's table says of an option, behind the first tab of its line; NULL = nothing. */
static const char *find_meaning(const char *help, const char *option)
{
    const size_t length = strlen(option);
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const size_t bytes = strcspn(line, "\n");
        const char *tab = memchr(line, '\t', bytes), *at = strstr(line, option);
        if (tab != NULL && at != NULL && at < tab && strchr(" ,\t", at[length]) != NULL)
            return tab + 1;
    }
    return NULL;
}

static void offer_options(const char *help, const cod_argument *own, size_t count, const cod_option_table *table)
{
    char option[64];
    cod_complete_word("--help", "print a text about the command");
    for (size_t i = 0; i < count; i++) {
        snprintf(option, sizeof option, "--%s", own[i].name);
        cod_complete_word(option, find_meaning(help, option));
        const char letter[] = {'-', own[i].letter, '\0'};
        if (own[i].letter != 0)
            cod_complete_word(letter, find_meaning(help, option));
    }
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        snprintf(option, sizeof option, "--%s", table->options[i].key);
        const char *meaning = find_meaning(help, option);
        cod_complete_word(option, meaning != NULL ? meaning : table->options[i].help);
    }
}

/** Offers values of the option that `name`, of `length` letters, is. @return whether there is such an option */
static bool offer_option_values(offer o, const char *name, size_t length, const cod_argument *own, size_t count,
                                const cod_option_table *table)
{
    const bool is_long = length > 2 && strncmp(name, "--", 2) == 0;
    for (size_t i = 0; i < count; i++) {
        const bool same = is_long ? strlen(own[i].name) == length - 2 && strncmp(own[i].name, name + 2, length - 2) == 0
                                  : length == 2 && own[i].letter != 0 && name[1] == own[i].letter;
        if (!same || own[i].text == NULL)
            continue;
        offer_values(o, own[i].choices);
        offer_kinds(o, own[i].words);
        return true;
    }
    for (size_t i = 0; table != NULL && is_long && i < table->count; i++) {
        const cod_option *option = &table->options[i];
        if (strlen(option->key) != length - 2 || strncmp(option->key, name + 2, length - 2) != 0)
            continue;
        offer_values(o, option->choices);
        offer_kinds(o, strcmp(option->key, "backend") == 0 ? COD_WORDS_BACKENDS : 0);
        return true;
    }
    return false;
}

int cod_complete_option(int count, char **words, const char *help, const cod_argument *own, size_t own_count,
                        const cod_option_table *table)
{
    const char *word = count > 0 ? words[count - 1] : "", *before = count > 1 ? words[count - 2] : "";
    const size_t name = strcspn(word, "=");
    if (before[0] == '-' && offer_option_values(offer_for(word, 0), before, strlen(before), own, own_count, table))
        return COD_EXIT_OK;
    if (word[0] != '-')
        return COD_EXIT_OPERAND;
    if (word[name] == '=')
        offer_option_values(offer_for(word, name + 1), word, name, own, own_count, table);
    else
        offer_options(help, own, own_count, table);
    return COD_EXIT_OK;
}

/** Of a line that cod_run_config_document() has for an option, at its tabs. */
typedef struct config_key {
    char *key, *takes, *words, *help;
} config_key;

static bool next_key(char **text, config_key *out)
{
    char *line = strsep(text, "\n");
    if (line == NULL || *line == '\0')
        return false;
    *out = (config_key){.key = strsep(&line, "\t"), .takes = strsep(&line, "\t"), .words = strsep(&line, "\t")};
    out->help = line;
    return true;
}

/** Whether one of `count` texts equals the one behind them. */
static bool is_repeated(char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i], texts[count]) == 0)
            return true;
    return false;
}

/** A key that several architectures have is listed for each; it is offered once, with the values of all. */
static void offer_config(const char *word, char *text)
{
    enum { MOST_KEYS = 1024 };
    const size_t name = strcspn(word, "=");
    const offer o = offer_for(word, name + (word[name] == '='));
    bool takes_files = word[name] != '=';
    char *keys[MOST_KEYS];
    size_t count = 0;
    for (config_key key; count < MOST_KEYS && next_key(&text, &key); count++) {
        char named[128];
        snprintf(named, sizeof named, "%s=", key.key);
        keys[count] = key.key;
        if (word[name] != '=') {
            if (!is_repeated(keys, count))
                cod_complete_word(named, key.help);
        } else if (strncmp(word, named, name + 1) == 0) {
            for (char *value; (value = strsep(&key.words, " ")) != NULL;)
                if (*value != '\0')
                    offer_value(o, value);
            const bool is_backend = strcmp(key.key, "train.backend") == 0;
            offer_kinds(o, is_backend ? COD_WORDS_BACKENDS : 0);
            takes_files = takes_files || (strcmp(key.takes, "text") == 0 && !is_backend);
        }
    }
    if (takes_files)
        puts(":files");
}

cod_status cod_complete_operand(const char *word, int kinds)
{
    char *text = NULL;
    if ((kinds & COD_WORDS_CONFIG) == 0) {
        offer_kinds(offer_for("", 0), kinds);
        return COD_OK;
    }
    COD_TRY(cod_run_config_document(COD_CONFIG_WORDS, &text));
    offer_config(word, text);
    free(text);
    return COD_OK;
}

int cod_complete_command(int (*run)(int argc, char **argv), const char *name, int operands, int count, char **words)
{
    char own[64], complete[] = COD_COMPLETE_WORD;
    snprintf(own, sizeof own, "%s", name);
    char **arguments = calloc((size_t)count + 3, sizeof *arguments);
    if (arguments == NULL)
        return cod_cmd_failed(cod_fail(COD_ERR_MEMORY, "no memory for %d words", count));
    arguments[0] = own;
    arguments[1] = complete;
    memcpy(arguments + 2, words, (size_t)count * sizeof *words);
    int code = run(count + 2, arguments);
    if (code == COD_EXIT_OPERAND)
        code = cod_cmd_end(cod_complete_operand(count > 0 ? words[count - 1] : "", operands));
    free(arguments);
    return code;
}
