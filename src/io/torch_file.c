#include "io/torch_file.h"

#include "core/file_kind.h"
#include "io/zip.h"
#include "io_internal.h"
#include "pickle_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Pickles of published networks have some 100 KB. */
enum { PICKLE_BYTES_MAX = 16 << 20, DEPTH_MAX = 16 };

/** Tensors may share their numbers, as averaged weights do that are saved before the first step. */
enum { SHARES_MOST = 8, SHARED_LEAST = 1 << 20 };

/** How a file of the older form begins: the pickle of a number that marks it, 0x1950a86a20f9469cfc6c. */
static const unsigned char old_mark[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                         0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/** A storage of the older form. */
typedef struct old_storage {
    const char *key;
    const unsigned char *data;
    size_t bytes;
    cod_st_dtype dtype;
} old_storage;

static const char other_order[] =
    "its numbers have their most significant byte first, as only rare processors have them";

struct cod_torch_file {
    const unsigned char *bytes;
    size_t size;
    bool mapped;
    cod_arena arena;
    cod_zip *zip;       /**< NULL = the older form */
    const char *prefix; /**< of the archive's entries: "archive/" */
    old_storage *old;   /**< by key */
    size_t old_count;
    void *tensors; /**< cod_torch_tensor [count] */
    size_t count, tensors_bytes;
    size_t gathered;   /**< bytes of data that did not lie row-major */
    size_t named;      /**< bytes of all tensors */
    size_t steps_left; /**< instructions of pickles that may still come */
};

static int by_old_key(const void *a, const void *b)
{
    return strcmp(((const old_storage *)a)->key, ((const old_storage *)b)->key);
}

/** An entry in the folder of data.pkl; NULL = there is none. */
static const cod_zip_entry *find_beside(const cod_torch_file *file, const char *name)
{
    char path[256];
    const int length = snprintf(path, sizeof path, "%s%s", file->prefix, name);
    return length < (int)sizeof path ? cod_zip_find(file->zip, path) : NULL;
}

/** @param[out] available  bytes of its data */
static cod_status find_storage(cod_torch_file *file, const pickle_storage *storage, const unsigned char **data,
                               size_t *available)
{
    *data = NULL;
    if (file->zip == NULL) {
        const old_storage wanted = {.key = storage->key};
        const old_storage *found =
            file->old_count > 0 ? bsearch(&wanted, file->old, file->old_count, sizeof wanted, by_old_key) : NULL;
        if (found != NULL && found->dtype == storage->dtype) {
            *data = found->data;
            *available = found->bytes;
        }
    } else {
        char name[256];
        const int length = snprintf(name, sizeof name, "data/%s", storage->key);
        const cod_zip_entry *entry = length < (int)sizeof name ? find_beside(file, name) : NULL;
        if (entry != NULL) {
            *data = entry->data;
            *available = entry->bytes;
        }
    }
    return *data != NULL ? COD_OK : cod_fail(COD_ERR_FORMAT, "the numbers '%.100s' are missing", storage->key);
}

static bool is_row_major(const pickle_tensor *tensor)
{
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->stride[i] != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

/** Copies a tensor's elements in row-major order. */
static cod_status gather(cod_torch_file *file, const pickle_tensor *tensor, const unsigned char *from,
                         cod_st_tensor *out)
{
    const size_t element = cod_st_dtype_bytes(out->dtype);
    file->gathered += out->bytes;
    if (file->gathered > file->size)
        return cod_fail(COD_ERR_FORMAT, "tensors read the same numbers more often than any network does");
    unsigned char *to = cod_arena_alloc(&file->arena, out->bytes);
    COD_REQUIRE_MEMORY(to);
    int64_t index[COD_ST_RANK_MAX] = {0};
    for (size_t done = 0; done < out->bytes; done += element) {
        int64_t place = 0;
        for (int i = 0; i < tensor->rank; i++)
            place += index[i] * tensor->stride[i];
        memcpy(to + done, from + (size_t)place * element, element);
        for (int i = tensor->rank - 1; i >= 0 && ++index[i] == tensor->shape[i]; i--)
            index[i] = 0;
    }
    out->data = to;
    return COD_OK;
}

static cod_status add_tensor(cod_torch_file *file, const char *section, const char *name, const pickle_tensor *tensor)
{
    const pickle_storage *storage = tensor->storage;
    const size_t element = cod_st_dtype_bytes(storage->dtype);
    const unsigned char *data;
    size_t available = 0;
    COD_TRY(find_storage(file, storage, &data, &available));
    if ((uint64_t)storage->count > available / element)
        return cod_fail(COD_ERR_FORMAT, "the numbers '%.100s' of tensor '%.100s' are cut off: %zu bytes of %lld x %zu",
                        storage->key, name, available, (long long)storage->count, element);
    COD_TRY(cod_io_reserve(&file->tensors, &file->tensors_bytes, file->count * sizeof(cod_torch_tensor),
                           sizeof(cod_torch_tensor)));
    cod_torch_tensor *out = (cod_torch_tensor *)file->tensors + file->count;
    *out = (cod_torch_tensor){.section = section,
                              .tensor = {.name = name, .dtype = storage->dtype, .rank = tensor->rank, .data = data}};
    memcpy(out->tensor.shape, tensor->shape, sizeof out->tensor.shape);
    out->tensor.bytes = cod_st_count(&out->tensor) * element;
    file->named += out->tensor.bytes;
    if (file->named > SHARED_LEAST && file->named / SHARES_MOST > file->size)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "its tensors share the same numbers: all together have more than %d times the file's %zu "
                        "bytes, up to '%.100s'",
                        SHARES_MOST, file->size, name);
    if (out->tensor.bytes > 0)
        data += (size_t)tensor->offset * element;
    out->tensor.data = data;
    if (out->tensor.bytes > 0 && !is_row_major(tensor))
        COD_TRY(gather(file, tensor, data, &out->tensor));
    file->count++;
    return COD_OK;
}

/** A dictionary's key as a text; NULL where it is neither a text nor a number, or memory is short. */
static const char *key_of(cod_torch_file *file, const pickle_value *key)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)(key->kind == PICKLE_INTEGER ? key->integer : 0));
    return key->kind == PICKLE_TEXT      ? key->text
           : key->kind == PICKLE_INTEGER ? cod_arena_strdup(&file->arena, text)
                                         : NULL;
}

