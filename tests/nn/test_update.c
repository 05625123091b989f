/* Updates as recordings: what a step queues by itself; a replay uses the rates, weights and moments of its own step. */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/late.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 8, NETS = 2, STATES = 3 };

static const cod_backend *late;
static cod_backend counting; /**< late, which counts */
static size_t plans, packings, captures, replays;
static size_t summed; /**< calls of double_squares() */

static cod_status count_plan(cod_plan *plan, cod_queue *queue)
{
    plans++;
    return late->plan_run(plan, queue);
}

static cod_status count_packing(cod_device *device, cod_plan *const *some, size_t count, cod_queue *queue)
{
    packings++;
    return late->plans_prepare(device, some, count, queue);
}

static cod_status count_packing_updated(cod_device *device, cod_plan *const *some, size_t count, cod_queue *queue)
{
    packings++;
    return late->plans_prepare_updated(device, some, count, queue);
}

static cod_status count_capture(cod_device *device, cod_queue *queue)
{
    captures++;
    return late->capture_begin(device, queue);
}

static cod_status count_replay(cod_recording *recording, cod_queue *queue)
{
    replays++;
    return late->recording_run(recording, queue);
}

static const cod_backend *backend_at(size_t i)
{
    late = cod_late_wrap(&cod_ref_backend);
    counting = *late;
    counting.plan_run = count_plan;
    counting.plans_prepare = count_packing;
    counting.plans_prepare_updated = count_packing_updated;
    counting.capture_begin = count_capture;
    counting.recording_run = count_replay;
    return i == 0 ? &cod_ref_backend : &counting;
}

/** What is trained: a generator, or a discriminator whose layers use spectrally normalised copies of their weights. */
typedef enum network { GENERATOR, DISCRIMINATOR } network;
enum { NORMALISED_LAYERS = 2 };

typedef struct training {
    cod_arena arena;
    cod_model model;
    cod_value loss;
    test_net net;
    cod_optimiser *optimiser;
} training;

static void make_discriminator(cod_model *model)
{
    assert_ok(cod_graph_create(&model->graph));
    const cod_conv2d_spec spec = {.out_channels = 4, .kernel = 3, .padding = 1, .spectral_norm = true};
    cod_value x = cod_graph_input(model->graph, "input", 3);
    x = cod_graph_conv2d(model->graph, "first", x, spec);
    x = cod_graph_activation(model->graph, x, COD_ACT_LEAKY_RELU, 0.2f);
    model->output = cod_graph_conv2d(model->graph, "second", x, spec);
}

static void training_open(training *t, const cod_backend *backend, network which, const cod_optimiser_options *options)
{
    *t = (training){0};
    if (which == DISCRIMINATOR)
        make_discriminator(&t->model);
    else
        assert_ok(
            net_model("srresnet", "blocks=1 channels=8 scale=2 head_kernel=3 tail_kernel=3", &t->arena, &t->model));
    cod_graph *graph = t->model.graph;
    t->loss = cod_graph_loss(graph, "loss", t->model.output, cod_graph_input_like(graph, "target", t->model.output),
                             (cod_loss_spec){.kind = COD_LOSS_L1, .scalar = "w"});
    const cod_input_shape shape = {"input", {2, 6, 5, 3}};
    const cod_compile_options compile = {.activation = COD_F32, .inputs = &shape, .input_count = 1};
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {t->loss}};
    assert_ok(net_init(&t->net, backend, graph, &compile, &spec, 1, 5));
    assert_ok(cod_executable_set_scalar(t->net.executable, "w", 1));
    assert_ok(cod_optimiser_create(&t->net.weights, 0, options, &t->optimiser));
}

static void training_close(training *t)
{
    cod_optimiser_destroy(t->optimiser);
    net_clear(&t->net);
    cod_model_clear(&t->model);
    cod_arena_clear(&t->arena);
}

static void step(training *t, bool joined, int number, double rate)
{
    assert_ok(net_random_inputs(&t->net, (uint64_t)number));
    plans = packings = captures = replays = 0;
    if (joined) {
        cod_program *program = cod_executable_program(t->net.executable, "train");
        assert_ok(cod_optimiser_run(t->optimiser, program, rate, number));
        return;
    }
    assert_ok(net_run(&t->net, "train"));
    assert_ok(cod_optimiser_step(t->optimiser, rate, number));
}

