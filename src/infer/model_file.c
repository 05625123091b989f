#include "infer/model_file.h"

#include "infer/int8.h"
#include "infer_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** BatchNorm's step counter, which PyTorch writes and inference has no use for. */
static const char IGNORED_SUFFIX[] = "num_batches_tracked";

void cod_saved_model_clear(cod_saved_model *saved)
{
    if (saved == NULL)
        return;
    cod_model_clear(&saved->model);
    cod_arena_clear(&saved->arena);
    cod_aligned_free(saved->values);
    *saved = (cod_saved_model){0};
}

static size_t param_elements(const cod_param *param)
{
    return (size_t)cod_shape_count(param->shape);
}

static cod_status check_finite(const char *name, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return cod_fail(COD_ERR_NUMERIC, "tensor '%s' holds %s", name, isnan(values[i]) ? "NaN" : "an infinity");
    return COD_OK;
}

/** Makes it one of bf16, in the place of its f32. */
static void round_tensor(cod_st_tensor *tensor, float *values, size_t count)
{
    uint16_t *rounded = (uint16_t *)(void *)values;
    for (size_t i = 0; i < count; i++) {
        const uint16_t value = cod_bf16_from_f32(values[i]);
        memcpy(&rounded[i], &value, sizeof value); /* behind what was read */
    }
    tensor->dtype = COD_ST_BF16;
}

/** As PyTorch has it. @param[out] out  its data in `arena` */
static cod_status tensor_convert(const named_tensor *tensor, bool bf16, cod_arena *arena, cod_st_tensor *out)
{
    const cod_param *param = &tensor->param;
    const size_t count = param_elements(param);
    float *torch = cod_arena_alloc(arena, count * sizeof *torch);
    if (torch == NULL)
        return COD_ERR_MEMORY;
    *out = (cod_st_tensor){.name = param->name, .dtype = COD_ST_F32, .rank = param->rank, .data = torch};
    COD_TRY(check_finite(param->name, tensor->values, count));
    cod_param_to_torch(param, tensor->values, torch, out->shape);
    if (bf16)
        round_tensor(out, torch, count);
    return COD_OK;
}

cod_status cod_tensors_write(const char *path, const named_tensor *tensors, size_t count, const cod_st_text *metadata,
                             size_t metadata_count, bool bf16)
{
    cod_arena arena = {0};
    cod_st_tensor *out = cod_arena_alloc(&arena, count * sizeof *out);
    cod_status status = out != NULL ? COD_OK : COD_ERR_MEMORY;
    for (size_t i = 0; i < count && status == COD_OK; i++)
        status = tensor_convert(&tensors[i], bf16, &arena, &out[i]);
    if (status != COD_OK)
        status = cod_fail_prefix(status, "%s", path);
    COD_THEN(status, cod_st_write(path, out, count, metadata, metadata_count));
    cod_arena_clear(&arena);
    return status;
}

static cod_status save(const char *path, const cod_model *model, const float *values, const cod_st_text *extra,
                       size_t extra_count, bool bf16, cod_arena *arena)
{
    graph_part part;
    COD_TRY(cod_graph_part_find(model, arena, &part));
    const size_t param_count = cod_graph_param_count(model->graph);
    named_tensor *tensors = cod_arena_alloc(arena, param_count * sizeof *tensors);
    cod_st_text *metadata = cod_arena_alloc(arena, (COD_MODEL_METADATA_COUNT + extra_count) * sizeof *metadata);
    COD_REQUIRE_MEMORY(tensors);
    COD_REQUIRE_MEMORY(metadata);
    size_t count = 0;
    for (size_t i = 0; i < param_count; i++) {
        const cod_param *param = cod_graph_param(model->graph, i);
        if (part.params[i])
            tensors[count++] = (named_tensor){*param, values + param->offset};
    }
    COD_TRY(cod_model_metadata(model->kind, model->options, arena, metadata));
    if (extra_count > 0)
        memcpy(metadata + COD_MODEL_METADATA_COUNT, extra, extra_count * sizeof *extra);
    return cod_tensors_write(path, tensors, count, metadata, COD_MODEL_METADATA_COUNT + extra_count, bf16);
}

