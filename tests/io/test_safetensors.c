#include "support/folder.h"
#include "support/test.h"

#include "core/rng.h"
#include "io/file.h"
#include "io/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char path[256];

static int make_path(void **state)
{
    const int failed = cod_test_folder_make(state);
    snprintf(path, sizeof path, "%s", cod_test_at("a.safetensors"));
    return failed;
}

TEST(reads_what_python_wrote)
{
    cod_st_file *file = NULL;
    assert_ok(cod_st_open(COD_TEST_DIR "/golden/mixed.safetensors", &file));
    assert_int_equal(cod_st_tensor_count(file), 6);
    assert_int_equal(cod_st_metadata_count(file), 2);
    assert_string_equal(cod_st_metadata(file, "model"), "srresnet");
    assert_string_equal(cod_st_metadata(file, "note"), "quote \" and \xC3\xBC");
    assert_null(cod_st_metadata(file, "none"));
    const cod_st_tensor *weight = cod_st_tensor_find(file, "weight");
    assert_non_null(weight);
    assert_true(weight->rank == 2 && weight->shape[0] == 2 && weight->shape[1] == 3 && weight->dtype == COD_ST_F32);
    float values[6];
    assert_ok(cod_st_to_f32(weight, values, 6));
    for (int i = 0; i < 6; i++)
        assert_true(values[i] == (float)i - 2.5f);
    assert_ok(cod_st_to_f32(cod_st_tensor_find(file, "half"), values, 5));
    assert_true(values[0] == 1.0f && values[1] == -0.5f && values[2] == 65504.0f && values[3] == 0x1p-24f &&
                isinf(values[4]));
    assert_ok(cod_st_to_f32(cod_st_tensor_find(file, "double"), values, 1));
    assert_true(values[0] == 0.1f && cod_st_tensor_find(file, "double")->rank == 0);
    int64_t numbers[2];
    memcpy(numbers, cod_st_tensor_find(file, "long")->data, sizeof numbers);
    assert_true(numbers[0] == -1 && numbers[1] == INT64_C(1) << 40);
    assert_memory_equal(cod_st_tensor_find(file, "bytes")->data, "\x01\x02\xff", 3);
    assert_int_equal(cod_st_tensor_find(file, "empty")->bytes, 0);
    assert_null(cod_st_tensor_find(file, "none"));
    assert_fails(COD_ERR_FORMAT, "has 6 elements, not 5", cod_st_to_f32(weight, values, 5));
    assert_fails(COD_ERR_FORMAT, "is U8, not floating point",
                 cod_st_to_f32(cod_st_tensor_find(file, "bytes"), values, 3));
    cod_st_close(file);
}

TEST(every_half_converts)
{
    uint16_t *halves = malloc(65536 * sizeof *halves);
    float *values = malloc(65536 * sizeof *values);
    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    const cod_st_tensor tensor = {.name = "h", .dtype = COD_ST_F16, .rank = 1, .shape = {65536}, .data = halves};
    assert_ok(cod_st_to_f32(&tensor, values, 65536));
    for (uint32_t i = 0; i < 65536; i++) {
        const int exponent = (int)(i >> 10 & 31), mantissa = (int)(i & 1023);
        const double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        if (exponent == 31 && mantissa != 0)
            assert_true(isnan(values[i]));
        else if (exponent == 31)
            assert_true(isinf(values[i]));
        else
            assert_true(fabs((double)values[i]) == magnitude);
        assert_true(isnan(values[i]) || (signbit(values[i]) != 0) == (i >= 32768));
    }
    free(halves);
    free(values);
}

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const unsigned char marks[3] = {7, 8, 9};
static const int64_t steps[1] = {1234567890123};
static const cod_st_tensor sample[] = {
    {.name = "marks", .dtype = COD_ST_U8, .rank = 1, .shape = {3}, .data = marks},
    {.name = "conv.weight", .dtype = COD_ST_F32, .rank = 4, .shape = {1, 2, 3, 1}, .data = weights},
    {.name = "step", .dtype = COD_ST_I64, .rank = 0, .data = steps},
    {.name = "none", .dtype = COD_ST_BF16, .rank = 2, .shape = {0, 5}},
};
static const cod_st_text texts[] = {{"model", "a \"b\"\n"}, {"empty", ""}};

