/*
 * TIFF files with the tags that an input chooses, whether they make sense together or not.
 *
 * An input is what enum layout says, and samples, which are taken over and over.
 */
#include "fuzz.h"

#include "data/image_internal.h"
#include "data/notes_internal.h"
#include "data/profile_internal.h"

#include <zlib.h>

enum { MOST_FILE = 1 << 16, MOST_SIDE = 24, MOST_PIECES = 64, MOST_ENTRIES = 24 };
enum { SHORT = 3, LONG = 4, RATIONAL = 5, UNDEFINED = 7 };
enum { TILED = 1, PLANAR = 2, MOTOROLA = 4, BIG = 8, WITH_DPI = 16, WITH_PROFILE = 32, WITHOUT_FORMAT = 64 };
enum { RGB = 2, PALETTE = 3, DEFLATE = 8, CHUNKY = 1, PLANES = 2 };

/** Places of an input's bytes. */
enum layout {
    WIDTH,
    HEIGHT,
    BITS,
    SAMPLES,
    PHOTOMETRIC,
    FORM,
    TILE_WIDTH,  /**< in 16 */
    TILE_HEIGHT, /**< or rows of a strip */
    COMPRESSION,
    EXTRAS, /**< how many of the samples are no colour, and what the first one is */
    FORMAT,
    ORIENTATION,
    PATCHED, /**< entries of the directory that are changed, at most 3 */
    PATCHES, /**< [3] an entry's number, its type, count or value, and the low and high byte that this becomes */
    SAMPLES_AT = PATCHES + 12
};

fuzz_kind fuzz_kinds[] = {{"strips", 0}, {"tiles", 0},         {"planes", 0},   {"tiles of planes", 0},
                          {"alpha", 0},  {"files changed", 0}, {"profiles", 0}, {NULL, 0}};

/** A file that is being written. */
typedef struct writer {
    uint8_t bytes[MOST_FILE];
    size_t count;
    bool little, big;
    struct entry {
        uint16_t tag, type;
        uint32_t count;
        uint64_t value; /**< or where the values are */
    } entries[MOST_ENTRIES];
    int entry_count;
    size_t directory; /**< where the entries are */
} writer;

static void put(writer *w, size_t at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        w->bytes[at + (w->little ? i : bytes - 1 - i)] = (uint8_t)(value >> (8 * i));
}

/** @return where the bytes are; 0 = there is no room */
static uint32_t append(writer *w, const void *data, size_t bytes)
{
    const size_t at = w->count;
    if (bytes > sizeof w->bytes - 4096 || at > sizeof w->bytes - 4096 - bytes)
        return 0;
    if (data != NULL)
        memcpy(w->bytes + at, data, bytes);
    w->count += bytes + (bytes & 1);
    return (uint32_t)at;
}

static void add(writer *w, uint16_t tag, uint16_t type, uint32_t count, uint64_t value)
{
    FUZZ_DEMAND(w->entry_count < MOST_ENTRIES);
    w->entries[w->entry_count++] = (struct entry){tag, type, count, value};
}

/** Adds numbers of 2 or 4 bytes. */
static void add_numbers(writer *w, uint16_t tag, uint16_t type, const uint32_t *numbers, uint32_t count)
{
    const size_t each = type == SHORT ? 2 : 4, inside = w->big ? 8 : 4;
    if (count == 1) {
        add(w, tag, type, 1, numbers[0]);
        return;
    }
    /* What fits into the entry is there, from its first byte on. */
    const size_t at = each * count <= inside ? sizeof w->bytes - 16 : append(w, NULL, each * count);
    for (size_t i = 0; i < count && at != 0; i++)
        put(w, at + each * i, numbers[i], each);
    uint64_t packed = 0;
    for (size_t i = 0; i < inside && each * count <= inside; i++)
        packed |= (uint64_t)w->bytes[at + (w->little ? i : inside - 1 - i)] << (8 * i);
    add(w, tag, type, count, each * count <= inside ? packed : at);
}

/** One of a list, whatever the byte. */
#define ONE_OF(list, byte) ((list)[(byte) % (sizeof(list) / sizeof(list)[0])])

static uint16_t bits_of(const uint8_t *in)
{
    static const uint16_t bits[] = {8, 16, 8, 1, 2, 4, 12, 32, 64, 7};
    return ONE_OF(bits, in[BITS]);
}

