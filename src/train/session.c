#include "train/session.h"

#include "infer/model_file.h"
#include "train/memory_plan.h"
#include "train/prior.h"
#include "train/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 64 };

/** Name of the program that adds its gradients to those of earlier mini-batches. */
static void name_accumulating(const char *name, char *out)
{
    snprintf(out, MAX_NAME, "%s_accumulate", name);
}

cod_status cod_train_session_add(cod_train_session *session, const cod_program_spec *program)
{
    char accumulating[MAX_NAME];
    name_accumulating(program->name, accumulating);
    COD_REQUIRE(strlen(accumulating) + 1 < MAX_NAME, "the program's name '%s' is too long", program->name);
    cod_program_spec *grown = realloc(session->programs, (session->program_count + 1) * sizeof *grown);
    COD_REQUIRE_MEMORY(grown);
    session->programs = grown;
    session->programs[session->program_count++] = *program;
    return COD_OK;
}

cod_status cod_train_session_build(cod_train_session *session, cod_strategy *strategy)
{
    const cod_strategy_teaching *teaching = strategy != NULL ? strategy->ops->teaching : NULL;
    const cod_recipe_setting setting = {.config = session->config,
                                        .group = session->group,
                                        .priors = session->priors,
                                        .loss_factor = 1.0f / (float)session->config->train.accumulate};
    session->loss_factor = setting.loss_factor;
    COD_TRY(cod_recipe_build(&setting, &session->recipe));
    for (size_t i = 0; i < session->recipe.step_count; i++)
        COD_TRY(cod_train_session_add(session, &session->recipe.steps[i].program));
    if (teaching != NULL && teaching->add_losses != NULL)
        COD_TRY(teaching->add_losses(strategy, session));
    COD_TRY(cod_graph_status(session->recipe.model.graph));
    COD_TRY(cod_scalars_create(session->backend, session->device, &session->scalars));
    return cod_memory_plan_explain(session, cod_weights_init(&session->weights, session->backend, session->device,
                                                             session->recipe.model.graph, COD_F32, true));
}

/** @param memory  receives what the programs need, or NULL */
static cod_status compile_apart(const cod_train_session *session, cod_weights *weights, cod_stage stage,
                                cod_compile_memory *memory, cod_executable **out)
{
    const cod_train_options *train = &session->config->train;
    cod_program_spec *specs = calloc(2 * session->program_count, sizeof *specs);
    char(*names)[MAX_NAME] = calloc(session->program_count, sizeof *names);
    cod_status status = specs != NULL && names != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    size_t count = 0;
    for (size_t i = 0; status == COD_OK && i < session->program_count; i++) {
        specs[count] = session->programs[i];
        specs[count++].stage = stage;
        if (train->accumulate == 1 || session->programs[i].trains == NULL)
            continue;
        name_accumulating(session->programs[i].name, names[i]);
        specs[count] = specs[count - 1];
        specs[count].name = names[i];
        specs[count++].accumulate = true;
    }
    const cod_input_shape input = {COD_INPUT_DATA, session->sample};
    const cod_compile_options options = {.activation = session->activation,
                                         .inputs = &input,
                                         .input_count = 1,
                                         .bucket_bytes = session->averages ? (size_t)train->bucket_kb * 1024 : 0,
                                         .deterministic = train->deterministic,
                                         .recompute = train->recompute == COD_RECOMPUTE_CHEAP,
                                         .scalars = session->scalars,
                                         .memory = memory};
    COD_THEN(status, cod_compile(session->recipe.model.graph, weights, &options, specs, count, out));
    free(specs);
    free(names);
    COD_TRY(status);
    status = cod_prior_write(session->backend, session->device, NULL, cod_executable_input(*out, COD_PRIOR_INPUT),
                             cod_prior_of(session, session->group));
    if (status != COD_OK) {
        cod_executable_destroy(*out);
        *out = NULL;
    }
    return status;
}

cod_status cod_train_session_compile_apart(const cod_train_session *session, cod_weights *weights, cod_stage stage,
                                           cod_executable **out)
{
    return compile_apart(session, weights, stage, NULL, out);
}

static cod_status fill_constant(const cod_train_session *session, const cod_recipe_constant *constant)
{
    const cod_view view = cod_executable_input(session->executable, constant->input);
    COD_REQUIRE(view.buffer != NULL, "recipe '%s': the graph has no input '%s'", session->recipe.kind->name,
                constant->input);
    const size_t count = (size_t)cod_shape_count(view.shape);
    float *values = malloc(count * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    for (size_t i = 0; i < count; i++)
        values[i] = constant->value;
    const cod_status status =
        session->backend->upload(session->device, NULL, view.buffer, view.offset, values, count * sizeof *values);
    free(values);
    return status;
}

cod_optimiser_options cod_train_session_optimiser(const cod_train_session *session, int set)
{
    const cod_division *division = &session->division;
    cod_optimiser_options options = session->recipe.sets[set].optimiser;
    options.only_part = division->only_part;
    options.part_first = division->first;
    options.part_count = division->count;
    options.average = division->average;
    options.sum_squares = division->sum_squares;
    options.sum_context = division->sum_context;
    options.scalars = session->scalars;
    return options;
}

static cod_status compile_all(cod_train_session *session)
{
    COD_TRY(compile_apart(session, &session->weights, session->division.stage, &session->memory, &session->executable));
    session->input = cod_executable_input(session->executable, COD_INPUT_DATA);
    session->truth = cod_executable_input(session->executable, COD_INPUT_TRUTH);
    for (size_t i = 0; i < session->recipe.constant_count; i++)
        COD_TRY(fill_constant(session, &session->recipe.constants[i]));
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++) {
        const cod_optimiser_options options = cod_train_session_optimiser(session, s);
        if (session->recipe.sets[s].trained)
            COD_TRY(cod_optimiser_create(&session->weights, s, &options, &session->optimisers[s]));
    }
    return COD_OK;
}

cod_status cod_train_session_compile(cod_train_session *session, const cod_division *division)
{
    session->division = *division;
    COD_TRY(cod_memory_plan_explain(session, compile_all(session)));
    if (session->backend->allocated != NULL)
        session->compiled_bytes = session->backend->allocated(session->device);
    return COD_OK;
}

cod_status cod_train_session_fill(cod_train_session *session, uint64_t seed)
{
    COD_TRY(cod_weights_fill_initial(&session->weights, seed));
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        if (session->recipe.sets[s].file != NULL)
            COD_TRY(cod_set_load_weights(session->recipe.sets[s].file, s, &session->weights));
    return COD_OK;
}

void cod_train_session_clear(cod_train_session *session)
{
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        cod_optimiser_destroy(session->optimisers[s]);
    cod_executable_destroy(session->executable);
    cod_scalars_destroy(session->scalars);
    if (session->weights.backend != NULL)
        cod_weights_clear(&session->weights);
    cod_recipe_clear(&session->recipe);
    free(session->programs);
    *session = (cod_train_session){0};
}

cod_program *cod_train_program(cod_executable *executable, const char *name, int64_t batch)
{
    char accumulating[MAX_NAME];
    name_accumulating(name, accumulating);
    cod_program *program = batch > 0 ? cod_executable_program(executable, accumulating) : NULL;
    return program != NULL ? program
                           : cod_executable_program(executable, name); /* one that trains nothing has no other */
}

double cod_train_session_rate(const cod_train_session *session, int set, int64_t step)
{
    return cod_schedule_rate(&session->recipe.sets[set].schedule, step);
}
