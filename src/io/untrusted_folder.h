/**
 * @file
 * A folder into which others may also write. Nothing that they put there makes a call block or lets it reach files
 * outside the folder.
 *
 * The folder is used through its descriptor. Below its root no symbolic link is followed, and only regular files are
 * read and replaced; a link, a FIFO or a device in a file's place is refused, with its name. Slow storage, such as a
 * network file system whose server is away, still delays these calls.
 */
#ifndef COD_IO_UNTRUSTED_FOLDER_H
#define COD_IO_UNTRUSTED_FOLDER_H

#include "core/option.h"

typedef struct cod_untrusted_folder cod_untrusted_folder;

/** What to do if folders below the root are absent. */
typedef enum cod_untrusted_absence {
    COD_UNTRUSTED_CREATE, /**< create them and the root; new folders are for this user alone (mode 0700) */
    COD_UNTRUSTED_NONE    /**< succeed without a folder */
} cod_untrusted_absence;

/**
 * Opens ROOT/BELOW.
 *
 * @param root     as the user named it: links in it are followed
 * @param below    "a/b": folders, none of which may be a symbolic link
 * @param[out] out new; cod_untrusted_folder_close(). NULL where it is absent and COD_UNTRUSTED_NONE
 * @return COD_ERR_IO where one of them is no folder, or the system refuses
 */
COD_MUST_CHECK cod_status cod_untrusted_folder_open(const char *root, const char *below, cod_untrusted_absence absence,
                                                    cod_untrusted_folder **out);
/** NULL is fine. */
void cod_untrusted_folder_close(cod_untrusted_folder *folder);

/**
 * Opens a regular file for reading.
 *
 * @param name      without a slash
 * @param[out] file a descriptor for close(), or -1 where the file is absent
 * @param[out] bytes of the file
 * @return COD_ERR_FORMAT where it is a link, a FIFO or anything else that is no regular file; COD_ERR_IO
 */
COD_MUST_CHECK cod_status cod_untrusted_file_open(const cod_untrusted_folder *folder, const char *name, int *file,
                                                  size_t *bytes);
/**
 * cod_file_read() of a regular file, with the errors of cod_untrusted_file_open(). *data is NULL where the file is
 * absent.
 */
COD_MUST_CHECK cod_status cod_untrusted_file_read(const cod_untrusted_folder *folder, const char *name,
                                                  size_t limit_bytes, void **data, size_t *bytes);
/** cod_file_write(), of two pieces one behind the other; the second one may be empty. */
COD_MUST_CHECK cod_status cod_untrusted_file_write(const cod_untrusted_folder *folder, const char *name,
                                                   const void *data, size_t bytes, const void *more, size_t more_bytes);
/** Removes a file, or the link in its place; one that is absent is fine. */
COD_MUST_CHECK cod_status cod_untrusted_file_remove(const cod_untrusted_folder *folder, const char *name);
/** Whether a regular file of this size is there. */
bool cod_untrusted_file_has(const cod_untrusted_folder *folder, const char *name, uint64_t bytes);

/** Entries of a folder that are visited: others may put there as many as they like, as fast as they are read. */
enum { COD_UNTRUSTED_ENTRIES_MOST = 4096 };
/**
 * Calls `visit` with the name of each entry, in no order. The entry may be removed then; a failure ends the visits.
 *
 * @param[out] more  whether there were more entries than are visited
 */
typedef cod_status (*cod_untrusted_visit)(void *context, const cod_untrusted_folder *folder, const char *entry);
COD_MUST_CHECK cod_status cod_untrusted_folder_visit(const cod_untrusted_folder *folder, cod_untrusted_visit visit,
                                                     void *context, bool *more);

#endif