TEST(what_is_written_reads_back_aligned)
{
    assert_ok(cod_st_write(path, sample, 4, texts, 2));
    cod_st_file *file = NULL;
    assert_ok(cod_st_open(path, &file));
    assert_int_equal(cod_st_tensor_count(file), 4);
    for (size_t i = 0; i < 4; i++) {
        const cod_st_tensor *tensor = cod_st_tensor_find(file, sample[i].name);
        assert_non_null(tensor);
        assert_true(tensor->dtype == sample[i].dtype && tensor->rank == sample[i].rank);
        assert_memory_equal(tensor->shape, sample[i].shape, sizeof tensor->shape);
        assert_int_equal((uintptr_t)tensor->data % cod_st_dtype_bytes(tensor->dtype), 0);
        if (tensor->bytes > 0)
            assert_memory_equal(tensor->data, sample[i].data, tensor->bytes);
    }
    assert_string_equal(cod_st_metadata(file, "model"), "a \"b\"\n");
    assert_string_equal(cod_st_metadata_at(file, 1)->value, "");
    cod_st_close(file);
    assert_ok(cod_st_write(path, NULL, 0, NULL, 0));
    assert_ok(cod_st_open(path, &file));
    assert_int_equal(cod_st_tensor_count(file), 0);
    assert_null(cod_st_tensor_find(file, "x"));
    cod_st_close(file);
}

TEST(the_writer_refuses_what_could_not_be_read)
{
    cod_st_writer *writer = NULL;
    const cod_st_tensor twins[] = {sample[1], sample[1]};
    assert_fails(COD_ERR_ARGUMENT, "two tensors are called 'conv.weight'", cod_st_write(path, twins, 2, NULL, 0));
    assert_fails(COD_ERR_ARGUMENT, "wider elements go first", cod_st_writer_create(path, sample, 2, NULL, 0, &writer));
    cod_st_tensor odd = sample[1];
    odd.name = "__metadata__";
    assert_fails(COD_ERR_ARGUMENT, "may be called", cod_st_write(path, &odd, 1, NULL, 0));
    odd = sample[1];
    odd.shape[0] = -1;
    assert_fails(COD_ERR_FORMAT, "impossible shape", cod_st_write(path, &odd, 1, NULL, 0));
    odd.rank = 9;
    assert_fails(COD_ERR_FORMAT, "9 dimensions", cod_st_write(path, &odd, 1, NULL, 0));
    assert_ok(cod_st_writer_create(path, &sample[1], 1, NULL, 0, &writer));
    assert_fails(COD_ERR_ARGUMENT, "more than the header tells",
                 cod_st_writer_append(writer, weights, sizeof weights + 1));
    assert_ok(cod_st_writer_append(writer, weights, 5));
    assert_fails(COD_ERR_ARGUMENT, "5 of 24 bytes", cod_st_writer_commit(writer));
}

