#include "train/coded_allreduce.h"

#include "core/int8_blocks.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static const cod_int8_blocks blocks = {.log2 = COD_INT8_BLOCK_LOG2, .bf16_scales = true};

/** States of an average: it waits for its values, or for messages, in lanes of these numbers. */
typedef enum phase { VALUES, PARTS, MEANS, DONE } phase;

/** The average of a range; as others see it, the cod_reduction. */
typedef struct average {
    cod_coded_allreduce *allreduce;
    struct average *next;
    size_t count;
    phase phase;
    cod_request *request;
    cod_staged *staged;       /**< the range, where it is a device's */
    float *values, *residual; /**< [count] of the range */
    unsigned char *coded;     /**< [count coded] this rank's values for their owners, then the owners' means */
    unsigned char *received;  /**< [size][own part coded] */
    float *decoded;           /**< [own part] */
} average;

struct cod_coded_allreduce {
    cod_collective collective; /**< first: the collective is the all-reduce */
    cod_group *group;
    size_t count;
    float *residual;             /**< [count] */
    average *first, *idle;       /**< not waited for yet, in the order in which they were started; to be used again */
    cod_group_message *messages; /**< [2][size] */
    bool failed;
};

/** A rank's part of a range: whole blocks, but for the range's last. */
typedef struct part {
    size_t first, count;
    size_t at, bytes; /**< the same in coded bytes */
} part;

static size_t coded_bytes(size_t count)
{
    return (size_t)cod_int8_blocks_bytes(&blocks, count);
}

static size_t part_first(size_t count, int rank, int size)
{
    const size_t block = (size_t)1 << blocks.log2, all = (count + block - 1) / block;
    const size_t first = all * (size_t)rank / (size_t)size * block;
    return first < count ? first : count;
}

static part part_of(size_t count, int rank, int size)
{
    const size_t first = part_first(count, rank, size), end = part_first(count, rank + 1, size);
    return (part){first, end - first, coded_bytes(first), coded_bytes(end) - coded_bytes(first)};
}

/**
 * Sends the coded values that others own, and leaves in the residual what coding loses of them, of the own part all.
 */
static cod_status send_parts(average *a)
{
    const cod_coded_allreduce *c = a->allreduce;
    const int size = c->collective.size, rank = c->collective.rank;
    const part own = part_of(a->count, rank, size);
    cod_group_message *sent = c->messages, *received = sent + size;
    for (size_t i = 0; i < a->count; i++)
        a->residual[i] += a->values[i];
    for (int r = 0; r < size; r++) {
        const part p = part_of(a->count, r, size);
        float *owed = a->residual + p.first, *values = a->values + p.first;
        sent[r] = (cod_group_message){a->coded + p.at, p.bytes};
        received[r] = (cod_group_message){a->received + (size_t)r * own.bytes, own.bytes};
        if (r == rank)
            continue;
        cod_int8_blocks_pack(&blocks, owed, p.count, sent[r].data);
        cod_int8_blocks_unpack(&blocks, sent[r].data, p.count, values);
        for (size_t i = 0; i < p.count; i++)
            owed[i] -= values[i];
    }
    a->phase = PARTS;
    return cod_group_swap_start(c->group, PARTS, sent, received, &a->request);
}

/** Leaves the own part's mean over the ranks in the values, summed in their order, and what is owed of the sum. */
static void make_mean(average *a, const part *own)
{
    const cod_coded_allreduce *c = a->allreduce;
    const float size = (float)c->collective.size, scale = (float)(1.0 / c->collective.size);
    float *mean = a->values + own->first, *owed = a->residual + own->first;
    unsigned char *coded = a->coded + own->at;
    memset(mean, 0, own->count * sizeof *mean);
    for (int r = 0; r < c->collective.size; r++) {
        const float *values = r == c->collective.rank ? owed : a->decoded;
        if (r != c->collective.rank)
            cod_int8_blocks_unpack(&blocks, a->received + (size_t)r * own->bytes, own->count, a->decoded);
        for (size_t i = 0; i < own->count; i++)
            mean[i] += values[i];
    }
    for (size_t i = 0; i < own->count; i++)
        mean[i] *= scale;
    cod_int8_blocks_pack(&blocks, mean, own->count, coded);
    cod_int8_blocks_unpack(&blocks, coded, own->count, a->decoded);
    for (size_t i = 0; i < own->count; i++) {
        owed[i] = size * (mean[i] - a->decoded[i]);
        mean[i] = a->decoded[i];
    }
}

