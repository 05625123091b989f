#include "train/feed.h"

#include "core/memory.h"
#include "core/queue.h"

#include <string.h>

enum { VIEWS = 2, BYTE_VALUES = 256 };

/** Fails where the backend cannot do what is asked for. */
static cod_status check(const cod_feed *feed, const cod_samples *samples)
{
    const char *name = feed->backend->name;
    if (feed->transfer == COD_TRANSFER_MAPPED && !feed->backend->maps_host_buffers)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "data.transfer: backend '%s' cannot read the host's memory, which mapped needs; set pinned",
                        name);
    if (feed->transfer != COD_TRANSFER_UINT8)
        return COD_OK;
    if (!feed->backend->supports(feed->device, COD_U8))
        return cod_fail(COD_ERR_UNSUPPORTED, "data.transfer: backend '%s' cannot convert uint8; set pinned", name);
    COD_REQUIRE(samples != NULL && samples->input_table != NULL,
                "data.transfer: uint8 is for data of 8-bit pixels, which these are not; set pinned or mapped");
    return COD_OK;
}

static const float *table_of(const cod_samples *samples, int i)
{
    return i == COD_FEED_INPUT ? samples->input_table : samples->target_table;
}

/** Sizes and places in a slot. Copies of the pinned way take one part right behind the other. */
static void lay_out(cod_feed *feed, const cod_samples *samples)
{
    size_t at = 0;
    const bool bytes = cod_feed_takes_bytes(feed);
    for (int i = 0; i < VIEWS; i++) {
        const size_t values = (size_t)cod_shape_count(feed->views[i].shape);
        feed->bytes[i] = values * (bytes && table_of(samples, i) != NULL ? 1 : sizeof(float));
    }
    feed->bytes[COD_FEED_TURNS] = bytes ? (size_t)feed->views[COD_FEED_INPUT].shape.n * sizeof(int32_t) : 0;
    for (int i = 0; i < COD_FEED_PARTS; i++) {
        feed->offsets[i] = at;
        at += feed->transfer == COD_TRANSFER_PINNED ? feed->bytes[i] : cod_align_up(feed->bytes[i]);
    }
}

static size_t slot_bytes(const cod_feed *feed)
{
    const size_t end = feed->offsets[COD_FEED_TURNS] + feed->bytes[COD_FEED_TURNS];
    return feed->transfer == COD_TRANSFER_PINNED ? end : cod_align_up(end);
}

/** Whether this part travels as bytes that stand for something. */
static bool is_looked_up(const cod_feed *feed, int i)
{
    return feed->bytes[i] < cod_view_span_bytes(&feed->views[i]);
}

static size_t table_bytes(const cod_feed *feed, int i)
{
    return is_looked_up(feed, i) ? BYTE_VALUES * (size_t)feed->views[i].shape.c * sizeof(float) : 0;
}

static cod_status write_tables(cod_feed *feed, const cod_samples *samples)
{
    size_t at = 0;
    COD_TRY(feed->backend->buffer_create(feed->device, table_bytes(feed, 0) + table_bytes(feed, 1), &feed->tables));
    for (int i = 0; i < VIEWS; at += table_bytes(feed, i++))
        if (is_looked_up(feed, i))
            COD_TRY(feed->backend->upload(feed->device, NULL, feed->tables, at, table_of(samples, i),
                                          table_bytes(feed, i)));
    return COD_OK;
}

/** The op that brings part i of a slot to its view. */
static cod_op op_of(const cod_feed *feed, size_t slot, int i)
{
    static const char *const names[VIEWS] = {"data.transfer input", "data.transfer truth"};
    const cod_view *view = &feed->views[i];
    const cod_slots *slots = &feed->slots;
    const size_t table = i == 0 ? 0 : table_bytes(feed, 0);
    if (feed->transfer == COD_TRANSFER_MAPPED)
        return (cod_op){.kind = COD_OP_ADD,
                        .attr.alpha = 1,
                        .inputs = {cod_slots_view(slots, slot, feed->offsets[i], COD_F32, view->shape)},
                        .outputs = {*view},
                        .name = names[i]};
    return (cod_op){
        .kind = COD_OP_TURN,
        .inputs = {cod_slots_view(slots, slot, feed->offsets[i], COD_U8, view->shape),
                   cod_slots_view(slots, slot, feed->offsets[COD_FEED_TURNS], COD_I32,
                                  (cod_shape){1, 1, 1, view->shape.n}),
                   cod_view_dense(feed->tables, table, COD_F32, (cod_shape){1, 1, BYTE_VALUES, view->shape.c})},
        .outputs = {*view},
        .name = names[i]};
}

