/*
 * Two mini-batches of B, accumulated, are one of 2·B. With small whole numbers and power-of-two counts every sum is
 * exact in f32, so the order of summation does not matter and gradients must agree in every bit, on every backend, with
 * those in f64.
 */
#include "support/test.h"

#include "core/rng.h"
#include "cpu/cpu.h"
#include "nn/net.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 4, SIDE = 8, CHANNELS = 4, PIXELS = SIDE * SIDE * CHANNELS };

/** conv, ReLU, conv; the loss is weighted as the trainer does where it accumulates `parts` mini-batches. */
static cod_graph *make_graph(int parts, cod_value *loss)
{
    static const cod_conv2d_spec conv3 = {.out_channels = CHANNELS, .kernel = 3, .padding = 1};
    cod_graph *graph = NULL;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", CHANNELS);
    const cod_value hidden = cod_graph_activation(graph, cod_graph_conv2d(graph, "a", x, conv3), COD_ACT_RELU, 0);
    const cod_value y = cod_graph_conv2d(graph, "b", hidden, conv3);
    *loss = cod_graph_loss(graph, "loss", y, cod_graph_input_like(graph, "target", y),
                           (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 1.0f / (float)parts});
    return graph;
}

/** A whole number of low … high for each element: its stream is its place in the whole batch. */
static void fill_whole(double *values, size_t count, uint64_t stream, size_t first, int low, int high)
{
    for (size_t i = 0; i < count; i++) {
        cod_rng rng = cod_rng_open(5, 0, 0, stream, COD_RNG_TEST, (uint32_t)(first + i));
        values[i] = low + (int)cod_rng_below(&rng, (uint32_t)(high - low + 1));
    }
}

static void write_batch(const test_net *net, int part, int parts)
{
    const size_t count = (size_t)(BATCH / parts) * PIXELS;
    double *values = net_new(count);
    fill_whole(values, count, 1, (size_t)part * count, 0, 1);
    assert_ok(net_write(net, cod_executable_input(net->executable, "input"), values));
    fill_whole(values, count, 2, (size_t)part * count, -3, 3);
    assert_ok(net_write(net, cod_executable_input(net->executable, "target"), values));
    free(values);
}

/** Gradients of one whole batch, made in `parts` parts; new. */
static double *gradients(const cod_backend *backend, cod_dtype dtype, int parts, size_t *count)
{
    cod_value loss;
    cod_graph *graph = make_graph(parts, &loss);
    const cod_input_shape shape = {"input", {BATCH / parts, SIDE, SIDE, CHANNELS}};
    const cod_compile_options options = {.activation = dtype, .inputs = &shape, .input_count = 1};
    const cod_program_spec specs[] = {
        {.name = "first", .trains = "model", .losses = {loss}},
        {.name = "more", .trains = "model", .losses = {loss}, .accumulate = true},
    };
    test_net net;
    assert_ok(net_init(&net, backend, graph, &options, specs, 2, 1));
    *count = net.weights.layout.trainable;
    double *values = net_new(*count);
    fill_whole(values, *count, 3, 0, -1, 1);
    assert_ok(net_write_values(&net, values));
    for (int part = 0; part < parts; part++) {
        write_batch(&net, part, parts);
        assert_ok(net_run(&net, part == 0 ? "first" : "more"));
    }
    assert_ok(net_read_grads(&net, values));
    net_clear(&net);
    cod_graph_destroy(graph);
    return values;
}

TEST(accumulated_batches_are_one_large_batch_to_the_bit)
{
    static const struct {
        const char *name;
        const cod_backend *backend;
        cod_dtype dtype;
    } cases[] = {{"ref f64", &cod_ref_backend, COD_F64},
                 {"ref f32", &cod_ref_backend, COD_F32},
                 {"cpu f32", &cod_cpu_backend, COD_F32}};
    size_t count = 0;
    double *expected = gradients(&cod_ref_backend, COD_F64, 1, &count);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs(expected[i]);
    assert_true(sum > 1);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int parts = 1; parts <= BATCH; parts *= 2) {
            double *actual = gradients(cases[c].backend, cases[c].dtype, parts, &count);
            for (size_t i = 0; i < count; i++)
                if (actual[i] != expected[i])
                    fail_msg("%s, %d parts, gradient %zu: %.17g, not %.17g", cases[c].name, parts, i, actual[i],
                             expected[i]);
            free(actual);
        }
    free(expected);
}
