#include "gan/small_gan.h"

#include "support/folder.h"
#include "support/test.h"

#include "gan/known_squeezenet.h"
#include "gan/known_vgg.h"
#include "infer/model_file.h"
#include "ref/ref.h"
#include "train/strategy.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int small_gan_set_up(void **state)
{
    assert_ok(cod_backend_register(&cod_ref_backend));
    cod_recipe_register_supervised();
    cod_strategies_register_basic();
    if (cod_test_folder_make(state) != 0)
        return -1;
    known_vgg_write(cod_test_at("vgg.safetensors"), (cod_vgg_layer){2, 2}, KNOWN_WHOLE, NULL, NULL);
    known_squeezenet_write(cod_test_at("squeeze.safetensors"), COD_SQUEEZENET_CAFFE, 4, KNOWN_SQUEEZENET_WHOLE, NULL);
    return 0;
}

cod_status small_gan_configure(const char *words, cod_run_config *config)
{
    static const char *const fixed[] = {"train.strategy=single", "train.backend=ref",   "data.kind=synthetic",
                                        "model.name=srresnet",   "model.blocks=1",      "model.channels=4",
                                        "model.scale=4",         "model.head_kernel=3", "model.tail_kernel=3",
                                        "train.steps=20",        "train.rate=1e-3",     "train.schedule=constant",
                                        "gan.rate=5e-4",         "gan.features=2",      "gan.hidden=4"};
    enum { FIXED = sizeof fixed / sizeof fixed[0], MOST = FIXED + 16 };
    const char *overrides[MOST];
    char copy[512], file[512];
    size_t count = FIXED;
    memcpy(overrides, fixed, sizeof fixed);
    snprintf(file, sizeof file, "gan.perceptual_file=%s",
             cod_test_at(strstr(words, "squeeze") != NULL ? "squeeze.safetensors" : "vgg.safetensors"));
    overrides[count++] = file;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL && count < MOST; word = strtok(NULL, " "))
        overrides[count++] = word;
    return cod_run_config_load(NULL, overrides, count, config);
}

void small_gan_refuse(const char *words, const char *message)
{
    cod_run_config config;
    if (small_gan_configure(words, &config) == COD_OK) {
        cod_run_config_clear(&config);
        fail_msg("accepted: %s", words);
    }
    cod_test_assert_contains(cod_error_message(), message);
}

void small_gan_build(const char *words, small_gan *gan)
{
    *gan = (small_gan){0};
    assert_ok(small_gan_configure(words, &gan->config));
    const cod_recipe_setting setting = {.config = &gan->config, .loss_factor = 1};
    assert_ok(cod_recipe_build(&setting, &gan->recipe));
}

