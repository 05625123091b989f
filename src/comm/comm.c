#include "comm/comm_internal.h"

#include "comm/group.h"
#include "comm/group_internal.h"
#include "core/trace.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { URGENT_PAUSE_US = 50, SPINS_BEFORE_SLEEP = 2000, WAIT_PAUSE_US = 50 };

void comm_lock(cod_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
}

void comm_unlock(cod_comm *comm)
{
    pthread_mutex_unlock(&comm->lock);
}

cod_status comm_check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return COD_OK;
    MPI_Error_string(code, text, &length);
    return cod_fail(COD_ERR_MPI, "%.60s: %s", call, text);
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

void cod_comm_pause(unsigned *spins)
{
    if (++*spins < SPINS_BEFORE_SLEEP)
        sched_yield();
    else
        sleep_us(WAIT_PAUSE_US);
}

cod_status comm_request_create(cod_comm *comm, int parts, cod_request **out)
{
    cod_request *request = calloc(1, sizeof *request);
    COD_REQUIRE_MEMORY(request);
    request->parts = malloc((size_t)(parts > 0 ? parts : 1) * sizeof(MPI_Request));
    if (request->parts == NULL) {
        free(request);
        return cod_fail(COD_ERR_MEMORY, "out of memory for a message");
    }
    for (int i = 0; i < parts; i++)
        request->parts[i] = MPI_REQUEST_NULL;
    request->comm = comm;
    request->part_count = parts;
    *out = request;
    return COD_OK;
}

void comm_request_free(cod_request *request)
{
    free(request->gathered);
    free(request->long_get);
    free(request->parts);
    free(request);
}

static void calm_down(cod_request *request)
{
    if (request->urgent)
        atomic_fetch_sub(&request->comm->urgent, 1);
    request->urgent = false;
}

cod_status comm_request_started(cod_request **request, cod_status status)
{
    if (status != COD_OK) {
        calm_down(*request);
        comm_request_free(*request);
        *request = NULL;
    }
    return status;
}

cod_status comm_barrier_start(cod_comm *comm, MPI_Comm among, cod_request **barrier)
{
    COD_TRY(comm_request_create(comm, 1, barrier));
    comm_lock(comm);
    const cod_status status = COD_MPI(MPI_Ibarrier(among, (*barrier)->parts));
    comm_unlock(comm);
    return comm_request_started(barrier, status);
}

/** Under the lock. */
static cod_status test_parts(cod_request *request, bool *done)
{
    int flag = 0;
    if (request->test != NULL)
        return request->test(request, done);
    COD_TRY(COD_MPI(MPI_Testall(request->part_count, request->parts, &flag, MPI_STATUSES_IGNORE)));
    *done = flag != 0;
    return COD_OK;
}

cod_status comm_request_poll(cod_request *request, bool *done)
{
    comm_lock(request->comm);
    const cod_status status = test_parts(request, done);
    comm_unlock(request->comm);
    if (status == COD_OK && !*done)
        return COD_OK;
    calm_down(request);
    if (status == COD_OK && request->finish != NULL)
        request->finish(request);
    request->finish = NULL;
    return status;
}

cod_status cod_request_test(cod_request **request, bool *done)
{
    cod_request *r = *request;
    *done = true;
    if (r == NULL)
        return COD_OK;
    const cod_status status = comm_request_poll(r, done);
    if (status == COD_OK && !*done)
        return COD_OK;
    comm_request_free(r);
    *request = NULL;
    return status;
}

cod_status cod_request_wait(cod_request **request, double timeout_s)
{
    const double begin = cod_clock_s();
    bool done = false;
    for (unsigned spins = 0;;) {
        COD_TRY(cod_request_test(request, &done));
        if (done)
            return COD_OK;
        if (cod_clock_s() - begin > timeout_s)
            return cod_fail(COD_ERR_INTERRUPTED, "no answer within %.1f s", timeout_s);
        cod_comm_pause(&spins);
    }
}

void cod_request_abandon(cod_request **request, void (*release)(void *context), void *context)
{
    cod_request *r = *request;
    *request = NULL;
    if (r == NULL) {
        if (release != NULL)
            release(context);
        return;
    }
    calm_down(r);
    comm_lock(r->comm);
    r->abandoned = true;
    r->release = release;
    r->release_context = context;
    r->next = r->comm->abandoned;
    r->comm->abandoned = r;
    comm_unlock(r->comm);
}

/** Frees abandoned requests that have ended. Under the lock. */
static void sweep_abandoned(cod_comm *comm)
{
    for (cod_request **at = &comm->abandoned; *at != NULL;) {
        cod_request *r = *at;
        bool done = false;
        if (test_parts(r, &done) != COD_OK || !done) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (r->release != NULL)
            r->release(r->release_context);
        comm_request_free(r);
    }
}

