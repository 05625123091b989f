#include "cuda/loss.cuh"

/* Losses that are means over elements, and total variation. Those over rows of classes: loss_rows.cu. */

enum { IN_FLIGHT = 4 };

/**
 * max(x, 0) - x·t + log(1 + e^-|x|); the derivative by x, sigmoid(x) - t, in a form that does not cancel at t = 0 and t
 * = 1.
 */
static __device__ __forceinline__ float binary_cross_entropy(float x, float t, float &dx, float &dt)
{
    const float e = expf(-fabsf(x)), tail = e / (1 + e); /* the smaller of sigmoid(x) and 1 - sigmoid(x) */
    dx = x > 0 ? (1 - t) - tail : tail - t;
    dt = -x;
    return (x > 0 ? x : 0) - x * t + log1pf(e);
}

static __device__ __forceinline__ float hinge(float x, float t, float &dx, float &dt)
{
    const float margin = 1 - t * x, flat = margin <= 0 ? 0 : margin; /* NaN stays NaN */
    dx = margin > 0 ? -t : flat;
    dt = margin > 0 ? -x : flat;
    return margin > 0 ? margin : flat;
}

static __device__ __forceinline__ float charbonnier(float d, float epsilon, float &dx)
{
    const float root = sqrtf(d * d + epsilon * epsilon);
    dx = root <= 0 ? 0 : d / root;
    return root;
}

/** The sum of the losses of some elements; prediction and target become the derivatives by them. */
template <int WIDTH>
static __device__ __forceinline__ float loss_lanes(const loss_work &work, float (&x)[WIDTH], float (&t)[WIDTH])
{
    float sum = 0;
    if (work.kind == COD_LOSS_BCE || work.kind == COD_LOSS_HINGE) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            float dx, dt;
            sum += work.kind == COD_LOSS_BCE ? binary_cross_entropy(x[i], t[i], dx, dt) : hinge(x[i], t[i], dx, dt);
            x[i] = dx;
            t[i] = dt;
        }
        return sum;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        x[i] -= t[i];
    if (work.kind == COD_LOSS_L1) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            sum += fabsf(x[i]);
            x[i] = sign_of(x[i]);
        }
    } else if (work.kind == COD_LOSS_MSE) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            sum += x[i] * x[i];
            x[i] *= 2;
        }
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            sum += charbonnier(x[i], work.epsilon, x[i]);
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        t[i] = -x[i];
    return sum;
}

/** Writes derivatives, times their factor, where they are wanted. */
template <cuda_lanes L>
static __device__ __forceinline__ void put_gradient(const cuda_view &view, int64_t pixel, int channel, float factor,
                                                    float (&derivative)[lanes_width<L>], bool accumulate)
{
    if (view.data == NULL)
        return;
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        derivative[i] *= factor;
    lanes_put<L>(view, pixel, channel, derivative, accumulate);
}

template <cuda_lanes L> struct loss_raw {
    lanes_raw<L> prediction, target;
};

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) loss_kernel(loss_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    const float factor = loss_factor(work);
    float sum = 0;
    walk_pixels<IN_FLIGHT>(
        work.walk, part,
        [&](int64_t pixel) {
            loss_raw<L> raw;
            raw.prediction = lanes_fetch<L>(work.prediction, pixel, part.channel);
            raw.target = lanes_fetch<L>(work.target, pixel, part.channel);
            return raw;
        },
        [&](int64_t pixel, const loss_raw<L> &raw) {
            float dx[lanes_width<L>], dt[lanes_width<L>];
            lanes_open<L>(work.prediction, raw.prediction, dx);
            lanes_open<L>(work.target, raw.target, dt);
            sum += loss_lanes(work, dx, dt);
            put_gradient<L>(work.dprediction, pixel, part.channel, factor, dx, work.accumulate);
            put_gradient<L>(work.dtarget, pixel, part.channel, factor, dt, work.accumulate);
        });
    loss_finish(work, sum);
}

