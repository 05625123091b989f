/**
 * Implementations chosen by their time, and each candidate against `ref`. On the emulated GPU these are own kernels
 * of every shape of tile; on a real one cuDNN's engines and cuBLASLt's algorithms, too. Values are small integers:
 * sums are exact in any order, so that results must be equal bit for bit.
 */
#include "cuda/conv_library.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

extern "C" {
#include "core/log.h"
#include "support/folder.h"
}

#include "candidates.cuh" /* last: cmocka defines `fail` */

static int warnings, timed, untimed;
static char last_warning[512];

static void watch_log(void *, cod_log_level level, const char *line)
{
    timed += strstr(line, " timed, ") != nullptr;
    untimed += strstr(line, " is not timed: ") != nullptr;
    if (level < COD_LOG_WARN)
        return;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static int clean(void **)
{
    unlink(cod_test_at("choices"));
    warnings = timed = untimed = 0;
    return 0;
}

TEST_WITH(every_candidate_of_a_convolution_agrees, clean, NULL)
{
    static const layer layers[] = {
        {2, 8, 9, 16, 24, 3, 1, 0}, {1, 9, 7, 8, 64, 3, 2, 8}, {2, 6, 6, 3, 16, 5, 1, 0}, {1, 5, 8, 64, 64, 1, 1, 0}};
    static const cod_activation activations[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_LEAKY_RELU};
    uint64_t seed = 1;
    int able = 0;
    for (const layer &l : layers) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            for (int variant = PLAIN; variant <= ADDED; variant++, seed++) {
                const cod_dtype dtype = seed % 4 == 3 ? COD_F32 : COD_BF16;
                const cod_op op = convolution(l, static_cast<cod_op_kind>(kind), dtype, activations[seed % 3], variant);
                able += check_candidates(&op, seed);
            }
        }
    }
    printf("    %d candidates of convolutions\n", able);
    assert_true(able >= 100);
}

TEST_WITH(every_candidate_of_a_linear_layer_agrees, clean, NULL)
{
    static const int64_t sizes[][3] = {{9, 17, 3}, {33, 64, 130}, {128, 32, 16}};
    uint64_t seed = 1;
    int able = 0;
    for (const auto &size : sizes) {
        for (int kind = COD_OP_LINEAR; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++) {
            for (int variant = PLAIN; variant <= ADDED; variant++, seed++) {
                const cod_op op = linear(size[0], size[1], size[2], static_cast<cod_op_kind>(kind),
                                         seed % 4 == 3 ? COD_F32 : COD_BF16, variant);
                able += check_candidates(&op, seed);
            }
        }
    }
    printf("    %d candidates of linear layers\n", able);
    assert_true(able >= 70);
}

TEST_WITH(every_candidate_of_a_gated_gradient_agrees, clean, NULL)
{
    static const int64_t sizes[][3] = {{9, 17, 3}, {33, 130, 64}, {128, 32, 16}};
    uint64_t seed = 1;
    int able = 0;
    for (const auto &size : sizes) {
        for (int leaky = 0; leaky < 2; leaky++, seed++) {
            cod_op op = linear(size[0], size[1], size[2], COD_OP_LINEAR_BACKWARD_DATA, COD_BF16, PLAIN);
            op.inputs[CONV_GATE] = op.outputs[0];
            op.attr.activation = leaky ? COD_ACT_LEAKY_RELU : COD_ACT_RELU;
            op.attr.leak = 0.25f;
            able += check_candidates(&op, seed);
        }
    }
    printf("    %d candidates of gated gradients\n", able);
    assert_true(able >= 20);
}

/** A convolution with PReLU behind it, or its data gradient with PReLU's. Slopes: 1 or of each channel. */
static cod_op joined(const layer &l, bool backward, int64_t slopes)
{
    cod_op op = convolution(l, backward ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_CONV2D, COD_BF16, COD_ACT_PRELU, PLAIN);
    op.inputs[CONV_SLOPE] = cod_test_view_of(COD_F32, {1, 1, 1, slopes > 1 ? op.outputs[0].shape.c : 1}, 0);
    if (backward) {
        op.inputs[CONV_GATE] = op.outputs[0];
        op.outputs[CONV_DSLOPE] = op.inputs[CONV_SLOPE];
    } else {
        op.outputs[CONV_ACTIVATED] = op.outputs[0];
    }
    return op;
}

