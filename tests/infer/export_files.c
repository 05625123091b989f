/*
 * Writes what check_onnx.py and check_torch.py compare with: exported models, and what our own inference makes of
 * random inputs.
 *
 *     export_files FOLDER BACKEND
 *
 * NAME.onnx, NAME.safetensors, NAME.folded.safetensors; for each size NAME.HxW.input.f32 and .output.f32, raw, in NHWC
 * order.
 */
#include "infer/fold.h"
#include "infer/onnx.h"
#include "io/file.h"
#include "models.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

static const char *folder, *backend;

static const char *file_of(const char *name, const char *suffix)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    return path;
}

static void run_write(const char *name, const cod_saved_model *saved, int64_t n, int64_t h, int64_t w)
{
    char suffix[64];
    const cod_shape shape = {n, h, w, cod_graph_producer(saved->model.graph, saved->model.input)->channels};
    const size_t count = (size_t)cod_shape_count(shape);
    cod_shape out;
    float *input = test_noise(count, (uint64_t)(h + w));
    float *output = test_run(backend, COD_F32, saved, shape, input, &out);
    snprintf(suffix, sizeof suffix, ".%lldx%lldx%lld.input.f32", (long long)n, (long long)h, (long long)w);
    assert_ok(cod_file_write(file_of(name, suffix), input, count * sizeof *input));
    snprintf(suffix, sizeof suffix, ".%lldx%lldx%lld.output.f32", (long long)n, (long long)h, (long long)w);
    assert_ok(cod_file_write(file_of(name, suffix), output, (size_t)cod_shape_count(out) * sizeof *output));
    free(input);
    free(output);
}

static void export_upscaler(const char *name, cod_saved_model saved)
{
    assert_ok(cod_onnx_write(file_of(name, ".onnx"), &saved.model, saved.values));
    assert_ok(cod_model_save(file_of(name, ".safetensors"), &saved.model, saved.values, NULL, 0));
    assert_ok(
        cod_model_save_folded(file_of(name, ".folded.safetensors"), &saved.model, saved.values, NULL, false, NULL));
    const bool any = cod_model_multiple(saved.model.kind, saved.model.options) == 1;
    run_write(name, &saved, 1, 24, any ? 17 : 18);
    run_write(name, &saved, 2, any ? 11 : 10, 40);
    cod_saved_model_clear(&saved);
}

static void export_classifier(const char *name, cod_saved_model saved)
{
    const cod_classifier_sizes *sizes = cod_model_sizes(saved.model.kind, saved.model.options);
    assert_ok(cod_onnx_write(file_of(name, ".onnx"), &saved.model, saved.values));
    run_write(name, &saved, 3, sizes->height, sizes->width);
    cod_saved_model_clear(&saved);
}

TEST(upscalers_are_exported)
{
    export_upscaler(
        "srresnet",
        test_model("srresnet", (const cod_st_text[]){{"blocks", "3"}, {"channels", "16"}, {NULL, NULL}}, 1));
    export_upscaler("srresnet_skip", test_srresnet(2));
    export_upscaler("srresnet_once", test_model("srresnet",
                                                (const cod_st_text[]){{"blocks", "2"},
                                                                      {"channels", "8"},
                                                                      {"scale", "3"},
                                                                      {"norm", "none"},
                                                                      {"upsampler", "once"},
                                                                      {"skip", "nearest"},
                                                                      {"activation", "relu"},
                                                                      {NULL, NULL}},
                                                3));
    static const char *const scales[] = {"2", "3", "4"};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "msrresnet_%s", scales[i]);
        export_upscaler(
            name,
            test_model(
                "msrresnet",
                (const cod_st_text[]){{"num_feat", "12"}, {"num_block", "2"}, {"scale", scales[i]}, {NULL, NULL}}, 4));
        snprintf(name, sizeof name, "edsr_%s", scales[i]);
        export_upscaler(
            name,
            test_model(
                "edsr",
                (const cod_st_text[]){
                    {"num_feat", "12"}, {"num_block", "2"}, {"scale", scales[i]}, {"res_scale", "0.1"}, {NULL, NULL}},
                14));
        snprintf(name, sizeof name, "compact_%s", scales[i]);
        export_upscaler(name, test_model("compact",
                                         (const cod_st_text[]){
                                             {"num_feat", "12"}, {"num_conv", "3"}, {"scale", scales[i]}, {NULL, NULL}},
                                         7));
    }
    export_upscaler("rrdb", test_model("rrdb",
                                       (const cod_st_text[]){
                                           {"num_feat", "12"}, {"num_block", "2"}, {"num_grow_ch", "32"}, {NULL, NULL}},
                                       13));
    export_upscaler(
        "rrdb_2",
        test_model("rrdb",
                   (const cod_st_text[]){
                       {"num_feat", "12"}, {"num_block", "1"}, {"num_grow_ch", "32"}, {"scale", "2"}, {NULL, NULL}},
                   14));
}

TEST(classifiers_are_exported)
{
    export_classifier("mlp", test_model("mlp", (const cod_st_text[]){TEST_SIZES(1, 1, 20, 5), {NULL, NULL}}, 5));
    export_classifier(
        "mlp_pictures",
        test_model(
            "mlp",
            (const cod_st_text[]){TEST_SIZES(3, 4, 2, 5), {"activation", "prelu"}, {"output", "sigmoid"}, {NULL, NULL}},
            8));
    export_classifier("logistic",
                      test_model("logistic", (const cod_st_text[]){TEST_SIZES(3, 4, 2, 5), {NULL, NULL}}, 9));
    export_classifier(
        "cnn", test_model("cnn", (const cod_st_text[]){TEST_SIZES(13, 9, 1, 4), {"hidden", "6"}, {NULL, NULL}}, 10));
    export_classifier(
        "cnn_strides",
        test_model("cnn", (const cod_st_text[]){TEST_SIZES(13, 9, 1, 4), {"halve", "stride"}, {NULL, NULL}}, 11));
    export_classifier(
        "resnet18",
        test_model("resnet18", (const cod_st_text[]){TEST_SIZES(37, 34, 3, 4), {"features", "4"}, {NULL, NULL}}, 12));
    export_classifier(
        "resnet50",
        test_model("resnet50",
                   (const cod_st_text[]){TEST_SIZES(17, 14, 3, 4), {"features", "4"}, {"stem", "small"}, {NULL, NULL}},
                   13));
}

TEST(what_models_seldom_have_is_exported)
{
    cod_saved_model odd = test_odd_model(6);
    assert_ok(cod_onnx_write(file_of("odd", ".onnx"), &odd.model, odd.values));
    run_write("odd", &odd, 2, 12, 8);
    cod_saved_model_clear(&odd);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s FOLDER BACKEND\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    backend = argv[2];
    return cod_test_run();
}
