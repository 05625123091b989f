/* Steps of adversarial recipes against PyTorch's: twenty from the start, and each from the weights of those in f64. */
#include "gan/small_gan.h"

#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/optimiser.h"
#include "nn/torch_case.h"
#include "ref/ref.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 20, BATCHES = 4, MAX_LOSSES = 16 };
/** Steps from the weights of those in f64, and how many of them may lie at a kink. */
#ifdef __SANITIZE_ADDRESS__ /* ten times slower */
enum { FOLLOWED = 2, AT_KINKS = 1 };
#else
enum { FOLLOWED = 8, AT_KINKS = 3 };
#endif

static void start_as(const torch_case *c, small_gan *gan)
{
    double *values = net_new(cod_weights_count(&gan->net.weights));
    assert_ok(net_read_values(&gan->net, values));
    for (size_t i = 0; i < cod_graph_param_count(gan->net.graph); i++) {
        const cod_param *param = cod_graph_param(gan->net.graph, i);
        char prefix[64];
        if (!gan->recipe.sets[param->set].trained)
            continue;
        snprintf(prefix, sizeof prefix, "start.%s.", gan->recipe.sets[param->set].name);
        torch_case_read_param(torch_case_find(c, prefix, param->name), param, values);
    }
    assert_ok(net_write_values(&gan->net, values));
    free(values);
}

/** Compares what a run gave with PyTorch's. */
typedef struct judge {
    const torch_case *c;
    const char *prefix; /**< of PyTorch's values: "" or "f32." */
    double tolerance;   /**< as torch_case_compare() has it; 0 = nothing fails */
    double largest;     /**< distance found, as torch_case_distance() says it */
} judge;

static void look(judge *j, const char *what, const float *actual, const torch_tensor *expected)
{
    const double distance = torch_case_distance(actual, expected);
    j->largest = fmax(j->largest, distance);
    if (j->tolerance > 0)
        torch_case_compare(j->c, what, actual, expected, j->tolerance);
}

static const torch_tensor *find(const judge *j, const char *name, const char *more)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s%s", j->prefix, name);
    return torch_case_find(j->c, prefix, more);
}

static void look_at_end(judge *j, const small_gan *gan)
{
    double *values = net_new(cod_weights_count(&gan->net.weights));
    size_t compared = 0, present = 0;
    assert_ok(net_read_values(&gan->net, values));
    for (size_t i = 0; i < cod_graph_param_count(gan->net.graph); i++) {
        const cod_param *param = cod_graph_param(gan->net.graph, i);
        char set[64];
        if (!gan->recipe.sets[param->set].trained)
            continue;
        snprintf(set, sizeof set, "end.%s.", gan->recipe.sets[param->set].name);
        const torch_tensor *expected = find(j, set, param->name);
        float *ours = calloc(expected->count + 1, sizeof *ours), *torch = calloc(expected->count + 1, sizeof *torch);
        int64_t dims[4];
        for (size_t k = 0; k < expected->count; k++)
            ours[k] = (float)values[param->offset + k];
        cod_param_to_torch(param, ours, torch, dims);
        look(j, "weights", torch, expected);
        free(ours), free(torch);
        compared++;
    }
    for (uint32_t i = 0; i < j->c->tensor_count; i++)
        present += strncmp(j->c->tensors[i].name, "end.", 4) == 0;
    assert_int_equal(compared, present);
    free(values);
}

/** Where a loss stands among the case's; the test fails where it does not. */
static size_t find_loss(const torch_case *c, const char *name)
{
    char copy[256];
    size_t at = 0;
    snprintf(copy, sizeof copy, "%s", c->loss);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "), at++)
        if (strcmp(word, name) == 0)
            return at;
    fail_msg("%s: PyTorch has no loss '%s'", c->name, name);
    return 0;
}

