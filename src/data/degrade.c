#include "data/degrade.h"

#include "data/degrade_internal.h"
#include "data/scratch_pool_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/**
 * Purposes of random numbers in a degradation. Each has its own stream, so that more numbers of one do not change
 * another.
 */
enum { ITEM_CHOICES, ITEM_NOISE, ITEM_SECOND_NOISE };

/** Memory of one picture on its way. */
typedef struct cod_degrade_room {
    cod_scratch base;
    cod_floats now, then; /**< an operation reads the one and writes the other */
    cod_grown scratch, result;
    cod_jpeg_cycle jpeg;
} room;

struct cod_degrader {
    const cod_degrade_options *options;
    int scale;
    cod_poisson *poisson;
    cod_scratch_pool pool;
};

static cod_rng open_stream(const cod_sample_place *place, uint32_t item)
{
    return cod_rng_open(place->seed, place->group, 0, place->position, COD_RNG_DEGRADE, item);
}

static double between(cod_rng *rng, double least, double most)
{
    return least + (most - least) * cod_rng_uniform(rng);
}

static double in_range(cod_rng *rng, const cod_float_list *range)
{
    return between(rng, range->items[0], range->items[1]);
}

static bool happens(cod_rng *rng, double probability)
{
    return cod_rng_uniform(rng) < probability;
}

/** An index, as often as its share says. */
static size_t choose(cod_rng *rng, const cod_float_list *shares)
{
    double sum = 0;
    for (size_t i = 0; i < shares->count; i++)
        sum += shares->items[i];
    double left = sum * cod_rng_uniform(rng);
    size_t last = 0;
    for (size_t i = 0; i < shares->count; i++) {
        if (shares->items[i] <= 0)
            continue;
        if (left < shares->items[i])
            return i;
        left -= shares->items[i];
        last = i;
    }
    return last; /* rounding */
}

static int draw_side(cod_rng *rng, int64_t most)
{
    return COD_BLUR_MIN_SIDE + 2 * (int)cod_rng_below(rng, (uint32_t)(most - COD_BLUR_MIN_SIDE) / 2 + 1);
}

static cod_blur_family find_family(const char *name)
{
    cod_blur_family family = COD_BLUR_ISO;
    while (family + 1 < COD_BLUR_SINC && strcmp(name, cod_blur_family_names[family]) != 0)
        family++;
    return family;
}

static void draw_blur(cod_rng *rng, const cod_degrade_pass_options *o, cod_blur *out)
{
    *out = (cod_blur){.family = COD_BLUR_SINC, .side = draw_side(rng, o->blur_kernel_size)};
    if (happens(rng, o->sinc_prob)) {
        out->cutoff = between(rng, out->side < 13 ? pi / 3 : pi / 5, pi);
        return;
    }
    out->family = find_family(o->kernel_list.items[choose(rng, &o->kernel_prob)]);
    const bool plateau = out->family == COD_BLUR_PLATEAU_ISO || out->family == COD_BLUR_PLATEAU_ANISO;
    const cod_float_list *beta = plateau ? &o->betap_range : &o->betag_range;
    out->sigma_x = in_range(rng, &o->blur_sigma);
    out->sigma_y = in_range(rng, &o->blur_sigma);
    out->theta = between(rng, -pi, pi);
    out->beta = happens(rng, 0.5) ? between(rng, beta->items[0], 1) : between(rng, 1, beta->items[1]);
}

static double draw_factor(cod_rng *rng, const cod_degrade_pass_options *o)
{
    enum { UP, DOWN };
    const size_t direction = choose(rng, &o->resize_prob);
    if (direction == UP)
        return between(rng, 1, o->resize_range.items[1]);
    return direction == DOWN ? between(rng, o->resize_range.items[0], 1) : 1;
}

