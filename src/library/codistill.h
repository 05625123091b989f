/**
 * @file
 * Codistill's exchange for any training loop: groups of processes train one model each, publish their weights now and
 * then, coded and compressed, and read those of the others without waiting for anybody. What has come is merged into
 * one's own weights, corrected for its age, or copied out to be a teacher.
 *
 *     const char *settings[] = {"directory=runs/mine", "group=0", "groups=2", "period=50"};
 *     codistill *peers = NULL;
 *     if (codistill_open(settings, 4, tensors, tensor_count, &peers) != CODISTILL_OK)
 *         fprintf(stderr, "%s\n", codistill_error(peers));
 *     for (int64_t step = 1; step <= steps; step++) {
 *         train(…);
 *         codistill_step(peers, step, NULL);
 *         codistill_merge(peers, NULL);
 *     }
 *     codistill_close(peers);
 *
 * Groups meet in a folder that all of them see; no MPI is needed, and each may start, die and come back alone. Weights
 * are coded, written, read and decoded by threads of the handle; the caller's thread pays for one copy of its weights
 * in each period and one pass over them for each version that it merges.
 *
 * The library prints nothing, ends nothing and has no settings of its own outside handles. Functions that can fail
 * return a codistill_status; the reason is in codistill_error(). Threads may share a handle: its calls wait for each
 * other. A process that was forked from the one that opened a handle may only close it.
 *
 * Sources: delays and their correction, docs/exchange.md; the coding of weights, docs/codec.md.
 */
#ifndef CODISTILL_H
#define CODISTILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct codistill codistill; /**< this process as one group of several */

typedef enum codistill_status {
    CODISTILL_OK = 0,
    CODISTILL_ERR_ARGUMENT,    /**< the caller asked for something invalid */
    CODISTILL_ERR_MEMORY,      /**< an allocation failed */
    CODISTILL_ERR_IO,          /**< the operating system refused, or another process publishes as this group */
    CODISTILL_ERR_FORMAT,      /**< a saved state is not of this handle's kind, or is damaged */
    CODISTILL_ERR_UNSUPPORTED, /**< valid, but not here */
    CODISTILL_ERR_OTHER        /**< see the message */
} codistill_status;

typedef enum codistill_type { CODISTILL_F32, CODISTILL_F16, CODISTILL_BF16 } codistill_type;

enum { CODISTILL_RANK_MAX = 8 };

/** An array of weights in the host's memory, dense and row-major. */
typedef struct codistill_tensor {
    const char *name; /**< of its own among the tensors */
    codistill_type type;
    int rank;
    int64_t shape[CODISTILL_RANK_MAX]; /**< [rank] */
    void *data;                        /**< borrowed until codistill_close(), or replaced by codistill_set_data() */
    /**
     * 0: a weight that an optimiser moves. 1: a running statistic, such as a batch normalisation's mean; it travels
     * exactly, and a merge moves it toward the peer's.
     */
    int is_state;
} codistill_tensor;

/** Version of the library, such as "0.2.0". */
const char *codistill_version(void);

/**
 * Joins the groups of a folder. Their tensors have equal names, shapes and order; a peer with others is left alone and
 * counted as rejected.
 *
 * @param settings  [setting_count] texts "key=value". `group` (from 0) and `groups` say which of how many this is, and
 *                  `directory` is the folder. The others are those of section `exchange` of a configuration
 *                  (docs/config.md), with the same names, ranges and defaults
 * @param tensors   [count] copied, but for what `data` points to
 * @param[out] out  new; close it after a failure, too, when its codistill_error() has been read. NULL where even for
 *                  that memory was missing
 */
codistill_status codistill_open(const char *const *settings, size_t setting_count, const codistill_tensor *tensors,
                                size_t count, codistill **out);

/**
 * Leaves the groups. What was published last stays in the folder. Waits for storage for a bounded time. NULL is fine.
 */
codistill_status codistill_close(codistill *peers);

/** The reason of the handle's last failure, one line; "" = none. Valid until its next failure. Never NULL. */
const char *codistill_error(const codistill *peers);

/** A tensor's values lie elsewhere from now on, in the same type and shape. @param index  of the tensor in open() */
codistill_status codistill_set_data(codistill *peers, size_t index, void *data);

/**
 * Tells that this training step is done, and moves the exchange on. Never waits: where a period ends it copies the
 * weights, unless the last copy is still being coded; that publication is then left out and counted.
 *
 * @param step          from 1 on, larger in every call; weights are published where it is a multiple of the period
 * @param[out] arrived  versions of peers that have come since the last call; may be NULL
 * @return CODISTILL_ERR_IO when another process publishes as this group since later; the others go on without this one
 */
codistill_status codistill_step(codistill *peers, int64_t step, int *arrived);

/** @return how many versions codistill_merge() would merge now: 0 means that it would not touch the tensors */
int codistill_mergeable(codistill *peers);

/**
 * Merges into the tensors what has come and was not merged yet: w += alpha * share * (peer - own), where `own` is what
 * this group itself published with the same version, `share` one over the number of groups that are merged, and
 * alpha = sin(pi / (4 d + 2)) for a delay of d periods. Statistics move by `share` toward the peer's.
 *
 * @param[out] merged  versions that were merged; may be NULL
 */
codistill_status codistill_merge(codistill *peers, int *merged);

/** Number of groups that this one reads. */
int codistill_peer_count(const codistill *peers);

/** What is known of a peer. */
typedef struct codistill_peer {
    int group;
    int64_t step;      /**< its step, of the newest version that has come completely; 0 = none yet */
    double age_s;      /**< since it copied these weights, by the clocks of both hosts; NaN = not known */
    uint64_t pulled;   /**< versions that have come */
    uint64_t rejected; /**< versions that were damaged, not finite, or of another model */
    uint64_t lost;     /**< versions that were removed while they were read, or that took too long */
    uint64_t bytes;    /**< that were read of it */
    uint64_t merged;   /**< versions that were merged */
} codistill_peer;

/** @param peer  from 0 on, below codistill_peer_count() */
codistill_status codistill_read_peer(codistill *peers, int peer, codistill_peer *out);

/**
 * Copies a peer's newest weights, for a teacher.
 *
 * @param targets    [count of open()] arrays of the tensors' types and shapes; NULL = this one is not wanted
 * @param[out] step  the peer's step; 0 = nothing has come yet, and nothing was written
 */
codistill_status codistill_peer_weights(codistill *peers, int peer, void *const *targets, int64_t *step);

/** What the handle has done, and what it holds. */
typedef struct codistill_figures {
    uint64_t published;       /**< versions of this group */
    uint64_t published_bytes; /**< of them, as readers read them */
    uint64_t skipped;         /**< publications that were left out: too soon, not finite, or storage full or gone */
    uint64_t pulled, pulled_bytes;
    uint64_t memory_bytes; /**< of the handle, at most */
    double caller_s;       /**< seconds that the caller's threads spent in step and merge */
} codistill_figures;

codistill_status codistill_read_figures(codistill *peers, codistill_figures *out);

/**
 * Saves what a restarted process needs to go on as if it had never stopped: versions held and published. The caller
 * saves its weights and its step at the same time.
 *
 * @param path  a safetensors file, written atomically
 */
codistill_status codistill_save(codistill *peers, const char *path);

/** Restores it, before the first step. The tensors hold the weights that were saved with it. */
codistill_status codistill_load(codistill *peers, const char *path);

#ifdef __cplusplus
}
#endif
#endif
