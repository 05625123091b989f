#include "support/test.h"

#include "infer/fold.h"
#include "io/file.h"
#include "models.h"
#include "ref/ref.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static size_t value_count(const cod_saved_model *saved)
{
    return saved->layout.trainable + saved->layout.state;
}

static void save(const char *path, const cod_saved_model *saved)
{
    assert_ok(cod_model_save(path, &saved->model, saved->values, NULL, 0));
}

static void same_options(cod_saved_model *a, const cod_saved_model *b)
{
    const cod_option_table *table = b->model.kind->table;
    for (size_t i = 0; i < table->count; i++)
        assert_string_equal(cod_option_format(&table->options[i], a->model.options, &a->arena),
                            cod_option_format(&table->options[i], b->model.options, &a->arena));
}

TEST(files_round_trip)
{
    static const cod_st_text mlp[] = {TEST_SIZES(3, 2, 4, 3), {NULL, NULL}};
    static const cod_st_text msr[] = {{"num_feat", "8"}, {"num_block", "2"}, {"scale", "3"}, {NULL, NULL}};
    static const cod_st_text compact[] = {{"num_feat", "8"}, {"num_conv", "2"}, {"scale", "2"}, {NULL, NULL}};
    static const cod_st_text rrdb[] = {{"num_feat", "6"}, {"num_block", "2"}, {"num_grow_ch", "4"}, {NULL, NULL}};
    static const cod_st_text edsr[] = {
        {"num_feat", "6"}, {"num_block", "2"}, {"scale", "3"}, {"res_scale", "0.1"}, {NULL, NULL}};
    static const cod_st_text cnn[] = {TEST_SIZES(5, 6, 1, 3), {"hidden", "4"}, {NULL, NULL}};
    static const cod_st_text resnet[] = {TEST_SIZES(9, 8, 3, 3), {"features", "2"}, {"stem", "small"}, {NULL, NULL}};
    cod_saved_model models[] = {test_srresnet(1),
                                test_model("mlp", mlp, 2),
                                test_model("msrresnet", msr, 3),
                                test_model("compact", compact, 4),
                                test_model("rrdb", rrdb, 9),
                                test_model("edsr", edsr, 10),
                                test_model("logistic", mlp, 5),
                                test_model("cnn", cnn, 6),
                                test_model("resnet18", resnet, 7),
                                test_model("resnet50", resnet, 8)};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *path = cod_test_at("round.safetensors");
        cod_saved_model loaded;
        save(path, &models[i]);
        assert_ok(cod_model_load(path, &loaded));
        assert_ptr_equal(loaded.model.kind, models[i].model.kind);
        assert_memory_equal(&loaded.layout, &models[i].layout, sizeof loaded.layout);
        assert_memory_equal(loaded.values, models[i].values, value_count(&loaded) * sizeof(float));
        assert_int_equal(cod_model_scale(&loaded.model), cod_model_scale(&models[i].model));
        same_options(&loaded, &models[i]);
        const cod_classifier_sizes *sizes = cod_model_sizes(loaded.model.kind, loaded.model.options);
        assert_true((sizes != NULL) == (i == 1 || i >= 6));
        if (sizes != NULL)
            assert_memory_equal(sizes, models[i].model.options, sizeof *sizes);
        cod_saved_model_clear(&loaded);
        cod_saved_model_clear(&models[i]);
    }
}

/** A group's part of a checkpoint with one array, of `count` values. */
static void save_checkpoint(const char *path, const cod_saved_model *saved, const char *name, size_t count,
                            const float *values)
{
    cod_arena arena = {0};
    cod_st_text texts[COD_MODEL_METADATA_COUNT + 1];
    assert_ok(cod_model_metadata(saved->model.kind, saved->model.options, &arena, texts));
    texts[COD_MODEL_METADATA_COUNT] = (cod_st_text){COD_VALUES_METADATA, "ema"};
    const cod_st_tensor array = {
        .name = name, .dtype = COD_ST_F32, .rank = 1, .shape = {(int64_t)count}, .data = values};
    assert_ok(cod_st_write(path, &array, 1, texts, COD_MODEL_METADATA_COUNT + 1));
    cod_arena_clear(&arena);
}

