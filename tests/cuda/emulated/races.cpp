/**
 * Races in shared memory. Kernels of a library with COD_CUDA_RACES are compiled with -fsanitize=thread, which calls the functions at the end
 * of this file, not those of GCC's library, before each access. Two accesses of the same bytes by two threads, one of them a write, must
 * have a barrier of both between them, whatever order the threads happened to run in.
 *
 * What orders is what CUDA promises: block_sync(), part_sync() and warp_sync(). Shuffles, products and loads of matrices only pass
 * values: CUDA C++ Programming Guide, "Warp Shuffle Functions": "These intrinsics do not imply a memory barrier."
 */
#include "cuda/warp.cuh"
#include "emulated_internal.h"

#ifdef COD_CUDA_RACES

#include <cstdio>
#include <cstring>
#include <deque>
#include <link.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

enum { LANES = 32, MOST_WARPS = 32, CELL = 2 }; /* CELL: bytes, such as a bf16 has */

/** An access of a thread, 12 bytes: shared memory has many. */
struct use {
    uint32_t time;  /**< what the thread's warp had passed by then */
    uint32_t place; /**< behind the instruction, in the program's file */
    uint16_t thread;
    uint8_t bytes; /**< bit i: byte i of the cell; 0 = no access */
    bool atomic;
};

/** The last accesses of CELL bytes. */
struct cell {
    use write, reads[2];
};

/**
 * What a block has passed. A warp passes barriers of the block and of its parts as a whole, so it has one clock, which
 * counts these and its own; clocks go on from block to block, and all of a block's begin behind those of the one before.
 */
struct block_clocks {
    const unsigned char *memory;
    size_t bytes;
    std::vector<cell> cells;
    uint32_t clock[MOST_WARPS];
    /** What the first warp does now is behind what the second one did before this. */
    uint32_t seen[MOST_WARPS][MOST_WARPS];
};

static std::deque<block_clocks> blocks; /* which stay where they are */
static block_clocks *block;             /**< of the thread that runs; NULL = none does */
static unsigned thread_that_runs;

static uintptr_t program_base()
{
    static uintptr_t base;
    if (base == 0)
        dl_iterate_phdr(
            [](struct dl_phdr_info *info, size_t, void *address) {
                *static_cast<uintptr_t *>(address) = info->dlpi_addr;
                return 1; /* the program comes first */
            },
            &base);
    return base;
}

static void pass_barrier(block_clocks *of, uint32_t warps)
{
    uint32_t seen[MOST_WARPS] = {};
    for (unsigned warp = 0; warp < MOST_WARPS; warp++) {
        if ((warps >> warp & 1) == 0)
            continue;
        of->seen[warp][warp] = ++of->clock[warp];
        for (unsigned other = 0; other < MOST_WARPS; other++)
            if (seen[other] < of->seen[warp][other])
                seen[other] = of->seen[warp][other];
    }
    for (unsigned warp = 0; warp < MOST_WARPS; warp++)
        if ((warps >> warp & 1) != 0)
            memcpy(of->seen[warp], seen, sizeof seen);
}

void cod_emulated_races_barrier(uint32_t warps)
{
    pass_barrier(block, warps);
}

void cod_emulated_races_warp(unsigned warp)
{
    block->seen[warp][warp] = ++block->clock[warp];
}

void cod_emulated_races_begin(unsigned number, const unsigned char *memory, size_t bytes)
{
    const size_t count = (bytes + CELL - 1) / CELL;
    if (blocks.size() <= number)
        blocks.resize(number + 1);
    block_clocks *begun = &blocks[number];
    begun->memory = memory;
    begun->bytes = bytes;
    if (begun->cells.size() < count)
        begun->cells.resize(count);
    pass_barrier(begun, UINT32_MAX);
}

void cod_emulated_races_enter(unsigned number, unsigned thread)
{
    block = &blocks[number];
    thread_that_runs = thread;
}

void cod_emulated_races_leave()
{
    block = nullptr;
}

/** File and line of a kernel's access, as addr2line has them; else its address in the program's file. */
static std::string find_place(uint32_t place)
{
    char text[256];
    snprintf(text, sizeof text, "addr2line -sie /proc/%d/exe %#x 2>/dev/null", static_cast<int>(getpid()), place - 1);
    FILE *answer = popen(text, "r");
    snprintf(text, sizeof text, "%#x", place - 1);
    std::string name = text;
    bool found = answer == nullptr; /* the innermost function that is not one of the emulated instructions */
    while (!found && fgets(text, sizeof text, answer) != nullptr && text[0] != '?') {
        name.assign(text, strcspn(text, " \n"));
        found = strstr(text, "warp.h:") == nullptr && strstr(text, "warp.cuh:") == nullptr;
    }
    if (answer != nullptr)
        pclose(answer);
    return name;
}

static const char *name_of(uint32_t place)
{
    static std::map<uint32_t, std::string> names;
    auto known = names.find(place);
    if (known == names.end())
        known = names.emplace(place, find_place(place)).first;
    return known->second.c_str();
}