/** Adds the tensors of a dictionary and of those within it, each dictionary once. */
static cod_status collect(cod_torch_file *file, pickle_value *dictionary, const char *section, int depth)
{
    dictionary->visited = true;
    for (size_t i = 0; i < dictionary->count; i += 2) {
        pickle_value *value = dictionary->items[i + 1];
        const bool inner = value->kind == PICKLE_DICTIONARY && !value->visited && depth < DEPTH_MAX;
        const char *key = inner || value->kind == PICKLE_TENSOR ? key_of(file, dictionary->items[i]) : NULL;
        if (key == NULL)
            continue;
        if (value->kind == PICKLE_TENSOR) {
            COD_TRY(add_tensor(file, section, key, value->tensor));
            continue;
        }
        const size_t length = strlen(section) + strlen(key) + 2;
        char *below = cod_arena_alloc(&file->arena, length);
        COD_REQUIRE_MEMORY(below);
        snprintf(below, length, "%s%s%s", section, *section != '\0' ? "." : "", key);
        COD_TRY(collect(file, value, below, depth + 1));
    }
    return COD_OK;
}

static int by_place(const void *a, const void *b)
{
    const cod_torch_tensor *const *first = a, *const *second = b;
    const int sections = strcmp((*first)->section, (*second)->section);
    return sections != 0 ? sections : strcmp((*first)->tensor.name, (*second)->tensor.name);
}

static cod_status check_names(const cod_torch_file *file)
{
    const cod_torch_tensor **sorted = calloc(file->count + 1, sizeof *sorted);
    COD_REQUIRE_MEMORY(sorted);
    for (size_t i = 0; i < file->count; i++)
        sorted[i] = cod_torch_tensor_at(file, i);
    qsort(sorted, file->count, sizeof *sorted, by_place);
    cod_status status = COD_OK;
    for (size_t i = 1; i < file->count && status == COD_OK; i++)
        if (by_place(&sorted[i - 1], &sorted[i]) == 0)
            status = cod_fail(COD_ERR_FORMAT, "two tensors are called '%.100s'", sorted[i]->tensor.name);
    free(sorted);
    return status;
}

