/*
 * Ops that run as one plan (nn/fuse.c, nn/sink.c): the same numbers as one plan each, as many plans as expected,
 * gradients complete when their bucket is signalled and not much later, and never a plan across the end of the forward
 * pass.
 */
#include "support/test.h"

#include "nn/net.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fused_model {
    const char *kind, *options;
    cod_shape input;
    cod_loss_kind loss;
} fused_model;

/** With normalisations, without, with strides and shortcuts, with channels that are joined. */
static const fused_model models[] = {
    {"srresnet", "blocks=2 channels=8 scale=2 head_kernel=3 tail_kernel=3", {2, 6, 5, 3}, COD_LOSS_L1},
    {"srresnet",
     "blocks=2 channels=4 scale=2 norm=none head_kernel=3 tail_kernel=3 activation=relu",
     {2, 5, 4, 3},
     COD_LOSS_MSE},
    {"resnet18", "height=9 width=8 channels=3 classes=3 features=2", {2, 9, 8, 3}, COD_LOSS_CROSS_ENTROPY},
    {"cnn", "height=6 width=5 channels=2 classes=3 stages=3,4 hidden=5", {4, 6, 5, 2}, COD_LOSS_CROSS_ENTROPY},
    {"mlp", "height=3 width=2 channels=2 classes=3 hidden=9,8,7", {5, 3, 2, 2}, COD_LOSS_CROSS_ENTROPY},
};
enum { MODELS = sizeof models / sizeof models[0], SRRESNET = 0, EDSR = 1, RESNET = 2, MLP = 4 };

/** A graph of the model with a target, a loss and the programs that the tests run. */
typedef struct network {
    cod_arena arena;
    cod_model model;
    cod_program_spec specs[4];
} network;
enum { PROGRAMS = sizeof((network *)NULL)->specs / sizeof(cod_program_spec) };

static void network_open(network *n, const fused_model *which)
{
    *n = (network){0};
    assert_ok(net_model(which->kind, which->options, &n->arena, &n->model));
    const cod_value y = n->model.output, target = cod_graph_input_like(n->model.graph, "target", y);
    const cod_value loss = cod_graph_loss(n->model.graph, "loss", y, target, (cod_loss_spec){.kind = which->loss});
    assert_ok(cod_graph_status(n->model.graph));
    n->specs[0] = (cod_program_spec){.name = "train", .trains = "model", .losses = {loss}, .outputs = {loss}};
    n->specs[1] =
        (cod_program_spec){.name = "more", .trains = "model", .losses = {loss}, .outputs = {loss}, .accumulate = true};
    n->specs[2] = (cod_program_spec){.name = "batch", .outputs = {y}, .batch_statistics = COD_ALL_SETS};
    n->specs[3] = (cod_program_spec){.name = "infer", .outputs = {y}};
}

static void network_close(network *n)
{
    cod_model_clear(&n->model);
    cod_arena_clear(&n->arena);
}

/** `ref` without plans of several ops. */
static const cod_backend *one_by_one(void)
{
    static cod_backend backend;
    backend = cod_ref_backend;
    backend.op_fuses = NULL;
    backend.plan_create_fused = NULL;
    return &backend;
}

static void net_open(test_net *net, const network *n, const fused_model *which, const cod_backend *backend,
                     cod_dtype activation, size_t bucket_bytes, bool no_fusion)
{
    const cod_input_shape shape = {"input", which->input};
    const cod_compile_options options = {.activation = activation,
                                         .inputs = &shape,
                                         .input_count = 1,
                                         .bucket_bytes = bucket_bytes,
                                         .no_fusion = no_fusion};
    assert_ok(net_init(net, backend, n->model.graph, &options, n->specs, PROGRAMS, 5));
}

