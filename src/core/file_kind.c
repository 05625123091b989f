#include "core/file_kind.h"

#include "core/regular_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct signature {
    const char *magic;
    size_t length, offset;
    cod_file_kind kind;
    const char *name;
} signature;

#define MAGIC(text, offset) (text), sizeof(text) - 1, (offset)

/** The first that fits counts. */
static const signature signatures[] = {
    {MAGIC("version https://git-lfs.github.com/", 0), COD_FILE_LFS, "a Git LFS pointer"},
    {MAGIC("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 0), COD_FILE_TORCH, "a file of torch.save()"},
    {MAGIC("\x1f\x8b", 0), COD_FILE_GZIP, "a gzip file"},
    {MAGIC("BZh", 0), COD_FILE_ARCHIVE, "a bzip2 file"},
    {MAGIC("\xfd\x37zXZ\0", 0), COD_FILE_ARCHIVE, "an xz file"},
    {MAGIC("\x28\xb5\x2f\xfd", 0), COD_FILE_ARCHIVE, "a zstd file"},
    {MAGIC("7z\xbc\xaf\x27\x1c", 0), COD_FILE_ARCHIVE, "a 7-Zip archive"},
    {MAGIC("Rar!\x1a\x07", 0), COD_FILE_ARCHIVE, "a RAR archive"},
    {MAGIC("ustar", 257), COD_FILE_ARCHIVE, "a tar archive"},
    {MAGIC("\x89PNG\r\n\x1a\n", 0), COD_FILE_PICTURE, "a PNG picture"},
    {MAGIC("\xff\xd8\xff", 0), COD_FILE_PICTURE, "a JPEG picture"},
    {MAGIC("WEBP", 8), COD_FILE_PICTURE, "a WebP picture"},
    {MAGIC("II*\0", 0), COD_FILE_PICTURE, "a TIFF picture"},
    {MAGIC("MM\0*", 0), COD_FILE_PICTURE, "a TIFF picture"},
    {MAGIC("II+\0", 0), COD_FILE_PICTURE, "a TIFF picture"},
    {MAGIC("MM\0+", 0), COD_FILE_PICTURE, "a TIFF picture"},
    {MAGIC("GIF8", 0), COD_FILE_PICTURE, "a GIF picture"},
    {MAGIC("ftypheic", 4), COD_FILE_PICTURE, "a HEIF picture"},
    {MAGIC("ftypmif1", 4), COD_FILE_PICTURE, "a HEIF picture"},
    {MAGIC("ftypavif", 4), COD_FILE_PICTURE, "an AVIF picture"},
    {MAGIC("ftyp", 4), COD_FILE_VIDEO, "an MP4 or QuickTime video"},
    {MAGIC("\x1a\x45\xdf\xa3", 0), COD_FILE_VIDEO, "a Matroska or WebM video"},
    {MAGIC("AVI ", 8), COD_FILE_VIDEO, "an AVI video"},
    {MAGIC("FLV\1", 0), COD_FILE_VIDEO, "a Flash video"},
    {MAGIC("\0\0\1\xba", 0), COD_FILE_VIDEO, "an MPEG video"},
    {MAGIC("\x89HDF\r\n\x1a\n", 0), COD_FILE_MODEL, "an HDF5 file, as Keras writes it"},
    {MAGIC("TFL3", 4), COD_FILE_MODEL, "a TensorFlow Lite model"},
    {MAGIC("GGUF", 0), COD_FILE_MODEL, "a GGUF model"},
    {MAGIC("\x93NUMPY", 0), COD_FILE_OTHER, "an array of NumPy"},
    {MAGIC("MATLAB 5.0", 0), COD_FILE_OTHER, "a MATLAB file"},
    {MAGIC("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0), COD_FILE_OFFICE, "an Office document, such as xls"},
    {MAGIC("SQLite format 3\0", 0), COD_FILE_OFFICE, "an SQLite database"},
    {MAGIC("PAR1", 0), COD_FILE_OFFICE, "a Parquet file"},
    {MAGIC("%PDF-", 0), COD_FILE_OTHER, "a PDF document"},
    {MAGIC("\x7f\x45LF", 0), COD_FILE_OTHER, "a program"},
    {MAGIC("<?xml", 0), COD_FILE_OTHER, "an XML file"},
};

static bool begins(const unsigned char *bytes, size_t count, const char *text)
{
    const size_t length = strlen(text);
    return count >= length && strncasecmp((const char *)bytes, text, length) == 0;
}

/** Web pages begin with white space, a byte order mark or comments at times. */
static bool is_html(const unsigned char *bytes, size_t count)
{
    size_t at = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < count && isspace(bytes[at]))
        at++;
    return begins(bytes + at, count - at, "<!doctype html") || begins(bytes + at, count - at, "<html") ||
           begins(bytes + at, count - at, "<head");
}

/** A length of 8 bytes, below 4 GiB, and the JSON object that is so long. */
static bool is_safetensors(const unsigned char *bytes, size_t count)
{
    return count >= 10 && memcmp(bytes + 4, "\0\0\0\0", 4) == 0 && bytes[8] == '{' &&
           (bytes[9] == '"' || bytes[9] == '}' || isspace(bytes[9]));
}

/** A protobuf that begins with a small ir_version and goes on with one of the fields that follow it. */
static bool is_onnx(const unsigned char *bytes, size_t count)
{
    return count >= 3 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 32 && bytes[2] != 0 &&
           strchr("\x12\x1a\x22\x32\x3a\x42", bytes[2]) != NULL;
}

static bool is_bmp(const unsigned char *bytes, size_t count)
{
    return count >= 10 && memcmp(bytes, "BM", 2) == 0 && memcmp(bytes + 6, "\0\0\0\0", 4) == 0;
}

/** Of protocol 2 to 5, without the mark of torch.save(). */
static bool is_pickle(const unsigned char *bytes, size_t count)
{
    return count >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

/** What has no signature at a fixed place; the first that fits counts. */
static const struct {
    bool (*fits)(const unsigned char *bytes, size_t count);
    cod_file_kind kind;
    const char *name;
} forms[] = {{is_html, COD_FILE_HTML, "an HTML page"},
             {is_safetensors, COD_FILE_SAFETENSORS, "a safetensors file"},
             {is_onnx, COD_FILE_ONNX, "an ONNX model"},
             {is_bmp, COD_FILE_PICTURE, "a BMP picture"},
             {is_pickle, COD_FILE_OTHER, "a pickle of Python"}};

/** Says by the first entry's name whose archive it is. */
static cod_file_kind zip_kind(const unsigned char *bytes, size_t count, const char **name)
{
    static const struct {
        const char *end;
        cod_file_kind kind;
        const char *name;
    } archives[] = {{"/data.pkl", COD_FILE_TORCH, "a file of torch.save()"},
                    {".npy", COD_FILE_ZIP, "an archive of NumPy (npz)"},
                    {"[Content_Types].xml", COD_FILE_OFFICE, "an Office document, such as xlsx"},
                    {"mimetype", COD_FILE_OFFICE, "an OpenDocument file, such as ods"}};
    enum { HEADER = 30 };
    const size_t length = count >= HEADER ? bytes[26] | (size_t)bytes[27] << 8 : 0, end = HEADER + length;
    for (size_t i = 0; end <= count && i < sizeof archives / sizeof archives[0]; i++) {
        const size_t suffix = strlen(archives[i].end);
        if (length >= suffix && memcmp(bytes + end - suffix, archives[i].end, suffix) == 0) {
            *name = archives[i].name;
            return archives[i].kind;
        }
    }
    *name = "a ZIP archive";
    return COD_FILE_ZIP;
}

cod_file_kind cod_file_kind_of(const void *data, size_t count, const char **name)
{
    const unsigned char *bytes = data;
    *name = "an empty file";
    if (count == 0)
        return COD_FILE_EMPTY;
    count = count < COD_FILE_KIND_BYTES ? count : COD_FILE_KIND_BYTES;
    if (count >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0))
        return zip_kind(bytes, count, name);
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const signature *s = &signatures[i];
        if (count >= s->offset + s->length && memcmp(bytes + s->offset, s->magic, s->length) == 0) {
            *name = s->name;
            return s->kind;
        }
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (forms[i].fits(bytes, count)) {
            *name = forms[i].name;
            return forms[i].kind;
        }
    *name = "a file of an unknown kind";
    return COD_FILE_UNKNOWN;
}

/** @return bytes read; -1 where it is no regular file or cannot be read */
static ssize_t read_first(const char *path, unsigned char bytes[COD_FILE_KIND_BYTES])
{
    const int file = cod_regular_open(path, O_RDONLY);
    if (file < 0)
        return -1;
    ssize_t got;
    do
        got = read(file, bytes, COD_FILE_KIND_BYTES);
    while (got < 0 && errno == EINTR);
    close(file);
    return got;
}

static cod_file_kind kind_at(const char *path, const char **name)
{
    unsigned char bytes[COD_FILE_KIND_BYTES];
    const ssize_t got = read_first(path, bytes);
    return got < 0 ? COD_FILE_UNKNOWN : cod_file_kind_of(bytes, (size_t)got, name);
}

cod_file_kind cod_file_kind_at(const char *path)
{
    const char *name;
    return kind_at(path, &name);
}

const char *cod_file_kind_advice(cod_file_kind kind)
{
    switch (kind) {
    case COD_FILE_EMPTY:
        return "copy or download it again";
    case COD_FILE_LFS:
        return "fetch the file itself, by `git lfs pull` where it was cloned";
    case COD_FILE_HTML:
        return "a download gave this page in the file's place: download the file itself";
    case COD_FILE_TORCH:
        return "`codistill import FILE -o OUT.safetensors` makes a model of it";
    case COD_FILE_ONNX:
        return "models are exported to ONNX, not read from it: give the file that it was made from";
    case COD_FILE_MODEL:
        return "convert it with the program that wrote it: safetensors and files of torch.save() are read";
    case COD_FILE_ZIP:
    case COD_FILE_GZIP:
    case COD_FILE_ARCHIVE:
        return "unpack it, and give what it holds";
    case COD_FILE_OFFICE:
        return "export what it holds as plain text, a table as CSV";
    case COD_FILE_UNKNOWN:
    case COD_FILE_SAFETENSORS:
    case COD_FILE_PICTURE:
    case COD_FILE_VIDEO:
    case COD_FILE_OTHER:
        break;
    }
    return "";
}

cod_status cod_check_file_kind(const char *path, unsigned wanted, const char *what)
{
    const char *name = "";
    const cod_file_kind kind = kind_at(path, &name);
    if (kind == COD_FILE_UNKNOWN || (kind & wanted) != 0)
        return COD_OK;
    const char *advice = cod_file_kind_advice(kind);
    return cod_fail(COD_ERR_FORMAT, "'%s' is %s, not %s%s%s", path, name, what, *advice != '\0' ? ": " : "", advice);
}

cod_status cod_explain_file(cod_status status, const char *path, unsigned wanted, const char *what)
{
    if (status == COD_ERR_FORMAT || status == COD_ERR_UNSUPPORTED || status == COD_ERR_ARGUMENT)
        (void)!cod_check_file_kind(path, wanted, what); /* its message takes the place of the one that there is */
    return status;
}
