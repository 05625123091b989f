#include "ranks.h"
#include "support/test.h"

#include "comm/group.h"
#include "comm/message.h"
#include "comm/node_memory.h"
#include "comm/window.h"
#include "core/trace.h"
#include "inprocess.h"

#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 3,
    NODE_VALUES = 50,
    GROUPS = 4,
    ROUNDS = 60,
    BUCKETS = 5,
    BUCKET = 300,
    SHARED = 64,
    REQUESTS = 5,
    MESSAGES = 200,
    GETS = 300,
    WORDS = 5000
};

/* Groups: everything at once, small integers so that sums are exact in any order. */

typedef struct work {
    float gradients[BUCKETS * BUCKET];
    double sums[8], least;
    unsigned char news[100], shared[RANKS * SHARED], sent[RANKS * SHARED], received[RANKS * SHARED];
    cod_reduction *averages[BUCKETS];
    cod_request *requests[REQUESTS];
} work;

static cod_status start_round(cod_group *group, work *w, int round)
{
    const int rank = cod_group_rank(group), size = cod_group_size(group);
    cod_collective *collective = cod_group_collective(group);
    cod_buffer buffer = {.host = w->gradients, .bytes = sizeof w->gradients};
    cod_group_part parts[RANKS];
    cod_group_message sent[RANKS], received[RANKS];
    for (int i = 0; i < size; i++) {
        parts[i] = (cod_group_part){.root = i, .offset = (size_t)i * SHARED, .bytes = SHARED};
        sent[i] = (cod_group_message){w->sent + i * SHARED, SHARED};
        received[i] = (cod_group_message){w->received + i * SHARED, SHARED};
        memset(sent[i].data, RANKS * rank + i + round, SHARED);
    }
    for (int i = 0; i < 8; i++)
        w->sums[i] = rank + i + round;
    w->least = -rank - round;
    memset(w->news, rank == round % size ? round : 0, sizeof w->news);
    memset(w->shared + rank * SHARED, rank + round, SHARED);
    for (int i = 0; i < BUCKETS * BUCKET; i++)
        w->gradients[i] = (float)(size * (round + i % 7) + rank);
    for (size_t i = 0; i < BUCKETS; i++)
        COD_TRY(collective->ops->average_start(collective, &buffer, i * BUCKET * sizeof(float), BUCKET, NULL,
                                               &w->averages[i]));
    COD_TRY(cod_group_reduce_start(group, w->sums, 8, COD_REDUCE_SUM, &w->requests[0]));
    COD_TRY(cod_group_broadcast_start(group, w->news, sizeof w->news, round % size, &w->requests[1]));
    COD_TRY(cod_group_share_start(group, w->shared, parts, (size_t)size, &w->requests[2]));
    COD_TRY(cod_group_reduce_start(group, &w->least, 1, COD_REDUCE_MIN, &w->requests[3]));
    return cod_group_swap_start(group, round % 2, sent, received, &w->requests[4]);
}

static cod_status end_round(cod_group *group, work *w, int round)
{
    const int rank = cod_group_rank(group), size = cod_group_size(group);
    cod_collective *collective = cod_group_collective(group);
    for (size_t i = 0; i < REQUESTS; i++)
        COD_TRY(cod_request_wait(&w->requests[(i + (size_t)round) % REQUESTS], INFINITY));
    for (int i = BUCKETS - 1; i >= 0; i--) {
        bool done = false;
        for (int tests = 0; tests < round % 5; tests++)
            COD_TRY(collective->ops->test(w->averages[i], &done));
        COD_TRY(collective->ops->wait(w->averages[i], NULL));
    }
    for (int i = 0; i < 8; i++)
        CHECK(w->sums[i] == size * (round + i) + size * (size - 1) / 2);
    CHECK(w->least == 1 - size - round);
    for (size_t i = 0; i < sizeof w->news; i++)
        CHECK(w->news[i] == round);
    for (int i = 0; i < size * SHARED; i++)
        CHECK(w->shared[i] == i / SHARED + round);
    for (int i = 0; i < size * SHARED; i++)
        CHECK(i / SHARED == rank || w->received[i] == RANKS * (i / SHARED) + rank + round);
    for (int i = 0; i < BUCKETS * BUCKET; i++)
        CHECK(fabsf(w->gradients[i] - ((float)(size * (round + i % 7)) + (float)(size - 1) / 2)) < 1e-3F);
    return COD_OK;
}

