#include "train/config_internal.h"

#include "core/queue.h"
#include "infer/lpips.h"
#include "infer/ma_model.h"
#include "infer/named_model.h"
#include "infer/niqe_model.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/strategy.h"
#include "train/task.h"

#include <stdio.h>
#include <string.h>

/** A name that is none of those registered: "there is no strategy 'x'; did you mean 'y'? strategies are: …". */
static void unknown_name(cod_run_config *run, const char *key, const char *what, const char *plural, const char *name,
                         const char *const *names, size_t count)
{
    const char *near = cod_suggest(name, names, count);
    char list[512] = "";
    for (size_t i = 0; i < count; i++)
        cod_names_add(list, sizeof list, names[i]);
    cod_config_problem_key(run->config, key, "there is no %s '%s'; %s%s%s%s are: %s", what, name,
                           near ? "did you mean '" : "", near ? near : "", near ? "'? " : "", plural, list);
}

enum { MAX_NAMES = 64 };

static void check_strategy(cod_run_config *run)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    for (; count < MAX_NAMES && cod_strategy_at(count) != NULL; count++)
        names[count] = cod_strategy_at(count)->name;
    run->strategy = cod_strategy_find(run->train.strategy);
    if (run->strategy == NULL)
        unknown_name(run, "train.strategy", "strategy", "strategies", run->train.strategy, names, count);
    else if (run->strategy->check != NULL)
        run->strategy->check(run);
}

static void check_recipe(cod_run_config *run)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    for (; count < MAX_NAMES && cod_recipe_at(count) != NULL; count++)
        names[count] = cod_recipe_at(count)->name;
    run->recipe = cod_recipe_find(run->train.recipe);
    if (run->recipe == NULL)
        unknown_name(run, "train.recipe", "recipe", "recipes", run->train.recipe, names, count);
    else if (run->recipe->check != NULL)
        run->recipe->check(run);
}

static void check_backend(cod_run_config *run)
{
    if (strcmp(run->train.backend, COD_BACKEND_AUTO) == 0 || cod_backend_find(run->train.backend) != NULL)
        return;
    char list[COD_BACKEND_NAMES];
    cod_backend_names(list);
    cod_config_problem_key(run->config, "train.backend", "there is no backend '%s' in this build; backends are: %s",
                           run->train.backend, list);
}

/** Other ways than the usual one are for devices, where some group may have one: on others they change nothing. */
static void check_transfer(cod_run_config *run)
{
    const char *transfer = cod_data_transfer_names[run->data.transfer];
    const cod_backend *backend = NULL;
    if (run->data.transfer == COD_TRANSFER_AUTO || run->strategy == NULL ||
        cod_config_has_problem(run->config, "data.transfer"))
        return;
    for (int g = 0; g == 0 || g < (int)run->group_count; g++) {
        const cod_device_choice choice = cod_run_config_device(run, g);
        backend = cod_device_certain(&choice);
        if (backend == NULL || !cod_backend_runs_at_once(backend))
            return;
    }
    cod_config_problem_key(run->config, "data.transfer",
                           "%s is a way to devices with memory of their own; backend '%s' computes in the host's, "
                           "where batches are: set auto",
                           transfer, backend->name);
}

/** Messages are coded where all ranks of a group average gradients as one. */
static void check_allreduce_codec(cod_run_config *run)
{
    const cod_train_options *train = &run->train;
    const char *codec = cod_allreduce_codec_names[train->allreduce_codec];
    char list[512] = "";
    if (train->allreduce_codec == COD_ALLREDUCE_EXACT)
        return;
    if (train->allreduce != COD_ALLREDUCE_AUTO && train->allreduce != COD_ALLREDUCE_FLAT)
        cod_config_problem_key(run->config, "train.allreduce_codec",
                               "%s is for a flat all-reduce; leave out train.allreduce=%s", codec,
                               cod_allreduce_names[train->allreduce]);
    if (run->strategy == NULL || run->strategy->averages)
        return;
    for (size_t i = 0; cod_strategy_at(i) != NULL; i++)
        if (cod_strategy_at(i)->averages)
            cod_names_add(list, sizeof list, cod_strategy_at(i)->name);
    cod_config_problem_key(run->config, "train.allreduce_codec",
                           "strategy '%s' does not average gradients by an all-reduce of the group; %s is for: %s",
                           run->strategy->name, codec, list);
}

