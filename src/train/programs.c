/* A run's programs, compiled. */
#include "train/prior.h"

#include <stdio.h>

cod_status cod_train_compile(const cod_train_context *context, cod_weights *weights, cod_stage stage,
                             cod_executable **out)
{
    const cod_train_options *train = &context->config->train;
    cod_program_spec specs[2 * COD_TRAIN_MAX_PROGRAMS];
    char names[COD_TRAIN_MAX_PROGRAMS][64];
    size_t count = 0;
    for (size_t i = 0; i < context->program_count; i++) {
        specs[count] = context->programs[i];
        specs[count++].stage = stage;
        if (train->accumulate == 1 || context->programs[i].trains == NULL)
            continue;
        snprintf(names[i], sizeof names[i], "%s" COD_PROGRAM_ACCUMULATE, context->programs[i].name);
        specs[count] = specs[count - 1];
        specs[count].name = names[i];
        specs[count++].accumulate = true;
    }
    const cod_input_shape input = {"input", context->sample};
    const cod_compile_options options = {
        .activation = context->activation,
        .inputs = &input,
        .input_count = 1,
        .bucket_bytes =
            context->group == NULL || cod_group_size(context->group) > 1 ? (size_t)train->bucket_kb * 1024 : 0,
        .deterministic = train->deterministic,
    };
    COD_TRY(cod_compile(context->model->graph, weights, &options, specs, count, out));
    if (context->priors == NULL)
        return COD_OK;
    return cod_prior_write(context->backend, context->device, cod_executable_input(*out, COD_PRIOR_INPUT),
                           cod_prior_of(context, cod_group_index(context->group)));
}