TEST_WITH(every_candidate_of_a_joined_convolution_agrees, clean, NULL)
{
    static const layer layers[] = {
        {2, 8, 9, 16, 24, 3, 1, 0}, {1, 40, 41, 136, 8, 1, 1, 8}, {1, 5, 8, 64, 64, 3, 1, 0}};
    uint64_t seed = 1;
    int able = 0;
    for (const layer &l : layers) {
        for (int backward = 0; backward < 2; backward++) {
            for (int64_t slopes = 1; slopes < 3; slopes++, seed++) {
                const cod_op op = joined(l, backward != 0, slopes);
                able += check_candidates(&op, seed);
            }
        }
    }
    printf("    %d candidates of joined convolutions\n", able);
    assert_true(able >= 50);
}

/**
 * Convolutions that shuffle pixels: with PReLU behind them, with an activation in them and with none; whole vectors of
 * channels, single ones, and y with a gap; and SRResNet's.
 */
TEST_WITH(every_candidate_of_a_shuffled_convolution_agrees, clean, NULL)
{
    static const struct {
        cod_test_layer layer;
        int factor;
        int64_t gap;
        const char *only; /**< candidate */
    } cases[] = {{{2, 6, 5, 16, 64, 3, 1, 1}, 2, 0, nullptr},
                 {{1, 4, 7, 8, 72, 3, 1, 1}, 3, 8, nullptr},
                 {{1, 5, 4, 12, 48, 3, 1, 1}, 4, 0, nullptr},
                 {{2, 9, 10, 64, 256, 3, 1, 1}, 2, 0, "own-wgmma"}}; /* Hopper has it */
    static const cod_activation inside[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_PRELU};
    uint64_t seed = 1;
    int able = 0;
    for (const auto &c : cases) {
        for (int variant = 0; variant < 5; variant++, seed++) {
            const cod_dtype dtype = variant < 4 ? COD_BF16 : COD_F32;
            cod_op op = cod_test_layer_op(&c.layer, COD_OP_CONV2D, {dtype, dtype, 0, c.gap}, c.factor);
            op.attr.activation = variant < 2 ? COD_ACT_PRELU : inside[variant - 2];
            if (op.attr.activation == COD_ACT_PRELU)
                op.inputs[CONV_SLOPE] =
                    cod_test_view_of(COD_F32, {1, 1, 1, variant == 0 ? 1 : op.outputs[0].shape.c}, 0);
            if (variant < 2)
                op.outputs[CONV_ACTIVATED] = op.outputs[0];
            able += check_candidates(&op, seed, c.only);
        }
    }
    printf("    %d candidates of shuffled convolutions\n", able);
    assert_true(able >= 60);
}

/** Two such plans that write into one buffer have one small picture between them. */
TEST_WITH(shuffled_convolutions_share_memory, clean, NULL)
{
    static const cod_test_layer layer = {2, 16, 16, 16, 64, 3, 1, 1};
    const cod_op op = cod_test_layer_op(&layer, COD_OP_CONV2D, {COD_BF16, COD_BF16, 0, 0}, 2);
    const size_t picture = cod_view_span_bytes(&op.outputs[0]);
    cod_device *device = test_cuda.device;
    cod_test_op test;
    cuda_candidates list = {};
    size_t taken[2];
    assert_ok(cod_test_op_init(&test, test_cuda, &op));
    conv_shuffled_candidates(test.plan, "", list_own, &list);
    assert_true(list.count > 0);
    const size_t before = device->allocated;
    cod_plan plans[2] = {};
    for (int i = 0; i < 2; i++) {
        const size_t so_far = device->allocated;
        plans[i].device = device;
        plans[i].ops = &test.op;
        plans[i].count = 1;
        assert_ok(list.items[0].make(&plans[i], &list.items[0]));
        taken[i] = device->allocated - so_far;
    }
    assert_int_equal(taken[0], taken[1] + picture);
    for (cod_plan &plan : plans)
        cuda_plan_clear(&plan);
    assert_int_equal(device->allocated, before);
    cod_test_op_clear(&test);
}

/* The tuner. */

static const cod_op tuned_op(bool deterministic)
{
    cod_op op =
        convolution({1, 4, 5, 16, 16, 3, 1, 0}, COD_OP_CONV2D_BACKWARD_DATA, COD_BF16, COD_ACT_NONE, ACCUMULATED);
    op.deterministic = deterministic;
    return op;
}

static int cached_lines()
{
    FILE *file = fopen(cod_test_at("choices"), "r");
    int lines = 0;
    for (int c; file != nullptr && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file != nullptr)
        fclose(file);
    return lines;
}