static void check_train(cod_run_config *run)
{
    cod_config *config = run->config;
    const cod_train_options *train = &run->train;
    if (cod_duration_parse(train->max_time, &run->max_time_s) != COD_OK)
        cod_config_problem_key(config, "train.max_time", "%s", cod_error_message());
    if (train->warmup >= train->steps && !cod_config_has_problem(config, "train.warmup") &&
        !cod_config_has_problem(config, "train.steps"))
        cod_config_problem_key(config, "train.warmup", "%lld steps of warm-up leave nothing of %lld steps",
                               (long long)train->warmup, (long long)train->steps);
    if (train->nesterov && train->momentum == 0)
        cod_config_problem_key(config, "train.nesterov", "Nesterov's variant needs train.momentum above 0");
    check_allreduce_codec(run);
    check_transfer(run);
}

static void add_problem(cod_run_config *run, const char *section, const char *key, const char *text)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", section, key);
    if (!cod_config_has_problem(run->config, full))
        cod_config_problem_key(run->config, full, "%s", text);
}

static void add_data_problem(void *context, const char *key, const char *text)
{
    add_problem(context, "data", key, text);
}

static void add_degradation_problem(void *context, const char *key, const char *text)
{
    add_problem(context, "degradation", key, text);
}

static void check_data(cod_run_config *run)
{
    if (!cod_config_has_problem(run->config, "data.kind"))
        cod_data_options_examine(&run->data, add_data_problem, run);
    cod_degrade_options_examine(&run->degradation, add_degradation_problem, run);
    if (run->eval.degraded && run->data.degradation == COD_DEGRADATION_BICUBIC &&
        !cod_config_has_problem(run->config, "data.degradation"))
        cod_config_problem_key(run->config, "eval.degraded",
                               "pictures are degraded where data.degradation is real_esrgan, and it is bicubic");
    else if (run->eval.degraded && run->data.val_low_path.count > 0)
        cod_config_problem_key(run->config, "eval.degraded",
                               "makes the low-resolution pictures that data.val_low_path gives: leave one of them out");
}

/** Whether `init` has the name of a file of weights: of safetensors, or of torch.save(). */
static bool is_init_file(const char *init)
{
    static const char *const endings[] = {".pth", ".pt", ".ckpt", ".bin"};
    const size_t length = strlen(init);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (length > strlen(endings[i]) && strcmp(init + length - strlen(endings[i]), endings[i]) == 0)
            return true;
    return strstr(init, ".safetensors") != NULL;
}

/** Groups can teach each other only where they do the same: enlarge by the same scale, or tell the same classes. */
static void check_alike(cod_run_config *run, const cod_group_config *group, int index)
{
    const cod_group_config *whole = &run->whole;
    char key[64];
    snprintf(key, sizeof key, "cluster.groups.%d", index);
    const cod_config_node *node = cod_config_find(run->config, key);
    if (group->kind->task != whole->kind->task) {
        snprintf(key, sizeof key, "cluster.groups.%d.model.name", index);
        cod_config_problem_key(
            run->config, key, "model '%s' is for %s, the run's '%s' for %s: groups must agree on the task",
            group->kind->name, cod_task_name(group->kind->task), whole->kind->name, cod_task_name(whole->kind->task));
        return;
    }
    if (group->kind->scale != NULL) {
        const int own = group->kind->scale(group->architecture), all = whole->kind->scale(whole->architecture);
        if (own != all)
            cod_config_problem(run->config, node,
                               "this group's model upscales by %d, the run's by %d: groups must agree on the task", own,
                               all);
    }
    const cod_classifier_sizes *own = cod_model_sizes(group->kind, group->architecture);
    const cod_classifier_sizes *all = cod_model_sizes(whole->kind, whole->architecture);
    if (own != NULL && all != NULL && own->classes != all->classes && own->classes > 0 && all->classes > 0)
        cod_config_problem(run->config, node,
                           "this group's model tells %lld classes, the run's %lld: groups must agree on the classes",
                           (long long)own->classes, (long long)all->classes);
}

/**
 * Checks the model of the run (`index` -1) or of one group: its initial weights, its task, and that groups can teach
 * each other.
 */
