/**
 * @file
 * The exchange as a whole: its parts, and functions that involve several of them.
 */
#ifndef COD_EXCHANGE_EXCHANGE_INTERNAL_H
#define COD_EXCHANGE_EXCHANGE_INTERNAL_H

#include "exchange/agreement_internal.h"
#include "exchange/publisher_internal.h"
#include "exchange/puller_internal.h"

/**
 * Layout of the saved numbers: those that give saved versions their meaning come before the publisher's and the
 * puller's. See state.c.
 */
enum { EXCHANGE_PERIOD_BITS = 40, EXCHANGE_SHAPE_NUMBERS = 1 };

struct cod_exchange {
    exchange_setup setup;
    size_t shared_used; /**< bytes of setup.shared in use */

    exchange_publisher publisher;
    exchange_puller puller;
    exchange_agreement agreement;

    /* Replaying. */
    cod_exchange_event *events; /**< NULL = no replay */
    size_t event_count, next_event;

    double seconds; /**< the caller's time spent in here */

    /* What is saved. */
    cod_exchange_array *arrays;
    size_t array_count;
    uint64_t *numbers;    /**< versions and steps, as saved */
    unsigned char *slots; /**< of all fragments, as saved last */
};

/* Groups that wait for each other: wait.c. */

/** Whether the replayed run published after this step. */
bool exchange_replays_publication(const cod_exchange *e, int64_t step);
/** Deterministic, replay: waits until all readers of this rank have taken the version in the fragment's next slot. */
COD_MUST_CHECK cod_status exchange_wait_for_readers(const exchange_setup *setup, int fragment);
/** Deterministic: takes this period's version of every peer. */
COD_MUST_CHECK cod_status exchange_take_all(cod_exchange *e, int64_t step);
/** Takes over the versions that the replayed run took over after this step. */
COD_MUST_CHECK cod_status exchange_replay_step(cod_exchange *e, int64_t step);

/* Memory of weights: values.c. */

/**
 * Makes memory for weights that the group's ranks of each node hold together. Collective on the group; before
 * exchange_make_values().
 */
COD_MUST_CHECK cod_status exchange_share_values(cod_exchange *e);
/**
 * Makes the snapshot, own versions and peers' checkpoints: in the device's memory if the device codes, otherwise in the
 * host's. Call exchange_free_values() also after a failure.
 */
COD_MUST_CHECK cod_status exchange_make_values(cod_exchange *e);
/** Frees them after waiting for copies to the snapshot. Ranks share no memory from then on. */
void exchange_free_values(cod_exchange *e);

#endif
