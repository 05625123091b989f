/*
 * Spectrally normalised convolutions: when u moves, gradients, and that all programs of a step divide by the same
 * sigma.
 */
#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/net.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CRITIC = 1, JUDGED = 2 * 3 * 2 * 3, TO_REST = 400 };

/** A critic of one normalised layer, and an activation that makes the loss depend on more than a product. */
typedef struct pair {
    cod_graph *graph;
    cod_value judged, on_fake, on_truth, deceived;
} pair;

static cod_value critic(cod_graph *graph, cod_value x)
{
    x = cod_graph_conv2d(
        graph, "c", x,
        (cod_conv2d_spec){.out_channels = 3, .kernel = 3, .stride = 2, .padding = 1, .spectral_norm = true});
    return cod_graph_activation(graph, x, COD_ACT_TANH, 0);
}

static pair make_pair(void)
{
    pair p;
    assert_ok(cod_graph_create(&p.graph));
    const cod_value x = cod_graph_input(p.graph, "input", 2);
    const cod_value fake =
        cod_graph_conv2d(p.graph, "g", x, (cod_conv2d_spec){.out_channels = 2, .kernel = 3, .padding = 1});
    const cod_value truth = cod_graph_input_like(p.graph, "target", fake);
    cod_graph_use_set(p.graph, "critic");
    p.judged = critic(p.graph, truth);
    const cod_value judged_fake = critic(p.graph, fake);
    const cod_value labels = cod_graph_input_like(p.graph, "labels", p.judged);
    const cod_loss_spec mse = {.kind = COD_LOSS_MSE};
    p.on_truth = cod_graph_loss(p.graph, "on_truth", p.judged, labels, mse);
    p.on_fake = cod_graph_loss(p.graph, "on_fake", judged_fake, labels, mse);
    p.deceived = cod_graph_loss(p.graph, "deceived", judged_fake, labels, mse);
    assert_ok(cod_graph_status(p.graph));
    return p;
}

enum { PROGRAMS = 4 };

static void make_net(const pair *p, const cod_backend *backend, cod_dtype dtype, bool no_fusion, test_net *net)
{
    const cod_program_spec critic_spec = {.name = "critic",
                                          .trains = "critic",
                                          .losses = {p->on_truth, p->on_fake},
                                          .outputs = {p->on_truth, p->on_fake, p->judged}};
    cod_program_spec specs[PROGRAMS] = {
        critic_spec,
        critic_spec,
        {.name = "model", .trains = "model", .losses = {p->deceived}, .outputs = {p->deceived}},
        {.name = "judge", .outputs = {p->judged}}};
    specs[1].name = "more";
    specs[1].accumulate = true;
    const cod_input_shape shape = {"input", {2, 5, 4, 2}};
    const cod_compile_options options = {
        .activation = dtype, .inputs = &shape, .input_count = 1, .no_fusion = no_fusion};
    assert_ok(net_init(net, backend, p->graph, &options, specs, PROGRAMS, 3));
}

/** Lets u come to rest: there the gradient, which takes singular vectors for constants, is that of the losses. */
static void settle(test_net *net)
{
    for (int i = 0; i < TO_REST; i++)
        assert_ok(net_run(net, "critic"));
}

