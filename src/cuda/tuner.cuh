/**
 * @file
 * What a device keeps to choose implementations by their time: trials on tensors of its own, what was chosen, and the
 * handles of libraries.
 *
 * COD_CUDA_CONVOLUTION says what is chosen from: `auto` all that there is (the default), `own` the kernels of this
 * backend alone, `fixed` nothing: the cost model decides, as it does where an op is deterministic, where the device
 * was opened with no_autotune, and on the emulated GPU unless the variable says otherwise.
 */
#ifndef COD_CUDA_TUNER_CUH
#define COD_CUDA_TUNER_CUH

#include "cuda/cuda_internal.h"

extern "C" {
#include "cuda/tune.h"
}

enum cuda_mode { CUDA_MODE_AUTO, CUDA_MODE_OWN, CUDA_MODE_FIXED };

/** Fails where COD_CUDA_CONVOLUTION is set to none of its values. */
COD_MUST_CHECK cod_status cuda_tuner_check_mode();
/** How the plan's implementation is to be chosen. */
cuda_mode cuda_tuner_mode(const cod_plan *plan);

/** An implementation of a plan. */
struct cuda_candidate {
    /** The plan has its device and its op, and is to be cleared where this fails. */
    cod_status (*make)(cod_plan *plan, const cuda_candidate *candidate);
    void *source; /**< the maker's, for the life of the device */
    int number;   /**< likewise */
    /** What makes the convolution alone, where `make` puts a shuffle behind it (conv_shuffled.cu); else NULL. */
    cod_status (*make_part)(cod_plan *plan, const cuda_candidate *candidate) = nullptr;
};

enum { CUDA_MOST_CANDIDATES = 64 };

struct cuda_candidates {
    size_t count;
    cuda_candidate items[CUDA_MOST_CANDIDATES];
    char names[CUDA_MOST_CANDIDATES][CUDA_NAME_BYTES];
};

/** Those beyond the room are dropped. */
void cuda_candidates_add(cuda_candidates *list, const char *name, const cuda_candidate &candidate);

struct cuda_cudnn;
struct cuda_cublaslt;

struct cuda_tuner {
    cuda_choices *choices;
    double spent_s;          /**< timing, of all plans */
    double budget_s;         /**< most that may be spent so */
    size_t workspace_bytes;  /**< most that a library's implementation may have */
    cuda_cudnn *cudnn;       /**< NULL = not asked for yet, or absent */
    cuda_cublaslt *cublaslt; /**< likewise */
    bool cudnn_tried, cublaslt_tried;
    char libraries[640];
};

/** The device's, made at the first call. */
COD_MUST_CHECK cod_status cuda_tuner_of(cod_device *device, cuda_tuner **out);
void cuda_tuner_destroy(cuda_tuner *tuner);

/* conv_plan.cu */
/**
 * Whether the types and sizes of a convolution's or a linear layer's views are such as this backend has kernels for.
 */
COD_MUST_CHECK cod_status conv_check(const cod_op *op);
/** Makes the plan on own kernels. `candidate`: of conv_own_candidates(); NULL = the one that the cost model prefers. */
COD_MUST_CHECK cod_status conv_make_own(cod_plan *plan, const cuda_candidate *candidate);
/** Adds the kernels that can do the op, the one that the cost model prefers first. */
void conv_own_candidates(const cod_plan *plan, cuda_candidates *list);

/*
 * cudnn_plan.cu, cublaslt_plan.cu: candidates by libraries, none where the library is absent. `key`: of the op, as in
 * cuda_choices.
 */
void cudnn_candidates(const cod_plan *plan, const char *key, cuda_candidates *list);
void cudnn_close(cuda_cudnn *cudnn);
void cublaslt_candidates(const cod_plan *plan, cuda_candidates *list);
void cublaslt_close(cuda_cublaslt *cublaslt);

/** Adds candidates for the plan. `key`: of the op, as in cuda_choices. */
typedef void cuda_lister(const cod_plan *plan, const char *key, cuda_candidates *list);
/** conv_tune.cu: those of the libraries that are there. */
cuda_lister conv_library_candidates;
/**
 * conv_shuffled.cu: of a convolution that shuffles pixels, those of the convolution without it, `list_parts`, each with
 * the kernel of PIXEL_SHUFFLE behind it, and with the activation. Names are the parts' own; other ops have none.
 */
void conv_shuffled_candidates(const cod_plan *plan, const char *key, cuda_lister *list_parts, cuda_candidates *list);

/**
 * Makes the plan by the fastest of the candidates; the first one is what is taken where nothing can be timed, and
 * what the results of the others are compared with before they are trusted.
 */
COD_MUST_CHECK cod_status cuda_tuner_make(cod_plan *plan, const char *key, const cuda_candidates *list);

/** A line with all that the time of the plan's implementations depends on. */
void cuda_tuner_key(const cod_plan *plan, const char *libraries, char *key, size_t bytes);

/* trial.cu */

enum { CUDA_TRIAL_OPS = 3 };

/** A plan's ops on tensors of its own, filled with numbers, and what the first candidate makes of them. */
struct cuda_trial {
    cod_device *device;
    cod_op ops[CUDA_TRIAL_OPS];
    size_t count;
    cuda_buffer buffer;    /**< all views lie in it */
    size_t outputs, bytes; /**< where outputs begin, and all of it */
    /** bytes of the outputs, of the tensors as they are and of a NaN in an input; NULL until a candidate has run */
    void *expected[2];
    float *differences; /**< on the device: of what was compared */
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

/** @param plan  of CUDA_TRIAL_OPS ops at most */
COD_MUST_CHECK cod_status cuda_trial_init(cuda_trial *trial, const cod_plan *plan);
void cuda_trial_clear(cuda_trial *trial);
/**
 * Runs the candidate, compares what it gives with the first that ran, of numbers and then with a NaN among them, and
 * times it: three runs to warm up, then recordings of ten, of which the fastest counts, since programs run recorded.
 *
 * @return COD_ERR_UNSUPPORTED where it cannot do the op, cannot be recorded, or gives something else
 */
COD_MUST_CHECK cod_status cuda_trial_time(cuda_trial *trial, const cuda_candidate *candidate, const char *name,
                                          double best_us, double *us);

#endif
