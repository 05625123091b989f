/*
 * The recipe `real_esrgan`: gradients of its sub-steps against central differences in f64, and twenty steps against PyTorch
 * (tests/golden/make_gan.py).
 */
#include "support/folder.h"
#include "support/test.h"

#include "gan/real_esrgan.h"
#include "gan/small_gan.h"

#include <stdio.h>

#define BASE "train.recipe=real_esrgan gan.hidden=0 data.patch="

static int set_up(void **state)
{
    cod_recipe_register_real_esrgan();
    return small_gan_set_up(state);
}

/** Runs the power iterations to rest: there the gradient, which takes singular vectors for constants, is that of the losses. */
static void settle(small_gan *gan)
{
    enum { RUNS = 400 };
    for (int i = 0; i < RUNS; i++)
        assert_ok(net_run(&gan->net, "discriminator"));
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    static const char *const checked[] = {
        "gan.content=pixel train.loss=mse gan.label_smoothing=0.1 gan.r1=0.1",
        "gan.content=[vgg11,0.1*vgg12] gan.content_weight=1e-3 gan.pixel_weight=0.3 gan.warm_up=2"};
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++) {
        small_gan gan;
        net_check check;
        char words[256];
        snprintf(words, sizeof words, BASE "4 model.scale=2 gan.adversarial_weight=1 %s",
                 checked[i]); /* large enough to be seen */
        small_gan_build(words, &gan);
        small_gan_compile(&gan, NULL, 0);
        settle(&gan);
        const cod_program_spec *generator = &small_gan_step(&gan, "generator")->program;
        assert_ok(net_check_gradients(&gan.net, generator, 7, &check));
        assert_true(check.smooth > 30);
        assert_ok(net_check_gradients(&gan.net, &small_gan_step(&gan, "discriminator")->program, 7, &check));
        assert_true(check.smooth > 20);
        cod_program_spec wrong = *generator; /* with a loss less, whose gradient is there */
        wrong.losses[1] = 0;
        assert_int_equal(net_check_gradients(&gan.net, &wrong, 7, &check), COD_ERR_NUMERIC);
        small_gan_clear(&gan);
    }
}

static void twenty_steps_are_pytorchs(void **state)
{
    (void)state;
    small_gan_compare("real_esrgan", BASE "6", 4);
}

/** What `auto` stands for is what the authors' code has. */
static void the_published_losses_are_weighted(void **state)
{
    (void)state;
    small_gan gan;
    small_gan_build(BASE "4 model.scale=2 gan.content=[0.1*vgg12,0.1*vgg22]", &gan);
    const cod_sub_step *step = small_gan_step(&gan, "generator");
    static const struct {
        const char *name;
        float weight;
        cod_loss_kind kind;
    } expected[] = {{"adversarial", 0.1f, COD_LOSS_BCE},
                    {"content.vgg12", 0.1f, COD_LOSS_L1},
                    {"content.vgg22", 0.1f, COD_LOSS_L1},
                    {"pixel", 1, COD_LOSS_L1}};
    enum { LOSSES = sizeof expected / sizeof expected[0] };
    for (size_t i = 0; i < LOSSES; i++) {
        assert_string_equal(step->losses[i], expected[i].name);
        const cod_node *node = cod_graph_producer(gan.recipe.model.graph, step->program.losses[i]);
        assert_float_equal(node->attr.alpha, expected[i].weight, 0);
        assert_int_equal(node->attr.loss, expected[i].kind);
    }
    assert_null(step->losses[LOSSES]);
    cod_recipe_clear(&gan.recipe);
    cod_run_config_clear(&gan.config);
}

static void contradictions_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"6 gan.perceptual_file=", "'vgg12' compares features of VGG-19: name its weights in gan.perceptual_file"},
        {"6 gan.content=pixel gan.hidden=9",
         "gan.hidden: the discriminator of recipe 'real_esrgan' has no fully connected layer"},
        {"6 gan.content=pixel gan.r1_every=4",
         "gan.r1_every: there is no R1 penalty to compute in one of 4 steps: set its gamma, gan.r1, above 0, or leave "
         "gan.r1_every out"},
        {"9 gan.content=pixel",
         "data.patch: a patch of 9 enlarged 4 times is 36 pixels a side, but the discriminator of recipe 'real_esrgan' "
         "judges multiples of 8; 10 would fit"},
        {"9 gan.content=pixel model.scale=3", "is 27 pixels a side, but the discriminator of recipe "
                                              "'real_esrgan' judges multiples of 8; 16 would fit"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, BASE "%s", cases[i].words);
        small_gan_refuse(words, cases[i].message);
    }
}

/** Every so many steps it has an update of its own, in which nothing else counts; the loss is weighted for all pictures' elements. */
static void the_penalty_is_weighted(void **state)
{
    (void)state;
    enum { SIDE = 8, EVERY = 4 };
    static const char *const words[] = {BASE "4 model.scale=2 gan.content=pixel gan.r1=3",
                                        BASE "4 model.scale=2 gan.content=pixel gan.r1=3 gan.r1_every=4"};
    for (int lazy = 0; lazy < 2; lazy++) {
        small_gan gan;
        small_gan_build(words[lazy], &gan);
        const cod_sub_step *step = small_gan_step(&gan, lazy ? "r1" : "discriminator");
        const int index = lazy ? 0 : 2;
        assert_string_equal(step->losses[index], "r1");
        assert_null(step->losses[index + 1]);
        const cod_node *node = cod_graph_producer(gan.recipe.model.graph, step->program.losses[index]);
        assert_float_equal(node->attr.alpha, 3.0 / 2 * SIDE * SIDE * 3 * (lazy ? EVERY : 1), 0);
        assert_int_equal(step->every, lazy ? EVERY : 0);
        assert_int_equal(gan.recipe.step_count, lazy ? 3 : 2);
        cod_recipe_clear(&gan.recipe);
        cod_run_config_clear(&gan.config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences), cmocka_unit_test(twenty_steps_are_pytorchs),
        cmocka_unit_test(the_published_losses_are_weighted), cmocka_unit_test(the_penalty_is_weighted),
        cmocka_unit_test(contradictions_are_told)};
    return cmocka_run_group_tests_name("real_esrgan", tests, set_up, cod_test_folder_remove);
}