static void *progress_loop(void *context)
{
    cod_comm *comm = context;
    while (!atomic_load(&comm->ending)) {
        int found;
        comm_lock(comm);
        direct_progress(comm);
        MPI_Iprobe(MPI_ANY_SOURCE, COD_TAG_NEVER, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        sweep_abandoned(comm);
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

/** Tasks of the srun that started this process, or 0. A batch script, or the shell that salloc opens on a node, is no launch. */
static int srun_tasks(void)
{
    enum { FIRST_SPECIAL_STEP = 16 }; /* from the end of 32 bits: Slurm's own steps, batch, interactive and extern */
    const char *step = getenv("SLURM_STEP_ID");
    const bool special = step != NULL && strtoul(step, NULL, 10) > UINT32_MAX - FIRST_SPECIAL_STEP;
    return getenv("SLURM_PROCID") == NULL || special ? 0 : environment_number("SLURM_STEP_NUM_TASKS");
}

int cod_comm_launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (environment_number(names[i]) > 0)
            return environment_number(names[i]);
    return srun_tasks();
}

/**
 * Open MPI's non-blocking all-reduce in place defaults to a tree, where half the ranks idle; its ring is what the blocking
 * call uses too.
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
 * Open MPI 4 over TCP has windows only through osc/pt2pt, which Debian's settings exclude. On several hosts osc/sm beside it
 * makes what the ranks of one share, and no window of all.
 */
static const char *choose_window_component(const char *library)
{
    const char *btl = getenv("OMPI_MCA_btl");
    const int size = environment_number("OMPI_COMM_WORLD_SIZE"),
              local = environment_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    const bool no_shared_memory =
        btl != NULL && strchr(btl, '^') == NULL && strstr(btl, "vader") == NULL && strstr(btl, "sm") == NULL;
    const bool hosts = local < size || environment_number("SLURM_STEP_NUM_NODES") > 1;
    if (strncmp(library, "Open MPI v4", 11) != 0 || getenv("OMPI_MCA_osc") != NULL || !(hosts || no_shared_memory))
        return "";
    setenv("OMPI_MCA_osc", hosts ? "pt2pt,sm" : "pt2pt", 1);
    return "pt2pt";
}

static cod_status find_nodes(cod_comm *comm)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    COD_TRY(COD_MPI(MPI_Get_processor_name(name, &length)));
    comm->node_of = calloc((size_t)comm->size, sizeof *comm->node_of);
    comm->names = calloc((size_t)comm->size, sizeof *comm->names);
    char(*all)[MPI_MAX_PROCESSOR_NAME] = calloc((size_t)comm->size, sizeof *all);
    COD_REQUIRE_MEMORY(comm->node_of);
    COD_REQUIRE_MEMORY(comm->names);
    COD_REQUIRE_MEMORY(all);
    cod_status status = COD_MPI(MPI_Allgather(name, sizeof name, MPI_CHAR, all, sizeof name, MPI_CHAR, MPI_COMM_WORLD));
    for (int r = 0; r < comm->size && status == COD_OK; r++) {
        int node = 0;
        while (node < comm->node_count && strcmp(comm->names[node], all[r]) != 0)
            node++;
        if (node == comm->node_count)
            memcpy(comm->names[comm->node_count++], all[r], sizeof *all);
        comm->node_of[r] = node;
    }
    free(all);
    for (int r = 0; r < comm->size; r++) {
        comm->node_size += comm->node_of[r] == comm->node_of[comm->rank];
        comm->node_rank += r < comm->rank && comm->node_of[r] == comm->node_of[comm->rank];
    }
    return status;
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
    comm->window_setting = choose_window_component(comm->library);
    COD_TRY(COD_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided)));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    COD_TRY(COD_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank)));
    COD_TRY(COD_MPI(MPI_Comm_size(MPI_COMM_WORLD, &comm->size)));
    if (provided < MPI_THREAD_SERIALIZED)
        return cod_fail(COD_ERR_UNSUPPORTED, "%s does not offer MPI_THREAD_SERIALIZED", comm->library);
    COD_TRY(check_world(comm));
    COD_TRY(find_nodes(comm));
    const int size = comm->size;
    return cod_group_create(comm, &size, 1, &comm->world);
}

static void release_job(cod_comm *comm)
{
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
    cod_status status = cod_request_wait(&barrier, comm->teardown_timeout_s);
    atomic_store(&comm->ending, true);
    pthread_join(comm->progress, NULL);
    if (status != COD_OK)
        return cod_fail(status, "other ranks did not end within %.0f s (cluster.teardown_timeout_s)",
                        comm->teardown_timeout_s);
    cod_group_destroy(comm->world);
    sweep_abandoned(comm);
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
const char *cod_comm_window_setting(const cod_comm *comm)
{
    return comm->window_setting;
}
cod_group *cod_comm_world(cod_comm *comm)
{
    return comm->world;
}
int cod_comm_node_count(const cod_comm *comm)
{
    return comm->node_count;
}
int cod_comm_node_of(const cod_comm *comm, int world_rank)
{
    return comm->node_of[world_rank];
}
const char *cod_comm_node_name(const cod_comm *comm, int node)
{
    return comm->names[node];
}
int cod_comm_node_rank(const cod_comm *comm)
{
    return comm->node_rank;
}
int cod_comm_node_size(const cod_comm *comm)
{
    return comm->node_size;
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
