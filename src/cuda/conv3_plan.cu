/* Plans of 3x3 convolutions (conv3.cuh) of which kernel and tiles are chosen: their memory and packed weights. */
#include "cuda/conv.cuh"
#include "cuda/conv3_plan.cuh"
#include "cuda/pack.cuh"

enum { TICKET_BYTES = 128, PACK_PIECE = 8 };

struct conv3_state {
    conv3_work work;
    conv3_store_kind store;
    conv3_kernel kernel;
    dim3 blocks;
    unsigned threads;
    size_t shared_bytes;
};

/** What is packed: of the weights of `columns` outputs of the kernel, in rows `pitch` bytes apart. */
struct conv3_packing {
    const float *w;
    int64_t w_stride;
    unsigned char *packed;
    int channels, columns, pitch;
    int together; /**< columns whose pieces of eight channels lie side by side: 1, or those of a product */
    int factor;   /**< of the shuffle: columns are numbered cell by cell (conv_output_of()) */
    bool backward;
};

/**
 * bf16 {column / together}{tap}{channel / 8}{column % together}{channel % 8}, from w {O,3,3,I}. A gradient goes over dy
 * against the kernel's order.
 */
__global__ void __launch_bounds__(CUDA_THREADS) conv3_pack_kernel(const cuda_pack_list list)
{
    const pack_place<conv3_packing> place = pack_place_of<conv3_packing>(list);
    const conv3_packing p = *place.how;
    const int pieces = 9 * p.channels / PACK_PIECE, item = (int)place.item;
    if (item >= p.columns * pieces)
        return;
    const int column = item / pieces, piece = item - column * pieces, first = piece * PACK_PIECE;
    const int tap = first / p.channels, channel = first - tap * p.channels,
              output = conv_output_of(conv3_channel(column), p.columns, p.factor);
    bytes16 value;
#pragma unroll
    for (int i = 0; i < PACK_PIECE / 2; i++) {
        float pair[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int c = channel + 2 * i + k, o = p.backward ? c : output, from = p.backward ? output : c;
            pair[k] = p.w[((int64_t)o * 9 + (p.backward ? 8 - tap : tap)) * p.w_stride + from];
        }
        value.words[i] = bf16_pair(pair[0], pair[1]);
    }
    const int within = column % p.together;
    *reinterpret_cast<bytes16 *>(p.packed + (int64_t)(column - within) * p.pitch + (piece * p.together + within) * 16) =
        value;
}

static cod_status conv3_run(const cod_plan *plan, cudaStream_t stream)
{
    const conv3_state *state = static_cast<const conv3_state *>(plan->state);
    return cuda_launch_chained(plan->device, stream, state->kernel.run[state->store], state->blocks, state->threads,
                               state->shared_bytes, state->work);
}

/** Kernels read and write tensors by 16 bytes. */
static cod_status check_memory(const conv3_work *work)
{
    const unsigned char *const tensors[] = {work->load.first,     work->load.second, work->load.kept,
                                            work->store.target,   work->store.x,     work->store.g,
                                            work->store.activated};
    for (const unsigned char *tensor : tensors)
        COD_REQUIRE(reinterpret_cast<uintptr_t>(tensor) % 16 == 0,
                    "a tensor lies at an address that is no multiple of 16");
    return COD_OK;
}

/** @param how  in the device's memory, of a conv3_packing's size */
static cod_status describe_packing(cod_plan *plan, const conv3_filter *filter, const conv3_work *work, int together,
                                   void *how)
{
    const conv3_packing packing = {cuda_floats_of(filter->w),
                                   filter->w->pixel_stride,
                                   const_cast<unsigned char *>(work->packed),
                                   work->channels,
                                   work->outputs,
                                   work->weight_pitch,
                                   together,
                                   filter->factor,
                                   filter->backward};
    const int items = work->outputs * 9 * work->channels / PACK_PIECE;
    plan->packing = {how, conv3_pack_kernel, cuda_item_blocks(items), nullptr, 0};
    return cuda_plan_write(plan, how, &packing, sizeof packing);
}

cod_status conv3_make(cod_plan *plan, const conv3_choice *choice, const conv3_filter *filter)
{
    const conv3_kernel *kernel = &choice->kernel;
    COD_TRY(check_memory(&choice->work));
    COD_TRY(cuda_plan_state(plan, sizeof(conv3_state)));
    conv3_state *state = static_cast<conv3_state *>(plan->state);
    conv3_work *work = &state->work;
    *work = choice->work;
    state->kernel = *kernel;
    state->store = choice->store;
    const int rows = kernel->threads / (work->channels / 8), halo_w = work->tile_w + 2;
    work->step_rows = rows / halo_w;
    work->step_columns = rows % halo_w;
    work->lists = conv3_sums_of(choice->store) * work->outputs;
    state->blocks = dim3(static_cast<unsigned>(conv3_blocks(plan->device, work, kernel)),
                         static_cast<unsigned>(work->outputs / kernel->columns));
    state->threads = static_cast<unsigned>(choice->groups * kernel->threads);
    state->shared_bytes = static_cast<size_t>(work->places.end);
    const int packed = conv3_align(static_cast<int64_t>(work->outputs) * work->weight_pitch);
    const int partials = conv3_align(static_cast<int64_t>(state->blocks.x) * work->lists * 4);
    const size_t bytes = static_cast<size_t>(TICKET_BYTES + packed + partials);
    COD_TRY(cuda_plan_memory(plan, bytes + sizeof(conv3_packing)));
    unsigned char *memory = static_cast<unsigned char *>(plan->memory);
    work->ticket = reinterpret_cast<unsigned *>(memory);
    work->packed = memory + TICKET_BYTES;
    work->partials = reinterpret_cast<float *>(memory + TICKET_BYTES + packed);
    plan->run = conv3_run;
    COD_TRY(describe_packing(plan, filter, work, kernel->wgmma ? kernel->columns : 1, memory + bytes));
    return cuda_allow_shared(kernel->run[choice->store], plan->device->shared_bytes);
}
