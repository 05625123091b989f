#include "data/loader.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/trace.h"
#include "data/faults.h"
#include "data/threads_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 512 };

/** Room for one batch. The slot of step s is s modulo the number of slots. */
typedef struct slot {
    cod_buffer input, target, turns;
    uint64_t epoch;
    bool ready;
    cod_status status; /**< of making it; the message says why it failed */
    char message[MESSAGE_BYTES];
} slot;

/** One maker of batches: a thread, or the caller of cod_loader_next() where there are none. */
typedef struct worker {
    cod_loader *loader;
    pthread_t thread;
    uint64_t epoch;  /**< whose order is held, UINT64_MAX = none yet */
    uint32_t *order; /**< [samples] */
} worker;

struct cod_loader {
    cod_samples samples;
    cod_loader_options options;
    size_t slot_count, worker_count, started;
    slot *slots;
    worker *workers; /**< one at least */

    pthread_mutex_t mutex; /**< guards what follows and slot.ready */
    pthread_cond_t free_slot, ready_slot;
    uint64_t next_made;  /**< step that a worker takes next */
    uint64_t next_given; /**< step that cod_loader_next() gives next; all earlier slots but the last given are free */
    bool holding;        /**< whether the caller still reads the batch of next_given - 1 */
    bool stopping;
    unsigned long long replaced; /**< samples whose files had gone bad */
};

/** The sample at a position of the endless sequence of epochs. */
static size_t sample_at(worker *w, uint64_t position)
{
    const cod_loader *loader = w->loader;
    const uint64_t epoch = position / loader->samples.count;
    if (epoch != w->epoch) {
        cod_rng rng = cod_rng_open(loader->options.seed, (uint32_t)loader->options.group, 0, epoch, COD_RNG_SHUFFLE, 0);
        cod_rng_permutation(&rng, w->order, loader->samples.count);
        w->epoch = epoch;
    }
    return w->order[position % loader->samples.count];
}

/** The types of a batch's two tensors. */
static cod_dtype input_dtype(const cod_loader *loader)
{
    return loader->options.bytes ? COD_U8 : COD_F32;
}

static cod_dtype target_dtype(const cod_loader *loader)
{
    return loader->options.bytes && loader->samples.target_table != NULL ? COD_U8 : COD_F32;
}

/** Bytes of one sample. */
static size_t sample_bytes(cod_shape shape, cod_dtype dtype)
{
    return (size_t)cod_shape_count(shape) * cod_dtype_bytes(dtype);
}

/** Draws sample `index` into place i of the slot. */
static cod_status draw_into(const cod_loader *loader, size_t index, const cod_sample_place *place, slot *s, int64_t i)
{
    const cod_samples *samples = &loader->samples;
    char *input = (char *)s->input.host + (size_t)i * sample_bytes(samples->input, input_dtype(loader));
    char *target = (char *)s->target.host + (size_t)i * sample_bytes(samples->target, target_dtype(loader));
    if (loader->options.bytes)
        return samples->draw_bytes(samples->context, index, place, (uint8_t *)input, target,
                                   (int32_t *)s->turns.host + i);
    return samples->draw(samples->context, index, place, (float *)(void *)input, (float *)(void *)target);
}

/** Says the recorded failure for the first few samples, and then each time that their number has doubled. */
static void warn_replaced(cod_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    const unsigned long long count = ++loader->replaced;
    pthread_mutex_unlock(&loader->mutex);
    if (count <= COD_FAULTS_NAMED)
        cod_log_warn("another picture is used instead: %s", cod_error_message());
    else if ((count & (count - 1)) == 0)
        cod_log_warn("another picture is used instead, %llu times so far: %s", count, cod_error_message());
}

/** Draws a sample or, when its file has gone bad, the next that can be drawn. */
static cod_status draw_sample(cod_loader *loader, size_t index, const cod_sample_place *place, slot *s, int64_t i)
{
    const size_t count = loader->samples.count;
    cod_status status = COD_OK;
    for (size_t n = 0; n < count; n++) {
        status = draw_into(loader, (index + n) % count, place, s, i);
        if (status != COD_ERR_IO && status != COD_ERR_FORMAT && status != COD_ERR_UNSUPPORTED)
            return status;
        if (n == 0) /* a file system that is gone must not give a line for every picture */
            warn_replaced(loader);
    }
    return cod_fail_prefix(status, "none of the training pictures can be read any more; the last");
}

