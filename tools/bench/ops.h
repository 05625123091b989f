/**
 * @file
 * A training step taken apart: each op's time, arithmetic and traffic, and how far that is from what the processor can
 * do.
 */
#ifndef COD_TOOLS_BENCH_OPS_H
#define COD_TOOLS_BENCH_OPS_H

#include "io/json.h"
#include "tools/bench/training.h"

/** What the device's threads give at most; 0 = unknown. */
typedef struct cod_bench_peak {
    double f32_gflops, bf16_gflops, memory_gbytes;
} cod_bench_peak;

/** One op, or all of one kind. */
typedef struct cod_bench_row {
    const char *kind, *name; /**< name: NULL for a whole kind */
    const char *program;     /**< the sub-step's; NULL for a whole kind, or where a step has one alone */
    bool bf16;               /**< multiplies in bf16 where the processor does */
    int calls;
    double ms, gflop, gbyte;
    double floor_ms; /**< at peak: of arithmetic where the op multiplies, else of memory; 0 = unknown */
} cod_bench_row;

/** Zeroed = empty. */
typedef struct cod_bench_ops {
    cod_arena arena;
    /** [op_count] of each sub-step in its order: packing its weights, its ops, and the optimiser */
    cod_bench_row *ops;
    size_t op_count;
    cod_bench_row *kinds; /**< [kind_count], in the order of appearance */
    size_t kind_count;
    cod_bench_row total; /**< its ms: the median of whole steps */
    double step_min_ms, step_max_ms;
} cod_bench_ops;

enum { COD_BENCH_MAX_REPEATS = 101 };

/** Measures the processor; all unknown for a backend other than the CPU's. */
COD_MUST_CHECK cod_status cod_bench_peak_measure(const cod_bench_training *training, cod_bench_peak *peak);

/**
 * Medians over `repeats` whole steps after one, so that caches are as in training.
 *
 * @param[out] ops  new; cod_bench_ops_clear()
 */
COD_MUST_CHECK cod_status cod_bench_ops_measure(cod_bench_training *training, int repeats, cod_bench_ops *ops);
void cod_bench_ops_clear(cod_bench_ops *ops);

/** Fills in every row's floor_ms. */
void cod_bench_ops_compare(cod_bench_ops *ops, const cod_bench_peak *peak);

/** Prints the table by kind, before it the one by op where `each`. */
void cod_bench_ops_print(const cod_bench_ops *ops, bool each);
/** "kinds": […], "ops": […]. */
void cod_bench_ops_json(const cod_bench_ops *ops, cod_json *json);

#endif
