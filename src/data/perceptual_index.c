#include "data/perceptual_index.h"

#include "data/metrics.h"

#include <math.h>

static uint8_t luma_of(const uint8_t *pixel)
{
    return (uint8_t)floor(cod_luma(pixel) + 0.5);
}

/** A picture whose three channels are the luma, so that its gray is the luma too. */
static cod_status take_luma(const cod_image *image, cod_image *out)
{
    COD_REQUIRE(image->bits == 8 && image->channels >= 3, "the perceptual index is of 8-bit RGB pictures");
    COD_TRY(cod_image_init(out, image->width, image->height, 3, 8));
    const uint8_t *from = image->pixels;
    uint8_t *to = out->pixels;
    for (int64_t i = 0; i < image->width * image->height; i++, from += image->channels, to += 3)
        to[0] = to[1] = to[2] = luma_of(from);
    return COD_OK;
}

const char *cod_pi_is(bool with_ma)
{
    return with_ma ? "((10 - Ma) + NIQE) / 2, both of the Y channel"
                   : "NIQE of the Y channel alone, without Ma's score";
}

cod_status cod_perceptual_index(const cod_image *image, int64_t crop, const cod_niqe_model *niqe,
                                const cod_ma_model *ma, double *pi)
{
    cod_image luma;
    double score = 0;
    COD_TRY(take_luma(image, &luma));
    cod_status status = cod_niqe(&luma, crop, niqe, pi);
    if (status == COD_OK && ma != NULL) {
        status = cod_ma(&luma, crop, ma, &score);
        *pi = (10 - score + *pi) / 2;
    }
    cod_image_clear(&luma);
    return status;
}

cod_status cod_rmse_y(const cod_image *image, const cod_image *truth, int64_t crop, double *rmse)
{
    COD_REQUIRE(image->width == truth->width && image->height == truth->height && image->bits == 8 && truth->bits == 8,
                "only 8-bit pictures of equal size have an RMSE");
    COD_REQUIRE(crop >= 0 && image->width > 2 * crop && image->height > 2 * crop,
                "nothing of %lldx%lld pixels remains inside a border of %lld", (long long)image->width,
                (long long)image->height, (long long)crop);
    double sum = 0;
    for (int64_t y = crop; y < image->height - crop; y++)
        for (int64_t x = crop; x < image->width - crop; x++) {
            const int64_t at = y * image->width + x;
            const int difference = luma_of((const uint8_t *)image->pixels + at * image->channels) -
                                   luma_of((const uint8_t *)truth->pixels + at * truth->channels);
            sum += difference * difference;
        }
    *rmse = sqrt(sum / (double)((image->width - 2 * crop) * (image->height - 2 * crop)));
    return COD_OK;
}

int cod_pirm_region(double rmse)
{
    return rmse <= 11.5 ? 1 : rmse <= 12.5 ? 2 : rmse <= 16 ? 3 : 0;
}
