/*
 * Recomputing on the backend COD_TESTED: steps of training give the bits that they give without it, and need less
 * memory; what would not lower the peak is not made again.
 */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "support/ops.h"

#include <stdlib.h>

extern const cod_backend COD_TESTED;

enum { SEED = 3, STEPS = 1, WAYS = 2 };

/** A network, and which share of the memory plan may be left at most where it recomputes. */
typedef struct trained_model {
    const char *kind, *options;
    cod_shape input;
    double most;
} trained_model;

static const trained_model models[] = {
    {"resnet50", "height=33 width=33 channels=3 classes=5 features=8", {2, 33, 33, 3}, 0.66},
    {"resnet18", "height=17 width=17 channels=3 classes=5 features=8 stem=small", {3, 17, 17, 3}, 0.62},
    {"srresnet", "blocks=4 channels=16", {2, 9, 7, 3}, 0.9},
    {"srresnet", "blocks=2 channels=8 activation=relu upsampler=once skip=bicubic", {2, 9, 7, 3}, 0.87},
    {"cnn", "height=12 width=12 channels=3 classes=4 stages=8,16", {4, 12, 12, 3}, 0.8},
    {"rrdb", "num_feat=8 num_block=1 num_grow_ch=4", {1, 9, 7, 3}, 1},
    {"mlp", "height=3 width=2 channels=2 classes=3 hidden=9,8", {5, 3, 2, 2}, 1},
};

/** What some steps leave behind. */
typedef struct results {
    double losses[2 * STEPS];
    double *grads, *values;
    size_t grad_count, value_count, plans;
    cod_compile_memory memory;
} results;

/** Steps of two mini-batches each, the second one adding its gradients. */
static void train(test_net *net, cod_value loss, results *r)
{
    static const char *const programs[] = {"step", "more"};
    cod_optimiser *optimiser;
    const cod_optimiser_options sgd = {.kind = COD_OPT_SGD, .momentum = 0.9};
    assert_ok(cod_optimiser_create(&net->weights, 0, &sgd, &optimiser));
    for (int i = 0; i < 2 * STEPS; i++) {
        assert_ok(net_random_inputs(net, SEED + (uint64_t)i));
        assert_ok(net_run(net, programs[i % 2]));
        assert_ok(net_read(net, cod_executable_loss_view(net->executable, loss), &r->losses[i]));
        if (i % 2 == 1)
            assert_ok(cod_optimiser_step(optimiser, 1e-2, i / 2 + 1));
    }
    cod_optimiser_destroy(optimiser);
}

static results run(const trained_model *which, cod_dtype activation, int64_t slices, bool recompute)
{
    results r = {0};
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    assert_ok(net_model(which->kind, which->options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_loss_kind kind = model.task == COD_TASK_CLASSIFICATION ? COD_LOSS_KL : COD_LOSS_L1;
    const cod_value loss = cod_graph_loss(model.graph, "loss", model.output, target, (cod_loss_spec){.kind = kind});
    const cod_input_shape input = {"input", which->input};
    const cod_compile_options options = {.activation = activation,
                                         .inputs = &input,
                                         .input_count = 1,
                                         .bucket_bytes = 4096,
                                         .slices = slices,
                                         .recompute = recompute,
                                         .memory = &r.memory};
    const cod_program_spec specs[] = {
        {.name = "step", .trains = "model", .losses = {loss}},
        {.name = "more", .trains = "model", .losses = {loss}, .accumulate = true},
    };
    assert_ok(net_init(&net, &COD_TESTED, model.graph, &options, specs, 2, SEED));
    train(&net, loss, &r);
    r.plans = net_plans(&net, "step");
    r.grad_count = net.weights.layout.trainable;
    r.value_count = cod_weights_count(&net.weights);
    r.grads = net_new(r.grad_count);
    r.values = net_new(r.value_count);
    assert_ok(net_read_grads(&net, r.grads));
    assert_ok(net_read_values(&net, r.values));
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return r;
}

static void require_equal(const trained_model *which, cod_dtype dtype, const char *what, const double *kept,
                          const double *again, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(kept[i] == again[i]))
            fail_msg("%s (%s) in %s, seed %d: %s %zu is %.17g where it is made again, and %.17g where it is kept",
                     which->kind, which->options, cod_dtype_name(dtype), SEED, what, i, again[i], kept[i]);
}

static void check(const trained_model *which, cod_dtype dtype, int64_t slices)
{
    results kept = run(which, dtype, slices, false), again = run(which, dtype, slices, true);
    require_equal(which, dtype, "loss", kept.losses, again.losses, 2 * STEPS);
    require_equal(which, dtype, "gradient", kept.grads, again.grads, kept.grad_count);
    require_equal(which, dtype, "weight or statistic", kept.values, again.values, kept.value_count);
    const double share = (double)again.memory.arena / (double)kept.memory.arena;
    const bool repeats = again.plans > kept.plans;
    if (!(share <= which->most) || repeats != (share < 1))
        fail_msg("%s (%s) in %s: %.3f of the memory, at most %.2f is right, and %zu plans beside %zu", which->kind,
                 which->options, cod_dtype_name(dtype), share, which->most, again.plans, kept.plans);
    for (int i = 0; i < WAYS; i++) {
        results *r = i == 0 ? &kept : &again;
        free(r->grads);
        free(r->values);
    }
}

static void check_all(cod_dtype dtype)
{
    cod_device *device = NULL;
    assert_ok(COD_TESTED.open(&(cod_device_options){.threads = 1}, &device));
    const bool supported = COD_TESTED.supports(device, dtype);
    COD_TESTED.close(device);
    if (!supported)
        skip();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check(&models[i], dtype, 0);
}

TEST(f32_has_the_same_bits)
{
    check_all(COD_F32);
}

TEST(bf16_has_the_same_bits)
{
    check_all(COD_BF16);
}

/** The slices begin before the losses, so that the backward pass begins where the last normalisation is. */
TEST(sliced_programs_have_the_same_bits)
{
    if (COD_TESTED.op_fuses == NULL)
        skip();
    const trained_model sliced = {"srresnet", "blocks=3 channels=8", {4, 6, 6, 3}, 0.9};
    check(&sliced, COD_F32, 2);
    check(&sliced, COD_BF16, 4);
}

TEST_DEVICE(COD_TESTED)
