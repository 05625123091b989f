/* Bytes between groups, also for strategies that make all ranks one group. */
#include "compare/compare_internal.h"

/** The group that a rank would belong to, were it not for the strategy. */
static size_t configured_group(const cod_run_config *config, int rank)
{
    size_t group = 0;
    for (; group + 1 < config->group_count && rank >= config->groups[group].ranks; group++)
        rank -= config->groups[group].ranks;
    return group;
}

/** Share of the pairs of ranks that belong to different groups. */
static double crossing_of_pairs(const cod_run_config *config, int ranks)
{
    int pairs = 0;
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++)
            pairs += configured_group(config, a) != configured_group(config, b);
    return pairs / (0.5 * ranks * (ranks - 1));
}

/** Share of the pairs of a server and a worker that belong to different groups. */
static double crossing_of_servers(const cod_run_config *config, int ranks, int servers)
{
    int pairs = 0;
    for (int s = 0; s < servers; s++)
        for (int w = servers; w < ranks; w++)
            pairs += configured_group(config, s) != configured_group(config, w);
    return (double)pairs / (servers * (ranks - servers));
}

/** Share of the neighbouring stages that belong to different groups. */
static double crossing_of_stages(const cod_run_config *config, int ranks, int stages)
{
    int pairs = 0, all = 0;
    for (int r = 0; r + 1 < ranks; r++) {
        const bool linked = (r + 1) % stages != 0;
        all += linked;
        pairs += linked && configured_group(config, r) != configured_group(config, r + 1);
    }
    return all > 0 ? (double)pairs / all : 0;
}

void cod_compare_describe_traffic(const cod_run_config *config, cod_compare_arm *arm)
{
    const cod_strategy_kind *kind = config->strategy;
    const int ranks = cod_run_config_ranks(config), groups = (int)config->group_count;
    const int servers = cod_run_config_servers(config);
    const int stages = cod_run_config_stages(config);
    const bool coded = config->train.allreduce_codec != COD_ALLREDUCE_EXACT; /* every rank sends to every other */
    cod_strategy_plan plan = {0};
    if (!kind->one_group || groups < 2)
        return;
    if (kind->plan != NULL)
        kind->plan(config, 1 << 20, 0, &plan);
    arm->crossing = (double)groups / ranks; /* a ring: each group's last rank sends to the next group */
    if (plan.once_a_node)
        arm->crossing = 1;
    else if (servers > 0)
        arm->crossing = crossing_of_servers(config, ranks, servers);
    else if (stages > 1)
        arm->crossing = crossing_of_stages(config, ranks, stages);
    else if (coded)
        arm->crossing = crossing_of_pairs(config, ranks);
    /* Counted are the 2·S·(R-1) bytes of a ring of ranks; between one rank of each host go 2·S·(G-1). */
    const bool by_node =
        !plan.in_group && stages == 1 && !coded && ranks > groups && config->train.allreduce != COD_ALLREDUCE_FLAT;
    arm->crossing_hosts = by_node ? (double)(groups - 1) / (ranks - 1) : arm->crossing;
}

double cod_compare_crossing(const cod_comparison *c, const cod_compare_run *run)
{
    const cod_compare_arm *arm = &c->arms[run->arm];
    return cod_compare_is_in_laboratory(c, run) ? arm->crossing_hosts : arm->crossing;
}

double cod_compare_between_bytes(const cod_comparison *c, const cod_compare_run *run)
{
    return cod_compare_number(run, "intergroup_bytes") +
           cod_compare_crossing(c, run) * cod_compare_number(run, "intragroup_bytes");
}

double cod_compare_inside_bytes(const cod_comparison *c, const cod_compare_run *run)
{
    return (1 - cod_compare_crossing(c, run)) * cod_compare_number(run, "intragroup_bytes");
}
