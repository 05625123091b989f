/*
 * The recipe `srgan`: gradients of its sub-steps against central differences in f64, and twenty steps against PyTorch
 * (tests/golden/make_gan.py).
 */
#include "support/folder.h"
#include "support/test.h"

#include "gan/known_vgg.h"
#include "gan/srgan.h"
#include "infer/model_file.h"
#include "nn/net.h"
#include "nn/optimiser.h"
#include "nn/torch_case.h"
#include "ref/ref.h"
#include "train/config.h"
#include "train/recipe.h"
#include "train/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 20, BATCHES = 4, PICTURES = 3, LOW = 6, MODEL = 0, DISCRIMINATOR = 1 };

static int set_up(void **state)
{
    assert_ok(cod_backend_register(&cod_ref_backend));
    cod_recipe_register_supervised();
    cod_recipe_register_srgan();
    cod_strategies_register_basic();
    if (cod_test_folder_make(state) != 0)
        return -1;
    known_vgg_write(cod_test_at("vgg.safetensors"), (cod_vgg_layer){2, 2}, KNOWN_WHOLE, NULL, NULL);
    return 0;
}

/** A recipe of the small networks of make_gan.py, as configured by words "key=value …", compiled in f64 on `ref`. */
typedef struct small_gan {
    cod_run_config config;
    cod_recipe recipe;
    test_net net;
} small_gan;

static cod_status configure(const char *words, cod_run_config *config)
{
    static const char *const fixed[] = {
        "train.recipe=srgan", "train.strategy=single",   "train.backend=ref",   "data.kind=synthetic",
        "data.patch=6",       "model.name=srresnet",     "model.blocks=1",      "model.channels=4",
        "model.scale=4",      "model.head_kernel=3",     "model.tail_kernel=3", "train.steps=20",
        "train.rate=1e-3",    "train.schedule=constant", "gan.rate=5e-4",       "gan.features=2",
        "gan.hidden=4"};
    enum { FIXED = sizeof fixed / sizeof fixed[0], MOST = FIXED + 16 };
    const char *overrides[MOST];
    char copy[512], file[512];
    size_t count = FIXED;
    memcpy(overrides, fixed, sizeof fixed);
    snprintf(file, sizeof file, "gan.perceptual_file=%s", cod_test_at("vgg.safetensors"));
    overrides[count++] = file;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL && count < MOST; word = strtok(NULL, " "))
        overrides[count++] = word;
    return cod_run_config_load(NULL, overrides, count, config);
}

static void make_gan(const char *words, small_gan *gan)
{
    cod_program_spec specs[COD_RECIPE_MAX_STEPS];
    const cod_input_shape input = {COD_INPUT_DATA, {PICTURES, LOW, LOW, 3}};
    const cod_compile_options options = {.activation = COD_F64, .inputs = &input, .input_count = 1};
    assert_ok(configure(words, &gan->config));
    const cod_recipe_setting setting = {.config = &gan->config, .loss_factor = 1};
    assert_ok(cod_recipe_build(&setting, &gan->recipe));
    for (size_t i = 0; i < gan->recipe.step_count; i++) {
        cod_program_spec *spec = &specs[i];
        size_t outputs = 0;
        *spec = gan->recipe.steps[i].program;
        while (spec->outputs[outputs] != 0)
            outputs++;
        for (size_t k = 0; spec->losses[k] != 0; k++) /* differences read them there */
            spec->outputs[outputs++] = spec->losses[k];
    }
    assert_ok(
        net_init(&gan->net, &cod_ref_backend, gan->recipe.model.graph, &options, specs, gan->recipe.step_count, 5));
    for (size_t i = 0; i < gan->recipe.constant_count; i++) {
        const cod_view view = cod_executable_input(gan->net.executable, gan->recipe.constants[i].input);
        double values[PICTURES];
        assert_int_equal(cod_shape_count(view.shape), PICTURES);
        for (int n = 0; n < PICTURES; n++)
            values[n] = (double)gan->recipe.constants[i].value;
        assert_ok(net_write(&gan->net, view, values));
    }
}