/** The values of parameter sets that start as the graph or a file says. */
static void start_frozen(const small_gan *gan, double *values)
{
    cod_weights start;
    assert_ok(cod_weights_init(&start, gan->net.backend, gan->net.device, gan->net.graph, COD_F32, false));
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

static void fill_constants(small_gan *gan)
{
    for (size_t i = 0; i < gan->recipe.constant_count; i++) {
        const cod_view view = cod_executable_input(gan->net.executable, gan->recipe.constants[i].input);
        const size_t count = (size_t)cod_shape_count(view.shape);
        double *values = net_new(count);
        assert_int_equal(view.shape.n, SMALL_GAN_PICTURES);
        for (size_t k = 0; k < count; k++)
            values[k] = (double)gan->recipe.constants[i].value;
        assert_ok(net_write(&gan->net, view, values));
        free(values);
    }
}

void small_gan_compile_on(small_gan *gan, const cod_backend *backend, cod_dtype activation,
                          const cod_program_spec *more, size_t count)
{
    cod_program_spec specs[COD_RECIPE_MAX_STEPS + 1];
    const int64_t patch = gan->config.data.patch;
    const cod_input_shape input = {COD_INPUT_DATA, {SMALL_GAN_PICTURES, patch, patch, 3}};
    const cod_compile_options options = {.activation = activation, .inputs = &input, .input_count = 1};
    const size_t steps = gan->recipe.step_count;
    assert_true(count <= 1);
    for (size_t i = 0; i < steps + count; i++) {
        cod_program_spec *spec = &specs[i];
        size_t outputs = 0;
        *spec = i < steps ? gan->recipe.steps[i].program : more[i - steps];
        while (spec->outputs[outputs] != 0)
            outputs++;
        for (size_t k = 0; spec->losses[k] != 0; k++) { /* differences read them there */
            assert_true(outputs < COD_PROGRAM_MAX_OUTPUTS);
            spec->outputs[outputs++] = spec->losses[k];
        }
    }
    assert_ok(net_init(&gan->net, backend, gan->recipe.model.graph, &options, specs, steps + count, 5));
    fill_constants(gan);
    double *values = net_new(cod_weights_count(&gan->net.weights));
    assert_ok(net_read_values(&gan->net, values));
    start_frozen(gan, values);
    assert_ok(net_write_values(&gan->net, values));
    free(values);
}

void small_gan_compile(small_gan *gan, const cod_program_spec *more, size_t count)
{
    small_gan_compile_on(gan, &cod_ref_backend, COD_F64, more, count);
}

void small_gan_clear(small_gan *gan)
{
    net_clear(&gan->net);
    cod_recipe_clear(&gan->recipe);
    cod_run_config_clear(&gan->config);
}

const cod_sub_step *small_gan_step(const small_gan *gan, const char *name)
{
    for (size_t i = 0; i < gan->recipe.step_count; i++)
        if (strcmp(gan->recipe.steps[i].program.name, name) == 0)
            return &gan->recipe.steps[i];
    fail_msg("there is no sub-step '%s'", name);
    return NULL;
}

size_t small_gan_passes(const small_gan *gan, int64_t step)
{
    enum { SHUFFLES = 2 }; /* of the generator, which alone has any */
    size_t shuffles = 0;
    for (size_t i = 0; i < gan->recipe.step_count; i++)
        if (cod_sub_step_is_due(&gan->recipe.steps[i], step))
            shuffles += net_count_kind(&gan->net, gan->recipe.steps[i].program.name, COD_OP_PIXEL_SHUFFLE);
    return shuffles / SHUFFLES;
}

void small_gan_check_lessons(const char *base, size_t layers)
{
    small_gan gan;
    net_check check;
    cod_value features[COD_RECIPE_MAX_FEATURES];
    small_gan_build(base, &gan);
    const cod_recipe *recipe = &gan.recipe;
    const cod_recipe_setting setting = {.config = &gan.config, .loss_factor = 1};
    assert_int_equal(recipe->feature_count, layers);
    const cod_value teacher = cod_graph_input_like(recipe->model.graph, "teacher", recipe->model.output);
    const size_t params = cod_graph_param_count(recipe->model.graph);
    assert_ok(recipe->kind->add_features(&setting, recipe, teacher, features));
    assert_int_equal(cod_graph_param_count(recipe->model.graph), params); /* the network that is there */
    cod_program_spec lesson = small_gan_step(&gan, "generator")->program;
    lesson.name = "lesson";
    memset(lesson.losses, 0, sizeof lesson.losses);
    for (size_t i = 0; i < layers; i++) {
        const cod_recipe_feature *feature = &recipe->features[i];
        lesson.losses[i] = cod_graph_loss(recipe->model.graph, "toward", feature->made, features[i],
                                          (cod_loss_spec){.kind = feature->loss, .weight = (float)feature->weight});
    }
    small_gan_compile(&gan, &lesson, 1);
    assert_ok(net_check_gradients(&gan.net, &lesson, 7, &check));
    assert_true(check.smooth > 30);
    small_gan_clear(&gan);
}
