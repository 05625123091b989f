/**
 * @file
 * Blocks that run, and what their threads wait for: block.cpp has what threads do, schedule.cpp who goes on.
 */
#ifndef COD_TESTS_CUDA_BLOCK_H
#define COD_TESTS_CUDA_BLOCK_H

#include "emulated_internal.h"
#include "fibre.h"

#include <vector>

enum { LANES = 32, MOST_THREADS = 1024, MOST_OPERAND = 64, MOST_PARTS = 15 };

/** A permutation of 0 … count - 1 that the seed and `salt` choose; its numbers' order for seed 0. */
struct permutation {
    uint64_t count = 0, factor = 1, shift = 0;
    permutation() {}
    permutation(uint64_t count_, uint64_t salt);
    uint64_t operator()(uint64_t i) const { return (i * factor + shift) % count; }
};

struct async_copy {
    unsigned char *target;
    const unsigned char *source;
    unsigned bytes;
    uint64_t group;
    bool ahead;        /**< may read memory before chain_wait() */
    bool taken;        /**< `value` was read when it started; else its source is read when it lands */
    const void *place; /**< in the program, behind the instruction */
    unsigned char value[16];
};

struct thread_state {
    cod_fibre fibre;
    dim3 index;
    bool done, chain_waited;
    const uint64_t *waits_for; /**< it goes on when this is no longer `seen`; NULL = it can go on */
    uint64_t seen;
    const char *at; /**< what it waits in */
    std::vector<async_copy> copies;
    uint64_t groups;
};

/** Threads that come together at one instruction. */
struct meeting {
    unsigned arrived;
    uint32_t warps; /**< of the threads that arrived at a part's barrier, one a bit */
    uint64_t times;
    const char *name;
    unsigned char in[LANES * MOST_OPERAND], out[LANES * MOST_OPERAND];
};

/** A kernel that is held or runs. */
struct kernel_state;

/** A resident block. It is used again for others. */
struct block_state {
    kernel_state *kernel;
    dim3 index;
    std::vector<thread_state> threads;
    std::vector<meeting> warps;
    meeting block, chain, parts[MOST_PARTS];
    bool watched;  /**< launched with a programmatic edge; memory is forbidden until all threads are in chain_wait() */
    bool released; /**< called chain_release() */
    bool paused;   /**< its thread came back to let other blocks go on */
    unsigned count, alive, current;
    const void *instruction; /**< of the warp that runs */
    unsigned place;          /**< of its shared memory, a small number */
    unsigned char *shared;
    permutation order; /**< of its threads, or of its warps */
    unsigned next;     /**< of that order */
};

struct kernel_state {
    cod_emulated_launch launch;
    cod_emulated_shared_call call;
    bool watched;      /**< its first and its last block */
    bool by_warps;     /**< a warp goes as far as it can before the next one does; else threads go on by turns */
    bool behind;       /**< the kernel before it, to which it has a programmatic edge, has not ended */
    uint64_t opened;   /**< changes when that one has ended */
    permutation order; /**< of its blocks */
    uint64_t blocks, begun, released, ended; /**< `released`: those that called chain_release() or ended */
    uint64_t pauses;                         /**< since a block began or ended */
    size_t usual, most;                      /**< resident at a time: most often, and as a GPU has room for */
    std::vector<block_state *> resident;
};

/** The block whose thread runs, and its kernel or one that has just ended; NULL = none. */
extern block_state *cod_emulated_block;
extern kernel_state *cod_emulated_kernel;

static inline block_state *here()
{
    return cod_emulated_block;
}

static inline thread_state *self()
{
    return &here()->threads[here()->current];
}

/* block.cpp: of the thread that runs. */
void cod_emulated_land_all();
void cod_emulated_end_thread();

/* schedule.cpp */
/** Now and then, other blocks go on before the thread that runs does. */
void cod_emulated_turn();

#endif
