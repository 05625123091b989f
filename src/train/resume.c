/* Saves and resumes a run. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void rank_part(int world_rank, char part[32])
{
    snprintf(part, 32, "rank-%d", world_rank);
}

/** Key of the best first figure so far in a checkpoint: "best_psnr_y". */
static const char *best_key(const trainer *t, char key[64])
{
    snprintf(key, 64, "best_%s", t->task->kind->figures[0].key);
    return key;
}

enum { STATES_MAX = 3 /**< of an optimiser */, VALUE_BYTES = sizeof(float) };

/** Name of a set's state in checkpoints: "adam_m" for the first set, "critic.adam_m" for another. */
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

/** A set's optimiser's states, of the group or this rank's own. @param moments  those that were gathered; NULL = none */
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

static cod_status save_states(const trainer *t, bool own, float *const *moments, cod_checkpoint *checkpoint)
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

static cod_status load_states(const trainer *t, bool own, const cod_st_file *file)
{
    for (int set = 0; set < set_count(t); set++)
        if (t->session.optimisers[set] != NULL)
            COD_TRY(load_optimiser(t, set, own, file));
    return COD_OK;
}

/** The values of each set, in arrays of their own. @return COD_ERR_NUMERIC where one is no number */
static cod_status save_values(trainer *t, cod_checkpoint *checkpoint)
{
    char name[96];
    for (int set = 0; set < set_count(t); set++) {
        const size_t count = set_values(t, set);
        float *values = cod_arena_alloc(&checkpoint->arena, (count + 1) * sizeof *values);
        if (values == NULL)
            return COD_ERR_MEMORY;
        if (count == 0)
            continue;
        COD_TRY(cod_weights_download_sets(&t->session.weights, cod_set_of(set), values));
        /* The group learns of a bad loss two steps late: what it spoiled must not push out the last good checkpoint. */
        for (size_t i = 0; i < count; i++)
            if (!isfinite(values[i]))
                return trainer_report_not_finite(t, "weights", t->context.step);
        COD_TRY(cod_checkpoint_add_f32(checkpoint, state_name(t, set, "values", name), values, count));
    }
    return COD_OK;
}

static cod_status load_values(trainer *t, const cod_st_file *file)
{
    char name[96];
    for (int set = 0; set < set_count(t); set++) {
        const size_t count = set_values(t, set);
        float *values = malloc((count + 1) * sizeof *values);
        COD_REQUIRE_MEMORY(values);
        cod_status status = COD_OK;
        if (count > 0)
            status = cod_checkpoint_read(file, state_name(t, set, "values", name), values, count * sizeof *values);
        if (status == COD_OK && count > 0)
            status = cod_weights_upload_sets(&t->session.weights, cod_set_of(set), values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static const char *allreduce_codec(const trainer *t)
{
    return cod_allreduce_codec_names[t->config->train.allreduce_codec];
}

/** Weights, optimiser and figures of the group: equal on all its ranks but for statistics, so the first one writes them. */
static cod_status save_group(trainer *t, float *const *moments, const double totals[TRAINER_TOTALS])
{
    const cod_train_context *context = &t->context;
    cod_checkpoint checkpoint = {0};
    char key[64];
    cod_status status = COD_OK;
    COD_TRY_GOTO(status, end, save_values(t, &checkpoint));
    COD_TRY_GOTO(status, end, save_states(t, false, moments, &checkpoint));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "step", (double)context->step));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, best_key(t, key), t->best_quality.values[0]));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "world_size", trainer_ranks(t)));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "groups", cod_group_count(t->group)));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "group_size", cod_group_size(t->group)));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "seed", (double)t->config->root.seed));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_text(&checkpoint, "recipe", t->config->recipe->name));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_text(&checkpoint, "strategy", t->config->strategy->name));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_text(&checkpoint, "allreduce_codec", allreduce_codec(t)));
    COD_TRY_GOTO(status, end, trainer_save_identity(t, &checkpoint));
    COD_TRY_GOTO(status, end, trainer_save_totals(&checkpoint, totals));
    status = cod_checkpoint_write(&checkpoint, t->checkpoints, context->step, t->part);
