/**
 * @file
 * Scratch memory of gradients of weights: plans of a device whose `dy` lie in one buffer have it together, because no two of them run at
 * the same time (core/backend.h, plan_run()).
 */
#ifndef COD_CUDA_SCRATCH_CUH
#define COD_CUDA_SCRATCH_CUH

#include "cuda/cuda_internal.h"

/**
 * Gives a plan whose dy is in `shared_by` at least `bytes`. What they hold is undefined before each run. Plans that come later may move them
 * elsewhere until they are first used.
 *
 * @param[out] out  end it with cuda_scratch_leave()
 */
COD_MUST_CHECK cod_status cuda_scratch_join(cod_device *device, const cod_buffer *shared_by, size_t bytes,
                                            cuda_scratch **out);
/** Where they are, for a run of the plan, which may be recorded: they stay there from now on. */
float *cuda_scratch_use(cuda_scratch *scratch);
/** Takes NULL. Frees the memory behind the last plan, and waits for queued work then. */
void cuda_scratch_leave(cuda_scratch *scratch);

#endif
