#include "support/test.h"

#include "data/image.h"

#include <string.h>

/** What a JPEG may demand of its reader. */

typedef struct writer {
    unsigned char bytes[1 << 14];
    size_t count;
} writer;

static void put(writer *w, const void *bytes, size_t count)
{
    memcpy(w->bytes + w->count, bytes, count);
    w->count += count;
}

/** A marker, its length and what it says. */
static void put_segment(writer *w, unsigned char marker, const void *bytes, size_t count)
{
    const unsigned char head[] = {0xFF, marker, (unsigned char)((count + 2) >> 8), (unsigned char)(count + 2)};
    put(w, head, sizeof head);
    put(w, bytes, count);
}

/** A gray picture of 8 x 8 pixels in so many progressive scans: the first has the mean, each other one no more. */
static void write_jpeg(writer *w, int scans)
{
    unsigned char quantisers[65] = {0}, code[18] = {0, 1};
    memset(quantisers + 1, 1, 64);
    w->count = 0;
    put(w, "\xFF\xD8", 2);
    put_segment(w, 0xDB, quantisers, sizeof quantisers);
    put_segment(w, 0xC2, "\x08\0\x08\0\x08\1\1\x11\0", 9);
    put_segment(w, 0xC4, code, sizeof code); /* DC: one code of one bit, for the difference 0 */
    code[0] = 0x10;
    put_segment(w, 0xC4, code, sizeof code); /* AC: one code of one bit, for the end of a block */
    put_segment(w, 0xDA, "\1\1\0\0\0\0", 6);
    put(w, "\x7F", 1);
    for (int i = 1; i < scans; i++) {
        const unsigned char coefficient = (unsigned char)((i - 1) / 14 + 1), bit = (unsigned char)(13 - (i - 1) % 14);
        const unsigned char refined = (unsigned char)((bit + 1) << 4 | bit),
                            scan[] = {1, 1, 0, coefficient, coefficient, bit == 13 ? 13 : refined};
        put_segment(w, 0xDA, scan, sizeof scan);
        put(w, "\x7F", 1);
    }
    put(w, "\xFF\xD9", 2);
}

TEST(scans_beyond_reason_are_refused)
{
    writer w;
    cod_image image;
    static const int fine[] = {1, 11, 100};
    for (int i = 0; i < 3; i++) {
        write_jpeg(&w, fine[i]);
        assert_ok(cod_image_decode(w.bytes, w.count, "scans.jpg", &image));
        assert_int_equal(image.width, 8);
        assert_int_equal(((const uint8_t *)image.pixels)[0], 128);
        cod_image_clear(&image);
    }
    write_jpeg(&w, 101);
    assert_fails(COD_ERR_FORMAT, "scans.jpg: damaged JPEG: more than 100 scans",
                 cod_image_decode(w.bytes, w.count, "scans.jpg", &image));
    write_jpeg(&w, 880);
    assert_fails(COD_ERR_FORMAT, "more than 100 scans", cod_image_decode(w.bytes, w.count, "scans.jpg", &image));
}