end:
    cod_checkpoint_clear(&checkpoint);
    return status;
}

/** Bytes of the normalisation statistics where each rank of the group has its own, of the pictures that it saw; else 0. */
static size_t own_statistics(const trainer *t)
{
    return cod_group_size(t->group) > 1 ? t->session.weights.layout.state * VALUE_BYTES : 0;
}

static cod_status save_statistics(trainer *t, cod_checkpoint *checkpoint)
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

/** In place of those of the group's first rank; checkpoints of earlier versions have only these. */
static cod_status load_statistics(trainer *t, const cod_st_file *file)
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

static cod_status save_residual(trainer *t, cod_checkpoint *checkpoint)
{
    return t->coded == NULL ? COD_OK
                            : cod_checkpoint_add_f32(checkpoint, residual_name, cod_coded_allreduce_residual(t->coded),
                                                     t->session.weights.layout.trainable);
}

static cod_status load_residual(trainer *t, const cod_st_file *file)
{
    return t->coded == NULL ? COD_OK
                            : cod_checkpoint_read(file, residual_name, cod_coded_allreduce_residual(t->coded),
                                                  t->session.weights.layout.trainable * VALUE_BYTES);
}

static cod_status save_rank(trainer *t)
{
    cod_checkpoint checkpoint = {0};
    char part[32];
    rank_part(trainer_rank(t), part);
    cod_status status = cod_checkpoint_add_number(&checkpoint, "step", (double)t->context.step);
    COD_THEN(status, save_statistics(t, &checkpoint));
    COD_THEN(status, save_residual(t, &checkpoint));
    COD_THEN(status, STRATEGY(t, save, &checkpoint));
    COD_THEN(status, save_states(t, true, NULL, &checkpoint));
    COD_THEN(status, cod_checkpoint_write(&checkpoint, t->checkpoints, t->context.step, part));
    cod_checkpoint_clear(&checkpoint);
    return status;
}

static size_t groups_needed(const trainer *t, int *first)
{
    *first = trainer_in_step(t) ? 0 : cod_group_index(t->group);
    return trainer_in_step(t) ? (size_t)cod_group_count(t->group) : 1;
}

/**
 * Older checkpoints go only once newer ones are complete: a group that is killed in between keeps one to resume from. Where
 * groups resume at one step, that takes the parts of all groups.
 */
static cod_status prune(const trainer *t)
{
    const int64_t keep = t->config->checkpoint.keep;
    int first;
    const size_t count = groups_needed(t, &first);
    char(*names)[32] = malloc(count * sizeof *names);
    const char **parts = malloc(count * sizeof *parts);
    char part[32];
    cod_status status = names != NULL && parts != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        snprintf(names[i], sizeof names[i], "group-%d", first + (int)i);
        parts[i] = names[i];
    }
    rank_part(trainer_rank(t), part);
    if (status == COD_OK && trainer_keeps_state(t))
        status = cod_checkpoint_prune(t->checkpoints, part, parts, count, keep);
    if (status == COD_OK && t->leader)
        status = cod_checkpoint_prune(t->checkpoints, t->closing_part, parts, count, keep);
    if (status == COD_OK && t->leader)
        status = cod_checkpoint_prune(t->checkpoints, t->part, parts, count, keep);
    free(names);
    free(parts);
    return status;
}

/** Makes room for the moments of all ranks on the rank that saves them. */
static cod_status make_room(const trainer *t, cod_arena *arena, float *moments[STATES_MAX])
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

