/*
 * Plans of convolutions between wide and narrow tensors: which layers these kernels take, and how their pictures are
 * divided.
 */
#include "cuda/narrow.cuh"
#include "cuda/scratch.cuh"

#include <climits>

enum { MOST_NARROW = 8 };

/* The choice. */

/**
 * What a unit costs beside its rows, in rows; how many warps of the kernel a multiprocessor has at a time; and what a
 * block costs beside its units, because it leaves partial sums, in tenths of rows.
 */
struct narrow_habit {
    int extra, warps, block;
};

/** Estimated from the instructions of a row, those around a unit, and the bytes of partial sums; not measured. */
static narrow_habit habit_of(const narrow_shape &shape)
{
    switch (shape.what) {
    case NARROW_GATHER: /* rows above and below a unit are multiplied, too */
        return {shape.kernel + 2, 8, 0};
    case NARROW_SPREAD: /* the weights of large kernels leave registers for few warps */
        return {7, shape.kernel * narrow_spread_kernel(shape.kernel, shape.narrow).depth > 18 ? 8 : 12, 0};
    default:
        return {5, 8, cuda_divide_up(shape.wide, 64)};
    }
}

static size_t shared_of(const narrow_shape &shape, const narrow_choice &choice, int rows)
{
    switch (shape.what) {
    case NARROW_GATHER:
        return narrow_gather_shared(shape.kernel, choice.slices, choice.spans);
    case NARROW_SPREAD: {
        const int depth = narrow_spread_kernel(shape.kernel, shape.narrow).depth;
        return narrow_spread_shared(shape.kernel, rows, narrow_spread_words(choice.cut.columns, shape.narrow, depth));
    }
    default:
        return narrow_gradient_shared(narrow_gradient_kernel(shape.kernel).depth, rows, choice.slices);
    }
}

/** Columns of a unit, and what goes into the grid's y. @return false where there is no kernel */
static bool begin_choice(const narrow_shape &shape, int multiprocessors, size_t shared_bytes, narrow_choice *choice)
{
    choice->slices = shape.wide / NARROW_SLICE;
    choice->groups = choice->parts = choice->spans = 1;
    if (shape.what == NARROW_SPREAD) {
        choice->cut.columns = narrow_spread_kernel(shape.kernel, shape.narrow).columns;
        return choice->cut.columns > 0;
    }
    choice->groups = cuda_divide_up(shape.narrow, NARROW_GROUP);
    if (shape.what == NARROW_GRADIENT) {
        const narrow_kernel<narrow_gradient> kernel = narrow_gradient_kernel(shape.kernel);
        choice->cut.columns = kernel.columns;
        choice->parts = kernel.depth > 0 ? cuda_divide_up(shape.kernel, kernel.depth) : 1;
        return kernel.run != nullptr;
    }
    const narrow_kernel<narrow_gather> kernel = narrow_gather_kernel(shape.kernel);
    if (kernel.run == nullptr)
        return false;
    /*
     * Two spans share the weights in shared memory, so that more warps have room; but a small batch has more blocks
     * without.
     */
    const int64_t wide_units = (int64_t)shape.images * cuda_divide_up(shape.w, 2 * kernel.columns);
    if (shape.w > kernel.columns && 2 * choice->slices <= NARROW_MOST_SLICES && wide_units >= multiprocessors &&
        narrow_gather_shared(shape.kernel, choice->slices, 2) <= shared_bytes)
        choice->spans = 2;
    choice->cut.columns = kernel.columns * choice->spans;
    return true;
}

/**
 * Divides pictures into units so that the rounds of blocks over the multiprocessors, each as long as a unit, take least
 * time.
 */
narrow_choice narrow_choose(const narrow_shape &shape, int multiprocessors, size_t shared_bytes)
{
    narrow_choice choice = {}, none = {};
    const bool fits = shape.narrow <= MOST_NARROW && shape.wide % NARROW_SLICE == 0 &&
                      shape.wide <= NARROW_SLICE * NARROW_MOST_SLICES;
    if (!fits || !begin_choice(shape, multiprocessors, shared_bytes, &choice))
        return none;
    const narrow_habit habit = habit_of(shape);
    const int warps = choice.slices * choice.spans, resident = habit.warps > warps ? habit.warps / warps : 1;
    const int64_t in_y = choice.groups * choice.parts, at_once = (int64_t)multiprocessors * resident;
    choice.cut.images = shape.images;
    choice.cut.h = shape.h;
    choice.cut.w = shape.w;
    choice.cut.strips = cuda_divide_up(shape.w, choice.cut.columns);
    int64_t least = INT64_MAX;
    for (int pieces = 1; pieces <= shape.h; pieces++) {
        const int rows = cuda_divide_up(shape.h, pieces), chunks = cuda_divide_up(shape.h, rows);
        const size_t shared = shared_of(shape, choice, rows);
        const int64_t units = (int64_t)shape.images * choice.cut.strips * chunks;
        const int64_t most = shape.what == NARROW_GATHER || units * in_y < at_once ? units : at_once / in_y;
        const int64_t blocks = most > 0 ? most : 1, rounds = cuda_divide_up(units * in_y, at_once);
        const int64_t cost = 10 * rounds * (rows + habit.extra) + blocks * in_y * habit.block;
        /* Blocks of a gather need not all be resident. */
        const size_t together = shape.what == NARROW_GATHER ? shared : shared * static_cast<size_t>(resident);
        if (together > shared_bytes || cost >= least)
            continue;
        least = cost;
        choice.cut.rows = rows;
        choice.cut.chunks = chunks;
        choice.shared_bytes = shared;
        choice.blocks = static_cast<unsigned>(blocks);
    }
    return least < INT64_MAX ? choice : none;
}

