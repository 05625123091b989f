#include "support/test.h"

#include "io/file.h"
#include "io/torch_file.h"
#include "io/zip.h"

#include <stdlib.h>
#include <string.h>

#define GOLDEN COD_TEST_DIR "/golden/torch/"

static const cod_st_tensor *find(const cod_torch_file *file, const char *section, const char *name)
{
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++) {
        const cod_torch_tensor *at = cod_torch_tensor_at(file, i);
        if (strcmp(at->section, section) == 0 && strcmp(at->tensor.name, name) == 0)
            return &at->tensor;
    }
    fail_msg("no tensor '%s' in '%s'", name, section);
    return NULL;
}

/** Checks the shape and the first values of a tensor of floats; a dimension of -1 ends the shape. */
static void check_floats(const cod_torch_file *file, const char *name, const int64_t *shape, size_t count,
                         const float *values)
{
    const cod_st_tensor *tensor = find(file, "", name);
    float found[24];
    int rank = 0;
    for (; shape[rank] >= 0; rank++)
        assert_int_equal(tensor->shape[rank], shape[rank]);
    assert_int_equal(tensor->rank, rank);
    assert_ok(cod_st_to_f32(tensor, found, count));
    for (size_t i = 0; i < count; i++)
        if (found[i] != values[i])
            fail_msg("%s: value %zu is %g, not %g", name, i, (double)found[i], (double)values[i]);
}

#define SHAPE(...)  ((const int64_t[]){__VA_ARGS__, -1})
#define VALUES(...) ((const float[]){__VA_ARGS__})

