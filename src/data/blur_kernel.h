/**
 * @file
 * Kernels that blur: the seven families of Real-ESRGAN's degradations (Wang et al. 2021, section 3.1 and appendix A),
 * by the formulas of BasicSR's degradations.py, so that ranges from BasicSR mean the same here.
 *
 * With d² = xᵀ Σ⁻¹ x, where Σ has the standard deviations sigma_x and sigma_y along axes turned by theta, a weight
 * before normalisation is exp(-d²/2) (Gaussian), exp(-(d²)^beta / 2) (generalised Gaussian; Liu et al. 2020), 1 / (1 +
 * (d²)^beta) (plateau), or cutoff · J1(cutoff · r) / (2π r) (sinc: the ideal circular low-pass, r the distance from the
 * centre).
 */
#ifndef COD_DATA_BLUR_KERNEL_H
#define COD_DATA_BLUR_KERNEL_H

#include "core/status.h"

#include <stdbool.h>

enum { COD_BLUR_MIN_SIDE = 7, COD_BLUR_MAX_SIDE = 21 };

typedef enum cod_blur_family {
    COD_BLUR_ISO,
    COD_BLUR_ANISO,
    COD_BLUR_GENERALIZED_ISO,
    COD_BLUR_GENERALIZED_ANISO,
    COD_BLUR_PLATEAU_ISO,
    COD_BLUR_PLATEAU_ANISO,
    COD_BLUR_SINC,
    COD_BLUR_FAMILIES,
} cod_blur_family;

/** BasicSR's names, as in `kernel_list`: iso, aniso, …; the last is sinc, which has separate probabilities. */
extern const char *const cod_blur_family_names[COD_BLUR_FAMILIES + 1];

/** Whether a family's kernels have two standard deviations and an angle. */
static inline bool cod_blur_is_anisotropic(cod_blur_family family)
{
    return family == COD_BLUR_ANISO || family == COD_BLUR_GENERALIZED_ANISO || family == COD_BLUR_PLATEAU_ANISO;
}

typedef struct cod_blur {
    cod_blur_family family;
    int side;                /**< pixels, odd, at most COD_BLUR_MAX_SIDE */
    double sigma_x, sigma_y; /**< pixels; the iso families read only the first */
    double theta;            /**< radians; aniso families */
    double beta;             /**< generalised and plateau */
    double cutoff;           /**< radians a pixel; sinc */
} cod_blur;

typedef struct cod_blur_kernel {
    int radius;
    bool flips;     /**< rows at equal distance from the middle one are equal */
    bool separable; /**< each weight is line[x] · line[y] */
    float line[COD_BLUR_MAX_SIDE];
    float weights[COD_BLUR_MAX_SIDE * COD_BLUR_MAX_SIDE]; /**< [side, side] of side 2·radius + 1, sum 1 */
} cod_blur_kernel;

/**
 * Computes a kernel's weights.
 *
 * @param[out] weights  [side, side], sum 1
 */
void cod_blur_weights(const cod_blur *blur, double *weights);

/**
 * Makes a kernel to filter with: the same weights without the outer rings that together change no 8-bit pixel by 1/20.
 */
void cod_blur_kernel_init(cod_blur_kernel *kernel, const cod_blur *blur);

#endif