/* The plan. */

struct narrow_state {
    narrow_shape shape;
    narrow_choice choice;
    narrow_filter filter;
    narrow_gather gather;
    narrow_spread spread;
    narrow_gradient gradient;
    narrow_sum sum;
    cuda_scratch *scratch; /**< of a gradient */
};

/** Whether the op is a convolution that these kernels know, all but its channels; `filter` gets the weights'. */
static bool describe(const cod_op *op, narrow_shape *shape, narrow_filter *filter)
{
    const bool gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS,
               backward = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_op_attr *attr = &op->attr;
    if (!gradient && !backward && op->kind != COD_OP_CONV2D)
        return false;
    const cod_view *w = gradient ? &op->outputs[0] : &op->inputs[1];
    const int64_t outputs = w->shape.n, inputs = w->shape.c, kernel = w->shape.h;
    if (kernel != w->shape.w || kernel % 2 == 0 || kernel > INT_MAX || attr->stride_h != 1 || attr->stride_w != 1 ||
        attr->pad_h != kernel / 2 || attr->pad_w != kernel / 2 || cod_op_shuffle(attr) != 1)
        return false;
    filter->narrow_is_output = outputs < inputs;
    filter->mirrored = backward || (gradient && filter->narrow_is_output);
    filter->kernel = shape->kernel = static_cast<int>(kernel);
    filter->narrow = shape->narrow = static_cast<int>(filter->narrow_is_output ? outputs : inputs);
    filter->wide = shape->wide = static_cast<int>(filter->narrow_is_output ? inputs : outputs);
    filter->w = cuda_floats_of(w);
    filter->stride = w->pixel_stride;
    const cod_shape pixels = op->inputs[0].shape;
    shape->images = static_cast<int>(pixels.n);
    shape->h = static_cast<int>(pixels.h);
    shape->w = static_cast<int>(pixels.w);
    shape->what = gradient ? NARROW_GRADIENT : filter->narrow_is_output == backward ? NARROW_SPREAD : NARROW_GATHER;
    return true;
}

/** A tensor of the wide one's shape beside it, where the op stands for two: the activation's output, or its x or y. */
static const cod_view *beside_of(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D ? &op->outputs[CONV_ACTIVATED] : &op->inputs[CONV_GATE];
}

/**
 * Whether the kernels can read and write the wide tensor: in pieces of 16 bytes, and where they read it, as bf16. A
 * spread has no sigmoid and no tanh: no first layer has them. It alone has activations beside what it stores, or their
 * gradients.
 */
static bool reaches(const cod_op *op, narrow_computation what, const conv_image &wide, const conv_image &narrow)
{
    const bool joined = conv_is_joined(op);
    if (what != NARROW_SPREAD)
        return !joined && wide.wide && wide.dtype == COD_BF16 && (int64_t)wide.w * wide.stride < INT_MAX;
    if (joined && !conv_image_of(beside_of(op), 1).wide)
        return false;
    return wide.wide && (int64_t)narrow.w * narrow.stride < INT_MAX &&
           ((op->kind != COD_OP_CONV2D && !joined) || op->attr.activation < COD_ACT_SIGMOID);
}

static narrow_store store_of(const cod_op *op)
{
    narrow_store store = {};
    store.target = conv_image_of(&op->outputs[0], 1);
    if (op->kind == COD_OP_CONV2D || conv_is_joined(op))
        store.activation = cuda_activation_of(&op->attr, &op->inputs[CONV_SLOPE]);
    if (op->kind != COD_OP_CONV2D) {
        store.added = op->accumulate ? store.target : conv_image();
        store.gate = conv_image_of(&op->inputs[CONV_GATE], 1);
        return store;
    }
    store.bias = cuda_floats_of(&op->inputs[2]);
    store.added = conv_image_of(&op->inputs[4], 1);
    store.activated = conv_image_of(&op->outputs[CONV_ACTIVATED], 1);
    return store;
}

