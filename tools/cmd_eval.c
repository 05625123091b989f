/* `codistill eval`: how well a model restores pictures that MATLAB's bicubic brought down, or tells classes. */
#include "tools/cmd.h"

#include "core/processors.h"
#include "infer/calibrate.h"
#include "infer/evaluate.h"
#include "infer/session.h"
#include "tools/arguments.h"
#include "tools/eval_classes.h"
#include "tools/shipped_model.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill eval MODEL --data DIR [options]\n\n"
    "MODEL for super-resolution (a .safetensors file, also a checkpoint's; sr-x4 or sr-x4-perceptual, which come with "
    "the\n"
    "program; or `bicubic`): brings every picture of DIR down by MATLAB's bicubic, upscales it and prints PSNR and "
    "SSIM against\n"
    "the original, each picture's and the mean: Y channel (not rounded) and RGB, as many pixels left out at each "
    "border\n"
    "as the scale. Of pairs named ...HR... and ...LR..., the former are taken.\n"
    "A classifier: prints accuracy, cross-entropy and calibration error, each class's accuracy and what was taken for "
    "what;\n"
    "DIR is data of the kind it was trained on (of MNIST the test files are taken).\n\n"
    "  --data DIR      pictures (PNG, JPEG, WebP, TIFF, BMP), also in folders below; a classifier's examples\n"
    "  --scale N       must be the model's; for bicubic any from 1 to 16 (4)\n"
    "  --metrics LIST  of super-resolution, what is told (psnr,ssim); of all but psnr and ssim, lower is better:\n"
    "                  niqe   how natural a picture's statistics are, without its original, whose own stands beside "
    "it\n"
    "                  pi     the perceptual index of PIRM 2018, without --ma-model its part NIQE of the Y channel;\n"
    "                         beside it the RMSE of Y, and which of PIRM's regions 1, 2 and 3 that is\n"
    "                  lpips  how far features of SqueezeNet 1.1 are from the original's\n"
    "  --niqe-model F  niqe, pi: model of natural pictures: niqe_pris_params.npz, as BasicSR has it\n"
    "  --ma-model F    pi: forests of Ma's score, safetensors, which tools/ma_model.py makes of the authors' "
    "model.mat\n"
    "  --lpips-network F  lpips: SqueezeNet 1.1's features, safetensors, by torchvision's or Caffe's names\n"
    "  --lpips-weights F  lpips: linear weights, safetensors, by the package lpips' names (lin0.model.1.weight ...); "
    "without\n"
    "                  them every channel has weight 1, and the result is called unweighted\n"
    "  --json          {\"images\": [{\"file\", \"psnr_y\", \"ssim_y\", \"psnr_rgb\"}], \"mean\": {...}} with what is "
    "told, or of a\n"
    "                  classifier {\"accuracy\", \"cross_entropy\", \"calibration_error\", \"classes\": [...], "
    "\"confusion\": [...]}\n"
    "  --device D      what computes: auto, cpu or cuda; auto: a GPU where there is one (auto)\n"
    "  --threads N     0 = as many as the process may use (0)\n"
    "  --precision P   auto, f32, bf16 or int8 (auto)\n"
    "  --calibrate DIR int8: pictures to take its ranges from, brought down as well; else the model file's, else "
    "from --data\n"
    "  --tile N        tiles instead of bands, low-resolution pixels to a side, at least 8\n"
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
    fprintf(stderr, "\r\033[K%zu/%zu %s: %.2f dB%s", done, total, image->file, image->quality.psnr_y,
            done == total ? "\n" : "");
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
    cod_status status = cod_shipped_model_find(arena, args->model, &args->model);
    COD_THEN(status, evaluate_model(args, &text));
    if (status != COD_OK)
        return cod_cmd_failed(status);
    printf("%s%s", text, args->json ? "\n" : "");
    free(text);
    if (fflush(stdout) != 0)
        return cod_cmd_failed(cod_fail(COD_ERR_IO, "standard output: cannot write the result"));
    return COD_EXIT_OK;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, arguments *args, cod_arena *arena)
{
    const cod_argument own[] = {{.name = "data", .text = &args->data},
                                {.name = "calibrate", .text = &args->calibrate},
                                {.name = "metrics", .text = &args->metric_names},
                                {.name = "niqe-model", .text = &args->niqe_model},
                                {.name = "ma-model", .text = &args->ma_model},
                                {.name = "lpips-network", .text = &args->lpips_network},
                                {.name = "lpips-weights", .text = &args->lpips_weights},
                                {.name = "json", .flag = &args->json}};
    const int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &args->session, arena);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "MODEL is missing");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one MODEL is wanted, not also '%s'", argv[optind + 1]);
    if (args->data == NULL)
        return cod_cmd_usage(argv[0], "--data DIR is missing: the folder of pictures");
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
