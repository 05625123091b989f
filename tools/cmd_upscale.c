/* `codistill upscale`: pictures and videos to larger ones. */
#include "tools/cmd.h"

#include "core/duration.h"
#include "core/log.h"
#include "core/trace.h"
#include "data/files.h"
#include "data/resize.h"
#include "data/transparency.h"
#include "infer/calibrate.h"
#include "infer/named_model.h"
#include "infer/session.h"
#include "io/file.h"
#include "tools/arguments.h"
#include "tools/print.h"
#include "tools/video.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill upscale [MODEL] IN... -o OUT [options]\n\n"
    "Upscales pictures (PNG, JPEG, WebP, TIFF, BMP) and videos. IN is a file, or a folder with its subfolders. MODEL "
    "is one of these; without it, sr-x4 is used:\n"
    "  sr-x4\tenlarges four times; comes with the program\n"
    "  sr-x4-perceptual\tthe same, sharper to look at, but with invented detail; comes with the program\n"
    "  bicubic\tbicubic interpolation\n"
    "  FILE.safetensors\ta model of your own, also from a checkpoint\n"
    "  FILE.pth\ta model of PyTorch whose network is known by its tensors, read as `import` reads it\n"
    "  RUN\tthe folder of a training run: its final model\n"
    "OUT is a .png, .jpg or .webp file for one picture; otherwise a folder, which is made if it does not exist. PNG "
    "keeps transparency and 16 bits, WebP keeps transparency, in JPEG what is transparent lies on white, and gray "
    "pictures stay gray. Colour profile, EXIF and resolution are kept. Existing files are not replaced without "
    "--force; --skip-existing goes on where the same command was interrupted.\n"
    "Large pictures run through the network in bands from top to bottom, so that the memory for computing grows with "
    "the width alone. With --tile they run in tiles, which overlap as far as the network sees. Neither leaves seams. "
    "The line printed for each picture includes the memory used.\n"
    "A video, also a moving GIF, is upscaled frame by frame to a .mp4, .mov, .mkv or .webm file. This needs "
    "ffmpeg. Frame rate and sound are kept; subtitles and transparency are not. The result's colours are BT.709: "
    "HDR is tone-mapped.\n\n"
    "  -o, --output OUT\ta .png, .jpg or .webp file, or a folder; for a video a .mp4, .mov, .mkv or .webm file\n"
    "  --format F\tformat of the files in a folder: png, jpg or webp (png)\n"
    "  --quality N\tJPEG and WebP: quality from 1 to 100; 100 is lossless for WebP (95)\n"
    "  -i, --input IN\tIN, as some other programs have it; may also stand without\n"
    "  -n, --model MODEL\tMODEL, likewise\n"
    "  -s, --outscale X\tsize of the result relative to the input, from 0.1 to 16; the model's output is resized to "
    "it by bicubic interpolation (the model's scale)\n"
    "  --crf N\tvideos: the encoder's constant rate factor, from 0 (lossless) to 51 (18)\n"
    "  --force\treplace existing results\n"
    "  --skip-existing\tleave out the pictures whose results exist already\n"
    "  --tile N\trun tiles of N low-resolution pixels a side, at least 8, instead of bands; a smaller N takes less "
    "memory\n"
    "  --scale N\tmust equal the model's scale; for bicubic any from 1 to 16 (4)\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --threads N\tnumber of threads; 0 = as many as the process may use (0)\n"
    "  --precision P\tauto, f32, bf16 or int8 (auto)\n"
    "  --calibrate DIR\tint8: low-resolution pictures for measuring ranges. Without it the ranges of the model file "
    "are used, or ranges measured on IN\n"
    "  --quiet\tprint neither progress nor a line for each picture\n"
    "  --help\n";

enum { DEFAULT_QUALITY = 95 };

typedef struct arguments {
    const char *model; /**< NULL = the one that comes with the program */
    const char *output, *calibrate;
    const char **inputs;
    size_t input_count;
    cod_image_format format; /**< of results in a folder */
    long quality, crf;
    double outscale; /**< 0 = the model's */
    bool quiet, force, skip_existing;
    cod_session_options session;
} arguments;

