/* Plans of 3x3 convolutions (conv3.cuh): which kernel, which tiles. */
#include "cuda/conv3_plan.cuh"

#include <climits>

enum {
    MORE_WIDTHS = 32,     /**< of tiles that are tried, beyond the widest */
    MORE_HEIGHTS = 3,     /**< the same for each width, beyond the highest */
    WGMMA_CAPABILITY = 90 /**< the only one */
};

bool conv3_fits_tensor(const cod_view *view)
{
    const cod_shape shape = view->shape;
    return view->buffer != nullptr && view->dtype == COD_BF16 && cod_view_is_dense(view) && shape.c % 16 == 0 &&
           shape.c <= CONV3_MOST_CHANNELS && shape.w <= CONV3_MOST_WIDTH && shape.n * shape.h * shape.w <= INT_MAX / 2;
}

void conv3_describe_shapes(const cod_view *x, int64_t outputs, conv3_work *work)
{
    const cod_shape from = x->shape;
    work->images = static_cast<int>(from.n);
    work->h = static_cast<int>(from.h);
    work->w = static_cast<int>(from.w);
    work->channels = static_cast<int>(from.c);
    work->outputs = static_cast<int>(outputs);
    work->pitch = work->channels * 2 + 16; /* an odd number of 16 bytes: eight neighbours lie in all banks */
}

static conv3_places places_of(const conv3_work *work, conv3_store_kind store, const conv3_kernel *kernel, int groups)
{
    conv3_places places = {};
    const int warps = groups * kernel->warps_m, sums = conv3_sums_of(store);
    places.tiles = conv3_align(static_cast<int64_t>(kernel->columns) * work->weight_pitch);
    places.tile_bytes = conv3_align(static_cast<int64_t>(work->tile_h + 2) * (work->tile_w + 2) * work->pitch);
    places.load_vectors = places.tiles + groups * places.tile_bytes;
    places.store_vectors = places.load_vectors + conv3_align(CONV3_VECTORS * work->channels * 4);
    places.sums = places.store_vectors + conv3_align(CONV3_VECTORS * kernel->columns * 4);
    places.counts = places.sums + conv3_align(warps * sums * kernel->columns * 4);
    places.pixels = places.counts + conv3_align(warps * 4);
    places.end = places.pixels + conv3_align(kernel->rows * 4);
    if (sums == 0)
        return places;
    /* What the last block adds up takes the place of the rest. */
    const int finish = groups * kernel->threads * 8 * 4 + sums * CONV3_MOST_CHANNELS * 4;
    if (places.end < finish)
        places.end = conv3_align(finish);
    return places;
}

int conv3_blocks(const cod_device *device, const conv3_work *work, const conv3_kernel *kernel)
{
    const int column_tiles = work->outputs / kernel->columns, most = device->multiprocessors / column_tiles;
    return work->tiles < most ? work->tiles : most < 1 ? 1 : most;
}

/**
 * Whether a block of the next launch fits a multiprocessor beside one of this launch, which has finished its products:
 * then its weights come while the rest of this launch runs. A multiprocessor has 1 KB more than a block may ask for,
 * and keeps 1 KB for each block (CUDA C++ Programming Guide, technical specifications).
 */
static bool leaves_room(const cod_device *device, const conv3_work *work)
{
    enum { KEPT = 1024 };
    return 2 * (static_cast<size_t>(work->places.end) + KEPT) <= device->shared_bytes + KEPT;
}

/**
 * About how many clock cycles a multiprocessor needs: products at the rate that mma.sync was measured at on an H100,
 * and what is loaded and stored at 16 bytes a cycle, half of which another group's products hide. Eight pixels of two
 * rows lie in fewer banks than eight of one row, where the tile's width is no multiple of eight.
 */
static double cost_of(const cod_device *device, const conv3_work *work, const conv3_kernel *kernel, int groups)
{
    const int each = cuda_divide_up(work->tiles, conv3_blocks(device, work, kernel));
    const double weights = leaves_room(device, work) ? 0 : 18.0 * work->channels * kernel->columns;
    const double products = 9.0 * work->channels * kernel->rows * kernel->columns / (1200 * kernel->speed);
    const double bytes = 2.0 * work->channels * (work->tile_h + 2) * (work->tile_w + 2) +
                         2.0 * kernel->columns * work->tile_h * work->tile_w;
    const double banks = work->tile_w % 8 == 0 ? 1 : 1.15;
    return each * (products * banks + bytes / 16 * (groups > 1 && each > 1 ? 0.5 : 1)) + weights / 16;
}

/**
 * Sets the tile's size, which `across` tiles in a row of the image have. `more`: tiles in a column of it beside those
 * that would do, so that a small batch has more blocks with less to load each.
 *
 * @return false where the kernel has none such
 */
static bool set_tile(conv3_work *work, const conv3_kernel *kernel, int across, int more)
{
    work->tile_w = cuda_divide_up(work->w, across);
    const int most = kernel->rows / work->tile_w;
    if (most < 1)
        return false;
    work->tile_h = cuda_divide_up(work->h, cuda_divide_up(work->h, most) + more);
    work->tiles_down = cuda_divide_up(work->h, work->tile_h);
    work->tiles_across = cuda_divide_up(work->w, work->tile_w);
    const int64_t tiles = static_cast<int64_t>(work->images) * work->tiles_down * work->tiles_across;
    work->tiles = static_cast<int>(tiles);
    return tiles < INT_MAX / 2;
}

/** The tiles of one kernel, where they are better than what was chosen before. */
static void try_kernel(const cod_device *device, const conv3_kernel *kernel, conv3_choice *best)
{
    conv3_work work = best->work;
    if (work.outputs % kernel->columns != 0 || (kernel->channels > 0 && kernel->channels != work.channels))
        return;
    work.weight_pitch = work.channels * 18 + (kernel->wgmma ? 0 : 16); /* the latter as `pitch` */
    const int widest = cuda_divide_up(work.w, kernel->rows), most_groups = kernel->most_groups[best->store];
    for (int i = 0; i < MORE_WIDTHS * MORE_HEIGHTS; i++) {
        const int across = widest + i / MORE_HEIGHTS;
        if (across > work.w || !set_tile(&work, kernel, across, i % MORE_HEIGHTS))
            continue;
        const int each = cuda_divide_up(work.tiles, conv3_blocks(device, &work, kernel));
        for (int groups = each < most_groups ? each : most_groups; groups > 0; groups--) {
            work.places = places_of(&work, best->store, kernel, groups);
            if (static_cast<size_t>(work.places.end) > device->shared_bytes)
                continue;
            const double cost = cost_of(device, &work, kernel, groups);
            if (best->cost == 0 || cost < best->cost)
                *best = {work, best->store, *kernel, groups, cost};
            break;
        }
    }
}

static void try_kernels(const cod_device *device, const conv3_kernel *kernels, conv3_choice *best)
{
    for (const conv3_kernel *kernel = kernels; kernel->rows > 0; kernel++)
        try_kernel(device, kernel, best);
}

bool conv3_choose(const cod_device *device, conv3_by by, conv3_choice *best)
{
    if (by != CONV3_BY_WGMMA) {
        try_kernels(device, conv3_kernels_of_64(), best);
        try_kernels(device, conv3_kernels_of_any(), best);
    }
    if (by != CONV3_BY_MMA && device->capability == WGMMA_CAPABILITY)
        try_kernels(device, conv3_kernels_of_wgmma(), best);
    return best->cost > 0;
}
