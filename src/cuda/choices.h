/**
 * @file
 * The fastest implementation of each op, as measured: kept for the process, and in a file for later processes.
 *
 * A *key* is a line of text with everything that the choice depends on: the GPU, its driver, the libraries, and the op
 * with its shapes. The file is text, with one choice on each line after a checksum. It is replaced as a whole: a new
 * file is written under another name and renamed, so that readers see the old or the new one. Writers take turns by a
 * lock on `PATH.lock`. Damaged lines are skipped with a warning, and the next write drops them. A file in another
 * format is moved to `PATH.foreign` at the next write. If the file cannot be written, the process continues without it,
 * and warns once.
 */
#ifndef COD_CUDA_CHOICES_H
#define COD_CUDA_CHOICES_H

#include "core/status.h"

enum { CUDA_NAME_BYTES = 192, CUDA_KEY_BYTES = 1536 };

typedef struct cuda_choices cuda_choices;

/**
 * Path of the file: the one in COD_CUDA_CACHE, or else codistill/cuda.txt in the user's cache, whose folder is made.
 *
 * @param[out] path  empty if COD_CUDA_CACHE is `off` or the user has no cache
 */
void cuda_choices_path(char *path, size_t bytes);

/** Reads the file, if it exists. @param path borrowed; NULL or empty = no file. @param[out] out new */
COD_MUST_CHECK cod_status cuda_choices_open(const char *path, cuda_choices **out);
void cuda_choices_close(cuda_choices *choices);

/** The implementation's name, or NULL; valid until the next call of cuda_choices_add(). */
const char *cuda_choices_find(const cuda_choices *choices, const char *key);

/**
 * Records a choice, in place of an older one with the same key, and writes the file. Neither text may contain a line
 * break, and the name may contain no space.
 */
COD_MUST_CHECK cod_status cuda_choices_add(cuda_choices *choices, const char *key, const char *name, double us);

#endif
