/**
 * Products of warpgroups. A product starts when its last thread comes to it, and is computed when the first one waits
 * for it; until a thread itself has waited, its sums are poison. A is read from registers when the product starts or
 * when it is computed, as chance has it. Faults are, beside what PTX forbids, what it leaves undefined:
 * - a product whose registers may have been written since wgmma_fence(): there was none since the thread's last
 *   wgmma_commit() or load_matrix4(), or sums under way were written;
 * - a product of shared memory that differs from what it was when a block_sync() opened before which all threads had
 *   called wgmma_writes_fence(), at its start or when it is computed;
 * - a thread that ends with products under way.
 */
#include "cuda/wgmma.cuh"
#include "emulated_internal.h"

#include <deque>
#include <map>
#include <vector>

enum { THREADS = WGMMA_THREADS, WARPS = 4, SUMS = 32, M = 64, N = 64, K = 16, POISON = 0xFF, NONE = -1 };

struct operand {
    float *d;
    const uint32_t *a; /**< registers, which are read when the product is computed */
    uint32_t taken[4]; /**< what was in them at the start */
    float sums[SUMS];  /**< before, and when it is computed after the product */
    int64_t after;     /**< the product under way to whose sums it adds; NONE = its sums were there */
};

struct product {
    uint64_t b;
    unsigned started; /**< threads that have come to it */
    bool early, computed;
    operand of[THREADS];
};

struct warpgroup {
    std::deque<product> products; /**< from number `first` on */
    int64_t first = 0;
    uint64_t complete = 0; /**< products that all threads have come to */
};

struct thread_products {
    int64_t next = 0, done = 0;  /**< its next product, and the first that it has not waited for */
    std::vector<int64_t> groups; /**< of each group that is committed and not waited for: its end */
    bool fenced = false, writes_fenced = false;
};

struct block_products {
    std::map<unsigned, warpgroup> groups;
    std::vector<thread_products> threads;
    std::vector<unsigned char> seen; /**< shared memory, as products see it */
    unsigned fenced = 0;             /**< threads with `writes_fenced` */
};

/** By the block's shared memory, or NULL. */
static std::map<const void *, block_products> blocks;
static uint64_t chance = 1;

static unsigned own_number()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static block_products &own_block()
{
    return blocks[cod_emulated_shared()];
}

static thread_products &own_thread(block_products &block)
{
    if (block.threads.empty())
        block.threads.resize(blockDim.x * blockDim.y * blockDim.z);
    return block.threads[own_number()];
}

/** The block's, where it has called one of these functions. */
static thread_products *own_products()
{
    const auto found = blocks.find(cod_emulated_shared());
    return found == blocks.end() || found->second.threads.empty() ? nullptr : &found->second.threads[own_number()];
}

void cod_emulated_wgmma_block_begin()
{
    blocks.erase(cod_emulated_shared());
}

void cod_emulated_wgmma_thread_end()
{
    const thread_products *thread = own_products();
    if (thread != nullptr && thread->done < thread->next)
        cod_emulated_fault("a thread ends with %d products of its warpgroup under way",
                           static_cast<int>(thread->next - thread->done));
}

void cod_emulated_wgmma_registers_written()
{
    thread_products *thread = own_products();
    if (thread != nullptr)
        thread->fenced = false;
}

void cod_emulated_wgmma_barrier()
{
    const auto found = blocks.find(cod_emulated_shared());
    if (found == blocks.end() || found->second.fenced == 0)
        return;
    block_products &block = found->second;
    if (block.fenced == block.threads.size()) {
        const unsigned char *shared = static_cast<const unsigned char *>(cod_emulated_shared());
        block.seen.assign(shared, shared + cod_emulated_shared_bytes());
    }
    block.fenced = 0;
    for (thread_products &thread : block.threads)
        thread.writes_fenced = false;
}

void cod_emulated_wgmma_writes_fence()
{
    block_products &block = own_block();
    thread_products &thread = own_thread(block);
    block.fenced += thread.writes_fenced ? 0 : 1;
    thread.writes_fenced = true;
}

void cod_emulated_wgmma_fence()
{
    own_thread(own_block()).fenced = true;
}

void cod_emulated_wgmma_commit()
{
    thread_products &thread = own_thread(own_block());
    thread.groups.push_back(thread.next);
    thread.fenced = false;
}

