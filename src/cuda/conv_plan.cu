/*
 * Plans of convolutions and linear layers, but for their weight gradients: which kernels, on which tiles, and the
 * memory between them.
 */
#include "cuda/conv3_plan.cuh"
#include "cuda/conv_plan.cuh"

#include <climits>

struct product_state {
    conv_operands operands;
    int choice; /**< number of the kernel to take; CONV_BY_COST = the one that the cost model prefers */
    conv_staging stage_source;
    conv_product product;
    conv_product_kernel kernel;
    conv_packing packing, *packing_on_device;
    float *own_range; /**< the attribute's, in the plan's memory; NULL = the op's input has it, or it is in floats */
    dim3 blocks;
};

/* What is computed. */

static bool is_linear(cod_op_kind kind)
{
    return kind == COD_OP_LINEAR || kind == COD_OP_LINEAR_BACKWARD_DATA || kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

static bool is_backward_data(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D_BACKWARD_DATA || kind == COD_OP_LINEAR_BACKWARD_DATA;
}

/** Whether the op is a weight gradient: its parameters are outputs. */
static bool is_gradient(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D_BACKWARD_WEIGHTS || kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

cod_op_attr conv_attributes(const cod_op *op)
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

conv_filter conv_filter_of(const cod_view *w, int factor, bool backward)
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

cod_dtype conv_multiplied_type(const cod_op *op, const cod_op_attr *attr)
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
    return 4 * cuda_divide_up(w.kernel * (int64_t)channels, piece) <= 3 * w.kernel * cuda_divide_up(channels, piece);
}

int conv_stage_image(const conv_operands &operands, conv_image *image, conv_side *w, conv_staging *staging,
                     conv_memory *memory)
{
    *staging = {};
    const cod_dtype dtype = operands.dtype;
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
    const int64_t groups = cuda_divide_up(copy.channels, piece);
    copy.stride = groups * piece;
    staging->pieces = (int64_t)operands.images * copy.h * copy.w * groups;
    staging->int8_range = operands.int8_range;
    copy.data = conv_take<unsigned char>(memory, staging->pieces * CONV_PIECE);
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
    const int64_t blocks = cuda_divide_up(rows, kernel->rows) * cuda_divide_up(columns, kernel->columns) * phases;
    const int64_t rounds = cuda_divide_up(blocks, device->multiprocessors);
    const double warps = static_cast<double>(rounds * (kernel->threads / WARP_LANES)), full = warps < 8 ? warps / 8 : 1;
    return static_cast<double>(rounds * kernel->rows * kernel->columns) / kernel->speed / full;
}

static conv_product_kernel choose_product(const cod_device *device, const product_state *state)
{
    const conv_product *p = &state->product;
    const int64_t rows =
        (int64_t)state->operands.images * conv_axis_of(p->h, 0).outputs * conv_axis_of(p->w, 0).outputs;
    const int64_t phases = conv_phases(p->h) * conv_phases(p->w);
    const conv_product_kernel *best = nullptr;
    double least = 0;
    if (state->choice != CONV_BY_COST)
        return conv_product_kernels(state->operands.dtype)[state->choice];
    for (const conv_product_kernel *kernel = conv_product_kernels(state->operands.dtype); kernel->rows > 0; kernel++) {
        const double cost = product_cost(device, kernel, rows, p->store.columns, phases);
        if (kernel->shared_bytes > device->shared_bytes || (best != nullptr && cost >= least))
            continue;
        best = kernel;
        least = cost;
    }
    return *best;
}

static void describe_product(const cod_op *op, product_state *state)
{
    const cod_op_attr attr = conv_attributes(op);
    const bool backward = is_backward_data(op->kind);
    const int factor = static_cast<int>(cod_op_shuffle(&attr));
    const cod_view *w = &op->inputs[1], *target = &op->outputs[0];
    conv_product *p = &state->product;
    *p = {};
    p->source = conv_image_of(&op->inputs[0], backward ? factor : 1);
    p->store.target = conv_image_of(target, backward ? 1 : factor);
    p->h = conv_side_of(p->store.target.h, static_cast<int>(w->shape.h), attr.stride_h, attr.pad_h, backward);
    p->w = conv_side_of(p->store.target.w, static_cast<int>(w->shape.w), attr.stride_w, attr.pad_w, backward);
    p->images = state->operands.images;
    p->store.columns = static_cast<int>(backward ? w->shape.c : w->shape.n);
    if (backward) {
        p->store.added = op->accumulate ? p->store.target : conv_image();
        if (conv_is_joined(op)) {
            p->store.gate = conv_image_of(&op->inputs[CONV_GATE], 1);
            p->store.activation = cuda_activation_of(&attr, &op->inputs[CONV_SLOPE]);
        }
        return;
    }
    p->store.bias = cuda_floats_of(&op->inputs[2]);
    p->store.activation = cuda_activation_of(&attr, &op->inputs[CONV_SLOPE]);
    if (op->kind == COD_OP_CONV2D) {
        p->store.added = conv_image_of(&op->inputs[4], factor);
        p->store.activated = conv_image_of(&op->outputs[CONV_ACTIVATED], factor);
    }
}

/** For blocks in a grid without phases, each of `columns` columns. */
static void take_slopes(const cod_op *op, dim3 blocks, int columns, conv_product *p, conv_memory *memory)
{
    const cod_view *dslope = &op->outputs[CONV_DSLOPE];
    if (!is_backward_data(op->kind) || dslope->buffer == nullptr)
        return;
    const bool by_channel = cod_shape_count(dslope->shape) > 1;
    const int series = by_channel ? p->column_tiles : 1, each = static_cast<int>(blocks.x) / series;
    cuda_slopes *slopes = &p->store.slopes;
    *slopes = {cuda_floats_of(dslope), by_channel ? columns : 1, nullptr, nullptr};
    slopes->tickets = conv_take<unsigned>(memory, slope_tickets(series, each));
    slopes->partials = conv_take<float>(memory, slope_floats(*slopes, series, each));
}

static void lay_out(const cod_plan *plan, product_state *state, conv_memory *memory)
{
    conv_product *p = &state->product;
    const cod_dtype dtype = state->operands.dtype;
    describe_product(plan->ops, state);
    if (dtype == COD_S8 && plan->ops->inputs[CONV_RANGE].buffer == nullptr)
        state->operands.int8_range = state->own_range = conv_take<float>(memory, 1);
    p->groups = conv_stage_image(state->operands, &p->source, &p->w, &state->stage_source, memory);
    const conv_product_kernel kernel = choose_product(plan->device, state);
    state->kernel = kernel;
    const int64_t column_tiles = cuda_divide_up(p->store.columns, kernel.columns);
    const int64_t cells = (int64_t)p->source.factor * p->source.factor;
    const int64_t depth = conv_most_taps(p->h) * conv_most_taps(p->w) * cells * p->groups;
    const int64_t chunks = cuda_divide_up(depth * (dtype == COD_F32 ? 4 : CONV_PIECE), kernel.depth);
    const int64_t phases = conv_phases(p->h) * conv_phases(p->w);
    conv_packing *packing = &state->packing;
    p->column_tiles = static_cast<int>(column_tiles);
    p->phase_bytes = column_tiles * kernel.columns * chunks * kernel.depth;
    p->packed = conv_take<unsigned char>(memory, p->phase_bytes * phases);
    state->packing_on_device = conv_take<conv_packing>(memory, 1);
    if (dtype == COD_S8) {
        packing->scales = conv_take<float>(memory, p->store.columns);
        p->store.factors = packing->factors = conv_take<float>(memory, p->store.columns);
    }
    const int64_t rows =
        (int64_t)state->operands.images * conv_axis_of(p->h, 0).outputs * conv_axis_of(p->w, 0).outputs;
    state->blocks =
        dim3(static_cast<unsigned>(cuda_divide_up(rows, kernel.rows) * column_tiles), static_cast<unsigned>(phases));
    take_slopes(plan->ops, state->blocks, kernel.columns, p, memory);
    packing->product = *p;
    packing->tile_columns = kernel.columns;
    packing->count = p->phase_bytes * phases / (dtype == COD_F32 ? 4 : CONV_PIECE);
    packing->int8_range = state->operands.int8_range;
}

static cod_status product_run(const cod_plan *plan, cudaStream_t stream)
{
    const product_state *state = static_cast<const product_state *>(plan->state);
    COD_TRY(conv_stage(plan->device, state->stage_source, stream));
    return cuda_launch_chained(plan->device, stream, state->kernel.run, state->blocks, state->kernel.threads,
                               state->kernel.shared_bytes, state->product);
}

static void state_init(const cod_plan *plan, int choice, product_state *state)
{
    const cod_op *op = plan->ops;
    const cod_op_attr attr = conv_attributes(op);
    *state = {};
    state->choice = choice;
    const cod_view *range = &op->inputs[CONV_RANGE];
    state->operands = {conv_multiplied_type(op, &attr), static_cast<int>(op->outputs[0].shape.n),
                       attr.int8_range > 0 && range->buffer != nullptr ? cuda_floats_of(range) : nullptr};
    state->packing.filter =
        conv_filter_of(&op->inputs[1], static_cast<int>(cod_op_shuffle(&attr)), is_backward_data(op->kind));
}

static cod_status make_product(cod_plan *plan, int choice)
{
    COD_TRY(cuda_plan_state(plan, sizeof(product_state)));
    product_state *state = static_cast<product_state *>(plan->state);
    state_init(plan, choice, state);
    conv_memory memory = {};
    lay_out(plan, state, &memory); /* counts */
    COD_TRY(cuda_plan_memory(plan, memory.used));
    memory = {reinterpret_cast<uintptr_t>(plan->memory), 0};
    lay_out(plan, state, &memory);
    COD_TRY(cuda_plan_write(plan, state->packing_on_device, &state->packing, sizeof state->packing));
    if (state->own_range != nullptr)
        COD_TRY(cuda_plan_write(plan, state->own_range, &plan->ops->attr.int8_range, sizeof(float)));
    plan->packing = conv_packing_of(state->packing_on_device, state->packing, state->operands.dtype);
    plan->run = product_run;
    return cuda_allow_shared(state->kernel.run, state->kernel.shared_bytes);
}

cod_status conv_make_own(cod_plan *plan, const cuda_candidate *candidate)
{
    const cod_op_attr attr = conv_attributes(plan->ops);
    const int choice = candidate != nullptr ? candidate->number : CONV_BY_COST;
    if (candidate == nullptr ? conv3_shuffled_is_better(plan) : choice == CONV_SHUFFLED)
        return conv3_shuffled_make(plan);
    if (candidate == nullptr || choice == CONV_NARROW) {
        bool made = false;
        COD_TRY(narrow_make(plan, conv_multiplied_type(plan->ops, &attr), &made));
        if (made)
            return COD_OK;
    }
    return is_gradient(plan->ops->kind) ? conv_make_gradients(plan, choice) : make_product(plan, choice);
}

void conv_own_candidates(const cod_plan *plan, cuda_candidates *list)
{
    const cod_op_attr attr = conv_attributes(plan->ops);
    if (narrow_fits(plan, conv_multiplied_type(plan->ops, &attr)))
        cuda_candidates_add(list, "own-narrow", {conv_make_own, nullptr, CONV_NARROW});
    if (is_gradient(plan->ops->kind)) {
        conv_gradient_candidates(plan, list);
        return;
    }
    product_state state;
    conv_memory memory = {};
    state_init(plan, CONV_BY_COST, &state);
    lay_out(plan, &state, &memory); /* counts, and chooses */
    conv_add_kernels(plan->device, conv_product_kernels(state.operands.dtype), state.kernel, list);
    if (conv3_shuffled_fits(plan))
        cuda_candidates_add(list, "own-wgmma", {conv_make_own, nullptr, CONV_SHUFFLED});
}
