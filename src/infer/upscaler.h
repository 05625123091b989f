/**
 * @file
 * Upscaling pictures with a super-resolution model, whole, in bands or in tiles.
 *
 * In *bands* a picture runs through the network from top to bottom, each layer keeping the few rows that the next ones
 * still need: nothing is computed twice, and memory is bounded by the picture's width (nn/compile.h,
 * cod_program_run_band()). Pictures higher than a few bands run this way. If a tile size is set, or the network has
 * layers that do not allow bands, tiles are used.
 *
 * A *tile* is run on its own pixels and, around them, as many as the network can see (its receptive field, computed
 * from the graph); a tile at the picture's border ends where the picture ends. So each output pixel is computed from
 * the same inputs as when the picture runs whole, and the results differ only by the order of rounding. All tiles of a
 * picture have one size, so memory is bounded by the tile, not by the picture.
 *
 * Where the network only takes sides that are multiples of a number, the picture is extended to such sides by repeating
 * its last row and its last column, and the result is cropped.
 *
 * Precision int8 computes convolutions on 8-bit integers (int8.h) and everything else as `auto` does. It needs the
 * ranges of their inputs: from the model file, or from cod_upscaler_calibrate(). The ranges are then fixed, so that
 * tiled and whole results agree as before.
 */
#ifndef COD_INFER_UPSCALER_H
#define COD_INFER_UPSCALER_H

#include "data/image.h"
#include "infer/model_file.h"
#include "nn/precision.h"

typedef struct cod_upscaler cod_upscaler;

/** The name that stands for MATLAB's bicubic wherever a model file may be named. */
#define COD_BICUBIC "bicubic"

typedef struct cod_upscaler_options {
    cod_precision precision;
    /** side, in low-resolution pixels, of what one run yields, at least 8; 0 = bands, or COD_UPSCALER_TILE */
    int64_t tile;
} cod_upscaler_options;

enum { COD_UPSCALER_TILE = 256, COD_UPSCALER_TILE_MIN = 8 };

/** Called after each band or tile: `done` of the picture's `total`. */
typedef void (*cod_upscaler_progress)(void *context, size_t done, size_t total);

/**
 * Makes an upscaler of a model whose weights the caller keeps and may change between pictures (raising
 * weights->version).
 *
 * @param[in]  model, weights  borrowed
 * @param[out] out             new; cod_upscaler_destroy()
 * @return COD_ERR_ARGUMENT unless the model takes and gives three channels and has a scale
 */
COD_MUST_CHECK cod_status cod_upscaler_create(const cod_model *model, cod_weights *weights,
                                              const cod_upscaler_options *options, cod_upscaler **out);

/** The same from a model file, which it loads into weights of its own; `device` is borrowed. */
COD_MUST_CHECK cod_status cod_upscaler_open(const char *path, const cod_backend *backend, cod_device *device,
                                            const cod_upscaler_options *options, cod_upscaler **out);

/** MATLAB's bicubic as an upscaler; never tiled. */
COD_MUST_CHECK cod_status cod_upscaler_create_bicubic(int scale, cod_upscaler **out);
void cod_upscaler_destroy(cod_upscaler *upscaler);

int cod_upscaler_scale(const cod_upscaler *upscaler);
/** "f32", "bf16" or "int8". */
const char *cod_upscaler_precision(const cod_upscaler *upscaler);
/** Whether it computes on 8-bit integers and has no ranges for them. */
bool cod_upscaler_needs_calibration(const cod_upscaler *upscaler);
/**
 * Observes the ranges on the middle of a picture, up to 128 by 128 pixels, with the weights as they are; several calls
 * widen them.
 *
 * @return COD_ERR_ARGUMENT unless the precision is int8; COD_ERR_NUMERIC when the model diverged
 */
COD_MUST_CHECK cod_status cod_upscaler_calibrate(cod_upscaler *upscaler, const cod_image *low);
/** Drops the ranges. */
void cod_upscaler_uncalibrate(cod_upscaler *upscaler);
/** The ranges, as a model file's metadata keeps them. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_upscaler_format_int8(const cod_upscaler *upscaler, char **text);
/**
 * Low-resolution pixels that an output pixel's value depends on, to each side; -1 if it depends on all pixels (tiles
 * are then impossible).
 */
int64_t cod_upscaler_halo(const cod_upscaler *upscaler);
/** Bytes held for computing since the last picture: arena, weights, staging; not the pictures themselves. */
size_t cod_upscaler_bytes(const cod_upscaler *upscaler);
/** Number of bands or tiles for a picture of this size; the number of bands is known only after a picture has run. */
size_t cod_upscaler_parts(const cod_upscaler *upscaler, int64_t width, int64_t height);
/** The same for people: "whole", "42 bands", "6 tiles, halo 41". */
void cod_upscaler_describe_parts(const cod_upscaler *upscaler, int64_t width, int64_t height, char text[64]);

/**
 * Upscales a picture: 8 or 16 bits and alpha stay (alpha by bicubic), a picture with equal channels keeps them equal,
 * values are clipped and rounded. The network sees fully transparent pixels in the colours around them, and what is
 * fully transparent in the result has the picture's own colours, enlarged by bicubic.
 *
 * @param[in]  progress  may be NULL
 * @param[out] out       new; cod_image_clear()
 */
COD_MUST_CHECK cod_status cod_upscaler_run(cod_upscaler *upscaler, const cod_image *in, cod_upscaler_progress progress,
                                           void *context, cod_image *out);

/**
 * The same on f32 RGB, neither clipped nor rounded. `low` is [height, width, 3] in 0 … 1, `high` [s·height, s·width,
 * 3].
 */
COD_MUST_CHECK cod_status cod_upscaler_run_f32(cod_upscaler *upscaler, const float *low, int64_t width, int64_t height,
                                               float *high);

#endif
