#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "nn/discriminator.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "support/ops.h"

#include <stdio.h>

/** How many kernels the CUDA backend launches, and which of them may start before the one before has ended. */

static cod_test_device cuda = {&cod_cuda_backend, NULL};

static int device_open(void **state)
{
    (void)state;
    return cuda.backend->open(NULL, &cuda.device) != COD_OK;
}

static int device_close(void **state)
{
    char message[256];
    (void)state;
    cuda.backend->close(cuda.device);
    return cod_emulated_faults(message, sizeof message) > 0;
}

static void expect_launches(size_t all, size_t chained)
{
    size_t edges;
    assert_int_equal(cod_emulated_launches(&edges), all);
    assert_int_equal(edges, chained);
}

static cod_view dense(cod_dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return cod_view_dense(NULL, 0, dtype, (cod_shape){n, h, w, c});
}

static cod_op linear_op(cod_dtype dtype)
{
    return (cod_op){.kind = COD_OP_LINEAR,
                    .inputs = {dense(dtype, 2, 1, 1, 8), dense(COD_F32, 8, 1, 1, 8)},
                    .outputs = {dense(dtype, 2, 1, 1, 8)}};
}

static cod_op convolution_op(float int8_range)
{
    return (cod_op){.kind = COD_OP_CONV2D,
                    .attr = {.stride_h = 1, .stride_w = 1, .int8_range = int8_range},
                    .inputs = {dense(COD_BF16, 1, 2, 2, 16), dense(COD_F32, 8, 1, 1, 16)},
                    .outputs = {dense(COD_BF16, 1, 2, 2, 8)}};
}

/** One for each type that is packed and for the scales of integers; another for every 256 plans. */
TEST(packing_takes_a_launch_for_each_type)
{
    enum { PLANS = 300 };
    static cod_test_op tests[PLANS];
    cod_plan *plans[PLANS];
    for (int i = 0; i < PLANS; i++) {
        const cod_op op = i == 7 ? linear_op(COD_F32) : i == 9 ? convolution_op(1) : linear_op(COD_BF16);
        assert_ok(cod_test_op_init(&tests[i], cuda, &op));
        plans[i] = tests[i].plan;
    }
    cod_emulated_launches(NULL);
    assert_ok(cuda.backend->plans_prepare(cuda.device, plans, 7, NULL));
    expect_launches(1, 0);
    assert_ok(cuda.backend->plans_prepare(cuda.device, plans, 70, NULL));
    expect_launches(4, 0);
    assert_ok(cuda.backend->plans_prepare(cuda.device, plans, PLANS, NULL));
    expect_launches(5, 0);
    assert_ok(cuda.backend->plans_prepare(cuda.device, plans, 0, NULL));
    expect_launches(0, 0);
    for (int i = 0; i < PLANS; i++)
        cod_test_op_clear(&tests[i]);
}

/** A 5x5 layer from or to three channels; the weights of both kinds have a form of their own each. */
static cod_op narrow_op(int64_t from, int64_t to)
{
    return (cod_op){.kind = COD_OP_CONV2D,
                    .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 2, .pad_w = 2},
                    .inputs = {dense(COD_BF16, 1, 9, 20, from), dense(COD_F32, to, 5, 5, from)},
                    .outputs = {dense(COD_BF16, 1, 9, 20, to)}};
}

TEST(layers_of_few_channels_are_packed_together)
{
    const cod_op ops[] = {narrow_op(3, 32), narrow_op(32, 3), narrow_op(16, 3), narrow_op(3, 16), convolution_op(0)};
    enum { PLANS = sizeof ops / sizeof ops[0] };
    cod_test_op tests[PLANS];
    cod_plan *plans[PLANS];
    for (int i = 0; i < PLANS; i++) {
        assert_ok(cod_test_op_init(&tests[i], cuda, &ops[i]));
        plans[i] = tests[i].plan;
    }
    cod_emulated_launches(NULL);
    assert_ok(cuda.backend->plans_prepare(cuda.device, plans, PLANS, NULL));
    expect_launches(3, 0);
    for (int i = 0; i < PLANS; i++)
        cod_test_op_clear(&tests[i]);
}