/** Pictures to read, and where each goes. */
typedef struct picture_work {
    cod_file_list files;
    cod_arena arena;
    const char **outputs; /**< [files.count]; NULL = it exists already, and the picture is left out */
    int64_t bytes;        /**< of the pictures that are not left out */
    size_t count;         /**< of them */
} picture_work;

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/** The part after the last dot of the last component, dot included; "" when there is none. */
static const char *extension(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return dot != NULL && dot != name ? dot : "";
}

/** Whether an input is a video; one of GIF is, where the result is one. */
static bool is_video(const char *input, const char *output)
{
    return !is_folder(input) &&
           (cod_video_is_called(input) || (strcasecmp(extension(input), ".gif") == 0 && cod_video_is_writable(output)));
}

/** Whether an operand is a picture, a video or a folder of them, so that it is no model. */
static bool is_input(const char *operand)
{
    return (is_folder(operand) && !cod_file_is_run(operand)) || cod_file_is_called_image(operand) ||
           cod_video_is_called(operand);
}

static const char *const format_names[COD_IMAGE_FORMATS + 1] = {
    [COD_IMAGE_PNG] = "png", [COD_IMAGE_JPEG] = "jpg", [COD_IMAGE_WEBP] = "webp"};

/** "OUT/NAME.png" in place of NAME's own extension. */
static const char *output_in_folder(const arguments *args, const char *name, cod_arena *arena)
{
    const int stem = (int)(strlen(name) - strlen(extension(name)));
    const size_t bytes = strlen(name) + sizeof ".webp";
    char *file = cod_arena_alloc(arena, bytes);
    if (file == NULL)
        return NULL;
    snprintf(file, bytes, "%.*s.%s", stem, name, format_names[args->format]);
    return cod_path_join(arena, args->output, file);
}

/** @param[out] skipped  NULL = an existing result is not to be left out */
static cod_status check_output(const char *input, const char *output, bool force, bool *skipped)
{
    struct stat in, out;
    const bool exists = stat(output, &out) == 0;
    COD_REQUIRE(!exists || stat(input, &in) != 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino,
                "%s: the output would replace the input; choose another -o", input);
    if (skipped != NULL)
        *skipped = exists && S_ISREG(out.st_mode);
    else
        COD_REQUIRE(!exists || force || !S_ISREG(out.st_mode),
                    "%s: exists already; --force replaces it, --skip-existing leaves it", output);
    return COD_OK;
}

/** Finds the pictures and decides on all outputs before the first is made. */
static cod_status work_find(const arguments *args, picture_work *work)
{
    work->files.output = args->output;
    for (size_t i = 0; i < args->input_count; i++) {
        COD_REQUIRE(!is_video(args->inputs[i], args->output),
                    "%s: a video is upscaled alone, without others and without pictures", args->inputs[i]);
        const size_t before = work->files.count;
        COD_TRY(cod_files_find(&work->files, args->inputs[i], i));
        COD_REQUIRE(work->files.count > before, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) in it",
                    args->inputs[i]);
    }
    const bool one_file = args->input_count == 1 && !is_folder(args->inputs[0]);
    const bool to_file = one_file && !is_folder(args->output) && *extension(args->output) != '\0';
    COD_REQUIRE(!to_file || cod_image_format_of(args->output) != COD_IMAGE_FORMATS,
                "%s: results are written as .png, .jpg or .webp; name it so, or name a folder", args->output);
    struct stat info;
    COD_REQUIRE(to_file || is_folder(args->output) || stat(args->output, &info) != 0,
                "%s: is a file, but several pictures need a folder", args->output);
    work->outputs = cod_arena_alloc(&work->arena, work->files.count * sizeof *work->outputs);
    COD_REQUIRE_MEMORY(work->outputs);
    for (size_t i = 0; i < work->files.count; i++) {
        const char *path = work->files.items[i].path, *slash = strrchr(path, '/');
        const char *name =
            is_folder(args->inputs[work->files.items[i].root]) ? work->files.items[i].name : (slash ? slash + 1 : path);
        work->outputs[i] = to_file ? args->output : output_in_folder(args, name, &work->arena);
        COD_REQUIRE_MEMORY(work->outputs[i]);
        for (size_t k = 0; k < i; k++)
            COD_REQUIRE(strcmp(work->outputs[k], work->outputs[i]) != 0, "%s and %s would both be written to %s",
                        work->files.items[k].path, path, work->outputs[i]);
    }
    for (size_t i = 0; i < work->files.count; i++) {
        bool skipped = false;
        COD_TRY(check_output(work->files.items[i].path, work->outputs[i], args->force,
                             args->skip_existing ? &skipped : NULL));
        if (skipped)
            work->outputs[i] = NULL;
        work->count += !skipped;
        work->bytes += skipped ? 0 : work->files.items[i].bytes;
    }
    if (work->count < work->files.count)
        cod_log_info("%zu of %zu results are there already", work->files.count - work->count, work->files.count);
    return COD_OK;
}