static void clear_gan(small_gan *gan)
{
    net_clear(&gan->net);
    cod_recipe_clear(&gan->recipe);
    cod_run_config_clear(&gan->config);
}

/** Writes the values of sets that start as the graph or a file says. */
static void start_frozen(const small_gan *gan, double *values)
{
    cod_weights start;
    assert_ok(cod_weights_init(&start, &cod_ref_backend, gan->net.device, gan->net.graph, COD_F32, false));
    float *f32 = calloc(cod_weights_count(&start), sizeof *f32);
    assert_non_null(f32);
    assert_ok(cod_weights_fill_initial(&start, 1));
    for (int s = 0; s < (int)cod_graph_set_count(gan->net.graph); s++)
        if (gan->recipe.sets[s].file != NULL)
            assert_ok(cod_set_load_weights(gan->recipe.sets[s].file, s, &start));
    assert_ok(cod_weights_download(&start, f32));
    for (size_t i = 0; i < cod_graph_param_count(gan->net.graph); i++) {
        const cod_param *param = cod_graph_param(gan->net.graph, i);
        for (size_t k = 0; gan->recipe.sets[param->set].file != NULL && k < (size_t)cod_shape_count(param->shape); k++)
            values[param->offset + k] = (double)f32[param->offset + k];
    }
    free(f32);
    cod_weights_clear(&start);
}

static const cod_sub_step *find_step(const small_gan *gan, const char *name)
{
    for (size_t i = 0; i < gan->recipe.step_count; i++)
        if (strcmp(gan->recipe.steps[i].program.name, name) == 0)
            return &gan->recipe.steps[i];
    fail_msg("there is no sub-step '%s'", name);
    return NULL;
}

static const char *const checked[] = {
    "train.loss=mse",
    "train.loss=mse gan.content=vgg11 gan.content_weight=1e-3 gan.before_activation=true gan.pixel_weight=0.3 "
    "gan.warm_up=2",
    "gan.content=vgg11 gan.content_weight=1e-3 gan.before_activation=true train.accumulate=2 "
    "gan.every=2"};

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++) {
        small_gan gan;
        net_check check;
        char words[256];
        snprintf(words, sizeof words, "gan.adversarial_weight=1 %s", checked[i]); /* large enough to be seen */
        make_gan(words, &gan);
        double *values = net_new(cod_weights_count(&gan.net.weights));
        assert_ok(net_read_values(&gan.net, values));
        start_frozen(&gan, values);
        assert_ok(net_write_values(&gan.net, values));
        const cod_sub_step *generator = find_step(&gan, "generator"), *discriminator = find_step(&gan, "discriminator");
        assert_ok(net_check_gradients(&gan.net, &generator->program, 7, &check));
        assert_true(check.smooth > 30);
        if (discriminator != &gan.recipe.steps[1]) /* something leaves it the generator's pictures in between */
            assert_ok(net_run(&gan.net, "forward"));
        assert_ok(net_check_gradients(&gan.net, &discriminator->program, 7, &check));
        assert_true(check.smooth > 50);
        free(values);
        clear_gan(&gan);
    }
}

/** The gradient of two losses is not that of the first alone: the check above can fail. */
static void a_wrong_gradient_is_found(void **state)
{
    (void)state;
    small_gan gan;
    net_check check;
    make_gan("gan.adversarial_weight=1", &gan);
    cod_program_spec wrong = find_step(&gan, "generator")->program;
    wrong.losses[1] = 0;
    assert_int_equal(net_check_gradients(&gan.net, &wrong, 7, &check), COD_ERR_NUMERIC);
    clear_gan(&gan);
}

/** The sub-steps of a step, in warm-up and behind it, run the generator once. */
static void nothing_of_the_generator_runs_twice(void **state)
{
    (void)state;
    small_gan gan;
    make_gan("gan.warm_up=2", &gan);
    for (int64_t step = 0; step < 4; step++) {
        size_t passes = 0;
        for (size_t i = 0; i < gan.recipe.step_count; i++)
            if (cod_sub_step_is_due(&gan.recipe.steps[i], step))
                passes += net_count_kind(&gan.net, gan.recipe.steps[i].program.name, COD_OP_PIXEL_SHUFFLE) / 2;
        assert_int_equal(passes, 1); /* of the two shuffles of the generator alone: the discriminator has none */
    }
    clear_gan(&gan);
}

