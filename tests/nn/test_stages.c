/*
 * Stages of a graph, run one after another with what passes handed over, against the whole graph: losses, gradients and
 * statistics bit for bit, over two mini-batches whose gradients are added up, at every cut and at pairs of cuts. Plans
 * of several ops never go across a cut; where the whole has one that does, its normalisation may have rounded its
 * halves, but not in f64.
 */
#include "support/test.h"

#include "core/rng.h"
#include "cpu/cpu.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/late.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 2, STAGES_MAX = 3 };

typedef struct staged_model {
    const char *kind, *options;
    cod_shape input;
    cod_loss_kind loss;
} staged_model;

static const staged_model models[] = {
    {"srresnet", "blocks=2 channels=16 scale=2 head_kernel=3 tail_kernel=3", {2, 6, 5, 3}, COD_LOSS_L1},
    {"srresnet",
     "blocks=2 channels=4 scale=3 norm=none skip=bicubic upsampler=once head_kernel=3 tail_kernel=3 activation=relu",
     {2, 5, 4, 3},
     COD_LOSS_CHARBONNIER},
    {"compact", "num_feat=4 num_conv=2 scale=3", {2, 5, 4, 3}, COD_LOSS_MSE},
    {"mlp", "height=3 width=2 channels=2 classes=3 hidden=9,8 activation=prelu", {5, 3, 2, 2}, COD_LOSS_CROSS_ENTROPY},
    {"cnn", "height=6 width=5 channels=2 classes=3 stages=3,4 hidden=5", {4, 6, 5, 2}, COD_LOSS_CROSS_ENTROPY},
    {"resnet18", "height=9 width=8 channels=3 classes=3 features=2", {3, 9, 8, 3}, COD_LOSS_CROSS_ENTROPY},
};

/** A stage, or the whole, on a device of its own. */
typedef struct runner {
    const cod_backend *backend;
    cod_device *device;
    cod_weights weights;
    cod_executable *executable;
    cod_stage_range own[2]; /**< trainable, states */
} runner;

/** A graph of the model with a target and a loss. */
typedef struct network {
    cod_arena arena;
    cod_model model;
    cod_value loss;
} network;

static void network_open(network *n, const staged_model *which)
{
    *n = (network){0};
    assert_ok(net_model(which->kind, which->options, &n->arena, &n->model));
    const cod_value target = cod_graph_input_like(n->model.graph, "target", n->model.output);
    n->loss = cod_graph_loss(n->model.graph, "loss", n->model.output, target,
                             (cod_loss_spec){.kind = which->loss, .weight = 0.5f});
    assert_ok(cod_graph_status(n->model.graph));
}

static void network_close(network *n)
{
    cod_model_clear(&n->model);
    cod_arena_clear(&n->arena);
}

static void runner_open(runner *r, const network *n, const staged_model *which, const cod_backend *backend,
                        cod_dtype activation, cod_stage stage)
{
    *r = (runner){.backend = backend};
    cod_graph *graph = n->model.graph;
    const cod_input_shape input = {"input", which->input};
    const cod_compile_options options = {
        .activation = activation, .inputs = &input, .input_count = 1, .bucket_bytes = 64, .deterministic = true};
    const cod_program_spec specs[] = {
        {.name = "first", .trains = "model", .losses = {n->loss}, .stage = stage},
        {.name = "later", .trains = "model", .losses = {n->loss}, .stage = stage, .accumulate = true}};
    assert_ok(backend->open(&(cod_device_options){.threads = 1, .no_autotune = true}, &r->device));
    assert_ok(
        cod_weights_init(&r->weights, backend, r->device, graph, activation == COD_F64 ? COD_F64 : COD_F32, true));
    assert_ok(cod_weights_fill_initial(&r->weights, 7));
    assert_ok(cod_compile(graph, &r->weights, &options, specs, 2, &r->executable));
    for (int state = 0; state < 2; state++)
        assert_ok(cod_stage_find_range(graph, &r->weights.layout, &stage, state != 0, &r->own[state]));
}

static void runner_close(runner *r)
{
    cod_executable_destroy(r->executable);
    cod_weights_clear(&r->weights);
    r->backend->close(r->device);
}

static void set_inputs(const runner *r, int batch)
{
    static const char *const names[] = {"input", "target"};
    for (uint32_t i = 0; i < 2; i++) {
        const cod_view view = cod_executable_input(r->executable, names[i]);
        cod_rng rng = cod_rng_open((uint64_t)batch, 0, 0, 0, COD_RNG_TEST, i);
        const size_t bytes = cod_view_span_bytes(&view);
        void *values = malloc(bytes);
        for (int64_t k = 0; k < cod_shape_count(view.shape); k++) {
            const double value = fabs(cod_rng_normal(&rng));
            if (view.dtype == COD_F64)
                ((double *)values)[k] = value;
            else
                ((float *)values)[k] = (float)value;
        }
        assert_ok(r->backend->upload(r->device, NULL, view.buffer, view.offset, values, bytes));
        free(values);
    }
}

