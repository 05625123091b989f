/*
 * The recipe `srgan`: gradients of its sub-steps against central differences in f64, and twenty steps against PyTorch
 * (tests/golden/make_gan.py).
 */
#include "support/folder.h"
#include "support/test.h"

#include "gan/small_gan.h"
#include "gan/srgan.h"

#include <stdio.h>

#define BASE "train.recipe=srgan data.patch=6"

static int set_up(void **state)
{
    cod_recipe_register_srgan();
    return small_gan_set_up(state);
}

static const char *const checked[] = {
    "train.loss=mse",
    "train.loss=mse gan.content=vgg11 gan.content_weight=1e-3 gan.before_activation=true gan.pixel_weight=0.3 "
    "gan.warm_up=2",
    "gan.content=vgg11 gan.content_weight=1e-3 gan.before_activation=true train.accumulate=2 gan.every=2",
    "gan.content=[squeeze1,0.5*squeeze3] gan.pixel_weight=0.3",
    "gan.content=[squeeze4,2*squeeze2] gan.before_activation=true gan.feature_loss=l1 gan.perceptual_input=caffe "
    "gan.content_weight=1e-2"};

#ifdef __SANITIZE_ADDRESS__ /* which takes five times as long */
enum { CHECKS_APART = 2 };
#else
enum { CHECKS_APART = 1 };
#endif

TEST(gradients_agree_with_differences)
{
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i += CHECKS_APART) {
        small_gan gan;
        net_check check;
        char words[256];
        snprintf(words, sizeof words, BASE " gan.adversarial_weight=1 %s", checked[i]); /* large enough to be seen */
        small_gan_build(words, &gan);
        small_gan_compile(&gan, NULL, 0);
        assert_ok(net_check_gradients(&gan.net, &small_gan_step(&gan, "generator")->program, 7, &check));
        assert_true(check.smooth > 30);
        if (gan.config.train.accumulate > 1)
            assert_ok(net_run(&gan.net, "forward"));
        assert_ok(net_check_gradients(&gan.net, &small_gan_step(&gan, "discriminator")->program, 7, &check));
        assert_true(check.smooth > 50);
        small_gan_clear(&gan);
    }
}

/** The gradient of two losses is not that of one alone: the check above can fail. */
TEST(a_wrong_gradient_is_found)
{
    small_gan gan;
    net_check check;
    small_gan_build(BASE " gan.adversarial_weight=1", &gan);
    small_gan_compile(&gan, NULL, 0);
    cod_program_spec wrong = small_gan_step(&gan, "generator")->program;
    wrong.losses[1] = 0;
    assert_int_equal(net_check_gradients(&gan.net, &wrong, 7, &check), COD_ERR_NUMERIC);
    small_gan_clear(&gan);
}

TEST(the_perceptual_network_pools_as_it_is_told)
{
    for (int average = 0; average < 2; average++) {
        small_gan gan;
        size_t pools = 0;
        small_gan_build(average ? BASE " gan.content=vgg21 gan.pooling=average" : BASE " gan.content=vgg21", &gan);
        const cod_graph *graph = gan.recipe.model.graph;
        for (size_t i = 0; i < cod_graph_node_count(graph); i++) {
            const cod_node *node = cod_graph_node(graph, i);
            pools += node->kind == COD_NODE_POOL;
            assert_true(node->kind != COD_NODE_POOL || node->attr.pool == (average ? COD_POOL_AVERAGE : COD_POOL_MAX));
        }
        assert_int_equal(pools, 2); /* one each for what was made and for the truth */
        cod_recipe_clear(&gan.recipe);
        cod_run_config_clear(&gan.config);
    }
}

TEST(lessons_compare_features)
{
    small_gan_check_lessons(BASE " gan.content=[squeeze1,0.5*squeeze3] gan.content_weight=0.1", 2);
    small_gan_check_lessons(BASE " gan.content=vgg12 gan.content_weight=1e-3 gan.feature_loss=l1", 1);
}