static cod_status make_sample(worker *w, slot *s, uint64_t step, int64_t i)
{
    const cod_loader_options *o = &w->loader->options;
    /* Random numbers depend on the sample's place in the endless sequence, not on its batch or rank, so that a step's
     * samples are the same however many ranks and accumulated batches divide them. */
    const uint64_t item = (uint64_t)o->rank * (uint64_t)o->batch + (uint64_t)i;
    const cod_sample_place place = {.seed = o->seed,
                                    .group = (uint32_t)o->group,
                                    .position = step * (uint64_t)o->ranks * (uint64_t)o->batch + item};
    const size_t sample = sample_at(w, place.position);
    if (i == 0)
        s->epoch = w->epoch;
    return draw_sample(w->loader, sample, &place, s, i);
}

static void make_batch(worker *w, slot *s, uint64_t step)
{
    const double start_s = cod_trace_begin();
    s->status = COD_OK;
    for (int64_t i = 0; i < w->loader->options.batch && s->status == COD_OK; i++)
        s->status = make_sample(w, s, step, i);
    if (s->status != COD_OK)
        snprintf(s->message, sizeof s->message, "%s", cod_error_message());
    cod_trace_end(start_s, "data", "make batch");
}

/** Whether the slot of the next step to be made is free; under the mutex. */
static bool has_free_slot(const cod_loader *loader)
{
    return loader->next_made - (loader->next_given - loader->holding) < loader->slot_count;
}

