/*
 * What programs promise beyond their gradients: accumulation, buckets, statistics, folding, parameter sets, refusals.
 */
#include "support/test.h"

#include "core/rng.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cod_conv2d_spec conv3 = {.out_channels = 4, .kernel = 3, .padding = 1};

static void assert_close(const char *what, const double *actual, const double *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(actual[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("%s, element %zu: %.15g, expected %.15g", what, i, actual[i], expected[i]);
}

/** conv, norm, PReLU, conv, norm + residual, and a convolution that no loss reaches. */
typedef struct small {
    cod_graph *graph;
    cod_value output, loss;
} small;

static small small_graph(void)
{
    small s;
    assert_ok(cod_graph_create(&s.graph));
    const cod_value x = cod_graph_input(s.graph, "input", 3);
    cod_value a = cod_graph_norm(s.graph, "n1", cod_graph_conv2d(s.graph, "c1", x, conv3));
    a = cod_graph_prelu(s.graph, "act", a, true);
    cod_graph_conv2d(s.graph, "idle", a, conv3);
    const cod_value b = cod_graph_norm(s.graph, "n2", cod_graph_conv2d(s.graph, "c2", a, conv3));
    s.output = cod_graph_add(s.graph, a, b);
    s.loss = cod_graph_loss(s.graph, "loss", s.output, cod_graph_input_like(s.graph, "target", s.output),
                            (cod_loss_spec){.kind = COD_LOSS_MSE});
    return s;
}

static const cod_input_shape small_shape = {"input", {2, 5, 6, 3}};

static cod_compile_options small_options(bool no_fusion)
{
    return (cod_compile_options){
        .activation = COD_F64, .inputs = &small_shape, .input_count = 1, .no_fusion = no_fusion, .bucket_bytes = 64};
}

TEST(accumulating_adds_two_batches)
{
    const small s = small_graph();
    const cod_program_spec specs[] = {
        {.name = "first", .trains = "model", .losses = {s.loss}},
        {.name = "more", .trains = "model", .losses = {s.loss}, .accumulate = true},
    };
    test_net net;
    const cod_compile_options options = small_options(false);
    assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), s.graph, &options, specs, 2, 3));
    const size_t count = net.weights.layout.trainable;
    double *one = net_new(count), *two = net_new(count), *both = net_new(count);
    assert_ok(net_run(&net, "first"));
    assert_ok(net_read_grads(&net, one));
    assert_ok(net_random_inputs(&net, 4));
    assert_ok(net_run(&net, "first"));
    assert_ok(net_read_grads(&net, two));
    assert_ok(net_random_inputs(&net, 3));
    assert_ok(net_run(&net, "first"));
    assert_ok(net_random_inputs(&net, 4));
    assert_ok(net_run(&net, "more"));
    assert_ok(net_read_grads(&net, both));
    for (size_t i = 0; i < count; i++)
        one[i] += two[i];
    assert_close("accumulated gradient", both, one, count, 1e-13);
    free(one), free(two), free(both);
    net_clear(&net);
    cod_graph_destroy(s.graph);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

/** What the callback saw: each bucket's gradients at its signal. */
typedef struct witness {
    test_net *net;
    cod_program *program;
    double *seen;
    int *signals;
} witness;

static cod_status bucket_seen(void *context, size_t index, cod_event *complete)
{
    (void)complete;
    witness *w = context;
    const cod_bucket bucket = cod_program_bucket(w->program, index);
    double *now = net_new(w->net->weights.layout.trainable);
    COD_TRY(net_read_grads(w->net, now));
    memcpy(w->seen + bucket.first, now + bucket.first, bucket.count * sizeof *now);
    w->signals[index]++;
    free(now);
    return COD_OK;
}