static void draw_pass(cod_rng *rng, const cod_degrade_pass_options *o, double blur_probability,
                      cod_degradation_pass *out)
{
    const int64_t *quality = o->jpeg_range.items;
    out->blurs = happens(rng, blur_probability);
    draw_blur(rng, o, &out->blur);
    out->factor = draw_factor(rng, o);
    out->mode = (int)cod_rng_below(rng, COD_INTERPOLATIONS);
    out->poisson = !happens(rng, o->gaussian_noise_prob);
    out->noise = in_range(rng, out->poisson ? &o->poisson_scale_range : &o->noise_range);
    out->gray = happens(rng, o->gray_noise_prob);
    out->quality = (int)quality[0] + (int)cod_rng_below(rng, (uint32_t)(quality[1] - quality[0]) + 1);
}

void cod_degradation_draw(const cod_degrade_options *o, const cod_sample_place *place, cod_degradation *out)
{
    cod_rng rng = open_stream(place, ITEM_CHOICES);
    *out = (cod_degradation){.count = (int)o->order};
    draw_pass(&rng, &o->passes[0], 1, &out->passes[0]);
    if (out->count > 1)
        draw_pass(&rng, &o->passes[1], o->second_blur_prob, &out->passes[1]);
    out->mode = (int)cod_rng_below(&rng, COD_INTERPOLATIONS);
    out->sinc = happens(&rng, o->final_sinc_prob);
    out->final = (cod_blur){.family = COD_BLUR_SINC, .side = draw_side(&rng, COD_BLUR_MAX_SIDE)};
    out->final.cutoff = between(&rng, pi / 3, pi);
    out->jpeg_last = happens(&rng, 0.5) && out->count > 1;
}

static const char *const mode_names[] = {"area", "bilinear", "bicubic"};

static size_t describe_blur(const cod_blur *blur, char *text, size_t bytes)
{
    size_t used =
        (size_t)snprintf(text, bytes, "%s %dx%d", cod_blur_family_names[blur->family], blur->side, blur->side);
    if (blur->family == COD_BLUR_SINC)
        return used + (size_t)snprintf(text + used, bytes - used, " cutoff %.2f", blur->cutoff);
    used += (size_t)snprintf(text + used, bytes - used, " sigma %.2f", blur->sigma_x);
    if (cod_blur_is_anisotropic(blur->family))
        used += (size_t)snprintf(text + used, bytes - used, " and %.2f at %.0f degrees", blur->sigma_y,
                                 blur->theta * 180 / pi);
    if (blur->family != COD_BLUR_ISO && blur->family != COD_BLUR_ANISO)
        used += (size_t)snprintf(text + used, bytes - used, " beta %.2f", blur->beta);
    return used;
}

static size_t describe_pass(const cod_degradation_pass *pass, bool second, char *text, size_t bytes)
{
    size_t used = 0;
    if (pass->blurs) {
        used += (size_t)snprintf(text, bytes, "blur ");
        used += describe_blur(&pass->blur, text + used, bytes - used);
        used += (size_t)snprintf(text + used, bytes - used, ", ");
    }
    if (pass->factor != 1 || second)
        used += (size_t)snprintf(text + used, bytes - used, "resize %.2f %s, ", pass->factor, mode_names[pass->mode]);
    return used + (size_t)snprintf(text + used, bytes - used, "%s %s noise %.2f", pass->gray ? "gray" : "colour",
                                   pass->poisson ? "Poisson" : "Gaussian", pass->noise);
}

void cod_degradation_describe(const cod_degradation *d, char text[COD_DEGRADATION_TEXT_BYTES])
{
    const size_t bytes = COD_DEGRADATION_TEXT_BYTES; /* more than twice the longest */
    char ends[2][128];
    const cod_degradation_pass *last = &d->passes[d->count - 1];
    size_t used = describe_pass(&d->passes[0], false, text, bytes);
    if (d->count > 1) {
        used += (size_t)snprintf(text + used, bytes - used, ", JPEG %d; ", d->passes[0].quality);
        used += describe_pass(last, true, text + used, bytes - used);
    }
    size_t length = (size_t)snprintf(ends[0], sizeof ends[0], "to 1/scale %s", mode_names[d->mode]);
    if (d->sinc) {
        length += (size_t)snprintf(ends[0] + length, sizeof ends[0] - length, ", ");
        describe_blur(&d->final, ends[0] + length, sizeof ends[0] - length);
    }
    snprintf(ends[1], sizeof ends[1], "JPEG %d", last->quality);
    snprintf(text + used, bytes - used, "; %s; %s", ends[!d->jpeg_last], ends[d->jpeg_last]);
}