static cod_status collect_all(cod_torch_file *file, pickle_value *root)
{
    if (root->kind != PICKLE_DICTIONARY)
        return cod_fail(COD_ERR_FORMAT,
                        "it holds no dictionary of tensors, as torch.save(model.state_dict(), …) writes it");
    COD_TRY(collect(file, root, "", 0));
    if (file->count == 0)
        return cod_fail(COD_ERR_FORMAT, "there is no tensor in it");
    return check_names(file);
}

static cod_status read_pickle(cod_torch_file *file, const unsigned char *data, size_t bytes, size_t *used,
                              pickle_value **root, const pickle_storage **storages)
{
    return cod_pickle_read(&file->arena, data, bytes < PICKLE_BYTES_MAX ? bytes : PICKLE_BYTES_MAX, used,
                           &file->steps_left, root, storages);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), suffix = strlen(end);
    return length >= suffix && strcmp(text + length - suffix, end) == 0;
}

static cod_status read_archive(cod_torch_file *file)
{
    static const char pickle_name[] = "/data.pkl";
    const cod_zip_entry *pickle = NULL;
    COD_TRY(cod_zip_open_memory(file->bytes, file->size, &file->zip));
    for (size_t i = 0; i < cod_zip_count(file->zip) && pickle == NULL; i++)
        if (ends_with(cod_zip_at(file->zip, i)->name, pickle_name))
            pickle = cod_zip_at(file->zip, i);
    if (pickle == NULL)
        return cod_fail(COD_ERR_FORMAT, "a ZIP archive, but not of torch.save(): it has no data.pkl");
    for (size_t i = 0; i < cod_zip_count(file->zip); i++)
        COD_TRY(cod_zip_check(cod_zip_at(file->zip, i)));
    char *prefix = cod_arena_strdup(&file->arena, pickle->name);
    COD_REQUIRE_MEMORY(prefix);
    prefix[strlen(prefix) - strlen(pickle_name) + 1] = '\0';
    file->prefix = prefix;
    const cod_zip_entry *entry = find_beside(file, "byteorder");
    if (entry != NULL && (entry->bytes != 6 || memcmp(entry->data, "little", 6) != 0))
        return cod_fail(COD_ERR_UNSUPPORTED, "%s", other_order);
    if (find_beside(file, "constants.pkl") != NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "it is a program of TorchScript, which is not executed; in Python, "
                                             "torch.save(torch.jit.load(FILE).state_dict(), OUT) writes its weights");
    pickle_value *root = NULL;
    size_t used = 0;
    COD_TRY(read_pickle(file, pickle->data, pickle->bytes, &used, &root, NULL));
    return collect_all(file, root);
}

static int by_key(const void *a, const void *b)
{
    const pickle_storage *const *first = a, *const *second = b;
    return strcmp((*first)->key, (*second)->key);
}

/** @param sorted  [count] storages that the pickle names, by key */
static cod_status find_old_storage(cod_torch_file *file, const pickle_storage **sorted, size_t count, const char *key,
                                   size_t *at)
{
    int64_t elements;
    const pickle_storage wanted = {.key = key}, *const pointer = &wanted;
    const pickle_storage **named = count > 0 ? bsearch(&pointer, sorted, count, sizeof *sorted, by_key) : NULL;
    if (named == NULL)
        return cod_fail(COD_ERR_FORMAT, "the numbers '%.100s' belong to no tensor", key);
    if (file->size - *at < sizeof elements)
        return cod_fail(COD_ERR_FORMAT, "it ends before the numbers '%.100s'", key);
    memcpy(&elements, file->bytes + *at, sizeof elements);
    *at += sizeof elements;
    const size_t element = cod_st_dtype_bytes((*named)->dtype), left = file->size - *at;
    if (elements < 0 || (uint64_t)elements > left / element)
        return cod_fail(COD_ERR_FORMAT, "it ends within the numbers '%.100s'", key);
    file->old[file->old_count++] = (old_storage){
        .key = key, .data = file->bytes + *at, .bytes = (size_t)elements * element, .dtype = (*named)->dtype};
    *at += (size_t)elements * element;
    return COD_OK;
}

