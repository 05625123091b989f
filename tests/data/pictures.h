/**
 * @file
 * Pictures and folders for the tests of `data`, below a temporary folder that each test program makes and removes.
 */
#ifndef COD_TESTS_DATA_PICTURES_H
#define COD_TESTS_DATA_PICTURES_H

#include "support/folder.h"
#include "support/test.h"

#include "data/dataset.h"
#include "data/image.h"
#include "data/loader.h"
#include "data/options.h"

/** Group tear-down behind cod_test_folder_make(). */
int remove_folder(void **state);

/** A path below the temporary folder, its folders made; lives until tear-down. */
const char *below(const char *fmt, ...) COD_PRINTF(1, 2);

/**
 * Writes a PNG whose pixel is (x / divisor, y / divisor, blue); divisor 4 gives the nearest-neighbour x4 of divisor 1.
 */
void write_picture(const char *path, int64_t width, int64_t height, int divisor, int blue);
/** `count` pictures of 112x100 called 00.png and so on; the blue of each is `blue` + its number; their folder. */
const char *make_pictures(const char *name, int count, int blue);
void write_bytes(const char *path, const void *bytes, size_t count);
/** Reads a whole file; the caller frees it. */
uint8_t *read_bytes(const char *path, size_t *count);

/** Number of entries of a folder, hidden ones too. */
int count_entries(const char *folder);

/** A dataset for one group, at scale 4. */
extern const cod_dataset_place lone_group;
cod_dataset *open_ok(const cod_data_options *options, const cod_dataset_place *place);

/** The defaults of section data with these paths, comma-separated. */
cod_data_options options_of(const char *paths);
/** Sets a list or any other option from text, commas between items. */
void set_option(cod_data_options *options, const char *key, const char *text);

/** A bit for each of the six orders of channels in which `plain` has the values of `permuted`, both [pixels, 3]. */
int orders_of(const float *plain, const float *permuted, int pixels);

/**
 * Draws batches in 8 bits and in f32: bytes, looked up and turned, give the same bits.
 *
 * @return bits 1 << turn that were seen
 */
int check_bytes(const cod_samples *samples, int64_t batch, int steps);

/** Log lines since the last call of capture_log() that contain `part`. */
void capture_log(void);
int logged(const char *part);

#endif