/** The group's part of a checkpoint, with what ranks hold apart put together. */
static cod_status save_whole(trainer *t, const double totals[TRAINER_TOTALS])
{
    cod_arena arena = {0};
    float *moments[STATES_MAX] = {NULL};
    cod_status status = cod_group_agree(t->group, make_room(t, &arena, moments), NULL);
    COD_THEN(status, trainer_gather(t, moments));
    COD_THEN(status, cod_group_agree(t->group, t->leader ? save_group(t, moments, totals) : COD_OK, NULL));
    cod_arena_clear(&arena);
    return status;
}

cod_status trainer_save_checkpoint(trainer *t)
{
    double totals[TRAINER_TOTALS];
    COD_TRY(trainer_sum_totals(t, totals));
    /* The group's part comes after those of all its ranks: it makes a step complete. */
    if (trainer_keeps_state(t))
        COD_TRY(cod_group_agree(t->group, save_rank(t), NULL));
    COD_TRY(save_whole(t, totals));
    trainer_watchdog_note_checkpoint(t->watchdog, t->context.step);
    return cod_group_agree(t->group, prune(t), NULL);
}

/** Parts that a resume of this group needs, or of all groups when runs must replay. */
static size_t needed_parts(const trainer *t, bool all, char names[][32], const char **parts, size_t capacity)
{
    size_t count = 0;
    for (int g = 0; g < cod_group_count(t->group); g++) {
        const cod_group_members members = cod_group_members_of(t->group, g);
        if (!all && g != cod_group_index(t->group))
            continue;
        for (int r = -1; r < (trainer_keeps_state(t) ? members.size : 0) && count < capacity; r++) {
            if (r < 0)
                snprintf(names[count], 32, "group-%d", g);
            else
                rank_part(members.world_ranks[r], names[count]);
            parts[count] = names[count];
            count++;
        }
    }
    return count;
}

/** The newest step that can be resumed from, or -1; the same on all ranks of the group. */
static cod_status newest_step(trainer *t, int64_t *step)
{
    cod_arena arena = {0};
    cod_status status = COD_OK;
    int64_t newest = -1;
    double found = -1;
    if (t->leader) {
        const size_t capacity = 2 * (size_t)cod_comm_size(t->context.comm);
        char(*names)[32] = cod_arena_alloc(&arena, capacity * sizeof *names);
        const char **parts = cod_arena_alloc(&arena, capacity * sizeof *parts);
        if (names == NULL || parts == NULL)
            status = COD_ERR_MEMORY;
        /* Groups go on alone, each from its own newest checkpoint; only a replay needs one step common to all. */
        COD_THEN(status, cod_checkpoint_newest(t->checkpoints, parts,
                                               needed_parts(t, trainer_in_step(t), names, parts, capacity), INT64_MAX,
                                               &newest));
        found = (double)newest;
    }
    cod_arena_clear(&arena);
    COD_TRY(cod_group_agree(t->group, status, NULL));
    COD_TRY(cod_group_broadcast(t->group, &found, sizeof found, 0));
    *step = (int64_t)found;
    return COD_OK;
}

/**
 * Checks that ranks are divided into groups as before, if each rank has its own state. `group` is the group that wrote
 * the file.
 */
static cod_status check_same_layout(const trainer *t, int group, const cod_st_file *file)
{
    int64_t world, groups, size;
    const char *strategy = t->config->strategy->name;
    const int now = cod_group_members_of(t->group, group).size;
    if (!trainer_keeps_state(t))
        return COD_OK;
    if (cod_st_metadata(file, "groups") != NULL) {
        COD_TRY(cod_checkpoint_whole(file, "groups", 1, &groups));
        if (groups != cod_group_count(t->group))
            return cod_fail(COD_ERR_ARGUMENT,
                            "it was written by %lld groups, and strategy '%s' cannot go on with %d; set "
                            "cluster.groups as it was",
                            (long long)groups, strategy, cod_group_count(t->group));
    }
    COD_TRY(cod_checkpoint_whole(file, "group_size", 1, &size));
    if (size != now)
        return cod_fail(
            COD_ERR_ARGUMENT,
            "group %d had %lld ranks, and strategy '%s' cannot go on with %d; set cluster.ranks_per_group, or "
            "its ranks in cluster.groups, as they were",
            group, (long long)size, strategy, now);
    COD_TRY(cod_checkpoint_whole(file, "world_size", 1, &world));
    if (world != trainer_ranks(t))
        return cod_fail(COD_ERR_ARGUMENT,
                        "it was written by %lld ranks, and strategy '%s' cannot go on with %d; start as many",
                        (long long)world, strategy, trainer_ranks(t));
    return COD_OK;
}

