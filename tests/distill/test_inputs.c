/* What teachers and student are compared on when it is not the mini-batch. */
#include "support/late.h"
#include "support/test.h"

#include "distill/inputs.h"
#include "ref/ref.h"

#include <math.h>
#include <string.h>

enum { N = 3, SIDE = 4, SCALE = 2, C = 3, ONE = SIDE * SIDE * C, LARGE_ONE = ONE * SCALE * SCALE };

typedef struct fixture {
    cod_train_session session;
    cod_mini_batch batch;
    cod_view prediction;
    cod_buffer *buffers[3];
    float input[N * ONE], truth[N * LARGE_ONE], predicted[N * LARGE_ONE];
} fixture;

/** Input, truth and prediction; every value its own, in 0 … 1. */
static void fixture_open(fixture *f, const cod_backend *backend)
{
    const cod_shape shapes[] = {
        {N, SIDE, SIDE, C}, {N, SCALE * SIDE, SCALE * SIDE, C}, {N, SCALE * SIDE, SCALE * SIDE, C}};
    float *values[] = {f->input, f->truth, f->predicted};
    cod_view views[3];
    f->session = (cod_train_session){.backend = backend};
    assert_ok(backend->open(NULL, &f->session.device));
    for (size_t i = 0; i < 3; i++) {
        const size_t count = (size_t)cod_shape_count(shapes[i]);
        for (size_t k = 0; k < count; k++)
            values[i][k] = (float)(k + i * 7919) / 16384;
        assert_ok(backend->buffer_create(f->session.device, count * sizeof(float), &f->buffers[i]));
        views[i] = cod_view_dense(f->buffers[i], 0, COD_F32, shapes[i]);
        assert_ok(backend->upload(f->session.device, NULL, f->buffers[i], 0, values[i], count * sizeof(float)));
    }
    f->batch = (cod_mini_batch){f->input, f->truth};
    f->session.input = views[0];
    f->session.truth = views[1];
    f->prediction = views[2];
}

static void fixture_close(fixture *f)
{
    for (size_t i = 0; i < 3; i++)
        f->session.backend->buffer_destroy(f->session.device, f->buffers[i]);
    f->session.backend->close(f->session.device);
}

static void read_back(const fixture *f, cod_view view, float *out)
{
    assert_ok(f->session.backend->download(f->session.device, NULL, out, view.buffer, view.offset,
                                           (size_t)cod_shape_count(view.shape) * sizeof *out));
}

static cod_rng stream(uint64_t step)
{
    return cod_rng_open(5, 0, 0, step, COD_RNG_MIXUP, 0);
}

TEST(mixtures_lie_between_two_examples)
{
    fixture f;
    cod_distill_inputs inputs;
    float mixed[N * ONE], again[N * ONE];
    fixture_open(&f, cod_late_chosen(&cod_ref_backend));
    assert_ok(cod_distill_inputs_init(&inputs, COD_DISTILL_INPUTS_MIXUP, &f.session, f.prediction));
    cod_rng rng = stream(1), same = stream(1), other = stream(2);
    assert_ok(cod_distill_inputs_replace(&inputs, &f.batch, &rng));
    read_back(&f, f.session.input, mixed);
    for (size_t i = 0; i < N; i++) {
        bool found = false;
        for (size_t k = 1; k < N && !found; k++) {
            const float *a = f.input + i * ONE, *b = f.input + (i + k) % N * ONE;
            const float share = (mixed[i * ONE] - b[0]) / (a[0] - b[0]);
            found = share >= 0 && share < 1;
            for (size_t v = 0; v < ONE; v++)
                found = found && fabsf(share * a[v] + (1 - share) * b[v] - mixed[i * ONE + v]) < 1e-5f;
        }
        assert_true(found);
    }
    assert_ok(cod_distill_inputs_turn(&inputs));
    assert_ok(cod_distill_inputs_restore(&inputs));
    read_back(&f, f.session.input, again);
    assert_memory_equal(again, f.input, sizeof again);
    assert_ok(cod_distill_inputs_replace(&inputs, &f.batch, &same));
    read_back(&f, f.session.input, again);
    assert_memory_equal(again, mixed, sizeof again);
    assert_ok(cod_distill_inputs_restore(&inputs));
    assert_ok(cod_distill_inputs_replace(&inputs, &f.batch, &other));
    read_back(&f, f.session.input, again);
    assert_memory_not_equal(again, mixed, sizeof again);
    cod_distill_inputs_clear(&inputs);
    fixture_close(&f);
}

