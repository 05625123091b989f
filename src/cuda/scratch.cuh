/**
 * @file
 * Scratch memory of weight gradients, and of convolutions that shuffle pixels. Plans of a device whose `dy`, or `y`,
 * lie in the same buffer share it, because no two of them run at the same time (core/backend.h, plan_run()).
 */
#ifndef COD_CUDA_SCRATCH_CUH
#define COD_CUDA_SCRATCH_CUH

#include "cuda/cuda_internal.h"

/**
 * Gives a plan whose dy or y lies in `shared_by` at least `bytes` of scratch memory. Its contents are undefined before
 * each run. Until it is first used, plans that join later may move it.
 *
 * @param[out] out  end it with cuda_scratch_leave()
 */
COD_MUST_CHECK cod_status cuda_scratch_join(cod_device *device, const cod_buffer *shared_by, size_t bytes,
                                            cuda_scratch **out);
/** The memory's address, for a run of the plan or its recording. From now on it does not move. */
float *cuda_scratch_use(cuda_scratch *scratch);
/** Takes NULL. The last plan that leaves frees the memory, and waits for queued work before that. */
void cuda_scratch_leave(cuda_scratch *scratch);

#endif
