#include "support/sequence.h"

#include "core/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct draw {
    cod_rng rng;
    cod_dtype parameter;
    size_t tensors; /**< numbers that are given */
} draw;

static bool chance(draw *d)
{
    return cod_rng_below(&d->rng, 2) == 0;
}

static cod_view new_view(draw *d, cod_dtype dtype, cod_shape shape, int64_t gap)
{
    cod_view view = cod_view_dense(NULL, ++d->tensors, dtype, shape);
    view.pixel_stride += gap;
    return view;
}

static cod_view new_vector(draw *d, int64_t channels)
{
    return new_view(d, d->parameter, (cod_shape){1, 1, 1, channels}, 0);
}

/** Another tensor of this form. */
static cod_view like(draw *d, const cod_view *view)
{
    return new_view(d, view->dtype, view->shape, view->pixel_stride - view->shape.c);
}

/** A random activation that normalisations fuse; its slope. */
static cod_view activation(draw *d, cod_op *op, int64_t channels)
{
    static const cod_activation kinds[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_LEAKY_RELU, COD_ACT_PRELU};
    op->attr.activation = kinds[cod_rng_below(&d->rng, 4)];
    op->attr.leak = 0.2f;
    return op->attr.activation == COD_ACT_PRELU ? new_vector(d, chance(d) ? 1 : channels) : (cod_view){.buffer = NULL};
}

static cod_op new_op(cod_op_kind kind)
{
    return (cod_op){.kind = kind,
                    .attr = {.epsilon = 1e-3f, .momentum = 0.1f},
                    .deterministic = true,
                    .name = cod_op_kind_name(kind)};
}

/** NORM_APPLY that makes `y`. */
static cod_op norm_apply(draw *d, const cod_view *y)
{
    cod_op op = new_op(COD_OP_NORM_APPLY);
    op.inputs[0] = like(d, y);
    for (size_t i = 1; i <= 4; i++)
        op.inputs[i] = new_vector(d, y->shape.c);
    op.inputs[5] = activation(d, &op, y->shape.c);
    if (chance(d))
        op.inputs[6] = like(d, y);
    op.outputs[0] = *y;
    return op;
}

static cod_op norm_statistics(draw *d, const cod_view *x)
{
    cod_op op = new_op(COD_OP_NORM_STATISTICS);
    op.inputs[0] = *x;
    for (size_t i = 0, count = chance(d) ? 4 : 2; i < count; i++)
        op.outputs[i] = new_vector(d, x->shape.c);
    return op;
}

/** NORM_BACKWARD_APPLY that makes `dx`. */
static cod_op norm_backward_apply(draw *d, const cod_view *dx)
{
    cod_op op = new_op(COD_OP_NORM_BACKWARD_APPLY);
    op.accumulate = chance(d);
    op.inputs[0] = like(d, dx), op.inputs[1] = like(d, dx);
    for (size_t i = 2; i <= 4; i++)
        op.inputs[i] = new_vector(d, dx->shape.c);
    op.inputs[5] = new_view(d, d->parameter, (cod_shape){1, 1, 2, dx->shape.c}, 0);
    op.outputs[0] = *dx;
    return op;
}

/** g absent where it may be, in place of dy, or a tensor of its own. */
static cod_op norm_backward_reduce(draw *d, const cod_view *dy)
{
    cod_op op = new_op(COD_OP_NORM_BACKWARD_REDUCE);
    op.accumulate = chance(d);
    op.inputs[0] = like(d, dy), op.inputs[1] = *dy;
    for (size_t i = 2; i <= 5; i++)
        op.inputs[i] = new_vector(d, dy->shape.c);
    op.inputs[6] = activation(d, &op, dy->shape.c);
    if (op.attr.activation != COD_ACT_NONE || chance(d))
        op.outputs[0] = chance(d) ? *dy : like(d, dy);
    op.outputs[1] = new_view(d, d->parameter, (cod_shape){1, 1, 2, dy->shape.c}, 0);
    op.outputs[2] = new_vector(d, dy->shape.c), op.outputs[3] = new_vector(d, dy->shape.c);
    if (op.inputs[6].offset != 0)
        op.outputs[4] = like(d, &op.inputs[6]);
    return op;
}

/** Gives every view of a random op a number. */
static void number_views(draw *d, cod_op *op)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        cod_view *view = cod_test_view(op, slot);
        view->offset = cod_shape_count(view->shape) > 0 ? ++d->tensors : 0;
    }
}

static size_t weight_gradients(draw *d, const cod_op *first, cod_op ops[COD_TEST_SEQUENCE_OPS])
{
    const size_t count = 2 + cod_rng_below(&d->rng, COD_TEST_SEQUENCE_OPS - 1);
    for (size_t i = 0; i < count; i++) {
        ops[i] = *first;
        number_views(d, &ops[i]);
        if (i > 0 && chance(d))
            ops[i].outputs[1] = (cod_view){.buffer = NULL};
        if (i > 0 && chance(d))
            ops[i].inputs[0] = ops[0].inputs[0]; /* layers of one input */
    }
    return count;
}

