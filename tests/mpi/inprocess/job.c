#include "job.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GET_PIECE = 16 * 1024, LOAD_PIECE = 4096 };

static job the_job = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local rank *inprocess_self;

void job_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "in-process MPI: rank %d: ", inprocess_self != NULL ? inprocess_self->number : -1);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);
    if (memory == NULL)
        job_die("out of memory");
    return memory;
}

job *job_current(void)
{
    return &the_job;
}

rank *job_enter(void)
{
    rank *self = inprocess_self;
    if (self == NULL)
        job_die("a thread that is no rank called MPI");
    /* Before the job's lock, which would order it: two threads of a rank must be ordered by the caller. */
    self->calls++;
    pthread_mutex_lock(&the_job.lock);
    return self;
}

void job_leave(void)
{
    pthread_mutex_unlock(&the_job.lock);
}

/* Threads: what a rank creates belongs to it. The linker sends every pthread_create() here (--wrap). */

typedef struct thread_start {
    rank *self;
    void *(*body)(void *);
    void *context;
} thread_start;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context);

static void *thread_main(void *context)
{
    const thread_start start = *(thread_start *)context;
    free(context);
    inprocess_self = start.self;
    return start.body(start.context);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context)
{
    thread_start *start = allocate(1, sizeof *start);
    *start = (thread_start){inprocess_self, body, context};
    const int error = __real_pthread_create(thread, attributes, thread_main, start);
    if (error != 0)
        free(start);
    return error;
}

typedef struct rank_start {
    int (*rank_main)(void *context);
    void *context;
    rank *self;
    int result;
} rank_start;

static void *rank_begin(void *context)
{
    rank_start *start = context;
    inprocess_self = start->self;
    start->result = start->rank_main(start->context);
    return NULL;
}

/**
 * comm sets these for Open MPI where they are not set. Ranks that are processes each have an environment; here all
 * would write the same one while others read it.
 */
static void set_environment(void)
{
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1", 0);
    setenv("OMPI_MCA_opal_common_ucx_verbose", "-1", 0);
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
}

int cod_inprocess_run(int size, int ranks_per_node, int (*rank_main)(void *context), void *context)
{
    set_environment();
    rank_start *starts = allocate((size_t)size, sizeof *starts);
    pthread_t *threads = allocate((size_t)size, sizeof *threads);
    int *ranks = allocate((size_t)size, sizeof *ranks), failed = 0;
    the_job.size = size;
    the_job.ranks = allocate((size_t)size, sizeof *the_job.ranks);
    for (int i = 0; i < size; i++) {
        ranks[i] = i;
        the_job.ranks[i] = (rank){.number = i, .node = i / ranks_per_node, .lot = 0x9e3779b9U * (uint32_t)(i + 1)};
    }
    the_job.world = communicator_create(size, ranks);
    for (int i = 0; i < size; i++) {
        starts[i] = (rank_start){.rank_main = rank_main, .context = context, .self = &the_job.ranks[i]};
        if (pthread_create(&threads[i], NULL, rank_begin, &starts[i]) != 0)
            job_die("cannot start rank %d", i);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        failed += starts[i].result != 0;
    }
    if (the_job.communicators != NULL)
        job_die("the job left a communicator behind");
    communicator_free(the_job.world);
    free(the_job.ranks);
    free(threads);
    free(starts);
    return failed;
}

/* Communicators. */

communicator *job_communicator(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD ? the_job.world : comm;
}

communicator *communicator_create(int size, int *ranks)
{
    communicator *comm = allocate(1, sizeof *comm);
    comm->size = comm->users = size;
    comm->ranks = ranks;
    comm->calls = allocate((size_t)size, sizeof *comm->calls);
    return comm;
}

void communicator_free(communicator *comm)
{
    if (comm->pending != NULL)
        job_die("a communicator was freed with a collective under way");
    free(comm->ranks);
    free(comm->calls);
    free(comm);
}

