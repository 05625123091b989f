/**
 * @file
 * Python's pickle format (docs.python.org/3/library/pickletools.html), as far as weights need it. Nothing is executed:
 * the reader builds texts, numbers, lists and dictionaries, and knows only the classes that PyTorch uses for a
 * dictionary of weights. It passes over objects of NumPy and of training frameworks that stand beside weights. A file
 * with any other class or instruction is refused, with the class's name or the instruction's number.
 */
#ifndef COD_IO_PICKLE_INTERNAL_H
#define COD_IO_PICKLE_INTERNAL_H

#include "core/memory.h"
#include "io/safetensors.h"

/** A tensor takes some 60 instructions, and an instruction at most some 200 bytes of memory. */
enum { PICKLE_STEPS_MOST = 1 << 21 };

typedef enum pickle_kind {
    PICKLE_NOTHING, /**< None, and values that are ignored here, such as a device */
    PICKLE_INTEGER, /**< also True and False */
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST, /**< also a set */
    PICKLE_DICTIONARY,
    PICKLE_CLASS,
    PICKLE_STORAGE,
    PICKLE_TENSOR
} pickle_kind;

typedef struct pickle_value pickle_value;

/** Values of a tensor, stored in another part of the file. */
typedef struct pickle_storage {
    const char *key; /**< the part's name */
    cod_st_dtype dtype;
    int64_t count;
    const struct pickle_storage *next; /**< the storage named before it; NULL = this is the first */
} pickle_storage;

typedef struct pickle_tensor {
    const pickle_storage *storage;
    int64_t offset; /**< of the first element, in elements */
    int rank;
    int64_t shape[COD_ST_RANK_MAX], stride[COD_ST_RANK_MAX]; /**< in elements; none negative */
} pickle_tensor;

struct pickle_value {
    pickle_kind kind;
    bool visited; /**< for functions that walk through values, which may contain each other in cycles */
    union {
        int64_t integer;
        double real;
        const char *text;
        const struct pickle_class *class;
        const pickle_storage *storage;
        const pickle_tensor *tensor;
        struct {
            pickle_value **items; /**< [count]; a dictionary's are keys and values by turns */
            size_t count, room;
        };
    };
};

/**
 * Reads one pickle.
 *
 * @param arena          keeps all values
 * @param[out] used      bytes up to its end; another may follow
 * @param[in,out] left   instructions that may come; PICKLE_STEPS_MOST at first, for all pickles of a file together
 * @param[out] result    what it holds
 * @param[out] storages  all storages that it names, each as often as it is named; may be NULL
 * @return COD_ERR_FORMAT when it is damaged; COD_ERR_UNSUPPORTED, with the name, where it wants a class or an
 *   instruction that is not known
 */
COD_MUST_CHECK cod_status cod_pickle_read(cod_arena *arena, const unsigned char *data, size_t bytes, size_t *used,
                                          size_t *left, pickle_value **result, const pickle_storage **storages);

/** @return COD_ERR_UNSUPPORTED, with its name, where weights are not made of it */
COD_MUST_CHECK cod_status cod_pickle_class(const char *module, const char *name, const struct pickle_class **class);

/**
 * What PyTorch calls a persistent id: ('storage', a class, a key, a device, a count[, None]).
 *
 * @param before  becomes its `next`
 */
COD_MUST_CHECK cod_status cod_pickle_storage(cod_arena *arena, const pickle_value *id, const pickle_storage *before,
                                             const pickle_storage **storage);

/**
 * Builds a value as if a class were called with a tuple of arguments. A tensor must lie within its storage and must not
 * be larger than it.
 */
COD_MUST_CHECK cod_status cod_pickle_call(cod_arena *arena, const struct pickle_class *class,
                                          const pickle_value *arguments, pickle_value *result);

#endif
