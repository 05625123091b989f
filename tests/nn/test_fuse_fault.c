/*
 * A fault planted in the compiler: instructions may always change places. Gradients of weights then sink behind what
 * overwrites the gradients that they read, and comparing with one plan an op must find it. (This file's fuse_may_pass()
 * stands for the library's.)
 */
#include "support/test.h"

#include "nn/fuse_internal.h"
#include "nn/net.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

bool fuse_may_pass(const fusing *fuse, const ir_instr *moved, const ir_instr *other)
{
    (void)fuse, (void)moved, (void)other;
    return true;
}

/**
 * New: gradients of EDSR-like blocks, where a block's first convolution adds to the gradient that its second one's
 * weights need.
 */
static double *gradients(const cod_backend *backend, size_t *count)
{
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    assert_ok(net_model("srresnet", "blocks=2 channels=4 scale=2 norm=none head_kernel=3 tail_kernel=3 activation=relu",
                        &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_value loss =
        cod_graph_loss(model.graph, "loss", model.output, target, (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_input_shape shape = {"input", {2, 5, 4, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {loss}};
    assert_ok(net_init(&net, backend, model.graph, &options, &spec, 1, 5));
    assert_ok(net_run(&net, "train"));
    double *grads = net_new(*count = net.weights.layout.trainable);
    assert_ok(net_read_grads(&net, grads));
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return grads;
}

TEST(a_gradient_that_sinks_too_far_is_found)
{
    size_t count, wrong = 0;
    cod_backend one_by_one = cod_ref_backend;
    one_by_one.op_fuses = NULL;
    double *right = gradients(&one_by_one, &count), *sunk = gradients(&cod_ref_backend, &count);
    for (size_t i = 0; i < count; i++)
        wrong += fabs(sunk[i] - right[i]) > 1e-6 * (1 + fabs(right[i]));
    assert_true(wrong > 50 && wrong < count);
    free(right), free(sunk);
}
