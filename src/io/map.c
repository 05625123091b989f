#include "io_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static cod_status map_open(int file, const char *path, size_t least, const char *what, void **data, size_t *size)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return cod_fail_system("examine", path);
    if (!S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "cannot open '%s': no regular file", path);
    if ((size_t)info.st_size < least)
        return cod_fail(COD_ERR_FORMAT, "'%s': %lld bytes are too few for a %s", path, (long long)info.st_size, what);
    *size = (size_t)info.st_size;
    *data = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
    return *data == MAP_FAILED ? cod_fail_system("map", path) : COD_OK;
}

cod_status cod_io_map(const char *path, size_t least, const char *what, void **data, size_t *size)
{
    COD_IO_CALL("open", path);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (file < 0)
        return cod_fail_system("open", path);
    const cod_status status = map_open(file, path, least, what, data, size);
    close(file);
    return status;
}
