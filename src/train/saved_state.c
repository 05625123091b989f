/* The arrays of a run in its checkpoints: for each kind a function that saves and one that loads. */
#include "train/not_finite_internal.h"
#include "train/trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = sizeof(float) };

/** What a state of a set is called in checkpoints: the first set's "adam_m" as ever, another's "critic.adam_m". */
static const char *state_name(const trainer *t, int set, const char *what, char name[96])
{
    if (set == 0)
        snprintf(name, 96, "%s", what);
    else
        snprintf(name, 96, "%s.%s", t->session.recipe.sets[set].name, what);
    return name;
}

static int set_count(const trainer *t)
{
    return (int)cod_graph_set_count(t->session.weights.graph);
}

/** Values of a set: trainable ones and states. */
static size_t set_values(const trainer *t, int set)
{
    const cod_set_range *range = &t->session.weights.sets[set].range;
    return range->count + range->state_count;
}

/** Whether a state of the optimiser is of this rank's part of the values alone. */
static bool is_of_part(const trainer *t, const char *name)
{
    return t->session.division.only_part && strcmp(name, "ema") != 0;
}

/** Whether such a state is put together with the other ranks' in the group's part of a checkpoint. */
static bool is_gathered(const trainer *t, const char *name)
{
    const cod_strategy_division *division = t->strategy->ops->division;
    return is_of_part(t, name) && division != NULL && division->gather != NULL;
}

/** Whether a state of the optimiser lies in the rank's own part of a checkpoint, and not in the group's. */
static bool is_own_state(const trainer *t, const char *name)
{
    return is_of_part(t, name) && !is_gathered(t, name);
}

/**
 * A set's optimiser's states, of the group or this rank's own.
 *
 * @param moments  those that were gathered; NULL = none
 */
static cod_status save_optimiser(const trainer *t, int set, bool own, float *const *moments, cod_checkpoint *checkpoint)
{
    const cod_train_session *session = &t->session;
    const char *what;
    char name[96];
    cod_buffer *buffer;
    size_t bytes;
    for (size_t i = 0; cod_optimiser_state(session->optimisers[set], i, &what, &buffer, &bytes); i++) {
        if (is_own_state(t, what) != own)
            continue;
        state_name(t, set, what, name);
        if (moments != NULL && moments[i] != NULL) {
            COD_TRY(cod_checkpoint_add_f32(checkpoint, name, moments[i], session->weights.layout.trainable));
            continue;
        }
        float *state = cod_arena_alloc(&checkpoint->arena, bytes);
        if (state == NULL)
            return COD_ERR_MEMORY;
        COD_TRY(session->backend->download(session->device, NULL, state, buffer, 0, bytes));
        COD_TRY(cod_checkpoint_add_f32(checkpoint, name, state, bytes / sizeof *state));
    }
    return COD_OK;
}

cod_status trainer_save_states(const trainer *t, bool own, float *const *moments, cod_checkpoint *checkpoint)
{
    for (int set = 0; set < set_count(t); set++)
        if (t->session.optimisers[set] != NULL)
            COD_TRY(save_optimiser(t, set, own, set == 0 ? moments : NULL, checkpoint));
    return COD_OK;
}

static cod_status load_optimiser(const trainer *t, int set, bool own, const cod_st_file *file)
{
    const cod_train_session *session = &t->session;
    const char *what;
    char name[96];
    cod_buffer *buffer;
    size_t bytes;
    for (size_t i = 0; cod_optimiser_state(session->optimisers[set], i, &what, &buffer, &bytes); i++) {
        if (is_own_state(t, what) != own)
            continue;
        const bool gathered = is_gathered(t, what);
        const size_t saved = gathered ? session->weights.layout.trainable * sizeof(float) : bytes;
        float *state = malloc(saved);
        COD_REQUIRE_MEMORY(state);
        cod_status status = cod_checkpoint_read(file, state_name(t, set, what, name), state, saved);
        COD_THEN(status, session->backend->upload(session->device, NULL, buffer, 0,
                                                  state + (gathered ? session->division.first : 0), bytes));
        free(state);
        COD_TRY(status);
    }
    return COD_OK;
}

cod_status trainer_load_states(const trainer *t, bool own, const cod_st_file *file)
{
    for (int set = 0; set < set_count(t); set++)
        if (t->session.optimisers[set] != NULL)
            COD_TRY(load_optimiser(t, set, own, file));
    return COD_OK;
}