/** New values by the host, as when a checkpoint is loaded. */
static void load(training *t)
{
    const size_t count = cod_weights_count(&t->net.weights);
    double *values = net_new(count);
    assert_ok(net_read_values(&t->net, values));
    for (size_t i = 0; i < count; i++)
        values[i] *= 0.75;
    assert_ok(net_write_values(&t->net, values));
    free(values);
}

/** Takes some weights over from pinned memory, as a merge or a pull does. */
static void merge(training *t)
{
    const test_net *net = &t->net;
    cod_buffer *pinned;
    assert_ok(net->backend->host_buffer_create(net->device, 16 * sizeof(float), &pinned));
    for (int i = 0; i < 16; i++)
        ((float *)pinned->host)[i] = 0.01f * (float)i;
    assert_ok(cod_weights_take(&t->net.weights, 4, 16, pinned, 0));
    char byte;
    assert_ok(net->backend->download(net->device, NULL, &byte, net->weights.values, 0, 1)); /* the copy is done */
    net->backend->host_buffer_destroy(net->device, pinned);
}

/** Other moments and another average by the host, as when a run goes on. */
static void resume(training *t)
{
    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    for (size_t i = 0; cod_optimiser_state(t->optimiser, i, &name, &buffer, &bytes); i++) {
        float *values = malloc(bytes);
        assert_non_null(values);
        for (size_t k = 0; k < bytes / sizeof(float); k++)
            values[k] = 0.001f * (float)(1 + (k + i) % 5);
        assert_ok(t->net.backend->upload(t->net.device, NULL, buffer, 0, values, bytes));
        free(values);
    }
    cod_optimiser_mark_restored(t->optimiser);
}

/** Whether something other than an update writes weights before a step: load() or merge(). */
static bool writes_by_others(int number)
{
    return number == 4 || number == 5;
}

/** What comes between steps; a rate of its own for each. */
static void meddled_step(training *t, bool joined, int number)
{
    if (number == 3)
        assert_ok(cod_executable_set_scalar(t->net.executable, "w", 0.25f));
    if (number == 4)
        load(t);
    if (number == 5)
        merge(t);
    if (number == 6)
        resume(t);
    step(t, joined, number, 0.02 / number);
}

static void assert_same(const training both[NETS])
{
    const size_t count = cod_weights_count(&both[0].net.weights);
    double *values[NETS];
    for (size_t i = 0; i < NETS; i++) {
        values[i] = net_new(count);
        assert_ok(net_read_values(&both[i].net, values[i]));
    }
    assert_memory_equal(values[0], values[1], count * sizeof(double));
    for (size_t s = 0; s < STATES; s++) {
        const char *name;
        size_t bytes = 0;
        void *states[NETS] = {NULL, NULL};
        for (size_t i = 0; i < NETS; i++) {
            cod_buffer *buffer;
            if (!cod_optimiser_state(both[i].optimiser, s, &name, &buffer, &bytes))
                continue;
            states[i] = malloc(bytes);
            assert_non_null(states[i]);
            assert_ok(both[i].net.backend->download(both[i].net.device, NULL, states[i], buffer, 0, bytes));
        }
        assert_int_equal(states[0] == NULL, states[1] == NULL);
        if (states[0] != NULL && memcmp(states[0], states[1], bytes) != 0)
            fail_msg("%s differs", name);
        free(states[0]), free(states[1]);
    }
    free(values[0]), free(values[1]);
}

/**
 * What late queues in each step but the first: runs of plans outside of recordings, and replays.
 *
 * @param joined  a step is one call, else two
 */
