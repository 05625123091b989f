#include "gan/srgan.h"

#include "gan/perceptual.h"
#include "nn/discriminator.h"
#include "train/recipe.h"
#include "train/task.h"

typedef struct gan_options {
    int content;
    bool before_activation;
    double content_weight, pixel_weight, adversarial_weight;
    int feature_loss;
    const char *perceptual_file;
    int perceptual_input;
    int64_t features, hidden;
    double rate;
    int schedule;
    cod_int_list milestones;
    int64_t warm_up;
    double label_smoothing;
} gan_options;

/** Of the layers in their order: vggBC stands for convB_C. */
static const char *const contents[] = {"pixel", "vgg11", "vgg12", "vgg21", "vgg22", "vgg31", "vgg32", "vgg33", "vgg34",
                                       "vgg41", "vgg42", "vgg43", "vgg44", "vgg51", "vgg52", "vgg53", "vgg54", NULL};
static const char *const feature_losses[] = {"mse", "l1", NULL};
static const char *const schedules[] = {"train", "constant", "step", "cosine", NULL};
enum { CONTENT_PIXEL, SCHEDULE_OF_TRAIN = 0, SCHEDULE_FIRST };

#define FIELD(name) offsetof(gan_options, name)
static const cod_option option_list[] = {
    {"content", COD_OPTION_CHOICE, FIELD(content), "pixel", 0, 0, contents,
     "what the content loss compares: pixels, by train.loss, or features of VGG-19, vggBC behind convolution C of "
     "block "
     "B; Ledig et al. use vgg22 and vgg54"},
    {"content_weight", COD_OPTION_FLOAT, FIELD(content_weight), "1", 1e-30, 1e9, NULL,
     "factor of the content loss; Ledig et al. scale features by 1/12.75, which is 0.00615 for mse"},
    {"before_activation", COD_OPTION_BOOL, FIELD(before_activation), "false", 0, 0, NULL,
     "compare features before the activation behind the convolution, as ESRGAN does"},
    {"feature_loss", COD_OPTION_CHOICE, FIELD(feature_loss), "mse", 0, 0, feature_losses, "how features are compared"},
    {"pixel_weight", COD_OPTION_FLOAT, FIELD(pixel_weight), "0", 0, 1e9, NULL,
     "factor of a loss between pixels, by train.loss, beside that between features; 0 = none"},
    {"adversarial_weight", COD_OPTION_FLOAT, FIELD(adversarial_weight), "1e-3", 1e-30, 1e9, NULL,
     "factor of the adversarial loss"},
    {"perceptual_file", COD_OPTION_STRING, FIELD(perceptual_file), "", 0, 0, NULL,
     "safetensors file with VGG-19's weights up to the compared layer, by torchvision's names"},
    {"perceptual_input", COD_OPTION_CHOICE, FIELD(perceptual_input), "auto", 0, 0, cod_perceptual_input_names,
     "how pictures were presented to VGG-19 when it was trained: torchvision (RGB, mean 0.485 0.456 0.406, deviation "
     "0.229 0.224 0.225), caffe (BGR from 0 to 255, mean 103.939 116.779 123.68), or auto, as the file's metadata say"},
    {"features", COD_OPTION_INT, FIELD(features), "64", 1, 1024, NULL,
     "channels of the discriminator's first convolution; the last one has eight times as many"},
    {"hidden", COD_OPTION_INT, FIELD(hidden), "1024", 1, 65536, NULL,
     "width of the discriminator's first fully connected layer"},
    {"rate", COD_OPTION_FLOAT, FIELD(rate), "0", 0, 1e3, NULL,
     "learning rate of the discriminator, before its schedule; 0 = train.rate"},
    {"schedule", COD_OPTION_CHOICE, FIELD(schedule), "train", 0, 0, schedules,
     "learning rate of the discriminator over the run; train: as train.schedule has it"},
    {"milestones", COD_OPTION_INT_LIST, FIELD(milestones), "", 1, 1e12, NULL,
     "schedule step: steps at which the discriminator's rate is multiplied by train.gamma; empty = train.milestones"},
    {"warm_up", COD_OPTION_INT, FIELD(warm_up), "0", 0, 1e12, NULL,
     "steps at the start in which the discriminator learns alone"},
    {"label_smoothing", COD_OPTION_FLOAT, FIELD(label_smoothing), "0", 0, 0.49, NULL,
     "the discriminator is to say 1 less this of the truth (one-sided, Salimans et al. 2016)"},
};
#undef FIELD
static const cod_option_table table = {"gan", "A generator and its discriminator: recipe srgan", option_list,
                                       sizeof option_list / sizeof option_list[0], sizeof(gan_options)};

