#include "support/folder.h"
#include "support/test.h"

#include "core/rng.h"
#include "io/file.h"
#include "io/json.h"
#include "io/protobuf.h"
#include "io/tensorboard.h"
#include "io/trace_file.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(json_is_written)
{
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    cod_json_integer(&json, "step", INT64_MIN);
    cod_json_number(&json, "loss", 0.1);
    cod_json_number(&json, "bad", NAN);
    cod_json_number(&json, "worse", -INFINITY);
    cod_json_string(&json, "text", "a\"b\\c\n\x01\xC3\xBC\xFF");
    cod_json_string(&json, "none", NULL);
    cod_json_open(&json, "list", '[');
    cod_json_bool(&json, NULL, true);
    cod_json_null(&json, NULL);
    cod_json_close(&json);
    cod_json_open(&json, "empty", '{');
    cod_json_close(&json);
    cod_json_close(&json);
    char *text = NULL;
    assert_ok(cod_json_end(&json, &text));
    assert_string_equal(text, "{\"step\": -9223372036854775808, \"loss\": 0.1, \"bad\": null, \"worse\": null, "
                              "\"text\": \"a\\\"b\\\\c\\u000a\\u0001\xC3\xBC\xEF\xBF\xBD\", \"none\": null, "
                              "\"list\": [true, null], \"empty\": {}}");
    free(text);
    json = (cod_json){.indent = 2};
    cod_json_open(&json, NULL, '{');
    cod_json_open(&json, "a", '[');
    cod_json_integer(&json, NULL, 1);
    cod_json_integer(&json, NULL, 2);
    cod_json_close(&json);
    cod_json_close(&json);
    assert_ok(cod_json_end(&json, &text));
    assert_string_equal(text, "{\n  \"a\": [\n    1,\n    2\n  ]\n}");
    free(text);
}

TEST(json_misuse_is_kept_as_a_failure)
{
    char *text = NULL;
    cod_json json = {0};
    cod_json_open(&json, NULL, '{');
    cod_json_integer(&json, NULL, 1);
    assert_fails(COD_ERR_ARGUMENT, "has a key in objects", cod_json_end(&json, &text));
    cod_json_open(&json, NULL, '[');
    assert_fails(COD_ERR_ARGUMENT, "1 levels open", cod_json_end(&json, &text));
    cod_json_close(&json);
    assert_fails(COD_ERR_ARGUMENT, "nothing is open", cod_json_end(&json, &text));
    cod_json_null(&json, NULL);
    cod_json_null(&json, NULL);
    assert_fails(COD_ERR_ARGUMENT, "the root is one value", cod_json_end(&json, &text));
    assert_fails(COD_ERR_ARGUMENT, "0 bytes", cod_json_end(&json, &text));
    assert_null(text);
}

TEST(json_is_read)
{
    static const char text[] = " {\"a\": [1, -2.5e3, \"x\\u00fc\"], \"b\": {\"c\": true}, \"n\": null} \n";
    cod_json_value *document = NULL;
    assert_ok(cod_json_parse(text, strlen(text), &document));
    const cod_json_value *list = cod_json_get(document, "a");
    assert_int_equal(cod_json_count(list), 3);
    const cod_json_value *item = cod_json_first(list);
    assert_true(cod_json_get_number(item, 0) == 1);
    item = cod_json_next(item);
    assert_true(cod_json_get_number(item, 0) == -2500);
    assert_string_equal(cod_json_get_string(cod_json_next(item), ""), "x\xC3\xBC");
    assert_true(cod_json_get_bool(cod_json_get(cod_json_get(document, "b"), "c"), false));
    assert_string_equal(cod_json_key(cod_json_first(document)), "a");
    assert_true(cod_json_kind_of(cod_json_get(document, "n")) == COD_JSON_NULL);
    assert_null(cod_json_get(cod_json_get(document, "none"), "deeper"));
    assert_true(cod_json_get_number(NULL, 7) == 7 && cod_json_count(NULL) == 0);
    cod_json_free(document);
}

TEST(bad_json_is_refused)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "no valid JSON"},        {"{", "no valid JSON"},    {"{\"a\": 1, \"a\": 2}", "key 'a' stands twice"},
        {"[1] 2", "more after"},      {"\"a\nb\"", "byte 2"},    {"\"\xFF\"", "byte 1"},
        {"\"\\u0000\"", "zero byte"}, {"[1,]", "no valid JSON"},
    };
    cod_json_value *document = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(COD_ERR_FORMAT, cases[i].message, cod_json_parse(cases[i].text, strlen(cases[i].text), &document));
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    assert_fails(COD_ERR_FORMAT, "more than 64 levels", cod_json_parse(deep, 200, &document));
    assert_ok(cod_json_parse(deep + 40, 120, &document));
    cod_json_free(document);
}

