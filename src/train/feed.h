/**
 * @file
 * The way of mini-batches from the host to the tensors of a device: `data.transfer`.
 *
 * - pinned: the host writes one of two pinned slots, a queue for copies alone brings it to the device while programs use the one before,
 *   and copies on the device, between programs, put it in its place (core/slots.h).
 * - mapped: an op reads the pinned slot from the device, between programs, and writes it in its place. Nothing runs beside computing.
 * - uint8: as pinned, but what travels are the bytes of pixels and how pictures are turned. In the place of the last copy an op
 *   looks up what bytes stand for and turns them.
 *
 * All give the same bits. A backend that runs at once copies there and then.
 */
#ifndef COD_TRAIN_FEED_H
#define COD_TRAIN_FEED_H

#include "core/slots.h"
#include "data/loader.h"
#include "data/options.h"

/** What a mini-batch consists of. */
enum { COD_FEED_INPUT, COD_FEED_TRUTH, COD_FEED_TURNS, COD_FEED_PARTS };

/** Zeroed = none. */
typedef struct cod_feed {
    const cod_backend *backend;
    cod_device *device;
    cod_data_transfer transfer;     /**< never auto */
    cod_view views[2];              /**< the input and the truth on the device */
    size_t bytes[COD_FEED_PARTS];   /**< as they travel; turns 0 where none do */
    size_t offsets[COD_FEED_PARTS]; /**< in a slot */
    cod_slots slots;                /**< between host and device */
    cod_buffer *tables;             /**< uint8: what the bytes of input and truth stand for */
    cod_plan *plans[COD_SLOTS]
                   [2]; /**< write input and truth from a slot; NULL = a copy does, or all of it is copied at once */
} cod_feed;

/**
 * @param views     input and truth, dense f32; their buffers are borrowed
 * @param samples   for uint8: what bytes stand for; copied to the device. NULL = not for uint8
 * @param transfer  auto becomes pinned, as does all on a backend that runs at once
 * @return COD_ERR_ARGUMENT or COD_ERR_UNSUPPORTED, naming data.transfer and what would do, where backend or samples do not allow it
 */
COD_MUST_CHECK cod_status cod_feed_init(cod_feed *feed, const cod_backend *backend, cod_device *device,
                                        const cod_view views[2], const cod_samples *samples,
                                        cod_data_transfer transfer);
/** Waits for what is under way. Also after a failure. */
void cod_feed_clear(cod_feed *feed);
/** Whether the feed takes batches of bytes, as cod_loader_options.bytes makes them; else f32. */
bool cod_feed_takes_bytes(const cod_feed *feed);

/**
 * Brings a mini-batch to the views, for programs that are queued later; it returns when `sources` may be reused.
 *
 * @param sources  of feed->bytes each
 */
COD_MUST_CHECK cod_status cod_feed_write(cod_feed *feed, const void *const sources[COD_FEED_PARTS]);

#endif
