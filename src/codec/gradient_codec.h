/**
 * @file
 * Codings of gradients and of changes of weights, for messages whose length the receiver knows in advance.
 *
 * All codings but COD_GRADIENT_NONE lose precision. Senders add the loss, values minus decoded values, to their next
 * message (error feedback; Seide et al. 2014, "1-bit stochastic gradient descent", section 2), so that nothing is lost
 * for good.
 */
#ifndef COD_CODEC_GRADIENT_CODEC_H
#define COD_CODEC_GRADIENT_CODEC_H

#include "codec/codec.h"

typedef enum cod_gradient_coding {
    COD_GRADIENT_NONE, /**< f32 */
    COD_GRADIENT_INT8, /**< blocks of 8-bit integers with a scale, as the exchange has them (codec/codec.h) */
    COD_GRADIENT_TOPK, /**< the largest magnitudes with their places (Aji and Heafield 2017; Lin et al. 2018) */
    /** signs, and for each 256 values the mean of those on either side of zero (Seide et al. 2014) */
    COD_GRADIENT_ONEBIT
} cod_gradient_coding;

/** For `count` values; zeroed = not made. */
typedef struct cod_gradient_codec {
    cod_gradient_coding coding;
    size_t count, kept; /**< kept: by TOPK */
    uint64_t bytes;     /**< of a message */
    uint64_t run;
    cod_codec int8;
    float *magnitudes; /**< [count] TOPK */
} cod_gradient_codec;

/** Bytes of a message of `count` values. @param fraction  of the values that TOPK sends, at least one */
uint64_t cod_gradient_codec_bytes(cod_gradient_coding coding, double fraction, size_t count);

/** @param run  equal for sender and receiver; end with cod_gradient_codec_clear() */
COD_MUST_CHECK cod_status cod_gradient_codec_init(cod_gradient_codec *codec, cod_gradient_coding coding,
                                                  double fraction, size_t count, uint64_t run);
void cod_gradient_codec_clear(cod_gradient_codec *codec);

/**
 * Codes one message.
 *
 * @param values        [count]
 * @param version       equal for sender and receiver, different for each message
 * @param[out] message  [codec->bytes]
 * @param[out] decoded  [count] values that the receiver will decode; not the same memory as `values`. May be NULL
 * @return COD_ERR_NUMERIC when a value is not finite (COD_GRADIENT_NONE does not look)
 */
COD_MUST_CHECK cod_status cod_gradient_codec_encode(cod_gradient_codec *codec, const float *values, uint64_t version,
                                                    unsigned char *message, float *decoded);

/**
 * @param message       [codec->bytes] untrusted
 * @param[out] decoded  [count]
 * @return COD_ERR_FORMAT when it cannot be a message of `count` values
 */
COD_MUST_CHECK cod_status cod_gradient_codec_decode(cod_gradient_codec *codec, const unsigned char *message,
                                                    uint64_t version, float *decoded);

#endif