cod_status trainer_make_room(const trainer *t, cod_arena *arena, float *moments[TRAINER_STATES_MAX])
{
    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    for (size_t i = 0; cod_optimiser_state(t->session.optimisers[0], i, &name, &buffer, &bytes); i++) {
        if (!t->leader || !is_gathered(t, name))
            continue;
        moments[i] = cod_arena_alloc(arena, t->session.weights.layout.trainable * sizeof *moments[i]);
        COD_REQUIRE_MEMORY(moments[i]);
    }
    return COD_OK;
}

cod_status trainer_save_values(trainer *t, cod_checkpoint *checkpoint)
{
    char name[96];
    for (int set = 0; set < set_count(t); set++) {
        const size_t count = set_values(t, set);
        if (count == 0)
            continue;
        float *values = cod_arena_alloc(&checkpoint->arena, count * sizeof *values);
        if (values == NULL)
            return COD_ERR_MEMORY;
        COD_TRY(cod_weights_download_sets(&t->session.weights, cod_set_of(set), values));
        /* The group learns of a bad loss two steps late: what it spoiled must not push out the last good checkpoint. */
        for (size_t i = 0; i < count; i++)
            if (!isfinite(values[i]))
                return trainer_report_not_finite(&t->session, "weights", t->context.step);
        COD_TRY(cod_checkpoint_add_f32(checkpoint, state_name(t, set, "values", name), values, count));
    }
    return COD_OK;
}

cod_status trainer_load_values(trainer *t, const cod_st_file *file)
{
    char name[96];
    for (int set = 0; set < set_count(t); set++) {
        const size_t count = set_values(t, set);
        if (count == 0)
            continue;
        float *values = malloc(count * sizeof *values);
        COD_REQUIRE_MEMORY(values);
        cod_status status =
            cod_checkpoint_read(file, state_name(t, set, "values", name), values, count * sizeof *values);
        COD_THEN(status, cod_weights_upload_sets(&t->session.weights, cod_set_of(set), values));
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

/**
 * Bytes of the normalisation statistics where each rank of the group has its own, of the pictures that it saw; else 0.
 */
static size_t own_statistics(const trainer *t)
{
    return cod_group_size(t->group) > 1 ? t->session.weights.layout.state * VALUE_BYTES : 0;
}

cod_status trainer_save_statistics(trainer *t, cod_checkpoint *checkpoint)
{
    const cod_weights *weights = &t->session.weights;
    const size_t bytes = own_statistics(t);
    if (bytes == 0)
        return COD_OK;
    float *state = cod_arena_alloc(&checkpoint->arena, bytes);
    COD_REQUIRE_MEMORY(state);
    COD_TRY(cod_weights_download_states(weights, COD_ALL_SETS, state));
    return cod_checkpoint_add_f32(checkpoint, "statistics", state, weights->layout.state);
}

cod_status trainer_load_statistics(trainer *t, const cod_st_file *file)
{
    cod_weights *weights = &t->session.weights;
    const size_t bytes = own_statistics(t);
    if (bytes == 0 || cod_st_tensor_find(file, "statistics") == NULL)
        return COD_OK;
    float *state = malloc(bytes);
    COD_REQUIRE_MEMORY(state);
    cod_status status = cod_checkpoint_read(file, "statistics", state, bytes);
    COD_THEN(status, cod_weights_upload_states(weights, COD_ALL_SETS, state));
    free(state);
    return status;
}

bool trainer_keeps_state(const trainer *t)
{
    const bool statistics = own_statistics(t) > 0 && cod_recipe_reads_statistics(&t->session.recipe);
    return t->config->strategy->keeps_state || t->coded != NULL || statistics;
}

static const char residual_name[] = "allreduce_residual";

cod_status trainer_save_residual(trainer *t, cod_checkpoint *checkpoint)
{
    return t->coded == NULL ? COD_OK
                            : cod_checkpoint_add_f32(checkpoint, residual_name, cod_coded_allreduce_residual(t->coded),
                                                     t->session.weights.layout.trainable);
}

cod_status trainer_load_residual(trainer *t, const cod_st_file *file)
{
    return t->coded == NULL ? COD_OK
                            : cod_checkpoint_read(file, residual_name, cod_coded_allreduce_residual(t->coded),
                                                  t->session.weights.layout.trainable * VALUE_BYTES);
}
