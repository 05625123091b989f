#include "tools/launcher.h"

#include "comm/comm.h"
#include "tools/display.h"
#include "tools/news.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum launcher_kind { OPEN_MPI_4, OPEN_MPI_5, HYDRA } launcher_kind;

/** Ranks speak with the launcher of their own MPI only, so the library tells. */
static launcher_kind kind(void)
{
    char library[128];
    cod_comm_describe_library(library, sizeof library);
    if (strncmp(library, "Open MPI", 8) != 0)
        return HYDRA;
    return strncmp(library, "Open MPI v4", 11) == 0 ? OPEN_MPI_4 : OPEN_MPI_5;
}

const char *cod_launcher_program(void)
{
    const char *chosen = getenv("COD_MPIEXEC");
    if (chosen != NULL && chosen[0] != '\0')
        return chosen;
    return access(COD_MPIEXEC, X_OK) == 0 ? COD_MPIEXEC : "mpirun";
}

bool cod_launcher_is_hydra(void)
{
    return kind() == HYDRA;
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

int cod_launcher_nodes(void)
{
    return getenv("SLURM_JOB_ID") != NULL ? number("SLURM_JOB_NUM_NODES") : 0;
}

bool cod_launcher_is_elsewhere(void)
{
    return cod_launcher_nodes() > 0 && getenv("SLURMD_NODENAME") == NULL;
}

int cod_launcher_ranks(const cod_run_config *config)
{
    const int ranks = cod_run_config_ranks(config), nodes = cod_launcher_nodes();
    const int tasks = nodes > 0 && number("SLURM_NTASKS") > 0 ? number("SLURM_NTASKS") : nodes;
    return ranks > 0 ? ranks : tasks > 0 ? tasks : 1;
}

/**
 * Whether a new node after every `share` ranks parts no group that fits on one, and fills whole nodes with one that
 * does not.
 */
static bool keeps_groups(const cod_run_config *config, int ranks, int share)
{
    for (int r = share, first = 0; r < ranks; r += share) {
        const int group = cod_run_config_group_of_rank(config, r);
        if (group != cod_run_config_group_of_rank(config, r - 1))
            continue;
        for (first = r; first > 0 && cod_run_config_group_of_rank(config, first - 1) == group;)
            first--;
        if (first % share != 0)
            return false;
    }
    return true;
}

int cod_launcher_ranks_per_node(const cod_run_config *config, int ranks, int nodes)
{
    if (nodes <= 1)
        return 0;
    const int even = (ranks + nodes - 1) / nodes;
    if (cod_run_config_ranks(config) == 0) /* one group a node: as Slurm has laid out its tasks */
        return number("SLURM_NTASKS") > 0 ? 0 : even;
    for (int share = even; share < 2 * even; share++)
        if (keeps_groups(config, ranks, share))
            return share;
    return even;
}

/** Also to ranks on other nodes; Hydra takes all variables there. The user's list stays in front of ours. */
static void hand_variables_on(void)
{
    static const char name[] = "OMPI_MCA_mca_base_env_list",
                      own[] = COD_DISPLAY_VARIABLE ";" COD_NEWS_VARIABLE ";" COD_LAUNCHER_VARIABLE;
    const char *theirs = getenv(name);
    char list[4096];
    if (theirs != NULL && theirs[0] != '\0' && strlen(theirs) + sizeof own + 1 <= sizeof list)
        snprintf(list, sizeof list, "%s;%s", theirs, own);
    else
        snprintf(list, sizeof list, "%s", own);
    setenv(name, list, 1);
}

void cod_launcher_set_environment(void)
{
    setenv(COD_LAUNCHER_VARIABLE, "1", 1);
    setenv(COD_DISPLAY_VARIABLE, cod_display_shows_groups() ? "terminal" : "plain", 1);
    hand_variables_on();
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0); /* ranks may be as many as there are, cores or not */
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
    setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

int cod_launcher_arguments(int ranks, int ranks_per_node, char *args[COD_LAUNCHER_ARGUMENTS])
{
    static char count[16], share[48], program[4096];
    int used = 0;
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(program, sizeof program, "%s", cod_launcher_program());
    args[used++] = program;
    args[used++] = "-n";
    args[used++] = count;
    if (ranks_per_node > 0) {
        const launcher_kind to = kind();
        snprintf(share, sizeof share,
                 to == HYDRA        ? "%d"
                 : to == OPEN_MPI_4 ? "ppr:%d:node"
                                    : "ppr:%d:node:oversubscribe",
                 ranks_per_node);
        args[used++] = to == HYDRA ? "-ppn" : "--map-by";
        args[used++] = share;
    }
    return used;
}
