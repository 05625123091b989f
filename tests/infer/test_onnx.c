/* What is written as ONNX, without ONNX Runtime, and what cannot be. */
#include "support/test.h"

#include "core/hash.h"
#include "infer/onnx.h"
#include "io/file.h"
#include "models.h"
#include "support/folder.h"

#include <stdlib.h>

/** The file with all weights 1, so that no rounding counts, and the model's end. */
static uint64_t hash_of_onnx(cod_saved_model *saved)
{
    void *data;
    size_t bytes;
    for (size_t i = 0; i < saved->layout.trainable + saved->layout.state; i++)
        saved->values[i] = 1;
    assert_ok(cod_onnx_write(cod_test_at("hashed.onnx"), &saved->model, saved->values));
    assert_ok(cod_file_read(cod_test_at("hashed.onnx"), 1 << 24, &data, &bytes));
    const uint64_t hash = cod_hash(data, bytes, 0);
    free(data);
    cod_saved_model_clear(saved);
    return hash;
}

/** To the byte as when ONNX Runtime ran such files in check_onnx.py, which is to judge any change first. */
TEST(onnx_is_written_as_it_was_checked)
{
    static const cod_st_text nearest[] = {{"blocks", "1"},        {"channels", "8"},     {"scale", "3"},
                                          {"norm", "none"},       {"upsampler", "once"}, {"skip", "nearest"},
                                          {"activation", "relu"}, {NULL, NULL}};
    static const cod_st_text mlp[] = {TEST_SIZES(3, 4, 2, 5), {"activation", "prelu"}, {NULL, NULL}};
    cod_saved_model models[] = {test_srresnet(1), test_model("srresnet", nearest, 1), test_model("mlp", mlp, 1),
                                test_odd_model(1)};
    static const uint64_t expected[] = {UINT64_C(0xb9d3adb7bc5e415d), UINT64_C(0x3a729f69072c3b62),
                                        UINT64_C(0x1c9fa5f4b5c29e29), UINT64_C(0xc35c21a1488f26e8)};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const uint64_t hash = hash_of_onnx(&models[i]);
        if (hash != expected[i])
            fail_msg("file %zu hashes to 0x%016llx, not 0x%016llx", i, (unsigned long long)hash,
                     (unsigned long long)expected[i]);
    }
}

TEST(what_onnx_cannot_say_is_not_written)
{
    cod_saved_model saved = test_srresnet(16);
    cod_graph *graph = saved.model.graph;
    const char *path = cod_test_at("two_inputs.onnx");
    const cod_value output = saved.model.output, second = cod_graph_input_like(graph, "guide", output);
    saved.model.output = cod_graph_mean(graph, output);
    assert_fails(COD_ERR_UNSUPPORTED, "is a mean over the batch", cod_onnx_write(path, &saved.model, saved.values));
    saved.model.output = cod_graph_add(graph, output, second);
    assert_ok(cod_graph_status(graph));
    assert_fails(COD_ERR_UNSUPPORTED, "a second input 'guide'", cod_onnx_write(path, &saved.model, saved.values));
    assert_false(cod_file_exists(path));
    cod_saved_model_clear(&saved);
}
