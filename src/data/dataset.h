/**
 * @file
 * Pairs of high- and low-resolution pictures from folders, decoded once and shared by the processes of a node.
 *
 * Opening finds the files, decodes them, makes the low-resolution pictures and keeps both as 8-bit RGB, up to
 * `cache_mb`, in a file of /dev/shm that all processes of the node map (the first builds it, the last removes it).
 * Pictures that do not fit are decoded at each use. Opening and reading are local: no rank waits for another node's.
 */
#ifndef COD_DATA_DATASET_H
#define COD_DATA_DATASET_H

#include "data/image.h"
#include "data/placement.h"

typedef struct cod_dataset cod_dataset;

/** What became of the files found. */
typedef struct cod_dataset_counts {
    size_t files;  /**< found, training and validation */
    size_t broken; /**< unreadable or unpaired: left out */
    size_t small;  /**< smaller than one crop: left out */
    size_t train;  /**< training pictures of this group, each counted once whatever its weight */
    size_t val;
    size_t cached_bytes; /**< pixels held for the node */
    size_t uncached;     /**< pictures decoded on each use, because cache_mb is too small */
} cod_dataset_counts;

/** One picture pair, 8-bit RGB [height, width, 3]: the high one is scale times the low one on both sides. */
typedef struct cod_pair {
    int64_t low_width, low_height;
    const uint8_t *low, *high;
    void *owned; /**< NULL when the pixels are the data set's own */
} cod_pair;

/**
 * Opens the data set of one group.
 *
 * A broken file is left out and counted; with place->report, one warning names the first few. The low-resolution
 * picture is MATLAB's bicubic (8 bits) of the high one, cut to a multiple of the scale, unless low_path gives it.
 * Copies for data.scales are made from training pictures in the same way. Validation pictures have no copies and are
 * not trained on at any size.
 *
 * @param options  borrowed during the call
 * @param[out] out  new; cod_dataset_close() ends it
 * @return COD_ERR_ARGUMENT naming the folder, if nothing usable is in it or too little for the requested split
 */
COD_MUST_CHECK cod_status cod_dataset_open(const cod_data_options *options, const cod_dataset_place *place,
                                           cod_dataset **out);
void cod_dataset_close(cod_dataset *dataset);

cod_dataset_counts cod_dataset_count(const cod_dataset *dataset);
int cod_dataset_scale(const cod_dataset *dataset);

/**
 * Number of samples of a split. In training, every picture counts at each of data.scales, as many times as its folder's
 * weight. An epoch of a group is this many crops.
 */
size_t cod_dataset_size(const cod_dataset *dataset, cod_split split);

/** Hash of which pictures are held out, by their places among all that were found. */
uint64_t cod_dataset_held_out_key(const cod_dataset *dataset);

/** Path of the picture, as found; borrowed. */
const char *cod_dataset_name(const cod_dataset *dataset, cod_split split, size_t index);

/**
 * Gives the pixels of a sample; any thread.
 *
 * @param[out] pair  end with cod_pair_clear(); not to outlive the data set
 * @return as cod_image_read(), if the picture is not cached and its file has become unreadable
 */
COD_MUST_CHECK cod_status cod_dataset_read(const cod_dataset *dataset, cod_split split, size_t index, cod_pair *pair);
void cod_pair_clear(cod_pair *pair);

#endif
