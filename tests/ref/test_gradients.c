/*
 * Every backward op against central differences of its forward op, in f64 on `ref`.
 *
 * The loss is sum(r·y) for a random r; the backward op is given dy = r. Elements are drawn, not all tried.
 */
#include "open_ref.h"

#include "core/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 30, ELEMENTS = 12, Y = COD_OP_MAX_INPUTS };

static const double STEP = 1e-5;

/** How a backward op hangs on its forward op. */
typedef struct gradient_rule {
    cod_op_kind forward, backward;
    const char *inputs; /**< of the backward op: '0'…'6' forward input, 'A'…'E' forward output, 'g' dy */
    const char *grads;  /**< which forward input each output of the backward op is the gradient of */
} gradient_rule;

static const gradient_rule rules[] = {
    {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_DATA, "g1", "0"},
    {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_WEIGHTS, "0g", "12"},
    {COD_OP_LINEAR, COD_OP_LINEAR_BACKWARD_DATA, "g1", "0"},
    {COD_OP_LINEAR, COD_OP_LINEAR_BACKWARD_WEIGHTS, "0g", "12"},
    {COD_OP_NORM_TRAIN, COD_OP_NORM_BACKWARD, "0g12BC3", "0123"},
    {COD_OP_NORM_INFERENCE, COD_OP_NORM_INFERENCE_BACKWARD, "0g12345", "0"},
    {COD_OP_ACTIVATION, COD_OP_ACTIVATION_BACKWARD, "Ag1", "01"}, /* PReLU: "0g1" */
    {COD_OP_ADD, COD_OP_ADD, "g", "0"},
    {COD_OP_MEAN, COD_OP_MEAN, "g", "0"},
    {COD_OP_PIXEL_SHUFFLE, COD_OP_PIXEL_UNSHUFFLE, "g", "0"},
    {COD_OP_RESIZE, COD_OP_RESIZE_BACKWARD, "g", "0"},
    {COD_OP_POOL, COD_OP_POOL_BACKWARD, "gB", "0"},
    {COD_OP_SPECTRAL_NORM, COD_OP_SPECTRAL_NORM_BACKWARD, "gABCD", "0"},
};
enum { RULES = sizeof rules / sizeof rules[0] };

/** A deliberate fault in the backward op or its result. */
typedef struct fault {
    double factor;     /**< of the analytic gradient; 1 = honest */
    float leak_change; /**< added to the backward op's attr.leak */
} fault;

static const fault honest = {.factor = 1};

static int64_t slot_count(cod_test_op *test, size_t slot)
{
    return cod_shape_count(cod_test_view(&test->op, slot)->shape);
}

static double *new_values(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    if (values == NULL)
        abort();
    return values;
}

/** sum(r·y) after running the forward op; updated statistics do not matter here. */
static cod_status loss_of(cod_test_op *forward, const double *r, double *y, double *loss)
{
    COD_TRY(cod_test_op_run(forward));
    COD_TRY(cod_test_op_read(forward, Y, y));
    *loss = 0;
    for (int64_t i = 0; i < slot_count(forward, Y); i++)
        *loss += r[i] * y[i];
    return COD_OK;
}

/** Compares drawn elements of `analytic`, the gradient with respect to `slot`, with central differences. */
static cod_status compare_differences(cod_test_op *forward, size_t slot, const double *analytic, const double *r,
                                      uint64_t seed)
{
    const int64_t count = slot_count(forward, slot);
    double *values = new_values(count), *y = new_values(slot_count(forward, Y));
    double wanted[ELEMENTS], found[ELEMENTS];
    cod_rng rng = cod_rng_open(seed, 2, 0, 0, COD_RNG_TEST, (uint32_t)slot);
    cod_status status = cod_test_op_read(forward, slot, values);
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(analytic[i]));
    for (int e = 0; e < ELEMENTS && status == COD_OK; e++) {
        const int64_t at = cod_rng_below(&rng, (uint32_t)count);
        const double value = values[at];
        double losses[2] = {0, 0};
        for (int side = 0; side < 2 && status == COD_OK; side++) {
            values[at] = value + (side ? STEP : -STEP);
            status = cod_test_op_write(forward, slot, values);
            COD_THEN(status, loss_of(forward, r, y, &losses[side]));
        }
        values[at] = value;
        wanted[e] = (losses[1] - losses[0]) / (2 * STEP);
        found[e] = analytic[at];
        /* 1e-6 of the gradient: truncation of the quotient; 1e-7 absolute: rounding of the loss divided by the step. */
        if (status == COD_OK && !(fabs(wanted[e] - found[e]) <= 1e-6 * largest + 1e-7))
            status = cod_fail(COD_ERR_NUMERIC, "input %zu, element %" PRId64 ": gradient %.10g, differences say %.10g",
                              slot, at, found[e], wanted[e]);
    }
    COD_THEN(status, cod_test_op_write(forward, slot, values));
    free(values);
    free(y);
    return status;
}