TEST(a_checkpoint_is_a_model)
{
    cod_saved_model saved = test_srresnet(4), loaded;
    const char *path = cod_test_at("checkpoint.safetensors");
    const size_t count = value_count(&saved);
    save_checkpoint(path, &saved, "ema", count, saved.values);
    assert_ok(cod_model_load(path, &loaded));
    assert_memory_equal(loaded.values, saved.values, count * sizeof(float));
    same_options(&loaded, &saved);
    cod_saved_model_clear(&loaded);
    assert_fails(COD_ERR_FORMAT, "is a checkpoint of a run, not a model file",
                 cod_model_load_values(path, &saved.model, COD_LOAD_PARTIAL, saved.values, NULL));
    save_checkpoint(path, &saved, "ema", count - 1, saved.values);
    assert_fails(COD_ERR_FORMAT, "the checkpoint's array 'ema' has ", cod_model_load(path, &loaded));
    save_checkpoint(path, &saved, "values", count, saved.values);
    assert_fails(COD_ERR_FORMAT, "the checkpoint's array 'ema' has 0 values", cod_model_load(path, &loaded));
    saved.values[3] = NAN;
    save_checkpoint(path, &saved, "ema", count, saved.values);
    assert_fails(COD_ERR_NUMERIC, "tensor 'ema' holds NaN", cod_model_load(path, &loaded));
    cod_saved_model_clear(&saved);
}

TEST(a_misfit_is_told_by_its_options)
{
    static const cod_st_text four[] = {{"num_feat", "8"}, {"num_block", "2"}, {"scale", "4"}, {NULL, NULL}},
                             three[] = {{"num_feat", "8"}, {"num_block", "2"}, {"scale", "3"}, {NULL, NULL}};
    cod_saved_model given = test_model("msrresnet", four, 3), wanted = test_model("msrresnet", three, 3),
                    other = test_model("edsr", three, 3);
    const char *path = cod_test_at("misfit.safetensors");
    save(path, &given);
    assert_fails(COD_ERR_FORMAT, "; the file's model has scale 4, not 3",
                 cod_model_load_values(path, &wanted.model, COD_LOAD_STRICT, wanted.values, NULL));
    assert_fails(COD_ERR_FORMAT, "; the file holds the model 'msrresnet'",
                 cod_model_load_values(path, &other.model, COD_LOAD_STRICT, other.values, NULL));
    cod_saved_model_clear(&given);
    cod_saved_model_clear(&wanted);
    cod_saved_model_clear(&other);
}

TEST(tensors_have_pytorchs_names_and_layout)
{
    cod_saved_model saved = test_srresnet(4);
    cod_st_file *file;
    const cod_st_text step = {"step", "1200"};
    const char *path = cod_test_at("names.safetensors");
    assert_ok(cod_model_save(path, &saved.model, saved.values, &step, 1));
    assert_ok(cod_st_open(path, &file));
    assert_string_equal(cod_st_metadata(file, "codistill.model"), "srresnet");
    assert_string_equal(cod_st_metadata(file, "format"), "pt");
    assert_string_equal(cod_st_metadata(file, "step"), "1200");
    assert_non_null(strstr(cod_st_metadata(file, "codistill.options"), "\"channels\": \"8\""));
    const cod_st_tensor *head = cod_st_tensor_find(file, "head.0.weight");
    assert_non_null(head);
    assert_memory_equal(head->shape, ((const int64_t[]){8, 3, 5, 5}), 4 * sizeof(int64_t));
    float torch[8 * 3 * 5 * 5];
    assert_ok(cod_st_to_f32(head, torch, 8 * 3 * 5 * 5));
    const float *ours = saved.values + cod_graph_param(saved.model.graph, 0)->offset;
    assert_true(torch[((2 * 3 + 1) * 5 + 3) * 5 + 4] == ours[((2 * 5 + 3) * 5 + 4) * 3 + 1]);
    assert_non_null(cod_st_tensor_find(file, "body.0.f.1.running_var"));
    assert_null(cod_st_tensor_find(file, "body.0.f.1.num_batches_tracked"));
    cod_st_close(file);
    cod_saved_model_clear(&saved);
}

