/**
 * @file
 * Which implementation of an op was found to be the fastest: kept for the process, and in a file for later ones.
 *
 * A *key* is a line of text with all that the answer depends on: the GPU, its driver, the libraries, the op with its
 * shapes. The file is text, one choice a line with a checksum before it. It is replaced as a whole, by a file of
 * another name that is then renamed, so that readers see the old or the new one; writers take turns by a lock on
 * `PATH.lock`. Lines that are damaged are passed over with a warning and are gone when the file is written next. A
 * file of somebody else is moved to `PATH.foreign` then. Where the file cannot be written, the process goes on
 * without, and says so once.
 */
#ifndef COD_CUDA_CHOICES_H
#define COD_CUDA_CHOICES_H

#include "core/status.h"

enum { CUDA_NAME_BYTES = 192, CUDA_KEY_BYTES = 1536 };

typedef struct cuda_choices cuda_choices;

/**
 * Where the file lies: what COD_CUDA_CACHE names, else codistill/cuda.txt of the user's cache, whose folder is made.
 *
 * @param[out] path  empty where COD_CUDA_CACHE is `off` or the user has no cache
 */
void cuda_choices_path(char *path, size_t bytes);

/** Reads the file, where there is one. @param path  borrowed; NULL or empty = no file. @param[out] out  new */
COD_MUST_CHECK cod_status cuda_choices_open(const char *path, cuda_choices **out);
void cuda_choices_close(cuda_choices *choices);

/** The implementation's name, or NULL; valid until the next call of cuda_choices_add(). */
const char *cuda_choices_find(const cuda_choices *choices, const char *key);

/**
 * Notes a choice, in place of an older one of the key, and writes the file. Neither text may hold a line's end, nor
 * the name a space.
 */
COD_MUST_CHECK cod_status cuda_choices_add(cuda_choices *choices, const char *key, const char *name, double us);

#endif
