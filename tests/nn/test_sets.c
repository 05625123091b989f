/*
 * Parameter sets: scopes of names, versions, frozen sets, values that one program leaves to another, optimisers of a
 * set.
 */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL = 0, CRITIC = 1 };

static void assert_close(const char *what, const double *actual, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(actual[i] - expected[i]) <= 1e-12 * (1 + fabs(expected[i]))))
            fail_msg("%s, element %zu: %.15g, expected %.15g", what, i, actual[i], expected[i]);
}

/**
 * Normalised convolutions under equal names in both sets: behind a convolution, and behind a concatenation that cannot
 * be folded.
 */
static cod_value network(cod_graph *graph, cod_value x)
{
    static const cod_conv2d_spec conv = {.out_channels = 4, .kernel = 3, .padding = 1};
    const cod_value a =
        cod_graph_prelu(graph, "act", cod_graph_norm(graph, "n1", cod_graph_conv2d(graph, "c1", x, conv)), true);
    const cod_value b = cod_graph_activation(graph, cod_graph_conv2d(graph, "c2", a, conv), COD_ACT_LEAKY_RELU, 0.2f);
    const cod_value both = cod_graph_concat(graph, (const cod_value[]){a, b}, 2);
    const cod_value normal = cod_graph_activation(graph, cod_graph_norm(graph, "n2", both), COD_ACT_LEAKY_RELU, 0.1f);
    return cod_graph_conv2d(graph, "c3", normal, (cod_conv2d_spec){.out_channels = 3, .kernel = 1});
}

/** A network, and a critic that judges its output and the truth. */
typedef struct pair {
    cod_graph *graph;
    cod_value fake, judged, task, adversarial, on_fake, on_truth;
    cod_value on_same; /**< what the critic learns of the fake, by the very nodes that judge it for the model */
} pair;

static pair pair_graph(void)
{
    const cod_loss_spec mse = {.kind = COD_LOSS_MSE};
    pair p;
    assert_ok(cod_graph_create(&p.graph));
    const cod_value x = cod_graph_input(p.graph, "input", 3);
    p.fake = network(p.graph, x);
    const cod_value truth = cod_graph_input_like(p.graph, "target", p.fake);
    cod_graph_use_set(p.graph, "critic");
    const cod_value judged = network(p.graph, p.fake), judged_truth = network(p.graph, truth);
    const cod_value judged_given = network(p.graph, cod_graph_stop_gradient(p.graph, p.fake));
    const cod_value zeros = cod_graph_input_like(p.graph, "zeros", judged),
                    ones = cod_graph_input_like(p.graph, "ones", judged);
    p.task = cod_graph_loss(p.graph, "task", p.fake, truth, mse);
    p.judged = judged;
    p.adversarial = cod_graph_loss(p.graph, "adversarial", judged, ones, mse);
    p.on_same = cod_graph_loss(p.graph, "on_same", judged, zeros, mse);
    p.on_fake = cod_graph_loss(p.graph, "on_fake", judged_given, zeros, mse);
    p.on_truth = cod_graph_loss(p.graph, "on_truth", judged_truth, ones, mse);
    assert_ok(cod_graph_status(p.graph));
    return p;
}

static cod_compile_options options_of(bool no_fusion)
{
    static const cod_input_shape shape = {"input", {2, 4, 5, 3}};
    return (cod_compile_options){.activation = COD_F64, .inputs = &shape, .input_count = 1, .no_fusion = no_fusion};
}

/** Trains the model alone; the critic is frozen. */
static cod_program_spec model_spec(const pair *p, cod_sets batch_statistics)
{
    return (cod_program_spec){.name = "model",
                              .trains = "model",
                              .batch_statistics = batch_statistics,
                              .losses = {p->task, p->adversarial},
                              .outputs = {p->task, p->adversarial}};
}

/** The critic judges what the program "forward" has left, or computes it again. */
static cod_program_spec critic_spec(const pair *p, bool given)
{
    return (cod_program_spec){.name = given ? "critic_given" : "critic",
                              .trains = "critic",
                              .batch_statistics = cod_set_of(MODEL),
                              .losses = {p->on_fake, p->on_truth},
                              .outputs = {p->on_fake, p->on_truth},
                              .given = {given ? p->fake : 0}};
}

