/**
 * @file
 * The parts of `codistill bench scale`.
 */
#ifndef COD_TOOLS_BENCH_SCALE_H
#define COD_TOOLS_BENCH_SCALE_H

#include "tools/bench/scale_model.h"

/** Measures what coding, copies and merges take here, on one thread, of weights that move as those of training do. */
COD_MUST_CHECK cod_status cod_bench_scale_costs(const cod_exchange_options *exchange, cod_scale_costs *out);

#endif
