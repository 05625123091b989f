#include "infer/int8.h"

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
    return weight.n >= LEAST_CHANNELS && weight.c >= LEAST_CHANNELS;
}

/** Raises the ranges of all eligible layers of this name (layers that share weights share it) to `range`; how many there are. */
static size_t raise_named(const cod_graph *graph, const char *name, float range, float *ranges)
{
    size_t count = 0;
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        if (!is_eligible(graph, i) || strcmp(cod_graph_node(graph, i)->name, name) != 0)
            continue;
        ranges[i] = fmaxf(ranges[i], range);
        count++;
    }
    return count;
}

static float element(const char *data, cod_dtype dtype, int64_t i)
{
    if (dtype == COD_BF16)
        return cod_f32_from_bf16(((const uint16_t *)(const void *)data)[i]);
    return dtype == COD_F32 ? ((const float *)(const void *)data)[i] : (float)((const double *)(const void *)data)[i];
}

/** The largest magnitude in a view; NaN where there is one. */
static cod_status view_largest(const cod_weights *weights, const cod_view *view, float *largest)
{
    const size_t bytes = cod_view_span_bytes(view);
    char *data = malloc(bytes + 1);
    COD_REQUIRE_MEMORY(data);
    const cod_status status =
        weights->backend->download(weights->device, NULL, data, view->buffer, view->offset, bytes);
    *largest = 0;
    const int64_t channels = view->shape.c, count = status == COD_OK ? cod_shape_count(view->shape) : 0;
    for (int64_t i = 0; i < count && !isnan(*largest); i++) {
        const float value = fabsf(element(data, view->dtype, i / channels * view->pixel_stride + i % channels));
        *largest = value <= *largest ? *largest : value;
    }
    free(data);
    return status;
}

cod_status cod_int8_observe(const cod_weights *weights, cod_program *program, float *ranges)
{
    cod_op op;
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        if (op.kind == COD_OP_CONV2D) {
            float largest = 0;
            COD_TRY(view_largest(weights, &op.inputs[0], &largest));
            if (!(largest <= FLT_MAX))
                return cod_fail(COD_ERR_NUMERIC, "the input of '%s' is not finite", op.name);
            raise_named(weights->graph, op.name, largest, ranges);
        }
        COD_TRY(cod_program_run_op(program, i));
    }
    return COD_OK;
}

cod_status cod_int8_format(const cod_graph *graph, const float *ranges, char **text)
{
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        const char *name = cod_graph_node(graph, i)->name;
        bool again = false;
        for (size_t k = 0; k < i && !again; k++)
            again = ranges[k] > 0 && strcmp(cod_graph_node(graph, k)->name, name) == 0;
        if (ranges[i] > 0 && !again)
            cod_json_number(&json, name, (double)ranges[i]);
    }
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

cod_status cod_int8_parse(const cod_graph *graph, const char *text, float *ranges)
{
    cod_json_value *document = NULL;
    cod_status status = cod_json_parse(text, strlen(text), &document);
    if (status == COD_OK && cod_json_kind_of(document) != COD_JSON_OBJECT)
        status = cod_fail(COD_ERR_FORMAT, "not a JSON object");
    for (const cod_json_value *value = cod_json_first(document); value != NULL && status == COD_OK;
         value = cod_json_next(value)) {
        const double range = cod_json_get_number(value, 0);
        if (!(range > 0 && range <= (double)FLT_MAX))
            status = cod_fail(COD_ERR_FORMAT, "the range of '%s' is no positive number", cod_json_key(value));
        else if (raise_named(graph, cod_json_key(value), (float)range, ranges) == 0)
            status = cod_fail(COD_ERR_FORMAT, "the model has no layer '%s' for 8-bit integers", cod_json_key(value));
    }
    cod_json_free(document);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "metadata '%s'", COD_INT8_METADATA);
}
