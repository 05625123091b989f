#define KERNELS cpu_winograd4_avx2
#include "cpu/kernels/winograd4.c.inc"
