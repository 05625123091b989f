/* Transfers to a device of several sizes, in each way that data.transfer knows and from pageable memory. */
#include "tools/bench/copy.h"

#include "core/memory.h"
#include "core/queue.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "tools/bench/ops.h"

#include <math.h>
#include <string.h>

enum { SMALLEST_BYTES = 64 << 10, ROUND_BYTES = 64 << 20, MOST_TRANSFERS = 64, BYTE_VALUES = 256 };

const char *const cod_copy_way_names[COD_COPY_WAYS] = {"pageable", "pinned", "mapped", "uint8"};

bool cod_copy_way_exists(const cod_backend *backend, cod_device *device, cod_copy_way way)
{
    return way == COD_COPY_MAPPED ? backend->maps_host_buffers
                                  : way != COD_COPY_UINT8 || backend->supports(device, COD_U8);
}

/** What transfers of one size use; plans NULL where the device does not have them. */
typedef struct course {
    const cod_backend *backend;
    cod_device *device;
    size_t bytes;
    void *pageable;
    cod_buffer *pinned, *target,
        *staged; /**< staged: the bytes, before them a table and how to turn, which is not at all */
    cod_plan *plans[COD_COPY_WAYS];
} course;

/** Where in `staged` bytes begin, behind the table and the turns. */
static size_t staged_offset(void)
{
    return cod_align_up(BYTE_VALUES * sizeof(float)) + cod_align_up(sizeof(int32_t));
}

static cod_op op_of(const course *c, cod_copy_way way)
{
    const cod_shape shape = {1, 1, 1, (int64_t)(c->bytes / sizeof(float))}, pixels = {1, 1, shape.c, 1};
    if (way == COD_COPY_MAPPED)
        return (cod_op){.kind = COD_OP_ADD,
                        .attr.alpha = 1,
                        .inputs = {cod_view_dense(c->pinned, 0, COD_F32, shape)},
                        .outputs = {cod_view_dense(c->target, 0, COD_F32, shape)},
                        .name = "mapped"};
    return (cod_op){.kind = COD_OP_TURN,
                    .inputs = {cod_view_dense(c->staged, staged_offset(), COD_U8, pixels),
                               cod_view_dense(c->staged, cod_align_up(BYTE_VALUES * sizeof(float)), COD_I32,
                                              (cod_shape){1, 1, 1, 1}),
                               cod_view_dense(c->staged, 0, COD_F32, (cod_shape){1, 1, BYTE_VALUES, 1})},
                    .outputs = {cod_view_dense(c->target, 0, COD_F32, pixels)},
                    .name = "uint8"};
}

static cod_status make_plans(course *c)
{
    for (cod_copy_way way = COD_COPY_MAPPED; way < COD_COPY_WAYS; way++) {
        const cod_op op = op_of(c, way);
        if (cod_copy_way_exists(c->backend, c->device, way))
            COD_TRY(c->backend->plan_create(c->device, &op, &c->plans[way]));
    }
    return COD_OK;
}

static cod_status open_course(course *c)
{
    const cod_backend *backend = c->backend;
    COD_TRY(cod_aligned_alloc(&c->pageable, c->bytes));
    memset(c->pageable, 1, c->bytes); /* pages that were never written share one of zeros */
    COD_TRY(backend->host_buffer_create(c->device, c->bytes, &c->pinned));
    COD_TRY(backend->buffer_create(c->device, c->bytes, &c->target));
    COD_TRY(backend->buffer_create(c->device, staged_offset() + c->bytes / sizeof(float), &c->staged));
    return make_plans(c);
}

static void close_course(course *c)
{
    for (int way = 0; way < COD_COPY_WAYS; way++)
        if (c->plans[way] != NULL)
            c->backend->plan_destroy(c->plans[way]);
    if (c->staged != NULL)
        c->backend->buffer_destroy(c->device, c->staged);
    if (c->target != NULL)
        c->backend->buffer_destroy(c->device, c->target);
    if (c->pinned != NULL)
        c->backend->host_buffer_destroy(c->device, c->pinned);
    cod_aligned_free(c->pageable);
}

static cod_status transfer(const course *c, cod_copy_way way)
{
    const cod_backend *backend = c->backend;
    if (way == COD_COPY_PAGEABLE)
        return backend->upload(c->device, NULL, c->target, 0, c->pageable, c->bytes);
    if (way == COD_COPY_PINNED)
        return backend->copy(c->device, NULL, c->target, 0, c->pinned, 0, c->bytes);
    if (way == COD_COPY_UINT8)
        COD_TRY(backend->copy(c->device, NULL, c->staged, staged_offset(), c->pinned, 0, c->bytes / sizeof(float)));
    return backend->plan_run(c->plans[way], NULL);
}

static cod_status time_round(const course *c, cod_copy_way way, size_t transfers, double *gb_per_s)
{
    COD_TRY(cod_queue_finish(c->backend, c->device, NULL));
    const double begin_s = cod_clock_s();
    for (size_t i = 0; i < transfers; i++)
        COD_TRY(transfer(c, way));
    COD_TRY(cod_queue_finish(c->backend, c->device, NULL));
    *gb_per_s = 1e-9 * (double)(transfers * c->bytes) / (cod_clock_s() - begin_s);
    return COD_OK;
}

static cod_status measure(const course *c, int repeats, double *medians)
{
    double rounds[COD_BENCH_MAX_REPEATS];
    const size_t wanted = ROUND_BYTES / c->bytes;
    const size_t transfers = wanted > MOST_TRANSFERS ? MOST_TRANSFERS : wanted > 1 ? wanted : 1;
    for (cod_copy_way way = 0; way < COD_COPY_WAYS; way++) {
        medians[way] = NAN;
        if (!cod_copy_way_exists(c->backend, c->device, way))
            continue;
        for (int r = -1; r < repeats; r++)
            COD_TRY(time_round(c, way, transfers, &rounds[r < 0 ? 0 : r]));
        medians[way] = cod_median(rounds, (size_t)repeats);
    }
    return COD_OK;
}

cod_status cod_copy_measure_speeds(const cod_backend *backend, cod_device *device, size_t largest_bytes, int repeats,
                                   cod_copy_speeds *speeds)
{
    size_t sizes = 1;
    while (sizes < COD_COPY_MAX_SIZES && largest_bytes >> 2 * sizes >= SMALLEST_BYTES)
        sizes++;
    *speeds = (cod_copy_speeds){.count = sizes};
    for (size_t i = 0; i < sizes; i++) {
        course c = {.backend = backend, .device = device, .bytes = largest_bytes >> 2 * (sizes - 1 - i)};
        cod_status status = open_course(&c);
        COD_THEN(status, measure(&c, repeats, speeds->gb_per_s[i]));
        speeds->bytes[i] = c.bytes;
        close_course(&c);
        COD_TRY(status);
    }
    return COD_OK;
}
