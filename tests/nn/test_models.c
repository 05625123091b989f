/*
 * Whole models, in f64 on `ref`: gradients against central differences, fused and op by op, also under the paranoid
 * backend, and a planted fault in each kind of backward op that must be caught.
 */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** A network with its losses, built anew for each test. */
typedef struct test_network {
    const char *name;
    void (*build)(cod_graph *graph, cod_arena *arena, cod_program_spec *spec);
    cod_shape input;
} test_network;

static void add_loss(cod_graph *graph, cod_program_spec *spec, size_t slot, cod_value prediction, cod_loss_spec loss)
{
    char name[16];
    snprintf(name, sizeof name, "target%zu", slot);
    const cod_value target = cod_graph_input_like(graph, name, prediction);
    spec->losses[slot] = spec->outputs[slot] = cod_graph_loss(graph, "loss", prediction, target, loss);
}

static void build_kind(cod_graph *graph, cod_arena *arena, cod_program_spec *spec, const char *kind_name,
                       const char *options, cod_loss_spec loss)
{
    cod_model model;
    assert_ok(net_model(kind_name, options, arena, &model));
    const cod_value input = cod_graph_input(graph, "input", cod_model_input_channels(model.kind, model.options));
    add_loss(graph, spec, 0, model.kind->build(graph, input, model.options), loss);
    cod_model_clear(&model);
}

static void srresnet_paper(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "srresnet", "blocks=2 channels=4 scale=4 head_kernel=5 tail_kernel=3",
               (cod_loss_spec){.kind = COD_LOSS_MSE});
}

static void srresnet_plain(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "srresnet",
               "blocks=2 channels=4 scale=3 norm=none skip=bicubic upsampler=once head_kernel=3 tail_kernel=3 "
               "activation=relu",
               (cod_loss_spec){.kind = COD_LOSS_CHARBONNIER, .weight = 2});
}

static void msrresnet(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "msrresnet", "num_feat=4 num_block=2 scale=4", (cod_loss_spec){.kind = COD_LOSS_L1});
}

static void rrdb(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "rrdb", "num_feat=3 num_block=1 num_grow_ch=2",
               (cod_loss_spec){.kind = COD_LOSS_MSE});
}

static void edsr(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "edsr", "num_feat=3 num_block=2 scale=4 res_scale=0.5 img_range=2",
               (cod_loss_spec){.kind = COD_LOSS_MSE});
}

static void rrdb_by_two(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "rrdb", "num_feat=3 num_block=1 num_grow_ch=2 scale=2",
               (cod_loss_spec){.kind = COD_LOSS_MSE});
}

/** What three ops read, two of which are unshuffles: its gradient has a part from each. */
static void unshuffled_twice(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    (void)arena;
    const cod_value input = cod_graph_input(graph, "input", 3);
    const cod_value x = cod_graph_conv2d(graph, "c", input, (cod_conv2d_spec){.out_channels = 2, .kernel = 1});
    const cod_value first = cod_graph_pixel_unshuffle(graph, x, 2), second = cod_graph_pixel_unshuffle(graph, x, 2);
    const cod_value strided =
        cod_graph_conv2d(graph, "d", x, (cod_conv2d_spec){.out_channels = 8, .kernel = 2, .stride = 2});
    const cod_value sum = cod_graph_scaled_add(graph, 1, cod_graph_add(graph, first, strided), 0.5f, second);
    const cod_value y = cod_graph_activation(graph, sum, COD_ACT_TANH, 0);
    const cod_value target = cod_graph_input_like(graph, "target", y);
    spec->losses[0] = spec->outputs[0] =
        cod_graph_loss(graph, "loss", y, target, (cod_loss_spec){.kind = COD_LOSS_MSE});
}

static void compact(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "compact", "num_feat=4 num_conv=2 scale=3", (cod_loss_spec){.kind = COD_LOSS_MSE});
}

/** Losses on parts of the batch, of which none is the whole; their gradient lies where something else lay before. */
static void partly_judged(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    (void)arena;
    const cod_value x = cod_graph_input(graph, "input", 7);
    const cod_value hidden = cod_graph_linear(graph, "l1", x, 4, false);
    const cod_value logits = cod_graph_scaled_add(graph, 1, hidden, 0.5f, hidden);
    add_loss(graph, spec, 0, logits, (cod_loss_spec){.kind = COD_LOSS_MSE, .first_items = 3});
    add_loss(graph, spec, 1, logits,
             (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY, .smoothing = 0.1f, .first_items = 2});
}

