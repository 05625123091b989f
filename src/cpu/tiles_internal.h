/**
 * @file
 * Kernels of kernels/tiles.c for weight gradients of bf16 convolutions on AMX's tiles; tiles.c plans with them.
 *
 * A gradient is a product over pixels: dw[o][kh][kw][i] = sum over pixels q of dy[q][o] · x[q + (kh, kw) - pad][i].
 * x is kept as *pairs* of pixels, in tiles of 16 pairs x 16 channels, which is the layout of a second operand, in lines
 * with zeros around them; dy as *planes*, a channel's pixels beside each other, in lines of the same pitch. All
 * positions (kh, kw), or *taps*, then read the same planes and pairs, each from another pixel of x on. A second copy of
 * the pairs begins with the second pixel, for taps that are an odd number of pixels away, so that no row of a tile lies
 * across two lines of the cache: from the second-level cache such rows come at half the speed. A number in x that is
 * not finite is also multiplied with zeros between the lines of dy, so it makes all taps of its channel NaN, where the
 * formula leaves out those whose window does not reach it.
 *
 * Sums are f32. The instruction treats numbers below the smallest normal one as zero.
 */
#ifndef COD_CPU_TILES_INTERNAL_H
#define COD_CPU_TILES_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CPU_TILE = 16,            /**< rows of a tile, channels of a tile of sums, and pairs of pixels that a step takes */
    CPU_TILE_PIXELS = 32,     /**< that a step takes */
    CPU_TILE_PRODUCTS = 6,    /**< of a first operand at a time: what it reads comes from the second-level cache */
    CPU_TILE_SUMS = 16 * 16,  /**< of a tile */
    CPU_TILE_PAIR_BYTES = 64, /**< of a pair of pixels of a tile's channels */
    CPU_TILE_BYTES = 16 * 64, /**< of a tile of pairs */
};

/** Products of one first operand with some second ones: sums over pixels. */
typedef struct cpu_tile_product {
    const char *planes; /**< rows of the first operand, `row_bytes` apart */
    int64_t row_bytes;
    const char *pairs[CPU_TILE_PRODUCTS];
    float *sums[CPU_TILE_PRODUCTS]; /**< tiles with rows `sum_stride` apart */
    int64_t sum_stride;
    int count;     /**< of second operands */
    int64_t steps; /**< of CPU_TILE_PIXELS pixels */
    bool accumulate;
} cpu_tile_product;

/**
 * Configures and releases the calling thread's tiles, before and after its products. The kernel must have granted AMX
 * to the process (device->amx). `rows`, at most 16, are those of first operands and of sums.
 */
void cpu_tile_begin(int rows);
void cpu_tile_end(void);
void cpu_tile_multiply(const cpu_tile_product *product);

/** Where a line of pixels goes as pairs, of which channel block b has its own, b·block_bytes further on. */
typedef struct cpu_tile_line {
    char *pairs;         /**< its first pair's place */
    int64_t block_bytes; /**< from block to block of channels */
    int64_t odd_bytes;   /**< from pairs of an even pixel and the next one to those of an odd one; 0 = there are none */
    int64_t margin;      /**< pixels of zeros before the line's own */
    int64_t pitch;       /**< all pixels, an even number; zeros behind the line's own */
} cpu_tile_line;

/** Writes a line of pixels as pairs, with zeros for channels from `channels` to a multiple of 16. */
void cpu_tile_pairs(const char *x, int64_t pixel_bytes, int64_t pixels, int64_t channels, const cpu_tile_line *to);

/** The sum of a plane's first `pixels` pixels, rounded up to CPU_TILE_PIXELS; it is aligned. */
float cpu_tile_plane_sum(const char *plane, int64_t pixels);

/**
 * Writes a line of pixels to planes: the pixels, zeros to `pitch`; zeros alone for channels from `channels` to a
 * multiple of 16. pixels 0: zeros alone.
 */
void cpu_tile_planes(const char *dy, int64_t pixel_bytes, int64_t pixels, int64_t pitch, int64_t channels, char *planes,
                     int64_t plane_bytes);

/**
 * One block of a product of rows of bf16: c[row][column] = sum over taps and depth of
 * taps[tap][row][depth]·b[tap][depth][column], for 32 rows and columns, or 16 of either.
 */
typedef struct cpu_tile_rows {
    const char *const *taps; /**< [tap_count] the first of the rows that each tap takes */
    int64_t tap_count;
    int64_t row_bytes; /**< from row to row */
    int64_t steps;     /**< of 32 elements of the depth */
    const int32_t *b;  /**< [tap_count][16·steps][columns] pairs of elements */
    int64_t columns;   /**< from pair to pair */
    float *c;          /**< [32][c_stride] */
    int64_t c_stride;
    bool two_rows, two_columns;
} cpu_tile_rows;

void cpu_tile_multiply_rows(const cpu_tile_rows *product);

#endif