/** A random activation of any kind but none. */
static void any_activation(draw *d, cod_op *op)
{
    static const cod_activation kinds[] = {COD_ACT_RELU, COD_ACT_LEAKY_RELU, COD_ACT_PRELU, COD_ACT_SIGMOID,
                                           COD_ACT_TANH};
    op->attr.activation = kinds[cod_rng_below(&d->rng, 5)];
    op->attr.leak = 0.25f;
}

/** ACTIVATION of what the product makes. */
static cod_op activation_of(draw *d, const cod_view *x)
{
    cod_op op = new_op(COD_OP_ACTIVATION);
    any_activation(d, &op);
    op.inputs[0] = *x, op.outputs[0] = like(d, x);
    if (op.attr.activation == COD_ACT_PRELU)
        op.inputs[1] = new_vector(d, chance(d) ? 1 : x->shape.c);
    return op;
}

/** ACTIVATION_BACKWARD in the place of the gradient that the product makes. */
static cod_op activation_backward_of(draw *d, const cod_view *dx)
{
    cod_op op = new_op(COD_OP_ACTIVATION_BACKWARD);
    any_activation(d, &op);
    op.inputs[0] = like(d, dx), op.inputs[1] = *dx, op.outputs[0] = *dx;
    if (op.attr.activation == COD_ACT_PRELU) {
        op.inputs[2] = new_vector(d, chance(d) ? 1 : dx->shape.c);
        op.outputs[1] = like(d, &op.inputs[2]);
    }
    return op;
}