static void start_as(const torch_case *c, small_gan *gan)
{
    double *values = net_new(cod_weights_count(&gan->net.weights));
    start_frozen(gan, values);
    for (size_t i = 0; i < cod_graph_param_count(gan->net.graph); i++) {
        const cod_param *param = cod_graph_param(gan->net.graph, i);
        char prefix[64];
        if (!gan->recipe.sets[param->set].trained)
            continue;
        snprintf(prefix, sizeof prefix, "start.%s.", gan->recipe.sets[param->set].name);
        const torch_tensor *start = torch_case_find(c, prefix, param->name);
        float *ours = calloc(start->count + 1, sizeof *ours);
        assert_int_equal(start->count, cod_shape_count(param->shape));
        cod_param_from_torch(param, start->values, ours);
        for (size_t k = 0; k < start->count; k++)
            values[param->offset + k] = (double)ours[k];
        free(ours);
    }
    assert_ok(net_write_values(&gan->net, values));
    free(values);
}

static void compare_end(const torch_case *c, const small_gan *gan, double tolerance)
{
    double *values = net_new(cod_weights_count(&gan->net.weights));
    size_t compared = 0, present = 0;
    assert_ok(net_read_values(&gan->net, values));
    for (size_t i = 0; i < cod_graph_param_count(gan->net.graph); i++) {
        const cod_param *param = cod_graph_param(gan->net.graph, i);
        char prefix[64];
        if (!gan->recipe.sets[param->set].trained)
            continue;
        snprintf(prefix, sizeof prefix, "end.%s.", gan->recipe.sets[param->set].name);
        const torch_tensor *expected = torch_case_find(c, prefix, param->name);
        float *ours = calloc(expected->count + 1, sizeof *ours), *torch = calloc(expected->count + 1, sizeof *torch);
        int64_t dims[4];
        for (size_t k = 0; k < expected->count; k++)
            ours[k] = (float)values[param->offset + k];
        cod_param_to_torch(param, ours, torch, dims);
        torch_case_compare(c, "weights", torch, expected, tolerance);
        free(ours), free(torch);
        compared++;
    }
    for (uint32_t i = 0; i < c->tensor_count; i++)
        present += strncmp(c->tensors[i].name, "end.", 4) == 0;
    assert_int_equal(compared, present);
    free(values);
}

/** Reads those losses of a sub-step that the golden file has. */
static void read_losses(const small_gan *gan, const cod_sub_step *s, float losses[4])
{
    static const char *const names[] = {"content", "adversarial", "d_real", "d_fake"};
    for (size_t k = 0; s->losses[k] != NULL; k++)
        for (int i = 0; i < 4; i++)
            if (strcmp(s->losses[k], names[i]) == 0)
                assert_ok(cod_executable_loss(gan->net.executable, s->program.losses[k], &losses[i]));
}

/** Runs a step's sub-steps and updates as the trainer does; writes the losses {content, adversarial, d_real, d_fake} and logits. */
static void run_step(small_gan *gan, cod_optimiser *const *optimisers, int64_t step, float losses[4], float logits[2])
{
    for (size_t i = 0; i < gan->recipe.step_count; i++) {
        const cod_sub_step *s = &gan->recipe.steps[i];
        if (!cod_sub_step_is_due(s, step))
            continue;
        assert_ok(net_run(&gan->net, s->program.name));
        if (s->program.trains == NULL)
            continue;
        const int set = cod_graph_set_index(gan->net.graph, s->program.trains);
        read_losses(gan, s, losses);
        for (int k = 0; set == DISCRIMINATOR && k < 2; k++) {
            double mean[PICTURES];
            assert_ok(net_read(&gan->net, cod_executable_output(gan->net.executable, s->figures[k]), mean));
            logits[k] = (float)mean[0];
        }
        assert_ok(cod_optimiser_step(optimisers[set], cod_schedule_rate(&gan->recipe.sets[set].schedule, step),
                                     cod_recipe_updates(&gan->recipe, set, step, i) + 1));
    }
}

