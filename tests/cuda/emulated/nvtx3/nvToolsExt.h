/**
 * @file
 * The part of NVTX that src/cuda uses: ranges are told to cod_emulated_ranges().
 */
#ifndef COD_TESTS_NVTX_H
#define COD_TESTS_NVTX_H

int nvtxRangePushA(const char *name);
int nvtxRangePop();

#endif
