/*
 * Whole models against PyTorch: losses, gradients, running statistics and weights over three steps, and inference with
 * folded normalisation; parameters by PyTorch's names and layout. The file is written by tests/golden/make_models.py.
 */
#include "support/test.h"

#include "nn/discriminator.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "nn/torch_case.h"
#include "nn/vgg.h"
#include "ref/ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS_FILE COD_TEST_DIR "/../golden/models.bin"

/** `values`: the flat buffer; every parameter of the graph against PREFIX.NAME. */
static void compare_params(const torch_case *c, const test_net *net, const char *prefix, const double *values,
                           bool states, bool trainable, double tolerance)
{
    size_t compared = 0, present = 0;
    for (size_t i = 0; i < cod_graph_param_count(net->graph); i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        if (param->is_state ? !states : !trainable)
            continue;
        const torch_tensor *expected = torch_case_find(c, prefix, param->name);
        float *ours = calloc(expected->count + 1, sizeof *ours), *torch = calloc(expected->count + 1, sizeof *torch);
        int64_t dims[4];
        assert_int_equal(expected->count, cod_shape_count(param->shape));
        for (size_t k = 0; k < expected->count; k++)
            ours[k] = (float)values[param->offset + k];
        cod_param_to_torch(param, ours, torch, dims);
        assert_int_equal(expected->rank, param->rank);
        for (int k = 0; k < param->rank; k++)
            assert_int_equal(dims[k], expected->dims[k]);
        torch_case_compare(c, prefix, torch, expected, tolerance);
        free(ours), free(torch);
        compared++;
    }
    for (uint32_t i = 0; i < c->tensor_count; i++)
        present += strncmp(c->tensors[i].name, prefix, strlen(prefix)) == 0;
    assert_int_equal(compared, present); /* nothing of PyTorch's is missing in ours */
}

/** Parameters whose starting values the graph gives start where PyTorch's do. */
static void compare_given_starts(const torch_case *c, test_net *net)
{
    double *values = net_new(cod_weights_count(&net->weights));
    assert_ok(cod_weights_fill_initial(&net->weights, 1));
    assert_ok(net_read_values(net, values));
    for (size_t i = 0; i < cod_graph_param_count(net->graph); i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        if (param->start == NULL)
            continue;
        const torch_tensor *start = torch_case_find(c, "start.", param->name);
        float *ours = calloc(start->count + 1, sizeof *ours), *torch = calloc(start->count + 1, sizeof *torch);
        int64_t dims[4];
        for (size_t k = 0; k < start->count; k++)
            ours[k] = (float)values[param->offset + k];
        cod_param_to_torch(param, ours, torch, dims);
        torch_case_compare(c, "start", torch, start, 1e-7);
        free(ours), free(torch);
    }
    free(values);
}

static void load_start(const torch_case *c, test_net *net)
{
    double *values = net_new(cod_weights_count(&net->weights));
    for (size_t i = 0; i < cod_graph_param_count(net->graph); i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        torch_case_read_param(torch_case_find(c, "start.", param->name), param, values);
    }
    assert_ok(net_write_values(net, values));
    free(values);
}

static void compare_output(const torch_case *c, test_net *net, cod_value output, double tolerance)
{
    const torch_tensor *expected = torch_case_find(c, "output", "");
    const cod_view view = cod_executable_output(net->executable, output);
    const cod_shape s = view.shape;
    double *values = net_new(expected->count);
    float *nchw = calloc(expected->count + 1, sizeof *nchw);
    assert_int_equal(cod_shape_count(s), expected->count);
    assert_ok(net_read(net, view, values));
    for (int64_t i = 0; i < cod_shape_count(s); i++) {
        const int64_t channel = i % s.c, x = i / s.c % s.w, y = i / s.c / s.w % s.h, n = i / s.c / s.w / s.h;
        nchw[((n * s.c + channel) * s.h + y) * s.w + x] = (float)values[i];
    }
    torch_case_compare(c, "inference", nchw, expected, tolerance);
    free(values), free(nchw);
}

/** As class Flat of make_models.py. */
static cod_value build_flat(cod_graph *graph, cod_value x)
{
    x = cod_graph_conv2d(graph, "conv", x,
                         (cod_conv2d_spec){.out_channels = 4, .kernel = 3, .stride = 2, .padding = 1});
    x = cod_graph_activation(graph, x, COD_ACT_TANH, 0);
    return cod_graph_linear(graph, "out", cod_graph_flatten(graph, x, 3, 2), 5, false);
}

/** Networks that are no models of their own. @return 0 where the case is a model */
static cod_value build_function(const torch_case *c, cod_graph *graph, cod_value x)
{
    if (strcmp(c->kind, "flat") == 0)
        return build_flat(graph, x);
    if (strcmp(c->kind, "srgan_discriminator") == 0) {
        cod_srgan_discriminator_spec spec;
        assert_int_equal(sscanf(c->options, "height=%" SCNd64 " width=%" SCNd64 " features=%" SCNd64 " hidden=%" SCNd64,
                                &spec.height, &spec.width, &spec.features, &spec.hidden),
                         4);
        return cod_srgan_discriminator(graph, x, spec);
    }
    if (strcmp(c->kind, "unet_discriminator") == 0) {
        int64_t features;
        assert_int_equal(sscanf(c->options, "features=%" SCNd64, &features), 1);
        return cod_unet_discriminator(graph, x, features);
    }
    if (strcmp(c->kind, "vgg19") == 0) {
        cod_vgg_layer layer;
        cod_vgg_spec spec = {.layers = &layer, .layer_count = 1};
        cod_value features;
        int before, input;
        assert_int_equal(sscanf(c->options, "block=%d convolution=%d before=%d input=%d channels=%" SCNd64,
                                &layer.block, &layer.convolution, &before, &input, &spec.channels),
                         5);
        spec.before_activation = before != 0;
        spec.input = (cod_vgg_input)input;
        cod_vgg_features(graph, x, spec, &features);
        return features;
    }
    return 0;
}

