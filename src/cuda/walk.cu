#include "cuda/walk.cuh"

enum {
    PIXELS_A_THREAD = 4,        /**< reads under way at a time */
    THREADS_A_PROCESSOR = 1024, /**< that are enough to keep memory busy */
    SUM_BLOCKS_A_PROCESSOR = 2,
    SMALL_STEPS = 8 /**< of a processor, each of a block's rows */
};

static bool fits(const cuda_view *view, int width)
{
    return view->data == nullptr || (reinterpret_cast<uintptr_t>(view->data) % 16 == 0 && view->channels % width == 0 &&
                                     view->stride % width == 0);
}

cuda_lanes cuda_lanes_of(const cuda_view *const *views, size_t count, bool mixed)
{
    bool f32 = true, bf16 = true;
    for (size_t i = 0; i < count; i++) {
        if (views[i]->data == nullptr)
            continue;
        f32 = f32 && views[i]->dtype != COD_BF16;
        bf16 = bf16 && views[i]->dtype != COD_F32;
    }
    const cuda_lanes lanes = f32 ? LANES_F32 : bf16 ? LANES_BF16 : mixed ? LANES_MIXED : LANES_ANY;
    for (size_t i = 0; i < count; i++)
        if (!fits(views[i], cuda_lanes_width(lanes)))
            return LANES_ANY;
    return lanes;
}

/** Sees dense views of the same number of elements as rows of them. */
static void flatten(cuda_view *const (&views)[CUDA_WALK_VIEWS])
{
    for (const cuda_view *view : views)
        if (view->data != nullptr && view->stride != view->channels)
            return;
    for (cuda_view *view : views) {
        view->channels = view->count % 8 == 0 ? 8 : view->count % 4 == 0 ? 4 : 1;
        view->stride = view->channels;
        view->pixels = view->count / view->channels;
    }
}

cuda_walk cuda_walk_of(const cod_device *device, cuda_view *const (&views)[CUDA_WALK_VIEWS], cuda_walk_rule rule)
{
    cuda_walk walk = {};
    if (!rule.by_channel)
        flatten(views);
    walk.lanes = cuda_lanes_of(views, CUDA_WALK_VIEWS, rule.mixed);
    for (const cuda_view *view : views) {
        if (view->data == nullptr)
            continue;
        walk.pixels = view->pixels;
        walk.channels = view->channels;
    }
    const bool vectors = walk.lanes != LANES_ANY;
    const int lanes = cuda_lanes_width(walk.lanes);
    /* Sums are finished by one block: the narrower its columns, the fewer it has to add. */
    const int widest = rule.sums ? (vectors ? 8 : 32) : vectors ? 64 : CUDA_THREADS;
    walk.columns = walk.channels / lanes;
    walk.tiles = static_cast<unsigned>(cuda_divide_up(walk.columns, widest));
    const int64_t tiles = walk.tiles;
    walk.width = static_cast<int>(cuda_divide_up(walk.columns, tiles));
    walk.rows = CUDA_THREADS / walk.width;
    const int64_t processors = device->multiprocessors;
    if (rule.sums) {
        /* One block adds the sums of all: a small picture has one block a processor, and so fewer of them. */
        const int64_t steps = cuda_divide_up(walk.pixels, walk.rows) * tiles;
        const int64_t blocks = steps < processors * SMALL_STEPS ? processors : processors * SUM_BLOCKS_A_PROCESSOR;
        walk.share = cuda_divide_up(steps, cuda_divide_up(blocks, tiles) * tiles) * walk.rows;
    } else {
        const int64_t most = PIXELS_A_THREAD;
        const int64_t spare = walk.pixels * walk.columns / (processors * THREADS_A_PROCESSOR);
        walk.share = walk.rows * (spare < 1 ? 1 : spare < most ? spare : most);
    }
    walk.blocks = static_cast<unsigned>(cuda_divide_up(walk.pixels, walk.share));
    return walk;
}
