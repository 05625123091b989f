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
    grid_totals(work.sums, gridDim.x);
    for (int i = (int)threadIdx.x; i < channels; i += (int)blockDim.x) {
        const float dbeta = totals[i], dgamma = totals[channels + i] * norm_inv_std(work, i);
        work.dbeta[i] = work.accumulate ? work.dbeta[i] + dbeta : dbeta;
        work.dgamma[i] = work.accumulate ? work.dgamma[i] + dgamma : dgamma;
        if (work.sums_out != NULL) {
            work.sums_out[i] = dbeta;
            work.sums_out[channels + i] = dgamma;
        }
    }
    if (work.dslope != NULL)
        dslopes_put(totals + 2 * channels, channels, work.dslope, work.dslope_by_channel, work.accumulate);
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
    float sums[KINDS][lanes_width<L>] = {};
    norm_vectors_share<lanes_width<L>>(work, walk, false);
    const norm_lanes<lanes_width<L>> by = norm_lanes_of<lanes_width<L>>(walk);
    walk_pixels<IN_FLIGHT>(
        walk, part,
        [&](int64_t pixel) { return gradient_fetch<L>(work.x, work.dy, work.y, pixel, part.channel, false); },
        [&](int64_t pixel, const gradient_raw<L> &raw) {
            float d[lanes_width<L>], g[lanes_width<L>];
            lanes_open<L>(work.x, raw.x, d);
            lanes_open<L>(work.dy, raw.dy, g);
            open_gradient(work, by, d, g, KINDS == KINDS_WITH_SLOPE ? sums[KINDS - 1] : NULL);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++) {
                sums[0][i] += g[i];
                sums[1][i] += g[i] * d[i];
            }
            if (work.g.data != NULL)
                lanes_store<L>(work.g, pixel, part.channel, g);
        });
    write_columns<KINDS, lanes_width<L>>(work.sums, walk, block_columns(sums, walk));
    if (block_is_last(work.sums.ticket))
        finish_gradients(work);
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
    float mean_g[lanes_width<L>], mean_gd[lanes_width<L>];
    norm_vectors_share<lanes_width<L>>(work, work.walk, true);
    const norm_lanes<lanes_width<L>> by = norm_lanes_of<lanes_width<L>>(work.walk);
    norm_vector(work.walk, NORM_MEAN_G, mean_g);
    norm_vector(work.walk, NORM_MEAN_GD, mean_gd);
    walk_pixels<IN_FLIGHT>(
        work.walk, part,
        [&](int64_t pixel) { return gradient_fetch<L>(work.x, work.dy, work.y, pixel, part.channel, work.accumulate); },
        [&](int64_t pixel, const gradient_raw<L> &raw) {
            float d[lanes_width<L>], g[lanes_width<L>];
            lanes_open<L>(work.x, raw.x, d);
            lanes_open<L>(work.dy, raw.dy, g);
            open_gradient(work, by, d, g, NULL);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                g[i] = by.scale[i] * (g[i] - mean_g[i] - d[i] * mean_gd[i]);
            lanes_put_on<L>(work.y, pixel, part.channel, g, raw.before, work.accumulate);
        });
}

/** What gradients read: x, dy, gamma, beta, mean, spread, [slope]. */
static norm_work backward_of(const cod_op *op)
{
    norm_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.dy = cuda_view_of(&op->inputs[1]);
    work.gamma = cuda_floats_of(&op->inputs[2]);
    work.beta = cuda_floats_of(&op->inputs[3]);
    work.mean = cuda_floats_of(&op->inputs[4]);
    work.spread = cuda_floats_of(&op->inputs[5]);
    work.activation = cuda_activation_of(&op->attr, &op->inputs[6]);
    work.epsilon = op->attr.epsilon;
    work.accumulate = op->accumulate;
    return work;
}

/** The pass that writes dx. */
static cuda_plan_kernel<norm_work> make_dx(const cod_plan *plan, norm_work *work)
{
    cuda_view absent = {};
    work->y = cuda_view_of(&plan->ops->outputs[0]);
    work->walk = cuda_walk_of(plan->device, {&work->x, &work->dy, &work->y, &absent}, {.by_channel = true});
    return cuda_walk_kernel(CUDA_LANES_KERNEL(norm_backward_kernel, work->walk.lanes), work->walk,
                            norm_shared(work->walk));
}

