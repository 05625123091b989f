#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t bytes_of(int count, MPI_Datatype type)
{
    static const size_t sizes[] = {[MPI_BYTE] = 1, [MPI_CHAR] = 1, [MPI_FLOAT] = 4, [MPI_DOUBLE] = 8};
    if (count < 0)
        job_die("a count of %d", count);
    return (size_t)count * sizes[type];
}

/** The calling rank, between MPI_Init_thread() and MPI_Finalize(). */
static rank *enter(void)
{
    rank *self = job_enter();
    if (!self->started || self->ended)
        job_die("it called MPI before MPI_Init_thread or after MPI_Finalize");
    return self;
}

static int leave(int error)
{
    job_leave();
    return error;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    rank *self = job_enter();
    if (self->started)
        job_die("it started MPI twice");
    self->started = true;
    *provided = required < MPI_THREAD_SERIALIZED ? required : MPI_THREAD_SERIALIZED;
    return leave(MPI_SUCCESS);
}

int MPI_Finalize(void)
{
    rank *self = enter();
    request *barrier = collective_start(self, job_current()->world, (collective_shape){.kind = BARRIER}, NULL, NULL);
    request_wait(self, barrier);
    /* Done but never tested: given up. */
    while (self->active != NULL) {
        if (!self->active->done)
            job_die("it ended with a request under way");
        request_free(self, self->active);
    }
    self->ended = true;
    return leave(MPI_SUCCESS);
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    _exit(code);
}

int MPI_Error_string(int code, char *text, int *length)
{
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "%s",
                       code == MPI_ERR_TRUNCATE ? "the message is longer than its receive" : "no error");
    return MPI_SUCCESS;
}

int MPI_Get_processor_name(char *name, int *length)
{
    const rank *self = enter();
    *length = snprintf(name, MPI_MAX_PROCESSOR_NAME, "node%d", self->node);
    return leave(MPI_SUCCESS);
}

int MPI_Get_library_version(char *version, int *length)
{
    *length = snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "in-process MPI");
    return MPI_SUCCESS;
}

/* Communicators. */

int MPI_Comm_rank(MPI_Comm comm, int *rank_out)
{
    const rank *self = enter();
    *rank_out = communicator_rank(job_communicator(comm), self);
    return leave(MPI_SUCCESS);
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    enter();
    *size = job_communicator(comm)->size;
    return leave(MPI_SUCCESS);
}

typedef struct split_place {
    int color, key, rank;
} split_place;

static int by_key(const void *a, const void *b)
{
    const split_place *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

/** The one object that all members of one colour of one split share; the first to come makes it. */
static communicator *shared_child(communicator *parent, uint64_t number, int color, int size, int *ranks)
{
    job *j = job_current();
    for (communicator *c = j->communicators; c != NULL; c = c->next) {
        if (c->parent == parent && c->number == number && c->color == color) {
            free(ranks);
            return c;
        }
    }
    communicator *c = communicator_create(size, ranks);
    c->parent = parent;
    c->number = number;
    c->color = color;
    c->next = j->communicators;
    j->communicators = c;
    return c;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    rank *self = enter();
    communicator *parent = job_communicator(comm);
    const int member = communicator_rank(parent, self);
    const uint64_t number = parent->calls[member];
    const split_place mine = {color, key, member};
    split_place *places = malloc((size_t)parent->size * sizeof *places);
    int *ranks = malloc((size_t)parent->size * sizeof *ranks), size = 0;
    if (places == NULL || ranks == NULL)
        job_die("out of memory");
    request_wait(
        self, collective_start(self, parent, (collective_shape){.kind = GATHER, .bytes = sizeof mine}, &mine, places));
    qsort(places, (size_t)parent->size, sizeof *places, by_key);
    for (int i = 0; i < parent->size; i++)
        if (places[i].color == color)
            ranks[size++] = parent->ranks[places[i].rank];
    free(places);
    *out = shared_child(parent, number, color, size, ranks);
    return leave(MPI_SUCCESS);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    enter();
    communicator *c = *comm;
    *comm = MPI_COMM_NULL;
    if (--c->users == 0) {
        communicator **at = &job_current()->communicators;
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
        communicator_free(c);
    }
    return leave(MPI_SUCCESS);
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm;
    (void)handler;
    return MPI_SUCCESS;
}

/* Collectives. */

static request *start(rank *self, MPI_Comm comm, collective_shape shape, const void *in, void *out)
{
    return collective_start(self, job_communicator(comm), shape, in == MPI_IN_PLACE ? out : in, out);
}

static request *start_gather(rank *self, const void *in, size_t in_bytes, void *out, size_t out_bytes, MPI_Comm comm)
{
    if (in_bytes != out_bytes || in == MPI_IN_PLACE)
        job_die("a gather of %zu bytes a rank into %zu, or in place", in_bytes, out_bytes);
    return start(self, comm, (collective_shape){.kind = GATHER, .bytes = in_bytes}, in, out);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm)
{
    rank *self = enter();
    request *r = start_gather(self, in, bytes_of(in_count, in_type), out, bytes_of(out_count, out_type), comm);
    return leave(request_wait(self, r));
}

int MPI_Iallgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count, MPI_Datatype out_type,
                   MPI_Comm comm, MPI_Request *out_request)
{
    rank *self = enter();
    *out_request = start_gather(self, in, bytes_of(in_count, in_type), out, bytes_of(out_count, out_type), comm);
    return leave(MPI_SUCCESS);
}