TEST(buckets_cover_once_and_are_final_when_signalled)
{
    const small s = small_graph();
    const cod_program_spec specs[] = {{.name = "first", .trains = "model", .losses = {s.loss}},
                                      {.name = "more", .trains = "model", .losses = {s.loss}, .accumulate = true}};
    for (size_t bytes = 0; bytes <= 4096; bytes = bytes ? 4 * bytes : 64) {
        test_net net;
        cod_compile_options options = small_options(false);
        options.bucket_bytes = bytes;
        assert_ok(net_init(&net, &cod_ref_backend, s.graph, &options, specs, 2, 5));
        const size_t count = net.weights.layout.trainable;
        for (size_t p = 0; p < 2; p++) {
            cod_program *program = cod_executable_program(net.executable, specs[p].name);
            const size_t buckets = cod_program_bucket_count(program);
            witness w = {&net, program, net_new(count), calloc(buckets + 1, sizeof(int))};
            double *grads = net_new(count);
            int *covered = calloc(count + 1, sizeof *covered);
            assert_true(bytes == 0 ? buckets == 1 : buckets >= 1);
            assert_ok(cod_program_run(program, bucket_seen, &w));
            assert_ok(net_read_grads(&net, grads));
            for (size_t b = 0; b < buckets; b++) {
                const cod_bucket bucket = cod_program_bucket(program, b);
                assert_int_equal(w.signals[b], 1);
                for (size_t i = 0; i < bucket.count; i++)
                    covered[bucket.first + i]++;
            }
            for (size_t i = 0; i < count; i++) {
                assert_int_equal(covered[i], 1);
                assert_true(w.seen[i] == grads[i]);
            }
            free(w.seen), free(w.signals), free(grads), free(covered);
        }
        net_clear(&net);
    }
    cod_graph_destroy(s.graph);
}

static cod_status refuse_bucket(void *context, size_t index, cod_event *complete)
{
    (void)context, (void)index, (void)complete;
    return cod_fail(COD_ERR_PEER, "the reduction failed");
}

TEST(a_failed_signal_ends_the_run)
{
    const small s = small_graph();
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {s.loss}};
    const cod_compile_options options = small_options(false);
    test_net net;
    assert_ok(net_init(&net, &cod_ref_backend, s.graph, &options, &spec, 1, 5));
    assert_fails(COD_ERR_PEER, "the reduction failed",
                 cod_program_run(cod_executable_program(net.executable, "train"), refuse_bucket, NULL));
    net_clear(&net);
    cod_graph_destroy(s.graph);
}

static bool has_kind(test_net *net, const char *program, cod_op_kind kind)
{
    return net_count_kind(net, program, kind) > 0;
}

/** Whether an op of this kind adds a residual; of NORM_TRAIN, its half that does. */
static bool has_residual(test_net *net, const char *program, cod_op_kind kind)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    for (size_t i = 0; i < net_plans(net, program); i++)
        for (size_t k = 0; k < cod_program_op_parts(found, i); k++) {
            cod_op op;
            cod_program_op_part(found, i, k, &op);
            if (op.kind == kind && op.inputs[4].buffer != NULL)
                return true;
            if (kind == COD_OP_NORM_TRAIN && op.kind == COD_OP_NORM_APPLY && op.inputs[6].buffer != NULL)
                return true;
        }
    return false;
}

