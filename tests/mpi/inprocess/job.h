/**
 * @file
 * The in-process job: its ranks, and what is under way between them. All of it is guarded by one lock.
 */
#ifndef COD_TESTS_INPROCESS_JOB_H
#define COD_TESTS_INPROCESS_JOB_H

#include "inprocess.h"

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

typedef struct inprocess_communicator communicator;
typedef struct inprocess_request request;
typedef struct inprocess_window window;

typedef struct rank {
    int number, node;
    bool started, ended;
    uint64_t
        calls;    /**< of MPI; *not* guarded: written by every call, which MPI_THREAD_SERIALIZED orders within a rank */
    uint32_t lot; /**< state of the generator that draws what moves next */
    request *active; /**< not tested as done yet, in the order they were started */
    request *inbox;  /**< others' sends to this rank that no receive has been matched with, in the order sent */
} rank;

typedef struct job {
    pthread_mutex_t lock;
    int size;
    rank *ranks; /**< [size] */
    communicator *world;
    communicator *communicators; /**< all but the world */
} job;

struct inprocess_communicator {
    communicator *next;
    int size, users; /**< users: members that have not freed it */
    int *ranks;      /**< [size] world rank of each member */
    uint64_t *calls; /**< [size] collectives that each member has started */
    struct collective *pending;
    /* Which split made it. */
    communicator *parent;
    uint64_t number;
    int color;
};

typedef enum collective_kind { BARRIER, BROADCAST, GATHER, REDUCE, REDUCE_TO_ROOT } collective_kind;

/** What all members of a communicator must agree on in their n-th collective call. */
typedef struct collective_shape {
    collective_kind kind;
    size_t bytes; /**< of one member */
    int root;
    MPI_Datatype type;
    MPI_Op op;
} collective_shape;

typedef struct collective {
    struct collective *next;
    uint64_t number;
    collective_shape shape;
    int joined, given, left; /**< members that have called, have put their bytes in, are done with it */
    unsigned char *bytes;    /**< [size][shape.bytes], of a broadcast the root's alone */
} collective;

struct inprocess_window {
    communicator *comm;
    void *block;
    char **bases;  /**< [size] where each member's part begins */
    size_t *bytes; /**< [size] */
};

typedef enum request_kind { SEND, RECEIVE, GET, COLLECTIVE } request_kind;

struct inprocess_request {
    request_kind kind;
    request *next;         /**< in its owner's list */
    request *next_message; /**< SEND: in the receiver's inbox */
    bool done;
    int error;
    const void *in;
    void *out;
    size_t bytes;

    communicator *comm;
    int peer, tag;  /**< SEND, RECEIVE: rank within comm that sends, and tag */
    request *match; /**< RECEIVE: the send */

    window *win;  /**< GET */
    size_t moved; /**< GET */

    collective *collective;
    int member;
    bool given;
};

extern _Thread_local rank *inprocess_self;

/** Begins a call of MPI: the calling thread's rank, with the job's lock held. */
rank *job_enter(void);
void job_leave(void);
job *job_current(void);
_Noreturn void job_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Everything below is called between job_enter() and job_leave(). */

communicator *job_communicator(MPI_Comm comm);
/** A communicator of these world ranks, new. @param ranks [size] taken */
communicator *communicator_create(int size, int *ranks);
void communicator_free(communicator *comm);
/** The caller's rank within it. */
int communicator_rank(const communicator *comm, const rank *self);

/** A new request, last in the caller's list. */
request *request_start(rank *self, request_kind kind);
void request_free(rank *self, request *r);
/** Joins the caller's next collective on `comm`. */
request *collective_start(rank *self, communicator *comm, collective_shape shape, const void *in, void *out);
/** Moves some of what the caller's rank has under way. */
void job_progress(rank *self);
/** Moves all of one request that can be moved without others. */
void get_finish(request *r);
/** Progresses, letting the other ranks run, until it is done, and frees it. @return its error */
int request_wait(rank *self, request *r);

#endif
