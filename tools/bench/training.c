#include "tools/bench/training.h"

#include "core/queue.h"
#include "core/rng.h"
#include "infer/model_file.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "tools/arguments.h"
#include "tools/bench/ops.h"
#include "tools/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cod_bench_numbers_read(const char *command, const cod_bench_numbers *numbers, cod_bench_training_options *options,
                           int *repeats)
{
    enum { MAX_BATCH = 65536, MAX_PATCH = 1024, MAX_THREADS = 4096 };
    long batch = 16, patch = 24, threads = 1, count = 7;
    int code = cod_argument_number(command, "batch", numbers->batch, 1, MAX_BATCH, &batch);
    code = code < 0 ? cod_argument_number(command, "patch", numbers->patch, 1, MAX_PATCH, &patch) : code;
    code = code < 0 ? cod_argument_number(command, "threads", numbers->threads, 1, MAX_THREADS, &threads) : code;
    code =
        code < 0 ? cod_argument_number(command, "repeats", numbers->repeats, 1, COD_BENCH_MAX_REPEATS, &count) : code;
    options->batch = batch;
    options->patch = patch;
    options->threads = (int)threads;
    *repeats = (int)count;
    return code;
}

int cod_bench_precision_read(const char *command, const char *name, cod_precision *precision)
{
    for (int i = 0; cod_precision_names[i] != NULL; i++)
        if (strcmp(cod_precision_names[i], name) == 0) {
            *precision = (cod_precision)i;
            return -1;
        }
    return cod_cmd_usage(command, "--precision: '%s' is none of auto, f32, bf16", name);
}

int cod_bench_device_check(const char *command, const cod_bench_training_options *options)
{
    for (size_t i = 0; cod_device_names[i] != NULL; i++)
        if (strcmp(options->device, cod_device_names[i]) == 0)
            return -1;
    return cod_cmd_usage(command, "--device: '%s' is none of auto, cpu, cuda", options->device);
}

static const char *const batch_names[] = {COD_INPUT_DATA, COD_INPUT_TRUTH};
enum { BATCH_PARTS = 2 };

/** Whether a setting is "section.option=value" of a section that the recipe reads. */
static bool is_of_recipe(const char *recipe_name, const char *setting)
{
    const cod_recipe_kind *recipe = cod_recipe_find(recipe_name);
    for (size_t i = 0; recipe != NULL && i < recipe->table_count; i++) {
        const char *section = recipe->tables[i]->section;
        if (strncmp(setting, section, strlen(section)) == 0 && setting[strlen(section)] == '.')
            return true;
    }
    return false;
}

static cod_status set_model_option(cod_bench_training *t, const cod_model_kind *kind, void *options, const char *text)
{
    const char *equals = strchr(text, '=');
    COD_REQUIRE(equals != NULL, "'%s' is not option=value", text);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const cod_option *option = cod_option_find(kind->table, key);
    COD_REQUIRE(option != NULL, "model '%s' has no option '%s'", kind->name, key);
    if (cod_option_set_text(option, options, equals + 1, &t->arena) != COD_OK)
        return cod_fail_prefix(COD_ERR_ARGUMENT, "%s", key);
    return COD_OK;
}

/** The batch's shape; what a classifier's options leave open is colour pictures of `patch` pixels and ten classes. */
static cod_status choose_shape(const cod_model_kind *kind, const cod_bench_training_options *options, void *values,
                               cod_shape *shape)
{
    const cod_classifier_sizes *given = cod_model_sizes(kind, values);
    *shape = (cod_shape){options->batch, options->patch, options->patch, 3};
    if (given == NULL)
        return COD_OK;
    const cod_classifier_sizes sizes = {.height = given->height ? given->height : options->patch,
                                        .width = given->width ? given->width : options->patch,
                                        .channels = given->channels ? given->channels : 3,
                                        .classes = given->classes ? given->classes : 10};
    *shape = (cod_shape){options->batch, sizes.height, sizes.width, sizes.channels};
    return cod_model_fit_sizes(kind, values, &sizes);
}

/** The model's options as the command has them, in the configuration. */
static cod_status choose_model(cod_bench_training *t, const cod_bench_training_options *options)
{
    cod_group_config *group = &t->config.whole;
    void *values = cod_arena_alloc(&t->arena, group->kind->table->struct_bytes);
    COD_REQUIRE_MEMORY(values);
    COD_TRY(cod_options_set_defaults(group->kind->table, values, &t->arena));
    for (int i = 0; i < options->setting_count; i++)
        if (!is_of_recipe(t->config.recipe->name, options->settings[i]))
            COD_TRY(set_model_option(t, group->kind, values, options->settings[i]));
    group->architecture = group->configured = values;
    for (size_t g = 0; g < t->config.group_count; g++)
        t->config.groups[g].architecture = t->config.groups[g].configured = values;
    return choose_shape(group->kind, options, values, &t->session.sample);
}

