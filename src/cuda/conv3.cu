/* Plans of 3x3 convolutions with normalisations around them: which ops, which kernel, which tiles. */
#include "cuda/conv3.cuh"
#include "cuda/pack.cuh"
#include "cuda/tuner.cuh"

extern "C" {
#include "core/fused.h"
}

#include <climits>
#include <cstdio>

enum {
    MOST_CHANNELS = 128,
    MOST_WIDTH = 1 << 15, /**< so that places within a tile's rows are ints */
    MORE_WIDTHS = 32,     /**< of tiles that are tried, beyond the widest */
    MORE_HEIGHTS = 3,     /**< the same for each width, beyond the highest */
    TICKET_BYTES = 128,
    WGMMA_CAPABILITY = 90, /**< the only one */
    PACK_PIECE = 8
};

/** The ops of a sequence; NULL = absent. */
struct conv3_ops {
    const cod_op *apply, *conv, *reduce;
};

struct conv3_state {
    conv3_work work;
    conv3_store_kind store;
    conv3_kernel kernel;
    dim3 blocks;
    unsigned threads;
    size_t shared_bytes;
};

/** What is packed: of the weights of `columns` outputs of the kernel, in rows `pitch` bytes apart. */
struct conv3_packing {
    const float *w;
    int64_t w_stride;
    unsigned char *packed;
    int channels, columns, pitch;
    int together; /**< columns whose pieces of eight channels lie side by side: 1, or those of a product */
    bool backward;
};

/* Which ops. */

/** Whether a kernel can read or write the whole tensor by 16 bytes. */
static bool fits_tensor(const cod_view *view)
{
    const cod_shape shape = view->shape;
    return view->buffer != nullptr && view->dtype == COD_BF16 && cod_view_is_dense(view) && shape.c % 16 == 0 &&
           shape.c <= MOST_CHANNELS && shape.w <= MOST_WIDTH && shape.n * shape.h * shape.w <= INT_MAX / 2;
}

/** Those that are linear on either side of zero; a gradient's side must be known from z alone. */
static bool fits_activation(const cod_op_attr *attr)
{
    return attr->activation == COD_ACT_NONE || attr->activation == COD_ACT_RELU || attr->activation == COD_ACT_PRELU ||
           (attr->activation == COD_ACT_LEAKY_RELU && attr->leak >= 0);
}

static bool fits_conv(const cod_op *op)
{
    const bool backward = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_op_attr *attr = &op->attr;
    const cod_shape w = op->inputs[1].shape;
    if (op->kind != COD_OP_CONV2D && !backward)
        return false;
    if (w.h != 3 || w.w != 3 || attr->stride_h != 1 || attr->stride_w != 1 || attr->pad_h != 1 || attr->pad_w != 1 ||
        cod_op_shuffle(attr) > 1 || op->inputs[1].dtype != COD_F32)
        return false;
    if (!backward && (attr->activation != COD_ACT_NONE || attr->int8_range > 0 || op->inputs[4].buffer != nullptr))
        return false;
    return fits_tensor(&op->inputs[0]) && fits_tensor(&op->outputs[0]) &&
           !cod_view_equal(&op->inputs[0], &op->outputs[0]);
}

/**
 * A normalisation, or its gradient, whose output the convolution reads. Neighbours' pixels are read, so nothing is in
 * place.
 */
static bool fits_apply(const cod_op *op, const cod_op *conv)
{
    const bool backward = conv->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_view *y = &op->outputs[0], *second = &op->inputs[backward ? 1 : 6];
    if ((backward && op->accumulate) || !fits_tensor(&op->inputs[0]) || cod_view_equal(y, &op->inputs[0]))
        return false;
    if (second->buffer != nullptr && (!fits_tensor(second) || cod_view_equal(y, second)))
        return false;
    return backward || fits_activation(&op->attr);
}

