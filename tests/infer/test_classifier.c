#include "support/folder.h"
#include "support/late.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "infer/classifier.h"
#include "ref/ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, CLASSES = 3, FEATURES = 2 };

/** A table whose values tell the row, so that what a model must say of it is known. */
static cod_labelled *open_table(void)
{
    FILE *file = fopen(cod_test_at("table.csv"), "w");
    assert_non_null(file);
    fprintf(file, "x,y,class\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(file, "%d,%d,%c\n", i % 13, i % 7, 'a' + i % CLASSES);
    fclose(file);
    cod_arena arena = {0};
    cod_data_options options;
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &options, &arena));
    const char *path = cod_test_at("table.csv");
    options.kind = COD_DATA_IRIS;
    options.path = (cod_string_list){1, &path};
    options.val_count = 100;
    cod_labelled *labelled;
    assert_ok(cod_labelled_open(&options, &(cod_dataset_place){.groups = 1}, &labelled));
    cod_arena_clear(&arena);
    return labelled;
}

/** One linear layer with known weights. */
typedef struct linear {
    cod_arena arena;
    const cod_backend *backend;
    cod_device *device;
    cod_model model;
    cod_weights weights;
    float weight[CLASSES][FEATURES], bias[CLASSES];
} linear;

static void linear_open(linear *l, const cod_backend *backend)
{
    backend = cod_late_chosen(backend);
    *l = (linear){.backend = backend, .weight = {{1.5f, -0.5f}, {-1, 0.25f}, {0.125f, 2}}, .bias = {0.1f, -0.2f, 0.3f}};
    const cod_model_kind *kind = cod_model_kind_find("logistic");
    void *options = cod_arena_alloc(&l->arena, kind->table->struct_bytes);
    assert_ok(cod_options_set_defaults(kind->table, options, &l->arena));
    assert_ok(cod_model_fit_sizes(kind, options, &(cod_classifier_sizes){1, 1, FEATURES, CLASSES}));
    assert_ok(cod_model_build(kind, options, &l->model));
    assert_ok(backend->open(&(cod_device_options){.threads = 1}, &l->device));
    assert_ok(cod_weights_init(&l->weights, backend, l->device, l->model.graph, COD_F32, false));
    float *values = calloc(cod_weights_count(&l->weights), sizeof *values);
    assert_non_null(values);
    memcpy(values + cod_graph_param(l->model.graph, 0)->offset, l->weight, sizeof l->weight);
    memcpy(values + cod_graph_param(l->model.graph, 1)->offset, l->bias, sizeof l->bias);
    assert_ok(cod_weights_upload(&l->weights, values));
    free(values);
}

static void linear_close(linear *l)
{
    cod_weights_clear(&l->weights);
    cod_model_clear(&l->model);
    l->backend->close(l->device);
    cod_arena_clear(&l->arena);
}

/** The figures by their definitions. */
static cod_classification expect(const linear *l, const cod_labelled *labelled, size_t limit)
{
    const size_t available = cod_labelled_size(labelled, COD_SPLIT_VAL);
    cod_classification out = {.count = limit, .confusion = calloc(CLASSES * CLASSES, sizeof *out.confusion)};
    out.predicted = calloc(3 * limit, sizeof *out.predicted);
    assert_non_null(out.predicted);
    float *confidence = out.confidence = out.predicted + limit;
    out.truth = confidence + limit;
    bool right[ROWS];
    assert_non_null(out.confusion);
    for (size_t i = 0; i < limit; i++) {
        const size_t index = i * available / limit;
        float x[FEATURES];
        double p[CLASSES], sum = 0;
        assert_ok(cod_labelled_read(labelled, COD_SPLIT_VAL, index, x));
        for (int k = 0; k < CLASSES; k++)
            sum += p[k] = exp((double)l->weight[k][0] * x[0] + (double)l->weight[k][1] * x[1] + (double)l->bias[k]);
        int best = 0;
        for (int k = 1; k < CLASSES; k++)
            best = p[k] > p[best] ? k : best;
        const uint32_t truth = cod_labelled_class(labelled, COD_SPLIT_VAL, index);
        confidence[i] = (float)(p[best] / sum);
        right[i] = best == (int)truth;
        out.predicted[i] = (float)best;
        out.truth[i] = (float)truth;
        out.accuracy += right[i] / (double)limit;
        out.cross_entropy -= log(p[truth] / sum) / (double)limit;
        out.confusion[truth * CLASSES + (size_t)best]++;
    }
    out.calibration_error = cod_calibration_error(confidence, right, limit);
    return out;
}

/** What is said of each example, in the same order. */
static void check_examples(const cod_classification *found, const cod_classification *expected)
{
    assert_memory_equal(found->predicted, expected->predicted, found->count * sizeof *found->predicted);
    assert_memory_equal(found->truth, expected->truth, found->count * sizeof *found->truth);
    for (size_t i = 0; i < found->count; i++)
        assert_true(fabsf(found->confidence[i] - expected->confidence[i]) < 1e-5f);
}

