#include "core/memory.h"
#include "cpu/cpu_internal.h"

/**
 * A convolution or linear layer in one of its three directions.
 *
 * Backward data with stride 1 is run as a forward convolution of dy with flipped, transposed weights, because that can
 * add to dx, while oneDNN's own backward data cannot. Views that oneDNN has no fast code for are *staged*: copied to or
 * from a dense image in scratch; so is x where it is rounded to integers. Deterministic plans are cut into slices of
 * the batch, each run by one thread and added in order.
 */
typedef struct conv_state {
    cpu_conv *conv;
    cpu_conv_info info;
    cpu_pack *pack; /**< weights; owned; NULL on integers, and for weight gradients, which are packed in scratch */
    cpu_int8 *int8; /**< owned; NULL = not on integers */
    float *rounded; /**< owned; weights on integers before they are packed */
    void *integers; /**< owned; these packed */
    const cod_view *x, *y; /**< as cpu_conv sees them */
    cpu_image x_image, y_image;
    bool stage_x, stage_y;
    bool flips;          /**< backward data run as a forward convolution */
    bool add_after;      /**< dx is staged and then added */
    bool activate_after; /**< PReLU */
    bool bias_grad;
    int slices;
    /* Byte offsets in the device's scratch. */
    size_t at_x, at_y, at_packed, at_bias, at_conv, at_slope;
    size_t packed_step, bias_step, conv_step; /**< from slice to slice */
} conv_state;

static void conv_destroy(void *memory)
{
    conv_state *state = memory;
    cpu_conv_destroy(state->conv);
    cpu_pack_destroy(state->pack);
    cod_aligned_free(state->integers);
    cod_aligned_free(state->rounded);
    cod_aligned_free(state->int8);
    cod_aligned_free(state);
}

