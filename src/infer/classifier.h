/**
 * @file
 * Evaluation of a classifier on labelled examples, and the description of its data in the model file.
 */
#ifndef COD_INFER_CLASSIFIER_H
#define COD_INFER_CLASSIFIER_H

#include "data/labelled.h"
#include "infer/model_file.h"
#include "nn/compile.h"

typedef struct cod_classifier cod_classifier;

enum { COD_CALIBRATION_BINS = 15, COD_CONFUSION_MAX_CLASSES = 1024 };

/** Quality on a number of examples. p is the softmax of the model's output. */
typedef struct cod_classification {
    size_t count, classes;
    double accuracy;          /**< share of the examples whose greatest p is their class's */
    double cross_entropy;     /**< mean of -log p of their class, in nats; its negative is the mean log-likelihood */
    double calibration_error; /**< expected calibration error, in bins of equal width (Guo et al. 2017, eq. 3) */
    size_t *confusion;        /**< [classes, classes] of class, prediction; NULL beyond COD_CONFUSION_MAX_CLASSES */
    /** [count] of each example: the class with the greatest p, that p, and its true class; one block of memory. */
    float *predicted, *confidence, *truth;
} cod_classification;

void cod_classification_clear(cod_classification *result);

/**
 * Compiles a classifier's inference.
 *
 * @param model, weights  borrowed; weights may change between evaluations
 * @param example         {1, H, W, C}
 * @param batch           examples computed together
 * @param[out] out        new; cod_classifier_destroy()
 */
COD_MUST_CHECK cod_status cod_classifier_create(const cod_model *model, cod_weights *weights, cod_dtype activation,
                                                cod_shape example, int64_t batch, cod_classifier **out);
void cod_classifier_destroy(cod_classifier *classifier);

/**
 * Evaluates on a split.
 *
 * @param limit        examples, evenly spread; 0 = all
 * @param[out] result  new; cod_classification_clear(); figures are NaN where there are no examples
 */
COD_MUST_CHECK cod_status cod_classifier_evaluate(cod_classifier *classifier, const cod_labelled *labelled,
                                                  cod_split split, size_t limit, cod_classification *result);

/** The calibration_error of `count` predictions: the weighted mean gap of the calibration bins. */
double cod_calibration_error(const float *confidence, const bool *right, size_t count);

/**
 * The description of the data that a model file keeps, as JSON: kind, size of photographs, mean and deviation, names of
 * the classes.
 * @param kind, size  cod_data_kind, and the side of photographs
 * @param[out] text   new; free()
 */
COD_MUST_CHECK cod_status cod_classifier_data_write(const cod_labelled *labelled, int kind, int64_t size, char **text);

/**
 * Opens the data at `path` as the kind that the model was trained on, normalised as in its training. The classes must
 * be the model's.
 *
 * @param saved       of a classifier that carries this text
 * @param[out] split  MNIST's test files, or all that the other kinds find
 * @param[out] out    new; cod_labelled_close()
 * @return COD_ERR_ARGUMENT if the model has no description of its data, or `path` holds other classes
 */
COD_MUST_CHECK cod_status cod_classifier_data_open(const cod_saved_model *saved, const char *path, cod_split *split,
                                                   cod_labelled **out);

#endif
