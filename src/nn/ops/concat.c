/* CONCAT and SLICE: values joined along channels, and some channels of an input. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_concat(cod_graph *graph, const cod_value *parts, int count)
{
    if (count < 1 || count > COD_NODE_MAX_INPUTS) {
        GRAPH_FAIL(graph, "a concatenation takes 1 to %d parts, not %d", COD_NODE_MAX_INPUTS, count);
        return 0;
    }
    cod_node node = graph_new_node(COD_NODE_CONCAT, 0);
    for (int i = 0; i < count; i++) {
        node.inputs[node.input_count++] = parts[i];
        node.channels += graph_channels(graph, parts[i]);
    }
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_slice(cod_graph *graph, cod_value input, int64_t first, int64_t channels)
{
    if (graph_has_failed(graph))
        return 0;
    const cod_node *of = cod_graph_producer(graph, input);
    if (of->kind != COD_NODE_INPUT || first < 0 || channels < 1 || first > of->channels - channels) {
        GRAPH_FAIL(graph, "channels %lld to %lld cannot be taken of '%s', which has %lld: only those of an input can",
                   (long long)first, (long long)(first + channels - 1), of->name, (long long)of->channels);
        return 0;
    }
    cod_node node = graph_new_unary(graph, COD_NODE_SLICE, input);
    node.channels = channels;
    node.first_channel = first;
    return graph_add_node(graph, node, NULL);
}

/** Whether an op of the program writes `value`, as the last of what is fused. */
static bool an_op_makes(const lowering *lower, cod_value value)
{
    for (size_t i = lower_producer(lower, value) + 1; i-- > 0;)
        if (lower->groups[i].live && lower->groups[i].output == value)
            return lower_node(lower, i)->kind != COD_NODE_INPUT && !lower->groups[i].rules->is_view;
    return false;
}

void concat_reserve(lowering *lower)
{
    if (lower->context->options->bands)
        return;
    /* Backwards, so that a concatenation within another is sliced first. */
    for (size_t i = cod_graph_node_count(lower->context->graph); i-- > 0;) {
        const cod_node *node = lower_node(lower, i);
        if (!lower->groups[i].live || node->kind != COD_NODE_CONCAT)
            continue;
        lower->node = i;
        const int whole = lower_output(lower, node->output);
        int64_t channel = 0;
        for (int k = 0; k < node->input_count; k++) {
            const cod_value part = node->inputs[k];
            const cod_shape shape = lower->context->shapes[part];
            if (lower->tensor[part] == 0 && an_op_makes(lower, part) && !lower_is_output(lower, part) &&
                lower_value_dtype(lower, part) == lower_value_dtype(lower, node->output))
                lower->tensor[part] = lower_view(lower, whole, channel, shape, false);
            channel += shape.c;
        }
    }
}

/** Copies the parts that do not lie in the whole already. */
static void concat_forward(lowering *lower, const cod_node *node, lower_group *group)
{
    const int whole = lower_output(lower, group->output);
    int64_t channel = 0;
    for (int k = 0; k < node->input_count; k++) {
        const int part = lower->tensor[node->inputs[k]];
        const ir_tensor *tensor = &lower->program->tensors[part];
        const cod_shape shape = lower->context->shapes[node->inputs[k]];
        if (tensor->root != whole || tensor->channel != channel)
            lower_copy(lower, part, lower_view(lower, whole, channel, shape, false));
        channel += shape.c;
    }
}

static void concat_backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_views(lower, node, dy, false);
}

static void slice_forward(lowering *lower, const cod_node *node, lower_group *group)
{
    const cod_shape shape = lower->context->shapes[node->output];
    const int from = lower_view(lower, lower->tensor[node->inputs[0]], node->first_channel, shape, false);
    lower_copy(lower, from, lower_output(lower, group->output));
}

const node_rules node_concat = {.shape = node_shape_of_all,
                                .forward = concat_forward,
                                .backward = concat_backward,
                                .differentiable = node_all_inputs,
                                .taps = node_no_taps,
                                .op = COD_OP_ADD,
                                .keeps_precision = true};

const node_rules node_slice = {.forward = slice_forward, .taps = node_no_taps, .op = COD_OP_ADD};
