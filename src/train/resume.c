/* Saving a run and going on with it. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void rank_part(const trainer *t, int world_rank, char part[32])
{
    (void)t;
    snprintf(part, 32, "rank-%d", world_rank);
}

/** Weights, optimiser and figures of the group: equal on all its ranks, so the first one writes them. */
static cod_status save_group(trainer *t)
{
    const cod_train_context *context = &t->context;
    cod_checkpoint checkpoint = {0};
    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    cod_status status = COD_OK;
    const size_t count = cod_weights_count(&t->weights);
    float *values = cod_arena_alloc(&checkpoint.arena, count * sizeof *values);
    if (values == NULL)
        COD_TRY_GOTO(status, end, COD_ERR_MEMORY);
    COD_TRY_GOTO(status, end, cod_weights_download(&t->weights, values));
    /* The group learns of a bad loss two steps late: what it spoiled must not push out the last good checkpoint. */
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            COD_TRY_GOTO(status, end, trainer_report_not_finite(t, "weights", context->step));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_f32(&checkpoint, "values", values, count));
    for (size_t i = 0; cod_optimiser_state(context->optimiser, i, &name, &buffer, &bytes); i++) {
        float *state = cod_arena_alloc(&checkpoint.arena, bytes);
        if (state == NULL)
            COD_TRY_GOTO(status, end, COD_ERR_MEMORY);
        COD_TRY_GOTO(status, end, context->backend->download(context->device, NULL, state, buffer, 0, bytes));
        COD_TRY_GOTO(status, end, cod_checkpoint_add_f32(&checkpoint, name, state, bytes / sizeof *state));
    }
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "step", (double)context->step));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "best_psnr_y", t->best_psnr));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "world_size", cod_comm_size(context->comm)));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "group_size", cod_group_size(t->group)));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_number(&checkpoint, "seed", (double)t->config->root.seed));
    COD_TRY_GOTO(status, end, cod_checkpoint_add_text(&checkpoint, "strategy", t->config->strategy->name));
    status = cod_checkpoint_write(&checkpoint, t->checkpoints, context->step, t->part);
end:
    cod_checkpoint_clear(&checkpoint);
    return status;
}

static cod_status save_rank(trainer *t)
{
    cod_checkpoint checkpoint = {0};
    char part[32];
    rank_part(t, cod_comm_rank(t->context.comm), part);
    cod_status status = cod_checkpoint_add_number(&checkpoint, "step", (double)t->context.step);
    if (status == COD_OK)
        status = t->strategy->ops->save(t->strategy, &checkpoint);
    if (status == COD_OK)
        status = cod_checkpoint_write(&checkpoint, t->checkpoints, t->context.step, part);
    cod_checkpoint_clear(&checkpoint);
    return status;
}

/** Older checkpoints go only once the new one is complete: a group that is killed in between keeps one to resume from. */
static cod_status prune(const trainer *t)
{
    char part[32];
    rank_part(t, cod_comm_rank(t->context.comm), part);
    if (t->config->strategy->keeps_state)
        COD_TRY(cod_checkpoint_prune(t->checkpoints, part, t->config->checkpoint.keep));
    return t->leader ? cod_checkpoint_prune(t->checkpoints, t->part, t->config->checkpoint.keep) : COD_OK;
}