/** Runs a sub-step; writes its losses in the case's order, and the mean logits of the one that has them. */
static void run_sub_step(const torch_case *c, small_gan *gan, const cod_sub_step *s, float *losses, float logits[2])
{
    assert_ok(net_run(&gan->net, s->program.name));
    for (size_t k = 0; s->losses[k] != NULL; k++)
        assert_ok(cod_executable_loss(gan->net.executable, s->program.losses[k], &losses[find_loss(c, s->losses[k])]));
    for (int k = 0; s->figures[0] != 0 && k < 2; k++) {
        const cod_view view = cod_executable_output(gan->net.executable, s->figures[k]);
        double *mean = net_new((size_t)cod_shape_count(view.shape));
        assert_ok(net_read(&gan->net, view, mean));
        logits[k] = (float)mean[0];
        free(mean);
    }
}

/** Updates what sub-step i trains, as the trainer does. */
static void update(const small_gan *gan, cod_optimiser *const *optimisers, int64_t step, size_t i)
{
    const cod_recipe *recipe = &gan->recipe;
    if (recipe->steps[i].program.trains == NULL)
        return;
    const int set = cod_graph_set_index(gan->net.graph, recipe->steps[i].program.trains);
    assert_ok(cod_optimiser_step(optimisers[set], cod_schedule_rate(&recipe->sets[set].schedule, step),
                                 cod_recipe_updates(recipe, set, step, i) + 1));
}

static torch_file open_cases(const char *recipe)
{
    char path[512];
    snprintf(path, sizeof path, "%s/../golden/%s.bin", COD_TEST_DIR, recipe);
    return torch_file_open(path);
}

/** The truth of a mini-batch, {N,C,H,W}; behind it, where losses take it, the sharpened one. */
static void write_truth(small_gan *gan, const torch_tensor *plain, const torch_case *c, const char *batch)
{
    if (cod_graph_producer(gan->net.graph, gan->recipe.target)->channels == plain->dims[1]) {
        torch_case_write_input(&gan->net, COD_INPUT_TRUTH, plain);
        return;
    }
    const torch_tensor *sharp = torch_case_find(c, "sharp.", batch);
    const size_t picture = plain->count / plain->dims[0];
    torch_tensor both = {.count = 2 * plain->count, .values = calloc(2 * plain->count, sizeof(float))};
    assert_non_null(both.values);
    for (size_t n = 0; n < plain->dims[0]; n++) {
        memcpy(both.values + 2 * n * picture, plain->values + n * picture, picture * sizeof(float));
        memcpy(both.values + (2 * n + 1) * picture, sharp->values + n * picture, picture * sizeof(float));
    }
    torch_case_write_input(&gan->net, COD_INPUT_TRUTH, &both);
    free(both.values);
}

static void write_batch(const torch_case *c, small_gan *gan, int64_t step)
{
    char batch[8];
    snprintf(batch, sizeof batch, "%d", (int)(step % BATCHES));
    torch_case_write_input(&gan->net, COD_INPUT_DATA, torch_case_find(c, "input.", batch));
    write_truth(gan, torch_case_find(c, "target.", batch), c, batch);
}

static void create_optimisers(small_gan *gan, cod_optimiser *optimisers[2])
{
    for (int set = 0; set < 2; set++)
        assert_ok(cod_optimiser_create(&gan->net.weights, set, &gan->recipe.sets[set].optimiser, &optimisers[set]));
}

