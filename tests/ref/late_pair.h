/**
 * @file
 * What the tests of the late backend share: the device around a `ref` that can misbehave, and two queues with work.
 */
#ifndef COD_TESTS_REF_LATE_PAIR_H
#define COD_TESTS_REF_LATE_PAIR_H

#include "support/ops.h"

enum { COUNT = 64, BYTES = COUNT * sizeof(float) };

/** What the bad backend does wrong, besides running `ref`. */
typedef struct misdeeds {
    bool grow; /**< allocates while a plan runs */
    bool call; /**< calls the late backend while a plan runs */
    bool fail; /**< fails */
    bool move; /**< moves the scratch that its plans share when a plan is made */
} misdeeds;

extern misdeeds misdeed;
extern cod_test_device late;

/** For cod_late_watch(): where that scratch lies. */
uint64_t scratch_place(cod_plan *inner);

/** Group set-up and tear-down of cmocka. */
int open_late(void **state);
int close_late(void **state);

/** Fails the test unless there were violations, the first with these words; or unless there were none. */
void expect_violation(const char *part);
void expect_none(void);

cod_buffer *new_buffer(size_t bytes);
cod_buffer *new_pinned(size_t bytes);
cod_queue *new_queue(void);
cod_event *new_event(void);
/** to = factor · from, of COUNT numbers. */
cod_plan *new_scale(cod_test_device on, const char *name, float factor, cod_buffer *from, cod_buffer *to);

/** Two queues, two plans of which the second reads what the first writes, and 0 … COUNT - 1 in pinned memory. */
typedef struct pair {
    cod_queue *queues[2];
    cod_event *event;
    cod_buffer *buffers[3], *pinned;
    cod_plan *first, *second;
} pair;

pair pair_open(void);
/** What is NULL was destroyed by the test. */
void pair_close(pair *p);

/** Copies BYTES from the start of one buffer to that of another. */
cod_status copy_all(cod_queue *queue, cod_buffer *target, cod_buffer *source);

#endif
