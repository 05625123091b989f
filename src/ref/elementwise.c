#include "ref/ref_internal.h"

cod_status ref_add(const ref_args *args)
{
    const double *a = args->in[0], *b = args->in[1], alpha = args->attr->alpha, beta = args->attr->beta;
    const int64_t count = cod_shape_count(args->in_shape[0]);
    for (int64_t i = 0; i < count; i++)
        args->out[0][i] = alpha * a[i] + (b ? beta * b[i] : 0);
    return COD_OK;
}

cod_status ref_mean(const ref_args *args)
{
    const int64_t count = cod_shape_count(args->in_shape[0]), channels = args->in_shape[0].c;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = c; i < count; i += channels)
            sum += args->in[0][i];
        for (int64_t i = c; i < count; i += channels)
            args->out[0][i] = sum / (double)(count / channels);
    }
    return COD_OK;
}

cod_status ref_fill(const ref_args *args)
{
    const int64_t count = cod_shape_count(args->out_shape[0]);
    for (int64_t i = 0; i < count; i++)
        args->out[0][i] = args->attr->alpha;
    return COD_OK;
}

/**
 * Index, in the small tensor (r times smaller, r² times the channels), of element (y, x, c) of image n of the large
 * one.
 */
static int64_t shuffled(cod_shape large, int64_t r, int64_t n, int64_t y, int64_t x, int64_t c)
{
    const int64_t pixel = (n * (large.h / r) + y / r) * (large.w / r) + x / r;
    return pixel * large.c * r * r + c * r * r + y % r * r + x % r;
}

void ref_shuffle(cod_shape large, int64_t r, const double *source, double *target, bool enlarge)
{
    int64_t at = 0;
    for (int64_t n = 0; n < large.n; n++)
        for (int64_t y = 0; y < large.h; y++)
            for (int64_t x = 0; x < large.w; x++)
                for (int64_t c = 0; c < large.c; c++, at++) {
                    const int64_t small = shuffled(large, r, n, y, x, c);
                    target[enlarge ? at : small] = source[enlarge ? small : at];
                }
}

cod_status ref_pixel_shuffle(const ref_args *args)
{
    ref_shuffle(args->out_shape[0], args->attr->factor, args->in[0], args->out[0], true);
    return COD_OK;
}

cod_status ref_pixel_unshuffle(const ref_args *args)
{
    ref_shuffle(args->in_shape[0], args->attr->factor, args->in[0], args->out[0], false);
    return COD_OK;
}

/** Index, from the picture's first pixel, of the pixel that is at (x, y) after the turn. */
static int64_t unturned(unsigned turn, cod_shape shape, int64_t x, int64_t y)
{
    const int64_t column = turn & COD_TURN_MIRROR_X ? shape.w - 1 - x : x,
                  row = turn & COD_TURN_MIRROR_Y ? shape.h - 1 - y : y;
    return turn & COD_TURN_TRANSPOSE && shape.h == shape.w ? column * shape.w + row : row * shape.w + column;
}

cod_status ref_turn(const ref_args *args)
{
    const cod_shape shape = args->in_shape[0];
    const double *table = args->in[2];
    double *out = args->out[0];
    for (int64_t n = 0; n < shape.n; n++) {
        const unsigned turn = (unsigned)(int32_t)args->in[1][n];
        for (int64_t y = 0; y < shape.h; y++)
            for (int64_t x = 0; x < shape.w; x++) {
                const int64_t pixel = n * shape.h * shape.w + unturned(turn, shape, x, y);
                const double *in = args->in[0] + pixel * shape.c;
                for (int64_t c = 0; c < shape.c; c++) {
                    const double value = table != NULL ? table[(int64_t)in[c] * shape.c + c] : in[c];
                    *out++ = turn & COD_TURN_INVERT ? 1 - value : value;
                }
            }
    }
    return COD_OK;
}
