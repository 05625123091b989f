/* The two losses under class skew, their gradients and their bounds, against values worked out by hand. */
#include "support/late.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "train/prior.h"

#include <math.h>

enum { N = 2, K = 3 };

/** Odds of the classes in two groups; the second has never seen the last class. */
static const float priors[2][K] = {{-0.6931472f, 0.4054651f, 0}, {0.6931472f, 0, -13.8155106f}};
static const double odds[2][K] = {{0.5, 1.5, 1}, {2, 1, 1e-6}};
static const double logits[K] = {1, 2, -1}, taught[K] = {0, 1, 3};

/** A linear layer whose bias is all that it says, and the two losses of it. */
typedef struct fixture {
    cod_model model;
    cod_train_session session;
    cod_value task, distill;
    test_net net;
} fixture;

static void fixture_open(fixture *f, const cod_backend *backend, bool corrected, float temperature)
{
    *f = (fixture){.session = {.priors = corrected ? priors[0] : NULL}};
    assert_ok(cod_graph_create(&f->model.graph));
    cod_graph *graph = f->model.graph;
    const cod_value x = cod_graph_input(graph, "input", 1);
    const cod_value output = f->model.output = cod_graph_linear(graph, "fc", x, K, false);
    f->task =
        cod_prior_task_loss(f->session.priors, graph, "task", output, cod_graph_input_like(graph, "target", output),
                            (cod_loss_spec){.kind = COD_LOSS_CROSS_ENTROPY});
    f->distill = cod_prior_distill_loss(f->session.priors, graph, "distill", output,
                                        cod_graph_input_like(graph, "teacher", output),
                                        (cod_loss_spec){.kind = COD_LOSS_KL, .temperature = temperature});
    f->session.recipe.model = f->model;
    const cod_input_shape shape = {"input", {N, 1, 1, 1}};
    const cod_compile_options options = {.activation = COD_F32, .inputs = &shape, .input_count = 1};
    const cod_program_spec specs[] = {{.name = "task", .trains = "model", .losses = {f->task}},
                                      {.name = "distill", .trains = "model", .losses = {f->distill}}};
    assert_ok(net_init(&f->net, backend, graph, &options, specs, 2, 1));
    cod_executable *executable = f->net.executable;
    const double zero[N] = {0}, targets[N][K] = {{1, 0, 0}, {0, 0, 1}};
    double teacher[N][K];
    double values[64] = {0};
    const cod_param *bias = cod_graph_param(graph, 1);
    assert_true(cod_weights_count(&f->net.weights) <= 64);
    for (int k = 0; k < K; k++) {
        values[bias->offset + (size_t)k] = logits[k];
        for (int n = 0; n < N; n++)
            teacher[n][k] = taught[k];
    }
    assert_ok(net_write_values(&f->net, values));
    assert_ok(net_write(&f->net, cod_executable_input(executable, "input"), zero));
    assert_ok(net_write(&f->net, cod_executable_input(executable, "target"), targets[0]));
    assert_ok(net_write(&f->net, cod_executable_input(executable, "teacher"), teacher[0]));
    for (int g = 0; g < 2; g++)
        assert_ok(cod_prior_write(backend, f->net.device, NULL,
                                  cod_executable_input(executable, g ? COD_PRIOR_TEACHER_INPUT : COD_PRIOR_INPUT),
                                  cod_prior_of(&f->session, g)));
}

static void fixture_close(fixture *f)
{
    net_clear(&f->net);
    cod_graph_destroy(f->model.graph);
}

/** Runs a program. @param[out] gradient  [K] by the bias, which is that by the logits, summed over the batch */
static double run(fixture *f, const char *program, cod_value loss, double *gradient)
{
    double grads[64];
    float value;
    assert_ok(net_run(&f->net, program));
    assert_ok(cod_executable_loss(f->net.executable, loss, &value));
    assert_ok(net_read_grads(&f->net, grads));
    for (int k = 0; k < K; k++)
        gradient[k] = grads[cod_graph_param(f->model.graph, 1)->offset + (size_t)k];
    return (double)value;
}

/** p[k] = (odds[k]·e^z[k])^(1/T), normalised; odds NULL = all 1. */
static void probabilities(const double *z, const double *factors, double temperature, double *p)
{
    double sum = 0;
    for (int k = 0; k < K; k++)
        sum += p[k] = pow((factors ? factors[k] : 1) * exp(z[k]), 1 / temperature);
    for (int k = 0; k < K; k++)
        p[k] /= sum;
}

static const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};

