#include "strategies/partition.h"

#include "core/queue.h"
#include "core/trace.h"

#include <math.h>
#include <stdlib.h>

/** Whether a parameter is used both before this node and from it on. */
static bool shares_weights(const cod_graph *graph, size_t cut)
{
    for (size_t before = 0; before < cut; before++) {
        const cod_node *a = cod_graph_node(graph, before);
        for (size_t behind = cut; behind < cod_graph_node_count(graph); behind++) {
            const cod_node *b = cod_graph_node(graph, behind);
            for (int k = 0; k < COD_NODE_MAX_PARAMS * COD_NODE_MAX_PARAMS; k++) {
                const int index = a->params[k / COD_NODE_MAX_PARAMS];
                if (index >= 0 && index == b->params[k % COD_NODE_MAX_PARAMS])
                    return true;
            }
        }
    }
    return false;
}

cod_status cod_layers_find(const cod_graph *graph, cod_arena *arena, cod_layer **layers, size_t *count)
{
    const size_t nodes = cod_graph_node_count(graph);
    *count = 0;
    *layers = cod_arena_alloc(arena, nodes * sizeof **layers);
    COD_REQUIRE_MEMORY(*layers);
    for (size_t i = 0; i < nodes; i++)
        if (cod_stage_may_begin(graph, i) && (*count == 0 || !shares_weights(graph, i)))
            (*layers)[(*count)++] = (cod_layer){.node = i, .name = cod_graph_node(graph, i)->name};
    COD_REQUIRE(*count > 0, "the model has no layers with weights");
    return COD_OK;
}

static size_t layer_of(const cod_layer *layers, size_t count, size_t node)
{
    size_t layer = 0;
    while (layer + 1 < count && layers[layer + 1].node <= node)
        layer++;
    return layer;
}

/**
 * Divides an op's cost among the layers that it is for, by their arithmetic: several layers' gradients may be one op.
 */
static void share_cost(const cod_program *program, size_t index, double cost, cod_layer *layers, size_t count)
{
    const double all = cod_program_op_parts(program, index) > 1 ? cod_program_op_flops(program, index) : 0;
    cod_op part;
    if (all == 0)
        layers[layer_of(layers, count, cod_program_op_node(program, index))].cost += cost;
    for (size_t i = 0; all > 0 && i < cod_program_op_parts(program, index); i++) {
        const size_t node = cod_program_op_part(program, index, i, &part);
        layers[layer_of(layers, count, node)].cost += cost * cod_op_flops(&part) / all;
    }
}

static cod_status add_costs(const cod_train_session *session, cod_executable *executable, bool timed, cod_layer *layers,
                            size_t count)
{
    enum { RUNS = 2 };
    cod_program *program = cod_executable_program(executable, session->programs[0].name);
    cod_op op;
    if (timed)
        COD_TRY(cod_program_run(program, NULL, NULL));
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        double cost = timed ? INFINITY : cod_program_op_flops(program, i);
        for (int r = 0; timed && r < RUNS; r++) {
            const double begin = cod_clock_s();
            COD_TRY(cod_program_run_op(program, i));
            COD_TRY(cod_queue_finish(session->backend, session->device, NULL));
            cost = fmin(cost, cod_clock_s() - begin);
        }
        share_cost(program, i, cost, layers, count);
    }
    return COD_OK;
}

cod_status cod_layers_measure(const cod_train_session *session, bool timed, cod_layer *layers, size_t count)
{
    cod_weights weights = {0}; /* separate weights, because running changes gradients and statistics */
    cod_executable *executable = NULL;
    cod_status status =
        cod_weights_init(&weights, session->backend, session->device, session->recipe.model.graph, COD_F32, true);
    COD_THEN(status, cod_weights_fill_initial(&weights, 1));
    COD_THEN(status, cod_train_session_compile_apart(session, &weights, (cod_stage){0}, &executable));
    COD_THEN(status, add_costs(session, executable, timed, layers, count));
    cod_executable_destroy(executable);
    if (weights.backend != NULL)
        cod_weights_clear(&weights);
    return status;
}

cod_status cod_partition(const double *costs, size_t count, size_t parts, size_t *first)
{
    /*
     * worst[k][i]: the least greatest sum of k + 1 parts of the first i costs; from[k][i]: where the last of them
     * begins.
     */
    double *sums = calloc(count + 1, sizeof *sums), *worst = calloc(parts * (count + 1), sizeof *worst);
    size_t *from = calloc(parts * (count + 1), sizeof *from);
    cod_status status = COD_OK;
    if (sums == NULL || worst == NULL || from == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for a division into %zu parts", parts);
    for (size_t i = 0; status == COD_OK && i < count; i++)
        sums[i + 1] = sums[i] + costs[i];
    for (size_t k = 0; status == COD_OK && k < parts; k++) {
        double *const now = worst + k * (count + 1), *const before = now - (count + 1);
        for (size_t i = k + 1; i <= count; i++) {
            now[i] = k == 0 ? sums[i] : INFINITY;
            for (size_t j = k; k > 0 && j < i; j++) {
                const double greatest = fmax(before[j], sums[i] - sums[j]);
                if (greatest < now[i]) {
                    now[i] = greatest;
                    from[k * (count + 1) + i] = j;
                }
            }
        }
    }
    first[parts] = count;
    for (size_t k = parts; status == COD_OK && k-- > 0;)
        first[k] = from[k * (count + 1) + first[k + 1]];
    free(sums);
    free(worst);
    free(from);
    return status;
}