/** Losses, and a second network on top, are no part of the model. */
TEST(only_what_the_output_needs_is_saved)
{
    cod_saved_model saved = test_srresnet(5), loaded;
    cod_graph *graph = saved.model.graph;
    const size_t own = cod_graph_param_count(graph);
    cod_graph_use_set(graph, "discriminator");
    const cod_value judged = cod_graph_conv2d(graph, "judge", saved.model.output,
                                              (cod_conv2d_spec){.out_channels = 1, .kernel = 3, .padding = 1});
    cod_graph_loss(graph, "loss", judged, cod_graph_input_like(graph, "target", judged), (cod_loss_spec){0});
    assert_ok(cod_graph_status(graph));
    const cod_layout layout = cod_graph_layout(graph);
    float *values = calloc(layout.trainable + layout.state, sizeof *values);
    assert_non_null(values);
    assert_ok(cod_model_save(cod_test_at("part.safetensors"), &saved.model, values, NULL, 0));
    assert_ok(cod_model_load(cod_test_at("part.safetensors"), &loaded));
    assert_int_equal(cod_graph_param_count(loaded.model.graph), own);
    free(values);
    cod_saved_model_clear(&loaded);
    cod_saved_model_clear(&saved);
}

/** Two layers of one set: "known" begins as the graph says. @param weights  zeroed */
static cod_graph *set_graph(cod_weights *weights, cod_device **device)
{
    static const double start[] = {5, 6, 7, 8};
    cod_graph *graph;
    assert_ok(cod_graph_create(&graph));
    const cod_value x = cod_graph_input(graph, "input", 2);
    cod_graph_conv2d(graph, "layer", x, (cod_conv2d_spec){.out_channels = 2, .kernel = 1});
    cod_graph_use_set(graph, "frozen");
    const cod_value y = cod_graph_conv2d(
        graph, "known", x, (cod_conv2d_spec){.out_channels = 2, .kernel = 1, .no_bias = true, .weights = start});
    cod_graph_conv2d(graph, "layer", y, (cod_conv2d_spec){.out_channels = 2, .kernel = 1});
    assert_ok(cod_graph_status(graph));
    assert_ok(cod_ref_backend.open(NULL, device));
    assert_ok(cod_weights_init(weights, &cod_ref_backend, *device, graph, COD_F32, false));
    assert_ok(cod_weights_fill_initial(weights, 3));
    return graph;
}

enum { FROZEN = 1, VALUES = 96 };