/** Inference folds the norms, follows the running statistics and the weights, and equals what is not folded. */
TEST(inference_folds_and_follows)
{
    const small s = small_graph();
    const cod_program_spec specs[] = {{.name = "train", .trains = "model", .losses = {s.loss}},
                                      {.name = "infer", .outputs = {s.output}},
                                      {.name = "batch", .outputs = {s.output}, .batch_statistics = COD_ALL_SETS}};
    test_net nets[2];
    double outputs[2][240];
    for (int plain = 0; plain < 2; plain++) {
        const cod_compile_options options = small_options(plain);
        assert_ok(net_init(&nets[plain], cod_paranoid_wrap(&cod_ref_backend), s.graph, &options, specs, 3, 9));
    }
    assert_true(has_kind(&nets[0], "infer", COD_OP_FOLD_NORM) && !has_kind(&nets[0], "infer", COD_OP_NORM_INFERENCE));
    assert_true(has_residual(&nets[0], "infer", COD_OP_CONV2D));
    assert_true(has_kind(&nets[1], "infer", COD_OP_NORM_INFERENCE) && !has_kind(&nets[1], "infer", COD_OP_FOLD_NORM));
    assert_true(has_kind(&nets[0], "batch", COD_OP_NORM_TRAIN) && has_kind(&nets[0], "train", COD_OP_NORM_TRAIN));
    /* The statistics move with each training run, without a new version of the weights, and with no other. */
    static const char *const before[] = {NULL, "train", "batch"};
    double last = 0;
    for (size_t round = 0; round < 3; round++) {
        for (int plain = 0; plain < 2; plain++) {
            if (before[round] != NULL)
                assert_ok(net_run(&nets[plain], before[round]));
            assert_ok(net_run(&nets[plain], "infer"));
            assert_ok(net_read(&nets[plain], cod_executable_output(nets[plain].executable, s.output), outputs[plain]));
        }
        assert_close(before[round] ? before[round] : "at the start", outputs[0], outputs[1], 240, 1e-12);
        assert_true((outputs[0][0] == last) == (round == 2));
        last = outputs[0][0];
    }
    for (int plain = 0; plain < 2; plain++) {
        assert_ok(net_run(&nets[plain], "batch"));
        assert_ok(net_read(&nets[plain], cod_executable_output(nets[plain].executable, s.output), outputs[plain]));
        net_clear(&nets[plain]);
    }
    assert_close("batch statistics", outputs[0], outputs[1], 240, 1e-12);
    cod_graph_destroy(s.graph);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

enum { SUMS = 7 };

/** Sums with a normalisation or a convolution of `x`. */
static cod_value sum_of(cod_graph *graph, cod_op_kind kind, int which, cod_value x)
{
    const bool conv = kind == COD_OP_CONV2D;
    const cod_value y = conv ? cod_graph_conv2d(graph, "y", x, conv3) : cod_graph_norm(graph, "y", x);
    switch (which) {
    case 0:
        return cod_graph_add(graph, x, y);
    case 1:
        return cod_graph_add(graph, y, x);
    case 2:
        return cod_graph_add(graph, x,
                             conv ? cod_graph_activation(graph, y, COD_ACT_LEAKY_RELU, 0.2f)
                                  : cod_graph_prelu(graph, "act", y, true));
    case 3:
        return cod_graph_scaled_add(graph, 1, x, 0.5f, y);
    case 4:
        return cod_graph_add(graph, y, cod_graph_conv2d(graph, "later", x, conv3));
    case 5:
        return cod_graph_add(graph, y, y);
    default: /* y is read twice */
        return cod_graph_add(graph, cod_graph_add(graph, x, y), y);
    }
}

/** Whether the sum is a plain one of y, or of what is made after it, and of what was made before. */
static bool joins(cod_op_kind kind, bool training, int which)
{
    if (kind == COD_OP_NORM_TRAIN)
        return training ? which < 3 : which == 4;
    return !training && (which < 3 || which == 4);
}

/** Gradients are right, and the same where nothing is joined. */
static void check_sum(cod_op_kind kind, int which)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_conv2d(graph, "c", cod_graph_input(graph, "input", 3), conv3);
    const cod_value y = sum_of(graph, kind, which, x), target = cod_graph_input_like(graph, "target", y);
    const cod_value loss = cod_graph_loss(graph, "loss", y, target, (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_program_spec specs[] = {{.name = "train", .trains = "model", .losses = {loss}, .outputs = {loss}},
                                      {.name = "infer", .outputs = {y}}};
    double grads[2][512], outputs[2][240];
    for (int plain = 0; plain < 2; plain++) {
        test_net net;
        net_check check;
        const cod_compile_options options = small_options(plain);
        assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), graph, &options, specs, 2, 11));
        assert_true(net.weights.layout.trainable <= 512);
        assert_true(has_residual(&net, "train", kind) == (joins(kind, true, which) && !plain));
        assert_true(has_residual(&net, "infer", COD_OP_CONV2D) == (joins(kind, false, which) && !plain));
        assert_ok(net_check_gradients(&net, &specs[0], 11, &check));
        assert_ok(net_run(&net, "train"));
        assert_ok(net_read_grads(&net, grads[plain]));
        assert_ok(net_run(&net, "infer"));
        assert_ok(net_read(&net, cod_executable_output(net.executable, y), outputs[plain]));
        if (plain) {
            assert_close("gradient", grads[0], grads[1], net.weights.layout.trainable, 1e-11);
            assert_close("output", outputs[0], outputs[1], 240, 1e-12);
        }
        net_clear(&net);
    }
    cod_graph_destroy(graph);
}

