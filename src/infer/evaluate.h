/**
 * @file
 * How well an upscaler restores pictures that were brought down by MATLAB's bicubic: PSNR and SSIM per picture and mean.
 *
 * The convention of the literature: the truth is cut to a multiple of the scale, brought down to 8 bits, upscaled, clipped
 * and rounded to 8 bits, and compared with `scale` pixels left out at each border, on the unrounded luma of the 8-bit RGB.
 */
#ifndef COD_INFER_EVALUATE_H
#define COD_INFER_EVALUATE_H

#include "data/files.h"
#include "data/metrics.h"
#include "infer/niqe_model.h"
#include "infer/upscaler.h"

/** What is computed of each picture; a set of these. */
typedef enum cod_metric { COD_METRIC_PSNR = 1, COD_METRIC_SSIM = 2, COD_METRIC_NIQE = 4 } cod_metric;

typedef struct cod_metrics_options {
    unsigned metrics; /**< of cod_metric; PSNR and SSIM are computed in any case, and told where they are wanted */
    const cod_niqe_model *niqe; /**< for COD_METRIC_NIQE; borrowed while a call lasts */
} cod_metrics_options;

/** Reads "psnr,ssim,niqe". @return COD_ERR_ARGUMENT for an unknown name, with those that are known */
COD_MUST_CHECK cod_status cod_metrics_parse(const char *text, unsigned *metrics);

typedef struct cod_evaluated {
    const char *file; /**< relative to the folder; the mean's is "mean" */
    cod_quality quality;
    double niqe,
        niqe_truth; /**< of the upscaled picture and of the true one, inside the same border; NaN = not computed, or it has too few blocks */
} cod_evaluated;

typedef struct cod_evaluation {
    cod_arena arena;
    size_t count;
    cod_evaluated *images;
    size_t skipped; /**< files that are broken or too small, each named in a warning */
    size_t
        without_niqe; /**< pictures that have none, though it is wanted; each is named in a warning, and the means leave them out */
    unsigned metrics; /**< that are told */
    cod_evaluated mean;
} cod_evaluation;

void cod_evaluation_clear(cod_evaluation *evaluation);

/** Called after each picture. */
typedef void (*cod_evaluation_progress)(void *context, size_t done, size_t total, const cod_evaluated *image);

/**
 * Evaluates on every picture below `folder`. NIQE is of the picture that is compared: 8-bit RGB, without the border. Where pictures are called …HR… beside others called …LR… (as data sets are
 * shipped), only the former count.
 *
 * @param[in]  options     NULL = PSNR and SSIM
 * @param[in]  progress    may be NULL
 * @param[out] evaluation  new; cod_evaluation_clear(); empty on failure
 * @return COD_ERR_ARGUMENT when no picture can be used
 */
COD_MUST_CHECK cod_status cod_evaluate_folder(cod_upscaler *upscaler, const char *folder,
                                              const cod_metrics_options *options, cod_evaluation_progress progress,
                                              void *context, cod_evaluation *evaluation);

/** Whether some other file is called like this one with HR in place of its last LR, so that this one is not evaluated. */
bool cod_evaluation_is_low(const cod_file_list *files, const char *name);

/** Evaluates on one 8-bit RGB picture. @param[out] upscaled  new, the upscaler's result; may be NULL */
COD_MUST_CHECK cod_status cod_evaluate_image(cod_upscaler *upscaler, const cod_image *truth, cod_quality *quality,
                                             cod_image *upscaled);

/** Evaluates on a pair whose low-resolution picture exists already; 8-bit RGB. `upscaled` as above. */
COD_MUST_CHECK cod_status cod_evaluate_pair(cod_upscaler *upscaler, const cod_image *low, const cod_image *truth,
                                            cod_quality *quality, cod_image *upscaled);

/** {"images": [{"file", "psnr_y", "ssim_y", "psnr_rgb", "niqe", "niqe_truth"}], "mean": {…}}, with what is told; an infinite PSNR and a NIQE that is not computed are null. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_evaluation_json(const cod_evaluation *evaluation, char **text);
/** A table for people. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_evaluation_table(const cod_evaluation *evaluation, char **text);

#endif
