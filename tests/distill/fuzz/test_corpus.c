/* Feeds the decoders every file of the corpus: test_corpus FOLDER; `test_corpus --write FOLDER` makes the sound ones anew. */
#include "decoders.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16 };

static int write_input(const char *folder, const char *name, const uint8_t head[3], const void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    const int failed = file == NULL || fwrite(head, 1, 3, file) != 3 || fwrite(data, 1, bytes, file) != bytes;
    return (file != NULL && fclose(file) != 0) || failed;
}

/** One input of every coding, shortener and kind of range, alone and as a delta. */
static int write_chunks(const char *folder)
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

static cod_status no_sync(void *context)
{
    (void)context;
    return COD_OK;
}

static int write_header(const char *folder)
{
    static _Alignas(64) unsigned char memory[1 << 16];
    static const uint8_t head[3] = {FUZZ_HEADER | FUZZ_SEAL, 6, 0};
    cod_slot_writer writer;
    int failures = cod_slot_writer_init(&writer, memory, &fuzz_identity, &fuzz_layout, no_sync, NULL) != COD_OK;
    for (uint64_t version = 4; version <= 8; version++) {
        uint64_t oldest;
        unsigned char *room;
        const uint32_t slot = cod_slot_next(&writer, &oldest);
        const cod_slot_entry entry = {.version = version, .bytes = 100, .reference = version == 4 ? 0 : version - 1};
        failures += cod_slot_open(&writer, slot, &room) != COD_OK;
        failures += version < 8 && cod_slot_close(&writer, slot, &entry) != COD_OK;
    }
    return failures + write_input(folder, "header", head, memory, COD_SLOT_HEADER_BYTES);
}

static int replay(const char *folder)
{
    static uint8_t input[MOST_BYTES];
    DIR *directory = opendir(folder);
    int files = 0;
    if (directory == NULL) {
        fprintf(stderr, "cannot read '%s'\n", folder);
        return 1;
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (file == NULL)
            continue;
        fprintf(stderr, "%s\n", entry->d_name); /* the last one said is the one that did it */
        const size_t bytes = fread(input, 1, sizeof input, file);
        fclose(file);
        files++;
        LLVMFuzzerTestOneInput(input, bytes);
        /* And cut off anywhere. */
        for (size_t length = 0; length < bytes; length++)
            LLVMFuzzerTestOneInput(input, length);
    }
    closedir(directory);
    printf("%d inputs, of which %zu chunks and %zu headers were taken\n", files, fuzz_taken[0], fuzz_taken[1]);
    return files < 13 || fuzz_taken[0] == 0 || fuzz_taken[1] == 0; /* 13: those that --write makes */
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "--write") == 0)
        return write_chunks(arguments[2]) + write_header(arguments[2]) > 0;
    return count == 2 ? replay(arguments[1]) : 2;
}