TEST(plain_sums_join_what_was_made_last)
{
    for (int which = 0; which < SUMS; which++) {
        check_sum(COD_OP_NORM_TRAIN, which);
        check_sum(COD_OP_CONV2D, which);
    }
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

/** Inputs and losses may be outputs too; a loss that is only an output adds nothing to the gradient. */
TEST(outputs_may_be_inputs_and_losses)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 3), y = cod_graph_linear(graph, "l", x, 2, false);
    const cod_value target = cod_graph_input_like(graph, "target", y);
    const cod_value l1 = cod_graph_loss(graph, "mse", y, target, (cod_loss_spec){.kind = COD_LOSS_MSE});
    const cod_value l2 = cod_graph_loss(graph, "seen", y, target, (cod_loss_spec){.kind = COD_LOSS_CHARBONNIER});
    const cod_program_spec specs[] = {
        {.name = "alone", .trains = "model", .losses = {l1}, .outputs = {l1}},
        {.name = "watched", .trains = "model", .losses = {l1}, .outputs = {l1, l2, x, y}}};
    const cod_input_shape shape = {"input", {4, 1, 1, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    test_net net;
    net_check check;
    double grads[2][64], in[12], out[12], out_y[8], loss = 0, expected = 0;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, specs, 2, 6));
    assert_ok(net_check_gradients(&net, &specs[0], 6, &check));
    for (int i = 0; i < 2; i++) {
        assert_ok(net_run(&net, specs[i].name));
        assert_ok(net_read_grads(&net, grads[i]));
    }
    assert_memory_equal(grads[0], grads[1], net.weights.layout.trainable * sizeof(double));
    assert_ok(net_read(&net, cod_executable_input(net.executable, "input"), in));
    assert_ok(net_read(&net, cod_executable_output(net.executable, x), out));
    assert_memory_equal(in, out, sizeof in);
    assert_ok(net_read(&net, cod_executable_output(net.executable, y), out_y));
    assert_ok(net_read(&net, cod_executable_input(net.executable, "target"), in));
    for (int i = 0; i < 8; i++)
        expected += sqrt((out_y[i] - in[i]) * (out_y[i] - in[i]) + 1e-6) / 8;
    assert_ok(net_read(&net, cod_executable_output(net.executable, l2), &loss));
    assert_true(fabs(loss - expected) < 1e-9);
    net_clear(&net);
    cod_graph_destroy(graph);
}

typedef struct gan {
    cod_graph *graph;
    cod_program_spec specs[2];
} gan;

/** LSGAN (Mao et al. 2017): the discriminator sees real images and stopped fakes, the generator its unstopped fakes. */
static cod_value discriminate(cod_graph *graph, cod_value x)
{
    cod_graph_use_set(graph, "discriminator");
    x = cod_graph_activation(graph, cod_graph_linear(graph, "d.0", x, 16, false), COD_ACT_LEAKY_RELU, 0.2f);
    return cod_graph_linear(graph, "d.1", x, 1, false);
}

static gan gan_graph(void)
{
    gan g;
    const cod_loss_spec mse = {.kind = COD_LOSS_MSE};
    assert_ok(cod_graph_create(&g.graph));
    const cod_value z = cod_graph_input(g.graph, "z", 2), real = cod_graph_input(g.graph, "real", 2);
    cod_graph_use_set(g.graph, "generator");
    cod_value fake = cod_graph_activation(g.graph, cod_graph_linear(g.graph, "g.0", z, 16, false), COD_ACT_TANH, 0);
    fake = cod_graph_linear(g.graph, "g.1", fake, 2, false);
    const cod_value stopped = cod_graph_stop_gradient(g.graph, fake);
    const cod_value on_real = discriminate(g.graph, real), on_stopped = discriminate(g.graph, stopped),
                    on_fake = discriminate(g.graph, fake);
    const cod_value ones = cod_graph_input_like(g.graph, "ones", on_real),
                    zeros = cod_graph_input_like(g.graph, "zeros", on_real);
    const cod_value d_real = cod_graph_loss(g.graph, "d_real", on_real, ones, mse),
                    d_fake = cod_graph_loss(g.graph, "d_fake", on_stopped, zeros, mse),
                    g_loss = cod_graph_loss(g.graph, "g", on_fake, ones, mse);
    g.specs[0] = (cod_program_spec){
        .name = "discriminator", .trains = "discriminator", .losses = {d_real, d_fake}, .outputs = {d_real, d_fake}};
    g.specs[1] =
        (cod_program_spec){.name = "generator", .trains = "generator", .losses = {g_loss}, .outputs = {g_loss, fake}};
    return g;
}

