#include "tools/arguments.h"

#include "tools/cmd.h"
#include "tools/help.h"
#include "tools/print.h"

#include "core/option.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_OPTIONS = 24, HELP = 'h', SESSION = 256, OWN = 512 }; /* what getopt returns, beside letters */

static void add_option(struct option *options, size_t *count, const char *name, bool takes_value, int value)
{
    if (*count + 1 < MAX_OPTIONS)
        options[(*count)++] = (struct option){name, takes_value ? required_argument : no_argument, NULL, value};
}

static const cod_argument *find_own(const cod_argument *own, size_t count, int value)
{
    for (size_t i = 0; i < count; i++)
        if (value == OWN + (int)i || (own[i].letter != 0 && value == own[i].letter))
            return &own[i];
    return NULL;
}

static const char list_word[] = "--list-options";

static bool begins_with(int argc, char **argv, const char *word)
{
    return argc > 1 && strcmp(argv[1], word) == 0;
}

/**
 * A line for each option, for tools/manual.py: "--name", "-l" or "-", "value" or "flag", and choices with | between
 * them or "-".
 */
static int print_list(const cod_argument *own, size_t count, const cod_option_table *table)
{
    puts("--help\t-h\tflag\t-");
    for (size_t i = 0; i < count; i++) {
        const char letter[3] = {'-', own[i].letter, '\0'};
        const char *const parts[] = {own[i].name, letter, own[i].text != NULL ? "value" : "flag"};
        fputs("--", stdout);
        for (size_t k = 0; k < 3; k++) {
            cod_print(stdout, "%s", parts[k]);
            putchar('\t');
        }
        puts("-");
    }
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        const cod_option *option = &table->options[i];
        cod_print(stdout, "--%s", option->key);
        fputs("\t-\tvalue\t", stdout);
        for (size_t k = 0; option->choices != NULL && option->choices[k] != NULL; k++)
            cod_print(stdout, "%s%s", k > 0 ? "|" : "", option->choices[k]);
        puts(option->choices == NULL ? "-" : "");
    }
    return COD_EXIT_OK;
}

int cod_arguments_parse(int argc, char **argv, const char *help, const cod_argument *own, size_t count,
                        cod_session_options *session, cod_arena *arena)
{
    const cod_option_table *table = &cod_session_option_table;
    struct option options[MAX_OPTIONS] = {{0}};
    char letters[2 * MAX_OPTIONS] = ":h";
    size_t used = 0, length = 2;
    if (begins_with(argc, argv, list_word))
        return print_list(own, count, session != NULL ? table : NULL);
    if (begins_with(argc, argv, COD_COMPLETE_WORD))
        return cod_complete_option(argc - 2, argv + 2, help, own, count, session != NULL ? table : NULL);
    add_option(options, &used, "help", false, HELP);
    for (size_t i = 0; i < count; i++) {
        add_option(options, &used, own[i].name, own[i].text != NULL, OWN + (int)i);
        if (own[i].letter != 0)
            length += (size_t)snprintf(letters + length, sizeof letters - length, "%c%s", own[i].letter,
                                       own[i].text != NULL ? ":" : "");
    }
    for (size_t i = 0; session != NULL && i < table->count; i++)
        add_option(options, &used, table->options[i].key, true, SESSION + (int)i);
    if (session != NULL && cod_options_set_defaults(table, session, arena) != COD_OK)
        return cod_cmd_failed(COD_ERR_MEMORY);
    optind = 0;
    for (int value; (value = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
        const cod_argument *argument = find_own(own, count, value);
        if (value == HELP) {
            cod_help_print(stdout, help);
            return COD_EXIT_OK;
        } else if (argument != NULL && argument->text != NULL) {
            *argument->text = optarg;
        } else if (argument != NULL) {
            *argument->flag = true;
        } else if (value >= SESSION) {
            const cod_option *option = &table->options[value - SESSION];
            if (cod_option_set(option, session, (const char *const *)&optarg, 1, arena) != COD_OK)
                return cod_cmd_usage(argv[0], "--%s: %s", option->key, cod_error_message());
        } else {
            return cod_cmd_usage(argv[0], value == ':' ? "%s needs a value" : "there is no option %s",
                                 argv[optind - 1]);
        }
    }
    return -1;
}

int cod_argument_number(const char *command, const char *option, const char *text, long least, long most, long *out)
{
    char *end;
    if (text == NULL)
        return -1;
    errno = 0;
    const long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < least || number > most)
        return cod_cmd_usage(command, "--%s: '%s' is not a whole number from %ld to %ld", option, text, least, most);
    *out = number;
    return -1;
}

