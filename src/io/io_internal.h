/** What the files of io share. */
#ifndef COD_IO_IO_INTERNAL_H
#define COD_IO_IO_INTERNAL_H

#include "core/status.h"
#include "io/file.h"
#include "io/file_watch.h"
#include "io/json.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

/** Fails with COD_ERR_IO, the path and the system's reason: cod_fail_system("write", path). */
#define cod_fail_system(action, path) cod_fail(COD_ERR_IO, "cannot %s '%s': %s", (action), (path), strerror(errno))

/** For COD_IO_CALL only. @return `verb` */
const char *cod_io_call_begin(const char *verb, const char *path);
void cod_io_call_end(const char *const *verb);

/**
 * If the thread is watched (file_watch.h), notes that from here to the end of the block it does `verb`, such as
 * "flush", to the file at `path`. Inner blocks may note other calls.
 */
#define COD_IO_CALL(verb, path)                                                                                        \
    __attribute__((cleanup(cod_io_call_end))) const char *const noted_call = cod_io_call_begin(verb, path)

/**
 * Opens or creates a file of the run for writing, as in a folder that others may write: no link is followed, and a
 * regular file must belong to this user or to the folder's owner. Devices may be written.
 *
 * @param flags     O_RDWR or O_WRONLY, with O_APPEND
 * @param[out] file a descriptor for close()
 */
COD_MUST_CHECK cod_status cod_io_open_own(const char *path, int flags, int *file);

/**
 * Fails if a regular file that is to be written may be, by a hard link, another one than its name says: it has several
 * names, and others may write in its folder. @param info  of the open file
 */
COD_MUST_CHECK cod_status cod_io_check_names(const char *path, const struct stat *info);

/** Makes room for `more` bytes behind `used` in a buffer of malloc. */
COD_MUST_CHECK cod_status cod_io_reserve(void **data, size_t *capacity, size_t used, size_t more);

/** cod_file_read() of an open file, which stays open. @param path  for messages */
COD_MUST_CHECK cod_status cod_io_read_open(int file, const char *path, size_t limit_bytes, void **data, size_t *bytes);

/**
 * Reads a regular file into memory pages of its own, which may only be read.
 *
 * @param least     a shorter one fails with COD_ERR_FORMAT, as too short for a `what`
 * @param[out] data  new; munmap()
 */
COD_MUST_CHECK cod_status cod_io_map(const char *path, size_t least, const char *what, void **data, size_t *size);

/**
 * cod_file_writer_create() in an open folder.
 *
 * @param folder  a descriptor, taken, also after a failure
 * @param path    for messages
 * @param links   0, or AT_SYMLINK_NOFOLLOW where the file may not be replaced if it is a symbolic link
 */
COD_MUST_CHECK cod_status cod_io_writer_create(int folder, const char *path, const char *name, int links,
                                               cod_file_writer **out);

/** Opens the folder that holds `path`, "." where that is a plain name. @return a descriptor, or -1 with errno set */
int cod_io_open_above(const char *path);

/**
 * Flushes the names in an open folder, so that they survive a power cut. File systems that cannot do that, and folders
 * that may not be read, are left as they are.
 * @param path  of what was made there, for messages
 */
COD_MUST_CHECK cod_status cod_io_flush_folder(int folder, const char *path);
/** The same of the folder that holds `path`. */
COD_MUST_CHECK cod_status cod_io_flush_above(const char *path);

/** Begins a trace's event that says something of a rank's process: what it says goes into its open object "args". */
void cod_io_metadata_begin(cod_json *json, const char *name, int rank);
/** Ends the "args" and the event. */
void cod_io_metadata_end(cod_json *json);

#endif
