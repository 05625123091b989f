/* The ranges that profilers of a device see while a program is queued. */
#include "support/test.h"

#include "core/trace.h"
#include "nn/net.h"
#include "ref/ref.h"

#include <stdio.h>
#include <string.h>

static char marks[1024];

static void begin_range(const char *name)
{
    snprintf(marks + strlen(marks), sizeof marks - strlen(marks), "<%s", name);
}

static void end_range(void)
{
    snprintf(marks + strlen(marks), sizeof marks - strlen(marks), ">");
}

static cod_status fail_signal(void *context, size_t index, cod_event *complete)
{
    (void)context, (void)index, (void)complete;
    return cod_fail(COD_ERR_PEER, "the signal's own failure");
}

static cod_status hear_signal(void *context, size_t index, cod_event *complete)
{
    (void)context, (void)index, (void)complete;
    return COD_OK;
}

/**
 * A range with the program's name around all that runs without a stop of the host: the whole program; where buckets are
 * signalled, what is up to each of them, and what is behind the last. Each ends, whatever fails.
 */
TEST(programs_have_ranges_of_their_name)
{
    static const cod_conv2d_spec conv3 = {.out_channels = 4, .kernel = 3, .padding = 1};
    static const cod_input_shape input = {"input", {2, 5, 6, 3}};
    static const cod_compile_options options = {
        .activation = COD_F64, .inputs = &input, .input_count = 1, .bucket_bytes = 64};
    cod_graph *graph;
    test_net net;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 3);
    const cod_value y = cod_graph_conv2d(graph, "c2", cod_graph_conv2d(graph, "c1", x, conv3), conv3);
    const cod_value loss = cod_graph_loss(graph, "loss", y, cod_graph_input_like(graph, "target", y),
                                          (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_program_spec spec = {.name = "first", .trains = "model", .losses = {loss}};
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 3));
    cod_program *program = cod_executable_program(net.executable, "first");
    const size_t buckets = cod_program_bucket_count(program), one = strlen("<first>");
    assert_true(buckets > 1);
    cod_trace_set_ranges(begin_range, end_range);
    static const cod_bucket_ready signals[] = {NULL, hear_signal, fail_signal};
    const size_t least[] = {1, buckets, 1}, most[] = {1, buckets + 1, 1};
    for (int k = 0; k < 3; k++) {
        marks[0] = '\0';
        const cod_status status = cod_program_run(program, signals[k], NULL);
        assert_true(status == (signals[k] == fail_signal ? COD_ERR_PEER : COD_OK));
        const size_t count = strlen(marks) / one;
        for (size_t i = 0; i < count; i++)
            assert_memory_equal(marks + i * one, "<first>", one);
        assert_int_equal(strlen(marks), count * one);
        assert_in_range(count, least[k], most[k]);
    }
    cod_trace_set_ranges(NULL, NULL);
    marks[0] = '\0';
    assert_ok(cod_program_run(program, NULL, NULL));
    assert_string_equal(marks, "");
    net_clear(&net);
    cod_graph_destroy(graph);
}
