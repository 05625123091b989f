/* What a pulled checkpoint is used for: merging weights, and teaching. */
#include "support/test.h"

#include "core/queue.h"
#include "cpu/cpu.h"
#include "distill/weights_merger.h"
#include "ref/ref.h"
#include "student.h"
#include "support/late.h"

#include <math.h>
#include <stdlib.h>

/** The teacher of `s`, holding the peer's `values`, must predict what the peer itself would infer with them. */
static void check_teacher_of(student *s, cod_teacher *teacher, student *peer, const float *values)
{
    const cod_view given = cod_executable_input(s->net.executable, "teacher"),
                   own = cod_executable_output(peer->net.executable, peer->model.output);
    const size_t count = (size_t)cod_shape_count(given.shape);
    double *predicted = net_new(count), *inferred = net_new(count);
    float loss, expected;
    assert_ok(load_teacher(teacher, &peer->net.weights, values));
    assert_ok(run_teacher(teacher, &loss));
    assert_ok(cod_teacher_give(teacher, 1));
    assert_ok(net_read(&s->net, given, predicted));

    float *kept = floats_new(cod_weights_count(&peer->net.weights));
    assert_ok(cod_weights_download(&peer->net.weights, kept));
    assert_ok(cod_weights_upload(&peer->net.weights, values));
    assert_ok(net_run(&peer->net, "infer"));
    assert_ok(net_read(&peer->net, own, inferred));
    assert_ok(cod_executable_loss(peer->net.executable, peer->session.recipe.task_loss, &expected));
    assert_ok(cod_weights_upload(&peer->net.weights, kept));
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(inferred[i]));
        assert_true(fabs(predicted[i] - inferred[i]) <= 1e-5 * (1 + fabs(inferred[i])));
    }
    assert_true(largest > 1e-3);
    assert_true(fabs((double)loss - (double)expected) <= 1e-5 * (1 + fabs((double)expected)));
    free(kept);
    free(predicted);
    free(inferred);
}

static void check_teacher(student *s, cod_teacher *teacher, const float *values)
{
    check_teacher_of(s, teacher, s, values);
}

TEST(a_peer_of_another_architecture_teaches)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student small, large;
        cod_teacher *teacher;
        student_open(&small, backends[b], SMALL);
        student_open(&large, backends[b], LARGE);
        const cod_group_config peer = architecture_of(&large);
        assert_ok(cod_teacher_create(&small.session,
                                     &(cod_teacher_spec){.peer = &peer, .target = "teacher", .pictures = 2}, &teacher));
        const size_t count = cod_weights_count(&large.net.weights);
        float *values = floats_new(count);
        assert_true(count > cod_weights_count(&small.net.weights));
        assert_ok(cod_weights_download(&large.net.weights, values));
        /* Both see the same mini-batch. */
        const cod_view from[] = {small.session.input, small.session.truth},
                       to[] = {large.session.input, large.session.truth};
        for (size_t i = 0; i < 2; i++) {
            double *batch = net_new((size_t)cod_shape_count(from[i].shape));
            assert_ok(net_read(&small.net, from[i], batch));
            assert_ok(net_write(&large.net, to[i], batch));
            free(batch);
        }
        check_teacher_of(&small, teacher, &large, values);
        free(values);
        cod_teacher_destroy(teacher);
        student_close(&small);
        student_close(&large);
    }
}

TEST(a_teacher_predicts_as_its_checkpoint_infers)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student s;
        cod_teacher *teacher;
        student_open(&s, backends[b], SMALL);
        const cod_group_config peer = architecture_of(&s);
        assert_ok(cod_teacher_create(&s.session, &(cod_teacher_spec){.peer = &peer, .target = "teacher", .pictures = 2},
                                     &teacher));
        const size_t count = cod_weights_count(&s.net.weights);
        float *before = floats_new(count), *first = floats_new(count), *second = floats_new(count),
              *after = floats_new(count);
        assert_ok(cod_weights_download(&s.net.weights, before));
        for (size_t i = 0; i < count; i++) {
            first[i] = before[i] * 0.9f + 0.001f * (float)(i % 7);
            second[i] = before[i] * 1.2f + 0.002f * (float)(i % 5);
        }
        check_teacher(&s, teacher, first);
        /* Another checkpoint: nothing packed or folded of the first may be left. */
        check_teacher(&s, teacher, second);
        check_teacher(&s, teacher, first);
        /* A step of the student leaves the teacher as it is. */
        assert_ok(cod_executable_set_scalar(s.net.executable, "distill_weight", 0.5f));
        assert_ok(net_run(&s.net, "distill"));
        assert_ok(cod_weights_download(&s.net.weights, after));
        assert_memory_equal(after, before, s.net.weights.layout.trainable * sizeof(float));
        check_teacher(&s, teacher, first);
        free(before);
        free(first);
        free(second);
        free(after);
        cod_teacher_destroy(teacher);
        student_close(&s);
    }
}