static void check_model(cod_run_config *run, const cod_group_config *group, int index)
{
    cod_config *config = run->config;
    const char *init = group->model.init;
    char place[64] = "", key[80];
    if (index >= 0)
        snprintf(place, sizeof place, "cluster.groups.%d.", index);
    if (strcmp(init, "shared") != 0 && strcmp(init, "own") != 0 && !is_init_file(init) && !cod_named_model_is(init)) {
        snprintf(key, sizeof key, "%smodel.init", place);
        cod_config_problem_key(config, key,
                               "'%s' is not `shared`, `own`, a .safetensors or .pth file, the folder of a run, or a "
                               "model that comes along, such as sr-x4",
                               init);
    }
    const int multiple = cod_model_multiple(group->kind, group->architecture);
    if (run->data.patch % multiple != 0 && !cod_config_has_problem(config, "data.patch"))
        cod_config_problem_key(config, "data.patch", "model '%s' takes sides that are multiples of %d, not %lld",
                               group->kind->name, multiple, (long long)run->data.patch);
    if (index >= 0)
        check_alike(run, group, index);
}

/** The data must be of the sort that the models are for. */
static void check_task(cod_run_config *run)
{
    const int kind = run->data.kind, loss = run->train.loss;
    const cod_task task = run->whole.kind->task;
    const bool classifies = task == COD_TASK_CLASSIFICATION;
    if (cod_config_has_problem(run->config, "data.kind") || kind == COD_DATA_SYNTHETIC)
        ; /* is what the model wants */
    else if (classifies != cod_data_kind_is_labelled(kind))
        cod_config_problem_key(run->config, "data.kind", "model '%s' is for %s, which wants %s, not %s",
                               run->whole.kind->name, cod_task_name(task),
                               classifies ? "mnist, iris, folder or synthetic" : "pictures or synthetic",
                               cod_data_kind_names[kind]);
    if (loss == COD_TRAIN_LOSS_CROSS_ENTROPY && !classifies && !cod_config_has_problem(run->config, "train.loss"))
        cod_config_problem_key(run->config, "train.loss", "cross_entropy is for classification; model '%s' is for %s",
                               run->whole.kind->name, cod_task_name(task));
    if (run->train.prior_correction && !classifies)
        cod_config_problem_key(run->config, "train.prior_correction",
                               "shares of classes are corrected for; model '%s' is for %s", run->whole.kind->name,
                               cod_task_name(task));
    else if (run->train.prior_correction && loss != COD_TRAIN_LOSS_AUTO && loss != COD_TRAIN_LOSS_CROSS_ENTROPY)
        cod_config_problem_key(run->config, "train.prior_correction",
                               "only the logits of cross_entropy can be corrected: train.loss: cross_entropy, or auto");
    if (kind == COD_DATA_SYNTHETIC && run->data.placement == COD_PLACEMENT_DIRICHLET && !classifies)
        cod_config_problem_key(run->config, "data.placement",
                               "dirichlet divides classes, which super-resolution has not");
}

static void check_models(cod_run_config *run)
{
    if (run->whole.kind == NULL)
        return;
    check_model(run, &run->whole, -1);
    check_task(run);
    run->task = cod_train_task_of(run);
    for (size_t i = 0; i < run->group_count; i++)
        if (run->groups[i].architecture != run->whole.architecture)
            check_model(run, &run->groups[i], (int)i);
}

/** Patience counts evaluations on held-out data. */
static void check_patience(cod_run_config *run)
{
    const cod_data_options *data = &run->data;
    if (run->eval.patience == 0 || cod_config_has_problem(run->config, "eval.patience"))
        return;
    if (run->eval.every == 0)
        cod_config_problem_key(run->config, "eval.patience",
                               "counts evaluations during training, and eval.every=0 leaves only the one at the end");
    else if (run->eval.best_set[0] == '\0' && data->val_count == 0 && data->val_fraction == 0 &&
             data->val_path.count == 0 && data->folds == 0)
        cod_config_problem_key(run->config, "eval.patience",
                               "counts evaluations on held-out data, and nothing is held out: set data.val_count, "
                               "data.val_fraction or data.val_path");
}

/** The set by which the best model is chosen must be one of data.val_sets. */
static void check_best_set(cod_run_config *run)
{
    const cod_string_list *sets = &run->data.val_sets;
    const char *best = run->eval.best_set;
    char names[COD_DATA_MAX_SETS][COD_DATA_SET_NAME], list[COD_DATA_MAX_SETS * (COD_DATA_SET_NAME + 2)] = "";
    for (size_t i = 0; i < sets->count && i < COD_DATA_MAX_SETS; i++) {
        if (cod_data_set_name(sets->items[i], names[i]) && strcmp(names[i], best) == 0)
            return;
        cod_names_add(list, sizeof list, names[i]);
    }
    if (best[0] != '\0')
        cod_config_problem_key(run->config, "eval.best_set", "'%s' is no set of data.val_sets%s%s", best,
                               list[0] != '\0' ? "; these are: " : ", which is empty", list);
}

