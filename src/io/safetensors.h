/**
 * @file
 * The safetensors format (github.com/huggingface/safetensors): named tensors and a map of texts in one file.
 */
#ifndef COD_IO_SAFETENSORS_H
#define COD_IO_SAFETENSORS_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum cod_st_dtype {
    COD_ST_F64,
    COD_ST_I64,
    COD_ST_U64,
    COD_ST_F32,
    COD_ST_I32,
    COD_ST_U32,
    COD_ST_F16,
    COD_ST_BF16,
    COD_ST_I16,
    COD_ST_U16,
    COD_ST_I8,
    COD_ST_U8,
    COD_ST_BOOL,
    COD_ST_F8_E4M3,
    COD_ST_F8_E5M2,
} cod_st_dtype;

size_t cod_st_dtype_bytes(cod_st_dtype dtype);
/** As in a file's header: "F32". */
const char *cod_st_dtype_name(cod_st_dtype dtype);

enum { COD_ST_RANK_MAX = 8, COD_ST_HEADER_BYTES_MAX = 16 << 20 };

/** One tensor, row-major. */
typedef struct cod_st_tensor {
    const char *name;
    cod_st_dtype dtype;
    int rank; /**< 0 = a scalar */
    int64_t shape[COD_ST_RANK_MAX];
    const void *data; /**< may lie at any address when read from a file: see cod_st_to_f32() */
    size_t bytes;     /**< set by readers; writers compute it */
} cod_st_tensor;

typedef struct cod_st_text {
    const char *key, *value;
} cod_st_text;

/** Elements of a tensor: the product of its shape. */
size_t cod_st_count(const cod_st_tensor *tensor);

/** Converts F32, F64, F16 or BF16 to `out` [count] f32; other dtypes or another count are COD_ERR_FORMAT. */
COD_MUST_CHECK cod_status cod_st_to_f32(const cod_st_tensor *tensor, float *out, size_t count);

/** An open file, read into memory; every length, offset, overlap and dtype in it was checked. */
typedef struct cod_st_file cod_st_file;

/** @param[out] file  new; cod_st_close(). @return COD_ERR_IO or, for a damaged or foreign file, COD_ERR_FORMAT; both
 * name the path */
COD_MUST_CHECK cod_status cod_st_open(const char *path, cod_st_file **file);
/** The same from memory, which is borrowed until cod_st_close(). */
COD_MUST_CHECK cod_status cod_st_open_memory(const void *data, size_t bytes, cod_st_file **file);
/**
 * A file in memory alone, without texts, of tensors that lie elsewhere, in their order.
 *
 * @param tensors  [count]; names and data are borrowed until cod_st_close()
 * @return COD_ERR_FORMAT where two have one name
 */
COD_MUST_CHECK cod_status cod_st_gather(const cod_st_tensor *tensors, size_t count, cod_st_file **file);
/** Ends all tensors and texts of the file; NULL is fine. */
void cod_st_close(cod_st_file *file);

size_t cod_st_tensor_count(const cod_st_file *file);
/** In the order of their data. */
const cod_st_tensor *cod_st_tensor_at(const cod_st_file *file, size_t index);
/** NULL = no such tensor. */
const cod_st_tensor *cod_st_tensor_find(const cod_st_file *file, const char *name);

size_t cod_st_metadata_count(const cod_st_file *file);
const cod_st_text *cod_st_metadata_at(const cod_st_file *file, size_t index);
/** The text of `key`, or NULL. */
const char *cod_st_metadata(const cod_st_file *file, const char *key);

/** Writes a whole file atomically; data lies in the order of descending element size, so that all of it is aligned. */
COD_MUST_CHECK cod_status cod_st_write(const char *path, const cod_st_tensor *tensors, size_t count,
                                       const cod_st_text *metadata, size_t metadata_count);

/** A file whose data arrives in pieces, for tensors that are not in memory all at once. */
typedef struct cod_st_writer cod_st_writer;

/**
 * Writes the header.
 *
 * @param[in]  tensors  [count] without data, in the order in which it will come, no wider element after a narrower one;
 * borrowed for the call
 * @param[out] writer   new; end it with cod_st_writer_commit() or cod_st_writer_abort()
 */
COD_MUST_CHECK cod_status cod_st_writer_create(const char *path, const cod_st_tensor *tensors, size_t count,
                                               const cod_st_text *metadata, size_t metadata_count,
                                               cod_st_writer **writer);
/** Appends data; pieces need not end where tensors do. */
COD_MUST_CHECK cod_status cod_st_writer_append(cod_st_writer *writer, const void *data, size_t bytes);
/** Ends the file, atomically; the writer is taken. Fails when data is missing. */
COD_MUST_CHECK cod_status cod_st_writer_commit(cod_st_writer *writer);
/** NULL is fine. */
void cod_st_writer_abort(cod_st_writer *writer);

#endif
