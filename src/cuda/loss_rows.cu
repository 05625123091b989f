#include "cuda/loss.cuh"

/* Losses over rows of K classes. A row belongs to a group of threads: as many lanes of a warp as it has classes, or the whole block. */

enum { WIDEST_ROW_OF_A_WARP = 128, BLOCKS_A_PROCESSOR = 4 };

/** The thread's row and its place in the group. */
struct row_place {
    int64_t row;
    int lane, group;
    bool valid;
};

/** The sum over a group, in all its threads. All threads of the block call it. */
static __device__ __forceinline__ float group_sum(float value, int group)
{
    if (group > WARP_LANES)
        return block_sum(value);
    for (int mask = group / 2; mask > 0; mask /= 2)
        value += shuffle_xor(value, (unsigned)mask);
    return value;
}

static __device__ __forceinline__ float group_max(float value, int group)
{
    for (int mask = (group < WARP_LANES ? group : WARP_LANES) / 2; mask > 0; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, (unsigned)mask));
    if (group <= WARP_LANES)
        return value;
    float *shared = shared_memory<float>();
    block_sync();
    if (threadIdx.x % WARP_LANES == 0)
        shared[threadIdx.x / WARP_LANES] = value;
    block_sync();
    for (unsigned warp = 0; warp < blockDim.x / WARP_LANES; warp++)
        value = fmaxf(value, shared[warp]);
    block_sync();
    return value;
}

/** log softmax(logits / T)[k] = (logits[k] - largest) / T - log_sum */
struct normaliser {
    float largest, log_sum, temperature;
};

static __device__ __forceinline__ normaliser normaliser_of(const cuda_view &logits, const row_place &at, int classes,
                                                           float temperature)
{
    float largest = -INFINITY, sum = 0;
    for (int k = at.lane; k < classes && at.valid; k += at.group)
        largest = fmaxf(largest, view_load(logits, at.row, k));
    largest = group_max(largest, at.group);
    for (int k = at.lane; k < classes && at.valid; k += at.group)
        sum += expf((view_load(logits, at.row, k) - largest) / temperature);
    return {largest, logf(group_sum(sum, at.group)), temperature};
}

static __device__ __forceinline__ float log_softmax(const normaliser &by, float logit)
{
    return (logit - by.largest) / by.temperature - by.log_sum;
}

/** Value -Σ t'·log q, t' the smoothed target; derivatives q·Σ t' - t' by the logits and -(1-s)·log q by the target. */
static __device__ __forceinline__ float cross_entropy_row(const loss_work &work, const row_place &at, float factor)
{
    const normaliser by = normaliser_of(work.prediction, at, work.classes, 1);
    const float keep = 1 - work.smoothing, spread = work.smoothing / (float)work.classes;
    float value = 0, sum = 0;
    for (int k = at.lane; k < work.classes && at.valid; k += at.group) {
        const float t = keep * view_load(work.target, at.row, k) + spread;
        value -= t == 0 ? 0 : t * log_softmax(by, view_load(work.prediction, at.row, k)); /* 0·log 0 = 0 */
        sum += t;
    }
    if (work.dprediction.data == NULL && work.dtarget.data == NULL)
        return value;
    sum = group_sum(sum, at.group);
    for (int k = at.lane; k < work.classes && at.valid; k += at.group) {
        const float t = keep * view_load(work.target, at.row, k) + spread;
        const float log_q = log_softmax(by, view_load(work.prediction, at.row, k));
        if (work.dprediction.data != NULL)
            view_put(work.dprediction, at.row, k, factor * (sum * expf(log_q) - t), work.accumulate);
        if (work.dtarget.data != NULL)
            view_put(work.dtarget, at.row, k, factor * (-keep * log_q), work.accumulate);
    }
    return value;
}

/** Value T²·KL, KL = Σ p·(log p - log q); derivatives by the logits T·(q - p) and T·p·(log p - log q - KL). */
static __device__ __forceinline__ float kl_row(const loss_work &work, const row_place &at, float factor)
{
    const float temperature = work.temperature;
    const normaliser by_q = normaliser_of(work.prediction, at, work.classes, temperature);
    const normaliser by_p = normaliser_of(work.target, at, work.classes, temperature);
    float value = 0;
    for (int k = at.lane; k < work.classes && at.valid; k += at.group) {
        const float log_q = log_softmax(by_q, view_load(work.prediction, at.row, k));
        const float log_p = log_softmax(by_p, view_load(work.target, at.row, k)), p = expf(log_p);
        value += p == 0 ? 0 : p * (log_p - log_q); /* 0·log 0 = 0 */
    }
    const float divergence = group_sum(value, at.group);
    for (int k = at.lane; k < work.classes && at.valid; k += at.group) {
        const float log_q = log_softmax(by_q, view_load(work.prediction, at.row, k));
        const float log_p = log_softmax(by_p, view_load(work.target, at.row, k)), p = expf(log_p);
        if (work.dprediction.data != NULL)
            view_put(work.dprediction, at.row, k, factor * temperature * (expf(log_q) - p), work.accumulate);
        if (work.dtarget.data != NULL)
            view_put(work.dtarget, at.row, k, p == 0 ? 0 : factor * temperature * p * (log_p - log_q - divergence),
                     work.accumulate);
    }
    return temperature * temperature * value;
}

__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) loss_rows_kernel(loss_work work)
{
    chain_wait();
    const int rows = CUDA_THREADS / work.group;
    const float factor = loss_factor(work);
    float sum = 0;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < work.prediction.pixels;
         first += (int64_t)gridDim.x * rows) {
        row_place at;
        at.group = work.group;
        at.lane = (int)threadIdx.x % work.group;
        at.row = first + (int)threadIdx.x / work.group;
        at.valid = at.row < work.prediction.pixels;
        sum += work.kind == COD_LOSS_KL ? kl_row(work, at, factor) : cross_entropy_row(work, at, factor);
    }
    loss_finish(work, sum);
}

static cod_status loss_rows_run(const cod_plan *plan, cudaStream_t stream)
{
    const loss_work *work = static_cast<const loss_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, loss_rows_kernel, work->walk.blocks, CUDA_THREADS,
                               CUDA_THREADS * sizeof(float), *work);
}

cod_status cuda_make_loss_rows(cod_plan *plan, loss_work *work)
{
    work->classes = work->prediction.channels;
    work->mean = 1 / static_cast<float>(work->prediction.pixels);
    work->group = work->classes > WIDEST_ROW_OF_A_WARP ? CUDA_THREADS : 1;
    while (work->group < WARP_LANES && work->group < work->classes)
        work->group *= 2;
    const int64_t rows = CUDA_THREADS / work->group, needed = cuda_divide_up(work->prediction.pixels, rows),
                  most = static_cast<int64_t>(plan->device->multiprocessors) * BLOCKS_A_PROCESSOR;
    work->walk.blocks = static_cast<unsigned>(needed < most ? needed : most);
    work->walk.tiles = 1;
    plan->run = loss_rows_run;
    return cuda_sums_create(plan, 1, work->walk.blocks, &work->sums);
}
