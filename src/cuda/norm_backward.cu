#include "cuda/norm.cuh"

/*
 * NORM_BACKWARD and its halves, NORM_INFERENCE_BACKWARD and FOLD_NORM. With g the gradient at the normalised value and
 * d = x - mean:
 * dx = gamma·inv_std·(g - mean(g) - d·inv_std²·mean(g·d)), dgamma = inv_std·Σ g·d, dbeta = Σ g   (Ioffe & Szegedy 2015).
 */

enum { IN_FLIGHT = 2, KINDS_WITH_SLOPE = 3 };

/**
 * x becomes d, dy becomes g; z as the activation's gradient wants it, and dy·z where z <= 0 is added to dslope if there
 * is one.
 */
template <int WIDTH>
static __device__ __forceinline__ void open_gradient(const norm_work &work, const norm_lanes<WIDTH> &by,
                                                     float (&x)[WIDTH], float (&dy)[WIDTH], float *dslope)
{
    float z[WIDTH];
    normalise(by, x, z);
    if (dslope != NULL)
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            dslope[i] += z[i] > 0 ? 0 : dy[i] * z[i];
    if (work.activation.kind != COD_ACT_PRELU)
        activate_lanes(work.activation, by.slope, z);
    activation_gradients(work.activation, by.slope, z, dy);
}

/** The last block's part: the gradients of parameters. */
static __device__ __forceinline__ void finish_gradients(const norm_work &work)
{
    const int channels = work.sums_walk.channels;
    const float *totals = work.sums.totals;
    float slope = 0;
    grid_totals(work.sums, gridDim.x);
    for (int i = (int)threadIdx.x; i < channels; i += (int)blockDim.x) {
        const float dbeta = totals[i], dgamma = totals[channels + i] * norm_inv_std(work, i);
        work.dbeta[i] = work.accumulate ? work.dbeta[i] + dbeta : dbeta;
        work.dgamma[i] = work.accumulate ? work.dgamma[i] + dgamma : dgamma;
        if (work.sums_out != NULL) {
            work.sums_out[i] = dbeta;
            work.sums_out[channels + i] = dgamma;
        }
        if (work.dslope == NULL)
            continue;
        const float dslope = totals[2 * channels + i];
        if (work.dslope_by_channel)
            work.dslope[i] = work.accumulate ? work.dslope[i] + dslope : dslope;
        slope += dslope;
    }
    if (work.dslope == NULL || work.dslope_by_channel)
        return;
    slope = block_sum(slope);
    if (threadIdx.x == 0)
        work.dslope[0] = work.accumulate ? work.dslope[0] + slope : slope;
}

/**
 * KINDS: g, g·d, and for slopes dy·z where z <= 0. Each thread reads dy before it writes g, so that they may be one
 * view.
 */
template <cuda_lanes L, int KINDS>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) norm_gradient_sums_kernel(norm_work work)
{
    chain_wait();
    const cuda_walk &walk = work.sums_walk;
    const walk_part part = walk_begin<L>(walk, blockIdx.x);
    const int step = walk.rows;
    float sums[KINDS][lanes_width<L>] = {};
    norm_vectors_share<lanes_width<L>>(work, walk, false);
    const norm_lanes<lanes_width<L>> by = norm_lanes_of<lanes_width<L>>(walk);
    for (int64_t first = part.first; first < part.end; first += IN_FLIGHT * step) {
        lanes_raw<L> raw_x[IN_FLIGHT], raw_dy[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            raw_x[u] = lanes_fetch<L>(work.x, first + u * step, part.channel);
            raw_dy[u] = lanes_fetch<L>(work.dy, first + u * step, part.channel);
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            float d[lanes_width<L>], g[lanes_width<L>];
            lanes_open<L>(work.x, raw_x[u], d);
            lanes_open<L>(work.dy, raw_dy[u], g);
            open_gradient(work, by, d, g, KINDS == KINDS_WITH_SLOPE ? sums[KINDS - 1] : NULL);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++) {
                sums[0][i] += g[i];
                sums[1][i] += g[i] * d[i];
            }
            if (work.g.data != NULL)
                lanes_store<L>(work.g, first + u * step, part.channel, g);
        }
    }
    chain_release();
    write_columns<KINDS, lanes_width<L>>(work.sums, walk, block_columns(sums, walk));
    if (block_is_last(work.sums.ticket))
        finish_gradients(work);
}

static void (*const sums_kernels[2][LANES_COUNT])(norm_work) = {
    {norm_gradient_sums_kernel<LANES_ANY, 2>, norm_gradient_sums_kernel<LANES_F32, 2>,
     norm_gradient_sums_kernel<LANES_BF16, 2>, NULL},
    {norm_gradient_sums_kernel<LANES_ANY, KINDS_WITH_SLOPE>, norm_gradient_sums_kernel<LANES_F32, KINDS_WITH_SLOPE>,
     norm_gradient_sums_kernel<LANES_BF16, KINDS_WITH_SLOPE>, NULL}};