/** Where pixel (x, y) of what was turned comes from, written in another way than the code's. */
static size_t source_of(int32_t turn, int side, int x, int y)
{
    int row = y, column = x;
    if (turn & 1)
        column = side - 1 - column;
    if (turn & 2)
        row = side - 1 - row;
    if (turn & 4) {
        const int kept = row;
        row = column;
        column = kept;
    }
    return (size_t)(row * side + column);
}

static void check_turned(int32_t turn, int side, const float *from, const float *to)
{
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int c = 0; c < C; c++) {
                const float before = from[source_of(turn, side, x, y) * C + (size_t)c];
                const float after = to[(size_t)(y * side + x) * C + (size_t)c];
                assert_true((turn & 8 ? 1 - before : before) == after);
            }
}

/** The crop's place in the truth, or -1. */
static int find_crop(const float *truth, const float *crop)
{
    for (int place = 0; place < (SCALE - 1) * SIDE * SCALE * SIDE + (SCALE - 1) * SIDE + 1; place++)
        if (place % (SCALE * SIDE) <= (SCALE - 1) * SIDE && truth[place * C] == crop[0]) {
            for (int y = 0; y < SIDE; y++)
                assert_memory_equal(truth + (place + y * SCALE * SIDE) * C, crop + y * SIDE * C,
                                    SIDE * C * sizeof *crop);
            return place;
        }
    return -1;
}

TEST(crops_of_the_truth_are_turned_with_their_prediction)
{
    fixture f;
    cod_distill_inputs inputs;
    float crops[N * ONE], seen[N * ONE], turned[N * LARGE_ONE];
    uint32_t met = 0, lefts = 0, tops = 0;
    fixture_open(&f, cod_late_chosen(&cod_ref_backend));
    assert_ok(cod_distill_inputs_init(&inputs, COD_DISTILL_INPUTS_NO_REFERENCE, &f.session, f.prediction));
    for (uint64_t step = 0; step < 60; step++) {
        cod_rng rng = stream(step);
        assert_ok(cod_distill_inputs_replace(&inputs, &f.batch, &rng));
        read_back(&f, f.session.input, crops);
        assert_ok(f.session.backend->upload(f.session.device, NULL, f.prediction.buffer, 0, f.predicted,
                                            sizeof f.predicted)); /* what a teacher would write here */
        assert_ok(cod_distill_inputs_turn(&inputs));
        read_back(&f, f.session.input, seen);
        read_back(&f, f.prediction, turned);
        for (size_t i = 0; i < N; i++) {
            const int place = find_crop(f.truth + i * LARGE_ONE, crops + i * ONE);
            assert_true(place >= 0);
            lefts |= 1u << place % (SCALE * SIDE);
            tops |= 1u << place / (SCALE * SIDE);
            check_turned(inputs.turns[i], SIDE, crops + i * ONE, seen + i * ONE);
            check_turned(inputs.turns[i], SCALE * SIDE, f.predicted + i * LARGE_ONE, turned + i * LARGE_ONE);
            met |= 1u << inputs.turns[i];
        }
        assert_ok(cod_distill_inputs_restore(&inputs));
        read_back(&f, f.session.input, seen);
        assert_memory_equal(seen, f.input, sizeof seen);
    }
    assert_int_equal(met, 0xfffe);                                /* all turns but none */
    assert_int_equal(lefts, (1 << ((SCALE - 1) * SIDE + 1)) - 1); /* all columns and rows where a crop fits */
    assert_int_equal(tops, lefts);
    cod_distill_inputs_clear(&inputs);
    fixture_close(&f);
}

enum {
    ROUNDS = 3,
    STEPS = ROUNDS * COD_SLOTS,
    SEEN = N * ONE,
    PREDICTED = N * LARGE_ONE,
    RESULTS = SEEN + PREDICTED + SEEN /* what the student sees and is compared with, and the mini-batch put back */
};

/** Copies a view to, or from, the place of a value in a buffer of values. */
static void copy(const fixture *f, cod_buffer *values, size_t at, cod_view view, bool from)
{
    const size_t offset = at * sizeof(float), bytes = cod_view_span_bytes(&view);
    cod_buffer *target = from ? view.buffer : values, *source = from ? values : view.buffer;
    assert_ok(
        f->session.backend->copy(f->session.device, NULL, target, from ? 0 : offset, source, from ? offset : 0, bytes));
}

