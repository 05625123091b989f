/*
 * Inference on a device that computes while the host goes on: as the backend within, bit for bit, and seldom waiting.
 */
#include "support/late.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "infer/classifier.h"
#include "infer/stream.h"
#include "infer/upscaler.h"
#include "models.h"
#include "ref/ref.h"

#include <stdlib.h>
#include <string.h>

static const cod_backend *const inner_backends[] = {&cod_ref_backend, &cod_cpu_backend};
enum { INNER = 2, VALUES = 5 };

/** Steps that copy their input to their output, and what came of them. */
typedef struct copying {
    const cod_backend *backend;
    cod_device *device;
    cod_view in, out;
    size_t filled, ran, stored; /**< steps so far */
    size_t ahead;               /**< steps filled before one was stored, at most */
    size_t fails_to_store;      /**< this step, counted from 1; 0 = none */
} copying;

static cod_status copying_fill(void *context, size_t step, float *input)
{
    copying *c = context;
    assert_int_equal(step, c->filled++);
    for (size_t i = 0; i < VALUES; i++)
        input[i] = (float)(10 * step + i);
    return COD_OK;
}

static cod_status copying_run(void *context, size_t step)
{
    copying *c = context;
    assert_int_equal(step, c->ran++);
    return c->backend->copy(c->device, NULL, c->out.buffer, 0, c->in.buffer, 0, VALUES * sizeof(float));
}

static cod_status copying_store(void *context, size_t step, const float *output)
{
    copying *c = context;
    assert_int_equal(step, c->stored);
    c->ahead = c->filled - c->stored > c->ahead ? c->filled - c->stored : c->ahead;
    for (size_t i = 0; i < VALUES; i++)
        assert_true(output[i] == (float)(10 * step + i));
    if (++c->stored == c->fails_to_store)
        return cod_fail(COD_ERR_ARGUMENT, "as planned");
    return COD_OK;
}

static cod_stream_steps copying_steps(copying *c)
{
    c->filled = c->ran = c->stored = c->ahead = 0;
    return (cod_stream_steps){c, copying_fill, copying_run, copying_store};
}

static void copying_open(copying *c, const cod_backend *backend, cod_stream *stream)
{
    const cod_shape shape = {1, 1, 1, VALUES};
    cod_buffer *in, *out;
    *c = (copying){.backend = backend};
    assert_ok(backend->open(NULL, &c->device));
    assert_ok(backend->buffer_create(c->device, VALUES * sizeof(float), &in));
    assert_ok(backend->buffer_create(c->device, VALUES * sizeof(float), &out));
    c->in = cod_view_dense(in, 0, COD_F32, shape);
    c->out = cod_view_dense(out, 0, COD_F32, shape);
    assert_ok(cod_stream_init(stream, backend, c->device, c->in, c->out));
}

static void copying_close(copying *c, cod_stream *stream)
{
    cod_stream_clear(stream);
    c->backend->buffer_destroy(c->device, c->in.buffer);
    c->backend->buffer_destroy(c->device, c->out.buffer);
    c->backend->close(c->device);
}

/** One step's input is filled before the result of the one before is waited for, and only results are waited for. */
TEST(a_stream_is_one_step_ahead)
{
    enum { STEPS = 50 };
    copying c;
    cod_stream stream;
    copying_open(&c, cod_late_wrap(&cod_ref_backend), &stream);
    for (size_t steps = 0; steps <= STEPS; steps = 3 * steps + 1) {
        const cod_stream_steps work = copying_steps(&c);
        const size_t before = cod_late_crossings();
        assert_ok(cod_stream_run(&stream, &work, steps));
        assert_in_range(cod_late_crossings() - before, 0, steps);
        assert_int_equal(c.stored, steps);
        assert_int_equal(c.ahead, steps < 2 ? steps : 2);
    }
    copying_close(&c, &stream);
    cod_test_assert_none(cod_late_violations, "on late");
}

TEST(what_runs_at_once_is_done_step_by_step)
{
    copying c;
    cod_stream stream;
    copying_open(&c, &cod_ref_backend, &stream);
    const cod_stream_steps work = copying_steps(&c);
    assert_ok(cod_stream_run(&stream, &work, 7));
    assert_int_equal(c.stored, 7);
    assert_int_equal(c.ahead, 1);
    copying_close(&c, &stream);
}

