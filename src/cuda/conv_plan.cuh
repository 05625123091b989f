/**
 * @file
 * What plans of convolutions and of their weight gradients share on the host (conv_plan.cu).
 */
#ifndef COD_CUDA_CONV_PLAN_CUH
#define COD_CUDA_CONV_PLAN_CUH

#include "cuda/narrow.cuh"
#include "cuda/tuner.cuh"

#include <cstdio>

/**
 * Numbers of own candidates beside those of kernels: by the cost model, between wide and narrow tensors, by the kernel
 * of 3x3, and by that of 3x3 with a shuffle.
 */
enum { CONV_BY_COST = -1, CONV_NARROW = -2, CONV_THREE = -3, CONV_SHUFFLED = -4 };

/** What is multiplied, bf16, f32 or s8, of how many images; where the range of s8 lies in the device's memory. */
struct conv_operands {
    cod_dtype dtype;
    int images;
    const float *int8_range;
};

/** Memory of a plan, given out from its first byte on; with base 0 only counted. */
struct conv_memory {
    uintptr_t base;
    size_t used;
};

template <typename T> static T *conv_take(conv_memory *memory, int64_t count)
{
    const uintptr_t at = memory->base + memory->used;
    memory->used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T *>(at);
}

static inline conv_side conv_side_of(int outputs, int kernel, int stride, int pad, bool backward)
{
    return {outputs, kernel, stride, pad, backward, false};
}

/** The attributes that count: a linear layer's strides and padding need not be set. */
cod_op_attr conv_attributes(const cod_op *op);
conv_filter conv_filter_of(const cod_view *w, int factor, bool backward);
/**
 * Tensor cores wherever a side is bf16: an f32 side is rounded to bf16 as it is staged, as src/cpu does, since the
 * program chose bf16 for what it computes. Between f32 views products are f32.
 */
cod_dtype conv_multiplied_type(const cod_op *op, const cod_op_attr *attr);
/**
 * Makes the image one that kernels read in pieces: itself, or a copy. @return groups of a cell's channels
 *
 * @param w  of an image that taps go over, which may be folded; NULL for dy of a gradient
 */
int conv_stage_image(const conv_operands &operands, conv_image *image, conv_side *w, conv_staging *staging,
                     conv_memory *memory);

/** Adds those that the device has room for; `preferred` comes first: the cost model's choice. */
template <typename P>
static void conv_add_kernels(const cod_device *device, const conv_kernel<P> *kernels, const conv_kernel<P> &preferred,
                             cuda_candidates *list)
{
    for (int others = 0; others < 2; others++) {
        for (int number = 0; kernels[number].rows > 0; number++) {
            const conv_kernel<P> *kernel = &kernels[number];
            if ((kernel->run != preferred.run) != (others == 1) || kernel->shared_bytes > device->shared_bytes)
                continue;
            char name[CUDA_NAME_BYTES];
            snprintf(name, sizeof name, "own-%dx%d", kernel->rows, kernel->columns);
            cuda_candidates_add(list, name, {conv_make_own, nullptr, number});
        }
    }
}

/* conv_gradient_plan.cu */
/** Makes a plan of weight gradients. `choice`: the number of a kernel of any shape, CONV_BY_COST or CONV_THREE. */
COD_MUST_CHECK cod_status conv_make_gradients(cod_plan *plan, int choice);
void conv_gradient_candidates(const cod_plan *plan, cuda_candidates *list);

#endif