static cod_status gan_init(test_net *net, const gan *g, const cod_backend *backend)
{
    static const cod_input_shape shapes[] = {{"z", {16, 1, 1, 2}}, {"real", {16, 1, 1, 2}}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = shapes, .input_count = 2};
    return net_init(net, backend, g->graph, &options, g->specs, 2, 21);
}

TEST(each_program_of_a_gan_has_its_own_gradients)
{
    const gan g = gan_graph();
    test_net net;
    net_check check;
    assert_ok(gan_init(&net, &g, &cod_ref_backend));
    const size_t count = net.weights.layout.trainable;
    double *grads = net_new(count);
    for (int p = 0; p < 2; p++) {
        const cod_set_range range = cod_graph_set_range(g.graph, cod_graph_set_index(g.graph, g.specs[p].trains));
        const size_t first = range.first, own = range.count;
        assert_true(own > 0 && own < count);
        for (size_t i = 0; i < count; i++)
            grads[i] = 1234;
        assert_ok(net_write_grads(&net, grads));
        assert_ok(net_run(&net, g.specs[p].name));
        assert_ok(net_read_grads(&net, grads));
        for (size_t i = 0; i < count; i++)
            if (i < first || i >= first + own)
                assert_true(grads[i] == 1234);
        assert_ok(net_check_gradients(&net, &g.specs[p], 22, &check));
    }
    assert_false(has_kind(&net, "generator", COD_OP_FOLD_NORM));
    free(grads);
    net_clear(&net);
    cod_graph_destroy(g.graph);
}

/** Real points lie around (2, -1): the generator's mean must go there. */
TEST(a_tiny_gan_learns)
{
    const gan g = gan_graph();
    test_net net;
    cod_optimiser *optimisers[2];
    const cod_optimiser_options adam = {
        .kind = COD_OPT_ADAM, .beta1 = 0.5, .beta2 = 0.9, .epsilon = 1e-8, .clip_norm = 10};
    assert_ok(gan_init(&net, &g, &cod_ref_backend));
    for (int p = 0; p < 2; p++)
        assert_ok(
            cod_optimiser_create(&net.weights, cod_graph_set_index(g.graph, g.specs[p].trains), &adam, &optimisers[p]));
    double real[32], fake[32], ones[16], zeros[16] = {0}, distance = 0;
    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    cod_rng rng = cod_rng_open(5, 0, 0, 0, COD_RNG_TEST, 0);
    for (int step = 1; step <= 600; step++) {
        assert_ok(net_random_inputs(&net, (uint64_t)step));
        for (int i = 0; i < 32; i++)
            real[i] = (i % 2 ? -1 : 2) + 0.3 * cod_rng_normal(&rng);
        assert_ok(net_write(&net, cod_executable_input(net.executable, "real"), real));
        assert_ok(net_write(&net, cod_executable_input(net.executable, "ones"), ones));
        assert_ok(net_write(&net, cod_executable_input(net.executable, "zeros"), zeros));
        for (int p = 0; p < 2; p++) {
            assert_ok(net_run(&net, g.specs[p].name));
            assert_ok(cod_optimiser_step(optimisers[p], 3e-3, step));
        }
        if (step <= 500)
            continue;
        assert_ok(net_read(&net, cod_executable_output(net.executable, g.specs[1].outputs[1]), fake));
        for (int i = 0; i < 32; i++)
            distance += (fake[i] - (i % 2 ? -1 : 2)) / 1600 * (i % 2 ? -1 : 1);
    }
    if (!(fabs(distance) < 0.5))
        fail_msg("the generator's mean is %g away from the data's", distance);
    for (int p = 0; p < 2; p++)
        cod_optimiser_destroy(optimisers[p]);
    net_clear(&net);
    cod_graph_destroy(g.graph);
}

