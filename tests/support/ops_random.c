#include "support/ops.h"

#include "core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Classes of each kind's views, see cod_test_slot_class(). */
static const struct {
    const char *inputs, *outputs;
} slot_classes[COD_OP_KIND_COUNT] = {
    [COD_OP_CONV2D] = {"apppa", "a"},
    [COD_OP_CONV2D_BACKWARD_DATA] = {"ap", "a"},
    [COD_OP_CONV2D_BACKWARD_WEIGHTS] = {"aa", "pp"},
    [COD_OP_LINEAR] = {"appp", "a"},
    [COD_OP_LINEAR_BACKWARD_DATA] = {"ap", "a"},
    [COD_OP_LINEAR_BACKWARD_WEIGHTS] = {"aa", "pp"},
    [COD_OP_NORM_TRAIN] = {"apppa", "apppp"},
    [COD_OP_NORM_INFERENCE] = {"apppppa", "a"},
    [COD_OP_NORM_BACKWARD] = {"aappppp", "appp"},
    [COD_OP_NORM_INFERENCE_BACKWARD] = {"aappppp", "a"},
    [COD_OP_NORM_STATISTICS] = {"a", "pppp"},
    [COD_OP_NORM_APPLY] = {"apppppa", "a"},
    [COD_OP_NORM_BACKWARD_REDUCE] = {"aappppp", "apppp"},
    [COD_OP_NORM_BACKWARD_APPLY] = {"aapppp", "a"},
    [COD_OP_FOLD_NORM] = {"pppppp", "pp"},
    [COD_OP_ACTIVATION] = {"ap", "a"},
    [COD_OP_ACTIVATION_BACKWARD] = {"aap", "ap"},
    [COD_OP_ADD] = {"aa", "a"},
    [COD_OP_MEAN] = {"a", "a"},
    [COD_OP_PIXEL_SHUFFLE] = {"a", "a"},
    [COD_OP_PIXEL_UNSHUFFLE] = {"a", "a"},
    [COD_OP_RESIZE] = {"a", "a"},
    [COD_OP_RESIZE_BACKWARD] = {"a", "a"},
    [COD_OP_POOL] = {"a", "ai"},
    [COD_OP_POOL_BACKWARD] = {"ai", "a"},
    [COD_OP_LOSS] = {"aaf", "faa"},
    [COD_OP_GRAD_NORM] = {"p", "p"},
    [COD_OP_OPTIMISER] = {"pfpp", "ppppp"},
    [COD_OP_EMA] = {"pf", "p"},
    [COD_OP_FILL] = {"", "a"},
    [COD_OP_MIX] = {"pf", "p"},
    [COD_OP_SPECTRAL_NORM] = {"pp", "pppp"},
    [COD_OP_SPECTRAL_NORM_BACKWARD] = {"ppppp", "p"},
    [COD_OP_TURN] = {"aif", "a"}, /* the table is never drawn: not all backends have it */
};

char cod_test_slot_class(cod_op_kind kind, size_t slot)
{
    const bool input = slot < COD_OP_MAX_INPUTS;
    const char *classes = input ? slot_classes[kind].inputs : slot_classes[kind].outputs;
    const size_t index = input ? slot : slot - COD_OP_MAX_INPUTS;
    return (char)(index < strlen(classes) ? classes[index] : 0);
}

static const cod_view *const_view(const cod_op *op, size_t slot)
{
    return slot < COD_OP_MAX_INPUTS ? &op->inputs[slot] : &op->outputs[slot - COD_OP_MAX_INPUTS];
}

static int64_t count_of(const cod_op *op, size_t slot)
{
    return cod_shape_count(const_view(op, slot)->shape);
}

/* Random descriptions: what is drawn, then the shapes that follow from it. */

typedef struct draw {
    cod_rng rng;
    cod_op op;
} draw;

static int64_t between(draw *d, int64_t low, int64_t high)
{
    return low + cod_rng_below(&d->rng, (uint32_t)(high - low + 1));
}

static bool chance(draw *d)
{
    return cod_rng_below(&d->rng, 2) == 0;
}

static int64_t channels(draw *d)
{
    static const int64_t usual[] = {1, 2, 3, 4, 7, 8, 16, 17, 32};
    return usual[cod_rng_below(&d->rng, sizeof usual / sizeof usual[0])];
}

