/*
 * The classes that PyTorch uses for a dictionary of weights, those that may stand beside it, and what calling them
 * gives.
 */
#include "pickle_internal.h"

#include <string.h>

typedef enum class_use {
    USE_DICTIONARY,
    USE_DEFAULTS, /**< a dictionary that is called with something else than its items */
    USE_TUPLE,
    USE_NOTHING,
    USE_TENSOR,
    USE_PARAMETER,
    USE_STORAGE
} class_use;

struct pickle_class {
    const char *module, *name;
    class_use use;
    cod_st_dtype dtype; /**< of a storage */
};

static const struct pickle_class classes[] = {
    {"collections", "OrderedDict", USE_DICTIONARY, 0},
    {"collections", "defaultdict", USE_DEFAULTS, 0},
    {"torch", "Size", USE_TUPLE, 0},
    {"torch", "device", USE_NOTHING, 0},
    {"collections", "Counter", USE_NOTHING, 0}, /* of schedulers */
    {"builtins", "set", USE_NOTHING, 0},
    {"__builtin__", "set", USE_NOTHING, 0},
    {"builtins", "dict", USE_NOTHING, 0}, /* of which a defaultdict makes its values */
    {"__builtin__", "dict", USE_NOTHING, 0},
    {"builtins", "list", USE_NOTHING, 0},
    {"__builtin__", "list", USE_NOTHING, 0},
    {"torch.torch_version", "TorchVersion", USE_NOTHING, 0},
    {"torch", "float32", USE_NOTHING, 0},
    {"torch", "float16", USE_NOTHING, 0},
    {"torch", "bfloat16", USE_NOTHING, 0},
    {"torch._utils", "_rebuild_tensor", USE_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v2", USE_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", USE_PARAMETER, 0},
    {"torch", "DoubleStorage", USE_STORAGE, COD_ST_F64},
    {"torch", "FloatStorage", USE_STORAGE, COD_ST_F32},
    {"torch", "HalfStorage", USE_STORAGE, COD_ST_F16},
    {"torch", "BFloat16Storage", USE_STORAGE, COD_ST_BF16},
    {"torch", "LongStorage", USE_STORAGE, COD_ST_I64},
    {"torch", "IntStorage", USE_STORAGE, COD_ST_I32},
    {"torch", "ShortStorage", USE_STORAGE, COD_ST_I16},
    {"torch", "CharStorage", USE_STORAGE, COD_ST_I8},
    {"torch", "ByteStorage", USE_STORAGE, COD_ST_U8},
    {"torch", "BoolStorage", USE_STORAGE, COD_ST_BOOL},
};

/**
 * Modules, and those within them, whose objects stand beside weights: numbers of NumPy, dates, paths, settings of
 * training programs. They are passed over, and nothing of them is executed.
 */
static const char *const beside[] = {"numpy",     "datetime", "argparse", "pathlib", "omegaconf", "pytorch_lightning",
                                     "lightning", "mmengine", "mmcv",     "typing",  "_codecs",   "lightning_fabric"};

static bool is_beside(const char *module)
{
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        const size_t length = strlen(beside[i]);
        if (strncmp(module, beside[i], length) == 0 && (module[length] == '\0' || module[length] == '.'))
            return true;
    }
    return false;
}

cod_status cod_pickle_class(const char *module, const char *name, const struct pickle_class **class)
{
    static const struct pickle_class passed_over = {.use = USE_NOTHING};
    if (is_beside(module)) {
        *class = &passed_over;
        return COD_OK;
    }
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strcmp(module, classes[i].module) == 0 && strcmp(name, classes[i].name) == 0) {
            *class = &classes[i];
            return COD_OK;
        }
    return cod_fail(COD_ERR_UNSUPPORTED,
                    "it needs Python's '%.100s.%.100s', which weights are not made of, so nothing of it was executed; "
                    "a dictionary of tensors is wanted, as torch.save(model.state_dict(), FILE) writes it",
                    module, name);
}

static cod_status foreign(const char *what)
{
    return cod_fail(COD_ERR_FORMAT, "damaged pickle: %s in a way that PyTorch does not write", what);
}

static bool is_kind(const pickle_value *tuple, size_t index, pickle_kind kind)
{
    return index < tuple->count && tuple->items[index]->kind == kind;
}

cod_status cod_pickle_storage(cod_arena *arena, const pickle_value *id, const pickle_storage *before,
                              const pickle_storage **storage)
{
    const bool whole = id->kind == PICKLE_TUPLE && is_kind(id, 0, PICKLE_TEXT) && is_kind(id, 1, PICKLE_CLASS) &&
                       is_kind(id, 2, PICKLE_TEXT) && is_kind(id, 4, PICKLE_INTEGER) &&
                       (id->count == 5 || (id->count == 6 && is_kind(id, 5, PICKLE_NOTHING)));
    if (!whole || strcmp(id->items[0]->text, "storage") != 0 || id->items[1]->class->use != USE_STORAGE ||
        id->items[4]->integer < 0)
        return foreign("a storage is described");
    pickle_storage *made = cod_arena_alloc(arena, sizeof *made);
    COD_REQUIRE_MEMORY(made);
    *made = (pickle_storage){
        .key = id->items[2]->text, .dtype = id->items[1]->class->dtype, .count = id->items[4]->integer, .next = before};
    *storage = made;
    return COD_OK;
}

