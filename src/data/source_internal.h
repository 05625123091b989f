/**
 * @file
 * The pictures of a data set before they are decoded, and how the pixels of one are made.
 */
#ifndef COD_DATA_SOURCE_INTERNAL_H
#define COD_DATA_SOURCE_INTERNAL_H

#include "data/files.h"
#include "data/options.h"

/** Where one picture comes from. */
typedef struct cod_source {
    const char *path;     /**< or the name of a generated picture */
    const char *low_path; /**< NULL = the low-resolution picture is made by bicubic */
    const char *problem;  /**< NULL, or why it cannot be used, known without opening it */
    size_t root;          /**< index into path, or path.count + index into val_path */
    size_t of;            /**< its own index, or that of the picture of which it is a copy */
    double scale;         /**< of a copy: its size relative to that picture's, not 1; 0 = no copy */
} cod_source;

typedef struct cod_source_list {
    size_t count;
    size_t found;   /**< number of pictures, which come first; their copies for data.scales follow */
    size_t trained; /**< pictures that are not below val_path; they come first */
    cod_source *items;
    int scale;
    int64_t synthetic_side; /**< low-resolution side of generated pictures; 0 = pictures are files */
    uint64_t key; /**< hash of everything that determines the pixels: names, sizes and dates of the files, scales */
    cod_file_list high, low;
} cod_source_list;

/**
 * Finds the pictures of `options`, training folders first, in an order that is the same on every machine.
 *
 * @param[out] list  end with cod_sources_clear(), after a failure too
 */
COD_MUST_CHECK cod_status cod_sources_find(const cod_data_options *options, int scale, bool report,
                                           cod_source_list *list);
void cod_sources_clear(cod_source_list *list);

/**
 * Index of training picture `index` at scales->items[which], which is the picture itself or a copy. `scales` must be
 * those that the list was made with.
 */
size_t cod_source_at_scale(const cod_source_list *list, const cod_float_list *scales, size_t index, size_t which);

/** Finds the low-resolution size, from headers alone. */
COD_MUST_CHECK cod_status cod_source_probe(const cod_source_list *list, size_t index, int64_t *low_width,
                                           int64_t *low_height);

/**
 * Decodes a picture into low [height, width, 3] and high [scale*height, scale*width, 3], whose size cod_source_probe()
 * returned.
 */
COD_MUST_CHECK cod_status cod_source_load(const cod_source_list *list, size_t index, int64_t low_width,
                                          int64_t low_height, uint8_t *low, uint8_t *high);

/** Bytes of the two pictures together. */
static inline size_t cod_pair_bytes(int64_t low_width, int64_t low_height, int scale)
{
    return (size_t)(low_width * low_height * 3 * (1 + (int64_t)scale * scale));
}

/**
 * Draws picture `index` of the generated ones, [side, side, 3]: shapes with sharp edges and fine stripes over a
 * gradient.
 */
void cod_synthetic_draw(size_t index, int64_t side, uint8_t *pixels);

#endif
