/** Memory of the emulated GPU: between pages that nobody may use, so that reads beside it are found as well as writes. */
#include "cuda/warp.cuh"
#include "emulated_internal.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

/**
 * FENCE: bytes on each side that nobody may use. An allocation touches one of its fences but for what BOUNDARY leaves between them, which
 * is less than CUDA promises so that little is left. Up to GUARD bytes of poison beside it, in its own pages, show writes.
 */
enum {
    PAGE = 4096,
    FENCE = 64 << 10,
    GUARD = 512,
    POISON = 0xFF,
    BOUNDARY = 16,
    SHARED_BOUNDARY = 128,
    SHARED_PAGES = 256 << 10
};

static const size_t default_memory = static_cast<size_t>(4) << 30;

/** Pages that may be used, with a fence before and one behind them. */
struct fenced {
    unsigned char *pages;
    size_t page_bytes;
};

struct allocation {
    fenced place;
    size_t bytes;
    bool pinned;
};

static std::map<unsigned char *, allocation> allocations;

/** Shared memory of a block; pinned, in that nothing forbids it. */
struct shared_place {
    allocation whole;
    unsigned char *memory;
};

static std::vector<shared_place> shared_places;
static std::vector<unsigned char *> opened; /**< pages of fences that were used */
static size_t memory_bytes, used_bytes;
static bool forbidden, watched;

