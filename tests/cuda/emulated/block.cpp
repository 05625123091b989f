/** Runs kernels: the blocks of a grid one after the other, the threads of a block as fibres. */
#include "cuda/warp.cuh"
#include "emulated_internal.h"
#include "fibre.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

enum { LANES = 32, MOST_THREADS = 1024, MOST_OPERAND = 64, POISON = 0xFF, MOST_PARTS = 15 };

struct async_copy {
    unsigned char *target;
    const unsigned char *source;
    unsigned bytes;
    uint64_t group;
    bool ahead;        /**< may read memory before chain_wait() */
    bool taken;        /**< `value` was read when it started; else its source is read when it lands */
    const void *place; /**< in the program, behind the instruction */
    unsigned char value[16];
};

struct thread_state {
    cod_fibre fibre;
    dim3 index;
    bool done, chain_waited;
    const uint64_t *waits_for; /**< it goes on when this is no longer `seen`; NULL = it can go on */
    uint64_t seen;
    const char *at; /**< what it waits in */
    std::vector<async_copy> copies;
    uint64_t groups;
};

/** Threads that come together at one instruction. */
struct meeting {
    unsigned arrived;
    uint32_t warps; /**< of the threads that arrived at a part's barrier, one a bit */
    uint64_t times;
    const char *name;
    unsigned char in[LANES * MOST_OPERAND], out[LANES * MOST_OPERAND];
};

static struct {
    std::vector<thread_state> threads;
    std::vector<meeting> warps;
    meeting block, chain, parts[MOST_PARTS];
    bool chained,
        watched; /**< launched with a programmatic edge; memory is forbidden until all threads are in chain_wait() */
    unsigned count, alive, current;
    unsigned char *shared;
    size_t shared_bytes;
    uint64_t chance;   /**< of copies */
    const void *place; /**< of the warp's instruction that runs */
    const std::function<void()> *body;
    const void *kernel; /**< NULL = none runs */
    bool in_thread;
} run;

dim3 threadIdx, blockIdx, blockDim, gridDim;

static thread_state *self()
{
    return &run.threads[run.current];
}

void *cod_emulated_shared()
{
    return run.shared;
}

size_t cod_emulated_shared_bytes()
{
    return run.shared_bytes;
}

