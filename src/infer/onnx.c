#include "infer/onnx.h"

#include "io/file.h"
#include "onnx_internal.h"

#include <stdio.h>

/* Field numbers of onnx/onnx.proto3; nested messages are written where they are used. */
enum { MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14 };

enum { IR_VERSION = 8, OPSET = 17 };

/** A ValueInfoProto: f32, [batch, C] or [batch, C, HEIGHT, WIDTH]. */
static void value_info(cod_proto *proto, uint32_t field, const char *name, int64_t channels, bool flat,
                       const char *height, const char *width)
{
    enum { NAME = 1, TYPE = 2, TENSOR_TYPE = 1, ELEM_TYPE = 1, SHAPE = 2, DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2 };
    const char *params[] = {"batch", NULL, height, width};
    cod_proto_open(proto, field);
    cod_proto_string(proto, NAME, name);
    cod_proto_open(proto, TYPE);
    cod_proto_open(proto, TENSOR_TYPE);
    cod_proto_int(proto, ELEM_TYPE, ONNX_TENSOR_FLOAT);
    cod_proto_open(proto, SHAPE);
    for (int i = 0; i < (flat ? 2 : 4); i++) {
        cod_proto_open(proto, DIM);
        if (params[i] != NULL)
            cod_proto_string(proto, DIM_PARAM, params[i]);
        else
            cod_proto_int(proto, DIM_VALUE, channels);
        cod_proto_close(proto);
    }
    for (int i = 0; i < 4; i++)
        cod_proto_close(proto);
}

static void metadata_entry(cod_proto *proto, const char *key, const char *value)
{
    cod_proto_open(proto, MODEL_METADATA);
    cod_proto_string(proto, 1, key);
    cod_proto_string(proto, 2, value);
    cod_proto_close(proto);
}

/** Names the values, and finds out whether the model takes vectors: all readers of its input are linear. */
static cod_status names_make(exporter *e)
{
    const cod_graph *graph = e->model->graph;
    const size_t count = cod_graph_node_count(graph) + 1;
    char name[32];
    e->names = cod_arena_alloc(&e->arena, count * sizeof *e->names);
    e->flat = cod_arena_alloc(&e->arena, count * sizeof *e->flat);
    e->emitted = cod_arena_alloc(&e->arena, cod_graph_param_count(graph) * sizeof *e->emitted);
    COD_REQUIRE_MEMORY(e->names);
    COD_REQUIRE_MEMORY(e->flat);
    COD_REQUIRE_MEMORY(e->emitted);
    for (size_t value = 1; value < count; value++) {
        snprintf(name, sizeof name, "v%zu", value);
        e->names[value] = cod_arena_strdup(&e->arena, name);
        COD_REQUIRE_MEMORY(e->names[value]);
    }
    e->names[e->model->input] = "input";
    e->names[e->model->output] = "output";
    return COD_OK;
}

static bool takes_vectors(const exporter *e)
{
    bool linear = true;
    for (size_t i = 0; i < cod_graph_node_count(e->model->graph); i++) {
        const cod_node *node = cod_graph_node(e->model->graph, i);
        for (int k = 0; e->part.nodes[i] && k < node->input_count; k++)
            linear &= node->inputs[k] != e->model->input || node->kind == COD_NODE_LINEAR;
    }
    return linear;
}

static cod_status graph_write(exporter *e)
{
    const cod_graph *graph = e->model->graph;
    const bool vectors = takes_vectors(e);
    COD_TRY(names_make(e));
    cod_proto_string(e->proto, ONNX_GRAPH_NAME, e->model->kind->name);
    for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (!e->part.nodes[i])
            continue;
        COD_TRY(onnx_node_write(e, node));
        if (node->output == e->model->input)
            e->flat[node->output] = vectors;
    }
    const cod_value in = e->model->input, out = e->model->output;
    value_info(e->proto, ONNX_GRAPH_INPUT, "input", cod_graph_producer(graph, in)->channels, e->flat[in], "height",
               "width");
    value_info(e->proto, ONNX_GRAPH_OUTPUT, "output", cod_graph_producer(graph, out)->channels, e->flat[out],
               "output_height", "output_width");
    return COD_OK;
}

static cod_status model_write(exporter *e)
{
    cod_st_text metadata[COD_MODEL_METADATA_COUNT];
    COD_TRY(cod_graph_part_find(e->model, &e->arena, &e->part));
    COD_TRY(cod_model_metadata(e->model->kind, e->model->options, &e->arena, metadata));
    cod_proto_int(e->proto, MODEL_IR_VERSION, IR_VERSION);
    cod_proto_string(e->proto, MODEL_PRODUCER, "codistill");
    cod_proto_open(e->proto, MODEL_GRAPH);
    COD_TRY(graph_write(e));
    cod_proto_close(e->proto);
    cod_proto_open(e->proto, MODEL_OPSET);
    cod_proto_int(e->proto, 2, OPSET);
    cod_proto_close(e->proto);
    for (int i = 0; i < 2; i++) /* kind and options; "format" is safetensors' own */
        metadata_entry(e->proto, metadata[i].key, metadata[i].value);
    return e->proto->status;
}

cod_status cod_onnx_encode(const cod_model *model, const float *values, cod_proto *proto)
{
    exporter e = {.proto = proto, .model = model, .values = values};
    COD_TRY(cod_model_fold(model, values, &e.folded));
    const cod_status status = model_write(&e);
    cod_folded_clear(&e.folded);
    cod_arena_clear(&e.arena);
    return status;
}

cod_status cod_onnx_write(const char *path, const cod_model *model, const float *values)
{
    cod_proto proto = {0};
    cod_status status = cod_onnx_encode(model, values, &proto);
    COD_THEN(status, cod_file_write(path, proto.data, proto.bytes));
    cod_proto_clear(&proto);
    return status;
}
