/* The mask that a library's product reads for ReLU's gradient, and the kernel that does without it. */
#include "cuda/gate.cuh"

#include <cmath>
#include <cstdlib>

extern "C" {
#include "emulated/emulated.h"
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

/**
 * Bit c % 8 of byte c / 8 of a row is whether y > 0; the last channels' byte is filled up with zeros; and the product
 * is masked: without a leak also what is NaN there, as libraries do it.
 */
TEST(masks_are_as_the_library_reads_them)
{
    static const cod_shape shapes[] = {{1, 1, 1, 1}, {3, 1, 1, 130}, {7, 1, 1, 128}, {40, 1, 1, 24}, {2, 1, 1, 300}};
    for (const cod_shape &shape : shapes) {
        for (int64_t gap = 0; gap < 16; gap += 8) {
            cod_op op = {}; /* of a kind that has two such views */
            op.kind = COD_OP_ADD;
            op.name = "gate";
            op.attr.alpha = 1;
            op.inputs[0] = op.outputs[0] = cod_view_dense(nullptr, 0, COD_BF16, shape);
            op.inputs[0].pixel_stride += gap;
            op.outputs[0].pixel_stride += gap;
            const size_t count = static_cast<size_t>(cod_shape_count(shape));
            cod_test_op test;
            assert_ok(cod_test_op_init(&test, test_cuda, &op));
            assert_ok(cod_test_op_randomise(&test, 1 + static_cast<uint64_t>(gap), false));
            const float leak = gap > 0 ? 0 : 0.5f;
            cuda_gate gate = cuda_gate_of(&test.op.inputs[0], &test.op.outputs[0], leak);
            const size_t bytes = cuda_gate_bytes(gate), row = static_cast<size_t>(gate.leading) / 8;
            assert_int_equal(bytes, static_cast<size_t>(shape.n) * ((static_cast<size_t>(shape.c) + 127) / 128 * 16));
            unsigned char *bits = static_cast<unsigned char *>(malloc(bytes));
            double *y = static_cast<double *>(calloc(3 * count, sizeof *y)), *before = y + count,
                   *after = before + count;
            void *mask = nullptr;
            assert_true(bits != nullptr && y != nullptr);
            assert_ok(cuda_memory_create(test_cuda.device, bytes, &mask));
            gate.bits = static_cast<unsigned char *>(mask);
            assert_ok(cod_test_op_read(&test, 0, y));
            assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, before));
            for (size_t i = 0; i < count; i += 3)
                before[i] = static_cast<double>(NAN);
            assert_ok(cod_test_op_write(&test, COD_OP_MAX_INPUTS, before));
            assert_ok(cuda_gate_mask(test_cuda.device, gate, test_cuda.device->stream));
            assert_ok(cuda_gate_apply(test_cuda.device, gate, test_cuda.device->stream));
            assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, after));
            const cudaStream_t stream = test_cuda.device->stream;
            assert_ok(COD_CUDA(cudaMemcpyAsync(bits, mask, bytes, cudaMemcpyDeviceToHost, stream)));
            assert_ok(COD_CUDA(cudaStreamSynchronize(stream)));
            for (size_t n = 0; n < static_cast<size_t>(shape.n); n++) {
                for (size_t c = 0; c < 8 * row; c++) {
                    const size_t at = n * static_cast<size_t>(shape.c) + c;
                    const bool inside = c < static_cast<size_t>(shape.c), open = inside && y[at] > 0;
                    assert_int_equal(bits[n * row + c / 8] >> c % 8 & 1, open);
                    if (!inside)
                        continue;
                    const double expected = open ? before[at] : leak == 0 ? 0 : before[at] * static_cast<double>(leak);
                    assert_true(after[at] == expected || (std::isnan(after[at]) && std::isnan(expected)));
                }
            }
            cod_test_assert_none(cod_emulated_faults, "%d channels", static_cast<int>(shape.c));
            cudaFree(mask);
            free(bits);
            free(y);
            cod_test_op_clear(&test);
        }
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