int communicator_rank(const communicator *comm, const rank *self)
{
    for (int i = 0; i < comm->size; i++)
        if (comm->ranks[i] == self->number)
            return i;
    job_die("it is no member of this communicator");
}

/* Requests. */

request *request_start(rank *self, request_kind kind)
{
    request *r = allocate(1, sizeof *r), **last = &self->active;
    r->kind = kind;
    while (*last != NULL)
        last = &(*last)->next;
    *last = r;
    return r;
}

void request_free(rank *self, request *r)
{
    request **at = &self->active;
    while (*at != NULL && *at != r)
        at = &(*at)->next;
    if (*at == NULL)
        job_die("a request of another rank, or one that was freed");
    *at = r->next;
    free(r);
}

/* Messages: a receive takes the first send that matches, then copies from the sender's own buffer. */

static void match_receives(rank *self)
{
    for (request *r = self->active; r != NULL; r = r->next) {
        if (r->kind != RECEIVE || r->match != NULL)
            continue;
        for (request **at = &self->inbox; *at != NULL; at = &(*at)->next_message) {
            request *send = *at;
            if (send->comm != r->comm || send->tag != r->tag || send->peer != r->peer)
                continue;
            *at = send->next_message;
            r->match = send;
            break;
        }
    }
}

static void move_message(request *r)
{
    request *send = r->match;
    if (send == NULL)
        return;
    memcpy(r->out, send->in, send->bytes < r->bytes ? send->bytes : r->bytes);
    r->error = send->bytes > r->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    r->done = send->done = true;
}

/* One-sided gets. */

/**
 * Loads bytes that their owner may be writing: the race that the readers' protocol is made for, and the only accesses
 * here that the thread sanitizer is not to see. Whole words, so that an aligned one is never torn.
 */
__attribute__((no_sanitize("thread"), noinline)) static void load_racing(void *to, const void *from, size_t bytes)
{
    unsigned char *out = to;
    const volatile unsigned char *in = from;
    size_t i = 0;
    for (; i < bytes && ((uintptr_t)(in + i) % sizeof(uint64_t) != 0 || bytes - i < sizeof(uint64_t)); i++)
        out[i] = in[i];
    for (; bytes - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
        const uint64_t word = *(const volatile uint64_t *)(const volatile void *)(in + i);
        __builtin_memcpy(out + i, &word, sizeof word);
    }
    for (; i < bytes; i++)
        out[i] = in[i];
}

static void move_get(request *r, size_t most)
{
    unsigned char piece[LOAD_PIECE];
    for (const size_t end = r->bytes - r->moved < most ? r->bytes : r->moved + most; r->moved < end;) {
        const size_t bytes = end - r->moved < sizeof piece ? end - r->moved : sizeof piece;
        load_racing(piece, (const char *)r->in + r->moved, bytes);
        memcpy((char *)r->out + r->moved, piece, bytes);
        r->moved += bytes;
    }
    r->done = r->moved == r->bytes;
}

void get_finish(request *r)
{
    move_get(r, SIZE_MAX - r->moved);
}

/* Collectives: each member puts its bytes in; when all that are needed are there, each takes what it wants. */

static void check_shape(const collective_shape *a, const collective_shape *b, uint64_t number)
{
    static const char *const names[] = {"barrier", "broadcast", "gather", "reduction"};
    if (a->kind != b->kind || a->bytes != b->bytes || a->root != b->root || a->type != b->type || a->op != b->op)
        job_die("collective %llu: a %s of %zu bytes (root %d) meets a %s of %zu (root %d)", (unsigned long long)number,
                names[a->kind], a->bytes, a->root, names[b->kind], b->bytes, b->root);
}

static collective *collective_join(communicator *comm, int member, const collective_shape *shape)
{
    const uint64_t number = comm->calls[member]++;
    collective *c = comm->pending;
    while (c != NULL && c->number != number)
        c = c->next;
    if (c == NULL) {
        c = allocate(1, sizeof *c);
        c->number = number;
        c->shape = *shape;
        c->bytes = allocate(shape->kind == BROADCAST ? 1 : (size_t)comm->size, shape->bytes);
        c->next = comm->pending;
        comm->pending = c;
    }
    check_shape(shape, &c->shape, number);
    c->joined++;
    return c;
}

