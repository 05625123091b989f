#include "cuda/pack.cuh"

#include "cuda/cuda_internal.h"
#include "cuda/walk.cuh"

enum { MOST_KERNELS = 8 };

/** Packs the plans whose packing, or scales, the kernel makes. */
static cod_status pack_by(cuda_pack_kernel *kernel, bool scales, cod_plan *const *plans, size_t count,
                          cudaStream_t stream)
{
    cuda_pack_list list = {};
    unsigned blocks = 0;
    for (size_t i = 0; i <= count; i++) {
        if (list.count > 0 && (i == count || list.count == CUDA_PACK_PLANS)) {
            COD_TRY(cuda_launch(stream, kernel, blocks, scales ? WARP_LANES : CUDA_THREADS, 0, list));
            list.count = 0;
            blocks = 0;
        }
        const cuda_packing *packing = i < count ? &plans[i]->packing : nullptr;
        if (packing == nullptr || packing->how == nullptr || (scales ? packing->scales : packing->kernel) != kernel)
            continue;
        list.packings[list.count] = packing->how;
        list.first[list.count++] = blocks;
        blocks += scales ? packing->scale_blocks : packing->blocks;
    }
    return COD_OK;
}

/** A launch for each kernel that some of the plans have. */
static cod_status pack_pass(bool scales, cod_plan *const *plans, size_t count, cudaStream_t stream)
{
    cuda_pack_kernel *seen[MOST_KERNELS] = {};
    for (size_t i = 0; i < count; i++) {
        cuda_pack_kernel *kernel = scales ? plans[i]->packing.scales : plans[i]->packing.kernel;
        size_t k = 0;
        while (k < MOST_KERNELS && seen[k] != nullptr && seen[k] != kernel)
            k++;
        COD_REQUIRE(k < MOST_KERNELS, "more than %d kernels that pack", (int)MOST_KERNELS);
        if (kernel == nullptr || seen[k] == kernel)
            continue;
        seen[k] = kernel;
        COD_TRY(pack_by(kernel, scales, plans, count, stream));
    }
    return COD_OK;
}

cod_status cuda_pack_plans(cod_plan *const *plans, size_t count, bool updated, cudaStream_t stream)
{
    static_assert(sizeof(cuda_pack_list) <= 4096, "what a launch of any GPU can take along");
    if (count > 0)
        cuda_chain_end(plans[0]->device);
    COD_TRY(pack_pass(true, plans, count, stream));
    COD_TRY(pack_pass(false, plans, count, stream));
    return cuda_rounded_prepare(plans, count, updated, stream);
}