/** Where element {k, n} of B lies, in bytes from the block's first. */
static size_t place_in_b(uint64_t b, unsigned k, unsigned n)
{
    const size_t address = (b & 0x3FFF) << 4, leading = (b >> 16 & 0x3FFF) << 4, stride = (b >> 32 & 0x3FFF) << 4;
    return address + k / 8 * leading + n / 8 * stride + n % 8 * 16 + k % 8 * 2;
}

static void check_descriptor(uint64_t b)
{
    if ((b & ~0x00003FFF3FFF3FFFull) != 0)
        cod_emulated_fault("wgmma: matrix descriptor %#llx, which has more than address and offsets: only what is not "
                           "swizzled is known here",
                           static_cast<unsigned long long>(b));
}

/** Reads B; @return false where it may not be read */
static bool read_b(const block_products &block, uint64_t b, float (&out)[K][N])
{
    const unsigned char *shared = static_cast<const unsigned char *>(cod_emulated_shared());
    const size_t bytes = cod_emulated_shared_bytes();
    for (unsigned k = 0; k < K; k++)
        for (unsigned n = 0; n < N; n++) {
            const size_t at = place_in_b(b, k, n);
            uint16_t value;
            if (at + 2 > bytes) {
                cod_emulated_fault("wgmma outside the launch's %zu bytes of shared memory", bytes);
                return false;
            }
            if (at + 2 > block.seen.size() || memcmp(&block.seen[at], shared + at, 2) != 0) {
                cod_emulated_fault("wgmma reads byte %zu of shared memory, which was written without "
                                   "wgmma_writes_fence() of all threads and block_sync() behind it",
                                   at);
                return false;
            }
            memcpy(&value, shared + at, 2);
            out[k][n] = f32_from_bf16(value);
        }
    return true;
}

/** Row of A and of D, and first column of A, of register `i` of a thread's A; as of mma_bf16() in each warp. */
static void place_in_a(unsigned thread, unsigned i, unsigned *row, unsigned *column)
{
    const unsigned lane = thread % WARP_LANES;
    *row = thread / WARP_LANES * 16 + lane / 4 + i % 2 * 8;
    *column = (lane % 4 + i / 2 * 4) * 2;
}

static void multiply(product *p, const float (&b)[K][N])
{
    static float a[M][K];
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = 0; i < 4; i++) {
            const uint32_t word = p->early ? p->of[t].taken[i] : p->of[t].a[i];
            unsigned row, column;
            place_in_a(t, i, &row, &column);
            a[row][column] = f32_from_bf16((uint16_t)word);
            a[row][column + 1] = f32_from_bf16((uint16_t)(word >> 16));
        }
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned half = 0; half < 2; half++) {
            const unsigned lane = t % WARP_LANES, row = t / WARP_LANES * 16 + lane / 4 + half * 8;
            for (unsigned j = 0; j < N / 8; j++)
                for (unsigned e = 0; e < 2; e++) {
                    float sum = p->of[t].sums[j * 4 + half * 2 + e];
                    for (unsigned k = 0; k < K; k++)
                        sum += a[row][k] * b[k][j * 8 + lane % 4 * 2 + e];
                    p->of[t].sums[j * 4 + half * 2 + e] = sum;
                }
        }
}

static product *product_of(warpgroup &group, int64_t number)
{
    return &group.products[static_cast<size_t>(number - group.first)];
}

/** Computes the products before `end`, in their order. */
static void compute(const block_products &block, warpgroup &group, int64_t end)
{
    float b[K][N];
    for (int64_t number = group.first; number < end; number++) {
        product *p = product_of(group, number);
        if (p->computed)
            continue;
        p->computed = true;
        for (operand &o : p->of)
            if (o.after != NONE && o.after >= group.first)
                memcpy(o.sums, product_of(group, o.after)->of[&o - p->of].sums, sizeof o.sums);
        if (read_b(block, p->b, b))
            multiply(p, b);
        else
            for (operand &o : p->of)
                memset(o.sums, POISON, sizeof o.sums);
    }
}

/** The thread's product under way that adds to these sums. */
static int64_t under_way_at(warpgroup &group, const thread_products &thread, unsigned number, const float *d)
{
    for (int64_t i = thread.next - 1; i >= thread.done; i--)
        if (product_of(group, i)->of[number].d == d)
            return i;
    return NONE;
}