static void clear_room(void *memory)
{
    room *r = memory;
    cod_grown_clear(&r->now.room);
    cod_grown_clear(&r->then.room);
    cod_grown_clear(&r->scratch);
    cod_grown_clear(&r->result);
    cod_jpeg_cycle_clear(&r->jpeg);
}

static size_t bytes_of_room(const void *memory)
{
    const room *r = memory;
    return r->now.room.bytes + r->then.room.bytes + r->scratch.bytes + r->result.bytes + r->jpeg.pixels.bytes +
           r->jpeg.file.bytes;
}

cod_status cod_degrader_create(const cod_degrade_options *options, int scale, cod_degrader **out)
{
    *out = NULL;
    COD_TRY(cod_degrade_options_check(options));
    COD_REQUIRE(scale >= 1, "no degradation for scale %d", scale);
    cod_degrader *degrader = calloc(1, sizeof *degrader);
    COD_REQUIRE_MEMORY(degrader);
    degrader->options = options;
    degrader->scale = scale;
    cod_scratch_pool_init(&degrader->pool, sizeof(room), clear_room);
    const cod_status status = cod_poisson_create(&degrader->poisson);
    if (status != COD_OK) {
        cod_degrader_destroy(degrader);
        return status;
    }
    *out = degrader;
    return COD_OK;
}

void cod_degrader_trim(cod_degrader *degrader)
{
    cod_scratch_pool_trim(&degrader->pool);
}

size_t cod_degrader_kept_bytes(cod_degrader *degrader)
{
    return cod_scratch_pool_idle_bytes(&degrader->pool, bytes_of_room);
}

void cod_degrader_destroy(cod_degrader *degrader)
{
    if (degrader == NULL)
        return;
    cod_scratch_pool_clear(&degrader->pool);
    cod_poisson_destroy(degrader->poisson);
    free(degrader);
}

const cod_degrade_options *cod_degrader_options(const cod_degrader *degrader)
{
    return degrader->options;
}

static void exchange(room *r)
{
    const cod_floats kept = r->now;
    r->now = r->then;
    r->then = kept;
}

/** The part as floats. */
static cod_status take(const cod_degrade_region *region, int scale, cod_floats *out)
{
    COD_TRY(cod_floats_resize(out, region->low_width * scale, region->low_height * scale));
    if (region->pixels != NULL) {
        memcpy(out->pixels, region->pixels, (size_t)cod_floats_count(out) * sizeof(float));
        return COD_OK;
    }
    const bool inside = region->left >= 0 && region->left + out->width <= region->picture_width;
    float *to = out->pixels;
    for (int64_t y = 0; y < out->height; y++) {
        const int64_t from_y = cod_mirror(region->top + y, region->picture_height);
        const uint8_t *row = region->picture + from_y * region->picture_width * COD_RGB;
        if (inside)
            row += region->left * COD_RGB;
        for (int64_t i = 0; inside && i < out->width * COD_RGB; i++)
            *to++ = row[i];
        for (int64_t x = 0; !inside && x < out->width; x++)
            for (int c = 0; c < COD_RGB; c++)
                *to++ = row[cod_mirror(region->left + x, region->picture_width) * COD_RGB + c];
    }
    return COD_OK;
}