static void mlp(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    cod_model model;
    assert_ok(net_model("mlp", "height=1 width=1 channels=7 classes=4 hidden=6 activation=tanh", arena, &model));
    const cod_value x = cod_graph_input(graph, "input", 7);
    const cod_value logits = model.kind->build(graph, x, model.options);
    cod_model_clear(&model);
    add_loss(graph, spec, 0, logits, (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY});
    add_loss(graph, spec, 1, logits, (cod_loss_spec){.kind = COD_LOSS_KL, .temperature = 3, .weight = 0.5f});
}

static void mlp_of_pictures(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "mlp",
               "height=3 width=2 channels=2 classes=3 hidden=5,4 activation=prelu output=sigmoid",
               (cod_loss_spec){.kind = COD_LOSS_MSE, .first_items = 3});
}

static void logistic(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "logistic", "height=3 width=2 channels=2 classes=4",
               (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY, .smoothing = 0.2f, .weight = 2});
}

static void cnn_with_pools(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "cnn", "height=6 width=5 channels=2 classes=3 stages=3,4 hidden=5",
               (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY});
}

static void cnn_with_strides(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "cnn",
               "height=6 width=5 channels=1 classes=3 stages=3,4 convolutions=1 norm=none halve=stride",
               (cod_loss_spec){.kind = COD_LOSS_KL, .temperature = 2});
}

static void resnet18(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    build_kind(graph, arena, spec, "resnet18", "height=9 width=8 channels=3 classes=3 features=2",
               (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY});
}

static cod_value conv(cod_graph *graph, const char *name, cod_value x, int64_t channels)
{
    return cod_graph_conv2d(graph, name, x, (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1});
}

/**
 * Concatenations within concatenations, values shared by many, sums of slices: what the gradient's views must survive.
 */
static void dense_block(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    (void)arena;
    const cod_value x = cod_graph_input(graph, "input", 2);
    const cod_value a = cod_graph_activation(graph, conv(graph, "a", x, 3), COD_ACT_LEAKY_RELU, 0.2f);
    /* z before b: while b adds to the gradient of a, z still needs the tensor that both see a part of. */
    const cod_value z = conv(graph, "z", a, 6);
    const cod_value b = cod_graph_prelu(graph, "b_act", conv(graph, "b", a, 3), true);
    const cod_value inner = cod_graph_concat(graph, (const cod_value[]){a, b}, 2);
    const cod_value sum = cod_graph_add(graph, inner, z);
    const cod_value outer = cod_graph_concat(graph, (const cod_value[]){b, sum, b, x}, 4);
    const cod_value growth = cod_graph_activation(graph, conv(graph, "growth", outer, 3), COD_ACT_SIGMOID, 0);
    const cod_value whole = cod_graph_concat(graph, (const cod_value[]){outer, growth}, 2);
    const cod_value twice = cod_graph_add(graph, whole, whole);
    const cod_value mixed = cod_graph_scaled_add(graph, 0.2f, conv(graph, "mix", twice, 3), 1, growth);
    add_loss(graph, spec, 0, mixed, (cod_loss_spec){.kind = COD_LOSS_MSE});
    add_loss(graph, spec, 1, growth, (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 0.3f});
}

/** Strides, pools, a flatten of concatenated slices, and one weight used twice. */
static void classifier(cod_graph *graph, cod_arena *arena, cod_program_spec *spec)
{
    (void)arena;
    const cod_value x = cod_graph_input(graph, "input", 2);
    cod_value y =
        cod_graph_conv2d(graph, "c1", x, (cod_conv2d_spec){.out_channels = 4, .kernel = 3, .stride = 2, .padding = 1});
    y = cod_graph_prelu(graph, "p1", cod_graph_norm(graph, "n1", y), true);
    const cod_value again = conv(graph, "shared", conv(graph, "shared", y, 4), 4);
    y = cod_graph_activation(graph, cod_graph_add(graph, y, again), COD_ACT_TANH, 0);
    const cod_value parts[] = {cod_graph_pool(graph, y, COD_POOL_MAX, 2, 2, 0),
                               cod_graph_pool(graph, y, COD_POOL_AVERAGE, 3, 2, 1)};
    const cod_value both = cod_graph_concat(graph, parts, 2);
    const cod_value flat = cod_graph_flatten(graph, both, 2, 2);
    const cod_value global = cod_graph_flatten(graph, cod_graph_global_pool(graph, y), 1, 1);
    const cod_value head = cod_graph_concat(graph, (const cod_value[]){global, flat}, 2);
    cod_value logits = cod_graph_activation(graph, cod_graph_linear(graph, "l1", head, 8, false), COD_ACT_RELU, 0);
    logits = cod_graph_linear(graph, "l2", cod_graph_add(graph, logits, logits), 3, true);
    add_loss(graph, spec, 0, logits, (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY});
    add_loss(graph, spec, 1, logits, (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 0.1f});
    add_loss(graph, spec, 2, cod_graph_resize(graph, both, 2, COD_RESIZE_BILINEAR),
             (cod_loss_spec){.kind = COD_LOSS_MSE});
}

