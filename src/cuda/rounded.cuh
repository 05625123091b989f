/**
 * @file
 * Weights and biases rounded to bf16, in their order in f32, for plans on libraries (conv_library.cuh). All plans that
 * read the same view share one copy of it: a layer's forward pass, its data gradient, and both again in other programs.
 * Programs of several queues may write a copy while another one reads it. They then write the values that it holds
 * already, because whoever changes weights waits for all plans that read them (core/backend.h).
 *
 * Optimisers write copies, too: update.cu finds them in the device's list. A copy that was listed before it was first
 * rounded is therefore right after every update of its weights, recorded or not, until something else writes the
 * weights.
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

/** A copy that optimisers write, of dense f32. */
struct rounded_listed {
    const float *from, *end;
    uint16_t *to;
};

/**
 * The copies in the order of `from`, without overlaps. It lies in the device's memory, at one address as long as the
 * device lives.
 */
enum { ROUNDED_LISTED = 1024 };
struct rounded_list {
    int count;
    rounded_listed copies[ROUNDED_LISTED];
};

/** The device's list; the first call makes it. */
COD_MUST_CHECK cod_status cuda_rounded_list_of(cod_device *device, const rounded_list **out);

/** Index of the first of `count` copies whose `end` is past `at`; `count` where there is none. */
static __device__ __forceinline__ int rounded_find(const rounded_list *list, int count, const float *at)
{
    int first = 0, end = count;
    while (first < end) {
        const int middle = (first + end) / 2;
        if (list->copies[middle].end > at)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

/**
 * Gives the plan the view's copy, and makes it where no other plan has it. cuda_pack_plans() writes it. The plan keeps
 * it until cuda_rounded_release().
 *
 * @param view       NULL = the plan needs no copy
 * @param[out] copy  at a 256-byte boundary; NULL where `view` is
 */
COD_MUST_CHECK cod_status cuda_rounded_take(cod_plan *plan, const cod_view *view, uint16_t **copy);

#endif