static cod_status send_mean(average *a)
{
    const cod_coded_allreduce *c = a->allreduce;
    const int size = c->collective.size;
    const part own = part_of(a->count, c->collective.rank, size);
    cod_group_message *sent = c->messages, *received = sent + size;
    make_mean(a, &own);
    for (int r = 0; r < size; r++) {
        const part p = part_of(a->count, r, size);
        sent[r] = (cod_group_message){a->coded + own.at, own.bytes};
        received[r] = (cod_group_message){a->coded + p.at, p.bytes};
    }
    a->phase = MEANS;
    return cod_group_swap_start(c->group, MEANS, sent, received, &a->request);
}

static void take_means(average *a)
{
    const cod_coded_allreduce *c = a->allreduce;
    for (int r = 0; r < c->collective.size; r++) {
        const part p = part_of(a->count, r, c->collective.size);
        if (r != c->collective.rank)
            cod_int8_blocks_unpack(&blocks, a->coded + p.at, p.count, a->values + p.first);
    }
    a->phase = DONE;
}

/** Sends the parts of averages whose values have come: in the order of the averages, on all ranks. */
static cod_status begin_all(const cod_coded_allreduce *c)
{
    bool there = true;
    for (average *a = c->first; a != NULL && there; a = a->next) {
        if (a->phase != VALUES)
            continue;
        COD_TRY(cod_staged_test(a->staged, &there));
        if (there)
            COD_TRY(send_parts(a));
    }
    return COD_OK;
}

/** Moves an average on as far as it goes without waiting. */
static cod_status advance(average *a)
{
    while (a->phase != VALUES && a->phase != DONE) {
        bool done;
        COD_TRY(cod_request_test(&a->request, &done));
        if (!done)
            return COD_OK;
        if (a->phase == PARTS)
            COD_TRY(send_mean(a));
        else
            take_means(a);
    }
    return COD_OK;
}

/** Advances all averages; all ranks send means in the order of the averages. */
static cod_status advance_all(cod_coded_allreduce *c)
{
    if (c->failed)
        return cod_fail(COD_ERR_MPI, "a coded all-reduce failed before");
    cod_status status = begin_all(c);
    for (average *a = c->first; a != NULL && status == COD_OK; a = a->next) {
        status = advance(a);
        if (a->phase <= PARTS)
            break;
    }
    c->failed = status != COD_OK;
    return status;
}

static cod_status create_average(cod_coded_allreduce *c, size_t count, average **out)
{
    const part own = part_of(count, c->collective.rank, c->collective.size);
    const size_t decoded = own.count * sizeof(float), coded = coded_bytes(count);
    average *a = calloc(1, sizeof *a);
    COD_REQUIRE_MEMORY(a);
    const cod_status status =
        cod_aligned_alloc((void **)&a->decoded, decoded + coded + (size_t)c->collective.size * own.bytes);
    if (status != COD_OK) {
        free(a);
        return status;
    }
    a->coded = (unsigned char *)a->decoded + decoded;
    a->received = a->coded + coded;
    a->allreduce = c;
    a->count = count;
    *out = a;
    return COD_OK;
}

/** One for a range of `count` values; a run averages the same ranges in every step. */
static cod_status take_idle(cod_coded_allreduce *c, size_t count, average **out)
{
    average **at = &c->idle;
    while (*at != NULL && (*at)->count != count)
        at = &(*at)->next;
    *out = *at;
    if (*at == NULL)
        return create_average(c, count, out);
    *at = (*at)->next;
    (*out)->next = NULL;
    return COD_OK;
}