/** Shapes are drawn in statements of their own, as the order within one initialiser is the compiler's choice. */
static cod_shape image(draw *d)
{
    cod_shape shape;
    shape.n = between(d, 1, 3);
    shape.h = between(d, 1, 7);
    shape.w = between(d, 1, 7);
    shape.c = channels(d);
    return shape;
}

static cod_shape matrix(draw *d, int64_t least_columns)
{
    cod_shape shape = {0, 1, 1, 0};
    shape.n = between(d, 1, 9);
    do
        shape.c = channels(d);
    while (shape.c < least_columns);
    return shape;
}

static cod_shape vector(int64_t count)
{
    return (cod_shape){1, 1, 1, count};
}

static void in(draw *d, size_t index, cod_shape shape)
{
    d->op.inputs[index].shape = shape;
}

static void out(draw *d, size_t index, cod_shape shape)
{
    d->op.outputs[index].shape = shape;
}

/** A random activation, and the slope when it is PReLU's. */
static void activation(draw *d, bool may_be_none, size_t slope_index, int64_t count)
{
    d->op.attr.activation = (cod_activation)between(d, may_be_none ? COD_ACT_NONE : COD_ACT_RELU, COD_ACT_TANH);
    d->op.attr.leak = 0.2f;
    if (d->op.attr.activation == COD_ACT_PRELU)
        in(d, slope_index, vector(chance(d) ? 1 : count));
}

static cod_shape window(draw *d, cod_shape x, int64_t kernel_h, int64_t kernel_w, int64_t outputs)
{
    cod_op_attr *attr = &d->op.attr;
    return (cod_shape){x.n, (x.h + 2 * attr->pad_h - kernel_h) / attr->stride_h + 1,
                       (x.w + 2 * attr->pad_w - kernel_w) / attr->stride_w + 1, outputs};
}

static void convolution(draw *d)
{
    cod_op_attr *attr = &d->op.attr;
    const bool linear = d->op.kind >= COD_OP_LINEAR;
    cod_shape x = linear ? matrix(d, 1) : image(d);
    cod_shape w = {channels(d), 1, 1, x.c}, y = {x.n, 1, 1, w.n};
    if (!linear) {
        attr->stride_h = (int)between(d, 1, 3), attr->stride_w = (int)between(d, 1, 3);
        attr->pad_h = (int)between(d, 0, 2), attr->pad_w = (int)between(d, 0, 2);
        w.h = between(d, 1, x.h + 2 * attr->pad_h < 5 ? x.h + 2 * attr->pad_h : 5);
        w.w = between(d, 1, x.w + 2 * attr->pad_w < 5 ? x.w + 2 * attr->pad_w : 5);
        if (chance(d) && chance(d)) { /* pixels shuffled */
            attr->factor = (int)between(d, 2, 3);
            w.n *= (int64_t)attr->factor * attr->factor;
        }
        y = window(d, x, w.h, w.w, w.n);
        const int64_t r = cod_op_shuffle(attr);
        y = (cod_shape){y.n, y.h * r, y.w * r, y.c / (r * r)};
    }
    switch (d->op.kind) {
    case COD_OP_CONV2D:
    case COD_OP_LINEAR:
        in(d, 0, x), in(d, 1, w), out(d, 0, y);
        if (chance(d))
            in(d, 2, vector(w.n));
        activation(d, true, 3, y.c);
        if (!linear && chance(d))
            in(d, 4, y);
        break;
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_LINEAR_BACKWARD_DATA:
        in(d, 0, y), in(d, 1, w), out(d, 0, x);
        break;
    default:
        in(d, 0, x), in(d, 1, y), out(d, 0, w);
        if (chance(d))
            out(d, 1, vector(w.n));
    }
}

/** A half of a normalisation that has other tensors than the whole ones. The shapes of x and y are set already. */
static void norm_half(draw *d, cod_shape x)
{
    const cod_shape v = vector(x.c), none = {0};
    switch (d->op.kind) {
    case COD_OP_NORM_STATISTICS:
        out(d, 0, v), out(d, 1, v);
        if (chance(d))
            out(d, 2, v), out(d, 3, v);
        break;
    case COD_OP_NORM_BACKWARD_REDUCE:
        in(d, 1, x);
        for (size_t i = 2; i <= 5; i++)
            in(d, i, v);
        out(d, 1, (cod_shape){1, 1, 2, x.c}), out(d, 2, v), out(d, 3, v);
        activation(d, true, 6, x.c);
        out(d, 0, d->op.attr.activation == COD_ACT_NONE && chance(d) ? none : x);
        d->op.outputs[4].shape = d->op.inputs[6].shape;
        break;
    default:
        in(d, 1, x), in(d, 5, (cod_shape){1, 1, 2, x.c});
        for (size_t i = 2; i <= 4; i++)
            in(d, i, v);
    }
}