/** Whether the pre-activation of a fused ReLU keeps clear of zero. */
static cod_status is_smooth(const cod_op *description, uint64_t seed, bool *smooth)
{
    const cod_activation activation = description->attr.activation;
    *smooth = true;
    const bool trains = description->kind == COD_OP_NORM_TRAIN;
    if ((!trains && description->kind != COD_OP_NORM_INFERENCE) || activation == COD_ACT_NONE ||
        activation == COD_ACT_SIGMOID || activation == COD_ACT_TANH)
        return COD_OK;
    cod_op plain = *description;
    plain.attr.activation = COD_ACT_NONE;
    plain.inputs[trains ? 3 : 5].shape = plain.inputs[trains ? 4 : 6].shape = (cod_shape){0};
    cod_test_op test;
    COD_TRY(cod_test_op_init(&test, ref, &plain));
    double *z = new_values(slot_count(&test, Y));
    cod_status status = cod_test_op_randomise(&test, seed, true);
    COD_THEN(status, cod_test_op_run(&test));
    COD_THEN(status, cod_test_op_read(&test, Y, z));
    for (int64_t i = 0; i < slot_count(&test, Y); i++)
        *smooth = *smooth && fabs(z[i]) > 1e-3;
    free(z);
    cod_test_op_clear(&test);
    return status;
}

static size_t source_slot(char code)
{
    return code >= 'A' ? Y + (size_t)(code - 'A') : (size_t)(code - '0');
}

static cod_op forward_description(const gradient_rule *rule, uint64_t seed)
{
    cod_op op = cod_test_random_op(rule->forward, COD_F64, COD_F64, seed);
    op.accumulate = false;
    if (rule->forward == COD_OP_CONV2D || rule->forward == COD_OP_LINEAR) { /* their backward ops know no activation */
        op.attr.activation = COD_ACT_NONE;
        op.inputs[3].shape = (cod_shape){0};
    }
    return op;
}

static const char *rule_inputs(const gradient_rule *rule, const cod_op *forward)
{
    const bool prelu = rule->forward == COD_OP_ACTIVATION && forward->attr.activation == COD_ACT_PRELU;
    return prelu ? "0g1" : rule->inputs;
}

static cod_op backward_description(const gradient_rule *rule, const cod_op *forward, uint64_t seed, fault planted)
{
    cod_op op = {.kind = rule->backward, .attr = forward->attr, .accumulate = seed % 2 == 1, .name = "backward"};
    cod_op source = *forward;
    const char *inputs = rule_inputs(rule, forward);
    op.attr.leak += planted.leak_change;
    for (size_t i = 0; inputs[i]; i++)
        op.inputs[i] = *cod_test_view(&source, inputs[i] == 'g' ? Y : source_slot(inputs[i]));
    for (size_t i = 0; rule->grads[i]; i++)
        op.outputs[i] = *cod_test_view(&source, source_slot(rule->grads[i]));
    return op;
}

