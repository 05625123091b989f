#include "gan/builder_internal.h"

#include "gan/features_internal.h"
#include "train/task.h"

#include <math.h>

enum { RGB = 3 };

/** The input of the truth, and what of it the losses take. */
static void add_truth(gan_builder *b)
{
    const gan_settings *s = &b->settings;
    const bool both = s->truth == COD_TRUTH_BOTH;
    cod_recipe *recipe = b->recipe;
    cod_value plain = 0, sharp = 0;
    plain = sharp = recipe->target =
        cod_graph_input_like_of(b->graph, COD_INPUT_TRUTH, b->made, cod_truth_channels(s->truth));
    if (both) {
        plain = cod_graph_slice(b->graph, recipe->target, 0, RGB);
        sharp = cod_graph_slice(b->graph, recipe->target, RGB, RGB);
    }
    b->truth = s->gan_gt_usm ? sharp : plain;
    b->pixel_truth = s->l1_gt_usm ? sharp : plain;
    b->feature_truth = s->percep_gt_usm ? sharp : plain;
    recipe->task_channel = both && (s->layer_count > 0 ? s->percep_gt_usm : s->l1_gt_usm) ? RGB : 0;
}

cod_status gan_begin(const cod_recipe_setting *setting, const gan_published *published, cod_recipe *recipe,
                     gan_builder *b)
{
    const cod_group_config *group = cod_run_config_group(setting->config, setting->group);
    *b = (gan_builder){
        .setting = setting,
        .recipe = recipe,
        .generator = {.program = {.name = "generator", .trains = "model", .batch_statistics = COD_ALL_SETS}},
        .discriminator = {.program = {.name = "discriminator",
                                      .trains = "discriminator",
                                      .batch_statistics = COD_ALL_SETS}},
        .penalty = {.program = {.name = "r1", .trains = "discriminator", .batch_statistics = COD_ALL_SETS}}};
    COD_TRY(gan_settle(setting->config, published, &b->settings));
    COD_TRY(cod_model_build(group->kind, group->architecture, &recipe->model));
    b->graph = recipe->model.graph;
    b->made = recipe->model.output;
    add_truth(b);
    cod_graph_use_set(b->graph, "discriminator");
    return COD_OK;
}

void gan_keep(gan_builder *b, cod_value pictures, cod_value logits)
{
    b->spans[b->span_count++] = (cod_span){pictures, logits};
}

cod_value gan_labels(gan_builder *b, const char *name, cod_value like, double value)
{
    b->recipe->constants[b->recipe->constant_count++] = (cod_recipe_constant){name, (float)value};
    return cod_graph_input_like(b->graph, name, like);
}

void gan_add_loss(gan_builder *b, cod_sub_step *step, const char *name, cod_value prediction, cod_value target,
                  cod_loss_spec spec, double weight)
{
    size_t count = 0;
    while (step->losses[count] != NULL)
        count++;
    spec.weight = (float)weight * b->setting->loss_factor;
    step->losses[count] = name;
    step->program.losses[count] = cod_graph_loss(b->graph, name, prediction, target, spec);
}

void gan_add_figure(gan_builder *b, const char *name, cod_value value)
{
    cod_sub_step *step = &b->discriminator;
    size_t count = 0;
    while (step->figure_names[count] != NULL)
        count++;
    step->figure_names[count] = name;
    step->figures[count] = step->program.outputs[count] = value;
}

static void add_guard(gan_builder *b, cod_recipe_guard guard)
{
    b->recipe->guards[b->recipe->guard_count++] = guard;
}

void gan_add_means(gan_builder *b, cod_value mean_real, cod_value mean_fake)
{
    gan_add_figure(b, "logit.real", mean_real);
    gan_add_figure(b, "logit.fake", mean_fake);
    const cod_recipe_guard won = {
        .name = "discriminator_won",
        .figure = "logit.real",
        .other = "logit.fake",
        .relation = COD_GUARD_DIFFERENCE,
        .least = -INFINITY,
        .most = 10, /* logits of ±5: it is 99.3 % sure of both */
        .advice = "the discriminator is nearly sure of every picture, so the generator learns little from it; try a "
                  "lower gan.rate, a shorter gan.warm_up, or gan.label_smoothing=0.1"};
    cod_recipe_guard lost = won;
    lost.name = "discriminator_lost";
    lost.least = -1, lost.most = INFINITY;
    lost.advice = "the discriminator takes the generator's pictures for the truth rather than the truth itself; try a "
                  "higher gan.rate, a lower train.rate, or gan.warm_up";
    add_guard(b, won);
    add_guard(b, lost);
}