size_t cod_test_random_sequence(cod_op_kind product, cod_dtype activation_type, cod_dtype parameter, uint64_t seed,
                                cod_op ops[COD_TEST_SEQUENCE_OPS])
{
    draw d = {.rng = cod_rng_open(seed, 4, 0, product, COD_RNG_TEST, 0), .parameter = parameter};
    cod_op op = cod_test_random_op(product, activation_type, parameter, seed);
    const bool before = chance(&d), after = !before || chance(&d), forward = product == COD_OP_CONV2D;
    if (product == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return weight_gradients(&d, &op, ops);
    const bool activated = product == COD_OP_LINEAR_BACKWARD_DATA || (!before && chance(&d));
    size_t count = 0;
    op.accumulate = op.accumulate && !activated;
    number_views(&d, &op);
    if (activated) {
        ops[0] = op;
        ops[1] = forward ? activation_of(&d, &op.outputs[0]) : activation_backward_of(&d, &op.outputs[0]);
        return 2;
    }
    if (before)
        ops[count++] = forward ? norm_apply(&d, &op.inputs[0]) : norm_backward_apply(&d, &op.inputs[0]);
    ops[count++] = op;
    if (after)
        ops[count++] = forward ? norm_statistics(&d, &op.outputs[0]) : norm_backward_reduce(&d, &op.outputs[0]);
    return count;
}

/** Writes or reads a view's elements through cod_test_op_write() and _read(), which know ops of one op alone. */
static cod_status move(cod_test_sequence *test, size_t op, size_t slot, const double *source, double *target)
{
    cod_test_op one = {.on = test->on, .op = test->ops[op]};
    return source != NULL ? cod_test_op_write(&one, slot, source) : cod_test_op_read(&one, slot, target);
}

/** Where the tensor first appears: what makes its values suit its slot. */
static bool is_first(const cod_op *ops, size_t op, size_t slot)
{
    cod_op first = ops[op];
    const size_t number = cod_test_view(&first, slot)->offset;
    for (size_t i = 0; i < op * COD_TEST_SLOTS + slot; i++) {
        cod_op other = ops[i / COD_TEST_SLOTS];
        if (cod_test_view(&other, i % COD_TEST_SLOTS)->offset == number)
            return false;
    }
    return true;
}

static cod_status bind_view(cod_test_sequence *test, cod_view *view, size_t number)
{
    /* A slice begins inside its first pixel; 64 bytes before it, as a view of an arena has. */
    const size_t size = cod_dtype_bytes(view->dtype);
    const int64_t pixels = cod_shape_count(view->shape) / view->shape.c;
    view->offset = 64 + (size_t)(view->pixel_stride - view->shape.c) / 2 * size;
    if (test->buffers[number] == NULL)
        COD_TRY(test->on.backend->buffer_create(test->on.device, 64 + (size_t)(pixels * view->pixel_stride) * size,
                                                &test->buffers[number]));
    view->buffer = test->buffers[number];
    return COD_OK;
}

static cod_status bind_all(cod_test_sequence *test, const cod_op *ops, uint64_t seed)
{
    for (size_t i = 0; i < test->count * COD_TEST_SLOTS; i++) {
        const size_t op = i / COD_TEST_SLOTS, slot = i % COD_TEST_SLOTS;
        cod_view *view = cod_test_view(&test->ops[op], slot);
        const size_t number = view->offset;
        if (number == 0)
            continue;
        COD_TRY(bind_view(test, view, number));
        if (!is_first(ops, op, slot))
            continue;
        double *values = cod_test_random_values(&ops[op], slot, seed + 1000 * op, false);
        const cod_status status = move(test, op, slot, values, NULL);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status make_plans(cod_test_sequence *test, bool fused)
{
    const cod_backend *backend = test->on.backend;
    if (fused &&
        (backend->op_fuses == NULL || backend->op_fuses(test->on.device, test->ops, test->count) != test->count))
        return cod_fail(COD_ERR_UNSUPPORTED, "'%s' does not fuse %zu ops around %s", backend->name, test->count,
                        test->ops[0].name);
    if (fused) {
        COD_TRY(backend->plan_create_fused(test->on.device, test->ops, test->count, &test->plans[0]));
        test->plan_count = 1;
    }
    for (; test->plan_count < test->count && !fused; test->plan_count++)
        COD_TRY(backend->plan_create(test->on.device, &test->ops[test->plan_count], &test->plans[test->plan_count]));
    return COD_OK;
}

cod_status cod_test_sequence_init(cod_test_sequence *test, cod_test_device on, const cod_op *ops, size_t count,
                                  uint64_t seed, bool fused)
{
    *test = (cod_test_sequence){.on = on, .count = count};
    memcpy(test->ops, ops, count * sizeof *ops);
    COD_TRY(bind_all(test, ops, seed));
    return make_plans(test, fused);
}

void cod_test_sequence_clear(cod_test_sequence *test)
{
    for (size_t i = 0; i < test->plan_count; i++)
        test->on.backend->plan_destroy(test->plans[i]);
    for (size_t i = 0; i <= COD_TEST_SEQUENCE_TENSORS; i++)
        if (test->buffers[i] != NULL)
            test->on.backend->buffer_destroy(test->on.device, test->buffers[i]);
    *test = (cod_test_sequence){.count = 0};
}

cod_status cod_test_sequence_run(cod_test_sequence *test)
{
    COD_TRY(test->on.backend->plans_prepare(test->on.device, test->plans, test->plan_count, NULL));
    for (size_t i = 0; i < test->plan_count; i++)
        COD_TRY(test->on.backend->plan_run(test->plans[i], NULL));
    return COD_OK;
}

static cod_status compare_output(cod_test_sequence *expected, cod_test_sequence *tested, size_t op, size_t output,
                                 cod_tolerance tolerance)
{
    const size_t slot = COD_OP_MAX_INPUTS + output;
    const int64_t count = cod_shape_count(expected->ops[op].outputs[output].shape);
    double *values = calloc((size_t)count * 2 + 1, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    char what[96];
    snprintf(what, sizeof what, "op %zu, %s, output %zu", op, cod_op_kind_name(expected->ops[op].kind), output);
    cod_status status = move(expected, op, slot, NULL, values);
    COD_THEN(status, move(tested, op, slot, NULL, values + count));
    COD_THEN(status, cod_test_compare(what, values + count, values, count, tolerance));
    free(values);
    return status;
}

cod_status cod_test_sequence_parity(cod_test_device one_by_one, cod_test_device fused, const cod_op *ops, size_t count,
                                    uint64_t seed, cod_tolerance tolerance)
{
    cod_test_sequence a, b = {.count = 0};
    cod_status status = cod_test_sequence_init(&a, one_by_one, ops, count, seed, false);
    COD_THEN(status, cod_test_sequence_init(&b, fused, ops, count, seed, true));
    COD_THEN(status, cod_test_sequence_run(&a));
    COD_THEN(status, cod_test_sequence_run(&b));
    for (size_t i = 0; i < count * COD_OP_MAX_OUTPUTS && status == COD_OK; i++)
        if (a.ops[i / COD_OP_MAX_OUTPUTS].outputs[i % COD_OP_MAX_OUTPUTS].buffer != NULL)
            status = compare_output(&a, &b, i / COD_OP_MAX_OUTPUTS, i % COD_OP_MAX_OUTPUTS, tolerance);
    cod_test_sequence_clear(&a);
    cod_test_sequence_clear(&b);
    return status == COD_OK || status == COD_ERR_UNSUPPORTED
               ? status
               : cod_fail_prefix(status, "%zu ops from %s on, seed %" PRIu64, count, cod_op_kind_name(ops[0].kind),
                                 seed);
}
