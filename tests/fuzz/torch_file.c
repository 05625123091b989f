/* Files of torch.save(), in both forms. */
#include "fuzz.h"

#include "io/torch_file.h"

fuzz_kind fuzz_kinds[] = {{"archives", 0}, {"older files", 0}, {NULL, 0}};

static volatile unsigned fuzz_sink; /**< so that every byte of a tensor is read */

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_torch_file *file = NULL;
    if (!fuzz_taken(cod_torch_open_memory(input, bytes, &file)))
        return 0;
    fuzz_kinds[input[0] != 'P'].taken++;
    unsigned sum = 0;
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++) {
        const cod_st_tensor *tensor = &cod_torch_tensor_at(file, i)->tensor;
        FUZZ_DEMAND(tensor->bytes == cod_st_count(tensor) * cod_st_dtype_bytes(tensor->dtype));
        for (size_t at = 0; at < tensor->bytes; at++)
            sum += ((const unsigned char *)tensor->data)[at];
    }
    fuzz_sink = sum;
    cod_torch_close(file);
    return 0;
}

/** tests/io/golden/torch/write.py does. */
int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
