#include "comm/job.h"

#include "comm/group.h"
#include "comm/window.h"
#include "core/memory.h"
#include "core/trace.h"
#include "support/patience.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNIT = 100000 };

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)(i * 13 + i / 257 + (size_t)rank * 101 + 1);
}

/** Each rank its own size; the last of several ranks none at all. */
static size_t bytes_of(int rank)
{
    const int size = cod_comm_size(job);
    return size > 1 && rank == size - 1 ? 0 : (size_t)UNIT + (size_t)rank * 1001;
}

static bool holds(const unsigned char *data, int owner, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(owner, offset + i))
            return false;
    return true;
}

static cod_window *open_window(void)
{
    const int rank = cod_comm_rank(job);
    cod_window *window = NULL;
    check_ok(cod_window_create(job, bytes_of(rank), NULL, 0, &window));
    unsigned char *memory = cod_window_memory(window);
    bool ok = (uintptr_t)memory % 64 == 0;
    for (size_t i = 0; i < bytes_of(rank); i++) {
        ok = ok && memory[i] == 0;
        memory[i] = byte_of(rank, i);
    }
    check_ok(cod_window_sync(window));
    for (int r = 0; r < cod_comm_size(job); r++)
        ok = ok && cod_window_bytes(window, r) == bytes_of(r);
    check_all(ok);
    return window;
}

TEST(many_gets_are_in_flight)
{
    enum { GETS = 24 };
    static unsigned char data[GETS][UNIT];
    cod_request *gets[GETS];
    size_t from[GETS], bytes[GETS], total = 0;
    cod_window *window = open_window();
    cod_comm_counters before, after;
    cod_comm_read_counters(job, &before);
    for (int owner = 0; owner < cod_comm_size(job); owner++) {
        cod_status status = COD_OK;
        for (size_t g = 0; g < GETS && status == COD_OK; g++) {
            from[g] = bytes_of(owner) * (GETS - 1 - g) / GETS;
            bytes[g] = g == 0 ? bytes_of(owner) - from[g] : g == 1 ? 0 : bytes_of(owner) / (g + 1);
            bytes[g] = bytes[g] < bytes_of(owner) - from[g] ? bytes[g] : bytes_of(owner) - from[g];
            total += bytes[g];
            status = cod_window_get_start(window, owner, from[g], data[g], bytes[g], &gets[g]);
        }
        check_ok(status);
        for (size_t g = GETS; g-- > 0 && status == COD_OK;)
            status = cod_request_wait(&gets[g], COD_TEST_PATIENCE_S);
        check_ok(status);
        bool ok = true;
        for (size_t g = 0; g < GETS; g++)
            ok = ok && holds(data[g], owner, from[g], bytes[g]);
        check_all(ok);
    }
    cod_comm_read_counters(job, &after);
    check_all(after.pulled_bytes - before.pulled_bytes == total);
    check_ok(cod_window_destroy(window));
}