/** Checkpoints of earlier versions name no recipe: they are of the only one that there was. */
static cod_status check_same_recipe(const trainer *t, const cod_st_file *file)
{
    const char *recipe = cod_st_metadata(file, "recipe"), *written = recipe != NULL ? recipe : "supervised";
    if (strcmp(written, t->config->recipe->name) != 0)
        return cod_fail(COD_ERR_ARGUMENT, "it was written with recipe '%s', not '%s'", written,
                        t->config->recipe->name);
    return COD_OK;
}

/** Whether a part that group `group` wrote is of this run, as it is configured now. */
static cod_status check_same_run(const trainer *t, int group, const cod_st_file *file)
{
    int64_t seed;
    const char *strategy = cod_st_metadata(file, "strategy"), *codec = cod_st_metadata(file, "allreduce_codec");
    COD_TRY(cod_checkpoint_whole(file, "seed", 0, &seed));
    COD_TRY(check_same_recipe(t, file));
    if (strategy == NULL || strcmp(strategy, t->config->strategy->name) != 0)
        return cod_fail(COD_ERR_ARGUMENT, "it was written by strategy '%s', not '%s'", strategy ? strategy : "?",
                        t->config->strategy->name);
    if (seed != t->config->root.seed)
        return cod_fail(COD_ERR_ARGUMENT, "it was written with seed %lld, not %lld", (long long)seed,
                        (long long)t->config->root.seed);
    if (strcmp(codec != NULL ? codec : "none", allreduce_codec(t)) != 0)
        return cod_fail(COD_ERR_ARGUMENT, "it was written with train.allreduce_codec=%s, not %s; set it as it was",
                        codec != NULL ? codec : "none", allreduce_codec(t));
    return check_same_layout(t, group, file);
}

static cod_status load_group(trainer *t, const cod_st_file *file)
{
    cod_train_context *context = &t->context;
    char key[64];
    int64_t step;
    COD_TRY(check_same_run(t, cod_group_index(t->group), file));
    COD_TRY(load_values(t, file));
    COD_TRY(load_states(t, false, file));
    for (int set = 0; set < set_count(t); set++)
        if (t->session.optimisers[set] != NULL)
            cod_optimiser_mark_restored(t->session.optimisers[set]);
    if (cod_st_metadata(file, best_key(t, key)) !=
        NULL) /* else eval.best was another figure: no model is the best by this one yet */
        COD_TRY(cod_checkpoint_number(file, key, &t->best_quality.values[0]));
    COD_TRY(cod_checkpoint_whole(file, "step", 0, &step));
    if (t->leader)
        COD_TRY(trainer_load_totals(file, t->earlier));
    context->step = step;
    return COD_OK;
}

static cod_status cannot_resume(const trainer *t, int64_t step, cod_status status)
{
    return cod_fail_prefix(status, "cannot resume from step %lld in '%s' (checkpoint.resume=never starts anew)",
                           (long long)step, t->checkpoints);
}