static uint16_t samples_of(const uint8_t *in)
{
    return (uint16_t)(1 + in[SAMPLES] % 6);
}

static uint16_t photometric_of(const uint8_t *in)
{
    static const uint16_t kinds[] = {RGB, 1, 0, PALETTE, 5, 6, 8, 32845, 4};
    return ONE_OF(kinds, in[PHOTOMETRIC]);
}

static uint16_t compression_of(const uint8_t *in)
{
    static const uint16_t kinds[] = {1, DEFLATE, 1, 5, 32773, 7, 32909, 34676, 4};
    return ONE_OF(kinds, in[COMPRESSION]);
}

/** Writes strips or tiles. @return whether there is room */
static bool add_pieces(writer *w, const uint8_t *in, size_t count, const uint32_t size[2])
{
    static uint8_t piece[MOST_FILE], packed[2 * MOST_FILE];
    uint32_t places[MOST_PIECES], bytes[MOST_PIECES];
    const bool tiled = (in[FORM] & TILED) != 0, planar = (in[FORM] & PLANAR) != 0;
    const uint32_t rows = 1u + in[TILE_HEIGHT] % MOST_SIDE,
                   tile[2] = {tiled ? 16u * (1u + in[TILE_WIDTH] % 3) : size[0],
                              tiled ? 16u * (1u + in[TILE_HEIGHT] % 3) : rows};
    const uint32_t pieces =
        (size[0] + tile[0] - 1) / tile[0] * ((size[1] + tile[1] - 1) / tile[1]) * (planar ? samples_of(in) : 1u);
    const size_t row = ((size_t)tile[0] * (planar ? 1u : samples_of(in)) * bits_of(in) + 7) / 8, all = row * tile[1];
    if (pieces > MOST_PIECES || all > sizeof piece)
        return false;
    for (uint32_t p = 0; p < pieces; p++) {
        for (size_t i = 0; i < all; i++)
            piece[i] = count > 0 ? in[SAMPLES_AT + (i + p) % count] : (uint8_t)(i * 7);
        uLongf length = sizeof packed;
        const bool deflated = compression_of(in) == DEFLATE;
        FUZZ_DEMAND(!deflated || compress2(packed, &length, piece, (uLong)all, 1) == Z_OK);
        places[p] = append(w, deflated ? packed : piece, deflated ? length : all);
        bytes[p] = (uint32_t)(deflated ? length : all);
        if (places[p] == 0)
            return false;
    }
    if (tiled) {
        add(w, 322, LONG, 1, tile[0]);
        add(w, 323, LONG, 1, tile[1]);
    } else {
        add(w, 278, LONG, 1, rows);
    }
    add_numbers(w, tiled ? 324 : 273, LONG, places, pieces);
    add_numbers(w, tiled ? 325 : 279, LONG, bytes, pieces);
    return true;
}

/** What libtiff asks of a palette: three ramps. */
static void add_palette(writer *w, unsigned bits)
{
    const uint32_t count = 3u << (bits <= 8 ? bits : 8), at = append(w, NULL, 2 * (size_t)count);
    for (uint32_t i = 0; i < count && at != 0; i++)
        put(w, at + 2 * (size_t)i, i * 257 & 0xffff, 2);
    add(w, 320, SHORT, count, at);
}

static void add_profile(writer *w)
{
    static const double xy[] = {0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06};
    static void *profile;
    static size_t bytes;
    if (profile == NULL)
        FUZZ_DEMAND(cod_profile_from_gamma(1.8, xy, &profile, &bytes) == COD_OK);
    add(w, 34675, UNDEFINED, (uint32_t)bytes, append(w, profile, bytes));
}