static const test_network networks[] = {
    {"srresnet with normalisation", srresnet_paper, {2, 4, 3, 3}},
    {"srresnet without", srresnet_plain, {2, 4, 5, 3}},
    {"msrresnet", msrresnet, {1, 4, 4, 3}},
    {"rrdb", rrdb, {2, 3, 2, 3}},
    {"edsr", edsr, {2, 3, 2, 3}},
    {"rrdb by two", rrdb_by_two, {2, 4, 2, 3}},
    {"unshuffled twice", unshuffled_twice, {2, 4, 6, 3}},
    {"compact", compact, {2, 4, 3, 3}},
    {"mlp", mlp, {5, 1, 1, 7}},
    {"mlp of pictures", mlp_of_pictures, {4, 3, 2, 2}},
    {"logistic", logistic, {4, 3, 2, 2}},
    {"cnn with pools", cnn_with_pools, {3, 6, 5, 2}},
    {"cnn with strides", cnn_with_strides, {3, 6, 5, 1}},
    {"resnet18", resnet18, {3, 9, 8, 3}},
    {"partly judged", partly_judged, {5, 1, 1, 7}},
    {"dense block", dense_block, {2, 5, 4, 2}},
    {"classifier", classifier, {3, 8, 8, 2}},
};
enum { NETWORKS = sizeof networks / sizeof networks[0] };

/** @param[out] grads  [trainable], new; `count` of them */
static cod_status copy_grads(test_net *net, double **grads, size_t *count)
{
    *count = net->weights.layout.trainable;
    *grads = net_new(*count);
    return net_read_grads(net, *grads);
}

/** Builds, compiles and checks; the gradients [trainable] come back where asked for. */
static cod_status check_network(const test_network *network, const cod_backend *backend, bool no_fusion,
                                bool differences, double **grads, size_t *count)
{
    cod_graph *graph;
    cod_arena arena = {0};
    cod_program_spec spec = {.name = "train", .trains = "model"};
    COD_TRY(cod_graph_create(&graph));
    network->build(graph, &arena, &spec);
    const cod_input_shape shape = {"input", network->input};
    const cod_compile_options options = {
        .activation = COD_F64, .inputs = &shape, .input_count = 1, .bucket_bytes = 1024, .no_fusion = no_fusion};
    test_net net;
    net_check check;
    cod_status status = net_init(&net, backend, graph, &options, &spec, 1, 11);
    if (differences)
        COD_THEN(status, net_check_gradients(&net, &spec, 11, &check));
    COD_THEN(status, net_run(&net, "train"));
    if (grads != NULL)
        COD_THEN(status, copy_grads(&net, grads, count));
    net_clear(&net);
    cod_graph_destroy(graph);
    cod_arena_clear(&arena);
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "%s, %s", network->name, no_fusion ? "op by op" : "fused");
}

TEST(gradients_agree_with_differences)
{
    for (size_t i = 0; i < NETWORKS; i++)
        for (int no_fusion = 0; no_fusion < 2; no_fusion++)
            assert_ok(check_network(&networks[i], &cod_ref_backend, no_fusion, true, NULL, NULL));
}

/** Fusion changes only the order of roundings; under the paranoid backend nothing changes at all. */
TEST(fused_equals_op_by_op_and_distrusts_nothing)
{
    for (size_t i = 0; i < NETWORKS; i++) {
        double *grads[3];
        size_t count = 0;
        assert_ok(check_network(&networks[i], &cod_ref_backend, false, false, &grads[0], &count));
        assert_ok(check_network(&networks[i], &cod_ref_backend, true, false, &grads[1], &count));
        assert_ok(check_network(&networks[i], cod_paranoid_wrap(&cod_ref_backend), false, false, &grads[2], &count));
        cod_test_assert_none(cod_paranoid_violations, "%s", networks[i].name);
        assert_ok(check_network(&networks[i], cod_paranoid_wrap(&cod_ref_backend), true, false, NULL, NULL));
        cod_test_assert_none(cod_paranoid_violations, "%s, op by op", networks[i].name);
        for (size_t k = 0; k < count; k++)
            if (!(fabs(grads[0][k] - grads[1][k]) <= 1e-11 * (1 + fabs(grads[1][k]))) || grads[0][k] != grads[2][k])
                fail_msg("%s, gradient %zu: fused %.15g, op by op %.15g, paranoid %.15g", networks[i].name, k,
                         grads[0][k], grads[1][k], grads[2][k]);
        for (int k = 0; k < 3; k++)
            free(grads[k]);
    }
}

