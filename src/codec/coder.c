#include "codec/coder.h"

#include <math.h>

/** Fewer chunks than these say little. */
enum { TRIALS_NEEDED = 4 };

static double seconds_a_byte(const cod_coder_figures *coder, double link_bytes_per_s)
{
    return 1 / coder->bytes_per_s + 1 / (coder->ratio * link_bytes_per_s);
}

cod_codec_entropy cod_coder_choose(const cod_coder_figures coders[COD_CODEC_ENTROPIES], double link_bytes_per_s,
                                   cod_codec_entropy current)
{
    const double worth = 0.9;
    cod_codec_entropy best = current;
    if (!(link_bytes_per_s > 0))
        return current;
    for (int i = 0; i < COD_CODEC_ENTROPIES; i++) {
        if (!(coders[i].bytes_per_s > 0) || !(coders[i].ratio > 0))
            return current;
        if (seconds_a_byte(&coders[i], link_bytes_per_s) < seconds_a_byte(&coders[best], link_bytes_per_s))
            best = (cod_codec_entropy)i;
    }
    const double needed = worth * seconds_a_byte(&coders[current], link_bytes_per_s);
    return seconds_a_byte(&coders[best], link_bytes_per_s) < needed ? best : current;
}

void cod_coder_init(cod_coder *coder)
{
    *coder = (cod_coder){.current = COD_CODEC_ZSTD};
}

void cod_coder_note_trial(cod_coder *coder, const cod_codec_trial *trial)
{
    coder->trials++;
    coder->values_bytes += (double)trial->values_bytes;
    for (int i = 0; i < COD_CODEC_ENTROPIES; i++) {
        coder->seconds[i] += trial->seconds[i];
        coder->stored[i] += (double)trial->stored[i];
    }
}

void cod_coder_note_pull(cod_coder *coder, uint64_t bytes, double seconds)
{
    coder->link_bytes += (double)bytes;
    coder->link_s += seconds;
}

double cod_coder_link(const cod_coder *coder)
{
    return coder->link_s > 0 ? coder->link_bytes / coder->link_s : NAN;
}

bool cod_coder_decide(cod_coder *coder)
{
    const cod_codec_entropy before = coder->current;
    if (coder->trials < TRIALS_NEEDED)
        return false;
    cod_coder_figures figures[COD_CODEC_ENTROPIES];
    for (int i = 0; i < COD_CODEC_ENTROPIES; i++) {
        figures[i].bytes_per_s = coder->seconds[i] > 0 ? coder->values_bytes / coder->seconds[i] : INFINITY;
        figures[i].ratio = coder->values_bytes / coder->stored[i];
        coder->seconds[i] /= 2;
        coder->stored[i] /= 2;
    }
    coder->current = cod_coder_choose(figures, cod_coder_link(coder), before);
    coder->values_bytes /= 2;
    coder->link_bytes /= 2;
    coder->link_s /= 2;
    return coder->current != before;
}

const char *cod_coder_name(cod_codec_entropy entropy)
{
    static const char *const names[COD_CODEC_ENTROPIES] = {"none", "lz4", "zstd"};
    return names[entropy];
}