/** Gives the plan memory for the packed weights, behind them for how they are packed, and `more` bytes behind that. */
static cod_status make_packing(cod_plan *plan, const narrow_filter &filter, int64_t count, size_t each, int depth,
                               size_t more)
{
    const size_t bytes = (static_cast<size_t>(count) * each + 15) / 16 * 16;
    COD_TRY(cuda_plan_memory(plan, bytes + sizeof(narrow_packing) + more));
    const narrow_packing packing = {filter, plan->memory, count, depth};
    narrow_packing *how = reinterpret_cast<narrow_packing *>(static_cast<unsigned char *>(plan->memory) + bytes);
    plan->packing = narrow_packing_of(how, packing);
    return cuda_plan_write(plan, how, &packing, sizeof packing);
}

static cod_status gather_run(const cod_plan *plan, cudaStream_t stream)
{
    const narrow_state *state = static_cast<const narrow_state *>(plan->state);
    const narrow_choice &choice = state->choice;
    return cuda_launch_chained(plan->device, stream, narrow_gather_kernel(state->shape.kernel).run,
                               dim3(choice.blocks, static_cast<unsigned>(choice.groups)),
                               static_cast<unsigned>(choice.slices * choice.spans * WARP_LANES), choice.shared_bytes,
                               state->gather);
}

static cod_status make_gather(cod_plan *plan, narrow_state *state, const conv_image &wide)
{
    const narrow_shape &shape = state->shape;
    const narrow_choice &choice = state->choice;
    const int64_t columns = cuda_divide_up(NARROW_GROUP * shape.kernel, 8) * 8;
    COD_TRY(
        make_packing(plan, state->filter, choice.groups * columns * shape.kernel * shape.wide, sizeof(uint16_t), 0, 0));
    state->gather = {wide,          choice.cut,   static_cast<const uint16_t *>(plan->memory),
                     choice.slices, choice.spans, store_of(plan->ops)};
    plan->run = gather_run;
    return cuda_allow_shared(narrow_gather_kernel(shape.kernel).run, plan->device->shared_bytes);
}

static cod_status spread_run(const cod_plan *plan, cudaStream_t stream)
{
    const narrow_state *state = static_cast<const narrow_state *>(plan->state);
    const narrow_choice &choice = state->choice;
    return cuda_launch_chained(plan->device, stream, narrow_spread_kernel(state->shape.kernel, state->shape.narrow).run,
                               choice.blocks, static_cast<unsigned>(choice.slices * WARP_LANES), choice.shared_bytes,
                               state->spread);
}

/** Without memory; `lists` is 0 where the op has none. */
static cuda_slopes slopes_of(const cod_op *op)
{
    const cod_view *dslope = &op->outputs[CONV_DSLOPE];
    if (op->kind == COD_OP_CONV2D || dslope->buffer == nullptr)
        return {};
    return {cuda_floats_of(dslope), static_cast<int>(cod_shape_count(dslope->shape)), nullptr, nullptr};
}

static cod_status make_spread(cod_plan *plan, narrow_state *state, const conv_image &narrow)
{
    const narrow_shape &shape = state->shape;
    const narrow_choice &choice = state->choice;
    const narrow_kernel<narrow_spread> kernel = narrow_spread_kernel(shape.kernel, shape.narrow);
    const int64_t fragments = static_cast<int64_t>(choice.slices) * shape.kernel * kernel.depth;
    const int blocks = static_cast<int>(choice.blocks);
    cuda_slopes slopes = slopes_of(plan->ops);
    const size_t tickets = slopes.lists > 0 ? static_cast<size_t>(slope_tickets(1, blocks)) : 0,
                 more =
                     tickets * sizeof(unsigned) + static_cast<size_t>(slope_floats(slopes, 1, blocks)) * sizeof(float);
    COD_TRY(make_packing(plan, state->filter, fragments * WARP_LANES, sizeof(bytes16), kernel.depth, more));
    slopes.tickets = reinterpret_cast<unsigned *>(static_cast<unsigned char *>(plan->memory) + (plan->bytes - more));
    slopes.partials = reinterpret_cast<float *>(slopes.tickets + tickets);
    state->spread = {narrow, choice.cut, static_cast<const bytes16 *>(plan->memory),
                     narrow_spread_words(kernel.columns, shape.narrow, kernel.depth), store_of(plan->ops)};
    state->spread.store.slopes = slopes;
    plan->run = spread_run;
    return cuda_allow_shared(kernel.run, plan->device->shared_bytes);
}

