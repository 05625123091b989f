/**
 * @file
 * What the parts of an exchange report, plain values that the exchange carries from one part to another: how a
 * publication and a pull stand on this rank, and what all ranks of the group said of them.
 */
#ifndef COD_DISTILL_EXCHANGE_REPORTS_INTERNAL_H
#define COD_DISTILL_EXCHANGE_REPORTS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/** Sums over 1024 ranks of the squares of so many bits, times the ranks, are exact as doubles. */
enum { EXCHANGE_PRINT_BITS = 16 };

/** How the publication begun last stands on a rank. */
typedef struct exchange_publication {
    uint64_t print;       /**< EXCHANGE_PRINT_BITS of the last complete one's fingerprint */
    bool waiting, unfit;  /**< exchange_publisher's */
    bool interval_passed; /**< the least time to the next one; the first rank's counts */
    uint64_t left_out;    /**< publications that storage left out since the start */
} exchange_publication;

/** The same of all ranks together. */
typedef struct exchange_publications {
    int64_t step; /**< at whose end they said so */
    int waiting, unfit;
    bool interval_passed;
    double left_out;
} exchange_publications;

enum { EXCHANGE_NO_PEER = -1 };

/** A version to be pulled, and deltas behind it. */
typedef struct exchange_proposal {
    int peer; /**< its number, or EXCHANGE_NO_PEER */
    uint64_t version, life;
    uint32_t following; /**< deltas that the same pull takes one after the other, as cod_slot_offered tells */
} exchange_proposal;

/** How a pull stands on a rank, in its present phase. */
typedef struct exchange_standing {
    bool done, lost;
    bool refused;                 /**< lost because it is damaged */
    uint64_t bytes, published_ms; /**< of the shards that have come */
} exchange_standing;

/** What became of a pull's phase on all ranks together. */
typedef struct exchange_outcome {
    bool lost, refused;
    uint64_t bytes;        /**< that all ranks pulled, not told before */
    uint64_t published_ms; /**< as the first rank read */
} exchange_outcome;

#endif