TEST(equal_names_in_two_sets_are_two_parameters)
{
    const pair p = pair_graph();
    const size_t count = cod_graph_param_count(p.graph);
    const cod_layout layout = cod_graph_layout(p.graph);
    const cod_set_range model = cod_graph_set_range(p.graph, MODEL), critic = cod_graph_set_range(p.graph, CRITIC);
    assert_int_equal(cod_graph_set_count(p.graph), 2);
    assert_string_equal(cod_graph_set_name(p.graph, CRITIC), "critic");
    assert_int_equal(model.count + critic.count, layout.trainable);
    assert_int_equal(model.state_count + critic.state_count, layout.state);
    assert_true(model.first == 0 && critic.first == model.count);
    assert_true(model.state_first == layout.trainable && critic.state_first == model.state_first + model.state_count);
    for (size_t i = 0; i < count / 2; i++) { /* the critic's three uses share one set of parameters */
        const cod_param *a = cod_graph_param(p.graph, i), *b = cod_graph_param(p.graph, i + count / 2);
        assert_true(a->set == MODEL && b->set == CRITIC && a->offset != b->offset);
        assert_string_equal(a->name, b->name);
    }
    assert_true(cod_graph_fingerprint(p.graph, cod_set_of(MODEL)) ==
                cod_graph_fingerprint(p.graph, cod_set_of(CRITIC)));
    assert_true(cod_graph_fingerprint(p.graph, COD_ALL_SETS) != cod_graph_fingerprint(p.graph, cod_set_of(MODEL)));
    cod_graph_destroy(p.graph);
}

TEST(too_many_sets_are_refused)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    for (int i = 1; i <= COD_GRAPH_MAX_SETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "set%d", i);
        assert_ok(cod_graph_status(graph));
        cod_graph_use_set(graph, name);
    }
    assert_fails(COD_ERR_ARGUMENT, "parameter set 'set32': a graph has at most 32 sets", cod_graph_status(graph));
    cod_graph_destroy(graph);
}

/** A new set must not change how the sets before it begin. */
TEST(a_set_begins_as_it_would_alone)
{
    const pair p = pair_graph();
    cod_graph *alone;
    cod_device *device;
    cod_weights whole, part;
    assert_ok(cod_graph_create(&alone));
    network(alone, cod_graph_input(alone, "input", 3));
    assert_ok(cod_ref_backend.open(NULL, &device));
    assert_ok(cod_weights_init(&whole, &cod_ref_backend, device, p.graph, COD_F32, false));
    assert_ok(cod_weights_init(&part, &cod_ref_backend, device, alone, COD_F32, false));
    assert_ok(cod_weights_fill_initial(&whole, 7));
    assert_ok(cod_weights_fill_initial(&part, 7));
    const size_t count = cod_weights_count(&part);
    float *a = calloc(count, sizeof *a), *b = calloc(count, sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    assert_ok(cod_weights_download(&part, a));
    assert_ok(cod_weights_download_sets(&whole, cod_set_of(MODEL), b));
    assert_memory_equal(a, b, count * sizeof *a);
    assert_ok(cod_weights_download_sets(&whole, cod_set_of(CRITIC), b));
    assert_memory_not_equal(a, b, count * sizeof *a);
    /* Written to the other set, they are there and nowhere else. */
    const uint64_t version = whole.sets[MODEL].version;
    assert_ok(cod_weights_upload_sets(&whole, cod_set_of(CRITIC), a));
    assert_true(whole.sets[MODEL].version == version && whole.sets[CRITIC].version > version);
    assert_ok(cod_weights_download_sets(&whole, cod_set_of(CRITIC), b));
    assert_memory_equal(a, b, count * sizeof *a);
    free(a), free(b);
    cod_weights_clear(&whole);
    cod_weights_clear(&part);
    cod_ref_backend.close(device);
    cod_graph_destroy(alone);
    cod_graph_destroy(p.graph);
}

static int prepared, prepare_calls;

static cod_status count_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    prepared += (int)count;
    prepare_calls++;
    return cod_ref_backend.plans_prepare(device, plans, count, queue);
}