/** Makes and runs a plan on a device of its own, from numbers that were there before; its results are right. */
static void plan_once(const char *mode, bool no_autotune, bool deterministic, bool scarce)
{
    cod_test_device on = {&cod_cuda_backend, nullptr};
    cod_device_options options = {};
    options.no_autotune = no_autotune;
    const cod_op op = tuned_op(deterministic);
    cod_test_op expected, actual;
    size_t free_bytes = 0, total_bytes = 0;
    assert_ok(on.backend->open(&options, &on.device));
    assert_ok(cod_test_op_init(&expected, test_ref, &op));
    assert_ok(cod_test_op_init(&actual, on, &op));
    write_integers(&expected, 1);
    write_integers(&actual, 1);
    assert_ok(on.backend->memory(on.device, &free_bytes, &total_bytes));
    setenv("COD_CUDA_CONVOLUTION", mode, 1);
    on.backend->plan_destroy(actual.plan); /* once more, now that its outputs hold something */
    if (scarce)                            /* there is room for that plan alone */
        cod_emulated_set_memory(total_bytes - free_bytes);
    assert_ok(on.backend->plan_create(on.device, &actual.op, &actual.plan));
    cod_emulated_set_memory(0);
    setenv("COD_CUDA_CONVOLUTION", "fixed", 1);
    assert_ok(cod_test_op_run(&expected));
    assert_ok(cod_test_op_run(&actual));
    assert_ok(compare_outputs(&expected, &actual));
    no_faults(mode);
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    on.backend->close(on.device);
}

TEST_WITH(each_op_is_timed_once, clean, NULL)
{
    plan_once("own", false, false, false);
    assert_int_equal(timed, 1);
    assert_int_equal(cached_lines(), 2); /* the first says whose file it is */
    plan_once("own", false, false, false);
    assert_int_equal(timed, 1);
    assert_int_equal(cached_lines(), 2);
    plan_once("auto", false, false, false); /* libraries count: another key */
    assert_int_equal(timed, 2);
    assert_int_equal(warnings, 0);
}

TEST_WITH(without_time_only_what_is_known_is_taken, clean, NULL)
{
    setenv("COD_CUDA_TUNE_S", "0", 1);
    plan_once("own", false, false, false);
    assert_int_equal(timed, 0);
    assert_int_equal(untimed, 1);
    assert_int_equal(cached_lines(), 0);
    setenv("COD_CUDA_TUNE_S", "soon", 1);
    plan_once("own", false, false, false);
    assert_int_equal(timed, 1);
    assert_int_equal(warnings, 1);
    cod_test_assert_contains(last_warning, "COD_CUDA_TUNE_S is 'soon', which is no number of seconds");
    setenv("COD_CUDA_TUNE_S", "0", 1);
    plan_once("own", false, false, false);
    assert_int_equal(untimed, 1);
    unsetenv("COD_CUDA_TUNE_S");
}

TEST_WITH(fixed_choices_are_not_timed, clean, NULL)
{
    plan_once("own", true, false, false);
    plan_once("own", false, true, false);
    plan_once("fixed", false, false, false);
    assert_int_equal(timed, 0);
    assert_int_equal(cached_lines(), 0);
}

TEST_WITH(an_unknown_mode_is_refused, clean, NULL)
{
    cod_device *device = nullptr;
    setenv("COD_CUDA_CONVOLUTION", "fastest", 1);
    assert_fails(COD_ERR_ARGUMENT, "must be auto, own or fixed", cod_cuda_backend.open(nullptr, &device));
    setenv("COD_CUDA_CONVOLUTION", "fixed", 1);
}

/* Candidates that are planted. */

static cod_status run_nothing(const cod_plan *, cudaStream_t)
{
    return COD_OK;
}

static cod_status make_idle(cod_plan *plan, const cuda_candidate *)
{
    plan->run = run_nothing;
    return COD_OK;
}

static cod_status run_refused(const cod_plan *, cudaStream_t)
{
    return cod_fail(COD_ERR_BACKEND, "planted");
}

static cod_status make_refusing(cod_plan *plan, const cuda_candidate *)
{
    plan->run = run_refused;
    return COD_OK;
}

static cod_status run_poison(const cod_plan *plan, cudaStream_t stream)
{
    const cuda_view x = cuda_view_of(&plan->ops[0].outputs[0]);
    return COD_CUDA(cudaMemsetAsync(x.data, 0xFF, 16, stream)); /* NaN */
}

