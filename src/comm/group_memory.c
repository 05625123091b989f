/*
 * A file in memory, which the group's first rank of each node makes and its other ranks open as /proc/PID/fd/N. It
 * needs neither a component of the MPI nor room in /dev/shm, which containers limit to 64 MB, and the system frees it
 * with its last user, however that process ends. Ranks that are threads of one process (a test's) share one mapping.
 */
#include "comm/group_memory.h"

#include "comm/group_internal.h"
#include "core/log.h"

#include <fcntl.h>
#include <limits.h>
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

/** Message from the first rank of a node to the others there. */
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

cod_group_holders cod_group_holders_of(const cod_group *group, int rank)
{
    cod_group_holders holders = {.first = -1};
    for (int r = 0; r < cod_group_size(group); r++) {
        if (cod_group_node_of(group, r) != cod_group_node_of(group, rank))
            continue;
        holders.first = holders.first < 0 ? r : holders.first;
        holders.place += r < rank;
        holders.count++;
    }
    return holders;
}

/** Whether each rank is alone on its node, among several nodes. */
static bool all_are_alone(const cod_group *group)
{
    for (int r = 0; r < cod_group_size(group); r++)
        if (cod_group_holders_of(group, r).count > 1)
            return false;
    return cod_group_size(group) > 1;
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

/** The part of a node's first rank. */
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
    const int rank = cod_group_rank(group), first = cod_group_holders_of(group, rank).first;
    cod_group_memory *memory = NULL;
    invitation mine = {0};
    *out = NULL;
    if (bytes == 0 || all_are_alone(group))
        return COD_OK;
    invitation *all = calloc((size_t)cod_group_size(group), sizeof *all);
    COD_TRY(cod_group_agree(group, all != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory"), NULL));
    if (rank == first)
        mine = invite(bytes, &memory);
    cod_status status = cod_group_gather(group, &mine, sizeof mine, all);
    if (status == COD_OK && rank != first && all[first].pid != 0)
        memory = follow(&all[first], bytes);
    double without = memory == NULL;
    COD_THEN(status, cod_group_reduce(group, &without, 1, COD_REDUCE_SUM)); /* by then all have opened it */
    free(all);
    if (mine.pid != 0)
        close(mine.file);
    if (status != COD_OK || without > 0) {
        cod_group_memory_destroy(memory);
        if (status == COD_OK && rank == 0)
            cod_log_debug("group %d: its ranks cannot share memory; each has its own copies", cod_group_index(group));
        return status;
    }
    *out = memory;
    return COD_OK;
}

cod_group_memory *cod_group_memory_keep(cod_group_memory *memory)
{
    atomic_fetch_add(&memory->users, 1);
    return memory;
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

/* What other nodes have. */

/**
 * One range from the part's root to a rank of another node, in pieces that MPI can count.
 *
 * @param[in,out] call  requests begun
 */
static cod_status move(cod_group *group, char *data, size_t bytes, int other, bool sends, cod_request *request,
                       int *call)
{
    for (size_t from = 0; from < bytes; from += INT_MAX) {
        const int count = (int)(bytes - from < INT_MAX ? bytes - from : INT_MAX);
        MPI_Request *part = &request->parts[(*call)++];
        COD_TRY(COD_MPI(sends ? MPI_Isend(data + from, count, MPI_BYTE, other, COD_TAG_NODES, group->mpi, part)
                              : MPI_Irecv(data + from, count, MPI_BYTE, other, COD_TAG_NODES, group->mpi, part)));
    }
    return COD_OK;
}

/** Under the lock. @param holders  of each rank of the group */
static cod_status move_parts(cod_group *group, char *buffer, const cod_group_part *parts, size_t count,
                             const cod_group_holders *holders, cod_request *request)
{
    const int rank = cod_group_rank(group);
    int call = 0;
    for (size_t i = 0; i < count; i++) {
        const cod_group_part *part = &parts[i];
        for (int r = 0; r < cod_group_size(group); r++) {
            /* On each node its ranks receive in turn. */
            const bool receives = holders[r].first != holders[part->root].first &&
                                  holders[r].place == (int)(i % (size_t)holders[r].count);
            if (!receives || (part->root != rank && r != rank))
                continue;
            const bool sends = part->root == rank;
            COD_TRY(move(group, buffer + part->offset, part->bytes, sends ? r : part->root, sends, request, &call));
            group_count_sent(group, sends ? part->bytes : 0);
        }
    }
    return COD_OK;
}

cod_status cod_group_share_by_node_start(cod_group *group, void *buffer, const cod_group_part *parts, size_t count,
                                         cod_request **request)
{
    const int size = cod_group_size(group), rank = cod_group_rank(group);
    int calls = 0;
    for (size_t i = 0; i < count; i++)
        calls += (int)((parts[i].bytes + INT_MAX - 1) / INT_MAX) * (parts[i].root == rank ? size : 1);
    cod_group_holders *holders = malloc((size_t)size * sizeof *holders);
    COD_REQUIRE_MEMORY(holders);
    for (int r = 0; r < size; r++)
        holders[r] = cod_group_holders_of(group, r);
    cod_status status = comm_request_create(group->comm, calls, request);
    if (status == COD_OK) {
        comm_lock(group->comm);
        status = move_parts(group, buffer, parts, count, holders, *request);
        comm_unlock(group->comm);
        status = comm_request_started(request, status);
    }
    free(holders);
    return status;
}