/** Reads a tuple of dimensions or strides. @param[out] count  of them */
static bool read_lengths(const pickle_value *tuple, int64_t *lengths, int *count)
{
    if (tuple->kind != PICKLE_TUPLE || tuple->count > COD_ST_RANK_MAX)
        return false;
    for (size_t i = 0; i < tuple->count; i++) {
        if (!is_kind(tuple, i, PICKLE_INTEGER) || tuple->items[i]->integer < 0)
            return false;
        lengths[i] = tuple->items[i]->integer;
    }
    *count = (int)tuple->count;
    return true;
}

/** Whether all elements lie in the storage, and are no more than it has. */
static bool is_within_storage(const pickle_tensor *tensor)
{
    int64_t room = tensor->storage->count, left = room - tensor->offset;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            return left >= 0;
    for (int i = 0; i < tensor->rank && left > 0; i++) {
        const int64_t further = tensor->shape[i] - 1;
        room /= tensor->shape[i];
        left = further > 0 && tensor->stride[i] > (left - 1) / further ? 0 : left - further * tensor->stride[i];
    }
    return left > 0 && room > 0;
}

/** A tensor of (storage, offset, shape, strides, …). */
static cod_status make_tensor(cod_arena *arena, const pickle_value *arguments, pickle_value *result)
{
    int strides = 0;
    pickle_tensor *tensor = cod_arena_alloc(arena, sizeof *tensor);
    COD_REQUIRE_MEMORY(tensor);
    if (arguments->count < 4 || !is_kind(arguments, 0, PICKLE_STORAGE) || !is_kind(arguments, 1, PICKLE_INTEGER) ||
        arguments->items[1]->integer < 0 || !read_lengths(arguments->items[2], tensor->shape, &tensor->rank) ||
        !read_lengths(arguments->items[3], tensor->stride, &strides) || strides != tensor->rank)
        return foreign("a tensor is described");
    tensor->storage = arguments->items[0]->storage;
    tensor->offset = arguments->items[1]->integer;
    if (!is_within_storage(tensor))
        return cod_fail(COD_ERR_FORMAT, "damaged pickle: a tensor reaches beyond its storage");
    *result = (pickle_value){.kind = PICKLE_TENSOR, .tensor = tensor};
    return COD_OK;
}

/** A dictionary of (), or of a list of pairs. */
static cod_status make_dictionary(cod_arena *arena, const pickle_value *arguments, pickle_value *result)
{
    *result = (pickle_value){.kind = PICKLE_DICTIONARY};
    if (arguments->count == 0)
        return COD_OK;
    if (arguments->count != 1 || !is_kind(arguments, 0, PICKLE_LIST))
        return foreign("a dictionary is made");
    const pickle_value *list = arguments->items[0];
    result->items = cod_arena_alloc(arena, 2 * list->count * sizeof *result->items);
    COD_REQUIRE_MEMORY(result->items);
    for (size_t i = 0; i < list->count; i++) {
        const pickle_value *pair = list->items[i];
        if ((pair->kind != PICKLE_TUPLE && pair->kind != PICKLE_LIST) || pair->count != 2)
            return foreign("a dictionary is made");
        memcpy(&result->items[2 * i], pair->items, 2 * sizeof *pair->items);
    }
    result->count = result->room = 2 * list->count;
    return COD_OK;
}

cod_status cod_pickle_call(cod_arena *arena, const struct pickle_class *class, const pickle_value *arguments,
                           pickle_value *result)
{
    const pickle_kind wanted = class->use == USE_TUPLE ? PICKLE_TUPLE : PICKLE_TENSOR;
    switch (class->use) {
    case USE_DICTIONARY:
        return make_dictionary(arena, arguments, result);
    case USE_DEFAULTS:
        *result = (pickle_value){.kind = PICKLE_DICTIONARY};
        return COD_OK;
    case USE_TENSOR:
        return make_tensor(arena, arguments, result);
    case USE_NOTHING:
        *result = (pickle_value){.kind = PICKLE_NOTHING};
        return COD_OK;
    case USE_TUPLE: /* what it is made of is all there is to it */
    case USE_PARAMETER:
        if (is_kind(arguments, 0, wanted)) {
            *result = *arguments->items[0];
            return COD_OK;
        }
        break;
    case USE_STORAGE:
        break;
    }
    return foreign("a class is called");
}