/** How much neighbouring pixels differ (total variation), in the truth and in what the generator made of it. */
static void add_details(gan_builder *b)
{
    const cod_loss_spec variation = {.kind = COD_LOSS_TV};
    gan_add_figure(b, "detail.real", cod_graph_loss(b->graph, "detail.real", b->truth, 0, variation));
    gan_add_figure(b, "detail.fake", cod_graph_loss(b->graph, "detail.fake", b->made, 0, variation));
    const cod_recipe_guard flat = {
        .name = "pictures_flat",
        .figure = "detail.fake",
        .other = "detail.real",
        .relation = COD_GUARD_RATIO,
        .least = 0.1,
        .most = INFINITY,
        .advice =
            "the generator's pictures have next to no detail: it is not trained yet, or has collapsed; begin with "
            "a trained generator (model.init), or try a lower gan.adversarial_weight"};
    cod_recipe_guard noise = flat;
    noise.name = "pictures_noisy";
    noise.relation = COD_GUARD_DIFFERENCE;     /* a ratio to a smooth truth would be large without noise */
    noise.least = -INFINITY, noise.most = 0.4; /* white noise from 0 to 1 varies by 0.67, photographs by 0.1 */
    noise.advice = "the generator's pictures are noise; go on from the last good checkpoint with a lower train.rate, "
                   "gan.rate or gan.adversarial_weight";
    noise.spoils = true;
    add_guard(b, flat);
    add_guard(b, noise);
}

void gan_add_plain_losses(gan_builder *b, cod_value real, cod_value fake)
{
    const cod_loss_spec bce = {.kind = COD_LOSS_BCE};
    const gan_settings *s = &b->settings;
    const cod_value zeros = gan_labels(b, "zeros", fake, 0), ones = gan_labels(b, "ones", fake, 1),
                    trues = gan_labels(b, "trues", real, 1 - s->options->label_smoothing);
    gan_add_loss(b, &b->discriminator, "d_real", real, trues, bce, 1);
    gan_add_loss(b, &b->discriminator, "d_fake", fake, zeros, bce, 1);
    gan_add_loss(b, &b->generator, "adversarial", fake, ones, bce, s->adversarial_weight);
    b->ones = ones;
    gan_add_means(b, cod_graph_mean(b->graph, real), cod_graph_mean(b->graph, fake));
}

void gan_add_r1(gan_builder *b, cod_value real)
{
    const gan_options *o = b->settings.options;
    const double side = (double)(b->setting->config->data.patch * cod_model_scale(&b->recipe->model));
    const double elements = side * side * (double)cod_graph_producer(b->graph, b->truth)->channels;
    const cod_value gradient = cod_graph_gradient(b->graph, real, b->ones, b->truth);
    const cod_value flat = gan_labels(b, "flat", gradient, 0);
    const bool lazy = o->r1_every > 1;
    b->penalty.every = o->r1_every;
    gan_add_loss(b, lazy ? &b->penalty : &b->discriminator, "r1", gradient, flat, (cod_loss_spec){.kind = COD_LOSS_MSE},
                 o->r1 / 2 * elements * (double)o->r1_every);
}

static void add_pixels(gan_builder *b, const char *name, double weight)
{
    gan_add_loss(b, &b->generator, name, b->made, b->pixel_truth,
                 cod_train_loss(b->setting->config, b->recipe->model.task), weight);
}

static cod_status add_features(gan_builder *b)
{
    const gan_settings *s = &b->settings;
    cod_value made[GAN_MAX_LAYERS], truth[GAN_MAX_LAYERS];
    gan_network network;
    COD_TRY(gan_network_examine(s, &network));
    gan_network_add(b->graph, s, &network, b->made, made);
    gan_network_add(b->graph, s, &network, b->feature_truth, truth);
    for (size_t i = 0; i < s->layer_count; i++) {
        const cod_loss_spec loss = {.kind = s->feature_loss};
        const double weight = s->options->content_weight * s->layers[i].weight;
        gan_add_loss(b, &b->generator, s->layer_count == 1 ? "content" : s->layers[i].loss, made[i], truth[i], loss,
                     weight);
        b->recipe->features[b->recipe->feature_count++] =
            (cod_recipe_feature){.made = made[i], .loss = loss.kind, .weight = weight};
    }
    return COD_OK;
}