/** New: gradients after two mini-batches, weights with statistics, outputs. */
static double *run_all(test_net *net, const network *n, size_t *count)
{
    const size_t grads = net->weights.layout.trainable, values = cod_weights_count(&net->weights);
    const cod_view y = cod_executable_output(net->executable, n->model.output);
    const size_t outputs = (size_t)cod_shape_count(y.shape);
    double *all = net_new(*count = grads + values + 2 * outputs + 1), *at = all;
    float loss;
    for (size_t p = 0; p < PROGRAMS; p++) {
        assert_ok(net_random_inputs(net, 20 + p));
        assert_ok(net_run(net, n->specs[p].name));
        if (n->specs[p].trains == NULL) {
            assert_ok(net_read(net, y, at));
            at += outputs;
        }
    }
    assert_ok(net_read_grads(net, at));
    assert_ok(net_read_values(net, at + grads));
    assert_ok(cod_executable_loss(net->executable, n->specs[0].losses[0], &loss));
    at[grads + values] = (double)loss;
    return all;
}

static double *results(const network *n, const fused_model *which, const cod_backend *backend, cod_dtype activation,
                       size_t bucket_bytes, bool no_fusion, size_t *count)
{
    test_net net;
    net_open(&net, n, which, backend, activation, bucket_bytes, no_fusion);
    double *all = run_all(&net, n, count);
    net_clear(&net);
    return all;
}

/** |a - b| <= tolerance·(1 + the largest), and no NaN. */
static void assert_close(const char *what, const double *a, const double *b, size_t count, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(b[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * (1 + largest)))
            fail_msg("%s, number %zu: %.15g, not %.15g", what, i, a[i], b[i]);
}

/** The mean difference, of large numbers the relative one, so that no few of them decide. */
static double distance(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs(a[i] - b[i]) / (1 + fabs(b[i])) / (double)count;
    return sum;
}

/**
 * In f64 the bits of one plan an op, as `ref` computes the same sums in the same order; every node by itself orders
 * some otherwise.
 */
TEST(fused_plans_give_what_single_ones_give)
{
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        size_t count;
        network_open(&n, &models[m]);
        for (size_t bytes = 0; bytes <= 4096; bytes = bytes ? 64 * bytes : 64) {
            double *fused = results(&n, &models[m], &cod_ref_backend, COD_F64, bytes, false, &count);
            double *single = results(&n, &models[m], one_by_one(), COD_F64, bytes, false, &count);
            double *nodes = results(&n, &models[m], &cod_ref_backend, COD_F64, bytes, true, &count);
            assert_close(models[m].kind, fused, single, count, 0);
            assert_close("no_fusion", fused, nodes, count, 1e-11);
            free(fused), free(single), free(nodes);
        }
        network_close(&n);
    }
}

/** The body's five gradients of weights in plans of two, two and one, with the bits of one plan, where two may wait. */
TEST(few_gradients_wait_where_they_keep_much)
{
    network n;
    test_net net;
    size_t count;
    const cod_input_shape shape = {"input", models[SRRESNET].input};
    cod_compile_options options = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    network_open(&n, &models[SRRESNET]);
    double *all = results(&n, &models[SRRESNET], &cod_ref_backend, COD_F64, 0, false, &count);
    assert_ok(net_init(&net, &cod_ref_backend, n.model.graph, &options, n.specs, PROGRAMS, 5));
    cod_op op;
    assert_true(net_find_plan(&net, "train", "body.2 and 4 more", &op) < SIZE_MAX);
    options.gradient_bytes = 5 * 8 * (size_t)cod_shape_count(op.inputs[0].shape);
    net_clear(&net);
    assert_ok(net_init(&net, &cod_ref_backend, n.model.graph, &options, n.specs, PROGRAMS, 5));
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 2), 2);
    const size_t full = net_find_plan(&net, "train", "body.2 and 1 more", &op); /* not at the bucket's end */
    assert_true(cod_program_op(cod_executable_program(net.executable, "train"), full + 1, &op));
    assert_int_equal(op.kind, COD_OP_CONV2D_BACKWARD_DATA);
    double *few = run_all(&net, &n, &count);
    assert_close("few wait", few, all, count, 0);
    free(all), free(few);
    net_clear(&net);
    network_close(&n);
}