/** All layers' gradients, and the joining of their partial sums. */
TEST(gradients_of_many_layers_take_two_launches)
{
    enum { LAYERS = 33 };
    static cod_test_op tests[LAYERS];
    cod_op ops[LAYERS];
    cod_plan *plan = NULL;
    for (int i = 0; i < LAYERS; i++) {
        const cod_op op = {.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                           .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
                           .inputs = {dense(COD_BF16, 1, 8, 8, 16), dense(COD_BF16, 1, 8, 8, 16)},
                           .outputs = {dense(COD_F32, 16, 3, 3, 16)}};
        assert_ok(cod_test_op_init(&tests[i], cuda, &op));
        ops[i] = tests[i].op;
    }
    assert_ok(cuda.backend->plan_create_fused(cuda.device, ops, LAYERS, &plan));
    cod_emulated_launches(NULL);
    assert_ok(cuda.backend->plan_run(plan, NULL));
    expect_launches(2, 1); /* the first one comes behind a copy of the plan's table */
    cuda.backend->plan_destroy(plan);
    for (int i = 0; i < LAYERS; i++)
        cod_test_op_clear(&tests[i]);
}

/**
 * A kernel is chained to the one before it in its queue, but not to copies, packing, events, and the ends of captures.
 */
TEST(chains_end_where_no_kernel_is_before)
{
    const cod_backend *b = cuda.backend;
    const cod_op op = convolution_op(0);
    cod_test_op test;
    cod_queue *queue = NULL;
    cod_event *event = NULL;
    cod_recording *recording = NULL;
    assert_ok(cod_test_op_init(&test, cuda, &op));
    assert_ok(b->queue_create(cuda.device, &queue));
    assert_ok(b->event_create(cuda.device, &event));
    cod_emulated_launches(NULL);
    for (int before = 0; before < 8; before++) {
        cod_buffer *x = test.buffers[0], *y = test.buffers[COD_OP_MAX_INPUTS];
        char byte = 0;
        assert_ok(b->plan_run(test.plan, NULL)); /* a chain that would go on */
        switch (before) {
        case 0:
            assert_ok(b->plans_prepare(cuda.device, &test.plan, 1, NULL));
            break;
        case 1:
            assert_ok(b->copy(cuda.device, NULL, y, 0, x, 0, 4));
            break;
        case 2:
            assert_ok(b->upload(cuda.device, NULL, x, 0, &byte, 1));
            break;
        case 3:
            assert_ok(b->download(cuda.device, NULL, &byte, x, 0, 1));
            break;
        case 4:
            assert_ok(b->event_record(event, NULL));
            break;
        case 5:
            assert_ok(b->queue_wait(NULL, event));
            break;
        case 6:
            assert_ok(b->plan_run(test.plan, queue));
            break;
        default:
            assert_ok(b->recording_run(recording, NULL));
        }
        cod_emulated_launches(NULL);
        assert_ok(b->plan_run(test.plan, NULL));
        expect_launches(1, 0);
        assert_ok(b->plan_run(test.plan, NULL));
        assert_ok(b->plan_run(test.plan, NULL));
        expect_launches(2, 2);
        if (before != 6)
            continue;
        assert_ok(b->capture_begin(cuda.device, NULL));
        assert_ok(b->plan_run(test.plan, NULL));
        expect_launches(1, 0);
        assert_ok(b->plan_run(test.plan, NULL));
        expect_launches(1, 1);
        assert_ok(b->capture_end(cuda.device, NULL, &recording));
    }
    b->recording_destroy(recording);
    b->event_destroy(event);
    b->queue_destroy(queue);
    cod_test_op_clear(&test);
}

/**
 * Behind another kernel, whose end none of them may need for its start; what they use too early is a fault
 * (device_close()).
 */
static void expect_chained(const cod_op *op, cod_test_op *before)
{
    cod_test_op test;
    size_t edges;
    assert_ok(cod_test_op_init(&test, cuda, op));
    assert_ok(cod_test_op_randomise(&test, 1, false));
    assert_ok(cuda.backend->plans_prepare(cuda.device, &test.plan, 1, NULL));
    assert_ok(cod_test_op_run(before));
    cod_emulated_launches(NULL);
    assert_ok(cuda.backend->plan_run(test.plan, NULL));
    const size_t all = cod_emulated_launches(&edges);
    if (all == 0 || edges != all)
        fail_msg("%s: %zu of %zu kernels have a programmatic edge", cod_op_kind_name(op->kind), edges, all);
    cod_test_op_clear(&test);
}

TEST(kernels_of_all_kinds_are_chained)
{
    enum { SEEDS = 6 };
    const cod_op first = convolution_op(0);
    cod_test_op before;
    assert_ok(cod_test_op_init(&before, cuda, &first));
    for (int kind = 0; kind < COD_TEST_KINDS; kind++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const cod_op op = cod_test_random_op((cod_op_kind)kind, seed % 2 == 0 ? COD_BF16 : COD_F32, COD_F32, seed);
            expect_chained(&op, &before);
        }
    }
    cod_test_op_clear(&before);
}

