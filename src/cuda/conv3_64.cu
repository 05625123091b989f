/* 3x3 convolutions of 64 channels, the trunk of super-resolution networks. */
#include "cuda/conv3_kernel.cuh"

const conv3_kernel *conv3_kernels_of_64()
{
    /* Large tiles take fewer fragments for each product; small ones spread a small batch over more multiprocessors. Two
     * groups
       of the large ones have as many registers as there are; three would have to spill some. */
    static const conv3_kernel kernels[] = {
        conv3_kernel_of<3, 8, 4, 1, 2, 64>(1),
        conv3_kernel_of<3, 4, 2, 2, 3, 64>(0.8f),
        {},
    };
    return kernels;
}
