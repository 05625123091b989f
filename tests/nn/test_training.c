/* Schedules, moving average of the weights, clipping, optimiser states, and how weights start. */
#include "support/test.h"

#include "nn/net.h"
#include "nn/optimiser.h"
#include "nn/schedule.h"
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_near(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%.12g, expected %.12g", actual, expected);
}

TEST(schedules_have_their_closed_forms)
{
    int64_t milestones[] = {10, 20};
    const cod_schedule constant = {.kind = COD_SCHEDULE_CONSTANT, .rate = 0.1, .warmup_steps = 4};
    const cod_schedule step = {.kind = COD_SCHEDULE_STEP, .rate = 1, .milestones = {2, milestones}, .gamma = 0.5};
    const cod_schedule cosine = {
        .kind = COD_SCHEDULE_COSINE, .rate = 2, .steps = 110, .warmup_steps = 10, .final_factor = 0.1};
    for (int i = 0; i < 4; i++)
        assert_near(cod_schedule_rate(&constant, i), 0.1 * (i + 1) / 4, 1e-15);
    assert_near(cod_schedule_rate(&constant, 1000000), 0.1, 0);
    assert_near(cod_schedule_rate(&step, 9), 1, 0);
    assert_near(cod_schedule_rate(&step, 10), 0.5, 0);
    assert_near(cod_schedule_rate(&step, 20), 0.25, 0);
    assert_near(cod_schedule_rate(&cosine, 0), 0.2, 1e-15);
    assert_near(cod_schedule_rate(&cosine, 10), 2, 1e-15);
    assert_near(cod_schedule_rate(&cosine, 60), 2 * 0.55, 1e-12); /* half way: the mean of both ends */
    assert_near(cod_schedule_rate(&cosine, 110), 0.2, 1e-12);
    assert_near(cod_schedule_rate(&cosine, 500), 0.2, 1e-12);
}

/** A linear layer and a normalisation behind it, without a loss: gradients are written by hand. */
static cod_graph *layers(void)
{
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 5);
    cod_graph_norm(graph, "n", cod_graph_linear(graph, "l", x, 3, false));
    return graph;
}

TEST(the_average_starts_as_a_copy_and_follows)
{
    cod_graph *graph = layers();
    const cod_compile_options options = {.activation = COD_F64};
    const cod_optimiser_options sgd = {.kind = COD_OPT_SGD, .ema_decay = 0.75};
    test_net net;
    cod_optimiser *optimiser;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, NULL, 0, 1));
    assert_ok(cod_optimiser_create(&net.weights, 0, &sgd, &optimiser));
    const size_t all = cod_weights_count(&net.weights), trainable = net.weights.layout.trainable;
    double *grads = net_new(trainable), *before = net_new(all), *after = net_new(all), *expected = net_new(all);
    for (size_t i = 0; i < trainable; i++)
        grads[i] = (double)i;
    assert_ok(net_read_values(&net, before));
    assert_ok(net_write_grads(&net, grads));
    for (int step = 1; step <= 3; step++) {
        const uint64_t version = net.weights.sets[0].version;
        assert_ok(cod_optimiser_step(optimiser, 0.5, step));
        assert_true(net.weights.sets[0].version > version);
        assert_ok(net_read_values(&net, after));
        double *ema = net_new(all);
        const cod_shape shape = {1, 1, 1, (int64_t)all};
        assert_ok(net_read(&net, cod_view_dense(cod_optimiser_ema(optimiser), 0, COD_F64, shape), ema));
        for (size_t i = 0; i < all; i++) {
            const bool averaged = i < trainable && step > 1;
            assert_near(after[i], before[i] - (i < trainable ? 0.5 * grads[i] * step : 0), 1e-12);
            expected[i] = averaged ? 0.75 * expected[i] + 0.25 * after[i] : after[i];
            assert_near(ema[i], expected[i], 1e-12);
        }
        free(ema);
    }
    cod_optimiser_destroy(optimiser);
    net_clear(&net);
    cod_graph_destroy(graph);
    free(grads), free(before), free(after), free(expected);
}

