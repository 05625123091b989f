/**
 * @file
 * What the files of the emulated GPU share.
 */
#ifndef COD_TESTS_CUDA_EMULATED_INTERNAL_H
#define COD_TESTS_CUDA_EMULATED_INTERNAL_H

#include "cuda_runtime.h"
#include "emulated.h"

#include <mutex>

/** One for all threads of the process: blocks and fibres are the process's, too. */
extern std::recursive_mutex cod_emulated_lock;

/** Keeps an error for cudaGetLastError(). @return the same */
cudaError_t cod_emulated_give(cudaError_t error);
/** Does all work that is queued. Under the lock. */
void cod_emulated_finish();
void cod_emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t cod_emulated_fault_count();
uint64_t cod_emulated_seed();
/** Forbids all use of the device's memory, or allows it again. The first forbidden use is a fault, and allows it. */
void cod_emulated_forbid_memory(bool forbid);
bool cod_emulated_memory_forbidden();
/** Finds writes beside what was allocated. */
void cod_emulated_check_memory();

#endif
