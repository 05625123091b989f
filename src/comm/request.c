/* The job's lock, and requests: how they are waited for, finished, and given up. */
#include "comm/comm_internal.h"

#include "core/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { SPINS_BEFORE_SLEEP = 2000, WAIT_PAUSE_US = 50 };

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

void cod_comm_pause(unsigned *spins)
{
    if (++*spins < SPINS_BEFORE_SLEEP)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 1000L * WAIT_PAUSE_US}, NULL);
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

cod_status comm_barrier_start(cod_comm *comm, MPI_Comm ranks, cod_request **out)
{
    COD_TRY(comm_request_create(comm, 1, out));
    comm_lock(comm);
    const cod_status status = COD_MPI(MPI_Ibarrier(ranks, (*out)->parts));
    comm_unlock(comm);
    return comm_request_started(out, status);
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

void comm_request_give_up(cod_request *r)
{
    r->abandoned = true;
    r->next = r->comm->abandoned;
    r->comm->abandoned = r;
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
    r->release = release;
    r->release_context = context;
    comm_request_give_up(r);
    comm_unlock(r->comm);
}

void comm_requests_sweep(cod_comm *comm)
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
