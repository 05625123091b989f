#include "models.h"

#include "core/rng.h"
#include "cpu/cpu.h"
#include "nn/compile.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

cod_device *test_device_open(const char *backend)
{
    cod_device *device = NULL;
    if (cod_backend_find("ref") == NULL) {
        assert_ok(cod_backend_register(cod_late_chosen(&cod_ref_backend)));
        assert_ok(cod_backend_register(cod_late_chosen(&cod_cpu_backend)));
    }
    assert_ok(cod_backend_find(backend)->open(&(cod_device_options){.threads = 1}, &device));
    return device;
}

void test_device_close(const char *backend, cod_device *device)
{
    cod_backend_find(backend)->close(device);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), suffix = strlen(end);
    return length >= suffix && strcmp(text + length - suffix, end) == 0;
}

/**
 * Random values that keep activations of order one: norms' factors and variances around one, weights by their fan-in.
 */
static void fill(cod_saved_model *saved, uint64_t seed)
{
    void *values = NULL;
    saved->layout = cod_graph_layout(saved->model.graph);
    assert_ok(cod_aligned_alloc(&values, (saved->layout.trainable + saved->layout.state) * sizeof(float)));
    saved->values = values;
    for (size_t i = 0; i < cod_graph_param_count(saved->model.graph); i++) {
        const cod_param *param = cod_graph_param(saved->model.graph, i);
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, (uint32_t)i);
        const cod_shape s = param->shape;
        const bool factor =
            ends_with(param->name, "running_var") || (param->rank == 1 && ends_with(param->name, "weight") && s.c > 1);
        const double width = param->rank == 1 ? 0.3 : sqrt(3.0 / (double)(s.h * s.w * s.c));
        for (size_t k = 0; k < (size_t)cod_shape_count(s); k++)
            saved->values[param->offset + k] =
                (float)((factor ? 1 : 0) + (factor ? 0.4 : width) * (2 * cod_rng_uniform(&rng) - 1));
    }
}

cod_saved_model test_model(const char *kind, const cod_st_text *settings, uint64_t seed)
{
    cod_saved_model saved = {0};
    const cod_model_kind *found = cod_model_kind_find(kind);
    assert_non_null(found);
    void *options = cod_arena_alloc(&saved.arena, found->table->struct_bytes);
    assert_ok(cod_options_set_defaults(found->table, options, &saved.arena));
    for (; settings->key != NULL; settings++) {
        const cod_option *option = cod_option_find(found->table, settings->key);
        assert_non_null(option);
        assert_ok(cod_option_set(option, options, &settings->value, 1, &saved.arena));
    }
    assert_ok(cod_model_build(found, options, &saved.model));
    fill(&saved, seed);
    return saved;
}

cod_saved_model test_srresnet(uint64_t seed)
{
    static const cod_st_text settings[] = {{"blocks", "2"},      {"channels", "8"},   {"head_kernel", "5"},
                                           {"tail_kernel", "5"}, {"skip", "bicubic"}, {NULL, NULL}};
    return test_model("srresnet", settings, seed);
}

