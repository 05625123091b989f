/* `codistill export`: a model for other programs. */
#include "tools/cmd.h"

#include "infer/calibrate.h"
#include "infer/fold.h"
#include "infer/named_model.h"
#include "infer/onnx.h"
#include "infer/session.h"
#include "tools/arguments.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: codistill export MODEL -o OUT.onnx|OUT.safetensors [--calibrate DIR] [--bf16]\n\n"
    "Writes MODEL with its normalisation folded into the convolutions. MODEL is a .safetensors file, also the "
    "group-G.safetensors of a checkpoint, a PyTorch file (.pth), the folder of a training run, sr-x4 or "
    "sr-x4-perceptual. The output's name "
    "chooses the format:\n"
    "  .onnx\tONNX, opset 17. Input \"input\" and output \"output\" are f32, NCHW, RGB from 0 to 1, with any batch, "
    "height and width\n"
    "  .safetensors\twith PyTorch's names and layout; `codistill` reads it, too\n\n"
    "  -o, --output FILE\tfile to write; an existing file is replaced once the new one is complete\n"
    "  --calibrate DIR\t.safetensors: add the ranges that `--precision int8` needs, measured on up to four of DIR's "
    "low-resolution pictures, so that later commands need not measure them\n"
    "  --bf16\t.safetensors: round weights to bf16, which halves the file\n"
    "  --help\n";

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), suffix = strlen(end);
    return length > suffix && strcmp(text + length - suffix, end) == 0;
}

/** @param[out] int8  new; free() */
static cod_status calibrate(const char *path, const char *folder, cod_arena *arena, char **int8)
{
    cod_session session;
    cod_session_options options;
    COD_TRY(cod_options_set_defaults(&cod_session_option_table, &options, arena));
    options.precision = COD_PRECISION_INT8;
    options.device = COD_DEVICE_CPU; /* ranges are the same everywhere, and no GPU is needed for a few pictures */
    COD_TRY(cod_session_open(path, &options, &session));
    cod_status status = cod_calibrate_folder(session.upscaler, folder, false);
    COD_THEN(status, cod_upscaler_format_int8(session.upscaler, int8));
    cod_session_close(&session);
    return status;
}

static cod_status export_model(const char *path, const char *output, const char *calibration, bool bf16)
{
    cod_saved_model saved;
    bool loadable = true;
    char *int8 = NULL;
    COD_TRY(cod_check_output(path, output));
    COD_TRY(cod_model_load(path, &saved));
    cod_status status = COD_OK;
    if (calibration != NULL)
        status = calibrate(path, calibration, &saved.arena, &int8);
    COD_THEN(status, ends_with(output, ".onnx") ? cod_onnx_write(output, &saved.model, saved.values)
                                                : cod_model_save_folded(output, &saved.model, saved.values,
                                                                        int8 ? int8 : saved.int8, bf16, &loadable));
    free(int8);
    if (status == COD_OK) {
        struct stat info = {0};
        stat(output, &info);
        cod_print(stdout, "%s: %s, %lld bytes\n", output, saved.model.kind->name, (long long)info.st_size);
        if (!loadable)
            cod_print(stderr, "codistill: %s cannot be read back by codistill: the folded model is none of its kinds\n",
                      output);
    }
    cod_saved_model_clear(&saved);
    return status;
}

int cod_cmd_export(int argc, char **argv)
{
    const char *output = NULL, *calibration = NULL;
    bool bf16 = false;
    const cod_argument own[] = {{.name = "output", .letter = 'o', .text = &output, .words = COD_WORDS_FILES},
                                {.name = "calibrate", .text = &calibration, .words = COD_WORDS_FILES},
                                {.name = "bf16", .flag = &bf16}};
    const int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "MODEL is missing");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one MODEL is wanted, not also '%s'", argv[optind + 1]);
    if (output == NULL)
        return cod_cmd_usage(argv[0], "-o is missing: the file to write, .onnx or .safetensors");
    const bool onnx = ends_with(output, ".onnx");
    if (!onnx && !ends_with(output, ".safetensors"))
        return cod_cmd_usage(argv[0], "%s: the name must end with .onnx or .safetensors", output);
    if (strcmp(argv[optind], COD_BICUBIC) == 0)
        return cod_cmd_usage(argv[0], "bicubic has no weights to export");
    if (onnx && calibration != NULL)
        return cod_cmd_usage(argv[0], "--calibrate is for .safetensors; ONNX has no place for its ranges");
    if (onnx && bf16)
        return cod_cmd_usage(argv[0], "--bf16 is for .safetensors; ONNX files have f32");
    cod_arena arena = {0};
    const char *model = NULL;
    cod_status status = cod_named_model_find(&arena, argv[optind], &model);
    COD_THEN(status, export_model(model, output, calibration, bf16));
    cod_arena_clear(&arena);
    return cod_cmd_end(status);
}
