/*
 * Gradients as values of a graph: against differences of the values they are gradients of, and gradients of losses that
 * read them, the R1 penalty of a small U-Net with spectral normalisation among them, against differences of these
 * losses.
 */
#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/discriminator.h"
#include "nn/net.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

enum { N = 2, SIDE = 8, CHANNELS = 3, INPUTS = N * SIDE * SIDE * CHANNELS, CRITIC = 1, TO_REST = 300 };

/** A discriminator of pictures, the gradient of its summed logits, and losses that read both. */
typedef struct penalised {
    cod_graph *graph;
    cod_value logits, gradient, judged, penalty;
} penalised;

/** Ends the graph with its losses. */
static void add_losses(penalised *p, cod_value pictures)
{
    const cod_loss_spec mse = {.kind = COD_LOSS_MSE};
    cod_loss_spec heavy = mse;
    heavy.weight = 12;
    const cod_value ones = cod_graph_input_like(p->graph, "ones", p->logits);
    p->gradient = cod_graph_gradient(p->graph, p->logits, ones, pictures);
    const cod_value zeros = cod_graph_input_like(p->graph, "zeros", p->gradient);
    p->judged = cod_graph_loss(p->graph, "judged", p->logits, ones, mse);
    p->penalty = cod_graph_loss(p->graph, "penalty", p->gradient, zeros, heavy);
    assert_ok(cod_graph_status(p->graph));
}

static penalised make_unet(void)
{
    penalised p;
    assert_ok(cod_graph_create(&p.graph));
    const cod_value pictures = cod_graph_input(p.graph, "input", CHANNELS);
    cod_graph_use_set(p.graph, "critic");
    p.logits = cod_unet_discriminator(p.graph, pictures, 2);
    add_losses(&p, pictures);
    return p;
}

/** What a U-Net lacks: a window that leaves pixels out, uneven sides, a ReLU, and a value that is read three times. */
static penalised make_other(void)
{
    penalised p;
    assert_ok(cod_graph_create(&p.graph));
    const cod_value pictures = cod_graph_input(p.graph, "input", CHANNELS);
    cod_graph_use_set(p.graph, "critic");
    cod_value x =
        cod_graph_conv2d(p.graph, "a", pictures, (cod_conv2d_spec){.out_channels = 5, .kernel = 3, .stride = 3});
    const cod_value twice = cod_graph_add(p.graph, x, x);
    x = cod_graph_add(p.graph, twice, cod_graph_activation(p.graph, x, COD_ACT_RELU, 0));
    x = cod_graph_resize(p.graph, x, 2, COD_RESIZE_BICUBIC);
    p.logits = cod_graph_conv2d(p.graph, "b", x, (cod_conv2d_spec){.out_channels = 2, .kernel = 2});
    add_losses(&p, pictures);
    return p;
}

enum { PROGRAMS = 3 };

/** @param options  of which inputs are set here */
static void make_net(const penalised *p, const cod_backend *backend, cod_compile_options options, test_net *net)
{
    const cod_program_spec specs[PROGRAMS] = {
        {.name = "both",
         .trains = "critic",
         .losses = {p->judged, p->penalty},
         .outputs = {p->judged, p->penalty, p->logits}},
        {.name = "alone", .trains = "critic", .losses = {p->penalty}, .outputs = {p->penalty, p->gradient}},
        {.name = "look", .outputs = {p->logits, p->gradient}}};
    const cod_input_shape shape = {"input", {N, SIDE, SIDE, CHANNELS}};
    options.inputs = &shape;
    options.input_count = 1;
    assert_ok(net_init(net, backend, p->graph, &options, specs, PROGRAMS, 11));
    const char *const constants[] = {"ones", "zeros"};
    for (int i = 0; i < 2; i++) {
        const cod_view view = cod_executable_input(net->executable, constants[i]);
        const size_t count = (size_t)cod_shape_count(view.shape);
        double *values = net_new(count);
        for (size_t k = 0; k < count; k++)
            values[k] = 1 - i;
        assert_ok(net_write(net, view, values));
        free(values);
    }
}