/** Plans that a program prepares once these sets have changed. */
static int prepares(test_net *net, const char *program, cod_sets values, cod_sets states)
{
    cod_weights_changed(&net->weights, values);
    cod_weights_states_changed(&net->weights, states);
    prepared = prepare_calls = 0;
    assert_ok(cod_program_prepare(cod_executable_program(net->executable, program)));
    assert_int_equal(prepare_calls, prepared > 0); /* all in one call */
    return prepared;
}

TEST(a_set_that_changes_leaves_the_others_packed)
{
    cod_backend counting = cod_ref_backend;
    counting.plans_prepare = count_prepare;
    const pair p = pair_graph();
    const cod_program_spec specs[] = {model_spec(&p, 0), model_spec(&p, COD_ALL_SETS)};
    const cod_compile_options options = options_of(false);
    for (int batch = 0; batch < 2; batch++) {
        test_net net;
        assert_ok(net_init(&net, &counting, p.graph, &options, &specs[batch], 1, 4));
        const int all = prepares(&net, "model", 0, 0);
        assert_int_equal(prepares(&net, "model", 0, 0), 0);
        const int model = prepares(&net, "model", cod_set_of(MODEL), 0);
        const int critic = prepares(&net, "model", cod_set_of(CRITIC), 0);
        assert_true(model > 0 && critic > 0 && model + critic == all);
        assert_int_equal(prepares(&net, "model", COD_ALL_SETS, 0), all);
        /* The critic's statistics are folded into its first convolution, and read by its second normalisation. */
        const int folded = prepares(&net, "model", 0, cod_set_of(CRITIC));
        assert_true(batch ? folded == 0 : folded > 0 && folded < critic);
        net_clear(&net);
    }
    cod_graph_destroy(p.graph);
}

static int updated; /**< plans of plans_prepare_updated() */

static cod_status count_updated(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    updated += (int)count;
    return cod_ref_backend.plans_prepare(device, plans, count, queue);
}

/** Of the next preparation, how many plans a backend may take for updated; `all`: how many it gets. */
static int updates(test_net *net, const char *program, int *all)
{
    prepared = updated = 0;
    assert_ok(cod_program_prepare(cod_executable_program(net->executable, program)));
    *all = prepared + updated;
    return updated;
}

/** Only what a whole update wrote last counts as updated, and neither what is folded nor other sets. */
TEST(a_backend_is_told_of_updates)
{
    cod_backend counting = cod_ref_backend;
    counting.plans_prepare = count_prepare;
    counting.plans_prepare_updated = count_updated;
    const pair p = pair_graph();
    const cod_program_spec specs[] = {model_spec(&p, 0), model_spec(&p, COD_ALL_SETS)};
    const cod_compile_options options = options_of(false);
    for (int batch = 0; batch < 2; batch++) {
        test_net net;
        cod_optimiser *optimisers[3];
        int all;
        assert_ok(net_init(&net, &counting, p.graph, &options, &specs[batch], 1, 4));
        const cod_set_range *range = &net.weights.sets[MODEL].range;
        const cod_optimiser_options whole = {.kind = COD_OPT_SGD};
        const cod_optimiser_options part = {
            .kind = COD_OPT_SGD, .only_part = true, .part_first = range->first, .part_count = range->count};
        assert_ok(cod_optimiser_create(&net.weights, MODEL, &whole, &optimisers[0]));
        assert_ok(cod_optimiser_create(&net.weights, CRITIC, &whole, &optimisers[1]));
        assert_ok(cod_optimiser_create(&net.weights, MODEL, &part, &optimisers[2]));
        assert_int_equal(updates(&net, "model", &all), 0);
        assert_true(all > 0);
        assert_ok(cod_optimiser_step(optimisers[0], 0.1, 1));
        const int model = updates(&net, "model", &all);
        assert_true(model > 0 && model == all);
        assert_int_equal(updates(&net, "model", &all), 0);
        assert_int_equal(all, 0);
        assert_ok(cod_optimiser_step(optimisers[0], 0.1, 2));
        assert_ok(cod_optimiser_step(optimisers[1], 0.1, 2));
        const int both = updates(&net, "model", &all);
        /*
         * By running statistics, the critic's first convolution is folded with them: no optimiser wrote what it reads.
         */
        assert_true(both > model && (batch ? both == all : both < all));
        /* A merge of one set behind the last update of both: the other counts. */
        assert_ok(cod_optimiser_step(optimisers[0], 0.1, 3));
        assert_ok(cod_optimiser_step(optimisers[1], 0.1, 3));
        cod_weights_changed(&net.weights, cod_set_of(MODEL));
        const int critic = updates(&net, "model", &all);
        assert_true(critic > 0 && critic < both);
        cod_weights_changed(&net.weights, cod_set_of(CRITIC));
        assert_int_equal(updates(&net, "model", &all), 0);
        assert_true(all > 0);
        /* Others may write what lies beside a part. */
        assert_ok(cod_optimiser_step(optimisers[2], 0.1, 3));
        assert_int_equal(updates(&net, "model", &all), 0);
        assert_true(all > 0);
        for (int i = 0; i < 3; i++)
            cod_optimiser_destroy(optimisers[i]);
        net_clear(&net);
    }
    cod_graph_destroy(p.graph);
}