static void train_case(const torch_case *c, double tolerance)
{
    small_gan gan;
    cod_optimiser *optimisers[2];
    float losses[STEPS][4] = {{0}}, logits[STEPS][2];
    make_gan(c->options, &gan);
    start_as(c, &gan);
    for (int set = 0; set < 2; set++)
        assert_ok(cod_optimiser_create(&gan.net.weights, set, &gan.recipe.sets[set].optimiser, &optimisers[set]));
    for (int64_t step = 0; step < STEPS; step++) {
        char batch[8];
        snprintf(batch, sizeof batch, "%d", (int)(step % BATCHES));
        torch_case_write_input(&gan.net, COD_INPUT_DATA, torch_case_find(c, "input.", batch));
        torch_case_write_input(&gan.net, COD_INPUT_TRUTH, torch_case_find(c, "target.", batch));
        run_step(&gan, optimisers, step, losses[step], logits[step]);
    }
    torch_case_compare(c, "losses", losses[0], torch_case_find(c, "losses", ""), tolerance);
    torch_case_compare(c, "logits", logits[0], torch_case_find(c, "logits", ""), tolerance);
    compare_end(c, &gan, tolerance);
    for (int set = 0; set < 2; set++)
        cod_optimiser_destroy(optimisers[set]);
    clear_gan(&gan);
}

/** Rounding of learning rates, labels and batches to f32 grows in twenty steps of two networks that chase each other. */
static void twenty_steps_are_pytorchs(void **state)
{
    (void)state;
    static torch_case c;
    torch_file file = torch_file_open(COD_TEST_DIR "/../golden/gan.bin");
    assert_int_equal(file.count, 4);
    while (torch_file_next(&file, &c)) {
        train_case(&c, 2e-6);
        torch_case_clear(&c);
    }
}

/** @param words  refused with `message` */
static void refuse(const char *words, const char *message)
{
    cod_run_config config;
    if (configure(words, &config) == COD_OK) {
        cod_run_config_clear(&config);
        fail_msg("accepted: %s", words);
    }
    cod_test_assert_contains(cod_error_message(), message);
}

static void contradictions_are_told(void **state)
{
    (void)state;
    refuse("gan.content=vgg54 gan.perceptual_file=",
           "'vgg54' compares features of VGG-19: name its weights in gan.perceptual_file");
    refuse("gan.pixel_weight=1", "the content loss compares pixels already: set gan.content_weight");
    refuse("gan.warm_up=20", "20 steps of the discriminator alone leave nothing of 20 steps");
    refuse("gan.content=vgg35", "gan.content: 'vgg35' is not one of: pixel, vgg11, vgg12, vgg21");
    refuse("gan.content=[0.1vgg11]", "gan.content: '0.1vgg11' is not one of: pixel, vgg11, vgg12, vgg21");
    refuse("gan.content=[vgg11,pixel]", "gan.content: 'pixel' is not one of: pixel, vgg11, vgg12, vgg21");
    refuse("gan.content=[0*vgg11]", "gan.content: '0*vgg11': the weight of a layer is a number above 0");
    refuse("gan.content=[vgg11,0.5*vgg11]", "gan.content: 'vgg11' is listed twice");
    refuse("gan.content=[]", "gan.content: an empty list compares nothing");
    refuse("gan.content=[vgg11,vgg12,vgg21,vgg22,vgg31,vgg32,vgg33,vgg34,vgg41]", "at most 8 layers are compared");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences), cmocka_unit_test(a_wrong_gradient_is_found),
        cmocka_unit_test(nothing_of_the_generator_runs_twice), cmocka_unit_test(twenty_steps_are_pytorchs),
        cmocka_unit_test(contradictions_are_told)};
    return cmocka_run_group_tests_name("srgan", tests, set_up, cod_test_folder_remove);
}
