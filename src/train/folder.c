/* The run's folder: its lock, the configuration that it contains, and whether the run has finished. */
#include "train/trainer_internal.h"

#include "core/log.h"
#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void path_in(const trainer *t, const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", t->folder, name);
}

/** Removes what killed writers of this group's files left; other groups' jobs may be writing theirs. */
static cod_status clean_group(const trainer *t)
{
    static const char *const names[] = {"metrics.%d.jsonl", "exchange.%d.jsonl", "data.%d.tsv", "group.%d.safetensors",
                                        "checkpoints/best.group-%d.safetensors"};
    const int group = cod_group_index(t->group), size = cod_group_size(t->group);
    char name[64], path[4096];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, names[i], group);
        path_in(t, name, path);
        COD_TRY(cod_file_clean(path));
    }
    COD_TRY(cod_checkpoint_clean(t->checkpoints, t->part));
    COD_TRY(cod_checkpoint_clean(t->checkpoints, t->closing_part));
    for (int r = 0; r < size; r++) {
        trainer_rank_part(cod_group_world_rank(t->group, group, r), name);
        COD_TRY(cod_checkpoint_clean(t->checkpoints, name));
    }
    return COD_OK;
}

/**
 * Checks that a group that is a separate job agrees with earlier jobs in this folder, and warns about other
 * differences.
 */
static cod_status compare_with_others(trainer *t)
{
    char path[4096], difference[256] = "";
    path_in(t, "config.yaml", path);
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(cod_run_config_compare(t->config, path, COD_COMPARE_SHARED, difference));
    COD_REQUIRE(difference[0] == '\0',
                "'%s' is another group's with another configuration (%s); groups of a run agree on that: set it as "
                "there, or give this run another name=",
                t->folder, difference);
    COD_TRY(cod_run_config_compare(t->config, path, COD_COMPARE_RESULT, difference));
    if (difference[0] != '\0')
        cod_log_warn("group %d differs from what '%s' said so far (%s)", t->config->only_group, path, difference);
    return COD_OK;
}

/** Refuses a config.yaml that says nothing: it would stand for the default of every option, and for no nonce. */
static cod_status check_written(const trainer *t)
{
    enum { MOST = 1 << 24 };
    char path[4096];
    void *text = NULL;
    size_t bytes;
    path_in(t, "config.yaml", path);
    if (!cod_file_exists(path) || (t->config->only_group < 0 && t->config->checkpoint.resume == COD_RESUME_NEVER))
        return COD_OK;
    COD_TRY(cod_file_read(path, MOST, &text, &bytes));
    size_t blank = 0;
    while (blank < bytes && strchr(" \t\r\n", ((char *)text)[blank]) != NULL) /* or a zero, as after a power cut */
        blank++;
    free(text);
    return blank < bytes
               ? COD_OK
               : cod_fail(COD_ERR_FORMAT,
                          "'%s' is empty: put a copy back, or remove it, which gives the run another nonce", path);
}

/** What to do where another job has the folder. */
#define WAY_OUT "wait until it has ended, or give this run another name="

/** A job of all groups has the folder for itself; those of single groups share it, each with a lock on its group. */
static cod_status lock_folder(trainer *t)
{
    char path[4096], name[32];
    const int only = t->config->only_group;
    path_in(t, ".lock", path);
    if (only < 0) {
        COD_TRY(cod_file_lock_acquire(path, WAY_OUT, &t->lock));
        COD_TRY(check_written(t));
        COD_TRY(cod_folder_clean(t->folder));
        return cod_checkpoint_clean(t->checkpoints, NULL);
    }
    COD_TRY(cod_file_lock_share(path, WAY_OUT, &t->lock));
    snprintf(name, sizeof name, ".lock.%d", only);
    path_in(t, name, path);
    const cod_status status = cod_file_lock_acquire(path, WAY_OUT, &t->group_lock);
    if (status != COD_OK)
        return cod_fail_prefix(status, "group %d is trained by one job at a time", only);
    COD_TRY(check_written(t));
    COD_TRY(compare_with_others(t));
    return clean_group(t);
}

/** The leaders of other groups save, too, and see by the lock's file whether the folder still is this job's. */
static void observe_lock(trainer *t)
{
    char path[4096];
    path_in(t, ".lock", path);
    if (t->leader && t->lock == NULL && cod_file_lock_observe(path, &t->lock) != COD_OK)
        cod_log_debug("group %d does not see the folder's lock: %s", cod_group_index(t->group), cod_error_message());
}