/** A file of header text and `data_bytes` of zeros; new. */
static unsigned char *compose(const char *header, size_t data_bytes, size_t *bytes)
{
    const size_t length = strlen(header);
    unsigned char *file = calloc(1, 8 + length + data_bytes);
    for (size_t i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    *bytes = 8 + length + data_bytes;
    return file;
}

TEST(damaged_headers_are_named)
{
#define ENTRY(dtype, shape, begin, end)                                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *message;
    } cases[] = {
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", 7, "outside of the file"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", 9, "1 bytes at the end"},
        {"{\"a\":" ENTRY("F32", "[2]", "8", "0") "}", 8, "outside of the file"},
        {"{\"a\":" ENTRY("F32", "[2]", "-8", "0") "}", 8, "outside of the file"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8.5") "}", 9, "outside of the file"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "1e300") "}", 9, "outside of the file"},
        {"{\"a\":" ENTRY("F32", "[3]", "0", "8") "}", 8, "has 8 bytes of data where its shape needs 12"},
        {"{\"a\":" ENTRY("F33", "[2]", "0", "8") "}", 8, "unknown dtype 'F33'"},
        {"{\"a\":" ENTRY("F32", "[-2]", "0", "8") "}", 8, "invalid shape"},
        {"{\"a\":" ENTRY("F32", "[\"2\"]", "0", "8") "}", 8, "invalid shape"},
        {"{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "invalid shape"},
        {"{\"a\":" ENTRY("F32", "[4294967296,4294967296,4]", "0", "8") "}", 8, "impossible shape"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") ",\"b\":" ENTRY("F32", "[2]", "4", "12") "}", 12,
         "overlaps another's"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") ",\"b\":" ENTRY("F32", "[1]", "12", "16") "}", 16, "follows a hole"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") ",\"a\":" ENTRY("F32", "[2]", "0", "8") "}", 8, "'a' stands twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "not described by"},
        {"{\"a\":5}", 0, "not described by"},
        {"{\"__metadata__\":{\"a\":5}}", 0, "'a' in __metadata__ is no text"},
        {"{\"__metadata__\":5}", 0, "is no object"},
        {"[]", 0, "the header is no object"},
        {"{\"a\"", 0, "no valid JSON"},
        {"{\"a\\u0000b\":5}", 0, "zero byte"},
        {"{} x", 0, "more after the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes = 0;
        unsigned char *data = compose(cases[i].header, cases[i].data_bytes, &bytes);
        cod_st_file *file = NULL;
        assert_fails(COD_ERR_FORMAT, cases[i].message, cod_st_open_memory(data, bytes, &file));
        assert_null(file);
        free(data);
    }
    cod_st_file *file = NULL;
    assert_fails(COD_ERR_FORMAT, "a header beyond",
                 cod_st_open_memory("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, &file));
    assert_fails(COD_ERR_IO, "cannot open '/nowhere'", cod_st_open("/nowhere", &file));
    assert_fails(COD_ERR_IO, "no regular file", cod_st_open("/dev/zero", &file));
}

/** Reads all of a file that opened, so that the sanitizers see every byte that it claims. */
static void touch(cod_st_file *file)
{
    unsigned sum = 0;
    for (size_t i = 0; i < cod_st_tensor_count(file); i++) {
        const cod_st_tensor *tensor = cod_st_tensor_at(file, i);
        assert_int_equal(cod_st_count(tensor) * cod_st_dtype_bytes(tensor->dtype), tensor->bytes);
        for (size_t j = 0; j < tensor->bytes; j++)
            sum += ((const unsigned char *)tensor->data)[j];
        assert_non_null(cod_st_tensor_find(file, tensor->name));
    }
    assert_true(sum < 1000000);
}

TEST(truncation_and_byte_flips_are_survived)
{
    static const char *const sources[] = {COD_TEST_DIR "/golden/mixed.safetensors", path};
    assert_ok(cod_st_write(path, sample, 4, texts, 2));
    for (size_t source = 0; source < 2; source++) {
        void *whole = NULL;
        size_t bytes = 0;
        assert_ok(cod_file_read(sources[source], 1 << 20, &whole, &bytes));
        cod_st_file *file = NULL;
        for (size_t length = 0; length < bytes; length++) {
            /* A copy of exactly that length, for the guards of the sanitizer. */
            unsigned char *copy = malloc(length ? length : 1);
            memcpy(copy, whole, length);
            assert_int_equal(cod_st_open_memory(copy, length, &file), COD_ERR_FORMAT);
            free(copy);
        }
        cod_rng rng = cod_rng_open(3, 0, 0, source, COD_RNG_TEST, 0);
        unsigned char *copy = malloc(bytes);
        for (size_t round = 0; round < 8 * bytes + 4000; round++) {
            memcpy(copy, whole, bytes);
            if (round < 8 * bytes)
                copy[round / 8] ^= (unsigned char)(1u << round % 8);
            for (uint32_t i = 0; round >= 8 * bytes && i < 3; i++)
                copy[cod_rng_below(&rng, (uint32_t)bytes)] = (unsigned char)cod_rng_u32(&rng);
            if (cod_st_open_memory(copy, bytes, &file) == COD_OK)
                touch(file);
            cod_st_close(file);
        }
        free(copy);
        free(whole);
    }
}

/** Whether reads fail, as of a broken disk. */
static bool broken;

/* In place of the C library's, in this program. */
ssize_t pread(int file, void *to, size_t bytes, off_t offset)
{
    if (broken) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, file, to, bytes, offset);
}

/** A file is read before it is used: it may be cut meanwhile, or lie on storage that fails, and no signal comes. */
TEST(storage_that_fails_is_an_error)
{
    static const float ones[1000] = {1, 1, 1};
    const cod_st_tensor tensor = {.name = "a", .dtype = COD_ST_F32, .rank = 1, .shape = {1000}, .data = ones};
    cod_st_file *file;
    assert_ok(cod_st_write(path, &tensor, 1, NULL, 0));
    broken = true;
    const cod_status status = cod_st_open(path, &file);
    broken = false;
    assert_fails(COD_ERR_IO, "Input/output error", status);
    assert_ok(cod_st_open(path, &file));
    assert_int_equal(truncate(path, 0), 0);
    assert_memory_equal(cod_st_tensor_find(file, "a")->data, ones, sizeof ones);
    cod_st_close(file);
}

TEST_GROUP(make_path, cod_test_folder_remove)