/** Fills the backward op's inputs from the forward op, runs it and leaves its gradients in `grads`. */
static cod_status run_backward(cod_test_op *backward, cod_test_op *forward, const char *inputs, const double *r,
                               uint64_t seed, fault planted, double *grads[COD_OP_MAX_OUTPUTS])
{
    for (size_t i = 0; inputs[i]; i++) {
        if (backward->buffers[i] == NULL)
            continue;
        double *values = new_values(slot_count(backward, i));
        cod_status status = COD_OK;
        if (inputs[i] != 'g')
            status = cod_test_op_read(forward, source_slot(inputs[i]), values);
        COD_THEN(status, cod_test_op_write(backward, i, inputs[i] == 'g' ? r : values));
        free(values);
        COD_TRY(status);
    }
    double *before[COD_OP_MAX_OUTPUTS] = {NULL};
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++) {
        if (backward->buffers[Y + i] == NULL)
            continue;
        before[i] = cod_test_random_values(&backward->op, Y + i, seed, false);
        grads[i] = new_values(slot_count(backward, Y + i));
    }
    cod_status status = COD_OK;
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS && status == COD_OK; i++)
        if (before[i] != NULL)
            status = cod_test_op_write(backward, Y + i, before[i]);
    COD_THEN(status, cod_test_op_run(backward));
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS && status == COD_OK; i++) {
        if (before[i] == NULL)
            continue;
        status = cod_test_op_read(backward, Y + i, grads[i]);
        for (int64_t k = 0; k < slot_count(backward, Y + i); k++)
            grads[i][k] = planted.factor * (grads[i][k] - (backward->op.accumulate ? before[i][k] : 0));
    }
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        free(before[i]);
    return status;
}

enum { U = 1, NEXT_U = Y + 2 }; /* of spectral normalisation */

/** @param u, next  [slot_count(U)], overwritten */
static cod_status iterate(cod_test_op *forward, double *u, double *next, bool *settled)
{
    enum { STEPS_MOST = 300 };
    const int64_t count = slot_count(forward, U);
    double change = 1;
    COD_TRY(cod_test_op_read(forward, U, u));
    for (int step = 0; step < STEPS_MOST && change > 1e-10; step++) {
        change = 0;
        COD_TRY(cod_test_op_run(forward));
        COD_TRY(cod_test_op_read(forward, NEXT_U, next));
        for (int64_t i = 0; i < count; i++)
            change = fmax(change, fabs(next[i] - u[i]));
        memcpy(u, next, (size_t)count * sizeof *u);
        COD_TRY(cod_test_op_write(forward, U, u));
    }
    *settled = change <= 1e-10;
    return COD_OK;
}

/**
 * Lets spectral normalisation's u come to rest: there the gradient, which takes the singular vectors for constants, is
 * that of the op. *settled: whether it did, which takes long where the two largest singular values are close.
 */
static cod_status settle(cod_test_op *forward, bool *settled)
{
    double *u = new_values(slot_count(forward, U)), *next = new_values(slot_count(forward, U));
    const cod_status status = iterate(forward, u, next, settled);
    free(u);
    free(next);
    return status;
}

static cod_status compare_gradients(const gradient_rule *rule, cod_test_op *forward, cod_test_op *backward,
                                    const double *r, uint64_t seed, fault planted)
{
    double *grads[COD_OP_MAX_OUTPUTS] = {NULL}, *y = new_values(slot_count(forward, Y)), loss;
    cod_status status = loss_of(forward, r, y, &loss);
    COD_THEN(status, run_backward(backward, forward, rule_inputs(rule, &forward->op), r, seed, planted, grads));
    for (size_t i = 0; rule->grads[i] && status == COD_OK; i++)
        if (grads[i] != NULL)
            status = compare_differences(forward, source_slot(rule->grads[i]), grads[i], r, seed);
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        free(grads[i]);
    free(y);
    return status;
}

