/* What the files of the model share: groups, their pulls and what the ranks of a group agree on. */
#ifndef COD_TOOLS_BENCH_SCALE_MODEL_INTERNAL_H
#define COD_TOOLS_BENCH_SCALE_MODEL_INTERNAL_H

#include "exchange/slot.h"
#include "tools/bench/scale_links.h"
#include "tools/bench/scale_model.h"

/* As src/exchange has them. */
enum { AGREEMENT_DELAY = 2, NO_PEER = -1 };

typedef enum phase { IDLE, PULLING, GATHERING } phase;
typedef enum transfer { HEADER, DATA, SEQUENCE, HERE } transfer;

typedef struct peer {
    int group;
    uint64_t held, merged_own;
    bool asked;
    uint64_t asked_before; /**< the pull of this number */
    double answer_s;       /**< when the answer is there */
    cod_slot_header answer;
} peer;

/** What was told of a pull in one step. */
typedef struct told {
    int proposed;
    uint64_t version;
    uint32_t following;
    bool done, lost;
} told;

typedef struct pull {
    int turn, proposed;
    uint64_t proposed_version;
    uint32_t proposed_following;
    phase phase;
    int64_t since;
    bool look, done, lost;
    uint64_t begun; /**< pulls so far */
    peer *peer;
    uint64_t version, sequence; /**< whose bytes are under way */
    uint32_t following;         /**< deltas that the pull takes after it */
    int64_t decoded_from;       /**< after this step */
    transfer transfer;
    bool moving; /**< its bytes are under way */
    double ready_s;
    uint64_t chunks_left; /**< to be decoded */
    double polled_s, idle_s;
    told told[AGREEMENT_DELAY];
} pull;

typedef struct group {
    int64_t step;          /**< done */
    double ends_s, cost_s; /**< model.core_s when the step under way computes no more; what the exchange takes of it */
    peer *peers;
    int peer_count;
    pull pulls[COD_EXCHANGE_PULLS_MOST];
    /** Of the first rank, whose header is asked for, and of the last, whose shard is encoded last. */
    cod_slot_writer first, last;
    uint32_t slot;
    uint64_t version, reference, since_key, newest_own;
    bool key, encoding;
    uint64_t encoded;      /**< chunks, of all shards or of one that each rank has for itself */
    int64_t complete_step; /**< in which ranks know that all have their shards; where they hold values together */
    double published_s;
    bool interval_passed, interval[AGREEMENT_DELAY];
    int64_t published_step;
} group;

typedef struct model {
    const cod_scale_setting *setting;
    const cod_exchange_options *options;
    cod_exchange_sizes sizes;
    group *groups;
    int pull_count;
    bool once; /**< ranks of a group hold values together */
    uint64_t shard_chunks, encoded_a_step, decoded_a_step;
    cod_scale_links *links;
    double now_s, core_s; /**< time; what a rank that computes all the time has had of a core until then */
    double cost_s;        /**< what the exchange took, a rank of each group */
    int64_t computing;    /**< ranks of groups that have steps left */
    unsigned char *windows;
    uint64_t *staleness; /**< [steps + 1] how often */
    uint64_t samples, taken, usable, followed, lost, merged;
    double shared_bytes, strength;
} model;

/** What a group does of a pull at the end of a step. */
void scale_pull_move(model *m, group *g, pull *p, int64_t done, double now);
/** What was told of a pull two steps ago acts. */
void scale_pull_act(model *m, group *g, pull *p, int64_t step, double now);

#endif
