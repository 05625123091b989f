/* Settings of arms and of the candidates of compare.tune: "key.path=value", alone or in a list. */
#include "compare/compare_internal.h"

#include <stdio.h>
#include <string.h>

/**
 * Keys that may not be set, by their beginnings, because they belong to the arm's strategy, to the run, or to all arms.
 */
static const struct {
    const char *form, *refusal, *starts[16];
} setters[] = {
    [COD_COMPARE_ARM_SETS] =
        {"set takes key.path=value, or a list of such; quote a value that is a list itself",
         "an arm cannot set name, output, seed, train.strategy or section compare; it has a name and "
         "a strategy of its own, and seeds are for all arms",
         {"name=", "output=", "seed=", "train.strategy=", "compare."}},
    [COD_COMPARE_CANDIDATE_SETS] =
        {"a candidate is key.path=value, or a list of such; quote a value that is a list itself",
         "a candidate cannot set name, output, seed, train.strategy, train.steps, "
         "train.accumulate, train.max_time, or sections cluster, compare, data and eval: what "
         "is trained, on what and for how long is no matter of tuning",
         {"name=", "output=", "seed=", "train.strategy=", "train.steps=", "train.accumulate=", "train.max_time=",
          "cluster.", "cluster=", "compare.", "compare=", "data.", "data=", "eval.", "eval="}},
};

static bool is_refused(const char *text, cod_compare_setter setter)
{
    const char *const *start = setters[setter].starts;
    while (*start != NULL && strncmp(text, *start, strlen(*start)) != 0)
        start++;
    return *start != NULL;
}

cod_status cod_compare_read_set(cod_comparison *c, const cod_config_node *node, cod_compare_setter setter,
                                const char ***set, size_t *count)
{
    const bool list = node->kind == COD_CONFIG_LIST;
    const cod_config_node *item = list ? node->first : node;
    *count = 0;
    *set = cod_arena_alloc(cod_config_arena(c->config.config), ((list ? node->count : 1) + 1) * sizeof **set);
    COD_REQUIRE_MEMORY(*set);
    for (; item != NULL; item = list ? item->next : NULL) {
        if (item->kind != COD_CONFIG_SCALAR || strchr(item->scalar, '=') == NULL)
            cod_config_problem(c->config.config, item, "%s", setters[setter].form);
        else if (is_refused(item->scalar, setter))
            cod_config_problem(c->config.config, item, "%s", setters[setter].refusal);
        else
            (*set)[(*count)++] = item->scalar;
    }
    return COD_OK;
}

bool cod_compare_overlap(const char *a, const char *b)
{
    const size_t length_a = strcspn(a, "="), length_b = strcspn(b, "=");
    const size_t length = length_a < length_b ? length_a : length_b;
    return strncmp(a, b, length) == 0 && strchr("=.", a[length]) != NULL && strchr("=.", b[length]) != NULL;
}

bool cod_compare_is_own(const cod_compare_arm *arm, const char *text)
{
    for (size_t i = 0; i < arm->set_count; i++)
        if (cod_compare_overlap(arm->set[i], text))
            return true;
    return false;
}

void cod_compare_describe_candidate(const cod_compare_arm *arm, const cod_compare_candidate *candidate, char *text,
                                    size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < candidate->set_count && used < bytes; i++)
        if (!cod_compare_is_own(arm, candidate->set[i]))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? " " : "", candidate->set[i]);
    if (used == 0)
        snprintf(text, bytes, "no change");
}

static cod_status read_candidate(cod_comparison *c, const cod_config_node *item)
{
    cod_compare_candidate *candidate = &c->candidates[c->candidate_count];
    if (item->kind == COD_CONFIG_LIST && item->count == 0) {
        cod_config_problem(c->config.config, item,
                           "an empty candidate; for the configuration as it stands repeat a value that it has");
        return COD_OK;
    }
    candidate->node = item;
    COD_TRY(cod_compare_read_set(c, item, COD_COMPARE_CANDIDATE_SETS, &candidate->set, &candidate->set_count));
    c->candidate_count += candidate->set_count > 0;
    return COD_OK;
}

static void check_tune(cod_comparison *c)
{
    cod_config *config = c->config.config;
    const cod_data_options *data = &c->config.data;
    for (size_t i = 0; i < c->seed_count; i++)
        if (c->seeds[i] == c->config.compare.tune_seed)
            cod_config_problem_key(config, "compare.tune_seed",
                                   "%lld is one of the seeds that arms are compared with; take one that is not",
                                   (long long)c->seeds[i]);
    if (data->val_count == 0 && data->val_fraction == 0 && data->val_path.count == 0 && data->folds == 0)
        cod_config_problem_key(config, "compare.tune",
                               "no data are held out to choose by; set data.val_fraction or data.val_count");
}

cod_status cod_compare_read_tune(cod_comparison *c)
{
    const cod_config_node *node = cod_config_find(c->config.config, "compare.tune");
    const bool none = node == NULL || (node->kind == COD_CONFIG_SCALAR && node->scalar[0] == '\0') ||
                      (node->kind == COD_CONFIG_LIST && node->count == 0);
    if (none)
        return COD_OK;
    if (node->kind != COD_CONFIG_LIST || node->count < 2) {
        cod_config_problem(c->config.config, node,
                           "compare.tune is a list of two or more candidates, each key.path=value or a list of such");
        return COD_OK;
    }
    c->candidates = cod_arena_alloc(cod_config_arena(c->config.config), node->count * sizeof *c->candidates);
    COD_REQUIRE_MEMORY(c->candidates);
    for (const cod_config_node *item = node->first; item != NULL; item = item->next)
        COD_TRY(read_candidate(c, item));
    check_tune(c);
    return COD_OK;
}
