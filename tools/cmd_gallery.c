/* `codistill gallery`: one page that compares what models make of the same pictures. */
#include "tools/cmd.h"

#include "data/detail.h"
#include "data/files.h"
#include "infer/calibrate.h"
#include "infer/evaluate.h"
#include "infer/named_model.h"
#include "infer/session.h"
#include "io/file.h"
#include "report/gallery.h"
#include "report/markup.h"
#include "tools/arguments.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill gallery [MODEL...] --data DIR -o OUT.html [options]\n"
    "       codistill gallery [MODEL...] --low DIR -o OUT.html [options]\n\n"
    "Writes one self-contained HTML page for comparing models by eye. For each picture it shows a slider between "
    "any two results, the same crop of all results enlarged, and their PSNR and SSIM. The pictures of --data are the "
    "truth: they are reduced by MATLAB's bicubic first, as in `codistill eval`. If DIR has pairs of files named "
    "...HR... and ...LR..., the HR pictures are used. Those of --low have no truth: they are enlarged as they are and "
    "shown beside the results, without PSNR and SSIM. Bicubic interpolation is always among the results. MODEL is a "
    ".safetensors or .pth file, or sr-x4 (the default) or sr-x4-perceptual, which come with the program. All models "
    "must have the same scale.\n\n"
    "  --data DIR\tpictures (PNG, JPEG, WebP, TIFF, BMP), also in subfolders\n"
    "  --low DIR\tlikewise, of photographs without truth\n"
    "  -o, --output F\tthe page, a .html file\n"
    "  --title TEXT\theading of the page (Gallery)\n"
    "  --count N\tshow at most N pictures, spread evenly over DIR (8)\n"
    "  --side N\tcut pictures to their middle, so that results have N x N pixels at most (1024)\n"
    "  --niqe-model F\talso show NIQE, with this model of natural pictures: BasicSR's niqe_pris_params.npz\n"
    "  --force\treplace an existing page\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --threads N\tnumber of threads; 0 = as many as the process may use (0)\n"
    "  --precision P\tauto, f32, bf16 or int8 (auto)\n"
    "  --quiet\tprint neither progress nor the line at the end\n"
    "  --help\n";

enum {
    MOST_MODELS = 16,
    COUNT = 8,
    SIDE = 1024,
    LEAST_SIDE = 64,
    LEAST_LOW_SIDE = 8,
    MOST_SIDE = 16383 /* of WebP */,
    CROP = 96
};

typedef struct arguments {
    const char *data, *output, *title, *niqe_model;
    long count, side;
    bool low; /**< the pictures have no truth */
    bool force, quiet;
    char *const *models;
    size_t model_count;
    cod_session_options session;
} arguments;

/** What all pictures share. The first model is bicubic, and the last view is the truth or, without it, the picture. */
typedef struct gallery {
    const arguments *args;
    cod_arena arena;
    const char *names[MOST_MODELS + 1];
    cod_session sessions[MOST_MODELS];
    size_t models;
    int scale;
    cod_niqe_model niqe;
    cod_gallery_view means[MOST_MODELS + 1]; /**< sums, until all pictures are in `body` */
    size_t pictures, judged;                 /**< in the means; those of them with NIQE, which alone are in its mean */
    FILE *body;
} gallery;

/** "NAME" of NAME.safetensors, or of NAME/final.safetensors, because each run has a file of that name. */
static const char *label(const char *path, cod_arena *arena)
{
    static const char ending[] = ".safetensors", usual[] = "/final.safetensors";
    char *text = cod_arena_strdup(arena, path);
    if (text == NULL)
        return NULL;
    const size_t length = strlen(text);
    const bool is_usual = length > sizeof usual - 1 && strcmp(text + length - (sizeof usual - 1), usual) == 0;
    const size_t cut = is_usual ? sizeof usual - 1 : sizeof ending - 1;
    if (length > cut && (is_usual || strcmp(text + length - cut, ending) == 0))
        text[length - cut] = '\0';
    const char *slash = strrchr(text, '/');
    return slash != NULL ? slash + 1 : text;
}

static cod_status add_model(gallery *g, const char *named)
{
    const arguments *args = g->args;
    cod_session *session = &g->sessions[g->models];
    const char *path;
    COD_TRY(cod_named_model_find(&g->arena, named, &path));
    const char *name = strcmp(path, COD_BICUBIC) == 0 ? path : label(path, &g->arena);
    COD_REQUIRE_MEMORY(name);
    for (size_t i = 0; i < g->models; i++)
        if (strcmp(name, g->names[i]) == 0)
            name = path;
    COD_TRY(cod_session_open(path, &args->session, session));
    g->names[g->models++] = name;
    const int scale = cod_upscaler_scale(session->upscaler);
    COD_REQUIRE(g->scale == 0 || scale == g->scale, "%s enlarges %d times, but the models before it %d times", path,
                scale, g->scale);
    g->scale = scale;
    return cod_upscaler_needs_calibration(session->upscaler)
               ? cod_calibrate_folder(session->upscaler, args->data, !args->low)
               : COD_OK;
}

