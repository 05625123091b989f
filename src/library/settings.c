#include "library/settings_internal.h"

#include <string.h>

#define FIELD(name) offsetof(library_settings, name)
static const cod_option own_options[] = {
    {"group", COD_OPTION_INT, FIELD(group), "-1", 0, 1e6, NULL, "Which of the groups this process is, from 0 on."},
    {"groups", COD_OPTION_INT, FIELD(groups), "0", 2, 1e6, NULL, "How many groups there are."},
    {"name", COD_OPTION_STRING, FIELD(name), "run", 0, 0, NULL,
     "Name of the run. What groups of another run left in the folder is refused."},
};
static const cod_option_table own_table = {.section = "",
                                           .help = "The groups of a run.",
                                           .options = own_options,
                                           .count = sizeof own_options / sizeof own_options[0],
                                           .struct_bytes = sizeof(library_settings)};

/** Settings of the exchange that belong to a trainer: what they say is done by the caller, or by another call. */
static const char *const of_trainers[] = {"publish",           "deterministic",       "lag_steps", "replay",
                                          "teacher_fragments", "max_staleness_steps", NULL};

static bool is_of_trainers(const char *key)
{
    for (const char *const *name = of_trainers; *name != NULL; name++)
        if (strcmp(*name, key) == 0)
            return true;
    return false;
}

static cod_status unknown(const char *key)
{
    const char *names[128];
    size_t count = 0;
    for (size_t i = 0; i < own_table.count; i++)
        names[count++] = own_options[i].key;
    for (size_t i = 0; i < cod_exchange_option_table.count && count < sizeof names / sizeof names[0]; i++)
        if (!is_of_trainers(cod_exchange_option_table.options[i].key))
            names[count++] = cod_exchange_option_table.options[i].key;
    const char *near = cod_suggest(key, names, count);
    char all[512] = "";
    for (size_t i = 0; i < count; i++)
        cod_names_add(all, sizeof all, names[i]);
    return near != NULL ? cod_fail(COD_ERR_ARGUMENT, "unknown setting '%s'; did you mean '%s'?", key, near)
                        : cod_fail(COD_ERR_ARGUMENT, "unknown setting '%s'; there are: %s", key, all);
}

static cod_status set(library_settings *settings, const char *text)
{
    COD_REQUIRE(text != NULL, "a setting is NULL");
    const char *equals = strchr(text, '=');
    COD_REQUIRE(equals != NULL, "setting '%s' is no key=value", text);
    char key[64];
    const size_t length = (size_t)(equals - text);
    COD_REQUIRE(length > 0 && length < sizeof key, "setting '%s' is no key=value", text);
    memcpy(key, text, length);
    key[length] = '\0';
    const char *name = strncmp(key, "exchange.", strlen("exchange.")) == 0 ? key + strlen("exchange.") : key;
    const cod_option *own = name == key ? cod_option_find(&own_table, key) : NULL,
                     *option = own != NULL ? own : cod_option_find(&cod_exchange_option_table, name);
    if (option == NULL || (own == NULL && is_of_trainers(name)))
        return unknown(key);
    const cod_status status = cod_option_set_text(option, own != NULL ? (void *)settings : (void *)&settings->exchange,
                                                  equals + 1, &settings->texts);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "setting %s", key);
}

/** The first problem is the one that is told. */
static void note_problem(void *context, const char *option, const char *message)
{
    cod_status *status = context;
    if (*status == COD_OK)
        *status = cod_fail(COD_ERR_ARGUMENT, "setting %s: %s", option, message);
}

static cod_status check(const library_settings *settings)
{
    COD_REQUIRE(settings->groups > 0, "setting groups is missing: how many groups there are, such as groups=2");
    COD_REQUIRE(settings->group >= 0, "setting group is missing: which of the groups this is, such as group=0");
    COD_REQUIRE(settings->group < settings->groups, "setting group: %lld is not one of %lld groups, 0 to %lld",
                (long long)settings->group, (long long)settings->groups, (long long)settings->groups - 1);
    COD_REQUIRE(settings->exchange.directory[0] != '\0',
                "setting directory is missing: a folder that all groups see, such as directory=runs/mine");
    COD_REQUIRE(settings->exchange.transport == COD_TRANSPORT_FILE,
                "setting transport: rma needs MPI; groups of this library meet in a folder: transport=file");
    cod_status status = COD_OK;
    cod_exchange_check(&settings->exchange, (int)settings->groups, note_problem, &status);
    return status;
}

static cod_status set_all(library_settings *settings, const char *const *texts, size_t count)
{
    COD_TRY(cod_options_set_defaults(&cod_exchange_option_table, &settings->exchange, &settings->texts));
    settings->exchange.transport = COD_TRANSPORT_FILE;
    settings->group = -1;
    settings->name = own_options[2].default_text;
    for (size_t i = 0; i < count; i++)
        COD_TRY(set(settings, texts[i]));
    return check(settings);
}

cod_status library_settings_init(library_settings *settings, const char *const *texts, size_t count)
{
    *settings = (library_settings){0};
    return set_all(settings, texts, count);
}

void library_settings_clear(library_settings *settings)
{
    cod_arena_clear(&settings->texts);
}
