/* Plans of convolutions and linear layers: which kernels, on which tiles, and the memory between them. */
#include "cuda/narrow.cuh"
#include "cuda/tuner.cuh"

#include <climits>
#include <cstdio>

/** Numbers of own candidates beside those of kernels: by the cost model, and between wide and narrow tensors. */
enum { CONV_BY_COST = -1, CONV_NARROW = -2 };

struct conv_state {
    cod_dtype dtype; /**< what is multiplied: bf16, f32 or s8 */
    int kernel;      /**< number of the one to take; CONV_BY_COST = the one that the cost model prefers */
    int images;
    float int8_range;
    conv_filter filter;
    conv_staging stage_source, stage_dy; /**< source: of a product; x of a gradient */
    conv_product product;
    conv_product_kernel product_kernel;
    float *scales, *factors; /**< on integers: see conv_scales() */
    conv_gradient gradient;
    conv_gradient_kernel gradient_kernel;
    conv_sum sum;
    dim3 blocks;
};

/** Memory of a plan, given out from its first byte on; with base 0 only counted. */
struct plan_memory {
    uintptr_t base;
    size_t used;
};

template <typename T> static T *take(plan_memory *memory, int64_t count)
{
    const uintptr_t at = memory->base + memory->used;
    memory->used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T *>(at);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* What is computed. */

static bool is_linear(cod_op_kind kind)
{
    return kind == COD_OP_LINEAR || kind == COD_OP_LINEAR_BACKWARD_DATA || kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

static bool is_backward_data(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D_BACKWARD_DATA || kind == COD_OP_LINEAR_BACKWARD_DATA;
}

static bool is_gradient(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D_BACKWARD_WEIGHTS || kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

/** The attributes that count: a linear layer's strides and padding need not be set. */
static cod_op_attr attributes_of(const cod_op *op)
{
    cod_op_attr attr = op->attr;
    if (is_linear(op->kind)) {
        attr.stride_h = attr.stride_w = 1;
        attr.pad_h = attr.pad_w = attr.factor = 0;
    }
    if (op->kind != COD_OP_CONV2D)
        attr.int8_range = 0;
    return attr;
}

conv_image conv_image_of(const cod_view *view, int64_t factor)
{
    conv_image image = {};
    if (view->buffer == nullptr)
        return image;
    const cuda_view base = cuda_view_of(view);
    image.data = base.data;
    image.stride = base.stride;
    image.factor = static_cast<int>(factor);
    image.h = base.h / image.factor;
    image.w = base.w / image.factor;
    image.channels = base.channels;
    image.dtype = base.dtype;
    image.wide = base.channels % 8 == 0 && base.stride % (base.dtype == COD_BF16 ? 8 : 4) == 0 &&
                 reinterpret_cast<uintptr_t>(base.data) % 16 == 0;
    return image;
}

static conv_filter filter_of(const cod_view *w, int factor, bool backward)
{
    const cod_shape shape = w->shape;
    return {cuda_floats_of(w),
            w->pixel_stride,
            static_cast<int>(shape.n),
            static_cast<int>(shape.c),
            static_cast<int>(shape.h),
            static_cast<int>(shape.w),
            factor,
            backward};
}

static conv_side side_of(int outputs, int kernel, int stride, int pad, bool backward)
{
    return {outputs, kernel, stride, pad, backward, false};
}

/** Parameters are f32; pixels are counted in int by the kernels. */
cod_status conv_check(const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer == nullptr)
            continue;
        const bool input = i < COD_OP_MAX_INPUTS;
        const bool parameter = is_gradient(op->kind) ? !input : input && i > 0 && i < 4;
        if (view->dtype != COD_F32 && (parameter || view->dtype != COD_BF16))
            return cod_fail(COD_ERR_UNSUPPORTED, "%s %zu is %s", input ? "input" : "output", i % COD_OP_MAX_INPUTS,
                            cod_dtype_name(view->dtype));
        const cod_shape shape = view->shape;
        if (shape.n * shape.h * shape.w > INT_MAX / 2 || shape.c > INT_MAX / 2)
            return cod_fail(COD_ERR_UNSUPPORTED, "more than %d pixels or channels in one view", INT_MAX / 2);
    }
    return COD_OK;
}

/**
 * Tensor cores wherever a side is bf16: an f32 side is rounded to bf16 as it is staged, as src/cpu does, since the
 * program chose bf16 for what it computes. Between f32 views products are f32.
 */
static cod_dtype multiplied_type(const cod_op *op, const cod_op_attr *attr)
{
    if (attr->int8_range > 0)
        return COD_S8;
    const cod_view *other = is_gradient(op->kind) ? &op->inputs[1] : &op->outputs[0];
    return op->inputs[0].dtype == COD_BF16 || other->dtype == COD_BF16 ? COD_BF16 : COD_F32;
}

/* Images in pieces. */

/** Whether a kernel's row is better folded into channels: where it saves a quarter of the pieces or more. */
static bool should_fold(const conv_side &w, int channels, int piece)
{
    if (w.backward && w.stride > 1)
        return false;
    return 4 * divide_up(w.kernel * (int64_t)channels, piece) <= 3 * w.kernel * divide_up(channels, piece);
}

/**
 * Makes the image one that kernels read in pieces: itself, or a copy. @return groups of a cell's channels
 *
 * @param w  of an image that taps go over, which may be folded; NULL for dy of a gradient
 */
static int stage_image(conv_state *state, conv_image *image, conv_side *w, conv_staging *staging, plan_memory *memory)
{
    *staging = {};
    const cod_dtype dtype = state->dtype;
    if (dtype == COD_F32)
        return image->channels;
    if (dtype == image->dtype && image->wide)
        return image->channels / 8;
    const int piece = dtype == COD_S8 ? 16 : 8;
    conv_image copy = {};
    copy.h = image->h;
    copy.w = image->w;
    copy.factor = 1;
    copy.channels = image->channels * image->factor * image->factor;
    copy.dtype = dtype;
    copy.wide = true;
    if (w != nullptr && should_fold(*w, copy.channels, piece)) {
        staging->folded = conv_axis_of(*w, 0);
        w->folded = true;
        copy.w = w->outputs;
        copy.channels *= w->kernel;
    }
    const int64_t groups = divide_up(copy.channels, piece);
    copy.stride = groups * piece;
    staging->pieces = (int64_t)state->images * copy.h * copy.w * groups;
    staging->int8_factor = dtype == COD_S8 ? 127 / state->int8_range : 1;
    copy.data = take<unsigned char>(memory, staging->pieces * CONV_PIECE);
    staging->from = *image;
    staging->to = *image = copy;
    return static_cast<int>(groups);
}

/* Products. */

/**
 * How long a kernel takes, in arbitrary units: rounds of blocks over the multiprocessors times a tile's operations,
 * slower where fewer than eight warps share a multiprocessor, because then nothing hides the time that copies and
 * products take.
 */
static double product_cost(const cod_device *device, const conv_product_kernel *kernel, int64_t rows, int64_t columns,
                           int64_t phases)
{
    const int64_t blocks = divide_up(rows, kernel->rows) * divide_up(columns, kernel->columns) * phases;
    const int64_t rounds = divide_up(blocks, device->multiprocessors);
    const double warps = static_cast<double>(rounds * (kernel->threads / WARP_LANES)), full = warps < 8 ? warps / 8 : 1;
    return static_cast<double>(rounds * kernel->rows * kernel->columns) / kernel->speed / full;
}

static conv_product_kernel choose_product(const cod_device *device, const conv_state *state)
{
    const conv_product *p = &state->product;
    const int64_t rows = (int64_t)state->images * conv_axis_of(p->h, 0).outputs * conv_axis_of(p->w, 0).outputs;
    const int64_t phases = conv_phases(p->h) * conv_phases(p->w);
    const conv_product_kernel *best = nullptr;
    double least = 0;
    if (state->kernel != CONV_BY_COST)
        return conv_product_kernels(state->dtype)[state->kernel];
    for (const conv_product_kernel *kernel = conv_product_kernels(state->dtype); kernel->rows > 0; kernel++) {
        const double cost = product_cost(device, kernel, rows, p->store.columns, phases);
        if (kernel->shared_bytes > device->shared_bytes || (best != nullptr && cost >= least))
            continue;
        best = kernel;
        least = cost;
    }
    return *best;
}

static void describe_product(const cod_op *op, conv_state *state)
{
    const cod_op_attr attr = attributes_of(op);
    const bool backward = is_backward_data(op->kind);
    const int factor = static_cast<int>(cod_op_shuffle(&attr));
    const cod_view *w = &op->inputs[1], *target = &op->outputs[0];
    conv_product *p = &state->product;
    *p = {};
    p->source = conv_image_of(&op->inputs[0], backward ? factor : 1);
    p->store.target = conv_image_of(target, backward ? 1 : factor);
    p->h = side_of(p->store.target.h, static_cast<int>(w->shape.h), attr.stride_h, attr.pad_h, backward);
    p->w = side_of(p->store.target.w, static_cast<int>(w->shape.w), attr.stride_w, attr.pad_w, backward);
    p->images = state->images = static_cast<int>(target->shape.n);
    p->store.columns = static_cast<int>(backward ? w->shape.c : w->shape.n);
    if (backward) {
        p->store.added = op->accumulate ? p->store.target : conv_image();
        return;
    }
    p->store.bias = cuda_floats_of(&op->inputs[2]);
    p->store.activation = cuda_activation_of(&attr, &op->inputs[3]);
    if (op->kind == COD_OP_CONV2D)
        p->store.added = conv_image_of(&op->inputs[4], factor);
}

static void lay_out_product(const cod_plan *plan, conv_state *state, plan_memory *memory)
{
    conv_product *p = &state->product;
    describe_product(plan->ops, state);
    p->groups = stage_image(state, &p->source, &p->w, &state->stage_source, memory);
    const conv_product_kernel kernel = choose_product(plan->device, state);
    state->product_kernel = kernel;
    const int64_t column_tiles = divide_up(p->store.columns, kernel.columns);
    const int64_t cells = (int64_t)p->source.factor * p->source.factor;
    const int64_t depth = conv_most_taps(p->h) * conv_most_taps(p->w) * cells * p->groups;
    const int64_t chunks = divide_up(depth * (state->dtype == COD_F32 ? 4 : CONV_PIECE), kernel.depth);
    const int64_t phases = conv_phases(p->h) * conv_phases(p->w);
    p->column_tiles = static_cast<int>(column_tiles);
    p->phase_bytes = column_tiles * kernel.columns * chunks * kernel.depth;
    p->packed = take<unsigned char>(memory, p->phase_bytes * phases);
    if (state->dtype == COD_S8) {
        state->scales = take<float>(memory, p->store.columns);
        state->factors = take<float>(memory, p->store.columns);
        p->store.factors = state->factors;
    }
    const int64_t rows = (int64_t)state->images * conv_axis_of(p->h, 0).outputs * conv_axis_of(p->w, 0).outputs;
    state->blocks =
        dim3(static_cast<unsigned>(divide_up(rows, kernel.rows) * column_tiles), static_cast<unsigned>(phases));
}

static cod_status product_prepare(const cod_plan *plan, cudaStream_t stream)
{
    const conv_state *state = static_cast<const conv_state *>(plan->state);
    if (state->dtype == COD_S8)
        COD_TRY(conv_scales(stream, state->filter, state->int8_range, state->scales, state->factors));
    return conv_pack(plan->device, stream, state->filter, state->product, state->dtype, state->product_kernel.columns,
                     state->scales);
}

static cod_status product_run(const cod_plan *plan, cudaStream_t stream)
{
    const conv_state *state = static_cast<const conv_state *>(plan->state);
    COD_TRY(conv_stage(plan->device, state->stage_source, stream));
    return cuda_launch(stream, state->product_kernel.run, state->blocks, state->product_kernel.threads,
                       state->product_kernel.shared_bytes, state->product);
}

/* Gradients. */

enum { LEAST_SPLIT = 4, BLOCKS_EACH = 2 };

/** Chunks are split until each multiprocessor gets BLOCKS_EACH blocks; a block keeps LEAST_SPLIT chunks or more. */
static int64_t splits_of(const cod_device *device, int64_t tiles, int64_t chunks, int64_t partial_count)
{
    const int64_t most_floats = (int64_t)1 << 26;
    int64_t splits = divide_up((int64_t)device->multiprocessors * BLOCKS_EACH, tiles);
    if (splits > chunks / LEAST_SPLIT)
        splits = chunks / LEAST_SPLIT;
    if (splits > most_floats / partial_count)
        splits = most_floats / partial_count;
    return splits < 1 ? 1 : splits;
}

static conv_gradient_kernel choose_gradient(const cod_device *device, const conv_state *state, int64_t pixels)
{
    const conv_gradient *g = &state->gradient;
    const conv_gradient_kernel *best = nullptr;
    double least = 0;
    if (state->kernel != CONV_BY_COST)
        return conv_gradient_kernels(state->dtype)[state->kernel];
    for (const conv_gradient_kernel *kernel = conv_gradient_kernels(state->dtype); kernel->rows > 0; kernel++) {
        const int64_t tiles = divide_up(g->rows, kernel->rows) * divide_up(g->columns, kernel->columns);
        const int64_t blocks = tiles * splits_of(device, tiles, divide_up(pixels, kernel->depth), g->partial_count);
        const double idle = blocks < device->multiprocessors
                                ? static_cast<double>(device->multiprocessors) / static_cast<double>(blocks)
                                : 1;
        const double cost = static_cast<double>(tiles * kernel->rows * kernel->columns) / kernel->speed * idle;
        if (kernel->shared_bytes > device->shared_bytes || (best != nullptr && cost >= least))
            continue;
        best = kernel;
        least = cost;
    }
    return *best;
}

static void describe_gradient(const cod_op *op, conv_state *state)
{
    const cod_op_attr attr = attributes_of(op);
    const cod_view *w = &op->outputs[0];
    conv_gradient *g = &state->gradient;
    *g = {};
    g->x = conv_image_of(&op->inputs[0], 1);
    g->dy = conv_image_of(&op->inputs[1], cod_op_shuffle(&attr));
    g->h = side_of(g->dy.h, static_cast<int>(w->shape.h), attr.stride_h, attr.pad_h, false);
    g->w = side_of(g->dy.w, static_cast<int>(w->shape.w), attr.stride_w, attr.pad_w, false);
    g->images = state->images = static_cast<int>(op->inputs[0].shape.n);
    g->rows = static_cast<int>(w->shape.n);
    g->bias = op->outputs[1].buffer != nullptr;
}

static void lay_out_gradient(const cod_plan *plan, conv_state *state, plan_memory *memory)
{
    const cod_op *op = plan->ops;
    conv_gradient *g = &state->gradient;
    describe_gradient(op, state);
    const int piece = state->dtype == COD_F32 ? 1 : 8;
    g->groups = stage_image(state, &g->x, &g->w, &state->stage_source, memory);
    stage_image(state, &g->dy, nullptr, &state->stage_dy, memory);
    const int taps_w = g->w.folded ? 1 : g->w.kernel;
    g->columns = g->h.kernel * taps_w * g->groups * piece;
    g->partial_count = divide_up((int64_t)g->rows * (g->columns + 1), 4) * 4;
    const int64_t pixels = (int64_t)state->images * g->h.outputs * g->w.outputs;
    const conv_gradient_kernel kernel = choose_gradient(plan->device, state, pixels);
    state->gradient_kernel = kernel;
    const int64_t chunks = divide_up(pixels, kernel.depth), column_tiles = divide_up(g->columns, kernel.columns);
    const int64_t tiles = divide_up(g->rows, kernel.rows) * column_tiles;
    const int64_t split_chunks = divide_up(chunks, splits_of(plan->device, tiles, chunks, g->partial_count));
    const int64_t splits = divide_up(chunks, split_chunks);
    g->chunks = static_cast<int>(chunks);
    g->split_chunks = static_cast<int>(split_chunks);
    g->column_tiles = static_cast<int>(column_tiles);
    g->partials = take<float>(memory, g->partial_count * splits);
    state->blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(splits));
    state->sum = {state->filter,     g->partials, g->partial_count, static_cast<int>(splits),       g->columns,
                  g->groups * piece, g->w.folded, op->accumulate,   cuda_floats_of(&op->outputs[1])};
}

