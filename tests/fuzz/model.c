/*
 * Model files: metadata that says what network it is and what it was trained on, or tensors that show it, and its
 * values.
 */
#include "fuzz.h"

#include "infer/classifier.h"
#include "infer/infer_internal.h"
#include "infer/int8.h"

fuzz_kind fuzz_kinds[] = {{"models", 0}, {"data sets", 0}, {NULL, 0}};

/** A table of two classes and two measurements, as what the model was trained on. */
static void open_data(const cod_saved_model *saved)
{
    static const char table[] = "a,b,class\n1,2,x\n3,4,y\n";
    char path[300];
    cod_labelled *labelled = NULL;
    cod_split split;
    snprintf(path, sizeof path, "%s/table", fuzz_folder());
    FUZZ_DEMAND(!fuzz_write_file(fuzz_folder(), "table", table, sizeof table - 1));
    const cod_status status = cod_classifier_data_open(saved, path, &split, &labelled);
    FUZZ_DEMAND(status != COD_ERR_MEMORY); /* but for want of a folder, where the text says that there is one */
    fuzz_kinds[1].taken += status == COD_OK;
    cod_labelled_close(labelled);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_saved_model saved;
    fuzz_memory(input, bytes);
    const int loaded = fuzz_taken(cod_model_load("input", &saved));
    fuzz_memory(NULL, 0);
    if (!loaded)
        return 0;
    fuzz_kinds[0].taken++;
    const size_t count = cod_graph_node_count(saved.model.graph);
    float *ranges = calloc(count + 1, sizeof *ranges);
    FUZZ_DEMAND(ranges != NULL);
    if (saved.data != NULL)
        open_data(&saved);
    if (saved.int8 != NULL) /* of these small networks no layer has ranges: the text is read, and refused */
        (void)fuzz_taken(cod_int8_parse(saved.model.graph, saved.int8, ranges));
    free(ranges);
    cod_saved_model_clear(&saved);
    return 0;
}

/** Saves a network of these options. @param more  further metadata, or NULL */
static int write_model(const char *folder, const char *kind, const cod_st_text *settings, size_t count,
                       const cod_st_text *more)
{
    char path[4096];
    cod_arena arena = {0};
    void *options = NULL, *values = NULL;
    cod_model model = {0};
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    int failed = cod_model_options(cod_model_kind_find(kind), settings, count, &arena, &options) != COD_OK ||
                 cod_model_build(cod_model_kind_find(kind), options, &model) != COD_OK;
    const cod_layout layout = failed ? (cod_layout){0} : cod_graph_layout(model.graph);
    failed = failed || cod_aligned_alloc(&values, (layout.trainable + layout.state) * sizeof(float)) != COD_OK ||
             cod_model_save(path, &model, values, more, more != NULL) != COD_OK;
    cod_aligned_free(values);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return failed;
}

/** Writes an msrresnet without our metadata, as others do: it is recognised by its tensors. */
static int write_foreign(const char *folder)
{
    char path[4096];
    cod_st_file *file = NULL;
    snprintf(path, sizeof path, "%s/msrresnet", folder);
    int failed = cod_st_open(path, &file) != COD_OK;
    snprintf(path, sizeof path, "%s/foreign", folder);
    failed = failed || cod_st_write(path, cod_st_tensor_at(file, 0), cod_st_tensor_count(file), NULL, 0) != COD_OK;
    cod_st_close(file);
    return failed;
}

/** Writes two networks into one file, each below a prefix of its own, and a counter beside them. */
static int write_wrapped(const char *folder)
{
    enum { MOST = 64 };
    static const int64_t steps = 3;
    static const char *const prefixes[] = {"model.generator.", "model.generator_ema._orig_mod."};
    char path[4096], names[2][MOST][96];
    cod_st_tensor tensors[2 * MOST + 1] = {{.name = "n_averaged", .dtype = COD_ST_I64, .data = &steps}};
    cod_st_file *file = NULL;
    snprintf(path, sizeof path, "%s/foreign", folder);
    if (cod_st_open(path, &file) != COD_OK)
        return 1;
    const size_t count = cod_st_tensor_count(file);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < count && i < MOST; i++) {
            cod_st_tensor *tensor = &tensors[1 + k * count + i];
            *tensor = *cod_st_tensor_at(file, i);
            snprintf(names[k][i], sizeof names[k][i], "%s%.60s", prefixes[k], tensor->name);
            tensor->name = names[k][i];
        }
    snprintf(path, sizeof path, "%s/wrapped", folder);
    int failed = count > MOST || cod_st_write(path, tensors, 1 + count, NULL, 0) != COD_OK;
    snprintf(path, sizeof path, "%s/two", folder);
    failed = failed || cod_st_write(path, tensors, 1 + 2 * count, NULL, 0) != COD_OK;
    cod_st_close(file);
    return failed;
}

int fuzz_write(const char *folder)
{
    const cod_st_text mlp[] = {{"height", "1"}, {"width", "1"}, {"channels", "2"}, {"classes", "2"}, {"hidden", "1"}},
                      cnn[] = {{"height", "4"}, {"width", "4"}, {"channels", "1"}, {"classes", "2"}, {"stages", "1"}},
                      pictures[] = {{"num_feat", "1"}, {"num_block", "1"}, {"scale", "2"}},
                      compact[] = {{"num_feat", "1"}, {"num_conv", "1"}, {"scale", "2"}},
                      data = {COD_DATA_METADATA, "{\"kind\":\"iris\",\"size\":64,\"mean\":[1,2],\"deviation\":[1,2],"
                                                 "\"classes\":[\"x\",\"y\"]}"},
                      ranges = {COD_INT8_METADATA, "{\"conv_hr\": 1.5}"};
    int failed = write_model(folder, "mlp", mlp, 5, &data);
    failed |= write_model(folder, "cnn", cnn, 5, NULL);
    failed |= write_model(folder, "msrresnet", pictures, 3, &ranges);
    failed |= write_model(folder, "compact", compact, 3, NULL);
    return failed | write_foreign(folder) | write_wrapped(folder);
}