static cod_status agree_and_gather(cod_group *group, int round)
{
    const int rank = cod_group_rank(group), size = cod_group_size(group);
    int failed, all[RANKS], mine = rank * round;
    const bool fails = rank == round % size;
    const cod_status own = fails ? cod_fail(COD_ERR_IO, "planted") : COD_OK;
    CHECK(cod_group_agree(group, own, &failed) == (fails ? COD_ERR_IO : COD_ERR_PEER) && failed == round % size);
    COD_TRY(cod_group_gather(group, &mine, sizeof mine, all));
    for (int i = 0; i < size; i++)
        CHECK(all[i] == i * round);
    return cod_group_barrier(group);
}

/** Each rank of a node writes its part; all read all. */
static cod_status share_a_node(const cod_comm *comm, cod_node_memory *memory, int round)
{
    int *mine = cod_node_memory_part(memory, cod_comm_node_rank(comm));
    for (int i = 0; i < NODE_VALUES; i++)
        mine[i] = round + cod_comm_node_rank(comm);
    cod_node_memory_barrier(memory);
    for (int r = 0; r < cod_comm_node_size(comm); r++)
        for (int i = 0; i < NODE_VALUES; i++)
            CHECK(((const int *)cod_node_memory_part(memory, r))[i] == round + r);
    cod_node_memory_barrier(memory);
    return COD_OK;
}

static cod_status work_in_groups(cod_comm *comm, void *context)
{
    (void)context;
    static const int sizes[] = {1, 2}, all = RANKS;
    cod_group *groups[GROUPS] = {cod_comm_world(comm)};
    work *w = calloc(GROUPS, sizeof *w);
    COD_REQUIRE_MEMORY(w);
    COD_TRY(cod_group_create(comm, sizes, 2, &groups[1]));
    COD_TRY(cod_group_create_by_node(comm, &groups[2]));
    CHECK(cod_group_size(groups[2]) == (cod_comm_rank(comm) < 2 ? 2 : 1));
    COD_TRY(cod_group_create(comm, &all, 1, &groups[3]));
    CHECK(cod_group_gains_by_node(groups[3]) && !cod_group_gains_by_node(groups[2]));
    COD_TRY(cod_group_average_by_node(groups[3], NULL));
    cod_node_memory *memory = NULL;
    COD_TRY(cod_node_memory_create(comm, NODE_VALUES * sizeof(int), &memory));
    for (int round = 0; round < ROUNDS; round++) {
        for (int g = 0; g < GROUPS; g++)
            COD_TRY(start_round(groups[g], &w[g], round));
        for (int g = GROUPS - 1; g >= 0; g--)
            COD_TRY(end_round(groups[g], &w[g], round));
        COD_TRY(agree_and_gather(groups[round % GROUPS], round));
        COD_TRY(share_a_node(comm, memory, round));
        /* While the progress thread runs. */
        cod_comm_configure(
            comm, &(cod_comm_options){.teardown_timeout_s = 60, .progress_interval_ms = 0.1 * (1 + round % 5)});
    }
    free(w);
    cod_node_memory_destroy(memory);
    for (int g = 1; g < GROUPS; g++)
        cod_group_destroy(groups[g]);
    return COD_OK;
}

/* Messages and windows from a second thread of each rank, while the first works in the world. */

typedef struct side {
    cod_comm *comm;
    cod_window *window;
    cod_status status;
    char message[256];
} side;

static cod_status pass_messages(cod_comm *comm)
{
    const int rank = cod_comm_rank(comm), to = (rank + 1) % RANKS, from = (rank + RANKS - 1) % RANKS;
    for (int i = 0; i < MESSAGES; i++) {
        cod_request *send = NULL, *receive = NULL;
        int out[50], in[50];
        bool found = false;
        size_t bytes = 0;
        for (int k = 0; k < 50; k++)
            out[k] = rank * 1000 + i + k;
        COD_TRY(cod_message_send_start(comm, to, i % 3, out, sizeof out, &send));
        while (!found)
            COD_TRY(cod_message_probe(comm, from, i % 3, &found, &bytes));
        CHECK(bytes == sizeof in);
        COD_TRY(cod_message_receive_start(comm, from, i % 3, in, sizeof in, &receive));
        COD_TRY(cod_request_wait(&receive, INFINITY));
        COD_TRY(cod_request_wait(&send, INFINITY));
        for (int k = 0; k < 50; k++)
            CHECK(in[k] == from * 1000 + i + k);
    }
    return COD_OK;
}

static atomic_int released;

static void release(void *memory)
{
    free(memory);
    atomic_fetch_add(&released, 1);
}