/** Two uses of a layer in a run take one step of the power iteration together, and none where the layer is frozen. */
TEST(a_run_that_trains_moves_u_once)
{
    const pair p = make_pair();
    test_net net;
    make_net(&p, &cod_ref_backend, COD_F64, false, &net);
    const size_t count = cod_weights_count(&net.weights);
    double *start = net_new(count), *now = net_new(count), *frozen = net_new(JUDGED), *trained = net_new(JUDGED);
    assert_int_equal(net_count_kind(&net, "critic", COD_OP_SPECTRAL_NORM), 1);
    assert_int_equal(net_count_kind(&net, "critic", COD_OP_SPECTRAL_NORM_BACKWARD), 2);
    assert_int_equal(net_count_kind(&net, "model", COD_OP_SPECTRAL_NORM_BACKWARD), 0);
    assert_ok(net_read_values(&net, start));
    assert_ok(net_run(&net, "model"));
    assert_ok(net_run(&net, "judge"));
    assert_ok(net_read(&net, cod_executable_output(net.executable, p.judged), frozen));
    assert_ok(net_read_values(&net, now));
    assert_memory_equal(start, now, count * sizeof *now);
    for (int run = 0; run < 2; run++) { /* as before u was kept, and then by a u that has moved */
        assert_ok(net_run(&net, "critic"));
        assert_ok(net_read(&net, cod_executable_output(net.executable, p.judged), trained));
        assert_true((memcmp(frozen, trained, JUDGED * sizeof *frozen) == 0) == (run == 0));
        memcpy(start, now, count * sizeof *now);
        assert_ok(net_read_values(&net, now));
        const size_t states = net.weights.sets[CRITIC].range.state_first;
        assert_true(memcmp(start, now, states * sizeof *now) == 0);
        assert_true(memcmp(start + states, now + states, (count - states) * sizeof *now) != 0);
    }
    free(start), free(now), free(frozen), free(trained);
    net_clear(&net);
    cod_graph_destroy(p.graph);
}

TEST(gradients_agree_with_differences)
{
    const pair p = make_pair();
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        test_net net;
        net_check check;
        make_net(&p, &cod_ref_backend, COD_F64, no_fusion, &net);
        settle(&net);
        cod_program_spec spec = {.name = "critic", .trains = "critic", .losses = {p.on_truth, p.on_fake}};
        assert_ok(net_check_gradients(&net, &spec, 5, &check));
        assert_ok(net_check_gradients(&net, &(cod_program_spec){"model", .trains = "model", .losses = {p.deceived}}, 5,
                                      &check));
        spec.losses[1] = 0; /* the gradient of two losses is not that of one: the check can fail */
        assert_int_equal(net_check_gradients(&net, &spec, 5, &check), COD_ERR_NUMERIC);
        net_clear(&net);
    }
    cod_graph_destroy(p.graph);
}

/** Compares within `tolerance` of the largest element. */
static void expect_near(const char *what, const double *actual, const double *expected, size_t count, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(actual[i] - expected[i]) <= tolerance * largest))
            fail_msg("%s, element %zu: %.10g, expected %.10g", what, i, actual[i], expected[i]);
}

/** A second mini-batch adds its gradient to that of the first, which `cpu` computes in f32 as `ref` does in f64. */
TEST(gradients_add_up_on_every_backend)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    const pair p = make_pair();
    double *expected[2] = {NULL, NULL}, *values[2] = {NULL, NULL};
    size_t first = 0, count = 0;
    for (int b = 0; b < 2; b++) {
        test_net net;
        make_net(&p, backends[b], b == 0 ? COD_F64 : COD_F32, false, &net);
        const size_t all = cod_weights_count(&net.weights);
        double *once = net_new(all), *twice = expected[b] = net_new(all);
        values[b] = net_new(all);
        first = net.weights.sets[CRITIC].range.first, count = net.weights.sets[CRITIC].range.count;
        settle(&net);
        assert_ok(net_read_grads(&net, once));
        assert_ok(net_run(&net, "more"));
        assert_ok(net_read_grads(&net, twice));
        assert_ok(net_read_values(&net, values[b]));
        for (size_t i = 0; i < all; i++)
            once[i] *= 2;
        expect_near("twice", twice + first, once + first, count, 1e-5);
        if (b > 0) {
            expect_near("gradient", expected[1] + first, expected[0] + first, count, 1e-4);
            expect_near("values", values[1], values[0], all, 1e-5);
        }
        free(once);
        net_clear(&net);
    }
    for (int b = 0; b < 2; b++)
        free(expected[b]), free(values[b]);
    cod_graph_destroy(p.graph);
}