/** Deep networks on tiny pictures amplify rounding; plans of halves of normalisations round sums and gradients, too. */
TEST(fused_plans_round_hardly_more)
{
    static const cod_dtype types[] = {COD_F32, COD_BF16};
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        size_t count;
        network_open(&n, &models[m]);
        double *exact = results(&n, &models[m], one_by_one(), COD_F64, 0, false, &count);
        for (size_t t = 0; t < 2; t++) {
            double *fused = results(&n, &models[m], &cod_ref_backend, types[t], 0, false, &count);
            double *single = results(&n, &models[m], one_by_one(), types[t], 0, false, &count);
            const double further = distance(fused, exact, count), near = distance(single, exact, count);
            if (!(further <= 1.5 * near && near < 0.01))
                fail_msg("%s, %s: fused %g from f64, single %g", models[m].kind, cod_dtype_name(types[t]), further,
                         near);
            free(fused), free(single);
        }
        free(exact);
        network_close(&n);
    }
}

/** The memory plan gives fused ops views with which they still are a sequence, and they touch nothing else. */
TEST(fused_plans_touch_only_their_outputs)
{
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        size_t count;
        network_open(&n, &models[m]);
        double *paranoid = results(&n, &models[m], cod_paranoid_wrap(&cod_ref_backend), COD_F64, 4096, false, &count);
        double *plain = results(&n, &models[m], &cod_ref_backend, COD_F64, 4096, false, &count);
        assert_close(models[m].kind, paranoid, plain, count, 0);
        cod_test_assert_none(cod_paranoid_violations, "%s", models[m].kind);
        free(paranoid), free(plain);
        network_close(&n);
    }
}

/** Two blocks: five equal convolutions with five normalisations; see the names below. */
TEST(srresnet_has_the_plans_expected)
{
    network n;
    network_open(&n, &models[SRRESNET]);
    for (size_t p = 0; p < 2; p++) {
        const char *program = n.specs[p].name;
        test_net net;
        net_open(&net, &n, &models[SRRESNET], &cod_ref_backend, COD_F32, 0, false);
        assert_int_equal(net_count_kind(&net, program, COD_OP_NORM_STATISTICS), 5);
        assert_int_equal(net_count_kind(&net, program, COD_OP_NORM_APPLY), 5);
        assert_int_equal(net_count_kind(&net, program, COD_OP_NORM_BACKWARD_REDUCE), 5);
        assert_int_equal(net_count_kind(&net, program, COD_OP_NORM_BACKWARD_APPLY), 5);
        /* Alone: the tail's last. With a half: first of the body, and first of the tail. With its PReLU: the head. */
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D, 1), 1);
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D, 2), 3);
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D, 3), 4);
        /*
         * With a half: the tail's first, and the body's first, behind which is no normalisation. The tail's last has
         * PReLU's gradient in it, but for a program that adds to the slope's gradient: there it is alone.
         */
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D_BACKWARD_DATA, 1), p);
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D_BACKWARD_DATA, 2), 3 - p);
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D_BACKWARD_DATA, 3), 4);
        /* The body's in one plan; head and tail have other shapes. */
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D_BACKWARD_WEIGHTS, 5), 1);
        assert_int_equal(net_count_plans(&net, program, COD_OP_CONV2D_BACKWARD_WEIGHTS, 1), 3);
        net_clear(&net);
    }
    network_close(&n);
}

/** ReLU's gradient joins the data gradient of the layer behind it, of which there are three. */
TEST(mlp_has_the_plans_expected)
{
    network n;
    test_net net;
    network_open(&n, &models[MLP]);
    net_open(&net, &n, &models[MLP], &cod_ref_backend, COD_F32, 0, false);
    assert_int_equal(net_count_kind(&net, "train", COD_OP_ACTIVATION_BACKWARD), 3);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_LINEAR_BACKWARD_DATA, 2), 3);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_LINEAR_BACKWARD_DATA, 1), 0);
    net_clear(&net);
    network_close(&n);
}

