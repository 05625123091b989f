/*
 * The decoders of weights that a peer sends.
 *
 * An input is three bytes and the chunks. Byte 0: bit 1 checksums are put right first, so that what lies behind them is
 * reached, bit 2 there is a reference for deltas, bits 3-4 which values are exact (none, all, the second half, the last
 * three). Bytes 1 and 2, little-endian: the number of values, modulo 2048.
 */
#include "fuzz.h"

#include "codec/codec.h"
#include "core/chunk_format.h"
#include "core/fingerprint.h"
#include "core/hash.h"

#include <math.h>

enum { FUZZ_SEAL = 2, FUZZ_REFERENCE = 4, FUZZ_EXACT_ALL = 8, FUZZ_EXACT_HALF = 16, FUZZ_EXACT_LAST = 24 };
enum { FUZZ_CHUNK_VALUES = 256, FUZZ_VALUES = 2048, MOST_BYTES = 1 << 16 };

fuzz_kind fuzz_kinds[] = {{"chunks", 0}, {NULL, 0}};

static const cod_codec_key fuzz_key = {1, 2, 3};

/** The range that the first bytes of an input ask for. */
static cod_codec_range fuzz_range(const uint8_t *input)
{
    const uint64_t count = (input[1] | (uint64_t)input[2] << 8) % FUZZ_VALUES;
    const uint64_t exact[] = {UINT64_MAX, 0, count / 2, count > 3 ? count - 3 : 0};
    return (cod_codec_range){.count = count, .exact_from = exact[input[0] >> 3 & 3]};
}

/** The reference ([FUZZ_VALUES], or NULL) that they ask for. */
static const float *fuzz_reference(const uint8_t *input)
{
    static float values[FUZZ_VALUES];
    for (int i = 0; i < FUZZ_VALUES; i++)
        values[i] = (float)(i * 37 % 101 - 50) / 50;
    return (input[0] & FUZZ_REFERENCE) != 0 ? values : NULL;
}

/** Puts the checksum of each chunk right, as far as lengths lead from one to the next. */
static void seal_chunks(const cod_codec_range *range, const float *reference, unsigned char *data, size_t bytes)
{
    uint64_t done = 0;
    for (size_t at = 0; bytes - at >= COD_CHUNK_HEADER_BYTES && done < range->count;) {
        unsigned char *chunk = data + at, name[48];
        const uint64_t stored = cod_load_u32(chunk + COD_CHUNK_AT_STORED_BYTES);
        uint64_t count = range->count - done;
        if (done < range->exact_from && range->exact_from < range->count)
            count = range->exact_from - done;
        count = count < FUZZ_CHUNK_VALUES ? count : FUZZ_CHUNK_VALUES;
        if (stored > bytes - at - COD_CHUNK_HEADER_BYTES)
            return;
        const bool delta = (chunk[COD_CHUNK_AT_FLAGS] & COD_CHUNK_DELTA) != 0 && reference != NULL;
        const uint64_t words[] = {fuzz_key.run,
                                  fuzz_key.publisher,
                                  fuzz_key.version,
                                  done,
                                  count,
                                  delta ? cod_fingerprint(reference + done, count) : 0};
        for (size_t i = 0; i < 6; i++)
            cod_store_u64(name + 8 * i, words[i]);
        cod_store_u32(chunk + COD_CHUNK_AT_MAGIC, COD_CHUNK_MAGIC);
        cod_store_u64(chunk + COD_CHUNK_AT_CHECKSUM,
                      cod_hash(chunk + COD_CHUNK_AT_MAGIC, COD_CHUNK_HEADER_BYTES + stored - COD_CHUNK_AT_MAGIC,
                               cod_hash(name, delta ? 48 : 40, 0)));
        done += count;
        at += COD_CHUNK_HEADER_BYTES + stored;
    }
}

/** Makes the chunks plain, as a device takes them. */
static cod_status open_chunks(cod_codec *codec, const cod_codec_range *range, const float *reference,
                              const unsigned char *data, size_t bytes)
{
    const size_t room = (size_t)cod_codec_plain_room(&codec->options);
    unsigned char head[COD_CHUNK_HEADER_BYTES], *payload = malloc(room);
    cod_status status = COD_OK;
    FUZZ_DEMAND(payload != NULL);
    cod_codec_begin(codec, range, &fuzz_key);
    while (status == COD_OK && !cod_codec_finished(codec)) {
        const uint64_t first = codec->done;
        uint64_t print = COD_FINGERPRINT_NONE;
        if (reference != NULL) { /* of the chunk that is next, whose length the range decides */
            uint64_t count = range->count - first;
            if (first < range->exact_from && range->exact_from < range->count)
                count = range->exact_from - first;
            print = cod_fingerprint(reference + first, count < FUZZ_CHUNK_VALUES ? count : FUZZ_CHUNK_VALUES);
        }
        status = cod_codec_open(codec, data, bytes, reference != NULL ? &print : NULL, head, payload);
        FUZZ_DEMAND(status != COD_OK || (cod_load_u32(head + COD_CHUNK_AT_STORED_BYTES) <= room &&
                                         cod_load_u64(head + COD_CHUNK_AT_FIRST) == first &&
                                         first + cod_load_u32(head + COD_CHUNK_AT_COUNT) == codec->done &&
                                         head[COD_CHUNK_AT_CODING] <= COD_CHUNK_STEP));
    }
    free(payload);
    return status;
}

