/**
 * @file
 * A file of /dev/shm that the processes of a node share: filled by one, mapped by all, removed by the last.
 *
 * A process that finds the file incomplete fills it under an exclusive flock. Processes that use it hold a shared
 * flock, so that a process that can get an exclusive one at its end is the last user and removes the file. A file left
 * by a killed process is taken over by the next run with the same key, and removed by the next run with another key.
 */
#ifndef COD_DATA_SHARED_FILE_INTERNAL_H
#define COD_DATA_SHARED_FILE_INTERNAL_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { COD_SHARED_PATH_BYTES = 80 };

typedef struct cod_shared_file {
    int file; /**< -1 = none */
    char path[COD_SHARED_PATH_BYTES];
    unsigned char *base; /**< NULL until it is mapped; at a 64-byte boundary */
    size_t bytes;
} cod_shared_file;

/**
 * Finds the file of a key, waiting while another process fills it.
 *
 * @param[out] shared  `base` set: complete, mapped for reading. Only `file` set: this process holds it alone and is to
 *   fill it.
 * @return COD_ERR_IO if there can be no such file; the caller then uses private memory
 */
COD_MUST_CHECK cod_status cod_shared_file_open(cod_shared_file *shared, uint64_t key);

/**
 * Sets the size of the file, which this process holds alone, and maps it for writing. @return COD_ERR_IO when the space
 * is not there
 */
COD_MUST_CHECK cod_status cod_shared_file_reserve(cod_shared_file *shared, size_t bytes);

/** Marks the file as filled: other processes may use it. */
COD_MUST_CHECK cod_status cod_shared_file_complete(cod_shared_file *shared);

/** Unmaps the file and removes it when no other process uses it or when it was never completed. */
void cod_shared_file_close(cod_shared_file *shared);

#endif
