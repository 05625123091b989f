#include "pickle_internal.h"

#include "io_internal.h"

#include <stdlib.h>

/* The instructions that protocols 2 to 5 use for what is read here; names as in Python's pickletools. */
enum instruction {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINUNICODE = 'X',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    EMPTY_TUPLE = ')',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    SHORT_BINUNICODE = 0x8c,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95
};

/** Values by place; NULL among those of a stack is a mark. */
typedef struct values {
    void *items; /**< pickle_value *[count] */
    size_t count, bytes;
} values;

typedef struct machine {
    cod_arena *arena;
    const unsigned char *data;
    size_t bytes, at;
    values stack, memo;
    const pickle_storage *storages; /**< the last one named */
    size_t copied;                  /**< items of lists that dictionaries were made of */
    size_t *left;                   /**< instructions that may still come */
} machine;

static cod_status damaged(const machine *m, const char *what)
{
    return cod_fail(COD_ERR_FORMAT, "damaged pickle: %s, at byte %zu of %zu", what, m->at, m->bytes);
}

static pickle_value **at(const values *list, size_t index)
{
    return (pickle_value **)list->items + index;
}

static cod_status append(values *list, pickle_value *value)
{
    COD_TRY(cod_io_reserve(&list->items, &list->bytes, list->count * sizeof value, sizeof value));
    *at(list, list->count++) = value;
    return COD_OK;
}

static cod_status push_new(machine *m, pickle_kind kind, pickle_value **out)
{
    pickle_value *value = cod_arena_alloc(m->arena, sizeof *value);
    COD_REQUIRE_MEMORY(value);
    value->kind = kind;
    *out = value;
    return append(&m->stack, value);
}

static cod_status push_integer(machine *m, int64_t integer)
{
    pickle_value *value = NULL;
    COD_TRY(push_new(m, PICKLE_INTEGER, &value));
    value->integer = integer;
    return COD_OK;
}

/** Takes the value on top. */
static cod_status pop(machine *m, pickle_value **out)
{
    if (m->stack.count == 0 || *at(&m->stack, m->stack.count - 1) == NULL)
        return damaged(m, "a value is missing");
    *out = *at(&m->stack, --m->stack.count);
    return COD_OK;
}

/** Looks at the value on top, which must be of a kind. */
static cod_status top(machine *m, pickle_kind kind, pickle_value **out)
{
    COD_TRY(pop(m, out));
    m->stack.count++;
    return (*out)->kind == kind ? COD_OK : damaged(m, "a value is of another kind than what is done with it");
}

/** @param[out] first  place of the first value above the last mark */
static cod_status find_mark(const machine *m, size_t *first)
{
    for (size_t i = m->stack.count; i > 0; i--)
        if (*at(&m->stack, i - 1) == NULL) {
            *first = i;
            return COD_OK;
        }
    return damaged(m, "a mark is missing");
}

/** So many of the data's next bytes. */
static cod_status take(machine *m, size_t bytes, const unsigned char **out)
{
    if (bytes > m->bytes - m->at)
        return damaged(m, "it ends early");
    *out = m->data + m->at;
    m->at += bytes;
    return COD_OK;
}

/** The next number of so many bytes, at most eight, least significant first. */
static cod_status take_number(machine *m, size_t bytes, uint64_t *out)
{
    const unsigned char *from = NULL;
    COD_TRY(take(m, bytes, &from));
    *out = 0;
    for (size_t i = bytes; i > 0; i--)
        *out = *out << 8 | from[i - 1];
    return COD_OK;
}

static cod_status copy_text(const machine *m, const unsigned char *from, size_t bytes, const char **out)
{
    char *text = cod_arena_alloc(m->arena, bytes + 1);
    COD_REQUIRE_MEMORY(text);
    memcpy(text, from, bytes);
    if (strlen(text) != bytes)
        return damaged(m, "a text has a zero byte");
    *out = text;
    return COD_OK;
}