/** What is summed over the convolution's output. */
static bool fits_reduce(const cod_op *op, const cod_op *conv)
{
    const cod_view *y = &conv->outputs[0];
    if (conv->kind == COD_OP_CONV2D)
        return op->kind == COD_OP_NORM_STATISTICS;
    const cod_view *x = &op->inputs[0], *g = &op->outputs[0];
    return op->kind == COD_OP_NORM_BACKWARD_REDUCE && fits_tensor(x) && !cod_view_equal(x, y) &&
           (g->buffer == nullptr || (fits_tensor(g) && !cod_view_equal(g, x))) && fits_activation(&op->attr);
}

/** The longest sequence from the first op on that kernels may know. @return its ops; below 2 = none */
static size_t read_ops(const cod_op *ops, size_t count, conv3_ops *out)
{
    const cod_fused found = cod_fused_sequence(ops, count);
    *out = {found.before, found.product, found.after};
    if (found.count < 2 || !fits_conv(out->conv) || (out->apply != nullptr && !fits_apply(out->apply, out->conv)))
        return 0;
    if (out->reduce != nullptr && !fits_reduce(out->reduce, out->conv)) {
        out->reduce = nullptr;
        return found.count - 1;
    }
    return found.count;
}

static conv3_store_kind store_kind_of(const conv3_ops *ops)
{
    if (ops->reduce == nullptr)
        return CONV3_STORE;
    return ops->reduce->kind == COD_OP_NORM_STATISTICS ? CONV3_STATISTICS : CONV3_REDUCE;
}

/* Which kernel, which tiles. */

static int align(int64_t bytes)
{
    return static_cast<int>(cuda_divide_up(bytes, 128)) * 128;
}

/** Shapes of images and channels, of the first of the ops. */
static void describe_shapes(const conv3_ops *ops, conv3_work *work)
{
    const cod_shape from = ops->conv->inputs[0].shape;
    work->images = static_cast<int>(from.n);
    work->h = static_cast<int>(from.h);
    work->w = static_cast<int>(from.w);
    work->channels = static_cast<int>(from.c);
    work->outputs = static_cast<int>(ops->conv->outputs[0].shape.c);
    work->pitch = work->channels * 2 + 16; /* an odd number of 16 bytes: eight neighbours lie in all banks */
}

static conv3_places places_of(const conv3_work *work, const conv3_kernel *kernel, int groups)
{
    conv3_places places = {};
    const int warps = groups * kernel->warps_m, sums = CONV3_SUMS;
    places.tiles = align(static_cast<int64_t>(kernel->columns) * work->weight_pitch);
    places.tile_bytes = align(static_cast<int64_t>(work->tile_h + 2) * (work->tile_w + 2) * work->pitch);
    places.load_vectors = places.tiles + groups * places.tile_bytes;
    places.store_vectors = places.load_vectors + align(CONV3_VECTORS * work->channels * 4);
    places.sums = places.store_vectors + align(CONV3_VECTORS * kernel->columns * 4);
    places.counts = places.sums + align(warps * sums * kernel->columns * 4);
    places.pixels = places.counts + align(warps * 4);
    places.end = places.pixels + align(kernel->rows * 4);
    /* What the last block adds up takes the place of the rest. */
    const int finish = groups * kernel->threads * 8 * 4 + sums * MOST_CHANNELS * 4;
    if (places.end < finish)
        places.end = align(finish);
    return places;
}

/** Blocks in x: those of all columns together fill the multiprocessors. */
static int blocks_of(const cod_device *device, const conv3_work *work, const conv3_kernel *kernel)
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
    const int each = cuda_divide_up(work->tiles, blocks_of(device, work, kernel));
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