/** Trains a case's twenty steps on a compiled recipe. */
static void train(small_gan *gan, judge *j)
{
    const torch_case *c = j->c;
    cod_optimiser *optimisers[2];
    const torch_tensor *expected = find(j, "losses", "");
    const size_t columns = expected->dims[1];
    float losses[STEPS * MAX_LOSSES] = {0}, logits[STEPS][2];
    assert_true(expected->dims[0] == STEPS && columns <= MAX_LOSSES);
    start_as(c, gan);
    create_optimisers(gan, optimisers);
    for (int64_t step = 0; step < STEPS; step++) {
        write_batch(c, gan, step);
        for (size_t i = 0; i < gan->recipe.step_count; i++) {
            if (!cod_sub_step_is_due(&gan->recipe.steps[i], step))
                continue;
            run_sub_step(c, gan, &gan->recipe.steps[i], losses + (size_t)step * columns, logits[step]);
            update(gan, optimisers, step, i);
        }
    }
    look(j, "losses", losses, expected);
    look(j, "logits", logits[0], find(j, "logits", ""));
    look_at_end(j, gan);
    for (int set = 0; set < 2; set++)
        cod_optimiser_destroy(optimisers[set]);
}

static void build_case(const torch_case *c, const char *base, small_gan *gan)
{
    char words[512];
    snprintf(words, sizeof words, "%s %s", base, c->options);
    small_gan_build(words, gan);
}

static void train_case(const torch_case *c, const char *base, const cod_backend *backend, cod_dtype activation,
                       judge *j)
{
    small_gan gan;
    build_case(c, base, &gan);
    small_gan_compile_on(&gan, backend, activation, NULL, 0);
    train(&gan, j);
    small_gan_clear(&gan);
}

/**
 * Rounding of learning rates, labels and batches to f32 grows in twenty steps of two networks that chase each other.
 */
void small_gan_compare(const char *recipe, const char *base, uint32_t cases)
{
    static torch_case c;
    torch_file file = open_cases(recipe);
    assert_int_equal(file.count, cases);
    while (torch_file_next(&file, &c)) {
        judge j = {.c = &c, .prefix = "", .tolerance = 2e-6};
        assert_string_equal(c.kind, recipe);
        train_case(&c, base, &cod_ref_backend, COD_F64, &j);
        torch_case_clear(&c);
    }
}

/** Loss `index` of a recipe, counted over its sub-steps; 0 = there are fewer. */
static cod_value nth_loss(const small_gan *gan, size_t index)
{
    for (size_t i = 0; i < gan->recipe.step_count; i++)
        for (const cod_value *loss = gan->recipe.steps[i].program.losses; *loss != 0; loss++)
            if (index-- == 0)
                return *loss;
    return 0;
}

/**
 * The largest distance between two arrays' elements, in times the largest of `expected`, or of `least` where that is
 * more.
 */
static double apart(const double *actual, const double *expected, size_t count, double least)
{
    double largest = least, distance = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs(actual[i] - expected[i]);
        largest = fmax(largest, fabs(expected[i]));
        if (!(difference <= distance))
            distance = isnan(difference) ? INFINITY : difference;
    }
    return distance / largest;
}

/**
 * How far gradients of the set `trained` and running statistics of two runs are apart: the most that one parameter's
 * are. A gradient that is nothing but rounding, as that of a bias before a normalisation, is measured against the set's
 * largest.
 */
static double results_apart(const small_gan *follower, const small_gan *leader, const char *trained)
{
    const size_t count = cod_weights_count(&leader->net.weights);
    double *values[2] = {net_new(count), net_new(count)}, *grads[2] = {net_new(count), net_new(count)};
    double largest = 0, most = 0;
    const small_gan *gans[2] = {follower, leader};
    for (int k = 0; k < 2; k++) {
        assert_ok(net_read_values(&gans[k]->net, values[k]));
        assert_ok(net_read_grads(&gans[k]->net, grads[k]));
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < cod_graph_param_count(leader->net.graph); i++) {
            const cod_param *param = cod_graph_param(leader->net.graph, i);
            const size_t at = param->offset, length = (size_t)cod_shape_count(param->shape);
            const bool is_trained =
                trained != NULL && !param->is_state && strcmp(leader->recipe.sets[param->set].name, trained) == 0;
            for (size_t k = 0; pass == 0 && is_trained && k < length; k++)
                largest = fmax(largest, fabs(grads[1][at + k]));
            if (pass == 1 && is_trained)
                most = fmax(most, apart(grads[0] + at, grads[1] + at, length, 1e-3 * largest));
            if (pass == 1 && param->is_state)
                most = fmax(most, apart(values[0] + at, values[1] + at, length, 1e-6));
        }
    }
    for (int k = 0; k < 2; k++)
        free(values[k]), free(grads[k]);
    return most;
}