/** Finds the numbers behind the pickles: for each key a count of 8 bytes, then that many elements. */
static cod_status find_old_storages(cod_torch_file *file, const pickle_value *keys, const pickle_storage *named,
                                    size_t at)
{
    size_t count = 0;
    for (const pickle_storage *storage = named; storage != NULL; storage = storage->next)
        count++;
    const pickle_storage **sorted = cod_arena_alloc(&file->arena, count * sizeof *sorted);
    COD_REQUIRE_MEMORY(sorted);
    for (size_t i = 0; i < count; i++, named = named->next)
        sorted[i] = named;
    qsort(sorted, count, sizeof *sorted, by_key);
    file->old = cod_arena_alloc(&file->arena, keys->count * sizeof *file->old);
    COD_REQUIRE_MEMORY(file->old);
    for (size_t i = 0; i < keys->count; i++) {
        if (keys->items[i]->kind != PICKLE_TEXT)
            return cod_fail(COD_ERR_FORMAT, "its list of numbers is damaged");
        COD_TRY(find_old_storage(file, sorted, count, keys->items[i]->text, &at));
    }
    qsort(file->old, file->old_count, sizeof *file->old, by_old_key);
    return COD_OK;
}

static bool is_little_endian(const pickle_value *system)
{
    for (size_t i = 0; system->kind == PICKLE_DICTIONARY && i < system->count; i += 2)
        if (system->items[i]->kind == PICKLE_TEXT && strcmp(system->items[i]->text, "little_endian") == 0)
            return system->items[i + 1]->kind == PICKLE_INTEGER && system->items[i + 1]->integer == 1;
    return false;
}

/** Five pickles (a mark, a version, the writer's machine, the tensors, the keys of their numbers), then numbers. */
static cod_status read_old(cod_torch_file *file)
{
    enum { MARK, VERSION, SYSTEM, ROOT, KEYS, PICKLES };
    pickle_value *values[PICKLES] = {NULL};
    const pickle_storage *named = NULL;
    size_t at = 0;
    for (int i = 0; i < PICKLES; i++) {
        size_t used = 0;
        COD_TRY(read_pickle(file, file->bytes + at, file->size - at, &used, &values[i], i == ROOT ? &named : NULL));
        at += used;
    }
    if (!is_little_endian(values[SYSTEM]))
        return cod_fail(COD_ERR_UNSUPPORTED, "%s", other_order);
    if (values[KEYS]->kind != PICKLE_LIST)
        return cod_fail(COD_ERR_FORMAT, "its list of numbers is damaged");
    COD_TRY(find_old_storages(file, values[KEYS], named, at));
    return collect_all(file, values[ROOT]);
}

static cod_status open_bytes(const void *data, size_t size, bool mapped, cod_torch_file **out)
{
    cod_torch_file *file = calloc(1, sizeof *file);
    if (file == NULL && mapped)
        munmap((void *)(uintptr_t)data, size);
    COD_REQUIRE_MEMORY(file);
    *file = (cod_torch_file){.bytes = data, .size = size, .mapped = mapped, .steps_left = PICKLE_STEPS_MOST};
    const bool is_old = size > sizeof old_mark && memcmp(data, old_mark, sizeof old_mark) == 0;
    const cod_status status = is_old ? read_old(file) : read_archive(file);
    if (status != COD_OK) {
        cod_torch_close(file);
        return status;
    }
    *out = file;
    return COD_OK;
}

cod_status cod_torch_open_memory(const void *data, size_t bytes, cod_torch_file **file)
{
    *file = NULL;
    return open_bytes(data, bytes, false, file);
}

cod_status cod_torch_open(const char *path, cod_torch_file **file)
{
    void *data = NULL;
    size_t size = 0;
    *file = NULL;
    cod_status status = cod_io_map(path, sizeof old_mark, "file of torch.save()", &data, &size);
    if (status == COD_OK) {
        status = open_bytes(data, size, true, file);
        if (status != COD_OK)
            status = cod_fail_prefix(status, "'%s'", path);
    }
    return cod_explain_file(status, path, COD_FILE_TORCH, "a file of torch.save()");
}

void cod_torch_close(cod_torch_file *file)
{
    if (file == NULL)
        return;
    cod_zip_close(file->zip);
    cod_arena_clear(&file->arena);
    free(file->tensors);
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->size);
    free(file);
}

size_t cod_torch_tensor_count(const cod_torch_file *file)
{
    return file->count;
}

const cod_torch_tensor *cod_torch_tensor_at(const cod_torch_file *file, size_t index)
{
    return (const cod_torch_tensor *)file->tensors + index;
}