static bool is_linear(cod_op_kind kind)
{
    return kind == COD_OP_LINEAR || kind == COD_OP_LINEAR_BACKWARD_DATA || kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

static cpu_conv_direction direction_of(cod_op_kind kind)
{
    switch (kind) {
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_LINEAR_BACKWARD_DATA:
        return CPU_CONV_BACKWARD_DATA;
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
    case COD_OP_LINEAR_BACKWARD_WEIGHTS:
        return CPU_CONV_BACKWARD_WEIGHTS;
    default:
        return CPU_CONV_FORWARD;
    }
}

/** A linear layer is a 1x1 convolution over one line of N pixels, or, cut into slices, over N images of one pixel. */
static cpu_image image_of(const cod_view *view, bool linear, int slices)
{
    cpu_image image = {view->shape, view->pixel_stride, view->dtype, false};
    image.shape.n /= slices;
    if (linear)
        image.shape = (cod_shape){1, 1, image.shape.n, image.shape.c};
    return image;
}

static int slices_of(const cod_op *op, int64_t batch)
{
    enum { MOST_SLICES = 16 };
    if (!op->deterministic || op->attr.int8_range > 0) /* integers' sums have no order */
        return 1;
    for (int slices = MOST_SLICES; slices > 1; slices--)
        if (batch % slices == 0)
            return slices;
    return 1;
}

/** Gives the image a dense stand-in of this type. */
static void stage_image(cpu_image *image, bool *staged, cod_dtype dtype)
{
    *staged = true;
    image->pixel_stride = image->shape.c;
    image->dtype = dtype;
}

/** Chooses the type to compute in, and stages what has another; oneDNN writes f32 results of bf16 inputs itself. */
static void choose_types(conv_state *state, const cod_device *device, cpu_conv_direction direction)
{
    const bool any_bf16 = state->x_image.dtype == COD_BF16 || state->y_image.dtype == COD_BF16;
    const cod_dtype compute = any_bf16 && device->native_bf16 ? COD_BF16 : COD_F32;
    if (state->int8 != NULL) {
        stage_image(&state->x_image, &state->stage_x, COD_S8);
        if (state->y_image.dtype == COD_BF16 && !device->native_bf16)
            stage_image(&state->y_image, &state->stage_y, COD_F32);
        return;
    }
    const bool x_result = direction == CPU_CONV_BACKWARD_DATA, y_result = direction == CPU_CONV_FORWARD;
    if (state->x_image.dtype != compute && !(x_result && state->x_image.dtype == COD_F32))
        stage_image(&state->x_image, &state->stage_x, compute);
    if (state->y_image.dtype != compute && !(y_result && state->y_image.dtype == COD_F32))
        stage_image(&state->y_image, &state->stage_y, compute);
}

static cpu_conv_problem problem_of(const cod_plan *plan, const conv_state *state, cpu_conv_direction direction)
{
    const cod_op *op = &plan->op;
    const bool weights = direction == CPU_CONV_BACKWARD_WEIGHTS, linear = is_linear(op->kind);
    const cod_view *w = weights ? &op->outputs[0] : &op->inputs[1];
    const cod_op_attr *attr = &op->attr;
    cpu_conv_problem problem = {
        .direction = direction,
        .x = state->x_image,
        .y = state->y_image,
        .kernel_h = w->shape.h,
        .kernel_w = w->shape.w,
        .stride_h = linear ? 1 : attr->stride_h,
        .stride_w = linear ? 1 : attr->stride_w,
        .pad_h = linear ? 0 : attr->pad_h,
        .pad_w = linear ? 0 : attr->pad_w,
        .bias = weights ? cpu_present(&op->outputs[1]) : direction == CPU_CONV_FORWARD && cpu_present(&op->inputs[2]),
        .lanes = state->slices,
    };
    if (direction == CPU_CONV_FORWARD) {
        problem.activation = attr->activation;
        problem.leak = attr->leak;
    }
    if (state->int8 != NULL) {
        problem.factors = state->int8->factors;
        if (attr->activation == COD_ACT_PRELU && !state->activate_after) {
            problem.activation = COD_ACT_LEAKY_RELU;
            problem.leak = state->int8->slope;
        }
    }
    return problem;
}

static bool can_flip(const cpu_conv_problem *p)
{
    return p->direction == CPU_CONV_BACKWARD_DATA && p->stride_h == 1 && p->stride_w == 1 && p->pad_h < p->kernel_h &&
           p->pad_w < p->kernel_w;
}

/** The forward convolution that computes dx (its y) from dy (its x). */
static cpu_conv_problem flip(const cpu_conv_problem *p, bool accumulate)
{
    cpu_conv_problem flipped = *p;
    flipped.direction = CPU_CONV_FORWARD;
    flipped.x = p->y;
    flipped.y = p->x;
    flipped.pad_h = p->kernel_h - 1 - p->pad_h;
    flipped.pad_w = p->kernel_w - 1 - p->pad_w;
    flipped.sum = accumulate;
    return flipped;
}

/**
 * Creates the convolution on the images as they are. A dx to be added later is staged in f32, so that sums are rounded
 * once.
 */
static cod_status create_on_images(cod_plan *plan, conv_state *state, cpu_conv_direction direction)
{
    const bool adds = direction == CPU_CONV_BACKWARD_DATA && plan->op.accumulate;
    cpu_conv_problem problem = problem_of(plan, state, direction);
    state->flips = can_flip(&problem);
    state->add_after = adds && (state->stage_x || !state->flips);
    if (state->add_after) {
        stage_image(&state->x_image, &state->stage_x, COD_F32);
        problem = problem_of(plan, state, direction);
    }
    if (state->flips)
        problem = flip(&problem, adds && !state->add_after);
    COD_TRY(cpu_conv_create(plan->device->onednn, &problem, &state->conv));
    state->info = cpu_conv_get_info(state->conv);
    return COD_OK;
}

static bool is_strided(const cpu_image *image)
{
    return image->pixel_stride != image->shape.c;
}

/** Creates the convolution; where oneDNN has only its reference code for a strided view, once more with staged ones. */
static cod_status create_conv(cod_plan *plan, conv_state *state, cpu_conv_direction direction)
{
    const cod_status status = create_on_images(plan, state, direction);
    if ((status == COD_OK && state->info.fast) || !(is_strided(&state->x_image) || is_strided(&state->y_image)))
        return status;
    cpu_conv_destroy(state->conv);
    state->conv = NULL;
    if (is_strided(&state->x_image))
        stage_image(&state->x_image, &state->stage_x, state->x_image.dtype);
    if (is_strided(&state->y_image))
        stage_image(&state->y_image, &state->stage_y, state->y_image.dtype);
    return create_on_images(plan, state, direction);
}

static size_t take(size_t *used, size_t bytes)
{
    const size_t at = *used;
    *used += cod_align_up(bytes);
    return at;
}

static size_t staged_bytes(const cpu_image *image, int slices)
{
    return (size_t)(cod_shape_count(image->shape) * slices) * cod_dtype_bytes(image->dtype);
}

static cod_status lay_out_scratch(cod_plan *plan, conv_state *state, cpu_conv_direction direction)
{
    size_t used = 0;
    const size_t slices = (size_t)state->slices;
    state->conv_step = cod_align_up(state->info.scratch_bytes);
    state->at_conv = take(&used, slices * state->conv_step);
    if (state->stage_x)
        state->at_x = take(&used, staged_bytes(&state->x_image, state->slices));
    if (state->stage_y)
        state->at_y = take(&used, staged_bytes(&state->y_image, state->slices));
    if (direction == CPU_CONV_BACKWARD_WEIGHTS) {
        state->packed_step = cod_align_up(state->info.packed_bytes);
        state->bias_step = cod_align_up((size_t)state->y_image.shape.c * sizeof(float));
        state->at_packed = take(&used, slices * state->packed_step);
        state->at_bias = take(&used, slices * state->bias_step);
    }
    if (state->activate_after)
        state->at_slope = take(&used, 3 * (size_t)cpu_padded(state->y_image.shape.c) * sizeof(float));
    return cpu_plan_need_scratch(plan, used);
}

/** Rounds the weights, and makes the convolution anew where its factors or its slope are others. */
static cod_status int8_prepare(cod_plan *plan, conv_state *state)
{
    if (!cpu_int8_round(plan, state->int8, state->rounded))
        return COD_OK;
    const cpu_conv_problem problem = problem_of(plan, state, CPU_CONV_FORWARD);
    cpu_conv_destroy(state->conv);
    state->conv = NULL;
    COD_TRY(cpu_conv_create(plan->device->onednn, &problem, &state->conv));
    /* oneDNN may choose another implementation: its cache takes a one by one image for equal to a strided one. */
    const size_t packed_bytes = state->info.packed_bytes, scratch_bytes = state->info.scratch_bytes;
    state->info = cpu_conv_get_info(state->conv);
    if (state->info.scratch_bytes > scratch_bytes) /* as AMX's do */
        COD_TRY(lay_out_scratch(plan, state, CPU_CONV_FORWARD));
    if (state->info.packed_bytes == packed_bytes)
        return COD_OK;
    cod_aligned_free(state->integers);
    state->integers = NULL;
    return cod_aligned_alloc(&state->integers, state->info.packed_bytes);
}

static cod_status integers_prepare(cod_plan *plan)
{
    conv_state *state = plan->state;
    COD_TRY(int8_prepare(plan, state));
    return cpu_conv_pack_s8(state->conv, state->rounded, state->integers);
}

static cod_status pack_prepare(cod_plan *plan)
{
    cpu_pack_renew(plan->pack);
    return COD_OK;
}

/** What the convolution reads of weights, and what writes it. */
static cod_status create_packed(cod_plan *plan, conv_state *state)
{
    const cod_view *w = &plan->op.inputs[1];
    if (state->int8 != NULL) {
        void *memory;
        COD_TRY(cod_aligned_alloc(&memory, (size_t)cod_shape_count(w->shape) * sizeof(float)));
        state->rounded = memory;
        plan->prepare = integers_prepare;
        return cod_aligned_alloc(&state->integers, state->info.packed_bytes);
    }
    cpu_packing *packing;
    const cpu_weights weights = (state->flips ? cpu_weights_flipped : cpu_weights_of)(cod_view_host(w), w->shape);
    COD_TRY(cpu_conv_get_packing(state->conv, &packing));
    COD_TRY(cpu_pack_create(plan->device, packing, &weights, state->info.packed_bytes, &state->pack));
    plan->pack = state->pack;
    plan->prepare = pack_prepare;
    return COD_OK;
}

/** Copies between a view and its dense stand-in of the compute type. */
typedef struct stage_run {
    const cod_device *device;
    cpu_rows from, to;
    cpu_chunks chunks;
    int64_t channels;
    bool accumulate;
    float int8_factor;
} stage_run;

static void stage_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const stage_run *run = context;
    const int64_t first = i * run->chunks.size;
    if (run->int8_factor != 0) {
        run->device->kernels->quantise(cpu_rows_from(run->from, first), (int8_t *)run->to.data + first * run->channels,
                                       cpu_chunk_length(&run->chunks, i), run->channels, run->int8_factor);
        return;
    }
    run->device->kernels->add(cpu_rows_from(run->from, first), (cpu_rows){0}, cpu_rows_from(run->to, first),
                              cpu_chunk_length(&run->chunks, i), run->channels, 1, 0, run->accumulate);
}