static void norm(draw *d)
{
    cod_shape x = image(d);
    x.n += 1; /* so that each channel has at least two values */
    const cod_shape v = vector(x.c);
    d->op.attr.epsilon = 1e-3f;
    d->op.attr.momentum = 0.1f;
    in(d, 0, x), out(d, 0, x);
    switch (d->op.kind) {
    case COD_OP_NORM_TRAIN:
        in(d, 1, v), in(d, 2, v);
        for (size_t i = 1, last = chance(d) ? 4 : 2; i <= last; i++)
            out(d, i, v);
        activation(d, true, 3, x.c);
        if (chance(d))
            in(d, 4, x);
        break;
    case COD_OP_NORM_INFERENCE:
    case COD_OP_NORM_APPLY:
        for (size_t i = 1; i <= 4; i++)
            in(d, i, v);
        activation(d, true, 5, x.c);
        if (chance(d))
            in(d, 6, x);
        break;
    case COD_OP_NORM_BACKWARD:
        in(d, 1, x);
        for (size_t i = 2; i <= 5; i++)
            in(d, i, v);
        out(d, 1, v), out(d, 2, v);
        activation(d, true, 6, x.c);
        d->op.outputs[3].shape = d->op.inputs[6].shape;
        break;
    case COD_OP_NORM_INFERENCE_BACKWARD:
        in(d, 1, x);
        for (size_t i = 2; i <= 5; i++)
            in(d, i, v);
        activation(d, true, 6, x.c);
        break;
    case COD_OP_NORM_STATISTICS:
    case COD_OP_NORM_BACKWARD_REDUCE:
    case COD_OP_NORM_BACKWARD_APPLY:
        norm_half(d, x);
        break;
    default: {
        const cod_shape w = image(d);
        in(d, 0, w), out(d, 0, w), out(d, 1, vector(w.n));
        for (size_t i = chance(d) ? 1 : 2; i <= 5; i++)
            in(d, i, vector(w.n));
    }
    }
}

static void elementwise(draw *d)
{
    const cod_shape x = image(d);
    d->op.attr.alpha = (float)between(d, -2, 2), d->op.attr.beta = 0.5f * (float)between(d, -2, 2);
    out(d, 0, x);
    if (d->op.kind != COD_OP_FILL)
        in(d, 0, x);
    if (d->op.kind == COD_OP_ADD && chance(d))
        in(d, 1, x);
    if (d->op.kind == COD_OP_ACTIVATION)
        activation(d, true, 1, x.c);
    if (d->op.kind == COD_OP_ACTIVATION_BACKWARD) {
        in(d, 1, x);
        activation(d, true, 2, x.c);
        d->op.outputs[1].shape = d->op.inputs[2].shape;
    }
}

static void enlargement(draw *d)
{
    const int64_t factor = d->op.attr.factor = (int)between(d, 1, 4);
    d->op.attr.resize = (cod_resize_mode)between(d, COD_RESIZE_NEAREST, COD_RESIZE_BICUBIC);
    cod_shape small = image(d), large = {small.n, small.h * factor, small.w * factor, small.c};
    if (d->op.kind == COD_OP_PIXEL_SHUFFLE || d->op.kind == COD_OP_PIXEL_UNSHUFFLE)
        small.c *= factor * factor;
    const bool backward = d->op.kind == COD_OP_PIXEL_UNSHUFFLE || d->op.kind == COD_OP_RESIZE_BACKWARD;
    in(d, 0, backward ? large : small), out(d, 0, backward ? small : large);
}

static void turns(draw *d)
{
    cod_shape x = image(d);
    if (chance(d))
        x.w = x.h; /* or nothing is transposed */
    in(d, 0, x), in(d, 1, vector(x.n)), out(d, 0, x);
}