/** COD_ERR_NUMERIC when a gradient is wrong; *checked says whether the seed gave a smooth case. */
static cod_status check_rule(const gradient_rule *rule, uint64_t seed, fault planted, bool *checked)
{
    const cod_op description = forward_description(rule, seed);
    COD_TRY(is_smooth(&description, seed, checked));
    if (!*checked)
        return COD_OK;
    const cod_op backward_op = backward_description(rule, &description, seed, planted);
    cod_test_op forward, backward = {.plan = NULL};
    COD_TRY(cod_test_op_init(&forward, ref, &description));
    double *r = cod_test_random_values(&description, Y, seed + 1000, false);
    cod_status status = cod_test_op_init(&backward, ref, &backward_op);
    COD_THEN(status, cod_test_op_randomise(&forward, seed, true));
    if (rule->forward == COD_OP_SPECTRAL_NORM)
        COD_THEN(status, settle(&forward, checked));
    if (*checked)
        COD_THEN(status, compare_gradients(rule, &forward, &backward, r, seed, planted));
    cod_test_op_clear(&backward);
    cod_test_op_clear(&forward);
    free(r);
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "%s, seed %" PRIu64, cod_op_kind_name(rule->backward), seed);
}

TEST(gradients_agree_with_differences)
{
    for (size_t i = 0; i < RULES; i++) {
        int count = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            bool checked;
            assert_ok(check_rule(&rules[i], seed, honest, &checked));
            count += checked;
        }
        if (count < SEEDS / 4)
            fail_msg("%s: only %d of %d seeds were smooth", cod_op_kind_name(rules[i].backward), count, SEEDS);
    }
}

/** The check itself is sharp: a thousandth too much is noticed in every op. */
TEST(a_gradient_off_by_a_thousandth_is_caught)
{
    for (size_t i = 0; i < RULES; i++) {
        int caught = 0, count = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            bool checked;
            const cod_status status = check_rule(&rules[i], seed, (fault){.factor = 1.001}, &checked);
            assert_true(status == COD_OK || status == COD_ERR_NUMERIC);
            count += checked;
            caught += status != COD_OK;
        }
        /* Some seeds have nothing to catch: ADD with alpha = 0, or a ReLU with no active element. */
        if (caught * 2 < count)
            fail_msg("%s: caught in %d of %d", cod_op_kind_name(rules[i].backward), caught, count);
    }
}

TEST(a_wrong_slope_is_caught)
{
    for (size_t i = 0; i < RULES; i++) {
        if (rules[i].forward != COD_OP_ACTIVATION && rules[i].forward != COD_OP_NORM_TRAIN &&
            rules[i].forward != COD_OP_NORM_INFERENCE)
            continue;
        int caught = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            bool checked;
            caught += check_rule(&rules[i], seed, (fault){.factor = 1, .leak_change = 0.01f}, &checked) != COD_OK;
        }
        assert_true(caught > 0 && caught < SEEDS); /* leaky ReLU only */
    }
}

/** Reads a gradient that a loss has written, or added to what cod_test_op_randomise() wrote before. */
static cod_status read_loss_gradient(cod_test_op *test, size_t output, uint64_t seed, double *gradient)
{
    double *before = cod_test_random_values(&test->op, Y + output, seed, true);
    const cod_status status = cod_test_op_read(test, Y + output, gradient);
    for (int64_t i = 0; i < slot_count(test, Y + output) && test->op.accumulate; i++)
        gradient[i] -= before[i];
    free(before);
    return status;
}

enum { LOSSES = COD_LOSS_TV + 1, SIDES = 2 };

/**
 * The loss op gives the value and both gradients, alpha·weight·dvalue/dprediction and alpha·weight·dvalue/dtarget, at
 * once; `factors` is what they are multiplied with before the check, 1 where it is honest.
 */
static cod_status check_loss(uint64_t seed, const double factors[SIDES], cod_loss_kind *kind)
{
    cod_op description = cod_test_random_op(COD_OP_LOSS, COD_F64, COD_F64, seed);
    double *gradients[SIDES] = {NULL}, weight = 1;
    *kind = description.attr.loss;
    for (size_t side = 0; side < SIDES; side++)
        description.outputs[1 + side] = description.inputs[side]; /* total variation has no target */
    cod_test_op test;
    COD_TRY(cod_test_op_init(&test, ref, &description));
    cod_status status = cod_test_op_randomise(&test, seed, true);
    if (test.buffers[2] != NULL)
        COD_THEN(status, cod_test_op_read(&test, 2, &weight));
    COD_THEN(status, cod_test_op_run(&test));
    for (size_t side = 0; side < SIDES; side++) {
        if (test.buffers[side] == NULL)
            continue;
        gradients[side] = new_values(slot_count(&test, side));
        COD_THEN(status, read_loss_gradient(&test, 1 + side, seed, gradients[side]));
    }
    const double r = description.attr.alpha * weight;
    for (size_t side = 0; side < SIDES && gradients[side] != NULL && status == COD_OK; side++) {
        for (int64_t i = 0; i < slot_count(&test, side); i++)
            gradients[side][i] *= factors[side];
        status = compare_differences(&test, side, gradients[side], &r, seed);
    }
    cod_test_op_clear(&test);
    for (size_t side = 0; side < SIDES; side++)
        free(gradients[side]);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "loss %d, seed %" PRIu64, (int)*kind, seed);
}

