/*
 * A step of SRResNet whose upsampler multiplies by warpgroups, in bf16 against `ref` in f32: the program takes the
 * kernel, and its loss, output and gradients are right.
 */
#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEED = 3, TRAINING = 0, INFERENCE = 1, PROGRAMS = 2 };

static const char *const programs[PROGRAMS] = {"step", "infer"};

typedef struct result {
    float loss;
    double *outputs[PROGRAMS], *grads;
    size_t output_count, grad_count;
} result;

/** 12 tiles of 8x8 pixels at most, for two blocks of four groups. */
static result run(const cod_backend *backend, cod_dtype activation)
{
    const cod_input_shape input = {"input", {1, 17, 31, 3}};
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    result out = {0};
    assert_ok(net_model("srresnet", "blocks=1 channels=64 scale=2", &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_loss_spec kind = {.kind = COD_LOSS_MSE};
    const cod_value loss = cod_graph_loss(model.graph, "task", model.output, target, kind);
    const cod_compile_options options = {.activation = activation, .inputs = &input, .input_count = 1};
    const cod_program_spec specs[PROGRAMS] = {
        {.name = programs[TRAINING], .trains = "model", .losses = {loss}, .outputs = {model.output}},
        {.name = programs[INFERENCE], .outputs = {model.output}}};
    assert_ok(net_init(&net, backend, model.graph, &options, specs, PROGRAMS, SEED));
    const cod_view output = cod_executable_output(net.executable, model.output);
    out.output_count = (size_t)cod_shape_count(output.shape);
    out.grad_count = net.weights.layout.trainable;
    out.grads = net_new(out.grad_count);
    for (int i = 0; i < PROGRAMS; i++) {
        out.outputs[i] = net_new(out.output_count);
        assert_ok(net_run(&net, programs[i]));
        assert_ok(net_read(&net, output, out.outputs[i]));
        if (i == TRAINING)
            assert_ok(cod_executable_loss(net.executable, loss, &out.loss));
    }
    assert_ok(net_read_grads(&net, out.grads));
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return out;
}

static void result_clear(result *r)
{
    for (int i = 0; i < PROGRAMS; i++)
        free(r->outputs[i]);
    free(r->grads);
}

/** Euclidean distance relative to the length of `expected`. */
static double distance(const double *expected, const double *actual, size_t count)
{
    double error = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        error += (expected[i] - actual[i]) * (expected[i] - actual[i]);
        length += expected[i] * expected[i];
    }
    return sqrt(error / length);
}

/** The bounds are those of whole models in bf16 (nn/test_whole_models.c). */
TEST(a_step_with_a_large_upsampler_stays_near_ref)
{
    static const char upsampler[] = "conv3_wgmma_kernelILi3E"; /* CONV3_SHUFFLE */
    result expected = run(&cod_ref_backend, COD_F32);
    assert_int_equal(cod_emulated_launches_of(upsampler), 0);
    result actual = run(&cod_cuda_backend, COD_BF16);
    assert_int_equal(cod_emulated_launches_of(upsampler), PROGRAMS);
    cod_test_assert_none(cod_emulated_faults, "seed %d", SEED);
    const double losses = fabs((double)(expected.loss - actual.loss)) / (double)expected.loss,
                 grads = distance(expected.grads, actual.grads, expected.grad_count);
    printf("    loss %.2g, gradients %.2g", losses, grads);
    for (int i = 0; i < PROGRAMS; i++) {
        const double error = distance(expected.outputs[i], actual.outputs[i], expected.output_count);
        printf(", %s %.2g", programs[i], error);
        assert_true(error < 2e-2);
    }
    printf("\n");
    assert_true(losses < 4e-2 && grads < 5e-2);
    result_clear(&expected);
    result_clear(&actual);
}

TEST_DEVICE(cod_cuda_backend)
