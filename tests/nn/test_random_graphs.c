/*
 * Random graphs: values shared at will, nested concatenations, sums of anything, means, shifts, stops, losses between
 * two values. Fused and op by op they give the same gradients, which differences confirm, and the paranoid backend sees
 * no op read or write what it should not. Where values are recomputed, or few gradients of weights wait for each other,
 * gradients are the same to the bits.
 */
#include "support/test.h"

#include "core/rng.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES = 14, MAX_PARTS = 4 };
#ifdef __SANITIZE_ADDRESS__
enum { GRAPHS = 150, CHECKED = 40 };
#else
enum { GRAPHS = 600, CHECKED = 150 };
#endif

typedef struct random_graph {
    cod_graph *graph;
    cod_value values[NODES + 1];
    int64_t channels[NODES + 1];
    int count;
    bool stops; /**< may hold stop-gradients, which differences do not know */
    cod_rng rng;
} random_graph;

static int pick(random_graph *r)
{
    /* Mostly recent values, so that graphs are deep, but any may be taken again. */
    const uint32_t n = (uint32_t)r->count;
    return (int)(cod_rng_below(&r->rng, 3) ? n - 1 - cod_rng_below(&r->rng, n < 3 ? n : 3) : cod_rng_below(&r->rng, n));
}

/** A value with as many channels as value `like`, other than it where there is one. */
static int pick_like(random_graph *r, int like)
{
    int found = like;
    for (int i = 0; i < r->count; i++)
        if (r->channels[i] == r->channels[like] && cod_rng_below(&r->rng, 2))
            found = i;
    return found;
}

static cod_value random_concat(random_graph *r, int64_t *channels)
{
    cod_value parts[MAX_PARTS];
    const int count = 1 + (int)cod_rng_below(&r->rng, MAX_PARTS);
    *channels = 0;
    for (int i = 0; i < count; i++) {
        const int part = pick(r);
        parts[i] = r->values[part];
        *channels += r->channels[part];
    }
    return cod_graph_concat(r->graph, parts, count);
}

static cod_value random_affine(random_graph *r, cod_value x, int64_t channels)
{
    double shift[64];
    assert_true(channels <= 64);
    for (int64_t c = 0; c < channels; c++)
        shift[c] = cod_rng_uniform(&r->rng) - 0.5;
    return cod_graph_affine(r->graph, x, cod_rng_below(&r->rng, 2) ? 1 : -0.5, shift);
}

static void add_node(random_graph *r)
{
    char name[16];
    const int at = pick(r);
    const cod_value x = r->values[at];
    int64_t channels = r->channels[at];
    cod_value y = 0;
    snprintf(name, sizeof name, "layer%d", r->count);
    switch (cod_rng_below(&r->rng, channels > 12 ? 3 : 11)) {
    case 0:
    case 1:
    case 2:
        channels = 2 + cod_rng_below(&r->rng, 2);
        y = cod_graph_conv2d(
            r->graph, name, x,
            (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1, .no_bias = r->count % 2 == 0});
        break;
    case 3:
        y = cod_graph_norm(r->graph, name, x);
        break;
    case 4:
        y = cod_graph_prelu(r->graph, name, x, r->count % 2 == 0);
        break;
    case 5: {
        static const cod_activation kinds[] = {COD_ACT_RELU, COD_ACT_LEAKY_RELU, COD_ACT_SIGMOID, COD_ACT_TANH};
        y = cod_graph_activation(r->graph, x, kinds[cod_rng_below(&r->rng, 4)], 0.3f);
        break;
    }
    case 6:
        y = cod_graph_add(r->graph, x, r->values[pick_like(r, at)]);
        break;
    case 7:
        y = cod_graph_scaled_add(r->graph, cod_rng_below(&r->rng, 2) ? 1 : 0.5f, x, cod_rng_below(&r->rng, 2) ? 1 : -2,
                                 r->values[pick_like(r, at)]);
        break;
    case 8:
        y = r->count % 2 == 0 ? cod_graph_mean(r->graph, x) : random_affine(r, x, channels);
        break;
    case 9:
        if (r->stops && cod_rng_below(&r->rng, 4) == 0) {
            y = cod_graph_stop_gradient(r->graph, x);
            break;
        } /* fall through */
    default:
        y = random_concat(r, &channels);
    }
    r->values[r->count] = y;
    r->channels[r->count++] = channels;
}

