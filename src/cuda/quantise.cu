/*
 * Plain chunks of values and back, to the bits of core/chunk_format.h: a block of threads has a chunk. The squares that
 * the step follows from are added in the format's order; everything else is one value at a time.
 */
#include "cuda/launches.cuh"

extern "C" {
#include "core/chunk_format.h"
#include "core/fingerprint.h"
#include "core/int8_blocks.h"
}

#include <cfloat>
#include <cmath>

/** Values of a thread in turn, eight in a row; of a block in turn. */
enum { RUN = 8, TILE = RUN * CUDA_THREADS, BLOCK = 1 << COD_INT8_BLOCK_LOG2, BITS_CHOICES = 3 };

struct chunk_work {
    const float *values; /**< of QUANTISE */
    const float *reference;
    float *decoded;
    const unsigned char *plan; /**< headers that say what is to be done */
    unsigned char *heads;      /**< of QUANTISE: to be written */
    unsigned char *payloads, *prints;
    int64_t room;         /**< bytes from one payload to the next; 0 = headers say where they begin */
    int64_t print_stride; /**< bytes from one fingerprint to the next */
    int sums;             /**< of a chunk at most */
    double ratio;         /**< root mean square of the error over that of the values */
    float rounding;       /**< of deltas */
};

static __device__ __forceinline__ uint32_t load_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static __device__ __forceinline__ void store_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static __device__ __forceinline__ int64_t load_i64(const unsigned char *at)
{
    return (int64_t)load_u32(at) | (int64_t)load_u32(at + 4) << 32;
}

static __device__ __forceinline__ int16_t load_i16(const unsigned char *at)
{
    return (int16_t)(at[0] | at[1] << 8);
}

/**
 * The largest step of codes of 2^parameter bits, and the bytes of `count` of them: cod_chunk_largest_step(),
 * cod_chunk_code_bytes().
 */
static __device__ __forceinline__ int largest_step(unsigned parameter)
{
    return (1 << ((1 << parameter) - 1)) - 1;
}

static __device__ __forceinline__ uint32_t code_bytes(unsigned parameter, uint32_t count)
{
    return (uint32_t)((((uint64_t)count << parameter) + 7) / 8);
}

/** As core/fingerprint.h has it. */
static __device__ __forceinline__ uint64_t fingerprint_part(uint32_t low, uint32_t high, uint32_t pair)
{
    const uint32_t a = low ^ (pair * COD_FINGERPRINT_LOW_STRIDE + COD_FINGERPRINT_LOW_FIRST),
                   b = high ^ (pair * COD_FINGERPRINT_HIGH_STRIDE + COD_FINGERPRINT_HIGH_FIRST);
    return (uint64_t)a * b + ((uint64_t)high << 32 | low);
}

/** A chunk as its threads see it. */
struct chunk_view {
    const float *values, *reference; /**< of its first value; reference NULL = none */
    float *decoded;
    unsigned char *payload;
    uint32_t count;
    unsigned coding, flags, parameter;
    float rounding; /**< of deltas */
};

static __device__ __forceinline__ chunk_view chunk_of(const chunk_work &work)
{
    const unsigned char *head = work.plan + (int64_t)blockIdx.x * COD_CHUNK_HEADER_BYTES;
    const int64_t first = load_i64(head + COD_CHUNK_AT_FIRST);
    chunk_view c;
    c.values = work.values != NULL ? work.values + first : NULL;
    c.reference = work.reference != NULL ? work.reference + first : NULL;
    c.decoded = work.decoded + first;
    c.payload =
        work.payloads + (work.room > 0 ? (int64_t)blockIdx.x * work.room : load_i64(head + COD_CHUNK_AT_CHECKSUM));
    c.count = load_u32(head + COD_CHUNK_AT_COUNT);
    c.coding = head[COD_CHUNK_AT_CODING];
    c.flags = head[COD_CHUNK_AT_FLAGS];
    c.parameter = head[COD_CHUNK_AT_PARAMETER];
    c.rounding = work.rounding;
    return c;
}

/** What the threads of a block tell each other, in shared memory. */
struct block_notes {
    float largest[CUDA_THREADS];
    uint32_t beyond[BITS_CHOICES][CUDA_THREADS];
    uint32_t escaped[CUDA_THREADS];
    uint64_t sums[CUDA_THREADS];
    double step; /**< 0 = 8-bit blocks */
    unsigned parameter;
    bool delta, looks; /**< looks: for the largest change */
};

