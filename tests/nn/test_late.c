/* Training and inference on the late backend: the bits of `ref`, and nothing that a device would not forgive. */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/late.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, NETS = 2 };

typedef struct trained_model {
    const char *kind, *options;
    cod_shape input;
    cod_loss_kind loss;
    cod_dtype activation;
    cod_optimiser_options optimiser;
} trained_model;

static const trained_model models[] = {
    {"srresnet",
     "blocks=2 channels=8 scale=2 head_kernel=3 tail_kernel=3",
     {2, 6, 5, 3},
     COD_LOSS_L1,
     COD_F32,
     {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .ema_decay = 0.9}},
    {"compact",
     "num_feat=4 num_conv=2 scale=3",
     {2, 5, 4, 3},
     COD_LOSS_CHARBONNIER,
     COD_BF16,
     {.kind = COD_OPT_SGD, .momentum = 0.9, .nesterov = true, .clip_norm = 0.1}},
    {"mlp",
     "height=3 width=2 channels=2 classes=3 hidden=9,8 activation=prelu",
     {5, 3, 2, 2},
     COD_LOSS_MSE,
     COD_F64,
     {.kind = COD_OPT_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1}},
    {"resnet18",
     "height=9 width=8 channels=3 classes=3 features=2",
     {2, 9, 8, 3},
     COD_LOSS_MSE,
     COD_F32,
     {.kind = COD_OPT_SGD, .clip_norm = 1}},
};

/** Downloads both and compares them; `get` fills an array of `count`. */
static void assert_equal(const char *what, const trained_model *which, const test_net nets[NETS],
                         cod_status (*get)(const test_net *net, double *values), size_t count)
{
    double *values[NETS] = {net_new(count), net_new(count)};
    for (size_t i = 0; i < NETS; i++)
        assert_ok(get(&nets[i], values[i]));
    if (memcmp(values[0], values[1], count * sizeof(double)) != 0)
        fail_msg("%s: other %s on late than on ref", which->kind, what);
    free(values[0]), free(values[1]);
}

static void check_model(const trained_model *which)
{
    const cod_backend *const backends[NETS] = {&cod_ref_backend, cod_late_wrap(&cod_ref_backend)};
    cod_arena arena = {0};
    cod_model model;
    test_net nets[NETS];
    cod_optimiser *optimisers[NETS];
    assert_ok(net_model(which->kind, which->options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_value loss =
        cod_graph_loss(model.graph, "loss", model.output, target, (cod_loss_spec){.kind = which->loss});
    const cod_input_shape shape = {"input", which->input};
    const cod_compile_options options = {
        .activation = which->activation, .inputs = &shape, .input_count = 1, .bucket_bytes = 64};
    const cod_program_spec specs[] = {{.name = "train", .trains = "model", .losses = {loss}},
                                      {.name = "more", .trains = "model", .losses = {loss}, .accumulate = true},
                                      {.name = "infer", .losses = {loss}, .outputs = {model.output, loss}}};
    for (size_t i = 0; i < NETS; i++) {
        assert_ok(net_init(&nets[i], backends[i], model.graph, &options, specs, 3, 5));
        assert_ok(cod_optimiser_create(&nets[i].weights, 0, &which->optimiser, &optimisers[i]));
    }
    for (int step = 1; step <= STEPS; step++) {
        float losses[NETS];
        for (size_t i = 0; i < NETS; i++) {
            assert_ok(net_random_inputs(&nets[i], (uint64_t)step));
            assert_ok(net_run(&nets[i], "train"));
            assert_ok(net_run(&nets[i], "more"));
            assert_ok(cod_optimiser_step(optimisers[i], 0.01, step));
            assert_ok(net_run(&nets[i], "infer"));
            assert_ok(cod_executable_loss(nets[i].executable, loss, &losses[i]));
        }
        assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
    }
    assert_equal("gradients", which, nets, net_read_grads, nets[0].weights.layout.trainable);
    assert_equal("weights and statistics", which, nets, net_read_values, cod_weights_count(&nets[0].weights));
    for (size_t i = 0; i < NETS; i++) {
        cod_optimiser_destroy(optimisers[i]);
        net_clear(&nets[i]);
    }
    cod_model_clear(&model);
    cod_arena_clear(&arena);
}

TEST(training_has_the_bits_of_ref)
{
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        check_model(&models[m]);
        cod_test_assert_none(cod_late_violations, "%s", models[m].kind);
    }
}
