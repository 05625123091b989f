#include "support/test.h"

#include "core/log.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "sequence.h"
#include "support/folder.h"
#include "support/sequence.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/**
 * Fused plans against the same ops one after another. Values are small integers, so that sums are exact in f32 and what
 * passes between the ops is exact in bf16: results must be equal bit for bit, but for means and deviations, whose sums
 * are divided. With normal values what passes between the ops is rounded once more where they are apart.
 */

#ifdef __SANITIZE_ADDRESS__
enum { CASE_STEP = 5 };
#else
enum { CASE_STEP = 1 };
#endif

static const cod_tolerance equal = {0, 0}, divided = {2e-6, 2e-6}, rounded = {1.6e-2, 4e-3}, summed = {2e-2, 1e-2};

static const cod_shape pictures[] = {{1, 1, 1, 0}, {2, 5, 7, 0}, {2, 24, 24, 0}, {1, 23, 41, 0}, {3, 25, 3, 0}};
static const int64_t channels[][2] = {{64, 64}, {16, 48}, {48, 16}, {128, 64}, {32, 32}, {64, 128}, {16, 16}};
enum {
    EXACT_CASES = 50,
    PICTURES = sizeof pictures / sizeof pictures[0],
    CHANNELS = sizeof channels / sizeof channels[0]
};

/** Every sequence with every option: `number` counts through them. */
static sequence_case case_of(int number, bool backward)
{
    static const cod_activation activations[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_LEAKY_RELU, COD_ACT_PRELU};
    sequence_case c = {.from = pictures[number % PICTURES], .backward = backward};
    c.from.c = channels[number % CHANNELS][0];
    c.outputs = channels[number % CHANNELS][1];
    c.applies = number % 3 != 0;
    c.reduces = number % 3 != 1;
    c.apply = activations[number / 3 % 4];
    c.reduce = activations[number / 2 % 4];
    c.by_channel = number / 4 % 2;
    c.bias = !backward && number % 2;
    c.residual = number / 5 % 2;
    c.accumulate = backward && number / 2 % 2;
    c.in_place = number % 4 == 2;
    c.both = number % 8 == 1;
    return c;
}

static void require(cod_status status, const char *what, int number, uint64_t seed)
{
    char message[512];
    if (cod_emulated_faults(message, sizeof message) > 0)
        fail_msg("%s %d, seed %" PRIu64 ": %s", what, number, seed, message);
    if (status != COD_OK)
        fail_msg("%s %d, seed %" PRIu64 ": %s", what, number, seed, cod_error_message());
}

static void check_case(const sequence_case *which, bool exact, const char *what, int number, uint64_t seed)
{
    sequence fused, apart;
    cod_emulated_set_seed(seed);
    require(sequence_init(&fused, test_cuda, which, exact, seed), what, number, seed);
    require(sequence_init(&apart, test_cuda, which, exact, seed), what, number, seed);
    require(sequence_run_fused(&fused), what, number, seed);
    require(sequence_run_apart(&apart), what, number, seed);
    const bool whole = which->backward; /* no sum is divided */
    require(sequence_compare(&fused, &apart, exact ? equal : rounded,
                             !exact  ? summed
                             : whole ? equal
                                     : divided),
            what, number, seed);
    sequence_clear(&fused);
    sequence_clear(&apart);
}

TEST(exact_values_agree)
{
    for (int number = 0; number < EXACT_CASES; number += CASE_STEP) {
        const sequence_case forward = case_of(number, false), backward = case_of(number, true);
        check_case(&forward, true, "forward", number, (uint64_t)number);
        check_case(&backward, true, "backward", number, (uint64_t)number + 1);
    }
}

TEST(normal_values_agree)
{
    for (int number = 1; number < PICTURES * CHANNELS; number += 3 * CASE_STEP) {
        const sequence_case forward = case_of(number, false), backward = case_of(number, true);
        check_case(&forward, false, "forward", number, (uint64_t)number);
        check_case(&backward, false, "backward", number, (uint64_t)number + 1);
    }
}

/** The trunk of a super-resolution network: every block and group has several tiles. */
TEST(many_tiles_agree)
{
    sequence_case c = {.from = {8, 24, 24, 64}, .outputs = 64, .applies = true, .reduces = true};
    c.apply = c.reduce = COD_ACT_PRELU;
    for (int backward = 0; backward < 2; backward++) {
        c.backward = c.in_place = backward != 0;
        c.bias = !backward;
        check_case(&c, true, "trunk", backward, 3);
    }
}