TEST(a_scalar_scales_its_loss)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 3), y = cod_graph_linear(graph, "l", x, 2, false);
    const cod_value loss = cod_graph_loss(graph, "loss", y, cod_graph_input_like(graph, "target", y),
                                          (cod_loss_spec){.kind = COD_LOSS_MSE, .scalar = "w"});
    const cod_program_spec spec = {.name = "train", .trains = "model", .losses = {loss}};
    const cod_input_shape shape = {"input", {4, 1, 1, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    test_net net;
    double grads[2][64];
    float losses[2];
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 8));
    for (int i = 0; i < 2; i++) {
        assert_ok(cod_executable_set_scalar(net.executable, "w", i ? 2.0f : 1.0f));
        assert_ok(net_run(&net, "train"));
        assert_ok(net_read_grads(&net, grads[i]));
        assert_ok(cod_executable_loss(net.executable, loss, &losses[i]));
    }
    assert_true(losses[0] == losses[1] && losses[0] > 0);
    for (size_t i = 0; i < net.weights.layout.trainable; i++)
        assert_true(grads[1][i] == 2 * grads[0][i]);
    assert_fails(COD_ERR_ARGUMENT, "no scalar 'v'", cod_executable_set_scalar(net.executable, "v", 1));
    assert_fails(COD_ERR_ARGUMENT, "is not a loss", cod_executable_loss(net.executable, y, losses));
    net_clear(&net);
    cod_graph_destroy(graph);
}

/** Compiles `spec` with one input of this shape and expects a refusal. */
static void refused(cod_graph *graph, cod_program_spec spec, cod_shape shape, cod_dtype activation, const char *why)
{
    const cod_input_shape input = {"input", shape};
    const cod_compile_options options = {.activation = activation, .inputs = &input, .input_count = shape.n > 0};
    test_net net;
    spec.name = "p";
    assert_fails(COD_ERR_ARGUMENT, why, net_init(&net, &cod_ref_backend, graph, &options, &spec, 1, 1));
    net_clear(&net);
}

TEST(compilation_refuses_what_does_not_fit)
{
    const small s = small_graph();
    const cod_shape fits = {1, 4, 4, 3};
    const cod_program_spec train = {.trains = "model", .losses = {s.loss}};
    refused(s.graph, (cod_program_spec){.trains = "critic", .losses = {s.loss}}, fits, COD_F64, "no parameter set");
    refused(s.graph, (cod_program_spec){.trains = "model"}, fits, COD_F64, "has no loss");
    refused(s.graph, (cod_program_spec){.outputs = {999}}, fits, COD_F64, "not a value of the graph");
    refused(s.graph, (cod_program_spec){.trains = "model", .losses = {s.output}}, fits, COD_F64, "not a loss");
    refused(s.graph, train, (cod_shape){0}, COD_F64, "an input's shape was not given");
    refused(s.graph, train, (cod_shape){1, 4, 4, 1}, COD_F64, "it has 3 channels");
    refused(s.graph, train, fits, COD_S8, "activations cannot be");
    const cod_input_shape unknown[] = {{"imput", fits}};
    const cod_compile_options misspelt = {.activation = COD_F64, .inputs = unknown, .input_count = 1};
    test_net net;
    cod_program_spec named = train;
    named.name = "p";
    assert_fails(COD_ERR_ARGUMENT, "no input 'imput'",
                 net_init(&net, &cod_ref_backend, s.graph, &misspelt, &named, 1, 1));
    const cod_input_shape shape = {"input", fits};
    const cod_compile_options twice = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    const cod_program_spec both[] = {named, named};
    net_clear(&net);
    assert_fails(COD_ERR_ARGUMENT, "two programs are called 'p'",
                 net_init(&net, &cod_ref_backend, s.graph, &twice, both, 2, 1));
    const cod_compile_options f32 = {.activation = COD_F32, .inputs = &shape, .input_count = 1};
    cod_executable *executable;
    assert_fails(COD_ERR_ARGUMENT, "f64", cod_compile(s.graph, &net.weights, &f32, &named, 1, &executable));
    cod_graph_linear(s.graph, "late", s.output, 1, false);
    const cod_compile_options f64 = {.activation = COD_F64, .inputs = &shape, .input_count = 1};
    assert_fails(COD_ERR_ARGUMENT, "after its weights were made",
                 cod_compile(s.graph, &net.weights, &f64, &named, 1, &executable));
    net_clear(&net);
    cod_graph_destroy(s.graph);
}
