#include "infer/int8.h"

#include "core/int8_range.h"
#include "io/json.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_eligible(const cod_graph *graph, size_t index)
{
    enum { LEAST_CHANNELS = 16 };
    const cod_node *node = cod_graph_node(graph, index);
    if (node->kind != COD_NODE_CONV2D)
        return false;
    const cod_shape weight = cod_graph_param(graph, (size_t)node->params[0])->shape;
    return weight.c >= LEAST_CHANNELS;
}

/** The first node of this name that can run on integers, or -1. Nodes of one name share weights, and so their range. */
static int find_named(const cod_graph *graph, const char *name)
{
    for (size_t i = 0; i < cod_graph_node_count(graph); i++)
        if (is_eligible(graph, i) && strcmp(cod_graph_node(graph, i)->name, name) == 0)
            return (int)i;
    return -1;
}

struct cod_int8_observer {
    const cod_graph *graph;
    uint32_t **counts; /**< [node][COD_MAGNITUDES]; NULL where no layer begins that can run on integers */
};

cod_status cod_int8_observer_create(const cod_graph *graph, cod_int8_observer **out)
{
    const size_t nodes = cod_graph_node_count(graph);
    cod_int8_observer *observer = calloc(1, sizeof *observer);
    COD_REQUIRE_MEMORY(observer);
    observer->graph = graph;
    observer->counts = calloc(nodes, sizeof *observer->counts);
    bool failed = observer->counts == NULL;
    for (size_t i = 0; i < nodes && !failed; i++) {
        if (!is_eligible(graph, i) || find_named(graph, cod_graph_node(graph, i)->name) != (int)i)
            continue;
        observer->counts[i] = calloc(COD_MAGNITUDES, sizeof **observer->counts);
        failed = observer->counts[i] == NULL;
    }
    if (failed) {
        cod_int8_observer_destroy(observer);
        return cod_fail(COD_ERR_MEMORY, "out of memory for calibrating");
    }
    *out = observer;
    return COD_OK;
}

void cod_int8_observer_destroy(cod_int8_observer *observer)
{
    if (observer == NULL)
        return;
    for (size_t i = 0; observer->counts != NULL && i < cod_graph_node_count(observer->graph); i++)
        free(observer->counts[i]);
    free(observer->counts);
    free(observer);
}

static float element(const char *data, cod_dtype dtype, int64_t i)
{
    if (dtype == COD_BF16)
        return cod_f32_from_bf16(((const uint16_t *)(const void *)data)[i]);
    return dtype == COD_F32 ? ((const float *)(const void *)data)[i] : (float)((const double *)(const void *)data)[i];
}

static cod_status count_view(const cod_weights *weights, cod_queue *queue, const cod_view *view, const char *name,
                             uint32_t *counts)
{
    const size_t bytes = cod_view_span_bytes(view);
    const int64_t channels = view->shape.c;
    char *data = malloc(bytes + 1);
    COD_REQUIRE_MEMORY(data);
    cod_status status = weights->backend->download(weights->device, queue, data, view->buffer, view->offset, bytes);
    for (int64_t i = 0; i < cod_shape_count(view->shape) && status == COD_OK; i++) {
        const float value = element(data, view->dtype, i / channels * view->pixel_stride + i % channels);
        const uint16_t magnitude = cod_bf16_from_f32(fabsf(value));
        if (magnitude >= COD_MAGNITUDE_INFINITE)
            status = cod_fail(COD_ERR_NUMERIC, "the input of '%s' is not finite", name);
        counts[magnitude] += counts[magnitude] < UINT32_MAX;
    }
    free(data);
    return status;
}

cod_status cod_int8_observe(cod_int8_observer *observer, const cod_weights *weights, cod_program *program)
{
    cod_op op;
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        const int node = op.kind == COD_OP_CONV2D ? find_named(observer->graph, op.name) : -1;
        if (node >= 0)
            COD_TRY(count_view(weights, cod_program_queue(program), &op.inputs[0], op.name, observer->counts[node]));
        COD_TRY(cod_program_run_op(program, i));
    }
    return COD_OK;
}

/**
 * The first of many layers: all others see its error, and it costs a small part of the time. -1 where there are few.
 */
static int find_first_of_many(const cod_graph *graph)
{
    enum { MANY = 8 };
    int first = -1, count = 0;
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        if (!is_eligible(graph, i))
            continue;
        first = count == 0 ? (int)i : first;
        count++;
    }
    return count >= MANY ? first : -1;
}

bool cod_int8_layers(const cod_graph *graph, float *ranges)
{
    const int left_out = find_first_of_many(graph);
    bool any = false;
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        const int first = is_eligible(graph, i) ? find_named(graph, cod_graph_node(graph, i)->name) : -1;
        ranges[i] = first >= 0 && first != left_out ? 1 : 0;
        any = any || ranges[i] > 0;
    }
    return any;
}

void cod_int8_choose(const cod_int8_observer *observer, float *ranges)
{
    (void)cod_int8_layers(observer->graph, ranges);
    for (size_t i = 0; i < cod_graph_node_count(observer->graph); i++) {
        const int first = ranges[i] > 0 ? find_named(observer->graph, cod_graph_node(observer->graph, i)->name) : -1;
        if (first >= 0)
            ranges[i] = first < (int)i ? ranges[first] : cod_int8_range_choose(observer->counts[i]);
    }
}

/** Sets the range of all layers of this name; false when there is none. */
static bool set_named(const cod_graph *graph, const char *name, float range, float *ranges)
{
    for (size_t i = 0; i < cod_graph_node_count(graph); i++)
        if (is_eligible(graph, i) && strcmp(cod_graph_node(graph, i)->name, name) == 0)
            ranges[i] = range;
    return find_named(graph, name) >= 0;
}

cod_status cod_int8_format(const cod_graph *graph, const float *ranges, char **text)
{
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        const char *name = cod_graph_node(graph, i)->name;
        if (ranges[i] > 0 && find_named(graph, name) == (int)i)
            cod_json_number(&json, name, (double)ranges[i]);
    }
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

static cod_status read_ranges(const cod_json_value *document, const cod_graph *graph, float *ranges)
{
    if (cod_json_kind_of(document) != COD_JSON_OBJECT)
        return cod_fail(COD_ERR_FORMAT, "not a JSON object");
    for (const cod_json_value *value = cod_json_first(document); value != NULL; value = cod_json_next(value)) {
        const double range = cod_json_get_number(value, 0);
        if (!(range > 0 && range <= (double)FLT_MAX))
            return cod_fail(COD_ERR_FORMAT, "the range of '%s' is no positive number", cod_json_key(value));
        if (!set_named(graph, cod_json_key(value), (float)range, ranges))
            return cod_fail(COD_ERR_FORMAT, "the model has no layer '%s' for 8-bit integers", cod_json_key(value));
    }
    return COD_OK;
}

cod_status cod_int8_parse(const cod_graph *graph, const char *text, float *ranges)
{
    cod_json_value *document = NULL;
    cod_status status = cod_json_parse(text, strlen(text), &document);
    COD_THEN(status, read_ranges(document, graph, ranges));
    cod_json_free(document);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "metadata '%s'", COD_INT8_METADATA);
}
