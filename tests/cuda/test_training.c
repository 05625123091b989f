/* Steps of training on the GPU against `ref` in f32: from the second on, programs are replays of their recordings. */
#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "nn/discriminator.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 12, SEED = 5 };

typedef struct training {
    const char *kind, *options; /**< options NULL: cod_unet_discriminator() */
    cod_shape input;
    cod_optimiser_options optimiser;
    double rate;
} training;

static const training trainings[] = {
    {"srresnet",
     "blocks=2 channels=16",
     {2, 8, 8, 3},
     {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .ema_decay = 0.9},
     1e-3},
    {"cnn",
     "height=12 width=12 channels=3 classes=10 stages=8,16",
     {6, 12, 12, 3},
     {.kind = COD_OPT_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-4, .clip_norm = 1},
     1e-2},
    {"mlp",
     "height=1 width=1 channels=16 classes=10 hidden=64,32",
     {10, 1, 1, 16},
     {.kind = COD_OPT_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 1e-2},
     1e-3},
    {"unet_discriminator",
     NULL,
     {2, 8, 8, 3},
     {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
     1e-4},
};

/** A kind of model, or the discriminator with spectrally normalised layers, whose states u and v move in each step. */
static void open_model(const training *which, cod_arena *arena, cod_model *model)
{
    if (which->options != NULL) {
        assert_ok(net_model(which->kind, which->options, arena, model));
        return;
    }
    *model = (cod_model){0};
    assert_ok(cod_graph_create(&model->graph));
    model->output = cod_unet_discriminator(model->graph, cod_graph_input(model->graph, "input", 3), 4);
}

/**
 * @param[out] losses  [STEPS]
 * @param[out] values  new: the weights and statistics after them, and their averages or zeros
 */
static size_t train(const cod_backend *backend, cod_dtype activation, const training *which, float *losses,
                    double **values)
{
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    cod_optimiser *optimiser;
    open_model(which, &arena, &model);
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_loss_spec kind = {.kind = model.task == COD_TASK_CLASSIFICATION ? COD_LOSS_KL : COD_LOSS_L1};
    const cod_value loss = cod_graph_loss(model.graph, "task", model.output, target, kind);
    const cod_input_shape input = {"input", which->input};
    const cod_compile_options options = {.activation = activation, .inputs = &input, .input_count = 1};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {loss}};
    assert_ok(net_init(&net, backend, model.graph, &options, &spec, 1, SEED));
    assert_ok(cod_optimiser_create(&net.weights, 0, &which->optimiser, &optimiser));
    for (int step = 0; step < STEPS; step++) {
        cod_emulated_set_seed((uint64_t)step);
        assert_ok(net_random_inputs(&net, SEED + (uint64_t)(step % 3)));
        assert_ok(net_run(&net, "step"));
        assert_ok(cod_executable_loss(net.executable, loss, &losses[step]));
        assert_ok(cod_optimiser_step(optimiser, which->rate, step + 1));
    }
    const size_t count = cod_weights_count(&net.weights);
    cod_buffer *average = cod_optimiser_ema(optimiser);
    *values = net_new(2 * count);
    assert_ok(net_read_values(&net, *values));
    if (average != NULL)
        assert_ok(
            net_read(&net, cod_view_dense(average, 0, COD_F32, (cod_shape){1, 1, 1, (int64_t)count}), *values + count));
    cod_optimiser_destroy(optimiser);
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return count;
}

static void compare_values(const char *kind, const char *what, const double *values, const double *expected,
                           size_t count, double bound)
{
    double error = 0, length = 0;
    for (size_t k = 0; k < count; k++) {
        error += (values[k] - expected[k]) * (values[k] - expected[k]);
        length += expected[k] * expected[k];
    }
    if (!(sqrt(error) <= bound * sqrt(length)))
        fail_msg("%s: %s are off by %g of their length", kind, what, sqrt(error / length));
}

/**
 * Differences grow with the steps: Adam's first ones go by the signs of gradients, which rounding may turn where they
 * are near zero. In bf16 each layer rounds to 8 bits.
 */
static void compare(cod_dtype activation, double loss_bound, double value_bound)
{
    for (size_t i = 0; i < sizeof trainings / sizeof trainings[0]; i++) {
        float expected[STEPS], losses[STEPS];
        double *reference, *values;
        const size_t count = train(&cod_ref_backend, COD_F32, &trainings[i], expected, &reference);
        train(&cod_cuda_backend, activation, &trainings[i], losses, &values);
        cod_test_assert_none(cod_emulated_faults, "%s", trainings[i].kind);
        for (int step = 0; step < STEPS; step++)
            if (!(fabsf(losses[step] - expected[step]) <= loss_bound * (double)expected[step]))
                fail_msg("%s, step %d: loss %g, and %g on ref", trainings[i].kind, step, (double)losses[step],
                         (double)expected[step]);
        compare_values(trainings[i].kind, "weights", values, reference, count, value_bound);
        compare_values(trainings[i].kind, "averages", values + count, reference + count, count, value_bound);
        free(reference);
        free(values);
    }
}

TEST(training_in_f32_follows_ref)
{
    compare(COD_F32, 1e-4, 1e-3);
}

TEST(training_in_bf16_stays_near_ref)
{
    compare(COD_BF16, 3e-2, 2e-2);
}

TEST_DEVICE(cod_cuda_backend)
