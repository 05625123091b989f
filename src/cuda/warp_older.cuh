/**
 * @file
 * What GPUs before compute capability 8.0 (V100, T4, RTX 20xx) do in place of the instructions that they lack.
 *
 * Memory and numerics are those of newer GPUs: bf16, and sums in f32. Products are plain multiplications in f32, not the fp16 products of
 * these GPUs' tensor cores: fp16 has not bf16's range, so that both operands would have to be scaled by the largest value of each fragment, and
 * mma.m8n8k4, all that a V100 has, keeps its fragments in other lanes than m16n8k16. Counted by instructions, scaling, conversion and moving take
 * about 150 for one m16n8k16, the shuffles and multiplications here 160.
 *
 * Part of cuda/warp.cuh, which includes it; on the emulated GPU too, where tests compare it with what it stands for.
 */
#ifndef COD_CUDA_WARP_OLDER_CUH
#define COD_CUDA_WARP_OLDER_CUH

/** Of a word of two bf16 values: the first (0) or second (1). */
static __device__ __forceinline__ float older_half(uint32_t word, unsigned which)
{
    return f32_from_bf16((uint16_t)(which == 0 ? word : word >> 16));
}

/** mma_bf16() of products in f32. A lane holds rows `lane` / 4 and 8 more of A and D, column `lane` / 4 of B, columns 2·(`lane` mod 4) and 1 more of D. */
static __device__ __forceinline__ void older_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const unsigned lane = threadIdx.x % WARP_LANES, row = lane / 4 * 4, column = lane % 4 * 2 * 4;
    for (unsigned k = 0; k < 8; k++) { /* two values of the inner dimension at a time */
        const unsigned part = k / 4, at = k % 4;
        const uint32_t top = shuffle(a[2 * part], row + at), bottom = shuffle(a[2 * part + 1], row + at);
        const uint32_t left = shuffle(b[part], column + at), right = shuffle(b[part], column + 4 + at);
        for (unsigned which = 0; which < 2; which++) {
            d[0] += older_half(top, which) * older_half(left, which);
            d[1] += older_half(top, which) * older_half(right, which);
            d[2] += older_half(bottom, which) * older_half(left, which);
            d[3] += older_half(bottom, which) * older_half(right, which);
        }
    }
}

/** The sum of four products of s8. */
static __device__ __forceinline__ int32_t older_dot4(uint32_t a, uint32_t b, int32_t sum)
{
#ifdef COD_CUDA_EMULATED
    for (unsigned i = 0; i < 32; i += 8)
        sum += (int32_t)(int8_t)(a >> i) * (int32_t)(int8_t)(b >> i);
    return sum;
#else
    return __dp4a((int32_t)a, (int32_t)b, sum);
#endif
}

/** mma_s8(), exact like it. */
static __device__ __forceinline__ void older_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const unsigned lane = threadIdx.x % WARP_LANES, row = lane / 4 * 4, column = lane % 4 * 2 * 4;
    for (unsigned k = 0; k < 8; k++) { /* four values of the inner dimension at a time */
        const unsigned part = k / 4, at = k % 4;
        const uint32_t top = shuffle(a[2 * part], row + at), bottom = shuffle(a[2 * part + 1], row + at);
        const uint32_t left = shuffle(b[part], column + at), right = shuffle(b[part], column + 4 + at);
        d[0] = older_dot4(top, left, d[0]);
        d[1] = older_dot4(top, right, d[1]);
        d[2] = older_dot4(bottom, left, d[2]);
        d[3] = older_dot4(bottom, right, d[3]);
    }
}

/** load_matrix4(): lanes tell each other where rows begin, counted from the start of the block's shared memory. */
static __device__ __forceinline__ void older_load_matrix4(uint32_t (&r)[4], const void *row)
{
    const unsigned char *base = shared_memory<unsigned char>();
    const unsigned lane = threadIdx.x % WARP_LANES;
    const uint32_t offset = (uint32_t)((const unsigned char *)row - base);
    for (unsigned matrix = 0; matrix < 4; matrix++)
        r[matrix] = *(const uint32_t *)(base + shuffle(offset, 8 * matrix + lane / 4) + 4 * (lane % 4));
    warp_sync();
}

/** load_matrix4_transposed(), likewise. */
static __device__ __forceinline__ void older_load_matrix4_transposed(uint32_t (&r)[4], const void *row)
{
    const unsigned char *base = shared_memory<unsigned char>();
    const unsigned lane = threadIdx.x % WARP_LANES;
    const uint32_t offset = (uint32_t)((const unsigned char *)row - base);
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        const unsigned first = 8 * matrix + 2 * (lane % 4);
        const uint32_t low = *(const uint16_t *)(base + shuffle(offset, first) + 2 * (lane / 4));
        const uint32_t high = *(const uint16_t *)(base + shuffle(offset, first + 1) + 2 * (lane / 4));
        r[matrix] = low | high << 16;
    }
    warp_sync();
}

/** copy16_start(): lands at once, which its contract allows. */
static __device__ __forceinline__ void older_copy16(void *target, const void *source, unsigned bytes)
{
    bytes16 value = {};
    if (bytes > 0)
        value = *(const bytes16 *)source;
    *(bytes16 *)target = value;
}

#endif