static cod_vgg_layer layer_of(int content)
{
    cod_vgg_layer layer = {1, content};
    for (; layer.convolution > cod_vgg_convolutions(layer.block); layer.block++)
        layer.convolution -= cod_vgg_convolutions(layer.block);
    return layer;
}

/** What a build works on. */
typedef struct builder {
    const cod_recipe_setting *setting;
    const gan_options *options;
    cod_recipe *recipe;
    cod_graph *graph;
    cod_value content, pixel, adversarial, d_real, d_fake; /**< losses; pixel 0 = none */
    cod_value mean_real, mean_fake;                        /**< of the discriminator's logits */
} builder;

enum { MODEL, DISCRIMINATOR, PERCEPTUAL };

static cod_loss_spec weighted(const builder *b, cod_loss_spec loss, double weight)
{
    loss.weight = (float)weight * b->setting->loss_factor;
    return loss;
}

static cod_value pixel_loss(const builder *b, const char *name, double weight)
{
    const cod_model *model = &b->recipe->model;
    return cod_graph_loss(b->graph, name, model->output, b->recipe->target,
                          weighted(b, cod_train_loss(b->setting->config, model->task), weight));
}

/** Adds the perceptual network and the loss between its features of both pictures. */
static cod_status add_perceptual(builder *b)
{
    const gan_options *o = b->options;
    const cod_loss_spec loss = {.kind = o->feature_loss == 0 ? COD_LOSS_MSE : COD_LOSS_L1};
    cod_vgg_spec spec = {
        .layer = layer_of(o->content), .before_activation = o->before_activation, .channels = COD_VGG_CHANNELS};
    COD_TRY(cod_perceptual_examine(o->perceptual_file, spec.layer, o->perceptual_input, &spec.input));
    cod_graph_use_set(b->graph, "perceptual");
    const cod_value ours = cod_vgg_features(b->graph, b->recipe->model.output, spec);
    const cod_value truth = cod_vgg_features(b->graph, b->recipe->target, spec);
    b->content = cod_graph_loss(b->graph, "content", ours, truth, weighted(b, loss, o->content_weight));
    b->recipe->sets[PERCEPTUAL] = (cod_recipe_set){.file = o->perceptual_file};
    if (o->pixel_weight > 0)
        b->pixel = pixel_loss(b, "pixel", o->pixel_weight);
    return COD_OK;
}

static cod_value labels(builder *b, const char *name, cod_value like, double value)
{
    b->recipe->constants[b->recipe->constant_count++] = (cod_recipe_constant){name, (float)value};
    return cod_graph_input_like(b->graph, name, like);
}

static void add_discriminator(builder *b, int scale)
{
    const gan_options *o = b->options;
    const int64_t side = b->setting->config->data.patch * scale;
    const cod_srgan_discriminator_spec spec = {
        .height = side, .width = side, .features = o->features, .hidden = o->hidden};
    const cod_loss_spec bce = {.kind = COD_LOSS_BCE};
    cod_graph_use_set(b->graph, "discriminator");
    const cod_value real = cod_srgan_discriminator(b->graph, b->recipe->target, spec);
    const cod_value fake = cod_srgan_discriminator(b->graph, b->recipe->model.output, spec);
    const cod_value zeros = labels(b, "zeros", fake, 0), ones = labels(b, "ones", fake, 1),
                    trues = labels(b, "trues", real, 1 - o->label_smoothing);
    b->d_real = cod_graph_loss(b->graph, "d_real", real, trues, weighted(b, bce, 1));
    b->d_fake = cod_graph_loss(b->graph, "d_fake", fake, zeros, weighted(b, bce, 1));
    b->adversarial = cod_graph_loss(b->graph, "adversarial", fake, ones, weighted(b, bce, o->adversarial_weight));
    b->mean_real = cod_graph_mean(b->graph, real);
    b->mean_fake = cod_graph_mean(b->graph, fake);
}

static void add_sets(builder *b)
{
    const cod_run_config *config = b->setting->config;
    const gan_options *o = b->options;
    cod_recipe_set *sets = b->recipe->sets;
    sets[MODEL] = (cod_recipe_set){.travels = true,
                                   .trained = true,
                                   .optimiser = cod_recipe_optimiser(config),
                                   .schedule = cod_recipe_schedule(config)};
    sets[DISCRIMINATOR] = sets[MODEL];
    sets[DISCRIMINATOR].travels = false;
    sets[DISCRIMINATOR].optimiser.ema_decay = 0; /* nobody evaluates it */
    cod_schedule *schedule = &sets[DISCRIMINATOR].schedule;
    if (o->rate > 0)
        schedule->rate = o->rate;
    if (o->schedule != SCHEDULE_OF_TRAIN)
        schedule->kind = (cod_schedule_kind)(o->schedule - SCHEDULE_FIRST);
    if (o->milestones.count > 0)
        schedule->milestones = o->milestones;
}

