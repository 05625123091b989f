#include "core/folder_entry.h"

#include <errno.h>
#include <stddef.h>

bool cod_folder_next(DIR *folder, const struct dirent **entry)
{
    errno = 0;
    *entry = readdir(folder);
    return *entry != NULL || errno == 0;
}
