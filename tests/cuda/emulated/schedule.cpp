/**
 * Which thread of which block goes on. Some blocks of a kernel are resident and take turns, as chance of the seed has
 * it; the others begin as these end. The last kernel of a stream is held until other work comes, because a kernel with
 * a programmatic edge begins before it has ended.
 */
#include "block.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

/**
 * One launch of ALONE has USUAL blocks at a time that are resident, with at most USUAL_THREADS together. The others
 * have one, because many fibres take a processor's caches and therefore time. More become resident where these wait for
 * others, up to what the multiprocessors have room for. BETWEEN_TURNS: instructions that may let other blocks go on, on
 * average.
 */
enum {
    ALONE = 4,
    USUAL = 4,
    USUAL_THREADS = 1024,
    ROOM_BLOCKS = 32,
    ROOM_THREADS = 2048,
    ROOM_SHARED = 228 << 10,
    RESERVED_SHARED = 1 << 10,
    BETWEEN_TURNS = 256,
    MANY_PAUSES = 1 << 10,
    ENDLESS_PAUSES = 1 << 16
};

kernel_state *cod_emulated_kernel;

static std::vector<std::unique_ptr<block_state>> all_blocks;
static std::vector<block_state *> unused; /**< of these */
static unsigned places;                   /**< of shared memory, that blocks have */
static kernel_state *held;
static uint64_t random_state;
static unsigned until_turn = 1;

permutation::permutation(uint64_t count_, uint64_t salt) : count(count_)
{
    const uint64_t seed = cod_emulated_seed();
    if (seed == 0 || count < 2)
        return;
    const auto common = [](uint64_t a, uint64_t b) {
        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    };
    const uint64_t mixed = (seed * 0x9E3779B97F4A7C15ull) ^ (salt * 0xD1B54A32D192ED03ull);
    shift = mixed >> 33;
    for (factor = 1 + (mixed >> 7) % count; common(factor, count) != 1;)
        factor = factor % count + 1;
}

/** A number below `count`. */
static uint64_t chance(uint64_t count)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % count;
}

/* Threads. */

static void pause_thread()
{
    if (cod_emulated_seed() == 0)
        return;
    here()->paused = true;
    cod_fibre_yield();
}

void cod_emulated_turn()
{
    if (--until_turn > 0)
        return;
    until_turn = 1 + static_cast<unsigned>(chance(2 * BETWEEN_TURNS));
    pause_thread();
}

void cod_emulated_likely_turn()
{
    if (chance(2) == 0)
        pause_thread();
}

static void thread_body()
{
    here()->kernel->call->run();
    cod_emulated_land_all();
    cod_emulated_end_thread();
}

static void start_threads(block_state *block)
{
    const dim3 size = block->kernel->launch.block;
    block->count = block->alive = size.x * size.y * size.z;
    if (block->threads.empty()) {
        block->threads.resize(MOST_THREADS);
        block->warps.resize(MOST_THREADS / LANES);
    }
    for (unsigned i = 0; i < block->count; i++) {
        thread_state *thread = &block->threads[i];
        thread->index = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
        thread->done = thread->chain_waited = false;
        thread->waits_for = nullptr;
        thread->groups = 0;
        thread->copies.clear();
        cod_fibre_start(&thread->fibre, thread_body);
    }
    for (unsigned i = 0; i < block->count / LANES; i++)
        block->warps[i].arrived = 0;
    block->block.arrived = block->chain.arrived = 0;
    for (meeting &part : block->parts)
        part.arrived = part.warps = 0;
}

/** Nobody can go on: says where two of the threads are. */
static void tell_deadlock(const block_state *block)
{
    const thread_state *first = nullptr, *other = nullptr;
    for (unsigned i = 0; i < block->count; i++) {
        const thread_state *thread = &block->threads[i];
        if (thread->done)
            continue;
        if (first == nullptr)
            first = thread;
        else if (strcmp(first->at, thread->at) != 0)
            other = thread;
    }
    const unsigned ended = block->count - block->alive;
    if (other != nullptr)
        cod_emulated_fault("threads wait for ever: %u of %u have ended, one is in %s, one in %s", ended, block->count,
                           first->at, other->at);
    else
        cod_emulated_fault("threads wait for ever: %u of %u have ended, the others are in %s", ended, block->count,
                           first->at);
}

/** Runs a thread until it waits or pauses. @return whether it could go on */
static bool resume(block_state *block, unsigned number)
{
    block->current = number;
    thread_state *thread = &block->threads[number];
    if (thread->done || (thread->waits_for != nullptr && *thread->waits_for == thread->seen))
        return false;
    threadIdx = thread->index;
    cod_emulated_block = block;
    cod_emulated_races_enter(block->place, number);
    cod_fibre_resume(&thread->fibre);
    cod_emulated_races_leave();
    cod_emulated_block = nullptr;
    return true;
}

