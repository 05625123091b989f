/**
 * @file
 * How data reach a device: what `codistill bench copy` measures of copies alone, and of training steps that are fed.
 */
#ifndef COD_TOOLS_BENCH_COPY_H
#define COD_TOOLS_BENCH_COPY_H

#include "tools/bench/training.h"

/** From pageable memory by upload(), for which the host waits; the others as data.transfer has them. */
typedef enum cod_copy_way {
    COD_COPY_PAGEABLE,
    COD_COPY_PINNED,
    COD_COPY_MAPPED,
    COD_COPY_UINT8,
    COD_COPY_WAYS,
} cod_copy_way;

extern const char *const cod_copy_way_names[COD_COPY_WAYS];

/** Whether backend and device have it. */
bool cod_copy_way_exists(const cod_backend *backend, cod_device *device, cod_copy_way way);

enum { COD_COPY_MAX_SIZES = 8 };

/** Transfers from the host until values are on the device; f32 that arrive, whatever travels. */
typedef struct cod_copy_speeds {
    size_t count;
    size_t bytes[COD_COPY_MAX_SIZES];
    double gb_per_s[COD_COPY_MAX_SIZES][COD_COPY_WAYS]; /**< medians; NAN = the device does not have it */
} cod_copy_speeds;

/** @param largest_bytes  of a transfer; others are smaller by factors of 4, at least 64 KiB */
COD_MUST_CHECK cod_status cod_copy_measure_speeds(const cod_backend *backend, cod_device *device, size_t largest_bytes,
                                                  int repeats, cod_copy_speeds *speeds);

/** Training steps whose mini-batch reaches the device in one of the ways. */
typedef struct cod_copy_steps {
    size_t batch_bytes; /**< of a mini-batch in f32 */
    double unfed_ms;    /**< a step on a mini-batch that is there already */
    double step_ms[COD_COPY_WAYS];
    /** of a mini-batch alone, without steps; both NAN = the device does not have it */
    double transfer_ms[COD_COPY_WAYS];
} cod_copy_steps;

/** Medians of `repeats` rounds in which all ways take turns. */
COD_MUST_CHECK cod_status cod_copy_measure_steps(cod_bench_training *training, int repeats, cod_copy_steps *steps);

/** Part of the transfer that the steps hide, 0 to 1; NAN = the device does not have it. */
double cod_copy_hidden(const cod_copy_steps *steps, cod_copy_way way);

#endif