static bool fence(size_t bytes, fenced *out)
{
    out->page_bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory =
        mmap(nullptr, out->page_bytes + 2 * FENCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    out->pages = static_cast<unsigned char *>(memory) + FENCE;
    if (mprotect(out->pages, out->page_bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(out->pages, POISON, out->page_bytes);
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/** Calls act(first, bytes) for the poison before the memory and for that behind it. */
template <typename F> static void for_guards(const unsigned char *memory, const allocation &a, const F &act)
{
    const size_t before = static_cast<size_t>(memory - a.place.pages), behind = a.place.page_bytes - before - a.bytes;
    act(-static_cast<ptrdiff_t>(least(before, GUARD)), least(before, GUARD));
    act(static_cast<ptrdiff_t>(a.bytes), least(behind, GUARD));
}

static void check(unsigned char *memory, const allocation &a, const char *what)
{
    for_guards(memory, a, [&](ptrdiff_t first, size_t bytes) {
        for (size_t i = 0; i < bytes; i++)
            if (memory[first + static_cast<ptrdiff_t>(i)] != POISON) {
                cod_emulated_fault("a write beside %zu bytes of %smemory, to byte %td", a.bytes, what,
                                   first + static_cast<ptrdiff_t>(i));
                memset(memory + first, POISON, bytes);
                return;
            }
    });
}

void cod_emulated_check_memory()
{
    for (const auto &[memory, allocation] : allocations)
        check(memory, allocation, "");
}

/* What is forbidden. */

static void protect_memory(int protection)
{
    for (const auto &[memory, allocation] : allocations)
        if (!allocation.pinned && mprotect(allocation.place.pages, allocation.place.page_bytes, protection) != 0)
            abort();
}

static struct sigaction earlier;

static bool is_in(const unsigned char *at, const unsigned char *begin, size_t bytes)
{
    return at >= begin && at < begin + bytes;
}

/** Whether the use is one of an allocation's: then it is told, and allowed. */
static bool is_told(const unsigned char *at, bool write, const unsigned char *memory, const allocation &a,
                    const char *what)
{
    if (is_in(at, a.place.pages, a.place.page_bytes)) {
        if (!forbidden || a.pinned)
            return false;
        cod_emulated_fault("memory is used before chain_wait() in a kernel with a programmatic edge: byte %td of %zu",
                           at - memory, a.bytes);
        cod_emulated_forbid_memory(false);
        return true;
    }
    if (!is_in(at, a.place.pages - FENCE, a.place.page_bytes + 2 * FENCE))
        return false;
    cod_emulated_fault("a %s beside %zu bytes of %smemory, %s byte %td", write ? "write" : "read", a.bytes, what,
                       write ? "to" : "of", at - memory);
    unsigned char *page = a.place.pages + (at - (a.place.pages - FENCE)) / PAGE * PAGE - FENCE;
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(page, POISON, PAGE);
    opened.push_back(page);
    return true;
}

/** A use of memory that nobody may use. One that is nowhere near an allocation goes to whoever was there before. */
static void used(int, siginfo_t *info, void *context)
{
    const unsigned char *at = static_cast<const unsigned char *>(info->si_addr);
    const bool write = (static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    for (const auto &[memory, allocation] : allocations)
        if (is_told(at, write, memory, allocation, ""))
            return;
    for (const shared_place &place : shared_places)
        if (is_told(at, write, place.memory, place.whole, "shared "))
            return;
    char where[512];
    cod_emulated_where(where, sizeof where);
    fprintf(stderr, "the emulated GPU: a %s of memory that nobody allocated, at %p%s\n", write ? "write" : "read",
            static_cast<const void *>(at), where);
    sigaction(SIGSEGV, &earlier, nullptr);
}

void cod_emulated_watch_memory(bool begin)
{
    if (begin == watched)
        return;
    watched = begin;
    if (begin) { /* each time: a test's framework has a handler of its own for each test */
        struct sigaction action = {};
        action.sa_sigaction = used;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &earlier);
        return;
    }
    sigaction(SIGSEGV, &earlier, nullptr);
    for (unsigned char *page : opened)
        if (mprotect(page, PAGE, PROT_NONE) != 0)
            abort();
    opened.clear();
}

void cod_emulated_forbid_memory(bool forbid)
{
    if (forbid == forbidden)
        return;
    protect_memory(forbid ? PROT_NONE : PROT_READ | PROT_WRITE);
    forbidden = forbid;
}

/** As a debugger reads, whom protection does not stop. @return whether that was possible */
static bool read_forbidden(void *to, const void *from, size_t bytes)
{
    static pid_t process; /* a fork has the file of the process before it */
    static int file = -1;
    if (process != getpid()) {
        if (file >= 0)
            close(file);
        file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        process = getpid();
    }
    return pread(file, to, bytes, static_cast<off_t>(reinterpret_cast<uintptr_t>(from))) == static_cast<ssize_t>(bytes);
}

/** Whether the range is in an allocation's pages. */
static bool is_allocated(const void *pointer, size_t bytes)
{
    unsigned char *at = const_cast<unsigned char *>(static_cast<const unsigned char *>(pointer));
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin())
        return false;
    const fenced &place = (--after)->second.place;
    return at + bytes <= place.pages + place.page_bytes;
}

void cod_emulated_read_ahead(void *to, const void *from, size_t bytes)
{
    const bool was_forbidden = forbidden;
    if (was_forbidden && is_allocated(from, bytes) && read_forbidden(to, from, bytes))
        return;
    cod_emulated_forbid_memory(false); /* which takes long, or finds a fault */
    memcpy(to, from, bytes);
    cod_emulated_forbid_memory(was_forbidden);
}

/* Allocations. */

void cod_emulated_set_memory(size_t bytes)
{
    const char *text = getenv("COD_CUDA_MEMORY_MB");
    if (bytes == 0)
        bytes = text != nullptr ? 1000000 * strtoull(text, nullptr, 10) : default_memory;
    memory_bytes = bytes;
}

size_t cod_emulated_whole_memory()
{
    if (memory_bytes == 0)
        cod_emulated_set_memory(0);
    return memory_bytes;
}

static cudaError_t allocate(void **memory, size_t bytes, bool pinned)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (cod_emulated_spoils_capture())
        return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
    allocation a = {{}, bytes, pinned};
    if ((!pinned && bytes > cod_emulated_whole_memory() - used_bytes) || !fence(bytes, &a.place))
        return cod_emulated_give(cudaErrorMemoryAllocation);
    /* With one seed of four it touches the fence before it. */
    const size_t rounded = (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    unsigned char *begin = a.place.pages + (cod_emulated_seed() % 4 == 0 ? 0 : a.place.page_bytes - rounded);
    allocations[begin] = a;
    used_bytes += pinned ? 0 : bytes;
    *memory = begin;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, bool pinned)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (cod_emulated_spoils_capture())
        return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
    cod_emulated_finish();
    unsigned char *memory = static_cast<unsigned char *>(pointer);
    if (memory == nullptr)
        return cudaSuccess;
    const auto found = allocations.find(memory);
    if (found == allocations.end() || found->second.pinned != pinned) {
        cod_emulated_fault("memory is freed that was not allocated so");
        return cod_emulated_give(cudaErrorInvalidValue);
    }
    const allocation a = found->second;
    check(memory, a, "");
    used_bytes -= pinned ? 0 : a.bytes;
    allocations.erase(found);
    munmap(a.place.pages - FENCE, a.place.page_bytes + 2 * FENCE);
    return cod_emulated_broken();
}

bool cod_emulated_range_inside(const void *pointer, size_t bytes)
{
    unsigned char *at = const_cast<unsigned char *>(static_cast<const unsigned char *>(pointer));
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin())
        return true;
    const auto &[memory, allocation] = *--after;
    const unsigned char *end = allocation.place.pages + allocation.place.page_bytes + FENCE;
    return at >= end || at + bytes <= memory + allocation.bytes;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, false);
}

cudaError_t cudaFree(void *memory)
{
    return release(memory, false);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, true);
}

cudaError_t cudaFreeHost(void *memory)
{
    return release(memory, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    *free_bytes = cod_emulated_whole_memory() - used_bytes;
    *total_bytes = cod_emulated_whole_memory();
    return cudaSuccess;
}

/* Shared memory. */

unsigned char *cod_emulated_shared_begin(unsigned number, size_t bytes)
{
    if (shared_places.size() <= number)
        shared_places.resize(number + 1, {});
    shared_place &place = shared_places[number];
    if (place.whole.place.pages == nullptr && !fence(SHARED_PAGES, &place.whole.place))
        abort();
    const size_t rounded = (bytes + SHARED_BOUNDARY - 1) / SHARED_BOUNDARY * SHARED_BOUNDARY;
    place.whole.bytes = bytes;
    place.whole.pinned = true;
    place.memory = place.whole.place.pages + place.whole.place.page_bytes - rounded;
    memset(place.memory - GUARD, POISON, rounded + GUARD);
    return place.memory;
}

void cod_emulated_shared_check(unsigned number)
{
    check(shared_places[number].memory, shared_places[number].whole, "shared ");
}
