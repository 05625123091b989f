/**
 * @file
 * Labelled examples for classification: MNIST, tables of measurements, folders of photographs, generated ones.
 *
 * All examples of a data set have one shape {1, H, W, C}. Values are normalised: minus the mean and over the deviation,
 * channel by channel, of all groups' training examples together, so that equal examples are equal in all groups. 8-bit
 * pixels are held once for the processes of a node, as pictures are (dataset.h). Opening and reading are local: no rank
 * waits for another node's.
 */
#ifndef COD_DATA_LABELLED_H
#define COD_DATA_LABELLED_H

#include "data/placement.h"
#include "data/samples.h"

typedef struct cod_labelled cod_labelled;

enum { COD_LABELLED_MAX_CHANNELS = 4096 };

/** What became of the examples found. */
typedef struct cod_labelled_counts {
    size_t found;
    size_t broken;            /**< unreadable: left out */
    size_t split[COD_SPLITS]; /**< training: this group's */
} cod_labelled_counts;

/** Mean and standard deviation of each channel: of pixels in 0 … 1, or of the measurements of a table. */
typedef struct cod_normalisation {
    int64_t channels;
    const float *mean, *deviation; /**< [channels] */
} cod_normalisation;

/**
 * Opens the data set of one group. Placement, held-out examples and folds are those of the options; the test split is
 * MNIST's own or test_path's, else empty.
 *
 * @param options  borrowed during the call
 * @param[out] out  new; cod_labelled_close() ends it
 * @return COD_ERR_ARGUMENT if something is missing, such as a class's folder or examples for each group; COD_ERR_FORMAT
 *         naming the file and the place in it when it is damaged; COD_ERR_IO
 */
COD_MUST_CHECK cod_status cod_labelled_open(const cod_data_options *options, const cod_dataset_place *place,
                                            cod_labelled **out);
void cod_labelled_close(cod_labelled *labelled);

cod_labelled_counts cod_labelled_count(const cod_labelled *labelled);
/** {1, H, W, C} of an example. */
cod_shape cod_labelled_shape(const cod_labelled *labelled);
size_t cod_labelled_classes(const cod_labelled *labelled);
/** Of class `index`; borrowed. Classes that a data set does not name have their numbers. */
const char *cod_labelled_class_name(const cod_labelled *labelled, size_t index);
cod_normalisation cod_labelled_normalisation(const cod_labelled *labelled);
/** Normalises by a trained model's mean and deviation instead; `channels` must be the data's. Copied. */
COD_MUST_CHECK cod_status cod_labelled_normalise(cod_labelled *labelled, const cod_normalisation *normalisation);

size_t cod_labelled_size(const cod_labelled *labelled, cod_split split);
/** Hash of the numbers of validation and test examples. */
uint64_t cod_labelled_held_out_key(const cod_labelled *labelled);

/** Class of an example, below cod_labelled_classes(). */
uint32_t cod_labelled_class(const cod_labelled *labelled, cod_split split, size_t index);
/** Its number among all that were found, the same for every group and seed. */
size_t cod_labelled_number(const cod_labelled *labelled, cod_split split, size_t index);

/**
 * Gives an example in the form used for validation: normalised, and cut from the middle; any thread.
 *
 * @param[out] values  [H, W, C]
 * @return as cod_image_read(), if the example is a photograph that is not in memory and has become unreadable
 */
COD_MUST_CHECK cod_status cod_labelled_read(const cod_labelled *labelled, cod_split split, size_t index, float *values);

/**
 * Computes the class priors of each group's training examples: log p_g(y)/p(y), where p_g(y) is the share of class y in
 * group g and p(y) its share in all groups together. One example with shares p is added to each group, so that p_g is
 * never zero. If shares are equal, the result is exactly zero.
 *
 * @param options, place  those that the data set was opened by
 * @param[out] priors     [place->groups, classes]
 */
COD_MUST_CHECK cod_status cod_labelled_priors(const cod_labelled *labelled, const cod_data_options *options,
                                              const cod_dataset_place *place, float *priors);

/**
 * The training examples for a loader: inputs {1, H, W, C}, normalised and augmented as the options say, and one-hot
 * targets {1, 1, 1, K}.
 */
cod_samples cod_labelled_samples(const cod_labelled *labelled);

#endif