TEST(a_set_starts_from_a_file_that_holds_more)
{
    static const float weight[] = {1, 2, 3, 4}, bias[] = {-1, -2};
    const cod_st_tensor tensors[] = {
        {.name = "layer.weight", .dtype = COD_ST_F32, .rank = 4, .shape = {2, 2, 1, 1}, .data = weight},
        {.name = "layer.bias", .dtype = COD_ST_F32, .rank = 1, .shape = {2}, .data = bias},
        {.name = "known.weight", .dtype = COD_ST_F32, .rank = 1, .shape = {2}, .data = bias},
        {.name = "other", .dtype = COD_ST_F32, .rank = 1, .shape = {2}, .data = bias}};
    cod_st_tensor reshaped[2] = {tensors[0], tensors[1]};
    reshaped[0].rank = 2;
    cod_weights weights = {0};
    cod_device *device;
    cod_graph *graph = set_graph(&weights, &device);
    float before[VALUES], after[VALUES];
    assert_true(cod_weights_count(&weights) <= VALUES);
    assert_ok(cod_weights_download(&weights, before));
    const char *path = cod_test_at("set.safetensors");
    assert_fails(COD_ERR_IO, "set.safetensors", cod_set_load_weights(path, FROZEN, &weights));
    assert_ok(cod_st_write(path, tensors + 1, 3, NULL, 0));
    assert_fails(
        COD_ERR_FORMAT,
        "the tensors do not fit the network 'frozen': 1 match; 1 missing: 'layer.weight'; 3 in the file: 'layer.bias'",
        cod_set_load_weights(path, FROZEN, &weights));
    assert_ok(cod_st_write(path, reshaped, 2, NULL, 0));
    assert_fails(COD_ERR_FORMAT, "1 of another shape: 'layer.weight' [2, 2] in place of [2, 2, 1, 1]",
                 cod_set_load_weights(path, FROZEN, &weights));
    assert_ok(cod_weights_download(&weights, after));
    assert_memory_equal(before, after, cod_weights_count(&weights) * sizeof(float)); /* a failure changes nothing */
    assert_ok(cod_st_write(path, tensors, 4, NULL, 0));
    assert_ok(cod_set_load_weights(path, FROZEN, &weights));
    assert_ok(cod_weights_download(&weights, after));
    const float expected[] = {5, 6, 7, 8};
    size_t checked = 0;
    for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
        const cod_param *param = cod_graph_param(graph, i);
        const bool known = strncmp(param->name, "known", 5) == 0, is_weight = param->rank == 4;
        const float *wanted = param->set != FROZEN ? before + param->offset
                              : known              ? expected
                              : is_weight          ? weight
                                                   : bias;
        assert_memory_equal(after + param->offset, wanted, (size_t)cod_shape_count(param->shape) * sizeof(float));
        checked++;
    }
    assert_int_equal(checked, 5);
    cod_weights_clear(&weights);
    cod_ref_backend.close(device);
    cod_graph_destroy(graph);
}

/** Weights that are changed and loaded again are as they were saved; those that the graph gives are not loaded. */
TEST(a_saved_set_loads_as_it_was)
{
    cod_weights weights = {0};
    cod_device *device;
    cod_graph *graph = set_graph(&weights, &device);
    float before[VALUES], after[VALUES];
    const char *path = cod_test_at("saved.safetensors");
    assert_true(cod_weights_count(&weights) <= VALUES);
    assert_ok(cod_weights_download(&weights, before));
    assert_ok(cod_set_save_weights(path, FROZEN, &weights));
    for (size_t i = 0; i < cod_weights_count(&weights); i++)
        after[i] = before[i] + 1;
    assert_ok(cod_weights_upload(&weights, after));
    assert_ok(cod_set_load_weights(path, FROZEN, &weights));
    assert_ok(cod_weights_download(&weights, after));
    for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
        const cod_param *param = cod_graph_param(graph, i);
        const float added = param->set == FROZEN && param->start == NULL ? 0 : 1;
        for (size_t k = 0; k < (size_t)cod_shape_count(param->shape); k++)
            assert_true(after[param->offset + k] == before[param->offset + k] + added);
    }
    cod_weights_clear(&weights);
    cod_ref_backend.close(device);
    cod_graph_destroy(graph);
}

TEST(well_known_models_are_recognised_by_their_tensors)
{
    static const struct {
        const char *kind, *layers, *last, *value;
    } cases[] = {{"msrresnet", "num_block", "scale", "2"},   {"msrresnet", "num_block", "scale", "3"},
                 {"msrresnet", "num_block", "scale", "4"},   {"compact", "num_conv", "scale", "2"},
                 {"compact", "num_conv", "scale", "3"},      {"compact", "num_conv", "scale", "4"},
                 {"edsr", "num_block", "scale", "2"},        {"edsr", "num_block", "scale", "3"},
                 {"edsr", "num_block", "scale", "4"},        {"rrdb", "num_block", "num_grow_ch", "5"},
                 {"rrdb", "num_block", "num_grow_ch", "32"}, {"rrdb", "num_block", "scale", "2"},
                 {"rrdb", "num_block", "scale", "1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_st_text settings[] = {
            {"num_feat", "6"}, {cases[i].layers, "3"}, {cases[i].last, cases[i].value}, {NULL, NULL}};
        cod_saved_model saved = test_model(cases[i].kind, settings, 6), loaded;
        const char *path = cod_test_at("foreign.safetensors");
        cod_st_file *file;
        save(path, &saved);
        assert_ok(cod_st_open(path, &file));
        cod_st_tensor *tensors = calloc(cod_st_tensor_count(file), sizeof *tensors);
        assert_non_null(tensors);
        for (size_t k = 0; k < cod_st_tensor_count(file); k++)
            tensors[k] = *cod_st_tensor_at(file, k);
        const char *bare = cod_test_at("bare.safetensors");
        assert_ok(cod_st_write(bare, tensors, cod_st_tensor_count(file), NULL, 0));
        free(tensors);
        cod_st_close(file);
        assert_ok(cod_model_load(bare, &loaded));
        assert_ptr_equal(loaded.model.kind, saved.model.kind);
        assert_int_equal(cod_model_scale(&loaded.model), cod_model_scale(&saved.model));
        assert_memory_equal(loaded.values, saved.values, value_count(&saved) * sizeof(float));
        cod_saved_model_clear(&loaded);
        cod_saved_model_clear(&saved);
    }
}

