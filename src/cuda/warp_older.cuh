/**
 * @file
 * What GPUs before compute capability 8.0 (V100, T4, RTX 20xx) do in place of the instructions that they lack.
 *
 * Memory and numerics are those of newer GPUs: bf16, and sums in f32. Products are those of fp16 tensor cores, which
 * have not bf16's range. So each row of A and each column of B is scaled by a power of two of its own, which takes its
 * largest value to fp16's largest power, and the scales are taken back in f32. With `largest` the power of two at or
 * below the largest magnitude of such a row or column of 16 values:
 * - values from largest·2^-29 on are exact, since bf16's 8 significant bits fit in fp16's 11; smaller ones change by
 *   less than largest·2^-29, and by less than largest·2^-30 where the GPU multiplies subnormal numbers of fp16 as they
 *   are, which PTX's manual leaves open;
 * - a row or column with an infinity or NaN makes its own sums NaN, and no others; one of zeros adds zeros;
 * - sums are infinite where Σ a·b is, and where Σ a·b divided by the column's `largest` is from 2^127 on, which takes a
 *   value of A of 2^122 or more; of the same quotient, what is below 2^-150 is lost.
 *
 * The lanes that hold a row or a column are a quad, four neighbours, so that two shuffles find its largest value.
 *
 * Part of cuda/warp.cuh, which includes it; on the emulated GPU too, where tests compare it with what it stands for.
 */
#ifndef COD_CUDA_WARP_OLDER_CUH
#define COD_CUDA_WARP_OLDER_CUH

/** Of two words' 16-bit halves: those numbered `which` (0 or 1), the first word's in the low half. */
static __device__ __forceinline__ uint32_t older_halves(uint32_t first, uint32_t second, unsigned which)
{
#ifdef COD_CUDA_EMULATED
    return which == 0 ? (first & 0xFFFFu) | second << 16 : first >> 16 | (second & 0xFFFF0000u);
#else
    return __byte_perm(first, second, which == 0 ? 0x5410 : 0x7632);
#endif
}

/** A word whose halves have the sign of the same half of `word` in all bits. */
static __device__ __forceinline__ uint32_t older_signs(uint32_t word)
{
#ifdef COD_CUDA_EMULATED
    return (word >> 15 & 0x00010001u) * 0xFFFFu;
#else
    uint32_t result;
    asm("prmt.b32 %0,%1,%1,0xBB99;" : "=r"(result) : "r"(word));
    return result;
#endif
}

static __device__ __forceinline__ uint32_t older_max(uint32_t a, uint32_t b)
{
#ifdef COD_CUDA_EMULATED
    return a > b ? a : b;
#else
    return umax(a, b);
#endif
}

/** shuffle_xor() of a word: with a constant `mask` it needs no register for the other lane's number. */
static __device__ __forceinline__ uint32_t older_shuffle_xor(uint32_t word, unsigned mask)
{
#ifdef COD_CUDA_EMULATED
    return shuffle(word, (threadIdx.x ^ mask) % WARP_LANES);
#else
    return __shfl_xor_sync(0xFFFFFFFFu, word, (int)mask);
#endif
}

/** One of a pair of factors in bf16, in which powers of two are exact and NaN stays NaN. */
static __device__ __forceinline__ float older_half(uint32_t pair, unsigned which)
{
    return f32_from_word(which == 0 ? pair << 16 : pair & 0xFFFF0000u);
}

/** How a row of A or a column of B becomes fp16: */
struct older_scale {
    uint32_t base;     /**< what is subtracted of the 8 bits of the exponent, in place in both halves of a word */
    uint32_t exponent; /**< the largest exponent, and at least OLDER_TOP, in f32's place */
    uint32_t poison;   /**< an f32 that is infinite or NaN if one of the values is */
};

#define OLDER_TOP 30u /* the exponent of fp16's largest power of two, 2^15, with fp16's bias */

/**
 * Of a quad's row or column, of which a lane has four values in two words. The largest magnitude is found without its
 * sign, at the top of a word.
 */
static __device__ __forceinline__ older_scale older_scale_of(uint32_t first, uint32_t second)
{
    uint32_t largest = older_max(older_max(first << 1, first << 17), older_max(second << 1, second << 17));
    largest = older_max(largest, older_shuffle_xor(largest, 1));
    largest = older_max(largest, older_shuffle_xor(largest, 2));
    older_scale scale;
    scale.poison = largest >> 1;
    scale.exponent = older_max(scale.poison, OLDER_TOP << 23) & 0x7F800000u;
    const uint32_t base = scale.exponent - (OLDER_TOP << 23);
    scale.base = older_halves(base, base, 1);
    return scale;
}

/**
 * Two values in fp16. Exponents below 0 become zeros; what has exponent 0 loses its first bit, which is less than the
 * smallest exact value.
 */
