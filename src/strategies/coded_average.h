/**
 * @file
 * Averaging of coded values over groups that wait for each other: each rank codes its part for the ranks that have the
 * same place in the other groups. All of them decode all parts, including their own, and average in the same order.
 *
 * A group sends, and receives, S/ratio·(G-1) bytes for S bytes and G groups; exact averaging, 2·S·(G-1)/G.
 */
#ifndef COD_STRATEGIES_CODED_AVERAGE_H
#define COD_STRATEGIES_CODED_AVERAGE_H

#include "codec/codec.h"
#include "strategies/between.h"

/** Zeroed = not made. */
typedef struct cod_coded_average {
    cod_between *between; /**< borrowed */
    cod_codec codec;
    cod_codec_range range; /**< this rank's part; count 0 = none */
    uint64_t run;
    size_t count;
    uint64_t bytes;          /**< of a coded part */
    unsigned char *sent;     /**< [bytes] */
    unsigned char *received; /**< [groups][bytes] */
    float *decoded;          /**< [part] of one group */
} cod_coded_average;

/**
 * @param count       values
 * @param exact_from  values from this index on travel as f32
 * @param run         equal in all groups; distinguishes this run's bytes from those of other runs
 */
COD_MUST_CHECK cod_status cod_coded_average_init(cod_coded_average *average, cod_between *between,
                                                 const cod_codec_options *options, size_t count, size_t exact_from,
                                                 uint64_t run);
void cod_coded_average_clear(cod_coded_average *average);

/**
 * As cod_between_average(); `version` must be equal in all groups and different at each call.
 *
 * @return COD_ERR_NUMERIC when a value is not finite, COD_ERR_FORMAT when received bytes are damaged
 */
COD_MUST_CHECK cod_status cod_coded_average_run(cod_coded_average *average, float *values, uint64_t version);

/** Bytes that a group sends, and receives, for `count` values over `groups` groups. */
double cod_coded_average_sent_bytes(const cod_codec_options *options, size_t count, size_t exact_from, size_t groups);

#endif