static bool has_name(const test_net *net, const char *program, cod_op_kind kind, const char *name)
{
    cod_op op;
    for (size_t i = 0; cod_program_op(cod_executable_program(net->executable, program), i, &op); i++)
        if (op.kind == kind && strcmp(op.name, name) == 0)
            return true;
    return false;
}

static double all_flops(const test_net *net, const char *program)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    double flops = 0;
    for (size_t i = 0; i < net_plans(net, program); i++)
        flops += cod_program_op_flops(found, i);
    return flops;
}

/** [node] the arithmetic of the ops that are for it; new. */
static double *flops_by_node(const test_net *net, const char *program)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    double *flops = net_new(cod_graph_node_count(net->graph));
    for (size_t i = 0; i < net_plans(net, program); i++)
        for (size_t part = 0; part < cod_program_op_parts(found, i); part++) {
            cod_op op;
            const size_t node = cod_program_op_part(found, i, part, &op);
            flops[node] += cod_op_flops(&op);
        }
    return flops;
}

/** So that a partition of layers by their cost does not depend on which of them are one plan. */
TEST(parts_of_a_plan_are_for_their_own_nodes)
{
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        test_net nets[2];
        network_open(&n, &models[m]);
        net_open(&nets[0], &n, &models[m], &cod_ref_backend, COD_F32, 0, false);
        net_open(&nets[1], &n, &models[m], one_by_one(), COD_F32, 0, false);
        double *fused = flops_by_node(&nets[0], "train"), *single = flops_by_node(&nets[1], "train");
        for (size_t i = 0; i < cod_graph_node_count(n.model.graph); i++)
            assert_true(fused[i] == single[i]);
        free(fused), free(single);
        for (size_t i = 0; i < 2; i++)
            net_clear(&nets[i]);
        network_close(&n);
    }
}

TEST(a_plan_is_named_after_all_that_it_does)
{
    network n;
    test_net nets[2];
    network_open(&n, &models[SRRESNET]);
    net_open(&nets[0], &n, &models[SRRESNET], &cod_ref_backend, COD_F32, 0, false);
    net_open(&nets[1], &n, &models[SRRESNET], one_by_one(), COD_F32, 0, false);
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D, "body.0.f.0 + norm"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D, "norm + body.0.f.3 + norm"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D_BACKWARD_DATA, "norm + body.1.f.3 + norm"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, "body.2 and 4 more"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D, "head.0 + activation"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D_BACKWARD_DATA, "tail.3 + activation"));
    assert_true(has_name(&nets[0], "train", COD_OP_CONV2D, "tail.3"));
    assert_true(all_flops(&nets[0], "train") > 0);
    assert_true(fabs(all_flops(&nets[0], "train") / all_flops(&nets[1], "train") - 1) < 1e-12);
    assert_true(net_plans(&nets[0], "train") < net_plans(&nets[1], "train"));
    for (size_t i = 0; i < 2; i++)
        net_clear(&nets[i]);
    network_close(&n);
}

/** Running ops one by one, as benches do, is running the program. */
TEST(ops_run_one_by_one)
{
    network n;
    test_net net;
    network_open(&n, &models[SRRESNET]);
    net_open(&net, &n, &models[SRRESNET], &cod_ref_backend, COD_F64, 0, false);
    const size_t count = net.weights.layout.trainable;
    double *whole = net_new(count), *parts = net_new(count);
    assert_ok(net_run(&net, "train"));
    assert_ok(net_read_grads(&net, whole));
    assert_ok(net_write_grads(&net, parts));
    for (size_t i = 0; i < net_plans(&net, "train"); i++)
        assert_ok(cod_program_run_op(cod_executable_program(net.executable, "train"), i));
    assert_ok(net_read_grads(&net, parts));
    assert_close("gradients", parts, whole, count, 0);
    free(whole), free(parts);
    net_clear(&net);
    network_close(&n);
}

