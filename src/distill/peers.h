/**
 * @file
 * The peers of a group in the codistill strategy: each pulled version becomes the teacher and is merged once.
 */
#ifndef COD_DISTILL_PEERS_H
#define COD_DISTILL_PEERS_H

#include "core/branch.h"
#include "distill/schedule.h"
#include "distill/teacher.h"
#include "distill/weights_merger.h"
#include "exchange/exchange.h"
#include "train/strategy.h"

/** A fragment of a peer's model. */
typedef struct cod_peer_fragment {
    uint64_t version; /**< version that the exchange holds; 0 = none */
    uint64_t taught;  /**< version in the teacher */
    cod_merge_turn merged;
} cod_peer_fragment;

typedef struct cod_peer {
    int group;
    cod_peer_fragment *fragments; /**< [cod_exchange_fragments()] */
    cod_teacher *teacher;         /**< NULL = no distillation */
    float *saved;                 /**< the teacher's values while a checkpoint is written */
    uint64_t version; /**< newest version of its fragments in the teacher; 0 = not all fragments have arrived */
    cod_teacher_age age;
    double weight;                      /**< when it was last its turn; 0 = it did not teach */
    double teacher_loss, student_loss;  /**< on the mini-batch of the last measurement; NaN = never */
    cod_exchange_peer_counters earlier; /**< counters of earlier processes */
    double share; /**< weight in a merge, by samples per step: its ranks' share of all merged ranks; 0 = not merged */
} cod_peer;

/** All peers that the group reads; in the caller's storage. */
typedef struct cod_peers {
    cod_exchange *exchange;              /**< borrowed */
    cod_group *group;                    /**< borrowed; this rank's group */
    const cod_exchange_options *options; /**< borrowed */
    cod_peer *items;
    int count;
    cod_branch branch;          /**< branch in which teachers predict */
    cod_weights_merger *merger; /**< NULL = no merging */
    cod_merge *merging;         /**< [count * fragments] merges of the step, which are applied together */
    size_t merging_count;
    uint64_t switches, merges;
} cod_peers;

/**
 * Makes the peers of the exchange; none has a version yet.
 *
 * @param models   [groups] the model of each group
 * @param teacher  how they teach; this function fills in `peer`. NULL = they do not teach
 */
COD_MUST_CHECK cod_status cod_peers_init(cod_peers *peers, cod_train_context *context, cod_exchange *exchange,
                                         const cod_exchange_options *options, const cod_exchange_model *models,
                                         const cod_teacher_spec *teacher);
void cod_peers_clear(cod_peers *peers);

/** Uses new versions that the exchange holds: the same ones on every rank of the group, at the same step. */
COD_MUST_CHECK cod_status cod_peers_take_over(cod_peers *peers, cod_train_context *context);

/** Updates the teachers' ages in seconds. */
void cod_peers_grow_old(cod_peers *peers);

/** Reads a peer's statistics, except its staleness. */
void cod_peers_read(const cod_peers *peers, int index, cod_peer_stats *out);

/** Saves the state of the peers; the exchange saves its own. */
COD_MUST_CHECK cod_status cod_peers_save(const cod_peers *peers, cod_checkpoint *checkpoint);
/** Restores that state; to be called after the exchange has been restored. */
COD_MUST_CHECK cod_status cod_peers_load(cod_peers *peers, const cod_st_file *file);

#endif
