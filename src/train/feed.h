/**
 * @file
 * How mini-batches get from the host to the tensors of a device: `data.transfer`.
 *
 * - pinned: the host writes one of two pinned slots; a queue for copies moves it to the device while programs use the
 *   slot before; copies on the device, between programs, move it to the tensors (core/slots.h).
 * - mapped: between programs, an op on the device reads the pinned slot and writes the tensors. Nothing overlaps with
 *   computing.
 * - uint8: as pinned, but the bytes of the pixels travel, with the turn of each picture. Instead of the last copy, an
 *   op looks up the values of the bytes and turns the pictures.
 *
 * All give the same bits. A backend that runs at once copies at once.
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
    size_t bytes[COD_FEED_PARTS];   /**< of each part as it travels; turns 0 if there are none */
    size_t offsets[COD_FEED_PARTS]; /**< in a slot */
    cod_slots slots;                /**< between host and device */
    cod_buffer *tables;             /**< uint8: values of the bytes of input and truth */
    cod_plan *plans[COD_SLOTS][2];  /**< plans that write input and truth from a slot; NULL = copies do this */
} cod_feed;

/**
 * @param views     input and truth, dense f32; their buffers are borrowed
 * @param samples   for uint8: their tables are copied to the device. NULL = not for uint8
 * @param transfer  auto becomes pinned, and so does every value on a backend that runs at once
 * @return COD_ERR_ARGUMENT or COD_ERR_UNSUPPORTED, naming data.transfer and a value that works, if the backend or the
 *         samples do not allow it
 */
COD_MUST_CHECK cod_status cod_feed_init(cod_feed *feed, const cod_backend *backend, cod_device *device,
                                        const cod_view views[2], const cod_samples *samples,
                                        cod_data_transfer transfer);
/** Waits for transfers in progress. To be called also after a failure. */
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
