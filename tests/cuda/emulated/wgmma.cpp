/**
 * Products of warpgroups. Each warp has its own 16 rows of a product, and nothing but B in common with the others: it
 * does not wait for them. Its part is computed when it waits for it; until then its sums are poison. A is read from
 * registers when the product starts or when it is computed, as chance has it. Faults are, beside what PTX forbids, what
 * it leaves undefined:
 * - a product whose registers may have been written since wgmma_fence(): there was none since the thread's last
 *   wgmma_commit() or load_matrix4(), or sums under way were written;
 * - a product of shared memory that differs from what it was when a block_sync() opened before which all threads had
 *   called wgmma_writes_fence(), at its start or when it is computed;
 * - a thread that ends with products under way, or after another number of them than its warpgroup's other threads.
 */
#include "cuda/wgmma.cuh"
#include "emulated_internal.h"

#include <deque>
#include <map>
#include <vector>

/** MOST_N: columns of the widest product. A lane has half as many sums as a product has columns. */
enum { LANES = WARP_LANES, M = 16, MOST_N = 128, MOST_SUMS = MOST_N / 2, K = 16, POISON = 0xFF, NONE = -1 };

struct operand {
    float *d;
    const uint32_t *a;     /**< registers, which are read when the product is computed */
    uint32_t taken[4];     /**< what was in them at the start */
    float sums[MOST_SUMS]; /**< before, and when it is computed after the product */
    int64_t after;         /**< the product under way to whose sums it adds; NONE = its sums were there */
};

struct product {
    uint64_t b;
    unsigned columns;
    unsigned started; /**< lanes that have come to it */
    bool early, computed;
    operand of[LANES];
};

/** A warp's parts of products, from number `first` on. */
struct warp_products {
    std::deque<product> products;
    int64_t first = 0;
};

struct warpgroup {
    std::vector<uint64_t> matrices; /**< B of each product */
    int64_t products = NONE;        /**< of its first thread that has ended */
};

struct thread_products {
    int64_t next = 0, done = 0;  /**< its next product, and the first that it has not waited for */
    std::vector<int64_t> groups; /**< of each group that is committed and not waited for: its end */
    bool fenced = false, writes_fenced = false;
};

