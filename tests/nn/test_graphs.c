/* What graphs refuse: layers that do not fit, named. */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"

typedef cod_value (*faulty_graph)(cod_graph *graph, cod_value x);

static cod_value linear_on_image(cod_graph *g, cod_value x)
{
    return cod_graph_linear(g, "l", x, 2, false);
}

static cod_value window_too_large(cod_graph *g, cod_value x)
{
    return cod_graph_conv2d(g, "c", x, (cod_conv2d_spec){.out_channels = 1, .kernel = 9});
}

static cod_value sizes_differ(cod_graph *g, cod_value x)
{
    return cod_graph_add(g, x, cod_graph_pool(g, x, COD_POOL_MAX, 2, 2, 0));
}

static cod_value flattened_otherwise(cod_graph *g, cod_value x)
{
    return cod_graph_linear(g, "l", cod_graph_flatten(g, x, 2, 8), 2, false);
}

TEST(shapes_that_do_not_fit_name_the_layer)
{
    static const struct {
        faulty_graph build;
        const char *why;
    } cases[] = {{linear_on_image, "'l': a linear layer takes vectors, not 4x4 images"},
                 {window_too_large, "'c': a window of 9"},
                 {sizes_differ, "do not fit"},
                 {flattened_otherwise, "the image is 4x4, but the model was built for 2x8"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_graph *graph;
        assert_ok(cod_graph_create(&graph));
        const cod_value y = cases[i].build(graph, cod_graph_input(graph, "input", 3));
        const cod_input_shape input = {"input", {1, 4, 4, 3}};
        const cod_compile_options options = {.activation = COD_F64, .inputs = &input, .input_count = 1};
        const cod_program_spec spec = {.name = "p", .outputs = {y}};
        test_net net;
        assert_fails(COD_ERR_ARGUMENT, cases[i].why, net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 1));
        net_clear(&net);
        cod_graph_destroy(graph);
    }
}

TEST(the_first_failure_of_a_graph_sticks)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 3);
    cod_value y = cod_graph_pixel_shuffle(graph, x, 2);
    assert_int_equal(y, 0);
    y = cod_graph_add(graph, x, y);
    cod_graph_norm(graph, "n", y);
    assert_fails(COD_ERR_ARGUMENT, "pixel shuffle by 2", cod_graph_status(graph));
    cod_weights weights;
    assert_fails(COD_ERR_ARGUMENT, "pixel shuffle by 2",
                 cod_weights_init(&weights, &cod_ref_backend, NULL, graph, COD_F32, false));
    cod_graph_destroy(graph);
    assert_ok(cod_graph_create(&graph));
    const cod_value z = cod_graph_input(graph, "input", 3);
    cod_graph_linear(graph, "l", z, 2, false);
    cod_graph_linear(graph, "l", z, 3, false);
    assert_fails(COD_ERR_ARGUMENT, "parameter 'l.weight' is used with two shapes", cod_graph_status(graph));
    cod_graph_destroy(graph);
    assert_ok(cod_graph_create(&graph));
    cod_graph_input_like(graph, "input", cod_graph_input(graph, "input", 3));
    assert_fails(COD_ERR_ARGUMENT, "two inputs are called 'input'", cod_graph_status(graph));
    cod_graph_destroy(graph);
}

/** Channels of an input are values of their own, on a strided view; what trains on them has no gradient to pass on. */
TEST(slices_are_channels_of_an_input)
{
    enum { PIXELS = 2 * 3 * 4, ALL = 5, FIRST = 2, SOME = 3 };
    cod_graph *graph;
    net_check check;
    test_net net;
    double input[PIXELS * ALL], slice[PIXELS * SOME];
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 3);
    const cod_value y = cod_graph_conv2d(graph, "c", x, (cod_conv2d_spec){.out_channels = SOME, .kernel = 1});
    const cod_value wide = cod_graph_input_like_of(graph, "target", y, ALL),
                    part = cod_graph_slice(graph, wide, FIRST, SOME);
    const cod_value both =
        cod_graph_conv2d(graph, "d", part, (cod_conv2d_spec){.out_channels = SOME, .kernel = 3, .padding = 1});
    const cod_input_shape shape = {"input", {2, 3, 4, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    const cod_value loss =
        cod_graph_loss(graph, "loss", cod_graph_add(graph, y, both), part, (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_program_spec spec = {.name = "p", .trains = "model", .losses = {loss}, .outputs = {part, loss}};
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 1));
    assert_ok(net_check_gradients(&net, &spec, 3, &check));
    assert_true(check.smooth > 6);
    assert_ok(net_run(&net, "p"));
    assert_ok(net_read(&net, cod_executable_input(net.executable, "target"), input));
    assert_ok(net_read(&net, cod_executable_output(net.executable, part), slice));
    for (int i = 0; i < PIXELS; i++)
        assert_memory_equal(slice + i * SOME, input + i * ALL + FIRST, SOME * sizeof *slice);
    net_clear(&net);
    cod_graph_destroy(graph);
    for (int i = 0; i < 3; i++) {
        assert_ok(cod_graph_create(&graph));
        const cod_value z = cod_graph_input(graph, "input", 3);
        cod_graph_slice(graph, i == 0 ? cod_graph_add(graph, z, z) : z, i == 1 ? -1 : 1, i == 2 ? 3 : 2);
        assert_fails(COD_ERR_ARGUMENT, "cannot be taken of", cod_graph_status(graph));
        cod_graph_destroy(graph);
    }
}
