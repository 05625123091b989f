#include "io/script.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cod_file_find_above(const char *file, int mode, char path[COD_SCRIPT_PATH], char self[4096])
{
    const ssize_t length = readlink("/proc/self/exe", self, 4095);
    self[length > 0 ? length : 0] = '\0';
    snprintf(path, COD_SCRIPT_PATH, "%s", self);
    for (char *end = strrchr(path, '/'); end != NULL; end = strrchr(path, '/')) {
        snprintf(end + 1, COD_SCRIPT_PATH - (size_t)(end + 1 - path), "%s", file);
        if (access(path, mode) == 0)
            return true;
        *end = '\0';
    }
    return false;
}

cod_status cod_script_find(const char *script, char path[COD_SCRIPT_PATH], char self[4096])
{
    if (cod_file_find_above(script, X_OK, path, self))
        return COD_OK;
    return cod_fail(COD_ERR_UNSUPPORTED,
                    "%s is wanted, which is in no folder above %s; use the program in its build tree", script, self);
}
