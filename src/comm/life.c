/*
 * Whether other ranks live, as one that waits for them wants to know: it asks, and their progress threads answer with a
 * number that has changed if the rank's own thread has been at work since the last answer.
 */
#include "comm/comm_internal.h"

#include "core/trace.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/** Of a limit there are as many looks: a rank that is stopped itself does not count that time as others' silence. */
enum { LOOKS = 16, LONGEST_LOOK_S = 5 };

/** What this rank knows of another one. */
typedef struct known_rank {
    cod_request *asked; /**< a question and its answer under way; NULL = none */
    double work;        /**< its last answer */
    bool has_answered;
    double silent_s;
} known_rank;

struct job_life {
    clockid_t worker;     /**< processor time of the thread that joined the job */
    atomic_uint notes;    /**< signs of life that take no processor time */
    atomic_int answering; /**< answers under way */
    double looked_s;      /**< when ranks were last asked */
    bool settled;         /**< no rank asks any more */
    known_rank *ranks;    /**< [size] */
};

cod_status life_create(cod_comm *comm)
{
    job_life *life = calloc(1, sizeof *life);
    COD_REQUIRE_MEMORY(life);
    comm->life = life;
    life->ranks = calloc((size_t)comm->size, sizeof *life->ranks);
    COD_REQUIRE_MEMORY(life->ranks);
    if (pthread_getcpuclockid(pthread_self(), &life->worker) != 0)
        life->worker = CLOCK_PROCESS_CPUTIME_ID;
    return COD_OK;
}

void life_destroy(cod_comm *comm)
{
    if (comm->life != NULL)
        free(comm->life->ranks);
    free(comm->life);
}

void cod_comm_note_life(cod_comm *comm)
{
    atomic_fetch_add(&comm->life->notes, 1);
}

static double work_of(job_life *life)
{
    struct timespec used = {0};
    clock_gettime(life->worker, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec + atomic_load(&life->notes);
}

static void note_answered(void *context)
{
    job_life *life = context;
    atomic_fetch_sub(&life->answering, 1);
}

/** Starts to receive the question and to send the answer, in which the sweep of given up requests sees it through. */
static cod_status start_answer(cod_comm *comm, int rank)
{
    cod_request *answer;
    COD_TRY(comm_request_create(comm, 2, &answer));
    answer->gathered = malloc(sizeof *answer->gathered);
    if (answer->gathered == NULL) {
        comm_request_free(answer);
        return cod_fail(COD_ERR_MEMORY, "out of memory");
    }
    *answer->gathered = work_of(comm->life);
    cod_status status =
        COD_MPI(MPI_Irecv(NULL, 0, MPI_BYTE, rank, COD_TAG_QUESTION, MPI_COMM_WORLD, &answer->parts[0]));
    COD_THEN(status, COD_MPI(MPI_Isend(answer->gathered, 1, MPI_DOUBLE, rank, COD_TAG_ANSWER, MPI_COMM_WORLD,
                                       &answer->parts[1])));
    if (status != COD_OK)
        return status; /* MPI may still write to it */
    answer->release = note_answered;
    answer->release_context = comm->life;
    comm_request_give_up(answer);
    atomic_fetch_add(&comm->life->answering, 1);
    return COD_OK;
}

void life_answer(cod_comm *comm)
{
    int found = 0;
    MPI_Status from;
    /* Also where nobody asks: this is what lets MPI move messages. */
    if (MPI_Iprobe(MPI_ANY_SOURCE, COD_TAG_QUESTION, MPI_COMM_WORLD, &found, &from) == MPI_SUCCESS && found)
        (void)start_answer(comm, from.MPI_SOURCE); /* who asks hears nothing, and gives this rank up */
}

static cod_status ask(cod_comm *comm, int rank)
{
    known_rank *known = &comm->life->ranks[rank];
    COD_TRY(comm_request_create(comm, 2, &known->asked));
    cod_request *request = known->asked;
    request->gathered = calloc(1, sizeof *request->gathered);
    if (request->gathered == NULL)
        return comm_request_started(&known->asked, cod_fail(COD_ERR_MEMORY, "out of memory"));
    comm_lock(comm);
    cod_status status =
        COD_MPI(MPI_Irecv(request->gathered, 1, MPI_DOUBLE, rank, COD_TAG_ANSWER, MPI_COMM_WORLD, &request->parts[0]));
    COD_THEN(status, COD_MPI(MPI_Isend(NULL, 0, MPI_BYTE, rank, COD_TAG_QUESTION, MPI_COMM_WORLD, &request->parts[1])));
    comm_unlock(comm);
    return status;
}

/** Takes an answer, if it has come. */
static cod_status hear(known_rank *known)
{
    bool done = false;
    if (known->asked == NULL)
        return COD_OK;
    COD_TRY(comm_request_poll(known->asked, &done));
    if (!done)
        return COD_OK;
    const double work = *known->asked->gathered;
    if (!known->has_answered || work != known->work)
        known->silent_s = 0;
    known->has_answered = true;
    known->work = work;
    comm_request_free(known->asked);
    known->asked = NULL;
    return COD_OK;
}

/** Looks after the other ranks now and then. */
static cod_status look(cod_comm *comm, double most_s)
{
    job_life *life = comm->life;
    const double now = cod_clock_s(), every_s = fmin(most_s / LOOKS, LONGEST_LOOK_S), passed_s = now - life->looked_s;
    if (passed_s < every_s)
        return COD_OK;
    life->looked_s = now;
    for (int r = 0; r < comm->size; r++) {
        known_rank *known = &life->ranks[r];
        if (r == comm->rank)
            continue;
        known->silent_s += fmin(passed_s, 2 * every_s);
        COD_TRY(hear(known));
        if (known->silent_s >= most_s)
            return cod_fail(COD_ERR_INTERRUPTED, "rank %d on %s has shown no sign of life for %.3g s", r,
                            cod_comm_node_name(comm, cod_comm_node_of(comm, r)), most_s);
        if (known->asked == NULL)
            COD_TRY(ask(comm, r));
    }
    return COD_OK;
}

cod_status cod_comm_wait_for_ranks(cod_comm *comm, cod_request **request, double silence_s)
{
    job_life *life = comm->life;
    bool done = false;
    life->looked_s = cod_clock_s();
    for (int r = 0; r < comm->size; r++)
        life->ranks[r].silent_s = 0;
    for (unsigned spins = 0;;) {
        COD_TRY(cod_request_test(request, &done));
        if (done)
            return COD_OK;
        if (!life->settled)
            COD_TRY(look(comm, silence_s));
        cod_comm_pause(&spins);
    }
}

cod_status life_wait_at_end(cod_comm *comm, cod_request **request)
{
    const cod_status status = cod_comm_wait_for_ranks(comm, request, comm->teardown_timeout_s);
    return status == COD_ERR_INTERRUPTED
               ? cod_fail_prefix(status, "other ranks did not end (cluster.teardown_timeout_s)")
               : status;
}

cod_status life_settle(cod_comm *comm)
{
    for (int r = 0; r < comm->size; r++)
        for (unsigned spins = 0; comm->life->ranks[r].asked != NULL; cod_comm_pause(&spins))
            COD_TRY(hear(&comm->life->ranks[r]));
    comm->life->settled = true;
    return COD_OK;
}

void life_end_answers(cod_comm *comm)
{
    for (unsigned spins = 0; atomic_load(&comm->life->answering) > 0;)
        cod_comm_pause(&spins);
}