static void show_progress(void *context, size_t done, size_t total)
{
    cod_print_progress(stderr, context, "part %zu of %zu", done, total);
}

/** Which of several pictures this is, and how long the rest will take if time goes with the size of files. */
typedef struct picture_progress {
    double start_s;
    size_t number, count;
    int64_t bytes, total_bytes; /**< of the pictures so far, and of all */
} picture_progress;

static void report(const cod_session *session, const char *output, const cod_image *in, const cod_image *out,
                   double seconds, const picture_progress *progress)
{
    const cod_upscaler *upscaler = session->upscaler;
    char parts[64];
    cod_upscaler_describe_parts(upscaler, in->width, in->height, parts);
    cod_print(stdout, "%s: %lldx%lld -> %lldx%lld, %.2f s", output, (long long)in->width, (long long)in->height,
              (long long)out->width, (long long)out->height, seconds);
    if (session->device != NULL)
        cod_print(stdout, ", %s, %s, %.0f MiB to compute", cod_upscaler_precision(upscaler), parts,
                  (double)cod_upscaler_bytes(upscaler) / (1 << 20));
    if (progress->count > 1) {
        const double spent_s = cod_clock_s() - progress->start_s;
        const int64_t left = progress->total_bytes - progress->bytes;
        const double left_s = spent_s * (double)left / (double)(progress->bytes + !progress->bytes);
        cod_print(stdout, ", picture %zu of %zu, left %s", progress->number, progress->count,
                  cod_duration(left_s).text);
    }
    printf("\n");
    fflush(stdout);
}

/** Resizes what a model made to `outscale` times the input's size. */
static cod_status resize(const cod_image *in, double outscale, cod_image *image)
{
    cod_image resized;
    const double scale = outscale * (double)in->width / (double)image->width;
    if (outscale == 0 || scale == 1)
        return COD_OK;
    COD_TRY(cod_image_resize(image, scale, &resized));
    cod_image_clear(image);
    *image = resized;
    return COD_OK;
}

static cod_status upscale_picture(const cod_session *session, const arguments *args, const char *input, cod_image *in,
                                  const char *output, const picture_progress *picture)
{
    cod_image out = {0};
    const bool progress = !args->quiet && isatty(STDERR_FILENO);
    const double start = cod_clock_s();
    cod_status status = cod_upscaler_run(session->upscaler, in, progress ? show_progress : NULL, (void *)input, &out);
    COD_THEN(status, resize(in, args->outscale, &out));
    const double seconds = cod_clock_s() - start;
    if (progress)
        fputs("\r\033[K", stderr);
    if (status != COD_OK)
        status = cod_fail_prefix(status, "%s", input);
    if (status == COD_OK)
        cod_image_move_notes(&out, in);
    if (status == COD_OK && cod_image_format_of(output) == COD_IMAGE_JPEG && cod_image_is_transparent(&out))
        cod_log_info("%s: what is transparent lies on white, as JPEG has no transparency", output);
    COD_THEN(status, cod_folder_create_above(output));
    COD_THEN(status, cod_image_write(output, &out, cod_image_format_of(output), (int)args->quality));
    if (status == COD_OK && !args->quiet)
        report(session, output, in, &out, seconds, picture);
    cod_image_clear(&out);
    return status;
}

/**
 * A picture that is broken or too large does not keep the others waiting; anything else, a full disk say, ends the run.
 */