/** Ends in a linear layer behind a flatten, so that some parameter is always trained, and a loss in the middle. */
static cod_graph *random_graph_build(uint64_t seed, cod_program_spec *spec)
{
    random_graph r = {.rng = cod_rng_open(seed, 7, 0, 0, COD_RNG_TEST, 0), .count = 1, .stops = seed >= CHECKED};
    assert_ok(cod_graph_create(&r.graph));
    r.values[0] = cod_graph_input(r.graph, "input", 2);
    r.channels[0] = 2;
    while (r.count <= NODES)
        add_node(&r);
    const cod_value flat = cod_graph_flatten(r.graph, r.values[NODES], 3, 4);
    const cod_value ends[] = {cod_graph_linear(r.graph, "end", flat, 3, false), r.values[NODES - 4]};
    for (size_t i = 0; i < 2; i++) {
        const cod_value target = cod_graph_input_like(r.graph, i ? "middle" : "target", ends[i]);
        spec->losses[i] = spec->outputs[i] =
            cod_graph_loss(r.graph, "loss", ends[i], target, (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 0.5f});
    }
    const int other = pick_like(&r, NODES - 4);
    if (seed % 2 && r.values[other] != ends[1])
        spec->losses[2] = spec->outputs[4] =
            cod_graph_loss(r.graph, "pair", ends[1], r.values[other],
                           (cod_loss_spec){.kind = COD_LOSS_MSE, .weight = 0.25f, .target_gradient = true});
    if (seed % 3 == 0)
        spec->outputs[2] = r.values[NODES / 2];
    if (seed % 5 == 0)
        spec->outputs[3] = r.values[NODES];
    assert_ok(cod_graph_status(r.graph));
    return r.graph;
}

/** Ops whose contract in core/backend.h lets them write where they read. */
static bool may_replace(cod_op_kind kind, size_t input, size_t output)
{
    const bool first = kind == COD_OP_ACTIVATION || kind == COD_OP_ADD;
    const bool second = kind == COD_OP_ACTIVATION_BACKWARD || kind == COD_OP_NORM_BACKWARD_REDUCE;
    return output == 0 && ((first && input == 0) || (second && input == 1));
}

/** Outputs of the graphs so far that took an input's place. */
static size_t replaced;

/** The memory plan lets no other op write where it reads: backends may do it in any order. */
static void assert_writes_apart(test_net *net, const char *program, uint64_t seed)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    for (size_t i = 0; i < net_plans(net, program); i++) {
        for (size_t k = 0; k < cod_program_op_parts(found, i) * COD_OP_MAX_OUTPUTS; k++) {
            const size_t out = k % COD_OP_MAX_OUTPUTS;
            cod_op op;
            cod_program_op_part(found, i, k / COD_OP_MAX_OUTPUTS, &op);
            for (size_t in = 0; in < COD_OP_MAX_INPUTS; in++) {
                const bool replaces = may_replace(op.kind, in, out) && cod_view_equal(&op.outputs[out], &op.inputs[in]);
                replaced += replaces && op.kind != COD_OP_NORM_BACKWARD_REDUCE;
                if (cod_views_overlap(&op.outputs[out], &op.inputs[in]) && !replaces)
                    fail_msg("seed %llu: plan %zu, %s '%s': output %zu overlaps input %zu", (unsigned long long)seed, i,
                             cod_op_kind_name(op.kind), op.name, out, in);
            }
        }
    }
}

/** What one way to compile gives. */
typedef struct results {
    double *grads; /**< [count]; new */
    size_t count, plans;
    cod_compile_memory memory;
} results;