static collective_shape reduction(int count, MPI_Datatype type, MPI_Op op)
{
    return (collective_shape){.kind = REDUCE, .bytes = bytes_of(count, type), .type = type, .op = op};
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    rank *self = enter();
    return leave(request_wait(self, start(self, comm, reduction(count, type, op), in, out)));
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *out_request)
{
    rank *self = enter();
    *out_request = start(self, comm, reduction(count, type, op), in, out);
    return leave(MPI_SUCCESS);
}

int MPI_Ireduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *out_request)
{
    rank *self = enter();
    collective_shape shape = reduction(count, type, op);
    const bool takes = communicator_rank(job_communicator(comm), self) == root;
    shape.kind = REDUCE_TO_ROOT;
    shape.root = root;
    *out_request = start(self, comm, shape, in, takes ? out : NULL);
    return leave(MPI_SUCCESS);
}

int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *out_request)
{
    rank *self = enter();
    const collective_shape shape = {.kind = BROADCAST, .bytes = bytes_of(count, type), .root = root};
    *out_request = start(self, comm, shape, data, data);
    return leave(MPI_SUCCESS);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *out_request)
{
    rank *self = enter();
    *out_request = start(self, comm, (collective_shape){.kind = BARRIER}, NULL, NULL);
    return leave(MPI_SUCCESS);
}

/* Messages. */

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *out_request)
{
    rank *self = enter();
    request *r = request_start(self, SEND);
    r->comm = job_communicator(comm);
    r->peer = communicator_rank(r->comm, self);
    r->tag = tag;
    r->in = data;
    r->bytes = bytes_of(count, type);
    request **last = &job_current()->ranks[r->comm->ranks[to]].inbox;
    while (*last != NULL)
        last = &(*last)->next_message;
    *last = r;
    *out_request = r;
    return leave(MPI_SUCCESS);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *out_request)
{
    rank *self = enter();
    request *r = request_start(self, RECEIVE);
    r->comm = job_communicator(comm);
    r->peer = from;
    r->tag = tag;
    r->out = data;
    r->bytes = bytes_of(count, type);
    *out_request = r;
    return leave(MPI_SUCCESS);
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
    rank *self = enter();
    job_progress(self);
    const request *r = self->inbox;
    while (r != NULL && (r->comm != job_communicator(comm) || (from != MPI_ANY_SOURCE && r->peer != from) ||
                         (tag != MPI_ANY_TAG && r->tag != tag)))
        r = r->next_message;
    *found = r != NULL;
    if (r != NULL && status != MPI_STATUS_IGNORE)
        *status = (MPI_Status){.MPI_SOURCE = r->peer, .MPI_TAG = r->tag, .bytes = r->bytes};
    return leave(MPI_SUCCESS);
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    *count = (int)(status->bytes / bytes_of(1, type));
    return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
    rank *self = enter();
    int error = MPI_SUCCESS;
    job_progress(self);
    *done = statuses == MPI_STATUSES_IGNORE;
    if (!*done)
        job_die("statuses are not kept");
    for (int i = 0; i < count; i++)
        *done = *done && (requests[i] == MPI_REQUEST_NULL || requests[i]->done);
    for (int i = 0; i < count && *done; i++) {
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        error = requests[i]->error != MPI_SUCCESS ? requests[i]->error : error;
        request_free(self, requests[i]);
        requests[i] = MPI_REQUEST_NULL;
    }
    return leave(error);
}

