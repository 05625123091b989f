/*
 * Stands in for libnccl.so.2 beside the emulated GPU: the few functions that src/cuda/nccl.cu calls, over shared
 * memory. Ranks are processes of one node. A sum is work of the emulated stream where the program exports
 * cod_emulated_later(), and else done at once: it ends when all ranks have come to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    char bytes[128];
} id;

enum { SUCCESS, UNHANDLED, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE };
enum { CHUNK = 1 << 14, MOST_RANKS = 16, PATIENCE_S = 300, VERSION = 22707 };

typedef struct {
    atomic_int arrived, rounds, joined;
    float values[MOST_RANKS][CHUNK];
} shared;

typedef struct {
    shared *memory;
    int rank, size, error;
    char name[128];
} comm;

int ncclGetVersion(int *version)
{
    *version = VERSION;
    return getenv("COD_NCCL_NO_VERSION") != NULL ? INTERNAL : SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {
        "no error",         "unhandled error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",   "remote process exited"};
    return result >= 0 && result <= REMOTE ? texts[result] : "unknown error";
}

const char *ncclGetLastError(comm *c)
{
    return c != NULL && c->error == REMOTE ? "a rank did not come" : "";
}

int ncclGetUniqueId(id *out)
{
    static atomic_int count;
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, sizeof out->bytes, "/cod-nccl-%d-%d", (int)getpid(), atomic_fetch_add(&count, 1));
    return getenv("COD_NCCL_BROKEN") != NULL ? SYSTEM : SUCCESS;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/** Waits for all ranks. */
static int meet(comm *c)
{
    const double begin = now_s();
    const int round = atomic_load(&c->memory->rounds);
    if (c->error != SUCCESS)
        return c->error;
    if (atomic_fetch_add(&c->memory->arrived, 1) == c->size - 1) {
        atomic_store(&c->memory->arrived, 0);
        atomic_fetch_add(&c->memory->rounds, 1);
    }
    while (atomic_load(&c->memory->rounds) == round && c->error == SUCCESS) {
        sched_yield();
        if (now_s() - begin > PATIENCE_S)
            c->error = REMOTE;
    }
    return c->error;
}

int ncclCommDestroy(comm *c)
{
    munmap(c->memory, sizeof *c->memory);
    free(c);
    return SUCCESS;
}

int ncclCommAbort(comm *c)
{
    return ncclCommDestroy(c);
}

int ncclCommInitRank(comm **out, int size, id name, int rank)
{
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return ARGUMENT;
    const int file = shm_open(name.bytes, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(shared)) != 0)
        return SYSTEM;
    comm *c = calloc(1, sizeof *c);
    c->memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    c->rank = rank;
    c->size = size;
    snprintf(c->name, sizeof c->name, "%s", name.bytes);
    const int result = c->memory == MAP_FAILED ? SYSTEM : meet(c);
    if (rank == 0)
        shm_unlink(name.bytes);
    *out = c;
    return result;
}

int ncclCommGetAsyncError(comm *c, int *error)
{
    *error = c->error;
    return SUCCESS;
}

/** A sum that is queued. */
typedef struct {
    comm *c;
    const float *source;
    float *target;
    size_t count;
} sum;

static int make_sum(void *argument)
{
    const sum work = *(sum *)argument;
    comm *c = work.c;
    free(argument);
    for (size_t done = 0; done < work.count; done += CHUNK) {
        const size_t part = work.count - done < CHUNK ? work.count - done : CHUNK;
        memcpy(c->memory->values[c->rank], work.source + done, part * sizeof(float));
        if (meet(c) != SUCCESS)
            return c->error;
        for (size_t i = 0; i < part; i++) {
            float total = c->memory->values[0][i];
            for (int r = 1; r < c->size; r++)
                total += c->memory->values[r][i];
            work.target[done + i] = total;
        }
        if (meet(c) != SUCCESS)
            return c->error;
    }
    return SUCCESS;
}

/* tests/cuda/emulated/emulated.h */
__attribute__((weak)) int cod_emulated_later(void *stream, int (*work)(void *argument), void *argument);

int ncclAllReduce(const void *source, void *target, size_t count, int type, int operation, comm *c, void *stream)
{
    enum { FLOAT32 = 7, SUM = 0 };
    if (type != FLOAT32 || operation != SUM)
        return ARGUMENT;
    sum *work = malloc(sizeof *work);
    *work = (sum){c, source, target, count};
    if (cod_emulated_later == NULL)
        return make_sum(work);
    return cod_emulated_later(stream, make_sum, work) == 0 ? SUCCESS : UNHANDLED;
}