static cod_status make_poisonous(cod_plan *plan, const cuda_candidate *)
{
    plan->run = run_poison;
    return COD_OK;
}

/** Turns NaN into zero, and nothing else. */
__global__ void forget_nan_kernel(cuda_view view)
{
    for (int64_t i = grid_first(); i < view.count; i += grid_step()) {
        const int64_t pixel = i / view.channels;
        const int channel = (int)(i - pixel * view.channels);
        const float value = view_load(view, pixel, channel);
        view_store(view, pixel, channel, value == value ? value : 0);
    }
}

static cod_status (*own_run)(const cod_plan *plan, cudaStream_t stream);

static cod_status run_forgetting(const cod_plan *plan, cudaStream_t stream)
{
    COD_TRY(own_run(plan, stream));
    cuda_chain_end(plan->device);
    return cuda_launch(stream, forget_nan_kernel, 1, CUDA_THREADS, 0, cuda_view_of(&plan->ops[0].outputs[0]));
}

static cod_status make_forgetting(cod_plan *plan, const cuda_candidate *)
{
    COD_TRY(conv_make_own(plan, nullptr));
    own_run = plan->run;
    plan->run = run_forgetting;
    return COD_OK;
}

/** The planted candidate would be the fastest by far. */
static void refused(cod_status (*make)(cod_plan *, const cuda_candidate *), const char *warning)
{
    const cod_op op = tuned_op(false);
    cod_test_op test;
    cuda_candidates list = {};
    cuda_tuner *tuner = nullptr;
    assert_ok(cod_test_op_init(&test, test_cuda, &op));
    assert_ok(cuda_tuner_of(test_cuda.device, &tuner));
    conv_own_candidates(test.plan, &list);
    list.count = 1; /* trials end after some seconds, which all of ours take on a busy machine */
    cuda_candidates_add(&list, "planted", {make, nullptr, 0});
    cuda_plan_clear(test.plan);
    assert_ok(cuda_tuner_make(test.plan, warning != nullptr ? warning : "refused", &list));
    const char *chosen = cuda_choices_find(tuner->choices, warning != nullptr ? warning : "refused");
    assert_non_null(chosen);
    assert_int_equal(strncmp(chosen, "own-", 4), 0);
    assert_int_equal(warnings, warning != nullptr);
    if (warning != nullptr)
        cod_test_assert_contains(last_warning, warning);
    cod_test_op_clear(&test);
}

TEST_WITH(a_candidate_with_other_results_is_not_taken, clean, NULL)
{
    refused(make_idle, "planted of conv2d_backward_data is not used: its results are not those of our kernels (");
}

TEST_WITH(a_candidate_with_other_nans_is_not_taken, clean, NULL)
{
    refused(make_poisonous, "is not used: its results are not those of our kernels (");
}

/** Which is said apart: its numbers are right. */
TEST_WITH(a_candidate_that_forgets_nan_is_not_taken, clean, NULL)
{
    refused(make_forgetting, "planted of conv2d_backward_data is not used: a NaN in its input goes elsewhere than in "
                             "our kernels, whose results of numbers it has (");
}

TEST_WITH(a_candidate_that_fails_is_passed_over, clean, NULL)
{
    refused(make_refusing, nullptr);
}

#ifndef COD_TESTED_ON_DEVICE
__global__ void outside_kernel(float *memory)
{
    memory[-1] = 1;
}

static cod_status run_outside(const cod_plan *plan, cudaStream_t stream)
{
    return cuda_launch(stream, outside_kernel, 1, WARP_LANES, 0, static_cast<float *>(plan->memory));
}

static cod_status make_outside(cod_plan *plan, const cuda_candidate *)
{
    plan->run = run_outside;
    return cuda_plan_memory(plan, 4);
}

/** Nothing can be passed over then: the process has lost the GPU. */
TEST_WITH(a_candidate_that_breaks_the_device_is_named, clean, NULL)
{
    char fault[256];
    const cod_op op = tuned_op(false);
    cod_test_op test;
    cuda_candidates list = {};
    assert_ok(cod_test_op_init(&test, test_cuda, &op));
    conv_own_candidates(test.plan, &list);
    list.count = 1;
    cuda_candidates_add(&list, "planted", {make_outside, nullptr, 0});
    cuda_plan_clear(test.plan);
    assert_fails(COD_ERR_BACKEND, "timing 'planted': CUDA: ", cuda_tuner_make(test.plan, "outside", &list));
    assert_true(cod_emulated_faults(fault, sizeof fault) > 0);
    cod_test_op_clear(&test);
}

