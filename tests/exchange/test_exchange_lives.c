/*
 * A publisher that dies and goes on from an older checkpoint, or whose storage fails, while its reader lives on and
 * holds what it made before. Each is a group of all ranks of the job.
 */
#include "comm/job.h"

#include "core/trace.h"
#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"
#include "io/file.h"
#include "support/folder.h"
#include "support/patience.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PERIOD = 10, COUNT = 2000, STATISTICS = 3, RUN_NAME = 7 };
enum { PUBLISHER, READER, DELTA = 4 /* exchange.codec */ };

static float values[COUNT + STATISTICS];
static char folder[256]; /**< the exchange's, of all ranks */

static int make_folder(void **state)
{
    if (cod_comm_rank(job) == 0) {
        must(cod_test_folder_make(state) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "no folder"));
        snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    }
    must(cod_group_broadcast(cod_comm_world(job), folder, sizeof folder, 0));
    return 0;
}

static int remove_folder(void **state)
{
    must(cod_group_barrier(cod_comm_world(job)));
    return cod_comm_rank(job) == 0 ? cod_test_folder_remove(state) : 0;
}

/** In the folder of this rank's shard of a group, or beside it. */
static const char *at_shard(int group, const char *name)
{
    static char paths[2][512];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/group-%d/shard-%d%s", folder, group, cod_comm_rank(job), name);
    return path;
}

/** Each life trains other weights; the statistics, which travel exactly, tell version and life. */
static void fill(uint64_t version, int life)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = sinf((float)i) + 0.02F * (float)version + 0.1F * (float)life;
    for (int i = 0; i < STATISTICS; i++)
        values[COUNT + i] = (float)(version * 10 + (uint64_t)life);
}

static void begin(exchange_run *r, size_t group, bool anew)
{
    const int sizes[] = {cod_comm_size(job), cod_comm_size(job)};
    *r = (exchange_run){.options = run_options(PERIOD)};
    r->options.transport = COD_TRANSPORT_FILE;
    r->options.directory = folder;
    r->options.anew = anew;
    r->options.codec = DELTA;
    r->options.key_every = 1000; /* a reader that loses its way stays lost */
    r->options.slots = 16;
    for (int g = 0; g < 2; g++)
        r->models[g] = (cod_exchange_model){.count = COUNT, .state_count = STATISTICS, .hash = 5};
    must(cod_group_create_part(job, sizes, 2, group, &r->group));
    must(cod_exchange_create(job, r->group, &r->options, r->models, RUN_NAME, &r->exchange));
    run_use_device(r);
}

static void end(exchange_run *r)
{
    must(cod_exchange_destroy(r->exchange));
    run_leave_device(r);
    cod_group_destroy(r->group);
}

static void wait_until_stored(exchange_run *r)
{
    const cod_exchange_array *arrays;
    size_t count;
    must(cod_exchange_state(r->exchange, &arrays, &count));
}

/** Publishes up to and with `last`, each before the next. */
static void publish(exchange_run *r, uint64_t last, int life)
{
    for (uint64_t v = (uint64_t)r->step / PERIOD + 1; v <= last; v++) {
        r->step = (int64_t)v * PERIOD;
        fill(v, life);
        run_publish(r, values, r->step);
        wait_until_stored(r);
    }
}

/** Goes on from the checkpoint, which stays as it is. */
static void resume(exchange_run *r, const run_saved *saved, int64_t step)
{
    run_saved copy = *saved;
    for (size_t i = 0; i < saved->count; i++) {
        copy.data[i] = malloc(saved->bytes[i]);
        memcpy(copy.data[i], saved->data[i], saved->bytes[i]);
    }
    begin(r, PUBLISHER, false);
    run_restore(r, &copy);
    wait_until_stored(r);
    r->step = step;
}

/** What rides in the trainer's reductions, told at once. */
static void tell(exchange_run *r)
{
    double flags[COD_EXCHANGE_FLAGS_MOST];
    cod_exchange_flags_out(r->exchange, flags);
    must(cod_group_reduce(r->group, flags, cod_exchange_flag_count(r->exchange), COD_REDUCE_SUM));
    must(cod_exchange_flags_in(r->exchange, r->step + RUN_AGREEMENT_DELAY, flags));
}

static void step(exchange_run *r)
{
    r->step++;
    must(cod_exchange_advance(r->exchange, r->step));
    tell(r);
    usleep(200);
}