struct block_products {
    std::map<unsigned, warpgroup> groups;
    std::map<unsigned, warp_products> warps;
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

void cod_emulated_wgmma_block_begin(const void *shared)
{
    blocks.erase(shared);
}

void cod_emulated_wgmma_thread_end()
{
    const thread_products *thread = own_products();
    if (thread == nullptr)
        return;
    if (thread->done < thread->next)
        cod_emulated_fault("a thread ends with %d products of its warpgroup under way",
                           static_cast<int>(thread->next - thread->done));
    warpgroup &group = own_block().groups[own_number() / WGMMA_THREADS];
    if (group.products == NONE)
        group.products = thread->next;
    else if (group.products != thread->next)
        cod_emulated_fault("threads of one warpgroup have had %d and %d products", static_cast<int>(group.products),
                           static_cast<int>(thread->next));
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
static bool read_b(const block_products &block, uint64_t b, unsigned columns, float (&out)[K][MOST_N])
{
    const unsigned char *shared = static_cast<const unsigned char *>(cod_emulated_shared());
    const size_t bytes = cod_emulated_shared_bytes();
    for (unsigned k = 0; k < K; k++)
        for (unsigned n = 0; n < columns; n++) {
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

/** The warp's 16 rows: registers of A and of the sums are those of mma_bf16(). */

static void multiply(product *p, const float (&b)[K][MOST_N])
{
    float a[M][K];
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const uint32_t word = p->early ? p->of[lane].taken[i] : p->of[lane].a[i];
            const unsigned row = lane / 4 + i % 2 * 8, column = (lane % 4 + i / 2 * 4) * 2;
            a[row][column] = f32_from_bf16((uint16_t)word);
            a[row][column + 1] = f32_from_bf16((uint16_t)(word >> 16));
        }
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < p->columns / 2; i++) {
            const unsigned row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            for (unsigned k = 0; k < K; k++)
                p->of[lane].sums[i] += a[row][k] * b[k][column];
        }
}

static product *product_of(warp_products &warp, int64_t number)
{
    return &warp.products[static_cast<size_t>(number - warp.first)];
}

/** Computes the products before `end`, in their order. */
static void compute(const block_products &block, warp_products &warp, int64_t end)
{
    float b[K][MOST_N];
    for (int64_t number = warp.first; number < end; number++) {
        product *p = product_of(warp, number);
        if (p->computed)
            continue;
        p->computed = true;
        for (operand &o : p->of)
            if (o.after != NONE && o.after >= warp.first)
                memcpy(o.sums, product_of(warp, o.after)->of[&o - p->of].sums, sizeof o.sums);
        if (read_b(block, p->b, p->columns, b))
            multiply(p, b);
        else
            for (operand &o : p->of)
                memset(o.sums, POISON, sizeof o.sums);
    }
}

/** The thread's product under way that adds to these sums. */
static int64_t under_way_at(warp_products &warp, const thread_products &thread, unsigned lane, const float *d)
{
    for (int64_t i = thread.next - 1; i >= thread.done; i--)
        if (product_of(warp, i)->of[lane].d == d)
            return i;
    return NONE;
}

static bool is_poison(const float *sums, size_t bytes)
{
    unsigned char poison[MOST_SUMS * sizeof(float)];
    memset(poison, POISON, sizeof poison);
    return memcmp(sums, poison, bytes) == 0;
}

/** Threads of a warpgroup have the same B in the product of this number. */
static void check_matrix(warpgroup &group, int64_t number, uint64_t b)
{
    const size_t at = static_cast<size_t>(number);
    if (group.matrices.size() <= at)
        group.matrices.push_back(b);
    if (group.matrices[at] != b)
        cod_emulated_fault("threads of one warpgroup multiply with different B");
}

/** Adds the thread's operands to its next product. @return whether it is the last lane */
static bool join(warp_products &warp, thread_products &thread, unsigned lane, float *d, unsigned columns,
                 const uint32_t *a, uint64_t b)
{
    const size_t bytes = columns / 2 * sizeof(float);
    const int64_t after = under_way_at(warp, thread, lane, d);
    if (!thread.fenced)
        cod_emulated_fault("a product of a warpgroup without wgmma_fence() since registers may have been written");
    if (after != NONE && !is_poison(d, bytes))
        cod_emulated_fault("sums of a product that is under way were written");
    if (warp.first + static_cast<int64_t>(warp.products.size()) == thread.next) {
        warp.products.emplace_back();
        chance = chance * 6364136223846793005u + 1442695040888963407u + cod_emulated_seed();
        product *p = &warp.products.back();
        p->b = b;
        p->columns = columns;
        p->started = 0;
        p->computed = false;
        p->early = chance >> 63 != 0;
    }
    product *p = product_of(warp, thread.next);
    operand *o = &p->of[lane];
    o->d = d;
    o->a = a;
    o->after = after;
    memcpy(o->taken, a, sizeof o->taken);
    memcpy(o->sums, d, bytes);
    memset(d, POISON, bytes);
    thread.next++;
    return ++p->started == LANES;
}

/** Not warp_sync(): other accesses of the lanes may be in any order (races.cpp). */
static void orders_nothing(const unsigned char *, unsigned char *) {}

void cod_emulated_wgmma_start(float *d, unsigned columns, const uint32_t *a, uint64_t b)
{
    char nothing = 0;
    cod_emulated_together("wgmma", &nothing, 1, &nothing, 1, orders_nothing);
    block_products &block = own_block();
    thread_products &thread = own_thread(block);
    if (cod_emulated_capability() != 90)
        cod_emulated_fault("wgmma on a GPU of compute capability %d.%d", cod_emulated_capability() / 10,
                           cod_emulated_capability() % 10);
    check_descriptor(b);
    check_matrix(block.groups[own_number() / WGMMA_THREADS], thread.next, b);
    if (join(block.warps[own_number() / LANES], thread, own_number() % LANES, d, columns, a, b)) {
        float unused[K][MOST_N]; /* what it reads must be there from its start on */
        read_b(block, b, columns, unused);
    }
}

/** Gives the thread its sums of the products before `end`, where none that it started later adds to them. */
static void take(warp_products &warp, thread_products &thread, unsigned lane, int64_t end)
{
    for (; thread.done < end; thread.done++) {
        const operand *o = &product_of(warp, thread.done)->of[lane];
        bool last = true;
        for (int64_t later = thread.done + 1; later < thread.next; later++) {
            operand *next = &product_of(warp, later)->of[lane];
            if (next->d != o->d)
                continue;
            last = false;
            if (next->after == thread.done && !product_of(warp, later)->computed) {
                memcpy(next->sums, o->sums, sizeof next->sums);
                next->after = NONE;
            }
        }
        if (last)
            memcpy(o->d, o->sums, product_of(warp, thread.done)->columns / 2 * sizeof(float));
    }
}

/** Forgets products that all lanes have waited for. */
static void forget(const block_products &block, warp_products &warp)
{
    const unsigned first = own_number() / LANES * LANES;
    int64_t least = INT64_MAX;
    for (unsigned t = first; t < first + LANES; t++)
        least = block.threads[t].done < least ? block.threads[t].done : least;
    for (; warp.first < least; warp.first++)
        warp.products.pop_front();
}

void cod_emulated_wgmma_wait(int under_way)
{
    char nothing = 0;
    cod_emulated_together("wgmma_wait", &nothing, 1, &nothing, 1, orders_nothing);
    block_products &block = own_block();
    thread_products &thread = own_thread(block);
    warp_products &warp = block.warps[own_number() / LANES];
    const size_t pending = static_cast<size_t>(under_way), groups = thread.groups.size();
    if (groups <= pending)
        return;
    const int64_t end = thread.groups[groups - pending - 1];
    compute(block, warp, end);
    take(warp, thread, own_number() % LANES, end);
    thread.groups.erase(thread.groups.begin(), thread.groups.begin() + static_cast<ptrdiff_t>(groups - pending));
    forget(block, warp);
}