/** What the callback saw of the gradients. */
typedef struct witness {
    test_net *net;
    cod_program *program;
    double *seen;      /**< each bucket's at its signal */
    size_t *untouched; /**< [bucket] gradients of the whole set that were not written when it was signalled */
    size_t signals, *order;
} witness;

static const double NOT_WRITTEN = 12345;

static cod_status bucket_seen(void *context, size_t index, cod_event *complete)
{
    (void)complete;
    witness *w = context;
    const size_t count = w->net->weights.layout.trainable;
    const cod_bucket bucket = cod_program_bucket(w->program, index);
    double *now = net_new(count);
    COD_TRY(net_read_grads(w->net, now));
    memcpy(w->seen + bucket.first, now + bucket.first, bucket.count * sizeof *now);
    for (size_t i = 0; i < count; i++)
        w->untouched[index] += now[i] == NOT_WRITTEN;
    w->order[w->signals++] = index;
    free(now);
    return COD_OK;
}

/**
 * Every bucket is complete at its signal; the signals come in the order of one plan an op, and with work still to do
 * between them.
 */
static void check_buckets(const network *n, const fused_model *which, size_t bytes)
{
    test_net net;
    net_open(&net, n, which, &cod_ref_backend, COD_F64, bytes, false);
    cod_program *program = cod_executable_program(net.executable, "train");
    const size_t count = net.weights.layout.trainable, buckets = cod_program_bucket_count(program);
    witness w = {.net = &net,
                 .program = program,
                 .seen = net_new(count),
                 .untouched = calloc(buckets + 1, sizeof *w.untouched),
                 .order = calloc(buckets + 1, sizeof *w.order)};
    double *grads = net_new(count);
    for (size_t i = 0; i < count; i++)
        grads[i] = NOT_WRITTEN;
    assert_ok(net_write_grads(&net, grads));
    assert_ok(cod_program_run(program, bucket_seen, &w));
    assert_ok(net_read_grads(&net, grads));
    assert_close(which->kind, w.seen, grads, count, 0);
    assert_int_equal(w.signals, buckets);
    assert_true(bytes == 0 ? buckets == 1 : buckets >= 3);
    for (size_t b = 1; b < buckets; b++)
        assert_true(w.untouched[w.order[b]] <= w.untouched[w.order[b - 1]]);
    /*
     * A bucket whose gradients had waited for the last one's would leave none to write but the gaps between parameters.
     */
    size_t gaps = 0;
    for (size_t i = 0; i < count; i++)
        gaps += grads[i] == NOT_WRITTEN;
    if (buckets > 1)
        assert_true(w.untouched[w.order[0]] > count / 3 && w.untouched[w.order[buckets - 2]] > gaps);
    assert_int_equal(w.untouched[w.order[buckets - 1]], gaps);
    free(w.seen), free(w.untouched), free(w.order), free(grads);
    net_clear(&net);
}

TEST(buckets_are_complete_one_after_another)
{
    static const size_t bytes[MODELS][3] = {
        [SRRESNET] = {0, 4096, 10000}, [EDSR] = {0, 1024, 3000}, [RESNET] = {0, 2048, 8000}};
    for (size_t m = SRRESNET; m <= RESNET; m++) {
        network n;
        network_open(&n, &models[m]);
        for (size_t i = 0; i < 3; i++)
            check_buckets(&n, &models[m], bytes[m][i]);
        network_close(&n);
    }
}

/** With several buckets the equal gradients of each are a plan; with small ones nothing waits for anything. */
TEST(gradients_of_weights_stay_in_their_bucket)
{
    network n;
    test_net net;
    network_open(&n, &models[SRRESNET]);
    net_open(&net, &n, &models[SRRESNET], &cod_ref_backend, COD_F64, 10000, false);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 3), 1);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 2), 1);
    net_clear(&net);
    net_open(&net, &n, &models[SRRESNET], &cod_ref_backend, COD_F64, 64, false);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 1), 8);
    net_clear(&net);
    network_close(&n);
}

