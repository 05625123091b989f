/**
 * @file
 * Which entropy coder shortens the publications of a rank under exchange.codec: auto: the one with which they are of use
 * soonest, by what the coders took and the link moved in this run. Coders are lossless and chunks name theirs, so a rank
 * chooses alone, whatever its readers do.
 */
#ifndef COD_CODEC_CODER_H
#define COD_CODEC_CODER_H

#include "codec/codec.h"

/** What is known of a coder. */
typedef struct cod_coder_figures {
    double bytes_per_s; /**< of f32, shortened and back; 0 = not measured */
    double ratio;       /**< bytes of f32 over bytes stored */
} cod_coder_figures;

/**
 * The coder with the shortest way from a publication to its use, 1/speed + 1/(ratio · bandwidth) for each byte of f32: what
 * else a publication takes does not depend on it. Another one than `current` must be shorter by a tenth.
 *
 * @param link_bytes_per_s  of pulls
 */
cod_codec_entropy cod_coder_choose(const cod_coder_figures coders[COD_CODEC_ENTROPIES], double link_bytes_per_s,
                                   cod_codec_entropy current);

/** What a run has measured: sums in which older figures count for less and less. In the caller's storage. */
typedef struct cod_coder {
    cod_codec_entropy current;
    unsigned trials;
    double values_bytes, seconds[COD_CODEC_ENTROPIES], stored[COD_CODEC_ENTROPIES];
    double link_bytes, link_s;
} cod_coder;

/** Nothing is measured yet: zstd, which is the best but on fast links. */
void cod_coder_init(cod_coder *coder);
void cod_coder_note_trial(cod_coder *coder, const cod_codec_trial *trial);
void cod_coder_note_pull(cod_coder *coder, uint64_t bytes, double seconds);

/** Bytes a second of the pulls noted; NaN before the first. */
double cod_coder_link(const cod_coder *coder);

/** Chooses anew, at a key; what was measured so far counts half from now on. @return whether `current` is another */
bool cod_coder_decide(cod_coder *coder);

/** As exchange.entropy calls it. */
const char *cod_coder_name(cod_codec_entropy entropy);

#endif
