/**
 * @file
 * Super-resolution's samples: aligned random crops of picture pairs, RGB in 0 … 1.
 */
#ifndef COD_DATA_CROPS_H
#define COD_DATA_CROPS_H

#include "data/dataset.h"
#include "data/degrade.h"
#include "data/samples.h"
#include "data/sharpen.h"

typedef struct cod_crops {
    const cod_dataset *dataset; /**< borrowed */
    int64_t patch;              /**< side of the low-resolution crop, pixels */
    bool augment;               /**< one of the 8 flips, rotations and transposes for each crop */
    bool permute_channels;      /**< one of the 6 orders of the colour channels for each crop; false after init */
    cod_degrader *degrader;     /**< borrowed; NULL = low crops are cut out of the data set's low pictures */
    cod_truth truth;
    cod_sharpener *sharpener; /**< borrowed; needed unless the truth is plain */
    float unit[256];          /**< 8-bit value to 0 … 1 */
    float table[3 * 256];     /**< the same for each of three channels, [256, 3] */
} cod_crops;

/**
 * Starts without a degrader, with plain truth and with channels in their order; the caller may set these. If the truth
 * is sharpened, the sharpened picture is also what is degraded.
 */
void cod_crops_init(cod_crops *crops, const cod_dataset *dataset, int64_t patch, bool augment);

/** The samples, of shapes {1, patch, patch, 3} and {1, scale*patch, scale*patch, 3 or 6}; borrows `crops`. */
cod_samples cod_crops_samples(const cod_crops *crops);

#endif
