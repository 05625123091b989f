#include "tools/arguments.h"

#include "tools/cmd.h"

#include <getopt.h>
#include <stdio.h>

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

int cod_arguments_parse(int argc, char **argv, const char *help, const cod_argument *own, size_t count,
                        cod_session_options *session, cod_arena *arena)
{
    const cod_option_table *table = &cod_session_option_table;
    struct option options[MAX_OPTIONS] = {{0}};
    char letters[2 * MAX_OPTIONS] = ":h";
    size_t used = 0, length = 2;
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
            fputs(help, stdout);
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
