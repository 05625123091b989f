#include "comm/comm_internal.h"

#include "comm/group.h"
#include "comm/group_internal.h"
#include "comm/shared_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { URGENT_PAUSE_US = 50 };

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void *progress_loop(void *context)
{
    cod_comm *comm = context;
    while (!atomic_load(&comm->ending)) {
        comm_lock(comm);
        direct_progress(comm);
        life_answer(comm);
        comm_requests_sweep(comm);
        levels_progress(comm);
        long_gets_progress(comm);
        comm->counters.polls++;
        const double idle_ms = comm->progress_interval_ms;
        comm_unlock(comm);
        sleep_us(atomic_load(&comm->urgent) > 0 ? URGENT_PAUSE_US : (long)(1e3 * idle_ms));
    }
    return NULL;
}

static int environment_number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

/**
 * Tasks of the srun that started this process, or 0. A batch script, or the shell that salloc opens on a node, is no
 * launch.
 */
static int srun_tasks(void)
{
    enum { FIRST_SPECIAL_STEP = 16 }; /* from the end of 32 bits: Slurm's own steps, batch, interactive and extern */
    const char *step = getenv("SLURM_STEP_ID");
    const bool special = step != NULL && strtoul(step, NULL, 10) > UINT32_MAX - FIRST_SPECIAL_STEP;
    return getenv("SLURM_PROCID") == NULL || special ? 0 : environment_number("SLURM_STEP_NUM_TASKS");
}

/**
 * Whether prterun or prun has started this process. Without Open MPI 5's mpirun around them, they do not say how many
 * they start.
 */
static bool is_below_prrte(void)
{
    const char *job = getenv("PMIX_NAMESPACE");
    return job != NULL && strncmp(job, "prte", 4) == 0;
}

int cod_comm_launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (environment_number(names[i]) > 0)
            return environment_number(names[i]);
    return srun_tasks() > 0 ? srun_tasks() : is_below_prrte();
}

/**
 * Open MPI's non-blocking all-reduce in place defaults to a tree, where half the ranks idle; its ring is what the
 * blocking call uses too.
 */
static void choose_reduction(void)
{
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1", 0);
}

/** Open MPI 5 says of each window that UCX is of no use here, where it is not. */
static void silence_ucx(void)
{
    setenv("OMPI_MCA_opal_common_ucx_verbose", "-1", 0);
}

/**
 * Open MPI 4 over TCP has windows only through osc/pt2pt, which Debian's settings exclude. On several hosts osc/sm
 * beside it makes what the ranks of one share, and no window of all.
 */
static void choose_window_component(const char *library)
{
    const char *btl = getenv("OMPI_MCA_btl");
    const int size = environment_number("OMPI_COMM_WORLD_SIZE"),
              local = environment_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    const bool no_shared_memory =
        btl != NULL && strchr(btl, '^') == NULL && strstr(btl, "vader") == NULL && strstr(btl, "sm") == NULL;
    const bool hosts = local < size || environment_number("SLURM_STEP_NUM_NODES") > 1;
    if (strncmp(library, "Open MPI v4", 11) != 0 || getenv("OMPI_MCA_osc") != NULL || !(hosts || no_shared_memory))
        return;
    setenv("OMPI_MCA_osc", hosts ? "pt2pt,sm" : "pt2pt", 1);
}

static cod_status check_world(cod_comm *comm)
{
    const int promised = cod_comm_launched_ranks();
    if (comm->size > 1 || promised <= 1)
        return COD_OK;
    const char *launcher = getenv("OMPI_COMM_WORLD_SIZE")   ? "Open MPI's mpirun"
                           : getenv("SLURM_STEP_NUM_TASKS") ? "Slurm's srun"
                                                            : "MPICH's or another PMI launcher";
    return cod_fail(COD_ERR_UNSUPPORTED,
                    "%s promised %d ranks, but this program, built with %s, is alone: launcher and library belong to "
                    "different MPIs; "
                    "start it with that library's own mpirun, or under Slurm with srun --mpi=pmix",
                    launcher, promised, comm->library);
}

/** Without PMIx each of srun's tasks would find itself alone, or Open MPI end it with a page of advice. */
static cod_status check_srun(const char *library)
{
    const bool open_mpi = strncmp(library, "Open MPI", 8) == 0, pmix = getenv("PMIX_RANK") != NULL;
    const bool mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    if (srun_tasks() <= 1 || mpirun || pmix || (!open_mpi && getenv("PMI_SIZE") != NULL))
        return COD_OK;
    return cod_fail(
        COD_ERR_UNSUPPORTED,
        "srun started %d tasks without the means for %s to join them; start them by srun --mpi=%s (srun "
        "--mpi=list names what this Slurm has), or leave srun away: inside an allocation codistill train starts "
        "its ranks itself",
        srun_tasks(), library, open_mpi ? "pmix" : "pmi2");
}