static void copy_values(const small_gan *from, small_gan *to)
{
    double *values = net_new(cod_weights_count(&from->net.weights));
    assert_ok(net_read_values(&from->net, values));
    assert_ok(net_write_values(&to->net, values));
    free(values);
}

/** A sub-step's losses and mean logits. */
typedef struct figures {
    double losses[MAX_LOSSES], logits[2];
} figures;

static figures figures_of(const torch_case *c, small_gan *gan, size_t sub_step)
{
    float losses[MAX_LOSSES] = {0}, logits[2] = {0};
    figures result;
    run_sub_step(c, gan, &gan->recipe.steps[sub_step], losses, logits);
    for (size_t k = 0; k < MAX_LOSSES; k++)
        result.losses[k] = (double)losses[k];
    result.logits[0] = (double)logits[0], result.logits[1] = (double)logits[1];
    return result;
}

/**
 * Runs a sub-step from the leader's weights.
 *
 * @return how far its losses, logits, gradients and running statistics are from the leader's
 */
static double follow(const torch_case *c, small_gan *follower, const small_gan *leader, size_t sub_step,
                     const figures *expected)
{
    const figures found = figures_of(c, follower, sub_step);
    const double losses = apart(found.losses, expected->losses, MAX_LOSSES, 1e-6);
    const double logits = apart(found.logits, expected->logits, 2, 1e-2);
    return fmax(fmax(losses, logits), results_apart(follower, leader, leader->recipe.steps[sub_step].program.trains));
}

/**
 * Steps of a case in f64 on `ref`, each with both backends' f32 beside it, which starts from the same weights: nothing
 * that rounding leads astray lasts beyond a step. Counts the steps that were near.
 */
static void follow_case(const torch_case *c, const char *base, const cod_backend *const backends[2], int near[2])
{
    static const double tolerance =
        3e-4; /* with Winograd's convolutions most steps are within 1e-4, on `ref` within 1e-5 */
    small_gan leader, followers[2];
    cod_optimiser *optimisers[2];
    build_case(c, base, &leader);
    small_gan_compile_on(&leader, &cod_ref_backend, COD_F64, NULL, 0);
    for (int b = 0; b < 2; b++) {
        build_case(c, base, &followers[b]);
        small_gan_compile_on(&followers[b], backends[b], COD_F32, NULL, 0);
    }
    start_as(c, &leader);
    create_optimisers(&leader, optimisers);
    for (int64_t step = 0; step < FOLLOWED; step++) {
        double most[2] = {0};
        write_batch(c, &leader, step);
        for (int b = 0; b < 2; b++)
            write_batch(c, &followers[b], step);
        for (size_t i = 0; i < leader.recipe.step_count; i++) {
            if (!cod_sub_step_is_due(&leader.recipe.steps[i], step))
                continue;
            for (int b = 0; b < 2; b++)
                copy_values(&leader, &followers[b]);
            const figures expected = figures_of(c, &leader, i);
            for (int b = 0; b < 2; b++)
                most[b] = fmax(most[b], follow(c, &followers[b], &leader, i, &expected));
            update(&leader, optimisers, step, i);
        }
        for (int b = 0; b < 2; b++)
            near[b] += most[b] <= tolerance;
    }
    for (int set = 0; set < 2; set++)
        cod_optimiser_destroy(optimisers[set]);
    for (int b = 0; b < 2; b++)
        small_gan_clear(&followers[b]);
    small_gan_clear(&leader);
}

