/* Gradients as values of a graph: one node for each operation that they pass, which shares its parameters. */
#include "nn/ops/ops_internal.h"

#include <stdlib.h>

typedef struct gradients {
    cod_graph *graph;
    bool *depends;   /**< [value] on x */
    cod_value *grad; /**< [value] 0 = none yet */
} gradients;

/** The gradient by the input of `of` where `dy` is that by its output. */
static cod_value backward(cod_graph *graph, const cod_node *of, cod_value dy)
{
    const node_rules *rules = node_rules_of(of->kind);
    const cod_value dx = rules->gradient != NULL ? rules->gradient(graph, of, dy) : 0;
    if (dx == 0)
        GRAPH_FAIL(graph,
                   "'%s': losses cannot read a gradient that passes it; it may pass convolutions, ReLU, leaky ReLU, "
                   "enlargements and sums without factors",
                   of->name);
    return dx;
}

static void contribute(gradients *g, cod_value value, cod_value more)
{
    if (g->depends[value])
        g->grad[value] = g->grad[value] != 0 ? cod_graph_add(g->graph, g->grad[value], more) : more;
}

/** Marks which of the first `nodes` nodes depend on x. */
static void mark_dependent(gradients *g, size_t nodes, cod_value x)
{
    g->depends[x] = true;
    for (size_t i = 0; i < nodes; i++) {
        const cod_node *node = cod_graph_node(g->graph, i);
        for (int k = 0; k < node->input_count; k++)
            g->depends[node->output] = g->depends[node->output] || g->depends[node->inputs[k]];
    }
}

static void pass_node(gradients *g, size_t index)
{
    const cod_node node = *cod_graph_node(g->graph, index); /* nodes move where others are added */
    const cod_value dy = g->grad[node.output];
    if (node.kind == COD_NODE_ADD && node.attr.alpha == 1 && node.attr.beta == 1) {
        contribute(g, node.inputs[0], dy);
        contribute(g, node.inputs[1], dy);
        return;
    }
    contribute(g, node.inputs[0], backward(g->graph, &node, dy));
}

cod_value cod_graph_gradient(cod_graph *graph, cod_value y, cod_value dy, cod_value x)
{
    if (cod_graph_producer(graph, y) == NULL || cod_graph_producer(graph, dy) == NULL ||
        cod_graph_producer(graph, x) == NULL)
        return 0;
    const size_t nodes = cod_graph_node_count(graph);
    gradients g = {
        .graph = graph, .depends = calloc(nodes + 1, sizeof *g.depends), .grad = calloc(nodes + 1, sizeof *g.grad)};
    cod_value dx = 0;
    if (g.depends == NULL || g.grad == NULL) {
        cod_graph_fail(graph, cod_fail(COD_ERR_MEMORY, "out of memory for a gradient"));
        goto cleanup;
    }
    mark_dependent(&g, nodes, x);
    contribute(&g, y, dy);
    for (size_t i = nodes; i-- > 0;) {
        const cod_value made = cod_graph_node(graph, i)->output;
        if (g.grad[made] != 0 && made != x)
            pass_node(&g, i);
    }
    dx = g.grad[x];
    if (dx == 0)
        cod_graph_fail(graph, cod_fail(COD_ERR_ARGUMENT, "'%s' does not depend on '%s'",
                                       cod_graph_producer(graph, y)->name, cod_graph_producer(graph, x)->name));
cleanup:
    free(g.depends);
    free(g.grad);
    return dx;
}
