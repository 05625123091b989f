#include "cpu/tiles_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

void cpu_tile_begin(int rows)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = (uint8_t)(i <= CPU_TILE_PRODUCTS ? rows : CPU_TILE);
    }
    /* GCC 12 believes that _tile_loadconfig() reads 8 bytes, and leaves out what is stored behind them. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

void cpu_tile_end(void)
{
    _tile_release();
}

/* Of a product with several second operands, sums are tiles 0 to 5, the first operand is 6, the second ones 7. */
#define EACH_PRODUCT(x) x(0) x(1) x(2) x(3) x(4) x(5)
#define CLEAR(k)                                                                                                       \
    if (k < count)                                                                                                     \
        _tile_zero(k);
#define LOAD(k)                                                                                                        \
    if (k < count)                                                                                                     \
        _tile_loadd(k, p->sums[k], stride);
#define STORE(k)                                                                                                       \
    if (k < count)                                                                                                     \
        _tile_stored(k, p->sums[k], stride);
#define MULTIPLY(k)                                                                                                    \
    if (k < count) {                                                                                                   \
        _tile_loadd(7, p->pairs[k] + step * CPU_TILE_BYTES, CPU_TILE_PAIR_BYTES);                                      \
        _tile_dpbf16ps(k, 6, 7);                                                                                       \
    }

static inline __attribute__((always_inline)) void multiply(const cpu_tile_product *p, int count)
{
    const int64_t stride = p->sum_stride * (int64_t)sizeof(float), row_bytes = p->row_bytes, steps = p->steps;
    if (p->accumulate) {
        EACH_PRODUCT(LOAD)
    } else {
        EACH_PRODUCT(CLEAR)
    }
    for (int64_t step = 0; step < steps; step++) {
        _tile_loadd(6, p->planes + step * CPU_TILE_PIXELS * 2, row_bytes);
        EACH_PRODUCT(MULTIPLY)
    }
    EACH_PRODUCT(STORE)
}

/** The counts are constants for the compiler, so that no branch is left within a step. */
void cpu_tile_multiply(const cpu_tile_product *p)
{
    _Static_assert(CPU_TILE_PRODUCTS == 6, "each count has its line");
    if (p->count == 1)
        multiply(p, 1);
    else if (p->count == 2)
        multiply(p, 2);
    else if (p->count == 3)
        multiply(p, 3);
    else if (p->count == 4)
        multiply(p, 4);
    else if (p->count == 5)
        multiply(p, 5);
    else
        multiply(p, 6);
}

/* Of a block of rows and columns, sums are tiles 0 to 3, the first operands 4 and 5, the second 6 and 7. */
static inline void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/** Adds the products of one or two first and second operands. @param a_stride, b_stride  bytes from row to row */
static inline void add_products(const char *a0, const char *a1, bool two_a, int64_t a_stride, const void *b0,
                                const void *b1, bool two_b, int64_t b_stride)
{
    _tile_loadd(6, b0, b_stride);
    _tile_loadd(4, a0, a_stride);
    _tile_dpbf16ps(0, 4, 6);
    if (two_b) {
        _tile_loadd(7, b1, b_stride);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (two_a) {
        _tile_loadd(5, a1, a_stride);
        _tile_dpbf16ps(2, 5, 6);
        if (two_b)
            _tile_dpbf16ps(3, 5, 7);
    }
}

void cpu_tile_multiply_rows(const cpu_tile_rows *p)
{
    const int64_t b_stride = p->columns * (int64_t)sizeof *p->b, b_step = CPU_TILE * p->columns;
    const int32_t *b = p->b;
    clear_sums();
    for (int64_t tap = 0; tap < p->tap_count; tap++) {
        const char *a = p->taps[tap];
        for (int64_t k = 0; k < p->steps; k++, a += CPU_TILE_PIXELS * 2, b += b_step)
            add_products(a, a + CPU_TILE * p->row_bytes, p->two_rows, p->row_bytes, b, b + CPU_TILE, p->two_columns,
                         b_stride);
    }
    const int64_t c_stride = p->c_stride * (int64_t)sizeof *p->c;
    _tile_stored(0, p->c, c_stride);
    if (p->two_columns)
        _tile_stored(1, p->c + CPU_TILE, c_stride);
    if (p->two_rows)
        _tile_stored(2, p->c + CPU_TILE * p->c_stride, c_stride);
    if (p->two_rows && p->two_columns)
        _tile_stored(3, p->c + CPU_TILE * p->c_stride + CPU_TILE, c_stride);
}

static inline __mmask32 first_of_32(int64_t count)
{
    return count >= 32 ? 0xFFFFFFFF : count <= 0 ? 0 : (1U << count) - 1;
}

/** The words of a vector's lower or upper half beside those of another one's, as permutex2var takes them. */
static inline __m512i beside(int first)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i own = _mm512_add_epi32(lanes, _mm512_set1_epi32(first));
    return _mm512_or_si512(own, _mm512_slli_epi32(_mm512_add_epi32(own, _mm512_set1_epi32(32)), 16));
}