void small_gan_follow_f32(const char *recipe, const char *base)
{
    static const cod_backend *const backends[2] = {&cod_ref_backend, &cod_cpu_backend};
    static torch_case c;
    torch_file file = open_cases(recipe);
    while (torch_file_next(&file, &c)) {
        int near[2] = {0};
        follow_case(&c, base, backends, near);
        /*
         * Where rounding takes a number across 0, a ReLU or the loss L1 has another gradient: one parameter's may
         * differ by a half.
         */
        for (int b = 0; b < 2; b++)
            if (near[b] < FOLLOWED - AT_KINKS)
                fail_msg("%s, %s: only %d of %d steps are near those in f64", c.name, backends[b]->name, near[b],
                         FOLLOWED);
        torch_case_clear(&c);
    }
}

/**
 * Trains a case in f32 with the weight of loss `wrong` 1 % too large, and demands to see it.
 *
 * @return whether there is such a loss
 */
static bool finds_wrong_weight(const torch_case *c, const char *base, const cod_backend *backend, size_t wrong,
                               double tolerance)
{
    small_gan gan;
    judge j = {.c = c, .prefix = "f32."};
    build_case(c, base, &gan);
    const cod_value loss = nth_loss(&gan, wrong);
    if (loss == 0) {
        cod_recipe_clear(&gan.recipe);
        cod_run_config_clear(&gan.config);
        return false;
    }
    cod_node *node = (cod_node *)(uintptr_t)cod_graph_producer(gan.recipe.model.graph, loss);
    node->attr.alpha *= 1.01f;
    small_gan_compile_on(&gan, backend, COD_F32, NULL, 0);
    train(&gan, &j);
    small_gan_clear(&gan);
    if (!(j.largest > tolerance))
        fail_msg("%s, %s: with loss %zu weighted 1 %% too much results differ by %g alone", c->name, backend->name,
                 wrong, j.largest);
    return true;
}

void small_gan_compare_f32(const char *recipe, const char *base)
{
    /* Both backends sum in other orders than PyTorch: they were up to 1.6e-5 from its results, and these up to 9.1e-6
     * from those in f64. A weight of a loss that is 1 % too large moved results by at least 5.1e-5. */
    static const double tolerance = 3e-5;
    /* In some steps rounding turns the sign of a tiny gradient, of which Adam's first steps and the loss L1 see nothing
     * else, in PyTorch too, whose own f32 then was up to 0.07 from its f64. Which cases that befalls depends on the
     * processor and the compiler. So of each case but one some backend has to be near, and each backend in half of the
     * cases; nobody may be far. */
    static const double far = 0.3;
    enum { BACKENDS = 2 };
    static const cod_backend *const backends[BACKENDS] = {&cod_ref_backend, &cod_cpu_backend};
    static torch_case c;
    torch_file file = open_cases(recipe);
    uint32_t near_cases = 0, near[BACKENDS] = {0};
    while (torch_file_next(&file, &c)) {
        bool any = false;
        for (size_t b = 0; b < BACKENDS; b++) {
            judge j = {.c = &c, .prefix = "f32."};
            train_case(&c, base, backends[b], COD_F32, &j);
            if (!(j.largest <= far))
                fail_msg("%s, %s: %g from PyTorch's results", c.name, backends[b]->name, j.largest);
            const bool is_near = j.largest <= tolerance;
            near[b] += is_near;
            any = any || is_near;
            const bool faulted = is_near && backends[b] == &cod_cpu_backend; /* the faster one */
            for (size_t wrong = 0; faulted && finds_wrong_weight(&c, base, backends[b], wrong, tolerance);)
                wrong++;
        }
        near_cases += any;
        torch_case_clear(&c);
    }
    assert_true(near_cases + 1 >= file.count);
    for (size_t b = 0; b < BACKENDS; b++)
        assert_true(2 * near[b] >= file.count);
}