static cod_status gradient_run(const cod_plan *plan, cudaStream_t stream)
{
    const conv_state *state = static_cast<const conv_state *>(plan->state);
    COD_TRY(conv_stage(plan->device, state->stage_source, stream));
    COD_TRY(conv_stage(plan->device, state->stage_dy, stream));
    COD_TRY(cuda_launch(stream, state->gradient_kernel.run, state->blocks, state->gradient_kernel.threads,
                        state->gradient_kernel.shared_bytes, state->gradient));
    return conv_sum_partials(plan->device, state->sum, stream);
}

/* Both. */

static void lay_out(const cod_plan *plan, conv_state *state, plan_memory *memory)
{
    if (is_gradient(plan->ops[0].kind))
        lay_out_gradient(plan, state, memory);
    else
        lay_out_product(plan, state, memory);
}

template <typename P> static cod_status allow_shared(const conv_kernel<P> &kernel)
{
    return COD_CUDA(cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(kernel.shared_bytes)));
}

static void state_init(const cod_plan *plan, int kernel, conv_state *state)
{
    const cod_op *op = plan->ops;
    const cod_op_attr attr = attributes_of(op);
    *state = {};
    state->dtype = multiplied_type(op, &attr);
    state->kernel = kernel;
    state->int8_range = attr.int8_range;
    state->filter = filter_of(is_gradient(op->kind) ? &op->outputs[0] : &op->inputs[1],
                              static_cast<int>(cod_op_shuffle(&attr)), is_backward_data(op->kind));
}

