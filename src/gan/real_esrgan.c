#include "gan/real_esrgan.h"

#include "gan/builder_internal.h"
#include "nn/discriminator.h"

static void add_discriminator(gan_builder *b)
{
    const cod_value real = cod_unet_discriminator(b->graph, b->truth, b->settings.options->features);
    const cod_value fake = cod_unet_discriminator(b->graph, b->made, b->settings.options->features);
    gan_add_plain_losses(b, real, fake);
    if (b->settings.options->r1 > 0)
        gan_add_r1(b, real);
}

/** The discriminator halves pictures three times and enlarges them again. */
static void check_patch(const cod_run_config *run)
{
    enum { MULTIPLE = COD_UNET_DISCRIMINATOR_MULTIPLE };
    const int scale = gan_scale(run);
    const int64_t patch = run->data.patch;
    int64_t fitting = patch;
    while (scale > 0 && fitting * scale % MULTIPLE != 0)
        fitting++;
    if (fitting != patch)
        cod_config_problem_key(run->config, "data.patch",
                               "a patch of %lld enlarged %d times is %lld pixels a side, but the discriminator of "
                               "recipe 'real_esrgan' judges multiples of %d; %lld would fit",
                               (long long)patch, scale, (long long)patch * scale, MULTIPLE, (long long)fitting);
}

void cod_recipe_register_real_esrgan(void)
{
    static gan_recipe recipe = {
        .kind = {.name = "real_esrgan", .help = "super-resolution with a discriminator that judges each pixel"},
        .published = {.content = {"0.1*vgg12", "0.1*vgg22", "vgg34", "vgg44", "vgg54"},
                      .before_activation = true,
                      .feature_loss = COD_LOSS_L1,
                      .pixel_weight = 1,
                      .adversarial_weight = 0.1,
                      .l1_gt_usm = true,
                      .percep_gt_usm = true,
                      .piecewise_linear = true},
        .check_patch = check_patch,
        .add_discriminator = add_discriminator};
    gan_register(&recipe);
}