cod_status gan_add_features_of(const cod_recipe_setting *setting, const gan_published *published,
                               const cod_recipe *recipe, cod_value pictures, cod_value *features)
{
    gan_settings settings;
    gan_network network;
    COD_TRY(gan_settle(setting->config, published, &settings));
    COD_TRY(gan_network_examine(&settings, &network));
    gan_network_add(recipe->model.graph, &settings, &network, pictures, features);
    return COD_OK;
}

/** The loss that was added to the generator's last. */
static cod_value last_loss(const gan_builder *b)
{
    size_t count = 0;
    while (b->generator.losses[count] != NULL)
        count++;
    return b->generator.program.losses[count - 1];
}

/**
 * The loss by which teachers are compared if the content loss compares features: a pixel loss, which may be only a
 * figure.
 */
static cod_value pixel_loss(gan_builder *b)
{
    if (b->settings.pixel_weight > 0)
        return last_loss(b);
    const cod_value loss =
        cod_graph_loss(b->graph, "pixel", b->made, b->truth, cod_train_loss(b->setting->config, b->recipe->model.task));
    b->generator.program.outputs[0] = loss;
    return loss;
}

cod_status gan_add_content(gan_builder *b)
{
    const gan_settings *s = &b->settings;
    if (s->layer_count > 0)
        COD_TRY(add_features(b));
    else
        add_pixels(b, "content", s->options->content_weight);
    b->recipe->task_loss = last_loss(b);
    if (s->pixel_weight > 0)
        add_pixels(b, "pixel", s->pixel_weight);
    if (s->layer_count > 0)
        b->recipe->compared_loss = pixel_loss(b);
    return COD_OK;
}

static void add_sets(gan_builder *b)
{
    const cod_run_config *config = b->setting->config;
    const gan_options *o = b->settings.options;
    cod_recipe_set *sets = b->recipe->sets;
    cod_recipe_set *const discriminator = &sets[cod_graph_set_index(b->graph, "discriminator")];
    const int perceptual = cod_graph_set_index(b->graph, "perceptual");
    sets[0] = (cod_recipe_set){.travels = true,
                               .trained = true,
                               .optimiser = cod_recipe_optimiser(config),
                               .schedule = cod_recipe_schedule(config)};
    *discriminator = sets[0];
    discriminator->travels = o->discriminator_travels;
    discriminator->file = o->discriminator_init[0] != '\0' ? o->discriminator_init : NULL;
    discriminator->optimiser.ema_decay = 0; /* it is never evaluated */
    discriminator->schedule.kind = b->settings.schedule;
    if (o->rate > 0)
        discriminator->schedule.rate = o->rate;
    discriminator->rate_option = "gan.rate";
    if (o->milestones.count > 0)
        discriminator->schedule.milestones = o->milestones;
    if (perceptual >= 0)
        sets[perceptual].file = o->perceptual_file;
}

static void add_step(cod_recipe *recipe, const cod_sub_step *step)
{
    recipe->steps[recipe->step_count++] = *step;
}

static void add_steps(gan_builder *b)
{
    const gan_options *o = b->settings.options;
    /*
     * The generator leaves its pictures, and what it kept, to the discriminator where it runs in each step, on one
     * mini-batch.
     */
    const bool leaves = b->setting->config->train.accumulate == 1 && o->every == 1;
    cod_sub_step forward = {.program = {.name = "forward", .batch_statistics = COD_ALL_SETS, .outputs = {b->made}},
                            .end = leaves ? o->warm_up : 0};
    b->generator.first = o->warm_up;
    b->generator.every = o->every;
    b->generator.distils = true;
    if (leaves)
        b->generator.program.outputs[b->generator.program.outputs[0] != 0] = b->made;
    b->discriminator.program.given[0] = b->made;
    for (size_t i = 0; leaves && i < b->span_count; i++)
        b->generator.program.keeps[i] = forward.program.keeps[i] = b->discriminator.program.resumes[i] = b->spans[i];
    if (leaves && o->warm_up > 0)
        add_step(b->recipe, &forward);
    add_step(b->recipe, &b->generator);
    if (!leaves)
        add_step(b->recipe, &forward);
    add_step(b->recipe, &b->discriminator);
    if (b->penalty.losses[0] != NULL)
        add_step(b->recipe, &b->penalty);
}

void gan_end(gan_builder *b)
{
    add_details(b);
    add_sets(b);
    add_steps(b);
}