cod_shape cod_test_pooled(const cod_op_attr *attr, cod_shape x)
{
    if (attr->pool == COD_POOL_GLOBAL_AVERAGE)
        return (cod_shape){x.n, 1, 1, x.c};
    return (cod_shape){x.n, cod_pool_outputs(x.h, attr->kernel_h, attr->stride_h, attr->pad_h, attr->pool_ceil),
                       cod_pool_outputs(x.w, attr->kernel_w, attr->stride_w, attr->pad_w, attr->pool_ceil), x.c};
}

static void pooling(draw *d)
{
    cod_op_attr *attr = &d->op.attr;
    const cod_shape x = image(d);
    attr->pool = (cod_pool_kind)between(d, COD_POOL_MAX, COD_POOL_GLOBAL_AVERAGE);
    attr->stride_h = (int)between(d, 1, 3), attr->stride_w = (int)between(d, 1, 3);
    attr->kernel_h = (int)between(d, 1, x.h < 3 ? x.h : 3), attr->kernel_w = (int)between(d, 1, x.w < 3 ? x.w : 3);
    attr->pad_h = (int)between(d, 0, attr->kernel_h / 2), attr->pad_w = (int)between(d, 0, attr->kernel_w / 2);
    attr->pool_ceil = attr->pool == COD_POOL_MAX && chance(d);
    const cod_shape y = cod_test_pooled(attr, x);
    const bool backward = d->op.kind == COD_OP_POOL_BACKWARD;
    in(d, 0, backward ? y : x), out(d, 0, backward ? x : y);
    if (attr->pool == COD_POOL_MAX)
        (backward ? &d->op.inputs[1] : &d->op.outputs[1])->shape = y;
}

static void loss(draw *d)
{
    cod_op_attr *attr = &d->op.attr;
    attr->loss = (cod_loss_kind)between(d, COD_LOSS_L1, COD_LOSS_TV);
    attr->alpha = 0.5f * (float)between(d, 1, 4);
    attr->epsilon = 0.125f;
    attr->temperature = (float)between(d, 0, 3);
    const bool rows = attr->loss == COD_LOSS_KL || attr->loss == COD_LOSS_CROSS_ENTROPY;
    const bool two_sides = attr->loss != COD_LOSS_TV;
    const cod_shape x = rows ? matrix(d, 2) : image(d);
    in(d, 0, x);
    if (two_sides)
        in(d, 1, x);
    attr->smoothing = chance(d) ? 0.125f : 0;
    out(d, 0, vector(1));
    if (chance(d))
        in(d, 2, vector(1));
    if (chance(d))
        out(d, 1, x);
    if (two_sides && chance(d))
        out(d, 2, x);
}

static void parameters(draw *d)
{
    cod_op_attr *attr = &d->op.attr;
    const cod_shape x = vector(between(d, 1, 300));
    in(d, 0, x), out(d, 0, d->op.kind == COD_OP_GRAD_NORM ? vector(1) : x);
    if (d->op.kind == COD_OP_EMA)
        in(d, 1, vector(1));
    if (d->op.kind != COD_OP_OPTIMISER)
        return;
    attr->optimiser = (cod_optimiser_kind)between(d, COD_OPT_SGD, COD_OPT_ADAMW);
    attr->momentum = chance(d) ? 0.9f : 0;
    attr->nesterov = attr->momentum > 0 && chance(d);
    attr->weight_decay = chance(d) ? 0.01f : 0;
    attr->beta1 = 0.9f, attr->beta2 = 0.99f, attr->epsilon = 1e-3f;
    attr->max_norm = chance(d) ? 0.75f : 0;
    in(d, 1, vector(4));
    if (chance(d))
        in(d, 2, vector(1));
    if (attr->optimiser != COD_OPT_SGD || attr->momentum > 0)
        out(d, 1, x);
    if (attr->optimiser != COD_OPT_SGD)
        out(d, 2, x);
    if (chance(d))
        out(d, 3, x);
    if (chance(d)) {
        const cod_shape state = vector(between(d, 1, 300));
        in(d, 3, state), out(d, 4, state);
    }
}

static void mixture(draw *d)
{
    const cod_shape x = matrix(d, 2); /* of one class the logarithm is 0, but for rounding */
    in(d, 0, x), in(d, 1, vector(1)), out(d, 0, x);
    d->op.attr.temperature = chance(d) ? 2.5f : 0;
}