cod_status cod_model_save_as(const char *path, const cod_model *model, const float *values, const cod_st_text *extra,
                             size_t extra_count, bool bf16)
{
    cod_arena arena = {0};
    const cod_status status = save(path, model, values, extra, extra_count, bf16, &arena);
    cod_arena_clear(&arena);
    return status;
}

cod_status cod_model_save(const char *path, const cod_model *model, const float *values, const cod_st_text *extra,
                          size_t extra_count)
{
    return cod_model_save_as(path, model, values, extra, extra_count, false);
}

/** A growing list of tensor names for a message: the first few, then how many more. */
typedef struct name_list {
    char text[320];
    size_t count;
} name_list;

static void name_list_add(name_list *list, const char *name, const char *detail)
{
    enum { NAMED = 3 };
    const size_t length = strlen(list->text);
    if (list->count++ < NAMED)
        snprintf(list->text + length, sizeof list->text - length, "%s'%.48s'%s", length ? ", " : "", name, detail);
}

/** "[64, 3, 9, 9]" */
static void shape_text(char *text, size_t bytes, const int64_t *dims, int rank)
{
    size_t length = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < rank && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%lld", i ? ", " : "", (long long)dims[i]);
    if (length < bytes)
        snprintf(text + length, bytes - length, "]");
}

/** PyTorch's dimensions of a parameter; returns their number. */
static int torch_dims(const cod_param *param, int64_t dims[4])
{
    const cod_shape s = param->shape;
    const int64_t all[3][4] = {{cod_shape_count(s), 0, 0, 0}, {s.n, s.c, 0, 0}, {s.n, s.c, s.h, s.w}};
    memcpy(dims, all[param->rank == 4 ? 2 : param->rank - 1], 4 * sizeof *dims);
    return param->rank;
}

typedef struct name_lists {
    name_list missing, unexpected, misshapen;
} name_lists;

static cod_status tensor_load(const cod_st_tensor *tensor, const cod_param *param, float *values)
{
    const size_t count = param_elements(param);
    void *torch = NULL;
    COD_TRY(cod_aligned_alloc(&torch, count * sizeof(float)));
    cod_status status = cod_st_to_f32(tensor, torch, count);
    COD_THEN(status, check_finite(param->name, torch, count));
    if (status == COD_OK)
        cod_param_from_torch(param, torch, values + param->offset);
    cod_aligned_free(torch);
    return status;
}

/** Loads what matches and notes what does not. */
static cod_status params_load(const cod_st_file *file, const cod_graph *graph, const graph_part *part, float *values,
                              size_t *loaded, name_lists *lists)
{
    char found[96], wanted[96], detail[224];
    int64_t dims[4];
    for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
        const cod_param *param = cod_graph_param(graph, i);
        if (!part->params[i])
            continue;
        const cod_st_tensor *tensor = cod_st_tensor_find(file, param->name);
        if (tensor == NULL) {
            name_list_add(&lists->missing, param->name, "");
            continue;
        }
        const int rank = torch_dims(param, dims);
        if (tensor->rank != rank || memcmp(tensor->shape, dims, (size_t)rank * sizeof *dims) != 0) {
            shape_text(found, sizeof found, tensor->shape, tensor->rank);
            shape_text(wanted, sizeof wanted, dims, rank);
            snprintf(detail, sizeof detail, " %s in place of %s", found, wanted);
            name_list_add(&lists->misshapen, param->name, detail);
            continue;
        }
        COD_TRY(tensor_load(tensor, param, values));
        ++*loaded;
    }
    return COD_OK;
}

static bool is_param(const cod_graph *graph, const graph_part *part, const char *name)
{
    for (size_t i = 0; i < cod_graph_param_count(graph); i++)
        if (part->params[i] && strcmp(cod_graph_param(graph, i)->name, name) == 0)
            return true;
    return false;
}

static void unexpected_find(const cod_st_file *file, const cod_graph *graph, const graph_part *part, name_list *list)
{
    for (size_t i = 0; i < cod_st_tensor_count(file); i++) {
        const char *name = cod_st_tensor_at(file, i)->name;
        const size_t length = strlen(name), suffix = strlen(IGNORED_SUFFIX);
        const bool ignored = length >= suffix && strcmp(name + length - suffix, IGNORED_SUFFIX) == 0;
        if (!ignored && !is_param(graph, part, name))
            name_list_add(list, name, "");
    }
}

