/* 3x3 convolutions of any number of channels. */
#include "cuda/conv3_kernel.cuh"

const conv3_kernel *conv3_kernels_of_any()
{
    static const conv3_kernel kernels[] = {
        conv3_kernel_of<3, 8, 4, 1, 2, 0>(0.9f),
        conv3_kernel_of<3, 4, 4, 1, 3, 0>(0.7f),
        conv3_kernel_of<3, 2, 4, 1, 3, 0>(0.45f),
        {},
    };
    return kernels;
}
