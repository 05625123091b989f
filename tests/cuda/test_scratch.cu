/* Scratch memory that gradients of weights share (src/cuda/scratch.cuh). */
#include "cuda/scratch.cuh"

#include <initializer_list>

extern "C" {
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

static cuda_scratch *join(cod_device *device, const cod_buffer *shared_by, size_t bytes)
{
    cuda_scratch *scratch = nullptr;
    assert_ok(cuda_scratch_join(device, shared_by, bytes, &scratch));
    return scratch;
}

/** The largest plan's bytes are enough for all, and are freed behind the last one. */
TEST(plans_of_one_buffer_share_memory)
{
    cod_device *device = test_cuda.device;
    const cod_buffer one = {}, other = {};
    const size_t before = device->allocated;
    cuda_scratch *small = join(device, &one, 256), *large = join(device, &one, 1024),
                 *apart = join(device, &other, 512);
    assert_ptr_equal(small, large);
    assert_ptr_not_equal(small, apart);
    assert_int_equal(device->allocated, before + 1024 + 512);
    cuda_scratch_leave(large);
    assert_int_equal(device->allocated, before + 1024 + 512);
    cuda_scratch_leave(small);
    cuda_scratch_leave(apart);
    cuda_scratch_leave(nullptr);
    assert_int_equal(device->allocated, before);
    assert_null(device->scratches);
}

/** A recording may name it: a plan that needs more gets memory of its own. */
TEST(memory_that_was_used_stays)
{
    cod_device *device = test_cuda.device;
    const cod_buffer buffer = {};
    cuda_scratch *first = join(device, &buffer, 256);
    const float *place = cuda_scratch_use(first);
    cuda_scratch *larger = join(device, &buffer, 1024), *smaller = join(device, &buffer, 128);
    assert_ptr_not_equal(larger, first);
    assert_true(smaller == first || smaller == larger);
    assert_ptr_equal(cuda_scratch_use(first), place);
    for (cuda_scratch *scratch : {first, larger, smaller})
        cuda_scratch_leave(scratch);
    assert_null(device->scratches);
}

/** Even for one address of a buffer, as two ranks that are threads of one process may have one after the other. */
TEST(devices_share_nothing)
{
    cod_device *other = nullptr;
    const cod_buffer buffer = {};
    assert_ok(test_cuda.backend->open(nullptr, &other));
    cuda_scratch *here = join(test_cuda.device, &buffer, 256), *there = join(other, &buffer, 256);
    assert_ptr_not_equal(here, there);
    assert_int_equal(other->allocated, 256);
    cuda_scratch_leave(here);
    assert_null(test_cuda.device->scratches);
    assert_ptr_equal(other->scratches, there);
    cuda_scratch_leave(there);
    test_cuda.backend->close(other);
}

TEST_GROUP(test_pair_open, test_pair_close)
