#include "safetensors_internal.h"

#include "core/file_kind.h"
#include "core/whole.h"
#include "io/json.h"
#include "io_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

struct cod_st_file {
    const unsigned char *bytes; /**< the whole file */
    size_t size;
    bool mapped;
    cod_json_value *header; /**< owns all names and texts */
    cod_st_tensor *tensors; /**< in the order of their data */
    const cod_st_tensor **by_name;
    size_t count;
    cod_st_text *texts;
    size_t text_count;
};

/** A whole number that a double holds exactly. */
static bool whole(const cod_json_value *value, uint64_t *out)
{
    const double number = cod_json_get_number(value, -1);
    if (!cod_is_whole(number, 0, COD_WHOLE_MOST))
        return false;
    *out = (uint64_t)number;
    return true;
}

static cod_status read_shape(const cod_json_value *shape, cod_st_tensor *tensor)
{
    tensor->rank = 0;
    for (const cod_json_value *item = cod_json_first(shape); item != NULL; item = cod_json_next(item)) {
        uint64_t length = 0;
        if (tensor->rank == COD_ST_RANK_MAX || !whole(item, &length))
            return cod_fail(COD_ERR_FORMAT, "tensor '%s' has an invalid shape", tensor->name);
        tensor->shape[tensor->rank++] = (int64_t)length;
    }
    return COD_OK;
}

/** Reads {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. */
static cod_status read_tensor(const cod_st_file *file, const cod_json_value *entry, size_t data_start,
                              cod_st_tensor *tensor)
{
    tensor->name = cod_json_key(entry);
    const cod_json_value *shape = cod_json_get(entry, "shape"), *offsets = cod_json_get(entry, "data_offsets");
    const char *dtype = cod_json_get_string(cod_json_get(entry, "dtype"), NULL);
    if (dtype == NULL || cod_json_kind_of(shape) != COD_JSON_LIST || cod_json_kind_of(offsets) != COD_JSON_LIST ||
        cod_json_count(offsets) != 2 || cod_json_count(entry) != 3)
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' is not described by dtype, shape and data_offsets", tensor->name);
    if (!cod_st_dtype_find(dtype, &tensor->dtype))
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' has the unknown dtype '%s'", tensor->name, dtype);
    COD_TRY(read_shape(shape, tensor));
    uint64_t begin = 0, end = 0;
    const cod_json_value *first = cod_json_first(offsets);
    if (!whole(first, &begin) || !whole(cod_json_next(first), &end) || begin > end || end > file->size - data_start)
        return cod_fail(COD_ERR_FORMAT, "the data of tensor '%s' lies outside of the file", tensor->name);
    COD_TRY(cod_st_data_bytes(tensor, &tensor->bytes));
    if (tensor->bytes != end - begin)
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' has %zu bytes of data where its shape needs %zu", tensor->name,
                        (size_t)(end - begin), tensor->bytes);
    tensor->data = file->bytes + data_start + begin;
    return COD_OK;
}

static cod_status read_metadata(cod_st_file *file, const cod_json_value *metadata)
{
    if (cod_json_kind_of(metadata) != COD_JSON_OBJECT)
        return cod_fail(COD_ERR_FORMAT, "%s is no object", COD_ST_METADATA_KEY);
    file->texts = calloc(cod_json_count(metadata) + 1, sizeof *file->texts);
    COD_REQUIRE_MEMORY(file->texts);
    for (const cod_json_value *entry = cod_json_first(metadata); entry != NULL; entry = cod_json_next(entry)) {
        const char *text = cod_json_get_string(entry, NULL);
        if (text == NULL)
            return cod_fail(COD_ERR_FORMAT, "'%s' in %s is no text", cod_json_key(entry), COD_ST_METADATA_KEY);
        file->texts[file->text_count++] = (cod_st_text){.key = cod_json_key(entry), .value = text};
    }
    return COD_OK;
}

