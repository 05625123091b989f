/**
 * @file
 * What tests ask of the emulated GPU.
 */
#ifndef COD_TESTS_CUDA_EMULATED_H
#define COD_TESTS_CUDA_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How many faults there were since the last call; in `first` the first one's message (empty: none), with thread, block
 * and kernel.
 * Reads and writes beside what was allocated (memory.cpp) or a launch's shared memory; misaligned accesses; threads
 * that wait for each other for ever or for different things; launches that a GPU refuses, as of a kernel with more
 * shared memory than it was allowed. In a capture, memory may neither be allocated nor freed, and the host may not
 * ask or wait for the device: the capture's end fails. With a programmatic edge: memory of the device that is used
 * before chain_wait() (but for copy16_ahead_start()), threads that end without having called it, and an edge from
 * what is no kernel. That memory is watched in some of the blocks alone: the first launches of each kernel, and
 * every so many-th.
 *
 * A kernel with a fault ends what the process can do with the device, as on a GPU: the launch succeeds, and every later
 * call fails until this function is called, which stands for a new process. Launches that are refused fail at once, and
 * do no further harm.
 */
size_t cod_emulated_faults(char *first, size_t bytes);

/**
 * Kernels that were launched, or recorded, since the last call; in `chained` how many of them had a programmatic edge.
 */
size_t cod_emulated_launches(size_t *chained);
/** Since the process began, of kernels whose symbol has this part. */
size_t cod_emulated_launches_of(const char *part);

/** What the host gave streams to do, beside what it recorded. */
typedef struct cod_emulated_queued {
    size_t kernels; /**< launched by themselves */
    size_t graphs;  /**< launched */
    size_t nodes;   /**< kernels in these graphs */
    size_t others;  /**< copies, fills and work of libraries, by themselves or in these graphs */
} cod_emulated_queued;

/** Since the last call. */
cod_emulated_queued cod_emulated_take_queued(void);

/** The order of blocks and threads from now on; 0 = their numbers' order. Default: COD_CUDA_SEED, else 1. */
void cod_emulated_set_seed(uint64_t seed);

/**
 * Late: work of streams is done when the host waits for something, and then in an order by chance (of the seed) among
 * what streams and events allow; cudaEventQuery() says so, and does nothing. Else each work is done when it is queued,
 * but for a stream's last kernel, which ends when other work is queued or the host waits. Does first all that is
 * queued.
 */
void cod_emulated_set_late(bool late);

/**
 * Queues work of a library in a stream. The library's first call in a process spoils a capture, because it allocates
 * memory. @param work  returns 0, else the stream has failed
 */
int cod_emulated_later(void *stream, int (*work)(void *argument), void *argument);

/** The machine that is played from now on. */
typedef struct cod_emulated_machine {
    int driver; /**< the CUDA version that the driver supports, as 1000·major + 10·minor; 0 = there is no driver */
    int gpus;   /**< that the process may use, where COD_CUDA_GPUS does not name them: their numbers, with commas */
    int capability; /**< of them, 10·major + minor */
    int has_code;   /**< whether kernels were compiled for them */
    int ptx;        /**< what their PTX was compiled for, like `capability`; 0 = the same */
} cod_emulated_machine;

/**
 * NULL = the default: a driver for CUDA 13.0, one GPU of capability 9.0 or, in tenths, of COD_CUDA_CAPABILITY, with
 * code for it; with 4 multiprocessors, or COD_CUDA_MULTIPROCESSORS (an H100 has 132). Below 8.0 it has
 * src/cuda/warp_older.cuh in place of what such a GPU lacks.
 */
void cod_emulated_set_machine(const cod_emulated_machine *machine);

/**
 * Ranges that NVTX was told of and that are open, and the names of those since the last call, each in < and >, nested
 * as they were.
 */
int cod_emulated_ranges(char *names, size_t bytes);

/**
 * Bytes of device memory that can be allocated at a time; beyond, cudaMalloc() fails. 0 = the default:
 * COD_CUDA_MEMORY_MB of 10^6 bytes each, else 4 GiB. With COD_CUDA_GRAPHS_FAIL set it is graphs that find no memory:
 * cudaGraphInstantiate() fails.
 */
void cod_emulated_set_memory(size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