/** Lets singular vectors come to rest: there the gradient, which takes them for constants, is that of the losses. */
static void settle(test_net *net)
{
    for (int i = 0; i < TO_REST; i++)
        assert_ok(net_run(net, "both"));
}

static double sum_of(const test_net *net, cod_value value)
{
    const cod_view view = cod_executable_output(net->executable, value);
    const size_t count = (size_t)cod_shape_count(view.shape);
    double *values = net_new(count), sum = 0;
    assert_ok(net_read(net, view, values));
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    free(values);
    return sum;
}

/** Differences of the summed logits by elements of the pictures. */
static void check_values(const penalised *p, test_net *net)
{
    const double step = 1e-6;
    const cod_view input = cod_executable_input(net->executable, "input");
    double *x = net_new(INPUTS), *gradient = net_new(INPUTS);
    size_t smooth = 0, tried = 0;
    assert_ok(net_run(net, "look"));
    assert_ok(net_read(net, input, x));
    assert_ok(net_read(net, cod_executable_output(net->executable, p->gradient), gradient));
    for (size_t i = 0; i < INPUTS; i += 7, tried++) {
        double sums[3];
        const double value = x[i];
        for (int side = 0; side < 3; side++) {
            x[i] = value + (side - 1) * step;
            assert_ok(net_write(net, input, x));
            assert_ok(net_run(net, "look"));
            sums[side] = sum_of(net, p->logits);
        }
        x[i] = value;
        if (fabs(sums[2] - 2 * sums[1] + sums[0]) > 1e-12)
            continue; /* a kink lies within the step */
        smooth++;
        if (fabs((sums[2] - sums[0]) / (2 * step) - gradient[i]) > 1e-7)
            fail_msg("element %zu: %.10g, differences say %.10g", i, gradient[i], (sums[2] - sums[0]) / (2 * step));
    }
    assert_ok(net_write(net, input, x));
    assert_true(2 * smooth > tried);
    free(x), free(gradient);
}

TEST(gradients_agree_with_differences)
{
    const cod_compile_options variants[] = {{.activation = COD_F64},
                                            {.activation = COD_F64, .no_fusion = true},
                                            {.activation = COD_F64, .recompute = true, .slices = N}};
    for (size_t v = 0; v < 2 * sizeof variants / sizeof variants[0]; v++) {
        const penalised p = v % 2 == 0 ? make_unet() : make_other();
        test_net net;
        net_check check;
        make_net(&p, &cod_ref_backend, variants[v / 2], &net);
        assert_int_equal(net_count_kind(&net, "alone", COD_OP_LOSS), variants[v / 2].slices > 0 ? N : 1);
        settle(&net);
        check_values(&p, &net);
        cod_program_spec spec = {.name = "alone", .trains = "critic", .losses = {p.penalty}};
        assert_ok(net_check_gradients(&net, &spec, 5, &check));
        spec = (cod_program_spec){.name = "both", .trains = "critic", .losses = {p.judged, p.penalty}};
        assert_ok(net_check_gradients(&net, &spec, 5, &check));
        spec.losses[1] = 0; /* the gradient with the penalty is not that without: the check can fail */
        assert_int_equal(net_check_gradients(&net, &spec, 5, &check), COD_ERR_NUMERIC);
        net_clear(&net);
        cod_graph_destroy(p.graph);
    }
}

