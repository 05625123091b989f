/*
 * Losses in graphs: gradients through the prediction and through the target against central differences, relativistic
 * pairs, total variation that is trained away, and what is refused.
 */
#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const cod_input_shape picture = {"input", {3, 4, 5, 2}};

/** The options of a program in f64 on pictures. */
static cod_compile_options exact(bool no_fusion)
{
    return (cod_compile_options){.activation = COD_F64, .inputs = &picture, .input_count = 1, .no_fusion = no_fusion};
}

static cod_value layer(cod_graph *graph, const char *name, cod_value x, int64_t channels)
{
    return cod_graph_conv2d(graph, name, x, (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1});
}

static cod_value vectors(cod_graph *graph, const char *name, cod_value x)
{
    return cod_graph_linear(graph, name, cod_graph_flatten(graph, x, 4, 5), 4, false);
}

static cod_graph *new_graph(cod_value *x)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    *x = cod_graph_input(graph, "input", 2);
    return graph;
}

/** Compiles the training program for the paranoid `ref`, fused or not, and checks its gradients against differences. */
static void check_gradients(cod_graph *graph, const cod_program_spec *spec, const char *what)
{
    assert_ok(cod_graph_status(graph));
    for (int plain = 0; plain < 2; plain++) {
        const cod_compile_options options = exact(plain);
        test_net net;
        net_check check;
        assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), graph, &options, spec, 1, 5));
        const cod_status status = net_check_gradients(&net, spec, 5, &check);
        if (status != COD_OK)
            fail_msg("%s: %s", what, cod_error_message());
        assert_true(check.smooth > 0);
        net_clear(&net);
        cod_test_assert_none(cod_paranoid_violations, "%s", what);
    }
}

/** What stands on the target's side: a probability where the loss wants one. */
static cod_value target_of(cod_graph *graph, cod_loss_kind kind, cod_value y)
{
    const bool probability = kind == COD_LOSS_BCE || kind == COD_LOSS_CROSS_ENTROPY;
    return probability ? cod_graph_activation(graph, y, COD_ACT_SIGMOID, 0) : y;
}

TEST(gradients_flow_to_both_sides)
{
    for (int kind = COD_LOSS_L1; kind < COD_LOSS_TV; kind++) {
        for (int64_t first = 0; first < 3; first += 2) {
            char what[64];
            cod_value x;
            cod_graph *graph = new_graph(&x);
            const cod_value prediction = vectors(graph, "a", layer(graph, "c", x, 2));
            const cod_value target =
                target_of(graph, (cod_loss_kind)kind, vectors(graph, "b", layer(graph, "d", x, 2)));
            const cod_loss_spec loss = {.kind = (cod_loss_kind)kind,
                                        .weight = 0.7f,
                                        .temperature = 2,
                                        .smoothing = 0.1f,
                                        .first_items = first,
                                        .target_gradient = true};
            cod_program_spec spec = {.name = "train", .trains = "model"};
            spec.losses[0] = spec.outputs[0] = cod_graph_loss(graph, "loss", prediction, target, loss);
            snprintf(what, sizeof what, "loss %d, first %d items", kind, (int)first);
            check_gradients(graph, &spec, what);
            cod_graph_destroy(graph);
        }
    }
}

/**
 * One value is the prediction of a loss, the target of the next, and both have more contributions: some add, some
 * write.
 */
TEST(values_on_both_sides_sum_their_gradients)
{
    for (int order = 0; order < 4; order++) {
        cod_value x;
        cod_graph *graph = new_graph(&x);
        const cod_value a = layer(graph, "a", x, 3), b = layer(graph, "b", x, 3), c = layer(graph, "c", a, 3);
        const cod_loss_spec both = {.kind = COD_LOSS_MSE, .target_gradient = true};
        const cod_loss_spec some = {.kind = COD_LOSS_CHARBONNIER, .target_gradient = true, .first_items = 2};
        const cod_loss_spec tv = {.kind = COD_LOSS_TV, .weight = 0.3f};
        cod_program_spec spec = {.name = "train", .trains = "model"};
        spec.losses[0] = cod_graph_loss(graph, "ab", order & 1 ? b : a, order & 1 ? a : b, both);
        spec.losses[1] = cod_graph_loss(graph, "ca", order & 2 ? a : c, order & 2 ? c : a, some);
        spec.losses[2] = cod_graph_loss(graph, "bc", b, c, some);
        spec.losses[3] = cod_graph_loss(graph, "tv", c, 0, tv);
        for (int i = 0; i < 4; i++)
            spec.outputs[i] = spec.losses[i];
        check_gradients(graph, &spec, "shared values");
        cod_graph_destroy(graph);
    }
}

/** Without being asked for, no gradient flows to a target that parameters made. */
TEST(targets_are_constants_by_default)
{
    cod_value x;
    cod_graph *graph = new_graph(&x);
    const cod_value prediction = layer(graph, "a", x, 2), target = layer(graph, "b", x, 2);
    const cod_value loss = cod_graph_loss(graph, "loss", prediction, target, (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {loss}, .outputs = {loss}};
    const cod_compile_options options = exact(false);
    test_net net;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 3));
    double *grads = net_new(net.weights.layout.trainable);
    assert_ok(net_run(&net, "train"));
    assert_ok(net_read_grads(&net, grads));
    for (size_t p = 0; p < cod_graph_param_count(graph); p++) {
        const cod_param *param = cod_graph_param(graph, p);
        double largest = 0;
        for (int64_t i = 0; i < cod_shape_count(param->shape); i++)
            largest = fmax(largest, fabs(grads[param->offset + (size_t)i]));
        assert_true((largest > 0) == (param->name[0] == 'a'));
    }
    free(grads);
    net_clear(&net);
    cod_graph_destroy(graph);
}

