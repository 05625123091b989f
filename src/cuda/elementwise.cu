#include "cuda/activation.cuh"

/** An element's place: elements are numbered in NHWC order. */
struct place {
    int64_t pixel;
    int channel;
};

static __device__ __forceinline__ place place_of(const cuda_view &view, int64_t element)
{
    const int64_t pixel = element / view.channels;
    return {pixel, (int)(element - pixel * view.channels)};
}

__global__ void add_kernel(cuda_view a, cuda_view b, cuda_view y, float alpha, float beta, bool accumulate)
{
    for (int64_t i = grid_first(); i < y.count; i += grid_step()) {
        const place at = place_of(y, i);
        float value = alpha * view_load(a, at.pixel, at.channel);
        if (b.data != NULL)
            value += beta * view_load(b, at.pixel, at.channel);
        view_put(y, at.pixel, at.channel, value, accumulate);
    }
}

static cod_status add_run(const cod_plan *plan, cudaStream_t stream)
{
    const cod_op *op = &plan->op;
    const cuda_view y = cuda_view_of(&op->outputs[0]);
    return cuda_launch(stream, add_kernel, cuda_blocks(plan->device, y.count), CUDA_THREADS, 0,
                       cuda_view_of(&op->inputs[0]), cuda_view_of(&op->inputs[1]), y, op->attr.alpha, op->attr.beta,
                       op->accumulate);
}

cod_status cuda_make_add(cod_plan *plan)
{
    plan->run = add_run;
    return COD_OK;
}

__global__ void activation_kernel(cuda_view x, cuda_view y, cuda_activation activation)
{
    for (int64_t i = grid_first(); i < y.count; i += grid_step()) {
        const place at = place_of(y, i);
        view_store(y, at.pixel, at.channel, activate(activation, view_load(x, at.pixel, at.channel), at.channel));
    }
}

static cod_status activation_run(const cod_plan *plan, cudaStream_t stream)
{
    const cod_op *op = &plan->op;
    const cuda_view y = cuda_view_of(&op->outputs[0]);
    return cuda_launch(stream, activation_kernel, cuda_blocks(plan->device, y.count), CUDA_THREADS, 0,
                       cuda_view_of(&op->inputs[0]), y, cuda_activation_of(&op->attr, &op->inputs[1]));
}

cod_status cuda_make_activation(cod_plan *plan)
{
    plan->run = activation_run;
    return COD_OK;
}

__global__ void fill_kernel(cuda_view y, float value)
{
    for (int64_t i = grid_first(); i < y.count; i += grid_step()) {
        const place at = place_of(y, i);
        view_store(y, at.pixel, at.channel, value);
    }
}

static cod_status fill_run(const cod_plan *plan, cudaStream_t stream)
{
    const cuda_view y = cuda_view_of(&plan->op.outputs[0]);
    return cuda_launch(stream, fill_kernel, cuda_blocks(plan->device, y.count), CUDA_THREADS, 0, y,
                       plan->op.attr.alpha);
}

cod_status cuda_make_fill(cod_plan *plan)
{
    plan->run = fill_run;
    return COD_OK;
}
