#define KERNELS         cpu_kernels_avx512
#define INSTRUCTION_SET "avx512"
#include "cpu/kernels/body.c.inc"
