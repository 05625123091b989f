/* `codistill eval`: how well a model restores pictures that MATLAB's bicubic brought down, or tells classes. */
#include "tools/cmd.h"

#include "core/processors.h"
#include "infer/calibrate.h"
#include "infer/evaluate.h"
#include "infer/named_model.h"
#include "infer/session.h"
#include "tools/arguments.h"
#include "tools/eval_classes.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill eval MODEL --data PATH [options]\n\n"
    "Measures a model.\n"
    "For super-resolution, MODEL is a .safetensors file (also one of a checkpoint), a PyTorch file (.pth) whose "
    "network is known by its tensors, the folder of a training run, one of the models that come with the program "
    "(sr-x4, sr-x4-perceptual), or `bicubic`. Each picture of DIR is "
    "reduced by MATLAB's bicubic and upscaled by MODEL. The command prints PSNR and SSIM between the result and the "
    "original, for each picture and on average, on the Y channel (not rounded) and on RGB. As many pixels as the "
    "scale are left out at each border.\n"
    "If DIR has pairs of files named ...HR... and ...LR..., the HR pictures are used.\n"
    "For a classifier, the command prints accuracy, cross-entropy, calibration error, the accuracy of each class "
    "and the confusion matrix. DIR holds data of the kind that the model was trained on; for MNIST, the test files "
    "are used.\n\n"
    "  --data PATH\tpictures (PNG, JPEG, WebP, TIFF, BMP), also in subfolders; or a classifier's examples\n"
    "  --scale N\tmust equal the model's scale; for bicubic any from 1 to 16 (4)\n"
    "  --metrics LIST\tsuper-resolution: metrics to print (psnr,ssim). For niqe, pi and lpips, lower is better:\n"
    "\tniqe\thow natural the result's statistics are; the original's NIQE is printed beside it\n"
    "\tpi\tperceptual index of PIRM 2018; without --ma-model only NIQE of the Y channel. Printed beside it: the RMSE "
    "of Y, and its PIRM region (1, 2 or 3)\n"
    "\tlpips\tdistance between features of SqueezeNet 1.1 of the result and of the original\n"
    "  --niqe-model F\tniqe, pi: model of natural pictures, BasicSR's niqe_pris_params.npz\n"
    "  --ma-model F\tpi: forests of Ma's score (safetensors); tools/ma_model.py makes it from the authors' model.mat\n"
    "  --lpips-network F\tlpips: SqueezeNet 1.1's features (safetensors), with torchvision's or Caffe's tensor names\n"
    "  --lpips-weights F\tlpips: linear weights (safetensors), with the tensor names of the Python package lpips "
    "(lin0.model.1.weight ...). Without them every channel has weight 1, and the result is labelled unweighted\n"
    "  --json\tprint {\"images\": [{\"file\", \"psnr_y\", \"ssim_y\", \"psnr_rgb\"}], \"mean\": {...}} with the "
    "metrics of --metrics; for a classifier {\"accuracy\", \"cross_entropy\", \"calibration_error\", \"classes\": "
    "[...], \"confusion\": [...]}\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --threads N\tnumber of threads; 0 = as many as the process may use (0)\n"
    "  --precision P\tauto, f32, bf16 or int8 (auto)\n"
    "  --calibrate DIR\tint8: pictures for measuring ranges; they are reduced by bicubic, too. Without it the ranges "
    "of the model file are used, or ranges measured on --data\n"
    "  --tile N\trun tiles of N low-resolution pixels a side, at least 8, instead of bands\n"
    "  --help\n";

typedef struct arguments {
    const char *model, *data, *calibrate, *metric_names, *niqe_model, *ma_model, *lpips_network, *lpips_weights;
    unsigned metrics;
    bool json;
    cod_session_options session;
} arguments;

static void show_progress(void *context, size_t done, size_t total, const cod_evaluated *image)
{
    (void)context;
    cod_print_progress(stderr, image->file, "%.2f dB, picture %zu of %zu", image->quality.psnr_y, done, total);
    if (done == total)
        fputc('\n', stderr);
}

/** Opens the network of LPIPS, on the model's device; bicubic has none, so that one is opened in `own`. */
static cod_status open_lpips(const arguments *args, const cod_session *session, cod_session *own, cod_lpips **lpips)
{
    if ((args->metrics & COD_METRIC_LPIPS) == 0)
        return COD_OK;
    if (session->device == NULL)
        COD_TRY(cod_session_open_device(&args->session, own));
    const cod_session *with = session->device != NULL ? session : own;
    return cod_lpips_create(args->lpips_network, args->lpips_weights, with->backend, with->device, lpips);
}

static cod_status evaluate_on(const arguments *args, const cod_session *session, cod_metrics_options *metrics,
                              cod_evaluation *evaluation)
{
    if (args->calibrate != NULL || cod_upscaler_needs_calibration(session->upscaler))
        COD_TRY(cod_calibrate_folder(session->upscaler, args->calibrate ? args->calibrate : args->data, true));
    return cod_evaluate_folder(session->upscaler, args->data, metrics, isatty(STDERR_FILENO) ? show_progress : NULL,
                               NULL, evaluation);
}