static __device__ __forceinline__ float change_of(const chunk_view &c, bool delta, uint32_t i)
{
    return delta ? exact_sum(c.values[i], -c.reference[i]) : c.values[i];
}

static __device__ __forceinline__ int step_of(const chunk_view &c, bool delta, uint32_t i, float inverse)
{
    const float quotient = exact_product(change_of(c, delta, i), inverse);
    return (int)exact_sum(quotient, copysignf(delta ? c.rounding : 0.5f, quotient));
}

/** Each thread has lanes of blocks of squares; the first one adds them up, and chooses. */
static __device__ void choose_delta(const chunk_work &work, const chunk_view &c, float *sums, block_notes *notes)
{
    const uint32_t tasks = (c.count + COD_CHUNK_STEP_BLOCK - 1) / COD_CHUNK_STEP_BLOCK * COD_CHUNK_STEP_LANES;
    for (uint32_t task = threadIdx.x; task < tasks; task += CUDA_THREADS) {
        const uint32_t first = task / COD_CHUNK_STEP_LANES * COD_CHUNK_STEP_BLOCK;
        const uint32_t end = first + COD_CHUNK_STEP_BLOCK < c.count ? first + COD_CHUNK_STEP_BLOCK : c.count;
        float weights = 0, changes = 0;
        for (uint32_t i = first + task % COD_CHUNK_STEP_LANES; i < end; i += COD_CHUNK_STEP_LANES) {
            const float value = c.values[i];
            const float change = change_of(c, c.reference != NULL, i);
            weights = exact_sum(weights, exact_product(value, value));
            changes = exact_sum(changes, exact_product(change, change));
        }
        sums[task] = weights;
        sums[work.sums + task] = changes;
    }
    block_sync();
    if (threadIdx.x > 0)
        return;
    double weights = 0, changes = 0;
    for (uint32_t task = 0; task < tasks; task++) {
        weights += (double)sums[task];
        changes += (double)sums[work.sums + task];
    }
    notes->delta = c.reference != NULL && changes < weights;
    changes = notes->delta ? changes : weights;
    notes->step = sqrt(12 * weights / (double)c.count) * work.ratio;
    notes->looks = notes->step < sqrt(changes) / (double)COD_CHUNK_STEP_MOST;
}

/** No step may be more than 16 bits hold. */
static __device__ void widen_step(const chunk_view &c, block_notes *notes)
{
    float largest = 0;
    for (uint32_t i = threadIdx.x; i < c.count; i += CUDA_THREADS)
        largest = fmaxf(largest, fabsf(change_of(c, notes->delta, i)));
    notes->largest[threadIdx.x] = largest;
    block_sync();
    if (threadIdx.x > 0)
        return;
    for (int i = 1; i < CUDA_THREADS; i++)
        largest = fmaxf(largest, notes->largest[i]);
    const double least = (double)largest / (double)COD_CHUNK_STEP_MOST;
    notes->step = least > notes->step ? least : notes->step;
}

static __device__ uint32_t total_of(const uint32_t *parts)
{
    uint32_t total = 0;
    for (int i = 0; i < CUDA_THREADS; i++)
        total += parts[i];
    return total;
}

/** Chooses the bits of codes, and 8-bit blocks where no step serves. */
static __device__ void choose_bits(const chunk_view &c, block_notes *notes)
{
    const bool serves = notes->step >= COD_CHUNK_LEAST_STEP && notes->step <= (double)FLT_MAX;
    const float inverse = (float)(1 / notes->step);
    uint32_t beyond[BITS_CHOICES] = {0, 0, 0};
    for (uint32_t i = threadIdx.x; i < c.count && serves; i += CUDA_THREADS) {
        const int step = step_of(c, notes->delta, i, inverse), size = step < 0 ? -step : step;
#pragma unroll
        for (int b = 0; b < BITS_CHOICES; b++)
            beyond[b] += size > largest_step((unsigned)b + 1);
    }
#pragma unroll
    for (int b = 0; b < BITS_CHOICES; b++)
        notes->beyond[b][threadIdx.x] = beyond[b];
    block_sync();
    if (threadIdx.x > 0)
        return;
    const uint64_t bytes = COD_CHUNK_STEP_PREFIX_BYTES + (uint64_t)c.count + 2 * (uint64_t)total_of(notes->beyond[2]);
    if (!serves || bytes > 16 + (uint64_t)c.count + c.count / 4) { /* cod_chunk_step_bound() */
        notes->step = 0;
        return;
    }
    const uint32_t few = c.count / COD_CHUNK_STEP_FEW;
    notes->parameter = total_of(notes->beyond[0]) <= few ? 1 : total_of(notes->beyond[1]) <= few ? 2 : 3;
}