/** The trial's tensors do not fit beside the op's: the cost model decides, and nothing is remembered. */
TEST_WITH(without_memory_nothing_is_timed, clean, NULL)
{
    plan_once("own", false, false, true);
    assert_int_equal(timed, 0);
    assert_int_equal(cached_lines(), 0);
}
#endif

/* What plans on libraries need. */

/** plans_prepare() of a plan that has weights and a bias to round; `expected_…`: their values, which bf16 holds. */
static void expect_rounded(const cod_view *weights, const double *expected_weights, const cod_view *bias,
                           const double *expected_bias)
{
    cudaStream_t stream = test_cuda.device->stream;
    const int64_t split = cod_shape_count(weights->shape), count = split + cod_shape_count(bias->shape);
    uint16_t *copy = static_cast<uint16_t *>(calloc(static_cast<size_t>(count), 2));
    cod_op op = {};
    cod_plan plan = {};
    cod_plan *plans[] = {&plan};
    library_parts parts = {};
    plan.device = test_cuda.device;
    plan.ops = &op;
    assert_ok(library_parts_create(&plan, 0, weights, bias, &parts));
    assert_ok(cuda_pack_plans(plans, 1, false, stream));
    assert_ok(
        COD_CUDA(cudaMemcpyAsync(copy, parts.weights, static_cast<size_t>(split) * 2, cudaMemcpyDeviceToHost, stream)));
    assert_ok(COD_CUDA(cudaMemcpyAsync(copy + split, parts.bias, static_cast<size_t>(count - split) * 2,
                                       cudaMemcpyDeviceToHost, stream)));
    assert_ok(COD_CUDA(cudaStreamSynchronize(stream)));
    for (int64_t i = 0; i < count; i++)
        assert_true(static_cast<double>(cod_f32_from_bf16(copy[i])) ==
                    (i < split ? expected_weights[i] : expected_bias[i - split]));
    cuda_plan_clear(&plan);
    free(copy);
}

TEST_WITH(biases_are_summed_and_weights_rounded, clean, NULL)
{
    static const cod_shape shapes[] = {{2, 5, 7, 3}, {1, 1, 1, 70}, {3, 20, 21, 64}, {1, 40, 40, 33}};
    for (const cod_shape &shape : shapes) {
        for (int variant = 0; variant < 4; variant++) {
            cod_op op = {};
            op.kind = COD_OP_ADD; /* of three views, whatever it is */
            op.attr.alpha = 1;
            op.inputs[0] = cod_test_view_of(variant & 1 ? COD_F32 : COD_BF16, shape, variant & 2 ? 5 : 0);
            op.outputs[0] = cod_test_view_of(COD_F32, shape, 0);
            cod_test_op test, sums;
            assert_ok(cod_test_op_init(&test, test_cuda, &op));
            op.inputs[0] = op.outputs[0] = cod_test_view_of(COD_F32, {1, 1, 1, shape.c}, 0);
            assert_ok(cod_test_op_init(&sums, test_cuda, &op));
            write_integers(&test, 5);
            write_integers(&sums, 6);
            const int64_t count = cod_shape_count(shape);
            double *dy = static_cast<double *>(calloc(static_cast<size_t>(count), sizeof *dy));
            double expected[128], actual[128];
            assert_ok(cod_test_op_read(&test, 0, dy));
            assert_ok(cod_test_op_read(&sums, COD_OP_MAX_INPUTS, expected));
            for (int64_t i = 0; i < count; i++)
                expected[i % shape.c] = (i >= shape.c || variant & 1 ? expected[i % shape.c] : 0) + dy[i];
            library_bias bias = {cuda_view_of(&test.op.inputs[0]), cuda_floats_of(&sums.op.outputs[0]),
                                 (variant & 1) != 0, nullptr, 0};
            bias.blocks = library_bias_blocks(test_cuda.device, bias.dy.pixels);
            assert_ok(COD_CUDA(cudaMalloc(reinterpret_cast<void **>(&bias.partials),
                                          static_cast<size_t>(bias.blocks * shape.c) * sizeof(float))));
            assert_ok(library_bias_run(test_cuda.device, bias, test_cuda.device->stream));
            assert_ok(cod_test_op_read(&sums, COD_OP_MAX_INPUTS, actual));
            assert_ok(cod_test_compare("db", actual, expected, shape.c, {0, 0}));
            expect_rounded(&test.op.inputs[0], dy, &sums.op.outputs[0], actual);
            no_faults("bias");
            cudaFree(bias.partials);
            free(dy);
            cod_test_op_clear(&test);
            cod_test_op_clear(&sums);
        }
    }
}

