/* Parts of inputs along channels. */
#include "nn/graph_internal.h"

cod_value cod_graph_slice(cod_graph *graph, cod_value input, int64_t first, int64_t channels)
{
    if (cod_graph_status(graph) != COD_OK)
        return 0;
    const cod_node *of = cod_graph_producer(graph, input);
    if (of->kind != COD_NODE_INPUT || first < 0 || channels < 1 || first > of->channels - channels) {
        cod_graph_fail(graph, cod_fail(COD_ERR_ARGUMENT,
                                       "channels %lld to %lld cannot be taken of '%s', which has %lld: only those of "
                                       "an input can",
                                       (long long)first, (long long)(first + channels - 1), of->name,
                                       (long long)of->channels));
        return 0;
    }
    const cod_node node = {.kind = COD_NODE_SLICE,
                           .input_count = 1,
                           .inputs = {input},
                           .params = {-1, -1, -1, -1, -1},
                           .channels = channels,
                           .weight_scalar = -1,
                           .first_channel = first};
    return graph_add_node(graph, node, NULL);
}