TEST(strict_names_what_differs_and_partial_counts_it)
{
    static const cod_st_text more[] = {
        {"blocks", "3"}, {"channels", "8"}, {"head_kernel", "3"}, {"tail_kernel", "5"}, {NULL, NULL}};
    cod_saved_model small = test_srresnet(7), large = test_model("srresnet", more, 8);
    const char *path = cod_test_at("small.safetensors");
    cod_load_counts counts;
    save(path, &small);
    const size_t params = cod_graph_param_count(large.model.graph);
    assert_fails(COD_ERR_FORMAT, "'head.0.weight' [8, 3, 5, 5] in place of [8, 3, 3, 3]",
                 cod_model_load_values(path, &large.model, COD_LOAD_STRICT, large.values, &counts));
    cod_test_assert_contains(cod_error_message(), "missing: 'body.");
    cod_test_assert_contains(cod_error_message(), "small.safetensors");
    assert_ok(cod_model_load_values(path, &large.model, COD_LOAD_PARTIAL, large.values, &counts));
    assert_int_equal(counts.loaded + counts.missing + counts.misshapen, params);
    assert_true(counts.loaded > 20 && counts.missing > 5 && counts.misshapen >= 1);
    const cod_param *last = cod_graph_param(small.model.graph, 0);
    for (size_t i = 0; i < params; i++)
        if (strcmp(cod_graph_param(large.model.graph, i)->name, "head.0.bias") == 0)
            last = cod_graph_param(large.model.graph, i);
    assert_memory_equal(large.values + last->offset, small.values + cod_graph_param(small.model.graph, 1)->offset,
                        8 * sizeof(float));

    static const cod_st_text mlp[] = {TEST_SIZES(1, 1, 4, 3), {NULL, NULL}};
    cod_saved_model other = test_model("mlp", mlp, 9);
    assert_fails(COD_ERR_FORMAT, "0 match",
                 cod_model_load_values(path, &other.model, COD_LOAD_PARTIAL, other.values, NULL));
    cod_saved_model_clear(&other);
    cod_saved_model_clear(&small);
    cod_saved_model_clear(&large);
}

TEST(numbers_that_are_none_are_refused)
{
    cod_saved_model saved = test_srresnet(10);
    cod_saved_model loaded;
    const char *path = cod_test_at("nan.safetensors");
    const float before = saved.values[0];
    saved.values[0] = NAN;
    assert_fails(COD_ERR_NUMERIC, "'head.0.weight' holds NaN",
                 cod_model_save(path, &saved.model, saved.values, NULL, 0));
    assert_false(cod_file_exists(path));
    saved.values[0] = before;
    save(path, &saved);

    /* The same file with one value replaced behind our back. */
    void *bytes;
    size_t size;
    assert_ok(cod_file_read(path, SIZE_MAX, &bytes, &size));
    memcpy((char *)bytes + size - sizeof(float), &(const float){-INFINITY}, sizeof(float));
    assert_ok(cod_file_write(path, bytes, size));
    free(bytes);
    assert_fails(COD_ERR_NUMERIC, "an infinity", cod_model_load(path, &loaded));
    assert_null(loaded.values);
    cod_saved_model_clear(&saved);
}

