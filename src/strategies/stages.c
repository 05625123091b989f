#include "strategies/stages.h"

#include <stdio.h>
#include <string.h>

/** The layers' names, as many as fit. */
static void list_names(const cod_stages *s, char list[512])
{
    size_t used = 0;
    list[0] = '\0';
    for (size_t i = 1; i < s->layer_count && used + 64 < 512; i++)
        used += (size_t)snprintf(list + used, 512 - used, "%s%.40s", i > 1 ? ", " : "", s->layers[i].name);
    if (used + 64 >= 512)
        snprintf(list + used, 512 - used, ", …");
}

static cod_status unknown_layer(const cod_stages *s, const char *name)
{
    char list[512];
    const char *names[1024];
    size_t count = 0;
    for (; count < 1024 && count + 1 < s->layer_count; count++)
        names[count] = s->layers[count + 1].name;
    const char *near = cod_suggest(name, names, count);
    list_names(s, list);
    return cod_fail(COD_ERR_ARGUMENT,
                    "model_parallel.cuts: a stage cannot begin with '%s'; %s%s%s layers to begin with are: %s", name,
                    near != NULL ? "did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "", list);
}

static cod_status cut_by_names(cod_stages *s, const cod_string_list *cuts)
{
    COD_REQUIRE((int)cuts->count == s->count - 1,
                "model_parallel.cuts: %zu cut%s make%s %zu stages, not %d (model_parallel.stages)", cuts->count,
                cuts->count == 1 ? "" : "s", cuts->count == 1 ? "s" : "", cuts->count + 1, s->count);
    for (int k = 1; k < s->count; k++) {
        const char *name = cuts->items[k - 1];
        size_t layer = 1;
        while (layer < s->layer_count && strcmp(s->layers[layer].name, name) != 0)
            layer++;
        if (layer >= s->layer_count)
            return unknown_layer(s, name);
        COD_REQUIRE(layer > s->first[k - 1], "model_parallel.cuts: '%s' does not come after '%s'; name layers in order",
                    name, cuts->items[k - 2]);
        s->first[k] = layer;
    }
    s->first[s->count] = s->layer_count;
    return COD_OK;
}

static cod_status cut_by_costs(cod_stages *s)
{
    double *costs = cod_arena_alloc(&s->arena, s->layer_count * sizeof *costs);
    COD_REQUIRE_MEMORY(costs);
    for (size_t i = 0; i < s->layer_count; i++)
        costs[i] = s->layers[i].cost;
    return cod_partition(costs, s->layer_count, (size_t)s->count, s->first);
}

/** All ranks must cut at the same places, whatever they would measure. */
static cod_status agree_on_costs(const cod_train_session *session, cod_group *group, cod_stages *s)
{
    const bool first = group == NULL || cod_group_rank(group) == 0;
    const cod_status status = first ? cod_layers_measure(session, s->timed, s->layers, s->layer_count) : COD_OK;
    if (group == NULL)
        return status;
    COD_TRY(cod_group_agree(group, status, NULL));
    double *costs = cod_arena_alloc(&s->arena, s->layer_count * sizeof *costs);
    COD_TRY(cod_group_agree(group, costs != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory"), NULL));
    for (size_t i = 0; i < s->layer_count; i++)
        costs[i] = s->layers[i].cost;
    COD_TRY(cod_group_broadcast(group, costs, s->layer_count * sizeof *costs, 0));
    for (size_t i = 0; i < s->layer_count; i++)
        s->layers[i].cost = costs[i];
    return COD_OK;
}

static cod_status fill(const cod_train_session *session, cod_stages *s)
{
    const cod_graph *graph = session->recipe.model.graph;
    double total = 0;
    for (int k = 0; k < s->count; k++) {
        s->nodes[k].first = k > 0 ? s->layers[s->first[k]].node : 0;
        s->nodes[k].end = k + 1 < s->count ? s->layers[s->first[k + 1]].node : cod_graph_node_count(graph);
        for (size_t i = s->first[k]; i < s->first[k + 1]; i++)
            s->shares[k] += s->layers[i].cost;
        total += s->shares[k];
        for (int state = 0; state < 2; state++)
            COD_TRY(
                cod_stage_find_range(graph, &session->weights.layout, &s->nodes[k], state != 0, &s->ranges[k][state]));
    }
    for (int k = 0; k < s->count; k++)
        s->shares[k] = total > 0 ? s->shares[k] / total : 1.0 / s->count;
    return COD_OK;
}

static cod_status find_layers(const cod_train_session *session, int count, cod_stages *s)
{
    const size_t stages = (size_t)count;
    COD_TRY(cod_layers_find(session->recipe.model.graph, &s->arena, &s->layers, &s->layer_count));
    COD_REQUIRE(stages <= s->layer_count,
                "model_parallel.stages: %d stages are more than the %zu layers with weights that model '%s' has; at "
                "most %zu ranks can hold it together",
                count, s->layer_count, session->recipe.model.kind->name, s->layer_count);
    s->count = count;
    s->first = cod_arena_alloc(&s->arena, (stages + 1) * sizeof *s->first);
    s->nodes = cod_arena_alloc(&s->arena, stages * sizeof *s->nodes);
    s->ranges = cod_arena_alloc(&s->arena, stages * sizeof *s->ranges);
    s->shares = cod_arena_alloc(&s->arena, stages * sizeof *s->shares);
    COD_REQUIRE_MEMORY(s->first);
    COD_REQUIRE_MEMORY(s->nodes);
    COD_REQUIRE_MEMORY(s->ranges);
    COD_REQUIRE_MEMORY(s->shares);
    return COD_OK;
}

cod_status cod_stages_divide(const cod_train_session *session, cod_group *group, int count, const cod_string_list *cuts,
                             cod_stages *s)
{
    const cod_train_options *train = &session->config->train;
    *s = (cod_stages){.timed = train->autotune && !train->deterministic && cuts->count == 0};
    cod_status status = find_layers(session, count, s);
    if (cuts->count > 0)
        COD_THEN(status, cut_by_names(s, cuts));
    if (group != NULL)
        COD_TRY(cod_group_agree(group, status, NULL));
    COD_TRY(status);
    COD_TRY(agree_on_costs(session, group, s));
    status = cuts->count > 0 ? COD_OK : cut_by_costs(s);
    COD_THEN(status, fill(session, s));
    return group != NULL ? cod_group_agree(group, status, NULL) : status;
}

void cod_stages_clear(cod_stages *s)
{
    cod_arena_clear(&s->arena);
    *s = (cod_stages){0};
}
