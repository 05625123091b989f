/**
 * @file
 * What the files of averages by messages between devices share. direct_plan.c holds the memory and plans of each range;
 * direct.c averages the range.
 */
#ifndef COD_COMM_DIRECT_INTERNAL_H
#define COD_COMM_DIRECT_INTERNAL_H

#include "comm/group_internal.h"

enum { DIRECT_LEVELS = 2 };

/** The ranks that have shares of one range: the group's, a node's, or those of one place in their nodes. */
typedef struct direct_level {
    MPI_Comm mpi;
    int rank, size;
} direct_level;

typedef struct direct_values {
    size_t first, count;
} direct_values;

/** How a level divides its range: the whole range, or the share that the level before left to this rank. */
typedef struct direct_division {
    direct_values whole;
    size_t share;       /**< values of one rank's share; the last shares may be shorter */
    cod_buffer *others; /**< [size - 1][share] the other ranks' values of this rank's share; NULL = there are none */
    float *others_address;
    cod_plan **sums; /**< [sum_count] plans that add them up in the order of the ranks */
    int sum_count;
} direct_division;

typedef enum direct_state {
    DIRECT_COMING,  /**< waits for its event */
    DIRECT_READY,   /**< waits until earlier averages have started the same stage */
    DIRECT_MOVING,  /**< waits for its messages */
    DIRECT_ARRIVED, /**< waits until the thread that uses the device adds up the received values */
    DIRECT_ENDED
} direct_state;

/** A range that is being averaged or was averaged before. Callers see it as the cod_reduction. */
typedef struct direct_average {
    group_direct *direct;
    cod_buffer *buffer;
    size_t offset, count;
    float *values; /**< [count] in the device's memory */
    direct_division divisions[DIRECT_LEVELS];
    cod_plan *scale; /**< divides the sum of this rank's last share; NULL = it has no such share */
    cod_event *event;
    MPI_Request *requests;
    int request_count;
    int way; /**< stages started so far: sharing at each level, then gathering back at each level */
    direct_state state;
    bool under_way;              /**< from average_start() to wait() */
    struct direct_average *next; /**< of all that the group has */
    struct direct_average *behind;
} direct_average;

struct group_direct {
    cod_collective collective; /**< first: the collective is this */
    cod_group *group;
    const cod_backend *backend;
    cod_device *device;
    direct_level levels[DIRECT_LEVELS];
    int level_count;
    cod_queue *coming, *summing; /**< separate queues, so that no sum waits for later gradients */
    direct_average *all,
        *first; /**< `all`: every range; `first`: those not ended, in the order in which they started */
    cod_status failed;
    char reason[256]; /**< why it failed; may be set by the progress thread */
    group_direct *next;
};

/** A rank's share of the range that its level divides. */
direct_values direct_share(const direct_division *d, int rank);
/** Position in `others`, in values, of the share received from another rank. */
size_t direct_place(const direct_division *d, const direct_level *v, int rank);
/** The range's average, which is made when the range is first averaged. */
COD_MUST_CHECK cod_status direct_average_find(group_direct *g, cod_buffer *buffer, size_t offset, size_t count,
                                              direct_average **out);
/** Frees an average. No queued work and no message may be using it. */
void direct_average_free(const group_direct *g, direct_average *a);

#endif
