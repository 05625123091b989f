/* How a run is configured: the schema of all sections, and the reading of groups. */
#include "train/config.h"

#include "train/config_internal.h"
#include "train/strategy.h"

#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TABLES = 32, MAX_MODELS = 32, MAX_KINDS = 32, MAX_GROUPS = 4096 };

/** Of PyTorch, Lightning, BasicSR, Transformers. */
static const cod_config_synonym synonyms[] = {
    {"lr", "train.rate", NULL},
    {"base_lr", "train.rate", NULL},
    {"learning_rate", "train.rate", NULL},
    {"epochs", "train.steps", ", which counts updates"},
    {"num_epochs", "train.steps", ", which counts updates"},
    {"max_epochs", "train.steps", ", which counts updates"},
    {"num_train_epochs", "train.steps", ", which counts updates"},
    {"total_iter", "train.steps", NULL},
    {"max_iter", "train.steps", NULL},
    {"num_iters", "train.steps", NULL},
    {"iterations", "train.steps", NULL},
    {"max_steps", "train.steps", NULL},
    {"total_steps", "train.steps", NULL},
    {"batch_size", "data.batch", NULL},
    {"batch_size_per_gpu", "data.batch", NULL},
    {"per_device_train_batch_size", "data.batch", NULL},
    {"num_workers", "data.threads", NULL},
    {"num_worker_per_gpu", "data.threads", NULL},
    {"dataroot", "data.path", NULL},
    {"dataroot_gt", "data.path", NULL},
    {"dataroot_lq", "data.low_path", NULL},
    {"train_dir", "data.path", NULL},
    {"val_dir", "data.val_path", NULL},
    {"use_hflip", "data.augment", NULL},
    {"use_rot", "data.augment", NULL},
    {"optimizer", "train.optimiser", NULL},
    {"lr_scheduler", "train.schedule", NULL},
    {"lr_scheduler_type", "train.schedule", NULL},
    {"warmup_iter", "train.warmup", NULL},
    {"warmup_steps", "train.warmup", NULL},
    {"eps", "train.epsilon", NULL},
    {"ema_decay", "train.ema", NULL},
    {"grad_clip", "train.clip_norm", NULL},
    {"max_grad_norm", "train.clip_norm", NULL},
    {"gradient_clip_val", "train.clip_norm", NULL},
    {"gradient_accumulation_steps", "train.accumulate", NULL},
    {"accumulate_grad_batches", "train.accumulate", NULL},
    {"amp", "train.precision", NULL},
    {"fp16", "train.precision", NULL},
    {"bf16", "train.precision", NULL},
    {"gradient_checkpointing", "train.recompute", NULL},
    {"manual_seed", "seed", NULL},
    {"random_seed", "seed", NULL},
    {"val_freq", "eval.every", NULL},
    {"eval_steps", "eval.every", NULL},
    {"early_stopping_patience", "eval.patience", ", which counts evaluations"},
    {"save_steps", "checkpoint.every", NULL},
    {"save_checkpoint_freq", "checkpoint.every", NULL},
    {"save_total_limit", "checkpoint.keep", NULL},
    {"resume_state", "checkpoint.resume", NULL},
    {"resume_from_checkpoint", "checkpoint.resume", NULL},
    {"print_freq", "log.every", NULL},
    {"logging_steps", "log.every", NULL},
    {"use_tb_logger", "log.tensorboard", NULL},
    {"output_dir", "output", NULL},
    {"pretrain_network_g", "model.init", NULL},
    {"pretrained", "model.init", NULL},
    {"checkpoint_path", "model.init", NULL},
    {"num_gpu", "cluster.ranks_per_group", NULL},
    {"num_nodes", "cluster.groups", NULL},
};

/** The schema of a run, with the memory that it points to. */
typedef struct run_schema {
    cod_config_schema schema;
    cod_config_table tables[MAX_TABLES];
    cod_config_selector selector;
    cod_config_names names[2];
    const char *model_names[MAX_MODELS + 1], *recipe_names[MAX_KINDS + 1], *strategy_names[MAX_KINDS + 1];
} run_schema;