/** For inputs of 3 channels and 12x8 pixels. */
static cod_value build_odd(cod_graph *graph, cod_value input, const void *options)
{
    (void)options;
    const cod_conv2d_spec three_by_three = {.out_channels = 6, .kernel = 3, .padding = 1};
    cod_value x = cod_graph_conv2d(graph, "first", input, three_by_three);
    x = cod_graph_norm(graph, "norm_on_conv", x);
    x = cod_graph_prelu(graph, "slopes", x, true);
    x = cod_graph_norm(graph, "norm_on_prelu", x);
    cod_value a = cod_graph_conv2d(graph, "shared", x, three_by_three);
    a = cod_graph_conv2d(graph, "shared", cod_graph_activation(graph, a, COD_ACT_TANH, 0), three_by_three);
    x = cod_graph_scaled_add(graph, 0.5f, x, -0.25f, a);
    const cod_value parts[] = {cod_graph_activation(graph, x, COD_ACT_SIGMOID, 0),
                               cod_graph_activation(graph, a, COD_ACT_LEAKY_RELU, 0.2f)};
    x = cod_graph_concat(graph, parts, 2);
    x = cod_graph_conv2d(graph, "strided", x,
                         (cod_conv2d_spec){.out_channels = 5, .kernel = 3, .stride = 2, .padding = 1, .no_bias = true});
    cod_value y = cod_graph_pool(graph, x, COD_POOL_MAX, 3, 1, 1);
    y = cod_graph_scaled_add(graph, 1, y, 2, cod_graph_pool(graph, x, COD_POOL_AVERAGE, 3, 1, 1));
    y = cod_graph_resize(graph, cod_graph_pool(graph, y, COD_POOL_MAX, 2, 2, 0), 2, COD_RESIZE_NEAREST);
    cod_value flat = cod_graph_flatten(graph, cod_graph_stop_gradient(graph, y), 6, 4);
    flat = cod_graph_linear(graph, "hidden", flat, 7, false);
    flat = cod_graph_activation(graph, cod_graph_norm(graph, "norm_on_linear", flat), COD_ACT_RELU, 0);
    cod_value pooled = cod_graph_flatten(graph, cod_graph_global_pool(graph, y), 1, 1);
    pooled = cod_graph_linear(graph, "pooled", pooled, 7, true);
    pooled = cod_graph_affine(graph, pooled, 0.5, (const double[]){1, -2, 3, -4, 5, -6, 7});
    return cod_graph_linear(graph, "last", cod_graph_add(graph, flat, pooled), 4, false);
}

cod_saved_model test_odd_model(uint64_t seed)
{
    static const cod_option_table table = {.section = "model", .help = "none", .struct_bytes = 1};
    static const cod_model_kind kind = {.name = "odd", .table = &table, .build = build_odd};
    static const char options[1];
    cod_saved_model saved = {0};
    assert_ok(cod_model_build(&kind, options, &saved.model));
    fill(&saved, seed);
    return saved;
}

float *test_run(const char *backend_name, cod_dtype activation, const cod_saved_model *saved, cod_shape shape,
                const float *input, cod_shape *output_shape)
{
    cod_device *device = test_device_open(backend_name);
    const cod_backend *backend = cod_backend_find(backend_name);
    cod_weights weights;
    cod_executable *executable = NULL;
    const cod_input_shape inputs = {"input", shape};
    const cod_compile_options options = {.activation = activation, .inputs = &inputs, .input_count = 1};
    const cod_program_spec spec = {.name = "run", .outputs = {saved->model.output}};
    assert_ok(cod_weights_init(&weights, backend, device, saved->model.graph, COD_F32, false));
    assert_ok(cod_weights_upload(&weights, saved->values));
    assert_ok(cod_compile(saved->model.graph, &weights, &options, &spec, 1, &executable));
    const cod_view in = cod_executable_input(executable, "input");
    const cod_view out = cod_executable_output(executable, saved->model.output);
    const size_t bytes = (size_t)cod_shape_count(out.shape) * sizeof(float);
    float *output = malloc(bytes);
    assert_non_null(output);
    assert_int_equal(out.dtype, COD_F32);
    assert_ok(
        backend->upload(device, NULL, in.buffer, in.offset, input, (size_t)cod_shape_count(shape) * sizeof(float)));
    assert_ok(cod_program_run(cod_executable_program(executable, "run"), NULL, NULL));
    assert_ok(backend->download(device, NULL, output, out.buffer, out.offset, bytes));
    *output_shape = out.shape;
    cod_executable_destroy(executable);
    cod_weights_clear(&weights);
    test_device_close(backend_name, device);
    return output;
}

float *test_noise(size_t count, uint64_t seed)
{
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 1000);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)cod_rng_uniform(&rng);
    return values;
}

double test_difference(const float *a, const float *b, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= worst))
            worst = isnan(difference) ? INFINITY : difference;
    }
    return worst;
}