static void stage(const cod_plan *plan, const cod_view *view, const cpu_image *image, char *staged, bool back)
{
    const cpu_rows outside = cpu_rows_of(view), inside = {staged, image->pixel_stride, image->dtype == COD_BF16};
    stage_run run = {.device = plan->device,
                     .from = back ? inside : outside,
                     .to = back ? outside : inside,
                     .chunks = cpu_chunks_of(cpu_pixels(view), view->shape.c),
                     .channels = view->shape.c,
                     .accumulate = back && ((const conv_state *)plan->state)->add_after,
                     .int8_factor = image->dtype == COD_S8 ? cpu_int8_input_factor(&plan->op) : 0};
    cpu_parallel_for(plan->device, run.chunks.count, stage_chunk, &run);
}

typedef struct conv_run_args {
    cod_plan *plan;
    char *x, *y, *packed;
    float *bias;
    size_t x_step, y_step;
    cod_status status; /**< of any slice that failed */
} conv_run_args;

static size_t slice_bytes(const cpu_image *image)
{
    return (size_t)(image->shape.n * image->shape.h * image->shape.w * image->pixel_stride) *
           cod_dtype_bytes(image->dtype);
}

static void conv_slice(void *context, int64_t i, int thread)
{
    (void)thread;
    conv_run_args *run = context;
    const conv_state *state = run->plan->state;
    const size_t k = (size_t)i;
    char *x = run->x + k * run->x_step, *y = run->y + k * run->y_step;
    char *bias = run->bias ? (char *)run->bias + k * state->bias_step : NULL;
    const bool swap = state->flips;
    const cod_status status =
        cpu_conv_execute(state->conv, (int)i, swap ? y : x, run->packed + k * state->packed_step, (float *)(void *)bias,
                         swap ? x : y, run->plan->device->scratch + state->at_conv + k * state->conv_step);
    if (status != COD_OK)
        run->status = status;
}

