/* What several kinds of nodes share. */
#include "nn/ops/ops_internal.h"

int node_all_inputs(const cod_node *node)
{
    return node->input_count;
}

int node_first_input(const cod_node *node)
{
    (void)node;
    return 1;
}

int node_no_taps(const cod_op_attr *attr, cod_shape kernel)
{
    (void)attr, (void)kernel;
    return 0;
}

void node_forward_plain(lowering *lower, const cod_node *node, lower_group *group)
{
    group->pre_x = lower->tensor[node->inputs[0]];
    lower_emit(lower, (ir_instr){.kind = group->rules->op,
                                 .attr = node->attr,
                                 .inputs = {group->pre_x, node->input_count > 1 ? lower->tensor[node->inputs[1]] : 0},
                                 .outputs = {lower_output(lower, group->output)},
                                 .name = node->name});
}

cod_status node_window(const cod_node *node, int64_t in, int64_t kernel, int pad, int stride, int64_t *out)
{
    if (stride < 1 || kernel < 1 || in + 2 * pad < kernel)
        return cod_fail(COD_ERR_ARGUMENT,
                        "'%s': a window of %lld (stride %d, padding %d) does not fit an input of %lld", node->name,
                        (long long)kernel, stride, pad, (long long)in);
    *out = (in + 2 * pad - kernel) / stride + 1;
    return COD_OK;
}

cod_status node_shape_like(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)x;
    *out = context->shapes[node->like];
    return COD_OK;
}

cod_status node_shape_of_all(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)out;
    for (int i = 1; i < node->input_count; i++) {
        const cod_shape other = context->shapes[node->inputs[i]];
        if (x.n != other.n || x.h != other.h || x.w != other.w)
            return cod_fail(COD_ERR_ARGUMENT,
                            "'%s': inputs of %lldx%lldx%lld and %lldx%lldx%lld (batch, height, width) do not fit",
                            node->name, (long long)x.n, (long long)x.h, (long long)x.w, (long long)other.n,
                            (long long)other.h, (long long)other.w);
    }
    return COD_OK;
}

void node_backward_plain(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with)
{
    bool adds;
    const int dx = lower_contribution(lower, node->inputs[0], &adds);
    lower_emit(lower, (ir_instr){.kind = kind,
                                 .attr = node->attr,
                                 .accumulate = adds,
                                 .inputs = {dy, with},
                                 .outputs = {dx},
                                 .name = node->name});
}

void node_backward_written(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with)
{
    const cod_value x = node->inputs[0];
    if (!lower->needs_grad[x])
        return;
    const int dx = lower_new_tensor(lower, lower->context->shapes[x], lower->context->options->activation);
    lower_emit(lower,
               (ir_instr){.kind = kind, .attr = node->attr, .inputs = {dy, with}, .outputs = {dx}, .name = node->name});
    lower_contribute(lower, x, dx, 1);
}

/** A view of the gradient tensor `of`; a copy where `of` is a slice and cannot be seen in another shape. */
static int gradient_view(lowering *lower, int of, int64_t channel, cod_shape shape, bool reshaped)
{
    if (reshaped && lower->program->tensors[of].root != of) {
        const int dense = lower_new_tensor(lower, lower->program->tensors[of].shape, lower->program->tensors[of].dtype);
        lower_copy(lower, of, dense);
        of = dense;
    }
    return lower_view(lower, of, channel, shape, reshaped);
}

void node_backward_views(lowering *lower, const cod_node *node, int dy, bool reshaped)
{
    int64_t channel = 0;
    for (int k = 0; k < node->input_count; k++) {
        const cod_value part = node->inputs[k];
        const cod_shape shape = lower->context->shapes[part];
        if (lower->needs_grad[part])
            lower_contribute(lower, part, gradient_view(lower, dy, channel, shape, reshaped), 1);
        channel += shape.c;
    }
}
