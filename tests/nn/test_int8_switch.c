/*
 * Other weights and ranges in a program on 8-bit integers, ranges that the host sets and ranges that are observed: the
 * bits of one that was compiled with them, and nothing is made anew.
 */
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

#include "core/int8_range.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 4, SWITCHES = 3 };

#define MODEL "blocks=2 channels=16 scale=2 head_kernel=3 tail_kernel=3"

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
    assert_ok(net_model("srresnet", MODEL, &r->arena, &r->model));
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

/** @return new */
static double *output_of(const rounded_net *r, size_t *bytes)
{
    const cod_view output = cod_executable_output(r->net.executable, r->model.output);
    double *values = net_new((size_t)cod_shape_count(output.shape));
    assert_ok(net_read(&r->net, output, values));
    *bytes = (size_t)cod_shape_count(output.shape) * sizeof *values;
    return values;
}

/** @return new: the output of a run */
static double *predict(rounded_net *r, size_t *bytes)
{
    assert_ok(net_run(&r->net, "infer"));
    return output_of(r, bytes);
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
    assert_ok(cod_executable_set_int8_ranges(r->net.executable, ranges));
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

enum { OBSERVES = 1, ROUNDS = 2 };

/** The programs "plain", which observes where there are ranges, and "infer". */
static void compile_both(rounded_net *r, const cod_backend *backend, cod_dtype activation, const float *ranges,
                         int programs)
{
    const cod_input_shape input = {"input", {2, 7, 6, 3}};
    const cod_compile_options options = {
        .activation = activation, .inputs = &input, .input_count = 1, .int8_ranges = ranges};
    const cod_program_spec specs[] = {{.name = "plain", .outputs = {r->model.output}, .observes = ranges != NULL},
                                      {.name = "infer", .outputs = {r->model.output}}};
    const size_t first = programs & OBSERVES ? 0 : 1;
    assert_ok(
        net_init(&r->net, backend, r->model.graph, &options, specs + first, programs & ROUNDS ? 2 - first : 1, SEED));
}

/** Two layers that share weights, and so a range, behind one that is not on integers. */
static void build_shared(rounded_net *r)
{
    const cod_conv2d_spec conv = {.out_channels = 16, .kernel = 3, .padding = 1};
    assert_ok(cod_graph_create(&r->model.graph));
    cod_value x = cod_graph_conv2d(r->model.graph, "head", cod_graph_input(r->model.graph, "input", 3), conv);
    for (int i = 0; i < 2; i++)
        x = cod_graph_activation(r->model.graph, cod_graph_conv2d(r->model.graph, "twice", x, conv), COD_ACT_RELU, 0);
    r->model.output = x;
}

/** Counts the magnitudes of what a layer reads, on the host. */
static void count_input(const rounded_net *r, const cod_op *op, uint32_t *counts)
{
    const cod_view *x = &op->inputs[0];
    const size_t count = (size_t)cod_shape_count(x->shape);
    char *bytes = malloc(cod_view_span_bytes(x));
    assert_non_null(bytes);
    assert_true(cod_view_is_dense(x));
    assert_ok(r->net.backend->download(r->net.device, NULL, bytes, x->buffer, x->offset, cod_view_span_bytes(x)));
    for (size_t i = 0; i < count; i++) {
        const float value =
            x->dtype == COD_F32 ? ((float *)(void *)bytes)[i] : cod_f32_from_bf16(((uint16_t *)(void *)bytes)[i]);
        counts[cod_bf16_from_f32(fabsf(value))]++;
    }
    free(bytes);
}

/**
 * The ranges that a host chooses which runs the program "plain" op by op and looks at what its convolutions read.
 *
 * @return new
 */
static float *observed_by_host(rounded_net *r, const float *table)
{
    const cod_graph *graph = r->model.graph;
    const size_t nodes = cod_graph_node_count(graph);
    cod_program *program = cod_executable_program(r->net.executable, "plain");
    uint32_t *counts = calloc(cod_graph_param_count(graph) * COD_MAGNITUDES, sizeof *counts);
    float *ranges = calloc(nodes, sizeof *ranges);
    cod_op op;
    assert_non_null(counts);
    assert_non_null(ranges);
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        const size_t node = cod_program_op_node(program, i);
        if (op.kind == COD_OP_CONV2D && table[node] > 0)
            count_input(r, &op, counts + (size_t)cod_graph_node(graph, node)->params[0] * COD_MAGNITUDES);
        assert_ok(cod_program_run_op(program, i));
    }
    for (size_t i = 0; i < nodes; i++)
        if (table[i] > 0)
            ranges[i] = cod_int8_range_choose(counts + (size_t)cod_graph_node(graph, i)->params[0] * COD_MAGNITUDES);
    free(counts);
    return ranges;
}

/** Queues both programs one after the other while a device does nothing: whoever waited for it would be found. */
static void run_unwaited(rounded_net *r)
{
    const bool late = strcmp(r->net.backend->name, "late") == 0;
    const size_t before = cod_late_crossings();
    if (late)
        cod_late_hold(r->net.device, true);
    assert_ok(net_run(&r->net, "plain"));
    assert_ok(net_run(&r->net, "infer"));
    assert_int_equal(cod_late_crossings(), before);
    if (late) { /* such as this */
        float planted;
        const cod_view view = cod_executable_int8_view(r->net.executable);
        assert_ok(r->net.backend->download(r->net.device, NULL, &planted, view.buffer, view.offset, sizeof planted));
        assert_int_equal(cod_late_crossings(), before + 1);
        cod_late_hold(r->net.device, false);
    }
}