TEST(a_range_outside_the_window_is_refused)
{
    unsigned char byte;
    cod_request *request = NULL;
    cod_window *window = open_window();
    const size_t bytes = bytes_of(0);
    check_all(job_failed(cod_window_get_start(window, 0, bytes, &byte, 1, &request), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(cod_window_get_start(window, 0, 1, &byte, bytes, &request), COD_ERR_ARGUMENT, "outside"));
    check_all(
        job_failed(cod_window_get_start(window, 0, 8, &byte, SIZE_MAX - 4, &request), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(cod_window_get_start(window, 0, SIZE_MAX, &byte, 2, &request), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(cod_window_get_start(window, -1, 0, &byte, 1, &request), COD_ERR_ARGUMENT, "no rank"));
    check_all(job_failed(cod_window_get_start(window, cod_comm_size(job), 0, &byte, 1, &request), COD_ERR_ARGUMENT,
                         "no rank"));
    check_all(request == NULL);
    check_ok(cod_window_destroy(window));
    check_ok(cod_window_destroy(NULL));
}

static void release(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

TEST(abandoned_gets_are_released_once)
{
    enum { GETS = 8 };
    static unsigned char data[GETS][UNIT];
    static atomic_int released;
    released = 0;
    cod_request *request = NULL;
    cod_window *window = open_window();
    for (int g = 0; g < GETS; g++) {
        check_ok(cod_window_get_start(window, 0, 0, data[g], UNIT, &request));
        cod_request_abandon(&request, release, &released);
        check_all(request == NULL);
    }
    cod_request_abandon(&request, release, &released);
    const double begin = cod_clock_s();
    while (released < GETS + 1 && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        ;
    check_all(released == GETS + 1);
    /* Given up just before the end, and with nobody to tell. */
    check_ok(cod_window_get_start(window, 0, 0, data[0], UNIT, &request));
    cod_request_abandon(&request, NULL, NULL);
    check_ok(cod_window_destroy(window));
}

/** More than is in flight at a time: the progress thread asks for what follows, though nobody looks. */
TEST(long_gets_move_by_themselves)
{
    enum { BYTES = 9 * 1000 * 1000 + 7, OFFSET = 5 };
    static unsigned char data[2][BYTES];
    static atomic_int released;
    cod_window *window = NULL;
    cod_request *requests[3] = {0};
    released = 0;
    const int first = (cod_comm_rank(job) + 1) % cod_comm_size(job), last = cod_comm_rank(job);
    const int sources[] = {first, last};
    check_ok(cod_window_create(job, OFFSET + BYTES, sources, 2, &window));
    unsigned char *memory = cod_window_memory(window);
    for (size_t i = 0; i < OFFSET + BYTES; i++)
        memory[i] = byte_of(cod_comm_rank(job), i);
    check_ok(cod_window_sync(window));
    check_ok(cod_group_barrier(cod_comm_world(job)));
    check_ok(cod_window_get_start(window, first, OFFSET, data[0], BYTES, &requests[0]));
    check_ok(cod_window_get_start(window, first, OFFSET, data[1], BYTES, &requests[1]));
    cod_request_abandon(&requests[1], release, &released); /* what was asked for of it still comes */
    const double begin = cod_clock_s();
    while ((cod_window_get_arrived(requests[0]) < BYTES || released < 1) && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        ;
    check_all(cod_window_get_arrived(requests[0]) == BYTES && released == 1);
    check_ok(cod_window_get_start(window, last, OFFSET, data[1], BYTES, &requests[2]));
    check_ok(cod_request_wait(&requests[2], COD_TEST_PATIENCE_S));
    check_ok(cod_request_wait(&requests[0], 0));
    check_all(holds(data[0], first, OFFSET, BYTES) && holds(data[1], last, OFFSET, BYTES));
    check_all(cod_window_get_arrived(NULL) == 0);
    const int other = (cod_comm_rank(job) + 2) % cod_comm_size(job);
    check_all(other == first || other == last ||
              job_failed(cod_window_get_start(window, other, 0, data[0], 1, &requests[2]), COD_ERR_ARGUMENT,
                         "said it would read"));
    check_ok(cod_window_destroy(window));
}

/** Readers that have got what they asked for. */
static atomic_int served;

static void hear_served(int signal)
{
    (void)signal;
    atomic_fetch_add(&served, 1);
}

/** Until all its readers have been served, it makes no call of ours: only its progress thread can serve them. */
TEST(an_owner_that_computes_is_read_all_the_same)
{
    enum { BYTES = UNIT, OWNER = 0, MOST_RANKS = 16 };
    static unsigned char data[BYTES];
    const pid_t mine = getpid();
    const int readers = cod_comm_size(job) - 1;
    pid_t pids[MOST_RANKS];
    check_all(readers < MOST_RANKS);
    atomic_store(&served, 0);
    signal(SIGRTMIN, hear_served); /* such signals are queued: each is heard */
    cod_window *window = open_window();
    check_ok(cod_group_gather(cod_comm_world(job), &mine, sizeof mine, pids));
    check_ok(cod_group_barrier(cod_comm_world(job)));
    cod_status status = COD_OK;
    if (cod_comm_rank(job) == OWNER) {
        const double begin = cod_clock_s();
        while (atomic_load(&served) < readers && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
            ;
    } else {
        cod_request *request = NULL;
        status = cod_window_get_start(window, OWNER, 0, data, BYTES, &request);
        COD_THEN(status, cod_request_wait(&request, COD_TEST_PATIENCE_S));
        if (status == COD_OK && sigqueue(pids[OWNER], SIGRTMIN, (union sigval){0}) != 0)
            status = cod_fail(COD_ERR_IO, "cannot tell the owner");
    }
    check_ok(status);
    check_all(cod_comm_rank(job) == OWNER ? atomic_load(&served) == readers : holds(data, OWNER, 0, BYTES));
    check_ok(cod_window_destroy(window));
}

TEST_GROUP(job_setup, job_teardown)
