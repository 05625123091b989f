#include "fuzz.h"

#include <ftw.h>
#include <sys/mman.h>
#include <unistd.h>

static char folder[64];

int fuzz_write_file(const char *parent, const char *name, const void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", parent, name);
    FILE *file = fopen(path, "wb");
    const int failed = file == NULL || fwrite(data, 1, bytes, file) != bytes;
    return (file != NULL && fclose(file) != 0) || failed;
}

int fuzz_taken(cod_status status)
{
    if (status == COD_ERR_MEMORY || status == COD_ERR_IO || status == COD_ERR_BACKEND)
        fprintf(stderr, "%s: %s [%s]\n", cod_status_name(status), cod_error_message(), cod_error_place());
    FUZZ_DEMAND(status != COD_ERR_MEMORY && status != COD_ERR_IO && status != COD_ERR_BACKEND);
    return status == COD_OK;
}

const char *fuzz_file(const void *data, size_t bytes)
{
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    FUZZ_DEMAND(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    return path;
}

static const void *memory;
static size_t memory_bytes;

void fuzz_memory(const void *data, size_t bytes)
{
    memory = data;
    memory_bytes = bytes;
}

const void *fuzz_memory_bytes(size_t *bytes)
{
    if (memory != NULL)
        *bytes = memory_bytes;
    return memory;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (folder[0] == '\0') {
        strcpy(folder, "/dev/shm/cod_fuzz_XXXXXX");
        FUZZ_DEMAND(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    }
    return folder;
}
