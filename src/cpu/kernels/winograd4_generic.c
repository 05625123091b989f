#define KERNELS cpu_winograd4_generic
#include "cpu/kernels/winograd4.c.inc"
