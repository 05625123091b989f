/**
 * @file
 * What the files of the emulated GPU share.
 */
#ifndef COD_TESTS_CUDA_EMULATED_INTERNAL_H
#define COD_TESTS_CUDA_EMULATED_INTERNAL_H

#include "cuda_runtime.h"

#include "emulated.h"

#include <memory>
#include <mutex>

/** One for all threads of the process: blocks and fibres are the process's, too. */
extern std::recursive_mutex cod_emulated_lock;
typedef std::lock_guard<std::recursive_mutex> cod_emulated_locked;

/** Counts a fault, and says of the first one in which kernel, block and thread it was. */
void cod_emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t cod_emulated_fault_count();
uint64_t cod_emulated_seed();
/** Keeps an error for cudaGetLastError(). */
cudaError_t cod_emulated_give(cudaError_t error);
/** A kernel has failed. No call says so that launched it, but all from now on fail, and nothing of the device runs. */
void cod_emulated_break();
/** What every call returns before it does anything else, where it is no success. */
cudaError_t cod_emulated_broken();

/* block.cpp */
/** Which thread of which kernel runs, such as " in thread 3 of block 1 of name(int)"; "" where none does. */
void cod_emulated_where(char *text, size_t bytes);
/** Ends the thread that runs, as if its kernel had returned; of the host's code, nothing. */
void cod_emulated_leave_thread();
/** Of the block that runs. */
size_t cod_emulated_shared_bytes();

/* wgmma.cpp */
/** A block begins with this shared memory; its barrier of all threads opens; a thread of it ends. */
void cod_emulated_wgmma_block_begin(const void *shared);
void cod_emulated_wgmma_barrier();
void cod_emulated_wgmma_thread_end();

/* races.cpp, of libraries with COD_CUDA_RACES */
#ifdef COD_CUDA_RACES
/** Block `number` of those that run at a time begins, with so much shared memory. */
void cod_emulated_races_begin(unsigned number, const unsigned char *memory, size_t bytes);
/** The block and its thread that run from now on; what is called below is of them. */
void cod_emulated_races_enter(unsigned number, unsigned thread);
void cod_emulated_races_leave();
/** All lanes of a warp are in warp_sync(). */
void cod_emulated_races_warp(unsigned warp);
/** All threads of these warps, one a bit, are in a barrier of the block or of a part of it. */
void cod_emulated_races_barrier(uint32_t warps);
/** A thread is about to use shared memory, if it is that; `place`: behind the instruction. */
void cod_emulated_races_access(const void *address, size_t bytes, bool writes, bool atomic, unsigned thread,
                               const void *place);
#else
static inline void cod_emulated_races_begin(unsigned, const unsigned char *, size_t) {}
static inline void cod_emulated_races_enter(unsigned, unsigned) {}
static inline void cod_emulated_races_leave() {}
static inline void cod_emulated_races_warp(unsigned) {}
static inline void cod_emulated_races_barrier(uint32_t) {}
static inline void cod_emulated_races_access(const void *, size_t, bool, bool, unsigned, const void *) {}
#endif

/* schedule.cpp */
typedef std::shared_ptr<const cod_emulated_call> cod_emulated_shared_call;
/**
 * Runs a kernel: the call once in every thread of every block. One of a stream is held instead, until the next one or
 * other work comes.
 */
cudaError_t cod_emulated_run(const cod_emulated_launch &launch, const cod_emulated_shared_call &call);
/** Ends the kernel that is held. Under the lock. @return cod_emulated_broken() */
cudaError_t cod_emulated_settle();

/* runtime.cpp */
int cod_emulated_multiprocessors();

/* kernels.cpp */
/** As the compiler has it in the program's symbols, and as people write it; NULL where there is none. */
const char *cod_emulated_kernel_symbol(const void *kernel);
void cod_emulated_kernel_name(const void *kernel, char *name, size_t bytes);
/** Writes the kernel's symbol to the file that COD_CUDA_KERNELS names, the first time that the process launches it. */
void cod_emulated_kernel_record(const void *kernel);

/* streams.cpp */
/** Does all work that is queued. Under the lock. */
void cod_emulated_finish();
/**
 * What no thread may do that captures a stream, as CUDA has it in the mode of threads (cudaStreamBeginCapture()): the
 * capture is spoilt, and its end fails. Under the lock.
 *
 * @return whether the thread captures
 */
bool cod_emulated_spoils_capture();

/* memory.cpp */
size_t cod_emulated_whole_memory();
/**
 * Whether the range does not leave the allocation that it begins in; memory of the host that CUDA does not know is any.
 */
bool cod_emulated_range_inside(const void *pointer, size_t bytes);
/** Forbids all use of the device's memory, or allows it again. The first forbidden use is a fault, and allows it. */
void cod_emulated_forbid_memory(bool forbid);
/** From begin to end, a use of the memory around allocations is a fault, and the thread goes on with poison in it. */
void cod_emulated_watch_memory(bool begin);
/** Finds writes beside what was allocated. */
void cod_emulated_check_memory();
/**
 * The same memory for every block at this place, a small number: `bytes` of poison at a 128-byte boundary, in front of
 * memory that nobody may use.
 */
unsigned char *cod_emulated_shared_begin(unsigned place, size_t bytes);
/** Finds writes beside it. */
void cod_emulated_shared_check(unsigned place);

#endif