/** How many of a tile's escaped codes come before this thread's `own`, and at *all how many there are. All threads. */
static __device__ uint32_t escapes_before(block_notes *notes, uint32_t own, uint32_t *all)
{
    block_sync(); /* the tile before has been read */
    notes->escaped[threadIdx.x] = own;
    block_sync();
    for (unsigned reach = 1; reach < CUDA_THREADS; reach *= 2) {
        const uint32_t more = threadIdx.x >= reach ? notes->escaped[threadIdx.x - reach] : 0;
        block_sync();
        notes->escaped[threadIdx.x] += more;
        block_sync();
    }
    *all = notes->escaped[CUDA_THREADS - 1];
    return notes->escaped[threadIdx.x] - own;
}

/** Writes the codes, and behind them what is escaped. @return the payload's bytes, to all threads */
static __device__ uint32_t write_steps(const chunk_view &c, block_notes *notes)
{
    const unsigned parameter = notes->parameter, bits = 1u << parameter;
    const int largest = largest_step(parameter);
    const float inverse = (float)(1 / notes->step);
    unsigned char *codes = c.payload + COD_CHUNK_STEP_PREFIX_BYTES;
    unsigned char *escaped = codes + code_bytes(parameter, c.count);
    uint32_t done = 0;
    for (uint32_t tile = 0; tile < c.count; tile += TILE) {
        const uint32_t first = tile + threadIdx.x * RUN;
        uint64_t word = 0;
        uint32_t own = 0, all;
        int steps[RUN];
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            steps[j] = first + j < c.count ? step_of(c, notes->delta, first + j, inverse) : 0;
            const bool fits = steps[j] >= -largest && steps[j] <= largest;
            own += !fits;
            if (first + j < c.count)
                word |= (uint64_t)(fits ? steps[j] + largest : 2 * largest + 1) << (j * bits);
        }
        /* Eight codes are so many whole bytes; of the last ones those that have codes. */
        const uint32_t at = first / RUN * bits, end = code_bytes(parameter, c.count);
        for (uint32_t b = 0; b < bits && at + b < end; b++)
            codes[at + b] = (unsigned char)(word >> (8 * b));
        uint32_t place = done + escapes_before(notes, own, &all);
        for (int j = 0; j < RUN && own > 0; j++) {
            if (steps[j] < -largest || steps[j] > largest) {
                escaped[2 * place] = (unsigned char)steps[j];
                escaped[2 * place + 1] = (unsigned char)((unsigned)steps[j] >> 8);
                place++;
            }
        }
        done += all;
    }
    if (threadIdx.x == 0) {
        store_u32(c.payload, word_from_f32((float)notes->step));
        store_u32(c.payload + 4, done);
    }
    return (uint32_t)(escaped - c.payload) + 2 * done;
}

/** Rounded away from zero. */
static __device__ __forceinline__ uint32_t bf16_scale(float scale)
{
    return (word_from_f32(scale) + 0xFFFFu) >> 16;
}

/** As core/int8_blocks.c has it: 127 times the scale stays finite, and tiny blocks become zero. */
static __device__ float block_scale(float largest, bool bf16)
{
    float scale = largest / 127.0f;
    if (scale != scale)
        return scale;
    if (scale < FLT_MIN)
        return 0;
    if (bf16)
        scale = f32_from_word(bf16_scale(scale) << 16);
    while (!(exact_product(127.0f, scale) <= FLT_MAX))
        scale = bf16 ? f32_from_word((bf16_scale(scale) - 1) << 16) : f32_from_word(word_from_f32(scale) - 1);
    return scale;
}

