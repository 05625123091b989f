#include "io/tensorboard.h"

#include "io/file.h"
#include "io/protobuf.h"
#include "io_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Field numbers of tensorflow/core/util/event.proto and framework/summary.proto. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE_VALUE = 2, VALUE_IMAGE = 4 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_COLORSPACE = 3, IMAGE_ENCODED = 4 };

struct cod_tensorboard {
    int file;
    char path[PATH_MAX];
    uint32_t crc_table[256];
};

/** CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), masked as TFRecord files store it. */
static uint32_t masked_crc(const cod_tensorboard *board, const unsigned char *data, size_t bytes)
{
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < bytes; i++)
        crc = board->crc_table[(crc ^ data[i]) & 0xFF] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static void make_crc_table(uint32_t table[256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0x82F63B78) : crc >> 1;
        table[byte] = crc;
    }
}

static void store(unsigned char *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

/** One record: length, its checksum, the event, its checksum; wholly or not at all. */
static cod_status write_record(cod_tensorboard *board, const unsigned char *event, size_t bytes)
{
    COD_IO_CALL("append to", board->path);
    const size_t total = 12 + bytes + 4;
    unsigned char *record = malloc(total);
    COD_REQUIRE_MEMORY(record);
    store(record, bytes, 8);
    store(record + 8, masked_crc(board, record, 8), 4);
    memcpy(record + 12, event, bytes);
    store(record + 12 + bytes, masked_crc(board, event, bytes), 4);
    const off_t before = lseek(board->file, 0, SEEK_END);
    size_t done = 0;
    cod_status status = COD_OK;
    while (done < total && status == COD_OK) {
        const ssize_t put = write(board->file, record + done, total - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            status = cod_fail_system("append to", board->path);
    }
    /* Readers give up at half a record. */
    if (status != COD_OK && done > 0 && before >= 0 && ftruncate(board->file, before) != 0)
        status = cod_fail_prefix(status, "the file now ends in half a record");
    free(record);
    return status;
}

static cod_status write_event(cod_tensorboard *board, cod_proto *event)
{
    cod_status status = event->status;
    COD_THEN(status, write_record(board, event->data, event->bytes));
    cod_proto_clear(event);
    return status;
}

static cod_proto start_event(int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    cod_proto event = {0};
    cod_proto_double(&event, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    if (step != 0)
        cod_proto_int(&event, EVENT_STEP, step);
    return event;
}

static cod_status create_file(cod_tensorboard *board, const char *folder)
{
    enum { TRIES = 100 };
    static atomic_uint counter;
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < TRIES && board->file < 0; i++) {
        const int length = snprintf(board->path, sizeof board->path, "%s/events.out.tfevents.%010lld.%s.%ld.%u", folder,
                                    (long long)time(NULL), host, (long)getpid(), atomic_fetch_add(&counter, 1));
        COD_REQUIRE(length > 0 && (size_t)length < sizeof board->path, "the path of '%s' is too long", folder);
        COD_IO_CALL("create", board->path);
        board->file = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (board->file < 0 && errno != EEXIST)
            break;
    }
    return board->file < 0 ? cod_fail_system("create", board->path) : COD_OK;
}

static cod_status write_version(cod_tensorboard *board)
{
    cod_proto event = start_event(0);
    cod_proto_string(&event, EVENT_FILE_VERSION, "brain.Event:2");
    return write_event(board, &event);
}

cod_status cod_tensorboard_open(const char *folder, cod_tensorboard **out)
{
    *out = NULL;
    COD_TRY(cod_folder_create(folder));
    cod_tensorboard *board = calloc(1, sizeof *board);
    COD_REQUIRE_MEMORY(board);
    board->file = -1;
    make_crc_table(board->crc_table);
    cod_status status = create_file(board, folder);
    COD_THEN(status, write_version(board));
    if (status != COD_OK) {
        cod_tensorboard_close(board);
        return status;
    }
    *out = board;
    return COD_OK;
}

cod_status cod_tensorboard_scalar(cod_tensorboard *board, int64_t step, const char *tag, float value)
{
    cod_proto event = start_event(step);
    cod_proto_open(&event, EVENT_SUMMARY);
    cod_proto_open(&event, SUMMARY_VALUE);
    cod_proto_string(&event, VALUE_TAG, tag);
    cod_proto_float(&event, VALUE_SIMPLE_VALUE, value);
    cod_proto_close(&event);
    cod_proto_close(&event);
    return write_event(board, &event);
}

cod_status cod_tensorboard_image(cod_tensorboard *board, int64_t step, const char *tag, int width, int height,
                                 int channels, const void *png, size_t bytes)
{
    cod_proto event = start_event(step);
    cod_proto_open(&event, EVENT_SUMMARY);
    cod_proto_open(&event, SUMMARY_VALUE);
    cod_proto_string(&event, VALUE_TAG, tag);
    cod_proto_open(&event, VALUE_IMAGE);
    cod_proto_int(&event, IMAGE_HEIGHT, height);
    cod_proto_int(&event, IMAGE_WIDTH, width);
    cod_proto_int(&event, IMAGE_COLORSPACE, channels);
    cod_proto_bytes(&event, IMAGE_ENCODED, png, bytes);
    cod_proto_close(&event);
    cod_proto_close(&event);
    cod_proto_close(&event);
    return write_event(board, &event);
}

void cod_tensorboard_close(cod_tensorboard *board)
{
    if (board == NULL)
        return;
    if (board->file >= 0)
        close(board->file);
    free(board);
}