/* Windows. */

typedef struct window_part {
    char *base;
    size_t bytes;
} window_part;

int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *out)
{
    (void)unit;
    (void)info;
    rank *self = enter();
    window *win = calloc(1, sizeof *win);
    communicator *c = job_communicator(comm);
    window_part *parts = calloc((size_t)c->size, sizeof *parts);
    /* malloc() gives 16-byte boundaries; each rank's part begins at another place behind one. */
    const size_t shift = 16 * ((size_t)self->number % 4);
    char *block = malloc((size_t)bytes + shift);
    if (win == NULL || parts == NULL || block == NULL)
        job_die("out of memory");
    win->comm = c;
    win->block = block;
    win->bases = calloc((size_t)c->size, sizeof *win->bases);
    win->bytes = calloc((size_t)c->size, sizeof *win->bytes);
    if (win->bases == NULL || win->bytes == NULL)
        job_die("out of memory");
    const window_part mine = {block + shift, (size_t)bytes};
    request_wait(self,
                 collective_start(self, c, (collective_shape){.kind = GATHER, .bytes = sizeof mine}, &mine, parts));
    for (int i = 0; i < c->size; i++) {
        win->bases[i] = parts[i].base;
        win->bytes[i] = parts[i].bytes;
    }
    free(parts);
    memcpy(base, &mine.base, sizeof mine.base);
    *out = win;
    return leave(MPI_SUCCESS);
}

/** All ranks are threads: whatever they allocate is shared. */
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *out)
{
    return MPI_Win_allocate(bytes, unit, info, comm, base, out);
}

int MPI_Win_shared_query(MPI_Win win, int of, MPI_Aint *bytes, int *unit, void *base)
{
    enter();
    *bytes = (MPI_Aint)win->bytes[of];
    *unit = 1;
    memcpy(base, &win->bases[of], sizeof win->bases[of]);
    return leave(MPI_SUCCESS);
}

int MPI_Win_set_errhandler(MPI_Win win, MPI_Errhandler handler)
{
    (void)win;
    (void)handler;
    return MPI_SUCCESS;
}

int MPI_Win_lock_all(int assertion, MPI_Win win)
{
    (void)assertion;
    (void)win;
    return MPI_SUCCESS;
}

/** Completes the caller's gets. */
int MPI_Win_unlock_all(MPI_Win win)
{
    rank *self = enter();
    for (request *r = self->active; r != NULL; r = r->next)
        if (r->kind == GET && r->win == win)
            get_finish(r);
    return leave(MPI_SUCCESS);
}

/** The job's lock is the fence. */
int MPI_Win_sync(MPI_Win win)
{
    (void)win;
    enter();
    return leave(MPI_SUCCESS);
}

int cod_inprocess_window_model = MPI_WIN_UNIFIED;

int MPI_Win_get_attr(MPI_Win win, int key, void *value, int *known)
{
    (void)win;
    *known = key == MPI_WIN_MODEL;
    if (*known)
        *(int **)value = &cod_inprocess_window_model;
    return MPI_SUCCESS;
}

int MPI_Win_free(MPI_Win *out)
{
    rank *self = enter();
    window *win = *out;
    request_wait(self, collective_start(self, win->comm, (collective_shape){.kind = BARRIER}, NULL, NULL));
    for (const request *r = self->active; r != NULL; r = r->next)
        if (r->kind == GET && r->win == win && !r->done)
            job_die("it freed a window that it reads");
    free(win->block);
    free(win->bases);
    free(win->bytes);
    free(win);
    *out = MPI_WIN_NULL;
    return leave(MPI_SUCCESS);
}

int MPI_Rget(void *data, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count, MPI_Datatype from_type,
             MPI_Win win, MPI_Request *out_request)
{
    rank *self = enter();
    const size_t bytes = bytes_of(count, type);
    if (at < 0 || (size_t)at > win->bytes[from] || bytes > win->bytes[from] - (size_t)at ||
        bytes != bytes_of(from_count, from_type))
        job_die("a get of %zu bytes at %lld from rank %d, whose part has %zu", bytes, (long long)at, from,
                win->bytes[from]);
    request *r = request_start(self, GET);
    r->win = win;
    r->in = win->bases[from] + at;
    r->out = data;
    r->bytes = bytes;
    *out_request = r;
    return leave(MPI_SUCCESS);
}
