#include "data/idx_internal.h"

#include "core/file_kind.h"
#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    UNSIGNED_BYTES = 8, /**< third byte of the magic number */
    BUFFER_BYTES = 1 << 18,
    READ_BYTES = 1 << 30, /**< at once; zlib counts in int */
};
static const uint64_t max_bytes = (uint64_t)1 << 36; /**< a damaged header asks for more */

static cod_status open_file(const char *path, gzFile *out)
{
    const int file = cod_regular_open(path, O_RDONLY);
    if (file < 0)
        return cod_fail(COD_ERR_IO, "%s: %s", path, errno == EINVAL ? "is no regular file" : strerror(errno));
    *out = gzdopen(file, "rb");
    if (*out == NULL) {
        close(file);
        return cod_fail(COD_ERR_MEMORY, "%s: no memory to read it", path);
    }
    gzbuffer(*out, BUFFER_BYTES);
    return COD_OK;
}

/** Fails with the read error and its place in the file itself, compressed or not. */
static cod_status read_failure(gzFile file, const char *path, size_t wanted)
{
    int code;
    const char *reason = gzerror(file, &code);
    if (code == Z_ERRNO)
        return cod_fail(COD_ERR_IO, "%s: %s", path, strerror(errno));
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return cod_fail(COD_ERR_FORMAT, "%s: damaged gzip data near byte %lld of the file: %s", path,
                        (long long)gzoffset(file), reason);
    return cod_fail(COD_ERR_FORMAT, "%s: ends early: %lld bytes%s, where its header promises %zu", path,
                    (long long)gztell(file), gzdirect(file) ? "" : " unpacked", wanted);
}

/** Reads `bytes`, which end at byte `end` of the content. */
static cod_status read_bytes(gzFile file, const char *path, void *out, size_t bytes, size_t end)
{
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done;
        const int got = gzread(file, (char *)out + done, left < READ_BYTES ? (unsigned)left : READ_BYTES);
        if (got <= 0)
            return read_failure(file, path, end);
        done += (size_t)got;
    }
    return COD_OK;
}

static size_t header_bytes(int rank)
{
    return 4 + 4 * (size_t)rank;
}

static cod_status read_header(gzFile file, const char *path, int rank, cod_idx *out)
{
    uint8_t bytes[4 + 4 * COD_IDX_MAX_RANK];
    COD_TRY(read_bytes(file, path, bytes, header_bytes(rank), header_bytes(rank)));
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != UNSIGNED_BYTES || bytes[3] != rank)
        return cod_fail(COD_ERR_FORMAT,
                        "%s: is no IDX file of %d dimension%s: it begins with bytes %02x %02x %02x %02x, not 00 00 "
                        "%02x %02x",
                        path, rank, rank == 1 ? "" : "s", bytes[0], bytes[1], bytes[2], bytes[3], UNSIGNED_BYTES, rank);
    uint64_t count = 1;
    for (int i = 0; i < rank; i++) {
        const uint8_t *b = bytes + 4 + 4 * i;
        out->sides[i] = (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]);
        count *= (uint64_t)out->sides[i];
        if (out->sides[i] == 0 || count > max_bytes)
            return cod_fail(COD_ERR_FORMAT, "%s: byte %d: a side of %lld cannot be right", path, 4 + 4 * i,
                            (long long)out->sides[i]);
    }
    out->bytes = (size_t)count;
    return COD_OK;
}

/** Refuses a file that cannot hold its values, before anyone makes room for them. */
static cod_status check_length(const char *path, const cod_idx *header)
{
    enum { MOST_UNPACKED = 1032 /**< bytes that one byte of deflate can stand for */ };
    struct stat info;
    if (stat(path, &info) != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISREG(info.st_mode) && header->bytes / MOST_UNPACKED > (uint64_t)info.st_size)
        return cod_fail(COD_ERR_FORMAT, "%s: its header promises %zu values, which its %lld bytes cannot hold", path,
                        header->bytes, (long long)info.st_size);
    return COD_OK;
}

cod_status cod_idx_probe(const char *path, int rank, cod_idx *out)
{
    gzFile file;
    *out = (cod_idx){0};
    COD_TRY(open_file(path, &file));
    const cod_status status = read_header(file, path, rank, out);
    gzclose_r(file);
    return status == COD_OK ? check_length(path, out) : cod_explain_file(status, path, COD_FILE_GZIP, "an IDX file");
}

static cod_status read_values(gzFile file, const char *path, int rank, const cod_idx *header, uint8_t *values)
{
    cod_idx again = {0};
    uint8_t more;
    COD_TRY(read_header(file, path, rank, &again));
    if (memcmp(&again, header, sizeof again) != 0)
        return cod_fail(COD_ERR_FORMAT, "%s: has changed since it was found", path);
    COD_TRY(read_bytes(file, path, values, header->bytes, header_bytes(rank) + header->bytes));
    /* zlib checks the sum when the end is read. */
    const int got = gzread(file, &more, 1);
    if (got > 0)
        return cod_fail(COD_ERR_FORMAT, "%s: goes on after byte %zu, where its header lets it end", path,
                        header_bytes(rank) + header->bytes);
    int code;
    gzerror(file, &code);
    return got < 0 || (code != Z_OK && code != Z_STREAM_END)
               ? read_failure(file, path, header_bytes(rank) + header->bytes)
               : COD_OK;
}

cod_status cod_idx_read(const char *path, int rank, const cod_idx *header, uint8_t *values)
{
    gzFile file;
    COD_TRY(open_file(path, &file));
    const cod_status status = read_values(file, path, rank, header, values);
    gzclose_r(file);
    return status;
}