TEST(a_task_loss_takes_examples_at_their_own_shares)
{
    for (int i = 0; i < 4; i++) {
        const bool corrected = i % 2;
        fixture f;
        double p[K], gradient[K];
        fixture_open(&f, backends[i / 2], corrected, 1);
        const double loss = run(&f, "task", f.task, gradient);
        probabilities(logits, corrected ? odds[0] : NULL, 1, p);
        assert_true(fabs(loss + (log(p[0]) + log(p[2])) / 2) < 1e-6);
        const double expected[K] = {p[0] - 0.5, p[1], p[2] - 0.5};
        for (int k = 0; k < K; k++)
            assert_true(fabs(gradient[k] - expected[k]) < 1e-6);
        fixture_close(&f);
    }
}

TEST(teacher_and_student_are_compared_at_the_teachers_shares)
{
    for (int i = 0; i < 8; i++) {
        const bool corrected = i % 2;
        const double temperature = i / 2 % 2 ? 2 : 1;
        fixture f;
        double p[K], q[K], gradient[K], expected = 0;
        fixture_open(&f, backends[i / 4], corrected, (float)temperature);
        const double loss = run(&f, "distill", f.distill, gradient);
        probabilities(taught, corrected ? odds[1] : NULL, temperature, p);
        probabilities(logits, corrected ? odds[1] : NULL, temperature, q);
        for (int k = 0; k < K; k++)
            expected += temperature * temperature * p[k] * log(p[k] / q[k]);
        assert_true(fabs(loss - expected) < 1e-5);
        for (int k = 0; k < K; k++)
            assert_true(fabs(gradient[k] - temperature * (q[k] - p[k])) < 1e-5);
        /* Sure of a class that it never saw, it is not heard. */
        assert_true(corrected ? fabs(gradient[2]) < 0.02 : fabs(gradient[2]) > 0.1);
        fixture_close(&f);
    }
}

/**
 * What lies in an input after each of these rows of `priors` is written, the device standing still meanwhile where it
 * can.
 */
static void write_rows(const cod_backend *backend, const int *order, size_t count, float (*results)[N][K])
{
    const cod_shape shape = {N, 1, 1, K};
    cod_device *device;
    cod_buffer *buffer, *kept;
    cod_prior_input input;
    assert_ok(backend->open(NULL, &device));
    assert_ok(backend->buffer_create(device, sizeof *results, &buffer));
    assert_ok(backend->buffer_create(device, (count + 1) * sizeof *results, &kept));
    assert_ok(cod_prior_input_init(&input, backend, device, cod_view_dense(buffer, 0, COD_F32, shape)));
    assert_ok(backend->copy(device, NULL, kept, 0, buffer, 0, sizeof *results));
    assert_ok(cod_queue_finish(backend, device, NULL));
    const size_t crossings = cod_late_crossings();
    if (backend->queue_create != NULL)
        cod_late_hold(device, true);
    for (size_t i = 0; i < count; i++) {
        assert_ok(cod_prior_input_write(&input, priors[order[i]]));
        assert_ok(backend->copy(device, NULL, kept, (i + 1) * sizeof *results, buffer, 0, sizeof *results));
    }
    assert_int_equal(cod_late_crossings(), crossings);
    if (backend->queue_create != NULL)
        cod_late_hold(device, false);
    assert_ok(backend->download(device, NULL, results, kept, 0, (count + 1) * sizeof *results));
    cod_prior_input_clear(&input);
    backend->buffer_destroy(device, buffer);
    backend->buffer_destroy(device, kept);
    backend->close(device);
}

TEST(a_device_is_not_waited_for)
{
    enum { COUNT = 6 };
    static const int order[COUNT] = {0, 0, 0, 1, 1, 1}; /* more than there are slots, but no more rows */
    const cod_backend *const all[] = {&cod_ref_backend, &cod_cpu_backend, cod_late_wrap(&cod_ref_backend)};
    for (size_t b = 0; b < 3; b++) {
        float results[COUNT + 1][N][K];
        static const float zeros[K];
        write_rows(all[b], order, COUNT, results);
        for (size_t i = 0; i <= COUNT; i++)
            for (int n = 0; n < N; n++)
                assert_memory_equal(results[i][n], i == 0 ? zeros : priors[order[i - 1]], sizeof zeros);
    }
    cod_test_assert_none(cod_late_violations, "on late");
}

/** Without priors there is no such input. */
TEST(nothing_is_written_where_nothing_is_corrected)
{
    cod_prior_input none = {0};
    assert_ok(cod_prior_input_write(&none, NULL));
    cod_prior_input_clear(&none);
}