/** Runs a thread's warp until all its threads have ended or wait for other warps, or one pauses. */
static bool resume_warp(block_state *block, unsigned number)
{
    const unsigned first = static_cast<unsigned>(chance(LANES));
    bool went = false;
    for (bool again = true; again && !block->paused;) {
        again = false;
        for (unsigned i = 0; i < LANES; i++)
            again = resume(block, number * LANES + (first + i) % LANES) || again;
        went = went || again;
    }
    return went;
}

/* Blocks. */

/** How many of its threads, or warps, go on in one turn of a block: some, or all of them several times. */
static uint64_t turn_length(uint64_t all)
{
    return chance(8) == 0 ? 1 + chance(all) : all * (1 + chance(16));
}

/**
 * Lets a block go on for a while. One before which memory is forbidden goes on to its chain_wait().
 *
 * @return whether a thread could
 */
static bool run_block(block_state *block)
{
    const kernel_state *kernel = block->kernel;
    const unsigned all = static_cast<unsigned>(block->order.count);
    uint64_t left = turn_length(all);
    unsigned idle = 0;
    bool went = false;
    blockIdx = block->index;
    blockDim = kernel->launch.block;
    gridDim = kernel->launch.grid;
    if (block->watched)
        cod_emulated_forbid_memory(true);
    while (block->alive > 0 && idle < all && (block->watched || left > 0) && !block->paused) {
        const unsigned number = static_cast<unsigned>(block->order(block->next));
        block->next = block->next + 1 < all ? block->next + 1 : 0;
        const bool on = kernel->by_warps ? resume_warp(block, number) : resume(block, number);
        idle = on ? 0 : idle + 1;
        left -= on && left > 0;
        went = went || on;
        if (block->watched)
            block->paused = false;
    }
    cod_emulated_forbid_memory(false);
    return went;
}

static block_state *take_unused()
{
    if (unused.empty()) {
        all_blocks.push_back(std::make_unique<block_state>());
        unused.push_back(all_blocks.back().get());
        unused.back()->place = places++;
    }
    block_state *block = unused.back();
    unused.pop_back();
    return block;
}

static void begin_block(kernel_state *kernel)
{
    const uint64_t at = kernel->begun++, number = kernel->order(at);
    const dim3 grid = kernel->launch.grid;
    block_state *block = take_unused();
    block->kernel = kernel;
    block->index = dim3(static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                        static_cast<unsigned>(number / grid.x / grid.y));
    block->shared = cod_emulated_shared_begin(block->place, kernel->launch.shared_bytes);
    cod_emulated_races_begin(block->place, block->shared, kernel->launch.shared_bytes);
    cod_emulated_wgmma_block_begin(block->shared);
    block->watched = kernel->watched && (at == 0 || at + 1 == kernel->blocks);
    block->released = block->paused = false;
    block->next = 0;
    start_threads(block);
    block->order = permutation(kernel->by_warps ? block->count / LANES : block->count, number);
    kernel->resident.push_back(block);
    kernel->pauses = 0;
}

static void end_block(kernel_state *kernel, size_t at)
{
    block_state *block = kernel->resident[at];
    cod_emulated_shared_check(block->place);
    kernel->resident.erase(kernel->resident.begin() + static_cast<ptrdiff_t>(at));
    kernel->released += !block->released;
    kernel->ended++;
    kernel->pauses = 0;
    unused.push_back(block);
}

/* Kernels. */

static void abandon(kernel_state *kernel)
{
    while (!kernel->resident.empty())
        end_block(kernel, 0);
    kernel->begun = kernel->ended = kernel->released = kernel->blocks;
}

/** Blocks that wait for others in a loop: lets more of them begin, if a GPU would have room for them. */
static void count_pause(kernel_state *kernel)
{
    kernel->pauses++;
    if (kernel->pauses % MANY_PAUSES == 0 && kernel->usual < kernel->most)
        kernel->usual++;
    if (kernel->pauses == ENDLESS_PAUSES) {
        cod_emulated_fault("%zu of %ju blocks go on for ever; there is room for no more", kernel->resident.size(),
                           static_cast<uintmax_t>(kernel->blocks));
        abandon(kernel);
    }
}

