/** What threads of a kernel do together: barriers, a warp's instructions, asynchronous copies. */
#include "block.h"
#include "cuda/warp.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>

enum { POISON = 0xFF };

block_state *cod_emulated_block;

dim3 threadIdx, blockIdx, blockDim, gridDim;

void *cod_emulated_shared()
{
    return here()->shared;
}

size_t cod_emulated_shared_bytes()
{
    return here()->kernel->launch.shared_bytes;
}

void cod_emulated_where(char *text, size_t bytes)
{
    char name[320], thread[128] = "";
    text[0] = '\0';
    if (cod_emulated_kernel == nullptr)
        return;
    cod_emulated_kernel_name(cod_emulated_kernel->launch.kernel, name, sizeof name);
    if (here() != nullptr)
        snprintf(thread, sizeof thread, "thread (%u, %u, %u) of block (%u, %u, %u) of ", threadIdx.x, threadIdx.y,
                 threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
    snprintf(text, bytes, ", in %s%s", thread, name);
}

/** Until the number is another one. */
static void wait_for(const uint64_t *times, const char *at)
{
    thread_state *thread = self();
    thread->waits_for = times;
    thread->seen = *times;
    thread->at = at;
    cod_fibre_yield();
    thread->waits_for = nullptr;
}

static void open_block_barrier()
{
    cod_emulated_wgmma_barrier();
    here()->block.arrived = 0;
    here()->block.times++;
    cod_emulated_races_barrier(UINT32_MAX);
}

void cod_emulated_block_sync()
{
    if (++here()->block.arrived == here()->alive)
        open_block_barrier();
    else
        wait_for(&here()->block.times, "block_sync");
}

void cod_emulated_part_sync(unsigned part, unsigned threads)
{
    if (part >= MOST_PARTS || threads == 0 || threads % LANES != 0 || threads > here()->count) {
        cod_emulated_fault("part_sync of part %u with %u threads in a block of %u", part, threads, here()->count);
        return;
    }
    meeting *m = &here()->parts[part];
    m->warps |= 1u << here()->current / LANES;
    if (++m->arrived == threads) {
        cod_emulated_races_barrier(m->warps);
        m->arrived = 0;
        m->warps = 0;
        m->times++;
    } else {
        wait_for(&m->times, "part_sync");
    }
}

static void open_chain()
{
    here()->watched = false;
    here()->chain.arrived = 0;
    here()->chain.times++;
    cod_emulated_forbid_memory(false);
}

void cod_emulated_chain_wait()
{
    self()->chain_waited = true;
    if (here()->watched) {
        if (++here()->chain.arrived == here()->alive)
            open_chain();
        else
            wait_for(&here()->chain.times, "chain_wait");
    }
    if (here()->kernel->behind)
        wait_for(&here()->kernel->opened, "chain_wait");
}

/** The first of its threads releases a block. */
void cod_emulated_chain_release()
{
    if (!here()->released)
        here()->kernel->released++;
    here()->released = true;
    cod_emulated_turn();
}

void cod_emulated_together(const char *name, const void *in, size_t in_bytes, void *out, size_t out_bytes,
                           void (*act)(const unsigned char *in, unsigned char *out))
{
    meeting *warp = &here()->warps[here()->current / LANES];
    const unsigned lane = here()->current % LANES;
    if (in_bytes > MOST_OPERAND || out_bytes > MOST_OPERAND)
        abort();
    if (warp->arrived == 0)
        warp->name = name;
    else if (warp->name != name)
        cod_emulated_fault("threads of one warp are in %s and in %s", warp->name, name);
    memcpy(warp->in + lane * in_bytes, in, in_bytes);
    if (++warp->arrived == LANES) {
        here()->instruction = __builtin_return_address(0);
        act(warp->in, warp->out);
        if (act == cod_emulated_act_sync)
            cod_emulated_races_warp(here()->current / LANES);
        warp->arrived = 0;
        warp->times++;
    } else {
        wait_for(&warp->times, name);
    }
    memcpy(out, warp->out + lane * out_bytes, out_bytes);
}

static void in_shared(const void *address, size_t bytes, const char *what)
{
    const unsigned char *at = static_cast<const unsigned char *>(address);
    const size_t all = here()->kernel->launch.shared_bytes;
    if (at < here()->shared || at + bytes > here()->shared + all)
        cod_emulated_fault("%s outside the launch's %zu bytes of shared memory", what, all);
}

void cod_emulated_aligned(const void *address, size_t boundary, const char *what)
{
    if (reinterpret_cast<uintptr_t>(address) % boundary != 0)
        cod_emulated_fault("%s: an address that is no multiple of %zu", what, boundary);
}

/** Memory that may be read, whatever is taken of it. */
static void read_source(const async_copy &copy, unsigned char *to)
{
    if (copy.ahead)
        cod_emulated_read_ahead(to, copy.source, 16);
    else
        memcpy(to, copy.source, 16);
}

void cod_emulated_copy_start(void *target, const void *source, unsigned bytes, bool ahead)
{
    if (here()->kernel->launch.chained && !ahead && !self()->chain_waited)
        cod_emulated_fault("copy16_start() before chain_wait() in a kernel with a programmatic edge");
    cod_emulated_aligned(target, 16, "copy16_start, target");
    cod_emulated_aligned(source, 16, "copy16_start, source");
    in_shared(target, 16, "copy16_start");
    cod_emulated_races_access(target, 16, true, false, here()->current, __builtin_return_address(0));
    memset(target, POISON, 16);
    async_copy copy = {static_cast<unsigned char *>(target),
                       static_cast<const unsigned char *>(source),
                       bytes,
                       self()->groups,
                       ahead,
                       false,
                       __builtin_return_address(0),
                       {}};
    static uint64_t chance;
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    copy.taken = chance >> 63 != 0;
    if (copy.taken)
        read_source(copy, copy.value);
    self()->copies.push_back(copy);
    cod_emulated_turn();
}

void cod_emulated_copy_commit()
{
    self()->groups++;
}

/** Those of the groups before `end`. */
static void land(thread_state *thread, uint64_t end)
{
    size_t kept = 0;
    for (const async_copy &copy : thread->copies) {
        if (copy.group >= end) {
            thread->copies[kept++] = copy;
            continue;
        }
        cod_emulated_races_access(copy.target, 16, true, false, here()->current, copy.place);
        if (copy.taken)
            memcpy(copy.target, copy.value, 16);
        else
            read_source(copy, copy.target);
        memset(copy.target + copy.bytes, 0, 16 - copy.bytes);
    }
    thread->copies.resize(kept);
}

void cod_emulated_copy_wait(int under_way)
{
    const uint64_t pending = static_cast<uint64_t>(under_way), groups = self()->groups;
    land(self(), groups > pending ? groups - pending : 0);
    cod_emulated_turn();
}

/* What a warp's instructions do with the operands of its lanes. */

void cod_emulated_act_sync(const unsigned char *, unsigned char *) {}

void cod_emulated_act_shuffle(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_shuffle *lanes = reinterpret_cast<const cod_emulated_shuffle *>(in);
    for (unsigned lane = 0; lane < LANES; lane++)
        memcpy(out + lane * sizeof(float), &lanes[lanes[lane].lane].value, sizeof(float));
}

/** Row and first column of register `i` of a fragment whose 32-bit registers hold `per` elements: A {16, 8·per}. */
static void place_in_a(unsigned lane, unsigned i, unsigned per, unsigned *row, unsigned *column)
{
    *row = lane / 4 + i % 2 * 8;
    *column = (lane % 4 + i / 2 * 4) * per;
}

static float bf16_of(uint32_t word, unsigned half)
{
    const uint32_t bits = half == 0 ? word << 16 : word & 0xFFFF0000u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/** D = A·B + C of one of the products of a warp; by rows, so that the compiler makes vectors. */
template <typename T, unsigned M, unsigned N, unsigned K>
static inline void add_product(T (&d)[M][N], const T (&a)[M][K], const T (&b)[K][N])
{
    for (unsigned row = 0; row < M; row++)
        for (unsigned k = 0; k < K; k++)
            for (unsigned column = 0; column < N; column++)
                d[row][column] += a[row][k] * b[k][column];
}

/** Row and first column of registers 2·`i` and 2·`i` + 1 of D {16, 8}. */
static void place_in_d(unsigned lane, unsigned i, unsigned *row, unsigned *column)
{
    *row = lane / 4 + i * 8;
    *column = lane % 4 * 2;
}

void cod_emulated_act_mma(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_mma *lanes = reinterpret_cast<const cod_emulated_mma *>(in);
    float a[16][16], b[16][8], d[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 8; i++) {
            unsigned row, column;
            place_in_a(lane, i / 2, 2, &row, &column);
            a[row][column + i % 2] = bf16_of(lanes[lane].a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; i++)
            b[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = bf16_of(lanes[lane].b[i / 2], i % 2);
        for (unsigned i = 0; i < 2; i++) {
            unsigned row, column;
            place_in_d(lane, i, &row, &column);
            memcpy(&d[row][column], &lanes[lane].d[2 * i], 8);
        }
    }
    add_product(d, a, b);
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned row, column;
            place_in_d(lane, i, &row, &column);
            memcpy(out + lane * 16 + i * 8, &d[row][column], 8);
        }
}

static float f16_of(uint32_t word, unsigned half)
{
    const uint32_t bits = half == 0 ? word & 0xFFFFu : word >> 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    float value = ldexpf((float)(exponent == 0 ? fraction : fraction + 1024), exponent == 0 ? -24 : (int)exponent - 25);
    if (exponent == 31)
        value = fraction == 0 ? INFINITY : NAN;
    return bits >> 15 ? -value : value;
}

/**
 * PTX ISA 9.7.14.5.1, mma.m8n8k4 of fp16 with A by columns and B by rows: lanes 4·q … 4·q + 3, the low group, and those 16 further, the high
 * one, have a product of their own.
 */
void cod_emulated_act_mma_8x8x4(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_mma_8x8x4 *lanes = reinterpret_cast<const cod_emulated_mma_8x8x4 *>(in);
    for (unsigned q = 0; q < 4; q++) {
        float a[8][4], b[4][8], d[8][8];
        for (unsigned number = 0; number < 8; number++) {
            const unsigned high = number / 4, lane = 16 * high + 4 * q + number % 4;
            for (unsigned i = 0; i < 4; i++) {
                a[i + 4 * high][lane % 4] = f16_of(lanes[lane].a[i / 2], i % 2);
                b[lane % 4][i + 4 * high] = f16_of(lanes[lane].b[i / 2], i % 2);
            }
            for (unsigned i = 0; i < 8; i++)
                d[(lane & 1) + (i & 2) + 4 * high][(i & 4) + (lane & 2) + (i & 1)] = lanes[lane].d[i];
        }
        add_product(d, a, b);
        for (unsigned number = 0; number < 8; number++) {
            const unsigned high = number / 4, lane = 16 * high + 4 * q + number % 4;
            for (unsigned i = 0; i < 8; i++)
                memcpy(out + lane * 32 + i * 4, &d[(lane & 1) + (i & 2) + 4 * high][(i & 4) + (lane & 2) + (i & 1)],
                       sizeof(float));
        }
    }
}

/** PTX ISA 9.7.14.5.7, mma.m16n8k8 of fp16. */
void cod_emulated_act_mma_16x8x8(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_mma_16x8x8 *lanes = reinterpret_cast<const cod_emulated_mma_16x8x8 *>(in);
    float a[16][8], b[8][8], d[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 4; i++) {
            a[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = f16_of(lanes[lane].a[i / 2], i % 2);
            d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = lanes[lane].d[i];
        }
        for (unsigned i = 0; i < 2; i++)
            b[lane % 4 * 2 + i][lane / 4] = f16_of(lanes[lane].b, i);
    }
    add_product(d, a, b);
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 4; i++)
            memcpy(out + lane * 16 + i * 4, &d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2], sizeof(float));
}