/** Receiver of the chosen model's options. */
typedef struct model_place {
    cod_run_config *run;
    cod_group_config *group;
} model_place;

static const char *const raw_keys[] = {"cluster.groups", "compare.arms", "compare.tune", NULL};

static const cod_option_table *select_model(void *context, const char *name, void **values)
{
    const model_place *place = context;
    const cod_model_kind *kind = cod_model_kind_find(name);
    if (values != NULL) {
        if (place->group->configured == NULL || place->group->kind != kind) {
            place->group->configured = cod_arena_alloc(cod_config_arena(place->run->config), kind->table->struct_bytes);
            place->group->architecture = place->group->configured;
        }
        place->group->kind = kind;
        *values = place->group->configured;
    }
    return kind->table;
}

static void add_table(run_schema *schema, const cod_option_table *table, void *values)
{
    if (schema->schema.count < MAX_TABLES)
        schema->tables[schema->schema.count++] = (cod_config_table){table, values};
}

/** Makes room for this run's values of these sections, as far as there is none. */
static cod_status add_sections(cod_run_config *run, cod_arena *arena, const cod_option_table *const *tables,
                               size_t count)
{
    for (size_t t = 0; t < count; t++) {
        if (config_find_section(run, tables[t]) != NULL)
            continue;
        COD_REQUIRE(run->section_count < MAX_TABLES, "more than %d sections of recipes and strategies", MAX_TABLES);
        void *values = cod_arena_alloc(arena, tables[t]->struct_bytes);
        COD_REQUIRE_MEMORY(values);
        run->sections[run->section_count++] = (cod_config_table){tables[t], values};
    }
    return COD_OK;
}

/** Makes the sections of all recipes and strategies; options of those that are not chosen are checked, too. */
static cod_status make_sections(cod_run_config *run, cod_arena *arena)
{
    run->sections = cod_arena_alloc(arena, MAX_TABLES * sizeof *run->sections);
    COD_REQUIRE_MEMORY(run->sections);
    for (size_t i = 0; cod_recipe_at(i) != NULL; i++)
        COD_TRY(add_sections(run, arena, cod_recipe_at(i)->tables, cod_recipe_at(i)->table_count));
    for (size_t i = 0; cod_strategy_at(i) != NULL; i++)
        COD_TRY(add_sections(run, arena, cod_strategy_at(i)->tables, cod_strategy_at(i)->table_count));
    return COD_OK;
}

static void make_schema(run_schema *schema, cod_run_config *run, model_place *place)
{
    *schema = (run_schema){0};
    *place = (model_place){run, &run->whole};
    schema->schema.tables = schema->tables;
    add_table(schema, &cod_root_option_table, &run->root);
    add_table(schema, &cod_comm_option_table, &run->cluster);
    add_table(schema, &cod_model_option_table, &run->whole.model);
    add_table(schema, &cod_data_option_table, &run->data);
    add_table(schema, &cod_degrade_option_table, &run->degradation);
    add_table(schema, &cod_train_option_table, &run->train);
    for (size_t i = 0; i < run->section_count; i++)
        add_table(schema, run->sections[i].table, run->sections[i].values);
    add_table(schema, &cod_eval_option_table, &run->eval);
    add_table(schema, &cod_checkpoint_option_table, &run->checkpoint);
    add_table(schema, &cod_log_option_table, &run->log);
    add_table(schema, &cod_compare_option_table, &run->compare);
    for (size_t i = 0; i < MAX_MODELS && cod_model_kind_at(i) != NULL; i++)
        schema->model_names[i] = cod_model_kind_at(i)->name;
    schema->selector = (cod_config_selector){
        .section = "model", .key = "name", .names = schema->model_names, .select = select_model, .context = place};
    schema->schema.selectors = &schema->selector;
    schema->schema.selector_count = 1;
    schema->schema.raw = raw_keys;
    for (size_t i = 0; i < MAX_KINDS && cod_recipe_at(i) != NULL; i++)
        schema->recipe_names[i] = cod_recipe_at(i)->name;
    for (size_t i = 0; i < MAX_KINDS && cod_strategy_at(i) != NULL; i++)
        schema->strategy_names[i] = cod_strategy_at(i)->name;
    schema->names[0] = (cod_config_names){"train", "recipe", schema->recipe_names};
    schema->names[1] = (cod_config_names){"train", "strategy", schema->strategy_names};
    schema->schema.names = schema->names;
    schema->schema.name_count = 2;
    schema->schema.synonyms = synonyms;
    schema->schema.synonym_count = sizeof synonyms / sizeof synonyms[0];
}