static int set_up(void **state)
{
    if (cod_test_folder_make(state) != 0)
        return -1;
    setenv("COD_CUDA_CONVOLUTION", "fixed", 1);
    setenv("COD_CUDA_CACHE", cod_test_at("choices"), 1);
    cod_log_set_sink(watch_log, nullptr, COD_LOG_DEBUG);
    return test_pair_open(state);
}

static int tear_down(void **state)
{
    return test_pair_close(state) + cod_test_folder_remove(state);
}

/** An implementation is built with the slope of a leaky ReLU, so that one slope's choice may not serve another. */
TEST_WITH(a_key_tells_slopes_apart, clean, NULL)
{
    static const layer l = {1, 5, 6, 16, 16, 3, 1, 0};
    enum { LEAKY, LEAKIER, RELU, RELU_TOO, COUNT };
    char keys[COUNT][512], gradient_keys[COUNT][512];
    for (int i = 0; i < COUNT; i++) {
        cod_op op = convolution(l, COD_OP_CONV2D, COD_BF16, i < RELU ? COD_ACT_LEAKY_RELU : COD_ACT_RELU, PLAIN);
        op.attr.leak = i % 2 == 0 ? 0.25f : 0.1f;
        cod_test_op test;
        assert_ok(cod_test_op_init(&test, test_cuda, &op));
        cuda_tuner_key(test.plan, "libraries", keys[i], sizeof keys[i]);
        cod_test_op_clear(&test);
    }
    assert_string_not_equal(keys[LEAKY], keys[LEAKIER]);
    for (int i = 0; i < COUNT; i++) { /* of a gradient with leaky ReLU's or ReLU's in it */
        cod_op op = joined(l, true, 1);
        op.attr.activation = i < RELU ? COD_ACT_LEAKY_RELU : COD_ACT_RELU;
        op.attr.leak = i % 2 == 0 ? 0.25f : 0.1f;
        cod_test_op test;
        assert_ok(cod_test_op_init(&test, test_cuda, &op));
        cuda_tuner_key(test.plan, "libraries", gradient_keys[i], sizeof gradient_keys[i]);
        cod_test_op_clear(&test);
    }
    assert_string_not_equal(gradient_keys[LEAKY], gradient_keys[LEAKIER]);
    assert_string_equal(gradient_keys[RELU], gradient_keys[RELU_TOO]);
    assert_string_not_equal(gradient_keys[LEAKY], gradient_keys[RELU]);
    assert_string_equal(keys[RELU], keys[RELU_TOO]);
}

/**
 * The words of the device that are in every key, where its driver's module says `line`; NULL = there is no such file.
 */
static void expect_driver(const char *line, const char *words)
{
    char key[2048];
    cudaDeviceProp properties = {};
    cod_device device = *test_cuda.device;
    if (line != nullptr) {
        FILE *file = fopen(cod_test_at("version"), "w");
        assert_non_null(file);
        fputs(line, file);
        fclose(file);
    }
    cuda_describe_gpu(&device, &properties, line != nullptr ? cod_test_at("version") : cod_test_at("absent"));
    const cod_op op = linear(9, 17, 3, COD_OP_LINEAR, COD_BF16, PLAIN);
    cod_test_op test;
    assert_ok(cod_test_op_init(&test, test_cuda, &op));
    cod_plan plan = *test.plan;
    plan.device = &device;
    cuda_tuner_key(&plan, "libraries", key, sizeof key);
    cod_test_op_clear(&test);
    if (strstr(key, words) == nullptr)
        fail_msg("'%s' is not in '%s'", words, key);
}

/** Drivers for one version of CUDA may take other times, and libraries may find other implementations with them. */
TEST_WITH(a_key_has_the_driver, clean, NULL)
{
    expect_driver("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC "
                  "version: 12.2.0\n",
                  ", driver 535.129.03 for ");
    expect_driver("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (a@b)\n",
                  ", driver 580.82.07 for ");
    expect_driver("", ", driver for ");
    expect_driver("NVRM version: unknown\n", ", driver for ");
    expect_driver(nullptr, ", driver for ");
}

TEST_GROUP(set_up, tear_down)
TEST_DEVICE(cod_cuda_backend)