static void check(network which, const cod_optimiser_options *options, bool joined, size_t plans_by_themselves,
                  size_t recordings)
{
    training both[NETS];
    const size_t normalised = which == DISCRIMINATOR ? NORMALISED_LAYERS : 0;
    for (size_t i = 0; i < NETS; i++) {
        training_open(&both[i], backend_at(i), which, options);
        for (int s = 1; s <= STEPS; s++) {
            meddled_step(&both[i], joined && i > 0, s);
            if (i == 0)
                continue;
            /* The second step records the program once more, with the preparation of what the first update wrote. */
            assert_int_equal(captures, s == 1 ? recordings : s == 2);
            assert_int_equal(replays, recordings);
            if (s > 2)
                assert_int_equal(plans, plans_by_themselves + (writes_by_others(s) ? normalised : 0));
            assert_int_equal(packings, s <= 2 || writes_by_others(s));
        }
    }
    assert_same(both);
    for (size_t i = 0; i < NETS; i++)
        training_close(&both[i]);
    cod_test_assert_none(cod_late_violations, "on late");
}

TEST(a_replayed_update_has_the_bits_of_ref)
{
    check(GENERATOR,
          &(cod_optimiser_options){
              .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 0.1, .ema_decay = 0.9},
          false, 0, 2);
    check(GENERATOR, &(cod_optimiser_options){.kind = COD_OPT_SGD, .momentum = 0.9, .clip_norm = 0.1}, false, 0, 2);
}

/** One plan is one launch, of which a recording saves nothing. */
TEST(an_update_of_one_plan_is_not_recorded)
{
    check(GENERATOR, &(cod_optimiser_options){.kind = COD_OPT_SGD, .momentum = 0.9}, false, 1, 1);
}

/** Program and update by one call are one recording; the other network's step is two calls. */
TEST(a_step_by_one_call_is_one_recording)
{
    check(GENERATOR, &(cod_optimiser_options){.kind = COD_OPT_SGD, .momentum = 0.9}, true, 0, 1);
    check(GENERATOR,
          &(cod_optimiser_options){
              .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 0.1, .ema_decay = 0.9},
          true, 0, 1);
}

/** Spectrally normalised weights, and the states u and v that move in each run, are made within the recording. */
TEST(normalised_weights_are_made_in_the_recording)
{
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    check(DISCRIMINATOR, &adam, false, 1, 1);
    check(DISCRIMINATOR, &adam, true, 0, 1);
}

static cod_status double_squares(void *context, double *squares)
{
    (*(size_t *)context)++;
    *squares *= 2;
    return COD_OK;
}

/** The host acts between the norm and the rest, so that a step by one call is no other than by two. */
TEST(norms_over_parts_are_summed_in_each_step)
{
    for (int joined = 0; joined < 2; joined++) {
        summed = 0;
        check(GENERATOR,
              &(cod_optimiser_options){.kind = COD_OPT_SGD,
                                       .momentum = 0.9,
                                       .clip_norm = 0.1,
                                       .sum_squares = double_squares,
                                       .sum_context = &summed},
              joined, 2, 1);
        assert_int_equal(summed, NETS * STEPS);
    }
}

/** More than put() takes at a time; the host sets them again at once. */
TEST(many_scalars_reach_the_device)
{
    enum { COUNT = 2 * COD_PUT_BYTES / sizeof(float) + 3 };
    for (size_t i = 0; i < NETS; i++) {
        const cod_backend *backend = backend_at(i);
        cod_device *device;
        cod_scalars *scalars;
        float found[COUNT];
        size_t first;
        assert_ok(backend->open(NULL, &device));
        assert_ok(cod_scalars_create(backend, device, &scalars));
        assert_ok(cod_scalars_reserve(scalars, COUNT, &first));
        const size_t crossings = cod_late_crossings();
        for (int round = 1; round <= 3; round++) {
            for (size_t k = 0; k < COUNT; k++)
                cod_scalars_set(scalars, first + k, (float)(k + 1) * (float)round);
            assert_ok(cod_scalars_flush(scalars, NULL));
        }
        assert_int_equal(cod_late_crossings(), crossings);
        const cod_view view = cod_scalars_view(scalars, first, COUNT);
        assert_ok(backend->download(device, NULL, found, view.buffer, view.offset, sizeof found));
        for (size_t k = 0; k < COUNT; k++)
            assert_true(found[k] == 3 * (float)(k + 1));
        cod_scalars_destroy(scalars);
        backend->close(device);
    }
}