/** Statistics of results far from zero: the deviation must not drown in the mean's square. */
TEST(a_large_mean_does_not_cancel)
{
    sequence_case c = {.from = {2, 24, 24, 64}, .outputs = 64, .applies = true, .reduces = true, .bias = true};
    sequence near, far;
    double *inv_std[2], *mean[2];
    assert_ok(sequence_init(&near, test_cuda, &c, false, 1));
    c.bias_level = 4096;
    assert_ok(sequence_init(&far, test_cuda, &c, false, 1));
    assert_ok(sequence_run_fused(&near));
    assert_ok(sequence_run_fused(&far));
    assert_ok(sequence_read(&near, sequence_tensor(&near, "inv_std"), &inv_std[0]));
    assert_ok(sequence_read(&far, sequence_tensor(&far, "inv_std"), &inv_std[1]));
    assert_ok(sequence_read(&near, sequence_tensor(&near, "mean"), &mean[0]));
    assert_ok(sequence_read(&far, sequence_tensor(&far, "mean"), &mean[1]));
    for (int i = 0; i < 64; i++) {
        assert_true(fabs(inv_std[1][i] / inv_std[0][i] - 1) < 1e-3);
        assert_true(fabs(mean[1][i] - mean[0][i] - 4096) < 1e-2);
    }
    for (int i = 0; i < 2; i++) {
        free(inv_std[i]);
        free(mean[i]);
    }
    sequence_clear(&near);
    sequence_clear(&far);
}

/** Whatever the order of blocks and threads; and in a second run of the plan's memory. */
TEST(results_are_the_same_bits_each_time)
{
    for (int number = 0; number < 3; number++) {
        const sequence_case c = {.from = {3, 24, 24, 64},
                                 .outputs = 64,
                                 .backward = number > 0,
                                 .applies = true,
                                 .reduces = true,
                                 .reduce = COD_ACT_PRELU,
                                 .by_channel = number == 2,
                                 .both = true};
        sequence first, other;
        cod_emulated_set_seed(0);
        require(sequence_init(&first, test_cuda, &c, false, 1), "case", number, 0);
        require(sequence_run_fused(&first), "case", number, 0);
        for (uint64_t seed = 1; seed < 3; seed++) {
            cod_emulated_set_seed(seed);
            require(sequence_init(&other, test_cuda, &c, false, 1), "case", number, seed);
            require(sequence_run_fused(&other), "case", number, seed);
            require(sequence_compare(&other, &first, equal, equal), "case", number, seed);
            sequence_clear(&other);
        }
        sequence_clear(&first);
    }
}

/** A recording of a fused plan replays, with new weights once it is prepared again. */
TEST(plans_can_be_prepared_again_and_recorded)
{
    const cod_backend *cuda = test_cuda.backend;
    const sequence_case c = {.from = {2, 9, 10, 32}, .outputs = 64, .applies = true, .reduces = true};
    sequence fused, apart;
    cod_plan *plan;
    cod_recording *recording;
    assert_ok(sequence_init(&fused, test_cuda, &c, true, 1));
    assert_ok(cuda->plan_create_fused(test_cuda.device, fused.ops, fused.count, &plan));
    assert_ok(cuda->capture_begin(test_cuda.device, NULL));
    assert_ok(cuda->plan_run(plan, NULL));
    assert_ok(cuda->capture_end(test_cuda.device, NULL, &recording));
    for (uint64_t seed = 2; seed < 4; seed++) {
        assert_ok(sequence_init(&apart, test_cuda, &c, true, seed));
        for (size_t t = 0; t < fused.tensor_count; t++) {
            const cod_view *view = &fused.tensors[t].view;
            assert_ok(cuda->copy(test_cuda.device, NULL, view->buffer, view->offset, apart.tensors[t].view.buffer,
                                 view->offset, cod_view_span_bytes(view)));
        }
        assert_ok(cuda->plans_prepare(test_cuda.device, &plan, 1, NULL));
        assert_ok(cuda->recording_run(recording, NULL));
        assert_ok(sequence_run_apart(&apart));
        assert_ok(sequence_compare(&fused, &apart, equal, divided));
        sequence_clear(&apart);
    }
    cuda->recording_destroy(recording);
    cuda->plan_destroy(plan);
    sequence_clear(&fused);
}