static cod_status make_plans(cod_feed *feed)
{
    for (size_t slot = 0; slot < COD_SLOTS; slot++)
        for (int i = 0; i < VIEWS; i++) {
            if (feed->transfer == COD_TRANSFER_UINT8 && !is_looked_up(feed, i))
                continue;
            const cod_op op = op_of(feed, slot, i);
            COD_TRY(feed->backend->plan_create(feed->device, &op, &feed->plans[slot][i]));
        }
    return COD_OK;
}

cod_status cod_feed_init(cod_feed *feed, const cod_backend *backend, cod_device *device, const cod_view views[2],
                         const cod_samples *samples, cod_data_transfer transfer)
{
    const bool at_once = cod_backend_runs_at_once(backend);
    *feed = (cod_feed){.backend = backend,
                       .device = device,
                       .transfer = at_once || transfer == COD_TRANSFER_AUTO ? COD_TRANSFER_PINNED : transfer,
                       .views = {views[0], views[1]}};
    COD_TRY(check(feed, samples));
    lay_out(feed, samples);
    if (feed->transfer == COD_TRANSFER_MAPPED)
        COD_TRY(cod_slots_init_mapped(&feed->slots, backend, device, slot_bytes(feed)));
    else
        COD_TRY(cod_slots_init(&feed->slots, backend, device, slot_bytes(feed)));
    if (feed->transfer == COD_TRANSFER_UINT8)
        COD_TRY(write_tables(feed, samples));
    return feed->transfer == COD_TRANSFER_PINNED ? COD_OK : make_plans(feed);
}

void cod_feed_clear(cod_feed *feed)
{
    for (size_t slot = 0; slot < COD_SLOTS; slot++)
        for (int i = 0; i < VIEWS; i++)
            if (feed->plans[slot][i] != NULL)
                feed->backend->plan_destroy(feed->plans[slot][i]);
    cod_slots_clear(&feed->slots);
    if (feed->tables != NULL)
        feed->backend->buffer_destroy(feed->device, feed->tables);
    *feed = (cod_feed){0};
}

bool cod_feed_takes_bytes(const cod_feed *feed)
{
    return feed->transfer == COD_TRANSFER_UINT8;
}

/** Puts part i of a slot in its place. */
static cod_status place(cod_feed *feed, size_t slot, int i)
{
    const cod_view *view = &feed->views[i];
    if (feed->plans[slot][i] != NULL)
        return feed->backend->plan_run(feed->plans[slot][i], NULL);
    const cod_view from = cod_slots_view(&feed->slots, slot, feed->offsets[i], view->dtype, view->shape);
    return feed->backend->copy(feed->device, NULL, view->buffer, view->offset, from.buffer, from.offset,
                               feed->bytes[i]);
}

cod_status cod_feed_write(cod_feed *feed, const void *const sources[COD_FEED_PARTS])
{
    void *host;
    size_t slot;
    if (feed->transfer == COD_TRANSFER_PINNED)
        return cod_slots_write(&feed->slots, feed->views, sources, VIEWS);
    COD_TRY(cod_slots_open(&feed->slots, &host));
    for (int i = 0; i < COD_FEED_PARTS; i++)
        if (feed->bytes[i] > 0)
            memcpy((char *)host + feed->offsets[i], sources[i], feed->bytes[i]);
    COD_TRY(cod_slots_arrive(&feed->slots, &slot));
    for (int i = 0; i < VIEWS; i++)
        COD_TRY(place(feed, slot, i));
    return cod_slots_release(&feed->slots);
}
