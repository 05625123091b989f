/*
 * SqueezeNet's layers: shapes, the least pictures, and features before the activation. Values are compared with
 * PyTorch's by test_lpips.c.
 */
#include "support/test.h"

#include "nn/net.h"
#include "nn/squeezenet.h"
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>

/** Layers 9, 3, 1, out of order, before the activation and behind it. */
typedef struct twins {
    cod_graph *graph;
    cod_value before[3], behind[3];
} twins;

static const int wanted[] = {9, 3, 1};

static twins make_twins(cod_squeezenet_names names)
{
    twins t;
    assert_ok(cod_graph_create(&t.graph));
    const cod_value pictures = cod_graph_input(t.graph, "pictures", 3);
    cod_squeezenet_spec spec = {
        .names = names, .layers = wanted, .layer_count = 3, .input = COD_VGG_CAFFE, .before_activation = true};
    cod_squeezenet_features(t.graph, pictures, spec, t.before);
    spec.before_activation = false;
    cod_squeezenet_features(t.graph, pictures, spec, t.behind);
    assert_ok(cod_graph_status(t.graph));
    return t;
}

static double *features_of(const test_net *net, cod_value value, int layer, size_t *count)
{
    const cod_view view = cod_executable_output(net->executable, value);
    assert_int_equal(view.shape.c, cod_squeezenet_channels(layer));
    *count = (size_t)cod_shape_count(view.shape);
    double *features = net_new(*count);
    assert_ok(net_read(net, view, features));
    return features;
}

TEST(activations_come_behind)
{
    twins t = make_twins(COD_SQUEEZENET_TORCHVISION);
    const cod_input_shape input = {"pictures", {2, 25, 26, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &input, .input_count = 1};
    const cod_program_spec program = {
        .name = "features", .outputs = {t.before[0], t.before[1], t.before[2], t.behind[0], t.behind[1], t.behind[2]}};
    test_net net;
    assert_ok(net_init(&net, &cod_ref_backend, t.graph, &options, &program, 1, 7));
    assert_ok(net_run(&net, "features"));
    for (int i = 0; i < 3; i++) {
        size_t count, others, negative = 0;
        double *before = features_of(&net, t.before[i], wanted[i], &count),
               *behind = features_of(&net, t.behind[i], wanted[i], &others);
        assert_int_equal(count, others);
        for (size_t k = 0; k < count; k++) {
            assert_true((before[k] > 0 ? before[k] : 0) == behind[k]);
            negative += before[k] < 0;
        }
        assert_true(negative > count / 10 && negative < count); /* one that was activated would have none */
        free(before), free(behind);
    }
    net_clear(&net);
    cod_graph_destroy(t.graph);
}

/** Both namings are of one network: as many parameters, of the same shapes, which cod_squeezenet_parts() tells. */
TEST(names_are_of_one_network)
{
    for (int names = COD_SQUEEZENET_TORCHVISION; names <= COD_SQUEEZENET_CAFFE; names++) {
        twins t = make_twins((cod_squeezenet_names)names);
        size_t at = 2; /* "normalise" has a weight and a bias */
        for (int layer = 1; layer <= COD_SQUEEZENET_LAYERS; layer++) {
            cod_squeezenet_part parts[COD_SQUEEZENET_PARTS];
            const int count = cod_squeezenet_parts((cod_squeezenet_names)names, layer, parts);
            for (int i = 0; i < count; i++, at += 2) {
                const cod_param *weight = cod_graph_param(t.graph, at);
                char name[64];
                snprintf(name, sizeof name, "%.47s.weight", parts[i].name);
                assert_string_equal(weight->name, name);
                assert_int_equal(weight->shape.n, parts[i].outputs);
                assert_int_equal(weight->shape.c, parts[i].inputs);
                assert_int_equal(weight->shape.h, parts[i].kernel);
            }
        }
        assert_int_equal(at, cod_graph_param_count(t.graph));
        cod_graph_destroy(t.graph);
    }
}

/** A picture of the least side has features, one of a pixel less has none. */
TEST(sides_are_the_least)
{
    for (int layer = 1; layer <= COD_SQUEEZENET_LAYERS; layer++)
        for (int less = 0; less < 2; less++) {
            cod_graph *graph;
            cod_value features;
            test_net net;
            assert_ok(cod_graph_create(&graph));
            const cod_squeezenet_spec spec = {.layers = &layer, .layer_count = 1};
            cod_squeezenet_features(graph, cod_graph_input(graph, "pictures", 3), spec, &features);
            const int64_t side = cod_squeezenet_side(layer) - less;
            const cod_input_shape input = {"pictures", {1, side, side, 3}};
            const cod_compile_options options = {.activation = COD_F32, .inputs = &input, .input_count = 1};
            const cod_program_spec program = {.name = "features", .outputs = {features}};
            const cod_status status = net_init(&net, &cod_ref_backend, graph, &options, &program, 1, 7);
            if ((status == COD_OK) != (less == 0))
                fail_msg("layer %d takes pictures of %lld pixels a side: %d", layer, (long long)side, status == COD_OK);
            net_clear(&net);
            cod_graph_destroy(graph);
        }
}
