/* Saves and resumes a run. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

/** Key of the best first figure so far in a checkpoint: "best_psnr_y", "best_psnr_y.set5". */
static const char *best_key(const trainer *t, char key[64])
{
    char figure[64];
    cod_task_set_key(t->task, t->task->judge, 0, figure);
    snprintf(key, 64, "best_%.58s", figure);
    return key;
}

static const char without_best_key[] = "evaluations_without_best", ended_key[] = "ended_early_at";

static const char *allreduce_codec(const trainer *t)
{
    return cod_allreduce_codec_names[t->config->train.allreduce_codec];
}

/**
 * Weights, optimiser and figures of the group: equal on all its ranks but for statistics, so the first one writes them.
 */
static cod_status save_group(trainer *t, float *const *moments, const double totals[TRAINER_TOTALS])
{
    cod_checkpoint checkpoint = {0};
    char key[64];
    cod_status status = trainer_save_values(t, &checkpoint);
    COD_THEN(status, trainer_save_states(t, false, moments, &checkpoint));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, "step", (double)t->context.step));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, best_key(t, key), t->evaluator.best.values[0]));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, without_best_key, (double)t->without_best));
    if (trainer_ends_early(t))
        COD_THEN(status, cod_checkpoint_add_number(&checkpoint, ended_key, (double)t->context.steps));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, "world_size", trainer_ranks(t)));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, "groups", cod_group_count(t->group)));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, "group_size", cod_group_size(t->group)));
    COD_THEN(status, cod_checkpoint_add_number(&checkpoint, "seed", (double)t->config->root.seed));
    COD_THEN(status, cod_checkpoint_add_text(&checkpoint, "recipe", t->config->recipe->name));
    COD_THEN(status, cod_checkpoint_add_text(&checkpoint, "strategy", t->config->strategy->name));
    COD_THEN(status, cod_checkpoint_add_text(&checkpoint, "allreduce_codec", allreduce_codec(t)));
    COD_THEN(status, trainer_save_identity(&t->evaluator, &t->session, &checkpoint));
    COD_THEN(status, trainer_data_save(&t->data, &checkpoint));
    COD_THEN(status, trainer_save_totals(&checkpoint, totals));
    COD_THEN(status, cod_checkpoint_write(&checkpoint, t->checkpoints, t->context.step, t->part));
    cod_checkpoint_clear(&checkpoint);
    return status;
}

static cod_status save_rank(trainer *t)
{
    cod_checkpoint checkpoint = {0};
    cod_status status = cod_checkpoint_add_number(&checkpoint, "step", (double)t->context.step);
    COD_THEN(status, trainer_save_statistics(t, &checkpoint));
    COD_THEN(status, trainer_save_residual(t, &checkpoint));
    COD_THEN(status, STRATEGY(t, save, &checkpoint));
    COD_THEN(status, trainer_save_states(t, true, NULL, &checkpoint));
    COD_THEN(status, cod_checkpoint_write(&checkpoint, t->checkpoints, t->context.step, t->rank_part));
    cod_checkpoint_clear(&checkpoint);
    return status;
}

/**
 * Lists the parts of this group, or of all groups where they resume at one step.
 *
 * @param ranks  also those of their ranks
 */
static cod_status list_parts(const trainer *t, bool ranks, cod_arena *arena, const char ***parts, size_t *count)
{
    const size_t capacity = (size_t)(cod_group_count(t->group) + (ranks ? trainer_ranks(t) : 0));
    char(*names)[TRAINER_PART] = cod_arena_alloc(arena, capacity * sizeof *names);
    *parts = cod_arena_alloc(arena, capacity * sizeof **parts);
    *count = 0;
    if (names == NULL || *parts == NULL)
        return COD_ERR_MEMORY;
    for (size_t i = 0; i < capacity; i++)
        (*parts)[i] = names[i];
    for (int g = 0; g < cod_group_count(t->group); g++) {
        const cod_group_members members = cod_group_members_of(t->group, g);
        if (!trainer_in_step(t) && g != cod_group_index(t->group))
            continue;
        trainer_group_part(g, names[(*count)++]);
        for (int r = 0; ranks && r < members.size; r++)
            trainer_rank_part(members.world_ranks[r], names[(*count)++]);
    }
    return COD_OK;
}

/**
 * Older checkpoints go only once newer ones are complete: a group that is killed in between keeps one to resume from.
 * Where groups resume at one step, that takes the parts of all groups.
 */
