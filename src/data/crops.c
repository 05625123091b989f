#include "data/crops.h"

#include "core/backend.h"

enum { TURNS = 8, MIRRORED_X = 1, MIRRORED_Y = 2, TRANSPOSED = 4, RGB = 3, ORDERS = 6 };

/** The channels of the picture that a crop has as its first, second and third one. The first order changes nothing. */
static const uint8_t orders[ORDERS][RGB] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/** Positions of a turned crop's elements in its picture. */
typedef struct walk {
    int64_t corner, across, down;
    const uint8_t *order; /**< of the channels: one of `orders` */
} walk;

/**
 * A crop of side `size` of a picture at (left, top) turned by one of the eight: bit 0 mirrors x, bit 1 mirrors y, bit 2
 * exchanges them.
 */
static walk walk_of(int64_t width, int64_t left, int64_t top, int64_t size, uint32_t turn, const uint8_t *order)
{
    const bool mirror_x = turn & MIRRORED_X, mirror_y = turn & MIRRORED_Y, transpose = turn & TRANSPOSED;
    const int64_t last = size - 1;
    const int64_t step_x = mirror_x ? -RGB : RGB, step_y = (mirror_y ? -RGB : RGB) * width;
    return (walk){.corner = ((top + (mirror_y ? last : 0)) * width + left + (mirror_x ? last : 0)) * RGB,
                  .across = transpose ? step_y : step_x,
                  .down = transpose ? step_x : step_y,
                  .order = order};
}

/** Copies a crop into the first channels of `out`, [size, size, channels]. */
static void copy_crop(const float unit[256], const uint8_t *picture, walk w, int64_t size, int64_t channels, float *out)
{
    for (int64_t y = 0; y < size; y++) {
        const uint8_t *in = picture + w.corner + y * w.down;
        for (int64_t x = 0; x < size; x++, in += w.across, out += channels)
            for (int c = 0; c < RGB; c++)
                out[c] = unit[in[w.order[c]]];
    }
}

/** The same for a picture of floats, 0 … 255. */
static void copy_floats(const float *picture, walk w, int64_t size, int64_t channels, float *out)
{
    for (int64_t y = 0; y < size; y++) {
        const float *in = picture + w.corner + y * w.down;
        for (int64_t x = 0; x < size; x++, in += w.across, out += channels)
            for (int c = 0; c < RGB; c++)
                out[c] = in[w.order[c]] / 255;
    }
}

/** The same without a change of the bytes. */
static void copy_bytes(const uint8_t *picture, walk w, int64_t size, uint8_t *out)
{
    for (int64_t y = 0; y < size; y++) {
        const uint8_t *in = picture + w.corner + y * w.down;
        for (int64_t x = 0; x < size; x++, in += w.across, out += RGB)
            for (int c = 0; c < RGB; c++)
                out[c] = in[w.order[c]];
    }
}

/** A pair of pictures, and what is drawn for a crop: its corner in the low one, its turn, and its channels' order. */
typedef struct drawn {
    cod_pair pair;
    int64_t left, top;
    uint32_t turn;
    const uint8_t *order; /**< of the channels */
    cod_degraded degraded;
    cod_sharpened sharpened; /**< what is degraded, or the crop alone; the crop lies at (sharp_left, sharp_top) of it */
    int64_t sharp_left, sharp_top;
    const uint8_t *low; /**< the picture that the low crop is cut out of, and where */
    int64_t low_width, low_left, low_top;
} drawn;

static void drawn_clear(drawn *d)
{
    cod_degraded_clear(&d->degraded);
    cod_sharpened_clear(&d->sharpened);
    cod_pair_clear(&d->pair);
}

/** Start of the degraded part: `before` pixels ahead of the crop, but inside the picture if it is large enough. */
static int64_t begin(int64_t crop, int64_t before, int64_t side, int64_t whole)
{
    const int64_t wanted = crop - before, last = whole - side;
    return last < 0 ? wanted : wanted < 0 ? 0 : wanted > last ? last : wanted;
}