static void check_sets(cod_run_config *run)
{
    check_best_set(run);
    if (run->data.val_sets.count > 0 && run->data.kind == COD_DATA_SYNTHETIC && run->whole.kind != NULL &&
        run->whole.kind->task == COD_TASK_CLASSIFICATION && !cod_config_has_problem(run->config, "data.kind"))
        cod_config_problem_key(run->config, "data.val_sets",
                               "generated classes are in no files: data.kind must be mnist, iris or folder");
}

void config_check_together(cod_run_config *run)
{
    const char *name = run->root.name;
    check_recipe(run);
    check_strategy(run);
    check_backend(run);
    check_train(run);
    check_data(run);
    check_patience(run);
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        cod_config_problem_key(run->config, "name", "'%s' cannot be a folder's name", name);
    check_models(run);
    check_sets(run);
}

bool cod_run_config_has_file(const cod_run_config *run, const char *key, const char *path)
{
    static const char folder[] = "data/"; // what tools/get-data.sh fills
    if (cod_file_exists(path))
        return true;
    const char *set = strncmp(path, folder, strlen(folder)) == 0 ? path + strlen(folder) : "";
    const int length = (int)strcspn(set, "/");
    if (length > 0)
        cod_config_problem_key(run->config, key, "there is no '%s'; tools/get-data.sh %.*s brings it", path, length,
                               set);
    else
        cod_config_problem_key(run->config, key, "there is no '%s'", path);
    return false;
}

static void check_paths(const cod_run_config *run, const char *key, const cod_string_list *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        (void)cod_run_config_has_file(run, key, paths->items[i]);
}

static void check_init_file(cod_run_config *run, const cod_group_config *group, const char *key)
{
    if (is_init_file(group->model.init))
        (void)cod_run_config_has_file(run, key, group->model.init);
}

/** Checks all named files of metrics, even if their metrics are not computed. */
static void check_metric_files(cod_run_config *run)
{
    const cod_eval_options *eval = &run->eval;
    cod_niqe_model niqe;
    cod_ma_model ma = {0};
    if (eval->niqe_model[0] != '\0' && cod_niqe_model_load(eval->niqe_model, &niqe) != COD_OK)
        cod_config_problem_key(run->config, "eval.niqe_model", "%s", cod_error_message());
    if (eval->ma_model[0] != '\0' && cod_ma_model_load(eval->ma_model, &ma) != COD_OK)
        cod_config_problem_key(run->config, "eval.ma_model", "%s", cod_error_message());
    cod_ma_model_clear(&ma);
    if (eval->lpips_network[0] != '\0' && cod_lpips_check_files(eval->lpips_network, eval->lpips_weights) != COD_OK)
        cod_config_problem_key(run->config, "eval.lpips_network", "%s", cod_error_message());
}

static void check_resume(cod_run_config *run)
{
    cod_arena arena = {0};
    cod_int_list steps = {0};
    const char *checkpoints = cod_path_join(cod_config_arena(run->config), cod_run_config_folder(run), "checkpoints");
    if (run->checkpoint.resume == COD_RESUME_MUST && checkpoints != NULL &&
        (cod_checkpoint_list(checkpoints, NULL, 0, &arena, &steps) != COD_OK || steps.count == 0))
        cod_config_problem_key(run->config, "checkpoint.resume", "there is no checkpoint to resume from in '%s'",
                               checkpoints);
    cod_arena_clear(&arena);
}

void config_check_files(cod_run_config *run)
{
    const cod_data_options *data = &run->data;
    if (data->kind != COD_DATA_SYNTHETIC) {
        check_paths(run, "data.path", &data->path);
        check_paths(run, "data.low_path", &data->low_path);
        check_paths(run, "data.val_path", &data->val_path);
        check_paths(run, "data.val_low_path", &data->val_low_path);
        check_paths(run, "data.test_path", &data->test_path);
    }
    for (size_t i = 0; i < data->val_sets.count; i++)
        (void)cod_run_config_has_file(run, "data.val_sets", cod_data_set_path(data->val_sets.items[i]));
    if (run->recipe != NULL && run->recipe->check_files != NULL)
        run->recipe->check_files(run);
    check_metric_files(run);
    check_init_file(run, &run->whole, "model.init");
    for (size_t i = 0; i < run->group_count; i++) {
        char key[64];
        snprintf(key, sizeof key, "cluster.groups.%zu.model.init", i);
        if (cod_config_find(run->config, key) != NULL)
            check_init_file(run, &run->groups[i], key);
    }
    check_resume(run);
}
