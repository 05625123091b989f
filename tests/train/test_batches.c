/* Mini-batches on the device in each way that they may travel, and the host's copies of them. */
#include "support/late.h"
#include "support/ops.h"
#include "support/test.h"

#ifdef COD_TESTED /* tests/cuda */
#include "../cuda/emulated/emulated.h"
#include "cuda/cuda.h"
#define faults cod_emulated_faults
#else
#include "cpu/cpu.h"
#include "ref/ref.h"
#define faults cod_late_violations
#endif
#include "train/batches.h"

enum { N = 2, LOW = 3, HIGH = 6, RGB = 3, INPUT = LOW * LOW * RGB, TRUTH = HIGH * HIGH * RGB, CLASSES = 5 };
enum { STEPS = 5, SAMPLES = 100, BYTES = 256 };

/** What bytes of the input and of the truth stand for. */
static float tables[2][BYTES * RGB];

static void fill_tables(void)
{
    for (int i = 0; i < BYTES * RGB; i++) {
        tables[0][i] = (float)(i / RGB) / 255;
        tables[1][i] = (float)(i / RGB) * 0.7f - (float)(i % RGB);
    }
}

/** Every byte says where in the sequence of samples it is from, and how far down, across and deep. */
static uint8_t byte_at(uint64_t position, int part, int i)
{
    return (uint8_t)(position * 7 + (uint64_t)i * 11 + (uint64_t)part * 101);
}

static int32_t turn_at(uint64_t position)
{
    return (int32_t)(position % 8);
}

/** A picture of the position, looked up and turned. */
static void give(uint64_t position, int part, int side, float *out)
{
    const int32_t turn = turn_at(position);
    for (int i = 0; i < side * side * RGB; i++) {
        const int y = i / RGB / side, x = i / RGB % side, c = i % RGB;
        const int row = turn & COD_TURN_MIRROR_Y ? side - 1 - y : y,
                  column = turn & COD_TURN_MIRROR_X ? side - 1 - x : x;
        const int place = turn & COD_TURN_TRANSPOSE ? column * side + row : row * side + column;
        out[i] = tables[part][byte_at(position, part, place * RGB + c) * RGB + c];
    }
}

static void give_class(uint64_t position, float *out)
{
    for (int i = 0; i < CLASSES; i++)
        out[i] = (float)(position % CLASSES == (uint64_t)i);
}

static cod_status draw(const void *context, size_t index, const cod_sample_place *place, float *input, float *target)
{
    const bool *pictures = context;
    (void)index;
    give(place->position, 0, LOW, input);
    if (*pictures)
        give(place->position, 1, HIGH, target);
    else
        give_class(place->position, target);
    return COD_OK;
}

static cod_status draw_bytes(const void *context, size_t index, const cod_sample_place *place, uint8_t *input,
                             void *target, int32_t *turn)
{
    const bool *pictures = context;
    uint8_t *high = target;
    (void)index;
    for (int i = 0; i < INPUT; i++)
        input[i] = byte_at(place->position, 0, i);
    for (int i = 0; i < TRUTH && *pictures; i++)
        high[i] = byte_at(place->position, 1, i);
    if (!*pictures)
        give_class(place->position, target);
    *turn = turn_at(place->position);
    return COD_OK;
}

/** What a case is about. */
typedef struct setting {
    const cod_backend *backend;
    cod_data_transfer transfer;
    int64_t count; /**< mini-batches of a step */
    bool again, pictures;
} setting;

typedef struct fixture {
    setting is;
    cod_run_config config;
    cod_train_session session;
    cod_samples samples;
    cod_buffer *buffer;
    cod_loader *loader;
    cod_batches batches;
} fixture;

