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

static void shapes_that_do_not_fit_name_the_layer(void **state)
{
    (void)state;
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

static void the_first_failure_of_a_graph_sticks(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_do_not_fit_name_the_layer),
        cmocka_unit_test(the_first_failure_of_a_graph_sticks),
    };
    return cmocka_run_group_tests_name("nn_graphs", tests, NULL, NULL);
}
