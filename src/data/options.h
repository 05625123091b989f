/**
 * @file
 * The settings of section `data`.
 */
#ifndef COD_DATA_OPTIONS_H
#define COD_DATA_OPTIONS_H

#include "core/option.h"

/**
 * Pictures are for super-resolution, MNIST, iris and folders of classes for classification; synthetic data serve both.
 */
typedef enum cod_data_kind {
    COD_DATA_PICTURES,
    COD_DATA_MNIST,
    COD_DATA_IRIS,
    COD_DATA_FOLDER,
    COD_DATA_SYNTHETIC,
} cod_data_kind;

typedef enum cod_data_placement {
    COD_PLACEMENT_SHARED,
    COD_PLACEMENT_DISJOINT,
    COD_PLACEMENT_DIRICHLET,
} cod_data_placement;

/** How low-resolution training pictures are made. */
typedef enum cod_data_degradation { COD_DEGRADATION_BICUBIC, COD_DEGRADATION_REAL_ESRGAN } cod_data_degradation;

/** How mini-batches reach a device that has memory of its own. */
typedef enum cod_data_transfer {
    COD_TRANSFER_AUTO,
    COD_TRANSFER_PINNED,
    COD_TRANSFER_MAPPED,
    COD_TRANSFER_UINT8,
} cod_data_transfer;

typedef struct cod_data_options {
    int kind; /**< cod_data_kind */
    cod_string_list path, low_path;
    cod_int_list weights;
    cod_string_list val_path, val_low_path, val_sets, test_path;
    int64_t val_count;
    double val_fraction;
    int64_t folds, fold;
    int placement; /**< cod_data_placement */
    double alpha;
    int64_t items_per_group;
    int64_t patch, size, batch;
    cod_float_list scales; /**< sizes of training pictures, relative to the originals; empty = 1 */
    int degradation;       /**< cod_data_degradation */
    bool gt_usm;
    bool augment;
    bool permute_channels;
    int64_t shift;
    int64_t cache_mb, threads, prefetch;
    int transfer; /**< cod_data_transfer */
    int64_t synthetic_count, synthetic_classes;
    cod_int_list synthetic_shape;
} cod_data_options;

extern const cod_option_table cod_data_option_table;

enum { COD_DATA_MAX_SETS = 16 /**< further validation sets */, COD_DATA_SET_NAME = 32 };

/** Path of an item of val_sets: "data/Set5" of "set5=data/Set5" and of "data/Set5". */
const char *cod_data_set_path(const char *item);
/**
 * Its name: that before the equals sign, or the last part of the path, without a suffix.
 *
 * @return false if it is no name of at most COD_DATA_SET_NAME - 1 letters, digits, - and _
 */
bool cod_data_set_name(const char *item, char name[COD_DATA_SET_NAME]);

/** Whether data of this kind have a class for each example; generated data can have classes, too. */
static inline bool cod_data_kind_is_labelled(int kind)
{
    return kind == COD_DATA_MNIST || kind == COD_DATA_IRIS || kind == COD_DATA_FOLDER;
}

extern const char *const cod_data_kind_names[];
extern const char *const cod_data_transfer_names[];

/** Called with the key of a wrong option, such as "weights", and what is wrong with it. */
typedef void (*cod_data_complaint)(void *context, const char *key, const char *text);

/** Checks conditions between several options, such as one weight per path, and reports all problems. */
void cod_data_options_examine(const cod_data_options *options, cod_data_complaint complaint, void *context);

/** Makes the same checks and fails with the first problem: "KEY: TEXT". */
COD_MUST_CHECK cod_status cod_data_options_check(const cod_data_options *options);

#endif
