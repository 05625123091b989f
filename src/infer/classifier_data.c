/* The description of the training data in a classifier's model file. */
#include "infer/classifier.h"
#include "io/json.h"

#include <string.h>

static void write_floats(cod_json *json, const char *key, const float *values, int64_t count)
{
    cod_json_open(json, key, '[');
    for (int64_t i = 0; i < count; i++)
        cod_json_number(json, NULL, (double)values[i]);
    cod_json_close(json);
}

cod_status cod_classifier_data_write(const cod_labelled *labelled, int kind, int64_t size, char **text)
{
    const cod_normalisation by = cod_labelled_normalisation(labelled);
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "kind", cod_data_kind_names[kind]);
    cod_json_integer(&json, "size", size);
    write_floats(&json, "mean", by.mean, by.channels);
    write_floats(&json, "deviation", by.deviation, by.channels);
    cod_json_open(&json, "classes", '[');
    for (size_t k = 0; k < cod_labelled_classes(labelled); k++)
        cod_json_string(&json, NULL, cod_labelled_class_name(labelled, k));
    cod_json_close(&json);
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

/** A list of as many numbers as there are channels; new in `arena`. */
static cod_status read_floats(const cod_json_value *list, size_t count, cod_arena *arena, const float **out)
{
    float *values = cod_arena_alloc(arena, (count + 1) * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    size_t at = 0;
    for (const cod_json_value *v = cod_json_first(list); v != NULL && at < count; v = cod_json_next(v))
        values[at++] = (float)cod_json_get_number(v, 0);
    if (at != count || cod_json_count(list) != count)
        return cod_fail(COD_ERR_FORMAT, "metadata '%s': lists of unequal length", COD_DATA_METADATA);
    *out = values;
    return COD_OK;
}

static cod_status normalise(const cod_json_value *document, cod_arena *arena, cod_labelled *labelled)
{
    const cod_json_value *mean = cod_json_get(document, "mean");
    const size_t channels = cod_json_count(mean);
    cod_normalisation by = {.channels = (int64_t)channels};
    COD_TRY(read_floats(mean, channels, arena, &by.mean));
    COD_TRY(read_floats(cod_json_get(document, "deviation"), channels, arena, &by.deviation));
    return cod_labelled_normalise(labelled, &by);
}

static cod_status check_classes(const cod_json_value *names, const cod_labelled *labelled, const char *path)
{
    const size_t count = cod_json_count(names), found = cod_labelled_classes(labelled);
    COD_REQUIRE(count == found, "'%s' holds %zu classes, the model knows %zu", path, found, count);
    size_t k = 0;
    for (const cod_json_value *v = cod_json_first(names); v != NULL; v = cod_json_next(v), k++)
        COD_REQUIRE(strcmp(cod_json_get_string(v, ""), cod_labelled_class_name(labelled, k)) == 0,
                    "class %zu of '%s' is '%.64s', the model's is '%.64s'", k, path,
                    cod_labelled_class_name(labelled, k), cod_json_get_string(v, "?"));
    return COD_OK;
}

/** Holds nothing out: data without a test set are evaluated as a whole. */
static cod_status open_data(const cod_json_value *document, const char *path, cod_arena *arena, cod_labelled **out)
{
    cod_data_options options;
    COD_TRY(cod_options_set_defaults(&cod_data_option_table, &options, arena));
    const char *kind = cod_json_get_string(cod_json_get(document, "kind"), "");
    options.kind = -1;
    for (int i = 0; cod_data_kind_names[i] != NULL; i++)
        if (strcmp(cod_data_kind_names[i], kind) == 0)
            options.kind = i;
    if (!cod_data_kind_is_labelled(options.kind))
        return cod_fail(COD_ERR_ARGUMENT, "the model was trained on data of kind '%s', which no folder holds", kind);
    const cod_option *size = cod_option_find(&cod_data_option_table, "size");
    const double side = cod_json_get_number(cod_json_get(document, "size"), (double)options.size);
    if (!(side >= size->min && side <= size->max))
        return cod_fail(COD_ERR_FORMAT, "metadata '%s': size: %g is not from %g to %g", COD_DATA_METADATA, side,
                        size->min, size->max);
    options.size = (int64_t)side;
    options.val_fraction = 0;
    options.path = (cod_string_list){1, &path};
    return cod_labelled_open(&options, &(cod_dataset_place){.groups = 1, .report = true}, out);
}

cod_status cod_classifier_data_open(const cod_saved_model *saved, const char *path, cod_split *split,
                                    cod_labelled **out)
{
    *out = NULL;
    COD_REQUIRE(saved->data != NULL, "the model's file says nothing of the data it was trained on ('%s')",
                COD_DATA_METADATA);
    cod_json_value *document = NULL;
    cod_arena arena = {0};
    cod_labelled *labelled = NULL;
    cod_status status = cod_json_parse(saved->data, strlen(saved->data), &document);
    COD_THEN(status, open_data(document, path, &arena, &labelled));
    COD_THEN(status, check_classes(cod_json_get(document, "classes"), labelled, path));
    COD_THEN(status, normalise(document, &arena, labelled));
    cod_json_free(document);
    cod_arena_clear(&arena);
    if (status != COD_OK) {
        cod_labelled_close(labelled);
        return status;
    }
    *split = cod_labelled_size(labelled, COD_SPLIT_TEST) > 0 ? COD_SPLIT_TEST : COD_SPLIT_TRAIN;
    *out = labelled;
    return COD_OK;
}