/** What is averaged of outputs {N,1,1,K}: with a temperature, class probabilities; in place. */
static void averaged(double *outputs, size_t count, int64_t classes, float temperature)
{
    for (size_t first = 0; temperature > 0 && first < count; first += (size_t)classes) {
        double sum = 0;
        for (int64_t k = 0; k < classes; k++) {
            outputs[first + (size_t)k] = exp(outputs[first + (size_t)k] / (double)temperature);
            sum += outputs[first + (size_t)k];
        }
        for (int64_t k = 0; k < classes; k++)
            outputs[first + (size_t)k] /= sum;
    }
}

/**
 * Three teachers with weights 1, 2 and 5: the student's target becomes the weighted mean of what each predicts alone.
 */
static void check_mean(const cod_backend *backend, const char *architecture, float temperature)
{
    enum { TEACHERS = 3 };
    static const double weights[TEACHERS] = {1, 2, 5};
    student s;
    cod_teacher *teachers[TEACHERS];
    student_open(&s, backend, architecture);
    const cod_group_config peer = architecture_of(&s);
    const cod_teacher_spec spec = {
        .peer = &peer, .target = "teacher", .pictures = 2, .mixes = true, .temperature = temperature};
    const cod_view target = cod_executable_input(s.net.executable, "teacher");
    const size_t count = (size_t)cod_shape_count(target.shape), weight_count = cod_weights_count(&s.net.weights);
    double *alone = net_new(count), *mean = net_new(count), *mixed = net_new(count), sum = 0, apart = 0;
    float *values = floats_new(weight_count), loss;
    assert_ok(cod_weights_download(&s.net.weights, values));
    for (int t = 0; t < TEACHERS; t++) {
        assert_ok(cod_teacher_create(&s.session, &spec, &teachers[t]));
        for (size_t i = 0; i < weight_count; i++)
            values[i] *= 1.1f;
        assert_ok(load_teacher(teachers[t], &s.net.weights, values));
        assert_ok(run_teacher(teachers[t], &loss));
        assert_ok(cod_teacher_give(teachers[t], 1));
        assert_ok(net_read(&s.net, target, alone));
        averaged(alone, count, target.shape.c, temperature);
        for (size_t i = 0; i < count; i++)
            mean[i] += weights[t] / 8 * alone[i];
    }
    for (int t = 0; t < TEACHERS; t++) {
        sum += weights[t];
        assert_ok(run_teacher(teachers[t], &loss));
        assert_ok(cod_teacher_give(teachers[t], (float)(weights[t] / sum)));
    }
    assert_ok(net_read(&s.net, target, mixed));
    averaged(mixed, count, target.shape.c, temperature);
    for (size_t i = 0; i < count; i++) {
        apart = fmax(apart, fabs(mean[i] - alone[i]));
        assert_true(fabs(mixed[i] - mean[i]) <= 1e-5 * (1 + fabs(mean[i])));
    }
    assert_true(apart > 1e-3); /* than the last one's alone */
    for (int t = 0; t < TEACHERS; t++)
        cod_teacher_destroy(teachers[t]);
    free(alone);
    free(mean);
    free(mixed);
    free(values);
    student_close(&s);
}

TEST(several_teachers_predict_their_weighted_mean)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        check_mean(backends[b], SMALL, 0);
        check_mean(backends[b], CLASSES, 0);
        check_mean(backends[b], CLASSES, 1);
        check_mean(backends[b], CLASSES, 0.25f); /* the sharper, the further from the mean of logits */
    }
}

/** distill.batch_fraction: the first pictures are predicted as by a teacher of all, the others are left alone. */
TEST(a_teacher_may_predict_a_part_of_the_mini_batch)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student s;
        cod_teacher *teachers[2];
        student_open(&s, backends[b], SMALL);
        const cod_group_config peer = architecture_of(&s);
        const cod_view target = cod_executable_input(s.net.executable, "teacher");
        const size_t count = (size_t)cod_shape_count(target.shape);
        double *predicted[2] = {net_new(count), net_new(count)};
        float *values = floats_new(cod_weights_count(&s.net.weights)), loss;
        assert_ok(cod_weights_download(&s.net.weights, values));
        for (int64_t t = 0; t < 2; t++) {
            for (size_t i = 0; i < count; i++)
                predicted[t][i] = 7;
            assert_ok(net_write(&s.net, target, predicted[t]));
            const cod_teacher_spec spec = {.peer = &peer, .target = "teacher", .pictures = 2 - t};
            assert_ok(cod_teacher_create(&s.session, &spec, &teachers[t]));
            assert_ok(load_teacher(teachers[t], &s.net.weights, values));
            assert_ok(run_teacher(teachers[t], &loss));
            assert_ok(cod_teacher_give(teachers[t], 1));
            assert_ok(net_read(&s.net, target, predicted[t]));
        }
        for (size_t i = 0; i < count; i++) {
            const double expected = i < count / 2 ? predicted[0][i] : 7;
            assert_true(fabs(predicted[1][i] - expected) <= 1e-6 && fabs(predicted[0][i] - 7) > 1);
        }
        for (int t = 0; t < 2; t++) {
            cod_teacher_destroy(teachers[t]);
            free(predicted[t]);
        }
        free(values);
        student_close(&s);
    }
}

