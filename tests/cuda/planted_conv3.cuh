/**
 * @file
 * A second copy of the kernels of conv3.cuh by warpgroups, where the barrier, fence or wait of a number is left out,
 * and names of its own for the functions that make plans of them.
 */
#ifndef COD_TESTS_CUDA_PLANTED_CONV3_CUH
#define COD_TESTS_CUDA_PLANTED_CONV3_CUH

#include "cuda/conv3_plan.cuh"
#include "cuda/wgmma.cuh"

/** -1 = none. The first barriers are warpgroups' alone; waits are numbered behind them. */
static int missing = -1;
enum { OF_WARPGROUPS = 2, BARRIERS = 4, WAITS = 2, FIRST_BARRIER = __COUNTER__ + 1 };

template <int NUMBER> static bool is_left_out()
{
    return NUMBER - FIRST_BARRIER == missing;
}

template <int under_way> static void planted_wait()
{
    if (BARRIERS + under_way != missing)
        wgmma_wait<under_way>();
}

#define part_sync(part, threads) (is_left_out<__COUNTER__>() ? (void)0 : part_sync(part, threads))
#define wgmma_fence()            (is_left_out<__COUNTER__>() ? (void)0 : wgmma_fence())
#define wgmma_writes_fence()     (is_left_out<__COUNTER__>() ? (void)0 : wgmma_writes_fence())
#define wgmma_wait               planted_wait
#define conv3_kernels_of_wgmma   planted_kernels_of_wgmma
#define conv3_fits_tensor        planted_fits_tensor
#define conv3_describe_shapes    planted_describe_shapes
#define conv3_choose             planted_choose
#define conv3_blocks             planted_blocks
#define conv3_make               planted_conv3_make
const conv3_kernel *planted_kernels_of_wgmma();
bool planted_fits_tensor(const cod_view *view);
void planted_describe_shapes(const cod_view *x, int64_t outputs, conv3_work *work);
bool planted_choose(const cod_device *device, conv3_by by, conv3_choice *best);
int planted_blocks(const cod_device *device, const conv3_work *work, const conv3_kernel *kernel);
COD_MUST_CHECK cod_status planted_conv3_make(cod_plan *plan, const conv3_choice *choice, const conv3_filter *filter);
#include "cuda/conv3_wgmma.cu"
static_assert(__COUNTER__ - FIRST_BARRIER == BARRIERS, "each of the kernel's barriers is left out in turn");

#endif