struct conv3_choice {
    conv3_work work;
    conv3_store_kind store;
    conv3_kernel kernel;
    int groups;
    double cost; /**< 0 = there is none */
};

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
        const int each = cuda_divide_up(work.tiles, blocks_of(device, &work, kernel));
        for (int groups = each < most_groups ? each : most_groups; groups > 0; groups--) {
            work.places = places_of(&work, kernel, groups);
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

/** Which kernels are chosen from. */
enum conv3_by { CONV3_BY_ALL, CONV3_BY_MMA, CONV3_BY_WGMMA };

/** By the cost model. @return false where no kernel's weights and tile fit a block's shared memory */
static bool choose(const cod_device *device, const conv3_ops *ops, conv3_by by, conv3_choice *best)
{
    *best = {};
    best->store = store_kind_of(ops);
    describe_shapes(ops, &best->work);
    if (by != CONV3_BY_WGMMA) {
        try_kernels(device, conv3_kernels_of_64(), best);
        try_kernels(device, conv3_kernels_of_any(), best);
    }
    if (by != CONV3_BY_MMA && device->capability == WGMMA_CAPABILITY)
        try_kernels(device, conv3_kernels_of_wgmma(), best);
    return best->cost > 0;
}

size_t cuda_conv3_fuses(const cod_device *device, const cod_op *ops, size_t count)
{
    conv3_ops found;
    conv3_choice choice;
    const size_t used = read_ops(ops, count, &found);
    return used > 1 && choose(device, &found, CONV3_BY_ALL, &choice) ? used : 1;
}

/* Plans. */

/**
 * bf16 {column / together}{tap}{channel / 8}{column % together}{channel % 8}, from w {O,3,3,I}. A gradient goes over dy
 * against the kernel's order.
 */
__global__ void __launch_bounds__(CUDA_THREADS) conv3_pack_kernel(const cuda_pack_list list)
{
    const pack_place<conv3_packing> place = pack_place_of<conv3_packing>(list);
    const conv3_packing p = *place.how;
    const int pieces = 9 * p.channels / PACK_PIECE, item = (int)place.item;
    if (item >= p.columns * pieces)
        return;
    const int column = item / pieces, piece = item - column * pieces, first = piece * PACK_PIECE;
    const int tap = first / p.channels, channel = first - tap * p.channels, output = conv3_channel(column);
    bytes16 value;
#pragma unroll
    for (int i = 0; i < PACK_PIECE / 2; i++) {
        float pair[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int c = channel + 2 * i + k, o = p.backward ? c : output, from = p.backward ? output : c;
            pair[k] = p.w[((int64_t)o * 9 + (p.backward ? 8 - tap : tap)) * p.w_stride + from];
        }
        value.words[i] = bf16_pair(pair[0], pair[1]);
    }
    const int within = column % p.together;
    *reinterpret_cast<bytes16 *>(p.packed + (int64_t)(column - within) * p.pitch + (piece * p.together + within) * 16) =
        value;
}

static cod_status conv3_run(const cod_plan *plan, cudaStream_t stream)
{
    const conv3_state *state = static_cast<const conv3_state *>(plan->state);
    return cuda_launch_chained(plan->device, stream, state->kernel.run[state->store], state->blocks, state->threads,
                               state->shared_bytes, state->work);
}

static unsigned char *bytes_of(const cod_view *view)
{
    return cuda_view_of(view).data;
}

static void describe_load(const conv3_ops *ops, conv3_work *work)
{
    conv3_load *load = &work->load;
    const cod_op *op = ops->apply;
    load->pixels = static_cast<float>(work->images) * static_cast<float>(work->h) * static_cast<float>(work->w);
    if (op == nullptr) {
        load->kind = CONV3_AS_IS;
        load->first = bytes_of(&ops->conv->inputs[0]);
        return;
    }
    const bool backward = op->kind == COD_OP_NORM_BACKWARD_APPLY;
    load->kind = backward ? CONV3_NORMALISE_BACKWARD : CONV3_NORMALISE;
    load->first = bytes_of(&op->inputs[backward ? 1 : 0]);
    load->second = bytes_of(&op->inputs[backward ? 0 : 6]);
    load->kept = bytes_of(&op->outputs[0]);
    load->gamma = cuda_floats_of(&op->inputs[backward ? 2 : 1]);
    load->beta = backward ? nullptr : cuda_floats_of(&op->inputs[2]);
    load->mean = cuda_floats_of(&op->inputs[3]);
    load->inv_std = cuda_floats_of(&op->inputs[4]);
    if (backward)
        load->sums = cuda_floats_of(&op->inputs[5]);
    else
        load->activation = cuda_activation_of(&op->attr, &op->inputs[5]);
}

static void describe_reduce(const cod_op *op, conv3_store *store)
{
    store->x = bytes_of(&op->inputs[0]);
    store->gamma = cuda_floats_of(&op->inputs[2]);
    store->beta = cuda_floats_of(&op->inputs[3]);
    store->mean = cuda_floats_of(&op->inputs[4]);
    store->inv_std = cuda_floats_of(&op->inputs[5]);
    store->activation = cuda_activation_of(&op->attr, &op->inputs[6]);
    store->g = bytes_of(&op->outputs[0]);
    store->sums = cuda_floats_of(&op->outputs[1]);
    store->dgamma = cuda_floats_of(&op->outputs[2]);
    store->dbeta = cuda_floats_of(&op->outputs[3]);
    store->dslope = cuda_floats_of(&op->outputs[4]);
    store->dslope_by_channel = store->dslope != nullptr && cod_shape_count(op->outputs[4].shape) > 1;
    store->accumulate = op->accumulate;
    if (store->g == store->target) /* in place: g alone is written */
        store->target = nullptr;
}

static void describe_store(const conv3_ops *ops, conv3_work *work)
{
    conv3_store *store = &work->store;
    const cod_op *op = ops->reduce;
    store->target = bytes_of(&ops->conv->outputs[0]);
    if (ops->conv->kind == COD_OP_CONV2D)
        store->bias = cuda_floats_of(&ops->conv->inputs[2]);
    else if (ops->conv->accumulate)
        store->before = store->target;
    if (op == nullptr)
        return;
    if (op->kind == COD_OP_NORM_BACKWARD_REDUCE) {
        describe_reduce(op, store);
        return;
    }
    store->statistics = cuda_statistics_of(&op->attr, op->outputs);
}

/** Kernels read and write tensors by 16 bytes. */
static cod_status check_memory(const conv3_work *work)
{
    const unsigned char *const tensors[] = {work->load.first,   work->load.second, work->load.kept,
                                            work->store.target, work->store.x,     work->store.g};
    for (const unsigned char *tensor : tensors)
        COD_REQUIRE(reinterpret_cast<uintptr_t>(tensor) % 16 == 0,
                    "a tensor lies at an address that is no multiple of 16");
    return COD_OK;
}

/** @param how  in the device's memory, of a conv3_packing's size */
static cod_status describe_packing(cod_plan *plan, const cod_op *conv, const conv3_work *work, int together, void *how)
{
    const cod_view *w = &conv->inputs[1];
    const conv3_packing packing = {
        cuda_floats_of(w),  w->pixel_stride, const_cast<unsigned char *>(work->packed), work->channels, work->outputs,
        work->weight_pitch, together,        conv->kind == COD_OP_CONV2D_BACKWARD_DATA};
    const int items = work->outputs * 9 * work->channels / PACK_PIECE;
    plan->packing = {how, conv3_pack_kernel, cuda_item_blocks(items), nullptr, 0};
    return cuda_plan_write(plan, how, &packing, sizeof packing);
}

static cod_status make_by(cod_plan *plan, conv3_by by)
{
    conv3_ops ops;
    conv3_choice choice;
    COD_REQUIRE(read_ops(plan->ops, plan->count, &ops) == plan->count && choose(plan->device, &ops, by, &choice),
                "there is no kernel for these ops together");
    COD_TRY(cuda_plan_state(plan, sizeof(conv3_state)));
    conv3_state *state = static_cast<conv3_state *>(plan->state);
    conv3_work *work = &state->work;
    *work = choice.work;
    state->kernel = choice.kernel;
    describe_load(&ops, work);
    describe_store(&ops, work);
    state->store = choice.store;
    COD_TRY(check_memory(work));
    const int rows = choice.kernel.threads / (work->channels / 8), halo_w = work->tile_w + 2;
    work->step_rows = rows / halo_w;
    work->step_columns = rows % halo_w;
    work->lists = CONV3_SUMS * work->outputs;
    state->blocks = dim3(static_cast<unsigned>(blocks_of(plan->device, work, &choice.kernel)),
                         static_cast<unsigned>(work->outputs / choice.kernel.columns));
    state->threads = static_cast<unsigned>(choice.groups * choice.kernel.threads);
    state->shared_bytes = static_cast<size_t>(work->places.end);
    const int packed = align(static_cast<int64_t>(work->outputs) * work->weight_pitch);
    const int partials = align(static_cast<int64_t>(state->blocks.x) * work->lists * 4);
    const size_t bytes = static_cast<size_t>(TICKET_BYTES + packed + partials);
    COD_TRY(cuda_plan_memory(plan, bytes + sizeof(conv3_packing)));
    unsigned char *memory = static_cast<unsigned char *>(plan->memory);
    work->ticket = reinterpret_cast<unsigned *>(memory);
    work->packed = memory + TICKET_BYTES;
    work->partials = reinterpret_cast<float *>(memory + TICKET_BYTES + packed);
    plan->run = conv3_run;
    COD_TRY(describe_packing(plan, ops.conv, work, choice.kernel.wgmma ? choice.kernel.columns : 1, memory + bytes));
    return cuda_allow_shared(state->kernel.run[state->store], plan->device->shared_bytes);
}

static cod_status make_candidate(cod_plan *plan, const cuda_candidate *candidate)
{
    return make_by(plan, static_cast<conv3_by>(candidate->number));
}

/** What the time of the ops' kernels depends on. */
static void describe_key(const cod_device *device, const conv3_ops *ops, const conv3_choice *choice, char *key,
                         size_t bytes)
{
    conv3_work work = choice->work;
    describe_load(ops, &work);
    describe_store(ops, &work);
    snprintf(key, bytes, "3x3 convolution %dx%dx%dx%d to %d; load %d%s%s; store %d%s%s%s%s; own kernels; %s",
             work.images, work.h, work.w, work.channels, work.outputs, static_cast<int>(work.load.kind),
             work.load.second != nullptr ? " two" : "", work.load.kept != nullptr ? " kept" : "",
             static_cast<int>(choice->store), work.store.target != nullptr ? " target" : "",
             work.store.before != nullptr ? " added" : "", work.store.g != nullptr ? " g" : "",
             work.store.dslope != nullptr ? " slope" : "", device->gpu);
}

/** By mma.sync or by wgmma, whichever is faster when both are timed; by the cost model where nothing is timed. */
cod_status cuda_make_conv3(cod_plan *plan)
{
    conv3_ops ops;
    conv3_choice by_mma, by_wgmma;
    char key[CUDA_KEY_BYTES];
    cuda_tuner *tuner = nullptr;
    cuda_candidates list = {};
    if (cuda_tuner_mode(plan) == CUDA_MODE_FIXED || read_ops(plan->ops, plan->count, &ops) != plan->count ||
        !choose(plan->device, &ops, CONV3_BY_MMA, &by_mma) || !choose(plan->device, &ops, CONV3_BY_WGMMA, &by_wgmma))
        return make_by(plan, CONV3_BY_ALL);
    COD_TRY(cuda_tuner_of(plan->device, &tuner));
    describe_key(plan->device, &ops, &by_mma, key, sizeof key);
    cuda_candidates_add(&list, "own-mma", {make_candidate, nullptr, CONV3_BY_MMA});
    cuda_candidates_add(&list, "own-wgmma", {make_candidate, nullptr, CONV3_BY_WGMMA});
    return cuda_tuner_make(plan, key, &list);
}
