/* Where the ranges of convolutions on 8-bit integers lie, and how they get there from the host. */
#include "nn/compile_internal.h"

#include <stdlib.h>
#include <string.h>

void compile_assign_ranges(ir_context *context)
{
    const float *ranges = context->options->int8_ranges;
    const size_t nodes = ranges != NULL ? cod_graph_node_count(context->graph) : 0;
    for (size_t i = 0; i < nodes; i++) {
        const int weight = cod_graph_node(context->graph, i)->params[0];
        size_t same = 0;
        if (!(ranges[i] > 0))
            continue;
        while (same < i &&
               (context->range_index[same] == SIZE_MAX || cod_graph_node(context->graph, same)->params[0] != weight))
            same++;
        context->range_index[i] = same < i ? context->range_index[same] : context->range_count++;
    }
    context->range_offset = context->io_bytes;
    context->io_bytes += cod_align_up(context->range_count * sizeof(float));
}

cod_status compile_write_ranges(cod_executable *executable, const float *ranges)
{
    const ir_context *context = &executable->context;
    const cod_weights *weights = executable->weights;
    if (context->range_count == 0)
        return COD_OK;
    float *values = calloc(context->range_count, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++)
        if (context->range_index[i] != SIZE_MAX)
            values[context->range_index[i]] = ranges[i];
    const cod_status status =
        weights->backend->upload(weights->device, executable->options.queue, executable->io, context->range_offset,
                                 values, context->range_count * sizeof *values);
    free(values);
    return status;
}

void compile_ranges_changed(cod_executable *executable)
{
    for (size_t i = 0; i < executable->program_count; i++)
        memset(executable->programs[i].prepared, 0, sizeof executable->programs[i].prepared);
}

cod_status cod_executable_set_int8_ranges(cod_executable *executable, const float *ranges)
{
    const ir_context *context = &executable->context;
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++)
        COD_REQUIRE((ranges[i] > 0) == (context->range_index[i] != SIZE_MAX),
                    "'%s' has a range on 8-bit integers in one of both, what was compiled and what is given",
                    cod_graph_node(context->graph, i)->name);
    compile_ranges_changed(executable);
    return compile_write_ranges(executable, ranges);
}

cod_view cod_executable_int8_view(const cod_executable *executable)
{
    const ir_context *context = &executable->context;
    if (context->range_count == 0)
        return (cod_view){0};
    return cod_view_dense(executable->io, context->range_offset, COD_F32,
                          (cod_shape){1, 1, 1, (int64_t)context->range_count});
}

void cod_executable_int8_table(const cod_executable *executable, const float *copied, float *ranges)
{
    const ir_context *context = &executable->context;
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++)
        ranges[i] = context->range_index[i] != SIZE_MAX ? copied[context->range_index[i]] : 0;
}
