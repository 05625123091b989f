#include "gan/builder_internal.h"

/** A registered kind is the first member of its gan_recipe. */
static const gan_recipe *recipe_of(const cod_recipe_kind *kind)
{
    return (const gan_recipe *)kind;
}

static void check(const cod_run_config *run)
{
    const gan_recipe *recipe = recipe_of(run->recipe);
    gan_check(run, &recipe->published);
    if (recipe->check_patch != NULL)
        recipe->check_patch(run);
}

static void check_files(const cod_run_config *run)
{
    gan_check_files(run, &recipe_of(run->recipe)->published);
}

static cod_truth truth(const cod_run_config *run)
{
    return gan_truth(run, &recipe_of(run->recipe)->published);
}

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    gan_builder b;
    COD_TRY(gan_begin(setting, &recipe_of(recipe->kind)->published, recipe, &b));
    recipe_of(recipe->kind)->add_discriminator(&b);
    COD_TRY(gan_add_content(&b));
    gan_end(&b);
    return COD_OK;
}

static cod_status add_features(const cod_recipe_setting *setting, const cod_recipe *recipe, cod_value pictures,
                               cod_value *features)
{
    return gan_add_features_of(setting, &recipe_of(recipe->kind)->published, recipe, pictures, features);
}

void gan_register(gan_recipe *recipe)
{
    static const cod_option_table *const tables[] = {&gan_option_table};
    recipe->kind = (cod_recipe_kind){.name = recipe->kind.name,
                                     .help = recipe->kind.help,
                                     .tables = tables,
                                     .table_count = 1,
                                     .check = check,
                                     .check_files = check_files,
                                     .truth = truth,
                                     .build = build,
                                     .add_features = add_features};
    cod_recipe_register(&recipe->kind);
}