request *collective_start(rank *self, communicator *comm, collective_shape shape, const void *in, void *out)
{
    request *r = request_start(self, COLLECTIVE);
    r->comm = comm;
    r->member = communicator_rank(comm, self);
    r->collective = collective_join(comm, r->member, &shape);
    r->in = in;
    r->out = out;
    r->bytes = shape.bytes;
    return r;
}

#define REDUCE_INTO(type)                                                                                              \
    do {                                                                                                               \
        type *to = out;                                                                                                \
        const type *from = in;                                                                                         \
        for (size_t i = 0; i < shape->bytes / sizeof(type); i++)                                                       \
            to[i] = shape->op == MPI_SUM                          ? to[i] + from[i]                                    \
                    : (shape->op == MPI_MIN) == (from[i] < to[i]) ? from[i]                                            \
                                                                  : to[i];                                             \
    } while (0)

static void reduce_into(const collective_shape *shape, void *out, const void *in)
{
    if (shape->type == MPI_FLOAT)
        REDUCE_INTO(float);
    else if (shape->type == MPI_DOUBLE)
        REDUCE_INTO(double);
    else
        job_die("a reduction of neither float nor double");
}

static void collective_give(request *r)
{
    collective *c = r->collective;
    r->given = true;
    if (c->shape.kind == BARRIER) {
        c->given++;
    } else if (c->shape.kind != BROADCAST) {
        memcpy(c->bytes + (size_t)r->member * r->bytes, r->in, r->bytes);
        c->given++;
    } else if (r->member == c->shape.root) {
        memcpy(c->bytes, r->in, r->bytes);
        c->given++;
    }
}

static void collective_take(request *r)
{
    collective *c = r->collective;
    switch (c->shape.kind) {
    case BARRIER:
        break;
    case BROADCAST:
        if (r->member != c->shape.root)
            memcpy(r->out, c->bytes, r->bytes);
        break;
    case GATHER:
        memcpy(r->out, c->bytes, (size_t)r->comm->size * r->bytes);
        break;
    case REDUCE_TO_ROOT:
        if (r->member != c->shape.root)
            break;
        /* fall through */
    case REDUCE: /* by rank, so that all get the same bits */
        memcpy(r->out, c->bytes, r->bytes);
        for (int m = 1; m < r->comm->size; m++)
            reduce_into(&c->shape, r->out, c->bytes + (size_t)m * r->bytes);
    }
    r->done = true;
    if (++c->left < r->comm->size)
        return;
    collective **at = &r->comm->pending;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c->bytes);
    free(c);
}

static void move_collective(request *r)
{
    const collective *c = r->collective;
    if (!r->given)
        collective_give(r);
    else if (c->given == (c->shape.kind == BROADCAST ? 1 : r->comm->size))
        collective_take(r);
}

/* Progress. */

static bool draw(rank *self)
{
    self->lot ^= self->lot << 13;
    self->lot ^= self->lot >> 17;
    self->lot ^= self->lot << 5;
    return self->lot >> 31;
}

void job_progress(rank *self)
{
    match_receives(self);
    for (request *r = self->active; r != NULL; r = r->next) {
        if (r->done || draw(self))
            continue;
        if (r->kind == RECEIVE)
            move_message(r);
        else if (r->kind == GET)
            move_get(r, GET_PIECE);
        else if (r->kind == COLLECTIVE)
            move_collective(r);
    }
}

int request_wait(rank *self, request *r)
{
    for (job_progress(self); !r->done; job_progress(self)) {
        pthread_mutex_unlock(&the_job.lock);
        sched_yield();
        pthread_mutex_lock(&the_job.lock);
    }
    const int error = r->error;
    request_free(self, r);
    return error;
}