/** A penalty alone says nothing of what only adds to logits. */
TEST(biases_have_no_gradient)
{
    const penalised p = make_unet();
    test_net net;
    size_t biases = 0;
    make_net(&p, &cod_ref_backend, (cod_compile_options){.activation = COD_F64}, &net);
    double *grads = net_new(net.weights.layout.trainable);
    assert_ok(net_run(&net, "both"));
    assert_ok(net_run(&net, "alone"));
    assert_ok(net_read_grads(&net, grads));
    for (size_t i = 0; i < cod_graph_param_count(p.graph); i++) {
        const cod_param *param = cod_graph_param(p.graph, i);
        if (param->is_state)
            continue;
        double largest = 0;
        for (size_t k = 0; k < (size_t)cod_shape_count(param->shape); k++)
            largest = fmax(largest, fabs(grads[param->offset + k]));
        biases += param->rank == 1;
        assert_true((largest == 0) == (param->rank == 1));
    }
    assert_int_equal(biases, 2);
    free(grads);
    net_clear(&net);
    cod_graph_destroy(p.graph);
}

/** How far `actual` is from `expected`, as a share of its length. */
static double distance(const double *actual, const double *expected, size_t count)
{
    double difference = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        length += expected[i] * expected[i];
    }
    return sqrt(difference / length);
}

/** `cpu` in f32 and, where the processor has it, in bf16, of which a product of a dozen layers keeps two digits. */
TEST(cpu_agrees_with_ref)
{
    static const struct {
        cod_dtype dtype;
        double tolerance;
    } cases[] = {{COD_F64, 0}, {COD_F32, 1e-5}, {COD_BF16, 2e-2}};
    const penalised p = make_unet();
    double *expected = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_backend *backend = i == 0 ? &cod_ref_backend : &cod_cpu_backend;
        cod_device *device;
        assert_ok(backend->open(NULL, &device));
        const bool supported = backend->supports(device, cases[i].dtype);
        backend->close(device);
        if (!supported)
            continue;
        test_net net;
        make_net(&p, backend, (cod_compile_options){.activation = cases[i].dtype}, &net);
        const cod_set_range range = net.weights.sets[CRITIC].range;
        double *grads = net_new(net.weights.layout.trainable);
        assert_ok(net_run(&net, "both"));
        assert_ok(net_read_grads(&net, grads));
        if (expected != NULL) {
            const double far = distance(grads + range.first, expected + range.first, range.count);
            if (!(far <= cases[i].tolerance))
                fail_msg("%s: gradients are %.3g apart", cod_dtype_name(cases[i].dtype), far);
            free(grads);
        } else {
            expected = grads;
        }
        net_clear(&net);
    }
    free(expected);
    cod_graph_destroy(p.graph);
}

/** Demands that there is no gradient of y by x. */
static void refuse(cod_graph *graph, cod_value y, cod_value x, const char *message)
{
    assert_int_equal(cod_graph_gradient(graph, y, cod_graph_input_like(graph, "ones", y), x), 0);
    assert_int_equal(cod_graph_status(graph), COD_ERR_ARGUMENT);
    cod_test_assert_contains(cod_error_message(), message);
    cod_graph_destroy(graph);
}

TEST(other_operations_are_refused)
{
    enum { NORM, TANH, SQUASHED, SCALED, CONCAT, APART, CASES };
    static const char *const messages[CASES] = {
        "'bn': losses cannot read a gradient that passes it", "losses cannot read a gradient that passes it",
        "losses cannot read a gradient that passes it",       "losses cannot read a gradient that passes it",
        "losses cannot read a gradient that passes it",       "'other' does not depend on 'input'"};
    for (int i = 0; i < CASES; i++) {
        cod_graph *graph;
        assert_ok(cod_graph_create(&graph));
        const cod_value x = cod_graph_input(graph, "input", 2), parts[] = {x, x};
        const cod_value y = i == NORM       ? cod_graph_norm(graph, "bn", x)
                            : i == TANH     ? cod_graph_activation(graph, x, COD_ACT_TANH, 0)
                            : i == SQUASHED ? cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, -0.1f)
                            : i == SCALED   ? cod_graph_scaled_add(graph, 0.5f, x, 1, x)
                            : i == CONCAT   ? cod_graph_concat(graph, parts, 2)
                                            : cod_graph_input(graph, "other", 2);
        refuse(graph, y, x, messages[i]);
    }
}
