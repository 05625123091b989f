/**
 * @file
 * The file system in memory, /dev/shm, through which ranks of a node share memory: what killed jobs left there, and
 * messages where it is too small.
 */
#ifndef COD_COMM_SHARED_SPACE_H
#define COD_COMM_SHARED_SPACE_H

#include "core/status.h"

#include <stdbool.h>

#define COD_SHARED_SPACE "/dev/shm"

/**
 * Removes this user's files of Open MPI whose jobs are dead. A file goes only where no process maps it, where it is a
 * minute old, and where this process sees all processes that might.
 *
 * @param host  its name in the names of the files
 * @return number of files removed
 */
int cod_shared_space_sweep(const char *folder, const char *host);

/**
 * Puts before a failure's message that the file system is too small, if it has less than `bytes` bytes free, and what
 * makes it larger. @return whether it is too small
 */
bool cod_shared_space_explain(cod_status status, const char *folder, double bytes);

#endif
