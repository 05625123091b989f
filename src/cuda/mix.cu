#include "cuda/class_rows.cuh"

/* MIX: logits of the weighted mean of two predictions. */

struct mix_work {
    class_rows rows;
    cuda_view x, y;
    const float *share; /**< read when the kernel runs, as it changes from step to step */
    float temperature;
};

__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) mix_kernel(mix_work work)
{
    chain_wait();
    const float log_x = logf(work.share[0]), log_y = logf(1 - work.share[0]);
    const int step = CUDA_THREADS / work.rows.group, classes = work.rows.classes;
    for (int64_t first = (int64_t)blockIdx.x * step; first < work.rows.count; first += (int64_t)gridDim.x * step) {
        const row_place at = row_place_of(work.rows, first);
        const normaliser by_x = normaliser_of(work.x, at, classes, work.temperature);
        const normaliser by_y = normaliser_of(work.y, at, classes, work.temperature);
        for (int k = at.lane; k < classes && at.valid; k += at.group) {
            const float a = log_x + log_softmax(by_x, view_load(work.x, at.row, k));
            const float b = log_y + log_softmax(by_y, view_load(work.y, at.row, k));
            view_store(work.y, at.row, k, work.temperature * (fmaxf(a, b) + log1pf(expf(-fabsf(a - b)))));
        }
    }
}

cod_status cuda_make_mix(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    mix_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.y = cuda_view_of(&op->outputs[0]);
    work.share = cuda_floats_of(&op->inputs[1]);
    work.temperature = op->attr.temperature == 0 ? 1 : op->attr.temperature;
    work.rows = class_rows_of(work.x);
    return cuda_plan_launches(plan, work,
                              {{mix_kernel, class_rows_blocks(plan->device, work.rows), CLASS_ROWS_SHARED}});
}
