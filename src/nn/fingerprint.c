#include "nn/graph.h"

#include "core/hash.h"

#include <string.h>

uint64_t cod_graph_fingerprint(const cod_graph *graph, cod_sets sets)
{
    uint64_t print = 0;
    for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
        const cod_param *param = cod_graph_param(graph, i);
        if ((sets & cod_set_of(param->set)) == 0)
            continue;
        print = cod_hash(param->name, strlen(param->name), print);
        print = cod_hash(&param->shape, sizeof param->shape, print);
    }
    return print;
}
