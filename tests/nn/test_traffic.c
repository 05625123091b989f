/*
 * What plans compute, read and write, as benches tell it: of several ops that are one plan, all of them and nothing
 * twice.
 */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"

#include <stdio.h>
#include <string.h>

enum { N = 2, H = 6, W = 5, C = 8, BLOCKS = 16 };

static const double picture = 4.0 * N * H * W * C;          /**< bytes of a tensor between the blocks */
static const double weights = 4.0 * C * 3 * 3 * C;          /**< of a convolution's */
static const double products = 2.0 * N * H * W * C * 9 * C; /**< operations of a convolution */
static const double channels = 4.0 * C;                     /**< of a normalisation's parameter, or a statistic */

typedef struct network {
    cod_arena arena;
    cod_model model;
    test_net net;
    cod_program *program;
} network;

static void network_open(network *n, const char *kind, const char *options, cod_shape shape, cod_loss_kind loss)
{
    *n = (network){0};
    assert_ok(net_model(kind, options, &n->arena, &n->model));
    const cod_value target = cod_graph_input_like(n->model.graph, "target", n->model.output);
    const cod_value value =
        cod_graph_loss(n->model.graph, "loss", n->model.output, target, (cod_loss_spec){.kind = loss});
    const cod_input_shape input = {"input", shape};
    const cod_compile_options options_of = {.activation = COD_F32, .inputs = &input, .input_count = 1};
    const cod_program_spec specs[] = {
        {.name = "train", .trains = "model", .losses = {value}},
        {.name = "more", .trains = "model", .losses = {value}, .accumulate = true},
    };
    assert_ok(net_init(&n->net, &cod_ref_backend, n->model.graph, &options_of, specs, 2, 5));
    n->program = cod_executable_program(n->net.executable, "train");
}

static void srresnet_open(network *n)
{
    char options[128];
    snprintf(options, sizeof options, "blocks=%d channels=%d scale=2 head_kernel=3 tail_kernel=3", BLOCKS, C);
    network_open(n, "srresnet", options, (cod_shape){N, H, W, 3}, COD_LOSS_L1);
}

static void network_close(network *n)
{
    net_clear(&n->net);
    cod_model_clear(&n->model);
    cod_arena_clear(&n->arena);
}

/** The plan of this kind and name. */
static size_t find(const cod_program *program, cod_op_kind kind, const char *name)
{
    cod_op op;
    size_t i = 0;
    while (cod_program_op(program, i, &op)) {
        if (op.kind == kind && strcmp(op.name, name) == 0)
            return i;
        i++;
    }
    fail_msg("there is no %s '%s'", cod_op_kind_name(kind), name);
    return 0;
}

static void expect(const cod_program *program, cod_op_kind kind, const char *name, double flops, double bytes)
{
    const size_t at = find(program, kind, name);
    const double has_flops = cod_program_op_flops(program, at), has_bytes = cod_program_op_bytes(program, at);
    if (has_flops != flops || has_bytes != bytes)
        fail_msg("%s '%s': %.0f operations and %.0f bytes, not %.0f and %.0f", cod_op_kind_name(kind), name, has_flops,
                 has_bytes, flops, bytes);
}

/** 33 equal layers: each one's input and gradient are read, and its weights' gradient is written. */
TEST(gradients_of_many_layers_count_for_each)
{
    network n;
    srresnet_open(&n);
    const double layers = 2 * BLOCKS + 1;
    expect(n.program, COD_OP_CONV2D_BACKWARD_WEIGHTS, "body.16 and 32 more", layers * products,
           layers * (2 * picture + weights));
    n.program = cod_executable_program(n.net.executable, "more"); /* reads the gradients that it adds to, too */
    expect(n.program, COD_OP_CONV2D_BACKWARD_WEIGHTS, "body.16 and 32 more", layers * products,
           layers * (2 * picture + 2 * weights));
    network_close(&n);
}

/**
 * What a half of a normalisation hands to the convolution beside it is written, as the weights' gradient reads it
 * later, but not read again by the plan.
 */
TEST(normalisations_around_a_convolution_count)
{
    network n;
    srresnet_open(&n);
    /* Pictures: x, what it is normalised to, and y. Channels: gamma, beta, two statistics before and two behind, and
     * two running ones, which are read and written. The slope is one number. */
    expect(n.program, COD_OP_CONV2D, "norm + body.0.f.3 + norm", products, 3 * picture + weights + 10 * channels + 4);
    /* Pictures: x of both normalisations, g, and the gradient before and behind the product. Channels: gamma, two
     * statistics and two sums before; gamma, beta, two statistics, two sums and two gradients behind. The slope and its
     * gradient are a number each. */
    expect(n.program, COD_OP_CONV2D_BACKWARD_DATA, "norm + body.0.f.3 + norm", products,
           5 * picture + weights + 13 * channels + 8);
    network_close(&n);
}

/** ReLU's gradient takes the place of what the product would have written. */
TEST(what_is_done_in_place_is_written_once)
{
    network n;
    network_open(&n, "mlp", "height=3 width=2 channels=2 classes=3 hidden=9,8", (cod_shape){5, 3, 2, 2},
                 COD_LOSS_CROSS_ENTROPY);
    cod_op op;
    size_t fused = 0;
    for (size_t i = 0; cod_program_op(n.program, i, &op); i++) {
        if (op.kind != COD_OP_LINEAR_BACKWARD_DATA || cod_program_op_parts(n.program, i) != 2)
            continue;
        const double in = (double)op.outputs[0].shape.c, out = (double)op.inputs[0].shape.c;
        assert_true(cod_program_op_bytes(n.program, i) == 4 * (5 * out + in * out + 2 * 5 * in));
        fused++;
    }
    assert_int_equal(fused, 2);
    network_close(&n);
}