static void *run_worker(void *context)
{
    worker *w = context;
    cod_loader *loader = w->loader;
    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (!loader->stopping && !has_free_slot(loader))
            pthread_cond_wait(&loader->free_slot, &loader->mutex);
        if (loader->stopping)
            break;
        const uint64_t step = loader->next_made++;
        slot *s = &loader->slots[step % loader->slot_count];
        pthread_mutex_unlock(&loader->mutex);
        make_batch(w, s, step);
        pthread_mutex_lock(&loader->mutex);
        s->ready = true;
        pthread_cond_signal(&loader->ready_slot);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/** Frees the batch given last and waits for the next one. */
static void wait_for(cod_loader *loader, slot *s)
{
    pthread_mutex_lock(&loader->mutex);
    if (loader->holding) {
        loader->slots[(loader->next_given - 1) % loader->slot_count].ready = false;
        loader->holding = false;
        pthread_cond_signal(&loader->free_slot);
    }
    if (!s->ready) {
        const double trace_s = cod_trace_begin();
        while (!s->ready)
            pthread_cond_wait(&loader->ready_slot, &loader->mutex);
        cod_trace_end(trace_s, "data", "wait for batch");
    }
    loader->next_given++;
    loader->holding = true;
    pthread_mutex_unlock(&loader->mutex);
}

static cod_shape batched(const cod_loader *loader, cod_shape one)
{
    one.n = loader->options.batch;
    return one;
}

cod_status cod_loader_next(cod_loader *loader, cod_batch *batch)
{
    const uint64_t step = loader->next_given;
    slot *s = &loader->slots[step % loader->slot_count];
    if (loader->options.threads > 0) {
        wait_for(loader, s);
    } else {
        make_batch(&loader->workers[0], s, step);
        loader->next_given++;
    }
    if (s->status != COD_OK)
        return cod_fail(s->status, "%s", s->message);
    *batch = (cod_batch){
        .step = step,
        .epoch = s->epoch,
        .input = cod_view_dense(&s->input, 0, input_dtype(loader), batched(loader, loader->samples.input)),
        .target = cod_view_dense(&s->target, 0, target_dtype(loader), batched(loader, loader->samples.target)),
        .turns = s->turns.host,
    };
    return COD_OK;
}

static cod_status check(const cod_samples *samples, const cod_loader_options *o)
{
    COD_REQUIRE(o->batch > 0, "no batch of %lld samples", (long long)o->batch);
    COD_REQUIRE(o->group >= 0 && o->rank >= 0 && o->rank < o->ranks, "no loader for rank %d of %d", o->rank, o->ranks);
    COD_REQUIRE(o->batch <= (int64_t)UINT32_MAX / o->ranks, "%lld samples for each of %d ranks are too many",
                (long long)o->batch, o->ranks);
    COD_REQUIRE(o->threads >= 0 && o->prefetch >= 1, "no loader of %d threads and %d batches", o->threads, o->prefetch);
    COD_REQUIRE(samples->count > 0, "nothing to train on");
    COD_REQUIRE(!o->bytes || samples->draw_bytes != NULL, "the samples are not made of 8-bit pixels");
    return COD_OK;
}

static cod_status allocate(cod_loader *loader)
{
    const cod_loader_options *o = &loader->options;
    const size_t input = sample_bytes(batched(loader, loader->samples.input), input_dtype(loader));
    const size_t target = sample_bytes(batched(loader, loader->samples.target), target_dtype(loader));
    const size_t turns = o->bytes ? (size_t)o->batch * sizeof(int32_t) : 0;
    loader->slot_count = o->threads > 0 ? (size_t)o->prefetch + 1 : 1;
    loader->worker_count = o->threads > 0 ? (size_t)o->threads : 1;
    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    COD_REQUIRE_MEMORY(loader->slots);
    for (size_t i = 0; i < loader->slot_count; i++) {
        slot *s = &loader->slots[i];
        COD_TRY(cod_aligned_alloc(&s->input.host, input));
        COD_TRY(cod_aligned_alloc(&s->target.host, target));
        if (turns > 0)
            COD_TRY(cod_aligned_alloc(&s->turns.host, turns));
        s->input.bytes = input;
        s->target.bytes = target;
        s->turns.bytes = turns;
    }
    loader->workers = calloc(loader->worker_count, sizeof *loader->workers);
    COD_REQUIRE_MEMORY(loader->workers);
    for (size_t i = 0; i < loader->worker_count; i++) {
        worker *w = &loader->workers[i];
        *w = (worker){.loader = loader, .epoch = UINT64_MAX, .order = malloc(loader->samples.count * sizeof *w->order)};
        COD_REQUIRE_MEMORY(w->order);
    }
    return COD_OK;
}

static cod_status start(cod_loader *loader)
{
    COD_TRY(allocate(loader));
    for (; loader->started < (size_t)loader->options.threads; loader->started++) {
        worker *w = &loader->workers[loader->started];
        COD_TRY(cod_thread_start(&w->thread, run_worker, w));
    }
    return COD_OK;
}

cod_status cod_loader_create(const cod_samples *samples, const cod_loader_options *options, uint64_t first_step,
                             cod_loader **out)
{
    *out = NULL;
    COD_TRY(check(samples, options));
    cod_loader *loader = calloc(1, sizeof *loader);
    COD_REQUIRE_MEMORY(loader);
    loader->samples = *samples;
    loader->options = *options;
    loader->next_made = loader->next_given = first_step;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->free_slot, NULL);
    pthread_cond_init(&loader->ready_slot, NULL);
    const cod_status status = start(loader);
    if (status != COD_OK) {
        cod_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return COD_OK;
}

void cod_loader_destroy(cod_loader *loader)
{
    if (loader == NULL)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->free_slot);
    pthread_mutex_unlock(&loader->mutex);
    while (loader->started > 0)
        pthread_join(loader->workers[--loader->started].thread, NULL);
    for (size_t i = 0; loader->workers != NULL && i < loader->worker_count; i++)
        free(loader->workers[i].order);
    for (size_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        cod_aligned_free(loader->slots[i].input.host);
        cod_aligned_free(loader->slots[i].target.host);
        cod_aligned_free(loader->slots[i].turns.host);
    }
    free(loader->workers);
    free(loader->slots);
    pthread_cond_destroy(&loader->ready_slot);
    pthread_cond_destroy(&loader->free_slot);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}