/** Bicubic comes first, but takes its scale from the models. */
static cod_status open_models(gallery *g)
{
    const arguments *args = g->args;
    g->names[g->models++] = COD_BICUBIC;
    for (size_t i = 0; i < args->model_count; i++)
        if (strcmp(args->models[i], COD_BICUBIC) != 0)
            COD_TRY(add_model(g, args->models[i]));
    if (args->model_count == 0)
        COD_TRY(add_model(g, NULL));
    cod_session_options bicubic = args->session;
    bicubic.scale = g->scale > 0 ? g->scale : bicubic.scale;
    COD_TRY(cod_session_open(COD_BICUBIC, &bicubic, &g->sessions[0]));
    g->scale = cod_upscaler_scale(g->sessions[0].upscaler);
    g->names[g->models] = args->low ? "low" : "truth";
    return args->niqe_model != NULL ? cod_niqe_model_load(args->niqe_model, &g->niqe) : COD_OK;
}

/**
 * Reads a picture; keeps its middle: of a true picture at most args->side pixels to a side, a multiple of the scale, of
 * a low one so many that results have as many pixels.
 */
static cod_status read_picture(const gallery *g, const char *path, cod_image *truth)
{
    cod_image whole;
    COD_TRY(cod_image_read(path, &whole));
    cod_status status = cod_image_to_rgb8(&whole);
    const int64_t scale = g->args->low ? 1 : g->scale, side = g->args->low ? g->args->side / g->scale : g->args->side,
                  needed = g->args->low ? LEAST_LOW_SIDE : LEAST_SIDE;
    const int64_t width = (whole.width < side ? whole.width : side) / scale * scale,
                  height = (whole.height < side ? whole.height : side) / scale * scale;
    if (status == COD_OK && (width < needed || height < needed))
        status = cod_fail(COD_ERR_ARGUMENT, "%s: %lldx%lld pixels are too few; at least %d to a side are needed", path,
                          (long long)whole.width, (long long)whole.height, (int)needed);
    COD_THEN(status, cod_detail_cut(whole.pixels, whole.width, (whole.width - width) / 2, (whole.height - height) / 2,
                                    width, height, truth));
    cod_image_clear(&whole);
    return status;
}

/** Computes NIQE where it is wanted and the picture is large enough for it; NaN otherwise. */
static cod_status judge(const gallery *g, cod_gallery_view *view)
{
    view->niqe = NAN;
    if (g->args->niqe_model == NULL)
        return COD_OK;
    const cod_status status = cod_niqe(&view->image, g->scale, &g->niqe, &view->niqe);
    return status == COD_ERR_ARGUMENT ? COD_OK : status;
}

/** Each pixel as a square. */
static cod_status enlarge_plainly(const cod_image *low, int64_t scale, cod_image *out)
{
    COD_TRY(cod_image_init(out, low->width * scale, low->height * scale, 3, 8));
    const unsigned char *from = low->pixels;
    unsigned char *to = out->pixels;
    for (int64_t y = 0; y < out->height; y++)
        for (int64_t x = 0; x < out->width; x++, to += 3)
            memcpy(to, from + 3 * (y / scale * low->width + x / scale), 3);
    return COD_OK;
}

/** What model `index` makes of the picture, or, behind the models, the picture itself. */
static cod_status make_view(const gallery *g, size_t index, const cod_image *picture, cod_gallery_view *view)
{
    const bool low = g->args->low;
    view->name = g->names[index];
    view->quality = (cod_quality){NAN, NAN, NAN, NAN};
    view->niqe = NAN;
    if (index < g->models && low)
        COD_TRY(cod_upscaler_run(g->sessions[index].upscaler, picture, NULL, NULL, &view->image));
    else if (index < g->models)
        COD_TRY(cod_evaluate_image(g->sessions[index].upscaler, picture, &view->quality, &view->image));
    else if (low)
        return enlarge_plainly(picture, g->scale, &view->image); /* no judge knows squares */
    else
        COD_TRY(cod_detail_cut(picture->pixels, picture->width, 0, 0, picture->width, picture->height, &view->image));
    return judge(g, view);
}

static cod_status make_views(const gallery *g, const cod_image *picture, cod_gallery_view *views)
{
    for (size_t i = 0; i <= g->models; i++)
        COD_TRY(make_view(g, i, picture, &views[i]));
    return COD_OK;
}

