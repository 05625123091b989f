/*
 * Reads Windows bitmaps without compression (BITMAPCOREHEADER to BITMAPV5HEADER, [MS-WMF] 2.2.2), as scanners and old
 * programs write them.
 */
#include "data/image_internal.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40, MASKS_END = 56 /**< of headers that hold four masks */ };
enum { RGB = 0, MASKS = 3, ALPHA_MASKS = 6 }; /* kinds of compression */

typedef struct bitmap {
    int64_t width, height;
    bool upside_down; /**< the last row comes first, as usual */
    unsigned bits, compression;
    uint32_t masks[4];      /**< red, green, blue, alpha of 16 and 32 bits; 0 = none */
    const uint8_t *palette; /**< [colours] entries of blue, green, red */
    uint32_t colours;
    unsigned entry; /**< bytes of a palette's entry */
    size_t pixels;  /**< where they begin */
} bitmap;

static uint32_t number(const uint8_t *at, int bytes)
{
    return cod_image_number(at, bytes, true);
}

static cod_status damaged(const char *what)
{
    return cod_fail(COD_ERR_FORMAT, "damaged BMP: %s", what);
}

static void default_masks(bitmap *b)
{
    const uint32_t five[] = {0x7C00, 0x03E0, 0x001F}, eight[] = {0xFF0000, 0x00FF00, 0x0000FF};
    for (int c = 0; c < 3; c++)
        b->masks[c] = b->bits == 16 ? five[c] : eight[c];
}

/** Masks lie behind a short header, or in a long one at the same place. */
static cod_status read_masks(const uint8_t *bytes, size_t count, uint32_t header, bitmap *b)
{
    const int masks = b->compression == ALPHA_MASKS || header >= MASKS_END ? 4 : 3;
    if (count < FILE_HEADER + INFO_HEADER + 4 * (size_t)masks)
        return damaged("it ends within its header");
    for (int c = 0; c < masks; c++)
        b->masks[c] = number(bytes + FILE_HEADER + INFO_HEADER + 4 * c, 4);
    for (int c = 0; c < 4; c++) {
        uint32_t shifted = b->masks[c];
        while (shifted != 0 && (shifted & 1) == 0)
            shifted >>= 1;
        if ((shifted & (shifted + 1)) != 0 || (c < 3 && shifted == 0))
            return damaged("a colour's bits are not together");
    }
    return COD_OK;
}

static cod_status read_header(const uint8_t *bytes, size_t count, bitmap *b)
{
    if (count < FILE_HEADER + INFO_HEADER)
        return damaged("it ends within its header");
    const uint32_t header = number(bytes + FILE_HEADER, 4);
    if (header != CORE_HEADER && (header < INFO_HEADER || header > count - FILE_HEADER))
        return damaged("its header has an unknown length");
    const bool core = header == CORE_HEADER;
    const int64_t height = core ? (int64_t)number(bytes + 20, 2) : (int32_t)number(bytes + 22, 4);
    *b = (bitmap){.width = core ? (int64_t)number(bytes + 18, 2) : (int32_t)number(bytes + 18, 4),
                  .height = height < 0 ? -height : height,
                  .upside_down = height > 0,
                  .bits = number(bytes + (core ? 24 : 28), 2),
                  .compression = core ? RGB : number(bytes + 30, 4),
                  .colours = core ? 0 : number(bytes + 46, 4),
                  .entry = core ? 3 : 4,
                  .pixels = number(bytes + 10, 4)};
    COD_TRY(cod_image_check_size(b->width, b->height));
    const bool masked = b->compression == MASKS || b->compression == ALPHA_MASKS, wide = b->bits == 16 || b->bits == 32;
    const bool indexed = b->bits == 1 || b->bits == 4 || b->bits == 8;
    if ((b->compression != RGB && !(masked && wide)) || (!indexed && b->bits != 24 && !wide))
        return cod_fail(COD_ERR_UNSUPPORTED, "a BMP of %u bits with compression %u is not supported; convert it to PNG",
                        b->bits, b->compression);
    default_masks(b);
    if (masked)
        COD_TRY(read_masks(bytes, count, header, b));
    if (!indexed)
        return COD_OK;
    if (b->colours == 0 || b->colours > 1u << b->bits)
        b->colours = 1u << b->bits;
    if (count - FILE_HEADER - header < (size_t)b->colours * b->entry)
        return damaged("it ends within its palette");
    b->palette = bytes + FILE_HEADER + header;
    return COD_OK;
}

/** The bits that a mask selects, as 0 … 255. */
static uint8_t select_bits(uint32_t value, uint32_t mask)
{
    if (mask == 0)
        return 255;
    const uint32_t lowest = mask & (~mask + 1);
    return (uint8_t)(((uint64_t)((value & mask) / lowest) * 255 + mask / lowest / 2) / (mask / lowest));
}

static void decode_row(const bitmap *b, const uint8_t *row, int channels, uint8_t *out)
{
    for (int64_t x = 0; x < b->width; x++, out += channels) {
        if (b->palette != NULL) {
            const unsigned in_byte = 8 / b->bits, shift = b->bits * (in_byte - 1 - (unsigned)x % in_byte);
            const uint32_t index = (uint32_t)row[x / in_byte] >> shift & ((1u << b->bits) - 1);
            const uint8_t *colour = index < b->colours ? b->palette + (size_t)index * b->entry : NULL;
            for (int c = 0; c < 3; c++)
                out[c] = colour != NULL ? colour[2 - c] : 0;
            continue;
        }
        const uint32_t value = number(row + x * (b->bits / 8), (int)(b->bits / 8));
        for (int c = 0; c < channels; c++)
            out[c] = select_bits(value, b->masks[c]);
    }
}

cod_status cod_bmp_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    bitmap b = {0};
    COD_TRY(read_header(bytes, count, &b));
    if (header_only) {
        image->width = b.width;
        image->height = b.height;
        return COD_OK;
    }
    const size_t stride = ((size_t)b.width * b.bits + 31) / 32 * 4;
    if (b.pixels > count || (count - b.pixels) / stride < (size_t)b.height)
        return damaged("the file ends too early");
    COD_TRY(cod_image_init(image, b.width, b.height, b.masks[3] != 0 ? 4 : 3, 8));
    uint8_t *out = image->pixels;
    for (int64_t y = 0; y < b.height; y++, out += b.width * image->channels)
        decode_row(&b, bytes + b.pixels + (size_t)(b.upside_down ? b.height - 1 - y : y) * stride, image->channels,
                   out);
    return COD_OK;
}