/**
 * The output of EDSR's second convolutions shares its gradient with the sum behind it, which the block's first one adds
 * to.
 */
TEST(gradients_run_before_what_they_read_is_overwritten)
{
    network n;
    test_net net;
    network_open(&n, &models[EDSR]);
    net_open(&net, &n, &models[EDSR], &cod_ref_backend, COD_F64, 0, false);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 5), 0);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 3), 1);
    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, 2), 1);
    net_clear(&net);
    network_close(&n);
}

/** Forward and backward pass run apart, as stages of a pipeline run them. */
TEST(passes_run_apart)
{
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        test_net net;
        network_open(&n, &models[m]);
        net_open(&net, &n, &models[m], &cod_ref_backend, COD_F64, 4096, false);
        const size_t count = net.weights.layout.trainable;
        double *together = net_new(count), *apart = net_new(count);
        cod_program *program = cod_executable_program(net.executable, "train");
        assert_ok(cod_program_run(program, NULL, NULL));
        assert_ok(net_read_grads(&net, together));
        assert_ok(net_write_grads(&net, apart));
        assert_ok(cod_program_run_forward(program));
        assert_ok(cod_program_run_backward(program, NULL, NULL));
        assert_ok(net_read_grads(&net, apart));
        assert_close(models[m].kind, apart, together, count, 0);
        free(together), free(apart);
        net_clear(&net);
        network_close(&n);
    }
}

/** A backend that takes some sequences only: the compiler asks, and does with what it gets. */
static size_t (*may_fuse)(const cod_op *ops, size_t fits);

static size_t choosy_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    return may_fuse(ops, cod_ref_backend.op_fuses(device, ops, count));
}

static size_t pairs_alone(const cod_op *ops, size_t fits)
{
    (void)ops;
    return fits < 2 ? fits : 2;
}

static size_t no_weights(const cod_op *ops, size_t fits)
{
    return ops[0].kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? 1 : fits;
}

static size_t weights_alone(const cod_op *ops, size_t fits)
{
    return ops[0].kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? fits : 1;
}

static size_t nothing(const cod_op *ops, size_t fits)
{
    (void)ops, (void)fits;
    return 1;
}

TEST(the_backend_decides)
{
    size_t (*const choices[])(const cod_op *ops, size_t fits) = {pairs_alone, no_weights, weights_alone, nothing};
    cod_backend choosy = cod_ref_backend;
    choosy.op_fuses = choosy_fuses;
    for (size_t m = 0; m < MODELS; m++) {
        network n;
        size_t count;
        network_open(&n, &models[m]);
        double *single = results(&n, &models[m], one_by_one(), COD_F64, 0, false, &count);
        for (size_t c = 0; c < sizeof choices / sizeof choices[0]; c++) {
            test_net net;
            may_fuse = choices[c];
            net_open(&net, &n, &models[m], &choosy, COD_F64, 0, false);
            double *chosen = run_all(&net, &n, &count);
            assert_close(models[m].kind, chosen, single, count, 0);
            const size_t halves = net_count_kind(&net, "train", COD_OP_NORM_STATISTICS);
            assert_true(halves == 0 || choices[c] == pairs_alone || choices[c] == no_weights);
            if (m == SRRESNET)
                assert_true((halves > 0) == (choices[c] == pairs_alone || choices[c] == no_weights));
            if (choices[c] == nothing || choices[c] == no_weights)
                for (size_t parts = 2; parts < 8; parts++)
                    assert_int_equal(net_count_plans(&net, "train", COD_OP_CONV2D_BACKWARD_WEIGHTS, parts), 0);
            free(chosen);
            net_clear(&net);
        }
        free(single);
        network_close(&n);
    }
}
