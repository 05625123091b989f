#include "cuda/activation.cuh"
#include "cuda/conv.cuh"
#include "cuda/walk.cuh"

/*
 * PIXEL_SHUFFLE and PIXEL_UNSHUFFLE: the same moves between a large picture and an r times smaller one, in two
 * directions. Behind a convolution the first one has an activation, too (conv_shuffled.cu).
 */

struct shuffle_work {
    cuda_view small, large; /**< {N, H, W, C·r²} and {N, rH, rW, C} */
    cuda_view activated;    /**< as `large`; data NULL = there is no activation */
    cuda_activation activation;
    int factor;
    bool accumulate;
};

/** One element of the target a thread. `enlarge`: to the large picture. */
template <bool enlarge>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) shuffle_elements_kernel(shuffle_work work)
{
    chain_wait();
    const cuda_view &target = enlarge ? work.large : work.small;
    const int64_t item = grid_first();
    if (item >= target.count)
        return;
    const int r = work.factor;
    int channel, column, line_in, column_in;
    const int64_t pixel = split(item, target.channels, &channel), line = split(pixel, target.w, &column);
    if (enlarge) {
        const int64_t small_line = split(line, r, &line_in);
        const int small_column = (int)split(column, r, &column_in);
        const float value =
            view_load(work.small, small_line * work.small.w + small_column, (channel * r + line_in) * r + column_in);
        if (work.large.data != NULL)
            view_store(work.large, pixel, channel, value);
        if (work.activated.data != NULL)
            view_store(work.activated, pixel, channel, activate(work.activation, value, channel));
    } else {
        const int c = (int)split(split(channel, r, &column_in), r, &line_in);
        const float value = view_load(work.large, (line * r + line_in) * work.large.w + column * r + column_in, c);
        view_put(work.small, pixel, channel, value, work.accumulate);
    }
}

/** As many channels of the large picture as one access holds, and what they are in the small one, a thread. */
template <cuda_lanes L, int R, bool enlarge>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) shuffle_vectors_kernel(shuffle_work work)
{
    chain_wait();
    constexpr int width = lanes_width<L>, squared = R * R;
    int column, x;
    const int64_t pixel = split(grid_first(), work.large.channels / width, &column);
    if (pixel >= work.small.pixels)
        return;
    const int64_t line = split(pixel, work.small.w, &x) * R;
    float values[squared * width], access[width], slope[width];
    lanes_raw<L> before[squared];
    if (enlarge && work.activated.data != NULL)
        activation_slopes(work.activation, column * width, slope);
#pragma unroll
    for (int k = 0; k < squared; k++) { /* which access of the small picture; which pixel of the large one */
        const int64_t large = (line + k / R) * work.large.w + x * R + k % R;
        if constexpr (enlarge)
            lanes_load<L>(work.small, pixel, (column * squared + k) * width, access);
        else
            lanes_load<L>(work.large, large, column * width, access);
        if (!enlarge && work.accumulate)
            before[k] = lanes_fetch<L>(work.small, pixel, (column * squared + k) * width);
#pragma unroll
        for (int i = 0; i < width; i++)
            values[enlarge ? k * width + i : i * squared + k] = access[i];
    }
    chain_release();
#pragma unroll
    for (int k = 0; k < squared; k++) {
        const int64_t large = (line + k / R) * work.large.w + x * R + k % R;
#pragma unroll
        for (int i = 0; i < width; i++)
            access[i] = values[enlarge ? i * squared + k : k * width + i];
        if constexpr (!enlarge) {
            lanes_put_on<L>(work.small, pixel, (column * squared + k) * width, access, before[k], work.accumulate);
        } else {
            if (work.large.data != NULL)
                lanes_store<L>(work.large, large, column * width, access);
            if (work.activated.data == NULL)
                continue;
            activate_lanes(work.activation, slope, access);
            lanes_store<L>(work.activated, large, column * width, access);
        }
    }
}

/** The kernel of vectors for a factor R. */
template <int R> static auto vectors_kernel_of(cuda_lanes lanes, bool enlarge) -> void (*)(shuffle_work)
{
    if (enlarge)
        return lanes == LANES_F32 ? shuffle_vectors_kernel<LANES_F32, R, true>
                                  : shuffle_vectors_kernel<LANES_BF16, R, true>;
    return lanes == LANES_F32 ? shuffle_vectors_kernel<LANES_F32, R, false>
                              : shuffle_vectors_kernel<LANES_BF16, R, false>;
}

/** Where the activation's output is not one of its own, the picture before it is not written. */
static void describe_activation(const cod_op *op, shuffle_work *work)
{
    work->activation = cuda_activation_of(&op->attr, &op->inputs[CONV_SLOPE]);
    if (work->activation.kind == COD_ACT_NONE)
        return;
    work->activated = cuda_view_of(&op->outputs[CONV_ACTIVATED]);
    if (work->activated.data != nullptr)
        return;
    work->activated = work->large;
    work->large.data = nullptr;
}

static cod_status make_shuffle(cod_plan *plan, const cod_view *small, const cod_view *large, bool enlarge)
{
    shuffle_work work = {};
    work.small = cuda_view_of(small);
    work.large = cuda_view_of(large);
    work.factor = plan->ops[0].attr.factor;
    work.accumulate = plan->ops[0].accumulate;
    if (enlarge)
        describe_activation(plan->ops, &work);
    const cuda_view *const views[] = {&work.small, &work.large, &work.activated};
    const cuda_lanes lanes = cuda_lanes_of(views, 3, false);
    if (lanes == LANES_ANY || (work.factor != 2 && work.factor != 3))
        return cuda_plan_launches(plan, work,
                                  {{enlarge ? shuffle_elements_kernel<true> : shuffle_elements_kernel<false>,
                                    cuda_item_blocks(work.large.count), 0}});
    return cuda_plan_launches(
        plan, work,
        {{work.factor == 2 ? vectors_kernel_of<2>(lanes, enlarge) : vectors_kernel_of<3>(lanes, enlarge),
          cuda_item_blocks(work.large.count / work.factor / work.factor / cuda_lanes_width(lanes)), 0}});
}

cod_status cuda_make_pixel_shuffle(cod_plan *plan)
{
    return make_shuffle(plan, &plan->ops[0].inputs[0], &plan->ops[0].outputs[0], true);
}

cod_status cuda_make_pixel_unshuffle(cod_plan *plan)
{
    return make_shuffle(plan, &plan->ops[0].outputs[0], &plan->ops[0].inputs[0], false);
}
