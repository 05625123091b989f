#include "support/folder.h"
#include "support/test.h"

#include "core/file_kind.h"
#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** What files are by their first bytes, and that nothing but a regular file is opened as one. */

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

#define BYTES(text) (text), sizeof(text) - 1

static const struct {
    const char *bytes;
    size_t count;
    cod_file_kind kind;
    const char *name;
} files[] = {
    {BYTES(""), COD_FILE_EMPTY, "an empty file"},
    {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:00"), COD_FILE_LFS, "a Git LFS pointer"},
    {BYTES("\xef\xbb\xbf\n <!DocType HTML>"), COD_FILE_HTML, "an HTML page"},
    {BYTES("<html lang=en>"), COD_FILE_HTML, "an HTML page"},
    {BYTES("PK\3\4..............\1\0\0\0\1\0\0\0\x10\0\0\0archive/data.pklX"), COD_FILE_TORCH,
     "a file of torch.save()"},
    {BYTES("PK\3\4..............\1\0\0\0\1\0\0\0\x05\0\0\0a.npyX"), COD_FILE_ZIP, "an archive of NumPy (npz)"},
    {BYTES("PK\3\4..............\1\0\0\0\1\0\0\0\x13\0\0\0[Content_Types].xmlX"), COD_FILE_OFFICE,
     "an Office document, such as xlsx"},
    {BYTES("PK\3\4..............\1\0\0\0\1\0\0\0\xff\xff\0\0a.txt"), COD_FILE_ZIP, "a ZIP archive"},
    {BYTES("PK\3\4"), COD_FILE_ZIP, "a ZIP archive"},
    {BYTES("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), COD_FILE_TORCH, "a file of torch.save()"},
    {BYTES("\x80\4\x95."), COD_FILE_OTHER, "a pickle of Python"},
    {BYTES("\x40\0\0\0\0\0\0\0{\"a\":"), COD_FILE_SAFETENSORS, "a safetensors file"},
    {BYTES("\x08\x09\x12\7pytorch"), COD_FILE_ONNX, "an ONNX model"},
    {BYTES("\x1f\x8b\x08\0"), COD_FILE_GZIP, "a gzip file"},
    {BYTES("\x89PNG\r\n\x1a\n"), COD_FILE_PICTURE, "a PNG picture"},
    {BYTES("BM\x7a\0\0\0\0\0\0\0"), COD_FILE_PICTURE, "a BMP picture"},
    {BYTES("\0\0\0\x20"
           "ftypisom"),
     COD_FILE_VIDEO, "an MP4 or QuickTime video"},
    {BYTES("\0\0\0\x20"
           "ftypavif"),
     COD_FILE_PICTURE, "an AVIF picture"},
    {BYTES("\x1a\x45\xdf\xa3"), COD_FILE_VIDEO, "a Matroska or WebM video"},
    {BYTES("\x7f"
           "ELF\2"),
     COD_FILE_OTHER, "a program"},
    {BYTES("name: t\ntrain: {steps: 3}\n"), COD_FILE_UNKNOWN, "a file of an unknown kind"},
    {BYTES("BMW,1.5,red\n"), COD_FILE_UNKNOWN, "a file of an unknown kind"},
    {BYTES("\0\0\x08\3\0\0\0\x14"), COD_FILE_UNKNOWN, "a file of an unknown kind"}, /* IDX */
};

static const char *write_file(const void *bytes, size_t count)
{
    const char *path = cod_test_at("file");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

TEST(files_are_recognised_by_their_bytes)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *name;
        unsigned char *copy = malloc(files[i].count + 1); /* so that a sanitizer sees who reads on */
        assert_non_null(copy);
        memcpy(copy, files[i].bytes, files[i].count);
        copy = realloc(copy, files[i].count > 0 ? files[i].count : 1);
        const cod_file_kind kind = cod_file_kind_of(copy, files[i].count, &name);
        if (kind != files[i].kind || strcmp(name, files[i].name) != 0)
            fail_msg("%zu: %s, not %s", i, name, files[i].name);
        for (size_t cut = 0; cut < files[i].count; cut++) {
            unsigned char *part = malloc(cut > 0 ? cut : 1);
            assert_non_null(part);
            memcpy(part, copy, cut);
            cod_file_kind_of(part, cut, &name);
            free(part);
        }
        assert_int_equal(cod_file_kind_at(write_file(copy, files[i].count)), kind);
        free(copy);
    }
    char tar[COD_FILE_KIND_BYTES] = "a.txt";
    const char *name;
    memcpy(tar + 257, "ustar", 5);
    assert_int_equal(cod_file_kind_of(tar, sizeof tar, &name), COD_FILE_ARCHIVE);
    assert_string_equal(name, "a tar archive");
}

TEST(messages_say_what_a_file_is)
{
    const char *path = write_file(BYTES("<html>"));
    assert_int_equal(cod_explain_file(COD_OK, path, 0, "a table"), COD_OK);
    assert_fails(COD_ERR_FORMAT, "is an HTML page, not a table: a download gave this page in the file's place",
                 cod_explain_file(cod_fail(COD_ERR_FORMAT, "a reason"), path, COD_FILE_EMPTY, "a table"));
    assert_fails(COD_ERR_FORMAT, "a reason",
                 cod_explain_file(cod_fail(COD_ERR_FORMAT, "a reason"), path, COD_FILE_HTML, "a page"));
    assert_fails(COD_ERR_IO, "a reason", cod_explain_file(cod_fail(COD_ERR_IO, "a reason"), path, 0, "a table"));
    assert_fails(COD_ERR_FORMAT, "not a table", cod_check_file_kind(path, 0, "a table"));
    assert_ok(cod_check_file_kind("/nowhere", 0, "a table"));
    assert_ok(cod_check_file_kind("/tmp", 0, "a table"));
}

TEST(only_regular_files_are_opened)
{
    const char *pipe = cod_test_at("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const char *const others[] = {pipe, "/dev/null", "/dev/zero", "/tmp"};
    static const int flags[] = {O_RDONLY, O_WRONLY | O_APPEND | O_CREAT};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < (i < 3 ? 2 : 1); k++) {
            errno = 0;
            assert_int_equal(cod_regular_open(others[i], flags[k]), -1); /* and nobody waits */
            assert_int_equal(errno, EINVAL);
        }
    assert_int_equal(cod_regular_open("/nowhere", O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    const int file = cod_regular_open(cod_test_at("new"), O_WRONLY | O_CREAT);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(cod_file_kind_at(pipe), COD_FILE_UNKNOWN);
}
