#include "gan/srgan.h"

#include "gan/builder_internal.h"
#include "nn/discriminator.h"

static void add_discriminator(gan_builder *b)
{
    const int64_t side = b->setting->config->data.patch * cod_model_scale(&b->recipe->model);
    const cod_srgan_discriminator_spec spec = {
        .height = side, .width = side, .features = b->settings.options->features, .hidden = b->settings.hidden};
    const cod_value real = cod_srgan_discriminator(b->graph, b->truth, spec);
    const cod_value fake = cod_srgan_discriminator(b->graph, b->made, spec);
    gan_keep(b, b->made, fake);
    gan_add_plain_losses(b, real, fake);
}

void cod_recipe_register_srgan(void)
{
    static gan_recipe recipe = {
        .kind = {.name = "srgan", .help = "super-resolution with a discriminator, by pixels or features of VGG-19"},
        .published = {.content = {"pixel"}, .feature_loss = COD_LOSS_MSE, .adversarial_weight = 1e-3, .hidden = 1024},
        .add_discriminator = add_discriminator};
    gan_register(&recipe);
}