/** "; 5 missing: 'a', 'b', 'c', …" */
static void describe(char *text, size_t bytes, const char *what, const name_list *list)
{
    const size_t length = strlen(text);
    if (list->count > 0)
        snprintf(text + length, bytes - length, "; %zu %s: %s%s", list->count, what, list->text,
                 list->count > 3 ? ", …" : "");
}

/** How the file's model differs, if the file has metadata: "; the file's model has scale 4, not 2". */
static void describe_other_model(char *text, size_t bytes, const cod_st_file *file, const cod_model *model)
{
    cod_arena arena = {0};
    const cod_model_kind *kind = NULL;
    void *options = NULL;
    size_t length = strlen(text), differing = 0;
    if (model->options == NULL)
        return;
    if (cod_model_metadata_read(file, &arena, &kind, &options) == COD_OK && kind == NULL &&
        cod_model_recognise(file, &arena, &kind, &options) != COD_OK)
        kind = NULL;
    if (kind != NULL && kind != model->kind)
        snprintf(text + length, bytes - length, "; the file holds the model '%s'", kind->name);
    for (size_t i = 0; kind != NULL && kind == model->kind && i < kind->table->count && length < bytes; i++) {
        const cod_option *option = &kind->table->options[i];
        const char *theirs = cod_option_format(option, options, &arena),
                   *ours = cod_option_format(option, model->options, &arena);
        if (theirs != NULL && ours != NULL && strcmp(theirs, ours) != 0)
            length += (size_t)snprintf(text + length, bytes - length, "%s%s %.64s, not %.64s",
                                       differing++ > 0 ? ", " : "; the file's model has ", option->key, theirs, ours);
    }
    cod_arena_clear(&arena);
}

/** Loads what the file and the model both have, and lists the rest. */
static cod_status common_load(const cod_st_file *file, const cod_model *model, float *values, size_t *loaded,
                              name_lists *lists)
{
    cod_arena arena = {0};
    graph_part part;
    cod_status status = cod_graph_part_find(model, &arena, &part);
    COD_THEN(status, params_load(file, model->graph, &part, values, loaded, lists));
    if (status == COD_OK)
        unexpected_find(file, model->graph, &part, &lists->unexpected);
    cod_arena_clear(&arena);
    return status;
}

static cod_status values_load(const cod_st_file *file, const cod_model *model, cod_load_mode mode, float *values,
                              cod_load_counts *counts)
{
    name_lists lists = {0};
    size_t loaded = 0;
    COD_TRY(common_load(file, model, values, &loaded, &lists));
    if (counts != NULL)
        *counts = (cod_load_counts){loaded, lists.missing.count, lists.unexpected.count, lists.misshapen.count};
    const bool differs = lists.missing.count + lists.unexpected.count + lists.misshapen.count > 0;
    if (mode == COD_LOAD_STRICT ? !differs : loaded > 0)
        return COD_OK;
    char text[2048] = "";
    describe(text, sizeof text, "missing", &lists.missing);
    describe(text, sizeof text, "of another shape", &lists.misshapen);
    describe(text, sizeof text, "unexpected", &lists.unexpected);
    describe_other_model(text, sizeof text, file, model);
    return cod_fail(COD_ERR_FORMAT, "the tensors do not fit the model '%s': %zu match%s", model->kind->name, loaded,
                    text);
}

