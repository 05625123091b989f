/**
 * @file
 * Weights and biases rounded to bf16 in the order that they have in f32, for plans on libraries (conv_library.cuh). All plans that read
 * the same view share one copy of it: a layer's forward pass, its data gradient, and both again in other programs. Where these run in
 * several queues, one may write a copy that another reads: then only what is there already, because whoever changes weights waits for all
 * plans that read them (core/backend.h).
 */
#ifndef COD_CUDA_ROUNDED_CUH
#define COD_CUDA_ROUNDED_CUH

#include "cuda/view.cuh"

/** What a copy is made of, in the device's memory. */
struct rounded_work {
    cuda_view from;
    uint16_t *to; /**< [from.count] dense */
    bool wide;    /**< `from` is dense f32 that begins at a boundary of 16 bytes */
};

/**
 * Gives the plan the view's copy, which is made where no plan has it yet. cuda_pack_plans() writes it. The plan keeps it until
 * cuda_rounded_release().
 *
 * @param view       NULL = nothing is wanted
 * @param[out] copy  at a boundary of 256 bytes; NULL = nothing was wanted
 */
COD_MUST_CHECK cod_status cuda_rounded_take(cod_plan *plan, const cod_view *view, uint16_t **copy);

#endif