TEST(foreign_and_damaged_files_are_refused)
{
    cod_saved_model loaded;
    const float zero[2] = {0};
    const cod_st_tensor tensor = {.name = "something", .dtype = COD_ST_F32, .rank = 1, .shape = {2}, .data = zero};
    const char *path = cod_test_at("foreign.safetensors");
    assert_fails(COD_ERR_IO, "absent.safetensors", cod_model_load(cod_test_at("absent.safetensors"), &loaded));
    assert_ok(cod_file_write(path, "no model", 8));
    assert_fails(COD_ERR_FORMAT, "foreign.safetensors", cod_model_load(path, &loaded));
    assert_ok(cod_st_write(path, &tensor, 1, NULL, 0));
    assert_fails(COD_ERR_FORMAT, "'something' [2]", cod_model_load(path, &loaded));

    static const struct {
        const char *kind, *options, *message;
    } cases[] = {
        {"resnet", "{}",
         "unknown model 'resnet'; this version knows srresnet, msrresnet, rrdb, edsr, compact, logistic, mlp"},
        {"srresnet", "{\"layers\": \"3\"}", "no option 'layers'"},
        {"srresnet", "{\"blocks\": \"0\"}", "option 'blocks': '0' is not"},
        {"mlp", "{\"height\": 1, \"width\": 1, \"channels\": 1, \"classes\": 2, \"hidden\": [65536, 65536]}",
         "the model that the metadata names has"},
        {"srresnet", "{\"blocks\": null}", "option 'blocks' is neither"},
        {"srresnet", "[3]", "not a JSON object"},
        {"srresnet", "{", "metadata 'codistill.options'"},
        {"srresnet", "{}", "missing: 'head.0.weight', 'head.0.bias'"},
        {"srresnet", "{\"blocks\": 300}", "option 'blocks': '300' is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_st_text metadata[] = {{"codistill.model", cases[i].kind}, {"codistill.options", cases[i].options}};
        assert_ok(cod_st_write(path, &tensor, 1, metadata, 2));
        assert_fails(COD_ERR_FORMAT, cases[i].message, cod_model_load(path, &loaded));
    }
}

/** Every truncation, and a flip in every byte of the header, loads or fails cleanly. */
TEST(damage_anywhere_never_crashes)
{
    static const cod_st_text settings[] = {TEST_SIZES(1, 1, 3, 2), {"hidden", "4"}, {NULL, NULL}};
    cod_saved_model saved = test_model("mlp", settings, 11), loaded;
    const char *path = cod_test_at("damaged.safetensors");
    void *bytes;
    size_t size;
    save(path, &saved);
    cod_saved_model_clear(&saved);
    assert_ok(cod_file_read(path, SIZE_MAX, &bytes, &size));
    for (size_t cut = 0; cut < size; cut += 1 + size / 64) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, cut, file), cut);
        fclose(file);
        assert_fails(COD_ERR_FORMAT, "damaged.safetensors", cod_model_load(path, &loaded));
    }
    unsigned char *text = bytes;
    const size_t header = size - (4 * 3 + 4 + 2 * 4 + 2) * sizeof(float);
    for (size_t i = 0; i < header; i++) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        text[i] ^= 0x15;
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        fclose(file);
        text[i] ^= 0x15;
        if (cod_model_load(path, &loaded) == COD_OK)
            cod_saved_model_clear(&loaded);
        else
            assert_null(loaded.values);
    }
    free(bytes);
}

