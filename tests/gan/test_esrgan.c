/*
 * The recipe `esrgan`: gradients of its sub-steps against central differences in f64, and twenty steps against PyTorch
 * (tests/golden/make_gan.py).
 */
#include "support/folder.h"
#include "support/test.h"

#include "gan/esrgan.h"
#include "gan/small_gan.h"
#include "nn/discriminator.h"

#include <stdlib.h>
#include <string.h>

#define BASE "train.recipe=esrgan data.patch=4"

static int set_up(void **state)
{
    cod_recipe_register_esrgan();
    return small_gan_set_up(state);
}

/** The mean of the made pictures' logits is not held: the generator bears on it. */
TEST(generators_gradients_agree_with_differences)
{
    small_gan gan;
    net_check check;
    small_gan_build(BASE " gan.content=vgg11 gan.content_weight=1e-3 gan.adversarial_weight=1", &gan);
    small_gan_compile(&gan, NULL, 0);
    const cod_program_spec *generator = &small_gan_step(&gan, "generator")->program;
    assert_ok(net_check_gradients(&gan.net, generator, 7, &check));
    assert_true(check.smooth > 30);
    cod_program_spec wrong = *generator;
    wrong.losses[1] = 0;
    assert_int_equal(net_check_gradients(&gan.net, &wrong, 7, &check), COD_ERR_NUMERIC);
    small_gan_clear(&gan);
}

/**
 * The discriminator's means are constants. Differences see them so where a program is given the means that the sub-step
 * left; the sub-step's own gradients must be that program's, which differences confirm.
 */
TEST(discriminators_gradients_hold_the_means)
{
    small_gan gan;
    net_check check;
    small_gan_build(BASE " gan.content=pixel gan.label_smoothing=0.1", &gan);
    const cod_sub_step *discriminator = small_gan_step(&gan, "discriminator");
    cod_program_spec held = discriminator->program;
    held.name = "held";
    for (int i = 0; i < 2; i++)
        held.given[1 + i] = discriminator->figures[i], held.outputs[i] = 0;
    small_gan_compile(&gan, &held, 1);
    const size_t count = gan.net.weights.layout.trainable;
    double *own = net_new(count), *held_grads = net_new(count);
    assert_ok(net_run(&gan.net, "generator"));
    assert_ok(net_run(&gan.net, "discriminator"));
    assert_ok(net_read_grads(&gan.net, own));
    assert_ok(net_check_gradients(&gan.net, &held, 7, &check));
    assert_true(check.smooth > 30);
    assert_ok(net_run(&gan.net, "held"));
    assert_ok(net_read_grads(&gan.net, held_grads));
    const cod_set_range range = cod_graph_set_range(gan.net.graph, 1);
    double largest = 0;
    for (size_t i = range.first; i < range.first + range.count; i++) {
        assert_float_equal(own[i], held_grads[i], 1e-12);
        largest = own[i] > largest ? own[i] : largest;
    }
    assert_true(largest > 1e-3);
    /* With the means as functions of the weights the differences are others. */
    assert_int_equal(net_check_gradients(&gan.net, &discriminator->program, 7, &check), COD_ERR_NUMERIC);
    free(own), free(held_grads);
    small_gan_clear(&gan);
}

TEST(twenty_steps_are_pytorchs)
{
    small_gan_compare("esrgan", BASE, 2);
}

/** With a generator that rests in every second step the discriminator has pictures in each. */
TEST(passes_of_the_generator_are_counted)
{
    small_gan gan;
    small_gan_build(BASE " gan.content=pixel gan.every=2 gan.warm_up=1", &gan);
    small_gan_compile(&gan, NULL, 0);
    static const size_t passes[] = {1, 1, 2, 1, 2};
    for (int64_t step = 0; step < 5; step++)
        assert_int_equal(small_gan_passes(&gan, step), passes[step]);
    small_gan_clear(&gan);
}

/**
 * Names and sizes of BasicSR's network of 128 and 256 pixels, whose first fully connected layer has 8192 inputs in
 * both.
 */
TEST(the_published_discriminators_have_their_tensors)
{
    for (int blocks = 5; blocks <= 6; blocks++) {
        cod_graph *graph;
        size_t found = 0, weights = 0;
        assert_ok(cod_graph_create(&graph));
        const cod_vgg_discriminator_spec spec = {.side = 4 << blocks, .features = 64, .hidden = 100};
        const cod_value x = cod_graph_input(graph, "pictures", 3);
        assert_true(cod_vgg_discriminator(graph, x, spec) != 0);
        for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
            const cod_param *param = cod_graph_param(graph, i);
            weights += param->is_state ? 0 : (size_t)cod_shape_count(param->shape);
            found += strcmp(param->name, blocks == 5 ? "conv4_1.weight" : "bn5_1.running_var") == 0;
            found += strcmp(param->name, "conv0_0.bias") == 0 || strcmp(param->name, "linear2.bias") == 0;
            if (strcmp(param->name, "linear1.weight") == 0)
                assert_true(cod_shape_count(param->shape) == 100 * 8192);
        }
        assert_int_equal(found, 3);
        assert_int_equal(weights,
                         blocks == 5 ? 14499401 : 21055049); /* PyTorch: sum(p.numel() for p in net.parameters()) */
        cod_graph_destroy(graph);
    }
}

TEST(each_step_in_f32_is_that_in_f64)
{
    small_gan_follow_f32("esrgan", BASE);
}

TEST(twenty_steps_in_f32_are_pytorchs)
{
    small_gan_compare_f32("esrgan", BASE);
}

TEST(contradictions_are_told)
{
    small_gan_refuse(BASE " gan.perceptual_file=",
                     "'vgg54' compares features of VGG-19: name its weights in gan.perceptual_file");
    small_gan_refuse(
        "train.recipe=esrgan data.patch=24 gan.content=pixel",
        "data.patch: a patch of 24 enlarged 4 times is 96 pixels a side, but the discriminator of recipe 'esrgan' "
        "judges 16, 32, 64, 128, 256 or 512; patches that fit this scale: 4, 8, 16, 32, 64, 128");
    small_gan_refuse("train.recipe=esrgan data.patch=24 gan.content=pixel model.scale=3", "no patch fits this scale");
}

TEST_GROUP(set_up, cod_test_folder_remove)