cod_status trainer_open_folder(trainer *t)
{
    cod_arena *arena = cod_config_arena(t->config->config);
    t->folder = cod_run_config_folder(t->config);
    t->checkpoints = cod_path_join(arena, t->folder, "checkpoints");
    COD_REQUIRE_MEMORY(t->folder);
    COD_REQUIRE_MEMORY(t->checkpoints);
    cod_status status = COD_OK;
    if (cod_comm_rank(t->request->comm) == 0) {
        status = cod_folder_create(t->folder);
        COD_THEN(status, lock_folder(t));
    }
    COD_TRY(cod_group_agree(cod_comm_world(t->request->comm), status, NULL));
    observe_lock(t);
    return COD_OK;
}

cod_status trainer_check_owner(const trainer *t)
{
    cod_status status = cod_file_lock_check(t->lock);
    COD_THEN(status, cod_file_lock_check(t->group_lock));
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "nothing more is saved, and the job ends");
}

/** The configuration, and which data it was used with as a comment behind it. @param[out] text  new; free() */
static cod_status describe_run(trainer *t, char **text)
{
    static const char format[] =
        "\n# The data that this was used with: files %s (listed in data.%d.tsv), held out %s\n";
    COD_TRY(cod_run_config_resolved(t->config, true, text));
    const size_t length = strlen(*text), room = sizeof format + sizeof t->data.files + sizeof t->data.held_out + 16;
    char *longer = realloc(*text, length + room);
    if (longer == NULL)
        return COD_OK; /* the caller writes what there is */
    *text = longer;
    snprintf(longer + length, room, format, t->data.files, cod_group_index(t->group), t->data.held_out);
    return COD_OK;
}

/** Logs in what a run that goes on differs from what it was so far. */
static void tell_changes(const trainer *t)
{
    char path[4096], difference[256] = "";
    path_in(t, "config.yaml", path);
    if (t->context.step > 0 && t->config->only_group < 0 && cod_file_exists(path) &&
        cod_run_config_compare(t->config, path, COD_COMPARE_RESULT, difference) == COD_OK && difference[0] != '\0')
        cod_log_info("'%s' goes on with another configuration than so far (%s)", t->folder, difference);
}

cod_status trainer_claim_folder(trainer *t)
{
    char path[4096], *text = NULL;
    tell_changes(t);
    path_in(t, "summary.json", path);
    COD_TRY(cod_file_remove(path));
    path_in(t, "config.yaml", path);
    COD_TRY(describe_run(t, &text));
    const cod_status status = cod_file_write(path, text, strlen(text));
    free(text);
    return status;
}

/** Logs that a finished run stays as it is, and warns if the configuration now differs. */
static cod_status tell_finished(trainer *t)
{
    char path[4096], difference[256] = "";
    path_in(t, "config.yaml", path);
    if (cod_file_exists(path))
        COD_TRY(cod_run_config_compare(t->config, path, COD_COMPARE_RESULT, difference));
    if (trainer_ends_early(t))
        cod_log_info("'%s' is finished: it ended early before, at step %lld of %lld, and summary.json is written: "
                     "nothing is left to do; a larger eval.patience, or 0, goes on",
                     t->folder, (long long)t->context.steps, (long long)t->config->train.steps);
    else
        cod_log_info("'%s' is finished: all %lld steps were done before and summary.json is written: nothing is left "
                     "to do",
                     t->folder, (long long)t->context.steps);
    if (difference[0] != '\0')
        cod_log_warn("'%s' was trained with another configuration (%s), and stays as it is: another name= trains this "
                     "one, checkpoint.resume=never begins anew in its place, a larger train.steps goes on from there",
                     t->folder, difference);
    return COD_OK;
}

/** Whether summary.json was written to its end; says so if it was not. */
static bool is_summarised(const trainer *t)
{
    enum { MOST = 1 << 26 };
    char path[4096];
    void *text = NULL;
    size_t bytes;
    cod_json_value *summary = NULL;
    path_in(t, "summary.json", path);
    if (!cod_file_exists(path))
        return false;
    cod_status status = cod_file_read(path, MOST, &text, &bytes);
    COD_THEN(status, cod_json_parse(text, bytes, &summary));
    const bool whole = status == COD_OK && cod_json_get(summary, "final_is") != NULL;
    cod_json_free(summary);
    free(text);
    if (!whole)
        cod_log_warn("'%s' is empty or damaged: it is made again", path);
    return whole;
}

cod_status trainer_look_whether_finished(trainer *t)
{
    const cod_train_context *context = &t->context;
    const bool first = cod_comm_rank(context->comm) == 0;
    double open = context->step != context->steps || (first && !is_summarised(t));
    COD_TRY(cod_group_reduce(cod_comm_world(context->comm), &open, 1, COD_REDUCE_MAX));
    t->finished_before = open == 0;
    return t->finished_before && first ? tell_finished(t) : COD_OK;
}