/** Sharpens a part of the true picture that has the crop in it, all in low-resolution pixels. */
static cod_status sharpen(const cod_crops *crops, int64_t left, int64_t top, int64_t side, drawn *d)
{
    const int64_t scale = cod_dataset_scale(crops->dataset);
    const cod_sharpen_region region = {.picture = d->pair.high,
                                       .picture_width = d->pair.low_width * scale,
                                       .picture_height = d->pair.low_height * scale,
                                       .left = left * scale,
                                       .top = top * scale,
                                       .width = side * scale,
                                       .height = side * scale};
    d->sharp_left = (d->left - left) * scale;
    d->sharp_top = (d->top - top) * scale;
    return cod_sharpen(crops->sharpener, &region, &d->sharpened);
}

/** Degrades the crop's surroundings. @param corner random numbers, after the crop's own corner was drawn */
static cod_status degrade(const cod_crops *crops, const cod_sample_place *place, cod_rng *corner, drawn *d)
{
    const int64_t scale = cod_dataset_scale(crops->dataset);
    const cod_degrade_options *options = cod_degrader_options(crops->degrader);
    const int64_t side = crops->patch + options->context;
    const int64_t across = cod_rng_below(corner, (uint32_t)options->context + 1);
    const int64_t down = cod_rng_below(corner, (uint32_t)options->context + 1);
    const int64_t left = begin(d->left, across, side, d->pair.low_width);
    const int64_t top = begin(d->top, down, side, d->pair.low_height);
    if (crops->truth != COD_TRUTH_PLAIN)
        COD_TRY(sharpen(crops, left, top, side, d));
    const cod_degrade_region region = {.picture = d->pair.high,
                                       .picture_width = d->pair.low_width * scale,
                                       .picture_height = d->pair.low_height * scale,
                                       .left = left * scale,
                                       .top = top * scale,
                                       .low_width = side,
                                       .low_height = side,
                                       .pixels = d->sharpened.pixels};
    cod_degradation degradation;
    cod_degradation_draw(options, place, &degradation);
    COD_TRY(cod_degrade(crops->degrader, &degradation, place, &region, &d->degraded));
    d->low = d->degraded.pixels;
    d->low_width = side;
    d->low_left = d->left - left;
    d->low_top = d->top - top;
    return COD_OK;
}

/** @param[out] d  new: drawn_clear() */
static cod_status choose(const cod_crops *crops, size_t index, const cod_sample_place *place, drawn *d)
{
    const int64_t patch = crops->patch;
    *d = (drawn){0};
    COD_TRY(cod_dataset_read(crops->dataset, COD_SPLIT_TRAIN, index, &d->pair));
    if (d->pair.low_width < patch || d->pair.low_height < patch) {
        cod_pair_clear(&d->pair);
        return cod_fail(COD_ERR_ARGUMENT, "a crop of %lld pixels is larger than the data set was opened for",
                        (long long)patch);
    }
    cod_rng corner = cod_sample_rng(place, COD_RNG_CROP);
    d->left = cod_rng_below(&corner, (uint32_t)(d->pair.low_width - patch + 1));
    d->top = cod_rng_below(&corner, (uint32_t)(d->pair.low_height - patch + 1));
    cod_rng augment = cod_sample_rng(place, COD_RNG_AUGMENT);
    d->turn = crops->augment ? cod_rng_below(&augment, TURNS) : 0;
    d->order = orders[crops->permute_channels ? cod_rng_below(&augment, ORDERS) : 0];
    d->low = d->pair.low;
    d->low_width = d->pair.low_width;
    d->low_left = d->left;
    d->low_top = d->top;
    cod_status status = COD_OK;
    if (crops->degrader != NULL)
        status = degrade(crops, place, &corner, d);
    else if (crops->truth != COD_TRUTH_PLAIN)
        status = sharpen(crops, d->left, d->top, patch, d);
    if (status != COD_OK)
        drawn_clear(d);
    return status;
}

