/**
 * @file
 * How well an upscaler restores pictures that were brought down by MATLAB's bicubic: PSNR and SSIM per picture and mean.
 *
 * The convention of the literature: the truth is cut to a multiple of the scale, brought down to 8 bits, upscaled, clipped
 * and rounded to 8 bits, and compared with `scale` pixels left out at each border, on the unrounded luma of the 8-bit RGB.
 */
#ifndef COD_INFER_EVALUATE_H
#define COD_INFER_EVALUATE_H

#include "data/metrics.h"
#include "infer/upscaler.h"

typedef struct cod_evaluated {
    const char *file; /**< relative to the folder */
    cod_quality quality;
} cod_evaluated;

typedef struct cod_evaluation {
    cod_arena arena;
    size_t count;
    cod_evaluated *images;
    size_t skipped; /**< files that are broken or too small, each named in a warning */
    cod_quality mean;
} cod_evaluation;

void cod_evaluation_clear(cod_evaluation *evaluation);

/** Called after each picture. */
typedef void (*cod_evaluation_progress)(void *context, size_t done, size_t total, const cod_evaluated *image);

/**
 * Evaluates on every picture below `folder`. Where pictures are called …HR… beside others called …LR… (as data sets are
 * shipped), only the former count.
 *
 * @param[in]  progress    may be NULL
 * @param[out] evaluation  new; cod_evaluation_clear(); empty on failure
 * @return COD_ERR_ARGUMENT when no picture can be used
 */
COD_MUST_CHECK cod_status cod_evaluate_folder(cod_upscaler *upscaler, const char *folder,
                                              cod_evaluation_progress progress, void *context,
                                              cod_evaluation *evaluation);

/** Evaluates on one 8-bit RGB picture. @param[out] upscaled  new, the upscaler's result; may be NULL */
COD_MUST_CHECK cod_status cod_evaluate_image(cod_upscaler *upscaler, const cod_image *truth, cod_quality *quality,
                                             cod_image *upscaled);

/** Evaluates on a pair whose low-resolution picture exists already; 8-bit RGB. `upscaled` as above. */
COD_MUST_CHECK cod_status cod_evaluate_pair(cod_upscaler *upscaler, const cod_image *low, const cod_image *truth,
                                            cod_quality *quality, cod_image *upscaled);

/** {"images": [{"file", "psnr_y", "ssim_y", "psnr_rgb"}], "mean": {…}}; an infinite PSNR is null. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_evaluation_json(const cod_evaluation *evaluation, char **text);
/** A table for people. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_evaluation_table(const cod_evaluation *evaluation, char **text);

#endif
