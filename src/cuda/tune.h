/**
 * @file
 * Which of several candidates for one op is the fastest. Knows nothing of GPUs: what times a candidate is given.
 */
#ifndef COD_CUDA_TUNE_H
#define COD_CUDA_TUNE_H

#include "cuda/choices.h"

/**
 * Times a candidate.
 *
 * @param      best_us  of the candidates before, 1e30 at first: where this one has no chance a rough figure will do
 * @param[out] us       of one run
 * @return COD_ERR_UNSUPPORTED where this candidate cannot do the op after all, which is no failure; any other ends
 *         the search
 */
typedef cod_status cuda_timer(void *context, size_t candidate, double best_us, double *us);

/** What there is to choose from. The first candidate is timed whatever the budget. */
typedef struct cuda_tuning {
    const char *key;
    const char (*names)[CUDA_NAME_BYTES];
    size_t count;
    double budget_s; /**< no candidate is begun after that */
    cuda_timer *time;
    void *context;
} cuda_tuning;

/** What cuda_tune() chose, and how. */
typedef struct cuda_tuned {
    size_t chosen;
    bool remembered;     /**< it was found among earlier choices, and nothing was timed */
    double us, first_us; /**< of the chosen and of the first candidate; first_us 1e30 where that could not do it */
    size_t timed, unfit; /**< candidates that were timed, and those that could not do the op */
    double seconds;      /**< that the search took */
} cuda_tuned;

/**
 * Chooses the candidate that is remembered for the key, if it is among these; else times them, and chooses and remembers the
 * fastest, the first of equals.
 *
 * @return COD_ERR_UNSUPPORTED where no candidate could be timed
 */
COD_MUST_CHECK cod_status cuda_tune(cuda_choices *choices, const cuda_tuning *tuning, cuda_tuned *out);

#endif
