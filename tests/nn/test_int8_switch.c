/* Other weights and ranges in a program on 8-bit integers: the bits of one that was compiled with them, and nothing is made anew. */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/ops.h"
#ifdef COD_TESTED
#include "cuda/cuda.h"
#else
#include "cpu/cpu.h"
#endif

#include <stdlib.h>
#include <string.h>

enum { SEED = 4, SWITCHES = 3 };

static const cod_backend *inner;
static cod_backend counted; /**< the inner one; counts what is made */
static size_t made;

static cod_status buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    made++;
    return inner->buffer_create(device, bytes, out);
}

static cod_status host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    made++;
    return inner->host_buffer_create(device, bytes, out);
}

static cod_status plan_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    made++;
    return inner->plan_create(device, op, out);
}

static cod_status plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    made++;
    return inner->plan_create_fused(device, ops, count, out);
}

static cod_status capture_begin(cod_device *device, cod_queue *queue)
{
    made++;
    return inner->capture_begin(device, queue);
}

static const cod_backend *count(const cod_backend *backend)
{
    inner = backend;
    counted = *backend;
    counted.buffer_create = buffer_create;
    counted.host_buffer_create = host_buffer_create;
    counted.plan_create = plan_create;
    if (backend->plan_create_fused != NULL)
        counted.plan_create_fused = plan_create_fused;
    if (backend->capture_begin != NULL)
        counted.capture_begin = capture_begin;
    return &counted;
}

typedef struct rounded_net {
    cod_arena arena;
    cod_model model;
    test_net net;
} rounded_net;

/** Ranges of all convolutions of 16 channels or more, other ones for each switch. */
static float *ranges_of(const cod_graph *graph, int number)
{
    const size_t nodes = cod_graph_node_count(graph);
    float *ranges = calloc(nodes, sizeof *ranges);
    assert_non_null(ranges);
    for (size_t i = 0; i < nodes; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (node->kind == COD_NODE_CONV2D && cod_graph_param(graph, (size_t)node->params[0])->shape.c >= 16)
            ranges[i] = 0.7f + 0.9f * (float)number + 0.13f * (float)(i % 3);
    }
    return ranges;
}

/** Compiled for the ranges of this number. */
static void open_net(rounded_net *r, const cod_backend *backend, cod_dtype activation, int number)
{
    *r = (rounded_net){0};
    assert_ok(net_model("srresnet", "blocks=2 channels=16 scale=2 head_kernel=3 tail_kernel=3", &r->arena, &r->model));
    float *ranges = ranges_of(r->model.graph, number);
    const cod_input_shape input = {"input", {2, 7, 6, 3}};
    const cod_compile_options options = {
        .activation = activation, .inputs = &input, .input_count = 1, .int8_ranges = ranges};
    const cod_program_spec spec = {.name = "infer", .outputs = {r->model.output}};
    assert_ok(net_init(&r->net, backend, r->model.graph, &options, &spec, 1, SEED));
    free(ranges);
}

static void close_net(rounded_net *r)
{
    net_clear(&r->net);
    cod_model_clear(&r->model);
    cod_arena_clear(&r->arena);
}

/** The weights of this number, which follow from those at the start. */
static void write_weights(rounded_net *r, const double *start, int number)
{
    const size_t values = cod_weights_count(&r->net.weights);
    double *scaled = net_new(values);
    for (size_t i = 0; i < values; i++)
        scaled[i] = start[i] * (1 + 0.25 * number);
    assert_ok(net_write_values(&r->net, scaled));
    free(scaled);
}

/** @return new: the output of a run */
static double *predict(rounded_net *r, size_t *bytes)
{
    const cod_view output = cod_executable_output(r->net.executable, r->model.output);
    double *values = net_new((size_t)cod_shape_count(output.shape));
    assert_ok(net_run(&r->net, "infer"));
    assert_ok(net_read(&r->net, output, values));
    *bytes = (size_t)cod_shape_count(output.shape) * sizeof *values;
    return values;
}

/** Switches `r` as a teacher is switched, and compares it with a program that is compiled for the new ranges. */
static void check_switch(rounded_net *r, cod_dtype activation, const double *start, int number)
{
    rounded_net fresh;
    size_t bytes;
    float *ranges = ranges_of(r->model.graph, number);
    write_weights(r, start, number);
    double *unswitched = predict(r, &bytes);
    const size_t before = made;
    assert_true(cod_executable_set_int8_ranges(r->net.executable, ranges));
    double *switched = predict(r, &bytes);
    assert_int_equal(made, before);
    open_net(&fresh, r->net.backend, activation, number);
    write_weights(&fresh, start, number);
    double *expected = predict(&fresh, &bytes);
    if (memcmp(switched, expected, bytes) != 0)
        fail_msg("%s in %s: switch %d has other bits", inner->name, cod_dtype_name(activation), number);
    assert_memory_not_equal(unswitched, expected, bytes); /* ranges count */
    close_net(&fresh);
    free(ranges);
    free(unswitched);
    free(switched);
    free(expected);
}

static void check_backend(const cod_backend *backend, cod_dtype activation)
{
    rounded_net r;
    size_t bytes;
    char message[256];
    open_net(&r, count(backend), activation, 0);
    double *start = net_new(cod_weights_count(&r.net.weights));
    assert_ok(net_read_values(&r.net, start));
    free(predict(&r, &bytes));
    for (int number = 1; number <= SWITCHES; number++)
        check_switch(&r, activation, start, number);
    if (cod_late_violations(message, sizeof message) > 0)
        fail_msg("%s around %s: %s", backend->name, cod_dtype_name(activation), message);
    free(start);
    close_net(&r);
}

static bool computes(const cod_backend *backend, cod_dtype dtype)
{
    cod_device *device;
    assert_ok(backend->open(NULL, &device));
    const bool does = backend->supports(device, COD_S8) && backend->supports(device, dtype);
    backend->close(device);
    return does;
}

static void check(const cod_backend *backend)
{
    static const cod_dtype activations[] = {COD_F32, COD_BF16};
    for (int i = 0; i < 2; i++)
        if (computes(backend, activations[i]))
            check_backend(backend, activations[i]);
}

static void a_switch_has_the_bits_of_compiling_and_makes_nothing(void **state)
{
    (void)state;
#ifdef COD_TESTED
    check(&COD_TESTED);
#else
    check(&cod_ref_backend);
    check(&cod_cpu_backend);
    check(cod_late_wrap(&cod_ref_backend));
    check(cod_late_wrap(&cod_cpu_backend));
#endif
}

static void ranges_of_other_layers_are_refused(void **state)
{
    (void)state;
    rounded_net r;
    size_t bytes, last = 0;
    open_net(&r, &cod_ref_backend, COD_F32, 0);
    float *ranges = ranges_of(r.model.graph, 1);
    double *before = predict(&r, &bytes);
    for (size_t i = 0; i < cod_graph_node_count(r.model.graph); i++)
        last = ranges[i] > 0 ? i : last;
    ranges[last] = 0;
    assert_false(cod_executable_set_int8_ranges(r.net.executable, ranges));
    double *after = predict(&r, &bytes);
    assert_memory_equal(after, before, bytes);
    free(ranges);
    free(before);
    free(after);
    close_net(&r);
}

int main(void)
{
#ifdef COD_TESTED
    if (cod_test_absent(&COD_TESTED))
        return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_has_the_bits_of_compiling_and_makes_nothing),
        cmocka_unit_test(ranges_of_other_layers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