static cod_status evaluate(const arguments *args, cod_metrics_options *metrics, cod_evaluation *evaluation)
{
    cod_session session = {0}, own = {0};
    COD_TRY(cod_session_open(args->model, &args->session, &session));
    cod_status status = open_lpips(args, &session, &own, &metrics->lpips);
    COD_THEN(status, evaluate_on(args, &session, metrics, evaluation));
    cod_lpips_destroy(metrics->lpips);
    cod_session_close(&own);
    cod_session_close(&session);
    return status;
}

/** Evaluates with the models of NIQE and of Ma's score, where they are wanted. */
static cod_status evaluate_with_models(const arguments *args, cod_evaluation *evaluation)
{
    cod_niqe_model niqe;
    cod_ma_model ma = {0};
    const int threads = args->session.threads > 0 ? (int)args->session.threads : cod_usable_threads();
    cod_metrics_options metrics = {.metrics = args->metrics, .niqe = &niqe, .threads = threads > 1 ? threads : 0};
    if ((args->metrics & COD_METRICS_OF_NIQE) != 0)
        COD_TRY(cod_niqe_model_load(args->niqe_model, &niqe));
    if (args->ma_model != NULL) {
        COD_TRY(cod_ma_model_load(args->ma_model, &ma));
        metrics.ma = &ma;
    }
    const cod_status status = evaluate(args, &metrics, evaluation);
    cod_ma_model_clear(&ma);
    return status;
}

static cod_status evaluate_pictures(const arguments *args, char **text)
{
    cod_evaluation evaluation;
    COD_TRY(evaluate_with_models(args, &evaluation));
    const cod_status status =
        args->json ? cod_evaluation_json(&evaluation, text) : cod_evaluation_table(&evaluation, text);
    cod_evaluation_clear(&evaluation);
    return status;
}

static cod_status evaluate_model(const arguments *args, char **text)
{
    cod_saved_model saved = {0};
    const bool bicubic = strcmp(args->model, COD_BICUBIC) == 0;
    if (!bicubic)
        COD_TRY(cod_model_load(args->model, &saved));
    const bool classifies = !bicubic && saved.model.task == COD_TASK_CLASSIFICATION;
    const cod_status status = classifies
                                  ? cod_eval_classes(&saved, args->model, args->data, &args->session, args->json, text)
                                  : evaluate_pictures(args, text);
    cod_saved_model_clear(&saved);
    return status;
}

static int run(arguments *args, cod_arena *arena)
{
    char *text = NULL;
    cod_status status = cod_named_model_find(arena, args->model, &args->model);
    COD_THEN(status, evaluate_model(args, &text));
    if (status != COD_OK)
        return cod_cmd_failed(status);
    cod_print_text(stdout, text);
    fputs(args->json ? "\n" : "", stdout);
    free(text);
    return COD_EXIT_OK;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, arguments *args, cod_arena *arena)
{
    const cod_argument own[] = {{.name = "data", .text = &args->data, .words = COD_WORDS_FILES},
                                {.name = "calibrate", .text = &args->calibrate, .words = COD_WORDS_FILES},
                                {.name = "metrics", .text = &args->metric_names, .choices = cod_metric_names},
                                {.name = "niqe-model", .text = &args->niqe_model, .words = COD_WORDS_FILES},
                                {.name = "ma-model", .text = &args->ma_model, .words = COD_WORDS_FILES},
                                {.name = "lpips-network", .text = &args->lpips_network, .words = COD_WORDS_FILES},
                                {.name = "lpips-weights", .text = &args->lpips_weights, .words = COD_WORDS_FILES},
                                {.name = "json", .flag = &args->json}};
    const int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &args->session, arena);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "MODEL is missing");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one MODEL is wanted, not also '%s'", argv[optind + 1]);
    if (args->data == NULL)
        return cod_cmd_usage(argv[0], "--data PATH is missing: a folder of pictures, or a classifier's examples");
    if (cod_metrics_parse(args->metric_names != NULL ? args->metric_names : "psnr,ssim", &args->metrics) != COD_OK)
        return cod_cmd_usage(argv[0], "--metrics: %s", cod_error_message());
    if ((args->metrics & COD_METRICS_OF_NIQE) != 0 && args->niqe_model == NULL)
        return cod_cmd_usage(argv[0], "--metrics %s needs --niqe-model FILE: niqe_pris_params.npz, as BasicSR has it",
                             (args->metrics & COD_METRIC_NIQE) != 0 ? "niqe" : "pi");
    if ((args->metrics & COD_METRIC_PI) == 0 && args->ma_model != NULL)
        return cod_cmd_usage(argv[0], "--ma-model is for --metrics pi, which is not wanted");
    if ((args->metrics & COD_METRIC_LPIPS) != 0 && args->lpips_network == NULL)
        return cod_cmd_usage(argv[0],
                             "--metrics lpips needs --lpips-network FILE: the features of SqueezeNet 1.1, safetensors");
    args->model = argv[optind];
    return -1;
}

int cod_cmd_eval(int argc, char **argv)
{
    arguments args = {0};
    cod_arena arena = {0};
    int code = parse(argc, argv, &args, &arena);
    if (code < 0)
        code = run(&args, &arena);
    cod_arena_clear(&arena);
    return code;
}
