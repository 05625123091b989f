/**
 * @file
 * What files that add nodes to a graph share.
 */
#ifndef COD_NN_GRAPH_INTERNAL_H
#define COD_NN_GRAPH_INTERNAL_H

#include "nn/graph.h"

/**
 * Adds a node, of which the caller gives everything except name and output, and returns its output; 0 on failure, or if
 * the graph has failed before.
 *
 * @param name  copied; NULL = its number
 */
cod_value graph_add_node(cod_graph *graph, cod_node node, const char *name);

#endif
