/* Training steps that are fed in each of the ways, beside steps on a mini-batch that stays. */
#include "tools/bench/copy.h"

#include "core/queue.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "tools/bench/ops.h"
#include "train/feed.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 20, BYTE_VALUES = 256, AHEAD = 2, TURNS = 8 };

/** A mini-batch as it travels in f32 and in bytes, and where steps wait. */
typedef struct feeding {
    cod_bench_training *training;
    cod_feed feeds[COD_COPY_WAYS];  /**< [pageable] stays zeroed */
    void *parts[2][COD_FEED_PARTS]; /**< f32; bytes */
    float *tables[2];
    cod_event *done[AHEAD];
} feeding;

static cod_status fill_floats(const cod_view *view, uint32_t part, void **out)
{
    const size_t count = (size_t)cod_shape_count(view->shape);
    float *values = malloc(count * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    *out = values;
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, part);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)cod_rng_uniform(&rng);
    return COD_OK;
}

static cod_status fill_bytes(const cod_view *view, uint32_t part, void **out)
{
    const size_t count = (size_t)cod_shape_count(view->shape);
    uint8_t *values = malloc(count);
    COD_REQUIRE_MEMORY(values);
    *out = values;
    cod_rng rng = cod_rng_open(1, 0, 0, 1, COD_RNG_TEST, part);
    for (size_t i = 0; i < count; i++)
        values[i] = (uint8_t)cod_rng_below(&rng, BYTE_VALUES);
    return COD_OK;
}

