/*
 * One training step of ResNet-50 at its full width on the GPU against `ref` in f32: loss, outputs, running statistics,
 * and the gradient of each parameter. On the emulated GPU in f32 at half of it, because most time goes by weights.
 */
#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * The last stage's normalisations see 3 x 2 x 2 values of each channel: over very few, gradients would be what is left
 * of rounding.
 */
static const cod_shape pictures = {3, 33, 33, 3};
#define OPTIONS "height=33 width=33 channels=3 classes=10 features="
#define FULL    OPTIONS "64"
#ifdef COD_TESTED_ON_DEVICE
#define IN_F32 FULL
#else
#define IN_F32 OPTIONS "32"
#endif

enum { SEED = 7 };

typedef struct step_result {
    double *output, *grads, *values; /**< values: weights and the statistics that the step moved */
    size_t output_count;
    double loss;
} step_result;

static cod_arena arena;
static cod_model model;
static cod_value loss;
static step_result expected; /**< on `ref` */

static void open_model(const char *options)
{
    assert_ok(net_model("resnet50", options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    loss = cod_graph_loss(model.graph, "task", model.output, target, (cod_loss_spec){.kind = COD_LOSS_KL});
}

static void close_model(void)
{
    cod_model_clear(&model);
    cod_arena_clear(&arena);
}

/**
 * As small_residual() of golden/make_models.py: blocks add little to what they get, so that depth does not amplify
 * rounding. What ReLUs read lies three standard deviations from their kink, above it and within blocks in every second
 * channel below, so that rounding hardly turns their choice.
 */
static void set_weights(test_net *net, double *values)
{
    static const double RESIDUAL = 0.25, SHIFT = 3;
    assert_ok(net_read_values(net, values));
    for (size_t i = 0; i < cod_graph_param_count(net->graph); i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        if (param->rank != 1 || param->is_state || strncmp(param->name, "fc.", 3) == 0)
            continue;
        const bool bias = strstr(param->name, ".bias") != NULL, last = strstr(param->name, ".bn3.") != NULL;
        const bool within = strstr(param->name, ".bn1.") != NULL || strstr(param->name, ".bn2.") != NULL;
        for (int64_t k = 0; k < cod_shape_count(param->shape); k++) {
            double *value = &values[param->offset + (size_t)k];
            *value += !bias ? 0 : within && k % 2 != 0 ? -SHIFT : SHIFT;
            *value *= last ? RESIDUAL : 1;
        }
    }
    assert_ok(net_write_values(net, values));
}

static step_result train_step(const cod_backend *backend, cod_dtype activation)
{
    test_net net;
    step_result result = {0};
    const cod_value output = model.output;
    const cod_input_shape input = {"input", pictures};
    const cod_compile_options options = {.activation = activation, .inputs = &input, .input_count = 1};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {loss}, .outputs = {output}};
    assert_ok(net_init(&net, backend, model.graph, &options, &spec, 1, SEED));
    result.values = net_new(cod_weights_count(&net.weights));
    result.grads = net_new(net.weights.layout.trainable);
    result.output_count = (size_t)cod_shape_count(cod_executable_output(net.executable, output).shape);
    result.output = net_new(result.output_count);
    set_weights(&net, result.values);
    assert_ok(net_run(&net, "step"));
    assert_ok(net_read(&net, cod_executable_output(net.executable, output), result.output));
    assert_ok(net_read(&net, cod_executable_loss_view(net.executable, loss), &result.loss));
    assert_ok(net_read_values(&net, result.values));
    assert_ok(net_read_grads(&net, result.grads));
    net_clear(&net);
    return result;
}

static void free_result(step_result *result)
{
    free(result->output);
    free(result->grads);
    free(result->values);
}

/** Squares of the distance of two arrays and of the first one's length. */
typedef struct squares {
    double error, length;
} squares;

static void add(squares *sum, const double *right, const double *ours, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum->error += (ours[i] - right[i]) * (ours[i] - right[i]);
        sum->length += right[i] * right[i];
    }
}

static void check(const char *what, squares sum, double bound)
{
    const double off = sqrt(sum.error / sum.length);
    if (!(off <= bound))
        fail_msg("%s: off by %g of its length, at most %g is right; seed %d", what, off, bound, SEED);
}

/**
 * Running statistics, and gradients of each layer's parameters together: that of a normalisation's bias alone may be
 * what is left of terms that cancel, because the next normalisation takes away the mean.
 */
static void compare_params(const step_result *actual, double grad_bound, double state_bound)
{
    squares layer = {0};
    int layers = 0;
    for (size_t i = 0; i < cod_graph_param_count(model.graph); i++) {
        const cod_param *param = cod_graph_param(model.graph, i);
        const cod_param *next = i + 1 < cod_graph_param_count(model.graph) ? cod_graph_param(model.graph, i + 1) : NULL;
        const size_t count = (size_t)cod_shape_count(param->shape), at = param->offset;
        const size_t prefix = (size_t)(strrchr(param->name, '.') - param->name) + 1;
        if (param->is_state) {
            squares state = {0};
            add(&state, expected.values + at, actual->values + at, count);
            check(param->name, state, state_bound);
        } else {
            add(&layer, expected.grads + at, actual->grads + at, count);
        }
        if (next == NULL || strncmp(param->name, next->name, prefix) != 0) {
            check(param->name, layer, grad_bound);
            layer = (squares){0};
            layers++;
        }
    }
    assert_int_equal(layers, 2 * 53 + 1); /* convolutions with their normalisations, and the linear layer */
}

static void compare(const char *options, cod_dtype dtype, double bound, double grad_bound)
{
    squares output = {0}, task = {0};
    open_model(options);
    expected = train_step(&cod_ref_backend, COD_F32);
    step_result actual = train_step(&cod_cuda_backend, dtype);
    cod_test_assert_none(cod_emulated_faults, "%s", cod_dtype_name(dtype));
    add(&output, expected.output, actual.output, expected.output_count);
    add(&task, &expected.loss, &actual.loss, 1);
    check("output", output, bound);
    check("loss", task, bound);
    compare_params(&actual, grad_bound, bound);
    free_result(&actual);
    free_result(&expected);
    close_model();
}

/** Sums are rounded in another order. */
TEST(a_step_in_f32_equals_ref)
{
    compare(IN_F32, COD_F32, 1e-5, 1e-4);
}

/**
 * Each of 160 tensors is rounded to 8 bits, which turns the choice of some ReLUs: gradients were off by 5.6e-2 in the
 * middle and 0.13 at most. With inputs of ReLUs around the kink, as at the start of training, it was 0.47 and 0.64.
 */
TEST(a_step_in_bf16_is_near_ref)
{
    compare(FULL, COD_BF16, 1e-2, 0.25);
}

TEST_DEVICE(cod_cuda_backend)
