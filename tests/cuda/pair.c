#include "pair.h"

#include "cuda/cuda.h"
#include "ref/ref.h"

cod_test_device test_ref, test_cuda;

int test_pair_open(void **state)
{
    (void)state;
    test_ref.backend = &cod_ref_backend;
    test_cuda.backend = &cod_cuda_backend;
    return test_ref.backend->open(NULL, &test_ref.device) || test_cuda.backend->open(NULL, &test_cuda.device);
}

int test_pair_close(void **state)
{
    (void)state;
    test_ref.backend->close(test_ref.device);
    test_cuda.backend->close(test_cuda.device);
    return 0;
}