static conv_run_args conv_begin(cod_plan *plan)
{
    const conv_state *state = plan->state;
    char *scratch = plan->device->scratch;
    conv_run_args run = {.plan = plan, .x_step = slice_bytes(&state->x_image), .y_step = slice_bytes(&state->y_image)};
    run.x = state->stage_x ? scratch + state->at_x : cod_view_host(state->x);
    run.y = state->stage_y ? scratch + state->at_y : cod_view_host(state->y);
    return run;
}

static cod_status execute_slices(conv_run_args *run)
{
    const conv_state *state = run->plan->state;
    if (state->slices == 1) {
        conv_slice(run, 0, 0);
        return run->status;
    }
    cpu_parallel_for(run->plan->device, state->slices, conv_slice, run);
    if (run->status != COD_OK) /* the reason stayed with the thread that noticed it */
        return cod_fail(run->status, "cpu: oneDNN could not run one of %d slices", state->slices);
    return COD_OK;
}

/** In place over y; PReLU alone comes here, as oneDNN's other activations are part of the convolution. */
static void activate(cod_plan *plan, const conv_state *state)
{
    const cod_view *y = state->y;
    float *vectors = (float *)(void *)(plan->device->scratch + state->at_slope);
    const cpu_affine slope = cpu_fill_activation(vectors, y->shape.c, &plan->op.attr, &plan->op.inputs[3]);
    plan->device->kernels->affine(cpu_rows_of(y), cpu_rows_of(y), cpu_pixels(y), y->shape.c, CPU_ACT_SLOPE, &slope);
}

static char *packed_weights(const conv_state *state)
{
    return state->int8 != NULL ? state->integers : cpu_pack_memory(state->pack);
}

