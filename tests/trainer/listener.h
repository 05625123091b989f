/**
 * @file
 * The strategy `listener`, of tests: averages gradients inside groups, notes which hooks are called, and checks what
 * strategy.h says of them.
 *
 * Notes are the hooks' names in their order, with the set or step that they are of, a line for each step. Checked
 * are: a set's buckets cover it once before its update, an update changes the set that it is of and no other and is
 * counted, flags come back as sums over the group, what save() has left comes to load(), and the ranks of a group end
 * with equal weights.
 */
#ifndef COD_TESTS_LISTENER_H
#define COD_TESTS_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

/** What it does beside listening. Zeroed = nothing. */
typedef struct listener_plan {
    const char *fails; /**< a hook, as in the notes: fails with COD_ERR_IO on one rank, once, from some step on */
    int fail_rank;
    int64_t fail_step;
    int64_t stop_after; /**< a rank is asked to stop once so many steps are done; 0 = none is */
    int stop_rank;
    const char *spoils; /**< a set, a weight of which becomes NaN on one rank once so many steps are done */
    int spoil_rank;
    int64_t spoil_after;
    float tilt[4];   /**< [group] added to the first value of the last tensor of the first set after the last step */
    bool teaches;    /**< adds a loss and a program, which odd steps choose */
    bool notes_data; /**< notes a hash of each mini-batch of the sub-step that distils */
    const char *chooses;                 /**< a program for each step */
    int64_t agree_within, in_step_every; /**< see cod_strategy */
    void (*meanwhile)(int64_t step);     /**< what others do before a step; called on one rank */
    int meanwhile_rank;
} listener_plan;

/**
 * `listener`, with state of its own on each rank; `eavesdropper`, the same under another name; and `bystander`, which
 * lets updates be queued with their gradients (only_averages).
 */
void listener_register(void);

#endif