/** @param samples  bytes behind the tags */
static bool add_tags(writer *w, const uint8_t *in, size_t samples)
{
    static const uint16_t extras[] = {2, 1, 0};
    const uint32_t size[2] = {1u + in[WIDTH] % MOST_SIDE, 1u + in[HEIGHT] % MOST_SIDE};
    uint32_t bits[8], formats[8], extra[4] = {ONE_OF(extras, in[EXTRAS] >> 2)};
    for (int i = 0; i < 8; i++) {
        bits[i] = bits_of(in);
        formats[i] = in[FORMAT] % 8;
    }
    add(w, 256, LONG, 1, size[0]);
    add(w, 257, LONG, 1, size[1]);
    add_numbers(w, 258, SHORT, bits, samples_of(in));
    add(w, 259, SHORT, 1, compression_of(in));
    add(w, 262, SHORT, 1, photometric_of(in));
    add(w, 274, SHORT, 1, in[ORIENTATION] % 10);
    add(w, 277, SHORT, 1, samples_of(in));
    add(w, 284, SHORT, 1, (in[FORM] & PLANAR) != 0 ? PLANES : CHUNKY);
    if (in[EXTRAS] % 4 > 0)
        add_numbers(w, 338, SHORT, extra, in[EXTRAS] % 4);
    if ((in[FORM] & WITHOUT_FORMAT) == 0)
        add_numbers(w, 339, SHORT, formats, samples_of(in));
    if (photometric_of(in) == PALETTE)
        add_palette(w, bits_of(in));
    if ((in[FORM] & WITH_DPI) != 0) {
        const uint32_t at = append(w, NULL, 16);
        for (size_t i = 0; i < 4 && at != 0; i++)
            put(w, at + 4 * i, i % 2 == 0 ? 300 : 1 + i / 2, 4);
        add(w, 282, RATIONAL, 1, at);
        add(w, 283, RATIONAL, 1, at + 8);
    }
    if ((in[FORM] & WITH_PROFILE) != 0)
        add_profile(w);
    return add_pieces(w, in, samples, size);
}

static int by_tag(const void *a, const void *b)
{
    return ((const struct entry *)a)->tag - ((const struct entry *)b)->tag;
}

/** Writes the directory behind all else, and at the file's beginning where it is. */
static void end_file(writer *w)
{
    const size_t number = w->big ? 8 : 2, word = w->big ? 8 : 4, each = w->big ? 20 : 12;
    qsort(w->entries, (size_t)w->entry_count, sizeof w->entries[0], by_tag);
    put(w, w->big ? 8 : 4, w->count, word);
    put(w, w->count, (uint64_t)w->entry_count, number);
    w->directory = w->count + number;
    for (int i = 0; i < w->entry_count; i++) {
        const struct entry *e = &w->entries[i];
        const size_t at = w->directory + each * (size_t)i;
        put(w, at, e->tag, 2);
        put(w, at + 2, e->type, 2);
        put(w, at + 4, e->count, word);
        put(w, at + 4 + word, e->value, e->count > 1 ? word : e->type == SHORT ? 2 : e->type == LONG ? 4 : word);
    }
    w->count = w->directory + each * (size_t)w->entry_count + word;
}

/** @return whether there was room */
static bool write_file(writer *w, const uint8_t *in, size_t count)
{
    static const char heads[2][2] = {"MM", "II"};
    memset(w, 0, sizeof *w);
    w->little = (in[FORM] & MOTOROLA) == 0;
    w->big = (in[FORM] & BIG) != 0;
    memcpy(w->bytes, heads[w->little], 2);
    put(w, 2, w->big ? 43 : 42, 2);
    if (w->big)
        put(w, 4, 8, 2);
    w->count = w->big ? 16 : 8;
    if (!add_tags(w, in, count - SAMPLES_AT))
        return false;
    end_file(w);
    return true;
}

/** Changes numbers of the directory's entries: the tag, the type, how many, or the value. */
static bool patch(writer *w, const uint8_t *in)
{
    static const size_t places[2][4] = {{0, 2, 4, 8}, {0, 2, 4, 12}};
    const int count = in[PATCHED] % 4;
    for (int i = 0; i < count; i++) {
        const uint8_t *what = in + PATCHES + 4 * i;
        put(w, w->directory + (w->big ? 20u : 12u) * (what[0] % (unsigned)w->entry_count) + places[w->big][what[1] % 4],
            what[2] | (uint64_t)what[3] << 8, 2);
    }
    return count > 0;
}

