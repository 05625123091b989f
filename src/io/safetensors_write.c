#include "safetensors_internal.h"

#include "io/file.h"
#include "io/json.h"
#include "io_internal.h"

#include <stdlib.h>

struct cod_st_writer {
    cod_file_writer *file;
    size_t data_bytes, written;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static cod_status check_names(const cod_st_tensor *tensors, size_t count)
{
    const char **names = malloc((count + 1) * sizeof *names);
    COD_REQUIRE_MEMORY(names);
    for (size_t i = 0; i < count; i++)
        names[i] = tensors[i].name;
    qsort(names, count, sizeof *names, by_text);
    cod_status status = COD_OK;
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        if (strcmp(names[i], COD_ST_METADATA_KEY) == 0)
            status = cod_fail(COD_ERR_ARGUMENT, "no tensor may be called '%s'", names[i]);
        else if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            status = cod_fail(COD_ERR_ARGUMENT, "two tensors are called '%s'", names[i]);
    }
    free(names);
    return status;
}

/** Writes the entry of one tensor, whose data starts at *offset, and moves *offset to its end. */
static cod_status describe(cod_json *json, const cod_st_tensor *tensor, size_t *offset)
{
    size_t bytes = 0;
    COD_TRY(cod_st_data_bytes(tensor, &bytes));
    COD_REQUIRE(*offset % cod_st_dtype_bytes(tensor->dtype) == 0,
                "tensor '%s' would not be aligned: tensors of wider elements go first", tensor->name);
    COD_REQUIRE(bytes <= ((size_t)1 << 53) - *offset, "more than 2^53 bytes of tensors");
    cod_json_open(json, tensor->name, '{');
    cod_json_string(json, "dtype", cod_st_dtype_name(tensor->dtype));
    cod_json_open(json, "shape", '[');
    for (int i = 0; i < tensor->rank; i++)
        cod_json_integer(json, NULL, tensor->shape[i]);
    cod_json_close(json);
    cod_json_open(json, "data_offsets", '[');
    cod_json_integer(json, NULL, (int64_t)*offset);
    *offset += bytes;
    cod_json_integer(json, NULL, (int64_t)*offset);
    cod_json_close(json);
    cod_json_close(json);
    return COD_OK;
}

static cod_status make_header(const cod_st_tensor *tensors, size_t count, const cod_st_text *metadata,
                              size_t metadata_count, char **header, size_t *data_bytes)
{
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    if (metadata_count > 0) {
        cod_json_open(&json, COD_ST_METADATA_KEY, '{');
        for (size_t i = 0; i < metadata_count; i++)
            cod_json_string(&json, metadata[i].key, metadata[i].value);
        cod_json_close(&json);
    }
    cod_status status = COD_OK;
    for (size_t i = 0; i < count && status == COD_OK; i++)
        status = describe(&json, &tensors[i], data_bytes);
    if (status != COD_OK) {
        cod_json_clear(&json);
        return status;
    }
    cod_json_close(&json);
    return cod_json_end(&json, header);
}

static cod_status write_header(cod_file_writer *file, const char *header)
{
    const size_t length = strlen(header), padded = (length + 7) & ~(size_t)7;
    COD_REQUIRE(padded <= COD_ST_HEADER_BYTES_MAX, "a header of %zu bytes; at most %d can be read", padded,
                COD_ST_HEADER_BYTES_MAX);
    unsigned char prefix[8];
    for (size_t i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    COD_TRY(cod_file_writer_write(file, prefix, sizeof prefix));
    COD_TRY(cod_file_writer_write(file, header, length));
    return cod_file_writer_write(file, "       ", padded - length);
}

cod_status cod_st_writer_create(const char *path, const cod_st_tensor *tensors, size_t count,
                                const cod_st_text *metadata, size_t metadata_count, cod_st_writer **out)
{
    *out = NULL;
    COD_TRY(check_names(tensors, count));
    char *header = NULL;
    size_t data_bytes = 0;
    COD_TRY(make_header(tensors, count, metadata, metadata_count, &header, &data_bytes));
    cod_st_writer *writer = calloc(1, sizeof *writer);
    cod_status status = writer != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, cod_file_writer_create(path, &writer->file));
    COD_THEN(status, write_header(writer->file, header));
    free(header);
    if (status != COD_OK) {
        cod_st_writer_abort(writer);
        return status;
    }
    writer->data_bytes = data_bytes;
    *out = writer;
    return COD_OK;
}

cod_status cod_st_writer_append(cod_st_writer *writer, const void *data, size_t bytes)
{
    COD_REQUIRE(bytes <= writer->data_bytes - writer->written, "%zu bytes more than the header tells of", bytes);
    writer->written += bytes;
    return cod_file_writer_write(writer->file, data, bytes);
}

cod_status cod_st_writer_commit(cod_st_writer *writer)
{
    if (writer->written != writer->data_bytes) {
        const cod_status status =
            cod_fail(COD_ERR_ARGUMENT, "%zu of %zu bytes of data were written", writer->written, writer->data_bytes);
        cod_st_writer_abort(writer);
        return status;
    }
    const cod_status status = cod_file_writer_commit(writer->file);
    free(writer);
    return status;
}

void cod_st_writer_abort(cod_st_writer *writer)
{
    if (writer == NULL)
        return;
    cod_file_writer_abort(writer->file);
    free(writer);
}

/** Stable: tensors of one element size stay in the caller's order. */
static void sort_by_width(const cod_st_tensor *tensors, size_t count, cod_st_tensor *sorted)
{
    size_t at = 0;
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < count; i++)
            if (cod_st_dtype_bytes(tensors[i].dtype) == width)
                sorted[at++] = tensors[i];
}

cod_status cod_st_write(const char *path, const cod_st_tensor *tensors, size_t count, const cod_st_text *metadata,
                        size_t metadata_count)
{
    cod_st_tensor *sorted = calloc(count + 1, sizeof *sorted);
    COD_REQUIRE_MEMORY(sorted);
    sort_by_width(tensors, count, sorted);
    cod_st_writer *writer = NULL;
    cod_status status = cod_st_writer_create(path, sorted, count, metadata, metadata_count, &writer);
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        size_t bytes = 0;
        status = cod_st_data_bytes(&sorted[i], &bytes);
        COD_THEN(status, cod_st_writer_append(writer, sorted[i].data, bytes));
    }
    free(sorted);
    if (status != COD_OK) {
        cod_st_writer_abort(writer);
        return status;
    }
    return cod_st_writer_commit(writer);
}
