/* Programs whose end runs in slices of the batch: the losses and gradients of whole programs, in less memory. */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 6 };

/** What a program, and one that adds to its gradients, give. */
typedef struct results {
    double loss;
    double *grads;
    size_t count, plans;
    cod_compile_memory memory;
} results;

static results run(const char *kind, const char *options, cod_loss_kind loss_kind, cod_shape shape, int64_t slices)
{
    results r = {0};
    cod_arena arena = {0};
    cod_model model;
    test_net net;
    assert_ok(net_model(kind, options, &arena, &model));
    const cod_value target = cod_graph_input_like(model.graph, "target", model.output);
    const cod_value loss =
        cod_graph_loss(model.graph, "loss", model.output, target, (cod_loss_spec){.kind = loss_kind});
    const cod_input_shape input = {"input", shape};
    const cod_compile_options compile = {
        .activation = COD_F64, .inputs = &input, .input_count = 1, .slices = slices, .memory = &r.memory};
    const cod_program_spec specs[] = {
        {.name = "step", .trains = "model", .losses = {loss}},
        {.name = "more", .trains = "model", .losses = {loss}, .accumulate = true},
    };
    assert_ok(net_init(&net, &cod_ref_backend, model.graph, &compile, specs, 2, 5));
    assert_ok(net_run(&net, "step"));
    assert_ok(net_run(&net, "more"));
    assert_ok(net_read(&net, cod_executable_loss_view(net.executable, loss), &r.loss));
    r.count = cod_graph_layout(model.graph).trainable;
    r.plans = net_plans(&net, "step");
    r.grads = net_new(r.count);
    assert_ok(net_read_grads(&net, r.grads));
    net_clear(&net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return r;
}

static void require_near(const char *what, const results *whole, const results *sliced)
{
    if (!(fabs(whole->loss - sliced->loss) <= 1e-12 * fabs(whole->loss)))
        fail_msg("%s: the loss is %.17g, not %.17g", what, sliced->loss, whole->loss);
    double largest = 0;
    for (size_t i = 0; i < whole->count; i++)
        largest = fmax(largest, fabs(whole->grads[i]));
    for (size_t i = 0; i < whole->count; i++)
        if (!(fabs(whole->grads[i] - sliced->grads[i]) <= 1e-11 * largest))
            fail_msg("%s: gradient %zu is %.17g, not %.17g", what, i, sliced->grads[i], whole->grads[i]);
}

/** Bytes of the larger program's arena must be below `most` of the whole one's; 1: it is not sliced at all. */
static void check(const char *kind, const char *options, cod_loss_kind loss, cod_shape shape, int64_t slices,
                  double most)
{
    results whole = run(kind, options, loss, shape, 1), sliced = run(kind, options, loss, shape, slices);
    require_near(options, &whole, &sliced);
    const double share = (double)sliced.memory.arena / (double)whole.memory.arena;
    if (most < 1 ? !(share < most && sliced.plans > whole.plans) : sliced.plans != whole.plans)
        fail_msg("%s in %d slices: %zu plans, not %zu, and %.2f of the memory", options, (int)slices, sliced.plans,
                 whole.plans, share);
    free(whole.grads);
    free(sliced.grads);
}

/** Behind the trunk's normalisations: PReLU with one slope, shuffles, a skip from the input. */
TEST(ends_of_networks_that_enlarge_are_sliced)
{
    const cod_shape shape = {4, SIDE, SIDE, 3};
    check("srresnet", "blocks=1 channels=4", COD_LOSS_L1, shape, 2, 0.75);
    check("srresnet", "blocks=1 channels=4", COD_LOSS_CHARBONNIER, shape, 4, 0.6);
    check("srresnet", "blocks=1 channels=4", COD_LOSS_L1, shape, 3, 0.75);
    check("srresnet", "blocks=1 channels=4 skip=bicubic upsampler=once", COD_LOSS_L1, shape, 4, 0.99);
    check("srresnet", "blocks=1 channels=4", COD_LOSS_L1, shape, 0, 1);
}

TEST(networks_without_normalisations_are_sliced_whole)
{
    check("srresnet", "blocks=2 channels=4 norm=none", COD_LOSS_L1, (cod_shape){4, SIDE, SIDE, 3}, 4, 0.5);
    check("mlp", "height=3 width=2 channels=2 classes=3 hidden=9,80", COD_LOSS_CROSS_ENTROPY, (cod_shape){60, 3, 2, 2},
          4, 0.7);
}
