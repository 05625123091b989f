#define KERNELS         cpu_kernels_generic
#define INSTRUCTION_SET "generic"
#include "cpu/kernels/body.c.inc"