static bool parse_count(const cod_config_node *node, int *out)
{
    char *end = NULL;
    const long value = node != NULL && node->kind == COD_CONFIG_SCALAR ? strtol(node->scalar, &end, 10) : 0;
    *out = (int)value;
    return value >= 1 && value <= MAX_GROUPS && *end == '\0';
}

/** Applies cluster.groups[i].model over the run's model. */
static cod_status read_group_model(cod_run_config *run, const cod_config_node *node, cod_group_config *group)
{
    cod_option_table table = cod_model_option_table;
    const size_t bytes = run->whole.kind->table->struct_bytes;
    void *architecture = cod_arena_alloc(cod_config_arena(run->config), bytes);
    COD_REQUIRE_MEMORY(architecture);
    memcpy(architecture, run->whole.architecture, bytes);
    group->architecture = group->configured = architecture;
    run_schema whole;
    model_place place;
    make_schema(&whole, run, &place);
    place.group = group;
    table.section = "";
    whole.selector.section = "";
    const cod_config_table tables[] = {{&table, &group->model}};
    const cod_config_schema schema = {.tables = tables, .count = 1, .selectors = &whole.selector, .selector_count = 1};
    return cod_config_apply_node(run->config, node, &schema);
}

/** cluster.groups[i].device in the place of cluster.device. */
static void read_group_device(cod_run_config *run, const cod_config_node *node, cod_group_config *group)
{
    const cod_option *option = cod_option_find(&cod_comm_option_table, "device");
    cod_comm_options values = {0};
    if (node->kind != COD_CONFIG_SCALAR)
        cod_config_problem(run->config, node, "device must be %s",
                           cod_option_expectation(option, cod_config_arena(run->config)));
    else if (cod_option_set(option, &values, &node->scalar, 1, cod_config_arena(run->config)) != COD_OK)
        cod_config_problem(run->config, node, "device: %s", cod_error_message());
    else
        group->device = values.device;
    char setting[64];
    snprintf(setting, sizeof setting, "cluster.groups.%td.device", group - run->groups);
    const char *kept = cod_arena_strdup(cod_config_arena(run->config), setting);
    group->device_setting = kept != NULL ? kept : group->device_setting;
}

static cod_status read_group(cod_run_config *run, const cod_config_node *item, cod_group_config *group)
{
    cod_config *config = run->config;
    if (item->kind != COD_CONFIG_MAPPING) {
        cod_config_problem(config, item, "a group is a mapping such as {ranks: 4, model: {…}}");
        return COD_OK;
    }
    for (const cod_config_node *key = item->first; key != NULL; key = key->next) {
        if (strcmp(key->key, "model") == 0)
            COD_TRY(run->whole.kind != NULL ? read_group_model(run, key, group) : COD_OK); /* a variation of nothing */
        else if (strcmp(key->key, "device") == 0)
            read_group_device(run, key, group);
        else if (strcmp(key->key, "ranks") != 0)
            cod_config_problem(config, key, "unknown key '%s' in a group; a group has: ranks, model, device", key->key);
        else if (!parse_count(key, &group->ranks))
            cod_config_problem(config, key, "ranks must be a whole number from 1 to %d", MAX_GROUPS);
    }
    return COD_OK;
}