static bool runs(test_net *net, const char *program, cod_op_kind kind)
{
    return net_count_kind(net, program, kind) > 0;
}

/**
 * Gradients flow through a frozen set, by running or the batch's statistics; of itself it gets none, and its statistics
 * stay.
 */
TEST(a_frozen_set_passes_gradients_and_stays)
{
    const pair p = pair_graph();
    for (int batch = 0; batch < 2; batch++) {
        const cod_program_spec spec = model_spec(&p, batch ? COD_ALL_SETS : 0);
        double *grads[2] = {NULL, NULL};
        size_t model = 0;
        for (int plain = 0; plain < 2; plain++) {
            const cod_compile_options options = options_of(plain);
            test_net net;
            net_check check;
            assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), p.graph, &options, &spec, 1, 6));
            const size_t count = net.weights.layout.trainable, all = cod_weights_count(&net.weights);
            const cod_set_range *critic = &net.weights.sets[CRITIC].range;
            double *before = net_new(all), *after = net_new(all);
            model = net.weights.sets[MODEL].range.count;
            grads[plain] = net_new(count);
            for (size_t i = 0; i < count; i++)
                grads[plain][i] = 1234;
            assert_ok(net_write_grads(&net, grads[plain]));
            assert_ok(net_read_values(&net, before));
            assert_ok(net_run(&net, "model"));
            assert_ok(net_read_values(&net, after));
            assert_ok(net_read_grads(&net, grads[plain]));
            for (size_t i = 0; i < critic->count; i++)
                assert_true(grads[plain][critic->first + i] == 1234);
            for (size_t i = 0; i < critic->state_count; i++)
                assert_true(after[critic->state_first + i] == before[critic->state_first + i]);
            assert_true(after[net.weights.sets[MODEL].range.state_first] !=
                        before[net.weights.sets[MODEL].range.state_first]);
            assert_true(runs(&net, "model", COD_OP_NORM_INFERENCE_BACKWARD) == !batch);
            assert_true(runs(&net, "model", COD_OP_FOLD_NORM) == (!batch && !plain));
            /* The critic's normalisations by the batch's statistics run as halves beside their convolutions. */
            assert_true(runs(&net, "model", COD_OP_NORM_BACKWARD_REDUCE) == !plain);
            assert_ok(net_check_gradients(&net, &spec, 8, &check));
            free(before), free(after);
            net_clear(&net);
        }
        assert_close(batch ? "by the batch's statistics" : "by running statistics", grads[0], grads[1], model);
        free(grads[0]), free(grads[1]);
    }
    cod_graph_destroy(p.graph);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

/** Nodes of the graph up to the network's output that a program runs an op for. */
static size_t ops_until(test_net *net, const char *program, const cod_graph *graph, cod_value value)
{
    cod_program *found = cod_executable_program(net->executable, program);
    cod_op op;
    size_t count = 0;
    for (size_t i = 0; cod_program_op(found, i, &op); i++)
        count += cod_graph_node(graph, cod_program_op_node(found, i))->output <= value;
    return count;
}