/** Channels of a pixel; zeros where there is none. */
static inline __m512i pixel_at(const char *x, int64_t pixel_bytes, int64_t pixels, __mmask32 channels, int64_t p)
{
    return p >= 0 && p < pixels ? _mm512_maskz_loadu_epi16(channels, x + p * pixel_bytes) : _mm512_setzero_si512();
}

/** Pairs of two blocks of channels, or of the first alone. */
static void pair_blocks(const char *x, int64_t pixel_bytes, int64_t pixels, __mmask32 channels, bool two,
                        const cpu_tile_line *to, char *pairs)
{
    const __m512i low = beside(0), high = beside(16);
    const int64_t step = to->odd_bytes > 0 ? 1 : 2;
    __m512i next = pixel_at(x, pixel_bytes, pixels, channels, -(int64_t)to->margin);
    for (int64_t m = 0; m < to->pitch; m += step) {
        const int64_t p = m + 1 - to->margin;
        const __m512i one = next;
        const __m512i other = pixel_at(x, pixel_bytes, pixels, channels, p);
        char *place = pairs + m / 2 * CPU_TILE_PAIR_BYTES + m % 2 * to->odd_bytes;
        _mm512_storeu_si512(place, _mm512_permutex2var_epi16(one, low, other));
        if (two)
            _mm512_storeu_si512(place + to->block_bytes, _mm512_permutex2var_epi16(one, high, other));
        next = other;
        if (step == 2)
            next = pixel_at(x, pixel_bytes, pixels, channels, p + 1);
    }
}

void cpu_tile_pairs(const char *x, int64_t pixel_bytes, int64_t pixels, int64_t channels, const cpu_tile_line *to)
{
    for (int64_t c = 0; c < channels; c += 2 * CPU_TILE)
        pair_blocks(pixels > 0 ? x + c * 2 : x, pixel_bytes, pixels, first_of_32(channels - c), channels - c > CPU_TILE,
                    to, to->pairs + c / CPU_TILE * to->block_bytes);
}

float cpu_tile_plane_sum(const char *plane, int64_t pixels)
{
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int64_t p = 0; p < pixels; p += CPU_TILE_PIXELS) {
        const __m512i words = _mm512_load_si512(plane + p * 2);
        even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
        odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536))));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

/** Transposes 16 x 16 words. */
static inline void transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
    }
}

/** Writes 32 pixels of 32 channels to the first `planes` planes, at most 32: the elements `room` of each. */
static void plane_block(const char *dy, int64_t pixel_bytes, int64_t pixels, __mmask32 channels, char *out,
                        int64_t plane_bytes, int64_t planes, __mmask32 room)
{
    __m512i low[16], high[16],
        words = _mm512_setr_epi32(0x00020000, 0x00060004, 0x000A0008, 0x000E000C, 0x00120010, 0x00160014, 0x001A0018,
                                  0x001E001C, 0x00220020, 0x00260024, 0x002A0028, 0x002E002C, 0x00320030, 0x00360034,
                                  0x003A0038, 0x003E003C);
    const __m512i odd_words = _mm512_add_epi16(words, _mm512_set1_epi16(1));
    for (int64_t i = 0; i < 16; i++) {
        low[i] = _mm512_maskz_loadu_epi16(i < pixels ? channels : 0, dy + i * pixel_bytes);
        high[i] = _mm512_maskz_loadu_epi16(i + 16 < pixels ? channels : 0, dy + (i + 16) * pixel_bytes);
    }
    transpose(low);
    transpose(high);
    for (int64_t i = 0; 2 * i < planes && i < 16; i++) {
        char *to = out + 2 * i * plane_bytes;
        _mm512_mask_storeu_epi16(to, room, _mm512_permutex2var_epi16(low[i], words, high[i]));
        _mm512_mask_storeu_epi16(to + plane_bytes, room, _mm512_permutex2var_epi16(low[i], odd_words, high[i]));
    }
}

void cpu_tile_planes(const char *dy, int64_t pixel_bytes, int64_t pixels, int64_t pitch, int64_t channels, char *planes,
                     int64_t plane_bytes)
{
    const int64_t padded = (channels + CPU_TILE - 1) / CPU_TILE * CPU_TILE;
    for (int64_t p = 0; p < pitch; p += 32)
        for (int64_t c = 0; c < padded; c += 32)
            plane_block(dy + p * pixel_bytes + c * 2, pixel_bytes, pixels - p, first_of_32(channels - c),
                        planes + c * plane_bytes + p * 2, plane_bytes, padded - c, first_of_32(pitch - p));
}
#endif
