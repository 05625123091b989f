/**
 * @file
 * Kernels of kernels/tiles.c for weight gradients of bf16 convolutions on AMX's tiles; tiles.c plans with them.
 *
 * A gradient is a product over pixels: dw[o][kh][kw][i] = sum over pixels q of dy[q - (kh, kw) + pad][o] · x[q][i]. x
 * is kept as *pairs* of pixels, in tiles of 16 pairs x 16 channels, which is the layout of a second operand; dy as
 * *planes*, a channel's pixels beside each other, in lines of the same pitch with zeros around them. All positions
 * (kh, kw), or *taps*, then read the same planes, each from another pixel on. A number in x that is not finite is also
 * multiplied with those zeros, so it makes all taps of its channel NaN, where the formula leaves out those whose
 * window does not reach it.
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
    CPU_TILE_SUMS = 16 * 16,  /**< of a tile */
    CPU_TILE_BYTES = 16 * 64, /**< of a tile of pairs */
};

/** One product: sums over pixels of each of up to two first and two second operands. */
typedef struct cpu_tile_product {
    const char *planes[2]; /**< NULL for the second: there is one */
    const char *pairs[2];  /**< NULL for the second: there is one */
    float *sums[2][2];     /**< [first][second]; [CPU_TILE_SUMS] each */
    int64_t row_bytes;     /**< from row to row of the first operands */
    int64_t steps;         /**< of CPU_TILE_PIXELS pixels */
    bool accumulate;
} cpu_tile_product;

/**
 * Configures and releases the calling thread's tiles, before and after its products. The kernel must have granted AMX
 * to the process (device->amx). `rows`, at most 16, are those of first operands and of sums.
 */
void cpu_tile_begin(int rows);
void cpu_tile_end(void);
void cpu_tile_multiply(const cpu_tile_product *product);

/**
 * Writes a line of pixels as pairs: pair p of channel block b to pairs + b·block_bytes + (first_pair + p)·64; zeros
 * from `pixels` to `pitch`, and for channels from `channels` to a multiple of 16.
 */
void cpu_tile_pairs(const char *x, int64_t pixel_bytes, int64_t pixels, int64_t pitch, int64_t channels, char *pairs,
                    int64_t block_bytes, int64_t first_pair);

/**
 * Writes a line of pixels to planes: `margin` zeros, the pixels, zeros to `pitch`; zeros alone for channels from
 * `channels` to a multiple of 16. pixels 0: zeros alone.
 */
void cpu_tile_planes(const char *dy, int64_t pixel_bytes, int64_t pixels, int64_t margin, int64_t pitch,
                     int64_t channels, char *planes, int64_t plane_bytes);

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
