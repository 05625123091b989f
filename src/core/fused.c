#include "core/fused.h"

/** A product with what may stand beside it: halves of normalisations, an activation, or an activation's gradient. */
typedef struct fused_pattern {
    cod_op_kind before, product, after; /**< before: the product's own kind where nothing may stand there */
    size_t after_input;                 /**< index of the input of the op after it that is the product's output */
} fused_pattern;

static const fused_pattern patterns[] = {
    {COD_OP_NORM_APPLY, COD_OP_CONV2D, COD_OP_NORM_STATISTICS, 0},
    {COD_OP_NORM_BACKWARD_APPLY, COD_OP_CONV2D_BACKWARD_DATA, COD_OP_NORM_BACKWARD_REDUCE, 1},
    {COD_OP_CONV2D, COD_OP_CONV2D, COD_OP_ACTIVATION, 0},
    {COD_OP_CONV2D_BACKWARD_DATA, COD_OP_CONV2D_BACKWARD_DATA, COD_OP_ACTIVATION_BACKWARD, 1},
    {COD_OP_LINEAR_BACKWARD_DATA, COD_OP_LINEAR_BACKWARD_DATA, COD_OP_ACTIVATION_BACKWARD, 1},
};

/** Whether output `k` of `op` is a g or dx that takes the place of its dy. */
static bool is_in_place(const cod_op *op, size_t k)
{
    return (op->kind == COD_OP_NORM_BACKWARD_REDUCE || op->kind == COD_OP_ACTIVATION_BACKWARD) && k == 0 &&
           cod_view_equal(&op->outputs[0], &op->inputs[1]);
}

/**
 * Whether the two ops may run in any order of their elements, but for what `later` reads of `earlier` as the same view.
 */
static bool are_apart(const cod_op *earlier, const cod_op *later)
{
    for (size_t o = 0; o < COD_OP_MAX_OUTPUTS; o++) {
        const cod_view *made = &earlier->outputs[o], *next = &later->outputs[o];
        for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++) {
            if (cod_views_overlap(made, &later->inputs[i]) && !cod_view_equal(made, &later->inputs[i]))
                return false;
            if (cod_views_overlap(next, &earlier->inputs[i]))
                return false;
        }
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
            if (cod_views_overlap(made, &later->outputs[k]) &&
                !(is_in_place(later, k) && cod_view_equal(made, &later->outputs[k])))
                return false;
    }
    return true;
}

/** Whether ops[count] keeps apart from all before it. */
static bool is_apart_from_all(const cod_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!are_apart(&ops[i], &ops[count]))
            return false;
    return true;
}

static bool same_form(const cod_view *a, const cod_view *b)
{
    return a->dtype == b->dtype && cod_shape_equal(a->shape, b->shape) && a->pixel_stride == b->pixel_stride;
}

/** Whether two gradients of weights are the same computation on other tensors. */
static bool are_alike(const cod_op *a, const cod_op *b)
{
    const cod_view *db = &a->outputs[1], *other = &b->outputs[1];
    return a->kind == b->kind && a->accumulate == b->accumulate && a->deterministic == b->deterministic &&
           a->attr.stride_h == b->attr.stride_h && a->attr.stride_w == b->attr.stride_w &&
           a->attr.pad_h == b->attr.pad_h && a->attr.pad_w == b->attr.pad_w &&
           cod_op_shuffle(&a->attr) == cod_op_shuffle(&b->attr) && same_form(&a->inputs[0], &b->inputs[0]) &&
           same_form(&a->inputs[1], &b->inputs[1]) && same_form(&a->outputs[0], &b->outputs[0]) &&
           (db->buffer == NULL || other->buffer == NULL || same_form(db, other));
}

static cod_fused weight_gradients(const cod_op *ops, size_t count)
{
    cod_fused fused = {.count = 1};
    while (fused.count < count && are_alike(&ops[0], &ops[fused.count]) && is_apart_from_all(ops, fused.count))
        fused.count++;
    fused.product = fused.count > 1 ? &ops[0] : NULL;
    return fused;
}

/** Whether ops[at] is of this kind and has the view that ops[at - 1] makes as its input `input`. */
static bool continues(const cod_op *ops, size_t at, size_t count, cod_op_kind kind, size_t input)
{
    if (at >= count || ops[at].kind != kind || ops[at - 1].outputs[0].buffer == NULL ||
        !cod_view_equal(&ops[at - 1].outputs[0], &ops[at].inputs[input]))
        return false;
    if (kind == COD_OP_ACTIVATION_BACKWARD &&
        (!is_in_place(&ops[at], 0) || ops[at].accumulate || ops[at - 1].accumulate))
        return false;
    return is_apart_from_all(ops, at);
}

cod_fused cod_fused_sequence(const cod_op *ops, size_t count)
{
    const cod_fused none = {.count = count > 0 ? 1 : 0};
    if (count < 2)
        return none;
    if (ops[0].kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return weight_gradients(ops, count);
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        const fused_pattern *pattern = &patterns[p];
        cod_fused fused = {.count = 1};
        if (pattern->before != pattern->product && ops[0].kind == pattern->before &&
            continues(ops, 1, count, pattern->product, 0)) {
            fused.before = &ops[0];
            fused.count = 2;
        } else if (ops[0].kind != pattern->product) {
            continue;
        }
        fused.product = &ops[fused.count - 1];
        if (continues(ops, fused.count, count, pattern->after, pattern->after_input))
            fused.after = &ops[fused.count++];
        if (fused.count > 1)
            return fused;
    }
    return none;
}