/** A last layer's output and weight gradient, and a first layer's output. */
TEST(kernels_of_few_channels_are_chained)
{
    cod_op ops[] = {narrow_op(32, 3), narrow_op(3, 32), narrow_op(32, 3)};
    ops[2].kind = COD_OP_CONV2D_BACKWARD_WEIGHTS;
    ops[2].inputs[1] = ops[0].outputs[0];
    ops[2].outputs[0] = ops[0].inputs[1];
    const cod_op first = convolution_op(0);
    cod_test_op before;
    assert_ok(cod_test_op_init(&before, cuda, &first));
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        expect_chained(&ops[i], &before);
    cod_test_op_clear(&before);
}

/** A network with its optimiser, its weights trained by one program. */
typedef struct training {
    cod_arena arena;
    cod_model model;
    test_net net;
    cod_optimiser *optimiser;
    int64_t steps;
} training;

/** Of the network that is in t->model, on one picture. */
static void training_begin(training *t, int64_t size, const cod_optimiser_options *optimiser)
{
    const cod_value target = cod_graph_input_like(t->model.graph, "target", t->model.output);
    const cod_value loss =
        cod_graph_loss(t->model.graph, "task", t->model.output, target, (cod_loss_spec){.kind = COD_LOSS_L1});
    const cod_input_shape input = {"input", {1, size, size, 3}};
    const cod_compile_options compile = {.activation = COD_BF16, .inputs = &input, .input_count = 1};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {loss}};
    assert_ok(net_init(&t->net, &cod_cuda_backend, t->model.graph, &compile, &spec, 1, 5));
    assert_ok(cod_optimiser_create(&t->net.weights, 0, optimiser, &t->optimiser));
}

/** SRResNet of 64 channels. */
static void training_open(training *t, const char *options, const cod_optimiser_options *optimiser)
{
    *t = (training){0};
    assert_ok(net_model("srresnet", options, &t->arena, &t->model));
    training_begin(t, 4, optimiser);
}

static void training_close(training *t)
{
    cod_optimiser_destroy(t->optimiser);
    net_clear(&t->net);
    cod_model_clear(&t->model);
    cod_arena_clear(&t->arena);
}

static void update(training *t, double rate)
{
    assert_ok(cod_optimiser_step(t->optimiser, rate, ++t->steps));
}

/** @param joined  by one call, cod_optimiser_run() */
static void whole_step(training *t, bool joined, double rate)
{
    if (joined) {
        assert_ok(cod_optimiser_run(t->optimiser, cod_executable_program(t->net.executable, "step"), rate, ++t->steps));
        return;
    }
    assert_ok(net_run(&t->net, "step"));
    update(t, rate);
}

static const cod_optimiser_options clipped_adam = {
    .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 1, .ema_decay = 0.9};

/** What a step launches. All but packing and the first kernels of program and update have programmatic edges. */
typedef struct step_launches {
    size_t packing, program, chained, update, update_chained;
} step_launches;

/** With Adam. What is replayed is not counted, so the first runs of the program and of the update are looked at. */
static step_launches launches_of_step(const char *options)
{
    step_launches seen = {0};
    training t;
    training_open(&t, options, &clipped_adam);
    cod_emulated_launches(NULL);
    assert_ok(net_run(&t.net, "step"));
    seen.program = cod_emulated_launches(&seen.chained);
    update(&t, 1e-4);
    seen.update = cod_emulated_launches(&seen.update_chained);
    assert_ok(net_run(&t.net, "step"));
    const size_t recorded = cod_emulated_launches(NULL);
    cod_weights_changed(&t.net.weights, COD_ALL_SETS);
    assert_ok(net_run(&t.net, "step"));
    seen.packing = cod_emulated_launches(NULL);
    assert_int_equal(recorded, seen.program); /* packing behind an update is a part of the program's recording */
    seen.program -= seen.packing;
    training_close(&t);
    return seen;
}

/**
 * Each residual block takes four: two convolutions, forward and backward, with all that is around them; the weight
 * gradients of all blocks are one launch. 64 channels from one to three of the picture: four forms of packed weights.
 */
TEST(a_training_step_takes_few_launches)
{
    for (int blocks = 1; blocks < 3; blocks++) {
        char options[64];
        snprintf(options, sizeof options, "blocks=%d channels=64", blocks);
        const step_launches seen = launches_of_step(options);
        assert_int_equal(seen.packing, 4);
        assert_int_equal(seen.program, 25 + 4 * blocks);
        assert_int_equal(seen.chained, seen.program - 1);
        /* What brings the scalars; the norm; the rest, with averages and their statistics. */
        assert_int_equal(seen.update, 3);
        assert_int_equal(seen.update_chained, 1);
    }
}