static cod_status join(cod_comm *comm)
{
    int provided = 0;
    cod_comm_describe_library(comm->library, sizeof comm->library);
    COD_TRY(check_srun(comm->library));
    choose_reduction();
    silence_ucx();
    choose_window_component(comm->library);
    COD_TRY(COD_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided)));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    COD_TRY(COD_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank)));
    COD_TRY(COD_MPI(MPI_Comm_size(MPI_COMM_WORLD, &comm->size)));
    if (provided < MPI_THREAD_SERIALIZED)
        return cod_fail(COD_ERR_UNSUPPORTED, "%s does not offer MPI_THREAD_SERIALIZED", comm->library);
    COD_TRY(check_world(comm));
    COD_TRY(life_create(comm));
    COD_TRY(comm_find_nodes(comm));
    char host[256] = "";
    if (comm->node_rank == 0 && gethostname(host, sizeof host - 1) == 0)
        cod_shared_space_sweep(COD_SHARED_SPACE, host);
    const int size = comm->size;
    return cod_group_create(comm, &size, 1, &comm->world);
}

static void release_job(cod_comm *comm)
{
    life_destroy(comm);
    free(comm->node_of);
    free(comm->names);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

cod_status cod_comm_init(const cod_comm_options *options, cod_comm **out)
{
    cod_comm *comm = calloc(1, sizeof *comm);
    COD_REQUIRE_MEMORY(comm);
    pthread_mutex_init(&comm->lock, NULL);
    comm->teardown_timeout_s = 60;
    comm->progress_interval_ms = 1;
    if (options != NULL)
        cod_comm_configure(comm, options);
    if (cod_comm_launched_ranks() == 0) /* alone for good: no daemon to start, which takes a good part of a second */
        setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    cod_status status = join(comm);
    if (status == COD_OK && pthread_create(&comm->progress, NULL, progress_loop, comm) != 0)
        status = cod_fail(COD_ERR_MPI, "cannot start the progress thread");
    if (status != COD_OK) {
        /* Beside other ranks MPI cannot be ended alone: the launcher ends them when this process exits. */
        if (comm->size == 1)
            MPI_Finalize();
        release_job(comm);
        return status;
    }
    pthread_setname_np(comm->progress, "cod-progress"); /* for top, gdb and tools/bench/exchange_net.sh */
    *out = comm;
    return COD_OK;
}

void cod_comm_configure(cod_comm *comm, const cod_comm_options *options)
{
    comm_lock(comm);
    comm->teardown_timeout_s = options->teardown_timeout_s;
    comm->progress_interval_ms = options->progress_interval_ms;
    comm_unlock(comm);
}

cod_status cod_comm_finalize(cod_comm *comm)
{
    if (comm == NULL)
        return COD_OK;
    cod_request *barrier = NULL;
    COD_TRY(comm_barrier_start(comm, MPI_COMM_WORLD, &barrier));
    cod_status status = life_wait_at_end(comm, &barrier);
    COD_THEN(status, life_settle(comm));
    if (status == COD_OK) {
        cod_group_destroy(comm->world); /* where all ranks meet again, after the last question */
        life_end_answers(comm);
    }
    atomic_store(&comm->ending, true);
    pthread_join(comm->progress, NULL);
    COD_TRY(status);
    comm_requests_sweep(comm);
    status = COD_MPI(MPI_Finalize());
    release_job(comm);
    return status;
}

_Noreturn void cod_comm_abort(int exit_code)
{
    enum { HEAR_US = 100000, KILL_S = 5 };
    sleep_us(HEAR_US); /* Hydra drops what it has not read of our last words */
    for (;;) {
        MPI_Abort(MPI_COMM_WORLD, exit_code);
        sleep_us(1000000L * KILL_S); /* MPICH's returns; the launcher ends us a little later */
    }
}

int cod_comm_rank(const cod_comm *comm)
{
    return comm->rank;
}
int cod_comm_size(const cod_comm *comm)
{
    return comm->size;
}
void cod_comm_describe_library(char *text, size_t bytes)
{
    int length = 0;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", number[32];
    MPI_Get_library_version(version, &length);
    if (sscanf(version, "MPICH Version: %31s", number) == 1)
        snprintf(text, bytes, "MPICH %s", number);
    else
        snprintf(text, bytes, "%.*s", (int)strcspn(version, ",\n"), version);
}
const char *cod_comm_library(const cod_comm *comm)
{
    return comm->library;
}
cod_group *cod_comm_world(cod_comm *comm)
{
    return comm->world;
}
void cod_comm_read_counters(cod_comm *comm, cod_comm_counters *out)
{
    comm_lock(comm);
    *out = comm->counters;
    comm_unlock(comm);
    clockid_t clock;
    struct timespec used = {0};
    if (pthread_getcpuclockid(comm->progress, &clock) == 0 && clock_gettime(clock, &used) == 0)
        out->progress_s = (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}