static void tell(const use &earlier, const use &now, bool wrote, bool writes, size_t byte)
{
    const bool first = cod_emulated_fault_count() == 0; /* others are only counted */
    cod_emulated_fault("no barrier is between a %s of byte %zu of shared memory by thread %u at %s and a %s by thread "
                       "%u at %s",
                       wrote ? "write" : "read", byte, earlier.thread, first ? name_of(earlier.place) : "",
                       writes ? "write" : "read", now.thread, first ? name_of(now.place) : "");
}

/** Whether the earlier access is of the same thread, or a barrier is between it and what its warp has seen so. */
static inline bool is_before(const use &earlier, const use &now, const uint32_t *seen)
{
    return earlier.thread == now.thread || earlier.time < seen[earlier.thread / LANES];
}

static inline bool races(const use &earlier, const use &now, const uint32_t *seen)
{
    return (earlier.bytes & now.bytes) != 0 && !is_before(earlier, now, seen) && !(earlier.atomic && now.atomic);
}

/** A read that a barrier has made harmless makes room; two others are kept. */
static inline void keep_read(cell *at, const use &now, const uint32_t *seen)
{
    use *read = &at->reads[at->reads[0].bytes != 0 && !is_before(at->reads[0], now, seen)];
    const bool again = read->thread == now.thread && read->time == now.time;
    const uint8_t bytes = again ? read->bytes : 0;
    *read = now;
    read->bytes |= bytes;
}

void cod_emulated_races_access(const void *address, size_t bytes, bool writes, bool atomic, unsigned thread,
                               const void *place)
{
    const size_t first = static_cast<size_t>(static_cast<const unsigned char *>(address) - block->memory);
    if (first >= block->bytes)
        return;
    const size_t end = first + bytes < block->bytes ? first + bytes : block->bytes;
    const uint32_t *seen = block->seen[thread / LANES];
    use now = {block->clock[thread / LANES], static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - program_base()),
               static_cast<uint16_t>(thread), 0, atomic};
    for (size_t i = first / CELL; i * CELL < end; i++) {
        cell *at = &block->cells[i];
        now.bytes = static_cast<uint8_t>((i * CELL >= first ? 1 : 0) | (i * CELL + 1 < end ? 2 : 0));
        if (races(at->write, now, seen))
            tell(at->write, now, true, writes, i * CELL);
        if (!writes) {
            keep_read(at, now, seen);
            continue;
        }
        for (use &read : at->reads) {
            if (races(read, now, seen))
                tell(read, now, false, true, i * CELL);
            read.bytes &= static_cast<uint8_t>(~now.bytes);
        }
        at->write = now;
    }
}

void cod_emulated_atomic(const void *target, size_t bytes)
{
    if (block != nullptr)
        cod_emulated_races_access(target, bytes, true, true, thread_that_runs, __builtin_return_address(0));
}

#define CALLED_BEFORE(bytes)                                                                                           \
    extern "C" void __tsan_read##bytes(const void *address)                                                            \
    {                                                                                                                  \
        if (block != nullptr)                                                                                          \
            cod_emulated_races_access(address, bytes, false, false, thread_that_runs, __builtin_return_address(0));    \
    }                                                                                                                  \
    extern "C" void __tsan_write##bytes(const void *address)                                                           \
    {                                                                                                                  \
        if (block != nullptr)                                                                                          \
            cod_emulated_races_access(address, bytes, true, false, thread_that_runs, __builtin_return_address(0));     \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_read##bytes(const void *address)                                                  \
    {                                                                                                                  \
        if (block != nullptr)                                                                                          \
            cod_emulated_races_access(address, bytes, false, false, thread_that_runs, __builtin_return_address(0));    \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_write##bytes(const void *address)                                                 \
    {                                                                                                                  \
        if (block != nullptr)                                                                                          \
            cod_emulated_races_access(address, bytes, true, false, thread_that_runs, __builtin_return_address(0));     \
    }
CALLED_BEFORE(1)
CALLED_BEFORE(2)
CALLED_BEFORE(4)
CALLED_BEFORE(8)
CALLED_BEFORE(16)

extern "C" void __tsan_read_range(const void *address, size_t bytes)
{
    if (block != nullptr)
        cod_emulated_races_access(address, bytes, false, false, thread_that_runs, __builtin_return_address(0));
}

extern "C" void __tsan_write_range(const void *address, size_t bytes)
{
    if (block != nullptr)
        cod_emulated_races_access(address, bytes, true, false, thread_that_runs, __builtin_return_address(0));
}

/* Of the host's code in the same files. */
extern "C" void __tsan_init() {}
extern "C" void __tsan_vptr_update(void *, void *) {}
extern "C" void __tsan_vptr_read(void *) {}

extern "C" unsigned char __tsan_atomic8_load(const unsigned char *from, int)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

extern "C" int __tsan_atomic32_fetch_add(int *target, int value, int)
{
    return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
}

#endif
