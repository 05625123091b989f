/**
 * @file
 * The settings of section `degradation`: how low-resolution training pictures are degraded if `data.degradation` is
 * real_esrgan. Names, meanings and defaults are those of BasicSR's configurations of Real-ESRGAN (Wang et al. 2021), so
 * that they can be copied.
 */
#ifndef COD_DATA_DEGRADE_OPTIONS_H
#define COD_DATA_DEGRADE_OPTIONS_H

#include "data/options.h"

/** One pass of a degradation: blur, resize, noise, JPEG. Values are drawn uniformly from ranges [least, most]. */
typedef struct cod_degrade_pass_options {
    int64_t blur_kernel_size; /**< largest side */
    cod_string_list kernel_list;
    cod_float_list kernel_prob; /**< one for each of kernel_list, relative to each other */
    double sinc_prob;
    cod_float_list blur_sigma, betag_range, betap_range;
    cod_float_list resize_prob; /**< up, down, keep, relative to each other */
    cod_float_list resize_range;
    double gaussian_noise_prob;
    cod_float_list noise_range, poisson_scale_range;
    double gray_noise_prob;
    cod_int_list jpeg_range;
} cod_degrade_pass_options;

typedef struct cod_degrade_options {
    int64_t order;   /**< 2 = both passes, 1 = the first alone */
    int64_t context; /**< low-resolution pixels */
    cod_degrade_pass_options passes[2];
    double second_blur_prob, final_sinc_prob;
} cod_degrade_options;

extern const cod_option_table cod_degrade_option_table;

/**
 * Checks conditions between several values, such as a range's ends, and reports all problems; keys are relative to the
 * section.
 */
void cod_degrade_options_examine(const cod_degrade_options *options, cod_data_complaint complaint, void *context);

/** Makes the same checks and fails with the first problem: "degradation.KEY: TEXT". */
COD_MUST_CHECK cod_status cod_degrade_options_check(const cod_degrade_options *options);

#endif