static void copy_truth(const cod_crops *crops, const drawn *d, float *out)
{
    const int64_t scale = cod_dataset_scale(crops->dataset), side = crops->patch * scale;
    const int64_t channels = cod_truth_channels(crops->truth);
    if (crops->truth != COD_TRUTH_SHARP)
        copy_crop(crops->unit, d->pair.high,
                  walk_of(d->pair.low_width * scale, d->left * scale, d->top * scale, side, d->turn, d->order), side,
                  channels, out);
    if (crops->truth != COD_TRUTH_PLAIN)
        copy_floats(d->sharpened.pixels,
                    walk_of(d->sharpened.width, d->sharp_left, d->sharp_top, side, d->turn, d->order), side, channels,
                    out + channels - RGB);
}

static cod_status draw(const void *context, size_t index, const cod_sample_place *place, float *input, float *target)
{
    const cod_crops *crops = context;
    drawn d;
    COD_TRY(choose(crops, index, place, &d));
    copy_crop(crops->unit, d.low, walk_of(d.low_width, d.low_left, d.low_top, crops->patch, d.turn, d.order),
              crops->patch, RGB, input);
    copy_truth(crops, &d, target);
    drawn_clear(&d);
    return COD_OK;
}

/** copy_crop() mirrors before it transposes; cod_turn transposes first, so that the mirrors change places. */
static int32_t turn_of(uint32_t turn)
{
    const bool transpose = turn & TRANSPOSED;
    const bool across = turn & (transpose ? MIRRORED_Y : MIRRORED_X),
               down = turn & (transpose ? MIRRORED_X : MIRRORED_Y);
    return (transpose ? COD_TURN_TRANSPOSE : 0) | (across ? COD_TURN_MIRROR_X : 0) | (down ? COD_TURN_MIRROR_Y : 0);
}

static cod_status draw_bytes(const void *context, size_t index, const cod_sample_place *place, uint8_t *input,
                             void *target, int32_t *turn)
{
    const cod_crops *crops = context;
    const int64_t patch = crops->patch, scale = cod_dataset_scale(crops->dataset);
    drawn d;
    COD_TRY(choose(crops, index, place, &d));
    copy_bytes(d.low, walk_of(d.low_width, d.low_left, d.low_top, patch, 0, d.order), patch, input);
    if (crops->truth == COD_TRUTH_PLAIN)
        copy_bytes(d.pair.high,
                   walk_of(d.pair.low_width * scale, d.left * scale, d.top * scale, patch * scale, 0, d.order),
                   patch * scale, target);
    else
        copy_truth(crops, &d, target);
    *turn = turn_of(d.turn);
    drawn_clear(&d);
    return COD_OK;
}

void cod_crops_init(cod_crops *crops, const cod_dataset *dataset, int64_t patch, bool augment)
{
    *crops = (cod_crops){.dataset = dataset, .patch = patch, .augment = augment};
    for (int i = 0; i < 256; i++) {
        crops->unit[i] = (float)i / 255;
        for (int c = 0; c < RGB; c++)
            crops->table[i * RGB + c] = crops->unit[i];
    }
}

cod_samples cod_crops_samples(const cod_crops *crops)
{
    const int64_t patch = crops->patch, high = patch * cod_dataset_scale(crops->dataset);
    return (cod_samples){
        .count = cod_dataset_size(crops->dataset, COD_SPLIT_TRAIN),
        .input = {1, patch, patch, 3},
        .target = {1, high, high, cod_truth_channels(crops->truth)},
        .context = crops,
        .draw = draw,
        .draw_bytes = draw_bytes,
        .input_table = crops->table,
        .target_table = crops->truth == COD_TRUTH_PLAIN ? crops->table : NULL,
    };
}
