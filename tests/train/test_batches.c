/* Mini-batches on the device, and the host's copies of them. */
#include "support/late.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "ref/ref.h"
#include "train/batches.h"

enum { N = 2, INPUT = 3, TRUTH = 5, STEPS = 4, SAMPLES = 100, SHIFT = 1000 };

/** Every value says where in the sequence of samples it is from. */
static cod_status draw(const void *context, size_t index, const cod_sample_place *place, float *input, float *target)
{
    (void)context, (void)index;
    for (int i = 0; i < INPUT; i++)
        input[i] = (float)place->position + (float)i / INPUT;
    for (int i = 0; i < TRUTH; i++)
        target[i] = SHIFT + (float)place->position + (float)i / TRUTH;
    return COD_OK;
}

typedef struct fixture {
    cod_run_config config;
    cod_train_session session;
    cod_buffer *buffer;
    cod_loader *loader;
    cod_batches batches;
} fixture;

static void fixture_open(fixture *f, const cod_backend *backend, int64_t count, bool again)
{
    const cod_samples samples = {.count = SAMPLES, .input = {1, 1, 1, INPUT}, .target = {1, 1, 1, TRUTH}, .draw = draw};
    /* Without threads and with the fewest batches in memory, what the loader gave before is soon overwritten. */
    const cod_loader_options options = {.batch = N, .ranks = 1, .prefetch = 1};
    *f = (fixture){.config = {.train = {.accumulate = count}}};
    f->session = (cod_train_session){.config = &f->config, .backend = backend};
    assert_ok(backend->open(NULL, &f->session.device));
    assert_ok(backend->buffer_create(f->session.device, N * (INPUT + TRUTH) * sizeof(float), &f->buffer));
    f->session.input = cod_view_dense(f->buffer, 0, COD_F32, (cod_shape){N, 1, 1, INPUT});
    f->session.truth = cod_view_dense(f->buffer, N * INPUT * sizeof(float), COD_F32, (cod_shape){N, 1, 1, TRUTH});
    assert_ok(cod_loader_create(&samples, &options, 0, &f->loader));
    assert_ok(cod_batches_init(&f->batches, &f->session, again));
}

static void fixture_close(fixture *f)
{
    cod_batches_clear(&f->batches);
    cod_loader_destroy(f->loader);
    f->session.backend->buffer_destroy(f->session.device, f->buffer);
    f->session.backend->close(f->session.device);
}

/** Mini-batch `number` of the run lies on the device and, the same, on the host. */
static void check_batch(const fixture *f, int64_t number)
{
    float there[N * (INPUT + TRUTH)];
    assert_ok(f->session.backend->download(f->session.device, NULL, there, f->buffer, 0, sizeof there));
    assert_memory_equal(f->batches.host.input, there, N * INPUT * sizeof(float));
    assert_memory_equal(f->batches.host.truth, there + N * INPUT, N * TRUTH * sizeof(float));
    for (int n = 0; n < N; n++) {
        assert_true(there[n * INPUT] == (float)(number * N + n));
        assert_true(there[N * INPUT + n * TRUTH] == (float)(SHIFT + number * N + n));
    }
}

/** Steps of one mini-batch and of several, each needed once or in two rounds. */
static void host_and_device_have_the_same(void **state)
{
    (void)state;
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend, cod_late_wrap(&cod_ref_backend)};
    char message[256] = "";
    for (size_t k = 0; k < 3 * 4; k++) {
        const int64_t count = k % 2 ? 3 : 1;
        const bool again = k / 2 % 2;
        fixture f;
        fixture_open(&f, backends[k / 4], count, again);
        for (int64_t step = 0; step < STEPS; step++) {
            cod_batches_begin(&f.batches);
            for (int64_t i = 0; i < (again ? 2 : 1) * count; i++) {
                assert_ok(cod_batches_load(&f.batches, f.loader, i % count, i < count));
                check_batch(&f, step * count + i % count);
            }
        }
        fixture_close(&f);
    }
    if (cod_late_violations(message, sizeof message) > 0)
        fail_msg("%s", message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_and_device_have_the_same)};
    return cmocka_run_group_tests_name("mini-batches", tests, NULL, NULL);
}