static cod_status blur(room *r, const cod_blur *how)
{
    cod_blur_kernel kernel;
    cod_blur_kernel_init(&kernel, how);
    COD_TRY(cod_blur_apply(&r->now, &kernel, &r->scratch, &r->then));
    exchange(r);
    return COD_OK;
}

static cod_status resize(room *r, int mode, int64_t width, int64_t height)
{
    width = width < 1 ? 1 : width;
    height = height < 1 ? 1 : height;
    if (width == r->now.width && height == r->now.height)
        return COD_OK; /* each mode would give what is there */
    COD_TRY(cod_interpolate(&r->now, (cod_interpolation)mode, width, height, &r->scratch, &r->then));
    exchange(r);
    return COD_OK;
}

/** A pass until its JPEG. @param width, height  of what its factor relates to */
static cod_status run_pass(const cod_degrader *degrader, room *r, const cod_degradation_pass *pass, int64_t width,
                           int64_t height, cod_rng noise)
{
    if (pass->blurs)
        COD_TRY(blur(r, &pass->blur));
    COD_TRY(resize(r, pass->mode, (int64_t)((double)width * pass->factor), (int64_t)((double)height * pass->factor)));
    if (pass->poisson)
        cod_add_poisson(degrader->poisson, &r->now, pass->noise, pass->gray, &noise);
    else
        cod_add_gaussian(&r->now, pass->noise, pass->gray, &noise);
    return COD_OK;
}

static cod_status run(const cod_degrader *degrader, const cod_degradation *d, const cod_sample_place *place,
                      const cod_degrade_region *region, room *r)
{
    const cod_degradation_pass *last = &d->passes[d->count - 1];
    COD_TRY(take(region, degrader->scale, &r->now));
    COD_TRY(run_pass(degrader, r, &d->passes[0], r->now.width, r->now.height, open_stream(place, ITEM_NOISE)));
    if (d->count > 1) {
        COD_TRY(cod_jpeg_apply(&r->jpeg, &r->now, d->passes[0].quality));
        COD_TRY(
            run_pass(degrader, r, last, region->low_width, region->low_height, open_stream(place, ITEM_SECOND_NOISE)));
    }
    if (!d->jpeg_last)
        COD_TRY(cod_jpeg_apply(&r->jpeg, &r->now, last->quality));
    COD_TRY(resize(r, d->mode, region->low_width, region->low_height));
    if (d->sinc)
        COD_TRY(blur(r, &d->final));
    if (d->jpeg_last)
        COD_TRY(cod_jpeg_apply(&r->jpeg, &r->now, last->quality));
    COD_TRY(cod_grow(&r->result, (size_t)cod_floats_count(&r->now)));
    cod_floats_to_bytes(&r->now, r->result.memory);
    return COD_OK;
}

cod_status cod_degrade(cod_degrader *degrader, const cod_degradation *degradation, const cod_sample_place *place,
                       const cod_degrade_region *region, cod_degraded *out)
{
    *out = (cod_degraded){0};
    COD_REQUIRE(region->picture_width > 0 && region->picture_height > 0 && region->low_width > 0 &&
                    region->low_height > 0,
                "cannot degrade %lldx%lld pixels of a picture of %lldx%lld", (long long)region->low_width,
                (long long)region->low_height, (long long)region->picture_width, (long long)region->picture_height);
    room *r = cod_scratch_pool_take(&degrader->pool);
    COD_REQUIRE_MEMORY(r);
    const cod_status status = run(degrader, degradation, place, region, r);
    if (status != COD_OK) {
        cod_scratch_pool_give_back(&degrader->pool, r);
        return status;
    }
    *out = (cod_degraded){
        .pixels = r->result.memory, .width = r->now.width, .height = r->now.height, .degrader = degrader, .room = r};
    return COD_OK;
}

void cod_degraded_clear(cod_degraded *degraded)
{
    if (degraded->room != NULL)
        cod_scratch_pool_give_back(&degraded->degrader->pool, degraded->room);
    *degraded = (cod_degraded){0};
}
