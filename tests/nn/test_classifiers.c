/*
 * Classifiers: whose sizes come from the data, what does not fit together, and that each kind learns what it is shown
 * and taught.
 */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"

#include <math.h>

enum { BATCH = 6, CLASSES = 3, HEIGHT = 9, WIDTH = 8, CHANNELS = 2 };

static cod_status build(const char *kind, const char *options)
{
    cod_arena arena = {0};
    cod_model model;
    const cod_status status = net_model(kind, options, &arena, &model);
    if (status == COD_OK) {
        assert_int_equal(model.task, COD_TASK_CLASSIFICATION);
        cod_model_clear(&model);
    }
    cod_arena_clear(&arena);
    return status;
}

TEST(sizes_come_from_the_data)
{
    cod_arena arena = {0};
    const cod_classifier_sizes mnist = {28, 28, 1, 10}, iris = {1, 1, 4, 3};
    for (size_t i = 0; cod_model_kind_at(i) != NULL; i++) {
        const cod_model_kind *kind = cod_model_kind_at(i);
        cod_model model;
        void *options = cod_arena_alloc(&arena, kind->table->struct_bytes);
        assert_ok(cod_options_set_defaults(kind->table, options, &arena));
        assert_int_equal(kind->scale == NULL, kind->task == COD_TASK_CLASSIFICATION);
        if (kind->task != COD_TASK_CLASSIFICATION) {
            assert_null(cod_model_sizes(kind, options));
            assert_int_equal(cod_model_input_channels(kind, options), 3);
            assert_fails(COD_ERR_ARGUMENT, "is no classifier", cod_model_fit_sizes(kind, options, &mnist));
            continue;
        }
        assert_fails(COD_ERR_ARGUMENT, "height is 0, as the data has it", cod_model_build(kind, options, &model));
        assert_ok(cod_model_fit_sizes(kind, options, &mnist));
        assert_ok(cod_model_fit_sizes(kind, options, &mnist));
        assert_memory_equal(cod_model_sizes(kind, options), &mnist, sizeof mnist);
        assert_int_equal(cod_model_input_channels(kind, options), 1);
        assert_fails(COD_ERR_ARGUMENT, "height is 28, but the data has 1", cod_model_fit_sizes(kind, options, &iris));
        assert_ok(cod_model_build(kind, options, &model));
        assert_int_equal(cod_graph_producer(model.graph, model.output)->channels, 10);
        cod_model_clear(&model);
    }
    assert_string_equal(cod_task_name(COD_TASK_CLASSIFICATION), "classification");
    assert_string_equal(cod_task_name(COD_TASK_SUPER_RESOLUTION), "super-resolution");
    cod_arena_clear(&arena);
}

TEST(what_does_not_fit_is_refused)
{
    assert_fails(COD_ERR_ARGUMENT, "model 'mlp': classes is 0", build("mlp", "height=2 width=2 channels=1"));
    assert_fails(COD_ERR_ARGUMENT, "model 'cnn': 3 stages are too many for inputs of 3x9",
                 build("cnn", "height=3 width=9 channels=1 classes=2"));
    assert_ok(build("cnn", "height=4 width=9 channels=1 classes=2"));
    assert_ok(build("cnn", "height=1 width=1 channels=1 classes=2 halve=stride hidden=3"));
}

/** Compares the outputs' greatest logits with the classes shown: picture i is of class i mod CLASSES. */
static int mistakes(const double *logits)
{
    int wrong = 0;
    for (int i = 0; i < BATCH; i++) {
        int best = 0;
        for (int k = 1; k < CLASSES; k++)
            best = logits[i * CLASSES + k] > logits[i * CLASSES + best] ? k : best;
        wrong += best != i % CLASSES;
    }
    return wrong;
}

typedef struct taught {
    float losses[2]; /**< of the first and the last step */
    int mistakes;
    double farthest; /**< of an output from its target */
} taught;

/**
 * Trains a fresh model on one batch of random pictures. `logit`: of the picture's class in the target; the others' is
 * 0.
 */
