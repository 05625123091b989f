/**
 * @file
 * Walks through a folder. readdir() returns NULL at the end and where storage fails; a listing that ends early is not
 * to pass for a whole one.
 */
#ifndef COD_CORE_FOLDER_ENTRY_H
#define COD_CORE_FOLDER_ENTRY_H

#include <dirent.h>
#include <stdbool.h>

/**
 * The folder's next entry, as readdir() has it.
 *
 * @param[out] entry  NULL at the end, and after a failure
 * @return false, with errno, where the rest of the folder cannot be read
 */
bool cod_folder_next(DIR *folder, const struct dirent **entry);

#endif
