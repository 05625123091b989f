#include "data/blur_kernel.h"

#include <math.h>

/** Sum of the weights' magnitudes that may be left out: 1/20 of a step of 8 bits. */
static const double negligible = 0.05 / 255;

const char *const cod_blur_family_names[COD_BLUR_FAMILIES + 1] = {
    "iso", "aniso", "generalized_iso", "generalized_aniso", "plateau_iso", "plateau_aniso", "sinc", NULL};

/** The inverse of Σ = U diag(sx², sy²) Uᵀ, U the rotation by theta: xx, xy and yy of the symmetric matrix. */
static void invert(const cod_blur *blur, double out[3])
{
    const bool turned = cod_blur_is_anisotropic(blur->family);
    const double sx = blur->sigma_x, sy = turned ? blur->sigma_y : blur->sigma_x, theta = turned ? blur->theta : 0;
    const double c = cos(theta), s = sin(theta), px = 1 / (sx * sx), py = 1 / (sy * sy);
    out[0] = c * c * px + s * s * py;
    out[1] = c * s * (px - py);
    out[2] = s * s * px + c * c * py;
}

static double weigh(const cod_blur *blur, const double inverse[3], double x, double y)
{
    const double pi = 3.14159265358979323846;
    const double squared = inverse[0] * x * x + 2 * inverse[1] * x * y + inverse[2] * y * y, r = hypot(x, y);
    switch (blur->family) {
    case COD_BLUR_ISO:
    case COD_BLUR_ANISO:
        return exp(-0.5 * squared);
    case COD_BLUR_GENERALIZED_ISO:
    case COD_BLUR_GENERALIZED_ANISO:
        return exp(-0.5 * pow(squared, blur->beta));
    case COD_BLUR_PLATEAU_ISO:
    case COD_BLUR_PLATEAU_ANISO:
        return 1 / (1 + pow(squared, blur->beta));
    case COD_BLUR_SINC:
    case COD_BLUR_FAMILIES:
        break;
    }
    return r == 0 ? blur->cutoff * blur->cutoff / (4 * pi) : blur->cutoff * j1(blur->cutoff * r) / (2 * pi * r);
}

void cod_blur_weights(const cod_blur *blur, double *weights)
{
    const int radius = blur->side / 2, side = 2 * radius + 1;
    double inverse[3] = {0}, sum = 0;
    if (blur->family != COD_BLUR_SINC)
        invert(blur, inverse);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            sum += weights[y * side + x] = weigh(blur, inverse, x - radius, y - radius);
    for (int i = 0; i < side * side; i++)
        weights[i] /= sum;
}

/** Sum of magnitudes of the weights at `distance` from the middle, counted in rings. */
static double ring(const double *weights, int radius, int distance)
{
    const int side = 2 * radius + 1;
    double sum = 0;
    for (int y = -distance; y <= distance; y++)
        for (int x = -distance; x <= distance;
             x += (y == -distance || y == distance || x == distance) ? 1 : 2 * distance)
            sum += fabs(weights[(y + radius) * side + x + radius]);
    return sum;
}

void cod_blur_kernel_init(cod_blur_kernel *kernel, const cod_blur *blur)
{
    double weights[COD_BLUR_MAX_SIDE * COD_BLUR_MAX_SIDE], left = negligible;
    const int whole = blur->side / 2;
    cod_blur_weights(blur, weights);
    int radius = whole;
    while (radius > 0 && (left -= ring(weights, whole, radius)) > 0)
        radius--;
    const int side = 2 * radius + 1, cut = whole - radius;
    *kernel = (cod_blur_kernel){
        .radius = radius, .flips = !cod_blur_is_anisotropic(blur->family), .separable = blur->family == COD_BLUR_ISO};
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            kernel->weights[y * side + x] = (float)weights[(y + cut) * (2 * whole + 1) + x + cut];
    /* The middle row of a separable kernel is its line times the line's middle, whose square is the middle weight. */
    for (int x = 0; kernel->separable && x < side; x++)
        kernel->line[x] =
            (float)(weights[whole * (2 * whole + 1) + x + cut] / sqrt(weights[whole * (2 * whole + 1) + whole]));
}
