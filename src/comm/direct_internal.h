/**
 * @file
 * What the files of averages by messages between devices share. direct_plan.c: what there is of a range; direct.c: how it is averaged.
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

/** What a level does with a range, which is the whole one or the share of the level before. */
typedef struct direct_division {
    direct_values whole;
    size_t share;       /**< values of a rank; the last ones have fewer */
    cod_buffer *others; /**< [size - 1][share] what the others have of one's own share; NULL = there is nothing */
    float *others_address;
    cod_plan **sums; /**< [sum_count] add them up in the order of the ranks */
    int sum_count;
} direct_division;

typedef enum direct_state {
    DIRECT_COMING,  /**< until its event is reached */
    DIRECT_READY,   /**< until those before it have set out on the same way */
    DIRECT_MOVING,  /**< until its messages are through */
    DIRECT_ARRIVED, /**< until someone who uses the device adds up what came */
    DIRECT_ENDED
} direct_state;

/** A range that was averaged before, or is. As others see it, the cod_reduction. */
typedef struct direct_average {
    group_direct *direct;
    cod_buffer *buffer;
    size_t offset, count;
    float *values; /**< [count] in the device's memory */
    direct_division divisions[DIRECT_LEVELS];
    cod_plan *scale; /**< the sum of one's last share becomes the average; NULL = there is no such share */
    cod_event *event;
    MPI_Request *requests;
    int request_count;
    int way; /**< how many it has set out on: each level's sharing, then back each level's gathering */
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
    cod_queue *coming, *summing; /**< apart, so that no sum waits for gradients that come later */
    direct_average *all, *first; /**< `first`: not ended, in the order in which they were started */
    cod_status failed;
    char reason[256]; /**< why it failed, maybe in the progress thread */
    group_direct *next;
};

/** A rank's share of what its level divides. */
direct_values direct_share(const direct_division *d, int rank);
/** Where the share that comes from another rank lies in `others`, in values. */
size_t direct_place(const direct_division *d, const direct_level *v, int rank);
/** The range's average, which is made when the range is first averaged. */
COD_MUST_CHECK cod_status direct_average_find(group_direct *g, cod_buffer *buffer, size_t offset, size_t count,
                                              direct_average **out);
/** No queued work and no message may be using it. */
void direct_average_free(const group_direct *g, direct_average *a);

#endif
