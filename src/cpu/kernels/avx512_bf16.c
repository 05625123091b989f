#define KERNELS         cpu_kernels_avx512_bf16
#define INSTRUCTION_SET "avx512_bf16"
#include "cpu/kernels/body.c.inc"
