/* Configurations of runs, with the options of all strategies, recipes and models. */
#include "fuzz.h"

#include "tools/strategies.h"
#include "train/config.h"
#include "train/recipe.h"

fuzz_kind fuzz_kinds[] = {{"configurations", 0}, {NULL, 0}};

static const char *input_text;
static size_t input_bytes;

cod_status __wrap_cod_config_open(const char *path, const char *const *overrides, size_t count, cod_config **config);

/** In the place of cod_config_open(), which would read a file into a megabyte of new memory. */
cod_status __wrap_cod_config_open(const char *path, const char *const *overrides, size_t count, cod_config **config)
{
    return cod_config_open_text(path, input_text, input_bytes, overrides, count, config);
}

static int load(const void *text, size_t bytes, cod_run_config *run)
{
    input_text = text;
    input_bytes = bytes;
    return fuzz_taken(cod_run_config_load("input", NULL, 0, run));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static int registered;
    cod_run_config run, again;
    char *text = NULL, *text_again = NULL;
    if (!registered) {
        cod_recipe_register_supervised();
        cod_strategies_register_all();
        registered = 1;
    }
    if (!load(input, bytes, &run))
        return 0;
    fuzz_kinds[0].taken++;
    /* What a run writes down loads again, and says the same. */
    FUZZ_DEMAND(cod_run_config_resolved(&run, false, &text) == COD_OK);
    const int loaded = load(text, strlen(text), &again);
    if (!loaded)
        fprintf(stderr, "%s\n%s\n", cod_error_message(), text);
    FUZZ_DEMAND(loaded && cod_run_config_resolved(&again, false, &text_again) == COD_OK);
    FUZZ_DEMAND(strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    cod_run_config_clear(&run);
    cod_run_config_clear(&again);
    return 0;
}

int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