cod_status trainer_save_checkpoint(trainer *t)
{
    cod_status status = COD_OK;
    /* The rank's part first: the group's part makes a step complete. */
    if (t->config->strategy->keeps_state)
        status = save_rank(t);
    if (status == COD_OK && t->leader)
        status = save_group(t);
    COD_TRY(cod_group_agree(t->group, status, NULL));
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
        for (int r = -1; r < (t->config->strategy->keeps_state ? members.size : 0) && count < capacity; r++) {
            if (r < 0)
                snprintf(names[count], 32, "group-%d", g);
            else
                rank_part(t, members.world_ranks[r], names[count]);
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
    cod_int_list steps = {0};
    cod_status status = COD_OK;
    double found = -1;
    if (t->leader) {
        const size_t capacity = 2 * (size_t)cod_comm_size(t->context.comm);
        char(*names)[32] = cod_arena_alloc(&arena, capacity * sizeof *names);
        const char **parts = cod_arena_alloc(&arena, capacity * sizeof *parts);
        if (names == NULL || parts == NULL)
            status = COD_ERR_MEMORY;
        /* Groups go on alone, each from its own newest checkpoint; only a replay needs one step common to all. */
        if (status == COD_OK)
            status = cod_checkpoint_list(t->checkpoints, parts,
                                         needed_parts(t, trainer_in_step(t), names, parts, capacity), &arena, &steps);
        found = steps.count > 0 ? (double)steps.items[0] : -1;
    }
    cod_arena_clear(&arena);
    COD_TRY(cod_group_agree(t->group, status, NULL));
    COD_TRY(cod_group_broadcast(t->group, &found, sizeof found, 0));
    *step = (int64_t)found;
    return COD_OK;
}

static cod_status check_same_run(const trainer *t, const cod_st_file *file)
{
    double seed, world;
    const char *strategy = cod_st_metadata(file, "strategy");
    COD_TRY(cod_checkpoint_number(file, "seed", &seed));
    COD_TRY(cod_checkpoint_number(file, "world_size", &world));
    if (strategy == NULL || strcmp(strategy, t->config->strategy->name) != 0)
        return cod_fail(COD_ERR_ARGUMENT, "it was written by strategy '%s', not '%s'", strategy ? strategy : "?",
                        t->config->strategy->name);
    if ((int64_t)seed != t->config->root.seed)
        return cod_fail(COD_ERR_ARGUMENT, "it was written with seed %lld, not %lld", (long long)seed,
                        (long long)t->config->root.seed);
    if ((int)world != cod_comm_size(t->context.comm) && t->config->strategy->keeps_state)
        return cod_fail(COD_ERR_ARGUMENT,
                        "it was written by %d ranks, and strategy '%s' cannot go on with %d; start as many", (int)world,
                        t->config->strategy->name, cod_comm_size(t->context.comm));
    return COD_OK;
}

static cod_status load_group(trainer *t, const cod_st_file *file)
{
    cod_train_context *context = &t->context;
    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    double step;
    COD_TRY(check_same_run(t, file));
    float *values = malloc(cod_weights_count(&t->weights) * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_status status = cod_checkpoint_read(file, "values", values, cod_weights_count(&t->weights) * sizeof *values);
    if (status == COD_OK)
        status = cod_weights_upload(&t->weights, values);
    for (size_t i = 0; status == COD_OK && cod_optimiser_state(context->optimiser, i, &name, &buffer, &bytes); i++) {
        status = cod_checkpoint_read(file, name, values, bytes);
        if (status == COD_OK)
            status = context->backend->upload(context->device, NULL, buffer, 0, values, bytes);
    }
    free(values);
    COD_TRY(status);
    cod_optimiser_mark_restored(context->optimiser);
    COD_TRY(cod_checkpoint_number(file, "best_psnr_y", &t->best_psnr));
    COD_TRY(cod_checkpoint_number(file, "step", &step));
    context->step = (int64_t)step;
    return COD_OK;
}

static cod_status load_step(trainer *t, int64_t step)
{
    cod_st_file *file = NULL;
    cod_status status = cod_checkpoint_open(t->checkpoints, step, t->part, &file);
    if (status == COD_OK)
        status = load_group(t, file);
    cod_st_close(file);
    if (status == COD_OK && t->config->strategy->keeps_state) {
        char part[32];
        rank_part(t, cod_comm_rank(t->context.comm), part);
        status = cod_checkpoint_open(t->checkpoints, step, part, &file);
        if (status == COD_OK) {
            status = STRATEGY(t, load, &t->context, file);
            cod_st_close(file);
        }
    }
    return status == COD_OK
               ? COD_OK
               : cod_fail_prefix(status, "cannot resume from step %lld in '%s' (checkpoint.resume=never starts anew)",
                                 (long long)step, t->checkpoints);
}

cod_status trainer_resume(trainer *t)
{
    cod_group *world = cod_comm_world(t->context.comm);
    int64_t step = -1;
    cod_status status = COD_OK;
    if (t->config->checkpoint.resume != COD_RESUME_NEVER)
        status = newest_step(t, &step);
    if (status == COD_OK && step < 0 && t->config->checkpoint.resume == COD_RESUME_MUST)
        status = cod_fail(COD_ERR_ARGUMENT, "there is no checkpoint to resume from in '%s'", t->checkpoints);
    if (status == COD_OK && step >= 0)
        status = load_step(t, step);
    COD_TRY(cod_group_agree(world, status, NULL));
    if (step >= 0 && t->leader)
        cod_log_info("group %d: resumed at step %lld", cod_group_index(t->group), (long long)step);
    return COD_OK;
}