static void spectrum(draw *d)
{
    cod_shape w = image(d);
    w.n = channels(d);
    const cod_shape v = {1, w.h, w.w, w.c};
    if (d->op.kind == COD_OP_SPECTRAL_NORM) {
        in(d, 0, w), in(d, 1, vector(w.n));
        out(d, 0, w), out(d, 1, vector(1)), out(d, 2, vector(w.n)), out(d, 3, v);
    } else {
        in(d, 0, w), in(d, 1, w), in(d, 2, vector(1)), in(d, 3, vector(w.n)), in(d, 4, v), out(d, 0, w);
    }
}

static cod_dtype slot_dtype(const cod_op *op, size_t slot, cod_dtype activation_type, cod_dtype parameter)
{
    switch (cod_test_slot_class(op->kind, slot)) {
    case 'a':
        return activation_type;
    case 'i':
        return COD_I32;
    case 'f':
        return parameter == COD_F64 ? COD_F64 : COD_F32;
    default:
        return parameter;
    }
}

cod_op cod_test_random_op(cod_op_kind kind, cod_dtype activation_type, cod_dtype parameter, uint64_t seed)
{
    draw d = {.rng = cod_rng_open(seed, 0, 0, kind, COD_RNG_TEST, COD_TEST_SLOTS),
              .op = {.kind = kind, .name = cod_op_kind_name(kind), .deterministic = true}};
    d.op.accumulate = chance(&d);
    if (kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS)
        convolution(&d);
    else if (kind <= COD_OP_FOLD_NORM)
        norm(&d);
    else if (kind <= COD_OP_MEAN || kind == COD_OP_FILL)
        elementwise(&d);
    else if (kind <= COD_OP_RESIZE_BACKWARD)
        enlargement(&d);
    else if (kind <= COD_OP_POOL_BACKWARD)
        pooling(&d);
    else if (kind == COD_OP_LOSS)
        loss(&d);
    else if (kind == COD_OP_TURN)
        turns(&d);
    else if (kind == COD_OP_MIX)
        mixture(&d);
    else if (kind == COD_OP_SPECTRAL_NORM || kind == COD_OP_SPECTRAL_NORM_BACKWARD)
        spectrum(&d);
    else
        parameters(&d);
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        cod_view *view = cod_test_view(&d.op, slot);
        if (cod_shape_count(view->shape) == 0)
            continue;
        view->dtype = slot_dtype(&d.op, slot, activation_type, parameter);
        const bool slice = cod_test_slot_class(kind, slot) == 'a' && view->dtype != COD_I32 && between(&d, 0, 2) == 0;
        view->pixel_stride = view->shape.c + (slice ? between(&d, 1, 16) : 0);
    }
    return d.op;
}

bool cod_test_is_norm_half(cod_op_kind kind)
{
    return kind >= COD_OP_NORM_STATISTICS && kind <= COD_OP_NORM_BACKWARD_APPLY;
}

void cod_test_make_dense(cod_op *description)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        cod_view *view = cod_test_view(description, slot);
        view->pixel_stride = view->shape.c;
    }
}

/* Random values. */

/** Positive by nature: variances, inverse deviations, second moments, norms. */
static bool is_positive(cod_op_kind kind, size_t slot)
{
    const size_t outputs = COD_OP_MAX_INPUTS;
    return (kind == COD_OP_NORM_INFERENCE && slot == 4) || (kind == COD_OP_NORM_BACKWARD && slot == 5) ||
           (kind == COD_OP_NORM_INFERENCE_BACKWARD && slot == 5) || (kind == COD_OP_FOLD_NORM && slot == 5) ||
           (kind == COD_OP_NORM_TRAIN && slot == outputs + 4) ||
           (kind == COD_OP_NORM_STATISTICS && slot == outputs + 3) || (kind == COD_OP_NORM_APPLY && slot == 4) ||
           (kind == COD_OP_NORM_BACKWARD_REDUCE && slot == 5) || (kind == COD_OP_NORM_BACKWARD_APPLY && slot == 4) ||
           (kind == COD_OP_OPTIMISER && (slot == 1 || slot == 2 || slot == outputs + 2)) || kind == COD_OP_EMA ||
           (kind == COD_OP_MIX && slot == 1) || (kind == COD_OP_SPECTRAL_NORM_BACKWARD && slot == 2);
}