cod_status cod_model_load_values(const char *path, const cod_model *model, cod_load_mode mode, float *values,
                                 cod_load_counts *counts)
{
    model_source source;
    COD_TRY(model_source_open(path, &source));
    cod_graph_layout(model->graph);
    cod_status status = COD_OK;
    if (cod_st_metadata(source.file, COD_VALUES_METADATA) != NULL)
        status =
            cod_fail(COD_ERR_FORMAT, "is a checkpoint of a run, not a model file: name the run's final.safetensors, "
                                     "group.G.safetensors or checkpoints/best.group-G.safetensors");
    else
        status = values_load(source.file, model, mode, values, counts);
    model_source_close(&source);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

/** Finds out what model the file holds. */
static cod_status kind_find(const cod_st_file *file, cod_arena *arena, const cod_model_kind **kind, void **options)
{
    COD_TRY(cod_model_metadata_read(file, arena, kind, options));
    if (*kind == NULL)
        COD_TRY(cod_model_recognise(file, arena, kind, options));
    if (*kind != NULL)
        return COD_OK;
    char shape[96] = "";
    if (cod_st_tensor_count(file) == 0)
        return cod_fail(COD_ERR_FORMAT, "not a model: the file holds no tensors");
    const cod_st_tensor *first = cod_st_tensor_at(file, 0);
    shape_text(shape, sizeof shape, first->shape, first->rank);
    return cod_fail(
        COD_ERR_FORMAT,
        "not a model of ours: no 'codistill.model' in its metadata, and its %zu tensors (the first: '%.64s' "
        "%s) are not those of an msrresnet, rrdb, edsr or compact",
        cod_st_tensor_count(file), first->name, shape);
}

/** Copies a text of the metadata; NULL stays where there is none. */
static cod_status keep_text(const cod_st_file *file, const char *key, cod_arena *arena, const char **out)
{
    const char *text = cod_st_metadata(file, key);
    if (text == NULL)
        return COD_OK;
    *out = cod_arena_strdup(arena, text);
    COD_REQUIRE_MEMORY(*out);
    return COD_OK;
}

/** Refuses a file that promises more than it holds before there is room for it; what little lacks is said by name. */
static cod_status check_size(const cod_st_file *file, const cod_layout *layout)
{
    enum { LITTLE = 1 << 24, GAP = 16 /**< less than so many elements lie between two tensors */ };
    const size_t wanted = layout->trainable + layout->state;
    size_t held = GAP * cod_st_tensor_count(file);
    for (size_t i = 0; i < cod_st_tensor_count(file); i++)
        held += cod_st_count(cod_st_tensor_at(file, i));
    if (wanted > LITTLE && wanted > held)
        return cod_fail(COD_ERR_FORMAT, "the model that the metadata names has %zu values, the file %zu", wanted, held);
    return COD_OK;
}

/** The values of a checkpoint, which lie in one array as the layout says. */
static cod_status array_load(const cod_st_file *file, const char *name, const cod_layout *layout, float *values)
{
    const cod_st_tensor *array = cod_st_tensor_find(file, name);
    const size_t wanted = layout->trainable + layout->state, held = array != NULL ? cod_st_count(array) : 0;
    if (held != wanted)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint's array '%.64s' has %zu values, its model %zu", name, held,
                        wanted);
    COD_TRY(cod_st_to_f32(array, values, wanted));
    return check_finite(name, values, wanted);
}

static cod_status load(const cod_st_file *file, cod_saved_model *saved)
{
    const char *array = cod_st_metadata(file, COD_VALUES_METADATA);
    const cod_model_kind *kind = NULL;
    void *options = NULL, *values = NULL;
    COD_TRY(kind_find(file, &saved->arena, &kind, &options));
    COD_TRY(cod_model_build(kind, options, &saved->model));
    saved->layout = cod_graph_layout(saved->model.graph);
    COD_TRY(check_size(file, &saved->layout));
    COD_TRY(cod_aligned_alloc(&values, (saved->layout.trainable + saved->layout.state) * sizeof(float)));
    saved->values = values;
    COD_TRY(keep_text(file, COD_INT8_METADATA, &saved->arena, &saved->int8));
    COD_TRY(keep_text(file, COD_DATA_METADATA, &saved->arena, &saved->data));
    return array != NULL ? array_load(file, array, &saved->layout, saved->values)
                         : values_load(file, &saved->model, COD_LOAD_STRICT, saved->values, NULL);
}

cod_status cod_model_load(const char *path, cod_saved_model *saved)
{
    model_source source;
    *saved = (cod_saved_model){0};
    COD_TRY(model_source_open(path, &source));
    const cod_status status = load(source.file, saved);
    model_source_close(&source);
    if (status == COD_OK)
        return COD_OK;
    cod_saved_model_clear(saved);
    return cod_fail_prefix(status, "%s", path);
}

