#include "gan/srgan.h"

#include "gan/builder_internal.h"
#include "nn/discriminator.h"

static const gan_published published = {
    .content = {"pixel"}, .feature_loss = COD_LOSS_MSE, .adversarial_weight = 1e-3, .hidden = 1024};

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    gan_builder b;
    COD_TRY(gan_begin(setting, &published, recipe, &b));
    const int64_t side = setting->config->data.patch * cod_model_scale(&recipe->model);
    const cod_srgan_discriminator_spec spec = {
        .height = side, .width = side, .features = b.settings.options->features, .hidden = b.settings.hidden};
    const cod_value real = cod_srgan_discriminator(b.graph, b.truth, spec);
    const cod_value fake = cod_srgan_discriminator(b.graph, b.made, spec);
    gan_keep(&b, b.made, fake);
    gan_add_plain_losses(&b, real, fake);
    COD_TRY(gan_add_content(&b));
    gan_end(&b);
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    gan_check(run, &published);
}

static cod_truth truth(const cod_run_config *run)
{
    return gan_truth(run, &published);
}

static void check_files(const cod_run_config *run)
{
    gan_check_files(run, &published);
}

static cod_status add_features(const cod_recipe_setting *setting, const cod_recipe *recipe, cod_value pictures,
                               cod_value *features)
{
    return gan_add_features_of(setting, &published, recipe, pictures, features);
}

void cod_recipe_register_srgan(void)
{
    static const cod_option_table *const tables[] = {&gan_option_table};
    static const cod_recipe_kind kind = {.name = "srgan",
                                         .help =
                                             "super-resolution with a discriminator, by pixels or features of VGG-19",
                                         .tables = tables,
                                         .table_count = 1,
                                         .check = check,
                                         .check_files = check_files,
                                         .truth = truth,
                                         .build = build,
                                         .add_features = add_features};
    cod_recipe_register(&kind);
}
