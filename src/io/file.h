/**
 * @file
 * Files read whole, written atomically or appended to; every message names the path and the system's reason.
 */
#ifndef COD_IO_FILE_H
#define COD_IO_FILE_H

#include "core/option.h"

/**
 * Reads a whole regular file. What others may have put in its place, a pipe or a device, is refused, not waited for.
 *
 * @param[in]  limit_bytes  a larger file fails with COD_ERR_FORMAT
 * @param[out] data         new, ends with an uncounted zero byte; free()
 * @return COD_ERR_IO when it cannot be read
 */
COD_MUST_CHECK cod_status cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes);
/** The same of whatever the user named, such as a pipe, which is waited for. */
COD_MUST_CHECK cod_status cod_file_read_any(const char *path, size_t limit_bytes, void **data, size_t *bytes);

/** Replaces or creates `path` atomically: readers see the old or the new content, also after a power cut. */
COD_MUST_CHECK cod_status cod_file_write(const char *path, const void *data, size_t bytes);

/** As cod_file_write(), but leaves a file alone that is there already. @param[out] made  whether it was not */
COD_MUST_CHECK cod_status cod_file_write_new(const char *path, const void *data, size_t bytes, bool *made);

/** A file being written aside, in the same folder, that takes its name when committed. */
typedef struct cod_file_writer cod_file_writer;

/** @param[out] writer  new; end it with cod_file_writer_commit() or cod_file_writer_abort() */
COD_MUST_CHECK cod_status cod_file_writer_create(const char *path, cod_file_writer **writer);
/** Appends; small pieces are collected. After a failure only cod_file_writer_abort() may be called. */
COD_MUST_CHECK cod_status cod_file_writer_write(cod_file_writer *writer, const void *data, size_t bytes);
/** Flushes to the disk, renames, flushes the folder; the writer is taken, also on failure, which leaves no temporary
 * file. */
COD_MUST_CHECK cod_status cod_file_writer_commit(cod_file_writer *writer);
/** Drops what was written and the writer; NULL is fine. */
void cod_file_writer_abort(cod_file_writer *writer);

/** A log to which whole lines are appended; each line reaches the system at once. For one thread at a time. */
typedef struct cod_file_log cod_file_log;

/**
 * Opens or creates a log. If a crash left an incomplete last line, it is cut off. A link, a FIFO and a file of another
 * user, unless that owns the folder, are refused. @param[out] log new; cod_file_log_close()
 */
COD_MUST_CHECK cod_status cod_file_log_open(const char *path, cod_file_log **log);
/** Appends `line` and a newline, wholly or, when it fails, not at all. */
COD_MUST_CHECK cod_status cod_file_log_line(cod_file_log *log, const char *line);
/** NULL is fine. */
void cod_file_log_close(cod_file_log *log);

/** A lock on a file by this process, which the system releases when the process dies. It keeps a folder to one run. */
typedef struct cod_file_lock cod_file_lock;

/**
 * @param way_out    what to do when another process has it, for the message
 * @param[out] lock  new; cod_file_lock_release()
 * @return COD_ERR_IO, naming the holder, when another process has it
 */
COD_MUST_CHECK cod_status cod_file_lock_acquire(const char *path, const char *way_out, cod_file_lock **lock);
/** Locks the file together with others that share it. It excludes only a process that wants the file alone. */
COD_MUST_CHECK cod_status cod_file_lock_share(const char *path, const char *way_out, cod_file_lock **lock);
/** Opens a lock's file that another process of the same job has locked, for cod_file_lock_check() alone. */
COD_MUST_CHECK cod_status cod_file_lock_observe(const char *path, cod_file_lock **lock);
/** @return COD_ERR_IO when the lock's path names no file any more, or another one: it keeps nobody out. NULL is fine.
 */
COD_MUST_CHECK cod_status cod_file_lock_check(const cod_file_lock *lock);
/** NULL is fine; the file stays. */
void cod_file_lock_release(cod_file_lock *lock);

/** Creates a folder and its parents, so that they survive a power cut. An existing folder is fine. */
COD_MUST_CHECK cod_status cod_folder_create(const char *path);
/** The same for the folder that a file or folder is to lie in. */
COD_MUST_CHECK cod_status cod_folder_create_above(const char *path);
/**
 * Renames the file `from` to `to`, so that both names survive a power cut. The folder of `to` is created where it is
 * missing, and again if others remove it before the file is in it.
 *
 * @param from  on the same file system; it is left where it is if this fails
 */
COD_MUST_CHECK cod_status cod_file_move_into(const char *from, const char *to);

/**
 * Names in a folder that start with `prefix` and end with `suffix`, sorted by bytes; hidden files and temporary files
 * of writers are left out.
 * @param[out] names  in `arena`
 */
COD_MUST_CHECK cod_status cod_folder_list(const char *path, const char *prefix, const char *suffix, cod_arena *arena,
                                          cod_string_list *names);

/**
 * Whether a name is PREFIX, a number and SUFFIX as this program writes them, of at least `digits` digits: "step-7",
 * "step-+000000007" and "step-0000000007" are no names of its own where "step-000000007" is.
 *
 * @param[out] number  at most `most`; left alone if it is no such name
 */
bool cod_file_number(const char *name, const char *prefix, size_t digits, const char *suffix, uint64_t most,
                     uint64_t *number);

/** Removes the temporary files that killed writers left in a folder. Nobody may be writing there. */
COD_MUST_CHECK cod_status cod_folder_clean(const char *path);
/**
 * Whether an entry of a folder is such a temporary file, ".NAME.PID-N.tmp"; of the file `name` alone where that is not
 * empty.
 */
bool cod_file_is_temporary(const char *entry, const char *name);
/** Removes those of one file, whose folder may be absent; others may be writing beside it. */
COD_MUST_CHECK cod_status cod_file_clean(const char *path);

/** False where there is none for certain: what cannot be looked at may be there, and who opens it learns the reason. */
bool cod_file_exists(const char *path);
/** 0 where there is none. */
int64_t cod_file_bytes(const char *path);
/** Removes a file; one that is absent is fine. */
COD_MUST_CHECK cod_status cod_file_remove(const char *path);

/** "folder/name" in `arena`, or NULL when memory is short; an absolute name stands alone. */
char *cod_path_join(cod_arena *arena, const char *folder, const char *name);

#endif
