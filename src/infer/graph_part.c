#include "infer_internal.h"

#include <math.h>

size_t cod_node_index(const cod_graph *graph, const cod_node *node)
{
    return (size_t)(node - cod_graph_node(graph, 0));
}

cod_status cod_graph_part_find(const cod_model *model, cod_arena *arena, graph_part *part)
{
    const cod_graph *graph = model->graph;
    const size_t nodes = cod_graph_node_count(graph), params = cod_graph_param_count(graph);
    *part = (graph_part){
        .nodes = cod_arena_alloc(arena, nodes * sizeof *part->nodes),
        .params = cod_arena_alloc(arena, params * sizeof *part->params),
        .readers = cod_arena_alloc(arena, nodes * sizeof *part->readers),
    };
    COD_REQUIRE_MEMORY(part->nodes);
    COD_REQUIRE_MEMORY(part->params);
    COD_REQUIRE_MEMORY(part->readers);
    const cod_node *last = cod_graph_producer(graph, model->output);
    COD_REQUIRE(last != NULL, "the model has no output");
    part->nodes[cod_node_index(graph, last)] = true;
    part->readers[cod_node_index(graph, last)] = 1;
    /* Nodes stand in an order of execution, so one pass backwards reaches all. */
    for (size_t i = nodes; i-- > 0;) {
        const cod_node *node = cod_graph_node(graph, i);
        if (!part->nodes[i])
            continue;
        for (int k = 0; k < node->input_count; k++) {
            const size_t producer = cod_node_index(graph, cod_graph_producer(graph, node->inputs[k]));
            part->nodes[producer] = true;
            part->readers[producer]++;
        }
        for (int k = 0; k < COD_NODE_MAX_PARAMS; k++)
            if (node->params[k] >= 0)
                part->params[node->params[k]] = true;
    }
    return COD_OK;
}

/** How far a value's pixels see, in input pixels, and how many of them there are to an input pixel. */
typedef struct reach {
    double scale, pixels;
    bool unbounded;
} reach;

static reach node_reach(const cod_graph *graph, const cod_node *node, reach widest)
{
    const cod_node_reach own = cod_graph_reach(graph, node);
    /* Largest distance between the centres of an output pixel and of an input pixel at its place, in input pixels. */
    const double centres = own.scale > 1 ? (1 - 1 / own.scale) / 2 : (1 / own.scale - 1) / 2;
    return (reach){.scale = widest.scale * own.scale,
                   .pixels = widest.pixels + (centres + own.taps) / widest.scale,
                   .unbounded = widest.unbounded || own.whole};
}

int64_t cod_model_halo(const cod_model *model, const graph_part *part)
{
    const cod_graph *graph = model->graph;
    const size_t count = cod_graph_node_count(graph);
    cod_arena arena = {0};
    reach *reaches = cod_arena_alloc(&arena, count * sizeof *reaches);
    int64_t halo = -1;
    for (size_t i = 0; i < count && reaches != NULL; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (!part->nodes[i])
            continue;
        reach widest = {.scale = 1};
        for (int k = 0; k < node->input_count; k++) {
            const reach in = reaches[cod_node_index(graph, cod_graph_producer(graph, node->inputs[k]))];
            widest.unbounded |= in.unbounded;
            widest.pixels = fmax(widest.pixels, in.pixels);
            widest.scale = in.scale;
        }
        reaches[i] = node_reach(graph, node, widest);
        if (node->output == model->output && !reaches[i].unbounded)
            halo = (int64_t)ceil(reaches[i].pixels + 0.5 - 1e-9); /* + 0.5: from the centre to the pixel's edge */
    }
    cod_arena_clear(&arena);
    return halo;
}

cod_status cod_model_check_upscales(const cod_model *model)
{
    const cod_node *in = cod_graph_producer(model->graph, model->input);
    const cod_node *out = cod_graph_producer(model->graph, model->output);
    COD_REQUIRE(model->kind->scale != NULL, "a model of kind '%s' does not upscale pictures", model->kind->name);
    COD_REQUIRE(in->channels == 3 && out->channels == 3,
                "the model takes %lld channels and gives %lld; pictures have 3", (long long)in->channels,
                (long long)out->channels);
    return COD_OK;
}
