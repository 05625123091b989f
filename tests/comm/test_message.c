#include "comm/job.h"

#include "comm/message.h"
#include "core/trace.h"
#include "support/patience.h"

#include <stdlib.h>
#include <string.h>

TEST(a_ring_of_messages_keeps_its_order)
{
    enum { MESSAGES = 20 };
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int sent[MESSAGES], received[MESSAGES];
    cod_request *sends[MESSAGES], *receives[MESSAGES];
    cod_status status = COD_OK;
    for (int i = 0; i < MESSAGES && status == COD_OK; i++) {
        sent[i] = 100 * rank + i;
        status = cod_message_receive_start(job, previous, 3, &received[i], sizeof received[i], &receives[i]);
        COD_THEN(status, cod_message_send_start(job, next, 3, &sent[i], sizeof sent[i], &sends[i]));
    }
    check_ok(status);
    bool ok = true;
    for (int i = MESSAGES - 1; i >= 0 && status == COD_OK; i--) {
        status = cod_request_wait(&receives[i], COD_TEST_PATIENCE_S);
        COD_THEN(status, cod_request_wait(&sends[i], COD_TEST_PATIENCE_S));
    }
    check_ok(status);
    for (int i = 0; i < MESSAGES; i++)
        ok = ok && received[i] == 100 * previous + i && sends[i] == NULL && receives[i] == NULL;
    check_all(ok);
}

TEST(a_large_message_arrives_whole)
{
    enum { BYTES = 3000001 };
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    unsigned char *to = malloc(BYTES), *from = calloc(BYTES, 1);
    cod_request *send = NULL, *receive = NULL;
    cod_comm_counters before, after;
    check_all(to != NULL && from != NULL);
    memset(to, rank + 1, BYTES);
    cod_comm_read_counters(job, &before);
    check_ok(cod_message_receive_start(job, (rank + size - 1) % size, COD_MESSAGE_TAG_MAX, from, BYTES, &receive));
    check_ok(cod_message_send_start(job, (rank + 1) % size, COD_MESSAGE_TAG_MAX, to, BYTES, &send));
    cod_comm_read_counters(job, &after);
    check_ok(cod_request_wait(&receive, COD_TEST_PATIENCE_S));
    check_ok(cod_request_wait(&send, COD_TEST_PATIENCE_S));
    bool ok = after.message_bytes - before.message_bytes == BYTES;
    for (size_t i = 0; i < BYTES; i++)
        ok = ok && from[i] == (rank + size - 1) % size + 1;
    check_all(ok);
    free(to);
    free(from);
}

TEST(a_probe_sees_what_waits)
{
    const int size = cod_comm_size(job), rank = cod_comm_rank(job), previous = (rank + size - 1) % size;
    char text[33] = "", sent[33] = "thirty-three bytes";
    bool found = true, other = true;
    size_t bytes = 99;
    cod_request *send = NULL, *receive = NULL;
    check_ok(cod_message_probe(job, previous, 8, &found, &bytes));
    check_all(!found && bytes == 0);
    check_ok(cod_message_send_start(job, (rank + 1) % size, 8, sent, sizeof sent, &send));
    cod_status status = COD_OK;
    const double begin = cod_clock_s();
    while (status == COD_OK && !found && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        status = cod_message_probe(job, previous, 8, &found, &bytes);
    check_ok(status);
    check_all(found && bytes == sizeof sent);
    check_ok(cod_message_probe(job, previous, 9, &other, NULL));
    check_all(!other);
    check_ok(cod_message_receive_start(job, previous, 8, text, sizeof text, &receive));
    check_ok(cod_request_wait(&receive, COD_TEST_PATIENCE_S));
    check_ok(cod_request_wait(&send, COD_TEST_PATIENCE_S));
    check_all(memcmp(text, sent, sizeof sent) == 0);
}

TEST(waiting_is_bounded_and_the_request_lives_on)
{
    const int rank = cod_comm_rank(job);
    int value = 0, sent = 7;
    bool done = true;
    cod_request *receive = NULL, *send = NULL;
    check_ok(cod_message_receive_start(job, rank, 4, &value, sizeof value, &receive));
    const double begin = cod_clock_s();
    check_all(job_failed(cod_request_wait(&receive, 0.05), COD_ERR_INTERRUPTED, "no answer"));
    check_all(receive != NULL && cod_clock_s() - begin > 0.05);
    check_ok(cod_request_test(&receive, &done));
    check_all(!done && receive != NULL);
    check_ok(cod_message_send_start(job, rank, 4, &sent, sizeof sent, &send));
    check_ok(cod_request_wait(&receive, COD_TEST_PATIENCE_S));
    check_ok(cod_request_wait(&send, COD_TEST_PATIENCE_S));
    check_all(value == 7);
    check_ok(cod_request_wait(&receive, 0));
    check_ok(cod_request_test(&receive, &done));
    check_all(done);
}

TEST(bad_messages_are_refused)
{
    char byte = 0;
    bool found;
    cod_request *request = NULL;
    const int size = cod_comm_size(job);
    check_all(job_failed(cod_message_send_start(job, size, 1, &byte, 1, &request), COD_ERR_ARGUMENT, "no rank"));
    check_all(job_failed(cod_message_receive_start(job, -1, 1, &byte, 1, &request), COD_ERR_ARGUMENT, "no rank"));
    check_all(job_failed(cod_message_send_start(job, 0, COD_MESSAGE_TAG_MAX + 1, &byte, 1, &request), COD_ERR_ARGUMENT,
                         "out of range"));
    check_all(job_failed(cod_message_probe(job, 0, -1, &found, NULL), COD_ERR_ARGUMENT, "out of range"));
    check_all(
        job_failed(cod_message_send_start(job, 0, 1, &byte, (size_t)1 << 31, &request), COD_ERR_ARGUMENT, "too large"));
    check_all(request == NULL);
}

TEST_GROUP(job_setup, job_teardown)