static int upscale_all(const cod_session *session, const picture_work *work, const arguments *args)
{
    size_t failed = 0;
    picture_progress progress = {.start_s = cod_clock_s(), .count = work->count, .total_bytes = work->bytes};
    for (size_t i = 0; i < work->files.count; i++) {
        const char *input = work->files.items[i].path;
        cod_image in;
        if (work->outputs[i] == NULL)
            continue;
        progress.number++;
        progress.bytes += work->files.items[i].bytes;
        cod_status status = cod_image_read(input, &in);
        bool pictures_fault = status != COD_OK;
        if (status == COD_OK) {
            status = upscale_picture(session, args, input, &in, work->outputs[i], &progress);
            pictures_fault = status == COD_ERR_UNSUPPORTED || status == COD_ERR_ARGUMENT;
            cod_image_clear(&in);
        }
        if (status == COD_OK)
            continue;
        cod_cmd_failed(status);
        if (!pictures_fault)
            return COD_EXIT_FAILED;
        failed++;
    }
    if (failed > 0 && work->count > 1)
        fprintf(stderr, "codistill: %zu of %zu pictures failed\n", failed, work->count);
    return failed > 0 ? COD_EXIT_FAILED : COD_EXIT_OK;
}

static cod_status open_model(const arguments *args, cod_arena *arena, cod_session *session)
{
    const char *model;
    COD_TRY(cod_named_model_find(arena, args->model, &model));
    return cod_session_open(model, &args->session, session);
}

/** A session on a video: calibrated, where need be, on the first frame. */
typedef struct video_work {
    const arguments *args;
    cod_session session;
} video_work;

static cod_status upscale_frame(void *context, const cod_image *in, cod_image *out)
{
    const video_work *work = context;
    cod_upscaler *upscaler = work->session.upscaler;
    if (cod_upscaler_needs_calibration(upscaler))
        COD_TRY(cod_upscaler_calibrate(upscaler, in));
    COD_TRY(cod_upscaler_run(upscaler, in, NULL, NULL, out));
    return resize(in, work->args->outscale, out);
}

static void report_video(const video_work *work, const cod_video_result *done)
{
    cod_print(stdout, "%s: %zu frames at %s a second, %lldx%lld -> %lldx%lld, %.2f s, %.2f frames/s",
              work->args->output, done->frames, done->rate, (long long)done->width, (long long)done->height,
              (long long)done->out_width, (long long)done->out_height, done->seconds,
              (double)done->frames / done->seconds);
    if (work->session.device != NULL)
        cod_print(stdout, ", %s", cod_upscaler_precision(work->session.upscaler));
    printf("\n");
    fflush(stdout);
}

static cod_status upscale_video(video_work *work, cod_arena *arena)
{
    const arguments *args = work->args;
    const cod_video_job job = {.input = args->inputs[0],
                               .output = args->output,
                               .crf = (int)args->crf,
                               .progress = !args->quiet && isatty(STDERR_FILENO),
                               .map = upscale_frame,
                               .context = work};
    cod_video_result done;
    COD_REQUIRE(cod_video_is_writable(args->output) && !is_folder(args->output),
                "%s: a video is written as a .mp4, .mov, .mkv or .webm file; name it so", args->output);
    bool skipped = false;
    COD_TRY(check_output(args->inputs[0], args->output, args->force, args->skip_existing ? &skipped : NULL));
    if (skipped) {
        cod_log_info("%s is there already", args->output);
        return COD_OK;
    }
    COD_TRY(open_model(args, arena, &work->session));
    if (args->calibrate != NULL)
        COD_TRY(cod_calibrate_folder(work->session.upscaler, args->calibrate, false));
    COD_TRY(cod_folder_create_above(args->output));
    COD_TRY(cod_video_run(&job, &done));
    if (!args->quiet)
        report_video(work, &done);
    return COD_OK;
}

static int run_video(const arguments *args)
{
    video_work work = {.args = args};
    cod_arena arena = {0};
    const int code = cod_cmd_end(upscale_video(&work, &arena));
    cod_session_close(&work.session);
    cod_arena_clear(&arena);
    return code;
}

static cod_status calibrate(const cod_session *session, const picture_work *work, const arguments *args)
{
    if (args->calibrate != NULL)
        return cod_calibrate_folder(session->upscaler, args->calibrate, false);
    return cod_upscaler_needs_calibration(session->upscaler)
               ? cod_calibrate_files(session->upscaler, &work->files, false)
               : COD_OK;
}