static void check_mixed(const char *path)
{
    cod_torch_file *file;
    assert_ok(cod_torch_open(path, &file));
    assert_int_equal(cod_torch_tensor_count(file), 18);
    check_floats(file, "plain", SHAPE(2, 3), 6, VALUES(0, 1, 2, 3, 4, 5));
    check_floats(file, "none", SHAPE(0, 3), 0, NULL);
    check_floats(file, "rows", SHAPE(2, 6), 12, VALUES(106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117));
    check_floats(file, "columns", SHAPE(4, 2), 8, VALUES(102, 103, 108, 109, 114, 115, 120, 121));
    check_floats(file, "turned", SHAPE(3, 2), 6, VALUES(0, 3, 1, 4, 2, 5));
    check_floats(file, "last", SHAPE(1, 2, 2, 3), 12, VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    check_floats(file, "spread", SHAPE(1, 1), 1, VALUES(5));
    check_floats(file, "parameter", SHAPE(3), 3, VALUES(-1, 0, 1));
    check_floats(file, "f64", SHAPE(3), 3, VALUES(0, 1, 2));
    check_floats(file, "f16", SHAPE(3), 3, VALUES(0, 1, 2));
    check_floats(file, "bf16", SHAPE(3), 3, VALUES(0, 1, 2));
    assert_int_equal(find(file, "", "tied")->bytes, 24 * sizeof(float));
    assert_int_equal(find(file, "", "scalar")->rank, 0);
    static const struct {
        const char *name;
        cod_st_dtype dtype;
        unsigned char bytes[24];
    } others[] = {{"scalar", COD_ST_I64, {7}},          {"i32", COD_ST_I32, {0, 0, 0, 0, 1, 0, 0, 0, 2}},
                  {"i16", COD_ST_I16, {0, 0, 1, 0, 2}}, {"i8", COD_ST_I8, {0, 1, 2}},
                  {"u8", COD_ST_U8, {0, 1, 2}},         {"bool", COD_ST_BOOL, {1, 0, 1}}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const cod_st_tensor *tensor = find(file, "", others[i].name);
        assert_int_equal(tensor->dtype, others[i].dtype);
        assert_memory_equal(tensor->data, others[i].bytes, tensor->bytes);
    }
    cod_torch_close(file);
}

TEST(reads_all_types_and_strides)
{
    check_mixed(GOLDEN "mixed.pth");
    check_mixed(GOLDEN "mixed-old.pth");
    check_mixed(GOLDEN "mixed-protocol4.pth");
}

TEST(finds_dictionaries_within_dictionaries)
{
    cod_torch_file *file;
    assert_ok(cod_torch_open(GOLDEN "checkpoint.pth", &file));
    static const char *const sections[] = {"state_dict", "params_ema"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(find(file, sections[i], "head.weight")->shape[1], 2);
        assert_int_equal(find(file, sections[i], "norm.num_batches_tracked")->dtype, COD_ST_I64);
    }
    cod_torch_close(file);
}

TEST(what_is_not_weights_is_refused)
{
    cod_torch_file *file;
    static const struct {
        const char *name, *message;
        cod_status code;
    } cases[] = {
        {GOLDEN "harmful.pth", "harmful.pth': it needs Python's 'posix.system'", COD_ERR_UNSUPPORTED},
        {GOLDEN "harmful-old.pth", "it needs Python's 'posix.system'", COD_ERR_UNSUPPORTED},
        {GOLDEN "module.pth", "it needs Python's '__main__.Network'", COD_ERR_UNSUPPORTED},
        {GOLDEN "no-tensors.pth", "there is no tensor in it", COD_ERR_FORMAT},
        {GOLDEN "tensor.pth", "it holds no dictionary of tensors", COD_ERR_FORMAT},
        {COD_TEST_DIR "/golden/zip/stored.zip", "is a ZIP archive, not a file of torch.save(): unpack it",
         COD_ERR_FORMAT},
        {COD_TEST_DIR "/golden/mixed.safetensors", "is a safetensors file, not a file of torch.save()", COD_ERR_FORMAT},
        {"/nowhere", "No such file", COD_ERR_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(cases[i].code, cases[i].message, cod_torch_open(cases[i].name, &file));
        assert_null(file);
    }
}

/** Adds up all bytes of all tensors, so that a sanitizer sees whoever reads beyond the file. */
static unsigned read_all(const cod_torch_file *file)
{
    unsigned sum = 0;
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++) {
        const cod_st_tensor *tensor = &cod_torch_tensor_at(file, i)->tensor;
        for (size_t at = 0; at < tensor->bytes; at++)
            sum += ((const unsigned char *)tensor->data)[at];
    }
    return sum;
}

TEST(damage_is_refused_or_harmless)
{
    static const char *const names[] = {GOLDEN "mixed.pth", GOLDEN "mixed-old.pth"};
    unsigned sum = 0;
    for (int n = 0; n < 2; n++) {
        void *data;
        size_t bytes, refused = 0;
        cod_torch_file *file;
        assert_ok(cod_file_read(names[n], 1 << 20, &data, &bytes));
        unsigned char *copy = malloc(bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            memcpy(copy, data, cut);
            assert_int_not_equal(cod_torch_open_memory(copy, cut, &file), COD_OK);
        }
        for (size_t i = 0; i < bytes; i++)
            for (int with = 1; with < 256; with += 37) {
                memcpy(copy, data, bytes);
                copy[i] = (unsigned char)(copy[i] ^ with);
                const cod_status status = cod_torch_open_memory(copy, bytes, &file);
                refused += status != COD_OK;
                if (status == COD_OK)
                    sum += read_all(file);
                cod_torch_close(file);
            }
        assert_true(refused > bytes); /* of seven changes a byte; numbers may be any */
        free(copy);
        free(data);
    }
    assert_int_not_equal(sum, 0);
}

/** Changes a byte of each of an archive's entries in turn: the weights' bytes as well as those of the pickle. */
TEST(damage_of_each_entry_is_refused_by_name)
{
    void *data;
    size_t bytes;
    cod_zip *zip;
    assert_ok(cod_file_read(GOLDEN "mixed.pth", 1 << 20, &data, &bytes));
    assert_ok(cod_zip_open_memory(data, bytes, &zip));
    size_t weights = 0;
    for (size_t i = 0; i < cod_zip_count(zip); i++) {
        const cod_zip_entry *entry = cod_zip_at(zip, i);
        cod_torch_file *file;
        if (entry->bytes == 0)
            continue;
        unsigned char *byte = (unsigned char *)data + (entry->data - (unsigned char *)data) + entry->bytes / 2;
        *byte ^= 1;
        assert_fails(COD_ERR_FORMAT, entry->name, cod_torch_open_memory(data, bytes, &file));
        assert_non_null(strstr(cod_error_message(), "CRC-32"));
        *byte ^= 1;
        weights += strstr(entry->name, "/data/") != NULL;
    }
    assert_true(weights > 10);
    cod_zip_close(zip);
    free(data);
}

#define BEGIN   "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
#define LITTLE  "\x80\x02}X\x0d\0\0\0little_endian\x88s."
#define FLOATS  "ctorch\nFloatStorage\n"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
/** A storage 'k' with so many numbers. */
#define STORAGE(count) "(X\7\0\0\0storage" FLOATS "X\1\0\0\0kX\3\0\0\0cpu" count "tQ"
/** A tensor of that storage, and the dictionary {'a': tensor}. */
#define VALUE(count, offset, shape, stride)  REBUILD "(" STORAGE(count) offset shape stride "\x89}tR"
#define TENSOR(count, offset, shape, stride) "\x80\x02}X\1\0\0\0a" VALUE(count, offset, shape, stride) "s."
#define KEYS                                 "\x80\x02]X\1\0\0\0ka."
#define DATA                                 "\2\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40" /* two numbers, 1 and 2 */

/** A file of the older form, written by hand; `root` is its fourth pickle. */
static cod_status open_root(const char *root, size_t bytes, cod_torch_file **file, unsigned char *room)
{
    static const char before[] = BEGIN LITTLE, behind[] = KEYS DATA;
    memcpy(room, before, sizeof before - 1);
    memcpy(room + sizeof before - 1, root, bytes);
    memcpy(room + sizeof before - 1 + bytes, behind, sizeof behind - 1);
    return cod_torch_open_memory(room, sizeof before - 1 + bytes + sizeof behind - 1, file);
}

TEST(hostile_pickles_are_refused)
{
#define CASE(root, message)                                                                                            \
    {                                                                                                                  \
        root, sizeof(root) - 1, message                                                                                \
    }
    static const struct {
        const char *root;
        size_t bytes;
        const char *message; /**< NULL = it is right */
    } cases[] = {
        CASE(TENSOR("K\2", "K\0", "K\2\x85", "K\1\x85"), NULL),
        CASE(TENSOR("K\2", "K\1", "K\2\x85", "K\1\x85"), "a tensor reaches beyond its storage"),
        CASE(TENSOR("K\2", "K\0", "K\2\x85", "K\2\x85"), "a tensor reaches beyond its storage"),
        CASE(TENSOR("K\2", "K\0", "K\3\x85", "K\0\x85"), "a tensor reaches beyond its storage"),
        CASE(TENSOR("K\2", "K\0", "J\0\0\0\x80\x85", "K\1\x85"), "a tensor is described"),
        CASE(TENSOR("K\2", "J\xff\xff\xff\xff", "K\1\x85", "K\1\x85"), "a tensor is described"),
        CASE(TENSOR("K\2", "K\0", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85",
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"),
             "a tensor reaches beyond its storage"),
        CASE(TENSOR("K\2", "K\0", "K\2\x85", "K\1K\1\x86"), "a tensor is described"),
        CASE(TENSOR("K\3", "K\0", "K\3\x85", "K\1\x85"), "are cut off"),
        CASE("\x80\x02(ios\nsystem\n.", "instruction 0x69"), /* INST */
        CASE("\x80\x02\x82\1.", "instruction 0x82"),         /* EXT1 */
        CASE("\x80\4\x8c\x08"
             "builtins\x8c\4eval\x93.",
             "it needs Python's 'builtins.eval'"),
        CASE("\x80\2cbuiltins\neval", "a class has no name"),
        /* Objects that stand beside weights are passed over, others made in the same way are refused. */
        CASE("\x80\2cnumpy\ndtype\n)\x81}bK\1K\2s(K\3e.", "belong to no tensor"),
        CASE("\x80\2cnumpyish\ndtype\n)\x81.", "it needs Python's 'numpyish.dtype'"),
        CASE("\x80\2}X\1\0\0\0bcnumpy\nx\nC\1z\x85RsX\1\0\0\0a" VALUE("K\2", "K\0", "K\2\x85", "K\1\x85") "s.", NULL),
        CASE("\x80\2ccollections\ndefaultdict\nc__builtin__\ndict\n\x85RX\1\0\0\0a" VALUE("K\2", "K\0", "K\2\x85",
                                                                                          "K\1\x85") "s.",
             NULL),
        CASE("\x80\2K\1\x85R.", "a value is missing"),
        CASE("\x80\2K\1)R.", "something is called that is no class"),
        CASE("\x80\2" FLOATS ")R.", "a class is called"),
        CASE("\x80\2ctorch._utils\n_rebuild_parameter\n)R.", "a class is called"),
        CASE("\x80\2Q.", "a value is missing"),
        CASE("\x80\2)Q.", "a storage is described"),
        CASE("\x80\2t.", "a mark is missing"),
        CASE("\x80\2}(K\1u.", "key has no value"),
        CASE("\x80\2](K\1K\1u.", "of another kind"),
        CASE("\x80\2h\0.", "was not remembered"),
        CASE("\x80\2K\1r\xff\xff\xff\xff.", "out of range"),
        CASE("\x80\2X\xff\xff\xff\xff.", "it ends early"),
        CASE("\x80\2X\1\0\0\0\0.", "a zero byte"),
        CASE("\x80\2(.", "a value is missing"),
        /* A dictionary that holds itself, and one that two others hold, are each looked at once. */
        CASE("\x80\2}q\0X\1\0\0\0bh\0sX\1\0\0\0a" VALUE("K\2", "K\0", "K\2\x85", "K\1\x85") "s.", NULL),
        CASE("\x80\2}q\0(X\1\0\0\0a" VALUE("K\2", "K\0", "K\2\x85", "K\1\x85") "K\0}q\1(K\1h\1K\2h\0uK\3h\1u.", NULL),
    };
    unsigned char room[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_torch_file *file;
        const cod_status status = open_root(cases[i].root, cases[i].bytes, &file, room);
        if (cases[i].message == NULL) {
            if (status != COD_OK)
                fail_msg("case %zu: %s", i, cod_error_message());
            assert_int_equal(((const unsigned char *)find(file, "", "a")->data)[2], 0x80);
        } else if (status == COD_OK || strstr(cod_error_message(), cases[i].message) == NULL) {
            fail_msg("case %zu: '%s' is missing in '%s'", i, cases[i].message, cod_error_message());
        }
        cod_torch_close(file);
    }
}

/** One list of many pairs, made a dictionary of again and again: each time costs three bytes. */
TEST(one_list_does_not_fill_the_memory)
{
    enum { PAIRS = 100, TIMES = 100 };
    static const char pair[] = "K\1K\2\x86", class[] = "eccollections\nOrderedDict\nq\1h\0\x85q\2R",
                      again[] = "h\1h\2R";
    char root[2048] = "\x80\2]q\0(";
    size_t bytes = 6;
    for (int i = 0; i < PAIRS; i++, bytes += sizeof pair - 1)
        memcpy(root + bytes, pair, sizeof pair - 1);
    memcpy(root + bytes, class, sizeof class - 1);
    bytes += sizeof class - 1;
    for (int i = 0; i < TIMES; i++, bytes += sizeof again - 1)
        memcpy(root + bytes, again, sizeof again - 1);
    root[bytes++] = '.';
    unsigned char room[4096];
    cod_torch_file *file;
    assert_fails(COD_ERR_FORMAT, "made a dictionary of again and again", open_root(root, bytes, &file, room));
}

/** A pickle of single bytes that each make a value: memory stays in proportion to what networks need. */
TEST(many_values_do_not_fill_the_memory)
{
    enum { VALUES = 1 << 21 };
    static const char begin[] = BEGIN LITTLE "\x80\2(";
    const size_t bytes = sizeof begin + VALUES;
    char *pickle = malloc(bytes);
    assert_non_null(pickle);
    memset(pickle, 'N', bytes);
    memcpy(pickle, begin, sizeof begin - 1);
    cod_torch_file *file;
    assert_fails(COD_ERR_UNSUPPORTED, "more than 2097152 instructions", cod_torch_open_memory(pickle, bytes, &file));
    free(pickle);
}

/** So many tensors of one storage of 128 KiB. */
static cod_status open_shared(int tensors, cod_torch_file **file)
{
    enum { NUMBERS = 1 << 15, ROOM = NUMBERS * 4 + 32768 };
    static const char begin[] = BEGIN LITTLE "\x80\2}(";
    static const char value[] = VALUE("J\0\x80\0\0", "K\0", "J\0\x80\0\0\x85", "K\1\x85");
    static const char end[] = "u." KEYS "\0\x80\0\0\0\0\0";
    char *room = calloc(1, ROOM);
    assert_non_null(room);
    size_t bytes = sizeof begin - 1;
    memcpy(room, begin, bytes);
    for (int i = 0; i < tensors; i++) {
        const char key[] = {'K', (char)i};
        memcpy(room + bytes, key, sizeof key);
        memcpy(room + bytes + sizeof key, value, sizeof value - 1);
        bytes += sizeof key + sizeof value - 1;
    }
    memcpy(room + bytes, end, sizeof end);
    const cod_status status = cod_torch_open_memory(room, bytes + sizeof end + NUMBERS * 4, file);
    cod_torch_close(*file);
    free(room);
    return status;
}

/** What is written of a file is not many times as large as the file. */
TEST(tensors_share_numbers_within_reason)
{
    cod_torch_file *file;
    assert_ok(open_shared(8, &file));
    assert_fails(COD_ERR_UNSUPPORTED, "its tensors share the same numbers", open_shared(60, &file));
}

TEST(other_processors_are_refused)
{
    static const char big[] =
        BEGIN "\x80\x02}X\x0d\0\0\0little_endian\x89s." TENSOR("K\2", "K\0", "K\2\x85", "K\1\x85") KEYS DATA;
    cod_torch_file *file;
    assert_fails(COD_ERR_UNSUPPORTED, "most significant byte first", cod_torch_open_memory(big, sizeof big - 1, &file));
}