TEST(figures_are_those_of_their_definitions)
{
    static const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    cod_labelled *labelled = open_table();
    for (int b = 0; b < 2; b++) {
        linear l;
        linear_open(&l, backends[b]);
        cod_classifier *classifier;
        /* 7 divides neither 100 nor 30: the last batch is not full. */
        assert_ok(cod_classifier_create(&l.model, &l.weights, COD_F32, cod_labelled_shape(labelled), 7, &classifier));
        for (int limited = 0; limited < 2; limited++) {
            cod_classification found, expected = expect(&l, labelled, limited ? 30 : 100);
            assert_ok(cod_classifier_evaluate(classifier, labelled, COD_SPLIT_VAL, limited ? 30 : 0, &found));
            assert_int_equal(found.count, expected.count);
            assert_true(fabs(found.accuracy - expected.accuracy) < 1e-12);
            assert_true(fabs(found.cross_entropy - expected.cross_entropy) < 1e-5);
            assert_true(fabs(found.calibration_error - expected.calibration_error) < 1e-5);
            assert_memory_equal(found.confusion, expected.confusion, CLASSES * CLASSES * sizeof *found.confusion);
            check_examples(&found, &expected);
            cod_classification_clear(&found);
            cod_classification_clear(&expected);
        }
        cod_classification none;
        assert_ok(cod_classifier_evaluate(classifier, labelled, COD_SPLIT_TEST, 0, &none));
        assert_true(none.count == 0 && isnan(none.accuracy) && isnan(none.cross_entropy) &&
                    isnan(none.calibration_error));
        cod_classification_clear(&none);
        cod_classifier_destroy(classifier);
        linear_close(&l);
    }
    cod_labelled_close(labelled);
}

TEST(calibration_compares_confidence_with_being_right)
{
    /* Bins of 1/15: {0.5, 0.52}, {0.9, 0.92}, {1}: gaps |1 - 1.02|, |2 - 1.82|, |0 - 1|, over 5. */
    const float confidence[] = {0.5f, 0.52f, 0.9f, 0.92f, 1};
    const bool right[] = {true, false, true, true, false};
    assert_true(fabs(cod_calibration_error(confidence, right, 5) - (0.02 + 0.18 + 1) / 5) < 1e-6);
    assert_true(fabs(cod_calibration_error(confidence, right, 2) - 0.01) < 1e-6);
    assert_true(isnan(cod_calibration_error(confidence, right, 0)));
    assert_true(isnan(cod_calibration_error(&(const float){NAN}, right, 1)));
}

TEST(a_model_file_remembers_its_data)
{
    cod_labelled *labelled = open_table(), *again;
    linear l;
    linear_open(&l, &cod_ref_backend);
    char *text;
    cod_split split;
    cod_saved_model saved;
    assert_ok(cod_classifier_data_write(labelled, COD_DATA_IRIS, 64, &text));
    const cod_st_text data = {COD_DATA_METADATA, text};
    assert_ok(cod_model_save_weights(cod_test_at("with.safetensors"), &l.model, &l.weights, &data, 1));
    assert_ok(cod_model_load(cod_test_at("with.safetensors"), &saved));
    assert_string_equal(saved.data, text);
    assert_ok(cod_classifier_data_open(&saved, cod_test_at("table.csv"), &split, &again));
    assert_int_equal(split, COD_SPLIT_TRAIN); /* nothing is held out */
    assert_int_equal(cod_labelled_size(again, split), ROWS);
    const cod_normalisation was = cod_labelled_normalisation(labelled), is = cod_labelled_normalisation(again);
    assert_memory_equal(was.mean, is.mean, FEATURES * sizeof *was.mean);
    assert_memory_equal(was.deviation, is.deviation, FEATURES * sizeof *was.deviation);
    cod_labelled_close(again);

    static const struct {
        const char *data, *message;
    } damaged[] = {
        {"{", "JSON"},
        {"{\"kind\": \"pictures\"}", "data of kind 'pictures', which no folder holds"},
        {"{\"kind\": \"iris\", \"classes\": [\"a\", \"b\"]}", "holds 3 classes, the model knows 2"},
        {"{\"kind\": \"iris\", \"classes\": [\"a\", \"b\", \"c\"], \"mean\": [0, 0], \"deviation\": [1]}",
         "unequal length"},
        {"{\"kind\": \"iris\", \"classes\": [\"a\", \"b\", \"c\"], \"mean\": [0, 0], \"deviation\": [1, 0]}",
         "channel 1 cannot be divided by a deviation of 0"},
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        saved.data = damaged[i].data;
        assert_int_not_equal(cod_classifier_data_open(&saved, cod_test_at("table.csv"), &split, &again), COD_OK);
        cod_test_assert_contains(cod_error_message(), damaged[i].message);
        assert_null(again);
    }
    cod_saved_model_clear(&saved);
    assert_ok(cod_model_save_weights(cod_test_at("without.safetensors"), &l.model, &l.weights, NULL, 0));
    assert_ok(cod_model_load(cod_test_at("without.safetensors"), &saved));
    assert_fails(COD_ERR_ARGUMENT, "says nothing of the data",
                 cod_classifier_data_open(&saved, cod_test_at("table.csv"), &split, &again));
    cod_saved_model_clear(&saved);
    free(text);
    linear_close(&l);
    cod_labelled_close(labelled);
}

TEST(what_does_not_fit_is_refused)
{
    cod_labelled *labelled = open_table();
    linear l;
    linear_open(&l, &cod_ref_backend);
    cod_classifier *classifier;
    cod_classification result;
    assert_ok(cod_classifier_create(&l.model, &l.weights, COD_F32, cod_labelled_shape(labelled), 4, &classifier));
    cod_arena arena = {0};
    cod_data_options options;
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &options, &arena));
    options.kind = COD_DATA_SYNTHETIC;
    cod_labelled *other;
    assert_ok(cod_labelled_open(&options, &(cod_dataset_place){.groups = 1}, &other));
    assert_fails(COD_ERR_ARGUMENT, "examples of 32x32x3 in 10 classes do not fit the classifier",
                 cod_classifier_evaluate(classifier, other, COD_SPLIT_VAL, 0, &result));
    cod_labelled_close(other);
    cod_arena_clear(&arena);
    cod_classifier_destroy(classifier);
    linear_close(&l);
    cod_labelled_close(labelled);
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)
