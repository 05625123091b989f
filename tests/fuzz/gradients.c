/*
 * Messages of gradients between ranks.
 *
 * An input is two bytes and the message, which is filled up with zeros: the coding, and which number of values.
 */
#include "fuzz.h"

#include "codec/gradient_codec.h"

#include <math.h>

enum { CODINGS = COD_GRADIENT_ONEBIT + 1, COUNTS = 4, MOST_VALUES = 1000, RUN = 1, VERSION = 2 };

fuzz_kind fuzz_kinds[] = {{"plain", 0}, {"int8", 0}, {"topk", 0}, {"onebit", 0}, {NULL, 0}};

static const size_t counts[COUNTS] = {1, 100, 257, MOST_VALUES};

/** Made once: to make one takes longer than to decode a message. */
static cod_gradient_codec *codec_of(const uint8_t *input)
{
    static cod_gradient_codec codecs[CODINGS][COUNTS];
    const int coding = input[0] % CODINGS, which = input[1] % COUNTS;
    cod_gradient_codec *codec = &codecs[coding][which];
    if (codec->count == 0)
        FUZZ_DEMAND(cod_gradient_codec_init(codec, (cod_gradient_coding)coding, 0.1, counts[which], RUN) == COD_OK);
    return codec;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes < 2)
        return 0;
    cod_gradient_codec *codec = codec_of(input);
    const size_t count = codec->count;
    unsigned char *message = calloc(codec->bytes, 1);
    float *values = malloc(count * sizeof *values);
    FUZZ_DEMAND(message != NULL && values != NULL);
    memcpy(message, input + 2, bytes - 2 < codec->bytes ? bytes - 2 : codec->bytes);
    if (fuzz_taken(cod_gradient_codec_decode(codec, message, VERSION, values))) {
        fuzz_kinds[codec->coding].taken++;
        for (size_t i = 0; codec->coding != COD_GRADIENT_NONE && i < count; i++)
            FUZZ_DEMAND(isfinite(values[i]));
    }
    free(values);
    free(message);
    return 0;
}

int fuzz_write(const char *folder)
{
    static unsigned char input[2 + 8 * MOST_VALUES];
    static float values[MOST_VALUES];
    int failed = 0;
    for (int i = 0; i < MOST_VALUES; i++)
        values[i] = (float)(i * 37 % 101 - 50) / 50;
    input[1] = 1;
    for (int coding = 0; coding < CODINGS; coding++) {
        char name[32];
        input[0] = (unsigned char)coding;
        cod_gradient_codec *codec = codec_of(input);
        failed |= cod_gradient_codec_encode(codec, values, VERSION, input + 2, NULL) != COD_OK;
        snprintf(name, sizeof name, "coding-%d", coding);
        failed |= fuzz_write_file(folder, name, input, 2 + codec->bytes);
    }
    return failed;
}
