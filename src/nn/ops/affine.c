/*
 * AFFINE: alpha·x + shift. Such a node becomes an op that normalises by a mean of 0 and a deviation of 1. The vectors
 * of the op are constants and lie in the io buffer.
 */
#include "nn/compile_internal.h"
#include "nn/ops/ops_internal.h"

#include <stdlib.h>

cod_value cod_graph_affine(cod_graph *graph, cod_value x, double scale, const double *shift)
{
    cod_node node = graph_new_unary(graph, COD_NODE_AFFINE, x);
    node.attr.alpha = (float)scale;
    node.shift = graph_keep(graph, shift, (size_t)node.channels);
    return graph_add_node(graph, node, NULL);
}

/** The vectors of a node, which lie one behind another. ZEROS is the mean and the variance. */
enum { ZEROS, SCALE, SHIFT, VECTORS };

static size_t vector_bytes(const ir_context *context, const cod_node *node)
{
    return cod_align_up((size_t)node->channels * cod_dtype_bytes(context->param_dtype));
}

void compile_assign_constants(ir_context *context)
{
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++) {
        const cod_node *node = cod_graph_node(context->graph, i);
        if (node->kind != COD_NODE_AFFINE)
            continue;
        context->affine_offset[i] = context->io_bytes;
        context->io_bytes += VECTORS * vector_bytes(context, node);
    }
}

static void write_number(void *vector, cod_dtype dtype, int64_t index, double value)
{
    if (dtype == COD_F64)
        ((double *)vector)[index] = value;
    else
        ((float *)vector)[index] = (float)value;
}

static cod_status write_vectors(cod_executable *executable, const cod_node *node, size_t offset)
{
    const ir_context *context = &executable->context;
    const cod_weights *weights = executable->weights;
    const size_t bytes = vector_bytes(context, node);
    char *vectors = calloc(VECTORS, bytes);
    COD_REQUIRE_MEMORY(vectors);
    for (int64_t c = 0; c < node->channels; c++) {
        write_number(vectors + SCALE * bytes, context->param_dtype, c, (double)node->attr.alpha);
        write_number(vectors + SHIFT * bytes, context->param_dtype, c, node->shift[c]);
    }
    const cod_status status = weights->backend->upload(weights->device, executable->options.queue, executable->io,
                                                       offset, vectors, VECTORS * bytes);
    free(vectors);
    return status;
}

cod_status compile_write_constants(cod_executable *executable)
{
    const ir_context *context = &executable->context;
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++)
        if (context->affine_offset[i] != SIZE_MAX)
            COD_TRY(write_vectors(executable, cod_graph_node(context->graph, i), context->affine_offset[i]));
    return COD_OK;
}

static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    const ir_context *context = lower->context;
    const size_t offset = context->affine_offset[group - lower->groups];
    const int y = lower_output(lower, group->output);
    int vectors[VECTORS];
    for (size_t i = 0; i < VECTORS; i++)
        vectors[i] = lower_placed_tensor(lower, (cod_shape){1, 1, 1, node->channels}, context->param_dtype, IR_IO,
                                         offset + i * vector_bytes(context, node));
    /* A variance of 0 and an epsilon of 1 make a deviation of exactly 1. */
    lower_emit(lower, (ir_instr){.kind = COD_OP_NORM_INFERENCE,
                                 .attr = {.epsilon = 1},
                                 .inputs = {lower->tensor[node->inputs[0]], vectors[SCALE], vectors[SHIFT],
                                            vectors[ZEROS], vectors[ZEROS]},
                                 .outputs = {y},
                                 .name = "affine"});
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    lower_contribute(lower, node->inputs[0], dy, node->attr.alpha);
}

const node_rules node_affine = {.forward = forward,
                                .backward = backward,
                                .differentiable = node_all_inputs,
                                .taps = node_no_taps,
                                .op = COD_OP_NORM_INFERENCE,
                                .keeps_precision = true};