TEST(folding_changes_nothing_that_is_computed)
{
    cod_saved_model saved = test_srresnet(12), folded;
    const cod_shape shape = {2, 7, 9, 3};
    cod_shape out;
    bool loadable = false;
    const char *path = cod_test_at("folded.safetensors");
    assert_ok(cod_model_save_folded(path, &saved.model, saved.values, NULL, false, &loadable));
    assert_true(loadable);
    assert_ok(cod_model_load(path, &folded));
    for (size_t i = 0; i < cod_graph_node_count(folded.model.graph); i++)
        assert_int_not_equal(cod_graph_node(folded.model.graph, i)->kind, COD_NODE_NORM);
    float *input = test_noise((size_t)cod_shape_count(shape), 1);
    float *before = test_run("ref", COD_F32, &saved, shape, input, &out);
    float *after = test_run("ref", COD_F32, &folded, shape, input, &out);
    assert_int_equal(out.h, 28);
    assert_true(test_difference(before, after, (size_t)cod_shape_count(out)) < 1e-5);
    free(input);
    free(before);
    free(after);
    cod_saved_model_clear(&folded);
    cod_saved_model_clear(&saved);
}

TEST(weights_are_rounded_on_demand)
{
    cod_saved_model saved = test_srresnet(12), folded, rounded;
    const char *paths[] = {cod_test_at("full.safetensors"), cod_test_at("half.safetensors")};
    long bytes[2];
    for (int i = 0; i < 2; i++) {
        assert_ok(cod_model_save_folded(paths[i], &saved.model, saved.values, NULL, i == 1, NULL));
        FILE *file = fopen(paths[i], "rb");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        bytes[i] = ftell(file);
        fclose(file);
    }
    assert_ok(cod_model_load(paths[0], &folded));
    assert_ok(cod_model_load(paths[1], &rounded));
    const size_t count = cod_graph_layout(folded.model.graph).trainable;
    assert_true(labs(bytes[0] - bytes[1] - 2 * (long)count) < 1024);
    for (size_t i = 0; i < count; i++)
        assert_true(rounded.values[i] == cod_f32_from_bf16(cod_bf16_from_f32(folded.values[i])));
    cod_saved_model_clear(&rounded);
    cod_saved_model_clear(&folded);
    cod_saved_model_clear(&saved);
}

TEST(folding_finds_just_the_norms_that_can_be_folded)
{
    cod_saved_model odd = test_odd_model(13);
    cod_folded folded;
    cod_st_file *file;
    bool loadable = true;
    size_t norms = 0;
    assert_ok(cod_model_fold(&odd.model, odd.values, &folded));
    for (size_t i = 0; i < folded.count; i++)
        norms += folded.layers[i].norm != NULL;
    assert_int_equal(norms, 2);
    assert_int_equal(folded.count, 7);
    cod_folded_clear(&folded);
    const char *path = cod_test_at("odd.safetensors");
    assert_ok(cod_model_save_folded(path, &odd.model, odd.values, NULL, false, &loadable));
    assert_false(loadable);
    assert_ok(cod_st_open(path, &file));
    assert_null(cod_st_metadata(file, "codistill.model"));
    assert_null(cod_st_tensor_find(file, "norm_on_conv.weight"));
    assert_non_null(cod_st_tensor_find(file, "norm_on_prelu.running_var"));
    assert_non_null(cod_st_tensor_find(file, "first.bias"));
    cod_st_close(file);
    cod_saved_model_clear(&odd);
}

TEST(weights_on_a_device_are_saved_and_loaded)
{
    cod_saved_model saved = test_srresnet(14), other = test_srresnet(15);
    cod_device *device = test_device_open("ref");
    cod_weights weights;
    const char *path = cod_test_at("device.safetensors");
    assert_ok(cod_weights_init(&weights, cod_backend_find("ref"), device, other.model.graph, COD_F32, false));
    assert_ok(cod_weights_upload(&weights, other.values));
    save(path, &saved);
    const uint64_t version = weights.sets[0].version;
    assert_ok(cod_model_load_weights(path, &other.model, COD_LOAD_STRICT, &weights, NULL));
    assert_true(weights.sets[0].version > version);
    assert_ok(cod_model_save_weights(path, &other.model, &weights, NULL, 0));
    cod_weights_clear(&weights);
    cod_saved_model_clear(&other);
    assert_ok(cod_model_load(path, &other));
    assert_memory_equal(other.values, saved.values, value_count(&saved) * sizeof(float));
    cod_saved_model_clear(&other);
    cod_saved_model_clear(&saved);
    test_device_close("ref", device);
}
