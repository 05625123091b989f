#include "data/metrics.h"

#include "data/gaussian_internal.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOW = 11 };

double cod_psnr(const double *a, const double *b, size_t count, double peak)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return 10 * log10(peak * peak * (double)count / sum);
}

/** The five local moments that SSIM is made of. */
enum { MEAN_A, MEAN_B, SQUARE_A, SQUARE_B, PRODUCT, MOMENTS };

/** Moments of row y's windows, filtered down the columns only: moments[MOMENTS][width]. */
static void filter_columns(const double *a, const double *b, int64_t y, int64_t width, const double weights[WINDOW],
                           double *moments)
{
    for (int64_t i = 0; i < MOMENTS * width; i++)
        moments[i] = 0;
    for (int64_t t = 0; t < WINDOW; t++) {
        const double *row_a = a + (y + t) * width, *row_b = b + (y + t) * width;
        for (int64_t x = 0; x < width; x++) {
            moments[MEAN_A * width + x] += weights[t] * row_a[x];
            moments[MEAN_B * width + x] += weights[t] * row_b[x];
            moments[SQUARE_A * width + x] += weights[t] * row_a[x] * row_a[x];
            moments[SQUARE_B * width + x] += weights[t] * row_b[x] * row_b[x];
            moments[PRODUCT * width + x] += weights[t] * row_a[x] * row_b[x];
        }
    }
}

/** SSIM of a window, and its factor of contrast and structure. */
typedef struct window_ssim {
    double both, structure;
} window_ssim;

static window_ssim ssim_at(const double *moments, int64_t width, int64_t x, const double weights[WINDOW])
{
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double m[MOMENTS] = {0};
    for (int k = 0; k < MOMENTS; k++)
        for (int t = 0; t < WINDOW; t++)
            m[k] += weights[t] * moments[k * width + x + t];
    const double aa = m[MEAN_A] * m[MEAN_A], bb = m[MEAN_B] * m[MEAN_B], ab = m[MEAN_A] * m[MEAN_B];
    const double means = 2 * ab + c1, structure = 2 * (m[PRODUCT] - ab) + c2;
    const double mean_powers = aa + bb + c1, variances = m[SQUARE_A] - aa + m[SQUARE_B] - bb + c2;
    return (window_ssim){means * structure / (mean_powers * variances), structure / variances};
}

/** Means over all windows of SSIM, and of its factor of contrast and structure. */
static cod_status mean_ssim(const double *a, const double *b, int64_t height, int64_t width, double *ssim,
                            double *structure)
{
    COD_REQUIRE(height >= WINDOW && width >= WINDOW, "SSIM needs at least %dx%d pixels, not %lldx%lld", WINDOW, WINDOW,
                (long long)width, (long long)height);
    double weights[WINDOW];
    cod_gaussian_weights(WINDOW, 1.5, weights);
    double *moments = malloc((size_t)(MOMENTS * width) * sizeof *moments);
    COD_REQUIRE_MEMORY(moments);
    double both = 0, structures = 0;
    for (int64_t y = 0; y + WINDOW <= height; y++) {
        filter_columns(a, b, y, width, weights, moments);
        for (int64_t x = 0; x + WINDOW <= width; x++) {
            const window_ssim at = ssim_at(moments, width, x, weights);
            both += at.both;
            structures += at.structure;
        }
    }
    free(moments);
    const double windows = (double)((height - WINDOW + 1) * (width - WINDOW + 1));
    *ssim = both / windows;
    *structure = structures / windows;
    return COD_OK;
}

cod_status cod_ssim(const double *a, const double *b, int64_t height, int64_t width, double *ssim)
{
    double structure;
    return mean_ssim(a, b, height, width, ssim, &structure);
}

cod_status cod_ssim_structure(const double *a, const double *b, int64_t height, int64_t width, double *structure)
{
    double ssim;
    return mean_ssim(a, b, height, width, &ssim, structure);
}

/** One channel 0 … 2, or luma for 3, of what is left of the image inside the border. */
static void take_plane(const cod_image *image, int64_t crop, int channel, double *plane)
{
    for (int64_t y = crop; y < image->height - crop; y++)
        for (int64_t x = crop; x < image->width - crop; x++) {
            const uint8_t *pixel = (const uint8_t *)image->pixels + (y * image->width + x) * image->channels;
            *plane++ = channel < 3 ? pixel[channel] : cod_luma(pixel);
        }
}

cod_status cod_image_compare(const cod_image *image, const cod_image *truth, int64_t crop, cod_quality *quality)
{
    COD_REQUIRE(image->width == truth->width && image->height == truth->height,
                "a picture of %lldx%lld cannot be compared with one of %lldx%lld", (long long)image->width,
                (long long)image->height, (long long)truth->width, (long long)truth->height);
    COD_REQUIRE(image->bits == 8 && truth->bits == 8, "only 8-bit pictures are compared");
    const int64_t width = image->width - 2 * crop, height = image->height - 2 * crop;
    COD_REQUIRE(crop >= 0 && width >= WINDOW && height >= WINDOW,
                "%lldx%lld is too small to compare: %dx%d pixels must remain inside a border of %lld",
                (long long)image->width, (long long)image->height, WINDOW, WINDOW, (long long)crop);
    const size_t count = (size_t)(width * height);
    double *a = malloc(2 * count * sizeof *a);
    COD_REQUIRE_MEMORY(a);
    double *b = a + count, squares = 0, ssim_sum = 0, ssim = 0;
    cod_status status = COD_OK;
    for (int channel = 0; status == COD_OK && channel < 4; channel++) {
        take_plane(image, crop, channel, a);
        take_plane(truth, crop, channel, b);
        status = cod_ssim(a, b, height, width, &ssim);
        if (channel == 3) {
            quality->psnr_y = cod_psnr(a, b, count, 255);
            quality->ssim_y = ssim;
            break;
        }
        ssim_sum += ssim;
        for (size_t i = 0; i < count; i++)
            squares += (a[i] - b[i]) * (a[i] - b[i]);
    }
    free(a);
    quality->psnr_rgb = 10 * log10(255.0 * 255.0 * 3 * (double)count / squares);
    quality->ssim_rgb = ssim_sum / 3;
    return status;
}