static int by_data(const void *a, const void *b)
{
    const cod_st_tensor *x = a, *y = b;
    const uintptr_t left = (uintptr_t)x->data, right = (uintptr_t)y->data;
    if (left != right)
        return left < right ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes ? 1 : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const cod_st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/** The format wants data without overlaps and holes. */
static cod_status check_layout(const cod_st_file *file, size_t data_start)
{
    const unsigned char *expected = file->bytes + data_start;
    for (size_t i = 0; i < file->count; i++) {
        const cod_st_tensor *tensor = &file->tensors[i];
        if (tensor->data != expected)
            return cod_fail(COD_ERR_FORMAT, "the data of tensor '%s' %s", tensor->name,
                            (const unsigned char *)tensor->data < expected ? "overlaps another's" : "follows a hole");
        expected += tensor->bytes;
    }
    if (expected != file->bytes + file->size)
        return cod_fail(COD_ERR_FORMAT, "%zu bytes at the end belong to no tensor",
                        (size_t)(file->bytes + file->size - expected));
    return COD_OK;
}

static cod_status make_room(cod_st_file *file, size_t tensors)
{
    file->tensors = calloc(tensors + 1, sizeof *file->tensors);
    file->by_name = calloc(tensors + 1, sizeof *file->by_name);
    COD_REQUIRE_MEMORY(file->tensors);
    COD_REQUIRE_MEMORY(file->by_name);
    return COD_OK;
}

static void sort_names(cod_st_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
}

static cod_status read_header(cod_st_file *file)
{
    if (file->size < 8)
        return cod_fail(COD_ERR_FORMAT, "%zu bytes are too few for a safetensors file", file->size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | file->bytes[i];
    if (length > COD_ST_HEADER_BYTES_MAX)
        return cod_fail(COD_ERR_FORMAT, "no safetensors file, or a header beyond %d bytes", COD_ST_HEADER_BYTES_MAX);
    if (length > file->size - 8)
        return cod_fail(COD_ERR_FORMAT, "the file ends within its header");
    const size_t data_start = 8 + (size_t)length;
    COD_TRY(cod_json_parse((const char *)file->bytes + 8, (size_t)length, &file->header));
    if (cod_json_kind_of(file->header) != COD_JSON_OBJECT)
        return cod_fail(COD_ERR_FORMAT, "the header is no object");
    COD_TRY(make_room(file, cod_json_count(file->header)));
    for (const cod_json_value *entry = cod_json_first(file->header); entry != NULL; entry = cod_json_next(entry)) {
        if (strcmp(cod_json_key(entry), COD_ST_METADATA_KEY) == 0)
            COD_TRY(read_metadata(file, entry));
        else
            COD_TRY(read_tensor(file, entry, data_start, &file->tensors[file->count++]));
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_data);
    sort_names(file);
    return check_layout(file, data_start);
}

static cod_status open_bytes(const void *data, size_t size, bool mapped, cod_st_file **out)
{
    cod_st_file *file = calloc(1, sizeof *file);
    if (file == NULL && mapped)
        munmap((void *)(uintptr_t)data, size);
    COD_REQUIRE_MEMORY(file);
    *file = (cod_st_file){.bytes = data, .size = size, .mapped = mapped};
    const cod_status status = read_header(file);
    if (status != COD_OK) {
        cod_st_close(file);
        return status;
    }
    *out = file;
    return COD_OK;
}

cod_status cod_st_open_memory(const void *data, size_t bytes, cod_st_file **file)
{
    *file = NULL;
    return open_bytes(data, bytes, false, file);
}

cod_status cod_st_open(const char *path, cod_st_file **file)
{
    *file = NULL;
    void *data = NULL;
    size_t size = 0;
    cod_status status = cod_io_map(path, 8, "safetensors file", &data, &size);
    if (status == COD_OK) {
        status = open_bytes(data, size, true, file);
        if (status != COD_OK)
            status = cod_fail_prefix(status, "'%s'", path);
    }
    return cod_explain_file(status, path, COD_FILE_SAFETENSORS, "a safetensors file");
}

static cod_status gather(cod_st_file *file, const cod_st_tensor *tensors, size_t count)
{
    COD_TRY(make_room(file, count));
    if (count > 0)
        memcpy(file->tensors, tensors, count * sizeof *tensors);
    file->count = count;
    sort_names(file);
    for (size_t i = 1; i < count; i++)
        if (by_name(&file->by_name[i - 1], &file->by_name[i]) == 0)
            return cod_fail(COD_ERR_FORMAT, "two tensors are called '%.100s'", file->by_name[i]->name);
    return COD_OK;
}

cod_status cod_st_gather(const cod_st_tensor *tensors, size_t count, cod_st_file **out)
{
    *out = NULL;
    cod_st_file *file = calloc(1, sizeof *file);
    COD_REQUIRE_MEMORY(file);
    const cod_status status = gather(file, tensors, count);
    if (status != COD_OK) {
        cod_st_close(file);
        return status;
    }
    *out = file;
    return COD_OK;
}

void cod_st_close(cod_st_file *file)
{
    if (file == NULL)
        return;
    cod_json_free(file->header);
    free(file->tensors);
    free(file->by_name);
    free(file->texts);
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->size);
    free(file);
}

size_t cod_st_tensor_count(const cod_st_file *file)
{
    return file->count;
}

const cod_st_tensor *cod_st_tensor_at(const cod_st_file *file, size_t index)
{
    return &file->tensors[index];
}

const cod_st_tensor *cod_st_tensor_find(const cod_st_file *file, const char *name)
{
    if (file->count == 0)
        return NULL;
    const cod_st_tensor wanted = {.name = name}, *key = &wanted;
    const cod_st_tensor **found = bsearch(&key, file->by_name, file->count, sizeof *file->by_name, by_name);
    return found != NULL ? *found : NULL;
}

size_t cod_st_metadata_count(const cod_st_file *file)
{
    return file->text_count;
}

const cod_st_text *cod_st_metadata_at(const cod_st_file *file, size_t index)
{
    return &file->texts[index];
}

const char *cod_st_metadata(const cod_st_file *file, const char *key)
{
    for (size_t i = 0; i < file->text_count; i++)
        if (strcmp(file->texts[i].key, key) == 0)
            return file->texts[i].value;
    return NULL;
}