/** A neighbour of the total variation: x - (what lies `step` pixels on), zeros where there is nothing. */
template <cuda_lanes L>
static __device__ __forceinline__ void differences(const cuda_view &view, int64_t pixel, int channel, int step,
                                                   bool inside, const float (&x)[lanes_width<L>],
                                                   float (&out)[lanes_width<L>])
{
    if (inside)
        lanes_load<L>(view, pixel + step, channel, out);
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        out[i] = inside ? x[i] - out[i] : 0;
}

/** Adds `factor` times the signs to the derivative. */
template <int WIDTH>
static __device__ __forceinline__ void add_signs(float factor, const float (&apart)[WIDTH], float (&derivative)[WIDTH])
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        derivative[i] += factor * sign_of(apart[i]);
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) variation_kernel(loss_work work)
{
    chain_wait();
    const cuda_view &x = work.prediction;
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    const float factor = loss_factor(work);
    float sum = 0;
    for (int64_t pixel = part.first; pixel < part.end; pixel += work.walk.rows) {
        int column, row;
        split(split(pixel, x.w, &column), x.h, &row);
        float here[lanes_width<L>], above[lanes_width<L>], beside[lanes_width<L>], derivative[lanes_width<L>] = {};
        lanes_load<L>(x, pixel, part.channel, here);
        differences<L>(x, pixel, part.channel, -x.w, row > 0, here, above);
        differences<L>(x, pixel, part.channel, -1, column > 0, here, beside);
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            sum += work.vertical * fabsf(above[i]) + work.horizontal * fabsf(beside[i]);
        if (work.dprediction.data == NULL)
            continue;
        add_signs(work.vertical, above, derivative);
        add_signs(work.horizontal, beside, derivative);
        differences<L>(x, pixel, part.channel, x.w, row + 1 < x.h, here, above);
        differences<L>(x, pixel, part.channel, 1, column + 1 < x.w, here, beside);
        add_signs(work.vertical, above, derivative);
        add_signs(work.horizontal, beside, derivative);
        put_gradient<L>(work.dprediction, pixel, part.channel, factor, derivative, work.accumulate);
    }
    loss_finish(work, sum);
}

static float share_of(int64_t pairs)
{
    return pairs > 0 ? 1 / static_cast<float>(pairs) : 0;
}

cod_status cuda_make_loss(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const cod_op_attr *attr = &op->attr;
    const cod_shape shape = op->inputs[0].shape;
    loss_work work = {};
    work.prediction = cuda_view_of(&op->inputs[0]);
    work.target = cuda_view_of(&op->inputs[1]);
    work.weight = cuda_floats_of(&op->inputs[2]);
    work.value = cuda_floats_of(&op->outputs[0]);
    work.dprediction = cuda_view_of(&op->outputs[1]);
    work.dtarget = cuda_view_of(&op->outputs[2]);
    work.kind = attr->loss;
    work.alpha = attr->alpha;
    work.epsilon = attr->epsilon;
    work.temperature = attr->temperature == 0 ? 1 : attr->temperature;
    work.smoothing = attr->smoothing;
    work.accumulate = op->accumulate;
    if (attr->loss == COD_LOSS_CROSS_ENTROPY || attr->loss == COD_LOSS_KL)
        return cuda_make_loss_rows(plan, &work);
    cuda_view *const views[CUDA_WALK_VIEWS] = {&work.prediction, &work.target, &work.dprediction, &work.dtarget};
    const bool variation = attr->loss == COD_LOSS_TV;
    work.walk = cuda_walk_of(plan->device, views, {.by_channel = variation, .mixed = !variation, .sums = true});
    work.mean = variation ? 1 : 1 / static_cast<float>(cod_shape_count(shape));
    work.vertical = share_of(shape.n * (shape.h - 1) * shape.w * shape.c);
    work.horizontal = share_of(shape.n * shape.h * (shape.w - 1) * shape.c);
    const dim3 grid = cuda_walk_grid(work.walk);
    COD_TRY(cuda_sums_create(plan, 1, static_cast<int64_t>(grid.x) * grid.y * grid.z, &work.sums));
    return cuda_plan_launches(plan, work,
                              {{variation ? CUDA_LANES_KERNEL(variation_kernel, work.walk.lanes)
                                          : CUDA_MIXED_KERNEL(loss_kernel, work.walk.lanes),
                                grid, CUDA_THREADS * sizeof(float)}});
}
