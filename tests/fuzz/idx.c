/*
 * IDX files, plain and compressed.
 *
 * An input is a byte and a file. Byte 0: bit 0 three dimensions instead of one, bit 1 the file is compressed first, so
 * that what lies behind gzip's checksum is reached.
 */
#include "fuzz.h"

#include "data/idx_internal.h"

#include <zlib.h>

enum { PICTURES = 1, COMPRESS = 2 };

fuzz_kind fuzz_kinds[] = {{"files", 0}, {"compressed files", 0}, {NULL, 0}};

/* In place of zlib's, in this program: to make room for large buffers would take nearly all of the time. */
int gzbuffer(gzFile file, unsigned bytes)
{
    (void)file;
    (void)bytes;
    return 0;
}

/** Quickly, without looking for what repeats. @return bytes */
static size_t compressed(const uint8_t *data, size_t bytes, uint8_t *out, size_t room)
{
    z_stream stream = {0};
    FUZZ_DEMAND(deflateInit2(&stream, 0, Z_DEFLATED, 16 + 9, 1, Z_DEFAULT_STRATEGY) == Z_OK); /* 16: gzip's header */
    stream.next_in = (z_const Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)bytes;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    FUZZ_DEMAND(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    const size_t used = stream.total_out;
    deflateEnd(&stream);
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes < 1)
        return 0;
    const int rank = (input[0] & PICTURES) != 0 ? 3 : 1;
    const uint8_t *data = input + 1;
    size_t count = bytes - 1, room = 2 * count + 1024;
    uint8_t *packed = malloc(room);
    FUZZ_DEMAND(packed != NULL);
    if ((input[0] & COMPRESS) != 0) {
        count = compressed(data, count, packed, room);
        data = packed;
    }
    const char *path = fuzz_file(data, count);
    cod_idx header;
    if (fuzz_taken(cod_idx_probe(path, rank, &header))) {
        uint8_t *values = malloc(header.bytes);
        FUZZ_DEMAND(values != NULL);
        if (fuzz_taken(cod_idx_read(path, rank, &header, values)))
            fuzz_kinds[(input[0] & COMPRESS) != 0].taken++;
        free(values);
    }
    free(packed);
    return 0;
}

int fuzz_write(const char *folder)
{
    static const uint8_t pictures[] = {PICTURES, 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0,  2,  0, 0,
                                       0,        3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                         labels[] = {0, 0, 0, 8, 1, 0, 0, 0, 5, 1, 0, 2, 1, 0};
    uint8_t input[sizeof pictures], packed[1024] = {PICTURES};
    int failed = fuzz_write_file(folder, "pictures", pictures, sizeof pictures);
    failed |= fuzz_write_file(folder, "labels", labels, sizeof labels);
    memcpy(input, pictures, sizeof input);
    input[0] |= COMPRESS;
    failed |= fuzz_write_file(folder, "compressed-here", input, sizeof input);
    const size_t bytes = compressed(pictures + 1, sizeof pictures - 1, packed + 1, sizeof packed - 1);
    return failed | fuzz_write_file(folder, "compressed-before", packed, bytes + 1);
}