/** What bytes stand for: 0 to 1. */
static cod_status fill_table(const cod_view *view, float **out)
{
    const int64_t channels = view->shape.c;
    *out = malloc((size_t)(BYTE_VALUES * channels) * sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    for (int64_t i = 0; i < BYTE_VALUES * channels; i++)
        (*out)[i] = (float)(i / channels) / (BYTE_VALUES - 1);
    return COD_OK;
}

static cod_status fill(feeding *f, const cod_view views[2], bool pictures)
{
    const int64_t n = views[0].shape.n;
    for (uint32_t i = 0; i < 2; i++) {
        COD_TRY(fill_floats(&views[i], i, &f->parts[0][i]));
        if (i == COD_FEED_TRUTH && !pictures) { /* classes travel as they are */
            COD_TRY(fill_floats(&views[i], i, &f->parts[1][i]));
            continue;
        }
        COD_TRY(fill_bytes(&views[i], i, &f->parts[1][i]));
        COD_TRY(fill_table(&views[i], &f->tables[i]));
    }
    int32_t *turns = malloc((size_t)n * sizeof *turns);
    COD_REQUIRE_MEMORY(turns);
    for (int64_t i = 0; i < n; i++)
        turns[i] = (int32_t)(i % TURNS);
    f->parts[1][COD_FEED_TURNS] = turns;
    return COD_OK;
}

static cod_status open_feeds(feeding *f)
{
    static const cod_data_transfer transfers[COD_COPY_WAYS] = {[COD_COPY_PINNED] = COD_TRANSFER_PINNED,
                                                               [COD_COPY_MAPPED] = COD_TRANSFER_MAPPED,
                                                               [COD_COPY_UINT8] = COD_TRANSFER_UINT8};
    const cod_train_session *session = &f->training->session;
    const cod_view views[] = {session->input, session->truth};
    const bool pictures = session->recipe.model.kind->task == COD_TASK_SUPER_RESOLUTION;
    COD_TRY(fill(f, views, pictures));
    const cod_samples samples = {.input_table = f->tables[0], .target_table = f->tables[1]};
    for (cod_copy_way way = COD_COPY_PINNED; way < COD_COPY_WAYS; way++)
        if (cod_copy_way_exists(session->backend, session->device, way))
            COD_TRY(cod_feed_init(&f->feeds[way], session->backend, session->device, views, &samples, transfers[way]));
    for (int i = 0; i < AHEAD; i++)
        COD_TRY(cod_event_create(session->backend, session->device, &f->done[i]));
    return COD_OK;
}

static void close_feeds(feeding *f)
{
    for (int way = 0; way < COD_COPY_WAYS; way++)
        if (f->feeds[way].backend != NULL)
            cod_feed_clear(&f->feeds[way]);
    for (int i = 0; i < AHEAD; i++)
        cod_event_destroy(f->training->session.backend, f->done[i]);
    for (int i = 0; i < 2; i++) {
        for (int part = 0; part < COD_FEED_PARTS; part++)
            free(f->parts[i][part]);
        free(f->tables[i]);
    }
}

static cod_status feed(feeding *f, cod_copy_way way)
{
    const cod_train_session *session = &f->training->session;
    const cod_view views[] = {session->input, session->truth};
    if (way != COD_COPY_PAGEABLE)
        return cod_feed_write(&f->feeds[way], (const void *const *)f->parts[way == COD_COPY_UINT8]);
    for (int i = 0; i < 2; i++)
        COD_TRY(session->backend->upload(session->device, NULL, views[i].buffer, views[i].offset, f->parts[0][i],
                                         cod_view_span_bytes(&views[i])));
    return COD_OK;
}

/**
 * @param way  COD_COPY_WAYS = nothing is fed.
 * @param steps  false = nothing else is done.
 * @param[out] ms  of one, in the mean
 */
static cod_status time_steps(feeding *f, cod_copy_way way, bool steps, double *ms)
{
    cod_bench_training *t = f->training;
    const cod_backend *backend = t->session.backend;
    COD_TRY(cod_bench_training_finish(t));
    const double begin_s = cod_clock_s();
    for (int i = 0; i < STEPS; i++) {
        if (way < COD_COPY_WAYS)
            COD_TRY(feed(f, way));
        if (!steps)
            continue;
        COD_TRY(cod_program_run(t->program, NULL, NULL));
        COD_TRY(cod_bench_training_update(t, 0));
        COD_TRY(cod_event_record(backend, f->done[i % AHEAD], NULL));
        COD_TRY(cod_event_wait(backend, f->done[(i + 1) % AHEAD])); /* the step before: as training does */
    }
    COD_TRY(cod_bench_training_finish(t));
    *ms = 1e3 * (cod_clock_s() - begin_s) / STEPS;
    return COD_OK;
}

/** All ways once, and steps without any. */
static cod_status measure_round(feeding *f, cod_copy_steps *round)
{
    const cod_train_session *session = &f->training->session;
    COD_TRY(time_steps(f, COD_COPY_WAYS, true, &round->unfed_ms));
    for (cod_copy_way way = 0; way < COD_COPY_WAYS; way++) {
        round->step_ms[way] = round->transfer_ms[way] = NAN;
        if (!cod_copy_way_exists(session->backend, session->device, way))
            continue;
        COD_TRY(time_steps(f, way, false, &round->transfer_ms[way]));
        COD_TRY(time_steps(f, way, true, &round->step_ms[way]));
    }
    return COD_OK;
}

/** The median of one figure over the rounds; `first` is that of the first round. */
static double median_of(const cod_copy_steps *rounds, int count, const double *first)
{
    double values[COD_BENCH_MAX_REPEATS];
    const size_t offset = (size_t)((const char *)first - (const char *)rounds);
    for (int r = 0; r < count; r++)
        values[r] = *(const double *)(const void *)((const char *)&rounds[r] + offset);
    return cod_median(values, (size_t)count);
}

static void take_medians(const cod_copy_steps *rounds, int count, cod_copy_steps *steps)
{
    steps->unfed_ms = median_of(rounds, count, &rounds->unfed_ms);
    for (int way = 0; way < COD_COPY_WAYS; way++) {
        const bool there = !isnan(rounds->step_ms[way]);
        steps->step_ms[way] = there ? median_of(rounds, count, &rounds->step_ms[way]) : NAN;
        steps->transfer_ms[way] = there ? median_of(rounds, count, &rounds->transfer_ms[way]) : NAN;
    }
}

cod_status cod_copy_measure_steps(cod_bench_training *training, int repeats, cod_copy_steps *steps)
{
    cod_copy_steps rounds[COD_BENCH_MAX_REPEATS];
    feeding f = {.training = training};
    const cod_train_session *session = &training->session;
    *steps =
        (cod_copy_steps){.batch_bytes = cod_view_span_bytes(&session->input) + cod_view_span_bytes(&session->truth)};
    cod_status status = open_feeds(&f);
    for (int r = -1; r < repeats && status == COD_OK; r++)
        status = measure_round(&f, &rounds[r < 0 ? 0 : r]);
    if (status == COD_OK)
        take_medians(rounds, repeats, steps);
    close_feeds(&f);
    return status;
}

double cod_copy_hidden(const cod_copy_steps *steps, cod_copy_way way)
{
    const double seen = (steps->step_ms[way] - steps->unfed_ms) / steps->transfer_ms[way];
    return seen < 0 ? 1 : seen > 1 ? 0 : 1 - seen;
}
