/**
 * @file
 * What tests ask of the emulated GPU.
 */
#ifndef COD_TESTS_CUDA_EMULATED_H
#define COD_TESTS_CUDA_EMULATED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How many faults there were since the last call, the first one's message in `first` (empty when none): writes beside what was
 * allocated, threads that wait for each other for ever or for different things, misaligned accesses, shared memory beyond a
 * launch's, launches that a GPU refuses; and where a kernel was launched with a programmatic edge: memory of the device that it reads or
 * writes before chain_wait() (but for copy16_ahead_start()), threads that end without having called it, and an edge from what is no kernel.
 * That memory is watched in some of the blocks alone: the first launches of each kernel, and every so many-th. A launch with a fault also
 * fails.
 */
size_t cod_emulated_faults(char *first, size_t bytes);

/** Kernels that were launched, or recorded, since the last call; in `chained` how many of them had a programmatic edge. */
size_t cod_emulated_launches(size_t *chained);

/** The order of blocks and threads from now on; 0 = their numbers' order. Default: COD_CUDA_SEED, else 1. */
void cod_emulated_set_seed(uint64_t seed);

/** Bytes of device memory that can be allocated at a time; beyond, cudaMalloc() fails. 0 = the default, 4 GiB. */
void cod_emulated_set_memory(size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