/** What teachers are held against is a loss between pixels, whatever the content loss compares. */
TEST(models_are_compared_by_pixels)
{
    static const char *const contents[] = {"gan.content=pixel", "gan.content=vgg11",
                                           "gan.content=vgg11 gan.pixel_weight=1"};
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        small_gan gan;
        char words[256];
        snprintf(words, sizeof words, BASE " train.loss=charbonnier %s", contents[i]);
        small_gan_build(words, &gan);
        const cod_graph *graph = gan.recipe.model.graph;
        const cod_node *node = cod_graph_producer(graph, cod_recipe_compared_loss(&gan.recipe));
        assert_int_equal(node->attr.loss, COD_LOSS_CHARBONNIER);
        assert_int_equal(node->inputs[0], gan.recipe.model.output);
        assert_int_equal(node->inputs[1], gan.recipe.target);
        const cod_program_spec *program = &small_gan_step(&gan, "generator")->program;
        bool told = false;
        for (size_t k = 0; k < COD_PROGRAM_MAX_LOSSES; k++)
            told = told || program->losses[k] == node->output;
        for (size_t k = 0; k < COD_PROGRAM_MAX_OUTPUTS; k++)
            told = told || program->outputs[k] == node->output;
        assert_true(told);
        small_gan_compile(&gan, NULL, 0);
        small_gan_clear(&gan);
    }
}

/** The sub-steps of a step, in warm-up and behind it, run the generator once. */
TEST(nothing_of_the_generator_runs_twice)
{
    small_gan gan;
    small_gan_build(BASE " gan.warm_up=2", &gan);
    small_gan_compile(&gan, NULL, 0);
    for (int64_t step = 0; step < 4; step++)
        assert_int_equal(small_gan_passes(&gan, step), 1);
    small_gan_clear(&gan);
}

TEST(twenty_steps_are_pytorchs)
{
    small_gan_compare("srgan", BASE, 4);
}

TEST(each_step_in_f32_is_that_in_f64)
{
    small_gan_follow_f32("srgan", BASE);
}

TEST(twenty_steps_in_f32_are_pytorchs)
{
    small_gan_compare_f32("srgan", BASE);
}

TEST(contradictions_are_told)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"gan.content=vgg54 gan.perceptual_file=",
         "'vgg54' compares features of VGG-19: name its weights in gan.perceptual_file"},
        {"gan.pixel_weight=1", "the content loss compares pixels already: set gan.content_weight"},
        {"gan.pooling=average", "gan.pooling: only VGG-19 can pool by averages, and gan.content is 'pixel'"},
        {"gan.content=squeeze3 gan.pooling=average", "only VGG-19 can pool by averages, and gan.content is 'squeeze3'"},
        {"gan.warm_up=20", "20 steps of the discriminator alone leave nothing of 20 steps"},
        {"gan.content=vgg35", "gan.content: 'vgg35' is not one of: pixel, vgg11, vgg12, vgg21"},
        {"gan.content=[0.1vgg11]", "gan.content: '0.1vgg11' is not one of: pixel, vgg11, vgg12, vgg21"},
        {"gan.content=[vgg11,pixel]", "gan.content: 'pixel' is not one of: pixel, vgg11, vgg12, vgg21"},
        {"gan.content=[0*vgg11]", "gan.content: '0*vgg11': the weight of a layer is a number above 0"},
        {"gan.content=[vgg11,0.5*vgg11]", "gan.content: 'vgg11' is listed twice"},
        {"gan.content=[]", "gan.content: an empty list compares nothing"},
        {"gan.content=squeeze3 gan.perceptual_file=",
         "'squeeze3' compares features of SqueezeNet 1.1: name its weights in gan.perceptual_file"},
        {"gan.content=[vgg11,squeeze3]",
         "'vgg11' and 'squeeze3' are of two networks, but gan.perceptual_file holds one"},
        {"gan.content=squeeze10", "gan.content: 'squeeze10' is not one of: pixel, vgg11"},
        {"gan.content=[squeeze3,squeeze6]", "data.patch: a patch of 6 enlarged 4 times is 24 pixels a side, but "
                                            "'squeeze6' of gan.content needs 25; a patch of "
                                            "7 would do"},
        {"data.patch=4 model.scale=2 gan.content=vgg54", "data.patch: a patch of 4 enlarged 2 times is 8 pixels a "
                                                         "side, but 'vgg54' of gan.content needs 16; a patch of 8 "
                                                         "would do"},
        {"gan.content=[vgg11,vgg12,vgg21,vgg22,vgg31,vgg32,vgg33,vgg34,vgg41]", "at most 8 layers are compared"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, BASE " %s", cases[i].words);
        small_gan_refuse(words, cases[i].message);
    }
}

TEST_GROUP(set_up, cod_test_folder_remove)
