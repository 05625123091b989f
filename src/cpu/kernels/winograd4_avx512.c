#define KERNELS cpu_winograd4_avx512
#include "cpu/kernels/winograd4.c.inc"