static void add_means(gallery *g, const cod_gallery_view *views)
{
    const size_t judgeable = g->models + (g->args->low ? 0 : 1);
    bool judged = true;
    for (size_t i = 0; i < judgeable; i++)
        judged = judged && !isnan(views[i].niqe);
    for (size_t i = 0; i <= g->models; i++) {
        cod_gallery_view *mean = &g->means[i];
        mean->name = views[i].name;
        mean->quality.psnr_y += views[i].quality.psnr_y;
        mean->quality.ssim_y += views[i].quality.ssim_y;
        mean->niqe += judged || i >= judgeable ? views[i].niqe : 0;
    }
    g->pictures++;
    g->judged += judged;
}

static cod_status add_picture(gallery *g, const cod_file *file)
{
    cod_gallery_view views[MOST_MODELS + 1] = {0};
    cod_image read;
    COD_TRY(read_picture(g, file->path, &read));
    const int64_t scale = g->args->low ? g->scale : 1, crop = CROP / scale;
    cod_gallery_picture picture = {.title = file->name,
                                   .views = views,
                                   .view_count = g->models + 1,
                                   .width = read.width < crop ? read.width : crop,
                                   .height = read.height < crop ? read.height : crop};
    cod_detail_find(read.pixels, read.width, read.height, picture.width, picture.height, &picture.left, &picture.top);
    picture.left *= scale, picture.top *= scale, picture.width *= scale, picture.height *= scale;
    cod_status status = make_views(g, &read, views);
    COD_THEN(status, cod_gallery_write_picture(g->body, &picture));
    if (status == COD_OK)
        add_means(g, views);
    for (size_t i = 0; i <= g->models; i++)
        cod_image_clear(&views[i].image);
    cod_image_clear(&read);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", file->path);
}

/** Whether a picture is the low one of a pair, whose true one is reduced in its place. */
static bool is_left_out(const gallery *g, const cod_file_list *files, size_t index)
{
    return !g->args->low && cod_evaluation_is_low(files, files->items[index].name);
}

/** Writes args->count sections, evenly spread over `files`; names a broken or too small picture and leaves it out. */
static cod_status add_pictures(gallery *g, const cod_file_list *files)
{
    const bool progress = !g->args->quiet && isatty(STDERR_FILENO);
    size_t usable = 0, shown = 0;
    for (size_t i = 0; i < files->count; i++)
        usable += !is_left_out(g, files, i);
    const size_t wanted = usable < (size_t)g->args->count ? usable : (size_t)g->args->count;
    for (size_t i = 0, k = 0; i < files->count && shown < wanted; i++) {
        if (is_left_out(g, files, i) || k++ < shown * usable / wanted)
            continue;
        shown++;
        if (progress)
            fprintf(stderr, "\r\033[Kpicture %zu of %zu", shown, wanted);
        const cod_status status = add_picture(g, &files->items[i]);
        if (status == COD_OK)
            continue;
        if (status != COD_ERR_FORMAT && status != COD_ERR_UNSUPPORTED && status != COD_ERR_ARGUMENT)
            return status;
        cod_cmd_failed(status);
    }
    if (progress)
        fputs("\r\033[K", stderr);
    COD_REQUIRE(g->pictures > 0, "%s: no picture can be shown", g->args->data);
    return COD_OK;
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void write_page(gallery *g, FILE *out, const char *body, size_t bytes)
{
    char about[8192];
    for (size_t i = 0; i <= g->models; i++) {
        g->means[i].quality.psnr_y /= (double)g->pictures;
        g->means[i].quality.ssim_y /= (double)g->pictures;
        g->means[i].niqe = g->judged > 0 ? g->means[i].niqe / (double)g->judged : NAN;
    }
    const int length =
        g->args->low
            ? snprintf(
                  about, sizeof about,
                  "%zu picture%s of %s, enlarged %d times as they are. There is no truth to compare with, so there "
                  "is no PSNR and no SSIM: compare by eye%s.",
                  g->pictures, plural(g->pictures), g->args->data, g->scale,
                  g->args->niqe_model != NULL ? ", and by NIQE" : "")
            : snprintf(about, sizeof about,
                       "%zu picture%s of %s, each scaled down to 1/%d by bicubic interpolation and enlarged again by "
                       "each model.",
                       g->pictures, plural(g->pictures), g->args->data, g->scale);
    if (g->args->niqe_model != NULL && g->judged < g->pictures && (size_t)length < sizeof about)
        snprintf(about + length, sizeof about - (size_t)length,
                 " NIQE's mean is of %zu picture%s; the others are too small or too flat for it.", g->judged,
                 plural(g->judged));
    cod_gallery_write_head(out, &(cod_gallery_head){.title = g->args->title,
                                                    .about = about,
                                                    .means = g->means,
                                                    .mean_count = g->models + 1,
                                                    .with_truth = !g->args->low,
                                                    .with_niqe = g->args->niqe_model != NULL});
    fwrite(body, 1, bytes, out);
    cod_gallery_write_end(out);
}

/** Writes the page around the pictures' sections. */
static cod_status save(gallery *g, const char *body, size_t body_bytes)
{
    char *page = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&page, &bytes);
    COD_REQUIRE_MEMORY(out);
    write_page(g, out, body, body_bytes);
    const bool failed = ferror(out) != 0, unfinished = fclose(out) != 0;
    cod_status status = failed || unfinished ? cod_fail(COD_ERR_MEMORY, "no memory for the page")
                                             : cod_file_write(g->args->output, page, bytes);
    free(page);
    if (status == COD_OK && !g->args->quiet)
        cod_print(stdout, "%s: %zu picture%s by %zu models, %s\n", g->args->output, g->pictures, plural(g->pictures),
                  g->models, cod_bytes_text((double)bytes).text);
    return status;
}