TEST(a_stream_that_failed_runs_again)
{
    copying c;
    cod_stream stream;
    copying_open(&c, cod_late_wrap(&cod_ref_backend), &stream);
    for (size_t failing = 1; failing <= 6; failing++) {
        cod_stream_steps work = copying_steps(&c);
        c.fails_to_store = failing;
        assert_fails(COD_ERR_ARGUMENT, "as planned", cod_stream_run(&stream, &work, 6));
        assert_int_equal(c.stored, failing);
        work = copying_steps(&c);
        c.fails_to_store = 0;
        assert_ok(cod_stream_run(&stream, &work, 5));
        assert_int_equal(c.stored, 5);
    }
    copying_close(&c, &stream);
    cod_test_assert_none(cod_late_violations, "on late");
}

/** A model on a backend. */
typedef struct placed {
    const cod_backend *backend;
    cod_device *device;
    cod_weights weights;
} placed;

static void place(placed *p, const cod_backend *backend, const cod_saved_model *saved)
{
    *p = (placed){.backend = backend};
    assert_ok(backend->open(&(cod_device_options){.threads = 1}, &p->device));
    assert_ok(cod_weights_init(&p->weights, backend, p->device, saved->model.graph, COD_F32, false));
    assert_ok(cod_weights_upload(&p->weights, saved->values));
}

static void unplace(placed *p)
{
    cod_weights_clear(&p->weights);
    p->backend->close(p->device);
}

/** Upscales pictures of two heights and the first again, one behind the other in `high`; free(). */
static float *upscale_thrice(const cod_backend *backend, const cod_saved_model *saved, int64_t tile, size_t *count)
{
    enum { WIDTH = 9, PIXEL = 3 * 16 };
    static const int64_t heights[] = {230, 61, 230};
    placed p;
    cod_upscaler *upscaler;
    float *low = test_noise(230 * WIDTH * 3, 1), *high = malloc((230 + 61 + 230) * WIDTH * PIXEL * sizeof *high);
    assert_non_null(high);
    place(&p, backend, saved);
    const cod_upscaler_options options = {COD_PRECISION_F32, tile};
    assert_ok(cod_upscaler_create(&saved->model, &p.weights, &options, &upscaler));
    *count = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_ok(cod_upscaler_run_f32(upscaler, low, WIDTH, heights[i], high + *count));
        *count += (size_t)heights[i] * WIDTH * PIXEL;
        assert_true(tile == 512 || cod_upscaler_parts(upscaler, WIDTH, heights[i]) > 1 || heights[i] == 61);
    }
    cod_upscaler_destroy(upscaler);
    unplace(&p);
    free(low);
    return high;
}

/** Bands, tiles and whole pictures. */
TEST(pictures_are_those_of_the_inner_backend)
{
    static const int64_t tiles[] = {0, 11, 512};
    cod_saved_model saved = test_srresnet(5);
    for (size_t b = 0; b < INNER; b++) {
        for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++) {
            size_t count, late_count;
            float *expected = upscale_thrice(inner_backends[b], &saved, tiles[t], &count);
            float *late = upscale_thrice(cod_late_wrap(inner_backends[b]), &saved, tiles[t], &late_count);
            assert_int_equal(count, late_count);
            if (memcmp(late, expected, count * sizeof *late) != 0)
                fail_msg("%s, tiles of %d: differs", inner_backends[b]->name, (int)tiles[t]);
            free(late);
            free(expected);
            cod_test_assert_none(cod_late_violations, "on late");
        }
    }
    cod_saved_model_clear(&saved);
}

/**
 * Where the program is compiled and its weights are packed, a band costs the host one wait, for the result of one
 * before.
 */
