/**
 * @file
 * What servers and workers of the asynchronous parameter server share.
 *
 * A step of a worker: push {header, gradient of each server's part}, await {header, what the weights changed by}. The push of a
 * first worker to the first server carries the statistics of normalisation too.
 */
#ifndef COD_STRATEGIES_ASYNC_INTERNAL_H
#define COD_STRATEGIES_ASYNC_INTERNAL_H

#include "codec/gradient_codec.h"
#include "strategies/mirror.h"
#include "strategies/transfers.h"
#include "train/strategy.h"

typedef struct cod_async_options {
    int64_t servers, max_delay;
    bool staleness_aware;
    int push_codec, pull_codec; /**< cod_gradient_coding */
    double topk_fraction;
} cod_async_options;

enum {
    ASYNC_TAG_PUSH = 1,
    ASYNC_TAG_GRADIENT,
    ASYNC_TAG_STATISTICS,
    ASYNC_TAG_PULL,
    ASYNC_TAG_WEIGHTS,
    ASYNC_TAG_PART, /**< from the other servers to the first: their part of the weights, and of their moving average */
};

typedef struct async_header {
    uint64_t updates; /**< push: of this worker, with this one */
    uint64_t
        version; /**< push: of the weights that the gradient is of; pull: of these. Updates applied by that server */
    double rate; /**< push: the worker's learning rate */
} async_header;

typedef enum async_state { ASYNC_IDLE, ASYNC_RECEIVING, ASYNC_RECEIVED, ASYNC_HELD, ASYNC_SENDING } async_state;

/** A server and a worker, on either side. */
typedef struct async_link {
    int world_rank;      /**< the other's */
    size_t first, count; /**< the server's part of the trainable values */
    uint64_t version;    /**< that the worker has */
    uint64_t updates;    /**< that the worker has made */
    async_header header; /**< of the message under way */
    unsigned char *message;
    cod_transfers moving;
    async_state state;             /**< a server's */
    float *known;                  /**< a server's, coded pulls: [count] what the worker has */
    cod_gradient_codec push, pull; /**< a worker's */
} async_link;

typedef struct async_strategy {
    cod_strategy base;
    cod_train_context *context; /**< from start() on */
    cod_async_options options;
    bool serves;
    int servers, workers;
    async_link *links; /**< [workers] of a server, [servers] of a worker */
    size_t link_count;
    int server;          /**< index of a server */
    size_t first, count; /**< its part */

    /**
     * Weights, gradients and, of a server, their moving average as the host has them. A worker's hold the weights that it pulled, a
     * server's part those of its last update.
     */
    cod_mirror values, gradients, average;
    cod_gradient_codec push, pull; /**< a server's */
    float *change;                 /**< a server's, coded pulls: [count] */
    float *statistics;      /**< the first server's: [state] as the first worker pushed them, until that is applied */
    float *residual;        /**< a worker's, coded pushes: [trainable] what codings have lost so far */
    uint64_t version;       /**< updates applied */
    uint64_t first_version; /**< when this process began */
    uint64_t staleness, staleness_max;
    int turn; /**< deterministic: whose push is next */
    bool begun;
    double waited_s;
    uint64_t steps;
} async_strategy;

/** Values of the s-th of the servers' parts. */
void async_part(size_t trainable, int servers, int index, size_t *first, size_t *count);

/** A server's step: until every worker has made as many updates as the run has steps with this one. */
COD_MUST_CHECK cod_status async_serve(async_strategy *a);
/** On all servers: the first gets the others' parts of weights and moving average. */
COD_MUST_CHECK cod_status async_gather(async_strategy *a);
/** Waits until all workers have what was sent to them. */
COD_MUST_CHECK cod_status async_flush(async_strategy *a);

/** Brings what a worker pushes to the host. Waits for the device. */
COD_MUST_CHECK cod_status async_fetch(async_strategy *a);
/** A worker's halves of a step. */
COD_MUST_CHECK cod_status async_push(async_strategy *a);
COD_MUST_CHECK cod_status async_pull(async_strategy *a);

#endif