/* Which products. */

static char timed[512];

static void watch_log(void *context, cod_log_level level, const char *line)
{
    (void)context;
    (void)level;
    if (strstr(line, " timed, ") != NULL)
        snprintf(timed, sizeof timed, "%s", line);
}

/**
 * Runs the sequence with its kernels chosen by their time, where there are several kinds. A machine under load may have
 * time for one of them.
 */
static void check_timed(const sequence_case *which, bool again)
{
    static const double budget_s = 5;
    sequence fused, apart;
    const bool several = strstr(test_cuda.backend->describe(test_cuda.device), "capability 9.0") != NULL;
    timed[0] = '\0';
    cod_emulated_set_seed(1);
    require(sequence_init(&fused, test_cuda, which, true, 1), "timed", again, 1);
    require(sequence_init(&apart, test_cuda, which, true, 1), "timed", again, 1);
    require(sequence_run_apart(&apart), "timed", again, 1);
    setenv("COD_CUDA_CONVOLUTION", "own", 1);
    const cod_status status = sequence_run_fused(&fused);
    setenv("COD_CUDA_CONVOLUTION", "fixed", 1);
    require(status, "timed", again, 1);
    require(sequence_compare(&fused, &apart, equal, which->backward ? equal : divided), "timed", again, 1);
    const char *counts = strstr(timed, "own-mma") != NULL ? strrchr(timed, ';') : NULL;
    double seconds = 0;
    const bool found =
        counts != NULL && (strncmp(counts, "; 2 timed, 0 unfit, in ", 23) == 0 ||
                           (sscanf(counts, "; 1 timed, 0 unfit, in %lf s", &seconds) == 1 && seconds > budget_s));
    if (found != (several && !again))
        fail_msg("backward %d, again %d: '%s'", which->backward, again, timed);
    sequence_clear(&fused);
    sequence_clear(&apart);
}

/** Products of warps and of warpgroups are timed and give the same; the choice is right, and known the next time. */
TEST_IN_FOLDER(kinds_of_products_are_timed)
{
    sequence_case c = {.from = {1, 5, 7, 64}, .outputs = 64, .applies = true, .reduces = true, .residual = true};
    c.apply = c.reduce = COD_ACT_PRELU;
    setenv("COD_CUDA_CACHE", cod_test_at("choices"), 1);
    cod_log_set_sink(watch_log, NULL, COD_LOG_DEBUG);
    for (int backward = 0; backward < 2; backward++) {
        c.backward = c.in_place = backward != 0;
        check_timed(&c, false);
        check_timed(&c, true);
    }
    cod_log_set_sink(NULL, NULL, COD_LOG_WARN);
    unsetenv("COD_CUDA_CACHE");
    unsetenv("COD_CUDA_CONVOLUTION");
}

/* What is fused. */

static size_t fused_of(const sequence *s, const cod_op *ops)
{
    return test_cuda.backend->op_fuses(test_cuda.device, ops, s->count);
}

/** Expects the sequence with one change of an op to be fused as far as `expected` says. */
#define CHANGED(expected, change)                                                                                      \
    do {                                                                                                               \
        cod_op op[3];                                                                                                  \
        memcpy(op, s.ops, sizeof op);                                                                                  \
        change;                                                                                                        \
        assert_int_equal(fused_of(&s, op), expected);                                                                  \
    } while (0)