cod_status conv_make_own(cod_plan *plan, const cuda_candidate *candidate)
{
    const bool gradient = is_gradient(plan->ops[0].kind);
    const cod_op_attr attr = attributes_of(plan->ops);
    if (candidate == nullptr || candidate->number == CONV_NARROW) {
        bool made = false;
        COD_TRY(narrow_make(plan, multiplied_type(plan->ops, &attr), &made));
        if (made)
            return COD_OK;
    }
    COD_TRY(cuda_plan_state(plan, sizeof(conv_state)));
    conv_state *state = static_cast<conv_state *>(plan->state);
    state_init(plan, candidate != nullptr ? candidate->number : CONV_BY_COST, state);
    plan_memory memory = {};
    lay_out(plan, state, &memory); /* counts */
    COD_TRY(cuda_plan_memory(plan, memory.used));
    memory = {reinterpret_cast<uintptr_t>(plan->memory), 0};
    lay_out(plan, state, &memory);
    plan->prepare = gradient ? nullptr : product_prepare;
    plan->run = gradient ? gradient_run : product_run;
    return gradient ? allow_shared(state->gradient_kernel) : allow_shared(state->product_kernel);
}

/** @param preferred  the cost model's choice */
template <typename P>
static void add_kernels(const cod_device *device, const conv_kernel<P> *kernels, const conv_kernel<P> &preferred,
                        cuda_candidates *list)
{
    for (int others = 0; others < 2; others++) {
        for (int number = 0; kernels[number].rows > 0; number++) {
            const conv_kernel<P> *kernel = &kernels[number];
            if ((kernel->run != preferred.run) != (others == 1) || kernel->shared_bytes > device->shared_bytes)
                continue;
            char name[CUDA_NAME_BYTES];
            snprintf(name, sizeof name, "own-%dx%d", kernel->rows, kernel->columns);
            cuda_candidates_add(list, name, {conv_make_own, nullptr, number});
        }
    }
}

void conv_own_candidates(const cod_plan *plan, cuda_candidates *list)
{
    conv_state state;
    plan_memory memory = {};
    state_init(plan, CONV_BY_COST, &state);
    if (narrow_fits(plan, state.dtype))
        cuda_candidates_add(list, "own-narrow", {conv_make_own, nullptr, CONV_NARROW});
    lay_out(plan, &state, &memory); /* counts, and chooses */
    if (is_gradient(plan->ops[0].kind))
        add_kernels(plan->device, conv_gradient_kernels(state.dtype), state.gradient_kernel, list);
    else
        add_kernels(plan->device, conv_product_kernels(state.dtype), state.product_kernel, list);
}
