#include "nn/stage.h"

bool cod_stage_may_begin(const cod_graph *graph, size_t node)
{
    const cod_node_kind kind = cod_graph_node(graph, node)->kind;
    return kind == COD_NODE_CONV2D || kind == COD_NODE_LINEAR;
}

/** Offset of the first parameter of the wanted sort that a node from `node` on uses; `end` where there is none. */
static size_t first_used(const cod_graph *graph, size_t node, bool state, size_t end)
{
    size_t first = end;
    for (; node < cod_graph_node_count(graph); node++) {
        for (int k = 0; k < COD_NODE_MAX_PARAMS; k++) {
            const int index = cod_graph_node(graph, node)->params[k];
            const cod_param *param = index >= 0 ? cod_graph_param(graph, (size_t)index) : NULL;
            if (param != NULL && param->is_state == state && param->offset < first)
                first = param->offset;
        }
    }
    return first;
}

/** Whether the stage has all parameters of this sort that the node uses. */
static cod_status check_node(const cod_graph *graph, const cod_node *node, bool state, const cod_stage_range *range)
{
    for (int k = 0; k < COD_NODE_MAX_PARAMS; k++) {
        const cod_param *param = node->params[k] >= 0 ? cod_graph_param(graph, (size_t)node->params[k]) : NULL;
        if (param != NULL && param->is_state == state)
            COD_REQUIRE(param->offset >= range->first && param->offset - range->first < range->count,
                        "'%s' is used on both sides of a cut: layers that share weights belong to one stage",
                        param->name);
    }
    return COD_OK;
}

cod_status cod_stage_find_range(const cod_graph *graph, const cod_layout *layout, const cod_stage *stage, bool state,
                                cod_stage_range *out)
{
    const size_t begin = state ? layout->trainable : 0, end = begin + (state ? layout->state : layout->trainable);
    *out = (cod_stage_range){begin, end - begin};
    if (!cod_stage_is_part(stage))
        return COD_OK;
    if (stage->first > 0)
        out->first = first_used(graph, stage->first, state, end);
    const size_t own_end = first_used(graph, stage->end, state, end);
    out->count = own_end > out->first ? own_end - out->first : 0;
    for (size_t node = stage->first; node < stage->end; node++)
        COD_TRY(check_node(graph, cod_graph_node(graph, node), state, out));
    return COD_OK;
}
