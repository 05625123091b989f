/**
 * @file
 * A group that exchanges checkpoints as a trainer does, with known values in place of training: each rank checks every
 * checkpoint that it takes over against what the peer must have published.
 */
#ifndef COD_TESTS_EXCHANGE_EXCHANGE_RUN_H
#define COD_TESTS_EXCHANGE_EXCHANGE_RUN_H

#include "exchange/exchange.h"

enum { RUN_MAX_GROUPS = 4, RUN_MAX_FRAGMENTS = 8, RUN_AGREEMENT_DELAY = 2 };

/** What the ranks of a group told each other in one step. */
typedef struct run_told {
    bool pending;
    double values[COD_EXCHANGE_FLAGS_MOST +
                  1]; /**< behind the exchange's: this rank knows that all ranks have what they wait for */
    cod_request *request;
} run_told;

typedef struct exchange_run {
    cod_group *group;
    cod_exchange *exchange;
    const cod_backend *backend; /**< of run_use_device() */
    cod_device *device;
    cod_buffer *weights; /**< of the own group, on the device */
    bool late;           /**< the device is */
    size_t device_bytes; /**< of a late device, that the exchange takes from its beginning on */
    size_t waits;        /**< for the device, where none is due */
    cod_exchange_options options;
    cod_exchange_model models[RUN_MAX_GROUPS];
    double pause_ms;          /**< of each step, in place of training */
    int64_t last_publication; /**< none after this step; 0 = no end */
    int64_t spoiled_step;     /**< the publication after this step holds a NaN; 0 = none */
    int spoiled_group;        /**< of this group */
    int64_t odd_step;         /**< from here on this rank publishes other weights than its group; 0 = it does not */
    bool is_odd;              /**< a rank of this group does: own publications are not looked at */
    int64_t step;             /**< steps done */
    run_told told[RUN_AGREEMENT_DELAY];
    uint64_t held[RUN_MAX_GROUPS][RUN_MAX_FRAGMENTS]; /**< version of each peer's fragments */
    uint64_t seen[RUN_MAX_GROUPS];                    /**< bit v: this version of the group was taken over */
    bool waiting, satisfied, ended; /**< all ranks: asked whether they hold a version, answered, said in the group */
    double asked;
    cod_request *answer;
    uint64_t met[RUN_MAX_GROUPS][RUN_MAX_FRAGMENTS]; /**< the version last seen beside the own one of the same number */
    uint64_t takeovers, with_own, meetings, wrong;
    uint64_t digest;       /**< of all that was taken over, and when */
    uint64_t own_digest;   /**< of the own versions that were complete after each step */
    uint64_t publications; /**< begun */
    int kinds;             /**< file that says which publications are keys; -1 = each key_every-th is */
    double slowest_s;      /**< the longest that one step spent in the exchange */
    float *values, *expected;
    float *read; /**< of run_read() */
} exchange_run;

/** Options for small tests: f32 statistics behind int8 weights, a short period, no minimum interval. */
cod_exchange_options run_options(int64_t period);

/** Whether the run is over the file transport, where a starved thread may leave publications out. */
bool run_is_on_files(void);

/**
 * Lets the exchange copy its snapshots from a device: `ref`, or the late backend where the environment wants it. Ended
 * by run_leave_device(), after the exchange.
 */
void run_use_device(exchange_run *r);
void run_leave_device(exchange_run *r);

/** What a buffer of the exchange's holds, of the host or of the device; until the next call. */
const float *run_read(exchange_run *r, cod_buffer *buffer);

/**
 * From now on transports answer in the step that asks them, however long that takes: which steps pulls take no longer
 * depends on the machine's pace.
 */
void run_patiently(exchange_run *r);

/** Publishes these values, [count + state_count] of the own group, after this step. */
void run_publish(exchange_run *r, const float *values, int64_t step);

/** While set, run_open() takes other groups' models for others than they are. */
extern bool run_misled;

/**
 * Splits the job into groups of these sizes, each with a model of its own size, or all alike where `options` says that
 * they merge. Collective. `run` names it.
 */
void run_open(exchange_run *r, const int *sizes, size_t groups, const cod_exchange_options *options, uint64_t run);

/** Steps as the trainer's loop makes them, until `steps` are done. All ranks of the group. */
void run_until(exchange_run *r, int64_t steps);

/**
 * Steps until every rank of the job holds version `version` of its peers, or a later one, and nothing that is a round
 * older. All ranks.
 */
void run_until_all_hold(exchange_run *r, uint64_t version);

/** Ends what is under way, checks that the group's ranks agree on all that they took over, and frees. Collective. */
void run_close(exchange_run *r);

/** The oldest version that is held of a group's fragments; 0 = not all of them. */
uint64_t run_held(const exchange_run *r, int group);

cod_exchange_counters run_counters(const exchange_run *r);
/** Sum of a number over the ranks of the group. */
double run_sum(exchange_run *r, double value);

/** A copy of the exchange's arrays. */
typedef struct run_saved {
    void *data[64];
    char name[64][48];
    size_t bytes[64], count;
    size_t slots; /**< which of them is COD_EXCHANGE_SLOTS */
} run_saved;

run_saved run_save(exchange_run *r);
/** Fills a new exchange with what was saved and frees that. @return of cod_exchange_restored() */
cod_status run_fill(exchange_run *r, run_saved *saved);
/** As run_fill(), which must succeed. */
void run_restore(exchange_run *r, run_saved *saved);

/** Ends the job when the call fails: other ranks would wait for ever. */
void run_must(cod_status status, const char *what, const char *file, int line);
#define must(call) run_must((call), #call, __FILE__, __LINE__)

#endif
