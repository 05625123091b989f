#include "tiles_internal.h"

infer_axis infer_tiles(int64_t length, int64_t tile, int64_t halo, int64_t multiple)
{
    const int64_t wanted = tile + 2 * halo;
    if (halo < 0 || length <= wanted)
        return (infer_axis){.length = length, .window = length, .tile = length, .count = 1};
    const int64_t fewest = 1 + (length - wanted + tile - 1) / tile;
    const int64_t window = infer_round_up((length + 2 * halo * (fewest - 1) + fewest - 1) / fewest, multiple);
    const int64_t own = window - 2 * halo, count = 1 + (length - window + own - 1) / own;
    return (infer_axis){.length = length, .window = window, .tile = own, .halo = halo, .count = (size_t)count};
}

infer_span infer_tile(const infer_axis *axis, size_t index)
{
    const int64_t at = (int64_t)index * axis->tile, latest = axis->length - axis->window;
    return (infer_span){
        .start = at < latest ? at : latest,
        .first = index == 0 ? 0 : at + axis->halo,
        .last = index + 1 == axis->count ? axis->length : at + axis->tile + axis->halo,
    };
}
