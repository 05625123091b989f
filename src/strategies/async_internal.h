/**
 * @file
 * What servers and workers of the asynchronous parameter server share.
 *
 * In a step, a worker pushes {header, gradient of each server's part} and waits for {header, change of the weights}.
 * The first worker's push to the first server also carries the normalisation statistics.
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
    uint64_t updates; /**< push: updates of this worker, including this one */
    /** Version of the weights: the number of updates that this server has applied to them. push: the version for which
     * the gradient was computed; pull: the version in this message. */
    uint64_t version;
    double rate; /**< push: the worker's learning rate */
} async_header;

typedef enum async_state { ASYNC_IDLE, ASYNC_RECEIVING, ASYNC_RECEIVED, ASYNC_HELD, ASYNC_SENDING } async_state;

/** The link between a server and a worker, on either side. */
typedef struct async_link {
    int world_rank;      /**< world rank of the other side */
    size_t first, count; /**< the server's part of the trainable values */
    uint64_t version;    /**< that the worker has */
    uint64_t updates;    /**< updates that the worker has made */
    async_header header; /**< header of the message in progress */
    unsigned char *message;
    cod_transfers moving;
    async_state state;             /**< a server's */
    float *known;                  /**< on a server with coded pulls: [count] values that the worker has */
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
    int server;          /**< index of this server */
    size_t first, count; /**< its part */

    /**
     * Host copies of weights, gradients and, on a server, the moving average. On a worker they hold the weights that it
     * pulled; on a server, its part after its last update.
     */
    cod_mirror values, gradients, average;
    cod_gradient_codec push, pull; /**< a server's */
    float *change;                 /**< a server's, coded pulls: [count] */
    float *statistics; /**< on the first server: [state] statistics of the first worker's push, until it is applied */
    float *residual;   /**< on a worker with coded pushes: [trainable] error feedback */
    uint64_t version;  /**< updates applied */
    uint64_t first_version; /**< version when this process began */
    uint64_t staleness, staleness_max;
    int turn; /**< deterministic: worker whose push is next */
    bool begun;
    double waited_s;
    uint64_t steps;
} async_strategy;

/** Range of values of a server's part. */
void async_part(size_t trainable, int servers, int index, size_t *first, size_t *count);

/**
 * A server's step: serves until every worker has made as many updates as the run has made steps, including this one.
 */
COD_MUST_CHECK cod_status async_serve(async_strategy *a);
/** Called on all servers: brings the others' parts of weights and moving average to the first. */
COD_MUST_CHECK cod_status async_gather(async_strategy *a);
/** Waits until all workers have what was sent to them. */
COD_MUST_CHECK cod_status async_flush(async_strategy *a);

/** Copies the values that a worker pushes to the host. Waits for the device. */
COD_MUST_CHECK cod_status async_fetch(async_strategy *a);
/** A worker's halves of a step. */
COD_MUST_CHECK cod_status async_push(async_strategy *a);
COD_MUST_CHECK cod_status async_pull(async_strategy *a);

#endif