template <cuda_lanes L>
static __device__ __forceinline__ void
backward_pixel(const norm_work &work, int64_t pixel, int channel, const norm_lanes<lanes_width<L>> &by,
               const float (&mean_g)[lanes_width<L>], const float (&mean_gd)[lanes_width<L>], const lanes_raw<L> &raw_x,
               const lanes_raw<L> &raw_dy, const lanes_raw<L> &before)
{
    float d[lanes_width<L>], g[lanes_width<L>];
    lanes_open<L>(work.x, raw_x, d);
    lanes_open<L>(work.dy, raw_dy, g);
    open_gradient(work, by, d, g, NULL);
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        g[i] = by.scale[i] * (g[i] - mean_g[i] - d[i] * mean_gd[i]);
    lanes_put_on<L>(work.y, pixel, channel, g, before, work.accumulate);
}

/**
 * From the last block's pixels to the first's: those are still in the cache that a pass from first to last has just
 * read.
 */
template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) norm_backward_kernel(norm_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, gridDim.x - 1 - blockIdx.x);
    const int step = work.walk.rows;
    float mean_g[lanes_width<L>], mean_gd[lanes_width<L>];
    norm_vectors_share<lanes_width<L>>(work, work.walk, true);
    const norm_lanes<lanes_width<L>> by = norm_lanes_of<lanes_width<L>>(work.walk);
    norm_vector(work.walk, NORM_MEAN_G, mean_g);
    norm_vector(work.walk, NORM_MEAN_GD, mean_gd);
    for (int64_t first = part.first; first < part.end; first += IN_FLIGHT * step) {
        lanes_raw<L> x[IN_FLIGHT], dy[IN_FLIGHT], before[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            x[u] = lanes_fetch<L>(work.x, first + u * step, part.channel);
            dy[u] = lanes_fetch<L>(work.dy, first + u * step, part.channel);
            if (work.accumulate)
                before[u] = lanes_fetch<L>(work.y, first + u * step, part.channel);
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * step < part.end)
                backward_pixel<L>(work, first + u * step, part.channel, by, mean_g, mean_gd, x[u], dy[u], before[u]);
    }
}

static void (*const backward_kernels[LANES_COUNT])(norm_work) = {
    norm_backward_kernel<LANES_ANY>, norm_backward_kernel<LANES_F32>, norm_backward_kernel<LANES_BF16>, NULL};

static cod_status inference_backward_run(const cod_plan *plan, cudaStream_t stream)
{
    const norm_work *work = static_cast<const norm_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, backward_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, norm_shared(work->walk), *work);
}

static cod_status reduce_run(const cod_plan *plan, cudaStream_t stream)
{
    const norm_work *work = static_cast<const norm_work *>(plan->state);
    const cuda_walk *walk = &work->sums_walk;
    const size_t vectors = norm_shared(*walk), sums = cuda_sums_shared(*walk, work->dslope != nullptr ? 3 : 2);
    return cuda_launch_chained(plan->device, stream, sums_kernels[work->dslope != nullptr][walk->lanes],
                               cuda_walk_grid(*walk), CUDA_THREADS, vectors > sums ? vectors : sums, *work);
}

static cod_status backward_run(const cod_plan *plan, cudaStream_t stream)
{
    COD_TRY(reduce_run(plan, stream));
    return inference_backward_run(plan, stream);
}

/** What gradients read: x, dy, gamma, beta, mean, spread, [slope]. */
static cod_status make_backward(cod_plan *plan, norm_work **out)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(norm_work)));
    norm_work *work = static_cast<norm_work *>(plan->state);
    work->x = cuda_view_of(&op->inputs[0]);
    work->dy = cuda_view_of(&op->inputs[1]);
    work->gamma = cuda_floats_of(&op->inputs[2]);
    work->beta = cuda_floats_of(&op->inputs[3]);
    work->mean = cuda_floats_of(&op->inputs[4]);
    work->spread = cuda_floats_of(&op->inputs[5]);
    work->activation = cuda_activation_of(&op->attr, &op->inputs[6]);
    work->epsilon = op->attr.epsilon;
    work->accumulate = op->accumulate;
    *out = work;
    return COD_OK;
}

/** The pass that writes dx. */
static void make_dx(const cod_plan *plan, norm_work *work)
{
    cuda_view absent = {};
    work->y = cuda_view_of(&plan->ops->outputs[0]);
    work->walk = cuda_walk_of(plan->device, {&work->x, &work->dy, &work->y, &absent}, {.by_channel = true});
}