template <cuda_lanes L> static constexpr auto sums_with_slope_kernel = norm_gradient_sums_kernel<L, KINDS_WITH_SLOPE>;
template <cuda_lanes L> static constexpr auto sums_kernel = norm_gradient_sums_kernel<L, KINDS_WITH_SLOPE - 1>;

/** The pass that sums; `outputs`: dgamma, dbeta, [dslope]. */
static cod_status make_sums(cod_plan *plan, const cod_view *outputs, norm_work *work, cuda_plan_kernel<norm_work> *out)
{
    work->dgamma = cuda_floats_of(&outputs[0]);
    work->dbeta = cuda_floats_of(&outputs[1]);
    work->dslope = cuda_floats_of(&outputs[2]);
    work->dslope_by_channel = work->dslope != nullptr && cod_shape_count(outputs[2].shape) > 1;
    cuda_view absent = {};
    const cuda_walk &walk = work->sums_walk =
        cuda_walk_of(plan->device, {&work->x, &work->dy, &work->g, &absent}, {.by_channel = true, .sums = true});
    const bool slopes = work->dslope != nullptr;
    const int kinds = slopes ? KINDS_WITH_SLOPE : KINDS_WITH_SLOPE - 1;
    const size_t vectors = norm_shared(walk), sums = cuda_sums_shared(walk, kinds);
    *out = cuda_walk_kernel(slopes ? CUDA_LANES_KERNEL(sums_with_slope_kernel, walk.lanes)
                                   : CUDA_LANES_KERNEL(sums_kernel, walk.lanes),
                            walk, vectors > sums ? vectors : sums);
    return cuda_sums_create(plan, static_cast<int64_t>(kinds) * work->x.channels, walk.blocks, &work->sums);
}

cod_status cuda_make_norm_backward(cod_plan *plan)
{
    norm_work work = backward_of(plan->ops);
    cuda_plan_kernel<norm_work> sums;
    const cuda_plan_kernel<norm_work> dx = make_dx(plan, &work);
    COD_TRY(make_sums(plan, &plan->ops->outputs[1], &work, &sums));
    return cuda_plan_launches(plan, work, {sums, dx});
}

cod_status cuda_make_norm_backward_reduce(cod_plan *plan)
{
    norm_work work = backward_of(plan->ops);
    cuda_plan_kernel<norm_work> sums;
    work.g = cuda_view_of(&plan->ops->outputs[0]);
    work.sums_out = cuda_floats_of(&plan->ops->outputs[1]);
    COD_TRY(make_sums(plan, &plan->ops->outputs[2], &work, &sums));
    return cuda_plan_launches(plan, work, {sums});
}

cod_status cuda_make_norm_backward_apply(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    norm_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.dy = cuda_view_of(&op->inputs[1]);
    work.gamma = cuda_floats_of(&op->inputs[2]);
    work.mean = cuda_floats_of(&op->inputs[3]);
    work.spread = cuda_floats_of(&op->inputs[4]);
    work.sums_of_g = cuda_floats_of(&op->inputs[5]);
    work.accumulate = op->accumulate;
    const cuda_plan_kernel<norm_work> dx = make_dx(plan, &work);
    return cuda_plan_launches(plan, work, {dx});
}

cod_status cuda_make_norm_inference_backward(cod_plan *plan)
{
    norm_work work = backward_of(plan->ops);
    const cuda_plan_kernel<norm_work> dx = make_dx(plan, &work);
    work.spread_is_variance = true;
    return cuda_plan_launches(plan, work, {dx});
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

cod_status cuda_make_fold_norm(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    fold_work work = {};
    work.w = cuda_floats_of(&op->inputs[0]);
    work.b = cuda_floats_of(&op->inputs[1]);
    work.gamma = cuda_floats_of(&op->inputs[2]);
    work.beta = cuda_floats_of(&op->inputs[3]);
    work.mean = cuda_floats_of(&op->inputs[4]);
    work.var = cuda_floats_of(&op->inputs[5]);
    work.folded_w = cuda_floats_of(&op->outputs[0]);
    work.folded_b = cuda_floats_of(&op->outputs[1]);
    work.epsilon = op->attr.epsilon;
    work.outputs = static_cast<int>(op->inputs[0].shape.n);
    work.inner = static_cast<int>(cod_shape_count(op->inputs[0].shape) / work.outputs);
    return cuda_plan_launches(plan, work, {{fold_norm_kernel, static_cast<unsigned>(work.outputs), 0}});
}