/** The wrapper that plants a fault: the first output of one kind of op is a thousandth too large. */
struct cod_plan {
    size_t count;
    struct {
        cod_plan *inner;
        cod_view output;
        bool faulty;
    } ops[]; /**< [count], run one after another, as a backend that fuses them would give */
};

static cod_op_kind faulty_kind;
static size_t faulty_plans;

static cod_status faulty_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    cod_plan *plan = calloc(1, sizeof *plan + count * sizeof plan->ops[0]);
    COD_REQUIRE_MEMORY(plan);
    *out = plan;
    for (; plan->count < count; plan->count++) {
        const cod_op *op = &ops[plan->count];
        plan->ops[plan->count].output = op->outputs[op->outputs[0].buffer == NULL];
        plan->ops[plan->count].faulty = op->kind == faulty_kind;
        faulty_plans += plan->ops[plan->count].faulty;
        COD_TRY(cod_ref_backend.plan_create(device, op, &plan->ops[plan->count].inner));
    }
    return COD_OK;
}

static cod_status faulty_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    return faulty_create_fused(device, op, 1, out);
}

static cod_status faulty_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    for (size_t p = 0; p < count; p++)
        for (size_t i = 0; i < plans[p]->count; i++)
            COD_TRY(cod_ref_backend.plans_prepare(device, &plans[p]->ops[i].inner, 1, queue));
    return COD_OK;
}

static cod_status faulty_run(cod_plan *plan, cod_queue *queue)
{
    for (size_t k = 0; k < plan->count; k++) {
        const cod_view *view = &plan->ops[k].output;
        COD_TRY(cod_ref_backend.plan_run(plan->ops[k].inner, queue));
        for (int64_t i = 0; plan->ops[k].faulty && i < cod_shape_count(view->shape); i++)
            ((double *)cod_view_host(view))[i / view->shape.c * view->pixel_stride + i % view->shape.c] *= 1.001;
    }
    return COD_OK;
}

static void faulty_destroy(cod_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        cod_ref_backend.plan_destroy(plan->ops[i].inner);
    free(plan);
}

static void check_fault(cod_op_kind kind, bool fuses)
{
    const test_network *const has_it[] = {&networks[0], &networks[NETWORKS - 1]};
    static cod_backend backends[2]; /* two, as the late backend tells those that it wraps apart by address */
    cod_backend *faulty = &backends[fuses];
    size_t caught = 0;
    *faulty = cod_ref_backend;
    faulty->plan_create = faulty_create;
    faulty->op_fuses = fuses ? faulty->op_fuses : NULL;
    faulty->plan_create_fused = fuses ? faulty_create_fused : NULL;
    faulty->plans_prepare = faulty_prepare;
    faulty->plan_run = faulty_run;
    faulty->plan_destroy = faulty_destroy;
    faulty_kind = kind;
    for (size_t k = 0; k < 2; k++) {
        faulty_plans = 0;
        const cod_status status = check_network(has_it[k], faulty, false, true, NULL, NULL);
        assert_int_equal(status, faulty_plans > 0 ? COD_ERR_NUMERIC : COD_OK);
        caught += faulty_plans > 0;
    }
    if (caught == 0)
        fail_msg("no network has a %s", cod_op_kind_name(kind));
}

TEST(a_wrong_backward_op_is_caught)
{
    static const cod_op_kind plain[] = {
        COD_OP_CONV2D_BACKWARD_DATA,    COD_OP_CONV2D_BACKWARD_WEIGHTS, COD_OP_LINEAR_BACKWARD_DATA,
        COD_OP_LINEAR_BACKWARD_WEIGHTS, COD_OP_NORM_BACKWARD,           COD_OP_ACTIVATION_BACKWARD,
        COD_OP_PIXEL_UNSHUFFLE,         COD_OP_RESIZE_BACKWARD,         COD_OP_POOL_BACKWARD};
    static const cod_op_kind fused[] = {COD_OP_CONV2D_BACKWARD_DATA, COD_OP_CONV2D_BACKWARD_WEIGHTS,
                                        COD_OP_NORM_BACKWARD_REDUCE, COD_OP_NORM_BACKWARD_APPLY};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        check_fault(plain[i], false);
    for (size_t i = 0; i < sizeof fused / sizeof fused[0]; i++)
        check_fault(fused[i], true);
}
