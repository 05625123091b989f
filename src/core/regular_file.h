/**
 * @file
 * Opens files that programs keep for themselves: a pipe or a device in such a file's place is refused, not waited for.
 */
#ifndef COD_CORE_REGULAR_FILE_H
#define COD_CORE_REGULAR_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/**
 * open() that takes nothing but a regular file, with mode 0666 where `flags` create one, and closes it at exec().
 *
 * @return a descriptor; -1 with errno, which is EINVAL where it is no regular file
 */
int cod_regular_open(const char *path, int flags);

/** The same for reading, as a stream. @return NULL with errno */
FILE *cod_regular_stream(const char *path);

/**
 * pread() of all the bytes, or of those before the file's end, also where the system gives them in parts or a signal
 * comes between.
 *
 * @return how many; -1 with errno
 */
ssize_t cod_regular_read(int file, void *out, size_t bytes, off_t at);

/**
 * pwrite() of all the bytes, also where the system takes them in parts or a signal comes between.
 *
 * @return false with errno
 */
bool cod_regular_write(int file, const void *data, size_t bytes, off_t at);

#endif