TEST(bands_wait_for_results_alone)
{
    enum { WIDTH = 9, HEIGHT = 1000 };
    placed p;
    cod_upscaler *upscaler;
    cod_saved_model saved = test_srresnet(6);
    float *low = test_noise(HEIGHT * WIDTH * 3, 2), *high = malloc(HEIGHT * WIDTH * 3 * 16 * sizeof *high);
    place(&p, cod_late_wrap(&cod_ref_backend), &saved);
    const cod_upscaler_options options = {.precision = COD_PRECISION_F32};
    assert_ok(cod_upscaler_create(&saved.model, &p.weights, &options, &upscaler));
    assert_ok(cod_upscaler_run_f32(upscaler, low, WIDTH, HEIGHT, high));
    const size_t before = cod_late_crossings(), bands = cod_upscaler_parts(upscaler, WIDTH, HEIGHT);
    assert_true(bands > 10);
    assert_ok(cod_upscaler_run_f32(upscaler, low, WIDTH, HEIGHT, high));
    assert_in_range(cod_late_crossings() - before, 0, bands);
    cod_upscaler_destroy(upscaler);
    unplace(&p);
    cod_saved_model_clear(&saved);
    free(low);
    free(high);
    cod_test_assert_none(cod_late_violations, "on late");
}

static cod_classification classify(const cod_backend *backend, const cod_saved_model *saved,
                                   const cod_labelled *labelled)
{
    placed p;
    cod_classifier *classifier;
    cod_classification result;
    place(&p, backend, saved);
    assert_ok(cod_classifier_create(&saved->model, &p.weights, COD_F32, cod_labelled_shape(labelled), 7, &classifier));
    for (int i = 0; i < 2; i++) {
        if (i > 0)
            cod_classification_clear(&result);
        assert_ok(cod_classifier_evaluate(classifier, labelled, COD_SPLIT_VAL, 100, &result));
    }
    cod_classifier_destroy(classifier);
    unplace(&p);
    return result;
}

TEST(classes_are_those_of_the_inner_backend)
{
    cod_arena arena = {0};
    cod_data_options options;
    cod_labelled *labelled;
    cod_saved_model saved =
        test_model("mlp", (const cod_st_text[]){TEST_SIZES(32, 32, 3, 10), {"hidden", "16"}, {NULL, NULL}}, 7);
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &options, &arena));
    options.kind = COD_DATA_SYNTHETIC;
    options.val_count = 25;
    assert_ok(cod_labelled_open(&options, &(cod_dataset_place){.groups = 1}, &labelled));
    for (size_t b = 0; b < INNER; b++) {
        cod_classification expected = classify(inner_backends[b], &saved, labelled);
        cod_classification late = classify(cod_late_wrap(inner_backends[b]), &saved, labelled);
        assert_true(late.count == expected.count && late.count > 7);
        assert_memory_equal(late.predicted, expected.predicted, 3 * late.count * sizeof *late.predicted);
        assert_true(late.cross_entropy == expected.cross_entropy && late.accuracy == expected.accuracy);
        cod_classification_clear(&expected);
        cod_classification_clear(&late);
        cod_test_assert_none(cod_late_violations, "on late");
    }
    cod_labelled_close(labelled);
    cod_saved_model_clear(&saved);
    cod_arena_clear(&arena);
}

/** As a model file keeps them; free(). */
static char *observed_ranges(const cod_backend *backend, const cod_saved_model *saved, const cod_image *picture)
{
    placed p;
    cod_upscaler *upscaler;
    char *text;
    place(&p, backend, saved);
    const cod_upscaler_options options = {.precision = COD_PRECISION_INT8};
    assert_ok(cod_upscaler_create(&saved->model, &p.weights, &options, &upscaler));
    for (int i = 0; i < 2; i++)
        assert_ok(cod_upscaler_calibrate(upscaler, picture));
    assert_ok(cod_upscaler_format_int8(upscaler, &text));
    cod_upscaler_destroy(upscaler);
    unplace(&p);
    return text;
}

TEST(ranges_are_those_of_the_inner_backend)
{
    cod_saved_model saved =
        test_model("srresnet", (const cod_st_text[]){{"blocks", "2"}, {"channels", "16"}, {NULL, NULL}}, 8);
    cod_image picture;
    assert_ok(cod_image_init(&picture, 21, 17, 3, 8));
    for (size_t i = 0; i < (size_t)21 * 17 * 3; i++)
        ((uint8_t *)picture.pixels)[i] = (uint8_t)(37 * i % 251);
    char *expected = observed_ranges(&cod_ref_backend, &saved, &picture);
    char *late = observed_ranges(cod_late_wrap(&cod_ref_backend), &saved, &picture);
    assert_string_equal(late, expected);
    free(expected);
    free(late);
    cod_image_clear(&picture);
    cod_saved_model_clear(&saved);
    cod_test_assert_none(cod_late_violations, "on late");
}
