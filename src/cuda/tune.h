/**
 * @file
 * Finds the fastest of several candidates for an op. It knows nothing about GPUs: the caller passes the function that
 * times a candidate.
 */
#ifndef COD_CUDA_TUNE_H
#define COD_CUDA_TUNE_H

#include "cuda/choices.h"

/**
 * Times a candidate.
 *
 * @param      best_us  best time of the earlier candidates, 1e30 at first; for a candidate that is clearly slower a
 *                      rough figure suffices
 * @param[out] us       of one run
 * @return COD_ERR_UNSUPPORTED if this candidate cannot compute the op after all, which is no failure; any other status
 *         ends the search
 */
typedef cod_status cuda_timer(void *context, size_t candidate, double best_us, double *us);

/** The candidates to choose from. The first candidate is timed even without budget. */
typedef struct cuda_tuning {
    const char *key;
    const char (*names)[CUDA_NAME_BYTES];
    size_t count;
    double budget_s; /**< no further candidate is started after this time */
    cuda_timer *time;
    void *context;
} cuda_tuning;

/** The choice of cuda_tune(), and how it was made. */
typedef struct cuda_tuned {
    size_t chosen;
    bool remembered;     /**< the choice was found among earlier ones, and nothing was timed */
    double us, first_us; /**< of the chosen and of the first candidate; first_us 1e30 = the first could not do the op */
    size_t timed, unfit; /**< numbers of candidates that were timed, and of those that could not compute the op */
    double seconds;      /**< seconds of the search */
} cuda_tuned;

/**
 * Chooses the candidate that is remembered for the key, if it is among these. Otherwise times them, and chooses and
 * remembers the fastest, or the first of several equally fast ones.
 *
 * @return COD_ERR_UNSUPPORTED where no candidate could be timed
 */
COD_MUST_CHECK cod_status cuda_tune(cuda_choices *choices, const cuda_tuning *tuning, cuda_tuned *out);

#endif
