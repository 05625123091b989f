/**
 * @file
 * Evaluation of an upscaler on pictures that MATLAB's bicubic has reduced: figures of each picture and their means.
 *
 * The convention of the literature: the truth is cut to a multiple of the scale, reduced and rounded to 8 bits,
 * upscaled, clipped and rounded to 8 bits, and compared with `scale` pixels left out at each border, on the unrounded
 * luma of the 8-bit RGB.
 */
#ifndef COD_INFER_EVALUATE_H
#define COD_INFER_EVALUATE_H

#include "data/files.h"
#include "data/metrics.h"
#include "infer/lpips.h"
#include "infer/ma_model.h"
#include "infer/niqe_model.h"
#include "infer/upscaler.h"

/** Figures to compute for each picture; flags that form a set. */
typedef enum cod_metric {
    COD_METRIC_PSNR = 1,
    COD_METRIC_SSIM = 2,
    COD_METRIC_NIQE = 4,
    COD_METRIC_PI = 8, /**< the perceptual index, and the RMSE beside it (data/perceptual_index.h) */
    COD_METRIC_LPIPS = 16
} cod_metric;

enum { COD_METRICS_OF_NIQE = COD_METRIC_NIQE | COD_METRIC_PI /**< those that need NIQE's model */ };

/** Their names, NULL at the end: "psnr", "ssim", "niqe", "pi", "lpips". */
extern const char *const cod_metric_names[];

typedef struct cod_metrics_options {
    unsigned metrics; /**< of cod_metric; PSNR and SSIM are always computed, and shown if they are in the set */
    const cod_niqe_model *niqe; /**< for COD_METRICS_OF_NIQE; borrowed while a call lasts, as the next two */
    const cod_ma_model *ma;     /**< for COD_METRIC_PI; NULL = NIQE stands in its place */
    cod_lpips *lpips;           /**< for COD_METRIC_LPIPS */
    int threads; /**< for a folder: threads that read and judge pictures while the caller's one upscales; 0 = none */
} cod_metrics_options;

/** Reads "psnr, ssim, niqe". @return COD_ERR_ARGUMENT for an unknown name, with those that are known */
COD_MUST_CHECK cod_status cod_metrics_parse(const char *text, unsigned *metrics);

/** Figures of a picture. NaN = not computed, or the picture is too small for it. */
typedef struct cod_evaluated {
    const char *file; /**< relative to the folder; the mean's is "mean" */
    cod_quality quality;
    double niqe, niqe_truth; /**< of the upscaled picture and of the true one, inside the same border */
    double pi, rmse_y;       /**< the mean's RMSE is of the mean squared error, as PIRM has it */
    double lpips;
} cod_evaluated;

/** How one figure is shown; a table of these ends with key NULL. */
typedef struct cod_evaluated_figure {
    cod_metric metric;
    const char *key, *label; /**< in JSON; above a column */
    int width, digits;
    size_t offset; /**< in cod_evaluated */
} cod_evaluated_figure;

extern const cod_evaluated_figure cod_evaluated_figures[];

static inline double *cod_evaluated_value(const cod_evaluated_figure *figure, cod_evaluated *image)
{
    return (double *)(void *)((char *)image + figure->offset);
}

typedef struct cod_evaluation {
    cod_arena arena;
    size_t count;
    cod_evaluated *images;
    size_t skipped;   /**< files that are broken or too small, each named in a warning */
    unsigned metrics; /**< metrics that are shown */
    bool pi_with_ma, lpips_weighted;
    cod_evaluated mean; /**< over the pictures that have the figure */
} cod_evaluation;

void cod_evaluation_clear(cod_evaluation *evaluation);

/** Called after each picture, in their order. */
typedef void (*cod_evaluation_progress)(void *context, size_t done, size_t total, const cod_evaluated *image);

/**
 * Evaluates on every picture below `folder`. All figures are of the picture that is compared: 8-bit RGB, without the
 * border. Where pictures are called …HR… beside others called …LR… (as data sets are shipped), only the former count.
 *
 * @param[in]  options     NULL = PSNR and SSIM
 * @param[in]  progress    may be NULL
 * @param[out] evaluation  new; cod_evaluation_clear(); empty on failure
 * @return COD_ERR_ARGUMENT when no picture can be used
 */
COD_MUST_CHECK cod_status cod_evaluate_folder(cod_upscaler *upscaler, const char *folder,
                                              const cod_metrics_options *options, cod_evaluation_progress progress,
                                              void *context, cod_evaluation *evaluation);

/** Whether another file has this file's name with HR in place of the last LR, so that this file is not evaluated. */
bool cod_evaluation_is_low(const cod_file_list *files, const char *name);

/** All figures NaN. */
cod_evaluated cod_evaluated_unknown(const char *file);

/**
 * Judges an upscaled 8-bit RGB picture by all figures but LPIPS, on any thread. Where it is too small for one, a
 * warning names it.
 *
 * @param name  of the picture, for the warning; NULL = none
 * @param crop  pixels that are left out at each border
 * @param with_truth  also compute niqe_truth
 */
COD_MUST_CHECK cod_status cod_evaluate_upscaled(const cod_metrics_options *options, const char *name,
                                                const cod_image *upscaled, const cod_image *truth, int64_t crop,
                                                bool with_truth, cod_evaluated *image);
/** Judges the picture by LPIPS, if requested, on the thread that uses the device. */
COD_MUST_CHECK cod_status cod_evaluate_features(const cod_metrics_options *options, const char *name,
                                                const cod_image *upscaled, const cod_image *truth, int64_t crop,
                                                cod_evaluated *image);

/**
 * The means of `count` pictures' figures, each over the pictures that have it; NaN if none has. `mean->file` is not
 * changed.
 */
void cod_evaluated_mean(cod_evaluated *images, size_t count, cod_evaluated *mean);

/** Evaluates on one 8-bit RGB picture. @param[out] upscaled  new, the upscaler's result; may be NULL */
COD_MUST_CHECK cod_status cod_evaluate_image(cod_upscaler *upscaler, const cod_image *truth, cod_quality *quality,
                                             cod_image *upscaled);

/** Evaluates on a pair whose low-resolution picture exists already; 8-bit RGB. `upscaled` as above. */
COD_MUST_CHECK cod_status cod_evaluate_pair(cod_upscaler *upscaler, const cod_image *low, const cod_image *truth,
                                            cod_quality *quality, cod_image *upscaled);

/**
 * {"images": [{"file", "psnr_y", "ssim_y", "psnr_rgb", "niqe", "niqe_truth", "pi", "rmse_y", "lpips"}], "mean": {…}},
 * with the metrics that are shown; an infinite PSNR and figures that were not computed are null. Then, if they are
 * shown, "pi_is" and "pirm_region" (null = none), and "lpips_is": "weighted" or "unweighted". @param[out] text new;
 * free()
 */
COD_MUST_CHECK cod_status cod_evaluation_json(const cod_evaluation *evaluation, char **text);
/** A table for people. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_evaluation_table(const cod_evaluation *evaluation, char **text);

#endif
