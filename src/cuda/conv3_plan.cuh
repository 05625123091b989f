/**
 * @file
 * What plans on the kernels of conv3.cuh share on the host: the choice of kernel and tiles (conv3_tiles.cu), and the
 * plan that follows from it (conv3_plan.cu).
 */
#ifndef COD_CUDA_CONV3_PLAN_CUH
#define COD_CUDA_CONV3_PLAN_CUH

#include "cuda/conv3.cuh"

/** Of a tensor that a kernel reads, so that what a block joins of all outputs fits its shared memory. */
enum { CONV3_MOST_CHANNELS = 128, CONV3_MOST_WIDTH = 1 << 15 /**< so that places within a tile's rows are ints */ };

/** A kernel and its tiles. */
struct conv3_choice {
    conv3_work work;
    conv3_store_kind store;
    conv3_kernel kernel;
    int groups;
    double cost; /**< 0 = there is none */
};

/** Which kernels are chosen from. */
enum conv3_by { CONV3_BY_ALL, CONV3_BY_MMA, CONV3_BY_WGMMA };

/** The parameters of a convolution. */
struct conv3_filter {
    const cod_view *w;
    int factor;    /**< of the shuffle behind it; 1 = none */
    bool backward; /**< a data gradient */
};

/** Whether a kernel can read or write the whole tensor by 16 bytes. */
bool conv3_fits_tensor(const cod_view *view);
/** The shapes of a convolution from x to `outputs` channels of the same pixels. */
void conv3_describe_shapes(const cod_view *x, int64_t outputs, conv3_work *work);
/**
 * Chooses by the cost model.
 *
 * @param[in,out] best  all zero but the shapes of its work, and `store`
 * @return false where no kernel's weights and tile fit a block's shared memory
 */
bool conv3_choose(const cod_device *device, conv3_by by, conv3_choice *best);
/** Blocks in x: those of all columns together fill the multiprocessors. */
int conv3_blocks(const cod_device *device, const conv3_work *work, const conv3_kernel *kernel);
/** Makes the plan. @param choice  its work with all that is loaded and stored */
COD_MUST_CHECK cod_status conv3_make(cod_plan *plan, const conv3_choice *choice, const conv3_filter *filter);

/* conv3_shuffled.cu: of a convolution that shuffles pixels, with an activation or none, as conv_tune.cu joins them. */
/** Whether there is such a kernel for the plan's op. */
bool conv3_shuffled_fits(const cod_plan *plan);
/** Whether it is to be taken where nothing is timed. */
bool conv3_shuffled_is_better(const cod_plan *plan);
COD_MUST_CHECK cod_status conv3_shuffled_make(cod_plan *plan);

#endif