static void expect_queued(training *t, bool joined, double rate, cod_emulated_queued expected)
{
    cod_emulated_take_queued();
    whole_step(t, joined, rate);
    const cod_emulated_queued seen = cod_emulated_take_queued();
    assert_int_equal(seen.kernels, expected.kernels);
    assert_int_equal(seen.graphs, expected.graphs);
    assert_int_equal(seen.nodes, expected.nodes);
    assert_int_equal(seen.others, expected.others);
}

/**
 * What the host queues in each later step, by which docs/gpu-status.md predicts idle time: one recording of packing,
 * the program and the update; or two, of which that of the update is a launch where it takes one; and a launch that
 * brings the scalars where one has changed.
 */
TEST(later_steps_queue_little)
{
    const cod_optimiser_options sgd = {.kind = COD_OPT_SGD, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999},
                                *const all[] = {&clipped_adam, &sgd};
    enum { PACKING = 4, PROGRAM = 29 };
    for (int i = 0; i < 4; i++) {
        const cod_optimiser_options *options = all[i % 2];
        const bool clips = options->clip_norm > 0, joined = i >= 2, corrects = options->kind != COD_OPT_SGD;
        const size_t update = clips ? 2 : 1, alone = !joined && !clips;
        const cod_emulated_queued expected = {.kernels = alone + corrects,
                                              .graphs = joined || alone ? 1 : 2,
                                              .nodes = PACKING + PROGRAM + update - alone};
        cod_emulated_queued changed = expected;
        changed.kernels = alone + 1;
        training t;
        training_open(&t, "blocks=1 channels=64", options);
        whole_step(&t, joined, 1e-4);
        whole_step(&t, joined, 1e-4); /* its recording begins with packing */
        expect_queued(&t, joined, 1e-4, expected);
        expect_queued(&t, joined, 1e-5, changed); /* another rate */
        training_close(&t);
    }
}

/**
 * The weights of eight layers of this network are spectrally normalised in each step, by three kernels each, from
 * states that the step before moved. The recording of a step contains these kernels.
 */
TEST(a_discriminators_step_is_one_recording)
{
    const cod_optimiser_options sgd = {.kind = COD_OPT_SGD, .momentum = 0.9};
    training t = {0};
    assert_ok(cod_graph_create(&t.model.graph));
    t.model.output = cod_unet_discriminator(t.model.graph, cod_graph_input(t.model.graph, "input", 3), 4);
    training_begin(&t, COD_UNET_DISCRIMINATOR_MULTIPLE, &sgd);
    whole_step(&t, true, 1e-4);
    cod_emulated_launches(NULL);
    whole_step(&t, true, 1e-4);
    const size_t recorded = cod_emulated_launches(NULL);
    expect_queued(&t, true, 1e-4, (cod_emulated_queued){.graphs = 1, .nodes = recorded});
    training_close(&t);
}

/** As many bytes as it may have at most, and four; they are taken at once, and nothing waits. */
TEST(small_uploads_are_launches)
{
    enum { WORDS = COD_PUT_BYTES / 4 };
    const cod_backend *b = cuda.backend;
    cod_buffer *buffer;
    uint32_t words[WORDS + 1], found[2 * WORDS];
    assert_ok(b->buffer_create(cuda.device, sizeof found, &buffer));
    cod_emulated_take_queued();
    for (uint32_t i = 0; i <= WORDS; i++)
        words[i] = i + 1;
    assert_ok(b->put(cuda.device, NULL, buffer, 0, words, COD_PUT_BYTES));
    assert_ok(b->put(cuda.device, NULL, buffer, COD_PUT_BYTES + 8, words, 4));
    assert_ok(b->put(cuda.device, NULL, buffer, 0, words, 0));
    const cod_emulated_queued seen = cod_emulated_take_queued();
    assert_int_equal(seen.kernels, 2);
    assert_int_equal(seen.others, 0);
    assert_ok(b->download(cuda.device, NULL, found, buffer, 0, sizeof found));
    for (uint32_t i = 0; i < 2 * WORDS; i++)
        assert_int_equal(found[i], i < WORDS ? i + 1 : i == WORDS + 2);
    assert_fails(COD_ERR_ARGUMENT, "put() of 1028 bytes at offset 0",
                 b->put(cuda.device, NULL, buffer, 0, words, 1028));
    assert_fails(COD_ERR_ARGUMENT, "put() of 4 bytes at offset 2", b->put(cuda.device, NULL, buffer, 2, words, 4));
    assert_fails(COD_ERR_ARGUMENT, "reach past a buffer", b->put(cuda.device, NULL, buffer, sizeof found, words, 4));
    b->buffer_destroy(cuda.device, buffer);
}

TEST_GROUP(device_open, device_close)