/** @param length_bytes  of the number in front of the text @param is_text  false = bytes, which weights do not need */
static cod_status push_text(machine *m, size_t length_bytes, bool is_text)
{
    const unsigned char *from = NULL;
    uint64_t length = 0;
    pickle_value *value = NULL;
    COD_TRY(take_number(m, length_bytes, &length));
    COD_TRY(take(m, (size_t)length, &from));
    COD_TRY(push_new(m, is_text ? PICKLE_TEXT : PICKLE_NOTHING, &value));
    return is_text ? copy_text(m, from, (size_t)length, &value->text) : COD_OK;
}

static cod_status push_real(machine *m)
{
    const unsigned char *from = NULL;
    uint64_t bits = 0;
    pickle_value *value = NULL;
    COD_TRY(take(m, sizeof bits, &from));
    for (size_t i = 0; i < sizeof bits; i++) /* the one number that has its most significant byte first */
        bits = bits << 8 | from[i];
    COD_TRY(push_new(m, PICKLE_REAL, &value));
    memcpy(&value->real, &bits, sizeof bits);
    return COD_OK;
}

/** A number of any length. One beyond 64 bits, such as a seed, is of no use here. */
static cod_status push_long(machine *m)
{
    uint64_t bytes = 0, number = 0;
    pickle_value *value = NULL;
    COD_TRY(take_number(m, 1, &bytes));
    if (bytes > sizeof number) {
        const unsigned char *from = NULL;
        COD_TRY(take(m, (size_t)bytes, &from));
        return push_new(m, PICKLE_NOTHING, &value);
    }
    COD_TRY(take_number(m, (size_t)bytes, &number));
    if (bytes > 0 && bytes < sizeof number && (number >> (8 * bytes - 1)) != 0)
        number |= UINT64_MAX << 8 * bytes;
    return push_integer(m, (int64_t)number);
}

