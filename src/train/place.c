/* A rank's place in its run, and its role in the strategy. */
#include "train/trainer_internal.h"

#include <stdio.h>

int trainer_rank(const trainer *t)
{
    return cod_group_world_rank(t->group, cod_group_index(t->group), cod_group_rank(t->group));
}

int trainer_servers(const trainer *t)
{
    return cod_run_config_servers(t->config);
}

int trainer_stages(const trainer *t)
{
    return t->session.division.stages > 1 ? t->session.division.stages : 1;
}

int trainer_replicas(const trainer *t)
{
    return (cod_group_size(t->group) - trainer_servers(t)) / trainer_stages(t);
}

bool trainer_trains(const trainer *t)
{
    return cod_group_rank(t->group) >= trainer_servers(t);
}

int trainer_ranks(const trainer *t)
{
    int ranks = 0;
    for (int g = 0; g < cod_group_count(t->group); g++)
        ranks += cod_group_members_of(t->group, g).size;
    return ranks;
}

void trainer_group_part(int group, char part[TRAINER_PART])
{
    snprintf(part, TRAINER_PART, "group-%d", group);
}

void trainer_rank_part(int rank, char part[TRAINER_PART])
{
    snprintf(part, TRAINER_PART, "rank-%d", rank);
}

void trainer_closing_part(int group, char part[TRAINER_PART])
{
    snprintf(part, TRAINER_PART, "closing-%d", group);
}

int64_t trainer_in_step_every(const trainer *t)
{
    if (cod_group_count(t->group) == 1)
        return 0;
    return t->config->train.deterministic ? 1 : t->strategy->in_step_every;
}

bool trainer_in_step(const trainer *t)
{
    return trainer_in_step_every(t) > 0;
}

bool trainer_leaves_computing(const trainer *t)
{
    const cod_strategy_division *division = t->strategy->ops->division;
    return division != NULL && division->compute != NULL;
}

cod_status trainer_gather(trainer *t, float *const *moments)
{
    return STRATEGY_PART(t, division, gather, &t->context, moments);
}