static void copy(const runner *source, const cod_view *from, const runner *target, const cod_view *to)
{
    const size_t bytes = cod_view_span_bytes(from);
    void *values = malloc(bytes);
    assert_true(from->dtype == to->dtype && cod_shape_equal(from->shape, to->shape));
    assert_ok(source->backend->download(source->device, NULL, values, from->buffer, from->offset, bytes));
    assert_ok(target->backend->upload(target->device, NULL, to->buffer, to->offset, values, bytes));
    free(values);
}

static cod_status count_bucket(void *context, size_t index, cod_event *complete)
{
    (void)complete;
    (void)index;
    ++*(size_t *)context;
    return COD_OK;
}

/** One mini-batch through all stages and back. @return the loss */
static float run_stages(runner *stages, int count, cod_value loss, const char *name)
{
    cod_program *programs[STAGES_MAX];
    size_t passing, other, buckets;
    float value;
    for (int s = 0; s < count; s++) {
        programs[s] = cod_executable_program(stages[s].executable, name);
        for (size_t i = 0; s > 0 && i < (cod_program_taken(programs[s], &passing), passing); i++) {
            const cod_passing *from = cod_program_handed(programs[s - 1], &other);
            const cod_passing *to = cod_program_taken(programs[s], &passing);
            assert_int_equal(passing, other);
            assert_int_equal(from[i].value, to[i].value);
            copy(&stages[s - 1], &from[i].values, &stages[s], &to[i].values);
        }
        assert_ok(cod_program_run_forward(programs[s]));
    }
    for (int s = count; s-- > 0;) {
        buckets = 0;
        assert_ok(cod_program_run_backward(programs[s], count_bucket, &buckets));
        assert_int_equal(buckets, cod_program_bucket_count(programs[s]));
        for (size_t i = 0; s > 0 && i < (cod_program_taken(programs[s], &passing), passing); i++) {
            const cod_passing *from = cod_program_taken(programs[s], &passing);
            const cod_passing *to = cod_program_handed(programs[s - 1], &other);
            assert_int_equal(from[i].gradient.buffer != NULL, to[i].gradient.buffer != NULL);
            if (from[i].gradient.buffer != NULL)
                copy(&stages[s], &from[i].gradient, &stages[s - 1], &to[i].gradient);
        }
    }
    assert_ok(cod_executable_loss(stages[count - 1].executable, loss, &value));
    return value;
}

static void run_whole(runner *whole, cod_value loss, float losses[BATCHES])
{
    for (int b = 0; b < BATCHES; b++) {
        set_inputs(whole, b);
        assert_ok(cod_program_run(cod_executable_program(whole->executable, b > 0 ? "later" : "first"), NULL, NULL));
        assert_ok(cod_executable_loss(whole->executable, loss, &losses[b]));
    }
}

/** Whether the gradients, or else the values, of a range are the same. */
static bool equal_range(const runner *a, const runner *b, bool grads, const cod_stage_range *range)
{
    const runner *runners[] = {a, b};
    const size_t element = cod_dtype_bytes(a->weights.dtype), bytes = range->count * element;
    char *values = malloc(2 * bytes + 1);
    for (size_t i = 0; i < 2; i++) {
        const runner *r = runners[i];
        assert_ok(r->backend->download(r->device, NULL, values + i * bytes,
                                       grads ? r->weights.grads : r->weights.values, range->first * element, bytes));
    }
    const bool equal = memcmp(values, values + bytes, bytes) == 0;
    free(values);
    return equal;
}

/** Stages that begin at the given nodes, against the whole. */
static void check_cuts(const network *n, const staged_model *which, const cod_backend *backend, cod_dtype activation,
                       const runner *whole, const float losses[BATCHES], const size_t *cuts, int count)
{
    runner stages[STAGES_MAX];
    size_t covered = 0;
    for (int s = 0; s < count; s++)
        runner_open(&stages[s], n, which, backend, activation, (cod_stage){cuts[s], cuts[s + 1]});
    for (int b = 0; b < BATCHES; b++) {
        for (int s = 0; s < count; s++)
            set_inputs(&stages[s], b);
        const float loss = run_stages(stages, count, n->loss, b > 0 ? "later" : "first");
        assert_memory_equal(&loss, &losses[b], sizeof loss);
    }
    for (int s = 0; s < count; s++) {
        assert_int_equal(stages[s].own[0].first, covered);
        covered += stages[s].own[0].count;
        if (!equal_range(&stages[s], whole, true, &stages[s].own[0]))
            fail_msg("%s cut at node %zu: other gradients in stage %d on '%s'", which->kind, cuts[1], s, backend->name);
        if (!equal_range(&stages[s], whole, false, &stages[s].own[1]))
            fail_msg("%s cut at node %zu: other statistics in stage %d", which->kind, cuts[1], s);
        runner_close(&stages[s]);
    }
    assert_int_equal(covered, whole->weights.layout.trainable);
}