TEST(clipping_limits_the_norm_of_the_set)
{
    cod_graph *graph = layers();
    const cod_compile_options options = {.activation = COD_F64};
    for (int scale = 1; scale <= 1000; scale *= 1000) {
        const cod_optimiser_options sgd = {.kind = COD_OPT_SGD, .clip_norm = 8};
        test_net net;
        cod_optimiser *optimiser;
        assert_ok(net_init(&net, &cod_ref_backend, graph, &options, NULL, 0, 1));
        assert_ok(cod_optimiser_create(&net.weights, 0, &sgd, &optimiser));
        const size_t all = cod_weights_count(&net.weights), trainable = net.weights.layout.trainable;
        double *grads = net_new(trainable), *before = net_new(all), *after = net_new(all), moved = 0, norm = 0;
        for (size_t i = 0; i < trainable; i++) {
            grads[i] = scale * sin((double)i);
            norm += grads[i] * grads[i];
        }
        assert_ok(net_write_grads(&net, grads));
        assert_ok(net_read_values(&net, before));
        assert_ok(cod_optimiser_step(optimiser, 1, 1));
        assert_ok(net_read_values(&net, after));
        for (size_t i = 0; i < all; i++)
            moved += (after[i] - before[i]) * (after[i] - before[i]);
        assert_near(sqrt(moved), fmin(sqrt(norm), 8), 1e-5);
        cod_optimiser_destroy(optimiser);
        net_clear(&net);
        free(grads), free(before), free(after);
    }
    cod_graph_destroy(graph);
}

static cod_status add_others(void *context, double *squares)
{
    *squares += *(const double *)context;
    return COD_OK;
}

/**
 * Optimisers of a part each do together what one of all does, clipping by the norm of all, and none touches another's
 * part.
 */
TEST(parts_together_are_the_set)
{
    enum { CUT = 32 };
    cod_graph *graph = layers();
    const cod_compile_options compile = {.activation = COD_F32};
    cod_optimiser_options options = {
        .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0.1, .clip_norm = 2, .ema_decay = 0.5};
    test_net whole, part;
    cod_optimiser *optimiser;
    assert_ok(net_init(&whole, &cod_ref_backend, graph, &compile, NULL, 0, 1));
    const size_t all = cod_weights_count(&whole.weights), trainable = whole.weights.layout.trainable;
    const cod_stage_range ranges[] = {{0, CUT}, {CUT, trainable - CUT}};
    double *grads = net_new(trainable), *before = net_new(all), *after = net_new(all), *other = net_new(all);
    double squares[2] = {0, 0};
    for (size_t i = 0; i < trainable; i++) {
        grads[i] = sin((double)i);
        squares[i >= CUT] += grads[i] * grads[i];
    }
    assert_ok(net_write_grads(&whole, grads));
    assert_ok(net_read_values(&whole, before));
    assert_ok(cod_optimiser_create(&whole.weights, 0, &options, &optimiser));
    assert_ok(cod_optimiser_step(optimiser, 0.1, 1));
    assert_ok(net_read_values(&whole, after));
    cod_optimiser_destroy(optimiser);
    for (int r = 0; r < 2; r++) {
        options.only_part = true;
        options.part_first = ranges[r].first;
        options.part_count = ranges[r].count;
        options.sum_squares = add_others;
        options.sum_context = &squares[1 - r];
        assert_ok(net_init(&part, &cod_ref_backend, graph, &compile, NULL, 0, 1));
        assert_ok(net_write_grads(&part, grads));
        assert_ok(cod_optimiser_create(&part.weights, 0, &options, &optimiser));
        assert_ok(cod_optimiser_step(optimiser, 0.1, 1));
        assert_ok(net_read_values(&part, other));
        for (size_t i = 0; i < all; i++) {
            const bool own = i >= ranges[r].first && i - ranges[r].first < ranges[r].count;
            assert_near(other[i], own ? after[i] : before[i], own ? 1e-6 : 0);
        }
        cod_optimiser_destroy(optimiser);
        net_clear(&part);
    }
    net_clear(&whole);
    free(grads), free(before), free(after), free(other);
    cod_graph_destroy(graph);
}

