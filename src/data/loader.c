#include "data/loader.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/trace.h"
#include "data/threads_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 512, TURNS = 8 };

/** Room for one batch. The slot of step s is s modulo the number of slots. */
typedef struct slot {
    cod_buffer low, high;
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
    const cod_dataset *dataset;
    cod_loader_options options;
    size_t samples;
    int scale;
    float unit[256]; /**< 8-bit value to 0 … 1 */
    size_t slot_count, worker_count, started;
    slot *slots;
    worker *workers; /**< one at least */
    double waited_s;

    pthread_mutex_t mutex; /**< guards what follows and slot.ready */
    pthread_cond_t free_slot, ready_slot;
    uint64_t next_made;  /**< step that a worker takes next */
    uint64_t next_given; /**< step that cod_loader_next() gives next; all earlier slots but the last given are free */
    bool holding;        /**< whether the caller still reads the batch of next_given - 1 */
    bool stopping;
};

/**
 * Copies a crop [size, size, 3] of a picture at (left, top) turned by one of the eight: bit 0 mirrors x, bit 1 mirrors y, bit 2
 * exchanges them.
 */
static void copy_crop(const float unit[256], const uint8_t *picture, int64_t width, int64_t left, int64_t top,
                      int64_t size, uint32_t turn, float *out)
{
    const bool mirror_x = turn & 1, mirror_y = turn & 2, transpose = turn & 4;
    const int64_t last = size - 1;
    const int64_t step_x = mirror_x ? -3 : 3, step_y = (mirror_y ? -3 : 3) * width;
    const uint8_t *corner = picture + ((top + (mirror_y ? last : 0)) * width + left + (mirror_x ? last : 0)) * 3;
    const int64_t across = transpose ? step_y : step_x, down = transpose ? step_x : step_y;
    for (int64_t y = 0; y < size; y++) {
        const uint8_t *in = corner + y * down;
        for (int64_t x = 0; x < size; x++, in += across, out += 3)
            for (int c = 0; c < 3; c++)
                out[c] = unit[in[c]];
    }
}

/** The sample at a position of the endless sequence of epochs. */
static size_t sample_at(worker *w, uint64_t position)
{
    const cod_loader *loader = w->loader;
    const uint64_t epoch = position / loader->samples;
    if (epoch != w->epoch) {
        cod_rng rng = cod_rng_open(loader->options.seed, (uint32_t)loader->options.group, 0, epoch, COD_RNG_SHUFFLE, 0);
        cod_rng_permutation(&rng, w->order, loader->samples);
        w->epoch = epoch;
    }
    return w->order[position % loader->samples];
}

/** Reads a sample or, when its file has gone bad, the next that can be read. */
static cod_status read_sample(const cod_loader *loader, size_t index, cod_pair *pair)
{
    cod_status status = COD_OK;
    for (size_t n = 0; n < loader->samples; n++) {
        status = cod_dataset_read(loader->dataset, COD_SPLIT_TRAIN, (index + n) % loader->samples, pair);
        if (status == COD_OK || status == COD_ERR_MEMORY)
            return status;
        if (n == 0) /* a file system that is gone must not give a line for every picture */
            cod_log_warn("another picture is used instead: %s", cod_error_message());
    }
    return cod_fail_prefix(status, "none of the training pictures can be read any more; the last");
}

static cod_status make_crop(worker *w, slot *s, uint64_t step, int64_t i)
{
    const cod_loader *loader = w->loader;
    const cod_loader_options *o = &loader->options;
    /* What is random belongs to the crop's place in the endless sequence, not to the batch or the rank that it falls to: a
     * step's crops are the same however many ranks and accumulated batches divide them. */
    const uint64_t item = (uint64_t)o->rank * (uint64_t)o->batch + (uint64_t)i;
    const uint64_t position = step * (uint64_t)o->ranks * (uint64_t)o->batch + item;
    const size_t sample = sample_at(w, position);
    if (i == 0)
        s->epoch = w->epoch;
    cod_pair pair;
    COD_TRY(read_sample(loader, sample, &pair));
    if (pair.low_width < o->patch || pair.low_height < o->patch) {
        cod_pair_clear(&pair);
        return cod_fail(COD_ERR_ARGUMENT, "a crop of %lld pixels is larger than the data set was opened for",
                        (long long)o->patch);
    }
    cod_rng crop = cod_rng_open(o->seed, (uint32_t)o->group, 0, position, COD_RNG_CROP, 0);
    const int64_t left = cod_rng_below(&crop, (uint32_t)(pair.low_width - o->patch + 1));
    const int64_t top = cod_rng_below(&crop, (uint32_t)(pair.low_height - o->patch + 1));
    cod_rng augment = cod_rng_open(o->seed, (uint32_t)o->group, 0, position, COD_RNG_AUGMENT, 0);
    const uint32_t turn = o->augment ? cod_rng_below(&augment, TURNS) : 0;
    const int64_t scale = loader->scale, high_patch = o->patch * scale;
    copy_crop(loader->unit, pair.low, pair.low_width, left, top, o->patch, turn,
              (float *)s->low.host + i * o->patch * o->patch * 3);
    copy_crop(loader->unit, pair.high, pair.low_width * scale, left * scale, top * scale, high_patch, turn,
              (float *)s->high.host + i * high_patch * high_patch * 3);
    cod_pair_clear(&pair);
    return COD_OK;
}