TEST(what_no_kernel_takes_is_not_fused)
{
    sequence s;
    sequence_case c = {.from = {2, 9, 10, 32}, .outputs = 64, .applies = true, .reduces = true, .residual = true};
    assert_ok(sequence_init(&s, test_cuda, &c, true, 1));
    CHANGED(3, (void)op);
    CHANGED(1, op[0].attr.activation = COD_ACT_TANH);
    CHANGED(1, op[0].outputs[0] = op[0].inputs[0]);
    CHANGED(1, op[0].inputs[6].dtype = COD_F32);
    CHANGED(1, op[0].inputs[6].pixel_stride += 16);
    CHANGED(1, op[0].outputs[0].offset += 16);
    CHANGED(1, op[1].attr.stride_w = 2);
    CHANGED(1, op[1].attr.pad_h = 0);
    CHANGED(1, op[1].attr.factor = 2);
    CHANGED(1, op[1].attr.int8_range = 1);
    CHANGED(1, op[1].attr.activation = COD_ACT_RELU);
    CHANGED(1, op[1].inputs[4] = op[1].outputs[0]);
    CHANGED(1, op[1].inputs[1].shape.h = 1);
    CHANGED(1, op[1].outputs[0].shape.c = 136);
    CHANGED(2, op[2].inputs[0].offset += 16);
    CHANGED(2, op[2].kind = COD_OP_NORM_TRAIN);
    CHANGED(1, op[1].kind = COD_OP_CONV2D_BACKWARD_DATA);
    assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, s.ops + 1, 2), 2);
    assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, s.ops + 1, 1), 1);
    assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, s.ops + 2, 1), 1);
    sequence_clear(&s);
    c.backward = true;
    c.both = true;
    assert_ok(sequence_init(&s, test_cuda, &c, true, 1));
    CHANGED(3, (void)op);
    CHANGED(1, op[0].accumulate = true);
    CHANGED(1, op[0].outputs[0] = op[0].inputs[1]);
    CHANGED(3, op[1].accumulate = true);
    CHANGED(3, op[2].outputs[0] = op[2].inputs[1]);
    CHANGED(2, op[2].outputs[0] = op[2].inputs[0]);
    CHANGED(2, op[2].attr.activation = COD_ACT_SIGMOID);
    CHANGED(2, (op[2].attr.activation = COD_ACT_LEAKY_RELU, op[2].attr.leak = -1));
    sequence_clear(&s);
}

TEST(impossible_plans_are_refused)
{
    const cod_backend *cuda = test_cuda.backend;
    const sequence_case c = {.from = {2, 9, 10, 32}, .outputs = 32, .applies = true, .reduces = true};
    sequence s;
    cod_plan *plan = NULL;
    assert_ok(sequence_init(&s, test_cuda, &c, true, 1));
    cod_op ops[3] = {s.ops[0], s.ops[1], s.ops[2]};
    ops[1].attr.stride_h = ops[1].attr.stride_w = 2;
    ops[1].outputs[0].shape = ops[2].inputs[0].shape = (cod_shape){2, 5, 5, 32};
    assert_int_equal(cuda->plan_create_fused(test_cuda.device, ops, 3, &plan), COD_ERR_ARGUMENT);
    assert_non_null(strstr(cod_error_message(), "op_fuses() takes 1"));
    memcpy(ops, s.ops, sizeof ops);
    ops[1].outputs[0].buffer = ops[2].inputs[0].buffer = ops[0].inputs[0].buffer;
    ops[1].outputs[0].offset = ops[2].inputs[0].offset = 0;
    assert_int_equal(cuda->plan_create_fused(test_cuda.device, ops, 3, &plan), COD_ERR_ARGUMENT);
    assert_non_null(strstr(cod_error_message(), "op_fuses() takes 1")); /* two tensors overlap */
    memcpy(ops, s.ops, sizeof ops);
    ops[0].inputs[0].offset -= 2;
    assert_int_equal(cuda->plan_create_fused(test_cuda.device, ops, 3, &plan), COD_ERR_ARGUMENT);
    assert_non_null(strstr(cod_error_message(), "multiple of 16"));
    assert_null(plan);
    sequence_clear(&s);
}

/** ReLU's gradient in the store of a linear layer's data gradient, at odd sizes. */
TEST(gated_gradients_agree)
{
    enum { SEEDS = 120 };
    int fused = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cod_op ops[COD_TEST_SEQUENCE_OPS];
        const size_t count = cod_test_random_sequence(COD_OP_LINEAR_BACKWARD_DATA, COD_BF16, COD_F32, seed, ops);
        const cod_activation kind = ops[1].attr.activation;
        const bool fits = kind == COD_ACT_RELU || kind == COD_ACT_LEAKY_RELU;
        cod_emulated_set_seed(seed);
        const cod_status status = cod_test_sequence_parity(test_ref, test_cuda, ops, count, seed, rounded);
        if (!fits) {
            assert_int_equal(status, COD_ERR_UNSUPPORTED);
            continue;
        }
        require(status, "gated gradient", (int)seed, seed);
        fused++;
    }
    assert_true(fused >= SEEDS / 4);
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)
