/* What is asked of a configuration. */
#include "train/config.h"

#include "train/config_internal.h"
#include "train/strategy.h"

#include <stdio.h>
#include <string.h>

const cod_config_table *config_find_section(const cod_run_config *run, const cod_option_table *table)
{
    for (size_t i = 0; i < run->section_count; i++)
        if (run->sections[i].table == table)
            return &run->sections[i];
    return NULL;
}

void cod_run_config_clear(cod_run_config *run)
{
    cod_config_destroy(run->config);
    *run = (cod_run_config){0};
}

const void *cod_run_config_section(const cod_run_config *run, const cod_option_table *table)
{
    const cod_config_table *section = config_find_section(run, table);
    bool reads = false;
    for (size_t i = 0; run->strategy != NULL && i < run->strategy->table_count; i++)
        reads = reads || run->strategy->tables[i] == table;
    for (size_t i = 0; run->recipe != NULL && i < run->recipe->table_count; i++)
        reads = reads || run->recipe->tables[i] == table;
    return reads && section != NULL ? section->values : NULL;
}

bool cod_run_config_is_one_group(const cod_run_config *run)
{
    return run->strategy->one_group || run->strategy->single_rank;
}

int cod_run_config_servers(const cod_run_config *run)
{
    return run->strategy->servers != NULL ? run->strategy->servers(run) : 0;
}

int cod_run_config_stages(const cod_run_config *run)
{
    return run->strategy->stages != NULL ? run->strategy->stages(run) : 1;
}

cod_status cod_run_config_choose_group(cod_run_config *run, int group)
{
    const cod_strategy_kind *strategy = run->strategy;
    COD_REQUIRE(!cod_run_config_is_one_group(run) && strategy->check_apart != NULL,
                "--group starts one of several groups, but with strategy '%s' all ranks are one; leave --group out, or "
                "set train.strategy=codistill",
                strategy->name);
    COD_REQUIRE(run->group_count > 0,
                "--group needs groups whose ranks are known, but cluster.groups is by_node; set a number, or a list");
    COD_REQUIRE(group >= 0 && (size_t)group < run->group_count,
                "there is no group %d: cluster.groups makes %zu, counted from 0", group, run->group_count);
    COD_TRY(strategy->check_apart(run));
    run->only_group = group;
    return COD_OK;
}

int cod_run_config_ranks(const cod_run_config *run)
{
    int ranks = 0;
    if (run->only_group >= 0)
        return run->groups[run->only_group].ranks;
    for (size_t i = 0; i < run->group_count; i++)
        ranks += run->groups[i].ranks;
    return run->strategy->single_rank ? 1 : ranks;
}

int cod_run_config_group_of_rank(const cod_run_config *run, int rank)
{
    if (cod_run_config_is_one_group(run))
        return 0;
    if (run->only_group >= 0)
        return run->only_group;
    for (size_t i = 0; i < run->group_count; i++) {
        if (rank < run->groups[i].ranks)
            return (int)i;
        rank -= run->groups[i].ranks;
    }
    return -1;
}

static cod_status fit(cod_run_config *run, cod_group_config *group, const cod_classifier_sizes *data)
{
    const size_t bytes = group->kind->table->struct_bytes;
    void *fitted = cod_arena_alloc(cod_config_arena(run->config), bytes);
    COD_REQUIRE_MEMORY(fitted);
    memcpy(fitted, group->configured, bytes);
    group->architecture = fitted;
    return cod_model_fit_sizes(group->kind, fitted, data);
}

cod_status cod_run_config_fit(cod_run_config *run, const cod_classifier_sizes *data)
{
    COD_TRY(fit(run, &run->whole, data));
    for (size_t g = 0; g < run->group_count; g++) {
        cod_group_config *group = &run->groups[g];
        const bool own = group->configured != run->whole.configured;
        const cod_status status = own ? fit(run, group, data) : COD_OK;
        if (status != COD_OK)
            return cod_fail_prefix(status, "cluster.groups.%zu", g);
        if (!own)
            group->architecture = run->whole.architecture;
    }
    return COD_OK;
}

const cod_group_config *cod_run_config_group(const cod_run_config *run, int index)
{
    return cod_run_config_is_one_group(run) || (size_t)index >= run->group_count ? &run->whole : &run->groups[index];
}

cod_device_choice cod_run_config_device(const cod_run_config *run, int index)
{
    const cod_group_config *group = cod_run_config_group(run, index);
    return (cod_device_choice){
        .device = (cod_device_kind)group->device, .backend = run->train.backend, .setting = group->device_setting};
}

const char *cod_run_config_folder(const cod_run_config *run)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", run->root.output, run->root.name);
    return cod_arena_strdup(cod_config_arena(run->config), path);
}
