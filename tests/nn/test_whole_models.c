/*
 * Whole models on the backend COD_TESTED in f32 and bf16 against `ref` in f32: losses, outputs and gradients of one
 * training step, and inference with folded normalisation, at odd sizes.
 */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <math.h>
#include <stdlib.h>

/** Classifiers' heights and widths in the options are those of `input`. */
typedef struct model_case {
    const char *kind, *options;
    cod_shape input;   /**< zeros = {3,7,13,3} */
    double bf16_slack; /**< factor of the bounds in bf16; 0 = 1 */
    int64_t slices;    /**< as in cod_compile_options; `ref` runs the batch whole */
} model_case;

static const model_case cases[] = {
    {"srresnet", "blocks=2 channels=8", {0}, 0, 0},
    {"srresnet",
     "blocks=2 channels=24 norm=none activation=relu skip=bicubic upsampler=once head_kernel=3 tail_kernel=3",
     {0},
     0,
     0},
    {"srresnet", "blocks=1 channels=65 scale=3 skip=nearest", {0}, 0, 0},
    {"msrresnet", "num_feat=16 num_block=2", {0}, 0, 0},
    {"rrdb", "num_feat=16 num_block=1 num_grow_ch=8", {0}, 0, 0},
    {"rrdb", "num_feat=12 num_block=1 num_grow_ch=5", {0}, 0, 0},
    {"edsr", "num_feat=16 num_block=2 scale=4", {0}, 0, 0},
    {"edsr", "num_feat=12 num_block=1 scale=3 res_scale=0.1 img_range=1", {0}, 0, 0},
    {"rrdb", "num_feat=12 num_block=1 num_grow_ch=5 scale=2", {2, 6, 10, 3}, 0, 0},
    {"compact", "num_feat=24 num_conv=2", {0}, 0, 0},
    {"logistic", "height=7 width=13 channels=3 classes=10", {0}, 0, 0},
    {"mlp", "height=7 width=13 channels=3 classes=10 hidden=65,64,5 activation=prelu", {0}, 0, 0},
    {"mlp", "height=1 width=1 channels=4 classes=3 hidden=30,20 activation=sigmoid output=sigmoid", {5, 1, 1, 4}, 0, 0},
    {"mlp", "height=1 width=1 channels=5 classes=65 hidden=7 activation=tanh", {1, 1, 1, 5}, 0, 0},
    {"cnn", "height=7 width=13 channels=3 classes=10 stages=16,65 hidden=31", {0}, 2, 0},
    {"cnn", "height=28 width=28 channels=1 classes=10 stages=8,16,5 norm=none halve=stride", {1, 28, 28, 1}, 0, 0},
    {"resnet18", "height=33 width=47 channels=3 classes=10 features=8", {4, 33, 47, 3}, 5, 0},
    {"srresnet", "blocks=1 channels=24", {4, 7, 9, 3}, 0, 4},
    {"srresnet", "blocks=2 channels=16 norm=none", {0}, 0, 3},
};

extern const cod_backend COD_TESTED;

enum { SEED = 11, OUTPUTS = 2 };

typedef struct step_result {
    double *grads, *outputs[OUTPUTS]; /**< of training and of inference */
    size_t grad_count, output_count;
    float loss;
} step_result;

/** One training step and one inference with the weights, statistics and inputs that follow from SEED. */
static step_result run_step(const cod_backend *backend, cod_dtype activation, const model_case *which)
{
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    step_result result = {0};
    assert_ok(net_model(which->kind, which->options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_loss_spec kind = {.kind = model.task == COD_TASK_CLASSIFICATION ? COD_LOSS_KL : COD_LOSS_MSE};
    const cod_value loss = cod_graph_loss(model.graph, "task", model.output, target, kind);
    const cod_input_shape input = {"input", which->input.n ? which->input : (cod_shape){3, 7, 13, 3}};
    const cod_compile_options options = {.activation = activation,
                                         .inputs = &input,
                                         .input_count = 1,
                                         .slices = backend == &cod_ref_backend ? 1 : which->slices};
    const cod_program_spec specs[] = {
        {.name = "step", .trains = "model", .losses = {loss}, .outputs = {model.output}},
        {.name = "infer", .outputs = {model.output}},
    };
    assert_ok(net_init(&net, backend, model.graph, &options, specs, 2, SEED));
    const cod_view output = cod_executable_output(net.executable, model.output);
    result.output_count = (size_t)cod_shape_count(output.shape);
    result.grad_count = net.weights.layout.trainable;
    result.grads = net_new(result.grad_count);
    static const char *const programs[OUTPUTS] = {"infer", "step"};
    for (int i = 0; i < OUTPUTS; i++) {
        result.outputs[i] = net_new(result.output_count);
        assert_ok(net_run(&net, programs[i]));
        assert_ok(net_read(&net, output, result.outputs[i]));
    }
    assert_ok(cod_executable_loss(net.executable, loss, &result.loss));
    assert_ok(net_read_grads(&net, result.grads));
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return result;
}

static void free_result(step_result *result)
{
    free(result->grads);
    for (int i = 0; i < OUTPUTS; i++)
        free(result->outputs[i]);
}

/** Euclidean distance relative to the length of `expected`; NaN never passes. */
static double distance(const double *expected, const double *actual, size_t count)
{
    double error = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        error += (expected[i] - actual[i]) * (expected[i] - actual[i]);
        length += expected[i] * expected[i];
    }
    return sqrt(error / length);
}

static void check_near(const char *what, const model_case *which, cod_dtype dtype, double error, double bound)
{
    bound *= dtype == COD_BF16 && which->bf16_slack > 0 ? which->bf16_slack : 1;
    if (!(error <= bound))
        fail_msg("%s of %s (%s) in %s is off by %g of its length, at most %g is right; seed %d", what, which->kind,
                 which->options, cod_dtype_name(dtype), error, bound, SEED);
}

/**
 * f32: rounding of sums in another order, through a dozen layers. bf16: each of a dozen layers rounds its activations
 * to 8 bits (relative error 2^-9 a value, uncorrelated), and gradients pass them all twice; max pooling and many ReLUs
 * choose by such values, and where they choose differently whole terms differ.
 */
static void compare(cod_dtype dtype, double output_bound, double grad_bound)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        step_result expected = run_step(&cod_ref_backend, COD_F32, &cases[i]);
        step_result actual = run_step(&COD_TESTED, dtype, &cases[i]);
        for (int k = 0; k < OUTPUTS; k++)
            check_near(k == 0 ? "inference" : "output", &cases[i], dtype,
                       distance(expected.outputs[k], actual.outputs[k], expected.output_count), output_bound);
        check_near("gradient", &cases[i], dtype, distance(expected.grads, actual.grads, expected.grad_count),
                   grad_bound);
        check_near("loss", &cases[i], dtype, fabs(expected.loss - actual.loss) / expected.loss, 2 * output_bound);
        free_result(&expected);
        free_result(&actual);
    }
}

TEST(f32_equals_ref)
{
    compare(COD_F32, 1e-5, 1e-4);
}

TEST(bf16_is_near_ref)
{
    cod_device *device = NULL;
    assert_ok(COD_TESTED.open(&(cod_device_options){.threads = 1}, &device));
    const bool supported = COD_TESTED.supports(device, COD_BF16);
    COD_TESTED.close(device);
    if (!supported)
        skip();
    compare(COD_BF16, 2e-2, 8e-2);
}

TEST_DEVICE(COD_TESTED)