/** @param samples  bytes behind the tags */
static void check(const uint8_t *in, size_t samples, const cod_image *image, bool patched)
{
    const int64_t width = 1 + in[WIDTH] % MOST_SIDE, height = 1 + in[HEIGHT] % MOST_SIDE;
    FUZZ_DEMAND(image->width > 0 && image->height > 0 && (image->channels == 3 || image->channels == 4));
    FUZZ_DEMAND(image->bits == 8 || image->bits == 16);
    if (patched) {
        fuzz_kinds[5].taken++;
        return;
    }
    const bool turned = in[ORIENTATION] % 10 >= 5 && in[ORIENTATION] % 10 <= 8;
    FUZZ_DEMAND(image->width == (turned ? height : width) && image->height == (turned ? width : height));
    const int colours = photometric_of(in) == RGB ? 3 : 1;
    FUZZ_DEMAND(photometric_of(in) > RGB || samples_of(in) >= colours + in[EXTRAS] % 4);
    const bool plain = photometric_of(in) == RGB && bits_of(in) == 8 && in[ORIENTATION] % 10 <= 1 &&
                       image->channels == 3 && (compression_of(in) == DEFLATE || compression_of(in) == 1);
    FUZZ_DEMAND(!plain || samples == 0 || *(const uint8_t *)image->pixels == in[SAMPLES_AT]);
    fuzz_kinds[in[FORM] & (TILED | PLANAR)].taken++;
    fuzz_kinds[4].taken += image->channels == 4;
    fuzz_kinds[6].taken += image->notes != NULL && image->notes->profile != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static writer w;
    cod_image image = {0}, header = {0};
    if (bytes < SAMPLES_AT || !write_file(&w, input, bytes))
        return 0;
    const bool patched = patch(&w, input);
    uint8_t *file = malloc(w.count); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(file != NULL);
    memcpy(file, w.bytes, w.count);
    const int sized = fuzz_taken(cod_tiff_decode(file, w.count, true, &header));
    if (fuzz_taken(cod_tiff_decode(file, w.count, false, &image))) {
        FUZZ_DEMAND(sized && header.width == image.width && header.height == image.height);
        check(input, bytes - SAMPLES_AT, &image, patched);
    }
    cod_image_clear(&image);
    cod_image_clear(&header);
    free(file);
    return 0;
}

/** Every layout of RGB, gray and CMYK of 8 and 16 bits, and some of others. */
int fuzz_write(const char *folder)
{
    int failed = 0;
    for (int i = 0; i < 48; i++) {
        uint8_t in[SAMPLES_AT + 8] = {[WIDTH] = (uint8_t)(16 + i % 5),
                                      [HEIGHT] = (uint8_t)(13 + i % 7),
                                      [BITS] = (uint8_t)(i < 40 ? i % 2 : i % 10),
                                      [SAMPLES] = (uint8_t)(i % 3 == 0   ? 2
                                                            : i % 3 == 1 ? 0
                                                                         : 3),
                                      [PHOTOMETRIC] = (uint8_t)(i % 3 == 0   ? 0
                                                                : i % 3 == 1 ? 1 + i / 3 % 2
                                                                             : i / 4),
                                      [FORM] = (uint8_t)(i / 4 | (i % 2) << 4 | (i % 4 == 1) << 5),
                                      [TILE_WIDTH] = (uint8_t)i,
                                      [TILE_HEIGHT] = (uint8_t)(i / 2),
                                      [COMPRESSION] = (uint8_t)(i % 9),
                                      [EXTRAS] = (uint8_t)(i % 3 == 2 ? 1 | (i / 5 % 3) << 2 : 0),
                                      [FORMAT] = 1,
                                      [ORIENTATION] = (uint8_t)(i % 9),
                                      [PATCHED] = (uint8_t)(i >= 44),
                                      [PATCHES] = (uint8_t)i,
                                      [PATCHES + 1] = 2,
                                      [PATCHES + 2] = (uint8_t)i};
        char name[32];
        for (size_t k = 0; k < 8; k++)
            in[SAMPLES_AT + k] = (uint8_t)(31 * k * (size_t)(i + 1));
        snprintf(name, sizeof name, "layout-%02d", i);
        failed |= fuzz_write_file(folder, name, in, sizeof in);
    }
    /* Three samples a pixel, of which two are no colours. */
    static const uint8_t short_of_colours[SAMPLES_AT] = {[SAMPLES] = 2, [EXTRAS] = 2, [FORMAT] = 1};
    return failed | fuzz_write_file(folder, "short-of-colours", short_of_colours, sizeof short_of_colours);
}
