/* `codistill plan`: which rank computes where. */
#include "tools/plan.h"

#include "comm/binding.h"
#include "tools/print.h"
#include "train/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_SHOWN = 64, GROUPS_SHOWN = 32 };

static void print_range(size_t group, size_t first, size_t count)
{
    if (count == 1)
        printf("  group %zu: rank %zu\n", group, first);
    else
        printf("  group %zu: ranks %zu to %zu\n", group, first, first + count - 1);
}

static void print_groups(const cod_run_config *config, int ranks)
{
    if (cod_run_config_is_one_group(config) && ranks == 0)
        puts("  group 0: all ranks that the launcher starts");
    else if (cod_run_config_is_one_group(config))
        print_range(0, 0, (size_t)ranks);
    else if (ranks == 0)
        puts("  a group a node: the ranks that the launcher starts there");
    for (size_t g = 0, rank = 0; !cod_run_config_is_one_group(config) && g < config->group_count; g++) {
        const size_t size = (size_t)config->groups[g].ranks;
        if (g < GROUPS_SHOWN)
            print_range(g, rank, size);
        rank += size;
    }
    if (config->group_count > GROUPS_SHOWN && !cod_run_config_is_one_group(config))
        printf("  ... and %zu groups more\n", config->group_count - GROUPS_SHOWN);
}

static int threads_of(const cod_run_config *config, const cod_binding *binding)
{
    return config->cluster.threads > 0 ? (int)config->cluster.threads : binding->threads;
}

/** "cuda:1": a rank that is alone with its device, or the place that a GPU is taken by. */
static void name_device(const cod_run_config *config, const cod_plan_device *devices, int rank, char out[40])
{
    const int own = cod_run_config_device(config, cod_run_config_group_of_rank(config, rank)).device;
    int place = rank;
    for (int r = 0; r < rank && devices[own].backend->memory != NULL; r++)
        place -=
            devices[cod_run_config_device(config, cod_run_config_group_of_rank(config, r)).device].backend->memory ==
            NULL;
    snprintf(out, 40, "%s:%d", devices[own].backend->name, place);
}

static void print_rank(const cod_run_config *config, const cod_plan_device *devices, int rank, const char *node,
                       const cod_binding *binding)
{
    char device[40], text[64];
    const bool bound = config->cluster.bind == COD_BIND_AUTO;
    const cod_processors allowed = cod_processors_allowed();
    name_device(config, devices, rank, device);
    cod_processors_format(bound ? &binding->set : &allowed, text, sizeof text);
    cod_print(stdout, "  %4d  %5d  %-16s %-8s %7d  %s%s\n", rank, cod_run_config_group_of_rank(config, rank), node,
              device, threads_of(config, binding), text,
              binding->kind == COD_BINDING_CROWDED   ? ", shared: more ranks than cores"
              : bound || binding->machine_ranks == 1 ? ""
                                                     : ", shared: cluster.bind is none");
}

/** A seat for each rank that this machine would start. @param[out] seats  new; free() */
static cod_status make_seats(int count, cod_seat **seats)
{
    *seats = calloc((size_t)count, sizeof **seats);
    COD_REQUIRE_MEMORY(*seats);
    for (int r = 0; r < count; r++)
        (*seats)[r].given = cod_processors_allowed();
    return COD_OK;
}

cod_status cod_plan_threads(const cod_run_config *config, int *threads)
{
    const int ranks = cod_run_config_ranks(config), count = ranks > 0 ? ranks : 1;
    cod_seat *seats;
    COD_TRY(make_seats(count, &seats));
    const cod_binding first = cod_binding_decide(seats, count, 0, cod_processors_quota(), COD_TOPOLOGY_FOLDER);
    *threads = threads_of(config, &first);
    free(seats);
    return COD_OK;
}

cod_status cod_plan_load_read(const cod_run_config *config, const cod_plan_device *devices, cod_plan_load *out)
{
    const int ranks = cod_run_config_ranks(config), quota = cod_processors_quota(),
              servers = cod_run_config_servers(config);
    const cod_processors allowed = cod_processors_allowed();
    const int count = cod_processors_count(&allowed);
    cod_seat *seats;
    *out = (cod_plan_load){.processors = count < quota ? count : quota, .slower = 1};
    COD_TRY(make_seats(ranks > 0 ? ranks : 1, &seats));
    for (int r = servers; r < ranks; r++) { /* servers wait more than they compute */
        const int device = cod_run_config_device(config, cod_run_config_group_of_rank(config, r)).device;
        if (devices[device].backend->memory != NULL)
            continue;
        const cod_binding binding = cod_binding_decide(seats, ranks, r, quota, COD_TOPOLOGY_FOLDER);
        out->ranks++;
        out->threads += threads_of(config, &binding);
    }
    free(seats);
    if (out->ranks > 1 && out->threads > out->processors)
        out->slower = (double)out->threads / out->processors;
    return COD_OK;
}

cod_status cod_plan_print_map(const cod_run_config *config, const cod_plan_device *devices)
{
    const int ranks = cod_run_config_ranks(config), quota = cod_processors_quota();
    char node[64] = "";
    cod_seat *seats;
    COD_TRY(make_seats(ranks > 0 ? ranks : 1, &seats));
    (void)gethostname(node, sizeof node - 1);
    cod_print(stdout, "strategy %s: %s\n", config->strategy->name, config->strategy->help);
    print_groups(config, ranks);
    if (ranks == 0)
        puts("each node's cores are divided among its ranks");
    else
        printf("as `codistill train` would start them on this machine; mpirun with hosts, or srun, spreads them over "
               "nodes:\n  rank  group  node             device   threads  processors\n");
    for (int r = 0; r < ranks && r < RANKS_SHOWN; r++) {
        const cod_binding binding = cod_binding_decide(seats, ranks, r, quota, COD_TOPOLOGY_FOLDER);
        print_rank(config, devices, r, node, &binding);
    }
    if (ranks > RANKS_SHOWN)
        printf("  ... and %d ranks more\n", ranks - RANKS_SHOWN);
    free(seats);
    return COD_OK;
}
