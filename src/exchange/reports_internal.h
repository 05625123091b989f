/**
 * @file
 * Reports of the parts of an exchange, as plain values that the exchange passes from one part to another: the state of
 * a publication and of a pull on this rank, and the reports of all ranks of the group.
 */
#ifndef COD_EXCHANGE_REPORTS_INTERNAL_H
#define COD_EXCHANGE_REPORTS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/** With this many bits, the sum of squares over 1024 ranks, times the number of ranks, is exact as a double. */
enum { EXCHANGE_PRINT_BITS = 16 };

/** State of a rank's last publication. */
typedef struct exchange_publication {
    uint64_t print;       /**< EXCHANGE_PRINT_BITS of the last complete one's fingerprint */
    bool waiting, unfit;  /**< as in exchange_publisher */
    bool interval_passed; /**< whether the minimum interval to the next one has passed; the first rank's flag counts */
    uint64_t left_out;    /**< publications that storage left out since the start */
} exchange_publication;

/** States of all ranks together. */
typedef struct exchange_publications {
    int64_t step; /**< step at whose end they were reported */
    int waiting, unfit;
    bool interval_passed;
    double left_out;
} exchange_publications;

enum { EXCHANGE_NO_PEER = -1 };

/** A version to pull, and the deltas that follow it. */
typedef struct exchange_proposal {
    int peer; /**< number of the peer, or EXCHANGE_NO_PEER */
    uint64_t version, life;
    uint32_t following; /**< number of deltas that the same pull takes after it, as in cod_slot_offered */
} exchange_proposal;

/** State of a pull on a rank, in its current phase. */
typedef struct exchange_standing {
    bool done, lost;
    bool refused;                 /**< lost because it is damaged */
    uint64_t bytes, published_ms; /**< of the shards that have arrived */
} exchange_standing;

/** Outcome of a pull's phase on all ranks together. */
typedef struct exchange_outcome {
    bool lost, refused;
    uint64_t bytes;        /**< bytes that all ranks pulled since the last report */
    uint64_t published_ms; /**< as the first rank read */
} exchange_outcome;

#endif