static __device__ __forceinline__ int8_t rounded_to_byte(float value, float inverse)
{
    const float quotient = exact_product(value, inverse);
    const float clipped = quotient > 127.0f ? 127.0f : quotient < -127.0f ? -127.0f : quotient;
    return (int8_t)(int)exact_sum(clipped, copysignf(0.5f, clipped));
}

/** A warp has a block of values. @return the payload's bytes */
static __device__ uint32_t write_blocks(const chunk_view &c, bool bf16)
{
    const uint32_t blocks = (c.count + BLOCK - 1) / BLOCK, scale_bytes = bf16 ? 2 : 4;
    const uint32_t lane = threadIdx.x % WARP_LANES;
    for (uint32_t b = threadIdx.x / WARP_LANES; b < blocks; b += CUDA_THREADS / WARP_LANES) {
        const uint32_t end = (b + 1) * BLOCK < c.count ? (b + 1) * BLOCK : c.count;
        uint32_t largest = 0; /* the bits of finite magnitudes are in order, and below all others */
        for (uint32_t i = b * BLOCK + lane; i < end; i += WARP_LANES) {
            const uint32_t bits = word_from_f32(c.values[i]) & 0x7FFFFFFFu;
            largest = bits > largest ? bits : largest;
        }
        for (unsigned mask = WARP_LANES / 2; mask > 0; mask /= 2) {
            const uint32_t other = word_from_f32(shuffle_xor(f32_from_word(largest), mask));
            largest = other > largest ? other : largest;
        }
        const float scale =
            block_scale(largest < 0x7F800000u ? f32_from_word(largest) : f32_from_word(0x7FC00000u), bf16);
        const float inverse = 1 / scale;
        const uint32_t stored = bf16 ? bf16_scale(scale) : word_from_f32(scale);
        for (uint32_t i = lane; i < scale_bytes; i += WARP_LANES)
            c.payload[b * scale_bytes + i] = (unsigned char)(stored >> (8 * i));
        for (uint32_t i = b * BLOCK + lane; i < end; i += WARP_LANES)
            c.payload[blocks * scale_bytes + i] =
                scale > 0 ? (unsigned char)rounded_to_byte(c.values[i], inverse) : (unsigned char)0;
    }
    return blocks * scale_bytes + c.count;
}

/** @return the payload's bytes */
static __device__ uint32_t write_values(const chunk_view &c)
{
    const bool narrow = c.coding == COD_CHUNK_BF16;
    for (uint32_t i = threadIdx.x; i < c.count; i += CUDA_THREADS) {
        uint32_t bits = word_from_f32(c.values[i]);
        if (narrow) {
            const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
            bits = bf16_from_f32(c.values[i]);
            bits -= finite && (bits & 0x7FFFu) == 0x7F80u; /* the largest floats would round to infinity */
            c.payload[2 * i] = (unsigned char)bits;
            c.payload[2 * i + 1] = (unsigned char)(bits >> 8);
        } else {
            store_u32(c.payload + 4 * i, bits);
        }
    }
    return (narrow ? 2 : 4) * c.count;
}

__global__ void __launch_bounds__(CUDA_THREADS) quantise_kernel(chunk_work work)
{
    block_notes *notes = shared_memory<block_notes>();
    chain_wait();
    chunk_view c = chunk_of(work);
    uint32_t stored;
    c.flags &= COD_CHUNK_BF16_SCALES;
    if (c.coding == COD_CHUNK_STEP) {
        choose_delta(work, c, reinterpret_cast<float *>(notes + 1), notes);
        block_sync();
        if (notes->looks)
            widen_step(c, notes);
        block_sync();
        choose_bits(c, notes);
        block_sync();
        const bool serves = notes->step > 0;
        c.coding = serves ? COD_CHUNK_STEP : COD_CHUNK_INT8;
        c.flags = serves ? (notes->delta ? COD_CHUNK_DELTA : 0) : COD_CHUNK_BF16_SCALES;
        c.parameter = serves ? notes->parameter : (unsigned)COD_INT8_BLOCK_LOG2;
    }
    if (c.coding == COD_CHUNK_STEP)
        stored = write_steps(c, notes);
    else if (c.coding == COD_CHUNK_INT8)
        stored = write_blocks(c, (c.flags & COD_CHUNK_BF16_SCALES) != 0);
    else
        stored = write_values(c);
    unsigned char *head = work.heads + (int64_t)blockIdx.x * COD_CHUNK_HEADER_BYTES;
    const unsigned char *from = work.plan + (int64_t)blockIdx.x * COD_CHUNK_HEADER_BYTES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < COD_CHUNK_HEADER_BYTES; i++)
            head[i] = from[i];
        head[COD_CHUNK_AT_CODING] = (unsigned char)c.coding;
        head[COD_CHUNK_AT_FLAGS] = (unsigned char)c.flags;
        head[COD_CHUNK_AT_PARAMETER] = (unsigned char)c.parameter;
        store_u32(head + COD_CHUNK_AT_STORED_BYTES, stored);
    }
}

