/**
 * @file
 * A file of /dev/shm that the processes of a node share: filled by one, mapped by all, removed by the last.
 *
 * Whoever finds the file incomplete fills it under an exclusive flock. Who uses it holds a shared one, so that the process that still
 * gets an exclusive one at its end is the last and removes the file. What a killed process left behind is taken over by the next
 * run that has the same key, and removed by the next that has another.
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
 * @param[out] shared  `base` set: complete, mapped for reading. Only `file` set: this process holds it alone and is to fill it.
 * @return COD_ERR_IO when there can be no such file; private memory serves then
 */
COD_MUST_CHECK cod_status cod_shared_file_open(cod_shared_file *shared, uint64_t key);

/** Gives the file, held alone, its size and maps it for writing. @return COD_ERR_IO when the space is not there */
COD_MUST_CHECK cod_status cod_shared_file_reserve(cod_shared_file *shared, size_t bytes);

/** Says that the file is filled: others may use it. */
COD_MUST_CHECK cod_status cod_shared_file_complete(cod_shared_file *shared);

/** Unmaps the file and removes it when no other process uses it or when it was never completed. */
void cod_shared_file_close(cod_shared_file *shared);

#endif