static taught teach(const char *kind, const char *options, cod_loss_spec spec, double logit, int steps)
{
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    taught result = {0};
    cod_optimiser *optimiser;
    double target[BATCH * CLASSES] = {0}, output[BATCH * CLASSES];
    assert_ok(net_model(kind, options, &arena, &model));
    const cod_value truth = cod_graph_input_like(model.graph, "target", model.output);
    const cod_value loss = cod_graph_loss(model.graph, "task", model.output, truth, spec);
    const cod_input_shape input = {"input", {BATCH, HEIGHT, WIDTH, CHANNELS}};
    const cod_compile_options compile = {.activation = COD_F32, .inputs = &input, .input_count = 1};
    const cod_program_spec specs[] = {
        {.name = "train", .trains = "model", .losses = {loss}, .outputs = {model.output}}};
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    assert_ok(net_init(&net, &cod_ref_backend, model.graph, &compile, specs, 1, 3));
    assert_ok(cod_weights_fill_initial(&net.weights, 3));
    assert_ok(cod_optimiser_create(&net.weights, 0, &adam, &optimiser));
    for (int i = 0; i < BATCH; i++)
        target[i * CLASSES + i % CLASSES] = logit;
    assert_ok(net_write(&net, cod_executable_input(net.executable, "target"), target));
    for (int step = 0; step < steps; step++) {
        assert_ok(net_run(&net, "train"));
        assert_ok(cod_executable_loss(net.executable, loss, &result.losses[step > 0]));
        assert_ok(cod_optimiser_step(optimiser, 0.01, step + 1));
    }
    assert_ok(net_read(&net, cod_executable_output(net.executable, model.output), output));
    result.mistakes = mistakes(output);
    for (int i = 0; i < BATCH * CLASSES; i++)
        result.farthest = fmax(result.farthest, fabs(output[i] - target[i]));
    cod_optimiser_destroy(optimiser);
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return result;
}

#define SIZES "height=9 width=8 channels=2 classes=3 "

/** Uniform predictions have the loss ln 3; a picture known for certain one near 0. */
TEST(every_kind_learns_a_batch)
{
    static const char *const cases[][2] = {
        {"logistic", SIZES},
        {"mlp", SIZES "hidden=16,16"},
        {"mlp", SIZES "hidden=16 activation=prelu"},
        {"cnn", SIZES "stages=4,6 convolutions=1"},
        {"cnn", SIZES "stages=4,6 norm=none halve=stride hidden=8"},
        {"resnet18", SIZES "features=4 stem=small"},
        {"resnet50", SIZES "features=4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const taught result = teach(cases[i][0], cases[i][1], (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY}, 1, 40);
        if (result.mistakes != 0 || !(result.losses[0] > 0.5f) || !(result.losses[1] < 0.4f))
            fail_msg("%s %s: %d mistakes, the loss went from %g to %g", cases[i][0], cases[i][1], result.mistakes,
                     (double)result.losses[0], (double)result.losses[1]);
    }
}

TEST(sigmoids_learn_one_hot_targets)
{
    const taught result = teach("mlp", SIZES "hidden=16 activation=sigmoid output=sigmoid",
                                (cod_loss_spec){.kind = COD_LOSS_MSE}, 1, 150);
    assert_int_equal(result.mistakes, 0);
    assert_true(result.farthest < 0.3);
}

/** Smoothed by s the least loss is the targets' entropy, and the best logits differ by ln((1-s+s/K)/(s/K)). */
TEST(smoothing_keeps_logits_near)
{
    const double certain = 0.7 + 0.3 / 3, other = 0.1, entropy = -certain * log(certain) - 2 * other * log(other);
    const taught result =
        teach("logistic", SIZES, (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY, .smoothing = 0.3f}, 1, 300);
    assert_int_equal(result.mistakes, 0);
    assert_true(fabs(result.losses[1] - entropy) < 1e-3);
}

/** A student of a teacher's logits comes to predict what it predicts; at a temperature too. */
TEST(students_follow_their_teacher)
{
    for (int temperature = 1; temperature <= 3; temperature += 2) {
        const taught result = teach("mlp", SIZES "hidden=16",
                                    (cod_loss_spec){.kind = COD_LOSS_KL, .temperature = (float)temperature}, 4, 200);
        assert_int_equal(result.mistakes, 0);
        assert_true(result.losses[0] > 0.5f && result.losses[1] < 1e-2f);
    }
}