TEST(the_strength_of_a_merge_falls_with_its_delay)
{
    static const double alphas[] = {1, 0.5, 0.309016994374947};
    for (int d = 0; d < 3; d++)
        assert_true(fabs(cod_merge_alpha(d) - alphas[d]) < 1e-12);
    for (int d = 0; d < 100; d++)
        assert_true(cod_merge_alpha(d + 1) < cod_merge_alpha(d) && cod_merge_alpha(d + 1) > 0);
}

/** Merges values of the host, or of the device, and checks each bit, and that the host did not wait for the device. */
static void check_merge_of(cod_weights_merger *merger, cod_weights *weights, const float *peer, const float *own,
                           double alpha, double share, bool on_device)
{
    const size_t count = cod_weights_count(weights), trainable = weights->layout.trainable;
    float *before = floats_new(count), *after = floats_new(count);
    const uint64_t version = weights->sets[0].version, state_version = weights->sets[0].state_version;
    cod_buffer peer_here = held(peer, count), own_here = held(own, count);
    cod_buffer *peer_there = on_device ? there(weights, peer, count) : NULL,
               *own_there = on_device ? there(weights, own, count) : NULL;
    assert_ok(cod_weights_download(weights, before));
    const size_t crossings = cod_late_crossings();
    const cod_merge merge = {.peer = on_device ? peer_there : &peer_here,
                             .own = on_device     ? own_there
                                    : own != NULL ? &own_here
                                                  : NULL,
                             .alpha = alpha,
                             .share = share};
    assert_ok(cod_weights_merger_apply(merger, &merge, 1));
    assert_int_equal(cod_late_crossings(), crossings);
    assert_true(weights->sets[0].version > version && weights->sets[0].state_version > state_version);
    assert_ok(cod_weights_download(weights, after));
    for (size_t i = 0; i < count; i++) {
        const float factor = (float)(i < trainable ? alpha * share : share);
        const float from = i < trainable && own != NULL ? own[i] : before[i];
        const float change = factor * (peer[i] - from);
        assert_true(after[i] == before[i] + change);
    }
    assert_ok(cod_weights_upload(weights, before));
    if (peer_there != NULL)
        weights->backend->buffer_destroy(weights->device, peer_there);
    if (own_there != NULL)
        weights->backend->buffer_destroy(weights->device, own_there);
    free(before);
    free(after);
}

static void check_merge(cod_weights_merger *merger, cod_weights *weights, const float *peer, const float *own,
                        double alpha, double share)
{
    check_merge_of(merger, weights, peer, own, alpha, share, false);
    if (!cod_backend_runs_at_once(weights->backend))
        check_merge_of(merger, weights, peer, own, alpha, share, true);
}

/** Merges of one call give the bits of a call for each; models are larger than a block of them. */
static void check_merges_together(cod_weights_merger *merger, cod_weights *weights, const float *peer, const float *own)
{
    const size_t count = cod_weights_count(weights);
    float *before = floats_new(count), *together = floats_new(count), *alone = floats_new(count);
    cod_buffer theirs = held(peer, count), ours = held(own, count);
    const cod_merge merges[] = {
        {0, &theirs, &ours, 0.5, 1.0 / 3}, {0, &theirs, NULL, 1, 0.25}, {0, &ours, &theirs, 1, 0.5}};
    assert_true(count > 5000);
    assert_ok(cod_weights_download(weights, before));
    assert_ok(cod_weights_merger_apply(merger, merges, 3));
    assert_ok(cod_weights_download(weights, together));
    assert_ok(cod_weights_upload(weights, before));
    for (int k = 0; k < 3; k++)
        assert_ok(cod_weights_merger_apply(merger, &merges[k], 1));
    assert_ok(cod_weights_download(weights, alone));
    assert_memory_equal(together, alone, count * sizeof *alone);
    assert_ok(cod_weights_upload(weights, before));
    free(before);
    free(together);
    free(alone);
}

