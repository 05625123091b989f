#define KERNELS         cpu_kernels_avx2
#define INSTRUCTION_SET "avx2"
#include "cpu/kernels/body.c.inc"