TEST(states_are_named_for_checkpoints)
{
    static const struct {
        cod_optimiser_options options;
        const char *names[4];
    } cases[] = {{{.kind = COD_OPT_SGD}, {NULL}},
                 {{.kind = COD_OPT_SGD, .momentum = 0.9}, {"momentum", NULL}},
                 {{.kind = COD_OPT_ADAMW, .ema_decay = 0.9}, {"adam_m", "adam_v", "ema", NULL}}};
    cod_graph *graph = layers();
    const cod_compile_options options = {.activation = COD_F32};
    test_net net;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &options, NULL, 0, 1));
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        cod_optimiser *optimiser;
        const char *name;
        cod_buffer *buffer;
        size_t bytes, i = 0;
        assert_ok(cod_optimiser_create(&net.weights, 0, &cases[c].options, &optimiser));
        for (; cases[c].names[i]; i++) {
            assert_true(cod_optimiser_state(optimiser, i, &name, &buffer, &bytes));
            assert_string_equal(name, cases[c].names[i]);
            assert_true(bytes <= buffer->bytes);
        }
        assert_false(cod_optimiser_state(optimiser, i, &name, &buffer, &bytes));
        cod_optimiser_destroy(optimiser);
    }
    const cod_optimiser_options sgd = {.kind = COD_OPT_SGD};
    cod_optimiser *none;
    assert_fails(COD_ERR_ARGUMENT, "empty", cod_optimiser_create(&net.weights, 7, &sgd, &none));
    net_clear(&net);
    cod_graph_destroy(graph);
}

/**
 * The values after two steps of Adam with clipping, by optimisers of the parts that `cuts` make of the weights; 0 = one
 * of all.
 */
static double *step_in_parts(const size_t *cuts, size_t count)
{
    cod_graph *graph = layers();
    const cod_compile_options compile = {.activation = COD_F32};
    test_net net;
    assert_ok(net_init(&net, &cod_ref_backend, graph, &compile, NULL, 0, 1));
    cod_optimiser *optimisers[4];
    cod_optimiser_options adam = {
        .kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 0.5, .only_part = count > 0};
    for (size_t i = 0; i < (count > 0 ? count : 1); i++) {
        const char *name;
        cod_buffer *buffer;
        size_t bytes;
        adam.part_first = count > 0 ? cuts[i] : 0;
        adam.part_count = count > 0 ? cuts[i + 1] - cuts[i] : 0;
        assert_ok(cod_optimiser_create(&net.weights, 0, &adam, &optimisers[i]));
        const bool moments = cod_optimiser_state(optimisers[i], 0, &name, &buffer, &bytes);
        assert_true(moments == (count == 0 || adam.part_count > 0));
        assert_true(count == 0 || !moments || bytes == adam.part_count * sizeof(float));
    }
    double *grads = net_new(net.weights.layout.trainable), *values = net_new(cod_weights_count(&net.weights));
    for (int step = 1; step <= 2; step++) {
        for (size_t i = 0; i < net.weights.layout.trainable; i++)
            grads[i] = (double)((i * 7 + (size_t)step) % 13) - 6;
        assert_ok(net_write_grads(&net, grads));
        for (size_t i = 0; i < (count > 0 ? count : 1); i++)
            assert_ok(cod_optimiser_step(optimisers[i], 0.1, step));
    }
    assert_ok(net_read_values(&net, values));
    for (size_t i = 0; i < (count > 0 ? count : 1); i++)
        cod_optimiser_destroy(optimisers[i]);
    free(grads);
    net_clear(&net);
    cod_graph_destroy(graph);
    return values;
}

TEST(parts_together_are_the_whole)
{
    cod_graph *graph = layers();
    const cod_layout layout = cod_graph_layout(graph);
    const size_t count = layout.trainable, cuts[] = {0, 3, 3, count};
    double *whole = step_in_parts(NULL, 0), *parts = step_in_parts(cuts, 3), *some = step_in_parts(cuts, 2);
    assert_memory_equal(whole, parts, count * sizeof *whole);
    assert_memory_equal(whole, some, 3 * sizeof *whole);
    for (size_t i = 3; i < count; i++)
        assert_true(whole[i] != some[i]);
    free(whole), free(parts), free(some);
    cod_graph_destroy(graph);
}