/** Both gradients of every loss, and of each a planted fault of a thousandth. */
TEST(losses_agree_with_differences)
{
    static const double right[SIDES] = {1, 1}, wrong[SIDES][SIDES] = {{1.001, 1}, {1, 1.001}};
    int tried[LOSSES] = {0}, caught[LOSSES][SIDES] = {{0}};
    for (uint64_t seed = 0; seed < LOSSES * SEEDS; seed++) {
        cod_loss_kind kind;
        assert_ok(check_loss(seed, right, &kind));
        tried[kind]++;
        for (size_t side = 0; side < SIDES; side++)
            caught[kind][side] += check_loss(seed, wrong[side], &kind) != COD_OK;
    }
    for (int kind = 0; kind < LOSSES; kind++)
        for (size_t side = 0; side < SIDES; side++) /* a few seeds have gradients of zero alone */
            if (4 * caught[kind][side] < 3 * (kind == COD_LOSS_TV && side == 1 ? 0 : tried[kind]) || tried[kind] < 10)
                fail_msg("loss %d, side %zu: caught %d of %d", kind, side, caught[kind][side], tried[kind]);
}

/*
 * The halves of a normalisation's gradient: REDUCE gives those of gamma, beta and the slope, and what APPLY makes that
 * of x of.
 */

enum { HALVES = 2 };

/**
 * The op's views from the forward op by source_slot() codes, of which 'g' has the form of dy, 's' that of sums, and '-'
 * is absent.
 */
static cod_op half_description(cod_op_kind kind, const cod_op *forward, const char *inputs, const char *outputs,
                               fault planted)
{
    cod_op op = {.kind = kind, .attr = forward->attr, .name = cod_op_kind_name(kind)}, source = *forward;
    op.attr.leak += planted.leak_change;
    for (size_t i = 0; i < strlen(inputs) + strlen(outputs); i++) {
        const bool input = i < strlen(inputs);
        const char code = input ? inputs[i] : outputs[i - strlen(inputs)];
        cod_view *view = input ? &op.inputs[i] : &op.outputs[i - strlen(inputs)];
        if (code == 's')
            *view = cod_view_dense(NULL, 0, COD_F64, (cod_shape){1, 1, 2, forward->inputs[0].shape.c});
        else if (code != '-')
            *view = *cod_test_view(&source, code == 'g' ? Y : source_slot(code));
    }
    return op;
}

/** Copies a slot's values, times `factor`; of an absent slot none. */
static cod_status hand_on(cod_test_op *from, size_t source, cod_test_op *to, size_t target, double factor)
{
    if (from->buffers[source] == NULL)
        return COD_OK;
    const int64_t count = slot_count(from, source);
    double *values = new_values(count);
    cod_status status = cod_test_op_read(from, source, values);
    for (int64_t i = 0; i < count; i++)
        values[i] *= factor;
    COD_THEN(status, cod_test_op_write(to, target, values));
    free(values);
    return status;
}