static void make_batch(worker *w, slot *s, uint64_t step)
{
    const double start_s = cod_trace_begin();
    s->status = COD_OK;
    for (int64_t i = 0; i < w->loader->options.batch && s->status == COD_OK; i++)
        s->status = make_crop(w, s, step, i);
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
        const double start_s = cod_clock_s(), trace_s = cod_trace_begin();
        while (!s->ready)
            pthread_cond_wait(&loader->ready_slot, &loader->mutex);
        loader->waited_s += cod_clock_s() - start_s;
        cod_trace_end(trace_s, "data", "wait for batch");
    }
    loader->next_given++;
    loader->holding = true;
    pthread_mutex_unlock(&loader->mutex);
}

cod_status cod_loader_next(cod_loader *loader, cod_batch *batch)
{
    const uint64_t step = loader->next_given;
    slot *s = &loader->slots[step % loader->slot_count];
    if (loader->options.threads > 0) {
        wait_for(loader, s);
    } else {
        const double start_s = cod_clock_s();
        make_batch(&loader->workers[0], s, step);
        loader->waited_s += cod_clock_s() - start_s;
        loader->next_given++;
    }
    if (s->status != COD_OK)
        return cod_fail(s->status, "%s", s->message);
    const int64_t patch = loader->options.patch, high = patch * loader->scale, n = loader->options.batch;
    *batch = (cod_batch){
        .step = step,
        .epoch = s->epoch,
        .low = cod_view_dense(&s->low, 0, COD_F32, (cod_shape){n, patch, patch, 3}),
        .high = cod_view_dense(&s->high, 0, COD_F32, (cod_shape){n, high, high, 3}),
    };
    return COD_OK;
}

static cod_status check(const cod_dataset *dataset, const cod_loader_options *o)
{
    COD_REQUIRE(o->batch > 0 && o->patch > 0, "no batch of %lld crops of %lld pixels", (long long)o->batch,
                (long long)o->patch);
    COD_REQUIRE(o->group >= 0 && o->rank >= 0 && o->rank < o->ranks, "no loader for rank %d of %d", o->rank, o->ranks);
    COD_REQUIRE(o->batch <= (int64_t)UINT32_MAX / o->ranks, "%lld crops for each of %d ranks are too many",
                (long long)o->batch, o->ranks);
    COD_REQUIRE(o->threads >= 0 && o->prefetch >= 1, "no loader of %d threads and %d batches", o->threads, o->prefetch);
    COD_REQUIRE(cod_dataset_size(dataset, COD_SPLIT_TRAIN) > 0, "no training pictures");
    return COD_OK;
}

static cod_status allocate(cod_loader *loader)
{
    const cod_loader_options *o = &loader->options;
    const size_t low = (size_t)(o->batch * o->patch * o->patch * 3) * sizeof(float);
    const size_t high = low * (size_t)(loader->scale * loader->scale);
    loader->slot_count = o->threads > 0 ? (size_t)o->prefetch + 1 : 1;
    loader->worker_count = o->threads > 0 ? (size_t)o->threads : 1;
    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    COD_REQUIRE_MEMORY(loader->slots);
    for (size_t i = 0; i < loader->slot_count; i++) {
        slot *s = &loader->slots[i];
        COD_TRY(cod_aligned_alloc(&s->low.host, low));
        COD_TRY(cod_aligned_alloc(&s->high.host, high));
        s->low.bytes = low;
        s->high.bytes = high;
    }
    loader->workers = calloc(loader->worker_count, sizeof *loader->workers);
    COD_REQUIRE_MEMORY(loader->workers);
    for (size_t i = 0; i < loader->worker_count; i++) {
        worker *w = &loader->workers[i];
        *w = (worker){.loader = loader, .epoch = UINT64_MAX, .order = malloc(loader->samples * sizeof *w->order)};
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

cod_status cod_loader_create(const cod_dataset *dataset, const cod_loader_options *options, uint64_t first_step,
                             cod_loader **out)
{
    *out = NULL;
    COD_TRY(check(dataset, options));
    cod_loader *loader = calloc(1, sizeof *loader);
    COD_REQUIRE_MEMORY(loader);
    loader->dataset = dataset;
    loader->options = *options;
    loader->samples = cod_dataset_size(dataset, COD_SPLIT_TRAIN);
    loader->scale = cod_dataset_scale(dataset);
    loader->next_made = loader->next_given = first_step;
    for (int i = 0; i < 256; i++)
        loader->unit[i] = (float)i / 255;
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
        cod_aligned_free(loader->slots[i].low.host);
        cod_aligned_free(loader->slots[i].high.host);
    }
    free(loader->workers);
    free(loader->slots);
    pthread_cond_destroy(&loader->ready_slot);
    pthread_cond_destroy(&loader->free_slot);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

double cod_loader_waited_s(const cod_loader *loader)
{
    return loader->waited_s;
}
