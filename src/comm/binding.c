#include "comm/binding.h"

#include "comm/group.h"
#include "core/hash.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 160 };

static const cod_processors *processors_of(const cod_seat *seat, bool widened)
{
    return widened ? &seat->wider : &seat->given;
}

/** How many ranks of the machine have these processors, and how many of them come before `rank`. */
static int count_equal(const cod_seat *seats, int count, int rank, bool widened, int *before)
{
    int equal = 0;
    *before = 0;
    for (int r = 0; r < count; r++) {
        if (seats[r].machine != seats[rank].machine ||
            !cod_processors_equal(processors_of(&seats[r], widened), processors_of(&seats[rank], widened)))
            continue;
        *before += r < rank;
        equal++;
    }
    return equal;
}

/**
 * Whether ranks of the machine are short of processors: too few for those that have the same, or overlapping in part.
 */
static bool is_crowded(const cod_seat *seats, int count, int rank, bool widened)
{
    for (int a = 0; a < count; a++) {
        if (seats[a].machine != seats[rank].machine)
            continue;
        int before;
        const cod_processors *set = processors_of(&seats[a], widened);
        if (cod_processors_count(set) < count_equal(seats, count, a, widened, &before))
            return true;
        for (int b = 0; b < a; b++) {
            const cod_processors *other = processors_of(&seats[b], widened);
            if (seats[b].machine == seats[a].machine && !cod_processors_equal(set, other) &&
                cod_processors_overlap(set, other))
                return true;
        }
    }
    return false;
}

cod_binding cod_binding_decide(const cod_seat *seats, int count, int rank, int quota, const char *folder)
{
    const bool crowded = is_crowded(seats, count, rank, false);
    cod_binding binding = {.widened = crowded && !is_crowded(seats, count, rank, true)};
    for (int r = 0; r < count; r++)
        binding.machine_ranks += seats[r].machine == seats[rank].machine;
    const cod_processors *set = processors_of(&seats[rank], binding.widened);
    int before, sharing = count_equal(seats, count, rank, binding.widened, &before);
    binding.set = *set;
    if (crowded && !binding.widened)
        binding.kind = COD_BINDING_CROWDED;
    else if (sharing > 1 && cod_processors_part(set, before, sharing, folder, &binding.set))
        binding.kind = COD_BINDING_DIVIDED;
    const int cores = cod_processors_cores(&binding.set, folder);
    const int mine = binding.kind == COD_BINDING_CROWDED ? cores / sharing : cores;
    const int granted = quota / binding.machine_ranks;
    binding.threads = mine < granted ? mine : granted;
    binding.threads = binding.threads > 1 ? binding.threads : 1;
    return binding;
}

static uint64_t this_machine(void)
{
    char id[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL || fgets(id, sizeof id, file) == NULL)
        (void)gethostname(id, sizeof id - 1);
    if (file != NULL)
        fclose(file);
    return cod_hash(id, strlen(id), 0);
}

/** The processors of Open MPI's daemon, this process's parent, if it has bound this process. */
static cod_processors launcher_processors(void)
{
    cod_processors set = {0};
    char line[4096];
    static const char key[] = "Cpus_allowed_list:";
    if (getenv("OMPI_MCA_orte_bound_at_launch") == NULL)
        return set;
    snprintf(line, sizeof line, "/proc/%ld/status", (long)getppid());
    FILE *file = fopen(line, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, sizeof key - 1) == 0 && !cod_processors_parse(line + sizeof key - 1, &set))
            set = (cod_processors){0};
    if (file != NULL)
        fclose(file);
    return set;
}

/** The processors of a machine's ranks together. */
static cod_processors unite(const cod_seat *seats, int count, int rank)
{
    cod_processors all = {0};
    for (int r = 0; r < count; r++)
        for (size_t i = 0; seats[r].machine == seats[rank].machine && i < sizeof all.bits / sizeof all.bits[0]; i++)
            all.bits[i] |= seats[r].given.bits[i];
    return all;
}

/** One line for the machine of `rank`, its first. */
static void tell(const cod_comm *comm, const cod_seat *seats, int rank, cod_binding *binding, cod_bind_mode mode)
{
    char given[TEXT_BYTES], text[TEXT_BYTES];
    const int size = cod_comm_size(comm);
    const cod_processors all = unite(seats, size, rank);
    const char *node = cod_comm_node_name(comm, cod_comm_node_of(comm, rank));
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cod_processors_format(&all, given, sizeof given);
    if (binding->widened && mode == COD_BIND_AUTO) {
        cod_processors_format(&seats[rank].wider, text, sizeof text);
        cod_log_warn(
            "cluster.bind: mpirun has bound %d ranks on %s to processor %s; they divide %s instead; to avoid this "
            "line start them by mpirun --bind-to none",
            binding->machine_ranks, node, given, text);
    } else if ((binding->widened || binding->kind == COD_BINDING_CROWDED) && cod_processors_count(&all) < online) {
        cod_log_warn(
            "cluster.bind: %d ranks on %s share processor %s, of %ld that it has, and slow each other down; start "
            "them by mpirun --bind-to none, without taskset",
            binding->machine_ranks, node, given, online);
    } else if (binding->kind == COD_BINDING_DIVIDED && mode == COD_BIND_AUTO && rank == 0) {
        size_t used = 0;
        text[0] = '\0';
        for (int r = 0; r < size && used + 32 < sizeof text; r++) {
            if (seats[r].machine != seats[rank].machine)
                continue;
            const cod_binding other = cod_binding_decide(seats, size, r, 1, COD_TOPOLOGY_FOLDER);
            char list[24];
            cod_processors_format(&other.set, list, sizeof list);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " | " : "", list);
        }
        snprintf(binding->told, sizeof binding->told, "cluster.bind: %d ranks on %s compute on processors %s%s",
                 binding->machine_ranks, node, text, used + 32 < sizeof text ? "" : " ...");
    }
}

/** @param seats  [size], overwritten */
static cod_status decide(cod_comm *comm, cod_bind_mode mode, const cod_seat *mine, cod_seat *seats, cod_binding *out)
{
    const int rank = cod_comm_rank(comm);
    COD_TRY(cod_group_gather(cod_comm_world(comm), mine, sizeof *mine, seats));
    *out = cod_binding_decide(seats, cod_comm_size(comm), rank, cod_processors_quota(), COD_TOPOLOGY_FOLDER);
    int first = 0;
    while (seats[first].machine != mine->machine)
        first++;
    if (first == rank)
        tell(comm, seats, rank, out, mode);
    return COD_OK;
}

cod_status cod_comm_bind(cod_comm *comm, cod_bind_mode mode, cod_binding *out)
{
    const int size = cod_comm_size(comm);
    const cod_seat mine = {
        .machine = this_machine(), .given = cod_processors_allowed(), .wider = launcher_processors()};
    cod_seat *seats = calloc((size_t)size, sizeof *seats);
    COD_TRY(cod_group_agree(cod_comm_world(comm),
                            seats != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for %d ranks", size),
                            NULL));
    const cod_status status = decide(comm, mode, &mine, seats, out);
    free(seats);
    COD_TRY(status);
    if (mode == COD_BIND_NONE)
        out->set = mine.given;
    else if (!cod_processors_equal(&out->set, &mine.given) && cod_processors_bind(&out->set) != COD_OK)
        cod_log_warn("cluster.bind: %s", cod_error_message()); /* slower perhaps, no more */
    return COD_OK;
}