/** The pass that sums; `outputs`: dgamma, dbeta, [dslope]. */
static cod_status make_sums(cod_plan *plan, const cod_view *outputs, norm_work *work)
{
    work->dgamma = cuda_floats_of(&outputs[0]);
    work->dbeta = cuda_floats_of(&outputs[1]);
    work->dslope = cuda_floats_of(&outputs[2]);
    work->dslope_by_channel = work->dslope != nullptr && cod_shape_count(outputs[2].shape) > 1;
    cuda_view absent = {};
    work->sums_walk =
        cuda_walk_of(plan->device, {&work->x, &work->dy, &work->g, &absent}, {.by_channel = true, .sums = true});
    const int64_t kinds = work->dslope != nullptr ? KINDS_WITH_SLOPE : 2;
    return cuda_sums_create(plan, kinds * work->x.channels, work->sums_walk.blocks, &work->sums);
}

cod_status cuda_make_norm_backward(cod_plan *plan)
{
    norm_work *work;
    COD_TRY(make_backward(plan, &work));
    make_dx(plan, work);
    plan->run = backward_run;
    return make_sums(plan, &plan->ops->outputs[1], work);
}

cod_status cuda_make_norm_backward_reduce(cod_plan *plan)
{
    norm_work *work;
    COD_TRY(make_backward(plan, &work));
    work->g = cuda_view_of(&plan->ops->outputs[0]);
    work->sums_out = cuda_floats_of(&plan->ops->outputs[1]);
    plan->run = reduce_run;
    return make_sums(plan, &plan->ops->outputs[2], work);
}

cod_status cuda_make_norm_backward_apply(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(norm_work)));
    norm_work *work = static_cast<norm_work *>(plan->state);
    work->x = cuda_view_of(&op->inputs[0]);
    work->dy = cuda_view_of(&op->inputs[1]);
    work->gamma = cuda_floats_of(&op->inputs[2]);
    work->mean = cuda_floats_of(&op->inputs[3]);
    work->spread = cuda_floats_of(&op->inputs[4]);
    work->sums_of_g = cuda_floats_of(&op->inputs[5]);
    work->accumulate = op->accumulate;
    make_dx(plan, work);
    plan->run = inference_backward_run;
    return COD_OK;
}

cod_status cuda_make_norm_inference_backward(cod_plan *plan)
{
    norm_work *work;
    COD_TRY(make_backward(plan, &work));
    make_dx(plan, work);
    work->spread_is_variance = true;
    plan->run = inference_backward_run;
    return COD_OK;
}

/** A convolution's weights [O][inner] and bias with the normalisation behind it folded in. */
struct fold_work {
    const float *w, *b, *gamma, *beta, *mean, *var;
    float *folded_w, *folded_b, epsilon;
    int inner, outputs;
};

/** A block has one output channel. */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) fold_norm_kernel(fold_work work)
{
    chain_wait();
    const unsigned o = blockIdx.x;
    const float scale = work.gamma[o] / sqrtf(work.var[o] + work.epsilon);
    const float *w = work.w + (int64_t)o * work.inner;
    float *folded = work.folded_w + (int64_t)o * work.inner;
    for (int i = (int)threadIdx.x; i < work.inner; i += (int)blockDim.x)
        folded[i] = w[i] * scale;
    if (threadIdx.x == 0)
        work.folded_b[o] = ((work.b != NULL ? work.b[o] : 0) - work.mean[o]) * scale + work.beta[o];
}

static cod_status fold_run(const cod_plan *plan, cudaStream_t stream)
{
    const fold_work *work = static_cast<const fold_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, fold_norm_kernel, static_cast<unsigned>(work->outputs),
                               CUDA_THREADS, 0, *work);
}

cod_status cuda_make_fold_norm(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(fold_work)));
    fold_work *work = static_cast<fold_work *>(plan->state);
    work->w = cuda_floats_of(&op->inputs[0]);
    work->b = cuda_floats_of(&op->inputs[1]);
    work->gamma = cuda_floats_of(&op->inputs[2]);
    work->beta = cuda_floats_of(&op->inputs[3]);
    work->mean = cuda_floats_of(&op->inputs[4]);
    work->var = cuda_floats_of(&op->inputs[5]);
    work->folded_w = cuda_floats_of(&op->outputs[0]);
    work->folded_b = cuda_floats_of(&op->outputs[1]);
    work->epsilon = op->attr.epsilon;
    work->outputs = static_cast<int>(op->inputs[0].shape.n);
    work->inner = static_cast<int>(cod_shape_count(op->inputs[0].shape) / work->outputs);
    plan->run = fold_run;
    return COD_OK;
}
