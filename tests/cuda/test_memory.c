/*
 * Bytes of the memory plan of whole training programs in bf16, with recomputing and without, as docs/gpu-status.md
 * tells them: they may not grow unseen. No program is made, as its memory would be gigabytes.
 */
#include "support/test.h"

#include "cuda/cuda.h"
#include "nn/net.h"

enum { LARGEST = 1 << 20 };

typedef struct planned {
    const char *kind, *options;
    cod_shape input;
    cod_loss_kind loss;
    double kept, again; /**< MB of activations at most, where they are kept and where cheap ones are made again */
} planned;

static const planned plans[] = {
    {"srresnet", "blocks=16", {16, 24, 24, 3}, COD_LOSS_L1, 131, 92},
    {"srresnet", "blocks=16", {64, 24, 24, 3}, COD_LOSS_L1, 377, 231},
    {"srresnet", "blocks=16", {256, 24, 24, 3}, COD_LOSS_L1, 1505, 928},
    {"resnet50", "height=224 width=224 channels=3 classes=1000", {64, 224, 224, 3}, COD_LOSS_CROSS_ENTROPY, 2680, 1730},
};

static bool refuses; /**< buffers that are large */

static cod_status create_or_refuse(cod_device *device, size_t bytes, cod_buffer **out)
{
    if (refuses && bytes > LARGEST)
        return cod_fail(COD_ERR_MEMORY, "refused");
    return cod_cuda_backend.buffer_create(device, bytes, out);
}

static double megabytes_of(const planned *which, bool recompute)
{
    cod_backend backend = cod_cuda_backend;
    cod_compile_memory memory = {0};
    cod_weights weights;
    cod_executable *executable = NULL;
    cod_device *device;
    cod_arena arena = {0};
    cod_model model;
    backend.buffer_create = create_or_refuse;
    assert_ok(backend.open(NULL, &device));
    assert_ok(net_model(which->kind, which->options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_value loss =
        cod_graph_loss(model.graph, "loss", model.output, target, (cod_loss_spec){.kind = which->loss});
    const cod_input_shape input = {"input", which->input};
    const cod_compile_options options = {
        .activation = COD_BF16, .inputs = &input, .input_count = 1, .recompute = recompute, .memory = &memory};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {loss}};
    refuses = false;
    assert_ok(cod_weights_init(&weights, &backend, device, model.graph, COD_F32, true));
    refuses = true;
    assert_int_equal(cod_compile(model.graph, &weights, &options, &spec, 1, &executable), COD_ERR_MEMORY);
    cod_weights_clear(&weights);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    backend.close(device);
    return 1e-6 * (double)memory.arena;
}

TEST(activations_do_not_grow)
{
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const double kept = megabytes_of(&plans[i], false), again = megabytes_of(&plans[i], true);
        if (!(kept > 0 && again > 0 && kept <= plans[i].kept && again <= plans[i].again))
            fail_msg("%s at %d: %.1f MB of activations, %.1f with recomputing; at most %.0f and %.0f are right",
                     plans[i].kind, (int)plans[i].input.n, kept, again, plans[i].kept, plans[i].again);
    }
}