/** Steps until the version is held, or time is up. All ranks hold it at the same step. */
static cod_exchange_checkpoint read_until(exchange_run *r, uint64_t version)
{
    const double since = cod_clock_s();
    cod_exchange_checkpoint held = {0};
    for (double late = 0; held.version < version && late == 0;) {
        late = cod_clock_s() - since > COD_TEST_PATIENCE_S;
        must(cod_group_reduce(r->group, &late, 1, COD_REDUCE_MAX));
        step(r);
        cod_exchange_read_checkpoint(r->exchange, 0, 0, &held);
    }
    return held;
}

/** The reader comes to hold this version as this life made it, and has refused as many in all. */
static void check_held(exchange_run *r, uint64_t version, int life, uint64_t refused)
{
    const cod_exchange_checkpoint held = read_until(r, version);
    check_all(held.version == version);
    fill(version, life);
    const float *read = run_read(r, held.values);
    check_all(memcmp(read + COUNT, values + COUNT, STATISTICS * sizeof(float)) == 0);
    bool near = true;
    for (int i = 0; i < COUNT; i++)
        near = near && fabsf(read[i] - values[i]) < 0.02F; /* 43 dB of weights of about one */
    check_all(near);
    check_all(run_sum(r, (double)run_counters(r).rejected) == (double)refused);
}

/** Dies after version 6, resumes after 2, dies again before it is where it was, and resumes after 2 once more. */
TEST_WITH(readers_follow_a_publisher_through_deaths, make_folder, remove_folder)
{
    exchange_run publisher, reader;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 2, 1);
    run_saved saved = run_save(&publisher);
    publish(&publisher, 6, 1);
    check_held(&reader, 6, 1, 0);
    end(&publisher);

    resume(&publisher, &saved, 2 * PERIOD);
    publish(&publisher, 4, 2);
    end(&publisher);

    resume(&publisher, &saved, 2 * PERIOD);
    publish(&publisher, 9, 3);
    check_held(&reader, 9, 3, 0);
    end(&publisher);
    end(&reader);
    for (size_t i = 0; i < saved.count; i++)
        free(saved.data[i]);
}

/** Its part is begun anew while the reader holds what the run before made, and once more after `made` versions. */
static void check_begun_anew(uint64_t made)
{
    exchange_run publisher, reader;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 3, 1);
    check_held(&reader, 3, 1, 0);
    end(&publisher);
    begin(&publisher, PUBLISHER, true);
    if (made > 0)
        publish(&publisher, made, 2);
    end(&publisher);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 6, 3);
    check_held(&reader, 6, 3, 0);
    end(&publisher);
    end(&reader);
}

TEST_WITH(readers_follow_a_publisher_that_begins_anew, make_folder, remove_folder)
{
    check_begun_anew(1);
}

/**
 * As long as the reference of a delta may be a version of before to a reader, keys are published: one more than there
 * were versions.
 */
TEST_WITH(who_begins_anew_publishes_keys_up_to_its_old_newest, make_folder, remove_folder)
{
    enum { BEFORE = 6, AFTER = 10 };
    exchange_run publisher;
    uint64_t keys = 0, last_key = 0;
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, BEFORE, 1);
    end(&publisher);
    begin(&publisher, PUBLISHER, true);
    for (uint64_t v = 1; v <= AFTER; v++) {
        publish(&publisher, v, 2);
        const bool key = publisher.exchange->publisher.against == 0;
        keys += key;
        last_key = key ? v : last_key;
    }
    end(&publisher);
    check_all(keys == BEFORE + 1 && last_key == BEFORE + 1);
}

/** Publishes one version, which the last rank cannot write. */
static void publish_but_on_the_last_rank(exchange_run *r, uint64_t version)
{
    const bool last = cod_comm_rank(job) == cod_comm_size(job) - 1;
    /* A file in the folder's place: not even root can write below it. */
    if (last)
        must(rename(at_shard(PUBLISHER, ""), at_shard(PUBLISHER, ".away")) == 0 &&
                     cod_file_write(at_shard(PUBLISHER, ""), "", 0) == COD_OK
                 ? COD_OK
                 : cod_fail(COD_ERR_IO, "cannot break the folder"));
    publish(r, version, 1);
    if (last)
        must(unlink(at_shard(PUBLISHER, "")) == 0 && rename(at_shard(PUBLISHER, ".away"), at_shard(PUBLISHER, "")) == 0
                 ? COD_OK
                 : cod_fail(COD_ERR_IO, "cannot mend the folder"));
}

