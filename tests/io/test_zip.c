#include "support/test.h"

#include "io/file.h"
#include "io/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN COD_TEST_DIR "/golden/zip/"

TEST(reads_what_python_wrote)
{
    cod_zip *zip;
    assert_ok(cod_zip_open(GOLDEN "stored.zip", &zip));
    assert_int_equal(cod_zip_count(zip), 3);
    assert_string_equal(cod_zip_at(zip, 0)->name, "a.txt");
    assert_string_equal(cod_zip_at(zip, 1)->name, "b/data.bin");
    const cod_zip_entry *data = cod_zip_find(zip, "b/data.bin"), *text = cod_zip_find(zip, "a.txt");
    assert_int_equal(data->bytes, 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(data->data[i], i);
    assert_int_equal(text->bytes, 5);
    assert_memory_equal(text->data, "hello", 5);
    assert_int_equal(cod_zip_find(zip, "empty")->bytes, 0);
    assert_null(cod_zip_find(zip, "b"));
    for (size_t i = 0; i < 3; i++)
        assert_ok(cod_zip_check(cod_zip_at(zip, i)));
    cod_zip_close(zip);
    assert_ok(cod_zip_open(GOLDEN "none.zip", &zip));
    assert_int_equal(cod_zip_count(zip), 0);
    assert_null(cod_zip_find(zip, "a.txt"));
    cod_zip_close(zip);
}

TEST(reads_fields_of_64_bits)
{
    cod_zip *zip;
    assert_ok(cod_zip_open(GOLDEN "large.zip", &zip));
    const cod_zip_entry *entry = cod_zip_find(zip, "archive/data.pkl");
    assert_non_null(entry);
    assert_int_equal(entry->bytes, 15);
    assert_memory_equal(entry->data, "sixty-four bits", 15);
    assert_ok(cod_zip_check(entry));
    cod_zip_close(zip);
}

TEST(what_cannot_be_read_is_refused)
{
    cod_zip *zip;
    char path[64];
    snprintf(path, sizeof path, "/tmp/cod_zip_%ld", (long)getpid());
    assert_fails(COD_ERR_UNSUPPORTED, "compressed.zip': 'a.txt' in it is compressed or encrypted",
                 cod_zip_open(GOLDEN "compressed.zip", &zip));
    assert_null(zip);
    assert_fails(COD_ERR_FORMAT, "twice.zip': damaged ZIP archive: two files are called 'a.txt'",
                 cod_zip_open(GOLDEN "twice.zip", &zip));
    assert_fails(COD_ERR_FORMAT, "no ZIP archive, or one that is cut off", cod_zip_open(GOLDEN "write.py", &zip));
    assert_fails(COD_ERR_IO, "No such file", cod_zip_open("/nowhere", &zip));
    assert_fails(COD_ERR_IO, "no regular file", cod_zip_open("/tmp", &zip));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(COD_ERR_IO, "no regular file", cod_zip_open(path, &zip)); /* and nobody waits for a writer */
    unlink(path);
}

/** Wherever an archive is cut off, or a byte of it is another, it is refused, or what is taken lies within it. */
TEST(damage_is_refused_or_harmless)
{
    static const char *const names[] = {GOLDEN "stored.zip", GOLDEN "large.zip"};
    for (int n = 0; n < 2; n++) {
        void *good;
        size_t bytes, refused = 0;
        cod_zip *zip;
        assert_ok(cod_file_read(names[n], 1 << 20, &good, &bytes));
        for (size_t cut = 0; cut < bytes; cut++) {
            unsigned char *copy = malloc(cut + 1); /* its own, so that the sanitizer sees a read beyond it */
            assert_non_null(copy);
            memcpy(copy, good, cut);
            assert_int_not_equal(cod_zip_open_memory(copy, cut, &zip), COD_OK);
            free(copy);
        }
        for (size_t i = 0; i < bytes * 8; i++) {
            unsigned char *copy = malloc(bytes);
            assert_non_null(copy);
            memcpy(copy, good, bytes);
            copy[i / 8] ^= (unsigned char)(1u << i % 8);
            bool sound = cod_zip_open_memory(copy, bytes, &zip) == COD_OK;
            for (size_t k = 0; zip != NULL && k < cod_zip_count(zip); k++) {
                const cod_zip_entry *entry = cod_zip_at(zip, k);
                assert_true(entry->data >= copy && entry->data + entry->bytes <= copy + bytes);
                sound = sound && cod_zip_check(entry) == COD_OK;
            }
            refused += !sound;
            cod_zip_close(zip);
            free(copy);
        }
        assert_true(refused > bytes * 8 / 3); /* dates, versions and names may change unnoticed */
        free(good);
    }
}