/** @param options  the way; the rest is filled in here */
static results gradients(cod_graph *graph, const cod_program_spec *spec, const cod_backend *backend,
                         cod_compile_options options, bool differences, uint64_t seed)
{
    const cod_input_shape shape = {"input", {2, 3, 4, 2}};
    results r = {0};
    test_net net;
    net_check check;
    options.activation = COD_F64;
    options.inputs = &shape;
    options.input_count = 1;
    options.memory = &r.memory;
    assert_ok(net_init(&net, backend, graph, &options, spec, 1, seed));
    assert_writes_apart(&net, spec->name, seed);
    if (differences)
        assert_ok(net_check_gradients(&net, spec, seed, &check));
    assert_ok(net_run(&net, spec->name));
    r.count = net.weights.layout.trainable;
    r.plans = net_plans(&net, spec->name);
    r.grads = net_new(r.count);
    assert_ok(net_read_grads(&net, r.grads));
    net_clear(&net);
    return r;
}

static void require_no_violation(uint64_t seed)
{
    cod_test_assert_none(cod_paranoid_violations, "seed %llu", (unsigned long long)seed);
}

/** The same bits in less memory, or in as much with nothing made again. @return whether in less */
static bool check_recomputing(cod_graph *graph, const cod_program_spec *spec, const results *kept, uint64_t seed)
{
    const cod_compile_options options = {.recompute = true, .gradient_bytes = seed % 3 == 0 ? 0 : 1 + seed % 5000};
    const cod_compile_options waiting = {.gradient_bytes = options.gradient_bytes};
    results few = gradients(graph, spec, cod_paranoid_wrap(&cod_ref_backend), waiting, false, seed);
    require_no_violation(seed);
    results again = gradients(graph, spec, cod_paranoid_wrap(&cod_ref_backend), options, seed < CHECKED, seed);
    require_no_violation(seed);
    for (size_t i = 0; i < kept->count; i++)
        if (!(kept->grads[i] == few.grads[i] && few.grads[i] == again.grads[i]))
            fail_msg("seed %llu, gradient %zu: %.17g, where few gradients wait %.17g, recomputed %.17g",
                     (unsigned long long)seed, i, kept->grads[i], few.grads[i], again.grads[i]);
    const bool less = again.plans > few.plans;
    if (again.memory.arena > few.memory.arena || (!less && again.memory.arena != few.memory.arena))
        fail_msg("seed %llu: %zu bytes of %zu plans, recomputed %zu of %zu", (unsigned long long)seed, few.memory.arena,
                 few.plans, again.memory.arena, again.plans);
    free(few.grads), free(again.grads);
    return less;
}

TEST(random_graphs_have_right_gradients)
{
    size_t recomputed = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        cod_program_spec spec = {.name = "train", .trains = "model"};
        cod_graph *graph = random_graph_build(seed, &spec);
        results fused =
            gradients(graph, &spec, cod_paranoid_wrap(&cod_ref_backend), (cod_compile_options){0}, false, seed);
        require_no_violation(seed);
        results plain =
            gradients(graph, &spec, &cod_ref_backend, (cod_compile_options){.no_fusion = true}, seed < CHECKED, seed);
        double largest = 0;
        for (size_t i = 0; i < plain.count; i++)
            largest = fmax(largest, fabs(plain.grads[i]));
        for (size_t i = 0; i < plain.count; i++)
            if (!(fabs(fused.grads[i] - plain.grads[i]) <= 1e-11 * (1 + largest)))
                fail_msg("seed %llu, gradient %zu: fused %.15g, op by op %.15g", (unsigned long long)seed, i,
                         fused.grads[i], plain.grads[i]);
        recomputed += check_recomputing(graph, &spec, &fused, seed);
        free(fused.grads), free(plain.grads);
        cod_graph_destroy(graph);
    }
    assert_true(replaced > 0);
    assert_true(recomputed > GRAPHS / 4);
}
