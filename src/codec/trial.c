/* Tries all entropy coders on a chunk, not only the one in use. */
#include "codec/codec_internal.h"

#include "core/memory.h"

#include <time.h>

/** Processor time of this thread, so that the load of other processes does not count for a coder. */
static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

cod_status cod_codec_try_coders(cod_codec *codec, cod_codec_trial *out)
{
    const size_t room = codec_payload_room(codec->options.chunk_values);
    const uint64_t raw = codec->payload_bytes;
    const unsigned char *payload = codec->payload;
    if (codec->trial == NULL)
        COD_TRY(cod_aligned_alloc((void **)&codec->trial, 2 * room));
    unsigned char *packed = codec->trial, *back = codec->trial + room;
    *out = (cod_codec_trial){.values_bytes = codec->payload_values * sizeof(float), .stored = {raw, raw, raw}};
    for (int i = COD_CODEC_LZ4; i < COD_CODEC_ENTROPIES && raw > 1; i++) {
        const cod_codec_entropy entropy = (cod_codec_entropy)i;
        const double begin = processor_s();
        const uint64_t stored = codec_compress(codec->compressor, entropy, payload, raw, packed, raw - 1);
        if (stored > 0 && codec_decompress(codec->compressor, entropy, packed, stored, back, room) != raw)
            return cod_fail(COD_ERR_BACKEND, "an entropy coder does not give back what it was given");
        out->seconds[i] = processor_s() - begin;
        if (stored > 0)
            out->stored[i] = stored;
    }
    return COD_OK;
}
