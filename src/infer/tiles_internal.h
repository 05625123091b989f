/**
 * @file
 * How one side of a picture is cut into windows of equal length, which overlap as far as the network sees.
 */
#ifndef COD_INFER_TILES_INTERNAL_H
#define COD_INFER_TILES_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

typedef struct infer_axis {
    int64_t length, window, tile, halo;
    size_t count;
} infer_axis;

/** A window and the part of it whose result is used, in the picture's coordinates. */
typedef struct infer_span {
    int64_t start, first, last;
} infer_span;

static inline int64_t infer_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/**
 * Cuts a side into as few windows as tiles of `tile` pixels allow, and makes these windows as short as they can be.
 *
 * @param length, halo  multiples of `multiple`; the lengths and the starts of windows are then multiples of it, too.
 *                      halo < 0: one window
 * @param multiple      tiles may be longer than `tile` by less than this
 */
infer_axis infer_tiles(int64_t length, int64_t tile, int64_t halo, int64_t multiple);

/**
 * Windows stay within the picture, so that the network sees the picture's border exactly where it does when it runs on
 * the whole picture.
 */
infer_span infer_tile(const infer_axis *axis, size_t index);

#endif
