/* Reading what was compiled: programs, inputs, outputs, losses and buckets. */
#include "nn/compile_internal.h"

#include <string.h>

cod_program *cod_executable_program(cod_executable *executable, const char *name)
{
    for (size_t i = 0; i < executable->program_count; i++)
        if (strcmp(executable->programs[i].name, name) == 0)
            return &executable->programs[i];
    return NULL;
}

cod_view cod_executable_input(cod_executable *executable, const char *name)
{
    const ir_context *context = &executable->context;
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++) {
        const cod_node *node = cod_graph_node(context->graph, i);
        if (node->kind != COD_NODE_INPUT || strcmp(node->name, name) != 0 || context->shapes[node->output].n == 0)
            continue;
        return cod_view_dense(executable->io, context->input_offset[i], ir_wide_dtype(context),
                              context->shapes[node->output]);
    }
    return (cod_view){0};
}

cod_view cod_executable_output(cod_executable *executable, cod_value value)
{
    const ir_context *context = &executable->context;
    if (value <= 0 || (size_t)value >= context->value_count || context->output_offset[value] == SIZE_MAX)
        return (cod_view){0};
    return cod_view_dense(executable->io, context->output_offset[value], ir_wide_dtype(context),
                          context->shapes[value]);
}

size_t cod_executable_bytes(const cod_executable *executable)
{
    return executable->arena->bytes + executable->io->bytes;
}

cod_status cod_executable_set_scalar(cod_executable *executable, const char *name, float value)
{
    const ir_context *context = &executable->context;
    for (size_t i = 0; i < cod_graph_scalar_count(context->graph); i++) {
        if (strcmp(cod_graph_scalar_name(context->graph, i), name) != 0)
            continue;
        cod_scalars_set(executable->scalars, context->scalar_index[i], value);
        return COD_OK;
    }
    return cod_fail(COD_ERR_ARGUMENT, "the graph has no scalar '%s'", name);
}

cod_view cod_executable_loss_view(const cod_executable *executable, cod_value loss)
{
    const ir_context *context = &executable->context;
    if (loss <= 0 || (size_t)loss >= context->value_count || context->loss_offset[loss] == SIZE_MAX)
        return (cod_view){0};
    return cod_view_dense(executable->io, context->loss_offset[loss], ir_wide_dtype(context), (cod_shape){1, 1, 1, 1});
}

cod_status cod_executable_loss(cod_executable *executable, cod_value loss, float *out)
{
    const cod_view view = cod_executable_loss_view(executable, loss);
    const cod_backend *backend = executable->weights->backend;
    cod_device *device = executable->weights->device;
    double value;
    COD_REQUIRE(view.buffer != NULL, "value %d is not a loss", loss);
    if (view.dtype == COD_F32)
        return backend->download(device, NULL, out, view.buffer, view.offset, sizeof *out);
    COD_TRY(backend->download(device, NULL, &value, view.buffer, view.offset, sizeof value));
    *out = (float)value;
    return COD_OK;
}

const cod_passing *cod_program_taken(const cod_program *program, size_t *count)
{
    *count = program->ir.taken_count;
    return program->taken;
}

const cod_passing *cod_program_handed(const cod_program *program, size_t *count)
{
    *count = program->ir.handed_count;
    return program->handed;
}

size_t cod_program_bucket_count(const cod_program *program)
{
    return program->bucket_count;
}

cod_bucket cod_program_bucket(const cod_program *program, size_t index)
{
    return program->buckets[index];
}