static cod_status prune(const trainer *t)
{
    const int64_t keep = t->config->checkpoint.keep;
    cod_arena arena = {0};
    const char **parts;
    size_t count;
    cod_status status = list_parts(t, false, &arena, &parts, &count);
    if (trainer_keeps_state(t))
        COD_THEN(status, cod_checkpoint_prune(t->checkpoints, t->rank_part, parts, count, keep));
    if (t->leader) {
        COD_THEN(status, cod_checkpoint_prune(t->checkpoints, t->closing_part, parts, count, keep));
        COD_THEN(status, cod_checkpoint_prune(t->checkpoints, t->part, parts, count, keep));
    }
    cod_arena_clear(&arena);
    return status;
}

/** The group's part of a checkpoint, with what ranks hold apart put together. */
static cod_status save_whole(trainer *t, const double totals[TRAINER_TOTALS])
{
    cod_arena arena = {0};
    float *moments[TRAINER_STATES_MAX] = {NULL};
    cod_status status = cod_group_agree(t->group, trainer_make_room(t, &arena, moments), NULL);
    COD_THEN(status, trainer_gather(t, moments));
    COD_THEN(status, cod_group_agree(t->group, t->leader ? save_group(t, moments, totals) : COD_OK, NULL));
    cod_arena_clear(&arena);
    return status;
}

cod_status trainer_save_checkpoint(trainer *t)
{
    double totals[TRAINER_TOTALS];
    COD_TRY(cod_group_agree(t->group, trainer_check_owner(t), NULL));
    COD_TRY(trainer_measures_sum(&t->measures, &t->context, t->strategy, totals));
    /* The group's part comes after those of all its ranks: it makes a step complete. */
    if (trainer_keeps_state(t))
        COD_TRY(cod_group_agree(t->group, save_rank(t), NULL));
    COD_TRY(save_whole(t, totals));
    trainer_watchdog_note_checkpoint(t->watchdog, t->context.step);
    return cod_group_agree(t->group, prune(t), NULL);
}

/** Groups go on alone, each from its own newest checkpoint; only a replay needs one step common to all. Leader. */
static cod_status find_newest(const trainer *t, int64_t *step)
{
    cod_arena arena = {0};
    const char **parts;
    size_t count, damaged = 0;
    cod_status status = list_parts(t, trainer_keeps_state(t), &arena, &parts, &count);
    COD_THEN(status, cod_checkpoint_newest(t->checkpoints, parts, count, INT64_MAX, step, &damaged));
    cod_arena_clear(&arena);
    if (status == COD_OK && *step < 0 && damaged > 0) /* to begin anew would overwrite what may be saved yet */
        return cod_fail(
            COD_ERR_FORMAT,
            "none of the checkpoints in '%s' can be used (%zu damaged): put a copy of one back, or give the "
            "run another name=; checkpoint.resume=never starts anew here and removes them",
            t->checkpoints, damaged);
    return status;
}