static void add_step(cod_recipe *recipe, cod_sub_step step)
{
    recipe->steps[recipe->step_count++] = step;
}

static void add_steps(builder *b)
{
    const int64_t warm_up = b->options->warm_up;
    const bool keeps = b->setting->config->train.accumulate == 1; /* the generator's pictures, for the discriminator */
    const cod_value fake = b->recipe->model.output;
    cod_sub_step forward = {.program = {.name = "forward", .batch_statistics = COD_ALL_SETS, .outputs = {fake}},
                            .end = keeps ? warm_up : 0};
    const cod_sub_step generator = {.program = {.name = "generator",
                                                .trains = "model",
                                                .batch_statistics = COD_ALL_SETS,
                                                .losses = {b->content, b->adversarial, b->pixel},
                                                .outputs = {keeps ? fake : 0}},
                                    .losses = {"content", "adversarial", b->pixel != 0 ? "pixel" : NULL},
                                    .first = warm_up,
                                    .distils = true};
    const cod_sub_step discriminator = {.program = {.name = "discriminator",
                                                    .trains = "discriminator",
                                                    .batch_statistics = COD_ALL_SETS,
                                                    .losses = {b->d_real, b->d_fake},
                                                    .outputs = {b->mean_real, b->mean_fake},
                                                    .given = {fake}},
                                        .losses = {"d_real", "d_fake"},
                                        .figures = {b->mean_real, b->mean_fake},
                                        .figure_names = {"logit.real", "logit.fake"}};
    if (keeps && warm_up > 0)
        add_step(b->recipe, forward);
    add_step(b->recipe, generator);
    if (!keeps)
        add_step(b->recipe, forward);
    add_step(b->recipe, discriminator);
}

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    const cod_group_config *group = cod_run_config_group(setting->config, setting->group);
    builder b = {.setting = setting, .options = cod_run_config_section(setting->config, &table), .recipe = recipe};
    COD_TRY(cod_model_build(group->kind, group->architecture, &recipe->model));
    b.graph = recipe->model.graph;
    recipe->target = cod_graph_input_like(b.graph, COD_INPUT_TRUTH, recipe->model.output);
    add_discriminator(&b, cod_model_scale(&recipe->model));
    if (b.options->content == CONTENT_PIXEL)
        b.content = pixel_loss(&b, "content", b.options->content_weight);
    else
        COD_TRY(add_perceptual(&b));
    recipe->task_loss = b.content;
    add_sets(&b);
    add_steps(&b);
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    const gan_options *o = cod_run_config_section(run, &table);
    const cod_model_kind *kind = run->whole.kind;
    if (kind != NULL && kind->task != COD_TASK_SUPER_RESOLUTION)
        cod_config_problem_key(run->config, "train.recipe",
                               "the discriminator of recipe 'srgan' judges pictures; model '%s' makes none",
                               kind->name);
    if (o->content != CONTENT_PIXEL && o->perceptual_file[0] == '\0')
        cod_config_problem_key(run->config, "gan.content",
                               "'%s' compares features of VGG-19: name its weights in gan.perceptual_file",
                               contents[o->content]);
    if (o->content == CONTENT_PIXEL && o->pixel_weight > 0)
        cod_config_problem_key(run->config, "gan.pixel_weight",
                               "the content loss compares pixels already: set gan.content_weight");
    if (o->warm_up >= run->train.steps)
        cod_config_problem_key(run->config, "gan.warm_up",
                               "%lld steps of the discriminator alone leave nothing of %lld steps",
                               (long long)o->warm_up, (long long)run->train.steps);
}

static void check_files(const cod_run_config *run)
{
    const gan_options *o = cod_run_config_section(run, &table);
    cod_vgg_input input;
    if (o->content != CONTENT_PIXEL && o->perceptual_file[0] != '\0' &&
        cod_perceptual_examine(o->perceptual_file, layer_of(o->content), o->perceptual_input, &input) != COD_OK)
        cod_config_problem_key(run->config, "gan.perceptual_file", "%s", cod_error_message());
}

void cod_recipe_register_srgan(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_recipe_kind kind = {.name = "srgan",
                                         .help =
                                             "super-resolution with a discriminator, by pixels or features of VGG-19",
                                         .tables = tables,
                                         .table_count = 1,
                                         .check = check,
                                         .check_files = check_files,
                                         .build = build};
    cod_recipe_register(&kind);
}