static cod_status make(gallery *g, cod_file_list *files)
{
    char *body = NULL;
    size_t bytes = 0;
    COD_REQUIRE(g->args->force || !cod_file_exists(g->args->output), "%s: exists already; --force replaces it",
                g->args->output);
    COD_TRY(cod_files_find(files, g->args->data, 0));
    COD_REQUIRE(files->count > 0, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) in it", g->args->data);
    COD_TRY(open_models(g));
    g->body = open_memstream(&body, &bytes);
    COD_REQUIRE_MEMORY(g->body);
    cod_status status = add_pictures(g, files);
    const bool failed = ferror(g->body) != 0, unfinished = fclose(g->body) != 0;
    if (status == COD_OK && (failed || unfinished))
        status = cod_fail(COD_ERR_MEMORY, "no memory for the page");
    COD_THEN(status, save(g, body, bytes));
    free(body);
    return status;
}

static int run(const arguments *args)
{
    gallery g = {.args = args};
    cod_file_list files = {0};
    const int code = cod_cmd_end(make(&g, &files));
    for (size_t i = 0; i < g.models; i++)
        cod_session_close(&g.sessions[i]);
    cod_files_clear(&files);
    cod_arena_clear(&g.arena);
    return code;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, arguments *args, cod_arena *arena)
{
    const char *count = NULL, *side = NULL, *low = NULL;
    const cod_argument own[] = {{.name = "data", .text = &args->data, .words = COD_WORDS_FILES},
                                {.name = "low", .text = &low, .words = COD_WORDS_FILES},
                                {.name = "output", .letter = 'o', .text = &args->output, .words = COD_WORDS_FILES},
                                {.name = "title", .text = &args->title},
                                {.name = "count", .text = &count},
                                {.name = "side", .text = &side},
                                {.name = "niqe-model", .text = &args->niqe_model, .words = COD_WORDS_FILES},
                                {.name = "force", .flag = &args->force},
                                {.name = "quiet", .flag = &args->quiet}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &args->session, arena);
    if (code < 0)
        code = cod_argument_number(argv[0], "count", count, 1, 1000, &args->count);
    if (code < 0)
        code = cod_argument_number(argv[0], "side", side, LEAST_SIDE, MOST_SIDE, &args->side);
    if (code >= 0)
        return code;
    args->models = argv + optind;
    args->model_count = (size_t)(argc - optind);
    if (args->model_count >= MOST_MODELS)
        return cod_cmd_usage(argv[0], "%zu models are too many; at most %d are shown beside bicubic", args->model_count,
                             MOST_MODELS - 1);
    if (args->data != NULL && low != NULL)
        return cod_cmd_usage(argv[0], "--data and --low exclude each other: either pictures are the truth, or there is "
                                      "none");
    args->low = low != NULL;
    args->data = low != NULL ? low : args->data;
    if (args->data == NULL)
        return cod_cmd_usage(argv[0], "--data DIR is missing: the folder of pictures; or --low DIR, of photographs "
                                      "without truth");
    if (args->output == NULL)
        return cod_cmd_usage(argv[0], "-o OUT.html is missing: the page to write");
    const size_t length = strlen(args->output);
    if (length < sizeof ".html" || strcmp(args->output + length - 5, ".html") != 0)
        return cod_cmd_usage(argv[0], "%s: the page's name must end with .html", args->output);
    return -1;
}

int cod_cmd_gallery(int argc, char **argv)
{
    arguments args = {.title = "Gallery", .count = COUNT, .side = SIDE};
    cod_arena arena = {0};
    int code = parse(argc, argv, &args, &arena);
    if (code < 0)
        code = run(&args);
    cod_arena_clear(&arena);
    return code;
}