/** A mini-batch of a step, all of it queued; leaves RESULTS in `kept`. @param taught  what a teacher would predict */
static void queue_step(const fixture *f, cod_distill_inputs *inputs, size_t step, cod_buffer *taught, cod_buffer *kept)
{
    cod_rng rng = stream(step);
    const size_t at = step * RESULTS;
    assert_ok(cod_distill_inputs_replace(inputs, &f->batch, &rng));
    copy(f, taught, 0, f->prediction, true);
    assert_ok(cod_distill_inputs_turn(inputs));
    copy(f, kept, at, f->session.input, false);
    copy(f, kept, at + SEEN, f->prediction, false);
    assert_ok(cod_distill_inputs_restore(inputs));
    copy(f, kept, at + SEEN + PREDICTED, f->session.input, false);
}

/**
 * While a device does nothing, the host queues as many mini-batches as there are slots.
 *
 * @param[out] results  [STEPS][RESULTS]
 */
static void run_steps(fixture *f, int kind, float *results)
{
    const cod_backend *backend = f->session.backend;
    cod_device *device = f->session.device;
    cod_distill_inputs inputs;
    cod_buffer *kept, *taught;
    assert_ok(cod_distill_inputs_init(&inputs, kind, &f->session, f->prediction));
    assert_ok(backend->buffer_create(device, STEPS * RESULTS * sizeof *results, &kept));
    assert_ok(backend->buffer_create(device, sizeof f->predicted, &taught));
    assert_ok(backend->upload(device, NULL, taught, 0, f->predicted, sizeof f->predicted));
    for (size_t step = 0; step < STEPS; step += COD_SLOTS) {
        assert_ok(cod_queue_finish(backend, device, NULL));
        const size_t crossings = cod_late_crossings();
        if (backend->queue_create != NULL)
            cod_late_hold(device, true);
        for (size_t i = 0; i < COD_SLOTS; i++)
            queue_step(f, &inputs, step + i, taught, kept);
        assert_int_equal(cod_late_crossings(), crossings);
        if (backend->queue_create != NULL)
            cod_late_hold(device, false);
    }
    assert_ok(backend->download(device, NULL, results, kept, 0, STEPS * RESULTS * sizeof *results));
    backend->buffer_destroy(device, kept);
    backend->buffer_destroy(device, taught);
    cod_distill_inputs_clear(&inputs);
}

TEST(a_device_is_not_waited_for)
{
    static float results[2][STEPS * RESULTS];
    for (int kind = COD_DISTILL_INPUTS_MIXUP; kind <= COD_DISTILL_INPUTS_NO_REFERENCE; kind++) {
        for (int late = 0; late < 2; late++) {
            fixture f;
            fixture_open(&f, late ? cod_late_wrap(&cod_ref_backend) : &cod_ref_backend);
            run_steps(&f, kind, results[late]);
            for (size_t step = 0; step < STEPS; step++)
                assert_memory_equal(results[late] + step * RESULTS + SEEN + PREDICTED, f.input, sizeof f.input);
            fixture_close(&f);
        }
        assert_memory_equal(results[1], results[0], sizeof results[0]);
        assert_memory_not_equal(results[0], results[0] + RESULTS, SEEN * sizeof results[0][0]);
    }
    cod_test_assert_none(cod_late_violations, "on late");
}

TEST(what_cannot_be_made_is_refused)
{
    fixture f;
    cod_distill_inputs inputs;
    fixture_open(&f, cod_late_chosen(&cod_ref_backend));
    f.session.input.shape.n = 1;
    assert_fails(COD_ERR_ARGUMENT, "set data.batch above 1",
                 cod_distill_inputs_init(&inputs, COD_DISTILL_INPUTS_MIXUP, &f.session, f.prediction));
    f.session.truth.shape.h = SIDE - 1;
    assert_fails(COD_ERR_ARGUMENT, "crops 4x4 pixels out of a truth of 8x3",
                 cod_distill_inputs_init(&inputs, COD_DISTILL_INPUTS_NO_REFERENCE, &f.session, f.prediction));
    fixture_close(&f);
}