static cod_status host_values(const cod_weights *weights, void **values)
{
    COD_REQUIRE(weights->dtype == COD_F32, "model files hold f32, the weights are %s", cod_dtype_name(weights->dtype));
    return cod_aligned_alloc(values, cod_weights_count(weights) * sizeof(float));
}

cod_status cod_model_save_weights(const char *path, const cod_model *model, const cod_weights *weights,
                                  const cod_st_text *extra, size_t extra_count)
{
    void *values = NULL;
    COD_TRY(host_values(weights, &values));
    cod_status status = cod_weights_download(weights, values);
    COD_THEN(status, cod_model_save(path, model, values, extra, extra_count));
    cod_aligned_free(values);
    return status;
}

cod_status cod_model_load_weights(const char *path, const cod_model *model, cod_load_mode mode, cod_weights *weights,
                                  cod_load_counts *counts)
{
    void *values = NULL;
    COD_TRY(host_values(weights, &values));
    cod_status status = cod_weights_download(weights, values);
    COD_THEN(status, cod_model_load_values(path, model, mode, values, counts));
    COD_THEN(status, cod_weights_upload(weights, values));
    cod_aligned_free(values);
    return status;
}

static cod_status set_load(const cod_st_file *file, const cod_graph *graph, int set, float *values)
{
    cod_arena arena = {0};
    const size_t count = cod_graph_param_count(graph);
    graph_part part = {.params = cod_arena_alloc(&arena, count * sizeof *part.params)};
    name_lists lists = {0};
    name_list held = {0};
    size_t loaded = 0;
    COD_REQUIRE_MEMORY(part.params);
    for (size_t i = 0; i < count; i++) {
        const cod_param *param = cod_graph_param(graph, i);
        part.params[i] = param->set == set && param->start == NULL;
    }
    const cod_status status = params_load(file, graph, &part, values, &loaded, &lists);
    cod_arena_clear(&arena);
    COD_TRY(status);
    if (lists.missing.count + lists.misshapen.count == 0)
        return COD_OK;
    for (size_t i = 0; i < cod_st_tensor_count(file); i++)
        name_list_add(&held, cod_st_tensor_at(file, i)->name, "");
    char text[1200] = "";
    describe(text, sizeof text, "missing", &lists.missing);
    describe(text, sizeof text, "of another shape", &lists.misshapen);
    describe(text, sizeof text, "in the file", &held);
    return cod_fail(COD_ERR_FORMAT, "the tensors do not fit the network '%s': %zu match%s",
                    cod_graph_set_name(graph, set), loaded, text);
}

cod_status cod_set_load_weights(const char *path, int set, cod_weights *weights)
{
    cod_st_file *file = NULL;
    void *values = NULL;
    COD_TRY(cod_st_open(path, &file));
    cod_status status = host_values(weights, &values);
    COD_THEN(status, cod_weights_download(weights, values));
    COD_THEN(status, set_load(file, weights->graph, set, values));
    COD_THEN(status, cod_weights_upload(weights, values));
    cod_aligned_free(values);
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

static cod_status set_save(const char *path, int set, const cod_graph *graph, const float *values)
{
    cod_arena arena = {0};
    size_t count = 0;
    named_tensor *tensors = cod_arena_alloc(&arena, cod_graph_param_count(graph) * sizeof *tensors);
    COD_REQUIRE_MEMORY(tensors);
    for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
        const cod_param *param = cod_graph_param(graph, i);
        if (param->set == set)
            tensors[count++] = (named_tensor){*param, values + param->offset};
    }
    const cod_status status = cod_tensors_write(path, tensors, count, NULL, 0, false);
    cod_arena_clear(&arena);
    return status;
}

cod_status cod_set_save_weights(const char *path, int set, const cod_weights *weights)
{
    void *values = NULL;
    COD_TRY(host_values(weights, &values));
    cod_status status = cod_weights_download(weights, values);
    COD_THEN(status, set_save(path, set, weights->graph, values));
    cod_aligned_free(values);
    return status;
}