static cod_status average_start(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out)
{
    cod_coded_allreduce *c = (cod_coded_allreduce *)collective;
    const size_t first = offset / sizeof(float), held = buffer->bytes / sizeof(float),
                 all = held < c->count ? held : c->count;
    *out = NULL;
    COD_REQUIRE(offset % sizeof(float) == 0 && first <= all && count <= all - first,
                "a range of %zu values at byte %zu lies outside its buffer", count, offset);
    COD_TRY(advance_all(c));
    average *a, **last = &c->first;
    cod_staged *staged;
    COD_TRY(cod_group_stage(c->group, buffer, offset, count * sizeof(float), ready, &staged));
    cod_status status = take_idle(c, count, &a);
    if (status != COD_OK) {
        cod_staged_drop(staged);
        return status;
    }
    a->staged = staged;
    a->values = staged != NULL ? cod_staged_host(staged) : (float *)buffer->host + first;
    a->phase = VALUES;
    a->residual = c->residual + first;
    while (*last != NULL)
        last = &(*last)->next;
    *last = a;
    status = begin_all(c);
    c->failed = status != COD_OK;
    *out = (cod_reduction *)a;
    return status;
}

static cod_status average_test(cod_reduction *reduction, bool *done)
{
    const average *a = (const average *)reduction;
    COD_TRY(advance_all(a->allreduce));
    *done = a->phase == DONE;
    return COD_OK;
}

static cod_status average_wait(cod_reduction *reduction, cod_queue *queue)
{
    average *a = (average *)reduction;
    bool done = false;
    if (a == NULL)
        return COD_OK;
    COD_TRY(average_test(reduction, &done));
    for (unsigned looks = 0; !done;) {
        cod_comm_pause(&looks);
        COD_TRY(average_test(reduction, &done));
    }
    average **at = &a->allreduce->first;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    a->next = a->allreduce->idle;
    a->allreduce->idle = a;
    return a->staged != NULL ? cod_staged_return(a->staged, queue) : COD_OK;
}

static const cod_collective_ops ops = {.average_start = average_start, .test = average_test, .wait = average_wait};

cod_status cod_coded_allreduce_create(cod_group *group, size_t count, cod_coded_allreduce **out)
{
    const int size = cod_group_size(group);
    cod_coded_allreduce *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->collective = (cod_collective){.ops = &ops, .rank = cod_group_rank(group), .size = size};
    c->group = group;
    c->count = count;
    c->messages = calloc(2 * (size_t)size, sizeof *c->messages);
    cod_status status = c->messages != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for %d ranks", size);
    COD_THEN(status, cod_aligned_alloc((void **)&c->residual, count * sizeof *c->residual));
    if (status != COD_OK) {
        cod_coded_allreduce_destroy(c);
        return status;
    }
    *out = c;
    return COD_OK;
}

void cod_coded_allreduce_destroy(cod_coded_allreduce *allreduce)
{
    if (allreduce == NULL)
        return;
    while (allreduce->idle != NULL) {
        average *a = allreduce->idle;
        allreduce->idle = a->next;
        cod_aligned_free(a->decoded);
        free(a);
    }
    cod_aligned_free(allreduce->residual);
    free(allreduce->messages);
    free(allreduce);
}

cod_collective *cod_coded_allreduce_collective(cod_coded_allreduce *allreduce)
{
    return &allreduce->collective;
}

float *cod_coded_allreduce_residual(cod_coded_allreduce *allreduce)
{
    return allreduce->residual;
}

double cod_coded_allreduce_sent_bytes(size_t count, int size)
{
    return 2.0 * (double)coded_bytes(count) * (size - 1) / size;
}

double cod_coded_allreduce_memory_bytes(size_t count, int size)
{
    return (1 + 1.0 / size) * (double)(count * sizeof(float)) + 2.0 * (double)coded_bytes(count);
}