bool cod_is_model_name(const char *path)
{
    static const char end[] = ".safetensors";
    const size_t length = strlen(path), suffix = sizeof end - 1;
    return length > suffix && strcmp(path + length - suffix, end) == 0;
}

int cod_argument_model_name(const char *command, const char *path)
{
    return cod_is_model_name(path) ? -1 : cod_cmd_usage(command, "%s: the name must end with .safetensors", path);
}

cod_status cod_check_output(const char *model, const char *output)
{
    struct stat first, second;
    COD_REQUIRE(stat(model, &first) != 0 || stat(output, &second) != 0 || first.st_dev != second.st_dev ||
                    first.st_ino != second.st_ino,
                "%s: the output would replace the model itself; name another file", output);
    return COD_OK;
}

/** Takes the option at argv[*i], and its value where it has one. @return -1 to go on, else the exit code */
static int take_option(int argc, char **argv, int *i, const cod_argument *own, size_t count)
{
    const char *names[MAX_OPTIONS], *text = argv[*i] + 2;
    const size_t length = strcspn(text, "=");
    for (size_t k = 0; k < count && k < MAX_OPTIONS && argv[*i][1] == '-'; k++) {
        names[k] = own[k].name;
        if (strncmp(text, own[k].name, length) != 0 || own[k].name[length] != '\0')
            continue;
        const char *value = text[length] == '=' ? text + length + 1 : NULL;
        if (own[k].flag != NULL && value != NULL)
            return cod_cmd_usage(argv[0], "--%s takes no value", own[k].name);
        if (own[k].flag == NULL && value == NULL && ++*i == argc)
            return cod_cmd_usage(argv[0], "--%s needs a value", own[k].name);
        if (own[k].flag != NULL)
            *own[k].flag = true;
        else
            *own[k].text = value != NULL ? value : argv[*i];
        return -1;
    }
    const char *near = argv[*i][1] == '-' ? cod_suggest(text, names, count) : NULL;
    return cod_cmd_usage(argv[0], "there is no option '%s'%s%s%s", argv[*i], near ? "; did you mean '--" : "",
                         near ? near : "", near ? "'?" : "");
}

int cod_config_arguments_parse(int argc, char **argv, const char *help, const cod_argument *own, size_t count,
                               cod_config_arguments *out)
{
    *out = (cod_config_arguments){.overrides = calloc((size_t)argc + 1, sizeof *out->overrides)};
    if (out->overrides == NULL)
        return cod_cmd_failed(cod_fail(COD_ERR_MEMORY, "no memory for %d arguments", argc));
    int code = -1;
    if (begins_with(argc, argv, list_word))
        return print_list(own, count, NULL);
    if (begins_with(argc, argv, COD_COMPLETE_WORD))
        return cod_complete_option(argc - 2, argv + 2, help, own, count, NULL);
    for (int i = 1; i < argc && code < 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            cod_help_print(stdout, help);
            return COD_EXIT_OK;
        }
        if (argv[i][0] == '-')
            code = take_option(argc, argv, &i, own, count);
        else if (strchr(argv[i], '=') != NULL)
            out->overrides[out->count++] = argv[i];
        else if (out->path == NULL)
            out->path = argv[i];
        else
            code = cod_cmd_usage(argv[0], "'%s' is neither an option nor key=value; the configuration is '%s' already",
                                 argv[i], out->path);
    }
    return code < 0 && out->path == NULL ? cod_cmd_usage(argv[0], "a configuration file is missing") : code;
}

void cod_config_arguments_clear(cod_config_arguments *arguments)
{
    free(arguments->overrides);
    *arguments = (cod_config_arguments){0};
}