/** Values of a model as it starts. */
static double *initial(const cod_model *model, cod_dtype dtype, uint64_t seed, size_t *count)
{
    test_net net = {.backend = &cod_ref_backend, .graph = model->graph};
    assert_ok(cod_ref_backend.open(NULL, &net.device));
    assert_ok(cod_weights_init(&net.weights, net.backend, net.device, model->graph, dtype, false));
    assert_ok(cod_weights_fill_initial(&net.weights, seed));
    *count = cod_weights_count(&net.weights);
    double *values = net_new(*count);
    assert_ok(net_read_values(&net, values));
    net_clear(&net);
    return values;
}

/** PyTorch's defaults: uniform within 1/sqrt(fan_in); BasicSR's: normal with 0.1 sqrt(2/fan_in) and no bias. */
TEST(weights_start_as_in_pytorch)
{
    static const char *const kinds[] = {"srresnet", "msrresnet"};
    for (size_t k = 0; k < 2; k++) {
        cod_arena arena = {0};
        cod_model model;
        size_t count;
        assert_ok(net_model(kinds[k], "", &arena, &model));
        double *values = initial(&model, COD_F64, 3, &count), *again = initial(&model, COD_F64, 3, &count),
               *other = initial(&model, COD_F64, 4, &count), *single = initial(&model, COD_F32, 3, &count);
        assert_memory_equal(values, again, count * sizeof *values);
        assert_memory_not_equal(values, other, count * sizeof *values);
        for (size_t i = 0; i < count; i++)
            assert_true((float)values[i] == (float)single[i]);
        double previous_fan_in = 1;
        for (size_t i = 0; i < cod_graph_param_count(model.graph); i++) {
            const cod_param *param = cod_graph_param(model.graph, i);
            const size_t n = (size_t)cod_shape_count(param->shape);
            double sum = 0, squares = 0, largest = 0;
            for (size_t e = 0; e < n; e++) {
                const double value = values[param->offset + e];
                sum += value;
                squares += value * value;
                largest = fmax(largest, fabs(value));
            }
            if (param->rank > 1)
                previous_fan_in = (double)(param->shape.h * param->shape.w * param->shape.c);
            const double bound = 1 / sqrt(previous_fan_in), deviation = 0.1 * sqrt(2 / previous_fan_in);
            if (param->rank == 1 && (k == 1 || param->init.kind == COD_INIT_CONSTANT)) {
                assert_near(largest, fabs(param->init.scale), 0);
                continue;
            }
            assert_true(k == 1 || largest <= bound);
            if (n < 1000)
                continue; /* five deviations of each estimate */
            const double expected = k == 1 ? deviation : bound / sqrt(3);
            assert_near(sum / (double)n, 0, 5 * expected / sqrt((double)n));
            assert_near(sqrt(squares / (double)n), expected, 5 * expected / sqrt((double)n));
        }
        free(values), free(again), free(other), free(single);
        cod_model_clear(&model);
        cod_arena_clear(&arena);
    }
}

TEST(a_zero_tail_starts_from_the_interpolation)
{
    cod_arena arena = {0};
    cod_model model;
    size_t count, seen = 0;
    assert_ok(net_model("srresnet", "blocks=1 channels=8 zero_init_tail=true skip=bicubic", &arena, &model));
    double *values = initial(&model, COD_F64, 3, &count);
    for (size_t i = 0; i < cod_graph_param_count(model.graph); i++) {
        const cod_param *param = cod_graph_param(model.graph, i);
        if (strncmp(param->name, "tail.6.", 7) != 0)
            continue;
        seen++;
        for (int64_t e = 0; e < cod_shape_count(param->shape); e++)
            assert_true(values[param->offset + (size_t)e] == 0);
    }
    assert_int_equal(seen, 2);
    free(values);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
}
