/**
 * @file
 * Finding image files below folders.
 */
#ifndef COD_DATA_FILES_H
#define COD_DATA_FILES_H

#include "core/memory.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cod_file {
    const char *path; /**< as it can be opened */
    const char *name; /**< relative to its root */
    size_t root;      /**< index of the root it was found below */
    int64_t bytes;
    int64_t modified_ns; /**< since the epoch */
} cod_file;

typedef struct cod_file_list {
    size_t count, capacity;
    cod_file *items;
    const char *output; /**< folder that results go to, which holds no input; NULL = none; borrowed */
    bool silent;        /**< do not log which folders are left out */
    cod_arena arena;    /**< holds the strings */
} cod_file_list;

/**
 * Appends every image below `root`, sorted bytewise by relative name (the same order on every machine); links are
 * followed. A file is an image if its name says so (.png, .jpg, .jpeg, .jfif, .jpe, .jif, .webp, .bmp, .gif, .tif or
 * .tiff, in any case). .gif is listed so that the user is told about it. A root that is a file is taken whatever its
 * name. Hidden files are left out. So are hidden folders, `@eaDir`, the folders of training runs, and `files->output`;
 * the log names each of these folders.
 *
 * @param[in,out] files  zeroed before the first call, but for `output` and `silent`; end with cod_files_clear()
 * @return COD_ERR_IO when the root or a folder below cannot be read; finding nothing is no error
 */
COD_MUST_CHECK cod_status cod_files_find(cod_file_list *files, const char *root, size_t root_index);
void cod_files_clear(cod_file_list *files);

/** Whether a path is the folder of a training run. */
bool cod_file_is_run(const char *path);

/** Whether a path has the name of an image. */
bool cod_file_is_called_image(const char *path);

#endif
