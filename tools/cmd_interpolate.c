/* `codistill interpolate`: a model between two others. */
#include "tools/cmd.h"

#include "infer/model_file.h"
#include "infer/named_model.h"
#include "tools/arguments.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill interpolate A B --alpha X -o OUT.safetensors\n\n"
    "Writes a model between two of the same architecture: each value is (1 - X) times A's plus X times B's (Wang et "
    "al. 2018, ESRGAN, section 3.4). Use it to choose how much texture is invented: A is a network trained for PSNR, "
    "and B is A trained further with an adversarial loss. One of the two must have been trained from the other; a "
    "mean of networks that started apart is of no use. Running statistics of normalisations are mixed in the same "
    "way.\n"
    "A and B are .safetensors or .pth files, or sr-x4 and sr-x4-perceptual, which come with the program and are such a "
    "pair.\n\n"
    "  --alpha X\tfrom 0 (A) to 1 (B)\n"
    "  -o, --output FILE\tfile to write; an existing file is replaced once the new one is complete\n"
    "  --help\n";

static cod_status check_same_kind(const cod_saved_model *a, const cod_saved_model *b, const char *paths[2])
{
    COD_REQUIRE(a->model.kind == b->model.kind,
                "%s holds model '%s', but %s holds '%s': only models of one architecture mix", paths[0],
                a->model.kind->name, paths[1], b->model.kind->name);
    COD_REQUIRE(cod_graph_fingerprint(a->model.graph, COD_ALL_SETS) ==
                    cod_graph_fingerprint(b->model.graph, COD_ALL_SETS),
                "%s and %s are both %s, but their options differ: their tensors have other shapes or names", paths[0],
                paths[1], a->model.kind->name);
    COD_REQUIRE(a->data == NULL || b->data == NULL || strcmp(a->data, b->data) == 0,
                "%s and %s were trained on data with other classes or another normalisation", paths[0], paths[1]);
    return COD_OK;
}

static cod_status write_mix(cod_saved_model *a, const cod_saved_model *b, double alpha, const char *output)
{
    const size_t count = a->layout.trainable + a->layout.state;
    for (size_t i = 0; i < count; i++)
        a->values[i] = (float)((1 - alpha) * a->values[i] + alpha * b->values[i]);
    const cod_st_text data = {COD_DATA_METADATA, a->data};
    return cod_model_save(output, &a->model, a->values, &data, a->data != NULL);
}

static cod_status mix(cod_saved_model *a, const char *paths[2], double alpha, const char *output)
{
    cod_saved_model b;
    COD_TRY(cod_model_load(paths[1], &b));
    cod_status status = check_same_kind(a, &b, paths);
    COD_THEN(status, write_mix(a, &b, alpha, output));
    cod_saved_model_clear(&b);
    return status;
}

static cod_status interpolate(const char *paths[2], double alpha, const char *output)
{
    cod_saved_model a;
    for (int i = 0; i < 2; i++)
        COD_TRY(cod_check_output(paths[i], output));
    COD_TRY(cod_model_load(paths[0], &a));
    const cod_status status = mix(&a, paths, alpha, output);
    if (status == COD_OK)
        cod_print(stdout, "%s: %s, %.12g of %s and %.12g of %s\n", output, a.model.kind->name, 1 - alpha, paths[0],
                  alpha, paths[1]);
    cod_saved_model_clear(&a);
    return status;
}

int cod_cmd_interpolate(int argc, char **argv)
{
    const char *output = NULL, *text = NULL;
    char *after;
    const cod_argument own[] = {{.name = "output", .letter = 'o', .text = &output, .words = COD_WORDS_FILES},
                                {.name = "alpha", .text = &text}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (code >= 0)
        return code;
    if (argc - optind != 2)
        return cod_cmd_usage(argv[0], "two models are wanted, A and B, not %d", argc - optind);
    if (text == NULL)
        return cod_cmd_usage(argv[0], "--alpha is missing: the share of B, from 0 to 1");
    const double alpha = strtod(text, &after);
    if (after == text || *after != '\0' || !(alpha >= 0 && alpha <= 1))
        return cod_cmd_usage(argv[0], "--alpha: '%s' is not a number from 0 to 1", text);
    if (output == NULL)
        return cod_cmd_usage(argv[0], "-o is missing: the .safetensors file to write");
    code = cod_argument_model_name(argv[0], output);
    if (code >= 0)
        return code;
    cod_arena arena = {0};
    const char *paths[2];
    cod_status status = COD_OK;
    for (int i = 0; i < 2 && status == COD_OK; i++)
        status = cod_named_model_find(&arena, argv[optind + i], &paths[i]);
    COD_THEN(status, interpolate(paths, alpha, output));
    cod_arena_clear(&arena);
    return cod_cmd_end(status);
}
