#include "cuda/loss.cuh"

#include "cuda/class_rows.cuh"

/* Losses over rows of K classes. */

/** Value -Σ t'·log q, t' the smoothed target; derivatives q·Σ t' - t' by the logits and -(1-s)·log q by the target. */
static __device__ __forceinline__ float cross_entropy_row(const loss_work &work, const row_place &at, float factor)
{
    const normaliser by = normaliser_of(work.prediction, at, work.rows.classes, 1);
    const float keep = 1 - work.smoothing, spread = work.smoothing / (float)work.rows.classes;
    float value = 0, sum = 0;
    for (int k = at.lane; k < work.rows.classes && at.valid; k += at.group) {
        const float t = keep * view_load(work.target, at.row, k) + spread;
        value -= t == 0 ? 0 : t * log_softmax(by, view_load(work.prediction, at.row, k)); /* 0·log 0 = 0 */
        sum += t;
    }
    if (work.dprediction.data == NULL && work.dtarget.data == NULL)
        return value;
    sum = group_sum(sum, at.group);
    for (int k = at.lane; k < work.rows.classes && at.valid; k += at.group) {
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
    const normaliser by_q = normaliser_of(work.prediction, at, work.rows.classes, temperature);
    const normaliser by_p = normaliser_of(work.target, at, work.rows.classes, temperature);
    float value = 0;
    for (int k = at.lane; k < work.rows.classes && at.valid; k += at.group) {
        const float log_q = log_softmax(by_q, view_load(work.prediction, at.row, k));
        const float log_p = log_softmax(by_p, view_load(work.target, at.row, k)), p = expf(log_p);
        value += p == 0 ? 0 : p * (log_p - log_q); /* 0·log 0 = 0 */
    }
    const float divergence = group_sum(value, at.group);
    for (int k = at.lane; k < work.rows.classes && at.valid; k += at.group) {
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
    const int step = CUDA_THREADS / work.rows.group;
    const float factor = loss_factor(work);
    float sum = 0;
    for (int64_t first = (int64_t)blockIdx.x * step; first < work.rows.count; first += (int64_t)gridDim.x * step) {
        const row_place at = row_place_of(work.rows, first);
        sum += work.kind == COD_LOSS_KL ? kl_row(work, at, factor) : cross_entropy_row(work, at, factor);
    }
    loss_finish(work, sum);
}

cod_status cuda_make_loss_rows(cod_plan *plan, loss_work *work)
{
    work->rows = class_rows_of(work->prediction);
    const unsigned blocks = class_rows_blocks(plan->device, work->rows);
    work->mean = 1 / static_cast<float>(work->rows.count);
    COD_TRY(cuda_sums_create(plan, 1, blocks, &work->sums));
    return cuda_plan_launches(plan, *work, {{loss_rows_kernel, blocks, CLASS_ROWS_SHARED}});
}