TEST(a_torn_line_is_no_failure)
{
    cod_json_value *line = NULL;
    assert_ok(cod_json_parse_line("{\"step\": 3", 10, &line));
    assert_null(line);
    assert_ok(cod_json_parse_line("", 0, &line));
    assert_null(line);
    assert_ok(cod_json_parse_line("{\"step\": 3}\n", 12, &line));
    assert_float_equal(cod_json_get_number(cod_json_get(line, "step"), 0), 3, 0);
    cod_json_free(line);
}

TEST(mangled_json_is_survived)
{
    static const char seed_text[] =
        "{\"a\": [1, -2.5e3, \"x\\u00fc\\ud83d\\ude00\"], \"b\": {\"c\": true}, \"n\": null}";
    static const char alphabet[] = "{}[]\",:\\u0d8e-+.ntf \xC3\xBC\xFF";
    cod_rng rng = cod_rng_open(5, 0, 0, 0, COD_RNG_TEST, 0);
    for (int round = 0; round < 20000; round++) {
        const size_t bytes = round % 2 ? sizeof seed_text - 1 : cod_rng_below(&rng, sizeof seed_text);
        char *text = malloc(bytes ? bytes : 1);
        memcpy(text, seed_text, bytes);
        for (uint32_t i = 0; i < 3 && bytes > 0; i++)
            text[cod_rng_below(&rng, (uint32_t)bytes)] = alphabet[cod_rng_below(&rng, sizeof alphabet - 1)];
        cod_json_value *document = NULL;
        const cod_status status = cod_json_parse(text, bytes, &document);
        assert_true(status == COD_OK || status == COD_ERR_FORMAT);
        cod_json_free(document);
        free(text);
    }
}

TEST(protobuf_has_the_documented_bytes)
{
    /* The examples of protobuf.dev/programming-guides/encoding, and one of each other kind. */
    cod_proto proto = {0};
    cod_proto_int(&proto, 1, 150);
    cod_proto_string(&proto, 2, "testing");
    cod_proto_open(&proto, 3);
    cod_proto_int(&proto, 1, 150);
    cod_proto_close(&proto);
    cod_proto_ints(&proto, 6, (const int64_t[]){3, 270, 86942}, 3);
    cod_proto_int(&proto, 1, -2);
    cod_proto_float(&proto, 16, 1.0f);
    cod_proto_double(&proto, 1, 1.0);
    static const unsigned char expected[] = {
        0x08, 0x96, 0x01, 0x12, 0x07, 't',  'e',  's',  't',  'i',  'n',  'g',  0x1a, 0x03, 0x08, 0x96, 0x01,
        0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05, 0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0x01, 0x85, 0x01, 0x00, 0x00, 0x80, 0x3f, 0x09, 0,    0,    0,    0,    0,    0,    0xf0, 0x3f};
    assert_int_equal(proto.status, COD_OK);
    assert_int_equal(proto.bytes, sizeof expected);
    assert_memory_equal(proto.data, expected, sizeof expected);
    cod_proto_clear(&proto);
    /* A length of two bytes moves its content. */
    char text[300];
    memset(text, 'x', sizeof text);
    cod_proto_open(&proto, 1);
    cod_proto_open(&proto, 1);
    cod_proto_bytes(&proto, 2, text, sizeof text);
    cod_proto_close(&proto);
    cod_proto_close(&proto);
    static const unsigned char head[] = {0x0a, 0xb2, 0x02, 0x0a, 0xaf, 0x02, 0x12, 0xac, 0x02, 'x'};
    assert_int_equal(proto.bytes, 309);
    assert_memory_equal(proto.data, head, sizeof head);
    cod_proto_close(&proto);
    assert_int_equal(proto.status, COD_ERR_ARGUMENT);
    cod_proto_clear(&proto);
    for (int i = 0; i <= COD_PROTO_DEPTH_MAX; i++)
        cod_proto_open(&proto, 1);
    assert_int_equal(proto.status, COD_ERR_ARGUMENT);
    cod_proto_clear(&proto);
}

/**
 * Puts the wall time of every record to zero and its checksum too, as both depend on the clock; true when the framing
 * is whole.
 */
static bool mask_clock(unsigned char *data, size_t bytes, const double *wall_times, size_t count)
{
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t length = 0;
        if (bytes - offset < 16)
            return false;
        memcpy(&length, data + offset, 8);
        if (length < 9 || length > bytes - offset - 16 || data[offset + 12] != 0x09)
            return false;
        double wall = 0;
        memcpy(&wall, data + offset + 13, 8);
        if (wall_times != NULL && wall != wall_times[i])
            return false;
        memset(data + offset + 13, 0, 8);
        memset(data + offset + 12 + length, 0, 4);
        offset += 16 + length;
    }
    return offset == bytes;
}

