/**
 * @file
 * The peers of a group as the codistill strategy uses them: each pulled version becomes the teacher and is merged once.
 */
#ifndef COD_DISTILL_PEERS_H
#define COD_DISTILL_PEERS_H

#include "core/branch.h"
#include "distill/exchange.h"
#include "distill/merge.h"
#include "distill/schedule.h"
#include "distill/teacher.h"
#include "train/strategy.h"

/** A fragment of a peer's model. */
typedef struct cod_peer_fragment {
    uint64_t version;    /**< that the exchange holds; 0 = none */
    uint64_t taught;     /**< in the teacher */
    uint64_t merged;     /**< the last one merged */
    uint64_t merged_own; /**< the own version that stood beside it */
} cod_peer_fragment;

typedef struct cod_peer {
    int group;
    cod_peer_fragment *fragments; /**< [cod_exchange_fragments()] */
    cod_teacher *teacher;         /**< NULL where nothing is distilled */
    float *saved;                 /**< of the teacher, in a checkpoint under way */
    uint64_t version;             /**< the newest of its fragments' in the teacher; 0 = not all of them have come */
    cod_teacher_age age;
    double weight;                      /**< when it last taught */
    double teacher_loss, student_loss;  /**< of the mini-batch where it was measured last; NaN = never */
    cod_exchange_peer_counters earlier; /**< of the processes before this one */
    double share; /**< of a merge, by samples per step: its ranks among all whose weights are merged; 0 = not merged */
} cod_peer;

/** All that the group reads; in the caller's storage. */
typedef struct cod_peers {
    cod_exchange *exchange;              /**< borrowed */
    cod_group *group;                    /**< borrowed; the own one */
    const cod_exchange_options *options; /**< borrowed */
    cod_peer *items;
    int count;
    cod_branch branch;  /**< in which teachers predict */
    cod_merger *merger; /**< NULL where nothing is merged */
    cod_merge *merging; /**< [count * fragments] those of the step, which are applied together */
    size_t merging_count;
    uint64_t switches, merges;
} cod_peers;

/**
 * Makes the exchange's peers, without a version yet.
 *
 * @param models   [groups] what each group trains
 * @param teacher  how they teach, its `peer` filled in here; NULL = not at all
 */
COD_MUST_CHECK cod_status cod_peers_init(cod_peers *peers, cod_train_context *context, cod_exchange *exchange,
                                         const cod_exchange_options *options, const cod_exchange_model *models,
                                         const cod_teacher_spec *teacher);
void cod_peers_clear(cod_peers *peers);

/** Uses what the exchange newly holds: the same on every rank of the group, at the same step. */
COD_MUST_CHECK cod_status cod_peers_take_over(cod_peers *peers, cod_train_context *context);

/** Brings the teachers' ages in seconds up to now. */
void cod_peers_grow_old(cod_peers *peers);

/** All but its staleness. */
void cod_peers_read(const cod_peers *peers, int index, cod_peer_stats *out);

/** Beside the exchange's own state. */
COD_MUST_CHECK cod_status cod_peers_save(const cod_peers *peers, cod_checkpoint *checkpoint);
/** After the exchange has been restored. */
COD_MUST_CHECK cod_status cod_peers_load(cod_peers *peers, const cod_st_file *file);

#endif