/** A position of the window that lies inside the image, for element `at` of y. */
static double valid_index(const cod_op *op, cod_rng *rng, int64_t at)
{
    const cod_shape y = op->inputs[0].shape, x = op->outputs[0].shape;
    const cod_op_attr *attr = &op->attr;
    const int64_t column = at / y.c % y.w, row = at / y.c / y.w % y.h;
    for (;;) {
        const int64_t i = cod_rng_below(rng, (uint32_t)attr->kernel_h),
                      j = cod_rng_below(rng, (uint32_t)attr->kernel_w);
        const int64_t h = row * attr->stride_h - attr->pad_h + i, w = column * attr->stride_w - attr->pad_w + j;
        if (h >= 0 && h < x.h && w >= 0 && w < x.w)
            return (double)(i * attr->kernel_w + j);
    }
}

static bool has_kink_at_zero(const cod_op *op, size_t slot)
{
    return (op->kind == COD_OP_ACTIVATION || op->kind == COD_OP_ACTIVATION_BACKWARD) && slot == 0;
}

/** A loss's prediction or target, from a normal number; `unique` is another number for each element. */
static double loss_value(cod_loss_kind kind, size_t slot, double normal, uint32_t unique, bool smooth)
{
    const bool target = slot == 1;
    if (target && kind == COD_LOSS_BCE)
        return 1 / (1 + exp(-normal)); /* a probability */
    if (target && kind == COD_LOSS_HINGE)
        return normal < 0 ? -1 : 1; /* a label */
    if (!smooth)
        return normal;
    if (target && kind == COD_LOSS_L1)
        return normal + copysign(8, normal); /* far from the prediction */
    if (kind == COD_LOSS_HINGE && fabs(fabs(normal) - 1) < 0.1)
        return normal + copysign(0.25, normal); /* the kink lies where prediction times label is 1 */
    return kind == COD_LOSS_TV ? 0.1 * unique : normal;
}

/**
 * A normal number. For convolutions, whose tensors are large, it is nearly normal: a sum of four uniform numbers with
 * the same mean and variance. Logarithms and cosines took half the time of their tests.
 */
static double draw_normal(const cod_op *op, cod_rng *rng)
{
    if (op->kind != COD_OP_CONV2D && op->kind != COD_OP_CONV2D_BACKWARD_DATA &&
        op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return cod_rng_normal(rng);
    const uint32_t a = cod_rng_u32(rng), b = cod_rng_u32(rng);
    return ((double)((a & 0xFFFF) + (a >> 16) + (b & 0xFFFF) + (b >> 16)) * 0x1p-16 - 2) * sqrt(3);
}

double *cod_test_random_values(const cod_op *description, size_t slot, uint64_t seed, bool smooth)
{
    const cod_op *op = description;
    const int64_t count = count_of(op, slot);
    cod_rng rng = cod_rng_open(seed, 1, 0, op->kind, COD_RNG_TEST, (uint32_t)slot);
    double *values = calloc((size_t)count + 1, sizeof *values);
    uint32_t *order = calloc((size_t)count + 1, sizeof *order);
    if (values == NULL || order == NULL)
        abort();
    cod_rng_permutation(&rng, order, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        const double normal = draw_normal(op, &rng);
        if (op->kind == COD_OP_POOL_BACKWARD && slot == 1)
            values[i] = valid_index(op, &rng, i);
        else if (op->kind == COD_OP_TURN && slot == 1)
            values[i] = cod_rng_below(&rng, 4 * COD_TURN_INVERT); /* with a bit that says nothing */
        else if (const_view(op, slot)->dtype == COD_I32)
            values[i] = 0;
        else if (const_view(op, slot)->dtype == COD_U8)
            values[i] = cod_rng_below(&rng, 256);
        else if (is_positive(op->kind, slot))
            values[i] = 0.25 + 0.5 * cod_rng_uniform(&rng);
        else if (smooth && op->kind == COD_OP_POOL && slot == 0)
            values[i] = 0.1 * order[i]; /* no two alike */
        else if (op->kind == COD_OP_LOSS && slot < 2)
            values[i] = loss_value(op->attr.loss, slot, normal, order[i], smooth);
        else if (smooth && has_kink_at_zero(op, slot))
            values[i] = normal + copysign(0.1, normal);
        else if (!smooth && has_kink_at_zero(op, slot) && i % 8 == 0)
            values[i] = 0;
        else
            values[i] = normal;
    }
    free(order);
    return values;
}