/** All but the loader and the batches. */
static void prepare(fixture *f, setting is)
{
    static bool pictures[] = {false, true};
    const cod_shape truth = is.pictures ? (cod_shape){1, HIGH, HIGH, RGB} : (cod_shape){1, 1, 1, CLASSES};
    const cod_shape input = {1, LOW, LOW, RGB};
    *f = (fixture){.is = is, .config = {.train = {.accumulate = is.count}, .data = {.transfer = (int)is.transfer}}};
    f->samples = (cod_samples){.count = SAMPLES,
                               .input = input,
                               .target = truth,
                               .context = &pictures[is.pictures],
                               .draw = draw,
                               .draw_bytes = draw_bytes,
                               .input_table = tables[0],
                               .target_table = is.pictures ? tables[1] : NULL};
    f->session = (cod_train_session){.config = &f->config, .backend = is.backend};
    assert_ok(is.backend->open(NULL, &f->session.device));
    assert_ok(is.backend->buffer_create(f->session.device, N * (INPUT + TRUTH) * sizeof(float), &f->buffer));
    cod_shape inputs = input, truths = truth;
    inputs.n = truths.n = N;
    f->session.input = cod_view_dense(f->buffer, 0, COD_F32, inputs);
    f->session.truth = cod_view_dense(f->buffer, N * INPUT * sizeof(float), COD_F32, truths);
}

static void fixture_open(fixture *f, setting is)
{
    prepare(f, is);
    assert_ok(cod_batches_init(&f->batches, &f->session, &f->samples, is.again));
    /* Without threads and with the fewest batches in memory, what the loader gave before is soon overwritten. */
    const cod_loader_options options = {
        .batch = N, .ranks = 1, .prefetch = 1, .bytes = cod_feed_takes_bytes(&f->batches.feed)};
    assert_ok(cod_loader_create(&f->samples, &options, 0, &f->loader));
}

static void fixture_close(fixture *f)
{
    cod_batches_clear(&f->batches);
    cod_loader_destroy(f->loader);
    f->is.backend->buffer_destroy(f->session.device, f->buffer);
    f->is.backend->close(f->session.device);
}

/** Mini-batch `number` of the run lies on the device and, where it travels in f32, the same on the host. */
static void check_batch(const fixture *f, int64_t number)
{
    float there[N * (INPUT + TRUTH)], expected[N * (INPUT + TRUTH)];
    const int truth = f->is.pictures ? TRUTH : CLASSES;
    const size_t bytes = (size_t)(N * (INPUT + truth)) * sizeof(float);
    for (int n = 0; n < N; n++) {
        const cod_sample_place place = {.position = (uint64_t)(number * N + n)};
        assert_ok(draw(f->samples.context, 0, &place, expected + n * INPUT, expected + N * INPUT + n * truth));
    }
    assert_ok(f->is.backend->download(f->session.device, NULL, there, f->buffer, 0, bytes));
    assert_memory_equal(there, expected, bytes);
    if (cod_feed_takes_bytes(&f->batches.feed)) {
        assert_null(f->batches.host.input);
        return;
    }
    assert_memory_equal(f->batches.host.input, expected, N * INPUT * sizeof(float));
    assert_memory_equal(f->batches.host.truth, expected + N * INPUT, (size_t)(N * truth) * sizeof(float));
}

/** Steps whose batches arrive one by one, each looked at, or all queued behind each other and the last looked at. */
static void run(setting is, bool hurry)
{
    fixture f;
    fixture_open(&f, is);
    for (int64_t step = 0; step < STEPS; step++) {
        const int64_t loads = (is.again ? 2 : 1) * is.count;
        cod_batches_begin(&f.batches);
        for (int64_t i = 0; i < loads; i++) {
            assert_ok(cod_batches_load(&f.batches, f.loader, i % is.count, i < is.count));
            if (!hurry || (step == STEPS - 1 && i == loads - 1))
                check_batch(&f, step * is.count + i % is.count);
        }
    }
    fixture_close(&f);
}

/** Steps of one mini-batch and of several, each needed once or in two rounds; pictures and classes. */
static void run_all(const cod_backend *backend, cod_data_transfer transfer)
{
    char message[256] = "";
    for (int k = 0; k < 16; k++) {
        const setting is = {.backend = backend,
                            .transfer = transfer,
                            .count = k % 2 ? 3 : 1,
                            .again = k / 2 % 2 != 0,
                            .pictures = k / 4 % 2 != 0};
        run(is, k >= 8);
    }
    if (faults(message, sizeof message) > 0)
        fail_msg("transfer %s: %s", cod_data_transfer_names[transfer], message);
}

