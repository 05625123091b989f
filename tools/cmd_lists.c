/* `codistill models` and `codistill config`: what there is to choose from. */
#include "tools/cmd.h"

#include "tools/arguments.h"
#include "tools/help.h"
#include "tools/print.h"
#include "train/config.h"
#include "train/strategy.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** @return false when memory is short */
static bool list_models(FILE *out)
{
    cod_arena arena = {0};
    bool complete = true;
    for (size_t i = 0; cod_model_kind_at(i) != NULL; i++) {
        const cod_model_kind *kind = cod_model_kind_at(i);
        cod_print(out, i > 0 ? "\n%s: %s\n" : "%s: %s\n", kind->name, kind->table->help);
        for (size_t k = 0; k < kind->table->count; k++) {
            const cod_option *option = &kind->table->options[k];
            const char *takes = cod_option_expectation(option, &arena);
            complete = complete && takes != NULL;
            cod_print(out, "  %s", option->key);
            putc('\t', out);
            cod_print(out, "%s (default %s; %s)\n", option->help, option->default_text, takes != NULL ? takes : "");
        }
    }
    cod_arena_clear(&arena);
    return complete && !ferror(out);
}

int cod_cmd_models(int argc, char **argv)
{
    static const char help[] = "usage: codistill models\n\n"
                               "Lists the architectures that model.name can choose, with their options.\n";
    const int code = cod_arguments_parse(argc, argv, help, NULL, 0, NULL, NULL);
    if (code >= 0)
        return code;
    if (argc > optind)
        return cod_cmd_usage(argv[0], "it takes no arguments, but got '%s'", argv[optind]);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const bool listed = out != NULL && list_models(out), closed = out != NULL && fclose(out) == 0;
    const bool complete = listed && closed;
    if (complete)
        cod_help_print(stdout, text);
    free(text);
    return cod_cmd_end(complete ? COD_OK : cod_fail(COD_ERR_MEMORY, "no memory for the list of models"));
}

/** What docs/config.md says before its tables. */
static const char *const introduction =
    "# Options\n\n"
    "Every option of a configuration, section by section: its key, its default, its values and its meaning.\n\n"
    "A configuration is a YAML file in which each section is a mapping, such as `train: {rate: 1.0e-3}`; the files\n"
    "in [configs/](../configs/) are commented examples. Only `data.path` has to be set; every other option has a\n"
    "default. On the command line, `section.key=value`, such as `train.rate=1e-3`, sets an option and overrides the\n"
    "file. `config.yaml` in a run's folder lists every option as that run used it. Unknown keys, values out of range\n"
    "and options that do not go together are all reported at once, with their line and column\n"
    "([bad-inputs.md](bad-inputs.md)); `codistill plan` checks a configuration without training. Environment\n"
    "variables are described in [environment.md](environment.md), terms in [glossary.md](glossary.md).\n\n"
    "This page is printed by `codistill config --markdown` from the tables that also parse and check the options;\n"
    "`codistill config` prints them for a terminal.\n\n"
    "## Sections\n\n";

int cod_cmd_config(int argc, char **argv)
{
    static const char help[] = "usage: codistill config [--markdown]\n\n"
                               "Lists every option of a configuration with its type, default, range and meaning.\n\n"
                               "  --markdown\tprint docs/config.md\n";
    bool markdown = false;
    const cod_argument own[] = {{.name = "markdown", .flag = &markdown}};
    const int code = cod_arguments_parse(argc, argv, help, own, 1, NULL, NULL);
    if (code >= 0)
        return code;
    if (argc > optind)
        return cod_cmd_usage(argv[0], "there is no argument '%s'", argv[optind]);
    char *text = NULL;
    const cod_status status = cod_run_config_document(markdown ? COD_CONFIG_MARKDOWN : COD_CONFIG_PLAIN, &text);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    if (markdown) {
        cod_print_text(stdout, introduction);
        cod_print_text(stdout, text);
    } else {
        cod_help_print(stdout, text);
    }
    free(text);
    return COD_EXIT_OK;
}
