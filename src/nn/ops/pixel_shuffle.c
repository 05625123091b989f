/* PIXEL_SHUFFLE and PIXEL_UNSHUFFLE: channels become pixels, and pixels channels. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_pixel_shuffle(cod_graph *graph, cod_value x, int factor)
{
    const int64_t channels = graph_channels(graph, x);
    if (!graph_has_failed(graph) && (factor < 1 || channels % ((int64_t)factor * factor) != 0)) {
        GRAPH_FAIL(graph, "pixel shuffle by %d needs a multiple of %d channels, not %lld", factor, factor * factor,
                   (long long)channels);
        return 0;
    }
    cod_node node = graph_new_unary(graph, COD_NODE_PIXEL_SHUFFLE, x);
    node.channels = channels / ((int64_t)factor * factor);
    node.attr.factor = factor;
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_pixel_unshuffle(cod_graph *graph, cod_value x, int factor)
{
    if (factor < 1) {
        GRAPH_FAIL(graph, "pixel unshuffle by %d", factor);
        return 0;
    }
    cod_node node = graph_new_unary(graph, COD_NODE_PIXEL_UNSHUFFLE, x);
    node.channels *= (int64_t)factor * factor;
    node.attr.factor = factor;
    return graph_add_node(graph, node, NULL);
}

static cod_status unshuffle_shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)context;
    const int factor = node->attr.factor;
    COD_REQUIRE(x.h % factor == 0 && x.w % factor == 0, "'%s': sides of %lldx%lld pixels are no multiples of %d",
                node->name, (long long)x.h, (long long)x.w, factor);
    out->h = x.h / factor;
    out->w = x.w / factor;
    return COD_OK;
}

static void shuffle_backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_plain(lower, node, COD_OP_PIXEL_UNSHUFFLE, dy, 0);
}

static void unshuffle_backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_written(lower, node, COD_OP_PIXEL_SHUFFLE, dy, 0);
}

const node_rules node_pixel_shuffle = {.forward = node_forward_plain,
                                       .backward = shuffle_backward,
                                       .differentiable = node_all_inputs,
                                       .taps = node_no_taps,
                                       .scale = NODE_ENLARGES,
                                       .op = COD_OP_PIXEL_SHUFFLE};

const node_rules node_pixel_unshuffle = {.shape = unshuffle_shape,
                                         .forward = node_forward_plain,
                                         .backward = unshuffle_backward,
                                         .differentiable = node_all_inputs,
                                         .taps = node_no_taps,
                                         .scale = NODE_REDUCES,
                                         .op = COD_OP_PIXEL_UNSHUFFLE};
