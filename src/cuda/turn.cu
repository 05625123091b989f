#include "cuda/walk.cuh"

struct turn_work {
    cuda_view x, y;
    const int32_t *turns; /**< [N] bits of cod_turn */
    const float *table;   /**< [256, C] what bytes of x count as; NULL = x has values */
};

static __device__ __forceinline__ float turn_load(const turn_work &work, int64_t pixel, int channel)
{
    if (work.table == NULL)
        return view_load(work.x, pixel, channel);
    return work.table[(int)work.x.data[pixel * work.x.stride + channel] * work.x.channels + channel];
}

/** One element of y a thread. */
__global__ void __launch_bounds__(CUDA_THREADS) turn_kernel(turn_work work)
{
    chain_wait();
    const int h = work.y.h, w = work.y.w;
    int channel, column, row;
    const int64_t item = grid_first();
    if (item >= work.y.count)
        return;
    const int64_t pixel = split(item, work.y.channels, &channel), line = split(pixel, w, &column),
                  n = split(line, h, &row);
    const int32_t turn = work.turns[n];
    if (turn & COD_TURN_MIRROR_X)
        column = w - 1 - column;
    if (turn & COD_TURN_MIRROR_Y)
        row = h - 1 - row;
    const int64_t place = (turn & COD_TURN_TRANSPOSE) && h == w ? (int64_t)column * w + row : (int64_t)row * w + column;
    const float value = turn_load(work, n * h * w + place, channel);
    view_store(work.y, pixel, channel, turn & COD_TURN_INVERT ? 1 - value : value);
}

cod_status cuda_make_turn(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const turn_work work = {cuda_view_of(&op->inputs[0]), cuda_view_of(&op->outputs[0]),
                            reinterpret_cast<const int32_t *>(cuda_view_of(&op->inputs[1]).data),
                            cuda_floats_of(&op->inputs[2])};
    return cuda_plan_launches(plan, work, {{turn_kernel, cuda_item_blocks(work.y.count), 0}});
}
