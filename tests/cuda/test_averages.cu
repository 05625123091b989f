/** What becomes of NCCL's sums: the file of the backend once more, beside a NCCL that adds up three equal ranks. */
#define nccl_library tested_nccl_library
#define nccl_name    tested_nccl_name
#define nccl_create  tested_nccl_create
#define nccl_destroy tested_nccl_destroy
#include "cuda/nccl.cu"

extern "C" {
#include "emulated/emulated.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

static nccl_result add_three(const void *source, void *target, size_t count, int, int, nccl_comm *, cudaStream_t)
{
    for (size_t i = 0; i < count; i++)
        static_cast<float *>(target)[i] = 3 * static_cast<const float *>(source)[i];
    return NCCL_SUCCESS;
}

/** Every value is rounded twice, at any count: none, part of a block, more than all blocks' threads. */
TEST(sums_become_averages)
{
    static const size_t counts[] = {0, 1, 255, 257, 3 * SCALE_BLOCKS * SCALE_THREADS + 5};
    nccl_calls calls = {};
    calls.all_reduce = add_three;
    nccl_collective collective = {};
    collective.base.size = 3;
    collective.calls = &calls;
    nccl_reduction reduction = {};
    assert_ok(COD_CUDA(cudaEventCreateWithFlags(&reduction.done, cudaEventDisableTiming)));
    for (uint64_t seed = 0; seed < 5; seed++) {
        const size_t count = counts[seed];
        char message[256];
        void *memory = nullptr;
        cod_emulated_set_seed(seed);
        assert_ok(COD_CUDA(cudaMalloc(&memory, count * sizeof(float))));
        float *values = static_cast<float *>(memory);
        for (size_t i = 0; i < count; i++)
            values[i] = static_cast<float>(i) - 100.1f;
        assert_ok(queue_average(&collective, values, count, &reduction));
        assert_int_equal(cod_emulated_faults(message, sizeof message), 0);
        for (size_t i = 0; i < count; i++) {
            const float sum = 3 * (static_cast<float>(i) - 100.1f);
            assert_true(values[i] == sum * (1.0f / 3));
        }
        cudaFree(memory);
    }
    cudaEventDestroy(reduction.done);
}
