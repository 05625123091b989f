/*
 * Messages of gradients between ranks.
 *
 * An input is three bytes and the message, which is filled up with zeros. Byte 0: the coding. Bytes 1 and 2, little-endian: the
 * number of values, modulo 1024, less one.
 */
#include "fuzz.h"

#include "codec/gradient_codec.h"

#include <math.h>

enum { CODINGS = COD_GRADIENT_ONEBIT + 1, VALUES = 1024, RUN = 1, VERSION = 2 };

fuzz_kind fuzz_kinds[] = {{"plain", 0}, {"int8", 0}, {"topk", 0}, {"onebit", 0}, {NULL, 0}};

static size_t count_of(const uint8_t *input)
{
    return 1 + (input[1] | (size_t)input[2] << 8) % VALUES;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes < 3)
        return 0;
    const size_t count = count_of(input);
    const int coding = input[0] % CODINGS;
    cod_gradient_codec codec = {0};
    FUZZ_DEMAND(cod_gradient_codec_init(&codec, (cod_gradient_coding)coding, 0.1, count, RUN) == COD_OK);
    unsigned char *message = calloc(codec.bytes, 1);
    float *values = malloc(count * sizeof *values);
    FUZZ_DEMAND(message != NULL && values != NULL);
    memcpy(message, input + 3, bytes - 3 < codec.bytes ? bytes - 3 : codec.bytes);
    if (fuzz_taken(cod_gradient_codec_decode(&codec, message, VERSION, values))) {
        fuzz_kinds[coding].taken++;
        for (size_t i = 0; coding != COD_GRADIENT_NONE && i < count; i++)
            FUZZ_DEMAND(isfinite(values[i]));
    }
    free(values);
    free(message);
    cod_gradient_codec_clear(&codec);
    return 0;
}

int fuzz_write(const char *folder)
{
    static unsigned char input[3 + 8 * VALUES];
    static float values[VALUES];
    int failed = 0;
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(i * 37 % 101 - 50) / 50;
    for (int coding = 0; coding < CODINGS; coding++) {
        char name[32];
        cod_gradient_codec codec = {0};
        input[0] = (unsigned char)coding;
        input[1] = 99;
        failed |= cod_gradient_codec_init(&codec, (cod_gradient_coding)coding, 0.1, count_of(input), RUN) != COD_OK ||
                  cod_gradient_codec_encode(&codec, values, VERSION, input + 3, NULL) != COD_OK;
        snprintf(name, sizeof name, "coding-%d", coding);
        failed |= fuzz_write_file(folder, name, input, 3 + codec.bytes);
        cod_gradient_codec_clear(&codec);
    }
    return failed;
}