static bool is_poison(const float *sums)
{
    unsigned char poison[SUMS * sizeof(float)];
    memset(poison, POISON, sizeof poison);
    return memcmp(sums, poison, sizeof poison) == 0;
}

/** Adds the thread's operands to its next product. */
static void join(warpgroup &group, thread_products &thread, unsigned number, float *d, const uint32_t *a, uint64_t b)
{
    const int64_t after = under_way_at(group, thread, number, d);
    if (!thread.fenced)
        cod_emulated_fault("a product of a warpgroup without wgmma_fence() since registers may have been written");
    if (after != NONE && !is_poison(d))
        cod_emulated_fault("sums of a product that is under way were written");
    while (group.first + static_cast<int64_t>(group.products.size()) <= thread.next) {
        group.products.emplace_back();
        product *p = &group.products.back();
        p->b = b;
        p->started = 0;
        p->computed = false;
        chance = chance * 6364136223846793005u + 1442695040888963407u + cod_emulated_seed();
        p->early = chance >> 63 != 0;
    }
    product *p = product_of(group, thread.next);
    if (p->b != b)
        cod_emulated_fault("threads of one warpgroup multiply with different B");
    operand *o = &p->of[number];
    o->d = d;
    o->a = a;
    o->after = after;
    memcpy(o->taken, a, sizeof o->taken);
    memcpy(o->sums, d, sizeof o->sums);
    memset(d, POISON, sizeof o->sums);
    thread.next++;
    if (++p->started == THREADS)
        group.complete++;
}

void cod_emulated_wgmma_start(float *d, const uint32_t *a, uint64_t b)
{
    char nothing = 0;
    cod_emulated_together("wgmma", &nothing, 1, &nothing, 1, cod_emulated_act_sync);
    block_products &block = own_block();
    thread_products &thread = own_thread(block);
    warpgroup &group = block.groups[own_number() / THREADS];
    const uint64_t before = group.complete;
    if (cod_emulated_capability() != 90)
        cod_emulated_fault("wgmma on a GPU of compute capability %d.%d", cod_emulated_capability() / 10,
                           cod_emulated_capability() % 10);
    check_descriptor(b);
    join(group, thread, own_number() % THREADS, d, a, b);
    if (group.complete > before) { /* what it reads must be there from its start on */
        float unused[K][N];
        read_b(block, b, unused);
    }
}

/** Gives the thread its sums of the products before `end`, where none that it started later adds to them. */
static void take(warpgroup &group, thread_products &thread, unsigned number, int64_t end)
{
    for (; thread.done < end; thread.done++) {
        const operand *o = &product_of(group, thread.done)->of[number];
        bool last = true;
        for (int64_t later = thread.done + 1; later < thread.next; later++) {
            operand *next = &product_of(group, later)->of[number];
            if (next->d != o->d)
                continue;
            last = false;
            if (next->after == thread.done && !product_of(group, later)->computed) {
                memcpy(next->sums, o->sums, sizeof next->sums);
                next->after = NONE;
            }
        }
        if (last)
            memcpy(o->d, o->sums, sizeof o->sums);
    }
}

/** Forgets products that all threads have waited for. */
static void forget(block_products &block, warpgroup &group)
{
    const unsigned first = own_number() / THREADS * THREADS;
    int64_t least = INT64_MAX;
    for (unsigned t = first; t < first + THREADS; t++)
        least = block.threads[t].done < least ? block.threads[t].done : least;
    for (; group.first < least; group.first++)
        group.products.pop_front();
}

void cod_emulated_wgmma_wait(int under_way)
{
    char nothing = 0;
    cod_emulated_together("wgmma_wait", &nothing, 1, &nothing, 1, cod_emulated_act_sync);
    block_products &block = own_block();
    thread_products &thread = own_thread(block);
    warpgroup &group = block.groups[own_number() / THREADS];
    const size_t pending = static_cast<size_t>(under_way), groups = thread.groups.size();
    if (groups <= pending)
        return;
    const int64_t end = thread.groups[groups - pending - 1];
    while (group.complete < static_cast<uint64_t>(end))
        cod_emulated_wait_change(&group.complete, "wgmma_wait");
    compute(block, group, end);
    take(group, thread, own_number() % THREADS, end);
    thread.groups.erase(thread.groups.begin(), thread.groups.begin() + static_cast<ptrdiff_t>(groups - pending));
    forget(block, group);
}
