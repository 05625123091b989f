/**
 * @file
 * The CUDA backend ("cuda"): NVIDIA GPUs from compute capability 7.0 on; those before 8.0 run warp_older.cuh.
 *
 * Activations may be f32 or bf16 (products accumulated in f32); parameters, statistics and their gradients are f32.
 * Queues are streams, recordings are graphs. The results of a plan are the same each time it runs on the same kind of
 * GPU, even if its op does not require it, because sums have a fixed order. But two plans of one op may use different
 * implementations, which sum in different orders: for convolutions and linear layers, our kernels, cuDNN's and
 * cuBLASLt's, if these are installed, are timed, and the fastest is used. This is not done if an op is deterministic,
 * or the device was opened with no_autotune (tuner.cuh).
 */
#ifndef COD_CUDA_CUDA_H
#define COD_CUDA_CUDA_H

#include "core/backend.h"

extern const cod_backend cod_cuda_backend;

#endif
