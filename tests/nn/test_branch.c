/* A teacher predicts in a queue beside the student's forward pass: order, bits, and what is recorded. */
#include "support/test.h"

#include "core/branch.h"
#include "core/queue.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/late.h"

#include <stdlib.h>

enum { STEPS = 3, BACKENDS = 2 };

/** What a step leaves out. */
typedef enum fault { NONE, NO_FORK, NO_AWAIT } fault;

typedef struct pair {
    cod_arena arena;
    cod_model model, teaching_model;
    cod_value loss, lesson;
    test_net student;
    cod_branch branch;
    cod_weights weights; /**< of the teacher, on the student's device */
    cod_executable *teacher;
    cod_plan *take, *give;
} pair;

static size_t captures;
static cod_backend counting; /**< late, which counts its captures */

static cod_status count_capture(cod_device *device, cod_queue *queue)
{
    captures++;
    return cod_late_wrap(&cod_ref_backend)->capture_begin(device, queue);
}

static const cod_backend *backend_at(int i)
{
    counting = *cod_late_wrap(&cod_ref_backend);
    counting.capture_begin = count_capture;
    return i == 0 ? &cod_ref_backend : &counting;
}

static cod_status copy_plan(const pair *p, cod_view from, cod_view to, cod_plan **plan)
{
    const cod_op op = {.kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "copy"};
    return p->student.backend->plan_create(p->student.device, &op, plan);
}

static void open_student(pair *p, const cod_backend *backend)
{
    static const char options_text[] = "blocks=2 channels=8 scale=2 head_kernel=3 tail_kernel=3";
    assert_ok(net_model("srresnet", options_text, &p->arena, &p->model));
    assert_ok(net_model("srresnet", options_text, &p->arena, &p->teaching_model));
    cod_graph *graph = p->model.graph;
    p->loss = cod_graph_loss(graph, "task", p->model.output, cod_graph_input_like(graph, "target", p->model.output),
                             (cod_loss_spec){.kind = COD_LOSS_L1});
    p->lesson =
        cod_graph_loss(graph, "lesson", p->model.output, cod_graph_input_like(graph, "teacher", p->model.output),
                       (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 0.5f});
    const cod_input_shape shape = {"input", {2, 6, 5, 3}};
    const cod_compile_options options = {
        .activation = COD_F32, .inputs = &shape, .input_count = 1, .bucket_bytes = 4096};
    const cod_program_spec spec = {
        .name = "distil", .trains = "model", .losses = {p->loss, p->lesson}, .awaited = "teacher"};
    assert_ok(net_init(&p->student, backend, graph, &options, &spec, 1, 5));
}

static void open_pair(pair *p, const cod_backend *backend)
{
    *p = (pair){0};
    open_student(p, backend);
    cod_device *device = p->student.device;
    assert_ok(cod_branch_init(&p->branch, backend, device));
    assert_ok(cod_weights_init(&p->weights, backend, device, p->teaching_model.graph, COD_F32, false));
    assert_ok(cod_weights_fill_initial(&p->weights, 9));
    const cod_input_shape shape = {"input", {2, 6, 5, 3}};
    const cod_compile_options options = {
        .activation = COD_F32, .inputs = &shape, .input_count = 1, .queue = p->branch.queue};
    const cod_program_spec spec = {.name = "predict", .outputs = {p->teaching_model.output}};
    assert_ok(cod_compile(p->teaching_model.graph, &p->weights, &options, &spec, 1, &p->teacher));
    assert_ok(copy_plan(p, cod_executable_input(p->student.executable, "input"),
                        cod_executable_input(p->teacher, "input"), &p->take));
    assert_ok(copy_plan(p, cod_executable_output(p->teacher, p->teaching_model.output),
                        cod_executable_input(p->student.executable, "teacher"), &p->give));
}

static void close_pair(pair *p)
{
    p->student.backend->plan_destroy(p->take);
    p->student.backend->plan_destroy(p->give);
    cod_executable_destroy(p->teacher);
    cod_weights_clear(&p->weights);
    cod_branch_clear(&p->branch);
    net_clear(&p->student);
    cod_model_clear(&p->model);
    cod_model_clear(&p->teaching_model);
    cod_arena_clear(&p->arena);
}

