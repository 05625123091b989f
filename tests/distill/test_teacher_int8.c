/* A teacher on 8-bit integers: its ranges are observed on the device, saved and put back. */
#include "support/test.h"

#include "core/queue.h"
#include "cpu/cpu.h"
#include "ref/ref.h"
#include "student.h"
#include "support/late.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDE "blocks=2 channels=16 scale=2 head_kernel=3 tail_kernel=3"

/** Runs the teacher on the student's batch. @return its prediction; free() */
static float *predict(student *s, cod_teacher *teacher)
{
    const cod_view given = cod_executable_input(s->net.executable, "teacher");
    const size_t count = (size_t)cod_shape_count(given.shape);
    float loss, *predicted = floats_new(count);
    assert_ok(run_teacher(teacher, &loss));
    assert_ok(cod_teacher_give(teacher, 1));
    assert_true(isfinite(loss));
    assert_ok(
        s->net.backend->download(s->net.device, NULL, predicted, given.buffer, given.offset, count * sizeof(float)));
    return predicted;
}

static double relative_error(const float *exact, const float *rounded, size_t count)
{
    double error = 0, power = 0;
    for (size_t i = 0; i < count; i++) {
        error += pow((double)exact[i] - (double)rounded[i], 2);
        power += pow((double)exact[i], 2);
    }
    return sqrt(error / power);
}

/**
 * The runs that follow a switch, the one that observes ranges and the next, are queued while the device does nothing:
 * nobody waits for it.
 */
static void check_nobody_waits(student *s, cod_teacher *teacher, const float *values)
{
    float loss;
    assert_ok(load_teacher(teacher, &s->net.weights, values));
    if (cod_backend_runs_at_once(s->net.backend))
        return;
    cod_late_hold(s->net.device, true);
    const size_t crossings = cod_late_crossings();
    for (int run = 0; run < 2; run++)
        assert_ok(cod_teacher_run(teacher, COD_TEACHER_NO_SLOT));
    assert_int_equal(cod_late_crossings(), crossings);
    cod_late_hold(s->net.device, false);
    assert_ok(run_teacher(teacher, &loss));
}

/**
 * Predicts with new ranges, puts the same ones back, and predicts the same bits.
 *
 * @return relative error against `exact`
 */
static double check_rounded(student *s, cod_teacher *teacher, const float *values, const float *exact, size_t count)
{
    const size_t nodes = cod_teacher_range_count(teacher);
    const float *used;
    assert_ok(load_teacher(teacher, &s->net.weights, values));
    float *first = predict(s, teacher), *rounded = predict(s, teacher);
    assert_true(relative_error(exact, first, count) < 1e-6); /* the run that observes does not round */
    float *ranges = floats_new(cod_graph_node_count(s->model.graph));
    assert_ok(cod_teacher_ranges(teacher, &used));
    assert_true(nodes > 0 && nodes <= cod_graph_node_count(s->model.graph));
    memcpy(ranges, used, nodes * sizeof *ranges);
    check_nobody_waits(s, teacher, values);
    assert_ok(load_teacher(teacher, &s->net.weights, values));
    assert_ok(cod_teacher_set_ranges(teacher, ranges));
    float *again = predict(s, teacher);
    assert_memory_equal(again, rounded, count * sizeof *again);
    const double error = relative_error(exact, rounded, count);
    free(ranges);
    free(first);
    free(rounded);
    free(again);
    return error;
}

/** Weights are random, and so less forgiving than trained ones. */
TEST(a_teacher_on_integers_rounds_by_ranges_of_its_own)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student s;
        cod_teacher *exact, *rounded;
        student_open(&s, backends[b], WIDE);
        const cod_group_config peer = architecture_of(&s);
        const cod_teacher_spec spec = {
            .peer = &peer, .target = "teacher", .pictures = 2, .precision = COD_PRECISION_INT8};
        if (!s.net.backend->supports(s.net.device, COD_S8)) {
            assert_int_equal(cod_teacher_create(&s.session, &spec, &rounded), COD_ERR_UNSUPPORTED);
            student_close(&s);
            continue;
        }
        assert_ok(cod_teacher_create(&s.session, &spec, &rounded));
        const cod_precision plain =
            s.net.backend->supports(s.net.device, COD_BF16) ? COD_PRECISION_BF16 : COD_PRECISION_F32;
        assert_ok(cod_teacher_create(
            &s.session, &(cod_teacher_spec){.peer = &peer, .target = "teacher", .pictures = 2, .precision = plain},
            &exact));
        const size_t count = (size_t)cod_shape_count(cod_executable_input(s.net.executable, "teacher").shape);
        float *values = floats_new(cod_weights_count(&s.net.weights));
        assert_ok(cod_weights_download(&s.net.weights, values));
        /* Other weights need other ranges: those of the first would cut nearly all off. */
        for (int round = 0; round < 2; round++) {
            assert_ok(load_teacher(exact, &s.net.weights, values));
            float *expected = predict(&s, exact);
            const double error = check_rounded(&s, rounded, values, expected, count);
            if (!(error > 0 && error < 0.05))
                fail_msg("%s, checkpoint %d: relative error %g", backends[b]->name, round, error);
            free(expected);
            for (size_t i = 0; i < s.net.weights.layout.trainable; i++)
                values[i] *= 4;
        }
        free(values);
        cod_teacher_destroy(exact);
        cod_teacher_destroy(rounded);
        student_close(&s);
    }
}

/** On a device the run that meets what is not finite is queued as any other: the ranges tell, when they have come. */
TEST(a_teacher_on_integers_that_meets_no_number_is_refused_by_layer)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student s;
        cod_teacher *teacher;
        float loss;
        student_open(&s, backends[b], WIDE);
        const cod_group_config peer = architecture_of(&s);
        const cod_teacher_spec spec = {
            .peer = &peer, .target = "teacher", .pictures = 2, .precision = COD_PRECISION_INT8};
        if (!s.net.backend->supports(s.net.device, COD_S8)) {
            student_close(&s);
            continue;
        }
        assert_ok(cod_teacher_create(&s.session, &spec, &teacher));
        float *values = floats_new(cod_weights_count(&s.net.weights)), first;
        assert_ok(cod_weights_download(&s.net.weights, values));
        first = values[0];
        for (int round = 0; round < 2; round++) {
            values[0] = round == 0 ? NAN : INFINITY;
            assert_ok(load_teacher(teacher, &s.net.weights, values));
            assert_fails(COD_ERR_NUMERIC, "' is not finite", run_teacher(teacher, &loss));
            values[0] = first;
            assert_ok(load_teacher(teacher, &s.net.weights, values));
            free(predict(&s, teacher));
        }
        free(values);
        cod_teacher_destroy(teacher);
        student_close(&s);
    }
}