/** The newest step that can be resumed from, or -1; the same on all ranks of the group. */
static cod_status newest_step(trainer *t, int64_t *step)
{
    COD_TRY(cod_group_agree(t->group, t->leader ? find_newest(t, step) : COD_OK, NULL));
    return cod_group_broadcast(t->group, step, sizeof *step, 0);
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

/**
 * Checks that the data are those of the checkpoint; leader.
 *
 * @param[out] same  whether the figures so far are of these data
 */
static cod_status check_same_data(const trainer *t, const cod_st_file *file, bool *same)
{
    char difference[TRAINER_DATA_DIFFERENCE];
    trainer_data_compare(&t->data, file, difference);
    *same = difference[0] == '\0';
    if (*same)
        return COD_OK;
    if (t->config->checkpoint.data != COD_RESUME_ANY_DATA)
        return cod_fail(COD_ERR_ARGUMENT,
                        "%s; restore them, or set checkpoint.data=any to go on with what is there now", difference);
    cod_log_warn("group %d: %s: goes on with what is there now, and forgets the best figure so far",
                 cod_group_index(t->group), difference);
    return COD_OK;
}

/** The best figure so far, and how long ago it was. Where eval.best was another figure, no model is the best yet. */
static cod_status load_best(trainer *t, const cod_st_file *file)
{
    char key[64];
    if (cod_st_metadata(file, best_key(t, key)) == NULL)
        return COD_OK;
    COD_TRY(cod_checkpoint_number(file, key, &t->evaluator.best.values[0]));
    if (cod_st_metadata(file, without_best_key) != NULL) /* older checkpoints have not counted */
        COD_TRY(cod_checkpoint_whole(file, without_best_key, 0, &t->without_best));
    if (cod_st_metadata(file, ended_key) != NULL)
        COD_TRY(cod_checkpoint_whole(file, ended_key, 1, &t->ended_at));
    return COD_OK;
}

static cod_status load_group(trainer *t, const cod_st_file *file)
{
    cod_train_context *context = &t->context;
    int64_t step;
    bool same_data = true;
    COD_TRY(check_same_run(t, cod_group_index(t->group), file));
    if (t->leader)
        COD_TRY(check_same_data(t, file, &same_data));
    COD_TRY(trainer_load_values(t, file));
    COD_TRY(trainer_load_states(t, false, file));
    for (int set = 0; set < (int)cod_graph_set_count(t->session.weights.graph); set++)
        if (t->session.optimisers[set] != NULL)
            cod_optimiser_mark_restored(t->session.optimisers[set]);
    if (same_data)
        COD_TRY(load_best(t, file));
    COD_TRY(cod_checkpoint_whole(file, "step", 0, &step));
    if (t->leader)
        COD_TRY(trainer_load_totals(file, t->measures.earlier));
    context->step = step;
    return COD_OK;
}

static cod_status cannot_resume(const trainer *t, int64_t step, cod_status status)
{
    return cod_fail_prefix(status,
                           "cannot resume from step %lld in '%s' (another name= begins a new run, "
                           "checkpoint.resume=never begins anew in its place)",
                           (long long)step, t->checkpoints);
}

static cod_status load_group_part(trainer *t, int64_t step)
{
    cod_st_file *file = NULL;
    COD_TRY(cod_checkpoint_open(t->checkpoints, step, t->part, &file));
    const cod_status status = load_group(t, file);
    cod_st_close(file);
    return status;
}

/** The group's ranks agree before the strategy loads. @param status  of the group's part on this rank */
static cod_status load_rank_part(trainer *t, int64_t step, cod_status status)
{
    cod_st_file *file = NULL;
    COD_THEN(status, cod_checkpoint_open(t->checkpoints, step, t->rank_part, &file));
    COD_THEN(status, trainer_load_statistics(t, file));
    COD_THEN(status, trainer_load_residual(t, file));
    status = cod_group_agree(t->group, status, NULL);
    COD_THEN(status, STRATEGY(t, load, &t->context, file));
    COD_THEN(status, trainer_load_states(t, true, file));
    cod_st_close(file);
    return status;
}

static cod_status load_step(trainer *t, int64_t step)
{
    cod_status status = load_group_part(t, step);
    if (trainer_keeps_state(t))
        status = load_rank_part(t, step, status);
    return status == COD_OK ? COD_OK : cannot_resume(t, step, status);
}

/**
 * A group without a checkpoint starts anew, which must not come from another division into groups. Group 0 there always
 * was; leader.
 */
static cod_status check_other_groups(const trainer *t)
{
    static const char *const parts[] = {"group-0"};
    int64_t newest;
    cod_st_file *file = NULL;
    COD_TRY(cod_checkpoint_newest(t->checkpoints, parts, 1, INT64_MAX, &newest, NULL));
    if (newest < 0)
        return COD_OK;
    cod_status status = cod_checkpoint_open(t->checkpoints, newest, parts[0], &file);
    if (status == COD_ERR_IO && t->config->only_group >= 0)
        return COD_OK; /* its job has just pruned it */
    COD_THEN(status, check_same_run(t, 0, file));
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cannot_resume(t, newest, status);
}

/**
 * Removes checkpoints of later steps than the one from which the run resumes, so that they are not taken for newer
 * ones.
 */
static cod_status discard_later(const trainer *t, int64_t step)
{
    if (t->config->checkpoint.resume == COD_RESUME_NEVER && t->config->only_group < 0)
        return cod_comm_rank(t->context.comm) == 0 ? cod_checkpoint_discard(t->checkpoints, NULL, -1) : COD_OK;
    if (t->leader)
        COD_TRY(cod_checkpoint_discard(t->checkpoints, t->closing_part, step));
    if (step < 0 && t->config->checkpoint.resume != COD_RESUME_NEVER)
        return COD_OK;
    if (trainer_keeps_state(t))
        COD_TRY(cod_checkpoint_discard(t->checkpoints, t->rank_part, step));
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
    if (step >= 0)
        COD_THEN(status, load_step(t, step));
    else if (t->leader && t->config->checkpoint.resume != COD_RESUME_NEVER)
        COD_THEN(status, check_other_groups(t));
    COD_TRY(cod_group_agree(world, status, NULL));
    t->resumed = step >= 0;
    t->others_resumed = newest >= 0;
    return cod_group_agree(world, discard_later(t, step), NULL);
}

void trainer_tell_resume(const trainer *t)
{
    if (!t->leader)
        return;
    if (t->resumed)
        cod_log_info("group %d: resumed at step %lld", cod_group_index(t->group), (long long)t->context.step);
    else if (t->others_resumed)
        cod_log_info("group %d: has no checkpoint and begins anew", cod_group_index(t->group));
}