/** A run's configuration but for data: what a step computes, and with what. */
static cod_status configure(cod_bench_training *t, const cod_bench_training_options *options)
{
    enum { OVERRIDES = 12 };
    const char **texts = cod_arena_alloc(&t->arena, (OVERRIDES + (size_t)options->setting_count) * sizeof *texts);
    char fraction[32], patch[32];
    size_t count = 0;
    const bool pictures = cod_model_kind_find(options->model)->task == COD_TASK_SUPER_RESOLUTION;
    const char *recipe = options->recipe != NULL ? options->recipe : "supervised";
    COD_REQUIRE_MEMORY(texts);
    snprintf(patch, sizeof patch, "%lld", (long long)options->patch);
    snprintf(fraction, sizeof fraction, "%.17g",
             options->taught > 0 ? (double)options->taught / (double)options->batch : 1.0);
    const struct {
        const char *key, *value;
    } overrides[OVERRIDES] = {{"model.name", options->model},
                              {"data.kind", pictures ? "pictures" : "synthetic"},
                              {"data.path", "."}, /* one is asked for, and none is opened */
                              {"cluster.device", options->device},
                              {"train.backend", options->backend},
                              {"train.precision", cod_precision_names_with_int8[options->precision]},
                              {"train.autotune", options->no_autotune ? "false" : "true"},
                              {"train.recipe", recipe},
                              {"train.strategy", options->taught > 0 ? "codistill" : "single"},
                              {"data.patch", pictures ? patch : NULL},
                              {"distill.batch_fraction", fraction},
                              {"train.clip_norm", "0"}};
    for (int i = 0; i < options->setting_count; i++)
        if (is_of_recipe(recipe, options->settings[i]))
            texts[count++] = options->settings[i];
    for (int i = 0; i < OVERRIDES; i++) {
        if (overrides[i].value == NULL)
            continue;
        const size_t bytes = strlen(overrides[i].key) + strlen(overrides[i].value) + 2;
        char *text = cod_arena_alloc(&t->arena, bytes);
        COD_REQUIRE_MEMORY(text);
        snprintf(text, bytes, "%s=%s", overrides[i].key, overrides[i].value);
        texts[count++] = text;
    }
    COD_TRY(cod_run_config_load(NULL, texts, count, &t->config));
    return choose_model(t, options);
}

