#include "tools/bench_training.h"

#include "core/rng.h"
#include "infer/model_file.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "tools/arguments.h"
#include "tools/bench_ops.h"

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

static const char *const batch_names[] = {"input", "target"};
enum { BATCH_PARTS = 2 };

static cod_status set_model_option(cod_bench_training *t, void *options, const char *text)
{
    const char *equals = strchr(text, '=');
    COD_REQUIRE(equals != NULL, "'%s' is not option=value", text);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const cod_option *option = cod_option_find(t->kind->table, key);
    COD_REQUIRE(option != NULL, "model '%s' has no option '%s'", t->kind->name, key);
    const char *value = equals + 1;
    if (cod_option_set(option, options, &value, 1, &t->arena) != COD_OK)
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

static cod_status build_model(cod_bench_training *t, const cod_bench_training_options *options, cod_shape *shape)
{
    t->kind = cod_model_kind_find(options->model);
    COD_REQUIRE(t->kind != NULL, "there is no model '%s'; `codistill models` lists them", options->model);
    void *values = cod_arena_alloc(&t->arena, t->kind->table->struct_bytes);
    COD_REQUIRE_MEMORY(values);
    COD_TRY(cod_options_set_defaults(t->kind->table, values, &t->arena));
    for (int i = 0; i < options->setting_count; i++)
        COD_TRY(set_model_option(t, values, options->settings[i]));
    COD_TRY(choose_shape(t->kind, options, values, shape));
    return cod_model_build(t->kind, values, &t->model);
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

/** As the codistill strategy adds it. */
static cod_value add_distillation(cod_bench_training *t, int64_t pictures)
{
    const cod_value teacher = cod_graph_input_like(t->model.graph, "teacher", t->model.output);
    return cod_graph_loss(t->model.graph, "distil", t->model.output, teacher,
                          (cod_loss_spec){.kind = t->model.task == COD_TASK_CLASSIFICATION ? COD_LOSS_KL : COD_LOSS_L1,
                                          .weight = 0.1f,
                                          .first_items = pictures});
}

cod_status cod_bench_training_open(const cod_bench_training_options *options, cod_bench_training *t)
{
    cod_input_shape input = {.name = "input"};
    *t = (cod_bench_training){0};
    COD_TRY(build_model(t, options, &input.shape));
    t->backend = cod_backend_find(options->backend);
    COD_REQUIRE(t->backend != NULL, "there is no backend '%s'", options->backend);
    const cod_device_options device = {.threads = options->threads, .no_autotune = options->no_autotune};
    COD_TRY(t->backend->open(&device, &t->device));
    COD_TRY(cod_precision_dtype(options->precision, t->backend, t->device, &t->activation));
    const cod_value target = cod_graph_input_like(t->model.graph, "target", t->model.output);
    const cod_loss_kind loss = t->model.task == COD_TASK_CLASSIFICATION ? COD_LOSS_CROSS_ENTROPY : COD_LOSS_L1;
    t->loss = cod_graph_loss(t->model.graph, "task", t->model.output, target, (cod_loss_spec){.kind = loss});
    const cod_value distil = options->taught > 0 ? add_distillation(t, options->taught) : 0;
    COD_TRY(cod_weights_init(&t->weights, t->backend, t->device, t->model.graph, COD_F32, true));
    COD_TRY(cod_weights_fill_initial(&t->weights, 1));
    const cod_program_spec specs[] = {{.name = "step", .trains = "model", .losses = {t->loss}},
                                      {.name = "distil", .trains = "model", .losses = {t->loss, distil}}};
    const cod_compile_options compile = {.activation = t->activation, .inputs = &input, .input_count = 1};
    COD_TRY(cod_compile(t->model.graph, &t->weights, &compile, specs, distil != 0 ? 2 : 1, &t->executable));
    t->program = cod_executable_program(t->executable, "step");
    t->distil = cod_executable_program(t->executable, "distil");
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    COD_TRY(cod_optimiser_create(&t->weights, 0, &adam, &t->optimiser));
    return cod_bench_fill_inputs(t->backend, t->device, t->executable, batch_names, BATCH_PARTS);
}

void cod_bench_training_close(cod_bench_training *t)
{
    cod_optimiser_destroy(t->optimiser);
    cod_executable_destroy(t->executable);
    if (t->weights.backend != NULL)
        cod_weights_clear(&t->weights);
    cod_model_clear(&t->model);
    if (t->device != NULL)
        t->backend->close(t->device);
    cod_arena_clear(&t->arena);
    *t = (cod_bench_training){0};
}

cod_status cod_bench_training_update(cod_bench_training *t)
{
    return cod_optimiser_step(t->optimiser, 1e-4, ++t->steps);
}

cod_status cod_bench_training_step(cod_bench_training *t)
{
    COD_TRY(cod_program_run(t->program, NULL, NULL));
    return cod_bench_training_update(t);
}

cod_status cod_bench_training_loss(cod_bench_training *t, float *loss)
{
    return cod_executable_loss(t->executable, t->loss, loss);
}

static cod_status export_batch(cod_bench_training *t, const char *path)
{
    cod_st_tensor tensors[BATCH_PARTS];
    float *values[BATCH_PARTS] = {NULL};
    cod_status status = COD_OK;
    for (size_t part = 0; part < BATCH_PARTS && status == COD_OK; part++) {
        const cod_view view = cod_executable_input(t->executable, batch_names[part]);
        const size_t bytes = (size_t)cod_shape_count(view.shape) * sizeof(float);
        values[part] = malloc(bytes);
        if (values[part] == NULL)
            status = cod_fail(COD_ERR_MEMORY, "%zu bytes for a copy of the batch", bytes);
        else
            status = t->backend->download(t->device, NULL, values[part], view.buffer, view.offset, bytes);
        tensors[part] = (cod_st_tensor){.name = batch_names[part],
                                        .dtype = COD_ST_F32,
                                        .rank = 4,
                                        .shape = {view.shape.n, view.shape.h, view.shape.w, view.shape.c},
                                        .data = values[part]};
    }
    if (status == COD_OK)
        status = cod_st_write(path, tensors, BATCH_PARTS, NULL, 0);
    for (size_t part = 0; part < BATCH_PARTS; part++)
        free(values[part]);
    return status;
}

cod_status cod_bench_training_export(cod_bench_training *t, const char *folder)
{
    char *model = cod_path_join(&t->arena, folder, "model.safetensors");
    char *batch = cod_path_join(&t->arena, folder, "batch.safetensors");
    COD_REQUIRE_MEMORY(model);
    COD_REQUIRE_MEMORY(batch);
    COD_TRY(cod_folder_create(folder));
    COD_TRY(cod_model_save_weights(model, &t->model, &t->weights, NULL, 0));
    return export_batch(t, batch);
}