TEST(a_program_is_given_what_another_has_left)
{
    const pair p = pair_graph();
    const cod_program_spec specs[] = {
        {.name = "forward", .batch_statistics = cod_set_of(MODEL), .outputs = {p.fake}},
        critic_spec(&p, false),
        critic_spec(&p, true),
    };
    const cod_compile_options options = options_of(false);
    test_net net;
    net_check check;
    assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), p.graph, &options, specs, 3, 10));
    const size_t count = net.weights.layout.trainable;
    const cod_set_range *critic = &net.weights.sets[CRITIC].range;
    double *computed = net_new(count), *given = net_new(count);
    assert_true(ops_until(&net, "critic", p.graph, p.fake) > 0);
    assert_int_equal(ops_until(&net, "critic_given", p.graph, p.fake), 0);
    assert_ok(net_run(&net, "critic"));
    assert_ok(net_read_grads(&net, computed));
    assert_ok(net_run(&net, "forward"));
    assert_ok(net_run(&net, "critic_given"));
    assert_ok(net_read_grads(&net, given));
    assert_close("gradients", given + critic->first, computed + critic->first, critic->count);
    assert_ok(net_check_gradients(&net, &specs[2], 11, &check));
    free(computed), free(given);
    net_clear(&net);

    const cod_program_spec orphan = critic_spec(&p, true);
    assert_fails(COD_ERR_ARGUMENT, "program 'critic_given': given value",
                 net_init(&net, &cod_ref_backend, p.graph, &options, &orphan, 1, 10));
    net_clear(&net);
    cod_graph_destroy(p.graph);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

/** The running statistics of the critic, whose last normalisation is behind a concatenation. */
static void read_statistics(const test_net *net, double *out)
{
    const cod_set_range *critic = &net->weights.sets[CRITIC].range;
    double *values = net_new(cod_weights_count(&net->weights));
    assert_ok(net_read_values(net, values));
    memcpy(out, values + critic->state_first, critic->state_count * sizeof *out);
    free(values);
}

/** In whatever way ops are fused, and however many programs keep. */
TEST(a_program_resumes_what_another_has_kept)
{
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        const pair p = pair_graph();
        const cod_span span = {p.fake, p.judged};
        const cod_program_spec whole = {.name = "whole",
                                        .trains = "critic",
                                        .batch_statistics = COD_ALL_SETS,
                                        .losses = {p.on_same, p.on_truth},
                                        .outputs = {p.on_same, p.on_truth},
                                        .given = {p.fake}};
        cod_program_spec resumed = whole, model = model_spec(&p, COD_ALL_SETS), keeps = model;
        cod_program_spec forward = {.name = "forward", .batch_statistics = COD_ALL_SETS, .outputs = {p.fake}};
        model.outputs[2] = keeps.outputs[2] = p.fake;
        keeps.name = "keeps", keeps.keeps[0] = forward.keeps[0] = span;
        resumed.name = "resumed", resumed.resumes[0] = span;
        const cod_program_spec specs[] = {model, keeps, forward, whole, resumed};
        const cod_compile_options options = options_of(no_fusion != 0);
        test_net net;
        assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), p.graph, &options, specs, 5, 10));
        const size_t count = net.weights.layout.trainable;
        const cod_set_range *critic = &net.weights.sets[CRITIC].range;
        double *start = net_new(cod_weights_count(&net.weights)), *expected = net_new(count), *actual = net_new(count);
        double *once = net_new(critic->state_count), *statistics = net_new(critic->state_count);
        assert_ok(net_read_values(&net, start));

        assert_ok(net_run(&net, "model"));
        assert_ok(net_read_grads(&net, expected));
        assert_ok(net_run(&net, "keeps"));
        assert_ok(net_read_grads(&net, actual));
        assert_memory_equal(actual, expected, net.weights.sets[MODEL].range.count * sizeof *actual);
        assert_ok(net_write_values(&net, start));
        assert_ok(net_run(&net, "model"));
        assert_ok(net_run(&net, "whole")); /* moves the statistics by both kinds of pictures */
        assert_ok(net_read_grads(&net, expected));
        for (int warms_up = 0; warms_up < 2; warms_up++) {
            assert_ok(net_write_values(&net, start));
            assert_ok(net_run(&net, warms_up ? "forward" : "keeps"));
            read_statistics(&net, once); /* by the fake alone */
            assert_memory_not_equal(once, start + critic->state_first, critic->state_count * sizeof *once);
            assert_ok(net_run(&net, "resumed"));
            assert_ok(net_read_grads(&net, actual));
            assert_memory_equal(actual + critic->first, expected + critic->first, critic->count * sizeof *actual);
            read_statistics(&net, statistics);
            assert_memory_not_equal(statistics, once, critic->state_count * sizeof *once);
        }
        const size_t convs = net_count_kind(&net, "whole", COD_OP_CONV2D), judging = no_fusion ? 3 : 0;
        assert_int_equal(net_count_kind(&net, "resumed", COD_OP_CONV2D), convs - judging);
        free(start), free(expected), free(actual), free(once), free(statistics);
        net_clear(&net);
        cod_graph_destroy(p.graph);
    }
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