void cod_emulated_where(char *text, size_t bytes)
{
    char name[320], thread[128] = "";
    text[0] = '\0';
    if (run.kernel == nullptr)
        return;
    cod_emulated_kernel_name(run.kernel, name, sizeof name);
    if (run.in_thread)
        snprintf(thread, sizeof thread, "thread (%u, %u, %u) of block (%u, %u, %u) of ", threadIdx.x, threadIdx.y,
                 threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
    snprintf(text, bytes, ", in %s%s", thread, name);
}

static void wait_for(const meeting *m, const char *at)
{
    thread_state *thread = self();
    thread->waits_for = &m->times;
    thread->seen = m->times;
    thread->at = at;
    cod_fibre_yield();
    thread->waits_for = nullptr;
}

static void open_block_barrier()
{
    cod_emulated_wgmma_barrier();
    run.block.arrived = 0;
    run.block.times++;
    cod_emulated_races_barrier(UINT32_MAX);
}

void cod_emulated_block_sync()
{
    if (++run.block.arrived == run.alive)
        open_block_barrier();
    else
        wait_for(&run.block, "block_sync");
}

void cod_emulated_part_sync(unsigned part, unsigned threads)
{
    if (part >= MOST_PARTS || threads == 0 || threads % LANES != 0 || threads > run.count) {
        cod_emulated_fault("part_sync of part %u with %u threads in a block of %u", part, threads, run.count);
        return;
    }
    meeting *m = &run.parts[part];
    m->warps |= 1u << run.current / LANES;
    if (++m->arrived == threads) {
        cod_emulated_races_barrier(m->warps);
        m->arrived = 0;
        m->warps = 0;
        m->times++;
    } else {
        wait_for(m, "part_sync");
    }
}

static void open_chain()
{
    run.watched = false;
    run.chain.arrived = 0;
    run.chain.times++;
    cod_emulated_forbid_memory(false);
}

void cod_emulated_chain_wait()
{
    self()->chain_waited = true;
    if (!run.watched)
        return;
    if (++run.chain.arrived == run.alive)
        open_chain();
    else
        wait_for(&run.chain, "chain_wait");
}

void cod_emulated_together(const char *name, const void *in, size_t in_bytes, void *out, size_t out_bytes,
                           void (*act)(const unsigned char *in, unsigned char *out))
{
    meeting *warp = &run.warps[run.current / LANES];
    const unsigned lane = run.current % LANES;
    if (in_bytes > MOST_OPERAND || out_bytes > MOST_OPERAND)
        abort();
    if (warp->arrived == 0)
        warp->name = name;
    else if (warp->name != name)
        cod_emulated_fault("threads of one warp are in %s and in %s", warp->name, name);
    memcpy(warp->in + lane * in_bytes, in, in_bytes);
    if (++warp->arrived == LANES) {
        run.place = __builtin_return_address(0);
        act(warp->in, warp->out);
        if (act == cod_emulated_act_sync)
            cod_emulated_races_warp(run.current / LANES);
        warp->arrived = 0;
        warp->times++;
    } else {
        wait_for(warp, name);
    }
    memcpy(out, warp->out + lane * out_bytes, out_bytes);
}

static void in_shared(const void *address, size_t bytes, const char *what)
{
    const unsigned char *at = static_cast<const unsigned char *>(address);
    if (at < run.shared || at + bytes > run.shared + run.shared_bytes)
        cod_emulated_fault("%s outside the launch's %zu bytes of shared memory", what, run.shared_bytes);
}

void cod_emulated_aligned(const void *address, size_t boundary, const char *what)
{
    if (reinterpret_cast<uintptr_t>(address) % boundary != 0)
        cod_emulated_fault("%s: an address that is no multiple of %zu", what, boundary);
}

/** Memory that may be read, whatever is taken of it. */
static void read_source(const async_copy &copy, unsigned char *to)
{
    const bool forbidden = copy.ahead && cod_emulated_memory_forbidden();
    if (forbidden)
        cod_emulated_forbid_memory(false);
    memcpy(to, copy.source, 16);
    if (forbidden)
        cod_emulated_forbid_memory(true);
}

void cod_emulated_copy_start(void *target, const void *source, unsigned bytes, bool ahead)
{
    if (run.chained && !ahead && !self()->chain_waited)
        cod_emulated_fault("copy16_start() before chain_wait() in a kernel with a programmatic edge");
    cod_emulated_aligned(target, 16, "copy16_start, target");
    cod_emulated_aligned(source, 16, "copy16_start, source");
    in_shared(target, 16, "copy16_start");
    cod_emulated_races_access(target, 16, true, false, run.current, __builtin_return_address(0));
    memset(target, POISON, 16);
    async_copy copy = {static_cast<unsigned char *>(target),
                       static_cast<const unsigned char *>(source),
                       bytes,
                       self()->groups,
                       ahead,
                       false,
                       __builtin_return_address(0),
                       {}};
    run.chance = run.chance * 6364136223846793005u + 1442695040888963407u;
    copy.taken = run.chance >> 63 != 0;
    if (copy.taken)
        read_source(copy, copy.value);
    self()->copies.push_back(copy);
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
        cod_emulated_races_access(copy.target, 16, true, false, run.current, copy.place);
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

void cod_emulated_act_mma(const unsigned char *in, unsigned char *out)
{
    const cod_emulated_mma *lanes = reinterpret_cast<const cod_emulated_mma *>(in);
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 8; i++) {
            unsigned row, column;
            place_in_a(lane, i / 2, 2, &row, &column);
            a[row][column + i % 2] = bf16_of(lanes[lane].a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; i++)
            b[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = bf16_of(lanes[lane].b[i / 2], i % 2);
    }
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = lanes[lane].d[i];
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            memcpy(out + lane * 16 + i * 4, &sum, sizeof sum);
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

/** D = A·B + C of one of the products of a warp. */
template <unsigned M, unsigned N, unsigned K>
static void add_product(float (&d)[M][N], const float (&a)[M][K], const float (&b)[K][N])
{
    for (unsigned row = 0; row < M; row++)
        for (unsigned column = 0; column < N; column++)
            for (unsigned k = 0; k < K; k++)
                d[row][column] += a[row][k] * b[k][column];
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
    int32_t a[16][32], b[32][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < 16; i++) {
            unsigned row, column;
            place_in_a(lane, i / 4, 4, &row, &column);
            a[row][column + i % 4] = static_cast<int8_t>(lanes[lane].a[i / 4] >> i % 4 * 8);
        }
        for (unsigned i = 0; i < 8; i++)
            b[lane % 4 * 4 + i % 4 + i / 4 * 16][lane / 4] = static_cast<int8_t>(lanes[lane].b[i / 4] >> i % 4 * 8);
    }
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            int32_t sum = lanes[lane].d[i];
            for (unsigned k = 0; k < 32; k++)
                sum += a[row][k] * b[k][column];
            memcpy(out + lane * 16 + i * 4, &sum, sizeof sum);
        }
}

static void load_matrices(const unsigned char *in, unsigned char *out, bool transposed)
{
    const void *rows[LANES];
    memcpy(rows, in, sizeof rows);
    for (unsigned lane = 0; lane < LANES; lane++)
        in_shared(rows[lane], 16, "load_matrix4");
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++)
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = lane / 4, column = lane % 4 * 2 + half;
                if (transposed) {
                    const unsigned swap = row;
                    row = column;
                    column = swap;
                }
                const unsigned char *from = static_cast<const unsigned char *>(rows[matrix * 8 + row]) + column * 2;
                cod_emulated_races_access(from, 2, false, false, run.current / LANES * LANES + lane, run.place);
                memcpy(out + lane * 16 + matrix * 4 + half * 2, from, 2);
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

/* Blocks and their fibres. */

static void end_thread()
{
    thread_state *thread = self();
    cod_emulated_wgmma_thread_end();
    thread->done = true;
    run.alive--;
    if (run.chained && !thread->chain_waited)
        cod_emulated_fault("a thread of a kernel with a programmatic edge ends without chain_wait()");
    if (run.watched && run.chain.arrived == run.alive)
        open_chain();
    if (run.alive > 0 && run.block.arrived == run.alive)
        open_block_barrier();
}

static void thread_body()
{
    (*run.body)();
    land(self(), UINT64_MAX);
    end_thread();
}

void cod_emulated_leave_thread()
{
    if (!run.in_thread)
        return;
    end_thread();
    cod_fibre_leave();
}

/** A permutation of 0 … count - 1 that the seed and `salt` choose; its numbers' order for seed 0. */
struct permutation {
    uint64_t count, factor = 1, shift = 0;
    permutation(uint64_t count_, uint64_t salt) : count(count_)
    {
        const uint64_t seed = cod_emulated_seed();
        if (seed == 0 || count < 2)
            return;
        const uint64_t mixed = (seed * 0x9E3779B97F4A7C15ull) ^ (salt * 0xD1B54A32D192ED03ull);
        shift = mixed >> 33;
        for (factor = 1 + (mixed >> 7) % count; common(factor, count) != 1;)
            factor = factor % count + 1;
    }
    static uint64_t common(uint64_t a, uint64_t b) { return b == 0 ? a : common(b, a % b); }
    uint64_t operator()(uint64_t i) const { return (i * factor + shift) % count; }
};

static void start_threads(dim3 block)
{
    run.count = run.alive = block.x * block.y * block.z;
    if (run.threads.size() < run.count) {
        run.threads.resize(MOST_THREADS);
        run.warps.resize(MOST_THREADS / LANES);
    }
    for (unsigned i = 0; i < run.count; i++) {
        thread_state *thread = &run.threads[i];
        thread->index = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
        thread->done = thread->chain_waited = false;
        thread->waits_for = nullptr;
        thread->groups = 0;
        thread->copies.clear();
        cod_fibre_start(&thread->fibre, thread_body);
    }
    for (unsigned i = 0; i < run.count / LANES; i++)
        run.warps[i].arrived = 0;
    cod_emulated_wgmma_block_begin();
    run.block.arrived = run.chain.arrived = 0;
    for (meeting &part : run.parts)
        part.arrived = part.warps = 0;
}

/** Nobody can go on: says where two of the threads are. */
static void tell_deadlock()
{
    const thread_state *first = nullptr, *other = nullptr;
    for (unsigned i = 0; i < run.count; i++) {
        const thread_state *thread = &run.threads[i];
        if (thread->done)
            continue;
        if (first == nullptr)
            first = thread;
        else if (strcmp(first->at, thread->at) != 0)
            other = thread;
    }
    if (other != nullptr)
        cod_emulated_fault("threads wait for ever: %u of %u have ended, one is in %s, one in %s", run.count - run.alive,
                           run.count, first->at, other->at);
    else
        cod_emulated_fault("threads wait for ever: %u of %u have ended, the others are in %s", run.count - run.alive,
                           run.count, first->at);
}

/** Runs a thread until it waits. @return whether it could go on */
static bool resume(unsigned number)
{
    run.current = number;
    thread_state *thread = self();
    if (thread->done || (thread->waits_for != nullptr && *thread->waits_for == thread->seen))
        return false;
    threadIdx = thread->index;
    run.in_thread = true;
    cod_emulated_races_enter(0, number);
    cod_fibre_resume(&thread->fibre);
    cod_emulated_races_leave();
    run.in_thread = false;
    return true;
}

/** Runs a thread's warp until all its threads have ended or wait for other warps. */
static bool resume_warp(unsigned number)
{
    bool went = false;
    for (bool again = true; again;) {
        again = false;
        for (unsigned i = 0; i < LANES; i++)
            again = resume(number / LANES * LANES + (number + i) % LANES) || again;
        went = went || again;
    }
    return went;
}

/** Threads go on by turns; or, with every other seed, a warp goes as far as it can before the next one does. */
static bool run_block(dim3 block_size, uint64_t salt)
{
    start_threads(block_size);
    const permutation order(run.count, salt);
    const bool by_warps = cod_emulated_seed() % 2 == 1;
    while (run.alive > 0) {
        bool went = false;
        for (unsigned i = 0; i < run.count; i++) {
            const unsigned number = static_cast<unsigned>(order(i));
            went = (by_warps ? resume_warp(number) : resume(number)) || went;
        }
        if (!went) {
            tell_deadlock();
            return false;
        }
    }
    return true;
}

/**
 * Whether memory is forbidden in this launch before chain_wait(): that takes time, so it is done now and then. COD_CUDA_UNWATCHED: never,
 * for processes in which MPI reads and writes this memory meanwhile.
 */
static bool is_watched(const cod_emulated_launch &launch)
{
    enum { FIRST = 4, PERIOD = 64 };
    static std::map<const void *, uint64_t> launches;
    if (!launch.chained || getenv("COD_CUDA_UNWATCHED") != nullptr)
        return false;
    const uint64_t number = launches[launch.kernel]++;
    return number < FIRST || number % PERIOD == 0;
}

cudaError_t cod_emulated_run(const cod_emulated_launch &launch, const std::function<void()> &thread)
{
    const dim3 grid = launch.grid, block = launch.block;
    const size_t shared_bytes = launch.shared_bytes;
    const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    if (block.x * block.y * block.z % LANES != 0) {
        cod_emulated_fault("a launch of blocks of %ux%ux%u threads, which are no whole warps", block.x, block.y,
                           block.z);
        return cudaErrorInvalidValue;
    }
    cod_emulated_kernel_record(launch.kernel);
    run.body = &thread;
    run.kernel = launch.kernel;
    run.shared_bytes = shared_bytes;
    blockDim = block;
    gridDim = grid;
    const size_t before = cod_emulated_fault_count();
    const bool watched = is_watched(launch);
    const permutation order(blocks, blocks);
    run.chained = launch.chained;
    cod_emulated_watch_memory(true);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t number = order(i);
        blockIdx = dim3(static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                        static_cast<unsigned>(number / grid.x / grid.y));
        run.shared = cod_emulated_shared_begin(shared_bytes);
        cod_emulated_races_begin(0, run.shared, shared_bytes);
        run.watched = watched && (i == 0 || i + 1 == blocks);
        if (run.watched)
            cod_emulated_forbid_memory(true);
        const bool ended = run_block(block, number);
        cod_emulated_forbid_memory(false);
        run.watched = false;
        cod_emulated_shared_check();
        if (!ended)
            break;
    }
    cod_emulated_watch_memory(false);
    cod_emulated_check_memory();
    run.kernel = nullptr;
    if (cod_emulated_fault_count() != before)
        cod_emulated_break();
    return cudaSuccess;
}
