#include "data/source_internal.h"

#include "core/rng.h"

#include <math.h>

enum { SHAPES = 20 };

/** A disc or a turned rectangle, filled with one colour or with stripes of two. */
typedef struct shape {
    float x, y, cosine, sine; /**< centre and direction */
    float across, along;      /**< half sides; a disc has across = along = radius */
    float wave;               /**< radians a pixel of the stripes, 0 = plain */
    bool disc;
    float colours[2][3];
} shape;

static float uniform(cod_rng *rng, double low, double high)
{
    return (float)(low + (high - low) * cod_rng_uniform(rng));
}

static shape draw_shape(cod_rng *rng, int64_t side)
{
    const double size = (double)side, angle = 6.283185307179586 * cod_rng_uniform(rng);
    shape s = {.x = uniform(rng, 0, size),
               .y = uniform(rng, 0, size),
               .cosine = (float)cos(angle),
               .sine = (float)sin(angle),
               .across = uniform(rng, 2, size / 4),
               .along = uniform(rng, 2, size / 4),
               .wave = uniform(rng, 0.2, 1.2),
               .disc = cod_rng_below(rng, 2) == 0};
    if (cod_rng_below(rng, 2) == 0)
        s.wave = 0;
    if (s.disc)
        s.along = s.across;
    for (int i = 0; i < 6; i++)
        s.colours[i / 3][i % 3] = uniform(rng, 0, 255);
    return s;
}

/** Part of the pixel that the shape covers: its edge is one pixel soft, as a camera's is. */
static float coverage(const shape *s, float along, float across)
{
    const float inside = s->disc ? s->across - sqrtf(along * along + across * across)
                                 : fminf(s->along - fabsf(along), s->across - fabsf(across));
    return fminf(fmaxf(inside + 0.5f, 0), 1);
}

void cod_synthetic_draw(size_t index, int64_t side, uint8_t *pixels)
{
    cod_rng rng = cod_rng_open(0, 0, 0, index, COD_RNG_PICTURE, 0);
    shape shapes[SHAPES], ground = draw_shape(&rng, side);
    for (int i = 0; i < SHAPES; i++)
        shapes[i] = draw_shape(&rng, side);
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++, pixels += 3) {
            const float u = (float)x, v = (float)y;
            const float slope = (u * fabsf(ground.cosine) + v * fabsf(ground.sine)) / (1.5f * (float)side);
            float colour[3];
            for (int c = 0; c < 3; c++)
                colour[c] = ground.colours[0][c] + slope * (ground.colours[1][c] - ground.colours[0][c]);
            for (int i = 0; i < SHAPES; i++) {
                const shape *s = &shapes[i];
                const float dx = u - s->x, dy = v - s->y;
                const float along = dx * s->cosine + dy * s->sine, across = dy * s->cosine - dx * s->sine;
                const float part = coverage(s, along, across);
                if (part == 0)
                    continue;
                const float mix = s->wave > 0 ? 0.5f + 0.5f * sinf(s->wave * along) : 0;
                for (int c = 0; c < 3; c++) {
                    const float paint = s->colours[0][c] + mix * (s->colours[1][c] - s->colours[0][c]);
                    colour[c] += part * (paint - colour[c]);
                }
            }
            for (int c = 0; c < 3; c++)
                pixels[c] = (uint8_t)lrintf(colour[c]);
        }
}
