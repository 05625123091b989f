#include "tools/eval_classes.h"

#include "core/shown.h"
#include "infer/classifier.h"
#include "io/json.h"
#include "tools/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 128, SHOWN_CLASSES = 20 };

static cod_status compute(cod_saved_model *saved, const cod_labelled *labelled, cod_split split,
                          const cod_session_options *options, cod_session *session, cod_classification *result)
{
    cod_weights weights = {0};
    cod_classifier *classifier = NULL;
    cod_dtype activation;
    COD_REQUIRE(options->precision != COD_PRECISION_INT8, "--precision int8 is for upscaling");
    COD_TRY(cod_precision_dtype((cod_precision)options->precision, session->backend, session->device, &activation));
    cod_status status =
        cod_weights_init(&weights, session->backend, session->device, saved->model.graph, COD_F32, false);
    COD_THEN(status, cod_weights_upload(&weights, saved->values));
    COD_THEN(status, cod_classifier_create(&saved->model, &weights, activation, cod_labelled_shape(labelled), BATCH,
                                           &classifier));
    COD_THEN(status, cod_classifier_evaluate(classifier, labelled, split, 0, result));
    cod_classifier_destroy(classifier);
    if (weights.backend != NULL)
        cod_weights_clear(&weights);
    return status;
}

/** A class's examples and how many of them were told right. */
static void class_counts(const cod_classification *result, size_t k, size_t *count, size_t *right)
{
    *count = 0;
    for (size_t p = 0; p < result->classes; p++)
        *count += result->confusion[k * result->classes + p];
    *right = result->confusion[k * result->classes + k];
}

static cod_status write_json(const cod_classification *result, const cod_labelled *labelled, char **text)
{
    const size_t classes = result->confusion != NULL ? result->classes : 0;
    cod_json json = {.indent = 2};
    cod_json_open(&json, NULL, '{');
    cod_json_integer(&json, "count", (int64_t)result->count);
    cod_json_number(&json, "accuracy", 100 * result->accuracy);
    cod_json_number(&json, "cross_entropy", result->cross_entropy);
    cod_json_number(&json, "calibration_error", 100 * result->calibration_error);
    cod_json_open(&json, "classes", '[');
    for (size_t k = 0; k < classes; k++) {
        size_t count, right;
        class_counts(result, k, &count, &right);
        cod_json_open(&json, NULL, '{');
        cod_json_string(&json, "class", cod_labelled_class_name(labelled, k));
        cod_json_integer(&json, "count", (int64_t)count);
        cod_json_integer(&json, "right", (int64_t)right);
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_open(&json, "confusion", '[');
    for (size_t k = 0; k < classes; k++) {
        cod_json_open(&json, NULL, '[');
        for (size_t p = 0; p < classes; p++)
            cod_json_integer(&json, NULL, (int64_t)result->confusion[k * classes + p]);
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

/** As a terminal may show it. */
static cod_shown_text class_name(const cod_labelled *labelled, size_t k)
{
    return cod_shown(cod_labelled_class_name(labelled, k));
}

/** Widest name of a class, and what a column needs. */
static int name_width(const cod_labelled *labelled, size_t classes)
{
    size_t width = 5;
    for (size_t k = 0; k < classes; k++) {
        const size_t length = strlen(class_name(labelled, k).text);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_classes(FILE *out, const cod_classification *result, const cod_labelled *labelled)
{
    const size_t classes = result->classes;
    const int width = name_width(labelled, classes);
    cod_print(out, "%-*s  %8s  %8s  %9s\n", width, "class", "examples", "right", "accuracy");
    for (size_t k = 0; k < classes; k++) {
        size_t count, right;
        class_counts(result, k, &count, &right);
        cod_print(out, "%-*s  %8zu  %8zu", width, class_name(labelled, k).text, count, right);
        if (count > 0)
            fprintf(out, "  %8.2f%%", 100.0 * (double)right / (double)count);
        fputc('\n', out);
    }
    if (classes > SHOWN_CLASSES)
        return;
    cod_print(out, "\n%-*s  taken for\n", width, "class");
    cod_print(out, "%*s", width, "");
    for (size_t p = 0; p < classes; p++)
        cod_print(out, "  %*s", width, class_name(labelled, p).text);
    for (size_t k = 0; k < classes; k++) {
        cod_print(out, "\n%-*s", width, class_name(labelled, k).text);
        for (size_t p = 0; p < classes; p++)
            fprintf(out, "  %*zu", width, result->confusion[k * classes + p]);
    }
    fputs("\n\n", out);
}

static cod_status write_table(const cod_classification *result, const cod_labelled *labelled, char **text)
{
    size_t bytes = 0;
    FILE *out = open_memstream(text, &bytes);
    COD_REQUIRE_MEMORY(out);
    if (result->confusion != NULL)
        print_classes(out, result, labelled);
    fprintf(out, "%zu examples: accuracy %.2f%%, cross-entropy %.4f nats, calibration error %.2f%%\n", result->count,
            100 * result->accuracy, result->cross_entropy, 100 * result->calibration_error);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(*text);
        return cod_fail(COD_ERR_MEMORY, "out of memory for the table");
    }
    return COD_OK;
}

cod_status cod_eval_classes(cod_saved_model *saved, const char *model, const char *data,
                            const cod_session_options *options, bool json, char **text)
{
    cod_labelled *labelled;
    cod_split split;
    cod_session session = {0};
    cod_classification result = {0};
    cod_status status = cod_classifier_data_open(saved, data, &split, &labelled);
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s", model);
    status = cod_session_open_device(options, &session);
    COD_THEN(status, compute(saved, labelled, split, options, &session, &result));
    COD_THEN(status, json ? write_json(&result, labelled, text) : write_table(&result, labelled, text));
    cod_classification_clear(&result);
    cod_session_close(&session);
    cod_labelled_close(labelled);
    return status;
}