/** a - mean(b): how much more real than the average of the others. */
static cod_value relative(cod_graph *graph, cod_value a, cod_value b)
{
    return cod_graph_scaled_add(graph, 1, a, -1, cod_graph_mean(graph, b));
}

/** A critic's logits of two batches, and the relativistic average losses of either compared with the other. */
static cod_graph *relativistic(cod_program_spec *spec)
{
    cod_value x;
    cod_graph *graph = new_graph(&x);
    const cod_value real = layer(graph, "critic", x, 1);
    const cod_value fake = layer(graph, "critic", layer(graph, "generator", x, 2), 1);
    const cod_value ones = cod_graph_input_like(graph, "ones", real),
                    zeros = cod_graph_input_like(graph, "zeros", real);
    const cod_loss_spec bce = {.kind = COD_LOSS_BCE, .weight = 0.5f};
    *spec = (cod_program_spec){.name = "train", .trains = "model"};
    spec->losses[0] = spec->outputs[0] = cod_graph_loss(graph, "real", relative(graph, real, fake), ones, bce);
    spec->losses[1] = spec->outputs[1] = cod_graph_loss(graph, "fake", relative(graph, fake, real), zeros, bce);
    return graph;
}

TEST(relativistic_pairs_have_right_gradients)
{
    cod_program_spec spec;
    cod_graph *graph = relativistic(&spec);
    check_gradients(graph, &spec, "relativistic pair");
    cod_graph_destroy(graph);
}

/** The same program on `cpu` in f32 gives what `ref` gives. */
TEST(relativistic_pairs_agree_on_cpu)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    cod_program_spec spec;
    cod_graph *graph = relativistic(&spec);
    double *grads[2], losses[2][2], largest = 0;
    size_t count = 0;
    for (int b = 0; b < 2; b++) {
        const cod_compile_options options = {.activation = COD_F32, .inputs = &picture, .input_count = 1};
        test_net net;
        assert_ok(net_init(&net, backends[b], graph, &options, &spec, 1, 9));
        count = net.weights.layout.trainable;
        grads[b] = net_new(count);
        assert_ok(net_run(&net, "train"));
        assert_ok(net_read_grads(&net, grads[b]));
        for (int i = 0; i < 2; i++)
            assert_ok(net_read(&net, cod_executable_output(net.executable, spec.losses[i]), &losses[b][i]));
        net_clear(&net);
    }
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(grads[0][i]));
    assert_true(largest > 0);
    for (size_t i = 0; i < count; i++) /* sums of 60 terms of both signs in f32 */
        assert_true(fabs(grads[1][i] - grads[0][i]) <= 2e-5 * largest);
    for (int i = 0; i < 2; i++)
        assert_true(fabs(losses[1][i] - losses[0][i]) <= 4e-6 * losses[0][i]);
    free(grads[0]), free(grads[1]);
    cod_graph_destroy(graph);
}

/** A layer that copies its input learns to smooth it. */
TEST(total_variation_is_trained_away)
{
    cod_value x;
    cod_graph *graph = new_graph(&x);
    const cod_value loss =
        cod_graph_loss(graph, "tv", layer(graph, "a", x, 2), 0, (cod_loss_spec){.kind = COD_LOSS_TV});
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {loss}, .outputs = {loss}};
    const cod_compile_options options = exact(false);
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    cod_optimiser *optimiser;
    test_net net;
    float first, last;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 2));
    assert_ok(cod_optimiser_create(&net.weights, 0, &adam, &optimiser));
    for (int step = 1; step <= 200; step++) {
        assert_ok(net_run(&net, "train"));
        assert_ok(cod_executable_loss(net.executable, loss, step == 1 ? &first : &last));
        assert_ok(cod_optimiser_step(optimiser, 1e-2, step));
    }
    if (!(last < 0.1f * first))
        fail_msg("total variation went from %g to %g only", (double)first, (double)last);
    cod_optimiser_destroy(optimiser);
    net_clear(&net);
    cod_graph_destroy(graph);
}

TEST(targets_that_do_not_suit_the_loss_are_refused)
{
    static const struct {
        cod_loss_spec loss;
        int target; /* 0 none, 1 the prediction itself, 2 another value */
        const char *why;
    } cases[] = {{{.kind = COD_LOSS_MSE}, 0, "loss 'l' needs a target"},
                 {{.kind = COD_LOSS_TV}, 2, "loss 'l': total variation has no target"},
                 {{.kind = COD_LOSS_TV, .target_gradient = true}, 0, "loss 'l': total variation has no target"},
                 {{.kind = COD_LOSS_L1, .target_gradient = true}, 1, "loss 'l': prediction and target are one value"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_value x;
        cod_graph *graph = new_graph(&x);
        const cod_value y = layer(graph, "a", x, 2), targets[] = {0, y, x};
        assert_int_equal(cod_graph_loss(graph, "l", y, targets[cases[i].target], cases[i].loss), 0);
        assert_fails(COD_ERR_ARGUMENT, cases[i].why, cod_graph_status(graph));
        cod_graph_destroy(graph);
    }
}
