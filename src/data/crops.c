#include "data/crops.h"

enum { TURNS = 8 };

/**
 * Copies a crop [size, size, 3] of a picture at (left, top) turned by one of the eight: bit 0 mirrors x, bit 1 mirrors y, bit 2
 * exchanges them.
 */
static void copy_crop(const float unit[256], const uint8_t *picture, int64_t width, int64_t left, int64_t top,
                      int64_t size, uint32_t turn, float *out)
{
    const bool mirror_x = turn & 1, mirror_y = turn & 2, transpose = turn & 4;
    const int64_t last = size - 1;
    const int64_t step_x = mirror_x ? -3 : 3, step_y = (mirror_y ? -3 : 3) * width;
    const uint8_t *corner = picture + ((top + (mirror_y ? last : 0)) * width + left + (mirror_x ? last : 0)) * 3;
    const int64_t across = transpose ? step_y : step_x, down = transpose ? step_x : step_y;
    for (int64_t y = 0; y < size; y++) {
        const uint8_t *in = corner + y * down;
        for (int64_t x = 0; x < size; x++, in += across, out += 3)
            for (int c = 0; c < 3; c++)
                out[c] = unit[in[c]];
    }
}

static cod_status draw(const void *context, size_t index, const cod_sample_place *place, float *input, float *target)
{
    const cod_crops *crops = context;
    const int64_t patch = crops->patch, scale = cod_dataset_scale(crops->dataset);
    cod_pair pair;
    COD_TRY(cod_dataset_read(crops->dataset, COD_SPLIT_TRAIN, index, &pair));
    if (pair.low_width < patch || pair.low_height < patch) {
        cod_pair_clear(&pair);
        return cod_fail(COD_ERR_ARGUMENT, "a crop of %lld pixels is larger than the data set was opened for",
                        (long long)patch);
    }
    cod_rng corner = cod_sample_rng(place, COD_RNG_CROP);
    const int64_t left = cod_rng_below(&corner, (uint32_t)(pair.low_width - patch + 1));
    const int64_t top = cod_rng_below(&corner, (uint32_t)(pair.low_height - patch + 1));
    cod_rng augment = cod_sample_rng(place, COD_RNG_AUGMENT);
    const uint32_t turn = crops->augment ? cod_rng_below(&augment, TURNS) : 0;
    copy_crop(crops->unit, pair.low, pair.low_width, left, top, patch, turn, input);
    copy_crop(crops->unit, pair.high, pair.low_width * scale, left * scale, top * scale, patch * scale, turn, target);
    cod_pair_clear(&pair);
    return COD_OK;
}

void cod_crops_init(cod_crops *crops, const cod_dataset *dataset, int64_t patch, bool augment)
{
    *crops = (cod_crops){.dataset = dataset, .patch = patch, .augment = augment};
    for (int i = 0; i < 256; i++)
        crops->unit[i] = (float)i / 255;
}

cod_samples cod_crops_samples(const cod_crops *crops)
{
    const int64_t patch = crops->patch, high = patch * cod_dataset_scale(crops->dataset);
    return (cod_samples){
        .count = cod_dataset_size(crops->dataset, COD_SPLIT_TRAIN),
        .input = {1, patch, patch, 3},
        .target = {1, high, high, 3},
        .context = crops,
        .draw = draw,
    };
}