static void decode_chunks(const uint8_t *input, unsigned char *data, size_t bytes)
{
    static cod_codec codec;
    const cod_codec_range range = fuzz_range(input);
    const float *reference = fuzz_reference(input);
    float *values = malloc((range.count + 1) * sizeof *values); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(values != NULL);
    if (codec.scratch == NULL)
        FUZZ_DEMAND(cod_codec_init(&codec, &(cod_codec_options){.chunk_values = FUZZ_CHUNK_VALUES}) == COD_OK);
    if ((input[0] & FUZZ_SEAL) != 0)
        seal_chunks(&range, reference, data, bytes);
    cod_codec_begin(&codec, &range, &fuzz_key);
    cod_status status = COD_OK;
    while (status == COD_OK && !cod_codec_finished(&codec))
        status = cod_codec_decode(&codec, data, bytes, reference, 1, values);
    FUZZ_DEMAND(status == COD_OK || status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC);
    fuzz_kinds[0].taken += status == COD_OK && range.count > 0;
    FUZZ_DEMAND(codec.done <= range.count && codec.bytes <= bytes);
    for (uint64_t i = 0; status == COD_OK && i < range.count; i++)
        FUZZ_DEMAND(isfinite(values[i]));
    /* What is decoded can be opened; what is opened and not decoded is not finite. */
    const cod_status opened = open_chunks(&codec, &range, reference, data, bytes);
    FUZZ_DEMAND(range.count == 0 || opened == (status == COD_ERR_NUMERIC ? COD_OK : status) ||
                (status == COD_ERR_NUMERIC && opened == COD_ERR_FORMAT));
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes < 3)
        return 0;
    unsigned char *data = malloc(bytes - 3 + (bytes == 3));
    FUZZ_DEMAND(data != NULL);
    memcpy(data, input + 3, bytes - 3);
    decode_chunks(input, data, bytes - 3);
    free(data);
    return 0;
}

static int write_input(const char *folder, const char *name, const uint8_t head[3], const void *data, size_t bytes)
{
    static unsigned char input[3 + MOST_BYTES];
    memcpy(input, head, 3);
    memcpy(input + 3, data, bytes);
    return fuzz_write_file(folder, name, input, 3 + bytes);
}

/** One input of every coding, shortener and kind of range, alone and as a delta. */
int fuzz_write(const char *folder)
{
    int failures = 0;
    for (int coding = COD_CHUNK_F32; coding <= COD_CHUNK_STEP; coding++) {
        for (int entropy = COD_CODEC_PLAIN; entropy <= COD_CODEC_ZSTD; entropy++) {
            const unsigned count = 300;
            const uint8_t head[3] = {(uint8_t)(FUZZ_SEAL | (coding == COD_CHUNK_STEP ? FUZZ_REFERENCE : 0) |
                                               (entropy == COD_CODEC_LZ4 ? FUZZ_EXACT_LAST : 0)),
                                     count & 255, count >> 8};
            const cod_codec_options options = {.coding = (cod_chunk_coding)coding,
                                               .entropy = (cod_codec_entropy)entropy,
                                               .bf16_scales = entropy == COD_CODEC_PLAIN,
                                               .chunk_values = FUZZ_CHUNK_VALUES,
                                               .quality_db = 43,
                                               .rounding = 0.5f};
            const cod_codec_range range = fuzz_range(head);
            const float *reference = fuzz_reference(head);
            static float values[FUZZ_VALUES];
            static unsigned char bytes[MOST_BYTES];
            char name[64];
            cod_codec codec;
            for (int i = 0; i < FUZZ_VALUES; i++)
                values[i] =
                    (reference != NULL ? reference[i] : 0) + (float)(i * i % 17 - 8) / 500 + (i == 33 ? 2.0f : 0.0f);
            if (cod_codec_init(&codec, &options) != COD_OK)
                return 1;
            cod_codec_begin(&codec, &range, &fuzz_key);
            failures += cod_codec_encode(&codec, values, reference, UINT64_MAX, bytes, sizeof bytes, NULL) != COD_OK;
            snprintf(name, sizeof name, "chunks-%d-%d", coding, entropy);
            failures += write_input(folder, name, head, bytes, codec.bytes);
            cod_codec_clear(&codec);
        }
    }
    return failures;
}