TEST(spans_that_cannot_be_resumed_are_refused)
{
    const pair p = pair_graph();
    const cod_compile_options options = options_of(true);
    cod_program_spec specs[] = {model_spec(&p, COD_ALL_SETS), critic_spec(&p, false)};
    test_net net;
    specs[1].losses[0] = p.on_same, specs[1].outputs[0] = p.on_same;
    specs[1].resumes[0] = (cod_span){p.fake, p.judged};
    assert_fails(COD_ERR_ARGUMENT, "program 'critic': the span to value",
                 net_init(&net, &cod_ref_backend, p.graph, &options, specs, 2, 10));
    net_clear(&net);
    specs[0].keeps[0] = specs[1].resumes[0];
    specs[0].batch_statistics = cod_set_of(MODEL); /* the critic goes by running statistics there alone */
    assert_fails(COD_ERR_ARGUMENT, "in another way than another program that keeps or resumes it",
                 net_init(&net, &cod_ref_backend, p.graph, &options, specs, 2, 10));
    net_clear(&net);
    cod_graph_destroy(p.graph);
}

TEST(an_optimiser_is_of_its_set_alone)
{
    const pair p = pair_graph();
    const cod_compile_options options = options_of(false);
    const cod_optimiser_options adam = {
        .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip_norm = 1, .ema_decay = 0.5};
    test_net net;
    cod_optimiser *optimiser;
    assert_ok(net_init(&net, cod_paranoid_wrap(&cod_ref_backend), p.graph, &options, NULL, 0, 12));
    assert_ok(cod_optimiser_create(&net.weights, CRITIC, &adam, &optimiser));
    const cod_set_range *critic = &net.weights.sets[CRITIC].range;
    const size_t count = net.weights.layout.trainable, all = cod_weights_count(&net.weights);
    double *grads = net_new(count), *before = net_new(all), *after = net_new(all),
           *ema = net_new(critic->count + critic->state_count);
    for (size_t i = 0; i < count; i++)
        grads[i] = (double)i;
    assert_ok(net_write_grads(&net, grads));
    assert_ok(net_read_values(&net, before));
    const uint64_t version = net.weights.sets[MODEL].version;
    assert_ok(cod_optimiser_step(optimiser, 0.01, 1));
    assert_true(net.weights.sets[MODEL].version == version && net.weights.sets[CRITIC].version > version);
    assert_ok(net_read_values(&net, after));
    for (size_t i = 0; i < all; i++)
        assert_true((after[i] != before[i]) == (i >= critic->first && i < critic->first + critic->count));

    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    for (size_t i = 0; cod_optimiser_state(optimiser, i, &name, &buffer, &bytes); i++) {
        const bool average = strcmp(name, "ema") == 0;
        assert_int_equal(bytes, sizeof(double) * (critic->count + (average ? critic->state_count : 0)));
    }
    const cod_shape shape = {1, 1, 1, (int64_t)(critic->count + critic->state_count)};
    assert_ok(net_read(&net, cod_view_dense(cod_optimiser_ema(optimiser), 0, COD_F64, shape), ema));
    assert_close("average of values", ema, after + critic->first, critic->count);
    assert_close("average of states", ema + critic->count, after + critic->state_first, critic->state_count);
    free(grads), free(before), free(after), free(ema);
    cod_optimiser_destroy(optimiser);
    net_clear(&net);
    cod_graph_destroy(p.graph);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}
