/**
 * @file
 * A model of the exchange: groups that step, publish and pull as src/exchange has them do, by its own decisions where
 * these are functions (who reads whom, how many pulls, steps of coding, slots and what they offer, memory), over links
 * that share what moves. Nothing is trained and no time passes; equal settings give equal results.
 *
 * What is simpler than it is: ranks of a group step together; a group is one node with one link; looks at headers take
 * time but no part of a link; what ranks of a group share among each other takes one step. Each rank has a core, or all
 * ranks share those of one machine in equal parts, as if turns took no time.
 */
#ifndef COD_TOOLS_BENCH_SCALE_MODEL_H
#define COD_TOOLS_BENCH_SCALE_MODEL_H

#include "exchange/exchange.h"

/** Seconds a weight, of one rank. */
typedef struct cod_scale_costs {
    double copy;   /**< of the snapshot, and of what other ranks of the group decoded */
    double encode; /**< of the own shard */
    double mirror; /**< of the shards that other ranks of the group publish */
    double decode, merge;
    double key_ratio, ratio; /**< f32 bytes over those of a key and of a delta */
} cod_scale_costs;

typedef struct cod_scale_setting {
    const cod_exchange_options *exchange; /**< codec DELTA, transport RMA, one fragment, not deterministic */
    int groups, ranks;                    /**< ranks of each group */
    bool once; /**< ranks of a group run on one node and compute on its processors: they hold values together */
    uint64_t weights;
    int64_t deltas; /**< versions of a peer in one pull at most; 0 = all that its slots hold, as the exchange does */
    int64_t steps;
    const double *step_s; /**< [groups][steps] what each step of a rank computes, the exchange aside */
    int cores;            /**< that the ranks of all groups share; 0 = each has one */
    /** [groups][publications] bytes of each, all ranks' shards together; NULL = by the ratios of `costs`. */
    const double *published_bytes;
    double link_bytes_s; /**< of a group, each way; INFINITY = what moves is there at once */
    double latency_s;    /**< one way */
    cod_scale_costs costs;
} cod_scale_setting;

typedef struct cod_scale_result {
    cod_exchange_sizes sizes; /**< of group 0 */
    int64_t publications;     /**< of a group */
    /** Versions that all groups took over; that they began behind another in the same pull; that they gave up. */
    uint64_t taken, followed, lost;
    /** Part of the peers' publications that was taken over, without the last two: the run ends before their turn. */
    double used;
    double merged;   /**< part of the peers' publications that was merged */
    double strength; /**< mean of their alphas, 0 of those that were not */
    double staleness_median,
        staleness_most;         /**< own steps after a version's, over all steps that hold one; NaN = none */
    double bytes_a_step;        /**< that come to a group, mean */
    double peak_bytes_s;        /**< the most that came to a group in a tenth of a period */
    double checkpoint_bytes;    /**< of a group, whose slots hold what was published */
    double step_s;              /**< mean, the exchange and what others have of shared cores included */
    double overhead;            /**< what a rank computes for the exchange, of what its steps compute */
    double shared_bytes_a_step; /**< decoded weights that come to a rank from others of its group, mean */
} cod_scale_result;

/** @return COD_ERR_ARGUMENT where the exchange's options are not those that the model is of */
COD_MUST_CHECK cod_status cod_scale_run(const cod_scale_setting *setting, cod_scale_result *out);

/**
 * Draws what steps compute: each group has a pace of its own, normal about `step_s` with the relative deviation
 * `drift`, and each of its steps differs from that by `jitter`; none takes less than a tenth of step_s.
 *
 * @param[out] out  [groups][steps]
 */
void cod_scale_draw_steps(uint64_t seed, int groups, int64_t steps, double step_s, double drift, double jitter,
                          double *out);

/** Ways to train without an exchange, over the same links and steps. */
typedef struct cod_scale_rivals {
    double allreduce_step_s; /**< averages hidden behind computing as far as they can be */
    double allreduce_bytes;  /**< that come to a group in a step */
    double local_step_s;     /**< averages of the weights each period, which all wait for */
    double local_bytes;
} cod_scale_rivals;

/**
 * A ring over the groups moves 2 (G-1)/G f32 weights in 2 (G-1) messages, one after another, and all wait for the
 * slowest.
 */
void cod_scale_compare(const cod_scale_setting *setting, cod_scale_rivals *out);

#endif
