/**
 * @file
 * Chooses the entropy coder of a rank's publications for exchange.codec: auto. It takes the coder with which a
 * publication reaches its readers soonest, by the speed of coders and link measured in this run. Coders are lossless
 * and each chunk names its coder, so a rank can choose alone.
 */
#ifndef COD_CODEC_CODER_H
#define COD_CODEC_CODER_H

#include "codec/codec.h"

/** Measurements of one coder. */
typedef struct cod_coder_figures {
    double bytes_per_s; /**< of f32, shortened and back; 0 = not measured */
    double ratio;       /**< bytes of f32 over bytes stored */
} cod_coder_figures;

/**
 * The coder with the shortest time from a publication to its use, 1/speed + 1/(ratio · bandwidth) for each byte of f32;
 * the other costs of a publication do not depend on the coder. A coder replaces `current` only if its time is shorter
 * by a tenth.
 *
 * @param link_bytes_per_s  of pulls
 */
cod_codec_entropy cod_coder_choose(const cod_coder_figures coders[COD_CODEC_ENTROPIES], double link_bytes_per_s,
                                   cod_codec_entropy current);

/** Measurements of a run, as sums in which older figures count less and less. In the caller's storage. */
typedef struct cod_coder {
    cod_codec_entropy current;
    unsigned trials;
    double values_bytes, seconds[COD_CODEC_ENTROPIES], stored[COD_CODEC_ENTROPIES];
    double link_bytes, link_s;
} cod_coder;

/** Starts without measurements, with zstd, which is best except on fast links. */
void cod_coder_init(cod_coder *coder);
void cod_coder_note_trial(cod_coder *coder, const cod_codec_trial *trial);
void cod_coder_note_pull(cod_coder *coder, uint64_t bytes, double seconds);

/** Bytes a second of the pulls noted; NaN before the first. */
double cod_coder_link(const cod_coder *coder);

/** Chooses again, at a key; earlier measurements count half from now on. @return whether `current` has changed */
bool cod_coder_decide(cod_coder *coder);

/** The coder's name in exchange.entropy. */
const char *cod_coder_name(cod_codec_entropy entropy);

#endif