static __device__ __forceinline__ uint32_t older_f16(uint32_t word, uint32_t base)
{
    const uint32_t moved =
        (word | 0x80008000u) - base; /* the sign's bit keeps halves apart, and is left where nothing was borrowed */
    return (moved & older_signs(moved) & 0x7FFF7FFFu) << 3 | (word & 0x80008000u);
}

/**
 * Takes scales back: a row's and a column's multiply the sum, one after the other, so that neither they nor the product
 * leave f32 before it must. A value with exponents e in bf16 and e - base in fp16 is 2^(base - 112) times what it was
 * taken for.
 */
static __device__ __forceinline__ float older_row_factor(const older_scale &scale)
{
    return 0.0f * f32_from_word(scale.poison) + f32_from_word(scale.exponent - (29u << 23)); /* 2^(base - 126) */
}

static __device__ __forceinline__ float older_column_factor(const older_scale &scale)
{
    return 0.0f * f32_from_word(scale.poison) + f32_from_word(scale.exponent - (1u << 23)); /* 2^(base - 98) */
}

/** D = A·B of 16x16 and 16x8 in fp16 by mma.m16n8k8, whose fragments are halves of m16n8k16's. */
static __device__ __forceinline__ void older_product_75(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    d[0] = d[1] = d[2] = d[3] = 0;
    for (unsigned half = 0; half < 2; half++) {
        const uint32_t two[2] = {a[2 * half], a[2 * half + 1]};
        mma_f16_16x8x8(d, two, b[half]);
    }
}

/**
 * The same by mma.m8n8k4, in which the lanes of two quads, `lane` / 4 = q and q + 4, multiply 8x4 and 4x8 matrices. In
 * m16n8k16 these lanes hold rows q, q + 8, q + 4 and q + 12 of A and D. So each of these is two of the eight rows,
 * which lane by lane need nothing but what the lane has: A is taken by columns, a lane's column in step k being value k
 * of its four. A lane then gets its own rows of D twice over, of four columns in two pairs each time, and with columns
 * 2, 3 and 4, 5 exchanged one of these pairs is its own. That leaves B, of which each pair of quads needs all: the
 * columns of a lane are moved to it.
 */
static __device__ __forceinline__ void older_product_70(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const unsigned lane = threadIdx.x % WARP_LANES;
    uint32_t columns[2][4];
    float sums[8] = {};
    for (unsigned half = 0; half < 2; half++)
        for (unsigned i = 0; i < 4; i++)
            columns[half][i] = shuffle(b[half], (lane / 16 * 2 + i % 2 + i / 2 * 4) * 4 + lane % 4);
    for (unsigned k = 0; k < 4; k++) {
        const unsigned half = k / 2;
        const uint32_t(&c)[4] = columns[half];
        const uint32_t rows[2] = {older_halves(a[2 * half], a[2 * half], k % 2),
                                  older_halves(a[2 * half + 1], a[2 * half + 1], k % 2)};
        const uint32_t pairs[2] = {older_halves(c[0], c[1], k % 2), older_halves(c[2], c[3], k % 2)};
        mma_f16_8x8x4(sums, rows, pairs);
    }
    for (unsigned i = 0; i < 4; i++)
        d[i] = lane % 2 == 0 ? sums[i] : sums[4 + i];
}

/** mma_rows_of(): a lane has rows `lane` / 4 and 8 more. */
static __device__ __forceinline__ mma_rows older_rows_of(const uint32_t (&a)[4])
{
    const older_scale top = older_scale_of(a[0], a[2]), bottom = older_scale_of(a[1], a[3]);
    return {{older_f16(a[0], top.base), older_f16(a[1], bottom.base), older_f16(a[2], top.base),
             older_f16(a[3], bottom.base)},
            older_halves(word_from_f32(older_row_factor(top)), word_from_f32(older_row_factor(bottom)), 1)};
}

/**
 * mma_columns_of(): a lane has column `lane` / 4, and factors of columns 2·(`lane` mod 4) and 1 more, as of D. Lanes of
 * the first of two columns have the pair first.
 */
static __device__ __forceinline__ mma_columns older_columns_of(uint32_t first, uint32_t second)
{
    const older_scale scale = older_scale_of(first, second);
    const uint32_t own = word_from_f32(older_column_factor(scale));
    const uint32_t pair = older_halves(own, older_shuffle_xor(own, 4), 1);
    return {{older_f16(first, scale.base), older_f16(second, scale.base)}, shuffle(pair, threadIdx.x % 4 * 8)};
}

static __device__ __forceinline__ void older_mma_bf16(float (&d)[4], const mma_rows &a, const mma_columns &b)
{
    float product[4];
#ifdef COD_CUDA_EMULATED
    if (cod_emulated_capability() < 75)
        older_product_70(product, a.words, b.words);
    else
        older_product_75(product, a.words, b.words);
#elif __CUDA_ARCH__ < 750
    older_product_70(product, a.words, b.words);
#else
    older_product_75(product, a.words, b.words);
#endif
    for (unsigned i = 0; i < 4; i++)
        d[i] += product[i] * older_half(a.factors, i / 2) * older_half(b.factors, i % 2);
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