static cod_status load_step(trainer *t, int64_t step)
{
    cod_st_file *file = NULL;
    cod_status status = cod_checkpoint_open(t->checkpoints, step, t->part, &file);
    COD_THEN(status, load_group(t, file));
    cod_st_close(file);
    file = NULL;
    if (trainer_keeps_state(t)) {
        char part[32];
        rank_part(trainer_rank(t), part);
        COD_THEN(status, cod_checkpoint_open(t->checkpoints, step, part, &file));
        COD_THEN(status, load_statistics(t, file));
        COD_THEN(status, load_residual(t, file));
        status = cod_group_agree(t->group, status, NULL);
        COD_THEN(status, STRATEGY(t, load, &t->context, file));
        COD_THEN(status, load_states(t, true, file));
        cod_st_close(file);
    }
    return status == COD_OK ? COD_OK : cannot_resume(t, step, status);
}

/**
 * A group without a checkpoint starts anew, which must not come from another division into groups. Group 0 there always was;
 * leader.
 */
static cod_status check_other_groups(const trainer *t)
{
    static const char *const parts[] = {"group-0"};
    int64_t newest;
    cod_st_file *file = NULL;
    cod_status status = cod_checkpoint_newest(t->checkpoints, parts, 1, INT64_MAX, &newest);
    if (status == COD_OK && newest >= 0) {
        status = cod_checkpoint_open(t->checkpoints, newest, parts[0], &file);
        if (status == COD_OK)
            status = check_same_run(t, 0, file);
        else if (status == COD_ERR_IO && t->config->only_group >= 0)
            status = COD_OK; /* its job has just pruned it */
        cod_st_close(file);
        status = status == COD_OK ? COD_OK : cannot_resume(t, newest, status);
    }
    return status;
}

/**
 * Removes checkpoints of later steps than the one from which the run resumes, so that they are not taken for newer
 * ones.
 */
static cod_status discard_later(const trainer *t, int64_t step)
{
    char part[32];
    if (t->config->checkpoint.resume == COD_RESUME_NEVER && t->config->only_group < 0)
        return cod_comm_rank(t->context.comm) == 0 ? cod_checkpoint_discard(t->checkpoints, NULL, -1) : COD_OK;
    if (t->leader)
        COD_TRY(cod_checkpoint_discard(t->checkpoints, t->closing_part, step));
    if (step < 0 && t->config->checkpoint.resume != COD_RESUME_NEVER)
        return COD_OK;
    rank_part(trainer_rank(t), part);
    if (trainer_keeps_state(t))
        COD_TRY(cod_checkpoint_discard(t->checkpoints, part, step));
    return t->leader ? cod_checkpoint_discard(t->checkpoints, t->part, step) : COD_OK;
}

cod_status trainer_resume(trainer *t)
{
    cod_group *world = cod_comm_world(t->context.comm);
    int64_t step = -1;
    cod_status status = COD_OK;
    if (t->config->checkpoint.resume != COD_RESUME_NEVER)
        status = newest_step(t, &step);
    COD_TRY(cod_group_agree(world, status, NULL));
    /* A group that was ended before its first checkpoint begins anew beside those that go on. */
    double newest = (double)step;
    COD_TRY(cod_group_reduce(world, &newest, 1, COD_REDUCE_MAX));
    if (newest < 0 && t->config->checkpoint.resume == COD_RESUME_MUST)
        status = cod_fail(COD_ERR_ARGUMENT, "there is no checkpoint%s to resume from in '%s'",
                          t->config->only_group >= 0 ? " of this group" : "", t->checkpoints);
    if (status == COD_OK && step >= 0)
        status = load_step(t, step);
    if (status == COD_OK && step < 0 && t->leader && t->config->checkpoint.resume != COD_RESUME_NEVER)
        status = check_other_groups(t);
    COD_TRY(cod_group_agree(world, status, NULL));
    COD_TRY(cod_group_agree(world, discard_later(t, step), NULL));
    if (step >= 0 && t->leader)
        cod_log_info("group %d: resumed at step %lld", cod_group_index(t->group), (long long)step);
    else if (newest >= 0 && t->leader)
        cod_log_info("group %d: has no checkpoint and begins anew", cod_group_index(t->group));
    return COD_OK;
}