cod_status cod_bench_fill_inputs(const cod_backend *backend, cod_device *device, cod_executable *executable,
                                 const char *const *names, size_t name_count)
{
    for (uint32_t part = 0; part < name_count; part++) {
        const cod_view view = cod_executable_input(executable, names[part]);
        const size_t count = (size_t)cod_shape_count(view.shape);
        float *values = malloc(count * sizeof *values);
        COD_REQUIRE_MEMORY(values);
        cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, part);
        for (size_t i = 0; i < count; i++)
            values[i] = (float)cod_rng_uniform(&rng);
        const cod_status status =
            backend->upload(device, NULL, view.buffer, view.offset, values, count * sizeof *values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status open_device(const cod_bench_training_options *options, cod_train_session *session)
{
    const cod_device_options device = {.threads = options->threads, .no_autotune = options->no_autotune};
    cod_device_choice choice = cod_run_config_device(session->config, 0);
    char reason[COD_DEVICE_REASON];
    choice.setting = "--device";
    COD_TRY(cod_device_open(&choice, &device, &session->backend, &session->device, reason));
    cod_device_tell(reason);
    return COD_OK;
}

static void find_programs(cod_bench_training *t)
{
    const cod_recipe *recipe = &t->session.recipe;
    for (size_t i = 0; i < recipe->step_count; i++) {
        const cod_program_spec *spec = &recipe->steps[i].program;
        if (cod_sub_step_is_due(&recipe->steps[i], 0))
            t->steps[t->step_count++] = (cod_bench_sub_step){
                .name = spec->name,
                .program = cod_executable_program(t->session.executable, spec->name),
                .set = spec->trains != NULL ? cod_graph_set_index(recipe->model.graph, spec->trains) : -1};
    }
    t->program = t->steps[0].program;
    t->distil = cod_executable_program(t->session.executable, "distill");
}

cod_status cod_bench_training_open(const cod_bench_training_options *options, cod_bench_training *t)
{
    cod_train_session *session = &t->session;
    *t = (cod_bench_training){0};
    COD_REQUIRE(cod_model_kind_find(options->model) != NULL, "there is no model '%s'; `codistill models` lists them",
                options->model);
    COD_TRY(configure(t, options));
    session->config = &t->config;
    COD_TRY(open_device(options, session));
    COD_TRY(cod_precision_dtype(options->precision, session->backend, session->device, &session->activation));
    if (options->taught > 0)
        COD_TRY(t->config.strategy->create(&t->config, &t->strategy));
    COD_TRY(cod_train_session_build(session, t->strategy));
    COD_TRY(cod_train_session_fill(session, 1));
    COD_TRY(cod_train_session_compile(session, &(cod_division){0}));
    find_programs(t);
    return cod_bench_fill_inputs(session->backend, session->device, session->executable, batch_names, BATCH_PARTS);
}

void cod_bench_training_close(cod_bench_training *t)
{
    const cod_backend *backend = t->session.backend;
    cod_device *device = t->session.device;
    cod_train_session_clear(&t->session);
    if (t->strategy != NULL)
        t->strategy->ops->destroy(t->strategy);
    if (device != NULL)
        backend->close(device);
    cod_run_config_clear(&t->config);
    cod_arena_clear(&t->arena);
    *t = (cod_bench_training){0};
}

cod_status cod_bench_training_update(cod_bench_training *t, int set)
{
    return cod_optimiser_step(t->session.optimisers[set], 1e-4, ++t->updates[set]);
}

cod_status cod_bench_training_step(cod_bench_training *t)
{
    for (size_t i = 0; i < t->step_count; i++) {
        COD_TRY(cod_program_run(t->steps[i].program, NULL, NULL));
        if (t->steps[i].set >= 0)
            COD_TRY(cod_bench_training_update(t, t->steps[i].set));
    }
    return cod_bench_training_finish(t);
}

cod_status cod_bench_training_finish(cod_bench_training *t)
{
    return cod_queue_finish(t->session.backend, t->session.device, NULL);
}

cod_status cod_bench_training_loss(cod_bench_training *t, float *loss)
{
    return cod_executable_loss(t->session.executable, t->session.recipe.task_loss, loss);
}

static cod_status export_batch(cod_bench_training *t, const char *path)
{
    cod_st_tensor tensors[BATCH_PARTS];
    float *values[BATCH_PARTS] = {NULL};
    cod_status status = COD_OK;
    for (size_t part = 0; part < BATCH_PARTS && status == COD_OK; part++) {
        const cod_view view = cod_executable_input(t->session.executable, batch_names[part]);
        const size_t bytes = (size_t)cod_shape_count(view.shape) * sizeof(float);
        values[part] = malloc(bytes);
        if (values[part] == NULL)
            status = cod_fail(COD_ERR_MEMORY, "%zu bytes for a copy of the batch", bytes);
        else
            status =
                t->session.backend->download(t->session.device, NULL, values[part], view.buffer, view.offset, bytes);
        tensors[part] = (cod_st_tensor){.name = batch_names[part],
                                        .dtype = COD_ST_F32,
                                        .rank = 4,
                                        .shape = {view.shape.n, view.shape.h, view.shape.w, view.shape.c},
                                        .data = values[part]};
    }
    COD_THEN(status, cod_st_write(path, tensors, BATCH_PARTS, NULL, 0));
    for (size_t part = 0; part < BATCH_PARTS; part++)
        free(values[part]);
    return status;
}

cod_status cod_bench_training_export(cod_bench_training *t, const char *folder)
{
    const cod_recipe *recipe = &t->session.recipe;
    char *model = cod_path_join(&t->arena, folder, "model.safetensors");
    char *batch = cod_path_join(&t->arena, folder, "batch.safetensors");
    COD_REQUIRE_MEMORY(model);
    COD_REQUIRE_MEMORY(batch);
    COD_TRY(cod_folder_create(folder));
    COD_TRY(cod_model_save_weights(model, &recipe->model, &t->session.weights, NULL, 0));
    for (int s = 1; s < COD_GRAPH_MAX_SETS; s++) {
        char name[64];
        if (!recipe->sets[s].trained)
            continue;
        snprintf(name, sizeof name, "%s.safetensors", recipe->sets[s].name);
        char *path = cod_path_join(&t->arena, folder, name);
        COD_REQUIRE_MEMORY(path);
        COD_TRY(cod_set_save_weights(path, s, &t->session.weights));
    }
    return export_batch(t, batch);
}
