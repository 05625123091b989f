/**
 * @file
 * Labelled examples as they are read from each kind of data, before they are divided among splits and groups.
 *
 * Examples of `path` come first, then those of val_path, then the test set. Within each part the order is the same on
 * every machine.
 */
#ifndef COD_DATA_EXAMPLES_INTERNAL_H
#define COD_DATA_EXAMPLES_INTERNAL_H

#include "data/block_internal.h"
#include "data/files.h"
#include "data/image.h"
#include "data/options.h"

enum { COD_EXAMPLES_MAX_CLASSES = 65536 };

typedef struct cod_examples {
    int64_t height, width, channels; /**< of each, as held */
    size_t count, val_begin, test_begin;
    uint32_t *labels; /**< [count] below class_count */
    size_t class_count;
    const char **class_names; /**< sorted where the data name them, else their numbers */
    const float *floats;      /**< [count, height, width, channels]; NULL = bytes */
    const uint8_t *bytes;     /**< [held, height, width, channels] */
    size_t held;              /**< number of examples held; the others are decoded at each use */
    uint8_t *broken;          /**< [count] left out; NULL = none are */
    cod_block block;          /**< holds `bytes` and `broken` */
    cod_file_list files;      /**< kind folder: [count] */
    const char *left_out;     /**< as in cod_dataset_place; set before reading */
    cod_arena arena;          /**< holds everything else */
} cod_examples;

/**
 * Reads the examples of one kind of data.
 *
 * @param report       warn of what is left out
 * @param[out] out     zeroed by the caller; end with cod_examples_clear(), after a failure too
 * @return COD_ERR_FORMAT or COD_ERR_ARGUMENT naming the file and the place in it, COD_ERR_IO
 */
COD_MUST_CHECK cod_status cod_mnist_read(const cod_data_options *options, bool report, cod_examples *out);
COD_MUST_CHECK cod_status cod_iris_read(const cod_data_options *options, bool report, cod_examples *out);
COD_MUST_CHECK cod_status cod_class_folders_read(const cod_data_options *options, bool report, cod_examples *out);
COD_MUST_CHECK cod_status cod_synthetic_examples_make(const cod_data_options *options, bool report, cod_examples *out);
void cod_examples_clear(cod_examples *examples);

/** Appends the four files of an MNIST folder. */
COD_MUST_CHECK cod_status cod_mnist_find(const char *folder, cod_file_list *files);

/** Room for `count` labels, and for `classes` names, which are filled with numbers. */
COD_MUST_CHECK cod_status cod_examples_reserve(cod_examples *examples, size_t count, size_t classes);

static inline size_t cod_example_values(const cod_examples *examples)
{
    return (size_t)(examples->height * examples->width * examples->channels);
}

/**
 * Decodes a photograph of kind folder into [height, width, 3]: brought to the size on its shorter side, cut in the
 * middle.
 */
COD_MUST_CHECK cod_status cod_photograph_read(const cod_examples *examples, size_t index, uint8_t *out);

#endif