/** Moves the values from `first` on from the stack into a list, a tuple or a dictionary. */
static cod_status move_into(machine *m, pickle_value *list, size_t first)
{
    const size_t more = m->stack.count - first, count = list->count + more;
    if (list->room < count) {
        const size_t room = count > 2 * list->room ? count : 2 * list->room;
        pickle_value **items = cod_arena_alloc(m->arena, room * sizeof *items);
        COD_REQUIRE_MEMORY(items);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    for (size_t i = 0; i < more; i++)
        list->items[list->count + i] = *at(&m->stack, first + i);
    list->count = count;
    m->stack.count = first;
    return COD_OK;
}

/** Makes a tuple of the values from `first` on. */
static cod_status push_tuple(machine *m, size_t first)
{
    pickle_value tuple = {.kind = PICKLE_TUPLE}, *value = NULL;
    COD_TRY(move_into(m, &tuple, first));
    COD_TRY(push_new(m, PICKLE_TUPLE, &value));
    *value = tuple;
    return COD_OK;
}

/** @param[out] first  place of the first of the last `count` values */
static cod_status find_last(const machine *m, size_t count, size_t *first)
{
    for (size_t i = 1; i <= count; i++)
        if (i > m->stack.count || *at(&m->stack, m->stack.count - i) == NULL)
            return damaged(m, "a value is missing");
    *first = m->stack.count - count;
    return COD_OK;
}

/** A tuple of the last `count` values. */
static cod_status push_small_tuple(machine *m, size_t count)
{
    size_t first = 0;
    COD_TRY(find_last(m, count, &first));
    return push_tuple(m, first);
}

static cod_status push_marked_tuple(machine *m)
{
    size_t first = 0;
    COD_TRY(find_mark(m, &first));
    COD_TRY(push_tuple(m, first));
    m->stack.count--; /* the tuple takes the mark's place */
    *at(&m->stack, m->stack.count - 1) = *at(&m->stack, m->stack.count);
    return COD_OK;
}

/** Moves values into the list or dictionary before them: those behind the last mark, or the last `count`. */
static cod_status add_items(machine *m, pickle_kind kind, bool marked, size_t count)
{
    size_t first = 0;
    pickle_value *into = NULL;
    COD_TRY(marked ? find_mark(m, &first) : find_last(m, count, &first));
    const size_t above = first - (marked ? 1 : 0), all = m->stack.count;
    if (kind == PICKLE_DICTIONARY && (all - first) % 2 != 0)
        return damaged(m, "a dictionary's key has no value");
    m->stack.count = above;
    COD_TRY(pop(m, &into));
    m->stack.count++;
    if (into->kind == PICKLE_NOTHING) /* an object that is passed over, with its items */
        return COD_OK;
    COD_TRY(top(m, kind, &into));
    m->stack.count = all;
    COD_TRY(move_into(m, into, first));
    m->stack.count = above;
    return COD_OK;
}

static cod_status push_class(machine *m, const char *module, const char *name)
{
    pickle_value *value = NULL;
    COD_TRY(push_new(m, PICKLE_CLASS, &value));
    return cod_pickle_class(module, name, &value->class);
}

/** A class whose module and name are two lines. */
static cod_status push_written_class(machine *m)
{
    const char *lines[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        const unsigned char *from = m->data + m->at, *end = memchr(from, '\n', m->bytes - m->at);
        if (end == NULL)
            return damaged(m, "a class has no name");
        COD_TRY(copy_text(m, from, (size_t)(end - from), &lines[i]));
        m->at += (size_t)(end - from) + 1;
    }
    return push_class(m, lines[0], lines[1]);
}

static cod_status push_stacked_class(machine *m)
{
    pickle_value *texts[2] = {NULL, NULL};
    for (int i = 1; i >= 0; i--) {
        COD_TRY(pop(m, &texts[i]));
        if (texts[i]->kind != PICKLE_TEXT)
            return damaged(m, "a class has no name");
    }
    return push_class(m, texts[0]->text, texts[1]->text);
}

/** Numbers in another part of the file, which a tuple describes. */
static cod_status push_storage(machine *m)
{
    pickle_value *id = NULL, *value = NULL;
    COD_TRY(pop(m, &id));
    COD_TRY(push_new(m, PICKLE_STORAGE, &value));
    COD_TRY(cod_pickle_storage(m->arena, id, m->storages, &value->storage));
    m->storages = value->storage;
    return COD_OK;
}

/** Pushes the result of calling a class with a tuple of arguments. */
static cod_status reduce(machine *m)
{
    pickle_value *arguments = NULL, *class = NULL, *value = NULL;
    COD_TRY(pop(m, &arguments));
    COD_TRY(pop(m, &class));
    if (class->kind != PICKLE_CLASS || arguments->kind != PICKLE_TUPLE)
        return damaged(m, "something is called that is no class");
    COD_TRY(push_new(m, PICKLE_NOTHING, &value));
    COD_TRY(cod_pickle_call(m->arena, class->class, arguments, value));
    if (value->kind == PICKLE_DICTIONARY)
        m->copied += value->count;
    return m->copied <= m->bytes ? COD_OK : damaged(m, "one list is made a dictionary of again and again");
}

/** Puts the value on top at a place of the memo, from which it can be fetched again. */
static cod_status memoise(machine *m, uint64_t index)
{
    if (m->stack.count == 0 || *at(&m->stack, m->stack.count - 1) == NULL)
        return damaged(m, "a value is missing");
    if (index >= m->bytes || index >= PICKLE_STEPS_MOST) /* writers count from 0, and each number costs them a byte */
        return damaged(m, "a place to remember a value at is out of range");
    while (m->memo.count <= index)
        COD_TRY(append(&m->memo, NULL));
    *at(&m->memo, (size_t)index) = *at(&m->stack, m->stack.count - 1);
    return COD_OK;
}

static cod_status recall(machine *m, uint64_t index)
{
    if (index >= m->memo.count || *at(&m->memo, (size_t)index) == NULL)
        return damaged(m, "a value is fetched that was not remembered");
    return append(&m->stack, *at(&m->memo, (size_t)index));
}

/** An object's own attributes, such as a dictionary's `_metadata`, are dropped. */
static cod_status build(machine *m)
{
    pickle_value *attributes = NULL, *object = NULL;
    COD_TRY(pop(m, &attributes));
    COD_TRY(pop(m, &object));
    m->stack.count++;
    return object->kind == PICKLE_NOTHING ? COD_OK : top(m, PICKLE_DICTIONARY, &object);
}

static cod_status drop_to_mark(machine *m)
{
    size_t first = 0;
    COD_TRY(find_mark(m, &first));
    m->stack.count = first - 1;
    return COD_OK;
}

/** Carries out one instruction other than STOP. */
static cod_status carry_out(machine *m, unsigned char instruction)
{
    uint64_t number = 0;
    pickle_value *value = NULL;
    switch (instruction) {
    case PROTO:
    case FRAME:
        return take_number(m, instruction == FRAME ? 8 : 1, &number);
    case MARK:
        return append(&m->stack, NULL);
    case POP:
        return pop(m, &value);
    case POP_MARK:
        return drop_to_mark(m);
    case NONE:
        return push_new(m, PICKLE_NOTHING, &value);
    case NEWTRUE:
    case NEWFALSE:
        return push_integer(m, instruction == NEWTRUE);
    case BININT:
        COD_TRY(take_number(m, 4, &number));
        return push_integer(m, (int32_t)(uint32_t)number);
    case BININT1:
        COD_TRY(take_number(m, 1, &number));
        return push_integer(m, (int64_t)number);
    case BININT2:
        COD_TRY(take_number(m, 2, &number));
        return push_integer(m, (int64_t)number);
    case LONG1:
        return push_long(m);
    case BINFLOAT:
        return push_real(m);
    case SHORT_BINUNICODE:
    case SHORT_BINBYTES:
        return push_text(m, 1, instruction == SHORT_BINUNICODE);
    case BINUNICODE:
    case BINBYTES:
        return push_text(m, 4, instruction == BINUNICODE);
    case EMPTY_LIST:
    case EMPTY_SET:
        return push_new(m, PICKLE_LIST, &value);
    case APPEND:
        return add_items(m, PICKLE_LIST, false, 1);
    case APPENDS:
    case ADDITEMS:
        return add_items(m, PICKLE_LIST, true, 0);
    case EMPTY_TUPLE:
        return push_small_tuple(m, 0);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        return push_small_tuple(m, (size_t)(instruction - TUPLE1) + 1);
    case TUPLE:
        return push_marked_tuple(m);
    case EMPTY_DICT:
        return push_new(m, PICKLE_DICTIONARY, &value);
    case SETITEM:
        return add_items(m, PICKLE_DICTIONARY, false, 2);
    case SETITEMS:
        return add_items(m, PICKLE_DICTIONARY, true, 0);
    case GLOBAL:
        return push_written_class(m);
    case STACK_GLOBAL:
        return push_stacked_class(m);
    case BINPERSID:
        return push_storage(m);
    case REDUCE:
    case NEWOBJ:
        return reduce(m);
    case BUILD:
        return build(m);
    case BINPUT:
    case LONG_BINPUT:
        COD_TRY(take_number(m, instruction == BINPUT ? 1 : 4, &number));
        return memoise(m, number);
    case MEMOIZE:
        return memoise(m, m->memo.count);
    case BINGET:
        COD_TRY(take_number(m, 1, &number));
        return recall(m, number);
    case LONG_BINGET:
        COD_TRY(take_number(m, 4, &number));
        return recall(m, number);
    default:
        return cod_fail(
            COD_ERR_UNSUPPORTED,
            "its pickle has instruction 0x%02x, which weights do not need, so it is not read; nothing of it "
            "was executed",
            instruction);
    }
}

static cod_status run(machine *m, pickle_value **result)
{
    for (;;) {
        const unsigned char *instruction = NULL;
        if (*m->left == 0)
            return cod_fail(COD_ERR_UNSUPPORTED, "its pickles have more than %d instructions: no weights need so many",
                            PICKLE_STEPS_MOST);
        --*m->left;
        COD_TRY(take(m, 1, &instruction));
        if (*instruction == STOP)
            return pop(m, result);
        COD_TRY(carry_out(m, *instruction));
    }
}

cod_status cod_pickle_read(cod_arena *arena, const unsigned char *data, size_t bytes, size_t *used, size_t *left,
                           pickle_value **result, const pickle_storage **storages)
{
    machine m = {.arena = arena, .data = data, .bytes = bytes, .left = left};
    const cod_status status = run(&m, result);
    *used = m.at;
    if (storages != NULL)
        *storages = m.storages;
    free(m.stack.items);
    free(m.memo.items);
    return status;
}