#ifdef COD_TESTED
TEST(host_and_device_have_the_same)
{
    for (int transfer = COD_TRANSFER_AUTO; transfer <= COD_TRANSFER_UINT8; transfer++)
        run_all(&COD_TESTED, (cod_data_transfer)transfer);
}
#else
TEST(host_and_device_have_the_same)
{
    run_all(&cod_ref_backend, COD_TRANSFER_AUTO);
    run_all(&cod_cpu_backend, COD_TRANSFER_AUTO);
    for (int transfer = COD_TRANSFER_AUTO; transfer <= COD_TRANSFER_UINT8; transfer++)
        run_all(cod_late_wrap(&cod_ref_backend), (cod_data_transfer)transfer);
    for (int transfer = COD_TRANSFER_AUTO; transfer <= COD_TRANSFER_MAPPED; transfer++)
        run_all(cod_late_wrap(&cod_cpu_backend), (cod_data_transfer)transfer);
}

/** The next batch is written into a slot that the device has not read yet. */
TEST(a_slot_that_is_written_early_is_found)
{
    char message[256] = "";
    for (cod_data_transfer transfer = COD_TRANSFER_PINNED; transfer <= COD_TRANSFER_UINT8; transfer++) {
        fixture f;
        fixture_open(&f, (setting){cod_late_wrap(&cod_ref_backend), transfer, 1, false, true});
        cod_batches_begin(&f.batches);
        cod_late_hold(f.session.device, true);
        assert_ok(cod_batches_load(&f.batches, f.loader, 0, true));
        ((unsigned char *)f.batches.feed.slots.pinned->host)[5] ^= 1;
        fixture_close(&f);
        assert_int_equal(cod_late_violations(message, sizeof message), 1);
        cod_test_assert_contains(message, "a pinned slot was used again before it was read");
    }
}

/** The copy that the feed queues, without the events around it; then the ops that read the slot. */
static void copy_unordered(const cod_feed *feed)
{
    const cod_slots *slots = &feed->slots;
    assert_ok(slots->backend->copy(slots->device, slots->queue, slots->staged, 0, slots->pinned, 0, slots->bytes));
}

TEST(a_missing_order_is_found)
{
    char message[256] = "";
    for (int before = 0; before < 2; before++) {
        fixture f;
        fixture_open(&f, (setting){cod_late_wrap(&cod_ref_backend), COD_TRANSFER_UINT8, 1, false, true});
        const cod_feed *feed = &f.batches.feed;
        cod_batches_begin(&f.batches);
        if (before) { /* the bytes may not be there yet */
            copy_unordered(feed);
            assert_ok(f.is.backend->plan_run(feed->plans[0][0], NULL));
        } else { /* the bytes of the batch before may not have been read */
            assert_ok(cod_batches_load(&f.batches, f.loader, 0, true));
            copy_unordered(feed);
        }
        fixture_close(&f);
        assert_true(cod_late_violations(message, sizeof message) > 0);
        cod_test_assert_contains(message,
                                 before ? "a missing event wait: turn 'data.transfer input' in queue 0 reads"
                                        : "and turn 'data.transfer input' in queue 0, which nothing orders before");
    }
}

static void refuse(const cod_backend *backend, cod_data_transfer transfer, bool bytes, cod_status code,
                   const char *part)
{
    fixture f;
    prepare(&f, (setting){backend, transfer, 1, false, true});
    if (!bytes)
        f.samples.input_table = NULL;
    assert_fails(code, part, cod_batches_init(&f.batches, &f.session, &f.samples, false));
    fixture_close(&f);
}

TEST(what_a_device_lacks_is_named)
{
    cod_backend unmapped = *cod_late_wrap(&cod_ref_backend);
    unmapped.maps_host_buffers = false;
    refuse(&unmapped, COD_TRANSFER_MAPPED, true, COD_ERR_UNSUPPORTED,
           "data.transfer: backend 'late' cannot read the host's memory, which mapped needs; set pinned");
    refuse(cod_late_wrap(&cod_ref_backend), COD_TRANSFER_UINT8, false, COD_ERR_ARGUMENT,
           "data.transfer: uint8 is for data of 8-bit pixels, which these are not");
    refuse(cod_late_wrap(&cod_cpu_backend), COD_TRANSFER_UINT8, true, COD_ERR_UNSUPPORTED,
           "data.transfer: backend 'late' cannot convert uint8; set pinned");
}
#endif

int main(void)
{
#ifdef COD_TESTED
    if (cod_test_absent(&COD_TESTED))
        return 77;
#endif
    fill_tables();
    return cod_test_run();
}