/**
 * Both programs after a switch, on other inputs each time: the ranges that the host chooses, and the bits of a program
 * that is compiled for these. The last time the weights stay, and other inputs alone give other ranges.
 */
static void check_observed(rounded_net *r, rounded_net *host, cod_dtype activation, const float *table,
                           const double *start, int number)
{
    const size_t nodes = cod_graph_node_count(r->model.graph), before = made;
    const cod_view view = cod_executable_int8_view(r->net.executable);
    float *copied = calloc((size_t)view.shape.c, sizeof *copied), *ranges = calloc(nodes, sizeof *ranges);
    rounded_net fresh = {.model = r->model};
    size_t bytes;
    assert_non_null(copied);
    assert_non_null(ranges);
    const int weights = number < SWITCHES ? number : SWITCHES - 1;
    const uint64_t inputs = SEED + 1 + (uint64_t)number;
    if (weights == number)
        write_weights(r, start, weights);
    assert_ok(net_random_inputs(&r->net, inputs));
    run_unwaited(r);
    if (number > 0)
        assert_int_equal(made, before);
    double *rounded = output_of(r, &bytes);
    assert_ok(r->net.backend->download(r->net.device, NULL, copied, view.buffer, view.offset,
                                       (size_t)view.shape.c * sizeof *copied));
    cod_executable_int8_table(r->net.executable, copied, ranges);
    write_weights(host, start, weights);
    assert_ok(net_random_inputs(&host->net, inputs));
    float *chosen = observed_by_host(host, table);
    assert_memory_equal(ranges, chosen, nodes * sizeof *ranges);
    compile_both(&fresh, r->net.backend, activation, chosen, ROUNDS);
    write_weights(&fresh, start, weights);
    assert_ok(net_random_inputs(&fresh.net, inputs));
    double *expected = predict(&fresh, &bytes);
    if (memcmp(rounded, expected, bytes) != 0)
        fail_msg("%s in %s: what was observed at switch %d gives other bits", inner->name, cod_dtype_name(activation),
                 number);
    net_clear(&fresh.net);
    free(chosen);
    free(copied);
    free(ranges);
    free(rounded);
    free(expected);
}

static void check_observing(const cod_backend *backend, cod_dtype activation, bool shared)
{
    rounded_net r = {0}, host;
    if (shared)
        build_shared(&r);
    else
        assert_ok(net_model("srresnet", MODEL, &r.arena, &r.model));
    host = (rounded_net){.model = r.model};
    float *table = ranges_of(r.model.graph, 0);
    compile_both(&r, count(backend), activation, table, OBSERVES | ROUNDS);
    compile_both(&host, &counted, activation, NULL, OBSERVES);
    double *start = net_new(cod_weights_count(&r.net.weights));
    assert_ok(net_read_values(&r.net, start));
    for (int number = 0; number <= SWITCHES; number++)
        check_observed(&r, &host, activation, table, start, number);
    cod_test_assert_none(cod_late_violations, "%s around %s", backend->name, cod_dtype_name(activation));
    free(table);
    free(start);
    net_clear(&host.net);
    if (shared) {
        net_clear(&r.net);
        cod_graph_destroy(r.model.graph);
    } else {
        close_net(&r);
    }
}

static void check_backend(const cod_backend *backend, cod_dtype activation)
{
    rounded_net r;
    size_t bytes;
    open_net(&r, count(backend), activation, 0);
    double *start = net_new(cod_weights_count(&r.net.weights));
    assert_ok(net_read_values(&r.net, start));
    free(predict(&r, &bytes));
    for (int number = 1; number <= SWITCHES; number++)
        check_switch(&r, activation, start, number);
    cod_test_assert_none(cod_late_violations, "%s around %s", backend->name, cod_dtype_name(activation));
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

static void check_types(const cod_backend *backend, bool observes)
{
    static const cod_dtype activations[] = {COD_F32, COD_BF16};
    for (int i = 0; i < 2; i++) {
        if (!computes(backend, activations[i]))
            continue;
        if (!observes)
            check_backend(backend, activations[i]);
        for (int shared = 0; shared < 2 && observes; shared++)
            check_observing(backend, activations[i], shared);
    }
}

static void check_backends(bool observes)
{
#ifdef COD_TESTED
    check_types(&COD_TESTED, observes);
#else
    check_types(&cod_ref_backend, observes);
    check_types(&cod_cpu_backend, observes);
    check_types(cod_late_wrap(&cod_ref_backend), observes);
    check_types(cod_late_wrap(&cod_cpu_backend), observes);
#endif
}

TEST(a_switch_has_the_bits_of_compiling_and_makes_nothing)
{
    check_backends(false);
}

TEST(ranges_are_observed_without_the_host)
{
    check_backends(true);
}

TEST(ranges_of_other_layers_are_refused)
{
    rounded_net r;
    size_t bytes, last = 0;
    open_net(&r, &cod_ref_backend, COD_F32, 0);
    float *ranges = ranges_of(r.model.graph, 1);
    double *before = predict(&r, &bytes);
    for (size_t i = 0; i < cod_graph_node_count(r.model.graph); i++)
        last = ranges[i] > 0 ? i : last;
    ranges[last] = 0;
    assert_fails(COD_ERR_ARGUMENT, "has a range on 8-bit integers in one",
                 cod_executable_set_int8_ranges(r.net.executable, ranges));
    double *after = predict(&r, &bytes);
    assert_memory_equal(after, before, bytes);
    free(ranges);
    free(before);
    free(after);
    close_net(&r);
}

#ifdef COD_TESTED
TEST_DEVICE(COD_TESTED)
#endif