/** Runs both halves behind the forward op. `faulty`: the half whose results are multiplied with planted.factor. */
static cod_status run_halves(cod_test_op *forward, cod_test_op halves[HALVES], const double *r, fault planted,
                             int faulty)
{
    static const char *const from_forward[HALVES] = {"0-12BC3", "0-1BC"};
    cod_test_op *reduce = &halves[0], *apply = &halves[1];
    const double factor = faulty == 0 ? planted.factor : 1;
    for (size_t h = 0; h < HALVES; h++)
        for (size_t i = 0; from_forward[h][i]; i++)
            if (from_forward[h][i] != '-')
                COD_TRY(hand_on(forward, source_slot(from_forward[h][i]), &halves[h], i, 1));
    COD_TRY(cod_test_op_write(reduce, 1, r));
    COD_TRY(cod_test_op_run(reduce));
    if (reduce->buffers[Y] == NULL) /* g is dy */
        COD_TRY(cod_test_op_write(apply, 1, r));
    COD_TRY(hand_on(reduce, Y, apply, 1, factor));
    COD_TRY(hand_on(reduce, Y + 1, apply, 5, factor));
    return cod_test_op_run(apply);
}

static cod_status check_halves(uint64_t seed, fault planted, int faulty, bool *checked)
{
    const gradient_rule rule = {COD_OP_NORM_TRAIN, COD_OP_NORM_BACKWARD, "", ""};
    const cod_op description = forward_description(&rule, seed);
    COD_TRY(is_smooth(&description, seed, checked));
    if (!*checked)
        return COD_OK;
    const bool without_g = description.attr.activation == COD_ACT_NONE && seed % 2 == 0;
    const cod_op ops[HALVES] = {
        half_description(COD_OP_NORM_BACKWARD_REDUCE, &description, "0g12BC3", without_g ? "-s123" : "gs123", planted),
        half_description(COD_OP_NORM_BACKWARD_APPLY, &description, "0g1BCs", "0", planted)};
    cod_test_op forward, halves[HALVES] = {{.plan = NULL}, {.plan = NULL}};
    double *r = cod_test_random_values(&description, Y, seed + 1000, false), loss;
    COD_TRY(cod_test_op_init(&forward, ref, &description));
    double *y = new_values(slot_count(&forward, Y));
    cod_status status = COD_OK;
    for (size_t h = 0; h < HALVES; h++)
        COD_THEN(status, cod_test_op_init(&halves[h], ref, &ops[h]));
    COD_THEN(status, cod_test_op_randomise(&forward, seed, true));
    COD_THEN(status, loss_of(&forward, r, y, &loss));
    COD_THEN(status, run_halves(&forward, halves, r, planted, faulty));
    for (size_t input = 0; input < 4 && status == COD_OK; input++) { /* x, gamma, beta, slope */
        cod_test_op *half = &halves[input == 0];
        const size_t slot = Y + (input == 0 ? 0 : 1 + input);
        if (half->buffers[slot] == NULL)
            continue;
        double *gradient = new_values(slot_count(half, slot));
        status = cod_test_op_read(half, slot, gradient);
        for (int64_t i = 0; i < slot_count(half, slot); i++)
            gradient[i] *= (input == 0) == (faulty == 1) ? planted.factor : 1;
        COD_THEN(status, compare_differences(&forward, input, gradient, r, seed));
        free(gradient);
    }
    for (size_t h = 0; h < HALVES; h++)
        cod_test_op_clear(&halves[h]);
    cod_test_op_clear(&forward);
    free(r);
    free(y);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "halves of norm_backward, seed %" PRIu64, seed);
}

/** Both halves, and of each a planted fault of a thousandth; the wrong slope of a leaky ReLU. */
TEST(halves_agree_with_differences)
{
    int count = 0, caught[HALVES] = {0, 0}, slopes = 0;
    bool checked;
    for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
        assert_ok(check_halves(seed, honest, 0, &checked));
        count += checked;
        for (int half = 0; half < HALVES; half++)
            caught[half] += check_halves(seed, (fault){.factor = 1.001}, half, &checked) != COD_OK;
        slopes += check_halves(seed, (fault){.factor = 1, .leak_change = 0.01f}, 0, &checked) != COD_OK;
    }
    if (count < SEEDS / 2 || 2 * caught[0] < count || 2 * caught[1] < count)
        fail_msg("%d seeds were smooth; caught in the halves: %d and %d", count, caught[0], caught[1]);
    assert_true(slopes > 0 && slopes < 2 * SEEDS); /* leaky ReLU only */
}
