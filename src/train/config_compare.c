/* Compares two runs' configurations by their resolved texts. */
#include "train/config_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/**
 * Takes the next option off a resolved text: "train.steps", "20". Sections are one level deep.
 *
 * @return whether there is one
 */
static bool next_option(char **rest, char section[64], char key[128], const char **value)
{
    for (char *line; (line = strsep(rest, "\n")) != NULL && *line != '\0';) {
        char *colon = strchr(line, ':');
        if (colon == NULL)
            continue;
        *colon = '\0';
        if (*line != ' ')
            snprintf(section, 64, "%s", line);
        if (colon[1] == '\0')
            continue;
        snprintf(key, 128, "%s%s%s", *line == ' ' ? section : "", *line == ' ' ? "." : "", line + strspn(line, " "));
        *value = colon + 2;
        return true;
    }
    *value = "";
    key[0] = '\0';
    return false;
}

static bool bears_on_result(const char *key)
{
    static const char *const without[] = {"name",           "output",           "nonce",
                                          "train.max_time", "eval.predictions", "data.transfer"};
    static const char *const sections[] = {"checkpoint.", "log.", "compare."};
    bool bears = true;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        bears = bears && strncmp(key, sections[i], strlen(sections[i])) != 0;
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        bears = bears && strcmp(key, without[i]) != 0;
    return bears;
}

/** Versions, shards and models mean the same to all groups only where these are equal. */
static bool is_shared(const char *key)
{
    static const char *const shared[] = {"seed",
                                         "nonce",
                                         "cluster.groups",
                                         "cluster.ranks_per_group",
                                         "train.strategy",
                                         "train.recipe",
                                         "exchange.period",
                                         "exchange.codec",
                                         "exchange.slots",
                                         "exchange.chunk_values",
                                         "exchange.entropy",
                                         "exchange.scales",
                                         "eval.metrics",
                                         "eval.best",
                                         "eval.best_set"};
    bool found = strncmp(key, "model.", 6) == 0;
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        found = found || strcmp(key, shared[i]) == 0;
    return found;
}

/**
 * What the device or the backend is when it is `auto` follows from the machine, so that it differs from nothing; a
 * nonce that is not given is the one there.
 */
static bool is_open(const char *key, const char *there, const char *here)
{
    if (strcmp(key, "nonce") == 0)
        return strcmp(here, "\"\"") == 0;
    const bool device = strcmp(key, "cluster.device") == 0 || strcmp(key, "train.backend") == 0;
    return device && (strcmp(there, "auto") == 0 || strcmp(here, "auto") == 0);
}

/** Adds one to the list; what has no room is "and more". */
static void add_difference(char difference[256], const char *key, const char *there, const char *here)
{
    static const char more[] = ", and more";
    const size_t used = strlen(difference), room = 256 - used - sizeof more;
    char one[256];
    const int length = snprintf(one, sizeof one, "%s: %s there, %s here", key, there, here);
    if (used == 0)
        memcpy(difference, one, sizeof one);
    else if ((size_t)length + 2 < room)
        snprintf(difference + used, 256 - used, ", %s", one);
    else
        snprintf(difference + used, 256 - used, "%s", more);
}

/** Lists options whose values differ, up to the first one that is only there or only here. */
static void find_differences(char *there, char *here, bool (*counts)(const char *key), char difference[256])
{
    char sections[2][64] = {"", ""}, keys[2][128];
    const char *values[2];
    bool more = true, same_keys = true;
    difference[0] = '\0';
    while (more && same_keys && strstr(difference, ", and more") == NULL) {
        more = next_option(&there, sections[0], keys[0], &values[0]);
        more = next_option(&here, sections[1], keys[1], &values[1]) || more;
        same_keys = strcmp(keys[0], keys[1]) == 0;
        if (!same_keys && difference[0] == '\0') /* else that follows from what is listed */
            snprintf(difference, 256, "%s", keys[0][0] != '\0' ? keys[0] : keys[1]);
        else if (same_keys && more && strcmp(values[0], values[1]) != 0 && counts(keys[0]) &&
                 !is_open(keys[0], values[0], values[1]))
            add_difference(difference, keys[0], values[0], values[1]);
    }
}

cod_status cod_run_config_compare(cod_run_config *run, const char *path, cod_run_config_scope scope,
                                  char difference[256])
{
    cod_run_config other = {0};
    char *here = NULL, *there = NULL;
    COD_TRY(cod_run_config_resolved(run, false, &here));
    cod_status status = cod_run_config_load_saved(path, &other);
    COD_THEN(status, cod_run_config_resolved(&other, false, &there));
    if (status == COD_OK)
        find_differences(there, here, scope == COD_COMPARE_SHARED ? is_shared : bears_on_result, difference);
    cod_run_config_clear(&other);
    free(here);
    free(there);
    return status;
}
