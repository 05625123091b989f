/*
 * A file in memory, which the group's first rank makes and the others open as /proc/PID/fd/N: it needs neither a component of the MPI
 * nor room in /dev/shm, which containers limit to 64 MB, and the system frees it with its last user, however that ends.
 * Ranks that are threads of one process (a test's) share one mapping.
 */
#include "comm/group_memory.h"

#include "core/log.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct cod_group_memory {
    void *data;
    size_t bytes;
    atomic_int users;
};

/** What the first rank tells the others. */
typedef struct invitation {
    pid_t pid; /**< 0 = there is none */
    int file;
    dev_t device; /**< which file that is */
    ino_t inode;
    cod_group_memory *memory; /**< for threads of that process */
} invitation;

/** In containers another process may have the first rank's number, and another file that of its file. */
static bool is_meant(const invitation *from, int file)
{
    struct stat found;
    return fstat(file, &found) == 0 && found.st_dev == from->device && found.st_ino == from->inode;
}

static bool is_on_one_node(const cod_group *group)
{
    for (int r = 1; r < cod_group_size(group); r++)
        if (cod_group_node_of(group, r) != cod_group_node_of(group, 0))
            return false;
    return true;
}

/** @return NULL where it cannot be mapped */
static cod_group_memory *map(int file, size_t bytes)
{
    cod_group_memory *memory = calloc(1, sizeof *memory);
    void *data = memory != NULL ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        free(memory);
        return NULL;
    }
    memory->data = data;
    memory->bytes = bytes;
    atomic_init(&memory->users, 1);
    return memory;
}

/** The first rank's part. */
static invitation invite(size_t bytes, cod_group_memory **memory)
{
    const int file = memfd_create("codistill", MFD_CLOEXEC);
    struct stat made;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0 && fstat(file, &made) == 0)
        *memory = map(file, bytes);
    if (*memory == NULL && file >= 0)
        close(file);
    if (*memory == NULL)
        return (invitation){0};
    return (invitation){.pid = getpid(), .file = file, .device = made.st_dev, .inode = made.st_ino, .memory = *memory};
}

static cod_group_memory *follow(const invitation *from, size_t bytes)
{
    char path[64];
    if (from->pid == getpid() && is_meant(from, from->file)) {
        atomic_fetch_add(&from->memory->users, 1);
        return from->memory;
    }
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)from->pid, from->file);
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return NULL;
    cod_group_memory *memory = is_meant(from, file) ? map(file, bytes) : NULL;
    close(file);
    return memory;
}

cod_status cod_group_memory_create(cod_group *group, size_t bytes, cod_group_memory **out)
{
    const int rank = cod_group_rank(group);
    cod_group_memory *memory = NULL;
    invitation from = {0};
    *out = NULL;
    if (bytes == 0 || !is_on_one_node(group))
        return COD_OK;
    if (rank == 0)
        from = invite(bytes, &memory);
    cod_status status = cod_group_broadcast(group, &from, sizeof from, 0);
    if (status == COD_OK && rank != 0 && from.pid != 0)
        memory = follow(&from, bytes);
    double without = memory == NULL;
    if (status == COD_OK)
        status = cod_group_reduce(group, &without, 1, COD_REDUCE_SUM); /* by then all have opened it */
    if (rank == 0 && from.pid != 0)
        close(from.file);
    if (status != COD_OK || without > 0) {
        cod_group_memory_destroy(memory);
        if (status == COD_OK && rank == 0)
            cod_log_debug("group %d: its ranks cannot share memory; each has its own copies", cod_group_index(group));
        return status;
    }
    *out = memory;
    return COD_OK;
}

void cod_group_memory_destroy(cod_group_memory *memory)
{
    if (memory == NULL || atomic_fetch_sub(&memory->users, 1) > 1)
        return;
    munmap(memory->data, memory->bytes);
    free(memory);
}

void *cod_group_memory_data(const cod_group_memory *memory)
{
    return memory->data;
}