/** Word 0 of each part rises for ever; the others never change. Every third get is given up at once. */
static cod_status read_windows(cod_comm *comm, cod_window *window)
{
    uint64_t last[RANKS] = {0};
    for (int i = 0; i < GETS; i++) {
        const int owner = i % RANKS;
        const size_t bytes = (i % 2 == 0 ? WORDS : 1) * sizeof(uint64_t);
        uint64_t *memory = malloc(bytes);
        cod_request *get = NULL;
        COD_REQUIRE_MEMORY(memory);
        COD_TRY(cod_window_get_start(window, owner, 0, memory, bytes, &get));
        if (i % 3 == 1) {
            cod_request_abandon(&get, release, memory);
            continue;
        }
        COD_TRY(cod_request_wait(&get, INFINITY));
        CHECK(memory[0] >= last[owner]);
        last[owner] = memory[0];
        for (size_t k = 1; k < bytes / sizeof *memory; k++)
            CHECK(memory[k] == (uint64_t)owner * WORDS + k);
        free(memory);
    }
    cod_comm_counters counters;
    cod_comm_read_counters(comm, &counters);
    CHECK(counters.pulled_bytes > GETS * sizeof(uint64_t) && counters.message_bytes == MESSAGES * 50 * sizeof(int));
    return COD_OK;
}

static cod_status side_work(const side *s)
{
    COD_TRY(pass_messages(s->comm));
    return read_windows(s->comm, s->window);
}

static void *side_main(void *context)
{
    side *s = context;
    s->status = side_work(s);
    strncpy(s->message, cod_error_message(), sizeof s->message - 1);
    return NULL;
}

static cod_status work_on_two_threads(cod_comm *comm, void *context)
{
    (void)context;
    side s = {.comm = comm};
    pthread_t thread;
    work *w = calloc(1, sizeof *w);
    COD_REQUIRE_MEMORY(w);
    COD_TRY(cod_window_create(comm, WORDS * sizeof(uint64_t), NULL, 0, &s.window));
    uint64_t *memory = cod_window_memory(s.window);
    for (uint64_t k = 1; k < WORDS; k++)
        memory[k] = (uint64_t)cod_comm_rank(comm) * WORDS + k;
    COD_TRY(cod_window_sync(s.window));
    COD_TRY(cod_group_barrier(cod_comm_world(comm)));
    CHECK(pthread_create(&thread, NULL, side_main, &s) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        COD_TRY(start_round(cod_comm_world(comm), w, round));
        memory[0] = (uint64_t)round;
        COD_TRY(cod_window_sync(s.window));
        COD_TRY(end_round(cod_comm_world(comm), w, round));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    if (s.status != COD_OK)
        return cod_fail(s.status, "second thread: %s", s.message);
    free(w);
    /* The progress thread ends what was given up. */
    while (atomic_load(&released) < RANKS * GETS / 3)
        sched_yield();
    return cod_window_destroy(s.window);
}

TEST(groups_overlap)
{
    run_ranks(RANKS, work_in_groups, NULL);
}

TEST(two_threads_share_a_rank)
{
    run_ranks(RANKS, work_on_two_threads, NULL);
}

static cod_status ask_for_a_window(cod_comm *comm, void *context)
{
    (void)context;
    cod_window *window = NULL;
    CHECK(cod_window_create(comm, WORDS, NULL, 0, &window) == COD_ERR_UNSUPPORTED);
    CHECK(window == NULL && strstr(cod_error_message(), "MPI_WIN_SEPARATE") != NULL);
    CHECK(strstr(cod_error_message(), "exchange.transport=file") != NULL);
    return COD_OK;
}

TEST(windows_of_two_copies_are_refused)
{
    cod_inprocess_window_model = MPI_WIN_SEPARATE;
    run_ranks(RANKS, ask_for_a_window, NULL);
    cod_inprocess_window_model = MPI_WIN_UNIFIED;
}

/** Each rank is late in its turn, by many questions whether it lives. At the end those under way are settled. */
static cod_status come_late(cod_comm *comm, void *context)
{
    const double late_s = 0.3, silence_s = 60, often_s = 0.1;
    (void)context;
    for (int late = 0; late < RANKS; late++) {
        cod_request *meeting = NULL;
        double sum = 1;
        if (cod_comm_rank(comm) == late)
            for (const double end_s = cod_clock_s() + late_s; cod_clock_s() < end_s;)
                cod_comm_note_life(comm);
        COD_TRY(cod_group_reduce_start(cod_comm_world(comm), &sum, 1, COD_REDUCE_SUM, &meeting));
        /* Too short for a rank that is late: asks often, and gives up. */
        while (meeting != NULL && cod_comm_wait_for_ranks(comm, &meeting, often_s) != COD_OK)
            ;
        CHECK(sum == RANKS);
    }
    cod_comm_configure(comm, &(cod_comm_options){.teardown_timeout_s = silence_s, .progress_interval_ms = 1});
    return COD_OK;
}

TEST(late_ranks_are_asked)
{
    run_ranks(RANKS, come_late, NULL);
}
