#include "gan/esrgan.h"

#include "gan/builder_internal.h"
#include "nn/discriminator.h"

#include <stdio.h>
#include <string.h>

/** How much more the discriminator takes a picture for one of the data than the mean of `others`. */
static cod_value relative(const gan_builder *b, cod_value logits, cod_value mean_of_others)
{
    return cod_graph_scaled_add(b->graph, 1, logits, -1, mean_of_others);
}

static void add_relativistic_losses(gan_builder *b, cod_value real, cod_value fake)
{
    const cod_loss_spec bce = {.kind = COD_LOSS_BCE};
    const double half = 0.5, weight = half * b->settings.adversarial_weight;
    const cod_value zeros = gan_labels(b, "zeros", fake, 0), ones = gan_labels(b, "ones", fake, 1),
                    trues = gan_labels(b, "trues", real, 1 - b->settings.options->label_smoothing);
    const cod_value mean_real = cod_graph_mean(b->graph, real), mean_fake = cod_graph_mean(b->graph, fake);
    const cod_value truer = relative(b, real, cod_graph_stop_gradient(b->graph, mean_fake)),
                    faker = relative(b, fake, cod_graph_stop_gradient(b->graph, mean_real));
    gan_add_loss(b, &b->discriminator, "d_real", truer, trues, bce, half);
    gan_add_loss(b, &b->discriminator, "d_fake", faker, zeros, bce, half);
    gan_add_loss(b, &b->generator, "adversarial.real", relative(b, real, mean_fake), zeros, bce, weight);
    gan_add_loss(b, &b->generator, "adversarial.fake", faker, ones, bce, weight);
    gan_add_means(b, mean_real, mean_fake);
}

static void add_discriminator(gan_builder *b)
{
    const int64_t side = b->setting->config->data.patch * cod_model_scale(&b->recipe->model);
    const cod_vgg_discriminator_spec spec = {
        .side = side, .features = b->settings.options->features, .hidden = b->settings.hidden};
    const cod_value real = cod_vgg_discriminator(b->graph, b->truth, spec);
    const cod_value fake = cod_vgg_discriminator(b->graph, b->made, spec);
    gan_keep(b, b->made, fake);
    gan_keep(b, b->truth, real);
    add_relativistic_losses(b, real, fake);
}

/** The discriminator's fully connected layers are for pictures of one size, which its halvings must lead to. */
static void check_patch(const cod_run_config *run)
{
    const int scale = gan_scale(run);
    const int64_t patch = run->data.patch;
    if (scale == 0 || cod_vgg_discriminator_fits(patch * scale))
        return;
    char fitting[128] = "";
    for (int64_t side = 1; side <= 1024; side *= 2)
        if (cod_vgg_discriminator_fits(side) && side % scale == 0)
            snprintf(fitting + strlen(fitting), sizeof fitting - strlen(fitting), "%s%lld",
                     fitting[0] != '\0' ? ", " : "", (long long)(side / scale));
    cod_config_problem_key(run->config, "data.patch",
                           "a patch of %lld enlarged %d times is %lld pixels a side, but the discriminator of recipe "
                           "'esrgan' judges 16, 32, 64, 128, 256 or 512; %s%s",
                           (long long)patch, scale, (long long)patch * scale,
                           fitting[0] != '\0' ? "patches that fit this scale: " : "no patch fits this scale", fitting);
}

void cod_recipe_register_esrgan(void)
{
    static gan_recipe recipe = {
        .kind = {.name = "esrgan", .help = "super-resolution with a relativistic discriminator"},
        .published = {.content = {"vgg54"},
                      .before_activation = true,
                      .feature_loss = COD_LOSS_L1,
                      .pixel_weight = 1e-2,
                      .adversarial_weight = 5e-3,
                      .hidden = 100},
        .check_patch = check_patch,
        .add_discriminator = add_discriminator};
    gan_register(&recipe);
}