static cod_status gradient_run(const cod_plan *plan, cudaStream_t stream)
{
    const narrow_state *state = static_cast<const narrow_state *>(plan->state);
    const narrow_choice &choice = state->choice;
    narrow_gradient gradient = state->gradient;
    narrow_sum sum = state->sum;
    sum.partials = gradient.partials = cuda_scratch_use(state->scratch);
    COD_TRY(cuda_launch_chained(plan->device, stream, narrow_gradient_kernel(state->shape.kernel).run,
                                dim3(choice.blocks, static_cast<unsigned>(choice.groups * choice.parts)),
                                static_cast<unsigned>(choice.slices * WARP_LANES), choice.shared_bytes, gradient));
    return narrow_sum_partials(plan->device, stream, sum);
}

static void gradient_clear(const cod_plan *plan)
{
    cuda_scratch_leave(static_cast<const narrow_state *>(plan->state)->scratch);
}

static cod_status make_gradient(cod_plan *plan, narrow_state *state, const conv_image &wide, const conv_image &narrow)
{
    const cod_op *op = plan->ops;
    const narrow_choice &choice = state->choice;
    const narrow_filter &filter = state->filter;
    const int64_t bias_at = (int64_t)choice.groups * filter.kernel * NARROW_GROUP * filter.kernel * filter.wide;
    const int64_t partial_count = bias_at + (filter.narrow_is_output ? choice.groups * NARROW_GROUP : filter.wide);
    plan->clear = gradient_clear;
    COD_TRY(cuda_scratch_join(plan->device, op->inputs[1].buffer,
                              static_cast<size_t>(partial_count * choice.blocks) * sizeof(float), &state->scratch));
    float *db = cuda_floats_of(&op->outputs[1]);
    const narrow_bias bias = db == nullptr             ? NARROW_NO_BIAS
                             : filter.narrow_is_output ? NARROW_BIAS_OF_NARROW
                                                       : NARROW_BIAS_OF_WIDE;
    state->gradient = {wide, narrow, choice.cut, bias, nullptr, partial_count, bias_at, choice.parts};
    state->sum = {filter,
                  nullptr,
                  partial_count,
                  bias_at,
                  static_cast<int>(choice.blocks),
                  op->accumulate,
                  db,
                  filter.narrow_is_output ? filter.narrow : filter.wide};
    plan->run = gradient_run;
    return cuda_allow_shared(narrow_gradient_kernel(filter.kernel).run, plan->device->shared_bytes);
}

static bool first_is_wide(const narrow_state &state)
{
    const bool gradient = state.shape.what == NARROW_GRADIENT;
    return gradient ? state.filter.narrow_is_output : state.shape.what == NARROW_GATHER;
}

/** The second image: dy of a gradient, else the output. */
static const cod_view *second_of(const cod_op *op, const narrow_state &state)
{
    return state.shape.what == NARROW_GRADIENT ? &op->inputs[1] : &op->outputs[0];
}

static conv_image wide_of(const cod_op *op, const narrow_state &state)
{
    return conv_image_of(first_is_wide(state) ? &op->inputs[0] : second_of(op, state), 1);
}

static conv_image narrow_of(const cod_op *op, const narrow_state &state)
{
    return conv_image_of(first_is_wide(state) ? second_of(op, state) : &op->inputs[0], 1);
}

/** What these kernels would do of the plan's op; false where they cannot. */
static bool choose(const cod_plan *plan, cod_dtype multiplied, narrow_state *state)
{
    const cod_op *op = plan->ops;
    if (multiplied != COD_BF16 || !describe(op, &state->shape, &state->filter))
        return false;
    state->choice = narrow_choose(state->shape, plan->device->multiprocessors, plan->device->shared_bytes);
    return state->choice.cut.strips > 0 && reaches(op, state->shape.what, wide_of(op, *state), narrow_of(op, *state));
}

bool narrow_fits(const cod_plan *plan, cod_dtype multiplied)
{
    narrow_state state = {};
    return choose(plan, multiplied, &state);
}

cod_status narrow_make(cod_plan *plan, cod_dtype multiplied, bool *made)
{
    narrow_state chosen = {};
    *made = choose(plan, multiplied, &chosen);
    if (!*made)
        return COD_OK;
    COD_TRY(cuda_plan_state(plan, sizeof(narrow_state)));
    narrow_state *state = static_cast<narrow_state *>(plan->state);
    *state = chosen;
    const conv_image wide = wide_of(plan->ops, chosen), narrow = narrow_of(plan->ops, chosen);
    if (chosen.shape.what == NARROW_GRADIENT)
        return make_gradient(plan, state, wide, narrow);
    return chosen.shape.what == NARROW_GATHER ? make_gather(plan, state, wide) : make_spread(plan, state, narrow);
}