void cod_emulated_act_mma_s8(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_mma_s8 *lanes = reinterpret_cast<const cod_emulated_mma_s8 *>(in);
    int32_t a[16][32], b[32][8], d[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 16; i++) {
            unsigned row, column;
            place_in_a(lane, i / 4, 4, &row, &column);
            a[row][column + i % 4] = static_cast<int8_t>(lanes[lane].a[i / 4] >> i % 4 * 8);
        }
        for (unsigned i = 0; i < 8; i++)
            b[lane % 4 * 4 + i % 4 + i / 4 * 16][lane / 4] = static_cast<int8_t>(lanes[lane].b[i / 4] >> i % 4 * 8);
        for (unsigned i = 0; i < 2; i++) {
            unsigned row, column;
            place_in_d(lane, i, &row, &column);
            memcpy(&d[row][column], &lanes[lane].d[2 * i], 8);
        }
    }
    add_product(d, a, b);
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned row, column;
            place_in_d(lane, i, &row, &column);
            memcpy(out + lane * 16 + i * 8, &d[row][column], 8);
        }
}

static void load_matrices(const unsigned char *in, unsigned char *out, bool transposed)
{
    const void *rows[LANES];
    memcpy(rows, in, sizeof rows);
    for (unsigned lane = 0; lane < LANES; lane++)
        in_shared(rows[lane], 16, "load_matrix4");
    const unsigned first = here()->current / LANES * LANES, parts = transposed ? 2 : 1, bytes = 4 / parts;
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++)
            for (unsigned part = 0; part < parts; part++) {
                const unsigned row = transposed ? lane % 4 * 2 + part : lane / 4;
                const unsigned column = transposed ? lane / 4 : lane % 4 * 2;
                const unsigned char *from = static_cast<const unsigned char *>(rows[matrix * 8 + row]) + column * 2;
                cod_emulated_races_access(from, bytes, false, false, first + lane, here()->instruction);
                memcpy(out + lane * 16 + matrix * 4 + part * bytes, from, bytes);
            }
}

void cod_emulated_act_load(const unsigned char *in, unsigned char *out)
{
    load_matrices(in, out, false);
}

void cod_emulated_act_load_transposed(const unsigned char *in, unsigned char *out)
{
    load_matrices(in, out, true);
}

void cod_emulated_end_thread()
{
    block_state *block = here();
    const bool chained = block->kernel->launch.chained;
    cod_emulated_wgmma_thread_end();
    self()->done = true;
    block->alive--;
    if (chained && !self()->chain_waited)
        cod_emulated_fault("a thread of a kernel with a programmatic edge ends without chain_wait()");
    if (block->watched && block->chain.arrived == block->alive)
        open_chain();
    if (block->alive > 0 && block->block.arrived == block->alive)
        open_block_barrier();
}

void cod_emulated_land_all()
{
    land(self(), UINT64_MAX);
}

void cod_emulated_leave_thread()
{
    if (here() == nullptr)
        return;
    cod_emulated_end_thread();
    cod_fibre_leave();
}