static void check_model(const staged_model *which, const cod_backend *backend, cod_dtype activation)
{
    network n;
    runner whole;
    float losses[BATCHES];
    size_t tried = 0;
    network_open(&n, which);
    const cod_graph *graph = n.model.graph;
    const size_t nodes = cod_graph_node_count(graph);
    runner_open(&whole, &n, which, backend, activation, (cod_stage){0, 0});
    run_whole(&whole, n.loss, losses);
    for (size_t cut = 2; cut < nodes; cut++) {
        if (!cod_stage_may_begin(graph, cut))
            continue;
        check_cuts(&n, which, backend, activation, &whole, losses, (size_t[]){0, cut, nodes}, 2);
        tried++;
        for (size_t next = cut + 1, found = 0; next < nodes && found < 1; next++)
            if (cod_stage_may_begin(graph, next)) {
                check_cuts(&n, which, backend, activation, &whole, losses, (size_t[]){0, cut, next, nodes}, 3);
                found++;
            }
    }
    assert_true(tried >= 2);
    runner_close(&whole);
    network_close(&n);
}

static bool has_bf16(void)
{
    cod_device *device;
    assert_ok(cod_cpu_backend.open(NULL, &device));
    const bool has = cod_cpu_backend.supports(device, COD_BF16);
    cod_cpu_backend.close(device);
    return has;
}

TEST(stages_equal_the_whole)
{
    cod_backend one_by_one = cod_ref_backend;
    one_by_one.op_fuses = NULL;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        check_model(&models[m], &cod_ref_backend, COD_F64);
        check_model(&models[m], &one_by_one, COD_F32);
        check_model(&models[m], &one_by_one, COD_BF16);
        check_model(&models[m], &cod_cpu_backend, COD_F32);
        if (has_bf16())
            check_model(&models[m], &cod_cpu_backend, COD_BF16);
        check_model(&models[m], cod_late_wrap(&cod_cpu_backend), COD_F32);
        assert_int_equal(cod_late_violations(NULL, 0), 0);
    }
}

TEST(weights_on_both_sides_are_refused)
{
    cod_graph *graph;
    cod_stage_range range;
    assert_ok(cod_graph_create(&graph));
    cod_value x = cod_graph_input(graph, "input", 4);
    x = cod_graph_linear(graph, "one", x, 4, false);
    x = cod_graph_linear(graph, "two", x, 4, false);
    x = cod_graph_linear(graph, "one", x, 4, false);
    assert_ok(cod_graph_status(graph));
    const cod_layout layout = cod_graph_layout(graph);
    assert_fails(COD_ERR_ARGUMENT, "'one.weight' is used on both sides of a cut",
                 cod_stage_find_range(graph, &layout, &(cod_stage){0, 2}, false, &range));
    assert_ok(cod_stage_find_range(graph, &layout, &(cod_stage){0, 4}, false, &range));
    cod_graph_destroy(graph);
}

TEST(bad_stages_are_refused)
{
    static const struct {
        cod_stage stage;
        const char *words;
    } cases[] = {{{3, 2}, "no nodes are from 3 to 2"},
                 {{0, 99}, "no nodes are from 0 to 99"},
                 {{1, 4}, "a stage begins with a layer that has weights"}};
    network n;
    runner r = {.backend = &cod_ref_backend};
    network_open(&n, &models[3]);
    assert_ok(r.backend->open(NULL, &r.device));
    assert_ok(cod_weights_init(&r.weights, r.backend, r.device, n.model.graph, COD_F32, true));
    const cod_input_shape input = {"input", models[3].input};
    const cod_compile_options options = {.activation = COD_F32, .inputs = &input, .input_count = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_program_spec spec = {.name = "p", .trains = "model", .losses = {n.loss}, .stage = cases[i].stage};
        assert_fails(COD_ERR_ARGUMENT, cases[i].words,
                     cod_compile(n.model.graph, &r.weights, &options, &spec, 1, &r.executable));
    }
    runner_close(&r);
    network_close(&n);
}