typedef struct trained {
    cod_graph *graph;
    cod_value output, loss;
} trained;

static trained build_case(const torch_case *c, cod_arena *arena)
{
    trained built;
    cod_model model;
    assert_ok(cod_graph_create(&built.graph));
    built.output = build_function(c, built.graph, cod_graph_input(built.graph, "input", 3));
    if (built.output == 0) {
        cod_graph_destroy(built.graph);
        assert_ok(net_model(c->kind, c->options, arena, &model));
        built = (trained){.graph = model.graph, .output = model.output};
    }
    const cod_loss_kind kind = strcmp(c->loss, "cross_entropy") == 0 ? COD_LOSS_CROSS_ENTROPY
                               : strcmp(c->loss, "l1") == 0          ? COD_LOSS_L1
                               : strcmp(c->loss, "bce") == 0         ? COD_LOSS_BCE
                                                                     : COD_LOSS_MSE;
    const cod_value target = cod_graph_input_like(built.graph, "target", built.output);
    built.loss = cod_graph_loss(built.graph, "loss", built.output, target, (cod_loss_spec){.kind = kind});
    return built;
}

/** As the optimisers at the end of make_models.py. */
static double make_optimiser(const torch_case *c, test_net *net, cod_optimiser **out)
{
    cod_optimiser_options options = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    if (strcmp(c->optimiser, "adamw") == 0) {
        options.kind = COD_OPT_ADAMW;
        options.weight_decay = 0.01;
    } else if (strcmp(c->optimiser, "sgd") == 0) {
        options = (cod_optimiser_options){
            .kind = COD_OPT_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3, .clip_norm = 0.3};
    }
    assert_ok(cod_optimiser_create(&net->weights, 0, &options, out));
    return options.kind == COD_OPT_SGD ? 0.1 : 1e-3;
}

static void train_case(const torch_case *c, test_net *net, const trained *built, double tolerance)
{
    const torch_tensor *losses = torch_case_find(c, "losses", "");
    const size_t count = cod_weights_count(&net->weights);
    double *values = net_new(count), *grads = net_new(count);
    float seen[3];
    cod_optimiser *optimiser;
    const double rate = make_optimiser(c, net, &optimiser);
    compare_given_starts(c, net);
    load_start(c, net);
    torch_case_write_input(net, "input", torch_case_find(c, "input", ""));
    torch_case_write_input(net, "target", torch_case_find(c, "target", ""));
    for (int step = 0; step < 3; step++) {
        assert_ok(net_run(net, "train"));
        assert_ok(cod_executable_loss(net->executable, built->loss, &seen[step]));
        if (step == 0) {
            assert_ok(net_read_grads(net, grads));
            compare_params(c, net, "grad.", grads, false, true, tolerance);
            assert_ok(net_read_values(net, values));
            compare_params(c, net, "stat.", values, true, false, tolerance);
        }
        assert_ok(cod_optimiser_step(optimiser, rate, step + 1));
    }
    torch_case_compare(c, "training", seen, losses, tolerance);
    assert_ok(net_read_values(net, values));
    compare_params(c, net, "end.", values, true, true, tolerance);
    assert_ok(net_run(net, "infer"));
    compare_output(c, net, built->output, tolerance);
    cod_optimiser_destroy(optimiser);
    free(values), free(grads);
}

static void run_case(const torch_case *c, cod_dtype dtype, double tolerance)
{
    cod_arena arena = {0};
    const trained built = build_case(c, &arena);
    const torch_tensor *input = torch_case_find(c, "input", "");
    const cod_shape shape = input->rank == 4
                                ? (cod_shape){input->dims[0], input->dims[2], input->dims[3], input->dims[1]}
                                : (cod_shape){input->dims[0], 1, 1, input->dims[1]};
    const cod_input_shape given = {"input", shape};
    const cod_program_spec specs[] = {{.name = "train", .trains = "model", .losses = {built.loss}},
                                      {.name = "infer", .outputs = {built.output}}};
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        const cod_compile_options options = {
            .activation = dtype, .inputs = &given, .input_count = 1, .no_fusion = no_fusion};
        test_net net;
        assert_ok(net_init(&net, &cod_ref_backend, built.graph, &options, specs, 2, 1));
        train_case(c, &net, &built, tolerance);
        net_clear(&net);
    }
    cod_graph_destroy(built.graph);
    cod_arena_clear(&arena);
}

/** @param[in] left_out  a kind; NULL = none */
static void run_all(cod_dtype dtype, double tolerance, const char *left_out)
{
    static torch_case c;
    torch_file file = torch_file_open(MODELS_FILE);
    assert_int_equal(file.count, 18);
    while (torch_file_next(&file, &c)) {
        if (left_out == NULL || strcmp(c.kind, left_out) != 0)
            run_case(&c, dtype, tolerance);
        torch_case_clear(&c);
    }
}

/** The file's numbers are rounded to f32: 6e-8 of each; learning rate and Adam's epsilon too. */
TEST(f64_trains_as_pytorch)
{
    run_all(COD_F64, 5e-7, NULL);
}

/**
 * Activations rounded to f32 in each of some thirty ops, and Adam's division by small second moments. ResNet-50 has ops
 * by the hundred, and the gradients of scales that later normalisations undo are what is left of terms a thousand times
 * larger.
 */
TEST(f32_trains_as_pytorch)
{
    run_all(COD_F32, 1e-4, "resnet50");
}