TEST(a_merge_moves_weights_by_the_difference_and_statistics_toward_the_peer)
{
    const cod_backend *const backends[] = {&cod_ref_backend, &cod_cpu_backend};
    for (size_t b = 0; b < 2; b++) {
        student s;
        cod_weights_merger *merger;
        student_open(&s, backends[b], LARGE);
        cod_weights *weights = &s.net.weights;
        const size_t count = cod_weights_count(weights), trainable = weights->layout.trainable;
        float *before = floats_new(count), *own = floats_new(count), *peer = floats_new(count),
              *after = floats_new(count);
        assert_true(weights->layout.state > 0);
        assert_ok(cod_weights_merger_create(weights, COD_ALL_SETS, NULL, 0, &merger));
        for (int d = 0; d < 3; d++) {
            const double alpha = cod_merge_alpha(d), share = d == 0 ? 0.5 : 1.0 / 3;
            assert_ok(cod_weights_download(weights, before));
            for (size_t i = 0; i < count; i++) {
                own[i] = before[i] - 0.01f * (float)(i % 3);
                peer[i] = 0.5f * before[i] + 0.02f * (float)(i % 11);
            }
            check_merge(merger, weights, peer, own, alpha, share);
        }
        /* Without delay and coding, two groups meet at their mean; equal publications move nothing. */
        assert_ok(cod_weights_download(weights, before));
        cod_buffer theirs = held(peer, count), ours = held(before, count);
        assert_ok(
            cod_weights_merger_apply(merger, &(cod_merge){.peer = &theirs, .own = &ours, .alpha = 1, .share = 0.5}, 1));
        assert_ok(cod_weights_download(weights, after));
        for (size_t i = 0; i < count; i++)
            assert_true(fabs((double)after[i] - 0.5 * ((double)before[i] + (double)peer[i])) <= 1e-5);
        assert_ok(cod_weights_merger_apply(merger,
                                           &(cod_merge){.peer = &theirs, .own = &theirs, .alpha = 1, .share = 0.5}, 1));
        assert_ok(cod_weights_download(weights, before));
        assert_memory_equal(after, before, trainable * sizeof(float));
        /* Without one's own publication it is a plain average. */
        check_merge(merger, weights, peer, NULL, 1, 0.25);
        check_merge(merger, weights, peer, NULL, 0.5, 1.0 / 3);
        check_merge(merger, weights, peer, NULL, 1, 0.25);
        check_merges_together(merger, weights, peer, own);
        free(before);
        free(own);
        free(peer);
        free(after);
        cod_weights_merger_destroy(merger);
        student_close(&s);
    }
}

/** Ranges that are merged one after another make the merge of all, and each leaves what is outside it. */
TEST(ranges_are_merged_by_themselves)
{
    student s;
    cod_weights_merger *whole, *cut;
    student_open(&s, &cod_ref_backend, SMALL);
    cod_weights *weights = &s.net.weights;
    const size_t count = cod_weights_count(weights), trainable = weights->layout.trainable;
    const size_t ends[] = {trainable / 3, trainable + 1, count};
    float *before = floats_new(count), *own = floats_new(count), *peer = floats_new(count), *all = floats_new(count),
          *after = floats_new(count);
    assert_ok(cod_weights_merger_create(weights, COD_ALL_SETS, NULL, 0, &whole));
    assert_ok(cod_weights_merger_create(weights, COD_ALL_SETS, ends, 3, &cut));
    assert_ok(cod_weights_download(weights, before));
    for (size_t i = 0; i < count; i++) {
        own[i] = before[i] - 0.01f * (float)(i % 3);
        peer[i] = 0.5f * before[i] + 0.02f * (float)(i % 11);
    }
    cod_buffer theirs = held(peer, count), ours = held(own, count);
    assert_ok(
        cod_weights_merger_apply(whole, &(cod_merge){.peer = &theirs, .own = &ours, .alpha = 0.5, .share = 0.25}, 1));
    assert_ok(cod_weights_download(weights, all));
    assert_ok(cod_weights_upload(weights, before));
    for (size_t f = 0, first = 0; f < 3; first = ends[f++]) {
        cod_buffer part = held(peer + first, ends[f] - first), beside = held(own + first, ends[f] - first);
        assert_ok(cod_weights_merger_apply(
            cut, &(cod_merge){.range = f, .peer = &part, .own = &beside, .alpha = 0.5, .share = 0.25}, 1));
        assert_ok(cod_weights_download(weights, after));
        assert_memory_equal(after, all, ends[f] * sizeof(float));
        assert_memory_equal(after + ends[f], before + ends[f], (count - ends[f]) * sizeof(float));
    }
    cod_weights_merger_destroy(whole);
    cod_weights_merger_destroy(cut);
    free(before);
    free(own);
    free(peer);
    free(all);
    free(after);
    student_close(&s);
}