static cod_status forward_run(cod_plan *plan)
{
    const conv_state *state = plan->state;
    conv_run_args run = conv_begin(plan);
    if (state->stage_x)
        stage(plan, state->x, &state->x_image, run.x, false);
    run.packed = packed_weights(state);
    if (cpu_present(&plan->op.inputs[2]))
        run.bias = state->int8 != NULL ? state->int8->bias : cod_view_host(&plan->op.inputs[2]);
    COD_TRY(execute_slices(&run));
    if (state->stage_y)
        stage(plan, state->y, &state->y_image, run.y, true);
    if (state->activate_after)
        activate(plan, state);
    return COD_OK;
}

static cod_status backward_data_run(cod_plan *plan)
{
    const conv_state *state = plan->state;
    conv_run_args run = conv_begin(plan);
    if (state->stage_y)
        stage(plan, state->y, &state->y_image, run.y, false);
    run.packed = packed_weights(state);
    COD_TRY(execute_slices(&run));
    if (state->stage_x)
        stage(plan, state->x, &state->x_image, run.x, true);
    return COD_OK;
}

static cod_status backward_weights_run(cod_plan *plan)
{
    const conv_state *state = plan->state;
    const cod_op *op = &plan->op;
    char *scratch = plan->device->scratch;
    conv_run_args run = conv_begin(plan);
    if (state->stage_x)
        stage(plan, state->x, &state->x_image, run.x, false);
    if (state->stage_y)
        stage(plan, state->y, &state->y_image, run.y, false);
    run.packed = scratch + state->at_packed;
    run.bias = state->bias_grad ? (float *)(void *)(scratch + state->at_bias) : NULL;
    COD_TRY(execute_slices(&run));
    for (int k = 0; k < state->slices; k++) {
        const bool accumulate = op->accumulate || k > 0;
        COD_TRY(cpu_conv_unpack(state->conv, run.packed + (size_t)k * state->packed_step,
                                cod_view_host(&op->outputs[0]), accumulate));
        if (!state->bias_grad)
            continue;
        float *db = cod_view_host(&op->outputs[1]);
        const float *part = (const float *)(const void *)(scratch + state->at_bias + (size_t)k * state->bias_step);
        for (int64_t c = 0; c < state->y_image.shape.c; c++)
            db[c] = part[c] + (accumulate ? db[c] : 0);
    }
    return COD_OK;
}

cod_status cpu_plan_conv(cod_plan *plan)
{
    static cod_status (*const runs[])(cod_plan *) = {forward_run, backward_data_run, backward_weights_run};
    const cod_op *op = &plan->op;
    const cpu_conv_direction direction = direction_of(op->kind);
    const bool linear = is_linear(op->kind);
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(conv_state)));
    plan->destroy = conv_destroy;
    conv_state *state = plan->state;
    state->x = direction == CPU_CONV_BACKWARD_DATA ? &plan->op.outputs[0] : &plan->op.inputs[0];
    state->y = direction == CPU_CONV_FORWARD         ? &plan->op.outputs[0]
               : direction == CPU_CONV_BACKWARD_DATA ? &plan->op.inputs[0]
                                                     : &plan->op.inputs[1];
    state->slices = slices_of(op, state->x->shape.n);
    state->x_image = image_of(state->x, linear, state->slices);
    state->y_image = image_of(state->y, linear, state->slices);
    state->activate_after = direction == CPU_CONV_FORWARD && op->attr.activation == COD_ACT_PRELU;
    state->bias_grad = direction == CPU_CONV_BACKWARD_WEIGHTS && cpu_present(&op->outputs[1]);
    if (op->kind == COD_OP_CONV2D && op->attr.int8_range > 0) {
        COD_TRY(cpu_int8_create(plan, &state->int8));
        state->activate_after = state->activate_after && cod_shape_count(op->inputs[3].shape) > 1;
    }
    choose_types(state, plan->device, direction);
    /*
     * oneDNN divides the work when a primitive is created, and would wait for ever for threads that a slice does not
     * have.
     */
    if (state->slices > 1)
        COD_TRY(cpu_use_threads(1));
    const cod_status status = create_conv(plan, state, direction);
    COD_TRY(cpu_use_threads(plan->device->threads));
    COD_TRY(status);
    if (direction != CPU_CONV_BACKWARD_WEIGHTS)
        COD_TRY(create_packed(plan, state));
    plan->run = runs[direction];
    return lay_out_scratch(plan, state, direction);
}
