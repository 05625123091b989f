/**
 * @file
 * What a file really is, by its first bytes: for messages where something else was wanted, whatever the file is called.
 */
#ifndef COD_CORE_FILE_KIND_H
#define COD_CORE_FILE_KIND_H

#include "core/status.h"

/** One bit each, so that several may be wanted. */
typedef enum cod_file_kind {
    COD_FILE_UNKNOWN = 0,
    COD_FILE_EMPTY = 1 << 0,
    COD_FILE_LFS = 1 << 1, /**< what git leaves in the place of a file that Git LFS keeps */
    COD_FILE_HTML = 1 << 2,
    COD_FILE_TORCH = 1 << 3, /**< of torch.save() */
    COD_FILE_SAFETENSORS = 1 << 4,
    COD_FILE_ONNX = 1 << 5,
    COD_FILE_MODEL = 1 << 6, /**< of another program */
    COD_FILE_ZIP = 1 << 7,
    COD_FILE_GZIP = 1 << 8,
    COD_FILE_ARCHIVE = 1 << 9, /**< packed or compressed otherwise */
    COD_FILE_PICTURE = 1 << 10,
    COD_FILE_VIDEO = 1 << 11,
    COD_FILE_OFFICE = 1 << 12, /**< a spreadsheet, a database or another document that may hold a table */
    COD_FILE_OTHER = 1 << 13
} cod_file_kind;

/** Bytes that are looked at. */
enum { COD_FILE_KIND_BYTES = 512 };

/**
 * Recognises a file by its first bytes; COD_FILE_KIND_BYTES are enough, more are not looked at.
 *
 * @param[out] name  "a PNG picture"; "a file of an unknown kind" where it is unknown
 */
cod_file_kind cod_file_kind_of(const void *bytes, size_t count, const char **name);

/** cod_file_kind_of() of a file; one that cannot be read, or is no regular file, is unknown. */
cod_file_kind cod_file_kind_at(const char *path);

/** What to do about such a file where another was wanted, in a few words; "" = that is plain. */
const char *cod_file_kind_advice(cod_file_kind kind);

/**
 * Refuses a file that is recognised as something else than is wanted: "'PATH' is an HTML page, not a video: …".
 *
 * @param wanted  kinds, joined by `|`
 * @param what    "a video"
 * @return COD_ERR_FORMAT; COD_OK where it is unknown, or cannot be read
 */
COD_MUST_CHECK cod_status cod_check_file_kind(const char *path, unsigned wanted, const char *what);

/**
 * For callers that could not read a file: the message of cod_check_file_kind(), if it has one, takes the place of this
 * thread's message about COD_ERR_FORMAT, COD_ERR_UNSUPPORTED or COD_ERR_ARGUMENT.
 *
 * @return `status`
 */
cod_status cod_explain_file(cod_status status, const char *path, unsigned wanted, const char *what);

#endif