/** Lets one of the kernel's resident blocks go on. @return false where none can */
static bool take_turn(kernel_state *kernel)
{
    while (kernel->resident.size() < kernel->usual && kernel->begun < kernel->blocks)
        begin_block(kernel);
    cod_emulated_kernel = kernel;
    const size_t count = kernel->resident.size(), first = count > 1 ? chance(count) : 0;
    bool went = false;
    for (size_t i = 0; i < count && !went; i++) {
        const size_t at = (first + i) % count;
        block_state *block = kernel->resident[at];
        went = run_block(block);
        if (block->alive == 0) {
            end_block(kernel, at);
        } else if (block->paused) {
            block->paused = false;
            count_pause(kernel);
        } else if (!went && !kernel->behind) {
            tell_deadlock(block);
            abandon(kernel);
            break;
        }
    }
    cod_emulated_kernel = nullptr;
    return went;
}

/**
 * Whether memory is forbidden in this launch before chain_wait(): that takes time, so it is done now and then.
 * COD_CUDA_UNWATCHED: never, for processes in which MPI reads and writes this memory meanwhile.
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

static kernel_state *kernel_create(const cod_emulated_launch &launch, const cod_emulated_shared_call &call)
{
    const uint64_t blocks = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z,
                   seed = cod_emulated_seed();
    const size_t threads = static_cast<size_t>(launch.block.x) * launch.block.y * launch.block.z;
    kernel_state *kernel = new kernel_state();
    kernel->launch = launch;
    kernel->call = call;
    kernel->watched = is_watched(launch);
    kernel->by_warps = seed % 2 == 1;
    kernel->order = permutation(blocks, blocks);
    kernel->blocks = blocks;
    const size_t by_threads = ROOM_THREADS / threads, by_shared = ROOM_SHARED / (launch.shared_bytes + RESERVED_SHARED);
    size_t room = by_threads < by_shared ? by_threads : by_shared, usual = USUAL_THREADS / threads;
    if (room > ROOM_BLOCKS)
        room = ROOM_BLOCKS;
    kernel->most = room * static_cast<size_t>(cod_emulated_multiprocessors());
    if (usual > USUAL)
        usual = USUAL;
    if (usual > kernel->most)
        usual = kernel->most;
    kernel->usual = seed == 0 || usual == 0 || chance(ALONE) != 0 ? 1 : usual;
    return kernel;
}

/**
 * Runs a kernel to its end; and of the one behind it, where there is one, what comes before chain_wait(). That begins
 * when all blocks of the first one have ended or called chain_release(); or earlier, because what the first one writes
 * may be seen later, but not later than chain_wait().
 */
static void finish(kernel_state *kernel, kernel_state *next)
{
    const bool early = next != nullptr && chance(2) == 0;
    const uint64_t begins = early ? chance(kernel->blocks + 1) : 0;
    bool may_begin = false, waits = next == nullptr;
    if (next != nullptr)
        next->behind = true;
    while (kernel->ended < kernel->blocks) {
        may_begin = may_begin || (early ? kernel->begun >= begins : kernel->released == kernel->blocks);
        if (may_begin && !waits && chance(2) == 0)
            waits = !take_turn(next);
        else
            take_turn(kernel);
    }
    if (next != nullptr) {
        next->behind = false;
        next->opened++;
    }
    cod_emulated_kernel = kernel;
    cod_emulated_check_memory();
    cod_emulated_kernel = nullptr;
    delete kernel;
}

cudaError_t cod_emulated_settle()
{
    if (held == nullptr)
        return cod_emulated_broken();
    const size_t before = cod_emulated_fault_count();
    kernel_state *kernel = held;
    held = nullptr;
    if (cod_emulated_broken() != cudaSuccess)
        abandon(kernel);
    cod_emulated_watch_memory(true);
    finish(kernel, nullptr);
    cod_emulated_watch_memory(false);
    if (cod_emulated_fault_count() != before)
        cod_emulated_break();
    return cod_emulated_broken();
}

cudaError_t cod_emulated_run(const cod_emulated_launch &launch, const cod_emulated_shared_call &call)
{
    const dim3 block = launch.block;
    if (block.x * block.y * block.z % LANES != 0) {
        cod_emulated_fault("a launch of blocks of %ux%ux%u threads, which are no whole warps", block.x, block.y,
                           block.z);
        return cudaErrorInvalidValue;
    }
    cod_emulated_kernel_record(launch.kernel);
    if (held != nullptr && (!launch.chained || held->launch.stream != launch.stream))
        cod_emulated_settle();
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    const size_t before = cod_emulated_fault_count();
    random_state ^= cod_emulated_seed() * 0x9E3779B97F4A7C15ull;
    kernel_state *kernel = kernel_create(launch, call), *earlier = held;
    held = kernel;
    if (earlier != nullptr) {
        cod_emulated_watch_memory(true);
        finish(earlier, kernel);
        cod_emulated_watch_memory(false);
    }
    if (cod_emulated_fault_count() != before)
        cod_emulated_break();
    if (launch.stream == nullptr || cod_emulated_broken() != cudaSuccess)
        cod_emulated_settle();
    return cudaSuccess;
}
