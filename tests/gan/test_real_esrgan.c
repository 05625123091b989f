/*
 * The recipe `real_esrgan`: gradients of its sub-steps against central differences in f64, and twenty steps against
 * PyTorch (tests/golden/make_gan.py).
 */
#include "support/folder.h"
#include "support/test.h"

#include "gan/real_esrgan.h"
#include "gan/small_gan.h"

#include <stdio.h>
#include <string.h>

#define BASE  "train.recipe=real_esrgan gan.hidden=0 data.patch="
#define PLAIN "6 gan.l1_gt_usm=false gan.percep_gt_usm=false"

static int set_up(void **state)
{
    cod_recipe_register_real_esrgan();
    return small_gan_set_up(state);
}

/**
 * Runs the power iterations to rest: there the gradient, which takes singular vectors for constants, is that of the
 * losses.
 */
static void settle(small_gan *gan)
{
    enum { RUNS = 400 };
    for (int i = 0; i < RUNS; i++)
        assert_ok(net_run(&gan->net, "discriminator"));
}

#ifdef __SANITIZE_ADDRESS__ /* which takes five times as long */
enum { CHECKS_APART = 2 };
#else
enum { CHECKS_APART = 1 };
#endif

TEST(gradients_agree_with_differences)
{
    enum { LAZY = 2 }; /* the penalty has a sub-step of its own */
    static const char *const checked[] = {
        "gan.content=pixel train.loss=mse gan.label_smoothing=0.1 gan.r1=0.1",
        "gan.content=[vgg11,0.1*vgg12] gan.content_weight=1e-3 gan.pixel_weight=0.3 gan.warm_up=2",
        "gan.content=pixel gan.r1=0.1 gan.r1_every=3"};
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i += CHECKS_APART) {
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
        if (i == LAZY) {
            assert_ok(net_check_gradients(&gan.net, &small_gan_step(&gan, "r1")->program, 7, &check));
            assert_true(check.smooth > 20);
        }
        cod_program_spec wrong = *generator; /* with a loss less, whose gradient is there */
        wrong.losses[1] = 0;
        assert_int_equal(net_check_gradients(&gan.net, &wrong, 7, &check), COD_ERR_NUMERIC);
        small_gan_clear(&gan);
    }
}

TEST(twenty_steps_are_pytorchs)
{
    small_gan_compare("real_esrgan", BASE PLAIN, 5);
}

/** What `auto` stands for is what the authors' code has. */
TEST(the_published_losses_are_weighted)
{
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

TEST(each_step_in_f32_is_that_in_f64)
{
    small_gan_follow_f32("real_esrgan", BASE PLAIN);
}

TEST(twenty_steps_in_f32_are_pytorchs)
{
    small_gan_compare_f32("real_esrgan", BASE PLAIN);
}

/**
 * Published: losses of the generator take sharpened truth, the discriminator does not. Channels behind the third are
 * the sharpened ones.
 */
TEST(losses_take_the_truth_that_is_asked_for)
{
    static const struct {
        const char *words;
        int64_t channels, pixel, feature, judged; /**< the first of the truth's that each reads */
    } cases[] = {
        {"gan.content=[0.1*vgg12]", 6, 3, 3, 0},
        {"gan.content=[0.1*vgg12] gan.percep_gt_usm=false", 6, 3, 0, 0},
        {"gan.content=[0.1*vgg12] gan.l1_gt_usm=false gan.gan_gt_usm=true", 6, 0, 3, 3},
        {"gan.content=[0.1*vgg12] gan.gan_gt_usm=true", 3, 0, 0, 0},
        {"gan.content=[0.1*vgg12] gan.l1_gt_usm=false gan.percep_gt_usm=false", 3, 0, 0, 0},
        {"gan.content=pixel gan.gan_gt_usm=true gan.percep_gt_usm=false", 3, 0, -1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        small_gan gan;
        char words[256];
        snprintf(words, sizeof words, BASE "4 model.scale=2 %s", cases[i].words);
        small_gan_build(words, &gan);
        const cod_graph *graph = gan.recipe.model.graph;
        const cod_sub_step *step = small_gan_step(&gan, "generator");
        assert_int_equal(cod_graph_producer(graph, gan.recipe.target)->channels, cases[i].channels);
        assert_int_equal(gan.recipe.task_channel, cases[i].feature < 0 ? cases[i].pixel : cases[i].feature);
        int seen = 0;
        for (int k = 0; step->losses[k] != NULL; k++) {
            const cod_node *loss = cod_graph_producer(graph, step->program.losses[k]);
            const bool pixels = strcmp(step->losses[k], "pixel") == 0 || cases[i].feature < 0;
            if (strcmp(step->losses[k], "adversarial") == 0)
                continue;
            int64_t first = 0; /* of what is compared, or what its features are of */
            for (const cod_node *node = cod_graph_producer(graph, loss->inputs[1]);;
                 node = cod_graph_producer(graph, node->inputs[0])) {
                first = node->kind == COD_NODE_SLICE ? node->first_channel : first;
                if (node->kind == COD_NODE_INPUT)
                    break;
            }
            assert_int_equal(first, pixels ? cases[i].pixel : cases[i].feature);
            seen++;
        }
        assert_int_equal(seen, cases[i].feature < 0 ? 1 : 2);
        const cod_node *detail = cod_graph_producer(graph, small_gan_step(&gan, "discriminator")->figures[2]);
        const cod_node *judged = cod_graph_producer(graph, detail->inputs[0]);
        assert_int_equal(judged->kind == COD_NODE_SLICE ? judged->first_channel : 0, cases[i].judged);
        cod_recipe_clear(&gan.recipe);
        cod_run_config_clear(&gan.config);
    }
}

TEST(contradictions_are_told)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"6 gan.perceptual_file=", "'vgg12' compares features of VGG-19: name its weights in gan.perceptual_file"},
        {"6 gan.content=pixel gan.hidden=9",
         "gan.hidden: the discriminator of recipe 'real_esrgan' has no fully connected layer"},
        {"6 gan.content=pixel gan.r1_every=4",
         "gan.r1_every: there is no R1 penalty to compute in one of 4 steps: set its gamma, gan.r1, above 0, or leave "
         "gan.r1_every out"},
        {"6 gan.content=pixel data.gt_usm=true",
         "data.gt_usm: recipe 'real_esrgan' has an option for each of its losses: set gan.l1_gt_usm"},
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

/**
 * Every so many steps it has an update of its own, in which nothing else counts; the loss is weighted for all pictures'
 * elements.
 */
TEST(the_penalty_is_weighted)
{
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

TEST_GROUP(set_up, cod_test_folder_remove)