static cod_status step(pair *p, fault left_out, cod_bucket_ready ready, void *context)
{
    const cod_backend *backend = p->student.backend;
    cod_program *program = cod_executable_program(p->student.executable, "distil");
    cod_event *predicted;
    if (left_out != NO_FORK)
        COD_TRY(cod_branch_fork(&p->branch));
    COD_TRY(backend->plan_run(p->take, p->branch.queue));
    COD_TRY(cod_program_run(cod_executable_program(p->teacher, "predict"), NULL, NULL));
    COD_TRY(backend->plan_run(p->give, p->branch.queue));
    COD_TRY(cod_branch_join(&p->branch, &predicted));
    if (left_out != NO_AWAIT)
        cod_program_await(program, predicted);
    return cod_program_run(program, ready, context);
}

TEST(both_run_to_the_bits_of_ref)
{
    double *grads[BACKENDS];
    size_t count = 0;
    for (int i = 0; i < BACKENDS; i++) {
        pair p;
        open_pair(&p, backend_at(i));
        for (int s = 1; s <= STEPS; s++) {
            assert_ok(net_random_inputs(&p.student, (uint64_t)s));
            assert_ok(step(&p, NONE, NULL, NULL));
        }
        count = p.student.weights.layout.trainable;
        grads[i] = net_new(count);
        assert_ok(net_read_grads(&p.student, grads[i]));
        close_pair(&p);
        cod_test_assert_none(cod_late_violations, "on late");
    }
    assert_memory_equal(grads[0], grads[1], count * sizeof(double));
    free(grads[0]), free(grads[1]);
}

/**
 * Without the fork the teacher may read a mini-batch that is still to come; without the wait the student a prediction.
 */
TEST(an_order_left_out_is_found)
{
    for (fault f = NO_FORK; f <= NO_AWAIT; f++) {
        pair p;
        char first[512];
        open_pair(&p, backend_at(1));
        for (int s = 1; s <= STEPS; s++) {
            assert_ok(net_random_inputs(&p.student, (uint64_t)s));
            assert_ok(step(&p, f, NULL, NULL));
        }
        close_pair(&p);
        if (cod_late_violations(first, sizeof first) == 0)
            fail_msg("fault %d was not found", (int)f);
    }
}

static cod_status ignore_bucket(void *context, size_t index, cod_event *complete)
{
    (void)index, (void)complete;
    ++*(size_t *)context;
    return COD_OK;
}

/**
 * The teacher's program is one recording; the student's is cut where it waits, and where buckets are signalled to
 * somebody.
 */
TEST(programs_are_cut_where_the_host_acts)
{
    pair p;
    size_t buckets = 0;
    open_pair(&p, backend_at(1));
    cod_program *program = cod_executable_program(p.student.executable, "distil");
    assert_ok(net_random_inputs(&p.student, 1));
    captures = 0;
    for (int s = 0; s < STEPS; s++)
        assert_ok(step(&p, NONE, NULL, NULL));
    assert_int_equal(captures, 1 + 2);
    captures = 0;
    for (int s = 0; s < STEPS; s++)
        assert_ok(cod_program_run(program, NULL, NULL));
    assert_int_equal(captures, 1);
    captures = 0;
    for (int s = 0; s < STEPS; s++)
        assert_ok(cod_program_run(program, ignore_bucket, &buckets));
    assert_true(cod_program_bucket_count(program) > 2);
    assert_int_equal(buckets, STEPS * cod_program_bucket_count(program));
    assert_true(captures <= cod_program_bucket_count(program) + 1);
    close_pair(&p);
    cod_test_assert_none(cod_late_violations, "on late");
}

/** Other weights, as after a pull, need no new recording. */
TEST(a_switch_of_weights_needs_no_new_recording)
{
    pair p;
    open_pair(&p, backend_at(1));
    assert_ok(net_random_inputs(&p.student, 1));
    assert_ok(step(&p, NONE, NULL, NULL));
    captures = 0;
    for (int s = 0; s < STEPS; s++) {
        assert_ok(cod_weights_fill_initial(&p.weights, (uint64_t)s));
        assert_ok(step(&p, NONE, NULL, NULL));
    }
    assert_int_equal(captures, 0);
    close_pair(&p);
    cod_test_assert_none(cod_late_violations, "on late");
}