/** CRC-32C bit by bit, masked: written apart from the table of the library. */
static uint32_t checksum(const unsigned char *data, size_t bytes)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < 8 * bytes; i++)
        crc = crc >> 1 ^ (((crc ^ (uint32_t)(data[i / 8] >> i % 8)) & 1) ? 0x82F63B78u : 0);
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void assert_checksums(const unsigned char *data, size_t bytes)
{
    for (size_t offset = 0; offset < bytes;) {
        uint64_t length = 0;
        uint32_t stored = 0;
        memcpy(&length, data + offset, 8);
        memcpy(&stored, data + offset + 8, 4);
        assert_int_equal(stored, checksum(data + offset, 8));
        memcpy(&stored, data + offset + 12 + length, 4);
        assert_int_equal(stored, checksum(data + offset + 12, length));
        offset += 16 + length;
    }
}

TEST(event_files_equal_tensorboards_own)
{
    static const double wall_times[] = {1.5, 2.5, 3.5};
    static const char png[] = "not really a PNG";
    cod_tensorboard *board = NULL;
    assert_ok(cod_tensorboard_open(cod_test_at("events"), &board));
    assert_ok(cod_tensorboard_scalar(board, 7, "train/loss", 0.5f));
    assert_ok(cod_tensorboard_image(board, 300, "sample", 3, 2, 3, png, strlen(png)));
    cod_tensorboard_close(board);
    cod_arena arena = {0};
    cod_string_list names;
    assert_ok(cod_folder_list(cod_test_at("events"), "events.out.tfevents.", "", &arena, &names));
    assert_int_equal(names.count, 1);
    const char *path = cod_path_join(&arena, cod_test_at("events"), names.items[0]);
    void *ours = NULL, *golden = NULL;
    size_t our_bytes = 0, golden_bytes = 0;
    assert_ok(cod_file_read(path, 1 << 20, &ours, &our_bytes));
    assert_ok(cod_file_read(COD_TEST_DIR "/golden/events.tfrecord", 1 << 20, &golden, &golden_bytes));
    assert_checksums(golden, golden_bytes);
    assert_checksums(ours, our_bytes);
    assert_true(mask_clock(golden, golden_bytes, wall_times, 3));
    assert_true(mask_clock(ours, our_bytes, NULL, 3));
    assert_int_equal(our_bytes, golden_bytes);
    assert_memory_equal(ours, golden, golden_bytes);
    free(ours);
    free(golden);
    cod_arena_clear(&arena);
    assert_fails(COD_ERR_IO, "create folder", cod_tensorboard_open("/dev/null/x", &board));
}

enum { THREADS = 4, EVENTS = 500 };

static void *trace_some(void *unused)
{
    (void)unused;
    for (int i = 0; i < EVENTS; i++)
        cod_trace_end(cod_trace_begin(), "op", "conv \"3x3\"");
    return NULL;
}

TEST(traces_of_many_threads_are_valid_json)
{
    char path[] = "/tmp/cod_trace_XXXXXX";
    close(mkstemp(path));
    for (uint64_t limit = 0; limit <= 100; limit += 100) {
        cod_trace_file *trace = NULL;
        assert_ok(cod_trace_file_open(path, 3, "group 1", limit, &trace));
        cod_trace_set_sink(cod_trace_file_sink, trace);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, trace_some, NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        cod_trace_set_sink(NULL, NULL);
        assert_ok(cod_trace_file_close(trace));
        void *text = NULL;
        size_t bytes = 0;
        assert_ok(cod_file_read(path, 1 << 24, &text, &bytes));
        cod_json_value *document = NULL;
        assert_ok(cod_json_parse(text, bytes, &document));
        assert_int_equal(cod_json_count(document), limit ? 2 + limit + 1 : 2 + THREADS * EVENTS);
        const cod_json_value *event = cod_json_next(cod_json_next(cod_json_first(document)));
        assert_string_equal(cod_json_get_string(cod_json_get(event, "name"), ""), "conv \"3x3\"");
        assert_true(cod_json_get_number(cod_json_get(event, "ts"), 0) > 1e15);
        assert_true(cod_json_get_number(cod_json_get(event, "pid"), 0) == 3);
        cod_json_free(document);
        free(text);
    }
    unlink(path);
    cod_trace_file *trace = NULL;
    assert_fails(COD_ERR_IO, "cannot open '/nowhere/t'", cod_trace_file_open("/nowhere/t", 0, "x", 0, &trace));
    assert_ok(cod_file_write(cod_test_at("victim"), "mine", 4));
    assert_int_equal(symlink("victim", cod_test_at("link")), 0);
    assert_fails(COD_ERR_IO, "it is a link", cod_trace_file_open(cod_test_at("link"), 0, "x", 0, &trace));
    assert_int_equal(cod_file_bytes(cod_test_at("victim")), 4);
    assert_ok(cod_trace_file_open("/dev/full", 0, "x", 0, &trace));
    assert_fails(COD_ERR_IO, "cannot write '/dev/full': No space left", cod_trace_file_close(trace));
}