/** One rank's storage fails for one version; the others know of nothing but what they are told. */
TEST_WITH(a_version_that_could_not_be_written_makes_a_key, make_folder, remove_folder)
{
    exchange_run publisher, reader;
    const bool last = cod_comm_rank(job) == cod_comm_size(job) - 1;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 3, 1);
    check_held(&reader, 3, 1, 0);
    publish_but_on_the_last_rank(&publisher, 4);
    check_all(run_counters(&publisher).skipped == last);
    tell(&publisher);
    publish(&publisher, 7, 1);
    check_held(&reader, 7, 1, 0);
    check_all(run_counters(&publisher).skipped == last);
    end(&publisher);
    end(&reader);
}

/** It dies before its first publication. */
TEST_WITH(readers_follow_a_publisher_that_hardly_begins_anew, make_folder, remove_folder)
{
    check_begun_anew(0);
}

/** Takes this rank's header, or puts it back. */
static void move_header(bool back)
{
    static void *bytes;
    static size_t count;
    if (back) {
        must(cod_file_write(at_shard(PUBLISHER, "/header"), bytes, count));
    } else {
        free(bytes);
        must(cod_file_read(at_shard(PUBLISHER, "/header"), SIZE_MAX / 2, &bytes, &count));
    }
    must(cod_group_barrier(cod_comm_world(job)));
}

/** Steps until something was refused, or time is up. */
static void read_until_refused(exchange_run *r, uint64_t refused)
{
    const double since = cod_clock_s();
    while (run_sum(r, (double)run_counters(r).rejected) < (double)refused &&
           run_sum(r, cod_clock_s() - since > COD_TEST_PATIENCE_S) == 0)
        step(r);
}

/** A backup brings the header of an older version back: while its publisher lives, and while it is dead. */
TEST_WITH(readers_go_on_after_an_older_header, make_folder, remove_folder)
{
    exchange_run publisher, reader;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 2, 1);
    run_saved saved = run_save(&publisher);
    publish(&publisher, 4, 1);
    move_header(false);
    publish(&publisher, 6, 1);
    check_held(&reader, 6, 1, 0);
    move_header(true);
    read_until_refused(&reader, 1);
    publish(&publisher, 7, 1);
    check_held(&reader, 7, 1, 1);

    end(&publisher);
    move_header(true);
    read_until_refused(&reader, 2);
    resume(&publisher, &saved, 2 * PERIOD);
    publish(&publisher, 9, 2);
    check_held(&reader, 9, 2, 2);
    end(&publisher);
    end(&reader);
    for (size_t i = 0; i < saved.count; i++)
        free(saved.data[i]);
}

/** Ranks of the reader that have theirs of a version, which is not complete. */
static int halves_of(exchange_run *r, uint64_t version)
{
    const exchange_pull *pull = &r->exchange->puller.pulls[0];
    return (int)run_sum(r, r->exchange->agreement.pulls[0].phase == EXCHANGE_PULLING && pull->version == version &&
                               pull->standing.done);
}

/**
 * A group dies when one of its ranks has written a version and the other has not, and makes it again, of other weights,
 * while a reader that has the first half waits for the second.
 */
TEST_WITH(halves_of_two_lives_never_meet, make_folder, remove_folder)
{
    exchange_run publisher, reader;
    if (cod_comm_size(job) == 1)
        return;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 3, 1);
    run_saved saved = run_save(&publisher);
    check_held(&reader, 3, 1, 0);
    publish_but_on_the_last_rank(&publisher, 4);
    const double since = cod_clock_s();
    while (halves_of(&reader, 4) < cod_comm_size(job) - 1 &&
           run_sum(&reader, cod_clock_s() - since > COD_TEST_PATIENCE_S) == 0)
        step(&reader);
    check_all(halves_of(&reader, 4) == cod_comm_size(job) - 1);
    end(&publisher);
    resume(&publisher, &saved, 3 * PERIOD);
    publish(&publisher, 4, 2);
    read_until_refused(&reader, 1);
    check_held(&reader, 3, 1, 1);
    publish(&publisher, 5, 2);
    check_held(&reader, 5, 2, 1);
    end(&publisher);
    end(&reader);
    for (size_t i = 0; i < saved.count; i++)
        free(saved.data[i]);
}

TEST_GROUP(job_setup, job_teardown)