/** Reads cluster.groups: a number, by_node, or a list of {ranks, model, device}. */
static cod_status read_groups(cod_run_config *run)
{
    cod_config *config = run->config;
    const cod_config_node *node = cod_config_find(config, "cluster.groups");
    const bool list = node != NULL && node->kind == COD_CONFIG_LIST;
    int count = list ? (int)node->count : atoi(run->cluster.groups);
    run->whole.ranks = (int)run->cluster.ranks_per_group;
    run->whole.device = run->cluster.device;
    run->whole.device_setting = "cluster.device";
    if (strcmp(run->cluster.groups, "by_node") == 0)
        return COD_OK; /* group_count stays 0 */
    if (node != NULL && !list && !parse_count(node, &count))
        cod_config_problem(config, node,
                           "groups must be a number from 1 to %d, by_node, or a list of {ranks, model, device}",
                           MAX_GROUPS);
    else if (count == 0)
        cod_config_problem(config, node, "cluster.groups is an empty list; at least one group is needed");
    if (count < 1 || count > MAX_GROUPS)
        return COD_OK;
    run->groups = cod_arena_alloc(cod_config_arena(config), (size_t)count * sizeof *run->groups);
    COD_REQUIRE_MEMORY(run->groups);
    run->group_count = (size_t)count;
    const cod_config_node *item = list ? node->first : NULL;
    for (size_t i = 0; i < run->group_count; i++) {
        run->groups[i] = run->whole;
        if (list)
            COD_TRY(read_group(run, item, &run->groups[i]));
        item = list ? item->next : NULL;
    }
    return COD_OK;
}

/** Makes of run->config what it says. */
static cod_status read_config(cod_run_config *run, bool to_train)
{
    run_schema schema;
    model_place place;
    COD_TRY(make_sections(run, cod_config_arena(run->config)));
    make_schema(&schema, run, &place);
    COD_TRY(cod_config_apply(run->config, &schema.schema));
    COD_TRY(read_groups(run));
    config_check_together(run);
    if (to_train)
        config_check_files(run);
    return cod_config_check(run->config);
}

static cod_status load(const char *path, const char *const *overrides, size_t count, bool to_train, cod_run_config *out)
{
    *out = (cod_run_config){.only_group = -1};
    cod_status status = cod_config_open(path, overrides, count, &out->config);
    COD_THEN(status, read_config(out, to_train));
    if (status != COD_OK)
        cod_run_config_clear(out);
    return status;
}

cod_status cod_run_config_load_saved(const char *path, cod_run_config *out)
{
    void *text;
    size_t bytes;
    *out = (cod_run_config){.only_group = -1};
    COD_TRY(cod_file_read(path, COD_CONFIG_BYTES_MAX, &text, &bytes));
    cod_status status = cod_config_open_text(path, text, bytes, NULL, 0, &out->config);
    free(text);
    COD_THEN(status, read_config(out, false));
    if (status != COD_OK)
        cod_run_config_clear(out);
    return status;
}

cod_status cod_run_config_load(const char *path, const char *const *overrides, size_t count, cod_run_config *out)
{
    return load(path, overrides, count, false, out);
}

cod_status cod_run_config_load_to_train(const char *path, const char *const *overrides, size_t count,
                                        cod_run_config *out)
{
    return load(path, overrides, count, true, out);
}

cod_status cod_run_config_resolved(cod_run_config *run, bool comments, char **text)
{
    run_schema schema;
    model_place place;
    make_schema(&schema, run, &place);
    return cod_config_resolved(run->config, &schema.schema, comments, text);
}

cod_status cod_run_config_document(cod_config_style style, char **text)
{
    cod_run_config run = {0};
    cod_arena arena = {0};
    run_schema schema;
    model_place place;
    cod_status status = make_sections(&run, &arena);
    if (status == COD_OK) {
        make_schema(&schema, &run, &place);
        status = cod_config_document(&schema.schema, style, text);
    }
    cod_arena_clear(&arena);
    return status;
}
