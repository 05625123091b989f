/* Photographs in memory, of all formats. A PNG is decoded as it is, and again with its chunks' checksums put right. */
#include "fuzz.h"

#include "data/image_internal.h"

#include <zlib.h>

enum { SIGNATURE_BYTES = 8, FRAME_BYTES = 12 };

fuzz_kind fuzz_kinds[] = {{"PNG files", 0}, {"files of other formats", 0}, {NULL, 0}};

static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_right(uint8_t *data, size_t bytes)
{
    for (size_t at = SIGNATURE_BYTES; bytes - at >= FRAME_BYTES;) {
        const size_t length = big_endian(data + at);
        if (length > bytes - at - FRAME_BYTES)
            return;
        const uint32_t sum = (uint32_t)crc32(0, data + at + 4, (uInt)length + 4);
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += FRAME_BYTES + length;
    }
}

/** Whoever asks for the size alone gets that of the picture. */
static void check_size(const uint8_t *data, size_t bytes, const cod_image *image)
{
    const cod_image_decoder decode = data[0] == 'R'                     ? cod_webp_decode
                                     : data[0] == 'B'                   ? cod_bmp_decode
                                     : data[0] == 'I' || data[0] == 'M' ? cod_tiff_decode
                                     : data[0] == 0xff                  ? cod_jpeg_decode
                                                                        : cod_png_decode;
    cod_image header = {0};
    FUZZ_DEMAND(decode(data, bytes, true, &header) == COD_OK && header.pixels == NULL);
    FUZZ_DEMAND(header.width == image->width && header.height == image->height);
    cod_image_clear(&header);
}

static void decode(const uint8_t *data, size_t bytes, bool png)
{
    cod_image image;
    if (fuzz_taken(cod_image_decode(data, bytes, "input", &image))) {
        fuzz_kinds[!png].taken++;
        check_size(data, bytes, &image);
        FUZZ_DEMAND(image.width > 0 && image.height > 0 && (image.channels == 3 || image.channels == 4));
        FUZZ_DEMAND(fuzz_taken(cod_image_to_rgb8(&image)) && image.channels == 3 && image.bits == 8);
    }
    cod_image_clear(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    const bool png = bytes >= SIGNATURE_BYTES && memcmp(input, signature, SIGNATURE_BYTES) == 0;
    decode(input, bytes, png);
    if (!png)
        return 0;
    uint8_t *data = malloc(bytes);
    FUZZ_DEMAND(data != NULL);
    memcpy(data, input, bytes);
    put_right(data, bytes);
    if (memcmp(data, input, bytes) != 0)
        decode(data, bytes, png);
    free(data);
    return 0;
}

int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