/** A value of a coding whose payload has it at a place that its number says. */
static __device__ float read_value(const chunk_view &c, uint32_t i)
{
    if (c.coding == COD_CHUNK_F32)
        return f32_from_word(load_u32(c.payload + 4 * i));
    if (c.coding == COD_CHUNK_BF16)
        return f32_from_bf16((uint16_t)load_i16(c.payload + 2 * i));
    const bool bf16 = (c.flags & COD_CHUNK_BF16_SCALES) != 0;
    const uint32_t block = i >> c.parameter, blocks = (c.count + (1u << c.parameter) - 1) >> c.parameter;
    const float scale = bf16 ? f32_from_bf16((uint16_t)load_i16(c.payload + 2 * block))
                             : f32_from_word(load_u32(c.payload + 4 * block));
    const unsigned char byte = c.payload[blocks * (bf16 ? 2 : 4) + i];
    return exact_product((float)(int8_t)byte, scale);
}

/**
 * The values first … first+RUN-1 of STEP. `before`: escaped codes of the tiles before, to which this tile's are added.
 * All threads.
 */
static __device__ void read_steps(const chunk_view &c, block_notes *notes, uint32_t first, uint32_t *before,
                                  float (&values)[RUN])
{
    const unsigned bits = 1u << c.parameter;
    const int largest = largest_step(c.parameter);
    const unsigned char *codes = c.payload + COD_CHUNK_STEP_PREFIX_BYTES;
    const uint32_t at = first / RUN * bits, end = code_bytes(c.parameter, c.count);
    const unsigned char *escaped = codes + end;
    const float step = f32_from_word(load_u32(c.payload));
    const bool escapes = load_u32(c.payload + 4) > 0;
    uint64_t word = 0;
    uint32_t own = 0, all = 0, place = 0;
    for (uint32_t b = 0; b < bits && at + b < end; b++)
        word |= (uint64_t)codes[at + b] << (8 * b);
    int steps[RUN];
#pragma unroll
    for (int j = 0; j < RUN; j++) {
        steps[j] = (int)((unsigned)(word >> (j * bits)) & ((1u << bits) - 1)) - largest;
        own += first + j < c.count && steps[j] > largest;
    }
    if (escapes)
        place = *before + escapes_before(notes, own, &all);
    *before += all;
#pragma unroll
    for (int j = 0; j < RUN; j++) {
        if (first + j >= c.count)
            continue;
        if (steps[j] > largest)
            steps[j] = load_i16(escaped + 2 * place++);
        const float change = exact_product((float)steps[j], step);
        values[j] = (c.flags & COD_CHUNK_DELTA) != 0 ? exact_sum(c.reference[first + j], change) : change;
    }
}

/** Stores a thread's values and takes them into their fingerprint. @return whether all are finite */
static __device__ bool put_values(const chunk_view &c, uint32_t first, const float (&values)[RUN], uint64_t *sum)
{
    bool finite = true;
#pragma unroll
    for (int j = 0; j < RUN; j += 2) {
        if (first + j >= c.count)
            continue;
        const bool pair = first + j + 1 < c.count;
        const uint32_t low = word_from_f32(values[j]), high = pair ? word_from_f32(values[j + 1]) : 0;
        c.decoded[first + j] = values[j];
        if (pair)
            c.decoded[first + j + 1] = values[j + 1];
        finite = finite && (low & 0x7F800000u) != 0x7F800000u && (high & 0x7F800000u) != 0x7F800000u;
        *sum += fingerprint_part(low, high, (first + j) / 2);
    }
    return finite;
}

