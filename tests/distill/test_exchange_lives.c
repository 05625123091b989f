/* A publisher that dies and goes on from an older checkpoint, while its reader lives on and holds what it made before. */
#include "comm/job.h"

#include "core/trace.h"
#include "distill/exchange_run.h"
#include "support/folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PERIOD = 10, COUNT = 2000, STATISTICS = 3, RUN_NAME = 7, PATIENCE_S = 20 };
enum { PUBLISHER, READER, DELTA = 4 /* exchange.codec */ };

static float values[COUNT + STATISTICS];

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
    const int sizes[] = {1, 1};
    *r = (exchange_run){.options = run_options(PERIOD)};
    r->options.transport = COD_TRANSPORT_FILE;
    r->options.directory = cod_test_at("x");
    r->options.anew = anew;
    r->options.codec = DELTA;
    r->options.key_every = 1000; /* a reader that loses its way stays lost */
    r->options.slots = 16;
    for (int g = 0; g < 2; g++)
        r->models[g] = (cod_exchange_model){.count = COUNT, .state_count = STATISTICS, .hash = 5};
    must(cod_group_create_part(job, sizes, 2, group, &r->group));
    must(cod_exchange_create(job, r->group, &r->options, r->models, RUN_NAME, &r->exchange));
}

static void end(exchange_run *r)
{
    must(cod_exchange_destroy(r->exchange));
    cod_group_destroy(r->group);
}

/** Publishes up to and with `last`, each before the next. */
static void publish(exchange_run *r, uint64_t last, int life)
{
    const cod_exchange_array *arrays;
    size_t count;
    for (uint64_t v = (uint64_t)r->step / PERIOD + 1; v <= last; v++) {
        r->step = (int64_t)v * PERIOD;
        fill(v, life);
        must(cod_exchange_publish(r->exchange, values, values + COUNT, r->step));
        must(cod_exchange_state(r->exchange, &arrays, &count)); /* waits until it is stored */
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
    r->step = step;
}

/** Steps until the version is held, or time is up. */
static cod_exchange_checkpoint read_until(exchange_run *r, uint64_t version)
{
    const double since = cod_clock_s();
    cod_exchange_checkpoint held = {0};
    while (held.version < version && cod_clock_s() - since < PATIENCE_S) {
        double flags[COD_EXCHANGE_FLAGS];
        r->step++;
        must(cod_exchange_advance(r->exchange, r->step));
        cod_exchange_flags_out(r->exchange, flags);
        must(cod_exchange_flags_in(r->exchange, r->step + RUN_AGREEMENT_DELAY, flags));
        cod_exchange_read_checkpoint(r->exchange, 0, &held);
        usleep(200);
    }
    return held;
}

static void check_held(exchange_run *r, uint64_t version, int life)
{
    const cod_exchange_checkpoint held = read_until(r, version);
    assert_int_equal(held.version, version);
    fill(version, life);
    assert_memory_equal(held.values + COUNT, values + COUNT, STATISTICS * sizeof(float));
    for (int i = 0; i < COUNT; i++)
        assert_true(fabsf(held.values[i] - values[i]) < 0.02F); /* 43 dB of weights of about one */
    assert_int_equal(run_counters(r).rejected, 0);
}

/** Dies after version 6, resumes after 2, dies again before it is where it was, and resumes after 2 once more. */
static void readers_follow_a_publisher_through_deaths(void **state)
{
    (void)state;
    exchange_run publisher, reader;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 2, 1);
    run_saved saved = run_save(&publisher);
    publish(&publisher, 6, 1);
    check_held(&reader, 6, 1);
    end(&publisher);

    resume(&publisher, &saved, 2 * PERIOD);
    publish(&publisher, 4, 2);
    end(&publisher);

    resume(&publisher, &saved, 2 * PERIOD);
    publish(&publisher, 9, 3);
    check_held(&reader, 9, 3);
    end(&publisher);
    end(&reader);
    for (size_t i = 0; i < saved.count; i++)
        free(saved.data[i]);
}

/** Its part is begun anew while the reader holds what the run before made. */
static void readers_follow_a_publisher_that_begins_anew(void **state)
{
    (void)state;
    exchange_run publisher, reader;
    begin(&reader, READER, true);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 3, 1);
    check_held(&reader, 3, 1);
    end(&publisher);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 1, 2);
    end(&publisher);
    begin(&publisher, PUBLISHER, true);
    publish(&publisher, 6, 3);
    check_held(&reader, 6, 3);
    end(&publisher);
    end(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_follow_a_publisher_through_deaths, cod_test_folder_make,
                                        cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(readers_follow_a_publisher_that_begins_anew, cod_test_folder_make,
                                        cod_test_folder_remove),
    };
    return cmocka_run_group_tests(tests, job_setup, job_teardown);
}