static int run(const arguments *args)
{
    picture_work work = {0};
    cod_session session = {0};
    cod_status status = work_find(args, &work);
    if (work.count > 0) {
        COD_THEN(status, open_model(args, &work.arena, &session));
        COD_THEN(status, calibrate(&session, &work, args));
    }
    const int code = status == COD_OK ? upscale_all(&session, &work, args) : cod_cmd_failed(status);
    cod_session_close(&session);
    cod_files_clear(&work.files);
    cod_arena_clear(&work.arena);
    return code;
}

static cod_image_format format_called(const char *name)
{
    int format = 0;
    while (format < COD_IMAGE_FORMATS && strcmp(name, format_names[format]) != 0)
        format++;
    return (cod_image_format)format;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, arguments *args, cod_arena *arena)
{
    const char *quality = NULL, *crf = NULL, *format = format_names[COD_IMAGE_PNG], *outscale = NULL, *input = NULL;
    char *end = NULL;
    const cod_argument own[] = {
        {.name = "output", .letter = 'o', .text = &args->output, .words = COD_WORDS_FILES},
        {.name = "format", .text = &format, .choices = format_names},
        {.name = "quality", .text = &quality},
        {.name = "crf", .text = &crf},
        {.name = "input", .letter = 'i', .text = &input, .words = COD_WORDS_FILES},
        {.name = "model", .letter = 'n', .text = &args->model, .words = COD_WORDS_MODELS | COD_WORDS_BICUBIC},
        {.name = "outscale", .letter = 's', .text = &outscale},
        {.name = "force", .flag = &args->force},
        {.name = "skip-existing", .flag = &args->skip_existing},
        {.name = "calibrate", .text = &args->calibrate, .words = COD_WORDS_FILES},
        {.name = "quiet", .flag = &args->quiet}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &args->session, arena);
    args->quality = DEFAULT_QUALITY;
    args->crf = COD_VIDEO_CRF;
    if (code < 0)
        code = cod_argument_number(argv[0], "quality", quality, 1, COD_IMAGE_BEST_QUALITY, &args->quality);
    if (code < 0)
        code = cod_argument_number(argv[0], "crf", crf, 0, COD_VIDEO_CRF_MOST, &args->crf);
    if (code >= 0)
        return code;
    args->format = format_called(format);
    if (args->format == COD_IMAGE_FORMATS)
        return cod_cmd_usage(argv[0], "--format: '%s' is none of png, jpg and webp", format);
    args->outscale = outscale != NULL ? strtod(outscale, &end) : 0;
    if (outscale != NULL && (end == outscale || *end != '\0' || !(args->outscale >= 0.1 && args->outscale <= 16)))
        return cod_cmd_usage(argv[0], "--outscale: '%s' is not a number from 0.1 to 16", outscale);
    if (args->force && args->skip_existing)
        return cod_cmd_usage(argv[0], "--force replaces what --skip-existing leaves; give one of them");
    if (args->model == NULL && argc > optind && !is_input(argv[optind]))
        args->model = argv[optind++];
    if (argc == optind && input == NULL)
        return cod_cmd_usage(argv[0], "IN is missing: a picture, a folder of pictures or a video");
    if (args->output == NULL)
        return cod_cmd_usage(
            argv[0],
            "-o OUT is missing: a .png, .jpg or .webp file, or a folder; of a video a .mp4, .mov, .mkv or .webm file");
    args->inputs = cod_arena_alloc(arena, (size_t)(argc - optind + 1) * sizeof *args->inputs);
    if (args->inputs == NULL)
        return cod_cmd_failed(COD_ERR_MEMORY);
    if (input != NULL)
        args->inputs[args->input_count++] = input;
    while (optind < argc)
        args->inputs[args->input_count++] = argv[optind++];
    return -1;
}

int cod_cmd_upscale(int argc, char **argv)
{
    arguments args = {0};
    cod_arena arena = {0};
    int code = parse(argc, argv, &args, &arena);
    if (code < 0)
        code = args.input_count == 1 && is_video(args.inputs[0], args.output) ? run_video(&args) : run(&args);
    cod_arena_clear(&arena);
    return code;
}