__global__ void __launch_bounds__(CUDA_THREADS) dequantise_kernel(chunk_work work)
{
    block_notes *notes = shared_memory<block_notes>();
    chain_wait();
    const chunk_view c = chunk_of(work);
    uint32_t before = 0;
    uint64_t sum = 0;
    bool finite = true;
    for (uint32_t tile = 0; tile < c.count; tile += TILE) {
        const uint32_t first = tile + threadIdx.x * RUN;
        float values[RUN] = {};
        if (c.coding == COD_CHUNK_STEP) {
            read_steps(c, notes, first, &before, values);
        } else {
#pragma unroll
            for (int j = 0; j < RUN; j++)
                values[j] = first + j < c.count ? read_value(c, first + j) : 0;
        }
        finite = put_values(c, first, values, &sum) && finite;
    }
    block_sync(); /* all have read the escaped codes of the tiles before */
    notes->sums[threadIdx.x] = sum;
    notes->escaped[threadIdx.x] = finite;
    for (unsigned half = CUDA_THREADS / 2; half > 0; half /= 2) {
        block_sync();
        if (threadIdx.x < half) {
            notes->sums[threadIdx.x] += notes->sums[threadIdx.x + half];
            notes->escaped[threadIdx.x] &= notes->escaped[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        sum = notes->sums[0] != 0 ? notes->sums[0] : 1;
        sum = notes->escaped[0] != 0 ? sum : COD_FINGERPRINT_NONE;
        unsigned char *print = work.prints + (int64_t)blockIdx.x * work.print_stride;
        store_u32(print, (uint32_t)sum);
        store_u32(print + 4, (uint32_t)(sum >> 32));
    }
}

static cod_status quantise_run(const cod_plan *plan, cudaStream_t stream)
{
    const chunk_work *work = static_cast<const chunk_work *>(plan->state);
    const unsigned chunks = static_cast<unsigned>(plan->ops->inputs[1].shape.w);
    chunk_work reading = *work;
    reading.plan = work->heads;
    const size_t shared = sizeof(block_notes) + 2 * sizeof(float) * static_cast<size_t>(work->sums);
    COD_TRY(cuda_launch_chained(plan->device, stream, quantise_kernel, chunks, CUDA_THREADS, shared, *work));
    return cuda_launch_chained(plan->device, stream, dequantise_kernel, chunks, CUDA_THREADS, sizeof(block_notes),
                               reading);
}

cod_status cuda_make_quantise(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const int64_t room = op->outputs[1].shape.c, most = (room - 16) / 4;
    COD_TRY(cuda_plan_state(plan, sizeof(chunk_work)));
    chunk_work *work = static_cast<chunk_work *>(plan->state);
    work->values = cuda_floats_of(&op->inputs[0]);
    work->reference = cuda_floats_of(&op->inputs[2]);
    work->decoded = cuda_floats_of(&op->outputs[2]);
    work->plan = cuda_view_of(&op->inputs[1]).data;
    work->heads = cuda_view_of(&op->outputs[0]).data;
    work->payloads = cuda_view_of(&op->outputs[1]).data;
    work->prints = work->heads + COD_CHUNK_AT_CHECKSUM;
    work->room = room;
    work->print_stride = COD_CHUNK_HEADER_BYTES;
    work->sums = static_cast<int>(cuda_divide_up(most, COD_CHUNK_STEP_BLOCK) * COD_CHUNK_STEP_LANES);
    work->ratio = pow(10, -op->attr.quality_db / 20);
    work->rounding = op->attr.rounding;
    plan->run = quantise_run;
    return COD_OK;
}

cod_status cuda_make_dequantise(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    chunk_work work = {};
    work.reference = cuda_floats_of(&op->inputs[2]);
    work.decoded = cuda_floats_of(&op->outputs[0]);
    work.plan = cuda_view_of(&op->inputs[0]).data;
    work.payloads = cuda_view_of(&op->inputs[1]).data;
    work.prints = cuda_view_of(&op->outputs[1]).data;
    work.print_stride = sizeof(uint64_t);
    return cuda_plan_launches(plan, work,
                              {{dequantise_kernel, static_cast<unsigned>(op->inputs[0].shape.w), sizeof(block_notes)}});
}
