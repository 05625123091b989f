/* INPUT: what is given to a program. */
#include "nn/ops/ops_internal.h"

#include <string.h>

/** Programs find inputs by their names. */
static cod_value add(cod_graph *graph, cod_node node, const char *name)
{
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        if (cod_graph_node(graph, i)->kind == COD_NODE_INPUT && strcmp(cod_graph_node(graph, i)->name, name) == 0) {
            GRAPH_FAIL(graph, "two inputs are called '%s'", name);
            return 0;
        }
    }
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_input(cod_graph *graph, const char *name, int64_t channels)
{
    return add(graph, graph_new_node(COD_NODE_INPUT, channels), name);
}

cod_value cod_graph_input_like_of(cod_graph *graph, const char *name, cod_value like, int64_t channels)
{
    cod_node node = graph_new_node(COD_NODE_INPUT, channels);
    node.like = like;
    return like ? add(graph, node, name) : 0;
}

cod_value cod_graph_input_like(cod_graph *graph, const char *name, cod_value like)
{
    return cod_graph_input_like_of(graph, name, like, graph_channels(graph, like));
}

static cod_status shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    if (node->like)
        return node_shape_like(context, node, x, out);
    for (size_t i = 0; i < context->options->input_count; i++) {
        const cod_input_shape *given = &context->options->inputs[i];
        if (strcmp(given->name, node->name) != 0)
            continue;
        if (given->shape.n < 1 || given->shape.h < 1 || given->shape.w < 1 || given->shape.c != node->channels)
            return cod_fail(COD_ERR_ARGUMENT, "input '%s' cannot be %lldx%lldx%lldx%lld; it has %lld channels",
                            node->name, (long long)given->shape.n, (long long)given->shape.h, (long long)given->shape.w,
                            (long long)given->shape.c, (long long)node->channels);
        *out = given->shape;
    }
    return COD_OK;
}

static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    const ir_context *context = lower->context;
    lower->tensor[node->output] = lower_placed_tensor(lower, context->shapes[node->output], ir_wide_dtype(context),
                                                      IR_IO, context->input_offset[group - lower->groups]);
}

const node_rules node_input = {.shape = shape, .forward = forward, .taps = node_no_taps, .op = COD_OP_ADD};
