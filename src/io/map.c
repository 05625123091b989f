#include "io_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 1 << 24 /**< bytes of one call, which is watched as one */ };

/** A file's own pages would end the process by a signal where they cannot be read, or the file is cut meanwhile. */
static cod_status fill(int file, const char *path, char *data, size_t size)
{
    for (size_t used = 0; used < size;) {
        COD_IO_CALL("read", path);
        const size_t left = size - used;
        const ssize_t got = pread(file, data + used, left < MOST_AT_ONCE ? left : MOST_AT_ONCE, (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cod_fail_system("read", path);
        if (got == 0)
            return cod_fail(COD_ERR_FORMAT, "'%s': it was cut off while it was read", path);
        used += (size_t)got;
    }
    return COD_OK;
}

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
    void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return cod_fail(COD_ERR_MEMORY, "no memory for the %zu bytes of '%s': %s", *size, path, strerror(errno));
    cod_status status = fill(file, path, memory, *size);
    if (status == COD_OK && mprotect(memory, *size, PROT_READ) != 0)
        status = cod_fail_system("protect the content of", path);
    if (status == COD_OK)
        *data = memory;
    else
        munmap(memory, *size);
    return status;
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
